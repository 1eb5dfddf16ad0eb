/*
 * A new process tree for a session whose row is open and whose old tree is gone. Same id, owner,
 * expiry, limits and environment; a new folder, filled with the components of the row.
 *
 * A request that needs a tree waits here, and its handler runs again when there is one: the order
 * of checks is then that of any other request, and an expiry in between is the same 404. All who
 * come meanwhile share one rebuild. If it fails they are told why, and the row stays open.
 *
 * The row says `restoring` from before the launch until the folder is complete, both durably: a
 * worker that starts in between does not take a half-filled folder for the session's.
 */
#pragma once

#include "supervisor/api/creation.h"
#include "supervisor/api/http/runtime_errors.h"

/* The request goes on when there is a tree, or is answered. */
void rebuild_wait(struct request *request, struct session *session);
/* SESSION_ACTION_REBUILD, _RESTORE and _GO_ON. */
void rebuild_begin(struct app *app, struct session *session);
void rebuild_restore(struct app *app, struct session *session);
void rebuild_go_on(struct session *session);
/* Where the supervisor's refusal goes, or NULL. */
struct refusal *rebuild_refusal(struct live *live);
/* The tree that was being made is gone. */
void rebuild_lost(struct live *live);
/* It cannot be resumed now: those who wait for that are told why. */
void rebuild_refuse(struct live *live, enum runtime_error error, const char *detail);
/* The session ends: who still waits for a tree is told that it is not there. */
void rebuild_drop(struct live *live);
