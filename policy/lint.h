/*
 * What a policy may say by its grammar and should not: rules about the whole, each an error.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/auto.h"
#include "base/err.h"

#include "policy/profile.h"
#include "policy/resolve.h"

/* Name of the set of calls whose objects no namespace separates; no profile allows a member. */
#define LINT_SHARED_SET    "shared"
/* Name of the set of calls that commands may make only where a program needs them. */
#define LINT_SENSITIVE_SET "sensitive"

/* Names of the sets that profiles use, collected through resolve_used. */
#define LINT_MAX_SETS 64
struct lint_sets {
	char name[LINT_MAX_SETS][PROFILE_CALL_BYTES];
	size_t n;
};
void lint_sets_add(struct lint_sets *sets, const char *name);
bool lint_sets_has(const struct lint_sets *sets, const char *name);

/*
 * One resolved filter of a profile:
 * - no call of the shared set is allowed (B5, B7, B15: state that crosses sessions);
 * - clone3 says ENOSYS, since a filter cannot see its flags and libcs fall back on that only (B1);
 * - calls that are many calls in one, each with dangerous ones among them, have argument rules if
 *   they are allowed at all: clone, socket, socketpair, ioctl, fcntl, prctl, mmap (B1, B6, B8, B15,
 *   B20).
 * 0 or -EINVAL.
 */
MUST_USE int lint_filter(const struct profile *profile, enum policy_filter which,
			 const struct resolve_filter *filter, const bool shared[RESOLVE_MAX_NUMBER],
			 struct err *err);

/*
 * The filter of commands: each sensitive call that it allows has a `need` that names the programs,
 * and no `need` is about another call. Other filters have none: each is one program's. 0 or
 * -EINVAL.
 */
MUST_USE int lint_needs(const struct profile *profile, enum policy_filter which,
			const struct resolve_filter *filter,
			const bool sensitive[RESOLVE_MAX_NUMBER], struct err *err);

/* Every set file in the directory is used by some profile. 0, -EINVAL (names one that is not), or
 * -errno. */
MUST_USE int lint_unused_sets(int dir_fd, const struct lint_sets *used, struct err *err);
