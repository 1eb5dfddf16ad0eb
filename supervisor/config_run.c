/*
 * Theory. The reader is a worker with one input and one output: standard input is a snapshot of the
 * files, standard output takes one struct config_answer, standard error takes complaints. It is
 * watched from a loop, the service's own at a reload, so that no launch waits for it; the wait is
 * bounded in time and in bytes, and the answer is checked like any other message from a process
 * that has parsed text. It has ended when both pipes and the process have.
 */
#include "supervisor/config_run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/config_bundle.h"
#include "base/io.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/str.h"

#include "sandboxd/config.h"
#include "sandboxd/launch.h"
#include "supervisor/config_check.h"
#include "supervisor/host.h"
#include "supervisor/log_relay.h"
#include "supervisor/options.h"
#include "supervisor/worker_spawn.h"

#define TIMEOUT (10 * USEC_PER_SEC)

_Static_assert(CONFIG_REASON_BYTES <= LAUNCH_CONFIG_TEXT, "a worker is told it whole");

int config_source_open(struct config_source *source, const char *path, struct err *err)
{
	source->may_be_missing = !path;
	source->path = path ? path : OPTIONS_DEFAULT_CONFIG;
	/* One thread and nobody calls setenv. NOLINTNEXTLINE(concurrency-mt-unsafe) */
	source->provider = getenv(CONFIG_PROVIDER_VARIABLE);
	source->dir_fd = config_bundle_open_dir(source->path, !path, err);
	return source->dir_fd < 0 && source->dir_fd != -ENOENT ? source->dir_fd : 0;
}

void config_source_done(struct config_source *source)
{
	source->dir_fd = source->dir_fd >= 0 ? fd_close(source->dir_fd) : -1;
}

struct config_run {
	struct config_run_watcher watcher;
	int pid_fd;
	int step_fd; /* worker_spawn's pipe */
	int answer_fd;
	int text_fd;
	struct loop_source *process_source;
	struct loop_source *answer_source;
	struct loop_source *text_source;
	struct loop_source *timer;
	struct config_answer answer;
	size_t n_answer;                       /* one more than the struct: too long */
	char text[CONFIG_ERROR_MAX_BYTES + 1]; /* and a NUL */
	size_t n_text;
};

static int start_reader(const struct host *host, int file_fd, struct config_run *run,
			struct err *err)
{
	AUTO_CLOSE int answer_write = -1;
	AUTO_CLOSE int text_write = -1;
	struct worker_spawn spawn = {
		.program = "sandboxd-config",
		.id = host_worker_ids(host) + WORKER_ID_CONFIG,
		.state_fd = -1,
		.no_network = true,
	};
	int answer_pipe[2];
	int text_pipe[2];

	if (pipe2(answer_pipe, O_CLOEXEC) < 0)
		return err_fail(err, -errno, "config", "pipe");
	run->answer_fd = answer_pipe[0];
	answer_write = answer_pipe[1];
	if (pipe2(text_pipe, O_CLOEXEC) < 0)
		return err_fail(err, -errno, "config", "pipe");
	run->text_fd = text_pipe[0];
	text_write = text_pipe[1];
	spawn.fds[0] = (struct worker_spawn_fd){file_fd, STDIN_FILENO};
	spawn.fds[1] = (struct worker_spawn_fd){answer_write, STDOUT_FILENO};
	spawn.fds[2] = (struct worker_spawn_fd){text_write, STDERR_FILENO};
	spawn.fds[3] = (struct worker_spawn_fd){host_policy_fd(host), WORKER_FD_POLICY};
	spawn.n_fds = 4;
	return worker_spawn(host, &spawn, &run->pid_fd, &run->step_fd, err);
}

/* One read into what is left of a buffer. 0, 1 at its end, or -errno. */
static int take_bytes(int fd, void *buffer, size_t size, size_t *used)
{
	char beyond[1];
	ssize_t n;

	if (*used < size)
		n = io_read(fd, (char *)buffer + *used, size - *used);
	else
		n = io_read(fd, beyond, sizeof(beyond));
	if (n < 0)
		return (int)n;
	if (n == 0)
		return 1;
	*used += (size_t)n;
	return *used > size ? -EFBIG : 0;
}

