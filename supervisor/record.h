/*
 * What the supervisor must know of a session whatever becomes of itself: one file of fixed size
 * beside the session's socket, root 0600, complete before the clone.
 *
 * Theory. The next supervisor believes a record only together with what the kernel says: the
 * control group of that inode, the process in it, the id block in the host's table. So a record
 * cannot make a session out of a stranger; at worst a real session is ended. Within one record
 * version the layout never changes: one that is found with another version is of another release,
 * and its session is ended instead of guessed at.
 */
#pragma once

#include <stdint.h>

#include "base/auto.h"
#include "base/id.h"

#include "sandboxd/launch.h"
#include "sandboxd/plan.h"

#define RECORD_MAGIC          0x43525853u
#define RECORD_VERSION        1
#define RECORD_SUFFIX         ".record"
#define RECORD_REST           ".new" /* one that was not finished */
#define RECORD_INSTANCE_BYTES 8
#define RECORD_RELEASE_BYTES  16

enum record_state {
	RECORD_STATE_STARTING = 1, /* cloned at most: nobody was told that it lives */
	RECORD_STATE_LIVE = 2,     /* confined and proven */
};

struct record {
	uint32_t magic; /* the first three never move */
	uint16_t version;
	uint16_t size;
	char instance[RECORD_INSTANCE_BYTES]; /* no NUL */
	uint64_t group_id;                    /* inode of the session's v2 group */
	uint64_t born_at_us;                  /* CLOCK_BOOTTIME */
	uint32_t id_base;
	uint32_t state;        /* enum record_state */
	int32_t pid;           /* of the shim, as the supervisor counts pids; 0 while STARTING */
	uint32_t wire_version; /* that its shim speaks */
	char release[RECORD_RELEASE_BYTES]; /* NUL padded; for the log */
	struct plan plan;
	struct launch_proof proof; /* LIVE: as it was when the session became ready */
};
_Static_assert(sizeof(struct record) == 360, "a new layout is a new RECORD_VERSION");

/* Write a new record under the session's name (36 characters), in whole or not at all. The
 * descriptor, which is the caller's, or -errno: -EEXIST where there is one. */
MUST_USE int record_write(int dir_fd, const char *name, const struct record *record);
/* Write it anew through that descriptor, by one write inside of one page. */
MUST_USE int record_rewrite(int fd, const struct record *record);
/*
 * Read and check. -ENOENT: none; -EPROTO: of another version, or its shim speaks another one;
 * -EPERM: not a regular file of ours alone; -EINVAL: a value that no release of this version
 * writes.
 */
MUST_USE int record_read(int dir_fd, const char *name, struct record *ret_record);
/* Accepts that there is none. */
void record_remove(int dir_fd, const char *name);
