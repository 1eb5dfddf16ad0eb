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

#define TIMEOUT_S   2
#define SCAN_COUNT  "1000"
#define WORDS_MAX   192
#define REPLIES_MAX 1000000u /* of SCAN: a server that never ends it is not believed */

/* With the first release that knows them, as major * 100 + minor. */
static const struct {
	const char *name;
	unsigned int since;
} commands[] = {
  /* connections: AUTH, HELLO, QUIT and RESET are everybody's */
	{"ping",             600},
	{"echo",             600},
	{"multi",            600},
	{"exec",             600},
	{"discard",          600},
	{"watch",            600},
	{"unwatch",          600},
 /* any key */
	{"del",              600},
	{"unlink",           600},
	{"exists",           600},
	{"type",             600},
	{"touch",            600},
	{"expire",           600},
	{"pexpire",          600},
	{"expireat",         600},
	{"pexpireat",        600},
	{"persist",          600},
	{"ttl",              600},
	{"pttl",             600},
	{"expiretime",       700},
	{"pexpiretime",      700},
	{"rename",           600},
	{"renamenx",         600},
 /* strings */
	{"get",              600},
	{"set",              600},
	{"setnx",            600},
	{"setex",            600},
	{"psetex",           600},
	{"getset",           600},
	{"getdel",           602},
	{"getex",            602},
	{"mget",             600},
	{"mset",             600},
	{"msetnx",           600},
	{"append",           600},
	{"strlen",           600},
	{"getrange",         600},
	{"setrange",         600},
	{"incr",             600},
	{"decr",             600},
	{"incrby",           600},
	{"decrby",           600},
	{"incrbyfloat",      600},
	{"lcs",              700},
	{"setbit",           600},
	{"getbit",           600},
	{"bitcount",         600},
	{"bitpos",           600},
	{"bitop",            600},
	{"bitfield",         600},
	{"bitfield_ro",      602},
 /* hashes */
	{"hget",             600},
	{"hset",             600},
	{"hsetnx",           600},
	{"hmget",            600},
	{"hmset",            600},
	{"hdel",             600},
	{"hexists",          600},
	{"hlen",             600},
	{"hkeys",            600},
	{"hvals",            600},
	{"hgetall",          600},
	{"hincrby",          600},
	{"hincrbyfloat",     600},
	{"hstrlen",          600},
	{"hscan",            600},
	{"hrandfield",       602},
 /* lists */
	{"lpush",            600},
	{"rpush",            600},
	{"lpushx",           600},
	{"rpushx",           600},
	{"lpop",             600},
	{"rpop",             600},
	{"lmpop",            700},
	{"llen",             600},
	{"lrange",           600},
	{"lindex",           600},
	{"lset",             600},
	{"linsert",          600},
	{"lrem",             600},
	{"ltrim",            600},
	{"lpos",             600},
	{"rpoplpush",        600},
	{"lmove",            602},
	{"blpop",            600},
	{"brpop",            600},
	{"blmpop",           700},
	{"brpoplpush",       600},
	{"blmove",           602},
 /* sets */
	{"sadd",             600},
	{"srem",             600},
	{"scard",            600},
	{"sismember",        600},
	{"smismember",       602},
	{"smembers",         600},
	{"srandmember",      600},
	{"spop",             600},
	{"smove",            600},
	{"sscan",            600},
	{"sinter",           600},
	{"sinterstore",      600},
	{"sintercard",       700},
	{"sunion",           600},
	{"sunionstore",      600},
	{"sdiff",            600},
	{"sdiffstore",       600},
 /* sorted sets */
	{"zadd",             600},
	{"zrem",             600},
	{"zcard",            600},
	{"zcount",           600},
	{"zscore",           600},
	{"zmscore",          602},
	{"zincrby",          600},
	{"zrange",           600},
	{"zrevrange",        600},
	{"zrangebyscore",    600},
	{"zrevrangebyscore", 600},
	{"zrangebylex",      600},
	{"zrevrangebylex",   600},
	{"zlexcount",        600},
	{"zrangestore",      602},
	{"zrank",            600},
	{"zrevrank",         600},
	{"zremrangebyscore", 600},
	{"zremrangebyrank",  600},
	{"zremrangebylex",   600},
	{"zpopmin",          600},
	{"zpopmax",          600},
	{"zmpop",            700},
	{"bzpopmin",         600},
	{"bzpopmax",         600},
	{"bzmpop",           700},
	{"zscan",            600},
	{"zrandmember",      602},
	{"zunion",           602},
	{"zunionstore",      600},
	{"zinter",           602},
	{"zinterstore",      600},
	{"zintercard",       700},
	{"zdiff",            602},
	{"zdiffstore",       602},
 /* HyperLogLog, places */
	{"pfadd",            600},
	{"pfcount",          600},
	{"geoadd",           600},
	{"geodist",          600},
	{"geohash",          600},
	{"geopos",           600},
	{"geosearch",        602},
	{"geosearchstore",   602},
 /* streams */
	{"xadd",             600},
	{"xdel",             600},
	{"xlen",             600},
	{"xrange",           600},
	{"xrevrange",        600},
	{"xread",            600},
	{"xtrim",            600},
	{"xgroup",           600},
	{"xreadgroup",       600},
	{"xack",             600},
	{"xclaim",           600},
	{"xautoclaim",       602},
	{"xpending",         600},
	{"xinfo",            600},
 /* channels: 6.0 does not bind them */
	{"publish",          602},
	{"subscribe",        602},
	{"unsubscribe",      602},
	{"psubscribe",       602},
	{"punsubscribe",     602},
	{"spublish",         700},
	{"ssubscribe",       700},
	{"sunsubscribe",     700},
};
_Static_assert(ARRAY_SIZE(commands) + 16 < WORDS_MAX, "all fit in one SETUSER");

