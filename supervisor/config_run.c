/*
 * Theory. The reader is a worker with one input and one output: standard input is a snapshot
 * of the files, standard output takes one struct config_answer, standard error takes complaints.
 * The supervisor waits for it, since before the answer there is nothing else to do; the wait is
 * bounded in time and in bytes, and the answer is checked like any other message from a process
 * that has parsed text.
 */
#include "supervisor/config_run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/config_bundle.h"
#include "base/io.h"
#include "base/log.h"
#include "base/str.h"

#include "sandboxd/config.h"
#include "sandboxd/kernel.h"
#include "sandboxd/launch.h"
#include "supervisor/config_check.h"
#include "supervisor/host.h"
#include "supervisor/log_relay.h"
#include "supervisor/options.h"
#include "supervisor/worker_spawn.h"

#define TIMEOUT (10 * USEC_PER_SEC)

int config_source_open(struct config_source *source, const char *path, struct err *err)
{
	source->may_be_missing = !path;
	source->dir_fd = config_bundle_open_dir(path ? path : OPTIONS_DEFAULT_CONFIG, !path,
						&source->name, err);
	return source->dir_fd < 0 && source->dir_fd != -ENOENT ? source->dir_fd : 0;
}

void config_source_done(struct config_source *source)
{
	source->dir_fd = source->dir_fd >= 0 ? fd_close(source->dir_fd) : -1;
}

struct reader {
	int pid_fd;
	int step_fd; /* worker_spawn's pipe */
	int answer_fd;
	int text_fd;
	struct config_answer answer;
	size_t n_answer;                       /* one more than the struct: too long */
	char text[CONFIG_ERROR_MAX_BYTES + 1]; /* and a NUL */
	size_t n_text;
};

static int start_reader(const struct host *host, int file_fd, struct reader *reader,
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
	reader->answer_fd = answer_pipe[0];
	answer_write = answer_pipe[1];
	if (pipe2(text_pipe, O_CLOEXEC) < 0)
		return err_fail(err, -errno, "config", "pipe");
	reader->text_fd = text_pipe[0];
	text_write = text_pipe[1];
	spawn.fds[0] = (struct worker_spawn_fd){file_fd, STDIN_FILENO};
	spawn.fds[1] = (struct worker_spawn_fd){answer_write, STDOUT_FILENO};
	spawn.fds[2] = (struct worker_spawn_fd){text_write, STDERR_FILENO};
	spawn.fds[3] = (struct worker_spawn_fd){host_policy_fd(host), WORKER_FD_POLICY};
	spawn.n_fds = 4;
	return worker_spawn(host, &spawn, &reader->pid_fd, &reader->step_fd, err);
}

/* One read into what is left of a buffer; *fd is closed at its end. */
static int take_bytes(int *fd, void *buffer, size_t size, size_t *used)
{
	char beyond[1];
	ssize_t n;

	if (*used < size)
		n = io_read(*fd, (char *)buffer + *used, size - *used);
	else
		n = io_read(*fd, beyond, sizeof(beyond));
	if (n < 0)
		return (int)n;
	if (n == 0) {
		*fd = fd_close(*fd);
		return 0;
	}
	*used += (size_t)n;
	return *used > size ? -EFBIG : 0;
}

