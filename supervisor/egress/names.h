/*
 * Synthetic addresses: 198.18.0.0/15, one for each name that a session has asked for. Derived from
 * the session and the name, so that a client that kept one over a restart of this worker reaches
 * the same name, or none. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/host_name.h"
#include "base/id.h"

#include "sandboxd/egress.h"

#define NAMES_DEFAULT_MAX 512u
#define NAMES_MAX         4096u

/* Below a *.suffix the session chooses the name, and each is a question to somebody's name server
 * once it is dialled: what that can carry out is bounded (D2). */
#define NAMES_BELOW_MAX_BYTES  48
#define NAMES_BELOW_MAX_LABELS 3
#define NAMES_BELOW_BURST      32u
#define NAMES_BELOW_EVERY      (6 * USEC_PER_SEC) /* one more after so long */

struct name_entry {
	uint32_t offset; /* in the range */
	char name[HOST_NAME_BYTES];
};

struct names {
	struct name_entry *entry; /* owned */
	uint32_t n;
	uint32_t allocated;
	uint32_t max;     /* 0: NAMES_DEFAULT_MAX */
	uint32_t n_below; /* tokens used */
	usec_t below_since;
};

void names_done(struct names *names);
/* The address of a name, a new one where needed. 0; -ENOSPC: max reached; -ENOMEM. */
MUST_USE int names_add(struct names *names, const struct id *session, const char *name,
		       uint8_t ret_address[4]);
/* NULL: no such name was asked for. */
const char *names_find(const struct names *names, const struct egress_address *address);
bool names_has(const struct names *names, const char *name);
bool names_is_synthetic(const struct egress_address *address);
/* A new name below a suffix: 0, -EMSGSIZE (its labels), -EDQUOT (too many lately). */
MUST_USE int names_check_below(struct names *names, const char *name, const char *suffix,
			       usec_t now);
