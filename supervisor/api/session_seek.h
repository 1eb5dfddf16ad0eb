/*
 * A session that is not in memory: a row that the platform wrote since the start, or of a host
 * whose lease has lapsed.
 */
#pragma once

#include "supervisor/api/app.h"

/* The store has given the row to this instance: the session is dormant, and tasks that ran
 * elsewhere end. 0 or -errno. */
int session_taken(struct app *app, const struct store_session *row);

/* True: the request's handler runs once more, when the store has answered. Once for each request,
 * whether its session is somebody else's or nobody's. */
bool session_seek(struct request *request, const struct viewer *viewer);
