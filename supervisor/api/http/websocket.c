#include "supervisor/api/http/websocket.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <wslay/wslay.h>

#include "base/json.h"
#include "base/websocket_key.h"

#include "supervisor/api/http/handshake.h"
#include "supervisor/api/http/lines.h"
#include "supervisor/api/http/reply.h"
#include "supervisor/api/http/server_state.h"

#define MESSAGE_MAX_BYTES ((uint64_t)16 * 1024) /* of the client */
#define OWN_MAX_BYTES     ((size_t)1024 * 1024) /* of a stream with messages of its own */
#define FRAGMENTS_MAX     64 /* of one message: each costs memory of its own, whatever its length */
#define READ_A_TURN_BYTES ((size_t)20 * 1024) /* a longest message, so that it is one turn's */
#define MESSAGES_A_TURN   64
#define QUEUED_MAX        16 /* answers to pings: a client that does not take them is not read */
#define PING_EVERY        (20 * USEC_PER_SEC)
#define SILENCE_TIMEOUT   (55 * USEC_PER_SEC) /* behind a ping */
#define BLOCK_TIMEOUT     (60 * USEC_PER_SEC) /* for one block of the stream */
#define GOODBYE_TIMEOUT   (10 * USEC_PER_SEC)

_Static_assert(MESSAGE_MAX_BYTES + READ_A_TURN_BYTES <= WEBSOCKET_TURN_MAX_BYTES, "one turn");

struct websocket {
	struct request *request;
	struct MHD_UpgradeResponseHandle *handle; /* NULL: not ours yet, or not any more */
	wslay_event_context_ptr wslay;
	sd_event_source *io;
	int fd;         /* the library's */
	uint8_t *early; /* what came behind the request's head */
	size_t early_bytes;
	size_t early_at;
	size_t budget;            /* bytes that may still be read in this turn */
	unsigned int n_fragments; /* of the message that is being read */
	bool blocked;             /* the socket takes no more */
	bool left;                /* the client did */
	bool named;               /* its first message was answered */
	bool closing;
	usec_t heard; /* boottime, as those that follow */
	usec_t pinged;
	usec_t refilled;
	usec_t close_by;
	struct lines lines;
	struct buf message; /* the stream's own, where it has some */
	char accept[WEBSOCKET_ACCEPT_BYTES];
};

/* Handshake. */

static enum MHD_Result take_header(void *userdata, enum MHD_ValueKind kind, const char *name,
				   const char *value)
{
	(void)kind;
	handshake_add(userdata, name, value);
	return MHD_YES;
}

static bool accept_offer(struct request *request, const char *key)
{
	struct websocket *socket = calloc(1, sizeof(*socket));

	if (!socket) {
		reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
		return false;
	}
	socket->request = request;
	socket->fd = -1;
	websocket_key_answer(key, socket->accept);
	request->websocket = socket;
	return true;
}

bool websocket_judge(struct request *request)
{
	struct handshake handshake = {0};

	/* A handler that waited runs once more. */
	if (!request->may_upgrade || request->websocket)
		return true;
	(void)MHD_get_connection_values(request->connection, MHD_HEADER_KIND, take_header,
					&handshake);
	switch (handshake_judge(&handshake, request_config(request)->websocket_origins)) {
	case HANDSHAKE_NONE:
		return true;
	case HANDSHAKE_OK:
		return accept_offer(request, handshake.key);
	case HANDSHAKE_BAD_VERSION:
		request_add_header(request, "Upgrade", "websocket"); /* RFC 9110, 15.5.22 */
		request_add_header(request, "Sec-WebSocket-Version", "13");
		reply_detail(request, MHD_HTTP_UPGRADE_REQUIRED, "unknown WebSocket version");
		return false;
	case HANDSHAKE_BAD_ORIGIN:
		reply_detail(request, MHD_HTTP_FORBIDDEN, "origin not allowed");
		return false;
	case HANDSHAKE_BAD_REQUEST:
	case HANDSHAKE_RESULT_MAX_:
		break;
	}
	reply_detail(request, MHD_HTTP_BAD_REQUEST, "invalid WebSocket handshake");
	return false;
}

/* The end. */

