/*
 * The client against a server of the test's own: what it says, and what it makes of what it hears.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <hiredis.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/socket_address.h"
#include "base/str.h"

#include "supervisor/api/redis/client.h"
#include "tests/lib/test.h"

#define GREETING "*3\r\n$4\r\nAUTH\r\n$1\r\nu\r\n$2\r\npw\r\n*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n" PING
#define PING     "*1\r\n$4\r\nPING\r\n"

struct rig {
	sd_event *event;
	struct redis_server server;
	struct redis_client *client;
	int listener;
	int fd; /* the server's end */
	char said[4096];
	size_t n_said;
	unsigned int n_connected;
	unsigned int n_lost;
	unsigned int n_answers;
	unsigned int n_nothing; /* of the answers */
	unsigned int n_messages;
	char last[64];
};

static void on_connected(void *userdata)
{
	((struct rig *)userdata)->n_connected++;
}

static void on_lost(void *userdata)
{
	((struct rig *)userdata)->n_lost++;
}

static void on_message(void *userdata, const struct redisReply *reply)
{
	struct rig *rig = userdata;

	rig->n_messages++;
	assert_int_equal(str_copy(rig->last, sizeof(rig->last), reply->element[2]->str), 0);
}

static void on_answer(void *userdata, const struct redisReply *reply)
{
	struct rig *rig = userdata;

	rig->n_answers++;
	rig->n_nothing += reply == NULL;
	rig->last[0] = '\0';
	if (reply && reply->str)
		assert_int_equal(str_copy(rig->last, sizeof(rig->last), reply->str), 0);
}

/* Whoever is told that it is lost may try again, and is refused. */
static void on_answer_again(void *userdata, const struct redisReply *reply)
{
	struct rig *rig = userdata;

	on_answer(userdata, reply);
	if (!reply)
		assert_int_equal(redis_client_ask(rig->client, on_answer, rig, "PING"), -ENOTCONN);
}

static void begin(struct rig *rig, const struct redis_client_events *events, size_t max_commands,
		  size_t max_bytes)
{
	union socket_address at = {
		.v4 = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}}
        };
	socklen_t size = sizeof(at);

	*rig = (struct rig){.fd = -1};
	rig->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(rig->listener, &at.any, sizeof(at.v4)), 0);
	assert_int_equal(listen(rig->listener, 4), 0);
	assert_int_equal(getsockname(rig->listener, &at.any, &size), 0);
	rig->server = (struct redis_server){
		.place = {.address = {.bytes = {127, 0, 0, 1}, .family = AF_INET, .prefix = 32},
			  .port = ntohs(at.v4.sin_port)},
		.database = "3",
		.user = "u",
		.url_password = "pw",
		.password = "of the option",
	};
	assert_true(sd_event_new(&rig->event) >= 0);
	assert_int_equal(redis_client_new(
				 &(struct redis_client_options){
					 .event = rig->event,
					 .server = &rig->server,
					 .name = "test",
					 .max_commands = max_commands,
					 .max_bytes = max_bytes,
				 },
				 events, rig, &rig->client),
			 0);
}

static void end(struct rig *rig)
{
	rig->client = redis_client_free(rig->client);
	rig->event = sd_event_unref(rig->event);
	rig->fd = fd_close(rig->fd);
	rig->listener = fd_close(rig->listener);
}

static void turn(struct rig *rig)
{
	ssize_t n;

	assert_true(sd_event_run(rig->event, 5 * USEC_PER_MS) >= 0);
	if (rig->fd < 0)
		return;
	n = recv(rig->fd, rig->said + rig->n_said, sizeof(rig->said) - 1 - rig->n_said,
		 MSG_DONTWAIT);
	rig->n_said += n > 0 ? (size_t)n : 0;
	rig->said[rig->n_said] = '\0';
}

#define until(rig, condition)                                                                      \
	do {                                                                                       \
		for (int turns_ = 0; !(condition); turns_++) {                                     \
			assert_true(turns_ < 4000);                                                \
			turn(rig);                                                                 \
		}                                                                                  \
	} while (0)

