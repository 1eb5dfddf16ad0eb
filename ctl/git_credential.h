/*
 * The credential of one call of git: from a file or from the terminal, never from an argument or
 * the environment, which other processes can read.
 */
#pragma once

#include <jansson.h>

#include "ctl/client.h"
#include "ctl/options.h"

/* As the body of a request has it; NULL in *ret_credential where none was asked for. url NULL:
 * that of a remote, which the session knows. EXIT_OK, or the exit status with a message printed. */
int git_credential_read(struct client *client, const struct options *options, const char *url,
			json_t **ret_credential);
