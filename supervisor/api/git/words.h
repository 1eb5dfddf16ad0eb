/*
 * The commands of git that an act is made of, one after the other, each in the words that git is
 * given. Pure.
 */
#pragma once

#include "supervisor/api/session/spec_git.h"

enum git_step {
	GIT_STEP_REMOTE, /* what URLs the remote has */
	GIT_STEP_NETWORK,
	GIT_STEP_MERGE,
	GIT_STEP_SWITCH, /* to a new branch, to another one */
	GIT_STEP_ADD,
	GIT_STEP_COMMIT,
	GIT_STEP_STATUS,
	GIT_STEP_LOG,
	GIT_STEP_COUNTS, /* of lines, a file */
	GIT_STEP_PATCH,
	GIT_STEP_END,
};

/* The steps of an act, the last one is GIT_STEP_END. */
const enum git_step *git_steps(const struct spec_git *spec);

/* Fill in a command. url: where the network step goes. Takes nothing over; ret_spec is owned by the
 * caller, also where it fails. 0, -ENOMEM or -E2BIG. */
MUST_USE int git_words(const struct spec_git *spec, enum git_step step, const char *url,
		       struct spec_command *ret_spec);
