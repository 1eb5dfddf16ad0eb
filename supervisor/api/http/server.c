/*
 * The meeting of libmicrohttpd and our loop.
 *
 * Its epoll descriptor is one source of the loop, its next time-out one timer. It calls us back for
 * headers, pieces of the body, the end of the request, and for more of a stream. Facts that shape
 * this file: a stream reader that has nothing must suspend the connection (returning 0 alone
 * spins); an answer can be queued before the body was read or after all of it, not in between; a
 * connection that is suspended neither notices that its client left nor may be left so when the
 * daemon stops.
 */
#include "supervisor/api/http/server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>

#include "base/log.h"
#include "base/str.h"

#include "sandboxd/api.h"
#include "supervisor/api/http/connections.h"
#include "supervisor/api/http/judge.h"
#include "supervisor/api/http/payload.h"
#include "supervisor/api/http/reply.h"
#include "supervisor/api/http/server_state.h"
#include "supervisor/api/http/turns.h"
#include "supervisor/api/http/websocket.h"

#define CONNECTION_MEMORY_BYTES ((size_t)64 * 1024)
#define IDLE_TIMEOUT_S          60u
#define RUNS_A_TURN             8
#define RUN_TIME                (2 * USEC_PER_MS)

static void log_request(const struct request *request, enum MHD_RequestTerminationCode code)
{
	struct log_context context = {.request = request->request_id};
	const struct route *route = request->route;
	int status = request->status;

	if (status >= 100 && status < 600) /* else its client left before the answer */
		request->server->options.counters->n_status[status / 100]++;
	log_line(LOG_LEVEL_INFO, &context, "request",
		 "method=%s route=%s status=%d user=%s duration_us=%llu%s",
		 route ? routes_method_name(route->method) : "-", route ? route->pattern : "-",
		 status, request->identity.user[0] ? request->identity.user : "-",
		 (unsigned long long)(clock_boottime() - request->began),
		 code == MHD_REQUEST_TERMINATED_COMPLETED_OK ? "" : " cut=1");
}

static void on_completed(void *userdata, struct MHD_Connection *connection, void **con_cls,
			 enum MHD_RequestTerminationCode code)
{
	struct request *request = *con_cls;
	struct http_connection *own;

	(void)userdata;
	if (!request)
		return;
	*con_cls = NULL;
	log_request(request, code);
	own = connection_of(connection);
	if (own) {
		own->request = NULL;
		own->since = clock_boottime();
	}
	request_free(request);
}

void http_server_sweep(struct http_server *server, usec_t now)
{
	connections_sweep(server, now);
}

static enum MHD_Result queue_answer(struct request *request)
{
	enum MHD_Result r;

	if (!request->response)
		return MHD_NO;
	r = MHD_queue_response(request->connection, (unsigned int)request->status,
			       request->response);
	MHD_destroy_response(request->response);
	request->response = NULL;
	return r;
}

/* What the server itself says no to, whoever asks. */
static void judge_load(struct request *request)
{
	const struct http_server *server = request->server;

	if (connections_counted(server) > server->options.max_connections)
		reply_busy(request, "too many connections");
	else if (request->share &&
		 !share_allows(request->share, SHARE_REQUESTS, connections_counted(server),
			       server->options.max_connections, 0))
		reply_busy(request, "too many requests of this user at once");
	else if (server->quiet && !(request->route->flags & ROUTE_PEER_ONLY))
		reply_busy(request, "the service is stopping");
}

/* The path of a target in absolute form (RFC 9112 §3.2.2); whose name stands there does not
 * matter on a socket. */
static const char *origin_form(const char *target)
{
	const char *path = NULL;

	if (strncasecmp(target, "http://", strlen("http://")) == 0)
		path = target + strlen("http://");
	else if (strncasecmp(target, "https://", strlen("https://")) == 0)
		path = target + strlen("https://");
	if (!path)
		return target;
	path = strchr(path, '/');
	return path ? path : "/";
}

static void run_handler(struct request *request)
{
	usec_t began = clock_boottime();

	request->state = REQUEST_STATE_HANDLING;
	log_set_request(request->request_id);
	if (payload_finish(request))
		request->route->handler(request);
	log_set_request(NULL);
	turns_count(request, began);
	if (request->state == REQUEST_STATE_HANDLING)
		request->state = REQUEST_STATE_WAITING;
}

