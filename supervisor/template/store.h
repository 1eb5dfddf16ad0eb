/*
 * The folder of templates (sandboxd/template.h), as whoever changes it has it.
 */
#pragma once

#include <stdbool.h>

#include "base/auto.h"
#include "base/err.h"

#include "sandboxd/template_jail.h"

struct store {
	int dir_fd;
	int signal_fd;
	struct template_report report; /* of the last job */
};
#define STORE_NULL ((struct store){.dir_fd = -1, .signal_fd = -1})

enum {
	STORE_E_NONE_YET = 1, /* there is no such folder, so no template either */
	STORE_E_BUSY,         /* another one holds the lock */
	STORE_E_EXISTS,
	STORE_E_UNKNOWN,
	STORE_E_IN_USE,
	STORE_E_IMAGE, /* store.report says why */
};

struct store_import {
	const char *name;
	int source_fd;         /* not owned */
	const char *max_bytes; /* decimal; the next three as well: words of the jail */
	const char *max_inodes;
	const char *platform;
	const char *ref;
};

/* For readers: no lock. 0, STORE_E_NONE_YET, -errno with err. */
MUST_USE int store_open(struct store *store, const char *state_dir, struct err *err);
/* For writers: made where it is missing, locked, and rid of what an earlier one left; signals that
 * would end the process are read between steps from now on. 0, STORE_E_BUSY, STORE_E_IN_USE: that
 * left-over is used by a session; -errno with err. */
MUST_USE int store_lock(struct store *store, const char *state_dir, struct err *err);
void store_done(struct store *store);

/* All or nothing. 0, STORE_E_EXISTS, STORE_E_IMAGE, -errno with err. */
MUST_USE int store_import(struct store *store, const struct store_import *import,
			  struct template_record *ret_record, struct err *err);
/* 0, STORE_E_UNKNOWN, STORE_E_IN_USE, -errno with err. */
MUST_USE int store_remove(struct store *store, const char *name, struct err *err);
/* 0, STORE_E_UNKNOWN, -errno. */
MUST_USE int store_read(const struct store *store, const char *name,
			struct template_record *ret_record, uint32_t *ret_users);
