/*
 * Theory. The connection goes round this circle:
 *
 *   DOWN        nothing; the timer says when the next try begins
 *   RESOLVING   the server's name is looked up; a deadline ends it, as the next two
 *   CONNECTING  the kernel connects, to one of its addresses at each try
 *   SECURING    TLS, where it is wanted
 *   GREETING    AUTH, SELECT and a PING are on their way
 *   READY       others' commands
 *
 * Protocol and commands are hiredis' reader and formatter; its own connections are not used, as
 * they resolve names and hold what they cannot send without bound. Answers come in the order of
 * the questions, so the oldest command alone has a deadline that counts. A callback only queues:
 * what ends the connection happens outside of them, in on_socket and on_timer.
 */
#include "supervisor/api/redis/client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"

#include "supervisor/api/redis/client_state.h"
#include "supervisor/api/redis/tls.h"

#define COMMANDS_MAX 4096
#define BYTES_MAX    ((size_t)8 * 1024 * 1024)
#define RETRY_MIN    (100 * USEC_PER_MS)
#define RETRY_MAX    (10 * USEC_PER_SEC)
#define IDLE         (30 * USEC_PER_SEC) /* then it is asked whether it is still there */
#define READ_BYTES   ((size_t)8 * 1024)
#define READS_A_TURN 64
#define WORD_BYTES   ((size_t)32) /* of a command, beside its text: $SIZE and two ends of lines */

/* --- the clock ------------------------------------------------------------------------------- */

static const struct command *oldest(const struct redis_client *client)
{
	return list_empty(&client->commands)
		       ? NULL
		       : LIST_ENTRY(client->commands.next, struct command, link);
}

/* When the timer is next needed; before GREETING it was set. */
static void arm(struct redis_client *client)
{
	const struct command *command = oldest(client);

	if (client->state < CLIENT_STATE_GREETING)
		return;
	(void)sd_event_source_set_time(client->timer, command ? command->deadline
							      : clock_add(client->heard_at, IDLE));
	(void)sd_event_source_set_enabled(client->timer, SD_EVENT_ONESHOT);
}

void redis_client_wake_at(struct redis_client *client, usec_t at)
{
	(void)sd_event_source_set_time(client->timer, at);
	(void)sd_event_source_set_enabled(client->timer, SD_EVENT_ONESHOT);
}

/* Many workers that lost the same server do not come back in one moment. */
static usec_t with_jitter(usec_t delay)
{
	uint32_t random = 0;

	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		return delay;
	return delay / 2 + delay / 2 * random / UINT32_MAX;
}

/* --- the end of a connection ----------------------------------------------------------------- */

/* Those who are told may send, and are refused. */
static void fail_commands(struct redis_client *client)
{
	while (!list_empty(&client->commands)) {
		struct command *command = LIST_ENTRY(client->commands.next, struct command, link);

		list_remove(&command->link);
		client->n_commands--;
		if (command->answer)
			command->answer(command->userdata, NULL);
		free(command);
	}
}

static void close_connection(struct redis_client *client)
{
	names_cancel(&client->query);
	client->source = sd_event_source_disable_unref(client->source);
	client->tls = redis_tls_free(client->tls);
	client->fd = fd_close(client->fd);
	if (client->reader)
		redisReaderFree(client->reader);
	client->reader = NULL;
	buf_done(&client->out);
	client->sent = 0;
	client->n_partial = 0;
	client->failed = NULL;
	client->state = CLIENT_STATE_DOWN;
}

void redis_client_lose(struct redis_client *client, const char *reason)
{
	bool was_ready = client->state == CLIENT_STATE_READY;

	/* Once for each reason, not for each try. */
	if (was_ready || !client->reason || !str_equal(client->reason, reason))
		log_line(LOG_LEVEL_WARNING, NULL, "no connection to Redis",
			 "client=%s reason=\"%s\"", client->options.name, reason);
	client->reason = reason;
	close_connection(client);
	client->retry_delay =
		client->retry_delay * 2 < RETRY_MAX ? client->retry_delay * 2 : RETRY_MAX;
	if (client->retry_delay == 0)
		client->retry_delay = RETRY_MIN;
	redis_client_wake_at(client, clock_add(clock_boottime(), with_jitter(client->retry_delay)));
	fail_commands(client);
	if (was_ready && client->events.lost)
		client->events.lost(client->userdata);
}

/* --- sending --------------------------------------------------------------------------------- */

void redis_client_watch(struct redis_client *client)
{
	bool wants_write = client->out.size > client->sent ||
			   (client->tls && redis_tls_wants_write(client->tls));
	uint32_t events = EPOLLIN | (wants_write ? (uint32_t)EPOLLOUT : 0);

	if (client->state == CLIENT_STATE_CONNECTING)
		events = EPOLLOUT;
	if (sd_event_source_set_io_events(client->source, events) < 0)
		client->failed = "its socket is not watched";
}

