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
#include <sys/socket.h>

#include "base/log.h"
#include "base/num.h"
#include "base/slots.h"
#include "base/sockmsg.h"
#include "base/str.h"

#include "sandboxd/api.h"
#include "supervisor/api/http/body.h"
#include "supervisor/api/http/reply.h"
#include "supervisor/api/http/request.h"

#define CONNECTION_MEMORY_BYTES (64u * 1024u)
#define IDLE_TIMEOUT_S          60u
#define STREAM_BLOCK_BYTES      (32u * 1024u)

struct http_server {
	struct http_server_options options;
	struct MHD_Daemon *daemon;
	sd_event *event;
	sd_event_source *io;
	sd_event_source *timer;
	struct slots requests;
	bool dirty; /* something was resumed */
	bool stopping;
};

struct app *request_app(const struct request *request)
{
	return request->server->options.app;
}

const struct api_config *request_config(const struct request *request)
{
	return request->server->options.config;
}

struct request *request_get(struct http_server *server, uint64_t id)
{
	struct request *request = slots_get(&server->requests, id);

	return request && !request->client_left ? request : NULL;
}

const char *request_query(const struct request *request, const char *name)
{
	return MHD_lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, name);
}

void request_add_header(struct request *request, const char *name, const char *value)
{
	uint32_t at = request->n_extra;

	if (at >= REQUEST_MAX_HEADERS)
		return;
	request->extra_name[at] = name;
	IGNORE_RESULT(str_copy_n(request->extra_value[at], sizeof(request->extra_value[at]), value,
				 strnlen(value, sizeof(request->extra_value[at]) - 1)));
	request->n_extra++;
}

/* Waiting. */

static void resume(struct request *request)
{
	if (!request->suspended)
		return;
	request->suspended = false;
	request->left_source = sd_event_source_disable_unref(request->left_source);
	request->server->dirty = true;
	MHD_resume_connection(request->connection);
}

static int on_client_left(sd_event_source *source, int fd, uint32_t revents, void *userdata)
{
	struct request *request = userdata;

	(void)source;
	(void)fd;
	(void)revents;
	request->client_left = true;
	if (request->on_left)
		request->on_left(request);
	resume(request);
	return 0;
}

static void suspend(struct request *request)
{
	const union MHD_ConnectionInfo *info;

	MHD_suspend_connection(request->connection);
	request->suspended = true;
	info = MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	if (!info)
		return;
	/* Only a closed peer counts: a client that has shut down its sending side still reads. */
	(void)sd_event_add_io(request->server->event, &request->left_source, info->connect_fd,
			      EPOLLHUP, on_client_left, request);
}

/* Answers. */

static void add_common_headers(struct request *request, struct MHD_Response *response)
{
	(void)MHD_add_response_header(response, "Sandbox-Api-Version", API_VERSION);
	(void)MHD_add_response_header(response, "Sandbox-Request-Id", request->request_id);
	for (uint32_t i = 0; i < request->n_extra; i++)
		(void)MHD_add_response_header(response, request->extra_name[i],
					      request->extra_value[i]);
}

void request_answer(struct request *request, int status, struct MHD_Response *response)
{
	if (request->state == REQUEST_STATE_ANSWERED) {
		if (response)
			MHD_destroy_response(response);
		return;
	}
	request->state = REQUEST_STATE_ANSWERED;
	request->status = status;
	request->response = response; /* NULL: no memory; the connection is cut */
	request->on_left = NULL;
	if (response)
		add_common_headers(request, response);
	resume(request);
}

static ssize_t read_stream(void *userdata, uint64_t position, char *data, size_t size)
{
	struct request *request = userdata;
	ssize_t n;

	(void)position;
	if (request->client_left || request->server->stopping)
		return MHD_CONTENT_READER_END_WITH_ERROR;
	n = request->stream->read(request->stream_userdata, data, size);
	if (n > 0)
		return n;
	if (n == 0) {
		suspend(request);
		return 0;
	}
	return n == -ENODATA ? MHD_CONTENT_READER_END_OF_STREAM : MHD_CONTENT_READER_END_WITH_ERROR;
}

