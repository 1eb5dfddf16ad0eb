#include "tests/unit/api_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/frame.h"
#include "base/io.h"
#include "base/json.h"
#include "base/launch.h"
#include "base/sockmsg.h"
#include "base/str.h"

#include "sandboxd/egress.h"
#include "supervisor/config/config_parse.h"
#include "tests/unit/provider_fake.h"

#define POLL_MS      50
#define ANSWER_BYTES ((size_t)256 * 1024)
#define FIRST_COPY   64 /* above all numbers of worker.h */

#define MUST(expression) must((expression), #expression)

static int must(int result, const char *what)
{
	if (result < 0)
		fail_msg("%s: %s", what, strerrordesc_np(errno));
	return result;
}

/* The supervisor. */

static void supervisor_say(struct api_rig *rig, const struct launch_msg *msg, int fd)
{
	/* One that has just died hears nothing. */
	IGNORE_RESULT(sockmsg_send(rig->supervisor_fd, msg, sizeof(*msg), fd >= 0 ? &fd : NULL,
				   fd >= 0 ? 1 : 0));
}

/* A new pair: the end that stays is in *ours. */
static void give_link(struct api_rig *rig, uint32_t which, int *ours)
{
	struct launch_msg msg = launch_message(LAUNCH_EVENT_LINK, 0, NULL);
	int fds[2];

	assert_int_equal(sockmsg_pair(fds, 1), 0);
	msg.u.link.egress = which;
	supervisor_say(rig, &msg, fds[1]);
	(void)fd_close(fds[1]);
	*ours = fd_close(*ours);
	*ours = fds[0];
}

static void greet(struct api_rig *rig, const struct launch_msg *ask)
{
	struct launch_msg answer = launch_message(ask->type + 1, ask->serial, NULL);
	struct launch_msg facts = launch_message(LAUNCH_EVENT_FACTS, 0, NULL);

	answer.u.hello.max_sessions = 100;
	answer.u.hello.n_profiles = 2;
	answer.u.hello.n_egress = 1;
	facts.u.facts.n_egress = facts.u.facts.n_egress_up = 1;
	facts.u.facts.engine = rig->has_docker ? LAUNCH_ENGINE_DOCKER : LAUNCH_ENGINE_NONE;
	facts.u.facts.provider_up = rig->has_docker;
	supervisor_say(rig, &facts, -1);
	give_link(rig, 0, &rig->egress_fd);
	if (rig->has_docker)
		give_link(rig, LAUNCH_LINK_PROVIDER, &rig->far_fd[API_FAR_DOCKER]);
	supervisor_say(rig, &answer, -1);
}

static void tell_stray(struct api_rig *rig, const struct launch_msg *ask)
{
	static const uint8_t stray[ID_BYTES] = {8, 8, 8, 8, 8, 8, 0x48, 8, 0x88};
	struct launch_msg answer = api_answer_to(ask, LAUNCH_E_NONE);

	answer.more = 1;
	memcpy(answer.session, stray, ID_BYTES);
	supervisor_say(rig, &answer, -1);
}

/* It has no session of its own, but a stray one. */
static void answer_worker(struct api_rig *rig, const struct launch_msg *ask)
{
	struct launch_msg answer = api_answer_to(ask, LAUNCH_E_NONE);

	if (ask->type == LAUNCH_HELLO) {
		greet(rig, ask);
		return;
	}
	if (ask->type == LAUNCH_ADOPT && rig->has_stray)
		tell_stray(rig, ask);
	if (ask->type != LAUNCH_ADOPT && ask->type != LAUNCH_LEASE && ask->type != LAUNCH_LOG_LEVEL)
		answer.error = LAUNCH_E_NOT_FOUND;
	supervisor_say(rig, &answer, -1);
}

/* What is read of a socket, or 0: nothing now; -1: its end. */
static int take(int fd, void *msg, size_t size)
{
	ssize_t n = fd < 0 ? -EAGAIN : sockmsg_recv(fd, msg, size, NULL, 0);

	if (n == -EAGAIN)
		return 0;
	return n == (ssize_t)size ? 1 : -1;
}

