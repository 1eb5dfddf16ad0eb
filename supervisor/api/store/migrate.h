/*
 * The schema's numbered, forward-only steps (migrations/), compiled in at build time. Each is
 * recorded with its checksum in schema_migrations. A database that is one step ahead of this
 * release is used as it is (steps first add, and remove only a release later); further ahead, or a
 * step whose text differs from ours, is refused.
 */
#pragma once

#include <sqlite3.h>
#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/err.h"

struct migration {
	uint32_t version;
	const char *name;         /* file name */
	const char *checksum;     /* SHA-256 of the file, hexadecimal */
	const unsigned char *sql; /* the file with a NUL behind it */
};

/* Of the generated source; in rising order from 1, ends with version 0. */
extern const struct migration migrations[];
extern const struct migration postgres_migrations[];
/* What would undo each of them, for people: sql only. */
extern const struct migration postgres_undo[];

/* 0; -EPROTONOSUPPORT: newer than we can use, or changed; -EBUSY; -EIO; -ENOSPC; -EBADMSG. */
MUST_USE int migrate_apply(sqlite3 *db, const struct migration *steps, usec_t now, struct err *err);
/* A result code of SQLite as negative errno. */
int migrate_errno(int sqlite_result);
