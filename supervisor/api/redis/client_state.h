/*
 * The parts of client.h, for its own files only: client_connect is the way up, client the queue of
 * commands, their answers, and the end of a connection.
 */
#pragma once

#include <hiredis.h>

#include "base/buf.h"
#include "base/list.h"

#include "supervisor/api/redis/client.h"

enum client_state {
	CLIENT_STATE_DOWN,
	CLIENT_STATE_RESOLVING,
	CLIENT_STATE_CONNECTING,
	CLIENT_STATE_SECURING,
	CLIENT_STATE_GREETING,
	CLIENT_STATE_READY,
};

/* Sent, or about to be, and not answered. */
struct command {
	struct list link;
	redis_answer answer;
	void *userdata;
	usec_t deadline;
};

struct redis_client {
	struct redis_client_options options;
	struct redis_client_events events;
	void *userdata;
	enum client_state state;
	int fd;
	struct names_query query;
	uint32_t n_tries; /* which address is next */
	struct redis_tls_trust *trust;
	struct redis_tls *tls; /* NULL: plain */
	sd_event_source *source;
	sd_event_source *timer;
	redisReader *reader;
	redisReplyObjectFunctions replies;
	void *(*create_array)(const redisReadTask *task, int elements);
	size_t n_partial; /* bytes of an answer that is not whole yet */
	struct buf out;
	size_t sent; /* of out */
	struct list commands;
	size_t n_commands;
	usec_t heard_at;
	usec_t retry_delay;
	const char *failed; /* the connection must end, and why */
	const char *reason; /* there is none, and why */
};

/* client.c. Not from inside a callback: there it is client->failed that says so. */
void redis_client_lose(struct redis_client *client, const char *reason);
void redis_client_wake_at(struct redis_client *client, usec_t at);
/* What the socket is watched for: as much as there is to send. */
void redis_client_watch(struct redis_client *client);
/* As redis_client_send, before READY too. */
MUST_USE int redis_client_queue(struct redis_client *client, const struct redis_command *command,
				redis_answer answer, void *userdata);
int redis_client_on_socket(sd_event_source *source, int fd, uint32_t events, void *userdata);

/* client_connect.c: begins; the socket's events, or a name's answer, go on with it. */
void redis_client_connect(struct redis_client *client);
void redis_client_go_on(struct redis_client *client);