static int append(struct redis_client *client, const struct redis_command *command)
{
	sds text = NULL;
	int length =
		redisFormatSdsCommandArgv(&text, (int)command->n, command->word, command->size);
	int r;

	if (length < 0)
		return -ENOMEM;
	/* Not for each: it moves the rest. */
	if (client->sent > client->out.size / 2) {
		buf_consume(&client->out, client->sent);
		client->sent = 0;
	}
	r = buf_append(&client->out, text, (size_t)length);
	redisFreeSdsCommand(text);
	return r == -EMSGSIZE ? -ENOBUFS : r;
}

int redis_client_queue(struct redis_client *client, const struct redis_command *command,
		       redis_answer answer, void *userdata)
{
	struct command *entry = malloc(sizeof(*entry));
	int r = entry ? append(client, command) : -ENOMEM;

	if (r < 0) {
		free(entry);
		return r;
	}
	*entry = (struct command){
		.answer = answer,
		.userdata = userdata,
		.deadline = clock_add(clock_boottime(),
				      command->timeout ? command->timeout : REDIS_CLIENT_TIMEOUT),
	};
	list_append(&client->commands, &entry->link);
	if (client->n_commands++ == 0)
		arm(client);
	redis_client_watch(client);
	return 0;
}

int redis_client_send(struct redis_client *client, const struct redis_command *command,
		      redis_answer answer, void *userdata)
{
	if (client->state != CLIENT_STATE_READY || client->failed)
		return -ENOTCONN;
	if (client->n_commands >= client->options.max_commands)
		return -ENOBUFS;
	return redis_client_queue(client, command, answer, userdata);
}

/* At most. */
static size_t bytes_of(const struct redis_command *command)
{
	size_t bytes = WORD_BYTES;

	for (size_t i = 0; i < command->n; i++)
		bytes += WORD_BYTES + (command->size ? command->size[i] : strlen(command->word[i]));
	return bytes;
}

int redis_client_transact(struct redis_client *client, const struct redis_command *commands,
			  size_t n, redis_answer answer, void *userdata)
{
	const struct redis_command exec = REDIS_COMMAND("EXEC");
	size_t bytes = 4 * WORD_BYTES;
	int r;

	for (size_t i = 0; i < n; i++)
		bytes += bytes_of(&commands[i]);
	if (client->n_commands + n + 2 > client->options.max_commands ||
	    client->out.size - client->sent + bytes > client->options.max_bytes)
		return client->state == CLIENT_STATE_READY ? -ENOBUFS : -ENOTCONN;
	r = redis_client_ask(client, NULL, NULL, "MULTI");
	if (r < 0)
		return r;
	for (size_t i = 0; r >= 0 && i < n; i++)
		r = redis_client_send(client, &commands[i], NULL, NULL);
	if (r >= 0)
		r = redis_client_send(client, &exec, answer, userdata);
	/* What follows must not become a part of it. */
	if (r < 0 && !client->failed)
		client->failed = "no memory";
	return r;
}

