/*
 * The environment of a command, built from nothing: a fixed base, the six endpoints under their
 * prefix (always all six: an absent one would make a client fall back to production), then what
 * session and command name. Names are only ever added, never filtered from an inherited set.
 */
#pragma once

#include <stddef.h>

#include "base/auto.h"
#include "base/id.h"

#include "supervisor/api/session/endpoint.h"

struct environment_input {
	const struct id *session;
	const char *prefix; /* "ALPHASWARM_" */
	bool dagster;       /* a component session: DAGSTER_HOME and its like, else tools' own */
	bool is_root;       /* a root command: another name, the administrator's programs */
	bool has_template;  /* programs are where an image may have them */
	const char *caller[ENDPOINTS_N];           /* env_overrides; NULL: not given */
	const char *operator_default[ENDPOINTS_N]; /* configuration; NULL: none */
	const struct api_config *config;           /* companions, services of this host; or NULL */
	const char *gateways;                      /* NAME=URL between spaces, or NULL */
	const char *redis_url;                     /* of the session's user; NULL: it has none */
	const char *redis_prefix;                  /* of its keys, likewise */
	const char *const *session_env;            /* NAME=VALUE, NULL terminated, or NULL */
	const char *const *command_env;            /* wins over session_env */
};

struct environment {
	char **entry; /* NAME=VALUE, NULL terminated: fits frame_exec_build */
	size_t n_entries;
};
#define ENVIRONMENT_NULL ((struct environment){0})
void environment_done(struct environment *environment);
/* 0; -E2BIG: over EXEC_MAX_ENV entries; -ENOMEM. */
MUST_USE int environment_build(const struct environment_input *input,
			       struct environment *ret_environment);

/* Which value of an endpoint is in force, and who gave it: the first of caller, operator, closed.
 */
const char *environment_endpoint(const char *caller, const char *operator_default, size_t index,
				 enum endpoint_source *ret_source);

/* [A-Z_][A-Z0-9_]{0,63}, and none that would change how our base is read: LD_*, PATH, HOME, and so
 * on, or an endpoint variable under `prefix`. */
bool environment_name_allowed(const char *name, size_t length, const char *prefix);
