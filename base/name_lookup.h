/*
 * Names to addresses by the host's hosts file and name servers: c-ares and what every worker that
 * asks must do for it. Nothing blocks: there is one descriptor, which the worker's loop watches,
 * and which somebody who waits without the loop may poll.
 *
 * Names are taken as complete: no search list, no HOSTALIASES.
 */
#pragma once

#include <ares.h>
#include <stdbool.h>

#include "base/auto.h"

#include "sandboxd/egress.h"

struct name_lookup;

/* Before the worker confines itself: reads resolv.conf, and where its numbers of questions begin.
 * timeout_ms: of one try of three. 0 or -errno. */
MUST_USE int name_lookup_new(int timeout_ms, struct name_lookup **ret_lookup);
/* What is still asked is answered now (ARES_EDESTRUCTION). Accepts NULL, returns NULL. */
struct name_lookup *name_lookup_free(struct name_lookup *lookup);
/* Readable: name_lookup_process has something to do. */
int name_lookup_fd(const struct name_lookup *lookup);
void name_lookup_process(struct name_lookup *lookup);
/* done: once, maybe from inside; frees what it gets. A question cannot be taken back. */
void name_lookup_ask(struct name_lookup *lookup, const char *name, ares_addrinfo_callback done,
		     void *userdata);
/* One of the name servers of the configuration. */
bool name_lookup_has_server(const struct name_lookup *lookup, const struct egress_address *address);
