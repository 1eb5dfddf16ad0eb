/*
 * A client that leaves while its answer is awaited, in each order of the loop's steps: here they
 * are taken one at a time, where a busy worker takes them in any order.
 */
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"

#include "supervisor/api/config.h"
#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/reply.h"
#include "supervisor/api/http/request.h"
#include "supervisor/api/http/server.h"
#include "tests/lib/test.h"

/* Somebody who answers later, and hears once that he need not. */
struct waiter {
	struct http_server *server;
	uint64_t request;
	int n_asked;
	int n_left;
	int n_answered;
	int status;
};

static struct waiter waiter;

static void on_left(void *userdata)
{
	((struct waiter *)userdata)->n_left++;
}

static void handle(struct request *request)
{
	waiter.server = request->server;
	waiter.request = request->id;
	waiter.n_asked++;
	request_on_left(request, on_left, &waiter);
}

static const struct route rows[] = {
	{.method = ROUTE_GET, .pattern = "/wait", .handler = handle, .flags = ROUTE_PEER_ONLY},
};
const struct route_list routes_dagster = {rows, ARRAY_SIZE(rows)};

static void answered(struct request *request)
{
	waiter.n_answered++;
	waiter.status = request->status;
}

struct fixture {
	struct test_temp temp;
	sd_event *event;
	struct http_server *server;
	struct http_counters counters;
	struct api_config config;
	struct sockaddr_un address;
};

static int set_up(void **state)
{
	struct fixture *fixture = calloc(1, sizeof(*fixture));
	struct http_server_options options = {
		.config = &fixture->config,
		.counters = &fixture->counters,
		.answered = answered,
		.is_operator = true,
		.max_connections = 8,
		.max_streams = 8,
	};
	const char *reason;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	memset(&waiter, 0, sizeof(waiter));
	test_temp_init(&fixture->temp);
	fixture->address.sun_family = AF_UNIX;
	assert_true(str_format(fixture->address.sun_path, sizeof(fixture->address.sun_path),
			       "%s/socket", fixture->temp.path) >= 0);
	assert_int_equal(bind(fd, (const void *)&fixture->address, sizeof(fixture->address)), 0);
	assert_int_equal(listen(fd, 8), 0);
	assert_int_equal(sd_event_new(&fixture->event), 0);
	assert_int_equal(http_server_new(fixture->event, fd, &options, &fixture->server, &reason),
			 0);
	*state = fixture;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *fixture = *state;

	fixture->server = http_server_free(fixture->server);
	fixture->event = sd_event_unref(fixture->event);
	test_temp_done(&fixture->temp);
	free(fixture);
	return 0;
}

/* One step of the loop; what replies set off is run by whoever wants it. */
static void step(struct fixture *fixture)
{
	assert_true(sd_event_run(fixture->event, 1000000) >= 0);
}

static int ask(struct fixture *fixture)
{
	static const char text[] = "GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n";
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(connect(fd, (const void *)&fixture->address, sizeof(fixture->address)), 0);
	assert_int_equal(send(fd, text, sizeof(text) - 1, MSG_NOSIGNAL), sizeof(text) - 1);
	for (int i = 0; i < 100 && waiter.n_asked == 0; i++)
		step(fixture);
	assert_int_equal(waiter.n_asked, 1);
	assert_non_null(request_get(waiter.server, waiter.request));
	return fd;
}

/* Until nothing of the request is left. */
static void run_out(struct fixture *fixture)
{
	for (int i = 0; i < 100 && http_server_requests(fixture->server) > 0; i++) {
		http_server_run(fixture->server);
		if (http_server_requests(fixture->server) > 0)
			step(fixture);
	}
	assert_int_equal(http_server_requests(fixture->server), 0);
}

/* Whoever answers in the moment between finds nobody, and frees what waited: it must have been told
 * by then, and is told no more. */
static void test_who_waits_is_told_before_the_request_is_gone(void **state)
{
	struct fixture *fixture = *state;
	int fd = ask(fixture);

	fd = fd_close(fd);
	for (int i = 0; i < 100 && request_get(waiter.server, waiter.request); i++)
		step(fixture);
	assert_null(request_get(waiter.server, waiter.request));
	assert_int_equal(http_server_requests(fixture->server), 1);
	assert_int_equal(waiter.n_left, 1);
	run_out(fixture);
	assert_int_equal(waiter.n_left, 1);
	assert_int_equal(waiter.n_answered, 1);
	assert_int_equal(waiter.status, 0);
}

/* Answered first: then nobody is told that the client left. */
static void test_who_has_answered_is_not_told(void **state)
{
	struct fixture *fixture = *state;
	struct request *request;
	int fd = ask(fixture);

	fd = fd_close(fd);
	request = request_get(waiter.server, waiter.request);
	assert_non_null(request);
	reply_detail(request, MHD_HTTP_OK, "answer");
	run_out(fixture);
	assert_int_equal(waiter.n_left, 0);
	assert_int_equal(waiter.status, MHD_HTTP_OK);
}

/* The end of the server is an end of each. */
static void test_who_waits_at_the_end_is_told_once(void **state)
{
	struct fixture *fixture = *state;
	int fd = ask(fixture);

	fixture->server = http_server_free(fixture->server);
	assert_int_equal(waiter.n_left, 1);
	fd = fd_close(fd);
}

#define LEFT_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
static const struct CMUnitTest tests[] = {
	LEFT_TEST(test_who_waits_is_told_before_the_request_is_gone),
	LEFT_TEST(test_who_has_answered_is_not_told),
	LEFT_TEST(test_who_waits_at_the_end_is_told_once),
};

TEST_MAIN(tests)
