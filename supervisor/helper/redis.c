/*
 * Theory. Redis itself keeps sessions apart: each has a user that may call only commands by name,
 * each of which names its keys or channels, and only with those below the session's prefix. A key
 * pattern does not bind a command that names no key (SCAN, RANDOMKEY, DBSIZE, PUBSUB CHANNELS ...),
 * so none of these is in the list. Nor is one that keeps another's place in an argument which older
 * servers do not check (SORT, MIGRATE, PFMERGE), reaches another database, whose keys would stay
 * (COPY, MOVE), or takes code (EVAL, FUNCTION).
 *
 * A client that gives no password is the user `default`. Where the server serves that one, no
 * session gets to the server at all, and the report says so.
 *
 * A user goes in this order: it loses every right, which is true at once for the connections that
 * it has; its keys go; then the user goes, and its connections with it. What ends halfway leaves a
 * user by whose name it is found again.
 */
#include "supervisor/helper/redis.h"

#include <errno.h>
#include <hiredis.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/id.h"
#include "base/io.h"
#include "base/log.h"
#include "base/plant.h"
#include "base/socket_address.h"
#include "base/str.h"

#include "sandboxd/redis.h"
#include "sandboxd/secret.h"

#define TIMEOUT_S    2
#define SCAN_COUNT   "1000"
#define WORDS_MAX    192
#define MEASURED_MAX 65536u   /* sessions; further ones are not measured */
#define REPLIES_MAX  1000000u /* of SCAN: a server that never ends it is not believed */

enum command_kind {
	DATA,
	GROWS,   /* may make a session's keys more or bigger: not for one that is over its bound */
	CHANNEL, /* not where the server does not bind channels */
};

