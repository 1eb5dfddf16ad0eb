#include "supervisor/api/session/transitions.h"

#include "base/err.h"

#define DOES(next_state, actions_)                                                                 \
	{                                                                                          \
		true, SESSION_STATE_##next_state, (actions_)                                       \
	}

#define NONE    SESSION_ACTION_NONE
#define ANSWER  SESSION_ACTION_ANSWER
#define ANSWERF SESSION_ACTION_ANSWER_FAILED
#define STATUS  SESSION_ACTION_STATUS_ROW
#define FAIL    SESSION_ACTION_FAIL_JOBS
#define KILL    SESSION_ACTION_KILL
#define ROW     SESSION_ACTION_CLOSE_ROW
#define FORGET  SESSION_ACTION_FORGET

/* clang-format 14 breaks off on the nested designators. */
/* clang-format off */
/*
 * What is not listed is impossible. Notes:
 *  - CLOSE while CREATING: the answer to LAUNCH_START may already be on its way, so LAUNCHED and
 *    LAUNCH_FAILED are still possible in CLOSING; the kill covers the first.
 *  - LOST does not mean that nothing is left: the kill makes it so, GONE says so.
 *  - CLOSE twice is one close: two deletes at once are both answered at FORGET.
 */
static const struct transition table[SESSION_STATE_MAX_][SESSION_EVENT_MAX_] = {
	[SESSION_STATE_CREATING] = {
		[SESSION_EVENT_LAUNCHED] = DOES(OPEN, ANSWER),
		[SESSION_EVENT_LAUNCH_FAILED] = DOES(CLOSED, ANSWERF | ROW | FORGET),
		[SESSION_EVENT_CLOSE] = DOES(CLOSING, ANSWERF | KILL),
		[SESSION_EVENT_LOST] = DOES(CLOSING, ANSWERF | KILL),
		[SESSION_EVENT_GONE] = DOES(CLOSED, ANSWERF | ROW | FORGET),
	},
	[SESSION_STATE_OPEN] = {
		[SESSION_EVENT_JOB_STARTED] = DOES(RUNNING, STATUS),
		[SESSION_EVENT_JOBS_IDLE] = DOES(OPEN, NONE),
		[SESSION_EVENT_CLOSE] = DOES(CLOSING, FAIL | KILL),
		[SESSION_EVENT_LOST] = DOES(CLOSING, FAIL | KILL),
		[SESSION_EVENT_GONE] = DOES(CLOSED, FAIL | ROW | FORGET),
	},
	[SESSION_STATE_RUNNING] = {
		[SESSION_EVENT_JOB_STARTED] = DOES(RUNNING, NONE),
		[SESSION_EVENT_JOBS_IDLE] = DOES(OPEN, STATUS),
		[SESSION_EVENT_CLOSE] = DOES(CLOSING, FAIL | KILL),
		[SESSION_EVENT_LOST] = DOES(CLOSING, FAIL | KILL),
		[SESSION_EVENT_GONE] = DOES(CLOSED, FAIL | ROW | FORGET),
	},
	[SESSION_STATE_CLOSING] = {
		[SESSION_EVENT_LAUNCHED] = DOES(CLOSING, NONE),
		[SESSION_EVENT_LAUNCH_FAILED] = DOES(CLOSED, ROW | FORGET),
		[SESSION_EVENT_JOBS_IDLE] = DOES(CLOSING, NONE),
		[SESSION_EVENT_CLOSE] = DOES(CLOSING, NONE),
		[SESSION_EVENT_LOST] = DOES(CLOSING, NONE),
		[SESSION_EVENT_GONE] = DOES(CLOSED, ROW | FORGET),
	},
	/* CLOSED: the object waits for the end of the turn; every event is a bug. */
};
/* clang-format on */

const struct transition *transition_get(enum session_state state, enum session_event event)
{
	ASSERT((unsigned int)state < SESSION_STATE_MAX_);
	ASSERT((unsigned int)event < SESSION_EVENT_MAX_);
	return &table[state][event];
}