struct redis {
	const struct redis_request *request;
	redisContext *context;
	char user[REDIS_USER_BYTES];
	char prefix[REDIS_KEY_BYTES]; /* ROOT:ID: */
	struct redis_report report;
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

/* What a server of that release knows. */
static redisReply *set_user(struct redis *redis, unsigned int release, const char *hash,
			    const char *keys, const char *channels)
{
	struct words words = {.n = 0};

	/* All of it replaces what the user was before, as one. */
	add_word(&words, "ACL");
	add_word(&words, "SETUSER");
	add_word(&words, redis->user);
	add_word(&words, "reset");
	add_word(&words, "on");
	add_word(&words, hash);
	add_word(&words, keys);
	if (release >= 602) {
		add_word(&words, "resetchannels");
		add_word(&words, channels);
	}
	add_word(&words, "-@all");
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
		if (commands[i].since > release)
			continue;
		if (str_format(words.plus[i], sizeof(words.plus[i]), "+%s", commands[i].name) >= 0)
			add_word(&words, words.plus[i]);
	}
	return ask(redis, words.n, words.word);
}

static enum redis_status make(struct redis *redis)
{
	static const unsigned int releases[] = {700, 602, 600};
	char keys[REDIS_KEY_BYTES + 2];
	char channels[REDIS_KEY_BYTES + 2];
	char hash[1 + 2 * REDIS_HASH_BYTES + 1] = "#";
	enum redis_status status = REDIS_E_SERVER;

	for (size_t i = 0; i < REDIS_HASH_BYTES; i++)
		(void)snprintf(hash + 1 + 2 * i, 3, "%02x", redis->request->password_hash[i]);
	if (str_format(keys, sizeof(keys), "~%s*", redis->prefix) < 0 ||
	    str_format(channels, sizeof(channels), "&%s*", redis->prefix) < 0)
		return REDIS_E_SERVER;
	/* An older server refuses the names that it does not know, and changes nothing. */
	for (size_t i = 0; i < ARRAY_SIZE(releases) && status == REDIS_E_SERVER; i++) {
		AUTO(reply_free)
		redisReply *reply = set_user(redis, releases[i], hash, keys, channels);

		status = status_of(reply);
	}
	return status;
}

/* One answer of SCAN: what it names goes. */
static enum redis_status unlink_keys(struct redis *redis, const redisReply *names)
{
	enum redis_status status = REDIS_DONE;
	size_t length = strlen(redis->prefix);

	for (size_t i = 0; i < names->elements && status == REDIS_DONE; i++) {
		const redisReply *name = names->element[i];
		const char *words[] = {"UNLINK", name->str};
		const size_t sizes[] = {strlen("UNLINK"), (size_t)name->len};
		redisReply *reply;

		/* The server did as it was told, or it is not this server's key to take. */
		if (name->type != REDIS_REPLY_STRING || sizes[1] < length ||
		    memcmp(name->str, redis->prefix, length) != 0)
			return REDIS_E_SERVER;
		reply = redisCommandArgv(redis->context, 2, words, sizes);
		status = status_of(reply);
		if (reply && reply->type == REDIS_REPLY_INTEGER)
			redis->report.n_keys += (uint32_t)reply->integer;
		(void)reply_free(reply);
	}
	return status;
}

static enum redis_status drop_keys(struct redis *redis)
{
	char cursor[32] = "0";
	char pattern[REDIS_KEY_BYTES + 2];

	if (str_format(pattern, sizeof(pattern), "%s*", redis->prefix) < 0)
		return REDIS_E_SERVER;
	for (uint32_t i = 0; i < REPLIES_MAX; i++) {
		AUTO(reply_free)
		redisReply *reply = ask(
			redis, 6,
			(const char *[]){"SCAN", cursor, "MATCH", pattern, "COUNT", SCAN_COUNT});
		enum redis_status status = status_of(reply);

		if (status != REDIS_DONE)
			return status;
		if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
		    reply->element[0]->type != REDIS_REPLY_STRING ||
		    reply->element[1]->type != REDIS_REPLY_ARRAY ||
		    str_copy(cursor, sizeof(cursor), reply->element[0]->str) < 0)
			return REDIS_E_SERVER;
		status = unlink_keys(redis, reply->element[1]);
		if (status != REDIS_DONE || str_equal(cursor, "0"))
			return status;
	}
	return REDIS_E_SERVER;
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
		status = drop_keys(redis);
	if (status == REDIS_DONE && !planted("leave-user"))
		status = simple(redis, 3, (const char *[]){"ACL", "DELUSER", redis->user});
	return status;
}

/* The smallest ids stay. */
static void list_add(struct redis_report *report, const struct id *id)
{
	uint32_t at = report->n_users;

	while (at > 0 && memcmp(report->session[at - 1], id->bytes, ID_BYTES) > 0)
		at--;
	if (at == REDIS_LIST_MAX)
		return;
	if (report->n_users < REDIS_LIST_MAX)
		report->n_users++;
	memmove(report->session[at + 1], report->session[at],
		(size_t)(report->n_users - 1 - at) * ID_BYTES);
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
		    id_parse(name->str + length, &id) < 0 ||
		    memcmp(id.bytes, redis->request->session, ID_BYTES) <= 0)
			continue;
		list_add(&redis->report, &id);
	}
	return REDIS_DONE;
}

/* --- the job --------------------------------------------------------------------------------- */

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
	if (redis->request->action == REDIS_MAKE)
		return make(redis);
	return redis->request->action == REDIS_DROP ? drop(redis) : list(redis);
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
