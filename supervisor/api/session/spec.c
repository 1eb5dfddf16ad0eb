#include "supervisor/api/session/spec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

#include "supervisor/api/egress/admit.h"
#include "supervisor/api/session/body_fields.h"
#include "supervisor/api/session/endpoint.h"
#include "supervisor/api/session/fit.h"

#define TTL_MIN_S 60
#define TTL_TWICE "Value error, ttl and timeout_ms are the same"
#define ENV_MAX   64 /* members of `env` */

void spec_create_done(struct spec_create *spec)
{
	for (size_t i = 0; i < ENDPOINTS_N; i++)
		free(spec->endpoint[i]);
	body_strings_free(spec->env, spec->n_env);
	body_strings_free(spec->secret, spec->n_secrets);
	spec_egress_done(&spec->egress);
	spec_runtime_done(&spec->runtime);
	*spec = SPEC_CREATE_NULL;
}

static void read_egress(struct body *body, const char *field, json_t *value)
{
	struct spec_create *spec = body->dest;

	body_read_egress(body, field, value, &spec->egress);
}

static void read_ttl_minutes(struct body *body, const char *field, json_t *value)
{
	struct spec_create *spec = body->dest;
	uint32_t max = body->options->ttl_max_minutes;

	if (max == 0 || max > TTL_MAX_MINUTES)
		max = TTL_MAX_MINUTES;
	(void)body_read_integer(body, field, value, TTL_MIN_MINUTES, max, &spec->ttl_minutes);
}

static const char *override_problem(const struct body *body, size_t index, const json_t *value)
{
	const char *text = json_string_value(value);
	const char *problem = endpoint_value_problem(index, text, json_string_length(value));
	struct endpoint_value read;

	/* The first has refused a NUL. */
	if (!problem && body->options->config)
		problem = endpoint_read(index, text, &read);
	if (!problem && body->options->config)
		problem = admit_endpoint(body->options->config, text, &read);
	return problem;
}

static void read_override(struct body *body, const char *field, const char *name, json_t *value)
{
	struct spec_create *spec = body->dest;
	int index = endpoint_index(name, strlen(name));
	const char *problem;
	char msg[96];
	size_t length;

	if (index < 0) {
		/* Never ignored: the caller believes that the name is swapped. */
		body_wrong_in(body, "extra_forbidden", field, name,
			      "Extra inputs are not permitted");
		return;
	}
	if (!json_is_string(value)) {
		body_wrong_in(body, "string_type", field, name, BODY_MSG_STRING);
		return;
	}
	problem = override_problem(body, (size_t)index, value);
	if (problem) {
		fit_text(msg, sizeof(msg), "Value error, %s", problem);
		body_wrong_in(body, "value_error", field, name, msg);
		return;
	}
	spec->endpoint[index] = body_take_string(body, value, &length);
}

static void read_overrides(struct body *body, const char *field, json_t *value)
{
	const char *name;
	json_t *member;

	if (!body_is_object(body, field, value))
		return;
	/* The iteration only reads, though jansson asks for a pointer without const. */
	json_object_foreach(value, name, member) read_override(body, field, name, member);
}

static void read_create_envs(struct body *body, const char *field, json_t *value)
{
	struct spec_create *spec = body->dest;

	body_read_envs(body, field, value, EXEC_MAX_ENV / 2, &spec->env, &spec->n_env);
}

static void read_create_env(struct body *body, const char *field, json_t *value)
{
	struct spec_create *spec = body->dest;

	body_read_envs(body, field, value, ENV_MAX, &spec->env, &spec->n_env);
}

static void read_secrets(struct body *body, const char *field, json_t *value)
{
	struct spec_create *spec = body->dest;

	body_read_secrets(body, field, value, &spec->secret, &spec->n_secrets);
}

static void read_name(struct body *body, const char *field, json_t *value)
{
	struct spec_create *spec = body->dest;

	if (json_is_null(value))
		return;
	if (!json_is_string(value))
		body_wrong(body, "string_type", field, BODY_MSG_STRING);
	else if (!session_name_valid(json_string_value(value), json_string_length(value)))
		body_wrong(body, "value_error", field,
			   "Value error, name is not allowed (1 to 63 of a-z, 0-9, '.', '_' and "
			   "'-', not like an id)");
	else
		fit_text(spec->name, sizeof(spec->name), "%s", json_string_value(value));
}