static void pump_supervisor(struct api_rig *rig)
{
	struct launch_msg msg;

	while (take(rig->supervisor_fd, &msg, sizeof(msg)) > 0)
		answer_worker(rig, &msg);
}

/* The egress worker: every policy is in force at once. */
static void pump_egress(struct api_rig *rig)
{
	struct egress_msg msg;

	while (take(rig->egress_fd, &msg, sizeof(msg)) > 0) {
		if (msg.type == EGRESS_END)
			msg.type = EGRESS_ACK;
		else if (msg.type != EGRESS_HELLO)
			continue;
		IGNORE_RESULT(sockmsg_send(rig->egress_fd, &msg, sizeof(msg), NULL, 0));
	}
}

/* The providers. */

static void note_ask(struct api_rig *rig, enum api_far from, const struct launch_msg *msg)
{
	if (from == API_FAR_FAKE && msg->type == LAUNCH_KILL && rig->kill_refused) {
		rig->n_kills++;
		api_answer(rig, from, msg, rig->kill_refused);
		return;
	}
	for (size_t i = 0; i < API_RIG_ASKS; i++) {
		if (rig->ask[i].is_there)
			continue;
		rig->ask[i] = (struct api_ask){.is_there = true, .from = from, .msg = *msg};
		return;
	}
	fail_msg("the providers are asked too much");
}

static void pump_far(struct api_rig *rig, enum api_far which)
{
	struct launch_msg msg;

	while (take(rig->far_fd[which], &msg, sizeof(msg)) > 0) {
		assert_int_equal(launch_check(&msg, sizeof(msg), 0), 0);
		note_ask(rig, which, &msg);
	}
}

/* HTTP. */

static void pump_call(struct api_call *call)
{
	char bytes[4096];
	ssize_t n;

	while (call->fd >= 0) {
		n = recv(call->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0)
			call->fd = fd_close(call->fd);
		else
			assert_int_equal(buf_append(&call->answer, bytes, (size_t)n), 0);
	}
}

/* All that has come. */
static void pump(struct api_rig *rig)
{
	pump_supervisor(rig);
	pump_egress(rig);
	for (enum api_far which = 0; which < API_FAR_MAX_; which++)
		pump_far(rig, which);
	for (size_t i = 0; i < API_RIG_CALLS; i++)
		pump_call(&rig->call[i]);
}

static void add_poll(struct pollfd *polls, nfds_t *n, int fd)
{
	if (fd >= 0)
		polls[(*n)++] = (struct pollfd){.fd = fd, .events = POLLIN};
}

void api_wait(struct api_rig *rig)
{
	struct pollfd polls[2 + API_FAR_MAX_ + API_RIG_CALLS + API_RIG_SHIMS];
	nfds_t n = 0;

	add_poll(polls, &n, rig->supervisor_fd);
	add_poll(polls, &n, rig->egress_fd);
	for (size_t i = 0; i < API_FAR_MAX_; i++)
		add_poll(polls, &n, rig->far_fd[i]);
	for (size_t i = 0; i < API_RIG_CALLS; i++)
		add_poll(polls, &n, rig->call[i].fd);
	for (size_t i = 0; i < API_RIG_SHIMS; i++)
		add_poll(polls, &n, rig->shim_fd[i]);
	(void)poll(polls, n, POLL_MS);
	pump(rig);
}

/* Within a loop that waits for something. */
static void wait_for(struct api_rig *rig, usec_t since, const char *what)
{
	if (clock_boottime() - since > API_RIG_PATIENCE)
		fail_msg("waited in vain for %s", what);
	api_wait(rig);
	if (api_is_down(rig))
		fail_msg("the worker ended before %s", what);
}

/* The worker. */

static int listen_at(const struct api_rig *rig, const char *name)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const void *at = &address; /* a cast would be a pun to the compiler */
	int fd = MUST(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));

	assert_int_equal(str_format(address.sun_path, sizeof(address.sun_path), "%s/%s",
				    rig->temp.path, name),
			 0);
	(void)unlink(address.sun_path);
	MUST(bind(fd, at, sizeof(address)));
	MUST(listen(fd, 64));
	return fd;
}