/* Before its body is read: an answer may be queued, and the library asks again after a sleep. */
static enum MHD_Result open_upload(struct request *request)
{
	if (request->state == REQUEST_STATE_WAITING) {
		request_suspend(request);
		return MHD_YES;
	}
	request->opening = false;
	return request->state == REQUEST_STATE_ANSWERED ? queue_answer(request) : MHD_YES;
}

static enum MHD_Result begin(struct http_server *server, struct MHD_Connection *connection,
			     const char *path, const char *method, const char *version,
			     void **con_cls)
{
	struct request *request = request_new(server, connection);
	struct http_connection *own = connection_of(connection);
	struct judge_walk walk = {.request = request};
	struct route_match match;

	if (!request)
		return MHD_NO;
	*con_cls = request;
	if (own)
		own->request = request;
	(void)MHD_get_connection_values_n(connection, MHD_HEADER_KIND, judge_take_header, &walk);
	routes_match(method, origin_form(path), &match);
	request->route = match.route;
	request->may_upgrade =
		str_equal(method, MHD_HTTP_METHOD_GET) && str_equal(version, MHD_HTTP_VERSION_1_1);
	memcpy(request->path_id, match.id, sizeof(request->path_id));
	memcpy(request->path_cid, match.cid, sizeof(request->path_cid));
	judge_headers(request, &walk, &match);
	if (request->state == REQUEST_STATE_RECEIVING)
		judge_load(request);
	/* A body that is within every bound is read and dropped, so that the connection can be
	 * used again; before a larger or an unframed one the answer goes out and the connection
	 * ends. */
	if (request->state == REQUEST_STATE_ANSWERED &&
	    (walk.length > (uint64_t)HTTP_BODY_MAX_BYTES ||
	     request->status == MHD_HTTP_CONTENT_TOO_LARGE ||
	     request->status == MHD_HTTP_BAD_REQUEST))
		return queue_answer(request);
	if (request->state != REQUEST_STATE_RECEIVING || request->route->body != ROUTE_BODY_STREAM)
		return MHD_YES;
	request->opening = true;
	run_handler(request);
	return open_upload(request);
}

/* The one answer that libmicrohttpd cannot give: in the middle of a body. */
static enum MHD_Result refuse_with(struct request *request, int status, const char *body)
{
	const union MHD_ConnectionInfo *info;
	struct buf text = BUF_NULL(1024);

	request->status = status;
	info = MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	if (info && buf_printf(&text,
			       "HTTP/1.1 %d %s\r\nConnection: close\r\n"
			       "Content-Type: application/json\r\nContent-Length: %zu\r\n"
			       "Sandbox-Api-Version: " API_VERSION "\r\nSandbox-Request-Id: %s\r\n"
			       "\r\n%s",
			       status, MHD_get_reason_phrase_for((unsigned int)status),
			       strlen(body), request->request_id, body) >= 0)
		(void)send(info->connect_fd, text.data, text.size, MSG_DONTWAIT | MSG_NOSIGNAL);
	buf_done(&text);
	return MHD_NO;
}

static enum MHD_Result refuse_body(struct request *request, int status, const char *detail)
{
	char body[128];

	IGNORE_RESULT(str_format(body, sizeof(body), "{\"detail\":\"%s\"}", detail));
	return refuse_with(request, status, body);
}

static enum MHD_Result drop_body(struct request *request, size_t size)
{
	request->body.max_bytes += size; /* here: bytes that were dropped */
	if (request->body.max_bytes <= (size_t)HTTP_BODY_MAX_BYTES)
		return MHD_YES;
	return request->refusal ? refuse_with(request, request->status, request->refusal) : MHD_NO;
}

static enum MHD_Result take_upload(struct request *request, const char *data, size_t *size)
{
	ssize_t n = request->upload->take(request->upload_userdata, data, *size);

	if (n < 0)
		return MHD_NO;
	*size -= (size_t)n;
	request->stream_read_at = clock_boottime();
	/* An answer in this moment lets the rest be dropped. */
	if (*size > 0 && request->state == REQUEST_STATE_UPLOADING)
		request_suspend(request);
	return MHD_YES;
}

