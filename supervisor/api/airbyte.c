/*
 * Connections of Airbyte: the list that a caller may see, and one of them as a component. What a
 * connection is configured with is neither kept nor read.
 */
#include "supervisor/api/airbyte/airbyte.h"

#include <errno.h>
#include <string.h>

#include "base/id.h"
#include "base/json.h"
#include "base/str.h"

#include "sandboxd/api.h"
#include "supervisor/api/components.h"
#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/reply.h"
#include "supervisor/api/live.h"
#include "supervisor/api/session/component_name.h"

#define DOCUMENT_MAX_BYTES ((size_t)16 * 1024)
#define CONNECTIONS_MAX    500 /* that one owner may keep */

static struct store_viewer viewer_of(const struct request *request)
{
	const struct identity *identity = &request->identity;

	return (struct store_viewer){
		.owner = identity->is_operator ? "" : identity->user,
		.workspace = identity->workspace,
		.sees_all = identity->is_operator,
	};
}

static void reply_no_memory(struct request *request)
{
	reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
}

static void reply_no_store(struct request *request)
{
	reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE, "store unavailable");
}

static void reply_no_connection(struct request *request)
{
	reply_detail(request, MHD_HTTP_NOT_FOUND, API_DETAIL_AIRBYTE_NOT_FOUND);
}

static void reply_foreign_table(struct request *request)
{
	reply_detail(request, MHD_HTTP_CONFLICT,
		     "the airbyte connections of this store are kept by the platform");
}

/* A request that the store is asked for; in app->airbyte until it has its last word. */
struct asked {
	struct list link;
	struct app *app;
	struct answer_to to;
	struct id session;        /* one as a component: where to */
	json_t *rows;             /* the list */
	struct spec_airbyte spec; /* what is to be kept */
	char connection[ROUTE_ID_BYTES];
	struct identity identity;
	uint32_t n_kept; /* others that the owner has */
};

static struct asked *asked_new(struct request *request)
{
	struct asked *asked = calloc(1, sizeof(*asked));

	if (!asked)
		return NULL;
	asked->app = request_app(request);
	asked->to = answer_to(request);
	asked->identity = request->identity;
	memcpy(asked->connection, request->path_id, sizeof(asked->connection));
	list_append(&asked->app->airbyte, &asked->link);
	return asked;
}

static void asked_free(struct asked *asked)
{
	if (!asked)
		return;
	list_remove(&asked->link);
	json_decref(asked->rows);
	spec_airbyte_done(&asked->spec);
	free(asked);
}

void airbyte_drop_asked(struct app *app)
{
	LIST_FOR_EACH_SAFE (link, following, &app->airbyte)
		asked_free(LIST_ENTRY(link, struct asked, link));
}

/* ---- one as a component ---- */

/* The session's component of that name came from this connection. */
static bool is_its_own(const struct store_airbyte *row, const char *file)
{
	const char *reason;
	json_t *files = NULL;
	const json_t *value;
	bool found = false;
	size_t i;

	if (doc_parse(row->files_json, strlen(row->files_json), &files, &reason) < 0)
		return false;
	json_array_foreach(files, i, value)
	{
		const char *name = json_string_value(value);

		found |= name && str_equal(name, file);
	}
	json_decref(files);
	return found;
}

/* Some other component has the name, or will have it. */
static bool is_taken(const struct session *session, const struct store_airbyte *row,
		     const char *slug)
{
	char file[AIRBYTE_SLUG_BYTES + sizeof(".yaml")];

	if (str_format(file, sizeof(file), "%s.yaml", slug) < 0)
		return true;
	return component_is_coming(session, file, row->id) ||
	       (session_component_find(session, file) && !is_its_own(row, file));
}

