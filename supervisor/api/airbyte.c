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

/* ---- one as a component ---- */

/* Of one read of the store. */
struct lookup {
	struct app *app;
	struct answer_to to;
	struct id session;
};

static struct lookup *lookup_new(struct request *request)
{
	struct lookup *lookup = calloc(1, sizeof(*lookup));

	if (lookup) {
		lookup->app = request_app(request);
		lookup->to = answer_to(request);
	}
	return lookup;
}

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
	struct lookup *lookup = userdata;
	struct request *request = answer_get(&lookup->to);
	struct session *session = registry_find(&lookup->app->registry, &lookup->session);

	free(lookup);
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
	struct lookup *lookup = lookup_new(request);
	struct store_viewer viewer = viewer_of(request);

	if (lookup) {
		lookup->session = session->id;
		if (store_airbyte_get(lookup->app->store, &viewer, connection, &session->id,
				      on_connection, lookup) >= 0)
			return;
	}
	free(lookup);
	reply_no_memory(request);
}

/* ---- the list ---- */

struct listing {
	struct lookup lookup; /* first: it is freed as one */
	json_t *rows;
};

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
	struct listing *listing = userdata;
	struct request *request;
	json_t *item;

	if (result == STORE_OK) {
		item = describe(row);
		if (item)
			(void)json_array_append_new(listing->rows, item);
		return;
	}
	request = answer_get(&listing->lookup.to);
	if (request && result == STORE_DEGRADED)
		reply_no_store(request);
	else if (request)
		reply_json(request, MHD_HTTP_OK, json_incref(listing->rows));
	json_decref(listing->rows);
	free(listing);
}

void action_airbyte_list(struct request *request)
{
	struct store_viewer viewer = viewer_of(request);
	struct listing *listing = calloc(1, sizeof(*listing));

	if (listing) {
		listing->lookup.app = request_app(request);
		listing->lookup.to = answer_to(request);
		listing->rows = json_array();
		if (listing->rows && store_airbyte_get(listing->lookup.app->store, &viewer, NULL,
						       NULL, on_row, listing) >= 0)
			return;
		json_decref(listing->rows);
	}
	free(listing);
	reply_no_memory(request);
}

/* ---- kept and forgotten ---- */

struct change {
	struct app *app;
	struct answer_to to;
	struct spec_airbyte spec; /* of a put */
	char connection[ROUTE_ID_BYTES];
	struct identity identity;
	uint32_t n_kept; /* others that the owner has */
};

static void change_free(struct change *change)
{
	spec_airbyte_done(&change->spec);
	free(change);
}

static struct change *change_new(struct request *request)
{
	struct change *change = calloc(1, sizeof(*change));

	if (!change)
		return NULL;
	change->app = request_app(request);
	change->to = answer_to(request);
	change->identity = request->identity;
	memcpy(change->connection, request->path_id, sizeof(change->connection));
	return change;
}

static bool is_uuid(const char *text)
{
	return strlen(text) == ID_TEXT_BYTES - 1 &&
	       strspn(text, "0123456789abcdef-") == ID_TEXT_BYTES - 1;
}

static void on_changed(void *userdata, enum store_result result)
{
	struct change *change = userdata;
	struct request *request = answer_get(&change->to);

	change->to = ANSWER_TO_NULL;
	if (request && result == STORE_OK)
		reply_json(request, MHD_HTTP_OK,
			   json_pack("{s:s, s:s*}", "airbyte_connection_id", change->connection,
				     "name", change->spec.name));
	else if (request)
		reply_no_store(request);
	/* Degraded: it is called once more. */
	if (result != STORE_DEGRADED)
		change_free(change);
}

static void put_row(struct change *change, struct request *request)
{
	const struct store_airbyte_put row = {
		.name = change->spec.name,
		.connection_id = change->connection,
		.source_id = change->spec.source_id ? change->spec.source_id : "",
		.destination_id = change->spec.destination_id ? change->spec.destination_id : "",
		.streams_json = change->spec.streams_json ? change->spec.streams_json : "[]",
		.owner = change->identity.is_operator ? "" : change->identity.user,
		.workspace = change->identity.workspace,
	};
	int r = store_airbyte_put(change->app->store, &row, clock_realtime(), on_changed, change);

	if (r >= 0)
		return;
	if (r == -EOPNOTSUPP)
		reply_foreign_table(request);
	else
		reply_no_memory(request);
	change_free(change);
}

/* How many there are; then the write. */
static void on_counted(void *userdata, enum store_result result, const struct store_airbyte *row)
{
	struct change *change = userdata;
	struct request *request;

	if (result == STORE_OK) {
		change->n_kept += !str_equal(row->connection_id, change->connection);
		return;
	}
	request = answer_get(&change->to);
	if (request && result == STORE_NOT_FOUND && change->n_kept < CONNECTIONS_MAX) {
		put_row(change, request);
		return;
	}
	if (request && result == STORE_NOT_FOUND)
		reply_detail(request, MHD_HTTP_TOO_MANY_REQUESTS, "too many airbyte connections");
	else if (request)
		reply_no_store(request);
	change_free(change);
}

void action_airbyte_put(struct request *request, struct spec_airbyte *spec)
{
	struct store_viewer viewer = viewer_of(request);
	struct change *change;

	if (!is_uuid(request->path_id)) {
		reply_no_connection(request);
		return;
	}
	change = change_new(request);
	if (change) {
		change->spec = *spec;
		*spec = SPEC_AIRBYTE_NULL;
		if (store_airbyte_get(change->app->store, &viewer, NULL, NULL, on_counted,
				      change) >= 0)
			return;
		change_free(change);
	}
	reply_no_memory(request);
}

static void on_to_drop(void *userdata, enum store_result result, const struct store_airbyte *row)
{
	struct change *change = userdata;
	struct request *request = answer_get(&change->to);
	int r = -ENOENT;

	if (request && row)
		r = store_airbyte_drop(change->app->store, row->id, on_changed, change);
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
	change_free(change);
}

void action_airbyte_drop(struct request *request)
{
	struct store_viewer viewer = viewer_of(request);
	struct change *change = change_new(request);

	if (change) {
		if (store_airbyte_get(change->app->store, &viewer, request->path_id, NULL,
				      on_to_drop, change) >= 0)
			return;
		change_free(change);
	}
	reply_no_memory(request);
}