void request_start_stream(struct request *request, const char *content_type,
			  const struct request_stream *stream, void *userdata)
{
	struct http_counters *counters = request->server->options.counters;
	struct MHD_Response *response;

	if (request->stream || request->state == REQUEST_STATE_ANSWERED ||
	    counters->n_streams >= request->server->options.max_streams) {
		stream->closed(userdata);
		request_add_header(request, MHD_HTTP_HEADER_RETRY_AFTER, "5");
		reply_detail(request, MHD_HTTP_TOO_MANY_REQUESTS, "too many streams");
		return;
	}
	response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK_BYTES,
						     read_stream, request, NULL);
	if (!response) {
		stream->closed(userdata);
		request_answer(request, MHD_HTTP_SERVICE_UNAVAILABLE, NULL);
		return;
	}
	(void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, content_type);
	(void)MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
	(void)MHD_add_response_header(response, "X-Accel-Buffering", "no");
	request->stream = stream;
	request->stream_userdata = userdata;
	counters->n_streams++;
	request_answer(request, MHD_HTTP_OK, response);
}

void request_wake(struct request *request)
{
	if (request->stream)
		resume(request);
}

/* Headers. */

struct header_walk {
	struct request *request;
	struct auth_headers auth;
	uint32_t n_length;
	uint32_t n_encoding;
	uint64_t length;
	bool bad;
};

static void take_length(struct header_walk *walk, const char *value)
{
	walk->n_length++;
	walk->request->has_body = true;
	/* Beyond 64 bit is not larger than any bound, it is no number: framing. */
	if (num_parse_u64(value ? value : "", 0, UINT64_MAX, &walk->length) < 0)
		walk->bad = true;
}

static void take_request_id(struct request *request, const char *value, size_t length)
{
	if (length > 0 && length < REQUEST_ID_BYTES && str_only(value, length, "._-"))
		IGNORE_RESULT(str_copy_n(request->request_id, sizeof(request->request_id), value,
					 length));
}

static enum MHD_Result take_header(void *userdata, enum MHD_ValueKind kind, const char *name,
				   size_t name_bytes, const char *value, size_t value_bytes)
{
	struct header_walk *walk = userdata;
	struct request *request = walk->request;

	(void)kind;
	(void)name_bytes;
	auth_headers_add(&walk->auth, request_config(request), name, value, value_bytes);
	if (strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH) == 0) {
		take_length(walk, value);
	} else if (strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING) == 0) {
		walk->n_encoding++;
		request->has_body = true;
		if (!value || strcasecmp(value, "chunked") != 0)
			walk->bad = true;
	} else if (!value) {
		return MHD_YES;
	} else if (strcasecmp(name, "Sandbox-Request-Id") == 0) {
		take_request_id(request, value, value_bytes);
	} else if (strcasecmp(name, MHD_HTTP_HEADER_ACCEPT) == 0) {
		IGNORE_RESULT(
			str_copy_n(request->accept, sizeof(request->accept), value, value_bytes));
	} else if (strcasecmp(name, "Last-Event-ID") == 0) {
		IGNORE_RESULT(str_copy_n(request->last_event_id, sizeof(request->last_event_id),
					 value, value_bytes));
	}
	return MHD_YES;
}

static bool peer_trusted(const struct request *request)
{
	const union MHD_ConnectionInfo *info;
	uid_t uid;
	gid_t gid;
	pid_t pid;

	info = MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	if (!info || sockmsg_peer(info->connect_fd, &pid, &uid, &gid) < 0)
		return false;
	if (request->server->options.is_operator)
		return uid == 0;
	return auth_peer_trusted(request_config(request), uid);
}