struct start {
	int fds[WORKER_FD_NEXT_ + 1]; /* by number; -1: none */
	char late[24];
};

static void become_worker(const struct api_rig *rig, struct start *start)
{
	static char program[] = TEST_BIN_DIR "/../tests/unit/worker_fake";
	char path[sizeof(rig->temp.path)];
	char *argv[] = {program, path, start->late, NULL};

	memcpy(path, rig->temp.path, sizeof(path));
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int i = 0; i <= WORKER_FD_NEXT_; i++)
		if (start->fds[i] >= 0)
			start->fds[i] = fd_dup(start->fds[i], FIRST_COPY);
	for (int i = 0; i <= WORKER_FD_NEXT_; i++)
		if (start->fds[i] >= 0 && dup2(start->fds[i], i) < 0)
			_exit(EXIT_FAILURE);
	(void)execv(program, argv);
	_exit(EXIT_FAILURE);
}

void api_start(struct api_rig *rig, uint64_t is_late)
{
	struct start start;
	int supervisor[2];
	int fake[2];

	if (geteuid() != 0) {
		print_message("skipped: it needs root\n");
		skip();
	}
	assert_int_equal(rig->pid, 0);
	for (int i = 0; i <= WORKER_FD_NEXT_; i++)
		start.fds[i] = -1;
	assert_int_equal(sockmsg_pair(supervisor, 1), 0);
	assert_int_equal(sockmsg_pair(fake, 1), 0);
	start.fds[WORKER_FD_SUPERVISOR] = supervisor[1];
	start.fds[WORKER_FD_POLICY] = MUST(open(TEST_BIN_DIR "/policy.img", O_RDONLY | O_CLOEXEC));
	start.fds[WORKER_FD_CONFIG] =
		fd_memfd_sealed("config", &rig->config->api, sizeof(rig->config->api), 0);
	start.fds[WORKER_FD_CONTROL] = listen_at(rig, "control");
	start.fds[WORKER_FD_OPERATOR] = listen_at(rig, "operator");
	start.fds[WORKER_FD_STATE] =
		MUST(openat(rig->temp.fd, "state", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	start.fds[PROVIDER_FAKE_FD] = fake[1];
	assert_int_equal(
		str_format(start.late, sizeof(start.late), "%llu", (unsigned long long)is_late), 0);
	rig->pid = MUST(fork());
	if (rig->pid == 0)
		become_worker(rig, &start);
	for (int i = 0; i <= WORKER_FD_NEXT_; i++)
		start.fds[i] = fd_close(start.fds[i]);
	rig->supervisor_fd = supervisor[0];
	rig->far_fd[API_FAR_FAKE] = fake[0];
}

void api_start_empty(struct api_rig *rig, uint64_t is_late)
{
	struct launch_msg ask;

	api_start(rig, is_late);
	ask = api_hear(rig, API_FAR_FAKE, LAUNCH_ADOPT);
	api_answer(rig, API_FAR_FAKE, &ask, LAUNCH_E_NONE);
}

/* Nothing of it is left with us. */
static int forget_worker(struct api_rig *rig)
{
	int status = 0;

	assert_int_equal(MUST(waitpid(rig->pid, &status, 0)), rig->pid);
	rig->pid = 0;
	rig->supervisor_fd = fd_close(rig->supervisor_fd);
	rig->egress_fd = fd_close(rig->egress_fd);
	for (size_t i = 0; i < API_FAR_MAX_; i++)
		rig->far_fd[i] = fd_close(rig->far_fd[i]);
	for (size_t i = 0; i < API_RIG_SHIMS; i++)
		rig->shim_fd[i] = fd_close(rig->shim_fd[i]);
	for (size_t i = 0; i < API_RIG_CALLS; i++) {
		rig->call[i].fd = fd_close(rig->call[i].fd);
		buf_done(&rig->call[i].answer);
	}
	memset(rig->ask, 0, sizeof(rig->ask));
	memset(rig->number, 0, sizeof(rig->number));
	return status;
}

void api_leave(struct api_rig *rig)
{
	int status;

	MUST(kill(rig->pid, SIGUSR2));
	status = forget_worker(rig);
	/* Also what a sanitizer finds at the end is another status. */
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

void api_crash(struct api_rig *rig)
{
	MUST(kill(rig->pid, SIGKILL));
	(void)forget_worker(rig);
}

bool api_is_down(struct api_rig *rig)
{
	siginfo_t info = {0};

	pump(rig);
	return waitid(P_PID, (id_t)rig->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
	       info.si_pid == rig->pid;
}

/* The rig. */

static void fill_config(struct api_rig *rig)
{
	static const char text[] = "[api]\nidle_timeout = 0s\n";
	const struct config_text file = {.text = text, .size = sizeof(text) - 1};
	struct buf complaints = BUF_NULL(3840);

	rig->config = calloc(1, sizeof(*rig->config));
	assert_non_null(rig->config);
	if (config_parse(&file, 1, rig->config, NULL, &complaints) < 0)
		fail_msg("%s", buf_text(&complaints));
	buf_done(&complaints);
}

int api_rig_set_up(void **state)
{
	struct api_rig *rig;

	rig = calloc(1, sizeof(*rig));
	assert_non_null(rig);
	rig->supervisor_fd = rig->egress_fd = -1;
	for (size_t i = 0; i < API_FAR_MAX_; i++)
		rig->far_fd[i] = -1;
	for (size_t i = 0; i < API_RIG_SHIMS; i++)
		rig->shim_fd[i] = -1;
	for (size_t i = 0; i < API_RIG_CALLS; i++)
		rig->call[i] = (struct api_call){.fd = -1, .answer = BUF_NULL(ANSWER_BYTES)};
	test_temp_init(&rig->temp);
	MUST(mkdirat(rig->temp.fd, "state", 0700));
	MUST(mkdirat(rig->temp.fd, "state/snapshots", 0700));
	fill_config(rig);
	*state = rig;
	return 0;
}

int api_rig_tear_down(void **state)
{
	struct api_rig *rig = *state;

	if (rig->pid != 0)
		api_crash(rig);
	test_temp_done(&rig->temp);
	free(rig->config);
	free(rig);
	return 0;
}

/* Asks. */

struct launch_msg api_hear(struct api_rig *rig, enum api_far from, enum launch_type type)
{
	usec_t since = clock_boottime();

	for (;;) {
		for (size_t i = 0; i < API_RIG_ASKS; i++) {
			struct api_ask *ask = &rig->ask[i];

			if (!ask->is_there || ask->from != from || ask->msg.type != type)
				continue;
			ask->is_there = false;
			return ask->msg;
		}
		wait_for(rig, since, "a request of a provider");
	}
}

unsigned int api_n_asked(struct api_rig *rig, enum api_far from, enum launch_type type)
{
	unsigned int n = 0;

	pump(rig);
	for (size_t i = 0; i < API_RIG_ASKS; i++)
		n += rig->ask[i].is_there && rig->ask[i].from == from &&
		     rig->ask[i].msg.type == type;
	return n;
}

void api_say(struct api_rig *rig, enum api_far to, const struct launch_msg *answer, int fd)
{
	assert_int_equal(launch_check(answer, sizeof(*answer), 1), 0);
	assert_int_equal(sockmsg_send(rig->far_fd[to], answer, sizeof(*answer),
				      fd >= 0 ? &fd : NULL, fd >= 0 ? 1 : 0),
			 0);
}

struct launch_msg api_answer_to(const struct launch_msg *ask, enum launch_error error)
{
	struct launch_msg answer =
		launch_message((enum launch_type)(ask->type + 1), ask->serial, ask->session);

	answer.error = error;
	if (error == LAUNCH_E_STEP) {
		answer.u.err.error_number = EIO;
		IGNORE_RESULT(str_copy(answer.u.err.step, sizeof(answer.u.err.step), "script"));
	}
	return answer;
}

void api_answer(struct api_rig *rig, enum api_far to, const struct launch_msg *ask,
		enum launch_error error)
{
	struct launch_msg answer = api_answer_to(ask, error);

	api_say(rig, to, &answer, -1);
}

void api_far_close(struct api_rig *rig, enum api_far which)
{
	rig->far_fd[which] = fd_close(rig->far_fd[which]);
}

void api_far_link(struct api_rig *rig)
{
	give_link(rig, LAUNCH_LINK_PROVIDER, &rig->far_fd[API_FAR_DOCKER]);
}

/* Shims. */

int api_shim(struct api_rig *rig, int *ret_fd)
{
	int fds[2];
	int shim = 0;

	while (rig->shim_fd[shim] >= 0)
		assert_true(++shim < API_RIG_SHIMS);
	assert_int_equal(sockmsg_pair(fds, 1), 0);
	rig->shim_fd[shim] = fds[0];
	rig->number[shim] = 0;
	*ret_fd = fds[1];
	return shim;
}

static void shim_say(struct api_rig *rig, int shim, enum wire_type type, uint32_t job,
		     const void *payload, size_t size)
{
	uint64_t number = frame_is_durable((uint16_t)type) ? ++rig->number[shim] : 0;
	struct wire_header header = frame_header((uint16_t)type, job, number, size);
	uint8_t message[1024];

	if (type == WIRE_HELLO)
		header.flags = rig->features;
	assert_true(sizeof(header) + size <= sizeof(message));
	memcpy(message, &header, sizeof(header));
	if (size > 0)
		memcpy(message + sizeof(header), payload, size);
	assert_int_equal(sockmsg_send(rig->shim_fd[shim], message, sizeof(header) + size, NULL, 0),
			 0);
}

void api_shim_greet(struct api_rig *rig, int shim, const uint8_t session[ID_BYTES], uint64_t sent)
{
	struct wire_hello hello = frame_hello(session, sent);
	const struct wire_stats stats = {0};

	rig->number[shim] = sent;
	shim_say(rig, shim, WIRE_HELLO, 0, &hello, sizeof(hello));
	shim_say(rig, shim, WIRE_STATS, 0, &stats, sizeof(stats));
}

/* The next frame of that type; its job. What comes before it is passed over. */
static uint32_t shim_hear(struct api_rig *rig, int shim, enum wire_type type)
{
	static uint8_t message[WIRE_FRAME_MAX_BYTES];
	usec_t since = clock_boottime();
	struct wire_header header;
	const uint8_t *payload;
	size_t size;
	ssize_t n;

	for (;;) {
		n = sockmsg_recv(rig->shim_fd[shim], message, sizeof(message), NULL, 0);
		if (n == -EAGAIN) {
			wait_for(rig, since, "a frame");
			continue;
		}
		assert_true(n > 0);
		assert_int_equal(
			frame_check(message, (size_t)n, FRAME_TO_SHIM, &header, &payload, &size),
			0);
		if (header.type == type)
			return header.job;
	}
}

uint32_t api_shim_begin(struct api_rig *rig, int shim)
{
	const struct wire_started started = {.pid = 7};
	uint32_t job = shim_hear(rig, shim, WIRE_EXEC);

	shim_say(rig, shim, WIRE_STARTED, job, &started, sizeof(started));
	return job;
}

void api_shim_pause(struct api_rig *rig, int shim)
{
	const struct wire_stats stats = {0};

	(void)shim_hear(rig, shim, WIRE_PAUSE);
	shim_say(rig, shim, WIRE_STATS, 0, &stats, sizeof(stats));
}

void api_shim_run(struct api_rig *rig, int shim, const char *says)
{
	const struct wire_exit ended = {0};
	uint32_t job = api_shim_begin(rig, shim);

	shim_say(rig, shim, WIRE_STDOUT, job, says, strlen(says));
	shim_say(rig, shim, WIRE_EXIT, job, &ended, sizeof(ended));
}

void api_shim_cut(struct api_rig *rig, int shim)
{
	struct wire_header header = frame_header(WIRE_STDOUT, 1, rig->number[shim] + 1, 100);

	assert_int_equal(sockmsg_send(rig->shim_fd[shim], &header, sizeof(header), NULL, 0), 0);
	api_shim_close(rig, shim);
}

void api_shim_close(struct api_rig *rig, int shim)
{
	rig->shim_fd[shim] = fd_close(rig->shim_fd[shim]);
}

void api_shim_wait_closed(struct api_rig *rig, int shim)
{
	static uint8_t message[WIRE_FRAME_MAX_BYTES];
	usec_t since = clock_boottime();
	ssize_t n;

	while ((n = sockmsg_recv(rig->shim_fd[shim], message, sizeof(message), NULL, 0)) != 0 &&
	       n != -ECONNRESET)
		if (n < 0)
			wait_for(rig, since, "the end of a handle");
	api_shim_close(rig, shim);
}

/* Clients. */

int api_send(struct api_rig *rig, const char *method, const char *path, const char *body)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const void *at = &address; /* a cast would be a pun to the compiler */
	char text[2048];
	struct api_call *call;
	int i = 0;

	while (rig->call[i].fd >= 0 || rig->call[i].answer.size > 0)
		assert_true(++i < API_RIG_CALLS);
	call = &rig->call[i];
	assert_int_equal(str_format(address.sun_path, sizeof(address.sun_path), "%s/operator",
				    rig->temp.path),
			 0);
	assert_int_equal(str_format(text, sizeof(text),
				    "%s %s HTTP/1.1\r\nHost: sandboxd\r\nConnection: close\r\n"
				    "Accept: application/json\r\nContent-Type: application/json\r\n"
				    "Content-Length: %zu\r\n\r\n%s",
				    method, path, body ? strlen(body) : 0, body ? body : ""),
			 0);
	call->fd = MUST(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
	MUST(connect(call->fd, at, sizeof(address)));
	assert_int_equal(io_write_all(call->fd, text, strlen(text)), 0);
	return i;
}

bool api_is_answered(struct api_rig *rig, int call)
{
	pump(rig);
	return rig->call[call].fd < 0;
}

int api_status(struct api_rig *rig, int call, json_t **ret_doc)
{
	struct buf *answer = &rig->call[call].answer;
	usec_t since = clock_boottime();
	const char *reason = "";
	const char *body;
	int status = 0;

	while (rig->call[call].fd >= 0)
		wait_for(rig, since, "an answer");
	if (!str_has_prefix(buf_text(answer), "HTTP/1.1 ") || answer->size < 12)
		fail_msg("no answer: %s", buf_text(answer));
	for (size_t i = 9; i < 12; i++)
		status = status * 10 + (answer->data[i] - '0');
	body = strstr(buf_text(answer), "\r\n\r\n");
	assert_non_null(body);
	body += 4;
	/* One answer each. */
	assert_null(strstr(body, "HTTP/1.1"));
	if (ret_doc && doc_parse(body, answer->size - (size_t)(body - (const char *)answer->data),
				 ret_doc, &reason) < 0)
		fail_msg("%s: %s", reason, body);
	buf_reset(answer);
	return status;
}

int api_call(struct api_rig *rig, const char *method, const char *path, const char *body,
	     json_t **ret_doc)
{
	return api_status(rig, api_send(rig, method, path, body), ret_doc);
}

void api_expect(struct api_rig *rig, int call, int status, const char *code)
{
	json_t *doc = NULL;
	const char *said;
	int came = api_status(rig, call, &doc);

	said = json_string_value(json_object_get(doc, "code"));
	if (came != status || (code && !str_equal(said ? said : "", code))) {
		char *text = json_dumps(doc, 0);

		json_decref(doc);
		fail_msg("%d %s, not %d %s", came, text, status, code ? code : "");
	}
	json_decref(doc);
}
