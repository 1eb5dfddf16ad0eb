/*
 * Suspending and resuming sessions: all of one stops in place, its shim too, and goes on.
 *
 * The row of sandbox_registry says what is meant before anything is done about it, durably. What a
 * crash leaves between is done again by suspend_adopted. Requests for the same thing share one go.
 */
#pragma once

#include <jansson.h>

#include "supervisor/api/app.h"

struct live;

/* Those who wait for the session to go on hear of it as those who wait for a tree
 * (rebuild.h). Where idle sandboxes are suspended it is resumed. False:
 * the request was answered: it is suspended, and stays so. */
bool suspend_may_wait(struct request *request, struct session *session);
/* Its tree lives, as a row said; is_frozen: the supervisor says that it is;
 * is_parted: its shim runs all the same. */
void suspend_adopted(struct session *session, bool is_frozen, bool is_parted);
/* Its shim has said what an earlier worker left. */
void suspend_known(struct live *live);
/* Its shim knows that it is about to be frozen. */
void suspend_paused(struct live *live);
/* Nothing is left of the tree. */
void suspend_tree_gone(struct session *session);
/* `durable_error`, where the last snapshot of a suspend failed. */
void suspend_show_error(const struct live *live, json_t *doc);
/* The session ends, or the worker: nobody is told anything more. */
void suspend_drop(struct live *live);