/* Everything that is decided before the body; an error is answered into the request. */
static void judge(struct request *request, const struct header_walk *walk,
		  const struct route_match *match)
{
	const struct route *route = match->route;
	struct buf text = BUF_NULL(256);
	bool need_user = !route || !(route->flags & ROUTE_PEER_ONLY);
	uint32_t missing;

	if (walk->bad || walk->n_length > 1 || walk->n_encoding > 1 ||
	    (walk->n_length > 0 && walk->n_encoding > 0)) {
		reply_detail(request, MHD_HTTP_BAD_REQUEST, "invalid request framing");
		return;
	}
	if (!route) {
		if (match->path_known)
			request_add_header(request, MHD_HTTP_HEADER_ALLOW, match->allow);
		reply_detail(request,
			     match->path_known ? MHD_HTTP_METHOD_NOT_ALLOWED : MHD_HTTP_NOT_FOUND,
			     match->path_known ? "Method Not Allowed" : "Not Found");
		return;
	}
	switch (auth_decide(&walk->auth, peer_trusted(request),
			    request->server->options.is_operator, need_user, &request->identity)) {
	case AUTH_BAD_HEADER:
		reply_detail(request, MHD_HTTP_BAD_REQUEST, "invalid identity header");
		return;
	case AUTH_UNAUTHENTICATED:
		reply_unauthenticated(request);
		return;
	case AUTH_OK:
		break;
	}
	missing = auth_missing(&request->identity, route->scopes);
	if (missing) {
		if (auth_missing_text(missing, &text) < 0)
			request_answer(request, MHD_HTTP_SERVICE_UNAVAILABLE, NULL);
		else
			reply_detail(request, MHD_HTTP_FORBIDDEN, buf_text(&text));
		buf_done(&text);
		return;
	}
	if (walk->n_length > 0 && walk->length > route->body_max_bytes)
		reply_detail(request, MHD_HTTP_CONTENT_TOO_LARGE, "request body too large");
}

/* Request life. */

static struct request *new_request(struct http_server *server, struct MHD_Connection *connection)
{
	struct request *request = calloc(1, sizeof(*request));
	struct id id;

	if (!request)
		return NULL;
	request->server = server;
	request->connection = connection;
	request->began = clock_boottime();
	if (id_random(&id) < 0 || slots_add(&server->requests, request, &request->id) < 0) {
		free(request);
		return NULL;
	}
	id_format(&id, request->request_id);
	server->options.counters->n_requests++;
	return request;
}

static void free_request(struct request *request)
{
	request->left_source = sd_event_source_disable_unref(request->left_source);
	slots_remove(&request->server->requests, request->id);
	if (request->stream) {
		request->server->options.counters->n_streams--;
		request->stream->closed(request->stream_userdata);
	}
	if (request->response)
		MHD_destroy_response(request->response);
	buf_done(&request->body);
	free(request);
}

static void log_request(const struct request *request, enum MHD_RequestTerminationCode code)
{
	struct log_context context = {.request = request->request_id};
	const struct route *route = request->route;
	int status = request->status;

	request->server->options.counters
		->n_status[status >= 100 && status < 600 ? status / 100 : 5]++;
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

	(void)userdata;
	(void)connection;
	if (!request)
		return;
	*con_cls = NULL;
	log_request(request, code);
	free_request(request);
}

static void on_connection(void *userdata, struct MHD_Connection *connection, void **socket_context,
			  enum MHD_ConnectionNotificationCode code)
{
	struct http_server *server = userdata;

	(void)connection;
	(void)socket_context;
	if (code == MHD_CONNECTION_NOTIFY_STARTED)
		server->options.counters->n_connections++;
	else
		server->options.counters->n_connections--;
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

static enum MHD_Result begin(struct http_server *server, struct MHD_Connection *connection,
			     const char *path, const char *method, void **con_cls)
{
	struct request *request = new_request(server, connection);
	struct header_walk walk = {.request = request};
	struct route_match match;
	const struct route *routes;
	size_t n_routes;

	if (!request)
		return MHD_NO;
	*con_cls = request;
	request->is_head = str_equal(method, "HEAD");
	(void)MHD_get_connection_values_n(connection, MHD_HEADER_KIND, take_header, &walk);
	routes = routes_table(&n_routes);
	routes_match(routes, n_routes, method, path, &match);
	request->route = match.route;
	memcpy(request->path_id, match.id, sizeof(request->path_id));
	judge(request, &walk, &match);
	/* A body that is within every bound is read and dropped, so that the connection can be
	 * used again; before a larger or an unframed one the answer goes out and the connection
	 * ends. */
	if (request->state == REQUEST_STATE_ANSWERED &&
	    (walk.length > HTTP_BODY_MAX_BYTES || request->status == MHD_HTTP_CONTENT_TOO_LARGE ||
	     request->status == MHD_HTTP_BAD_REQUEST))
		return queue_answer(request);
	return MHD_YES;
}

/* The one answer that libmicrohttpd cannot give: in the middle of a body of unknown length. */
static enum MHD_Result refuse_endless_body(struct request *request)
{
	static const char body[] = "{\"detail\":\"request body too large\"}";
	const union MHD_ConnectionInfo *info;
	struct buf text = BUF_NULL(1024);

