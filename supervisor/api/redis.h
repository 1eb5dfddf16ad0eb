/*
 * A session's place in Redis: a user that may touch only its keys, made with the tree and dropped
 * with the row. The api worker has no credential of its own there; it asks the supervisor.
 *
 * A session that has no user has no way to the server either, and its log says why.
 */
#pragma once

#include "supervisor/api/app.h"
#include "supervisor/api/live.h"

/* The key that the passwords are derived from, of the state directory, and what an earlier worker
 * could not drop. 0 or -errno. */
MUST_USE int redis_start(struct app *app);

/* A tree is launched or was adopted: its user is made, again if need be. Until that is known no
 * network policy of it is sent; then one is. */
void redis_begin(struct app *app, struct session *session);

/* Its keys and its user go; called before its row is closed, which says until then that they are
 * there. Calls back once, with how many keys; not from inside. False: there is nothing to drop, or
 * it is for later, and it does not call. */
typedef void (*redis_dropped)(void *userdata, uint32_t n_keys);
bool redis_drop(struct app *app, const struct id *session, redis_dropped dropped, void *userdata);
/* Another host has it by now: its user of this one goes, its keys stay. */
void redis_leave(struct app *app, const struct id *session);

/* Users that no session has any more are dropped, now and then. */
void redis_tick(struct app *app);

struct redis_access {
	char url[256];
	char prefix[REDIS_KEY_BYTES];
};
/* What a program inside is given; false: there is none. Holds a password. */
bool redis_access(const struct live *live, struct redis_access *ret_access);
