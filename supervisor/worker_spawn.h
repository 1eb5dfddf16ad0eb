/*
 * Start one of our programs as a worker: own namespaces, empty root, own ids, no capability.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/err.h"

struct host;

#define WORKER_SPAWN_MAX_FDS 12

struct worker_spawn_fd {
	int from;
	int to; /* 0 to 15 in the worker */
};

struct worker_spawn {
	const char *program;    /* file name in libexec_dir */
	const char *mode;       /* its one argument; NULL: none */
	uint32_t id;            /* host uid and gid, never 0 */
	int state_fd;           /* becomes /state; -1: none */
	const char *engine;     /* Unix socket of the host: becomes WORKER_FD_ENGINE; NULL: none */
	const char *credential; /* file of root's, likewise, to be read; NULL: none */
	bool guarded;           /* in the group whose connections the guard bounds */
	bool no_network;        /* also a network namespace, without even lo up */
	struct worker_spawn_fd fds[WORKER_SPAWN_MAX_FDS];
	size_t n_fds;
};

/*
 * Runs as root in the supervisor's namespaces. Returns at once with a pidfd and a pipe: the child
 * writes a struct err to it when a step before the exec fails, end-of-file means that the program
 * runs. Both are the caller's. 0 or -errno.
 */
MUST_USE int worker_spawn(const struct host *host, const struct worker_spawn *spawn,
			  int *ret_pid_fd, int *ret_error_fd, struct err *err);

/* Kill it and wait for its end, a second at most: the loop waits as well. What is stuck
 * in the kernel is left, and the log says so. */
void worker_end(int pid_fd, const char *program);
/* Read the pipe without waiting: 1 and *ret_err when the child reported a step, else 0. */
MUST_USE int worker_spawn_result(int error_fd, struct err *ret_err);