	request->status = MHD_HTTP_CONTENT_TOO_LARGE;
	info = MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	if (info && buf_printf(&text,
			       "HTTP/1.1 413 Content Too Large\r\nConnection: close\r\n"
			       "Content-Type: application/json\r\nContent-Length: %zu\r\n"
			       "Sandbox-Api-Version: " API_VERSION "\r\nSandbox-Request-Id: %s\r\n"
			       "\r\n%s",
			       sizeof(body) - 1, request->request_id, body) >= 0)
		(void)send(info->connect_fd, text.data, text.size, MSG_DONTWAIT | MSG_NOSIGNAL);
	buf_done(&text);
	return MHD_NO;
}

static enum MHD_Result take_body(struct request *request, const char *data, size_t *size)
{
	size_t n = *size;
	int r;

	*size = 0;
	if (request->state == REQUEST_STATE_ANSWERED) {
		request->body.max_bytes += n; /* here: bytes that were dropped */
		return request->body.max_bytes > HTTP_BODY_MAX_BYTES ? MHD_NO : MHD_YES;
	}
	r = body_add(request, data, n);
	if (r == -EMSGSIZE)
		return refuse_endless_body(request);
	return r < 0 ? MHD_NO : MHD_YES;
}

static enum MHD_Result on_access(void *userdata, struct MHD_Connection *connection,
				 const char *path, const char *method, const char *version,
				 const char *upload_data, size_t *upload_data_size, void **con_cls)
{
	struct request *request = *con_cls;

	(void)version;
	if (!request)
		return begin(userdata, connection, path, method, con_cls);
	if (request->client_left)
		return MHD_NO;
	if (*upload_data_size > 0)
		return take_body(request, upload_data, upload_data_size);
	if (request->state == REQUEST_STATE_RECEIVING) {
		request->state = REQUEST_STATE_HANDLING;
		if (body_finish(request))
			request->route->handler(request);
		if (request->state == REQUEST_STATE_HANDLING)
			request->state = REQUEST_STATE_WAITING;
	}
	if (request->state == REQUEST_STATE_WAITING) {
		suspend(request);
		return MHD_YES;
	}
	return queue_answer(request);
}

/* Loop. */

static void arm_timer(struct http_server *server)
{
	MHD_UNSIGNED_LONG_LONG timeout_ms;

	if (MHD_get_timeout(server->daemon, &timeout_ms) != MHD_YES) {
		(void)sd_event_source_set_enabled(server->timer, SD_EVENT_OFF);
		return;
	}
	(void)sd_event_source_set_time(server->timer,
				       clock_add(clock_boottime(), timeout_ms * USEC_PER_MS));
	(void)sd_event_source_set_enabled(server->timer, SD_EVENT_ONESHOT);
}

static void run(struct http_server *server)
{
	do {
		server->dirty = false;
		(void)MHD_run(server->daemon);
	} while (server->dirty);
	arm_timer(server);
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
	unsigned int flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME;

	server->daemon = MHD_start_daemon(
		flags | MHD_USE_ERROR_LOG, 0, NULL, NULL, on_access, server,
		MHD_OPTION_EXTERNAL_LOGGER, drop_library_log, NULL, MHD_OPTION_LISTEN_SOCKET,
		listen_fd, MHD_OPTION_NOTIFY_COMPLETED, on_completed, server,
		MHD_OPTION_NOTIFY_CONNECTION, on_connection, server, MHD_OPTION_UNESCAPE_CALLBACK,
		keep_escapes, NULL, MHD_OPTION_CONNECTION_LIMIT,
		(unsigned int)server->options.max_connections, MHD_OPTION_CONNECTION_TIMEOUT,
		IDLE_TIMEOUT_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY_BYTES,
		MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1,
		MHD_OPTION_END);
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
	r = slots_init(&server->requests, options->max_connections + 16);
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
	if (r < 0) {
		(void)http_server_free(server);
		return r;
	}
	arm_timer(server);
	*ret_server = server;
	return 0;
}

void http_server_quiesce(struct http_server *server)
{
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
		request->client_left = true;
		resume(request);
	}
	server->io = sd_event_source_disable_unref(server->io);
	server->timer = sd_event_source_disable_unref(server->timer);
	if (server->daemon) {
		(void)MHD_run(server->daemon);
		MHD_stop_daemon(server->daemon);
	}
	slots_done(&server->requests);
	free(server);
	return NULL;
}
