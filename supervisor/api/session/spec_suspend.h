/*
 * POST {API_PREFIX_RUNTIME}/{id}/suspend: {signal_commands?: none|foreground|all, grace_ms?,
 * before?: {argv | cmd, timeout_ms?, ...}, remove?: [path], durable?: background|wait|never}.
 * Rules of spec.h.
 */
#pragma once

#include "supervisor/api/session/spec.h"

#define SPEC_SUSPEND_REMOVE_MAX 64

/* Which commands get a TERM before the session stops. */
enum spec_suspend_commands {
	SPEC_SUSPEND_NONE,
	SPEC_SUSPEND_FOREGROUND,
	SPEC_SUSPEND_ALL,
};

/* When its workspace is to be in the store. */
enum spec_suspend_durable {
	SPEC_DURABLE_BACKGROUND, /* some time after the answer */
	SPEC_DURABLE_WAIT,       /* before it */
	SPEC_DURABLE_NEVER,
};

struct spec_suspend {
	enum spec_suspend_commands commands;
	enum spec_suspend_durable durable;
	uint32_t grace_ms;             /* that they have */
	struct spec_command before;    /* no argv: none */
	struct spec_file_path *remove; /* owned; with all that is below */
	size_t n_remove;
};
#define SPEC_SUSPEND_NULL ((struct spec_suspend){0})
void spec_suspend_done(struct spec_suspend *spec);
MUST_USE int spec_parse_suspend(const char *text, size_t size, const struct spec_options *options,
				struct spec_suspend *ret_spec, json_t **ret_errors);

/* POST {API_PREFIX_RUNTIME}/{id}/resume: {egress?: {allow: [rule]}, envs?: {NAME: text}}: in place
 * of what the sandbox had. */
struct spec_resume {
	struct spec_egress egress;
	bool has_egress;
	char **env; /* NAME=VALUE, NULL terminated, or NULL */
	size_t n_env;
	bool has_envs;
};
#define SPEC_RESUME_NULL ((struct spec_resume){0})
void spec_resume_done(struct spec_resume *spec);
MUST_USE int spec_parse_resume(const char *text, size_t size, const struct spec_options *options,
			       struct spec_resume *ret_spec, json_t **ret_errors);
