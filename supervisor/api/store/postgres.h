/*
 * The store on PostgreSQL: libpq without blocking calls, on the worker's event loop. One
 * connection, one batch of writes on its way at a time, each batch one transaction; reads behind it
 * in the same pipeline. A lost connection is made again; what was on its way is then known to be
 * committed or is sent again, never both. The schema is made by `sandboxctl migrate` only.
 */
#pragma once

#include <systemd/sd-event.h>

#include "base/auto.h"
#include "base/err.h"

#include "supervisor/api/names.h"
#include "supervisor/api/store/store.h"

struct postgres_options {
	sd_event *event;
	struct names *names;        /* for hosts with names; NULL: they are not found */
	const char *dsn;            /* postgresql://…, also postgresql+driver://… */
	const char *password;       /* "": the dsn has it, or none is needed */
	const char *instance;       /* at most 36 characters: whose sessions these are */
	const char *host;           /* stands in the `host` column */
	uint64_t max_waiting_bytes; /* as of the embedded store */
};

/* Waits up to ten seconds for the server. 0; -EINVAL: the dsn; -EPROTONOSUPPORT: the schema is
 * missing, too new, or differs; -ETIMEDOUT, -EIO: the server. err says it in words, without a part
 * of the dsn. */
MUST_USE int store_open_postgres(const struct postgres_options *options, struct store **ret_store,
				 struct err *err);

/* Who the state directory is, for `instance`: made at the first call. 0 or -errno. */
MUST_USE int postgres_instance(int state_fd, char text[ID_TEXT_BYTES]);
