/*
 * Our terminal while it is a session's: raw, so that every key goes there. Whoever makes it raw
 * restores it on each way out; signals come through a descriptor, so a signal is one of these.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <termios.h>

#include "base/auto.h"

struct terminal {
	struct termios before;
	bool is_raw;
};

/* Of standard input. 0 or -errno. */
MUST_USE int terminal_make_raw(struct terminal *terminal);
void terminal_restore(struct terminal *terminal);
/* Rows and columns; 24 and 80 where they are not known. */
void terminal_size(uint16_t *ret_rows, uint16_t *ret_cols);
