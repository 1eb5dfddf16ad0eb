/*
 * A connection string as keywords and values for libpq, with what this store asks of every
 * connection. Values may be secret: no complaint repeats a part of them.
 */
#pragma once

#include <stdbool.h>

#include "base/auto.h"
#include "base/dsn.h"
#include "base/err.h"
#include "base/host_name.h"

#include "supervisor/api/names.h"

#define PG_DSN_MAX   48
#define PG_HOSTS_MAX DSN_HOSTS_MAX

/* What a list of hosts becomes when the names among them have addresses: one entry for each
 * address. */
enum pg_place {
	PG_PLACE_HOST,
	PG_PLACE_HOSTADDR,
	PG_PLACE_PORT,
	PG_PLACE_MAX_,
};

struct pg_dsn {
	const char *keyword[PG_DSN_MAX + 1];
	const char *value[PG_DSN_MAX + 1];
	void *options; /* libpq's own, which the texts belong to */
	char *password;
	/* Where names have to be looked up; else n_hosts is 0. */
	char host[PG_HOSTS_MAX][HOST_NAME_BYTES];
	char port[PG_HOSTS_MAX][8]; /* "": libpq's */
	size_t n_hosts;
	size_t place_at[PG_PLACE_MAX_]; /* in value[] */
	char *place[PG_PLACE_MAX_];
};
#define PG_DSN_NULL ((struct pg_dsn){0})

/*
 * dsn: postgresql://…, postgres://…, with or without SQLAlchemy's +driver. password "": as in the
 * dsn. has_files: of a program that has the files of this machine and nothing else to do, so that
 * Unix sockets and certificates of clients are taken, and names of hosts left to libpq, which
 * blocks. 0; -EINVAL; -ENOMEM.
 */
MUST_USE int pg_dsn_parse(struct pg_dsn *ret_dsn, const char *dsn, const char *password,
			  bool has_files, struct err *err);
/* pg_hosts.c: hosts, and ports or NULL, as dsn->host and dsn->port. 0 or -EINVAL. */
MUST_USE int pg_hosts_split(struct pg_dsn *dsn, const char *hosts, const char *ports);
/* The addresses of its n_hosts hosts, in their order. 0; -ENOENT: none has one; -ENOMEM. */
MUST_USE int pg_dsn_place(struct pg_dsn *dsn, const struct names_answer *const answer[]);
void pg_dsn_done(struct pg_dsn *dsn); /* wipes the values */