/* 0; -EINVAL: its name is a way out of a folder, or it has none that can be used. */
static int make_component(const struct app *app, const struct session *session,
			  const struct store_airbyte *row, struct spec_component *spec)
{
	const struct airbyte_source source = {
		.name = row->name,
		.name_length = row->name_length,
		.connection_id = row->connection_id,
	};
	struct buf text = BUF_NULL(DOCUMENT_MAX_BYTES);
	enum component_name_reason reason;
	char file[COMPONENT_FILE_BYTES];
	char slug[AIRBYTE_SLUG_BYTES];
	int r;

	r = str_copy(spec->origin, sizeof(spec->origin), row->id);
	if (r == 0)
		r = airbyte_slug(row->name, row->name_length, row->id, slug);
	if (r == 0 &&
	    (is_taken(session, row, slug) ||
	     component_name_check(slug, strlen(slug), COMPONENT_NAME_STRICT, file, &reason) != 0))
		airbyte_slug_with_id(slug, row->id);
	if (r == 0)
		r = airbyte_document(&source, app->config, &text);
	if (r == 0) {
		spec->name = strdup(slug);
		spec->name_length = strlen(slug);
		spec->body = strndup((const char *)text.data, text.size);
		spec->body_length = text.size;
		r = spec->name && spec->body ? 0 : -ENOMEM;
	}
	buf_done(&text);
	return r;
}

static void write_component(struct request *request, struct session *session,
			    const struct store_airbyte *row)
{
	struct spec_component spec = SPEC_COMPONENT_NULL;
	int r = make_component(request_app(request), session, row, &spec);

	if (r == 0)
		action_component(request, session, &spec);
	else if (r == -ENOMEM)
		reply_no_memory(request);
	else
		reply_detail(request, MHD_HTTP_BAD_REQUEST, API_DETAIL_COMPONENT_NAME);
	spec_component_done(&spec);
}

static void on_connection(void *userdata, enum store_result result, const struct store_airbyte *row)
{
	struct asked *asked = userdata;
	struct request *request = answer_get(&asked->to);
	struct session *session = registry_find(&asked->app->registry, &asked->session);

	asked_free(asked);
	if (!request)
		return;
	/* Meanwhile it may have ended, or lost its tree. */
	if (!session || !session_is_visible(session, clock_realtime()) || !live_of(session) ||
	    !live_of(session)->shim)
		reply_not_found(request);
	else if (result == STORE_DEGRADED)
		reply_no_store(request);
	else if (!row)
		reply_no_connection(request);
	else
		write_component(request, session, row);
}

void action_airbyte(struct request *request, struct session *session, const char *connection)
{
	struct asked *asked = asked_new(request);
	struct store_viewer viewer = viewer_of(request);

	if (asked) {
		asked->session = session->id;
		if (store_airbyte_get(asked->app->store, &viewer, connection, &session->id,
				      on_connection, asked) >= 0)
			return;
	}
	asked_free(asked);
	reply_no_memory(request);
}

/* ---- the list ---- */

static json_t *describe(const struct store_airbyte *row)
{
	json_t *name = json_stringn(row->name, row->name_length);

	/* Not UTF-8: another program's row. */
	return json_pack("{s:s, s:o, s:s?}", "id", row->id, "name", name ? name : json_string(""),
			 "airbyte_connection_id",
			 row->connection_id[0] != '\0' ? row->connection_id : NULL);
}

static void on_row(void *userdata, enum store_result result, const struct store_airbyte *row)
{
	struct asked *asked = userdata;
	struct request *request;
	json_t *item;

	if (result == STORE_OK) {
		item = describe(row);
		if (item)
			(void)json_array_append_new(asked->rows, item);
		return;
	}
	request = answer_get(&asked->to);
	if (request && result == STORE_DEGRADED)
		reply_no_store(request);
	else if (request)
		reply_json(request, MHD_HTTP_OK, json_incref(asked->rows));
	asked_free(asked);
}

void action_airbyte_list(struct request *request)
{
	struct store_viewer viewer = viewer_of(request);
	struct asked *asked = asked_new(request);

	if (asked) {
		asked->rows = json_array();
		if (asked->rows &&
		    store_airbyte_get(asked->app->store, &viewer, NULL, NULL, on_row, asked) >= 0)
			return;
	}
	asked_free(asked);
	reply_no_memory(request);
}

