/*
 * The groups of the workers, beside those of the sessions: what one that was taken over can use up.
 *
 * Version 2 starts a worker in its group. Of version 1 it joins memory and pids by itself. Not cpu:
 * there it would share the processors with the sessions as one of them, and outside it does not.
 * In version 2 it has to share, so it weighs as much as ten.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/str.h"

#include "supervisor/cgroup.h"
#include "supervisor/redis_helper.h"
#include "supervisor/unseal.h"

#define PATH_BYTES     96
#define TEXT_BYTES     32
#define REMOVE_TIMEOUT USEC_PER_SEC
/* The api worker's threads, of two lives where one ends slowly, and the reader of a configuration;
 * all helpers that may run at once. */
#define WORKERS_PIDS   (16u + UNSEAL_MAX + REDIS_HELPERS_MAX)
#define EGRESS_PIDS    40u

/* Of swap, version 2 counts swap alone and version 1 memory and swap together: there is none in
 * both. */
static const struct workers_row {
	enum cgroup_controller controller;
	const char *v2_file;
	const char *v1_file;
	uint64_t value[CGROUP_WORKERS_MAX_];
	bool may_lack; /* a kernel without swap accounting has no such file */
} workers_rows[] = {
	{CGROUP_MEMORY, "memory.max",      "/memory.limit_in_bytes",       {3ull << 29, 1ull << 29},    false},
	{CGROUP_MEMORY, "memory.swap.max", NULL,                           {0, 0},                      true },
	{CGROUP_MEMORY, NULL,              "/memory.memsw.limit_in_bytes", {3ull << 29, 1ull << 29},    true },
	{CGROUP_PIDS,   "pids.max",        "/pids.max",                    {WORKERS_PIDS, EGRESS_PIDS}, false},
	{CGROUP_CPU,    "cpu.weight",      NULL,                           {1000, 1000},                false},
};

static const char *const workers_names[CGROUP_WORKERS_MAX_] = {"workers", "egress"};

const char *cgroup_workers_name(enum cgroup_workers which)
{
	return workers_names[which];
}

uint64_t cgroup_workers_total(enum cgroup_controller controller)
{
	uint64_t total = 0;

	for (size_t i = 0; i < ARRAY_SIZE(workers_rows); i++) {
		/* Asked for version 2, whose workers are below the sessions' total. */
		if (workers_rows[i].controller != controller || !workers_rows[i].v2_file)
			continue;
		for (size_t k = 0; k < CGROUP_WORKERS_MAX_; k++)
			total += workers_rows[i].value[k];
	}
	return total;
}

static bool joins(const struct cgroup *cgroup, enum cgroup_controller controller)
{
	return cgroup->v1_fd[controller] >= 0 && controller != CGROUP_CPU;
}

/* Of version 1: beside the instance's group, whose total is that of the sessions alone. */
static int v1_path(const struct cgroup *cgroup, enum cgroup_workers which, const char *file,
		   char *path)
{
	return str_format(path, PATH_BYTES, "%s-%s%s", cgroup->name, workers_names[which], file);
}

static int set_value(const struct cgroup *cgroup, const struct workers_row *row,
		     enum cgroup_workers which)
{
	char path[PATH_BYTES];
	char text[TEXT_BYTES];
	int dir_fd = cgroup->v1_parent_fd[row->controller];
	int r;

	if (cgroup->in_v2[row->controller]) {
		if (!row->v2_file)
			return 0;
		dir_fd = cgroup->v2_fd;
		r = str_format(path, sizeof(path), "%s/%s", workers_names[which], row->v2_file);
	} else if (row->v1_file && joins(cgroup, row->controller)) {
		r = v1_path(cgroup, which, row->v1_file, path);
	} else {
		return 0;
	}
	if (r >= 0)
		r = str_format(text, sizeof(text), "%llu", (unsigned long long)row->value[which]);
	return r < 0 ? r : io_write_at(dir_fd, path, text);
}

int cgroup_limit_workers(const struct cgroup *cgroup, enum cgroup_workers which)
{
	char path[PATH_BYTES];
	int r = v1_path(cgroup, which, "", path);

	for (unsigned int i = 0; r >= 0 && i < CGROUP_CONTROLLER_MAX_; i++) {
		if (joins(cgroup, (enum cgroup_controller)i) &&
		    mkdirat(cgroup->v1_parent_fd[i], path, 0755) < 0 && errno != EEXIST)
			r = -errno;
	}
	for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(workers_rows); i++) {
		r = set_value(cgroup, &workers_rows[i], which);
		if (r == -ENOENT && workers_rows[i].may_lack)
			r = 0;
	}
	return r < 0 ? r : 0;
}

int cgroup_join_workers(const struct cgroup *cgroup, enum cgroup_workers which)
{
	char path[PATH_BYTES];
	int r = v1_path(cgroup, which, "/tasks", path);

	for (unsigned int i = 0; r >= 0 && i < CGROUP_CONTROLLER_MAX_; i++) {
		if (joins(cgroup, (enum cgroup_controller)i))
			r = io_write_at(cgroup->v1_parent_fd[i], path, "0");
	}
	return r < 0 ? r : 0;
}

/* A process that was waited for is in its group until the processor has left it for the last time:
 * EBUSY until then. Where a worker does not end, the next start takes the group again. */
static void remove_group(int parent_fd, const char *path, usec_t deadline)
{
	const struct timespec pause = {.tv_nsec = 2000000};

	while (unlinkat(parent_fd, path, AT_REMOVEDIR) < 0 && errno == EBUSY &&
	       clock_boottime() < deadline)
		(void)nanosleep(&pause, NULL);
}

void cgroup_remove_workers(const struct cgroup *cgroup, enum cgroup_workers which)
{
	usec_t deadline = clock_add(clock_boottime(), REMOVE_TIMEOUT);
	char path[PATH_BYTES];

	if (cgroup->v2_fd >= 0)
		remove_group(cgroup->v2_fd, workers_names[which], deadline);
	for (unsigned int i = 0;
	     v1_path(cgroup, which, "", path) >= 0 && i < CGROUP_CONTROLLER_MAX_; i++) {
		if (joins(cgroup, (enum cgroup_controller)i))
			remove_group(cgroup->v1_parent_fd[i], path, deadline);
	}
}