/* What the reader wrote goes to the log line by line; it never holds a value of the files. */
static void log_complaints(const struct config_run *run)
{
	struct log_relay relay = LOG_RELAY_NULL;

	relay.from = "sandboxd-config";
	log_relay_feed(&relay, run->text, run->n_text);
	log_relay_feed(&relay, "\n", 1);
}

static void stop_watching(struct config_run *run)
{
	run->process_source = loop_remove(run->process_source);
	run->answer_source = loop_remove(run->answer_source);
	run->text_source = loop_remove(run->text_source);
	run->timer = loop_remove(run->timer);
}

static void run_free(struct config_run *run)
{
	stop_watching(run);
	run->pid_fd = fd_close(run->pid_fd);
	run->step_fd = fd_close(run->step_fd);
	run->answer_fd = fd_close(run->answer_fd);
	run->text_fd = fd_close(run->text_fd);
	explicit_bzero(&run->answer, sizeof(run->answer)); /* has keys and passwords */
	free(run);
}

static void kill_reader(const struct config_run *run)
{
	/* It is pid 1 of its namespace and takes all it has with it. */
	if (run->pid_fd >= 0)
		worker_end(run->pid_fd, "sandboxd-config");
}

/* Tell it, and end. */
static void finish(struct config_run *run, int r, const char *complaint, struct err *err)
{
	stop_watching(run);
	log_complaints(run);
	run->watcher.done(run->watcher.userdata, r == 0 ? &run->answer : NULL, complaint, err);
	run_free(run);
}

static int fail(struct config_run *run, int r, const char *text)
{
	struct err err = ERR_NULL;

	(void)err_fail(&err, r, "config", "%s", text);
	kill_reader(run);
	finish(run, r, "", &err);
	return 0;
}

/* Its own word for it, where that is one. */
static void take_reason(const struct config_run *run, char ret_reason[static CONFIG_REASON_BYTES])
{
	struct config_refusal refusal;

	if (run->n_answer != sizeof(refusal))
		return;
	memcpy(&refusal, &run->answer, sizeof(refusal));
	if (refusal.magic != CONFIG_REFUSAL_MAGIC)
		return;
	IGNORE_RESULT(str_copy_n(ret_reason, CONFIG_REASON_BYTES, refusal.reason,
				 strnlen(refusal.reason, CONFIG_REASON_BYTES - 1)));
	str_printable(ret_reason);
}

static void judge(struct config_run *run)
{
	char complaint[CONFIG_REASON_BYTES] = "";
	siginfo_t info = {0};
	struct err err = ERR_NULL;
	int r = 0;

	/* It has ended: this does not wait. */
	if (waitid(P_PIDFD, (id_t)run->pid_fd, &info, WEXITED) < 0)
		r = err_fail(&err, -errno, "config", "wait for the reader");
	else if (worker_spawn_result(run->step_fd, &err))
		r = -EIO;
	else if (info.si_code != CLD_EXITED || info.si_status != 0)
		r = err_fail(&err, -EINVAL, "config",
			     "the configuration is refused (reader: code %d status %d)",
			     info.si_code, info.si_status);
	else
		r = config_check(&run->answer, run->n_answer, &err);
	if (r < 0)
		take_reason(run, complaint);
	finish(run, r, complaint, &err);
}

static int judge_when_ended(struct config_run *run)
{
	if (!run->process_source && run->answer_fd < 0 && run->text_fd < 0)
		judge(run);
	return 0;
}

static int on_answer(void *userdata, uint32_t events)
{
	struct config_run *run = userdata;
	int r;

	(void)events;
	r = take_bytes(run->answer_fd, &run->answer, sizeof(run->answer), &run->n_answer);
	if (r < 0)
		return fail(run, r, "the reader says too much");
	if (r == 1) {
		run->answer_source = loop_remove(run->answer_source);
		run->answer_fd = fd_close(run->answer_fd);
	}
	return judge_when_ended(run);
}

