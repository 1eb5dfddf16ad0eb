/*
 * Blocks of 65 536 host ids, handed out from one file that all supervisors of a host share.
 *
 * Theory. A session's files and processes carry ids that nobody else on the host may have, now or
 * a moment ago. The file is a table with one record per block between 524 288 and 1 878 982 656
 * (the range that container managers leave to allocators) and a cursor: blocks go out first in,
 * first out, so that a released one is used again as late as possible, and never within 10 s of the
 * end of its namespaces. Each edit happens under an open-file-description lock; a record names the
 * instance and the id of its v2 control group, so that the blocks of an instance whose group is
 * gone can be taken back, by whichever supervisor notices. A block is never taken from a live one:
 * when none is free the answer is -EBUSY (B16).
 *
 * Left out of the table's use: blocks that overlap /etc/subuid or /etc/subgid, and blocks that
 * hold an id of /etc/passwd or /etc/group. Those files are read once, here, without getpw*().
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"

#define IDBLOCK_FILE           "/run/sandboxd-idblocks"
#define IDBLOCK_FIRST          8u     /* 524 288 / 65 536 */
#define IDBLOCK_LAST           28670u /* below 1 878 982 656 */
#define IDBLOCK_QUARANTINE     (10 * USEC_PER_SEC)
#define IDBLOCK_INSTANCE_BYTES 8

/* Blocks, by their first ids. */
struct idblock_set {
	uint64_t block[(IDBLOCK_LAST + 64) / 64];
};
void idblock_set_add(struct idblock_set *set, uint32_t base); /* what is no block is left out */
bool idblock_set_has(const struct idblock_set *set, uint32_t base);

struct idblock {
	int fd;
	int group_fd; /* borrowed: any directory of the v2 tree; -1: other instances count as alive
		       */
	char instance[IDBLOCK_INSTANCE_BYTES];
	uint64_t group_id;
	uint64_t excluded[(IDBLOCK_LAST + 64) / 64]; /* one bit per block */
	bool owes;
	struct idblock_set owed; /* given back, but not in the file yet */
};
#define IDBLOCK_NULL ((struct idblock){.fd = -1, .group_fd = -1})

struct idblock_options {
	const char *file; /* IDBLOCK_FILE but in tests */
	const char *etc;  /* "/etc" but in tests */
	const char *instance;
	uint64_t group_id; /* inode of the instance's v2 group */
	int group_fd;
};

MUST_USE int idblock_open(struct idblock *idblock, const struct idblock_options *options,
			  struct err *err);
/* Also gives back what it owes. */
void idblock_done(struct idblock *idblock);
/* The next free block; *ret_base is its first id. -EBUSY: none is free. */
MUST_USE int idblock_take(struct idblock *idblock, usec_t now, uint32_t *ret_base);
/* Give a block back: it rests for IDBLOCK_QUARANTINE. While another process holds the file it is
 * owed, and given back by whichever call gets the lock next. */
void idblock_release(struct idblock *idblock, uint32_t base, usec_t now);
/* Give back what is owed. 0: nothing is owed any more; -errno: still. */
MUST_USE int idblock_settle(struct idblock *idblock, usec_t now);
/* Give back every block of this instance but those of `keep`. */
MUST_USE int idblock_release_all(struct idblock *idblock, const struct idblock_set *keep,
				 usec_t now);
/* 1: this instance has the block in use; 0: it has not; -errno. */
MUST_USE int idblock_holds(struct idblock *idblock, uint32_t base);
/* True: the block's ids are free to use as far as /etc knows. */
bool idblock_usable(const struct idblock *idblock, uint32_t index);