static const struct {
	const char *name;
	enum command_kind kind;
} commands[] = {
  /* connections: AUTH, HELLO, QUIT and RESET are everybody's */
	{"ping",             DATA   },
	{"echo",             DATA   },
	{"multi",            DATA   },
	{"exec",             DATA   },
	{"discard",          DATA   },
	{"watch",            DATA   },
	{"unwatch",          DATA   },
 /* any key */
	{"del",              DATA   },
	{"unlink",           DATA   },
	{"exists",           DATA   },
	{"type",             DATA   },
	{"touch",            DATA   },
	{"expire",           DATA   },
	{"pexpire",          DATA   },
	{"expireat",         DATA   },
	{"pexpireat",        DATA   },
	{"persist",          DATA   },
	{"ttl",              DATA   },
	{"pttl",             DATA   },
	{"expiretime",       DATA   },
	{"pexpiretime",      DATA   },
	{"rename",           DATA   },
	{"renamenx",         DATA   },
 /* strings */
	{"get",              DATA   },
	{"set",              GROWS  },
	{"setnx",            GROWS  },
	{"setex",            GROWS  },
	{"psetex",           GROWS  },
	{"getset",           GROWS  },
	{"getdel",           DATA   },
	{"getex",            DATA   },
	{"mget",             DATA   },
	{"mset",             GROWS  },
	{"msetnx",           GROWS  },
	{"append",           GROWS  },
	{"strlen",           DATA   },
	{"getrange",         DATA   },
	{"setrange",         GROWS  },
	{"incr",             GROWS  },
	{"decr",             GROWS  },
	{"incrby",           GROWS  },
	{"decrby",           GROWS  },
	{"incrbyfloat",      GROWS  },
	{"lcs",              DATA   },
	{"setbit",           GROWS  },
	{"getbit",           DATA   },
	{"bitcount",         DATA   },
	{"bitpos",           DATA   },
	{"bitop",            GROWS  },
	{"bitfield",         GROWS  },
	{"bitfield_ro",      DATA   },
 /* hashes */
	{"hget",             DATA   },
	{"hset",             GROWS  },
	{"hsetnx",           GROWS  },
	{"hmget",            DATA   },
	{"hmset",            GROWS  },
	{"hdel",             DATA   },
	{"hexists",          DATA   },
	{"hlen",             DATA   },
	{"hkeys",            DATA   },
	{"hvals",            DATA   },
	{"hgetall",          DATA   },
	{"hincrby",          GROWS  },
	{"hincrbyfloat",     GROWS  },
	{"hstrlen",          DATA   },
	{"hscan",            DATA   },
	{"hrandfield",       DATA   },
 /* lists */
	{"lpush",            GROWS  },
	{"rpush",            GROWS  },
	{"lpushx",           GROWS  },
	{"rpushx",           GROWS  },
	{"lpop",             DATA   },
	{"rpop",             DATA   },
	{"lmpop",            DATA   },
	{"llen",             DATA   },
	{"lrange",           DATA   },
	{"lindex",           DATA   },
	{"lset",             GROWS  },
	{"linsert",          GROWS  },
	{"lrem",             DATA   },
	{"ltrim",            DATA   },
	{"lpos",             DATA   },
	{"rpoplpush",        GROWS  },
	{"lmove",            GROWS  },
	{"blpop",            DATA   },
	{"brpop",            DATA   },
	{"blmpop",           DATA   },
	{"brpoplpush",       GROWS  },
	{"blmove",           GROWS  },
 /* sets */
	{"sadd",             GROWS  },
	{"srem",             DATA   },
	{"scard",            DATA   },
	{"sismember",        DATA   },
	{"smismember",       DATA   },
	{"smembers",         DATA   },
	{"srandmember",      DATA   },
	{"spop",             DATA   },
	{"smove",            GROWS  },
	{"sscan",            DATA   },
	{"sinter",           DATA   },
	{"sinterstore",      GROWS  },
	{"sintercard",       DATA   },
	{"sunion",           DATA   },
	{"sunionstore",      GROWS  },
	{"sdiff",            DATA   },
	{"sdiffstore",       GROWS  },
 /* sorted sets */
	{"zadd",             GROWS  },
	{"zrem",             DATA   },
	{"zcard",            DATA   },
	{"zcount",           DATA   },
	{"zscore",           DATA   },
	{"zmscore",          DATA   },
	{"zincrby",          GROWS  },
	{"zrange",           DATA   },
	{"zrevrange",        DATA   },
	{"zrangebyscore",    DATA   },
	{"zrevrangebyscore", DATA   },
	{"zrangebylex",      DATA   },
	{"zrevrangebylex",   DATA   },
	{"zlexcount",        DATA   },
	{"zrangestore",      GROWS  },
	{"zrank",            DATA   },
	{"zrevrank",         DATA   },
	{"zremrangebyscore", DATA   },
	{"zremrangebyrank",  DATA   },
	{"zremrangebylex",   DATA   },
	{"zpopmin",          DATA   },
	{"zpopmax",          DATA   },
	{"zmpop",            DATA   },
	{"bzpopmin",         DATA   },
	{"bzpopmax",         DATA   },
	{"bzmpop",           DATA   },
	{"zscan",            DATA   },
	{"zrandmember",      DATA   },
	{"zunion",           DATA   },
	{"zunionstore",      GROWS  },
	{"zinter",           DATA   },
	{"zinterstore",      GROWS  },
	{"zintercard",       DATA   },
	{"zdiff",            DATA   },
	{"zdiffstore",       GROWS  },
 /* HyperLogLog, places */
	{"pfadd",            GROWS  },
	{"pfcount",          DATA   },
	{"geoadd",           GROWS  },
	{"geodist",          DATA   },
	{"geohash",          DATA   },
	{"geopos",           DATA   },
	{"geosearch",        DATA   },
	{"geosearchstore",   GROWS  },
 /* streams */
	{"xadd",             GROWS  },
	{"xdel",             DATA   },
	{"xlen",             DATA   },
	{"xrange",           DATA   },
	{"xrevrange",        DATA   },
	{"xread",            DATA   },
	{"xtrim",            DATA   },
	{"xgroup",           GROWS  },
	{"xreadgroup",       GROWS  },
	{"xack",             DATA   },
	{"xclaim",           GROWS  },
	{"xautoclaim",       GROWS  },
	{"xpending",         DATA   },
	{"xinfo",            DATA   },
 /* channels: 6.0 does not bind them */
	{"publish",          CHANNEL},
	{"subscribe",        CHANNEL},
	{"unsubscribe",      CHANNEL},
	{"psubscribe",       CHANNEL},
	{"punsubscribe",     CHANNEL},
	{"spublish",         CHANNEL},
	{"ssubscribe",       CHANNEL},
	{"sunsubscribe",     CHANNEL},
};
_Static_assert(ARRAY_SIZE(commands) + 16 < WORDS_MAX, "all fit in one SETUSER");

/* What keys of one session there are. */
struct measured {
	struct id id;
	uint64_t n_keys;
	uint64_t bytes;
};

