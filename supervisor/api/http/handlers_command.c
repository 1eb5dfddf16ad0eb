/*
 * Routes of commands.
 */
#include <string.h>
#include <strings.h>

#include "base/num.h"
#include "base/str.h"

#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/handlers.h"
#include "supervisor/api/http/payload.h"
#include "supervisor/api/http/reply.h"
#include "supervisor/api/http/websocket.h"

#define WAIT_DEFAULT_MS 30000u
#define WAIT_MAX_MS     300000u

/* The client's first wish among what we can give; lines where it has none of them. */
static enum command_form form_of(const struct request *request)
{
	static const struct {
		const char *media_type;
		enum command_form form;
	} rows[] = {
		{"application/json",     COMMAND_FORM_ANSWER},
		{"text/event-stream",    COMMAND_FORM_EVENTS},
		{"application/x-ndjson", COMMAND_FORM_LINES },
	};
	enum command_form form = COMMAND_FORM_LINES;
	const char *first = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const char *at = strcasestr(request->accept, rows[i].media_type);

		if (at && (!first || at < first)) {
			first = at;
			form = rows[i].form;
		}
	}
	return form;
}

bool handler_gives_lines(const struct request *request)
{
	return request->websocket || form_of(request) != COMMAND_FORM_EVENTS;
}

void handle_sandbox_command(struct request *request)
{
	struct command_start start = {.form = form_of(request)};
	struct spec_command spec = SPEC_COMMAND_NULL;
	struct session *session;

	if (!payload_parse(request, spec_parse_command, &spec))
		return;
	session = action_find_tree(request);
	if (session) {
		request_release_body(request); /* a stream may live for hours */
		action_command(request, session, &spec, &start);
	}
	spec_command_done(&spec);
}

void handle_command_list(struct request *request)
{
	handle_in_session(request, action_command_list);
}

void handle_command_get(struct request *request)
{
	handle_in_session(request, action_command_get);
}

/* A number of the query, or *number stays. False: it was answered. */
static bool read_number(struct request *request, const char *name, uint64_t max, uint64_t *number)
{
	const char *text = request_query(request, name);

	if (!text || num_parse_u64(text, 0, max, number) >= 0)
		return true;
	reply_invalid_query(request, "int_parsing", name, "Input should be a valid integer");
	return false;
}

void handle_command_wait(struct request *request)
{
	uint64_t timeout_ms = WAIT_DEFAULT_MS;
	struct session *session;

	if (!read_number(request, "timeout_ms", WAIT_MAX_MS, &timeout_ms))
		return;
	session = action_find(request, false);
	if (session)
		action_command_wait(request, session, (uint32_t)timeout_ms);
}

/* A stream that goes on behind the number that the caller has. */
static void handle_stream(struct request *request,
			  void (*action)(struct request *request, struct session *session,
					 bool as_lines, uint64_t after))
{
	struct session *session;
	uint64_t after = 0;

	if (!read_number(request, "after", UINT64_MAX, &after))
		return;
	/* Repeated by browsers without being asked: what is no number means from the start. */
	if (!request_query(request, "after") && request->last_event_id[0] &&
	    num_parse_u64(request->last_event_id, 0, UINT64_MAX, &after) < 0)
		after = 0;
	session = action_find(request, false);
	if (session && websocket_judge(request))
		action(request, session, handler_gives_lines(request), after);
}

void handle_command_stream(struct request *request)
{
	handle_stream(request, action_command_stream);
}

void handle_sandbox_events(struct request *request)
{
	handle_stream(request, action_events);
}

/* As read_number. */
static bool read_on_disconnect(struct request *request, bool *ret_kills)
{
	const char *text = request_query(request, "on_disconnect");

	*ret_kills = text && str_equal(text, "kill");
	if (!text || *ret_kills || str_equal(text, "keep"))
		return true;
	reply_invalid_query(request, "literal_error", "on_disconnect",
			    "Input should be 'kill' or 'keep'");
	return false;
}

void handle_command_attach(struct request *request)
{
	struct session *session;
	uint64_t after = 0;
	bool kills;

	if (!read_number(request, "after", UINT64_MAX, &after) ||
	    !read_on_disconnect(request, &kills))
		return;
	session = action_find(request, false);
	if (!session || !websocket_judge(request))
		return;
	if (!request->websocket) {
		request_add_header(request, "Upgrade", "websocket");
		reply_detail(request, MHD_HTTP_UPGRADE_REQUIRED, "this is for a WebSocket");
		return;
	}
	action_command_attach(request, session, after, kills);
}

static bool is_json(const struct request *request)
{
	const char *type = MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND,
						       MHD_HTTP_HEADER_CONTENT_TYPE);

	return type && strncasecmp(type, "application/json", strlen("application/json")) == 0;
}

void handle_command_stdin(struct request *request)
{
	const char *eof = request_query(request, "eof");
	bool ends = eof && !str_equal(eof, "0") && !str_equal(eof, "false");
	struct spec_stdin input = {0};
	struct session *session;

	if (is_json(request)) {
		if (!payload_parse(request, spec_parse_stdin, &input))
			return;
		session = action_find(request, false);
		if (session)
			action_command_stdin(request, session, input.data, input.size,
					     input.eof || ends);
		free(input.data);
		return;
	}
	session = action_find(request, false);
	if (session)
		action_command_stdin(request, session, request->body.data, request->body.size,
				     ends);
}

void handle_command_signal(struct request *request)
{
	struct wire_signal signal;
	struct session *session;

	if (!payload_parse(request, spec_parse_signal, &signal))
		return;
	session = action_find(request, false);
	if (session)
		action_command_signal(request, session, &signal);
}

void handle_command_resize(struct request *request)
{
	struct wire_size size;
	struct session *session;

	if (!payload_parse(request, spec_parse_size, &size))
		return;
	session = action_find(request, false);
	if (session)
		action_command_resize(request, session, &size);
}
