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
#define REBUILD SESSION_ACTION_REBUILD
#define RESTORE SESSION_ACTION_RESTORE
#define GO_ON   SESSION_ACTION_GO_ON
#define DROP    SESSION_ACTION_DROP_TREE
#define UNLINK  SESSION_ACTION_UNLINK

/* clang-format 14 breaks off on the nested designators. */
/* clang-format off */
/*
 * What is not listed is impossible. Notes:
 *  - CLOSE while CREATING: the answer to LAUNCH_START may already be on its way, so LAUNCHED and
 *    LAUNCH_FAILED are still possible in CLOSING; the kill covers the first.
 *  - LOST does not mean that nothing is left: the kill makes it so, GONE says so.
 *  - The row is closed when the close is asked for: what dies in between leaves a tree without an
 *    open row, which the next start ends, and never a row that comes back.
 *  - CLOSE twice is one close: two deletes at once are both answered at FORGET.
 *  - The jobs of a tree that ended by itself fail when it is gone, not when its socket ends: only
 *    then is it known whether the kernel took it for its memory.
 *  - GONE of a FALLING or DORMANT session: the supervisor's word and the answer to a kill may both
 *    come.
 *  - ADOPT_TREE of a DORMANT session: its provider said late that it lives.
 *  - UNLINKED is as the end of the tree for all that hangs on its link, and ends nothing there. Of
 *    a FALLING one: why its socket had ended was not known yet.
 *  - Those who wait for a tree go on in DORMANT as well: they find why there is none, or begin
 *    another. Others wait for one that stands still to be resumed, and find that it is closed.
 */
static const struct transition table[SESSION_STATE_MAX_][SESSION_EVENT_MAX_] = {
	[SESSION_STATE_CREATING] = {
		[SESSION_EVENT_LAUNCHED] = DOES(OPEN, ANSWER),
		[SESSION_EVENT_LAUNCH_FAILED] = DOES(CLOSED, ANSWERF | ROW | FORGET),
		[SESSION_EVENT_CLOSE] = DOES(CLOSING, ANSWERF | ROW | KILL),
		[SESSION_EVENT_STOP] = DOES(CLOSING, ANSWERF | ROW | KILL),
		[SESSION_EVENT_ADOPT_ROW] = DOES(DORMANT, NONE),
		[SESSION_EVENT_ADOPT_TREE] = DOES(REBUILDING, NONE),
		[SESSION_EVENT_LOST] = DOES(CLOSING, ANSWERF | ROW | KILL),
		[SESSION_EVENT_GONE] = DOES(CLOSED, ANSWERF | ROW | FORGET),
	},
	[SESSION_STATE_DORMANT] = {
		[SESSION_EVENT_CLOSE] = DOES(CLOSED, GO_ON | ROW | FORGET),
		[SESSION_EVENT_STOP] = DOES(DORMANT, NONE),
		[SESSION_EVENT_USE] = DOES(REBUILDING, REBUILD),
		[SESSION_EVENT_ADOPT_TREE] = DOES(REBUILDING, NONE),
		[SESSION_EVENT_GONE] = DOES(DORMANT, NONE),
	},
	[SESSION_STATE_REBUILDING] = {
		[SESSION_EVENT_LAUNCHED] = DOES(REBUILDING, RESTORE),
		[SESSION_EVENT_LAUNCH_FAILED] = DOES(DORMANT, GO_ON | DROP),
		[SESSION_EVENT_CLOSE] = DOES(CLOSING, GO_ON | FAIL | ROW | KILL),
		[SESSION_EVENT_STOP] = DOES(FALLING, GO_ON | FAIL | KILL),
		[SESSION_EVENT_USE] = DOES(REBUILDING, NONE),
		[SESSION_EVENT_RESTORED] = DOES(OPEN, STATUS | GO_ON),
		[SESSION_EVENT_LOST] = DOES(FALLING, KILL),
		[SESSION_EVENT_UNLINKED] = DOES(DORMANT, UNLINK | FAIL | GO_ON | DROP),
		[SESSION_EVENT_GONE] = DOES(DORMANT, FAIL | GO_ON | DROP),
	},
	[SESSION_STATE_OPEN] = {
		[SESSION_EVENT_JOB_STARTED] = DOES(RUNNING, STATUS),
		[SESSION_EVENT_JOBS_IDLE] = DOES(OPEN, NONE),
		[SESSION_EVENT_CLOSE] = DOES(CLOSING, GO_ON | FAIL | ROW | KILL),
		[SESSION_EVENT_STOP] = DOES(FALLING, FAIL | KILL),
		[SESSION_EVENT_USE] = DOES(OPEN, NONE),
		[SESSION_EVENT_LOST] = DOES(FALLING, KILL),
		[SESSION_EVENT_UNLINKED] = DOES(DORMANT, UNLINK | FAIL | DROP),
		[SESSION_EVENT_GONE] = DOES(DORMANT, FAIL | DROP),
	},
	[SESSION_STATE_RUNNING] = {
		[SESSION_EVENT_JOB_STARTED] = DOES(RUNNING, NONE),
		[SESSION_EVENT_JOBS_IDLE] = DOES(OPEN, STATUS),
		[SESSION_EVENT_CLOSE] = DOES(CLOSING, GO_ON | FAIL | ROW | KILL),
		[SESSION_EVENT_STOP] = DOES(FALLING, STATUS | FAIL | KILL),
		[SESSION_EVENT_USE] = DOES(RUNNING, NONE),
		[SESSION_EVENT_LOST] = DOES(FALLING, STATUS | KILL),
		[SESSION_EVENT_UNLINKED] = DOES(DORMANT, UNLINK | FAIL | STATUS | DROP),
		[SESSION_EVENT_GONE] = DOES(DORMANT, FAIL | STATUS | DROP),
	},
	[SESSION_STATE_FALLING] = {
		[SESSION_EVENT_LAUNCHED] = DOES(FALLING, NONE),
		[SESSION_EVENT_LAUNCH_FAILED] = DOES(DORMANT, FAIL | GO_ON | DROP),
		[SESSION_EVENT_JOBS_IDLE] = DOES(FALLING, NONE),
		[SESSION_EVENT_CLOSE] = DOES(CLOSING, GO_ON | FAIL | ROW | KILL),
		[SESSION_EVENT_STOP] = DOES(FALLING, GO_ON | FAIL | KILL),
		[SESSION_EVENT_USE] = DOES(FALLING, NONE),
		[SESSION_EVENT_RESTORED] = DOES(FALLING, NONE),
		[SESSION_EVENT_LOST] = DOES(FALLING, NONE),
		[SESSION_EVENT_UNLINKED] = DOES(DORMANT, UNLINK | FAIL | GO_ON | DROP),
		[SESSION_EVENT_GONE] = DOES(DORMANT, FAIL | GO_ON | DROP),
	},
	[SESSION_STATE_CLOSING] = {
		[SESSION_EVENT_LAUNCHED] = DOES(CLOSING, NONE),
		[SESSION_EVENT_LAUNCH_FAILED] = DOES(CLOSED, FORGET),
		[SESSION_EVENT_JOBS_IDLE] = DOES(CLOSING, NONE),
		[SESSION_EVENT_CLOSE] = DOES(CLOSING, NONE),
		[SESSION_EVENT_STOP] = DOES(CLOSING, NONE),
		[SESSION_EVENT_RESTORED] = DOES(CLOSING, NONE),
		[SESSION_EVENT_LOST] = DOES(CLOSING, NONE),
		[SESSION_EVENT_GONE] = DOES(CLOSED, FORGET),
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