/* Give the connection back; the library closes it in its next run, which also ends the request. */
static void give_back(struct websocket *socket)
{
	if (!socket->handle)
		return;
	socket->io = sd_event_source_disable_unref(socket->io);
	(void)shutdown(socket->fd, SHUT_RDWR);
	(void)MHD_upgrade_action(socket->handle, MHD_UPGRADE_ACTION_CLOSE);
	socket->handle = NULL;
	socket->request->client_left = true;
	socket->request->server->dirty = true;
}

/* Nothing of the stream follows; the client has until `patience` to take the last word. */
static void begin_close(struct websocket *socket, uint16_t code, const char *reason,
			usec_t patience)
{
	if (socket->closing)
		return;
	socket->closing = true;
	socket->close_by = clock_add(clock_boottime(), patience);
	if (wslay_event_queue_close(socket->wslay, code, (const uint8_t *)reason, strlen(reason)) !=
	    0)
		socket->left = true; /* no memory: without a word */
	request_end_stream(socket->request);
}

bool websocket_is_open(const struct websocket *socket)
{
	return socket->handle != NULL;
}

struct websocket *websocket_free(struct websocket *socket)
{
	if (!socket)
		return NULL;
	socket->io = sd_event_source_disable_unref(socket->io);
	if (socket->wslay)
		wslay_event_context_free(socket->wslay);
	free(socket->early);
	buf_done(&socket->message);
	free(socket);
	return NULL;
}

/* What the library for frames asks of us. */

static ssize_t on_send(wslay_event_context_ptr wslay, const uint8_t *data, size_t size, int flags,
		       void *userdata)
{
	struct websocket *socket = userdata;
	int more = flags & WSLAY_MSG_MORE ? MSG_MORE : 0;
	ssize_t n = send(socket->fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL | more);

	if (n >= 0) {
		/* The library goes on with the rest in its next turn only. */
		socket->blocked |= (size_t)n < size;
		return n;
	}
	if (errno == EAGAIN || errno == EINTR) {
		socket->blocked = true;
		wslay_event_set_error(wslay, WSLAY_ERR_WOULDBLOCK);
	} else {
		wslay_event_set_error(wslay, WSLAY_ERR_CALLBACK_FAILURE);
	}
	return -1;
}

static ssize_t take_early(struct websocket *socket, uint8_t *data, size_t size)
{
	size_t n = socket->early_bytes - socket->early_at;

	if (n > size)
		n = size;
	memcpy(data, socket->early + socket->early_at, n);
	socket->early_at += n;
	return (ssize_t)n;
}

static ssize_t on_receive(wslay_event_context_ptr wslay, uint8_t *data, size_t size, int flags,
			  void *userdata)
{
	struct websocket *socket = userdata;
	ssize_t n;

	(void)flags;
	if (size > socket->budget)
		size = socket->budget;
	if (size == 0 || wslay_event_get_queued_msg_count(wslay) >= QUEUED_MAX) {
		wslay_event_set_error(wslay, WSLAY_ERR_WOULDBLOCK);
		return -1;
	}
	n = socket->early_at < socket->early_bytes ? take_early(socket, data, size)
						   : recv(socket->fd, data, size, MSG_DONTWAIT);
	if (n > 0) {
		socket->budget -= (size_t)n;
		socket->heard = clock_boottime();
		return n;
	}
	if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
		wslay_event_set_error(wslay, WSLAY_ERR_WOULDBLOCK);
		return -1;
	}
	socket->left = true;
	wslay_event_set_error(wslay, WSLAY_ERR_CALLBACK_FAILURE);
	return -1;
}

static ssize_t read_stream(void *userdata, char *data, size_t size)
{
	struct websocket *socket = userdata;
	struct request *request = socket->request;
	ssize_t n = -ENODATA;

	if (request->stream)
		n = request->stream->read(request->stream_userdata, data, size);
	if (n > 0)
		socket->refilled = clock_boottime();
	return n;
}

/* A piece of the line that is being sent. */
static ssize_t on_source(wslay_event_context_ptr wslay, uint8_t *data, size_t size,
			 const union wslay_event_msg_source *source, int *eof, void *userdata)
{
	struct websocket *socket = userdata;
	bool ended;
	ssize_t n = lines_take(&socket->lines, read_stream, socket, data, size, &ended);

	(void)source;
	*eof = ended;
	if (n >= 0)
		return n;
	wslay_event_set_error(wslay, WSLAY_ERR_CALLBACK_FAILURE);
	return -1;
}