/* The library's own buffer, which lives as long as the connection, has it no more. */
static void wipe_piece(const char *data, size_t size)
{
	const union {
		const char *from;
		char *to;
	} piece = {.from = data};

	if (piece.to)
		explicit_bzero(piece.to, size);
}

static enum MHD_Result take_body(struct request *request, const char *data, size_t *size)
{
	size_t n = *size;
	int r;

	if (request->state == REQUEST_STATE_UPLOADING)
		return take_upload(request, data, size);
	*size = 0;
	if (request->state == REQUEST_STATE_ANSWERED)
		return drop_body(request, n);
	r = payload_add(request, data, n);
	wipe_piece(data, n);
	if (r == -EMSGSIZE)
		return refuse_body(request, MHD_HTTP_CONTENT_TOO_LARGE, "request body too large");
	if (r == -ENOBUFS)
		return refuse_body(request, MHD_HTTP_SERVICE_UNAVAILABLE,
				   "too much is held for requests: memory");
	return r < 0 ? MHD_NO : MHD_YES;
}

/* The library's type for this callback has eight parameters. */
/* NOLINTNEXTLINE(readability-function-size) */
static enum MHD_Result on_access(void *userdata, struct MHD_Connection *connection,
				 const char *path, const char *method, const char *version,
				 const char *upload_data, size_t *upload_data_size, void **con_cls)
{
	struct request *request = *con_cls;

	if (!request)
		return begin(userdata, connection, path, method, version, con_cls);
	if (request->client_left)
		return MHD_NO;
	if (request->opening)
		return open_upload(request);
	if (*upload_data_size > 0)
		return take_body(request, upload_data, upload_data_size);
	if (request->state == REQUEST_STATE_RECEIVING) {
		if (!turns_may_run(&request->server->turns, request)) {
			request_suspend(request);
			return MHD_YES;
		}
		run_handler(request);
	}
	if (request->state == REQUEST_STATE_UPLOADING) {
		request->upload_ended = true;
		request->state = REQUEST_STATE_WAITING;
		request->upload->end(request->upload_userdata);
	}
	if (request->state == REQUEST_STATE_WAITING) {
		request_suspend(request);
		return MHD_YES;
	}
	return queue_answer(request);
}

/* Loop. */

/* When the library wants to run again, in milliseconds; UINT64_MAX: when its descriptor says so. */
static uint64_t next_run_ms(struct http_server *server)
{
	MHD_UNSIGNED_LONG_LONG timeout_ms;

	if (server->dirty)
		return 0;
	return MHD_get_timeout(server->daemon, &timeout_ms) == MHD_YES ? timeout_ms : UINT64_MAX;
}

/* After each piece of an answer the library wants to run again at once. A timer for "at once" costs
 * a millisecond, so it runs in this turn, and what is then left is the next turn's: many streams
 * that have much to send must not keep a request waiting for a shim's or the supervisor's answer.
 */
static void run(struct http_server *server)
{
	usec_t end = clock_add(clock_boottime(), RUN_TIME);
	uint64_t next_ms;

	turns_next(&server->turns);
	for (int i = 0;; i++) {
		server->dirty = false;
		(void)MHD_run(server->daemon);
		next_ms = next_run_ms(server);
		if (next_ms != 0 || i + 1 == RUNS_A_TURN || clock_boottime() >= end)
			break;
	}
	if (turns_are_awaited(&server->turns))
		next_ms = 0;
	(void)sd_event_source_set_enabled(server->again,
					  next_ms == 0 ? SD_EVENT_ONESHOT : SD_EVENT_OFF);
	if (next_ms != 0 && next_ms != UINT64_MAX) {
		(void)sd_event_source_set_time(server->timer,
					       clock_add(clock_boottime(), next_ms * USEC_PER_MS));
		(void)sd_event_source_set_enabled(server->timer, SD_EVENT_ONESHOT);
	} else {
		(void)sd_event_source_set_enabled(server->timer, SD_EVENT_OFF);
	}
}

void http_server_run(struct http_server *server)
{
	if (server->dirty)
		run(server);
}

static int on_io(sd_event_source *source, int fd, uint32_t revents, void *userdata)
{
	(void)source;
	(void)fd;
	(void)revents;
	run(userdata);
	return 0;
}

