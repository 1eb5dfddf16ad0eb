/*
 * A command of a session on our own descriptors, over a WebSocket: what it writes as it comes, our
 * input where it wants that. On a terminal every key goes to the command; at the beginning of a
 * line "~." leaves, as of ssh(1).
 */
#pragma once

#include "ctl/client.h"
#include "ctl/options.h"

struct attach_mode {
	bool is_terminal; /* ours becomes the command's */
	bool has_input;
	bool kills; /* our end is the command's */
};

/* Exit status. */
int attach_command(struct client *client, const struct options *options, const char *session,
		   const char *command_id, const struct attach_mode *mode);