/* Client messages. */

static json_t *scope_names(uint32_t scopes)
{
	json_t *names = json_array();

	for (uint32_t bit = 1; names && bit < AUTH_ALL; bit <<= 1) {
		if (!(scopes & bit))
			continue;
		if (json_array_append_new(names, json_string(auth_scope_name(bit))) < 0) {
			json_decref(names);
			return NULL;
		}
	}
	return names;
}

static char *identity_text(const struct identity *identity)
{
	const char *workspace = identity->workspace[0] ? identity->workspace : NULL;
	json_t *doc =
		json_pack("{s:s, s:s, s:s?, s:o}", "type", "auth_ok", "user_id", identity->user,
			  "tenant_id", workspace, "scopes", scope_names(identity->scopes));
	char *text = doc ? doc_format(doc, 0) : NULL;

	json_decref(doc);
	return text;
}

static bool is_auth(const struct wslay_event_on_msg_recv_arg *message)
{
	const char *reason;
	const char *type;
	json_t *doc;
	bool is;

	if (message->opcode != WSLAY_TEXT_FRAME ||
	    doc_parse((const char *)message->msg, message->msg_length, &doc, &reason) < 0)
		return false;
	type = json_string_value(json_object_get(doc, "type"));
	is = type && strcmp(type, "auth") == 0;
	json_decref(doc);
	return is;
}

static bool takes_messages(const struct websocket *socket)
{
	return socket->request->stream && socket->request->stream->message;
}

static void give_message(struct websocket *socket,
			 const struct wslay_event_on_msg_recv_arg *message)
{
	int r = socket->request->stream->message(socket->request->stream_userdata,
						 message->opcode == WSLAY_BINARY_FRAME,
						 message->msg, message->msg_length);

	if (r == -EBADMSG)
		begin_close(socket, WEBSOCKET_CLOSE_PROTOCOL, "the message is not understood",
			    GOODBYE_TIMEOUT);
	else if (r < 0)
		begin_close(socket, WEBSOCKET_CLOSE_INTERNAL, "the message cannot be taken",
			    GOODBYE_TIMEOUT);
}

/* Whatever token is in it: the proxy has judged the request, and nothing here could do better. */
static void on_message(wslay_event_context_ptr wslay,
		       const struct wslay_event_on_msg_recv_arg *message, void *userdata)
{
	struct websocket *socket = userdata;
	struct wslay_event_msg answer = {.opcode = WSLAY_TEXT_FRAME};
	char *text;

	if (wslay_is_ctrl_frame(message->opcode) || socket->closing)
		return;
	if (takes_messages(socket) && (socket->named || !is_auth(message))) {
		give_message(socket, message);
		return;
	}
	if (socket->named || !is_auth(message)) {
		begin_close(socket, WEBSOCKET_CLOSE_PROTOCOL, "nothing is expected here",
			    GOODBYE_TIMEOUT);
		return;
	}
	socket->named = true;
	text = identity_text(&socket->request->identity);
	if (text) {
		answer.msg = (const uint8_t *)text;
		answer.msg_length = strlen(text);
	}
	if (!text || wslay_event_queue_msg(wslay, &answer) != 0)
		begin_close(socket, WEBSOCKET_CLOSE_INTERNAL, "out of memory", GOODBYE_TIMEOUT);
	free(text);
}

/* Before a frame's payload gets its memory. */
static void on_frame(wslay_event_context_ptr wslay,
		     const struct wslay_event_on_frame_recv_start_arg *frame, void *userdata)
{
	struct websocket *socket = userdata;

	if (wslay_is_ctrl_frame(frame->opcode))
		return;
	socket->n_fragments =
		frame->opcode == WSLAY_CONTINUATION_FRAME ? socket->n_fragments + 1 : 1;
	if (socket->n_fragments <= FRAGMENTS_MAX)
		return;
	begin_close(socket, WSLAY_CODE_MESSAGE_TOO_BIG, "too many fragments", GOODBYE_TIMEOUT);
	wslay_event_shutdown_read(wslay);
}

