/*
 * A session that is not in memory: a row that the platform wrote since the start.
 */
#pragma once

#include "supervisor/api/app.h"

/* True: the request's handler runs once more, when the store has answered. Once for each request,
 * whether its session is somebody else's or nobody's. */
bool session_seek(struct request *request, const struct viewer *viewer);
