#include "channel.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/num.h"
#include "base/str.h"
#include "base/websocket_key.h"

#define MESSAGE_MAX_BYTES ((uint64_t)2 * 1024 * 1024) /* the service's are of at most 1 MiB */
#define ANSWER_TIMEOUT_MS 60000
#define HEAD_MAX_BYTES    ((size_t)16 * 1024)

/* Frames. */

static ssize_t would_block(wslay_event_context_ptr wslay)
{
	wslay_event_set_error(wslay, errno == EAGAIN || errno == EINTR
					     ? WSLAY_ERR_WOULDBLOCK
					     : WSLAY_ERR_CALLBACK_FAILURE);
	return -1;
}

static ssize_t on_send(wslay_event_context_ptr wslay, const uint8_t *data, size_t size, int flags,
		       void *userdata)
{
	const struct channel *channel = userdata;
	ssize_t n = send(channel->fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);

	(void)flags;
	return n >= 0 ? n : would_block(wslay);
}

static ssize_t on_receive(wslay_event_context_ptr wslay, uint8_t *data, size_t size, int flags,
			  void *userdata)
{
	struct channel *channel = userdata;
	ssize_t n;

	(void)flags;
	if (channel->early.size > 0) {
		size = size < channel->early.size ? size : channel->early.size;
		memcpy(data, channel->early.data, size);
		buf_consume(&channel->early, size);
		return (ssize_t)size;
	}
	n = recv(channel->fd, data, size, MSG_DONTWAIT);
	if (n > 0)
		return n;
	if (n < 0)
		return would_block(wslay);
	channel->ended = true;
	wslay_event_set_error(wslay, WSLAY_ERR_CALLBACK_FAILURE);
	return -1;
}

static int on_mask(wslay_event_context_ptr wslay, uint8_t *data, size_t size, void *userdata)
{
	(void)userdata;
	if (getrandom(data, size, 0) == (ssize_t)size)
		return 0;
	wslay_event_set_error(wslay, WSLAY_ERR_CALLBACK_FAILURE);
	return -1;
}

static void on_message(wslay_event_context_ptr wslay,
		       const struct wslay_event_on_msg_recv_arg *message, void *userdata)
{
	struct channel *channel = userdata;

	if (wslay_is_ctrl_frame(message->opcode) || channel->result < 0)
		return;
	channel->result = channel->message(channel->userdata, message->opcode == WSLAY_BINARY_FRAME,
					   message->msg, message->msg_length);
	if (channel->result < 0)
		wslay_event_shutdown_read(wslay);
}

short channel_events(const struct channel *channel)
{
	return (short)(POLLIN | (wslay_event_want_write(channel->wslay) ? POLLOUT : 0));
}

size_t channel_queued(const struct channel *channel)
{
	return wslay_event_get_queued_msg_length(channel->wslay);
}

int channel_send(struct channel *channel, bool is_binary, const void *data, size_t size)
{
	const struct wslay_event_msg message = {
		.opcode = is_binary ? WSLAY_BINARY_FRAME : WSLAY_TEXT_FRAME,
		.msg = data,
		.msg_length = size,
	};

	switch (wslay_event_queue_msg(channel->wslay, &message)) {
	case 0:
	case WSLAY_ERR_NO_MORE_MSG: /* it is being closed */
		return 0;
	default:
		return -ENOMEM;
	}
}

int channel_run(struct channel *channel)
{
	int r = wslay_event_recv(channel->wslay);

	if (channel->result < 0)
		return channel->result;
	if (r == 0)
		r = wslay_event_send(channel->wslay);
	if (wslay_event_get_close_received(channel->wslay))
		return wslay_event_get_status_code_received(channel->wslay) ==
				       WSLAY_CODE_NORMAL_CLOSURE
			       ? -ENODATA
			       : -EPIPE;
	return r == 0 ? 0 : -EPIPE;
}

/* The opening handshake. */

/* 0, -EINTR (a signal) or -EPIPE: nothing comes. */
static int await(struct client *client, int fd)
{
	struct pollfd fds[] = {
		{.fd = fd,                .events = POLLIN},
                {.fd = client->signal_fd, .events = POLLIN}
        };
	int n;

	do
		n = poll(fds, ARRAY_SIZE(fds), ANSWER_TIMEOUT_MS);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return -EPIPE;
	return fds[1].revents && client_signal_came(client) ? -EINTR : 0;
}

/* Append what comes until `n` bytes are there, or, 0, a head is. */
static int read_answer(struct client *client, struct channel *channel, size_t n)
{
	struct buf *answer = &channel->early;

	while (n > 0 ? answer->size < n
		     : !memmem(answer->size ? answer->data : (const uint8_t *)"", answer->size,
			       "\r\n\r\n", 4)) {
		uint8_t data[4096];
		ssize_t size;
		int r = await(client, channel->fd);

		if (r < 0)
			return r;
		if (n == 0 && answer->size > HEAD_MAX_BYTES)
			return -EPIPE;
		size = recv(channel->fd, data, sizeof(data), 0);
		if (size <= 0)
			return -EPIPE;
		r = buf_append(answer, data, (size_t)size);
		if (r < 0)
			return r;
	}
	return 0;
}

