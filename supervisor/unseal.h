/*
 * The helper that opens secrets for one launch: started, waited for in the loop, reaped. The
 * supervisor gives it the files and gets one number back; values go from it to the shim.
 */
#pragma once

#include <stdint.h>

#include "base/auto.h"
#include "base/err.h"
#include "base/list.h"
#include "base/loop.h"

#include "sandboxd/secret.h"

#define UNSEAL_E_NONE 1
#define UNSEAL_MAX    32u /* helpers at once; further launches wait in order */

struct host;
struct unseal;

/* Where the files lie, and what runs on them. */
struct unsealer {
	struct loop *loop;
	struct host *host;
	int state_fd;    /* the state directory; not owned */
	int null_fd;     /* /dev/null, which the supervisor's own root does not have */
	int host_key_fd; /* directory of systemd's credential key; -1: none on this host */
	struct list running;
};

/* Before the host's mount namespace is left. 0 or -errno. */
MUST_USE int unsealer_open(struct unsealer *unsealer, int state_fd);
/* Ends what still runs. */
void unsealer_close(struct unsealer *unsealer);

/* Once, from the loop. report: NULL when the helper failed. records_fd: what the shim reads; the
 * callee takes a copy of what it keeps. */
typedef void (*unseal_done)(void *userdata, const struct secret_report *report, int records_fd);

/* Runs as root in the supervisor's namespaces; the request is checked. 0 and *ret_unseal, valid
 * until `done` or unseal_cancel; UNSEAL_E_NONE: this host has no secrets; -errno. */
MUST_USE int unseal_start(struct unsealer *unsealer, const struct secret_request *request,
			  unseal_done done, void *userdata, struct unseal **ret_unseal,
			  struct err *err);
/* Nobody waits any more: it is killed, and `done` does not come. Accepts NULL; returns NULL. */
struct unseal *unseal_cancel(struct unseal *unseal);
