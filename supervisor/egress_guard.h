/*
 * The second line behind the egress workers' own rules: the kernel refuses their connections to
 * what no session may reach, whatever a worker decides.
 */
#pragma once

#include "base/auto.h"
#include "base/err.h"

#include "sandboxd/worker.h"

struct egress_guard {
	const struct network_config *network;
	const struct egress_address *name_server; /* reached on port 53 */
	uint32_t n_name_servers;
	const struct redis_place *redis; /* port 0 or NULL: none */
};

/* The programs in force, to go back to. */
#define EGRESS_GUARD_HOOKS 4
struct egress_guard_programs {
	int fd[EGRESS_GUARD_HOOKS]; /* owned; -1: none */
};
void egress_guard_programs_init(struct egress_guard_programs *programs);
void egress_guard_programs_done(struct egress_guard_programs *programs);

/* For every process of the group from now on, in place of what was in force before; programs and
 * maps live as long as the group. The kernel exchanges one hook's program for another without a
 * moment between. 0 with the new ones in *programs; or -errno: nothing has changed, and where there
 * was nothing before, at most something is refused. */
MUST_USE int egress_guard_apply(const struct egress_guard *guard, int group_fd,
				struct egress_guard_programs *programs, struct err *err);
