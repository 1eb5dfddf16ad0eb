/*
 * What the child does between clone and exec: one table of named steps.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"

#include "sandboxd/plan.h"
#include "supervisor/cgroup.h"
#include "supervisor/mountns.h"
#include "supervisor/sklookup.h"

#define STEPS_CHILD_MAX 34
#define STEPS_GO        'g' /* second message to the child: the v1 groups have their limits */

/* Shared memory between parent and child while a launch runs: when each step ended. */
struct steps_clock {
	uint32_t n;
	uint32_t us[STEPS_CHILD_MAX]; /* since steps_child.begun_at */
};

/* The message that waits for the child when it is cloned. The user namespace's descriptor comes
 * with it. */
struct steps_plan {
	struct plan plan;
	uint32_t id_base;
	uint32_t zero;
};

/* What the child sends back through the same socket, with NETNS_FDS descriptors. */
struct steps_net {
	uint8_t session[ID_BYTES];
};

/* Made by the parent before the clone; the child has a copy of it. */
struct steps_child {
	struct steps_plan expected; /* what the message must hold */
	uint32_t idmap;             /* layers that are mapped: enum kernel_probe */
	struct mountns mountns;
	struct shim_params params;
	const struct cgroup *cgroup;
	char tasks[ID_TEXT_BYTES + 8]; /* "<session>/tasks" in each v1 hierarchy */
	usec_t begun_at;
	struct steps_clock *clock;
	int plan_fd;
	int parent_plan_fd; /* the copy of the other end */
	int ready_fd;
	int listen_fd;
	int secrets_fd; /* -1: none */
	int policy_fd;
	int loader_fd;
	int git_fd;
	int archive_fd;
	int template_fd; /* record of its template; -1: none */
	int shim_fd;
	bool ipv6;
	struct sklookup lookup; /* SKLOOKUP_NULL: it makes its own */
	const char *fail_step;  /* test builds: the step that fails; NULL */
	/* the child's own */
	int userns_fd;
	int params_fd;
};

/* Never returns: execs the shim, or writes a struct err to ready_fd and exits. */
void steps_child_run(struct steps_child *child) __attribute__((noreturn));
/* Name of a step, NULL behind the last. */
const char *steps_child_name(uint32_t index);
