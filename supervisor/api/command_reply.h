/*
 * Answers about commands.
 */
#pragma once

#include <jansson.h>

#include "supervisor/api/command.h"

enum command_wait_for {
	COMMAND_WAIT_START,
	COMMAND_WAIT_END,
	COMMAND_WAIT_OUTPUT, /* the request is the command's: its end is the command's */
};

/* Answers the request when that has come, or after timeout (USEC_NEVER: none). 0, or -errno and it
 * is not answered. */
MUST_USE int command_wait(struct request *request, struct command *command,
			  enum command_wait_for what, usec_t timeout);

/* State of a command. A new reference, or NULL. */
json_t *command_describe(const struct command *command);
/* 201 with the state, or why it did not start. */
void reply_command_begun(struct request *request, struct command *command);
/* Everything that it said and how it ended, in one answer. */
void reply_command_output(struct request *request, struct command *command,
			  const struct buf output[2]);