/* Until both pipes and the process have ended. */
static int collect(struct reader *reader, struct err *err)
{
	usec_t deadline = clock_add(clock_boottime(), TIMEOUT);
	bool alive = true;

	while (alive || reader->answer_fd >= 0 || reader->text_fd >= 0) {
		struct pollfd fds[3] = {
			{.fd = reader->answer_fd,           .events = POLLIN},
			{.fd = reader->text_fd,             .events = POLLIN},
			{.fd = alive ? reader->pid_fd : -1, .events = POLLIN},
		};
		usec_t now = clock_boottime();
		int r = 0;

		if (now >= deadline)
			return err_fail(err, -ETIMEDOUT, "config", "the reader gives no answer");
		if (poll(fds, ARRAY_SIZE(fds), (int)((deadline - now) / USEC_PER_MS) + 1) < 0 &&
		    errno != EINTR)
			return err_fail(err, -errno, "config", "poll");
		if (fds[0].revents)
			r = take_bytes(&reader->answer_fd, &reader->answer, sizeof(reader->answer),
				       &reader->n_answer);
		if (r == 0 && fds[1].revents)
			r = take_bytes(&reader->text_fd, reader->text, sizeof(reader->text) - 1,
				       &reader->n_text);
		if (r < 0)
			return err_fail(err, r, "config", "the reader says too much");
		if (fds[2].revents)
			alive = false;
	}
	return 0;
}

/* What the reader wrote goes to the log line by line; it never holds a value of the file. */
static void log_complaints(const struct reader *reader)
{
	struct log_relay relay = LOG_RELAY_NULL;

	relay.from = "sandboxd-config";
	log_relay_feed(&relay, reader->text, reader->n_text);
	log_relay_feed(&relay, "\n", 1);
}

/* Its first complaint says it best. */
static int refused(const struct reader *reader, const siginfo_t *info, char *ret_complaint,
		   struct err *err)
{
	size_t length = strcspn(reader->text, "\n");

	if (length >= LAUNCH_CONFIG_TEXT)
		length = LAUNCH_CONFIG_TEXT - 1;
	memcpy(ret_complaint, reader->text, length);
	ret_complaint[length] = '\0';
	str_printable(ret_complaint);
	return err_fail(err, -EINVAL, "config",
			"the configuration is refused (reader: code %d status %d)", info->si_code,
			info->si_status);
}

static int judge(struct reader *reader, struct config_answer *ret_answer, char *ret_complaint,
		 struct err *err)
{
	siginfo_t info = {0};
	int r;

	if (waitid(P_PIDFD, (id_t)reader->pid_fd, &info, WEXITED) < 0)
		return err_fail(err, -errno, "config", "wait for the reader");
	if (worker_spawn_result(reader->step_fd, err))
		return -EIO;
	if (info.si_code != CLD_EXITED || info.si_status != 0)
		return refused(reader, &info, ret_complaint, err);
	r = config_check(&reader->answer, reader->n_answer, err);
	if (r < 0)
		return r;
	*ret_answer = reader->answer;
	return 0;
}

int config_run(const struct host *host, const struct config_source *source,
	       struct config_answer *ret_answer, char *ret_complaint, struct err *err)
{
	AUTO_FREE struct reader *reader = calloc(1, sizeof(*reader)); /* too big for a stack */
	AUTO_CLOSE int bundle_fd = -1;
	int r;

	if (!reader)
		return err_fail(err, -ENOMEM, "config", "memory");
	bundle_fd = config_bundle_make(source->dir_fd, source->name, source->may_be_missing, err);
	if (bundle_fd < 0)
		return bundle_fd;
	reader->pid_fd = -1;
	reader->step_fd = -1;
	reader->answer_fd = -1;
	reader->text_fd = -1;
	r = start_reader(host, bundle_fd, reader, err);
	if (r == 0) {
		r = collect(reader, err);
		log_complaints(reader);
		if (r == 0) {
			r = judge(reader, ret_answer, ret_complaint, err);
		} else {
			/* It is pid 1 of its namespace and takes all it has with it. */
			(void)kernel_pidfd_send_signal(reader->pid_fd, SIGKILL);
			(void)waitid(P_PIDFD, (id_t)reader->pid_fd, &(siginfo_t){0}, WEXITED);
		}
	}
	reader->pid_fd = fd_close(reader->pid_fd);
	reader->step_fd = fd_close(reader->step_fd);
	reader->answer_fd = fd_close(reader->answer_fd);
	reader->text_fd = fd_close(reader->text_fd);
	return r;
}
