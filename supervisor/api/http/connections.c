#include "supervisor/api/http/connections.h"

#include <stdlib.h>
#include <sys/socket.h>

#include "supervisor/api/http/websocket.h"

/* The library's time-out is for silence alone; a client that sends or takes a byte a minute is cut
 * here. The first is longer than the silence allowed between two requests. */
#define HEAD_TIMEOUT         (75 * USEC_PER_SEC)
#define BODY_TIMEOUT         (75 * USEC_PER_SEC)
#define ANSWER_TIMEOUT       (300 * USEC_PER_SEC)
#define STREAM_TIMEOUT       (75 * USEC_PER_SEC) /* for a block; with nothing to say it rests */
/* Beyond the limit of connections, who has said nothing whole for so long makes room. */
#define CROWDED_HEAD_TIMEOUT (10 * USEC_PER_SEC)
#define CROWDED_BODY_TIMEOUT (20 * USEC_PER_SEC)

struct http_connection *connection_of(struct MHD_Connection *connection)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

	return info ? info->socket_context : NULL;
}

static void *connection_new(struct http_server *server, struct MHD_Connection *connection)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	struct http_connection *own = info ? calloc(1, sizeof(*own)) : NULL;

	if (!own)
		return NULL; /* then only silence ends it */
	own->fd = info->connect_fd;
	own->since = clock_boottime();
	list_append(&server->connections, &own->link);
	return own;
}

size_t connections_counted(const struct http_server *server)
{
	size_t apart = server->n_streams + server->n_cut;

	/* A stream that is being cut is in both. */
	return apart < server->n_connections ? server->n_connections - apart : 0;
}

static bool is_stale(const struct http_connection *connection, usec_t now)
{
	const struct request *request = connection->request;

	if (connection->cut)
		return false;
	if (!request)
		return clock_add(connection->since, CROWDED_HEAD_TIMEOUT) < now;
	/* One that was refused for the crowd is part of it as long as it sends its body. */
	if (request->state != REQUEST_STATE_RECEIVING &&
	    (request->state != REQUEST_STATE_ANSWERED || request->stream ||
	     request->status != MHD_HTTP_SERVICE_UNAVAILABLE))
		return false;
	return clock_add(request->began, CROWDED_BODY_TIMEOUT) < now;
}

static void cut_connection(struct http_server *server, struct http_connection *connection)
{
	if (connection->cut)
		return;
	connection->cut = true;
	server->n_cut++;
	/* The library sees the end of the stream and closes. */
	(void)shutdown(connection->fd, SHUT_RDWR);
}

/* One in, one out: slow senders cannot keep others away for as long as they like. */
static void make_room(struct http_server *server)
{
	usec_t now = clock_boottime();

	if (connections_counted(server) <= server->options.max_connections)
		return;
	LIST_FOR_EACH (entry, &server->connections) {
		struct http_connection *own = LIST_ENTRY(entry, struct http_connection, link);

		if (is_stale(own, now)) {
			cut_connection(server, own);
			return;
		}
	}
}

void connections_notify(void *userdata, struct MHD_Connection *connection, void **socket_context,
			enum MHD_ConnectionNotificationCode code)
{
	struct http_server *server = userdata;
	struct http_connection *own = *socket_context;

	if (code == MHD_CONNECTION_NOTIFY_STARTED) {
		*socket_context = connection_new(server, connection);
		server->n_connections++;
		server->options.counters->n_connections++;
		make_room(server);
		return;
	}
	*socket_context = NULL;
	if (own) {
		list_remove(&own->link);
		server->n_cut -= own->cut;
	}
	free(own);
	server->n_connections--;
	server->options.counters->n_connections--;
}

static bool is_overdue(const struct http_connection *connection, usec_t now)
{
	const struct request *request = connection->request;

	if (!request)
		return clock_add(connection->since, HEAD_TIMEOUT) < now;
	switch (request->state) {
	case REQUEST_STATE_RECEIVING:
		return clock_add(request->began, BODY_TIMEOUT) < now;
	case REQUEST_STATE_ANSWERED:
		if (request->websocket && websocket_is_open(request->websocket))
			return false; /* it has its own patience */
		if (request->stream)
			return !request->suspended &&
			       clock_add(request->stream_read_at, STREAM_TIMEOUT) < now;
		return clock_add(request->answered_at, ANSWER_TIMEOUT) < now;
	case REQUEST_STATE_UPLOADING:
		return !request->suspended &&
		       clock_add(request->stream_read_at, STREAM_TIMEOUT) < now;
	case REQUEST_STATE_HANDLING:
	case REQUEST_STATE_WAITING: /* our own time */
	case REQUEST_STATE_MAX_:
		break;
	}
	return false;
}

void connections_sweep(struct http_server *server, usec_t now)
{
	LIST_FOR_EACH (entry, &server->connections) {
		struct http_connection *own = LIST_ENTRY(entry, struct http_connection, link);

		if (own->request && own->request->websocket)
			websocket_sweep(own->request->websocket, now);
		if (is_overdue(own, now))
			cut_connection(server, own);
	}
}
