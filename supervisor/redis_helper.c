/*
 * Theory. As with the helper for secrets: own id, empty root, a filter, a report of fixed size. It
 * keeps the host's network, for one connection. Its report lies in the pipe when it ends, and an
 * end without one is a failure.
 */
#include "supervisor/redis_helper.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/io.h"
#include "base/log.h"

#include "sandboxd/kernel.h"
#include "sandboxd/secret.h"
#include "supervisor/host.h"
#include "supervisor/worker_spawn.h"

#define TIMEOUT (60 * USEC_PER_SEC) /* many keys */
#define HELPER  "sandboxd-helper"

struct redis_helper {
	int pid_fd;
	int step_fd; /* worker_spawn's pipe */
	int report_fd;
	struct loop_source *pid_source;
	struct loop_source *timer;
	redis_helper_done done;
	void *userdata;
};

static void release(struct redis_helper *helper)
{
	helper->pid_source = loop_remove(helper->pid_source);
	helper->timer = loop_remove(helper->timer);
	helper->pid_fd = fd_close(helper->pid_fd);
	helper->step_fd = fd_close(helper->step_fd);
	helper->report_fd = fd_close(helper->report_fd);
	free(helper);
}

static bool report_valid(const struct redis_report *report)
{
	return report->magic == REDIS_MAGIC && report->version == REDIS_VERSION &&
	       report->status < REDIS_STATUS_MAX_ && report->n_sessions <= REDIS_LIST_MAX;
}

static int on_exit_of_helper(void *userdata, uint32_t events)
{
	struct redis_helper *helper = userdata;
	redis_helper_done done = helper->done;
	void *done_userdata = helper->userdata;
	struct redis_report report;
	struct err err = ERR_NULL;
	siginfo_t info = {0};
	bool valid;

	(void)events;
	if (waitid(P_PIDFD, (id_t)helper->pid_fd, &info, WEXITED | WNOHANG) < 0 || info.si_pid == 0)
		return 0;
	if (worker_spawn_result(helper->step_fd, &err))
		log_err(LOG_LEVEL_ERROR, NULL, "the helper for Redis was not started", &err);
	valid = io_read(helper->report_fd, &report, sizeof(report)) == (ssize_t)sizeof(report) &&
		report_valid(&report);
	release(helper);
	done(done_userdata, valid ? &report : NULL);
	return 0;
}

static int on_timer(void *userdata, uint32_t events)
{
	struct redis_helper *helper = userdata;

	(void)events;
	(void)kernel_pidfd_send_signal(helper->pid_fd, SIGKILL);
	return 0;
}

static int spawn(const struct redis_helper_place *place, struct redis_helper *helper,
		 const struct redis_request *request, struct err *err)
{
	AUTO_CLOSE int request_fd = -1;
	AUTO_CLOSE int request_end = -1;
	AUTO_CLOSE int report_end = -1;
	struct worker_spawn worker = {
		.program = HELPER,
		.mode = "redis",
		.id = host_worker_ids(place->host) + WORKER_ID_HELPER,
		.state_fd = -1,
	};
	int fds[2];
	int r;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return err_fail(err, -errno, "redis-helper", "pipe");
	request_fd = fds[0];
	request_end = fds[1];
	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
		return err_fail(err, -errno, "redis-helper", "pipe");
	helper->report_fd = fds[0];
	report_end = fds[1];
	r = io_write_all(request_end, request, sizeof(*request));
	if (r < 0)
		return err_fail(err, r, "redis-helper", "request");
	worker.fds[worker.n_fds++] = (struct worker_spawn_fd){request_fd, HELPER_FD_REQUEST};
	worker.fds[worker.n_fds++] = (struct worker_spawn_fd){report_end, HELPER_FD_REPORT};
	worker.fds[worker.n_fds++] = (struct worker_spawn_fd){place->null_fd, STDOUT_FILENO};
	worker.fds[worker.n_fds++] = (struct worker_spawn_fd){place->null_fd, STDERR_FILENO};
	worker.fds[worker.n_fds++] =
		(struct worker_spawn_fd){host_policy_fd(place->host), WORKER_FD_POLICY};
	return worker_spawn(place->host, &worker, &helper->pid_fd, &helper->step_fd, err);
}

static int watch(struct loop *loop, struct redis_helper *helper)
{
	int r = loop_add(loop, helper->pid_fd, EPOLLIN, on_exit_of_helper, helper,
			 &helper->pid_source);

	if (r >= 0)
		r = loop_add_timer(loop, clock_add(clock_boottime(), TIMEOUT), on_timer, helper,
				   &helper->timer);
	return r;
}

int redis_helper_start(const struct redis_helper_place *place, const struct redis_request *request,
		       redis_helper_done done, void *userdata, struct redis_helper **ret_helper,
		       struct err *err)
{
	struct redis_helper *helper = calloc(1, sizeof(*helper));
	int r;

	if (!helper)
		return err_fail(err, -ENOMEM, "redis-helper", "memory");
	helper->pid_fd = helper->step_fd = helper->report_fd = -1;
	helper->done = done;
	helper->userdata = userdata;
	r = spawn(place, helper, request, err);
	if (r >= 0) {
		r = watch(place->loop, helper);
		if (r < 0) {
			worker_end(helper->pid_fd, HELPER);
			(void)err_fail(err, r, "redis-helper", "watch");
		}
	}
	if (r < 0) {
		release(helper);
		return r;
	}
	*ret_helper = helper;
	return 0;
}

struct redis_helper *redis_helper_cancel(struct redis_helper *helper)
{
	if (!helper)
		return NULL;
	worker_end(helper->pid_fd, HELPER);
	release(helper);
	return NULL;
}