struct redis {
	const struct redis_request *request;
	redisContext *context;
	char user[REDIS_USER_BYTES];
	char prefix[REDIS_KEY_BYTES]; /* ROOT:ID: */
	struct redis_report report;
	struct measured *measured; /* MEASURED_MAX; NULL: nothing is measured */
};

static redisReply *reply_free(redisReply *reply)
{
	if (reply)
		freeReplyObject(reply);
	return NULL;
}
DEFINE_AUTO(redisReply *, reply_free);

/* --- the connection -------------------------------------------------------------------------- */

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

/* NULL: the connection is no more. */
static redisReply *ask(struct redis *redis, int n, const char *const *words)
{
	const char *copy[WORDS_MAX];

	/* What it declares is not const; hiredis only reads it. */
	if (n > WORDS_MAX)
		return NULL;
	memcpy(copy, words, (size_t)n * sizeof(*words));
	return redisCommandArgv(redis->context, n, copy, NULL);
}

static bool is_error(const redisReply *reply, const char *prefix)
{
	return reply->type == REDIS_REPLY_ERROR && str_has_prefix(reply->str, prefix);
}

/* It answers nobody who gives no password. */
static enum redis_status check_closed(struct redis *redis)
{
	AUTO(reply_free) redisReply *reply = ask(redis, 1, (const char *[]){"PING"});

	if (!reply)
		return REDIS_E_CONNECT;
	if (is_error(reply, "NOAUTH"))
		return REDIS_DONE;
	return reply->type == REDIS_REPLY_ERROR ? REDIS_E_SERVER : REDIS_E_OPEN;
}

static enum redis_status log_in(struct redis *redis)
{
	AUTO(reply_free)
	redisReply *reply = ask(
		redis, 3, (const char *[]){"AUTH", redis->request->user, redis->request->password});

	if (!reply)
		return REDIS_E_CONNECT;
	return reply->type == REDIS_REPLY_ERROR ? REDIS_E_PASSWORD : REDIS_DONE;
}

/* --- actions --------------------------------------------------------------------------------- */

static enum redis_status status_of(const redisReply *reply)
{
	if (!reply)
		return REDIS_E_CONNECT;
	if (reply->type != REDIS_REPLY_ERROR)
		return REDIS_DONE;
	return is_error(reply, "NOPERM") || is_error(reply, "ERR unknown command") ? REDIS_E_ACL
										   : REDIS_E_SERVER;
}

struct words {
	const char *word[WORDS_MAX];
	char plus[ARRAY_SIZE(commands)][24];
	int n;
};

static void add_word(struct words *words, const char *word)
{
	ASSERT(words->n < WORDS_MAX);
	words->word[words->n++] = word;
}

/* What of the table this server does not take. */
struct unknown {
	bool command[ARRAY_SIZE(commands)];
	bool channels;
};

static bool is_given(const struct redis *redis, const struct unknown *unknown, size_t i)
{
	return !unknown->command[i] && !(commands[i].kind == CHANNEL && unknown->channels) &&
	       !(commands[i].kind == GROWS && redis->request->is_over != 0);
}

/* All of it replaces what the user was before, as one. */
static redisReply *set_user(struct redis *redis, const struct unknown *unknown, const char *hash,
			    const char *keys, const char *channels)
{
	struct words words = {.n = 0};

	add_word(&words, "ACL");
	add_word(&words, "SETUSER");
	add_word(&words, redis->user);
	add_word(&words, "reset");
	add_word(&words, "on");
	add_word(&words, hash);
	add_word(&words, keys);
	if (!unknown->channels) {
		add_word(&words, "resetchannels");
		add_word(&words, channels);
	}
	add_word(&words, "-@all");
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
		if (is_given(redis, unknown, i) &&
		    str_format(words.plus[i], sizeof(words.plus[i]), "+%s", commands[i].name) >= 0)
			add_word(&words, words.plus[i]);
	}
	return ask(redis, words.n, words.word);
}

/* A server refuses the first word that it does not know, names it, and changes nothing. False: it
 * is none of ours, or one that was left out already. */
static bool leave_out(struct unknown *unknown, const redisReply *reply)
{
	static const char begin[] = "ERR Error in ACL SETUSER modifier '";
	const char *word;
	size_t length;

	if (!is_error(reply, begin))
		return false;
	word = reply->str + strlen(begin);
	length = strcspn(word, "'");
	if (word[0] != '+') {
		bool is_first = !unknown->channels;

		/* Release 6.0 has no channels. */
		unknown->channels = word[0] == '&' || str_has_prefix(word, "resetchannels'");
		return unknown->channels && is_first;
	}
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
		if (strlen(commands[i].name) == length - 1 &&
		    strncmp(commands[i].name, word + 1, length - 1) == 0 && !unknown->command[i]) {
			unknown->command[i] = true;
			return true;
		}
	}
	return false;
}

