/*
 * A connection to a Redis server of the platform, on the worker's loop: pipelined, reconnecting
 * with backoff and jitter, everything in it bounded. It is no queue: what cannot be sent now is
 * refused at once, and whoever sent it decides what that means. Requests go in the order in which
 * they were made.
 *
 * A blocking command (BRPOP) holds up what is behind it, and one that subscribes is answered as
 * often as the server likes: each of the two has a client of its own.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#include "base/auto.h"
#include "base/clock.h"

#include "sandboxd/worker.h"
#include "supervisor/api/names.h"

struct redisReply; /* <hiredis.h>: for those who look inside */
struct redis_client;

#define REDIS_CLIENT_TIMEOUT (5 * USEC_PER_SEC) /* of a command that the server answers at once */

/* Once. reply: valid in the call; NULL: the connection was lost or the answer did not come in time,
 * and the server may have done it or not. An error of the server is a reply. May send; may not free
 * the client. */
typedef void (*redis_answer)(void *userdata, const struct redisReply *reply);

/* Any may be NULL. None may free the client. */
struct redis_client_events {
	void (*connected)(void *userdata); /* logged in, and its database chosen: again and again */
	/* After the answers of all that was on its way. */
	void (*lost)(void *userdata);
	/* "message" or "pmessage" and what belongs to it. Where this is set the client is for
	 * (P)SUBSCRIBE, (P)UNSUBSCRIBE, one channel or pattern each, and PING. */
	void (*message)(void *userdata, const struct redisReply *reply);
};

struct redis_client_options {
	sd_event *event;
	const struct redis_server *server; /* kept by pointer */
	struct names *names;               /* not owned; NULL: a name has no address */
	const char *name;                  /* for the log, kept by pointer */
	size_t max_commands;               /* not answered yet; 0: 4096 */
	size_t max_bytes;                  /* not sent yet, and of one answer; 0: 8 MiB */
};

/* Connects by itself, now and whenever the connection is lost. 0 or -errno. */
MUST_USE int redis_client_new(const struct redis_client_options *options,
			      const struct redis_client_events *events, void *userdata,
			      struct redis_client **ret_client);
/* What is not answered is, with NULL. Accepts NULL, returns NULL. */
struct redis_client *redis_client_free(struct redis_client *client);

struct redis_command {
	const char **word;  /* they are only read; hiredis declares them so */
	const size_t *size; /* NULL: the words are texts */
	size_t n;
	usec_t timeout; /* 0: REDIS_CLIENT_TIMEOUT */
};
/* answer: NULL where nobody wants it. 0; -ENOTCONN; -ENOBUFS: a bound is reached; -ENOMEM. On a
 * failure nothing was sent, and answer is not called. */
MUST_USE int redis_client_send(struct redis_client *client, const struct redis_command *command,
			       redis_answer answer, void *userdata);
/* A command of texts alone: REDIS_COMMAND("GET", key). */
#define REDIS_COMMAND(...)                                                                         \
	{                                                                                          \
		.word = (const char *[]){__VA_ARGS__},                                             \
		.n = sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)                        \
	}
#define redis_client_ask(client, answer, userdata, ...)                                            \
	redis_client_send((client), &(struct redis_command)REDIS_COMMAND(__VA_ARGS__), (answer),   \
			  (userdata))
/* All of them or none, between MULTI and EXEC, whose answer it is. As redis_client_send. */
MUST_USE int redis_client_transact(struct redis_client *client,
				   const struct redis_command *commands, size_t n,
				   redis_answer answer, void *userdata);

bool redis_client_is_up(const struct redis_client *client);
/* Why it is not up: ours, for operators. */
const char *redis_client_reason(const struct redis_client *client);