/* A header's value, cut out of the head; NULL: it is not there. */
static const char *header_value(char *head, const char *name)
{
	size_t length = strlen(name);

	for (char *line = strchr(head, '\n'); line; line = strchr(line, '\n')) {
		char *end;

		line++;
		if (strncasecmp(line, name, length) != 0 || line[length] != ':')
			continue;
		line += length + 1;
		line += strspn(line, " \t");
		end = line + strcspn(line, "\r\n");
		*end = '\0';
		return line;
	}
	return NULL;
}

static int send_request(const struct channel *channel, const struct client *client,
			const char *path, const char *key)
{
	struct buf text = BUF_NULL(HEAD_MAX_BYTES);
	int r = buf_printf(&text,
			   "GET %s HTTP/1.1\r\nHost: sandboxd\r\nConnection: Upgrade\r\n"
			   "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
			   "Sec-WebSocket-Key: %s\r\n",
			   path, key);

	for (const struct curl_slist *i = client->headers; i && r == 0; i = i->next)
		/* One that curl is told to leave away has no value. */
		if (!str_has_prefix(i->data, "Expect:"))
			r = buf_printf(&text, "%s\r\n", i->data);
	if (r == 0)
		r = buf_append_str(&text, "\r\n");
	if (r == 0 && send(channel->fd, text.data, text.size, MSG_NOSIGNAL) != (ssize_t)text.size)
		r = -EPIPE;
	buf_done(&text);
	return r;
}

/* The rest of an answer that is no handshake; without one that is understood there is no text. */
static int take_refusal(struct client *client, struct channel *channel, char *head,
			struct client_reply *reply)
{
	const char *length = header_value(head, "Content-Length");
	const char *reason;
	uint32_t n;
	int r;

	if (!length || num_parse_u32(length, 1, HEAD_MAX_BYTES, &n) < 0)
		return 0;
	r = read_answer(client, channel, n);
	if (r == 0)
		(void)!doc_parse((const char *)channel->early.data, n, &reply->doc, &reason);
	return r;
}

static int take_answer(struct client *client, struct channel *channel, const char *key,
		       struct client_reply *reply)
{
	static const char version[] = "HTTP/1.1 ";
	char wanted[WEBSOCKET_ACCEPT_BYTES];
	char status[4];
	AUTO_FREE char *head = NULL;
	const char *accept;
	const char *end;
	uint32_t number;
	int r = read_answer(client, channel, 0);

	if (r < 0)
		return r;
	end = memmem(channel->early.data, channel->early.size, "\r\n\r\n", 4);
	ASSERT(end);
	head = strndup((const char *)channel->early.data,
		       (size_t)(end - (const char *)channel->early.data));
	if (!head)
		return -ENOMEM;
	buf_consume(&channel->early, (size_t)(end - (const char *)channel->early.data) + 4);
	if (!str_has_prefix(head, version) ||
	    str_copy_n(status, sizeof(status), head + strlen(version), 3) < 0 ||
	    num_parse_u32(status, 100, 599, &number) < 0)
		return -EPIPE;
	reply->status = number;
	if (number != 101)
		return take_refusal(client, channel, head, reply);
	websocket_key_answer(key, wanted);
	accept = header_value(head, "Sec-WebSocket-Accept");
	return accept && str_equal(accept, wanted) ? 0 : -EPIPE;
}

static int connect_socket(struct channel *channel, const struct client *client)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int r = str_copy(address.sun_path, sizeof(address.sun_path), client->socket_path);

	if (r < 0)
		return r;
	channel->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (channel->fd < 0)
		return -errno;
	if (connect(channel->fd, (const void *)&address, sizeof(address)) < 0)
		return errno == EACCES ? -EACCES : -ECONNREFUSED;
	return 0;
}

int channel_open(struct channel *channel, struct client *client, const char *path,
		 struct client_reply *reply)
{
	static const struct wslay_event_callbacks callbacks = {
		.recv_callback = on_receive,
		.send_callback = on_send,
		.genmask_callback = on_mask,
		.on_msg_recv_callback = on_message,
	};
	uint8_t nonce[16];
	char key[WEBSOCKET_KEY_CHARS + 1];
	int r = connect_socket(channel, client);

	if (r < 0)
		return r;
	if (getrandom(nonce, sizeof(nonce), 0) != (ssize_t)sizeof(nonce))
		return -EIO;
	key[str_base64(key, nonce, sizeof(nonce))] = '\0';
	r = send_request(channel, client, path, key);
	if (r == 0)
		r = take_answer(client, channel, key, reply);
	if (r < 0 || reply->status != 101)
		return r;
	if (wslay_event_context_client_init(&channel->wslay, &callbacks, channel) != 0)
		return -ENOMEM;
	wslay_event_config_set_max_recv_msg_length(channel->wslay, MESSAGE_MAX_BYTES);
	return 0;
}

void channel_close(struct channel *channel)
{
	if (channel->wslay) {
		/* As far as the socket takes it: a connection that ends says the same. */
		(void)wslay_event_queue_close(channel->wslay, WSLAY_CODE_NORMAL_CLOSURE, NULL, 0);
		(void)wslay_event_send(channel->wslay);
		wslay_event_context_free(channel->wslay);
	}
	channel->wslay = NULL;
	buf_done(&channel->early);
	channel->fd = fd_close(channel->fd);
}
