#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/str.h"

#include "sandboxd/api.h"
#include "supervisor/api/http/reply.h"
#include "supervisor/api/http/server_state.h"
#include "supervisor/api/http/turns.h"
#include "supervisor/api/http/websocket.h"

#define STREAM_BLOCK_BYTES ((size_t)32 * 1024)

struct request *request_new(struct http_server *server, struct MHD_Connection *connection)
{
	struct request *request = calloc(1, sizeof(*request));
	struct id id;

	if (!request)
		return NULL;
	request->server = server;
	request->connection = connection;
	request->began = clock_boottime();
	request->peer_uid = UINT32_MAX;
	list_init(&request->turn_link);
	if (id_random(&id) < 0 || slots_add(&server->requests, request, &request->id) < 0) {
		free(request);
		return NULL;
	}
	id_format(&id, request->request_id);
	server->options.counters->n_requests++;
	return request;
}

/* A stream is no request that waits. */
static void stream_begins(struct request *request)
{
	request->server->n_streams++;
	request->server->options.counters->n_streams++;
	if (!request->share)
		return;
	request->share->used[SHARE_STREAMS]++;
	request->share->used[SHARE_REQUESTS]--;
}

static void stream_ends(struct request *request)
{
	request->server->n_streams--;
	request->server->options.counters->n_streams--;
	if (!request->share)
		return;
	request->share->used[SHARE_STREAMS]--;
	request->share->used[SHARE_REQUESTS]++;
}

void request_end_stream(struct request *request)
{
	const struct request_stream *stream = request->stream;

	if (!stream)
		return;
	request->stream = NULL;
	stream_ends(request);
	stream->closed(request->stream_userdata);
}

static void end_upload(struct request *request)
{
	const struct request_upload *upload = request->upload;

	if (!upload)
		return;
	request->upload = NULL;
	stream_ends(request);
	upload->closed(request->upload_userdata);
}

/* Who waits with an answer for it ends that. */
static void tell_left(struct request *request)
{
	void (*left)(void *userdata) = request->left;

	request->left = NULL;
	if (left)
		left(request->left_userdata);
}

void request_free(struct request *request)
{
	request->left_source = sd_event_source_disable_unref(request->left_source);
	slots_remove(&request->server->requests, request->id);
	request_end_stream(request);
	end_upload(request);
	free(request->refusal);
	request->websocket = websocket_free(request->websocket);
	tell_left(request);
	if (request->response)
		MHD_destroy_response(request->response);
	if (request->state != REQUEST_STATE_ANSWERED)
		request->server->options.answered(request);
	json_decref(request->notes);
	request_release_body(request);
	turns_leave(request);
	if (request->share)
		request->share->used[SHARE_REQUESTS]--;
	request->share = share_put(request->share);
	free(request);
}

void request_enter(struct request *request)
{
	const struct identity *identity = &request->identity;

	if (identity->is_operator || request->share)
		return;
	request->share = shares_get(&request->server->shares, identity->user);
	if (request->share)
		request->share->used[SHARE_REQUESTS]++;
}

void request_release_body(struct request *request)
{
	/* It may hold a credential or a secret. */
	buf_wipe(&request->body);
	share_give(request->share, SHARE_BYTES, &request->server->held_bytes, request->held_bytes);
	request->held_bytes = 0;
}

bool request_hold(struct request *request, size_t size)
{
	struct http_server *server = request->server;

	if (!share_take(request->share, SHARE_BYTES, &server->held_bytes, HTTP_HELD_MAX_BYTES,
			size))
		return false;
	request->held_bytes += size;
	return true;
}

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

void request_on_left(struct request *request, void (*left)(void *userdata), void *userdata)
{
	request->left = left;
	request->left_userdata = userdata;
}

void request_note(struct request *request, const char *key, json_t *value)
{
	if (!request->notes)
		request->notes = json_object();
	(void)json_object_set_new(request->notes, key, value);
}

void request_note_id(struct request *request, const char *key, const struct id *id)
{
	char text[ID_TEXT_BYTES];

	id_format(id, text);
	request_note(request, key, json_string(text));
}

/* Waiting. */

void request_resume(struct request *request)
{
	if (!request->suspended)
		return;
	request->suspended = false;
	request->left_source = sd_event_source_disable_unref(request->left_source);
	request->server->dirty = true;
	MHD_resume_connection(request->connection);
}