static void say(struct rig *rig, const char *text)
{
	assert_int_equal(send(rig->fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

static void take(struct rig *rig)
{
	assert_true(sd_event_run(rig->event, 0) >= 0);
	rig->fd = fd_close(rig->fd);
	rig->n_said = 0;
	/* It is in the backlog once the client's connect was called. */
	for (int i = 0; rig->fd < 0 && i < 4000; i++) {
		rig->fd = accept4(rig->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (rig->fd < 0)
			turn(rig);
	}
	assert_true(rig->fd >= 0);
}

static void connect_it(struct rig *rig)
{
	assert_int_equal(fd_set_nonblock(rig->listener, 1), 0);
	take(rig);
	until(rig, str_equal(rig->said, GREETING));
	say(rig, "+OK\r\n+OK\r\n+PONG\r\n");
	until(rig, redis_client_is_up(rig->client));
	rig->n_said = 0;
	rig->said[0] = '\0';
}

static const struct redis_client_events events = {.connected = on_connected, .lost = on_lost};

static void test_redis_client_greets_then_pipelines(void **state)
{
	struct rig rig;

	(void)state;
	begin(&rig, &events, 0, 0);
	assert_false(redis_client_is_up(rig.client));
	assert_int_equal(redis_client_ask(rig.client, on_answer, &rig, "PING"), -ENOTCONN);
	connect_it(&rig);
	assert_int_equal(rig.n_connected, 1);
	assert_int_equal(redis_client_ask(rig.client, on_answer, &rig, "GET", "a"), 0);
	assert_int_equal(redis_client_ask(rig.client, on_answer, &rig, "GET", "b"), 0);
	until(&rig,
	      str_equal(rig.said, "*2\r\n$3\r\nGET\r\n$1\r\na\r\n*2\r\n$3\r\nGET\r\n$1\r\nb\r\n"));
	say(&rig, "$3\r\none\r\n$3");
	until(&rig, rig.n_answers == 1);
	assert_string_equal(rig.last, "one");
	say(&rig, "\r\ntwo\r\n");
	until(&rig, rig.n_answers == 2);
	assert_string_equal(rig.last, "two");
	assert_int_equal(redis_client_ask(rig.client, on_answer, &rig, "X"), 0);
	say(&rig, "-NOPERM no\r\n");
	until(&rig, rig.n_answers == 3);
	assert_int_equal(rig.n_nothing, 0);
	end(&rig);
}

static void test_redis_client_lost_answers_all_and_comes_back(void **state)
{
	struct rig rig;

	(void)state;
	begin(&rig, &events, 0, 0);
	connect_it(&rig);
	assert_int_equal(redis_client_ask(rig.client, on_answer_again, &rig, "GET", "a"), 0);
	assert_int_equal(redis_client_ask(rig.client, on_answer_again, &rig, "GET", "b"), 0);
	rig.fd = fd_close(rig.fd);
	until(&rig, rig.n_lost == 1);
	assert_int_equal(rig.n_nothing, 2);
	assert_string_equal(redis_client_reason(rig.client), "it closed the connection");
	connect_it(&rig);
	assert_int_equal(rig.n_connected, 2);
	/* At the end too. */
	assert_int_equal(redis_client_ask(rig.client, on_answer, &rig, "GET", "a"), 0);
	end(&rig);
	assert_int_equal(rig.n_nothing, 3);
	assert_int_equal(rig.n_lost, 1);
}

static void test_redis_client_a_late_answer_ends_the_connection(void **state)
{
	struct rig rig;
	const char *words[] = {"GET", "a"};

	(void)state;
	begin(&rig, &events, 0, 0);
	connect_it(&rig);
	assert_int_equal(
		redis_client_send(
			rig.client,
			&(struct redis_command){.word = words, .n = 2, .timeout = 50 * USEC_PER_MS},
			on_answer, &rig),
		0);
	until(&rig, rig.n_lost == 1);
	assert_int_equal(rig.n_nothing, 1);
	assert_string_equal(redis_client_reason(rig.client), "it does not answer");
	end(&rig);
}

static void test_redis_client_refusals_are_no_connection(void **state)
{
	static const struct {
		const char *answer;
		const char *reason;
	} cases[] = {
		{"-WRONGPASS x\r\n+OK\r\n+PONG\r\n", "the server refuses the login"     },
		{"+OK\r\n-ERR index\r\n+PONG\r\n",   "the server refuses the database"  },
		{"+OK\r\n+OK\r\n-LOADING x\r\n",     "the server is not ready"          },
		{"+OK\r\n+OK\r\n-NOAUTH x\r\n",      "the server wants a password"      },
		{"HTTP/1.1 400\r\n",                 "it does not speak Redis' protocol"},
		{"*2000000\r\n",                     "it does not speak Redis' protocol"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct rig rig;

		begin(&rig, &events, 0, 0);
		assert_int_equal(fd_set_nonblock(rig.listener, 1), 0);
		take(&rig);
		until(&rig, str_equal(rig.said, GREETING));
		say(&rig, cases[i].answer);
		until(&rig, str_equal(redis_client_reason(rig.client), cases[i].reason));
		assert_int_equal(rig.n_connected + rig.n_lost, 0);
		end(&rig);
	}
}

static void test_redis_client_bounds(void **state)
{
	static char big[3000];
	struct rig rig;

	(void)state;
	begin(&rig, &events, 3, 4096);
	connect_it(&rig);
	memset(big, 'x', sizeof(big) - 1);
	assert_int_equal(redis_client_ask(rig.client, on_answer, &rig, "SET", "a", big), 0);
	assert_int_equal(redis_client_ask(rig.client, on_answer, &rig, "SET", "a", big), -ENOBUFS);
	assert_int_equal(redis_client_ask(rig.client, on_answer, &rig, "GET", "a"), 0);
	assert_int_equal(redis_client_ask(rig.client, on_answer, &rig, "GET", "a"), 0);
	assert_int_equal(redis_client_ask(rig.client, on_answer, &rig, "GET", "a"), -ENOBUFS);
	say(&rig, "+OK\r\n$9000\r\n");
	until(&rig, rig.n_answers == 1);
	say(&rig, big);
	say(&rig, big);
	until(&rig, rig.n_lost == 1);
	assert_string_equal(redis_client_reason(rig.client), "its answer is too big");
	assert_int_equal(rig.n_nothing, 2);
	end(&rig);
}

static void test_redis_client_bounds_an_answer_of_small_parts(void **state)
{
	struct rig rig;

	(void)state;
	begin(&rig, &events, 0, 4096);
	connect_it(&rig);
	assert_int_equal(redis_client_ask(rig.client, on_answer, &rig, "SMEMBERS", "a"), 0);
	say(&rig, "*100000\r\n");
	for (int i = 0; i < 1000 && rig.n_lost == 0; i++) {
		IGNORE_RESULT(send(rig.fd, "$3\r\nabc\r\n", 9, MSG_NOSIGNAL));
		turn(&rig);
	}
	assert_int_equal(rig.n_lost, 1);
	assert_string_equal(redis_client_reason(rig.client), "its answer is too big");
	end(&rig);
}

static void test_redis_client_transaction_is_whole_or_nothing(void **state)
{
	const char *text = "x";
	const struct redis_command commands[] = {
		REDIS_COMMAND("SET", "a", text),
		REDIS_COMMAND("DEL", "b"),
	};
	char big[4000];
	const struct redis_command large[] = {REDIS_COMMAND("DEL", "b"), REDIS_COMMAND("DEL", big)};
	struct rig rig;

	(void)state;
	begin(&rig, &events, 5, 4096);
	assert_int_equal(redis_client_transact(rig.client, commands, 2, on_answer, &rig),
			 -ENOTCONN);
	connect_it(&rig);
	memset(big, 'x', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	assert_int_equal(redis_client_transact(rig.client, large, 2, on_answer, &rig), -ENOBUFS);
	assert_int_equal(redis_client_transact(rig.client, commands, 2, on_answer, &rig), 0);
	assert_int_equal(redis_client_transact(rig.client, commands, 2, on_answer, &rig), -ENOBUFS);
	assert_int_equal(redis_client_ask(rig.client, on_answer, &rig, "PING"), 0);
	until(&rig, strstr(rig.said, PING));
	assert_string_equal(rig.said, "*1\r\n$5\r\nMULTI\r\n"
				      "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nx\r\n"
				      "*2\r\n$3\r\nDEL\r\n$1\r\nb\r\n"
				      "*1\r\n$4\r\nEXEC\r\n" PING);
	say(&rig, "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n:1\r\n+PONG\r\n");
	until(&rig, rig.n_answers == 2);
	assert_string_equal(rig.last, "PONG");
	end(&rig);
}

static void test_redis_client_messages_are_no_answers(void **state)
{
	const struct redis_client_events subscriber = {.message = on_message};
	struct rig rig;

	(void)state;
	begin(&rig, &subscriber, 0, 0);
	connect_it(&rig);
	assert_int_equal(redis_client_ask(rig.client, on_answer, &rig, "SUBSCRIBE", "c"), 0);
	say(&rig, "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n"
		  "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$5\r\nhello\r\n");
	until(&rig, rig.n_messages == 1);
	assert_int_equal(rig.n_answers, 1);
	assert_string_equal(rig.last, "hello");
	say(&rig, "+surprise\r\n");
	until(&rig, str_equal(redis_client_reason(rig.client), "it answers what nobody asked"));
	end(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_redis_client_greets_then_pipelines),
		cmocka_unit_test(test_redis_client_lost_answers_all_and_comes_back),
		cmocka_unit_test(test_redis_client_a_late_answer_ends_the_connection),
		cmocka_unit_test(test_redis_client_refusals_are_no_connection),
		cmocka_unit_test(test_redis_client_bounds),
		cmocka_unit_test(test_redis_client_bounds_an_answer_of_small_parts),
		cmocka_unit_test(test_redis_client_transaction_is_whole_or_nothing),
		cmocka_unit_test(test_redis_client_messages_are_no_answers),
	};
	int n_before = test_begin();

	return test_end(n_before, cmocka_run_group_tests(tests, NULL, NULL));
}