/* Bytes or -errno. */
static ssize_t send_some(struct redis_client *client, const void *data, size_t size)
{
	ssize_t n;

	if (client->tls)
		return redis_tls_write(client->tls, data, size);
	do
		n = send(client->fd, data, size, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

static void write_out(struct redis_client *client)
{
	while (client->sent < client->out.size) {
		ssize_t n = send_some(client, client->out.data + client->sent,
				      client->out.size - client->sent);

		if (n <= 0) {
			if (n != -EAGAIN)
				client->failed = "it closed the connection";
			break;
		}
		client->sent += (size_t)n;
	}
	if (client->sent == client->out.size) {
		buf_reset(&client->out);
		client->sent = 0;
	}
	redis_client_watch(client);
}

/* --- answers --------------------------------------------------------------------------------- */

static bool is_message(const struct redisReply *reply)
{
	const struct redisReply *kind;

	if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 3)
		return false;
	kind = reply->element[0];
	return kind->type == REDIS_REPLY_STRING &&
	       (str_equal(kind->str, "message") || str_equal(kind->str, "pmessage"));
}

static void dispatch(struct redis_client *client, const struct redisReply *reply)
{
	struct command *command;

	if (client->events.message && is_message(reply)) {
		client->events.message(client->userdata, reply);
		return;
	}
	if (list_empty(&client->commands)) {
		client->failed = "it answers what nobody asked";
		return;
	}
	command = LIST_ENTRY(client->commands.next, struct command, link);
	list_remove(&command->link);
	client->n_commands--;
	if (command->answer)
		command->answer(command->userdata, reply);
	free(command);
}

static void take_replies(struct redis_client *client)
{
	while (!client->failed) {
		void *reply = NULL;

		if (redisReaderGetReply(client->reader, &reply) != REDIS_OK) {
			client->failed = "it does not speak Redis' protocol";
			return;
		}
		if (!reply)
			break;
		dispatch(client, reply);
		freeReplyObject(reply);
		client->n_partial = client->reader->len - client->reader->pos;
	}
	if (client->n_partial > client->options.max_bytes)
		client->failed = "its answer is too big";
}

/* Bytes, 0 at the end, or -errno. */
static ssize_t receive_some(struct redis_client *client, void *data, size_t size)
{
	ssize_t n;

	if (client->tls)
		return redis_tls_read(client->tls, data, size);
	do
		n = recv(client->fd, data, size, 0);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

/* What TLS has read off the socket already brings no event. */
static bool may_read(const struct redis_client *client, unsigned int n_reads)
{
	return !client->failed &&
	       (n_reads < READS_A_TURN || (client->tls && redis_tls_has_more(client->tls)));
}

static void read_in(struct redis_client *client)
{
	char data[READ_BYTES];

	for (unsigned int i = 0; may_read(client, i); i++) {
		ssize_t n = receive_some(client, data, sizeof(data));

		if (n == -EAGAIN)
			return;
		if (n <= 0) {
			client->failed = "it closed the connection";
			return;
		}
		client->heard_at = clock_boottime();
		client->n_partial += (size_t)n;
		if (redisReaderFeed(client->reader, data, (size_t)n) != REDIS_OK) {
			client->failed = "no memory";
			return;
		}
		take_replies(client);
		if ((size_t)n < sizeof(data) && !client->tls)
			return;
	}
}

/* A read of TLS may have something to write first. */
static bool is_readable(const struct redis_client *client, uint32_t events)
{
	return (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) ||
	       (client->tls && redis_tls_wants_write(client->tls));
}

int redis_client_on_socket(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
	struct redis_client *client = userdata;

	(void)source;
	(void)fd;
	if (client->state < CLIENT_STATE_GREETING)
		redis_client_go_on(client);
	else if (is_readable(client, events))
		read_in(client);
	if (!client->failed && client->state >= CLIENT_STATE_GREETING)
		write_out(client);
	if (client->failed)
		redis_client_lose(client, client->failed);
	else
		arm(client);
	return 0;
}

static int on_timer(sd_event_source *source, uint64_t at, void *userdata)
{
	struct redis_client *client = userdata;

	(void)source;
	(void)at;
	if (client->state == CLIENT_STATE_DOWN)
		redis_client_connect(client);
	else if (client->state == CLIENT_STATE_RESOLVING)
		redis_client_lose(client, "no answer to a question for its name");
	else if (client->state < CLIENT_STATE_GREETING)
		redis_client_lose(client, "it cannot be reached");
	else if (client->failed)
		redis_client_lose(client, client->failed);
	else if (oldest(client) && clock_boottime() >= oldest(client)->deadline)
		redis_client_lose(client, "it does not answer");
	else if (oldest(client) || clock_boottime() < clock_add(client->heard_at, IDLE) ||
		 redis_client_ask(client, NULL, NULL, "PING") >= 0)
		arm(client);
	else
		redis_client_lose(client, "no memory");
	return 0;
}

/* --- the object ------------------------------------------------------------------------------ */

int redis_client_new(const struct redis_client_options *options,
		     const struct redis_client_events *events, void *userdata,
		     struct redis_client **ret_client)
{
	struct redis_client *client = calloc(1, sizeof(*client));
	int r;

	if (!client)
		return -ENOMEM;
	client->options = *options;
	if (client->options.max_commands == 0)
		client->options.max_commands = COMMANDS_MAX;
	if (client->options.max_bytes == 0)
		client->options.max_bytes = BYTES_MAX;
	if (events)
		client->events = *events;
	client->userdata = userdata;
	client->fd = -1;
	client->reason = "connecting";
	list_init(&client->commands);
	/* In the loop's next turn: none of the events comes from inside this. */
	r = sd_event_add_time(options->event, &client->timer, CLOCK_BOOTTIME, 0, USEC_PER_MS,
			      on_timer, client);
	if (r < 0) {
		free(client);
		return r;
	}
	*ret_client = client;
	return 0;
}

struct redis_client *redis_client_free(struct redis_client *client)
{
	if (!client)
		return NULL;
	close_connection(client);
	fail_commands(client);
	client->timer = sd_event_source_disable_unref(client->timer);
	client->trust = redis_tls_trust_free(client->trust);
	free(client);
	return NULL;
}

bool redis_client_is_up(const struct redis_client *client)
{
	return client->state == CLIENT_STATE_READY;
}

const char *redis_client_reason(const struct redis_client *client)
{
	return client->reason ? client->reason : "";
}
