/*
 * Answers about git.
 */
#pragma once

#include "supervisor/api/command_output.h"
#include "supervisor/api/git/words.h"

/* What the commands of one act said, so far as it is kept. */
struct git_said {
	struct command_output output; /* of the last one */
	json_t *counts;               /* of GIT_STEP_COUNTS, or NULL */
	struct wire_exit end;         /* of the last one */
	bool no_rule;      /* the session may not reach the server: it is the same next time */
	bool is_anonymous; /* the call had no credentials */
};

/* The act is done. */
void reply_git(struct request *request, const struct spec_git *spec, const struct git_said *said);
/* Its last command failed. */
void reply_git_failed(struct request *request, enum git_step step, struct git_said *said);
