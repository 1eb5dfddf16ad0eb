/*
 * The snapshot behind a suspend. While it is made the session's shim runs and its commands stay
 * frozen (LAUNCH_PART); then all of it is frozen again. The row says that a generation is durable
 * when its snapshot is, and only then the one before is given up.
 */
#pragma once

#include "supervisor/api/live.h"

struct suspend_persist;

/* All of the session is frozen again. r: 0: its last suspend is durable; -errno as of struct
 * snapshot_result, or -EPROTO: its processes could not be moved, and it cannot go on. */
typedef void suspend_persisted(struct live *live, int r);

/* Of one that is suspended. 0 and done follows, or -errno. */
MUST_USE int suspend_persist_begin(struct live *live, suspend_persisted *done);
/* What is under way, here or since an earlier worker, is given up; done, which takes the place of
 * the former one, follows. 0, or -errno: nothing is done. */
MUST_USE int suspend_persist_end(struct live *live, suspend_persisted *done);
/* The shim of one that was adopted frozen has said what it has. */
void suspend_persist_known(struct live *live);
/* The session ends: nobody is told anything more. */
void suspend_persist_drop(struct live *live);