static int on_text(void *userdata, uint32_t events)
{
	struct config_run *run = userdata;
	int r;

	(void)events;
	r = take_bytes(run->text_fd, run->text, sizeof(run->text) - 1, &run->n_text);
	if (r < 0)
		return fail(run, r, "the reader says too much");
	if (r == 1) {
		run->text_source = loop_remove(run->text_source);
		run->text_fd = fd_close(run->text_fd);
	}
	return judge_when_ended(run);
}

static int on_process(void *userdata, uint32_t events)
{
	struct config_run *run = userdata;

	(void)events;
	run->process_source = loop_remove(run->process_source);
	return judge_when_ended(run);
}

static int on_timeout(void *userdata, uint32_t events)
{
	(void)events;
	return fail(userdata, -ETIMEDOUT, "the reader gives no answer");
}

static int watch(struct config_run *run)
{
	struct loop *loop = run->watcher.loop;
	int r;

	r = loop_add(loop, run->answer_fd, EPOLLIN, on_answer, run, &run->answer_source);
	if (r == 0)
		r = loop_add(loop, run->text_fd, EPOLLIN, on_text, run, &run->text_source);
	if (r == 0)
		r = loop_add(loop, run->pid_fd, EPOLLIN, on_process, run, &run->process_source);
	if (r == 0)
		r = loop_add_timer(loop, clock_add(clock_boottime(), TIMEOUT), on_timeout, run,
				   &run->timer);
	return r;
}

int config_run_start(const struct host *host, const struct config_source *source,
		     const struct config_run_watcher *watcher, struct config_run **ret_run,
		     struct err *err)
{
	AUTO_CLOSE int bundle_fd = -1;
	struct config_run *run;
	int r;

	bundle_fd = config_bundle_make(source->dir_fd, source->path, source->may_be_missing,
				       source->provider, NULL, err);
	if (bundle_fd < 0)
		return bundle_fd;
	run = calloc(1, sizeof(*run));
	if (!run)
		return err_fail(err, -ENOMEM, "config", "memory");
	run->watcher = *watcher;
	run->pid_fd = -1;
	run->step_fd = -1;
	run->answer_fd = -1;
	run->text_fd = -1;
	r = start_reader(host, bundle_fd, run, err);
	if (r == 0) {
		r = watch(run);
		if (r < 0)
			(void)err_fail(err, r, "config", "watch the reader");
	}
	if (r < 0) {
		(void)config_run_cancel(run);
		return r;
	}
	*ret_run = run;
	return 0;
}

struct config_run *config_run_cancel(struct config_run *run)
{
	if (!run)
		return NULL;
	kill_reader(run);
	run_free(run);
	return NULL;
}

/* At the start there is nothing else to do. */
struct wait {
	struct loop *loop;
	struct config_answer *answer;
	struct err *err;
	int r;
};

static void on_waited(void *userdata, const struct config_answer *answer, const char *complaint,
		      const struct err *err)
{
	struct wait *wait = userdata;

	(void)complaint; /* it is in the log */
	if (answer) {
		*wait->answer = *answer;
	} else {
		*wait->err = *err;
		wait->r = -err->error_number;
	}
	loop_quit(wait->loop, 0);
}

int config_run(const struct host *host, const struct config_source *source,
	       struct config_answer *ret_answer, struct err *err)
{
	struct wait wait = {.answer = ret_answer, .err = err};
	struct config_run_watcher watcher = {.done = on_waited, .userdata = &wait};
	struct config_run *run = NULL;
	int r;

	r = loop_new(&wait.loop);
	if (r < 0)
		return err_fail(err, r, "config", "loop");
	watcher.loop = wait.loop;
	r = config_run_start(host, source, &watcher, &run, err);
	if (r == 0) {
		r = loop_run(wait.loop);
		if (r < 0) {
			(void)config_run_cancel(run);
			(void)err_fail(err, r, "config", "loop");
		}
	}
	loop_free(wait.loop);
	return r < 0 ? r : wait.r;
}
