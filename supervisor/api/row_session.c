#include "supervisor/api/row_session.h"

#include <errno.h>
#include <string.h>

#include "base/json.h"
#include "base/str.h"

static char *take_text(const json_t *value)
{
	return json_is_string(value) ? strndup(json_string_value(value), json_string_length(value))
				     : NULL;
}

static json_t *parse_column(const char *text)
{
	const char *reason;
	json_t *doc = NULL;

	if (!text || doc_parse(text, strlen(text), &doc, &reason) < 0)
		return NULL;
	return doc;
}

/* Names only: the values are opened again with each launch. */
static void fill_secrets(struct spec_create *spec, const struct store_session *row)
{
	json_t *secrets = parse_column(row->secrets_json);
	size_t n = json_array_size(secrets);

	if (n > 0)
		spec->secret = calloc(n + 1, sizeof(*spec->secret));
	for (size_t i = 0; spec->secret && i < n; i++) {
		spec->secret[spec->n_secrets] = take_text(json_array_get(secrets, i));
		if (spec->secret[spec->n_secrets])
			spec->n_secrets++;
	}
	json_decref(secrets);
}

static void fill_egress(struct spec_egress *egress, const struct store_session *row)
{
	json_t *allow = parse_column(row->egress_allow_json);
	size_t n = json_array_size(allow);

	if (n > 0)
		egress->allow = calloc(n + 1, sizeof(*egress->allow));
	for (size_t i = 0; egress->allow && i < n; i++) {
		egress->allow[egress->n_allow] = take_text(json_array_get(allow, i));
		if (egress->allow[egress->n_allow])
			egress->n_allow++;
	}
	json_decref(allow);
}

static void fill_spec(struct spec_create *spec, const struct store_session *row)
{
	json_t *overrides = parse_column(row->overrides_json);
	json_t *envs = parse_column(row->envs_json);
	size_t n = json_array_size(envs);

	IGNORE_RESULT(str_copy_n(spec->profile, sizeof(spec->profile), row->profile,
				 strnlen(row->profile, sizeof(spec->profile) - 1)));
	spec->ttl_minutes = row->ttl_minutes;
	for (size_t i = 0; i < ENDPOINTS_N; i++)
		spec->endpoint[i] = take_text(json_object_get(overrides, endpoint_name(i)));
	if (n > 0)
		spec->env = calloc(n + 1, sizeof(*spec->env));
	for (size_t i = 0; spec->env && i < n; i++) {
		spec->env[spec->n_env] = take_text(json_array_get(envs, i));
		if (spec->env[spec->n_env])
			spec->n_env++;
	}
	fill_secrets(spec, row);
	fill_egress(&spec->egress, row);
	spec_runtime_restore(&spec->runtime, row->runtime_json);
	if (session_name_valid(row->name, strlen(row->name)))
		IGNORE_RESULT(str_copy(spec->name, sizeof(spec->name), row->name));
	json_decref(overrides);
	json_decref(envs);
}

static int fill_components(struct session *session, const struct store_session *row)
{
	json_t *components = parse_column(row->components_json);
	const char *name;
	json_t *value;
	int r = 0;

	json_object_foreach(components, name, value)
	{
		json_int_t bytes = json_integer_value(value);

		r = session_component_set(session, name, bytes > 0 ? (size_t)bytes : 0);
		if (r < 0)
			break;
	}
	json_decref(components);
	return r;
}

static void fill_log(struct session *session, const struct store_session *row)
{
	json_t *log = parse_column(row->log_summary_json);
	json_t *entry;
	size_t i;

	json_array_foreach(log, i, entry)
	{
		if (session_log_append(session, entry) < 0)
			break; /* a summary for readers: nothing depends on it */
	}
	json_decref(log);
}

static void fill_registry(struct session *session, const struct store_session *row)
{
	json_t *registry = parse_column(row->registry_json);
	const char *provider = json_string_value(json_object_get(registry, "provider"));

	suspension_read(registry, &session->suspension);
	/* One that is too long is none that there could be. */
	if (provider && str_copy(session->provider, sizeof(session->provider), provider) < 0)
		IGNORE_RESULT(str_copy(session->provider, sizeof(session->provider), "?"));
	json_decref(registry);
}

/* A column may hold bytes that no answer can: they name nobody. */
static void fill_name(char *name, size_t size, const char *column)
{
	if (str_utf8_valid(column, strlen(column)))
		IGNORE_RESULT(str_copy(name, size, column));
}

/* None is everybody's of the organisation: one that cannot be read is nobody's. */
static void fill_project(struct session *session, const char *column)
{
	fill_name(session->project, sizeof(session->project), column);
	if (column[0] != '\0' && session->project[0] == '\0')
		IGNORE_RESULT(str_copy(session->project, sizeof(session->project), "?"));
}

static void fill_names(struct session *session, const struct store_session *row)
{
	fill_name(session->owner, sizeof(session->owner), row->owner);
	fill_name(session->workspace, sizeof(session->workspace), row->workspace);
	fill_project(session, row->project);
	fill_name(session->last_run_id, sizeof(session->last_run_id), row->last_run_id);
	fill_registry(session, row);
	session->operator_owned = row->operator_owned;
	session->dagster = row->dagster;
}

/* The limits as they were at the first launch, if this release's policy still has that profile. */
static int fill_plan(const struct app *app, struct session *session,
		     const struct store_session *row)
{
	int profile = spec_find_profile(app->policy.header, row->profile);

	if (profile < 0)
		return -ENOENT;
	session->plan = spec_plan(&row->id, (uint32_t)profile,
				  image_profile(&app->policy, (uint32_t)profile));
	if (row->has_plan) {
		struct plan kept = row->plan;

		memcpy(kept.session, session->plan.session, sizeof(kept.session));
		memcpy(kept.profile_hash, session->plan.profile_hash, sizeof(kept.profile_hash));
		kept.profile = session->plan.profile;
		session->plan = kept;
	}
	if (app->facts.n_egress > 0)
		session->plan.egress = id_hash(&row->id) % app->facts.n_egress;
	return 0;
}

static int fill_session(const struct app *app, struct session *session,
			const struct store_session *row)
{
	int r;

	session->expires_at = row->expires_at;
	session->row_exists = true;
	flow_init(&session->flow, row->acked);
	fill_names(session, row);
	fill_log(session, row);
	r = fill_plan(app, session, row);
	if (r < 0)
		return r;
	return fill_components(session, row);
}

int row_session(const struct app *app, const struct store_session *row,
		struct session **ret_session)
{
	struct spec_create spec = SPEC_CREATE_NULL;
	struct session *session;
	int r;

	fill_spec(&spec, row);
	session = session_new(&row->id, &spec, row->created_at);
	spec_create_done(&spec);
	if (!session)
		return -ENOMEM;
	r = fill_session(app, session, row);
	if (r < 0) {
		(void)session_free(session);
		return r;
	}
	*ret_session = session;
	return 0;
}
