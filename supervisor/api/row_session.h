/*
 * A session as its row says it: for a worker that starts, whether the session's tree lives or not.
 */
#pragma once

#include "supervisor/api/app.h"

/* In CREATING and in no registry. 0; -ENOENT: this release has no such profile; -ENOMEM. */
MUST_USE int row_session(const struct app *app, const struct store_session *row,
			 struct session **ret_session);
