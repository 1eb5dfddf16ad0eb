/*
 * The helper that changes users of the Redis server: started for one request, waited for in the
 * loop, reaped. It has the credential; whoever asks names a session.
 */
#pragma once

#include <stdint.h>

#include "base/auto.h"
#include "base/err.h"
#include "base/loop.h"

#include "sandboxd/redis.h"

#define REDIS_HELPERS_MAX 8u /* at once; further requests wait */

struct host;
struct redis_helper;

/* Once, from the loop, when it is reaped. report: NULL when it failed. */
typedef void (*redis_helper_done)(void *userdata, const struct redis_report *report);

/* What starts it. null_fd: /dev/null. */
struct redis_helper_place {
	struct loop *loop;
	struct host *host;
	int null_fd;
};

/* 0 and *ret_helper, valid until `done` or redis_helper_cancel; or -errno. */
MUST_USE int redis_helper_start(const struct redis_helper_place *place,
				const struct redis_request *request, redis_helper_done done,
				void *userdata, struct redis_helper **ret_helper, struct err *err);
/* It is ended, and `done` does not come. Returns NULL. */
struct redis_helper *redis_helper_cancel(struct redis_helper *helper);
