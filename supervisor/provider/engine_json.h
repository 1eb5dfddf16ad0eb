/*
 * Pure: the documents that the Docker Engine API takes and gives.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/id.h"

#include "sandboxd/launch.h"
#include "sandboxd/plan.h"

/* Whose containers they are, and which: the session's id as text. */
#define ENGINE_LABEL_INSTANCE "sandboxd.instance"
#define ENGINE_LABEL_SANDBOX  "sandboxd.sandbox"

#define ENGINE_EXEC_BYTES 129 /* the engine's name of a command, NUL included */

struct engine_container {
	const char *instance;
	const char *image;
	const char *programs_dir;
	const char *profile;
	const struct plan *plan;
	/* RLIMIT_NPROC, as this process has it: an engine that may not raise it refuses to try, and
	 * a lower one would count the processes of other containers. -1: none. */
	int64_t max_processes;
};

/* The body of a create: the caller frees. NULL: no memory, or a path that cannot be. */
char *engine_json_container(const struct engine_container *container);
/* Of the command that connects to the shim; constant. */
const char *engine_json_exec(void);
/* {"Id": ...} of letters and digits: 0, or -EBADMSG. */
MUST_USE int engine_json_id(const char *body, size_t size, char ret_id[ENGINE_EXEC_BYTES]);
/* Calls `each` for every container of a list. 0, or -EBADMSG. */
typedef void (*engine_json_each)(void *userdata, const struct id *id, bool is_paused, bool lives);
MUST_USE int engine_json_list(const char *body, size_t size, engine_json_each each, void *userdata);
/* Of one container: 1: it runs, or is paused; 0: it does not; -EBADMSG. */
MUST_USE int engine_json_runs(const char *body, size_t size);
/* Of one container: 1: it is paused; 0: it runs; -EBADMSG: neither. */
MUST_USE int engine_json_is_paused(const char *body, size_t size);
/* What the engine counts; what it does not tell is 0. 0, or -EBADMSG. */
MUST_USE int engine_json_stat(const char *body, size_t size, struct launch_stat *ret_stat);
