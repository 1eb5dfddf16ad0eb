/*
 * Short ids: the first characters of an id stand for the one session (or task) that has them.
 * Names: they stand for the caller's own session; the local operator has no other's to mind.
 */
#pragma once

#include "ctl/commands.h"

#define SHORT_ID_MIN 4

/* What options->args points to after resolve_words. */
struct resolved {
	char *word[COMMAND_MAX_WORDS]; /* owned */
	size_t n;
};
void resolved_done(struct resolved *resolved);

/* Make ids of the short ids and names among the command's words. EXIT_OK, or the exit status with a
 * message printed: EXIT_NOT_FOUND for none, EXIT_USAGE for several, which are listed. */
int resolve_words(struct client *client, const struct command *command, struct options *options,
		  struct resolved *resolved);
