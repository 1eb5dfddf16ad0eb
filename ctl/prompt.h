/*
 * A question on the controlling terminal, whatever standard input is.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "ctl/client.h"

/* One line of at least one character; is_secret: it is not shown while it is typed. 0; -ENXIO:
 * there is no terminal; -ENODATA: nothing was typed; -EINTR: a signal (client->signal); -EMSGSIZE:
 * it is longer; -errno. The terminal's modes are as before on each way out. */
MUST_USE int prompt_line(struct client *client, const char *question, bool is_secret,
			 char *ret_line, size_t line_bytes);