/* ---- kept and forgotten ---- */

static bool is_uuid(const char *text)
{
	return strlen(text) == ID_TEXT_BYTES - 1 &&
	       strspn(text, "0123456789abcdef-") == ID_TEXT_BYTES - 1;
}

static void on_changed(void *userdata, enum store_result result)
{
	struct asked *asked = userdata;
	struct request *request = answer_get(&asked->to);

	asked->to = ANSWER_TO_NULL;
	if (request && result == STORE_OK)
		reply_json(request, MHD_HTTP_OK,
			   json_pack("{s:s, s:s*}", "airbyte_connection_id", asked->connection,
				     "name", asked->spec.name));
	else if (request)
		reply_no_store(request);
	/* Degraded: it is called once more. */
	if (result != STORE_DEGRADED)
		asked_free(asked);
}

static void put_row(struct asked *asked, struct request *request)
{
	const struct store_airbyte_put row = {
		.name = asked->spec.name,
		.connection_id = asked->connection,
		.source_id = asked->spec.source_id ? asked->spec.source_id : "",
		.destination_id = asked->spec.destination_id ? asked->spec.destination_id : "",
		.streams_json = asked->spec.streams_json ? asked->spec.streams_json : "[]",
		.owner = asked->identity.is_operator ? "" : asked->identity.user,
		.workspace = asked->identity.workspace,
	};
	int r = store_airbyte_put(asked->app->store, &row, clock_realtime(), on_changed, asked);

	if (r >= 0)
		return;
	if (r == -EOPNOTSUPP)
		reply_foreign_table(request);
	else
		reply_no_memory(request);
	asked_free(asked);
}

/* How many there are; then the write. */
static void on_counted(void *userdata, enum store_result result, const struct store_airbyte *row)
{
	struct asked *asked = userdata;
	struct request *request;

	if (result == STORE_OK) {
		asked->n_kept += !str_equal(row->connection_id, asked->connection);
		return;
	}
	request = answer_get(&asked->to);
	if (request && result == STORE_NOT_FOUND && asked->n_kept < CONNECTIONS_MAX) {
		put_row(asked, request);
		return;
	}
	if (request && result == STORE_NOT_FOUND)
		reply_detail(request, MHD_HTTP_TOO_MANY_REQUESTS, "too many airbyte connections");
	else if (request)
		reply_no_store(request);
	asked_free(asked);
}

void action_airbyte_put(struct request *request, struct spec_airbyte *spec)
{
	struct store_viewer viewer = viewer_of(request);
	struct asked *asked;

	if (!is_uuid(request->path_id)) {
		reply_no_connection(request);
		return;
	}
	asked = asked_new(request);
	if (asked) {
		asked->spec = *spec;
		*spec = SPEC_AIRBYTE_NULL;
		if (store_airbyte_get(asked->app->store, &viewer, NULL, NULL, on_counted, asked) >=
		    0)
			return;
		asked_free(asked);
	}
	reply_no_memory(request);
}

static void on_to_drop(void *userdata, enum store_result result, const struct store_airbyte *row)
{
	struct asked *asked = userdata;
	struct request *request = answer_get(&asked->to);
	int r = -ENOENT;

	if (request && row)
		r = store_airbyte_drop(asked->app->store, row->id, on_changed, asked);
	if (r >= 0)
		return;
	if (request && r == -EOPNOTSUPP)
		reply_foreign_table(request);
	else if (request && result == STORE_DEGRADED)
		reply_no_store(request);
	else if (request && r == -ENOENT)
		reply_no_connection(request);
	else if (request)
		reply_no_memory(request);
	asked_free(asked);
}

void action_airbyte_drop(struct request *request)
{
	struct store_viewer viewer = viewer_of(request);
	struct asked *asked = asked_new(request);

	if (asked) {
		if (store_airbyte_get(asked->app->store, &viewer, request->path_id, NULL,
				      on_to_drop, asked) >= 0)
			return;
		asked_free(asked);
	}
	reply_no_memory(request);
}
