/*
 * The end of a session's row, and of what belongs to it beside its process tree: its keys in Redis
 * and its snapshots. Those who wait for the end of a session hear of it when nothing is left of the
 * tree and all have spoken.
 */
#pragma once

#include "supervisor/api/creation.h"
#include "supervisor/api/live.h"

/* Once: the row ends now, whatever becomes of the tree. */
void session_close_row(struct app *app, struct session *session);
/* Nothing is left of the tree. */
void session_close_end(struct live *live);
/* waiters: struct end_waiter; each is told once, and may free itself. */
void session_close_tell(struct list *waiters, enum end_result result, uint32_t n_redis_keys);