static int on_timer(sd_event_source *source, uint64_t at, void *userdata)
{
	(void)source;
	(void)at;
	run(userdata);
	return 0;
}

static int on_again(sd_event_source *source, void *userdata)
{
	(void)source;
	run(userdata);
	return 0;
}

/* Paths and queries stay as they came: one spelling for each thing, and no %00. */
static size_t keep_escapes(void *userdata, struct MHD_Connection *connection, char *text)
{
	(void)userdata;
	(void)connection;
	return strlen(text);
}

static void drop_library_log(void *userdata, const char *format, va_list arguments)
{
	(void)userdata;
	(void)format;
	(void)arguments; /* it would quote what clients sent */
}

static int start_daemon(struct http_server *server, int listen_fd)
{
	unsigned int flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_ALLOW_UPGRADE;

	server->daemon = MHD_start_daemon(
		flags | MHD_USE_ERROR_LOG, 0, NULL, NULL, on_access, server,
		MHD_OPTION_EXTERNAL_LOGGER, drop_library_log, NULL, MHD_OPTION_LISTEN_SOCKET,
		listen_fd, MHD_OPTION_NOTIFY_COMPLETED, on_completed, server,
		MHD_OPTION_NOTIFY_CONNECTION, connections_notify, server,
		MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, NULL, MHD_OPTION_CONNECTION_LIMIT,
		(unsigned int)(server->options.max_connections + server->options.max_streams),
		MHD_OPTION_CONNECTION_TIMEOUT, IDLE_TIMEOUT_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
		CONNECTION_MEMORY_BYTES, MHD_OPTION_STRICT_FOR_CLIENT, 1,
		MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_END);
	return server->daemon ? 0 : -EIO;
}

int http_server_new(sd_event *event, int listen_fd, const struct http_server_options *options,
		    struct http_server **ret_server, const char **ret_reason)
{
	const union MHD_DaemonInfo *info;
	struct http_server *server;
	int r;

	*ret_reason = "no memory";
	server = calloc(1, sizeof(*server));
	if (!server)
		return -ENOMEM;
	server->options = *options;
	server->event = event;
	list_init(&server->connections);
	shares_init(&server->shares);
	turns_init(&server->turns);
	r = slots_init(&server->requests, options->max_connections + options->max_streams + 16);
	if (r >= 0) {
		*ret_reason = "the HTTP library does not take the socket";
		r = fd_set_nonblock(listen_fd, 1);
	}
	if (r >= 0)
		r = start_daemon(server, listen_fd);
	if (r >= 0) {
		*ret_reason = "the HTTP library has no epoll descriptor";
		info = MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_EPOLL_FD);
		r = info ? sd_event_add_io(event, &server->io, info->epoll_fd, EPOLLIN, on_io,
					   server)
			 : -EIO;
	}
	if (r >= 0)
		r = sd_event_add_time(event, &server->timer, CLOCK_BOOTTIME, USEC_NEVER,
				      USEC_PER_MS, on_timer, server);
	if (r >= 0)
		r = sd_event_add_defer(event, &server->again, on_again, server);
	if (r < 0) {
		(void)http_server_free(server);
		return r;
	}
	*ret_server = server;
	return 0;
}

void http_server_quiesce(struct http_server *server)
{
	server->quiet = true;
	if (server->daemon)
		(void)MHD_quiesce_daemon(server->daemon); /* the socket is the supervisor's too */
}

uint32_t http_server_requests(const struct http_server *server)
{
	return server->requests.n_used;
}

struct http_server *http_server_free(struct http_server *server)
{
	struct request *request;
	uint32_t at = 0;

	if (!server)
		return NULL;
	server->stopping = true;
	while ((request = slots_next(&server->requests, &at))) {
		request_cut(request);
	}
	server->io = sd_event_source_disable_unref(server->io);
	server->timer = sd_event_source_disable_unref(server->timer);
	server->again = sd_event_source_disable_unref(server->again);
	if (server->daemon) {
		(void)MHD_run(server->daemon);
		MHD_stop_daemon(server->daemon);
	}
	turns_done(&server->turns);
	slots_done(&server->requests);
	free(server);
	return NULL;
}
