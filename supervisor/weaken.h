/*
 * Layers of the isolation that a test build can leave away, and faults that it can plant, so that
 * tests/escape shows that its programs can attack, that the next layer holds alone, and that a
 * fault is noticed. SANDBOX_LAYER_OFF and SANDBOX_PLANT in the environment, comma separated names.
 * A release build has none of it: every question is a constant false there.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#include "supervisor/idblock.h"

enum weaken {
	WEAKEN_SECCOMP = 1 << 0,        /* the commands' filter allows everything */
	WEAKEN_USERNS_CEILING = 1 << 1, /* namespaces below the session's are not counted */
	WEAKEN_CAPS = 1 << 2,           /* commands keep SHIM_CAPS */
	WEAKEN_HIDEPID = 1 << 3,        /* every process is visible in /proc */
	WEAKEN_LANDLOCK = 1 << 4,       /* no domain */
	WEAKEN_OVERLAY = 1 << 5,        /* /usr is a bind of the host's */
	WEAKEN_PROC_MASK = 1 << 6,      /* nothing at the top level of /proc is covered */
	WEAKEN_KEYRING = 1 << 7,        /* the supervisor's session keyring stays */
	WEAKEN_USERNS_OWNER = 1 << 8,   /* root makes the user namespaces: counts are its own */

	PLANT_SYSCALL = 1 << 16,  /* add_key is allowed */
	PLANT_MOUNT = 1 << 17,    /* /etc is writable */
	PLANT_CAP = 1 << 18,      /* as WEAKEN_CAPS */
	PLANT_FD = 1 << 19,       /* commands hold the loader's descriptor */
	PLANT_IDS = 1 << 20,      /* all sessions have the ids of the first */
	PLANT_ROOT_CAP = 1 << 21, /* root commands have SETPCAP */
	PLANT_LANDLOCK = 1 << 22, /* commands have most rights on all of "/" */
};

#ifdef SANDBOXD_TEST_HOOKS
bool weakened(enum weaken what);
/* Change a compiled session policy as is asked for. 0 or -ENOMEM. */
MUST_USE int weaken_policy(void **data, size_t *size);
/* The ids of a new user namespace: base, or those of the first one, and base is given back. */
uint32_t weaken_base(struct idblock *idblock, uint32_t base);
#else
static inline bool weakened(enum weaken what)
{
	(void)what;
	return false;
}
static inline int weaken_policy(void **data, size_t *size)
{
	(void)data;
	(void)size;
	return 0;
}
static inline uint32_t weaken_base(struct idblock *idblock, uint32_t base)
{
	(void)idblock;
	return base;
}
#endif
