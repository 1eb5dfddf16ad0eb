#include "supervisor/api/session/environment.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/endpoint_list.h"
#include "base/secret.h"
#include "base/str.h"

#include "sandboxd/limits.h"
#include "supervisor/api/egress/policy.h"

enum base_where {
	BASE_ALL,
	BASE_DAGSTER,
	BASE_RUNTIME,
};

/* What every command gets. TMPDIR and HOME are short: Unix socket paths are built below them. The
 * leak check of gcc's and clang's sanitizers traces its own process, which no session may (B10),
 * and would end every program built with them by an error that talks of something else. */
static const struct {
	const char *entry;
	enum base_where where;
} base_entries[] = {
	{"PATH=/usr/bin:/bin",                   BASE_ALL    },
	{"HOME=/session/home",                   BASE_ALL    },
	{"TMPDIR=/session/tmp",                  BASE_ALL    },
	{"USER=user",			    BASE_ALL    },
	{"LOGNAME=user",			 BASE_ALL    },
	{"SHELL=/bin/sh",                        BASE_ALL    },
	{"LANG=C.UTF-8",			 BASE_ALL    },
	{"PYTHONDONTWRITEBYTECODE=1",            BASE_ALL    },
	{"PYTHONUNBUFFERED=1",                   BASE_ALL    },
	{"PYTHONNOUSERSITE=1",                   BASE_ALL    },
	{"DAGSTER_HOME=/session/home/.dagster",  BASE_DAGSTER},
	{"DAGSTER_DISABLE_TELEMETRY=1",          BASE_DAGSTER},
	{"DAGSTER_CLOUD_IS_BRANCH_DEPLOYMENT=1", BASE_DAGSTER},
	{"DATAHUB_TELEMETRY_ENABLED=false",      BASE_DAGSTER},
	{"LSAN_OPTIONS=detect_leaks=0",          BASE_RUNTIME},
};

/* What client libraries read themselves, so that code which names no setting finds the sandbox's
 * endpoint too ([endpoint:NAME] companion_env). Absent where the endpoint is empty. */
static const struct {
	size_t endpoint;
	const char *variable;
} companions[] = {
	{0, "PYICEBERG_CATALOG__DEFAULT__URI"      },
	{1, "PYICEBERG_CATALOG__DEFAULT__WAREHOUSE"},
	{4, "DATAHUB_GMS_URL"                      },
};

bool environment_name_allowed(const char *name, size_t length, const char *prefix)
{
	size_t prefix_length = prefix ? strlen(prefix) : 0;

	if (!variable_name_allowed(name, length))
		return false;
	if (prefix_length == 0 || length < prefix_length ||
	    memcmp(name, prefix, prefix_length) != 0)
		return true;
	for (size_t i = 0; i < ENDPOINTS_N; i++)
		if (strlen(endpoint_variable(i)) == length - prefix_length &&
		    memcmp(endpoint_variable(i), name + prefix_length, length - prefix_length) == 0)
			return false;
	return true;
}

const char *environment_endpoint(const char *caller, const char *operator_default, size_t index,
				 enum endpoint_source *ret_source)
{
	if (caller) {
		*ret_source = ENDPOINT_SOURCE_CALLER;
		return caller;
	}
	if (operator_default) {
		*ret_source = ENDPOINT_SOURCE_OPERATOR;
		return operator_default;
	}
	*ret_source = ENDPOINT_SOURCE_CLOSED;
	return endpoint_closed_value(index);
}

void environment_done(struct environment *environment)
{
	for (size_t i = 0; i < environment->n_entries; i++)
		free(environment->entry[i]);
	free(environment->entry);
	*environment = ENVIRONMENT_NULL;
}

static int add_taken(struct environment *environment, char *entry)
{
	if (!entry)
		return -ENOMEM;
	if (environment->n_entries >= EXEC_MAX_ENV) {
		free(entry);
		return -E2BIG;
	}
	environment->entry[environment->n_entries++] = entry;
	return 0;
}

/* Add NAME=VALUE, in place of an entry of the same name. */
static int add_entry(struct environment *environment, const char *entry)
{
	size_t name = strcspn(entry, "=") + 1;
	char *copy;

	for (size_t i = 0; i < environment->n_entries; i++) {
		if (strncmp(environment->entry[i], entry, name) != 0)
			continue;
		copy = strdup(entry);
		if (!copy)
			return -ENOMEM;
		free(environment->entry[i]);
		environment->entry[i] = copy;
		return 0;
	}
	return add_taken(environment, strdup(entry));
}

