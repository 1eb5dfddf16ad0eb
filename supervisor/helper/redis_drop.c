/*
 * Theory. A user goes in this order: it loses every right, which is true at once for the
 * connections that it has; its keys go; then the user goes, and its connections with it. What ends
 * halfway leaves a user by whose name it is found again. Of a session that another service has
 * taken the keys stay.
 */
#include "base/plant.h"

#include "supervisor/helper/redis_state.h"

static enum redis_status unlink_keys(struct redis *redis, redisReply *const *name, size_t n)
{
	enum redis_status status =
		redis_send_for_each(redis, (const char *const[]){"UNLINK"}, 1, name, n);

	for (size_t i = 0; i < n && status == REDIS_DONE; i++) {
		AUTO(redis_reply_free) redisReply *reply = redis_next_answer(redis);

		status = redis_status_of(reply);
		if (status == REDIS_DONE && reply->type == REDIS_REPLY_INTEGER)
			redis->report.n_keys += (uint32_t)reply->integer;
	}
	return status;
}

static enum redis_status reset_user(struct redis *redis)
{
	return redis_tell(redis, 4, (const char *[]){"ACL", "SETUSER", redis->user, "reset"});
}

static enum redis_status delete_user(struct redis *redis)
{
	return redis_tell(redis, 3, (const char *[]){"ACL", "DELUSER", redis->user});
}

enum redis_status redis_drop(struct redis *redis)
{
	enum redis_status status = reset_user(redis);

	if (status == REDIS_DONE)
		status = redis_scan(redis, redis->prefix, unlink_keys);
	if (status == REDIS_DONE && !planted("leave-user"))
		status = delete_user(redis);
	return status;
}

enum redis_status redis_leave(struct redis *redis)
{
	enum redis_status status = reset_user(redis);

	return status == REDIS_DONE ? delete_user(redis) : status;
}
