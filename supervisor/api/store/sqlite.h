/*
 * The embedded store: one SQLite file, WAL, synchronous=FULL, one transaction a loop turn.
 *
 * Knows no path but the one given (/state/api.db in the worker's root), makes no thread and starts
 * no process. The schema is that of migrations/, applied at open, forward only; a schema newer than
 * ours is used as it is as long as it says that it may be.
 */
#pragma once

#include <stdbool.h>

#include "base/auto.h"
#include "base/err.h"

#include "supervisor/api/store/store.h"

struct sqlite_options {
	const char *path;
	const char *host;           /* stands in the `host` column */
	uint64_t max_waiting_bytes; /* of writes that wait while the store refuses; 0: 64 MiB */
	uint32_t max_pages;         /* 0: no bound; beyond it the store is degraded */
	bool short_log; /* begin with an empty log (tests: its size is what they look at) */
};

/* 0; -EBADMSG: the file is no database or is damaged; -EPROTONOSUPPORT: its schema is newer than
 * this release can use, or a migration's checksum differs; -errno. err says it in words. */
MUST_USE int store_open_sqlite(const struct sqlite_options *options, struct store **ret_store,
			       struct err *err);