static enum redis_status make(struct redis *redis)
{
	char keys[REDIS_KEY_BYTES + 2];
	char channels[REDIS_KEY_BYTES + 2];
	char hash[1 + 2 * REDIS_HASH_BYTES + 1] = "#";
	struct unknown unknown = {.channels = false};

	str_hex(hash + 1, redis->request->password_hash, REDIS_HASH_BYTES);
	if (str_format(keys, sizeof(keys), "~%s*", redis->prefix) < 0 ||
	    str_format(channels, sizeof(channels), "&%s*", redis->prefix) < 0)
		return REDIS_E_SERVER;
	for (;;) {
		AUTO(reply_free)
		redisReply *reply = set_user(redis, &unknown, hash, keys, channels);

		if (!reply || !leave_out(&unknown, reply))
			return status_of(reply);
	}
}

/* What one answer of SCAN named. */
typedef enum redis_status (*keys_seen)(struct redis *redis, redisReply *const *name, size_t n);

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

static enum redis_status scan(struct redis *redis, const char *prefix, keys_seen seen)
{
	char cursor[32] = "0";
	char pattern[REDIS_KEY_BYTES + 2];

	if (str_format(pattern, sizeof(pattern), "%s*", prefix) < 0)
		return REDIS_E_SERVER;
	for (uint32_t i = 0; i < REPLIES_MAX; i++) {
		AUTO(reply_free)
		redisReply *reply = ask(
			redis, 6,
			(const char *[]){"SCAN", cursor, "MATCH", pattern, "COUNT", SCAN_COUNT});
		enum redis_status status = status_of(reply);
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

/* One command with each of the keys; then the answers, in order. */
static enum redis_status send_for_each(struct redis *redis, const char *const *words,
				       size_t n_words, redisReply *const *name, size_t n)
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

/* NULL: the connection is no more. */
static redisReply *next_answer(struct redis *redis)
{
	void *reply = NULL;

	return redisGetReply(redis->context, &reply) == REDIS_OK ? reply : NULL;
}

static enum redis_status unlink_keys(struct redis *redis, redisReply *const *name, size_t n)
{
	enum redis_status status =
		send_for_each(redis, (const char *const[]){"UNLINK"}, 1, name, n);

	for (size_t i = 0; i < n && status == REDIS_DONE; i++) {
		AUTO(reply_free) redisReply *reply = next_answer(redis);

		status = status_of(reply);
		if (status == REDIS_DONE && reply->type == REDIS_REPLY_INTEGER)
			redis->report.n_keys += (uint32_t)reply->integer;
	}
	return status;
}

static enum redis_status simple(struct redis *redis, int n, const char *const *words)
{
	AUTO(reply_free) redisReply *reply = ask(redis, n, words);

	return status_of(reply);
}

static enum redis_status drop(struct redis *redis)
{
	enum redis_status status =
		simple(redis, 4, (const char *[]){"ACL", "SETUSER", redis->user, "reset"});

	if (status == REDIS_DONE)
		status = scan(redis, redis->prefix, unlink_keys);
	if (status == REDIS_DONE && !planted("leave-user"))
		status = simple(redis, 3, (const char *[]){"ACL", "DELUSER", redis->user});
	return status;
}

/* The smallest ones behind the one that was asked for, in order. */
static void note_session(struct redis_report *report, const struct id *id, const uint8_t *after)
{
	uint32_t at = report->n_sessions;

	if (memcmp(id->bytes, after, ID_BYTES) <= 0)
		return;
	while (at > 0 && memcmp(report->session[at - 1], id->bytes, ID_BYTES) > 0)
		at--;
	if (at == REDIS_LIST_MAX)
		return;
	if (report->n_sessions < REDIS_LIST_MAX)
		report->n_sessions++;
	memmove(report->session[at + 1], report->session[at],
		(size_t)(report->n_sessions - 1 - at) * ID_BYTES);
	memcpy(report->session[at], id->bytes, ID_BYTES);
}

static enum redis_status list(struct redis *redis)
{
	AUTO(reply_free) redisReply *reply = ask(redis, 2, (const char *[]){"ACL", "USERS"});
	enum redis_status status = status_of(reply);
	size_t length = strlen(redis->user) - (ID_TEXT_BYTES - 1);

	if (status != REDIS_DONE || reply->type != REDIS_REPLY_ARRAY)
		return status == REDIS_DONE ? REDIS_E_SERVER : status;
	for (size_t i = 0; i < reply->elements; i++) {
		const redisReply *name = reply->element[i];
		struct id id;

		if (name->type != REDIS_REPLY_STRING ||
		    strncmp(name->str, redis->user, length) != 0 ||
		    id_parse(name->str + length, &id) < 0)
			continue;
		redis->report.n_users++;
		note_session(&redis->report, &id, redis->request->session);
	}
	return REDIS_DONE;
}

/* --- measuring ------------------------------------------------------------------------------- */

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
		send_for_each(redis, (const char *const[]){"MEMORY", "USAGE"}, 2, name, n);

	for (size_t i = 0; i < n && status == REDIS_DONE; i++) {
		AUTO(reply_free) redisReply *reply = next_answer(redis);
		struct measured *measured = measured_of_key(redis, name[i]);

		status = status_of(reply);
		if (status != REDIS_DONE || !measured)
			continue;
		measured->n_keys++;
		/* Nil: it is gone meanwhile. */
		if (reply->type == REDIS_REPLY_INTEGER && reply->integer > 0)
			measured->bytes += (uint64_t)reply->integer;
	}
	return status;
}

static enum redis_status measure(struct redis *redis)
{
	const struct redis_request *request = redis->request;
	static const uint8_t first[ID_BYTES];
	char prefix[REDIS_KEY_BYTES];
	enum redis_status status;