static void read_organization(struct body *body, const char *field, json_t *value)
{
	struct spec_create *spec = body->dest;

	body_read_identity(body, field, value, "Value error, this cannot be an organization",
			   spec->organization, SPEC_ORGANIZATION_MAX);
}

static void read_profile(struct body *body, const char *field, json_t *value)
{
	struct spec_create *spec = body->dest;

	if (json_is_null(value))
		return;
	if (!json_is_string(value)) {
		body_wrong(body, "string_type", field, BODY_MSG_STRING);
		return;
	}
	if (body_has_nul(value) || (!str_equal(json_string_value(value), "agent") &&
				    !str_equal(json_string_value(value), "component"))) {
		body_wrong(body, "literal_error", field, "Input should be 'agent' or 'component'");
		return;
	}
	fit_text(spec->profile, sizeof(spec->profile), "%s", json_string_value(value));
}

/* Seconds. Whether it is too long depends on the profile, which may stand behind it; so the
 * seconds wait in ttl_minutes until the whole body is read. */
static void read_ttl_seconds(struct body *body, const char *field, json_t *value)
{
	struct spec_create *spec = body->dest;

	if (json_is_null(value))
		return;
	if (spec->ttl_minutes != 0)
		body_wrong(body, "value_error", field, TTL_TWICE);
	else
		(void)body_read_integer(body, field, value, TTL_MIN_S, AGENT_TTL_MAX_MINUTES * 60,
					&spec->ttl_minutes);
}

/* The same in the unit that other runtimes use. */
static void read_timeout_ms(struct body *body, const char *field, json_t *value)
{
	struct spec_create *spec = body->dest;
	uint32_t ms;

	if (json_is_null(value))
		return;
	if (spec->ttl_minutes != 0)
		body_wrong(body, "value_error", field, TTL_TWICE);
	else if (body_read_integer(body, field, value, TTL_MIN_S * 1000,
				   AGENT_TTL_MAX_MINUTES * 60 * 1000, &ms))
		spec->ttl_minutes = (ms + 999) / 1000;
}

static void check_ttl_seconds(struct body *body, struct spec_create *spec)
{
	uint32_t max =
		str_equal(spec->profile, "component") ? TTL_MAX_MINUTES : AGENT_TTL_MAX_MINUTES;
	uint32_t configured = body->options->ttl_max_minutes;
	char msg[64];

	if (configured != 0 && configured < max)
		max = configured;
	if (spec->ttl_minutes == 0)
		spec->ttl_minutes = max < TTL_DEFAULT_MINUTES ? max : TTL_DEFAULT_MINUTES;
	else
		spec->ttl_minutes = (spec->ttl_minutes + 59) / 60;
	if (spec->ttl_minutes > max) {
		fit_text(msg, sizeof(msg), "Input should be less than or equal to %u", max * 60);
		body_wrong(body, "less_than_equal", "ttl", msg);
	}
}

int spec_parse_session(const char *text, size_t size, const struct spec_options *options,
		       struct spec_create *ret_spec, json_t **ret_errors)
{
	static const struct body_field fields[] = {
		{"ttl_minutes",   false, read_ttl_minutes},
		{"env_overrides", false, read_overrides  },
		{"env",           false, read_create_env },
		{"secrets",       false, read_secrets    },
		{"name",          false, read_name       },
		{"egress",        false, read_egress     },
		{NULL,            false, NULL            },
	};
	struct spec_create spec = {.profile = "component", .ttl_minutes = TTL_DEFAULT_MINUTES};
	struct body body = {.options = options, .dest = &spec};
	int r;

	if (options && options->ttl_max_minutes != 0 &&
	    options->ttl_max_minutes < TTL_DEFAULT_MINUTES)
		spec.ttl_minutes = options->ttl_max_minutes;
	r = body_parse(&body, text, size, fields, true);
	if (r != 0)
		spec_create_done(&spec);
	else
		*ret_spec = spec;
	return body_finish(&body, r, ret_errors);
}

int spec_parse_ttl(const char *text, size_t size, const struct spec_options *options,
		   uint32_t *ret_minutes, json_t **ret_errors)
{
	static const struct body_field fields[] = {
		{"ttl_minutes", true,  read_ttl_minutes},
		{NULL,          false, NULL            },
	};
	struct spec_create spec = SPEC_CREATE_NULL;
	struct body body = {.options = options, .dest = &spec};
	int r;

	r = body_parse(&body, text, size, fields, false);
	if (r == 0)
		*ret_minutes = spec.ttl_minutes;
	return body_finish(&body, r, ret_errors);
}

