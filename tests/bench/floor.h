/*
 * The floor: the same kernel work as one launch, by bare system calls, without protocol, store or
 * checks. Runs in a process of its own, which lives in a tiny private mount namespace as the
 * supervisor does.
 */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "base/auto.h"

struct floor;

struct floor_options {
	const char *libexec_dir; /* for policy.img: the very filter that commands get */
	const char *true_path;   /* static program */
	const char *sleep_path;  /* static program that writes one byte to descriptor 3 and waits */
};

MUST_USE int floor_open(const struct floor_options *options, struct floor **ret_floor);
void floor_close(struct floor *floor);

/* One sandbox with all the work of a launch; the clock runs from before the groups are made to the
 * ready byte. With keep it stays; else it is destroyed outside the measured time. */
MUST_USE int floor_create(struct floor *floor, int keep, double *ret_us);
/* clone3 with the same namespaces and the exec alone. */
MUST_USE int floor_create_bare(struct floor *floor, double *ret_us);
/* posix_spawn and waitpid of the static program. */
MUST_USE int floor_spawn(const struct floor *floor, double *ret_us);
/* End all that were kept. */
void floor_drop_kept(struct floor *floor);