/* A turn. */

/* The stream takes nothing now: what the client sends, pongs too, stays where it is. */
static bool is_held(const struct websocket *socket)
{
	const struct request_stream *stream = socket->request->stream;

	return stream && stream->may_take && !stream->may_take(socket->request->stream_userdata);
}

static bool may_read(const struct websocket *socket)
{
	return !is_held(socket) && wslay_event_want_read(socket->wslay) &&
	       wslay_event_get_queued_msg_count(socket->wslay) < QUEUED_MAX;
}

/* A message of the stream's own. As request_stream's next. */
static int next_own(struct websocket *socket)
{
	const struct request_stream *stream = socket->request->stream;
	struct wslay_event_msg message = {.opcode = WSLAY_TEXT_FRAME};
	bool is_binary = false;
	int r;

	buf_reset(&socket->message);
	socket->message.max_bytes = OWN_MAX_BYTES;
	r = stream->next(socket->request->stream_userdata, &socket->message, &is_binary);
	if (r <= 0)
		return r;
	if (is_binary)
		message.opcode = WSLAY_BINARY_FRAME;
	message.msg = socket->message.data;
	message.msg_length = socket->message.size;
	socket->refilled = clock_boottime();
	return wslay_event_queue_msg(socket->wslay, &message) == 0 ? 1 : -ENOMEM;
}

/* Begin the next line, or the end. False: nothing to say now. */
static bool next_line(struct websocket *socket)
{
	static const struct wslay_event_fragmented_msg line = {
		.opcode = WSLAY_TEXT_FRAME,
		.read_callback = on_source,
	};
	int r = lines_fill(&socket->lines, read_stream, socket);

	if (r == 0)
		return false;
	if (r == -ENODATA)
		begin_close(socket, WSLAY_CODE_NORMAL_CLOSURE, "", GOODBYE_TIMEOUT);
	else if (r < 0 || wslay_event_queue_fragmented_msg(socket->wslay, &line) != 0)
		begin_close(socket, WEBSOCKET_CLOSE_INTERNAL, "the frames cannot be read",
			    GOODBYE_TIMEOUT);
	return true;
}

static bool next_message(struct websocket *socket)
{
	int r;

	if (!socket->request->stream || !socket->request->stream->next)
		return next_line(socket);
	r = next_own(socket);
	if (r == 0)
		return false;
	if (r < 0)
		begin_close(socket,
			    r == -ENODATA ? WSLAY_CODE_NORMAL_CLOSURE : WEBSOCKET_CLOSE_INTERNAL,
			    r == -ENODATA ? "" : "the output cannot be read", GOODBYE_TIMEOUT);
	return true;
}

/* Send until the socket is full, the stream is silent, or others have waited long enough. True:
 * there is more. */
static bool write_out(struct websocket *socket)
{
	socket->blocked = false;
	for (int i = 0; i < MESSAGES_A_TURN; i++) {
		if (wslay_event_send(socket->wslay) != 0) {
			socket->left = true;
			return false;
		}
		if (wslay_event_want_write(socket->wslay))
			return false; /* blocked, or the stream owes the rest of a line */
		if (socket->closing || wslay_event_get_close_received(socket->wslay) ||
		    !next_message(socket))
			return false;
	}
	return true;
}

static bool is_over(const struct websocket *socket)
{
	if (socket->left)
		return true;
	/* An answered close, or one after which the other side is not listened to. */
	return wslay_event_get_close_sent(socket->wslay) &&
	       (wslay_event_get_close_received(socket->wslay) ||
		!wslay_event_want_read(socket->wslay));
}

static void run(struct websocket *socket)
{
	uint32_t events = 0;
	bool more;

	socket->budget = READ_A_TURN_BYTES;
	if (may_read(socket) && wslay_event_recv(socket->wslay) != 0)
		socket->left = true;
	more = !socket->left && write_out(socket);
	if (is_over(socket)) {
		give_back(socket);
		return;
	}
	if (may_read(socket)) {
		events |= EPOLLIN;
		more |= socket->early_at < socket->early_bytes;
	}
	if (more || socket->blocked)
		events |= EPOLLOUT;
	if (sd_event_source_set_io_events(socket->io, events) < 0)
		give_back(socket);
}

