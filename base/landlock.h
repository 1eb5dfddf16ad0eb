/*
 * Landlock: rules that a process takes upon itself and that all its children keep. What a ruleset
 * handles and no rule allows is refused. The headers of Linux 6.1 stop at ABI 2; newer rights are
 * here by number, each with the ABI that brought it.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"

#define LANDLOCK_EXECUTE    (1ull << 0)
#define LANDLOCK_WRITE      (1ull << 1)
#define LANDLOCK_READ       (1ull << 2)
#define LANDLOCK_LIST       (1ull << 3)
#define LANDLOCK_RMDIR      (1ull << 4)
#define LANDLOCK_UNLINK     (1ull << 5)
#define LANDLOCK_MAKE_CHAR  (1ull << 6)
#define LANDLOCK_MAKE_DIR   (1ull << 7)
#define LANDLOCK_MAKE_REG   (1ull << 8)
#define LANDLOCK_MAKE_SOCK  (1ull << 9)
#define LANDLOCK_MAKE_FIFO  (1ull << 10)
#define LANDLOCK_MAKE_BLOCK (1ull << 11)
#define LANDLOCK_MAKE_LINK  (1ull << 12) /* a symbolic one */
#define LANDLOCK_REFER      (1ull << 13) /* ABI 2: link and rename between folders */
#define LANDLOCK_TRUNCATE   (1ull << 14) /* ABI 3 */
#define LANDLOCK_DEVICE     (1ull << 15) /* ABI 5: ioctl on a device */

#define LANDLOCK_NET_BIND    (1ull << 0) /* ABI 4: TCP, by port and not by address */
#define LANDLOCK_NET_CONNECT (1ull << 1)

#define LANDLOCK_SCOPE_ABSTRACT (1ull << 0) /* ABI 6 */
#define LANDLOCK_SCOPE_SIGNAL   (1ull << 1)

struct landlock_rule {
	const char *path; /* what is below it, too; a file has no right that only folders have */
	uint64_t rights;
	int fd; /* where path is NULL; -1: no such place here */
};

/* Every right over files that the ABI has is handled. */
struct landlock_domain {
	const struct landlock_rule *rules;
	size_t n_rules;
	uint64_t net;    /* refused: LANDLOCK_NET_ */
	uint64_t scopes; /* LANDLOCK_SCOPE_ */
};

/* The best ABI that this kernel has, 0: none, or not in use. */
uint32_t landlock_abi(void);
/* Take the domain as far as `abi` goes; 0 does nothing. no_new_privs must be set. A path that is
 * not there is an error. Refusals by this domain, and by domains made below it, are not written to
 * the host's audit log. 0 or -errno. */
MUST_USE int landlock_take(uint32_t abi, const struct landlock_domain *domain);
