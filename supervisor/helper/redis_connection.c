/*
 * Theory. One connection, one thing asked at a time but for what is sent for each of many keys. A
 * server that says nothing for TIMEOUT_S is one that is not there, and what it says is believed
 * only as far as it was asked.
 *
 * A client that gives no password is the user `default`. Where the server serves that one, no
 * session gets to the server at all, and the report says so.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "base/fd.h"
#include "base/socket_address.h"
#include "base/str.h"

#include "supervisor/helper/redis_state.h"

#define TIMEOUT_S   2
#define SCAN_COUNT  "1000"
#define REPLIES_MAX 1000000u /* of SCAN: a server that never ends it is not believed */

redisReply *redis_reply_free(redisReply *reply)
{
	if (reply)
		freeReplyObject(reply);
	return NULL;
}

static int connect_to(const struct redis_place *place)
{
	const struct timeval timeout = {.tv_sec = TIMEOUT_S};
	AUTO_CLOSE int fd = socket((int)place->address.family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	union socket_address to;
	socklen_t size = socket_address_of(&place->address, place->port, &to);

	/* Of a connect, too. */
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout)) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)) < 0)
		return -errno;
	if (connect(fd, &to.any, size) < 0)
		return -errno;
	return TAKE_FD(fd);
}

redisReply *redis_ask(struct redis *redis, int n, const char *const *words)
{
	const char *copy[REDIS_WORDS_MAX];

	/* What it declares is not const; hiredis only reads it. */
	if (n > REDIS_WORDS_MAX)
		return NULL;
	memcpy(copy, words, (size_t)n * sizeof(*words));
	return redisCommandArgv(redis->context, n, copy, NULL);
}

bool redis_is_error(const redisReply *reply, const char *prefix)
{
	return reply->type == REDIS_REPLY_ERROR && str_has_prefix(reply->str, prefix);
}

enum redis_status redis_status_of(const redisReply *reply)
{
	if (!reply)
		return REDIS_E_CONNECT;
	if (reply->type != REDIS_REPLY_ERROR)
		return REDIS_DONE;
	return redis_is_error(reply, "NOPERM") || redis_is_error(reply, "ERR unknown command")
		       ? REDIS_E_ACL
		       : REDIS_E_SERVER;
}

/* It answers nobody who gives no password. */
static enum redis_status check_closed(struct redis *redis)
{
	AUTO(redis_reply_free) redisReply *reply = redis_ask(redis, 1, (const char *[]){"PING"});

	if (!reply)
		return REDIS_E_CONNECT;
	if (redis_is_error(reply, "NOAUTH"))
		return REDIS_DONE;
	return reply->type == REDIS_REPLY_ERROR ? REDIS_E_SERVER : REDIS_E_OPEN;
}

static enum redis_status log_in(struct redis *redis)
{
	AUTO(redis_reply_free)
	redisReply *reply = redis_ask(
		redis, 3, (const char *[]){"AUTH", redis->request->user, redis->request->password});

	if (!reply)
		return REDIS_E_CONNECT;
	if (reply->type != REDIS_REPLY_ERROR)
		return REDIS_DONE;
	/* Before Redis 6 it takes a password alone. */
	return redis_is_error(reply, "ERR wrong number of arguments") ? REDIS_E_ACL
								      : REDIS_E_PASSWORD;
}

enum redis_status redis_open(struct redis *redis)
{
	enum redis_status status;
	int fd = connect_to(&redis->request->place);

	if (fd < 0)
		return REDIS_E_CONNECT;
	redis->context = redisConnectFd(fd); /* has the descriptor */
	if (!redis->context || redis->context->err)
		return REDIS_E_CONNECT;
	status = check_closed(redis);
	/* What was made while it was closed goes all the same. */
	if (status == REDIS_E_OPEN && redis->request->action != REDIS_MAKE)
		status = REDIS_DONE;
	return status == REDIS_DONE ? log_in(redis) : status;
}

enum redis_status redis_tell(struct redis *redis, int n, const char *const *words)
{
	AUTO(redis_reply_free) redisReply *reply = redis_ask(redis, n, words);

	return redis_status_of(reply);
}

/* The server did as it was told, or these are not this server's keys to tell of. */
static bool are_below(const redisReply *names, const char *prefix)
{
	size_t length = strlen(prefix);

	for (size_t i = 0; i < names->elements; i++) {
		const redisReply *name = names->element[i];

		if (name->type != REDIS_REPLY_STRING || (size_t)name->len < length ||
		    memcmp(name->str, prefix, length) != 0)
			return false;
	}
	return true;
}

enum redis_status redis_scan(struct redis *redis, const char *prefix, redis_keys_seen seen)
{
	char cursor[32] = "0";
	char pattern[REDIS_KEY_BYTES + 2];

	if (str_format(pattern, sizeof(pattern), "%s*", prefix) < 0)
		return REDIS_E_SERVER;
	for (uint32_t i = 0; i < REPLIES_MAX; i++) {
		AUTO(redis_reply_free)
		redisReply *reply = redis_ask(
			redis, 6,
			(const char *[]){"SCAN", cursor, "MATCH", pattern, "COUNT", SCAN_COUNT});
		enum redis_status status = redis_status_of(reply);
		const redisReply *names;

		if (status != REDIS_DONE)
			return status;
		if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
		    reply->element[0]->type != REDIS_REPLY_STRING ||
		    reply->element[1]->type != REDIS_REPLY_ARRAY ||
		    str_copy(cursor, sizeof(cursor), reply->element[0]->str) < 0)
			return REDIS_E_SERVER;
		names = reply->element[1];
		if (!are_below(names, prefix))
			return REDIS_E_SERVER;
		if (names->elements > 0)
			status = seen(redis, names->element, names->elements);
		if (status != REDIS_DONE || str_equal(cursor, "0"))
			return status;
	}
	return REDIS_E_SERVER;
}

enum redis_status redis_send_for_each(struct redis *redis, const char *const *words, size_t n_words,
				      redisReply *const *name, size_t n)
{
	const char *argv[4];
	size_t sizes[4];

	for (size_t i = 0; i < n_words; i++) {
		argv[i] = words[i];
		sizes[i] = strlen(words[i]);
	}
	for (size_t i = 0; i < n; i++) {
		argv[n_words] = name[i]->str;
		sizes[n_words] = (size_t)name[i]->len;
		if (redisAppendCommandArgv(redis->context, (int)n_words + 1, argv, sizes) !=
		    REDIS_OK)
			return REDIS_E_CONNECT;
	}
	return REDIS_DONE;
}

redisReply *redis_next_answer(struct redis *redis)
{
	void *reply = NULL;

	return redisGetReply(redis->context, &reply) == REDIS_OK ? reply : NULL;
}