static int add_pair(struct environment *environment, const char *prefix, const char *name,
		    const char *value)
{
	AUTO_FREE char *entry = NULL;

	if (asprintf(&entry, "%s%s=%s", prefix, name, value) < 0) {
		entry = NULL;
		return -ENOMEM;
	}
	return add_entry(environment, entry);
}

static int add_all(struct environment *environment, const char *const *entries)
{
	int r;

	for (size_t i = 0; entries && entries[i]; i++) {
		r = add_entry(environment, entries[i]);
		if (r < 0)
			return r;
	}
	return 0;
}

/* The folders stay: a session has one home. */
static const char *const root_entries[] = {"PATH=/usr/sbin:/usr/bin:/bin", "USER=root",
					   "LOGNAME=root", NULL};
static const char *const template_entries[] = {"PATH=/usr/local/bin:/usr/bin:/bin", NULL};
static const char *const template_root_entries[] = {
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", NULL};

static int add_programs(struct environment *environment, const struct environment_input *input)
{
	int r = add_all(environment, input->is_root ? root_entries : NULL);

	if (r < 0 || !input->has_template)
		return r;
	return add_all(environment, input->is_root ? template_root_entries : template_entries);
}

/* As a program inside gets it: services of this host have another name there. */
static int add_endpoint(struct environment *environment, const struct environment_input *input,
			size_t index, const char *prefix, const char *name)
{
	enum endpoint_source source;
	const char *value = environment_endpoint(input->caller[index],
						 input->operator_default[index], index, &source);
	AUTO_FREE char *injected = NULL;
	int r = input->config ? policy_injected(&input->config->network, index, value, &injected)
			      : 0;

	if (r < 0)
		return r;
	if (prefix[0] == '\0' && value[0] == '\0')
		return 0;
	return add_pair(environment, prefix, name, injected ? injected : value);
}

/* Before what session and command name, so that both can say otherwise. */
static int add_companions(struct environment *environment, const struct environment_input *input)
{
	int r = 0;

	for (size_t i = 0; r == 0 && input->config && i < ARRAY_SIZE(companions); i++)
		if (input->config->endpoint[companions[i].endpoint].companion_env)
			r = add_endpoint(environment, input, companions[i].endpoint, "",
					 companions[i].variable);
	return r;
}

/* As companions. */
static int add_gateways(struct environment *environment, const char *list)
{
	const char *entry;
	size_t length;
	int r = 0;

	while (r == 0 && list && endpoint_list_next(&list, &entry, &length)) {
		AUTO_FREE char *text = strndup(entry, length);

		r = text ? add_entry(environment, text) : -ENOMEM;
	}
	return r;
}

static int build(const struct environment_input *input, struct environment *environment)
{
	char id[ID_TEXT_BYTES];
	int r;

	for (size_t i = 0; i < ARRAY_SIZE(base_entries); i++) {
		if (base_entries[i].where == (input->dagster ? BASE_RUNTIME : BASE_DAGSTER))
			continue;
		r = add_taken(environment, strdup(base_entries[i].entry));
		if (r < 0)
			return r;
	}
	r = add_programs(environment, input);
	if (r < 0)
		return r;
	id_format(input->session, id);
	r = add_pair(environment, "", "SANDBOX_SESSION_ID", id);
	if (r < 0)
		return r;
	r = add_companions(environment, input);
	if (r < 0)
		return r;
	r = add_gateways(environment, input->gateways);
	if (r < 0)
		return r;
	r = add_all(environment, input->session_env);
	if (r < 0)
		return r;
	r = add_all(environment, input->command_env);
	if (r < 0)
		return r;
	if (input->redis_url) {
		r = add_pair(environment, "", "SANDBOX_REDIS_URL", input->redis_url);
		if (r >= 0)
			r = add_pair(environment, "", "SANDBOX_REDIS_PREFIX", input->redis_prefix);
		if (r < 0)
			return r;
	}
	/* Last, so that nothing above can stand in their place. */
	for (size_t i = 0; i < ENDPOINTS_N; i++) {
		r = add_endpoint(environment, input, i, input->prefix, endpoint_variable(i));
		if (r < 0)
			return r;
	}
	return 0;
}

int environment_build(const struct environment_input *input, struct environment *ret_environment)
{
	struct environment environment = ENVIRONMENT_NULL;
	int r;

	environment.entry = calloc(EXEC_MAX_ENV + 1, sizeof(*environment.entry));
	if (!environment.entry)
		return -ENOMEM;
	r = build(input, &environment);
	if (r < 0) {
		environment_done(&environment);
		return r;
	}
	*ret_environment = environment;
	return 0;
}
