#include "supervisor/api/http/judge.h"

#include <strings.h>

#include "base/num.h"
#include "base/sockmsg.h"
#include "base/str.h"

#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/reply.h"
#include "supervisor/api/http/server_state.h"

static void take_length(struct judge_walk *walk, const char *value)
{
	walk->n_length++;
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

enum MHD_Result judge_take_header(void *userdata, enum MHD_ValueKind kind, const char *name,
				  size_t name_bytes, const char *value, size_t value_bytes)
{
	struct judge_walk *walk = userdata;
	struct request *request = walk->request;

	(void)kind;
	/* A name that is no token, for one with a space before the colon, is read differently by
	 * different programs. */
	if (!str_only(name, name_bytes, "!#$%&'*+-.^_`|~"))
		walk->bad = true;
	auth_headers_add(&walk->auth, request_config(request), name, value, value_bytes);
	if (strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH) == 0) {
		take_length(walk, value);
	} else if (strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING) == 0) {
		walk->n_encoding++;
		if (!value || strcasecmp(value, "chunked") != 0)
			walk->bad = true;
	} else if (strcasecmp(name, MHD_HTTP_HEADER_HOST) == 0) {
		walk->n_host++;
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

static bool peer_trusted(struct request *request)
{
	const union MHD_ConnectionInfo *info;
	uid_t uid;
	gid_t gid;
	pid_t pid;

	info = MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	if (!info || sockmsg_peer(info->connect_fd, &pid, &uid, &gid) < 0)
		return false;
	request->peer_uid = uid;
	if (request->server->options.is_operator)
		return uid == 0;
	return auth_peer_trusted(request_config(request), uid);
}

void judge_headers(struct request *request, const struct judge_walk *walk,
		   const struct route_match *match)
{
	const struct route *route = match->route;
	struct buf text = BUF_NULL(256);
	bool need_user = !route || !(route->flags & ROUTE_PEER_ONLY);
	uint32_t missing;

	if (walk->bad || walk->n_length > 1 || walk->n_encoding > 1 || walk->n_host > 1 ||
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
	request_enter(request);
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
	else if (route->audit)
		(void)action_change(request);
}
