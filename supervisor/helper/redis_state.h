/*
 * Inside of `sandboxd-helper redis`: for redis*.c only.
 */
#pragma once

#include <hiredis.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/auto.h"
#include "base/id.h"

#include "sandboxd/redis.h"

#define REDIS_WORDS_MAX 192

struct redis {
	const struct redis_request *request;
	redisContext *context;
	char user[REDIS_USER_BYTES];
	char prefix[REDIS_KEY_BYTES]; /* ROOT:ID: */
	struct redis_report report;
	struct measured *measured; /* redis_measure.c, while it measures */
};

/* What one answer of SCAN named. */
typedef enum redis_status (*redis_keys_seen)(struct redis *redis, redisReply *const *name,
					     size_t n);

/* NULL, for AUTO. */
redisReply *redis_reply_free(redisReply *reply);
DEFINE_AUTO(redisReply *, redis_reply_free);

/* redis_connection.c. Connected and logged in, on a server that serves nobody without a password;
 * an open one is good enough for what makes no user. */
enum redis_status redis_open(struct redis *redis);
/* NULL: the connection is no more. */
redisReply *redis_ask(struct redis *redis, int n, const char *const *words);
/* Of a reply or NULL. */
enum redis_status redis_status_of(const redisReply *reply);
bool redis_is_error(const redisReply *reply, const char *prefix);
/* redis_ask for who wants to know no more than whether it was done. */
enum redis_status redis_tell(struct redis *redis, int n, const char *const *words);
/* All keys that begin with the prefix, some at a time; it ends with the first that `seen` refuses.
 */
enum redis_status redis_scan(struct redis *redis, const char *prefix, redis_keys_seen seen);
/* One command with each of the keys; then the answers come in order. */
enum redis_status redis_send_for_each(struct redis *redis, const char *const *words, size_t n_words,
				      redisReply *const *name, size_t n);
/* NULL: the connection is no more. */
redisReply *redis_next_answer(struct redis *redis);

/* redis.c. The report names the smallest ones behind `after`, in order. */
void redis_note_session(struct redis_report *report, const struct id *id, const uint8_t *after);

/* The actions. */
enum redis_status redis_make(struct redis *redis);
enum redis_status redis_list(struct redis *redis);
enum redis_status redis_drop(struct redis *redis);
enum redis_status redis_leave(struct redis *redis);
enum redis_status redis_measure(struct redis *redis);
