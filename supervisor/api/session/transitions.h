/*
 * The table of session states and events. Pure data; session_apply reads it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "supervisor/api/session/session.h"

struct transition {
	bool possible;
	enum session_state next;
	uint32_t actions; /* enum session_action */
};

const struct transition *transition_get(enum session_state state, enum session_event event);
