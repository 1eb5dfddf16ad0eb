/*
 * What a command said, collected for one answer. It is taken at once, so that the command goes on;
 * what all answers hold together is bounded, and what one user's hold of it, and a command that
 * says more than fits is ended.
 */
#pragma once

#include "supervisor/api/command.h"
#include "supervisor/api/http/shares.h"

struct command_output {
	struct app *app;
	struct share *share;  /* of who asked, or NULL */
	struct buf text[2];   /* standard output and error */
	size_t counted_bytes; /* of them, in the share and everybody's sum */
	const char *broken;   /* why they are not all here, or NULL */
};

/* max_bytes: of each. */
void command_output_init(struct command_output *output, struct app *app, struct share *share,
			 size_t max_bytes);
void command_output_done(struct command_output *output);
/* All that the reader has. */
void command_output_take(struct command_output *output, struct command_reader *reader);
