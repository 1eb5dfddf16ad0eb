/*
 * The Docker Engine API, as far as it is needed: one container a sandbox, named by it.
 */
#pragma once

#include <stdbool.h>

#include "base/auto.h"
#include "base/err.h"
#include "base/id.h"
#include "base/loop.h"

#include "sandboxd/launch.h"
#include "sandboxd/plan.h"
#include "sandboxd/provider.h"

struct docker;

/* All are asynchronous: 0 and `done` follows, never from inside, with 0 or -errno (-ENOENT: there
 * is no such container); or -errno, and none follows. */
typedef void (*docker_done)(void *userdata, int result);

struct docker_options {
	struct loop *loop;
	const struct provider_config *config; /* kept by pointer */
	const char *instance;                 /* the same */
};
MUST_USE int docker_new(const struct docker_options *options, struct docker **ret_docker);

/* Made and started; one of that name that is there is removed before. What was made is removed
 * where it does not start. profile: of the plan. */
MUST_USE int docker_start(struct docker *docker, const struct plan *plan, const char *profile,
			  docker_done done, void *userdata);
/* Also of one that is paused; when nothing of it is left. One that is not there is as good. */
MUST_USE int docker_remove(struct docker *docker, const struct id *id, docker_done done,
			   void *userdata);
MUST_USE int docker_pause(struct docker *docker, const struct id *id, bool pause, docker_done done,
			  void *userdata);

/* fd: the stream to its shim, the callee's; or -errno. */
typedef void (*docker_stream)(void *userdata, int fd);
MUST_USE int docker_connect(struct docker *docker, const struct id *id, docker_stream done,
			    void *userdata);

/* result < 0: stat is empty. */
typedef void (*docker_stat_done)(void *userdata, int result, const struct launch_stat *stat);
MUST_USE int docker_stat(struct docker *docker, const struct id *id, docker_stat_done done,
			 void *userdata);

struct docker_list {
	/* lives: it runs or is paused; else it is a rest. */
	void (*each)(void *userdata, const struct id *id, bool is_paused, bool lives);
	docker_done done;
	void *userdata;
};
/* list is copied. */
MUST_USE int docker_list(struct docker *docker, const struct docker_list *list);
