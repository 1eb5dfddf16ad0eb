/*
 * Theory. Redis itself keeps sessions apart: each has a user that may call only commands by name,
 * each of which names its keys or channels, and only with those below the session's prefix. A key
 * pattern does not bind a command that names no key (SCAN, RANDOMKEY, DBSIZE, PUBSUB CHANNELS ...),
 * so none of these is in the list. Nor is one that keeps another's place in an argument which older
 * servers do not check (SORT, MIGRATE, PFMERGE), reaches another database, whose keys would stay
 * (COPY, MOVE), or takes code (EVAL, FUNCTION).
 */
#include <string.h>

#include "base/log.h"
#include "base/str.h"

#include "supervisor/helper/redis_state.h"

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
_Static_assert(ARRAY_SIZE(commands) + 16 < REDIS_WORDS_MAX, "all fit in one SETUSER");

struct words {
	const char *word[REDIS_WORDS_MAX];
	char plus[ARRAY_SIZE(commands)][24];
	int n;
};

static void add_word(struct words *words, const char *word)
{
	ASSERT(words->n < REDIS_WORDS_MAX);
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
	return redis_ask(redis, words.n, words.word);
}

/* A server refuses the first word that it does not know, names it, and changes nothing. False: it
 * is none of ours, or one that was left out already. */
static bool leave_out(struct unknown *unknown, const redisReply *reply)
{
	static const char begin[] = "ERR Error in ACL SETUSER modifier '";
	const char *word;
	size_t length;

	if (!redis_is_error(reply, begin))
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

enum redis_status redis_make(struct redis *redis)
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
		AUTO(redis_reply_free)
		redisReply *reply = set_user(redis, &unknown, hash, keys, channels);

		if (!reply || !leave_out(&unknown, reply))
			return redis_status_of(reply);
	}
}

enum redis_status redis_list(struct redis *redis)
{
	AUTO(redis_reply_free)
	redisReply *reply = redis_ask(redis, 2, (const char *[]){"ACL", "USERS"});
	enum redis_status status = redis_status_of(reply);
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
		redis_note_session(&redis->report, &id, redis->request->session);
	}
	return REDIS_DONE;
}
