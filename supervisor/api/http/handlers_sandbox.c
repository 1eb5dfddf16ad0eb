#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/str.h"

#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/handlers.h"
#include "supervisor/api/http/payload.h"
#include "supervisor/api/http/reply.h"

void handle_in_session(struct request *request,
		       void (*act)(struct request *request, struct session *session))
{
	struct session *session = action_find(request, false);

	if (session)
		act(request, session);
}

void handle_session_create(struct request *request)
{
	struct spec_create spec = SPEC_CREATE_NULL;

	if (!payload_parse(request, spec_parse_session, &spec))
		return;
	action_create(request, &spec, true);
	spec_create_done(&spec);
}

/* Query parameters of the list. SPEC_E_INVALID and *ret_errors, or 0. */
static int parse_filter(struct request *request, struct registry_filter *filter, struct id *after,
			json_t **errors)
{
	const char *limit = request_query(request, "limit");
	const char *after_text = request_query(request, "after");
	const char *status = request_query(request, "status");
	const char *name = request_query(request, "name");
	uint64_t number = REGISTRY_LIST_DEFAULT;
	int known = status ? registry_status_from_text(status) : (int)REGISTRY_STATUS_ANY;
	int r = 0;

	if (limit && num_parse_u64(limit, 1, REGISTRY_LIST_MAX, &number) < 0)
		r |= spec_error_add(errors, "int_parsing", "query", "limit",
				    "Input should be an integer from 1 to 500");
	if (after_text && id_parse(after_text, after) < 0)
		r |= spec_error_add(errors, "uuid_parsing", "query", "after",
				    "Input should be a session id");
	if (after_text)
		filter->after = after;
	if (known >= 0 && known != (int)REGISTRY_STATUS_SUSPENDED)
		filter->status = (enum registry_status)known;
	else
		r |= spec_error_add(errors, "enum", "query", "status",
				    "Input should be 'open' or 'running'");
	if (name && !session_name_valid(name, strlen(name)))
		r |= spec_error_add(errors, "value_error", "query", "name",
				    "Input should be a name of a session");
	filter->name = name;
	filter->limit = (size_t)number;
	if (r < 0)
		return r;
	return *errors ? SPEC_E_INVALID : 0;
}

void handle_session_list(struct request *request)
{
	struct registry_filter filter = {.status = REGISTRY_STATUS_ANY};
	AUTO_FREE struct session **found = NULL;
	json_t *errors = NULL;
	struct id after;
	json_t *list;
	int n;
	int r;

	r = parse_filter(request, &filter, &after, &errors);
	if (r != 0) {
		reply_spec_error(request, r, errors);
		return;
	}
	/* NOLINTNEXTLINE(bugprone-sizeof-expression): an array of pointers */
	found = calloc(filter.limit, sizeof(*found));
	if (!found) {
		reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
		return;
	}
	n = action_list(request, &filter, false, found);
	if (n < 0) {
		reply_not_found(request);
		return;
	}
	list = json_array();
	for (int i = 0; i < n; i++)
		(void)json_array_append_new(list, action_summary(request, found[i]));
	reply_json(request, MHD_HTTP_OK, list);
}

void handle_session_get(struct request *request)
{
	const struct session *session = action_find(request, false);

	if (session)
		reply_json(request, MHD_HTTP_OK, action_summary(request, session));
}

void handle_session_delete(struct request *request)
{
	handle_in_session(request, action_delete);
}

void handle_session_ttl(struct request *request)
{
	struct session *session;
	uint32_t minutes;

	if (!payload_parse(request, spec_parse_ttl, &minutes))
		return;
	session = action_find(request, false);
	if (session)
		action_ttl(request, session, minutes);
}

void handle_session_component(struct request *request)
{
	struct spec_component spec = SPEC_COMPONENT_NULL;
	struct session *session;

	if (!payload_parse(request, spec_parse_component, &spec))
		return;
	session = action_find_tree(request);
	if (session) {
		buf_done(&request->body);
		action_component(request, session, &spec);
	}
	spec_component_done(&spec);
}

void handle_session_load(struct request *request)
{
	struct session *session = action_find_tree(request);

	if (session)
		action_load(request, session);
}

void handle_session_execute(struct request *request)
{
	bool queued = request_config(request)->celery.executes;
	/* Whoever takes it from the queue sees to the tree. */
	struct session *session = queued ? action_find(request, false) : action_find_tree(request);

	if (session && queued)
		action_execute_queued(request, session);
	else if (session)
		action_execute(request, session);
}

void handle_janitor(struct request *request)
{
	action_janitor(request);
}

void handle_janitor_plan(struct request *request)
{
	action_janitor_plan(request);
}

void handle_session_tasks(struct request *request)
{
	const struct session *session = action_find(request, false);

	if (session)
		action_session_tasks(request, session);
}

/* Of both prefixes: a dormant session is asked for nothing. */
void handle_session_denials(struct request *request)
{
	handle_in_session(request, action_denials);
}

void handle_session_egress(struct request *request)
{
	handle_in_session(request, action_egress);
}

void handle_session_egress_set(struct request *request)
{
	struct spec_egress spec = SPEC_EGRESS_NULL;
	struct session *session;

	if (!payload_parse(request, spec_parse_egress, &spec))
		return;
	session = action_find(request, false);
	if (session)
		action_egress_set(request, session, &spec);
	spec_egress_done(&spec);
}
