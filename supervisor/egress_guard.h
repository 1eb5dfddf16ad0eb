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

/* For every process of the group from now on, in place of what was in force before; programs and
 * maps live as long as the group. 0, or -errno: nothing has changed. */
MUST_USE int egress_guard_apply(const struct egress_guard *guard, int group_fd, struct err *err);
