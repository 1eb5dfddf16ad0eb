/*
 * A connection string as keywords and values for libpq, with what this store asks of every
 * connection. Values may be secret: no complaint repeats a part of them.
 */
#pragma once

#include <stdbool.h>

#include "base/auto.h"
#include "base/err.h"

#define PG_DSN_MAX 48

struct pg_dsn {
	const char *keyword[PG_DSN_MAX + 1];
	const char *value[PG_DSN_MAX + 1];
	void *options; /* libpq's own, which the texts belong to */
	char *password;
};
#define PG_DSN_NULL ((struct pg_dsn){0})

/*
 * dsn: postgresql://…, postgres://…, with or without SQLAlchemy's +driver. password "": as in the
 * dsn. has_files: of a program that has the files of this machine and nothing else to do, so that
 * names of hosts (resolving blocks), Unix sockets and certificates of clients are taken. 0;
 * -EINVAL; -ENOMEM.
 */
MUST_USE int pg_dsn_parse(struct pg_dsn *ret_dsn, const char *dsn, const char *password,
			  bool has_files, struct err *err);
void pg_dsn_done(struct pg_dsn *dsn); /* wipes the values */
