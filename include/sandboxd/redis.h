/*
 * A session's place in Redis: what the supervisor asks of `sandboxd-helper redis`, and its answer.
 *
 * The helper alone holds the credential that may change users. It forms the user's name and the
 * prefix of the keys itself, from the configuration's root, the instance and the session's id, so
 * that nobody can ask it for another user or other keys.
 */
#pragma once

#include <stdint.h>

#include "sandboxd/limits.h"
#include "sandboxd/worker.h"

#define REDIS_MAGIC          0x52444931u
#define REDIS_VERSION        2
#define REDIS_HASH_BYTES     32 /* SHA-256 of the session's password */
#define REDIS_INSTANCE_BYTES 16
#define REDIS_USER_BYTES     (CONFIG_TEXT_BYTES + REDIS_INSTANCE_BYTES + ID_TEXT_BYTES)
#define REDIS_KEY_BYTES      (CONFIG_TEXT_BYTES + ID_TEXT_BYTES + 2)
#define REDIS_LIST_MAX       96

enum redis_action {
	REDIS_MAKE = 1, /* the user of that session, with that password */
	REDIS_DROP,     /* its keys, then the user and the user's connections */
	REDIS_LIST,     /* sessions that have a user: the first REDIS_LIST_MAX behind that id */
	REDIS_MEASURE,  /* sessions whose keys are over a bound, the first of them; the id is any */
	REDIS_LEAVE,    /* the user and its connections; the keys are another service's by now */
	REDIS_ACTION_MAX_,
};

enum redis_status {
	REDIS_DONE,
	REDIS_E_CONNECT,  /* no answer of the server */
	REDIS_E_OPEN,     /* it serves clients that give no password */
	REDIS_E_PASSWORD, /* it does not take the configured credential */
	REDIS_E_ACL,      /* it has no users (before Redis 6), or the credential may not make any */
	REDIS_E_SERVER,   /* another error of the server */
	REDIS_STATUS_MAX_,
};

/* On the helper's standard input, then its end. */
struct redis_request {
	uint32_t magic;
	uint16_t version;
	uint16_t action; /* enum redis_action */
	uint8_t session[ID_BYTES];
	uint8_t password_hash[REDIS_HASH_BYTES]; /* REDIS_MAKE */
	char instance[REDIS_INSTANCE_BYTES];     /* of the service: it drops no other one's users */
	uint32_t is_over;  /* REDIS_MAKE: a user that may read and delete, and write nothing more */
	uint32_t max_keys; /* REDIS_MEASURE; 0: no bound */
	uint64_t max_bytes;
	struct redis_place place;
	char root[CONFIG_TEXT_BYTES];
	char user[CONFIG_TEXT_BYTES];
	char password[CONFIG_PASSWORD_BYTES];
};
_Static_assert(sizeof(struct redis_request) <= 4096, "a pipe takes it whole");

/* Its one word, on HELPER_FD_REPORT. */
struct redis_report {
	uint32_t magic;
	uint16_t version;
	uint16_t status;  /* enum redis_status */
	uint32_t n_keys;  /* REDIS_DROP */
	uint32_t n_users; /* REDIS_LIST: how many there are in all */
	uint32_t n_sessions;
	uint32_t zero;
	uint8_t session[REDIS_LIST_MAX][ID_BYTES]; /* rising */
};