	redis->measured = calloc(MEASURED_MAX, sizeof(*redis->measured));
	if (!redis->measured || str_format(prefix, sizeof(prefix), "%s:", request->root) < 0)
		return REDIS_E_SERVER;
	status = scan(redis, prefix, measure_keys);
	for (size_t i = 0; i < MEASURED_MAX && status == REDIS_DONE; i++) {
		const struct measured *measured = &redis->measured[i];

		if ((request->max_keys && measured->n_keys > request->max_keys) ||
		    (request->max_bytes && measured->bytes > request->max_bytes))
			note_session(&redis->report, &measured->id, first);
	}
	free(redis->measured);
	return status;
}

/* --- the job --------------------------------------------------------------------------------- */

static enum redis_status (*const actions[REDIS_ACTION_MAX_])(struct redis *redis) = {
	[REDIS_MAKE] = make,
	[REDIS_DROP] = drop,
	[REDIS_LIST] = list,
	[REDIS_MEASURE] = measure,
};

static enum redis_status work(struct redis *redis)
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
	if (status == REDIS_DONE)
		status = log_in(redis);
	if (status != REDIS_DONE)
		return status;
	return actions[redis->request->action](redis);
}

/* Names from the root and the id alone. */
static int form_names(struct redis *redis)
{
	char text[ID_TEXT_BYTES];
	struct id id;
	int r;

	memcpy(id.bytes, redis->request->session, ID_BYTES);
	id_format(&id, text);
	r = str_format(redis->prefix, sizeof(redis->prefix), "%s:%s:", redis->request->root, text);
	if (r >= 0)
		r = str_format(redis->user, sizeof(redis->user), "%s-%s-%s", redis->request->root,
			       redis->request->instance, text);
	for (char *at = redis->user; r >= 0 && *at; at++)
		if (*at == ':')
			*at = '-'; /* it is written into URLs */
	return r;
}

int redis_run(void)
{
	struct redis_request request;
	struct redis redis = {.request = &request};
	int r;

	r = io_read_exact(STDIN_FILENO, &request, sizeof(request));
	if (r < 0 || request.magic != REDIS_MAGIC || request.version != REDIS_VERSION ||
	    request.action == 0 || request.action >= REDIS_ACTION_MAX_ || form_names(&redis) < 0)
		return EXIT_FAILURE;
	redis.report.status = (uint16_t)work(&redis);
	redis.report.magic = REDIS_MAGIC;
	redis.report.version = REDIS_VERSION;
	r = io_write_all(HELPER_FD_REPORT, &redis.report, sizeof(redis.report));
	if (redis.context)
		redisFree(redis.context);
	explicit_bzero(&request, sizeof(request));
	return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