static int on_io(sd_event_source *source, int fd, uint32_t revents, void *userdata)
{
	struct websocket *socket = userdata;

	(void)source;
	(void)fd;
	if (revents & (EPOLLHUP | EPOLLERR))
		give_back(socket);
	else
		run(socket);
	return 0;
}

void websocket_wake(struct websocket *socket)
{
	if (!socket->handle || socket->closing || socket->blocked)
		return;
	/* In a turn of its own: whoever wakes us is in the middle of something. */
	if (sd_event_source_set_io_events(socket->io, EPOLLIN | EPOLLOUT) < 0)
		give_back(socket);
}

/* One ping at a time; while it is not answered no other goes out. */
static void sweep_silence(struct websocket *socket, usec_t now)
{
	struct wslay_event_msg ping = {.opcode = WSLAY_PING};

	/* Of one that we do not read its answers are not awaited: they lie behind its input. */
	if (socket->heard < socket->pinged && !is_held(socket)) {
		if (clock_add(socket->pinged, SILENCE_TIMEOUT) < now)
			give_back(socket);
		return;
	}
	if (clock_add(socket->pinged, PING_EVERY) > now)
		return;
	socket->pinged = now;
	if (wslay_event_queue_msg(socket->wslay, &ping) == 0)
		run(socket);
}

void websocket_sweep(struct websocket *socket, usec_t now)
{
	if (!socket->handle)
		return;
	if (socket->closing) {
		if (socket->close_by < now)
			give_back(socket);
	} else if (socket->blocked) {
		/* Pings lie behind what it has not read. */
		socket->pinged = socket->heard;
		if (clock_add(socket->refilled, BLOCK_TIMEOUT) < now)
			begin_close(socket, WEBSOCKET_CLOSE_LATER, "too slow", BLOCK_TIMEOUT);
	} else {
		sweep_silence(socket, now);
	}
}

void websocket_stop(struct websocket *socket)
{
	if (!socket->handle)
		return;
	begin_close(socket, WSLAY_CODE_GOING_AWAY, "the service stops", 0);
	(void)wslay_event_send(socket->wslay);
	give_back(socket);
}

/* The upgrade. */

static int take_connection(struct websocket *socket, const void *extra, size_t extra_bytes)
{
	static const struct wslay_event_callbacks callbacks = {
		.recv_callback = on_receive,
		.send_callback = on_send,
		.on_frame_recv_start_callback = on_frame,
		.on_msg_recv_callback = on_message,
	};
	usec_t now = clock_boottime();

	socket->heard = now;
	socket->pinged = now;
	socket->refilled = now;
	if (extra_bytes > 0) {
		socket->early = malloc(extra_bytes);
		if (!socket->early)
			return -ENOMEM;
		memcpy(socket->early, extra, extra_bytes);
		socket->early_bytes = extra_bytes;
	}
	if (wslay_event_context_server_init(&socket->wslay, &callbacks, socket) != 0)
		return -ENOMEM;
	wslay_event_config_set_max_recv_msg_length(socket->wslay, MESSAGE_MAX_BYTES);
	return sd_event_add_io(socket->request->server->event, &socket->io, socket->fd,
			       EPOLLIN | EPOLLOUT, on_io, socket);
}

/* The library's type for this callback has seven parameters. */
/* NOLINTNEXTLINE(readability-function-size) */
static void on_upgraded(void *userdata, struct MHD_Connection *connection, void *con_cls,
			const char *extra, size_t extra_bytes, MHD_socket fd,
			struct MHD_UpgradeResponseHandle *handle)
{
	struct websocket *socket = userdata;

	(void)connection;
	(void)con_cls;
	socket->fd = fd;
	socket->handle = handle;
	if (socket->request->client_left || take_connection(socket, extra, extra_bytes) < 0)
		give_back(socket);
}

struct MHD_Response *websocket_response(struct websocket *socket)
{
	struct MHD_Response *response = MHD_create_response_for_upgrade(on_upgraded, socket);

	if (!response)
		return NULL;
	(void)MHD_add_response_header(response, MHD_HTTP_HEADER_UPGRADE, "websocket");
	(void)MHD_add_response_header(response, "Sec-WebSocket-Accept", socket->accept);
	return response;
}
