/*
 * The listener of the command filter: what it refuses with EPERM comes here, is answered with EPERM
 * at once and told to the api worker. Only the number and the caller's id are looked at, never a
 * pointer, and nothing is ever allowed (B14).
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/clock.h"

#include "sandboxd/wire.h"
#include "shim/spawner.h"

struct loop_source;
struct shim;

#define DENIALS_MAX_CALLS     32 /* different ones between two tellings; more are not told */
#define DENIALS_MAX_LISTENERS 8  /* of spawners: four at most, and ended ones with commands */
#define DENIALS_PAUSE         (50 * USEC_PER_MS)

struct denials_listener {
	struct shim *shim;
	int fd; /* -1: free */
	struct loop_source *source;
};

/* A new spawner's first word is awaited. */
struct denials_spawner {
	struct shim *shim;
	enum spawner_kind kind;
	struct loop_source *source;
};

struct denials {
	struct denials_listener listener[DENIALS_MAX_LISTENERS];
	struct denials_spawner spawner[SPAWNER_MAX_];
	struct loop_source *timer;
	struct wire_denied call[DENIALS_MAX_CALLS];
	size_t n_calls;
	usec_t quiet_until; /* boottime */
};

MUST_USE int denials_init(struct shim *shim);
/* fd becomes ours; -1: none. Without room for it, it is closed: the kernel then answers ENOSYS. */
MUST_USE int denials_listen(struct shim *shim, int fd);
/* shim->spawner_fd[kind] is a new spawner: its word brings the next listener. 0 or -errno. */
MUST_USE int denials_expect(struct shim *shim, enum spawner_kind kind);
/* shim->spawner_fd[kind] is to be closed. */
void denials_forget_spawner(struct shim *shim, enum spawner_kind kind);
/* What is to be told now, or NULL. */
const struct wire_denied *denials_next(const struct denials *denials);
void denials_sent(struct denials *denials);
