/*
 * The list of sandboxes, in pages. A page goes on behind a place in the order (creation, then id),
 * not behind a sandbox, which may have ended meanwhile.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/str.h"

#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/handlers.h"
#include "supervisor/api/http/reply.h"

/* What a list is asked for. */
struct list_query {
	struct registry_filter filter;
	json_t *errors;
	int r; /* -ENOMEM */
	char value[REGISTRY_METADATA_MAX][SPEC_VALUE_MAX + 1];
};

static void wrong(struct list_query *query, const char *type, const char *name, const char *msg)
{
	if (spec_error_add(&query->errors, type, "query", name, msg) < 0)
		query->r = -ENOMEM;
}

static void take_metadata(struct list_query *query, const char *name, const char *value)
{
	struct registry_filter *filter = &query->filter;
	size_t at = filter->n_metadata;
	size_t length;

	if (at == REGISTRY_METADATA_MAX) {
		wrong(query, "too_long", "metadata", "at most 4 keys can be asked for");
		return;
	}
	if (!spec_query_decode(value ? value : "", query->value[at], sizeof(query->value[at]),
			       &length) ||
	    strlen(query->value[at]) != length) {
		wrong(query, "value_error", name,
		      "Value error, malformed escapes, a NUL, or longer than 256 bytes");
		return;
	}
	filter->metadata_key[at] = name + strlen("metadata.");
	filter->metadata_value[at] = query->value[at];
	filter->n_metadata++;
}

static enum MHD_Result on_parameter(void *userdata, enum MHD_ValueKind kind, const char *name,
				    const char *value)
{
	(void)kind;
	if (str_has_prefix(name, "metadata."))
		take_metadata(userdata, name, value);
	return MHD_YES;
}

/* What `next` of an answer is. */
#define CURSOR_BYTES (24 + ID_TEXT_BYTES)

static void format_cursor(const struct session *session, char ret_text[CURSOR_BYTES])
{
	char id[ID_TEXT_BYTES];

	id_format(&session->id, id);
	IGNORE_RESULT(str_format(ret_text, CURSOR_BYTES, "%llu.%s",
				 (unsigned long long)session->created_at, id));
}

static bool take_cursor(const char *text, struct registry_filter *filter)
{
	const char *dot = strchr(text, '.');
	char number[24];

	return dot && str_copy_n(number, sizeof(number), text, (size_t)(dot - text)) >= 0 &&
	       num_parse_u64(number, 1, UINT64_MAX - 1, &filter->before_at) >= 0 &&
	       id_parse(dot + 1, &filter->before_id) >= 0;
}

static void take_list(struct request *request, struct list_query *query)
{
	struct registry_filter *filter = &query->filter;
	const char *limit = request_query(request, "limit");
	const char *after = request_query(request, "after");
	const char *status = request_query(request, "status");
	uint64_t number = REGISTRY_LIST_DEFAULT;
	int known = status ? registry_status_from_text(status) : (int)REGISTRY_STATUS_ANY;

	filter->of_sandboxes = true;
	if (limit && num_parse_u64(limit, 1, REGISTRY_LIST_MAX, &number) < 0)
		wrong(query, "int_parsing", "limit", "Input should be an integer from 1 to 500");
	if (after && !take_cursor(after, filter))
		wrong(query, "value_error", "after", "Value error, not the next of a list");
	if (known < 0)
		wrong(query, "enum", "status", "Input should be 'open', 'running' or 'suspended'");
	else
		filter->status = (enum registry_status)known;
	(void)MHD_get_connection_values(request->connection, MHD_GET_ARGUMENT_KIND, on_parameter,
					query);
	/* One more than is shown says whether there are more. */
	filter->limit = (size_t)number + 1;
}

static json_t *list_page(struct request *request, struct session *const *found, size_t n,
			 size_t limit)
{
	json_t *sandboxes = json_array();
	char next[CURSOR_BYTES];
	size_t shown = n < limit ? n : limit;

	for (size_t i = 0; i < shown; i++)
		(void)json_array_append_new(sandboxes, action_sandbox(request, found[i]));
	if (n > limit)
		format_cursor(found[shown - 1], next);
	return json_pack("{s:o, s:o}", "sandboxes", sandboxes, "next",
			 n > limit ? json_string(next) : json_null());
}

void handle_sandbox_list(struct request *request)
{
	struct list_query query = {.r = 0};
	AUTO_FREE struct session **found = NULL;
	int n;

	take_list(request, &query);
	if (query.errors || query.r < 0) {
		reply_spec_error(request, query.r < 0 ? query.r : SPEC_E_INVALID, query.errors);
		return;
	}
	/* NOLINTNEXTLINE(bugprone-sizeof-expression): an array of pointers */
	found = calloc(query.filter.limit, sizeof(*found));
	if (!found) {
		reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
		return;
	}
	n = action_list(request, &query.filter, true, found);
	reply_json(request, MHD_HTTP_OK,
		   list_page(request, found, n > 0 ? (size_t)n : 0, query.filter.limit - 1));
}
