/* From DOWN to READY (client.c). */
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>

#include "base/log.h"
#include "base/socket_address.h"
#include "base/str.h"

#include "supervisor/api/redis/client_state.h"
#include "supervisor/api/redis/tls.h"

#define ELEMENTS_MAX    (1 << 20) /* of one array */
#define CONNECT_TIMEOUT (5 * USEC_PER_SEC)

static bool is_error(const struct redisReply *reply, const char *prefix)
{
	return reply->type == REDIS_REPLY_ERROR && str_has_prefix(reply->str, prefix);
}

static void on_login(void *userdata, const struct redisReply *reply)
{
	struct redis_client *client = userdata;

	if (reply && reply->type == REDIS_REPLY_ERROR)
		client->failed = "the server refuses the login";
}

static void on_select(void *userdata, const struct redisReply *reply)
{
	struct redis_client *client = userdata;

	if (reply && reply->type == REDIS_REPLY_ERROR && !client->failed)
		client->failed = "the server refuses the database";
}

/* A user that may not PING is one that the server knows. */
static void on_ready(void *userdata, const struct redisReply *reply)
{
	struct redis_client *client = userdata;

	if (!reply || client->failed)
		return;
	if (reply->type == REDIS_REPLY_ERROR && !is_error(reply, "NOPERM")) {
		client->failed = is_error(reply, "NOAUTH") ? "the server wants a password"
							   : "the server is not ready";
		return;
	}
	client->state = CLIENT_STATE_READY;
	client->retry_delay = 0;
	client->reason = NULL;
	log_line(LOG_LEVEL_INFO, NULL, "connected to Redis", "client=%s", client->options.name);
	if (client->events.connected)
		client->events.connected(client->userdata);
}

static int greet(struct redis_client *client)
{
	const struct redis_server *server = client->options.server;
	const char *password = server->url_password[0] ? server->url_password : server->password;
	const char *login[3] = {"AUTH", server->user, password};
	const char *plain[2] = {"AUTH", password};
	const struct redis_command commands[] = {
		{.word = server->user[0] ? login : plain,              .n = server->user[0] ? 3 : 2},
		{.word = (const char *[]){"SELECT", server->database}, .n = 2                      },
		{.word = (const char *[]){"PING"},                     .n = 1                      },
	};
	int r = 0;

	if (password[0])
		r = redis_client_queue(client, &commands[0], on_login, client);
	if (r >= 0 && server->database[0])
		r = redis_client_queue(client, &commands[1], on_select, client);
	return r < 0 ? r : redis_client_queue(client, &commands[2], on_ready, client);
}

/* The server says how long an array is before it sends a byte of it. */
static void *create_array(const redisReadTask *task, int elements)
{
	const struct redis_client *client = task->privdata;

	return elements > ELEMENTS_MAX ? NULL : client->create_array(task, elements);
}

static int make_reader(struct redis_client *client)
{
	redisReader *reader = redisReaderCreate();

	if (!reader)
		return -ENOMEM;
	client->replies = *reader->fn;
	client->create_array = client->replies.createArray;
	client->replies.createArray = create_array;
	reader->fn = &client->replies;
	reader->privdata = client;
	client->reader = reader;
	return 0;
}

static int open_socket(struct redis_client *client, const struct egress_address *address)
{
	const int yes = 1;
	union socket_address to;
	socklen_t size = socket_address_of(address, client->options.server->place.port, &to);

	client->fd = socket((int)address->family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (client->fd < 0)
		return -errno;
	(void)setsockopt(client->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
	if (connect(client->fd, &to.any, size) < 0 && errno != EINPROGRESS)
		return -errno;
	return sd_event_add_io(client->options.event, &client->source, client->fd, EPOLLOUT,
			       redis_client_on_socket, client);
}

static void connect_to(struct redis_client *client, const struct egress_address *address)
{
	int r = make_reader(client);

	client->out = BUF_NULL(client->options.max_bytes);
	client->state = CLIENT_STATE_CONNECTING;
	if (r >= 0)
		r = open_socket(client, address);
	if (r < 0)
		redis_client_lose(client, "it cannot be reached");
}

static void connect_named(void *userdata)
{
	struct redis_client *client = userdata;
	const struct names_answer *answer = &client->query.answer;

	if (answer->n == 0)
		redis_client_lose(client, "its name has no address");
	else
		connect_to(client, &answer->address[client->n_tries++ % answer->n]);
}

void redis_client_connect(struct redis_client *client)
{
	const struct redis_server *server = client->options.server;
	int r = -ENOENT;

	redis_client_wake_at(client, clock_add(clock_boottime(), CONNECT_TIMEOUT));
	if (server->place.address.family != 0) {
		connect_to(client, &server->place.address);
		return;
	}
	client->state = CLIENT_STATE_RESOLVING;
	client->query = (struct names_query){.done = connect_named, .userdata = client};
	if (client->options.names)
		r = names_ask(client->options.names, server->name, &client->query);
	if (r != 0)
		connect_named(client);
}

static void begin_greeting(struct redis_client *client)
{
	client->state = CLIENT_STATE_GREETING;
	client->heard_at = clock_boottime();
	if (greet(client) < 0)
		client->failed = "no memory";
}

static void secure(struct redis_client *client)
{
	int r = redis_tls_greet(client->tls);

	if (r == 0)
		begin_greeting(client);
	else if (r != -EAGAIN)
		client->failed = r == -EKEYREJECTED ? "its certificate is not accepted"
						    : "it does not speak TLS as it should";
	else
		redis_client_watch(client);
}

static void begin_tls(struct redis_client *client)
{
	int r = client->trust ? 0 : redis_tls_trust_new(&client->trust);

	if (r == 0)
		r = redis_tls_new(client->trust, client->fd, client->options.server, &client->tls);
	client->state = CLIENT_STATE_SECURING;
	if (r < 0)
		client->failed =
			r == -EIO ? "there are no authorities for its certificate" : "no memory";
	else
		secure(client);
}

static void end_connect(struct redis_client *client)
{
	int error = 0;
	socklen_t size = sizeof(error);

	if (getsockopt(client->fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0 || error != 0)
		client->failed = "it cannot be reached";
	else if (client->options.server->tls)
		begin_tls(client);
	else
		begin_greeting(client);
}

void redis_client_go_on(struct redis_client *client)
{
	if (client->state == CLIENT_STATE_CONNECTING)
		end_connect(client);
	else
		secure(client);
}