void request_cut(struct request *request)
{
	if (request->websocket)
		websocket_stop(request->websocket);
	request->client_left = true;
	/* Now: nobody can answer it from here on, and so nobody would take `left` back. */
	tell_left(request);
	request_resume(request);
}

static int on_client_left(sd_event_source *source, int fd, uint32_t revents, void *userdata)
{
	(void)source;
	(void)fd;
	(void)revents;
	request_cut(userdata);
	return 0;
}

void request_suspend(struct request *request)
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
	request->left = NULL;
	request->status = status;
	request->answered_at = clock_boottime();
	request->response = response; /* NULL: no memory; the connection is cut */
	if (response)
		add_common_headers(request, response);
	request->server->options.answered(request);
	request_resume(request);
}

static ssize_t read_stream(void *userdata, uint64_t position, char *data, size_t size)
{
	struct request *request = userdata;
	ssize_t n;

	(void)position;
	if (request->client_left || request->server->stopping)
		return MHD_CONTENT_READER_END_WITH_ERROR;
	request->stream_read_at = clock_boottime();
	n = request->stream->read(request->stream_userdata, data, size);
	if (n > 0)
		return n;
	if (n == 0) {
		request_suspend(request);
		return 0;
	}
	return n == -ENODATA ? MHD_CONTENT_READER_END_OF_STREAM : MHD_CONTENT_READER_END_WITH_ERROR;
}

bool request_may_stream(struct request *request)
{
	const struct http_server *server = request->server;

	if (share_allows(request->share, SHARE_STREAMS, server->n_streams,
			 server->options.max_streams, 1))
		return true;
	request_add_header(request, MHD_HTTP_HEADER_RETRY_AFTER, "5");
	reply_detail(request, MHD_HTTP_TOO_MANY_REQUESTS, "too many streams");
	return false;
}

static struct MHD_Response *body_response(struct request *request, const char *content_type,
					  uint64_t size)
{
	struct MHD_Response *response;

	response = MHD_create_response_from_callback(size, STREAM_BLOCK_BYTES, read_stream, request,
						     NULL);
	if (!response)
		return NULL;
	(void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, content_type);
	(void)MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
	(void)MHD_add_response_header(response, "X-Accel-Buffering", "no");
	return response;
}

/* Takes the response, which may be NULL. */
static void start_stream(struct request *request, int status, struct MHD_Response *response,
			 const struct request_stream *stream, void *userdata)
{
	if (!response) {
		stream->closed(userdata);
		request_answer(request, MHD_HTTP_SERVICE_UNAVAILABLE, NULL);
		return;
	}
	request->stream = stream;
	request->stream_userdata = userdata;
	request->stream_read_at = clock_boottime();
	stream_begins(request);
	request_answer(request, status, response);
}

void request_start_stream(struct request *request, const char *content_type,
			  const struct request_stream *stream, void *userdata)
{
	if (request->state == REQUEST_STATE_ANSWERED || !request_may_stream(request))
		stream->closed(userdata);
	else if (request->websocket)
		start_stream(request, MHD_HTTP_SWITCHING_PROTOCOLS,
			     websocket_response(request->websocket), stream, userdata);
	else
		start_stream(request, MHD_HTTP_OK,
			     body_response(request, content_type, MHD_SIZE_UNKNOWN), stream,
			     userdata);
}

void request_start_body(struct request *request, const struct request_body *body,
			const struct request_stream *stream, void *userdata)
{
	if (request->state == REQUEST_STATE_ANSWERED || !request_may_stream(request))
		stream->closed(userdata);
	else
		start_stream(request, body->status,
			     body_response(request, body->content_type, body->size), stream,
			     userdata);
}

void request_start_upload(struct request *request, const struct request_upload *upload,
			  void *userdata)
{
	if (request->state == REQUEST_STATE_ANSWERED || !request_may_stream(request)) {
		upload->closed(userdata);
		return;
	}
	request->upload = upload;
	request->upload_userdata = userdata;
	request->stream_read_at = clock_boottime();
	stream_begins(request);
	request->state = REQUEST_STATE_UPLOADING;
	request_resume(request);
}

void request_wake_upload(struct request *request)
{
	if (request->state == REQUEST_STATE_UPLOADING)
		request_resume(request);
}

void request_wake(struct request *request)
{
	if (request->websocket)
		websocket_wake(request->websocket);
	else if (request->stream)
		request_resume(request);
}
