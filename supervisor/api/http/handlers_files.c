/*
 * Routes of files.
 */
#include <errno.h>
#include <string.h>

#include "base/num.h"
#include "base/str.h"

#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/handlers.h"
#include "supervisor/api/http/payload.h"
#include "supervisor/api/http/reply.h"
#include "supervisor/api/http/websocket.h"

#define LIST_DEFAULT 1000u

/* What a query says beside the path. */
struct query {
	struct request *request;
	struct spec_file *spec;
	json_t *errors;
	int r;
};

static void wrong(struct query *query, const char *type, const char *name, const char *msg)
{
	if (spec_error_add(&query->errors, type, "query", name, msg) < 0)
		query->r = -ENOMEM;
	else if (query->r == 0)
		query->r = SPEC_E_INVALID;
}

static void take_path(struct query *query)
{
	const char *raw = request_query(query->request, "path");
	/* Decoded it is shorter; a little more than fits, so that the length is what is wrong. */
	char text[FILE_PATH_BYTES + 16];
	const char *problem;
	size_t length;

	if (!raw) {
		wrong(query, "missing", "path", "Field required");
		return;
	}
	if (!spec_query_decode(raw, text, sizeof(text), &length)) {
		wrong(query, "value_error", "path",
		      "Value error, malformed escapes, or longer than 4095 bytes");
		return;
	}
	problem = spec_file_path(text, length, &query->spec->path);
	if (problem)
		wrong(query, "value_error", "path", problem);
}

static void take_flag(struct query *query, const char *name, bool clears, uint16_t flag)
{
	const char *text = request_query(query->request, name);
	bool is_true = text && (str_equal(text, "true") || str_equal(text, "1"));

	if (!text)
		return;
	if (!is_true && !str_equal(text, "false") && !str_equal(text, "0"))
		wrong(query, "bool_parsing", name, "Input should be a valid boolean");
	else if (is_true != clears)
		query->spec->head.flags |= flag;
}

static void take_mode(struct query *query)
{
	const char *text = request_query(query->request, "mode");

	if (text && !spec_file_mode(text, &query->spec->head.mode))
		wrong(query, "value_error", "mode",
		      "Value error, should be octal digits, 000 to 777");
}

static void take_limit(struct query *query)
{
	const char *text = request_query(query->request, "limit");

	query->spec->head.size = LIST_DEFAULT;
	if (text && num_parse_u64(text, 1, FILE_LIST_MAX, &query->spec->head.size) < 0)
		wrong(query, "int_parsing", "limit",
		      "Input should be a valid integer from 1 to 10000");
}

/* One range of bytes (RFC 9110 §14); anything else is as if it were not there. */
static void take_range(struct request *request, struct wire_file *head)
{
	const char *text = MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND,
						       MHD_HTTP_HEADER_RANGE);
	char first[24];
	uint64_t from = 0;
	uint64_t to = UINT64_MAX - 1;
	const char *dash;

	if (!text || !str_has_prefix(text, "bytes=") ||
	    MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND,
					MHD_HTTP_HEADER_IF_RANGE))
		return;
	text += strlen("bytes=");
	dash = strchr(text, '-');
	if (!dash || str_copy_n(first, sizeof(first), text, (size_t)(dash - text)) < 0)
		return;
	if (dash[1] && num_parse_u64(dash + 1, 0, UINT64_MAX - 1, &to) < 0)
		return;
	if (first[0] == '\0') {
		if (!dash[1])
			return;
		head->flags |= WIRE_FILE_LAST;
		head->size = to;
		return;
	}
	if (num_parse_u64(first, 0, UINT64_MAX - 1, &from) < 0 || from > to)
		return;
	head->offset = from;
	head->size = to - from + 1;
}

/* NULL: it was answered, or is done again when there is a tree. */
static struct session *find_tree(struct query *query)
{
	if (query->r == 0)
		return action_find_tree(query->request);
	reply_spec_error(query->request, query->r, query->errors);
	return NULL;
}

static void go_on(struct query *query)
{
	struct session *session = find_tree(query);

	if (session)
		action_file(query->request, session, query->spec);
}

void handle_file_get(struct request *request)
{
	struct spec_file spec = spec_file(WIRE_FILE_GET);
	struct query query = {.request = request, .spec = &spec};

	take_path(&query);
	take_range(request, &spec.head);
	go_on(&query);
}

void handle_file_put(struct request *request)
{
	struct spec_file spec = spec_file(WIRE_FILE_PUT);
	struct query query = {.request = request, .spec = &spec};

	take_path(&query);
	take_mode(&query);
	take_flag(&query, "replace", true, WIRE_FILE_KEEP);
	go_on(&query);
}

void handle_file_remove(struct request *request)
{
	struct spec_file spec = spec_file(WIRE_FILE_REMOVE);
	struct query query = {.request = request, .spec = &spec};

	take_path(&query);
	take_flag(&query, "recursive", false, WIRE_FILE_RECURSIVE);
	go_on(&query);
}

void handle_file_list(struct request *request)
{
	struct spec_file spec = spec_file(WIRE_FILE_LIST);
	struct query query = {.request = request, .spec = &spec};

	take_path(&query);
	take_limit(&query);
	go_on(&query);
}

void handle_file_stat(struct request *request)
{
	struct spec_file spec = spec_file(WIRE_FILE_STAT);
	struct query query = {.request = request, .spec = &spec};

	take_path(&query);
	go_on(&query);
}

void handle_file_watch(struct request *request)
{
	struct spec_file spec = spec_file(WIRE_FILE_WATCH);
	struct query query = {.request = request, .spec = &spec};
	struct session *session;

	take_path(&query);
	take_flag(&query, "recursive", false, WIRE_FILE_RECURSIVE);
	session = find_tree(&query);
	if (session && websocket_judge(request))
		action_file_watch(request, session, &spec, handler_gives_lines(request));
}

static void handle_body(struct request *request, uint16_t op)
{
	struct spec_file spec;

	if (payload_parse(request, spec_parse_file, op, &spec))
		go_on(&(struct query){.request = request, .spec = &spec});
}

void handle_file_mkdir(struct request *request)
{
	handle_body(request, WIRE_FILE_MKDIR);
}

void handle_file_move(struct request *request)
{
	handle_body(request, WIRE_FILE_MOVE);
}

void handle_file_copy(struct request *request)
{
	handle_body(request, WIRE_FILE_COPY);
}

void handle_file_chmod(struct request *request)
{
	handle_body(request, WIRE_FILE_CHMOD);
}
