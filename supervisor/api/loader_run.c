#include "supervisor/api/loader_run.h"

#include <errno.h>
#include <string.h>

#include "base/str.h"

#include "supervisor/api/redis.h"

#define LOADER_OUTPUT_MAX_BYTES ((uint64_t)16 * 1024 * 1024)
#define GRACE_MS                2000u

static const char *const loader_argv[] = {"sandbox-loader", "/session", NULL};

const struct policy_profile *session_profile(const struct live *live)
{
	const struct policy_profile *profile =
		image_profile(&live->app->policy, live->session->plan.profile);

	ASSERT(profile); /* found by name before the launch, or checked at adoption */
	return profile;
}

const struct policy_limits *session_limits(const struct live *live)
{
	return &session_profile(live)->limits;
}

const char *session_gateways(const struct app *app, const struct session *session)
{
	return str_equal(session->spec.profile, "agent") ? app->config->agent_gateways : NULL;
}

int session_environment(const struct live *live, char *const *extra, bool is_root,
			struct environment *ret_environment)
{
	const struct session *session = live->session;
	struct redis_access access;
	struct environment_input input = {
		.session = &session->id,
		.prefix = live->app->config->env_prefix,
		.dagster = session->dagster,
		.is_root = is_root,
		.has_template = session->spec.runtime.template[0] != '\0',
		.config = live->app->config,
		.gateways = session_gateways(live->app, session),
		.session_env = (const char *const *)session->spec.env,
		.command_env = (const char *const *)extra,
	};
	int r;

	for (size_t i = 0; i < ENDPOINTS_N; i++) {
		input.caller[i] = session->spec.endpoint[i];
		input.operator_default[i] = live->app->summary.operator_default[i];
	}
	if (redis_access(live, &access)) {
		input.redis_url = access.url;
		input.redis_prefix = access.prefix;
	}
	r = environment_build(&input, ret_environment);
	explicit_bzero(&access, sizeof(access));
	return r;
}

int loader_run(struct live *live, enum loader_run_kind kind, uint32_t *ret_wire_job)
{
	const struct policy_limits *limits = session_limits(live);
	uint32_t timeout_s =
		kind == LOADER_RUN_LOAD ? limits->load_timeout_s : limits->execute_timeout_s;
	struct environment environment = ENVIRONMENT_NULL;
	struct shim_link_command command = {
		.head = {.program = WIRE_PROGRAM_LOADER,
			 .timeout_ms = timeout_s * 1000,
			 .grace_ms = GRACE_MS,
			 .output_rate_bytes = limits->output_rate_bytes,
			 .output_max_bytes = LOADER_OUTPUT_MAX_BYTES},
		.cwd = "/session",
		.argv = loader_argv,
	};
	int r;

	if (!live->shim)
		return -EPIPE;
	r = session_environment(live, NULL, false, &environment);
	if (r < 0)
		return r;
	command.env = (const char *const *)environment.entry;
	r = shim_link_exec(live->shim, &command, ret_wire_job);
	environment_done(&environment);
	return r;
}
