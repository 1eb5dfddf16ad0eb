/*
 * Theory. One look at all keys below the root, whosever they are: the server keeps no sum for a
 * user. A session is told of when its keys are over a bound, and what the server names twice or
 * takes away meanwhile may count once more: a bound of this kind is for what grows without end.
 */
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/str.h"

#include "supervisor/helper/redis_state.h"

#define MEASURED_MAX 65536u /* sessions; further ones are not measured */

/* What keys of one session there are. */
struct measured {
	struct id id;
	uint64_t n_keys;
	uint64_t bytes;
};

/* A table by id, open addressing; the ids are random. */
static struct measured *measured_of(struct redis *redis, const struct id *id)
{
	uint32_t at;

	memcpy(&at, id->bytes, sizeof(at));
	for (uint32_t i = 0; i < MEASURED_MAX; i++) {
		struct measured *measured = &redis->measured[(at + i) % MEASURED_MAX];

		if (measured->n_keys == 0)
			measured->id = *id;
		if (id_equal(&measured->id, id))
			return measured;
	}
	return NULL;
}

/* ROOT:ID:anything; a key that has no id there is not ours. */
static struct measured *measured_of_key(struct redis *redis, const redisReply *name)
{
	size_t root = strlen(redis->request->root) + 1;
	char text[ID_TEXT_BYTES];
	struct id id;

	if ((size_t)name->len < root + sizeof(text) || name->str[root + sizeof(text) - 1] != ':' ||
	    str_copy_n(text, sizeof(text), name->str + root, sizeof(text) - 1) < 0 ||
	    id_parse(text, &id) < 0)
		return NULL;
	return measured_of(redis, &id);
}

static enum redis_status measure_keys(struct redis *redis, redisReply *const *name, size_t n)
{
	enum redis_status status =
		redis_send_for_each(redis, (const char *const[]){"MEMORY", "USAGE"}, 2, name, n);

	for (size_t i = 0; i < n && status == REDIS_DONE; i++) {
		AUTO(redis_reply_free) redisReply *reply = redis_next_answer(redis);
		struct measured *measured = measured_of_key(redis, name[i]);

		status = redis_status_of(reply);
		if (status != REDIS_DONE || !measured)
			continue;
		measured->n_keys++;
		/* Nil: it is gone meanwhile. */
		if (reply->type == REDIS_REPLY_INTEGER && reply->integer > 0)
			measured->bytes += (uint64_t)reply->integer;
	}
	return status;
}

enum redis_status redis_measure(struct redis *redis)
{
	const struct redis_request *request = redis->request;
	static const uint8_t first[ID_BYTES];
	AUTO_FREE struct measured *table = calloc(MEASURED_MAX, sizeof(*table));
	char prefix[REDIS_KEY_BYTES];
	enum redis_status status;

	if (!table || str_format(prefix, sizeof(prefix), "%s:", request->root) < 0)
		return REDIS_E_SERVER;
	redis->measured = table;
	status = redis_scan(redis, prefix, measure_keys);
	redis->measured = NULL;
	for (size_t i = 0; i < MEASURED_MAX && status == REDIS_DONE; i++) {
		const struct measured *measured = &table[i];

		if ((request->max_keys && measured->n_keys > request->max_keys) ||
		    (request->max_bytes && measured->bytes > request->max_bytes))
			redis_note_session(&redis->report, &measured->id, first);
	}
	return status;
}