int spec_parse_sandbox(const char *text, size_t size, const struct spec_options *options,
		       struct spec_create *ret_spec, json_t **ret_errors)
{
	static const struct body_field fields[] = {
		{"profile",           false, read_profile             },
		{"env",               false, read_create_env          },
		{"envs",              false, read_create_envs         },
		{"secrets",           false, read_secrets             },
		{"ttl",               false, read_ttl_seconds         },
		{"name",              false, read_name                },
		{"egress",            false, read_egress              },
		{"organization_uuid", false, read_organization        },
		{"project_uuid",      false, body_read_project        },
		{"timeout_ms",        false, read_timeout_ms          },
		{"metadata",          false, body_read_metadata       },
		{"workspace",         false, body_read_workspace      },
		{"idempotency_key",   false, body_read_idempotency_key},
		{"template",          false, body_read_template       },
		{"provider",          false, body_read_provider       },
		{NULL,                false, NULL                     },
	};
	struct spec_create spec = {.profile = "agent"};
	struct body body = {.options = options, .dest = &spec};
	int r;

	r = body_parse(&body, text, size, fields, true);
	if (r == 0) {
		check_ttl_seconds(&body, &spec);
		if (body.fatal < 0)
			r = body.fatal;
		else if (body.errors)
			r = SPEC_E_INVALID;
	}
	if (r != 0)
		spec_create_done(&spec);
	else
		*ret_spec = spec;
	return body_finish(&body, r, ret_errors);
}

int spec_parse_timeout(const char *text, size_t size, const struct spec_options *options,
		       uint32_t *ret_minutes, json_t **ret_errors)
{
	static const struct body_field fields[] = {
		{"timeout_ms", false, read_timeout_ms },
		{"ttl",        false, read_ttl_seconds},
		{NULL,         false, NULL            },
	};
	/* Whose life it is, is known later (action_timeout): the longest that there is. */
	struct spec_create spec = {.profile = "agent"};
	struct body body = {.options = options, .dest = &spec};
	int r;

	r = body_parse(&body, text, size, fields, false);
	if (r == 0 && spec.ttl_minutes == 0) {
		body_wrong(&body, "missing", "timeout_ms", "Field required");
		r = SPEC_E_INVALID;
	}
	if (r == 0) {
		check_ttl_seconds(&body, &spec);
		r = body.errors ? SPEC_E_INVALID : 0;
	}
	if (body.fatal < 0)
		r = body.fatal;
	if (r == 0)
		*ret_minutes = spec.ttl_minutes;
	return body_finish(&body, r, ret_errors);
}

int spec_parse_empty(const char *text, size_t size, const struct spec_options *options,
		     json_t **ret_errors)
{
	static const struct body_field fields[] = {
		{NULL, false, NULL}
        };
	struct body body = {.options = options};

	return body_finish(&body, body_parse(&body, text, size, fields, true), ret_errors);
}

struct plan spec_plan(const struct id *session, uint32_t profile_index,
		      const struct policy_profile *profile)
{
	const struct policy_limits *limits = &profile->limits;
	struct plan plan = {
		.magic = PLAN_MAGIC,
		.version = PLAN_VERSION,
		.size = sizeof(plan),
		.profile = profile_index,
		.tmpfs_bytes = limits->tmpfs_bytes,
		.tmpfs_inodes = limits->tmpfs_inodes,
		.memory_bytes = limits->memory_bytes,
		.max_pids = limits->max_pids,
		.max_files = limits->max_files,
		.cpu_pct = limits->cpu_pct,
		.cpu_weight = limits->cpu_weight,
		.max_ptys = limits->max_ptys,
	};

	memcpy(plan.session, session->bytes, sizeof(plan.session));
	memcpy(plan.profile_hash, profile->hash, sizeof(plan.profile_hash));
	return plan;
}

int spec_find_profile(const struct policy_image_header *image, const char *name)
{
	for (uint32_t i = 0; i < image->n_profiles && i < POLICY_MAX_PROFILES; i++)
		if (image->profile[i].kind == POLICY_KIND_SESSION &&
		    strncmp(image->profile[i].name, name, POLICY_NAME_BYTES) == 0)
			return (int)i;
	return -1;
}

int spec_error_add(json_t **errors, const char *type, const char *where, const char *field,
		   const char *msg)
{
	const char *loc[] = {where, field, NULL};

	return body_item_add(errors, type, loc, msg);
}
