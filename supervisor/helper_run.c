/*
 * Theory. A helper has its own id, an empty root and a filter: all that it can reach are the
 * descriptors that it is given. An end without a report is a failure, whatever the exit status was;
 * so is one by the timer.
 */
#include "supervisor/helper_run.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/io.h"
#include "base/log.h"

#include "sandboxd/kernel.h"
#include "sandboxd/limits.h"
#include "sandboxd/secret.h"
#include "sandboxd/worker.h"
#include "supervisor/host.h"

#define HELPER "sandboxd-helper"

static int on_exit_of_helper(void *userdata, uint32_t events)
{
	struct helper_run *run = userdata;
	struct err err = ERR_NULL;
	siginfo_t info = {0};

	(void)events;
	if (waitid(P_PIDFD, (id_t)run->pid_fd, &info, WEXITED | WNOHANG) < 0 || info.si_pid == 0)
		return 0;
	if (worker_spawn_result(run->step_fd, &err))
		log_err(LOG_LEVEL_ERROR, NULL, run->not_started, &err);
	run->ended(run->userdata);
	return 0;
}

static int on_timer(void *userdata, uint32_t events)
{
	const struct helper_run *run = userdata;

	(void)events;
	helper_run_kill(run);
	return 0;
}

static void give(struct worker_spawn *worker, int from, int to)
{
	ASSERT(worker->n_fds < WORKER_SPAWN_MAX_FDS);
	worker->fds[worker->n_fds++] = (struct worker_spawn_fd){from, to};
}

static int spawn(struct helper_run *run, const struct helper_start *start, struct err *err)
{
	AUTO_CLOSE int request_fd = -1;
	AUTO_CLOSE int request_end = -1;
	AUTO_CLOSE int report_end = -1;
	struct worker_spawn worker = start->worker;
	int fds[2];
	int r;

	ASSERT(start->request_bytes <= HELPER_REQUEST_MAX_BYTES);
	if (pipe2(fds, O_CLOEXEC) < 0)
		return err_fail(err, -errno, start->mode, "pipe");
	request_fd = fds[0];
	request_end = fds[1];
	if (pipe2(fds, O_CLOEXEC) < 0)
		return err_fail(err, -errno, start->mode, "pipe");
	run->report_fd = fds[0];
	report_end = fds[1];
	r = fd_set_nonblock(run->report_fd, 1);
	if (r >= 0)
		r = io_write_all(request_end, start->request, start->request_bytes);
	if (r < 0)
		return err_fail(err, r, start->mode, "request");
	run->program = start->program ? start->program : HELPER;
	worker.program = run->program;
	worker.mode = start->program ? NULL : start->mode;
	worker.id = host_worker_ids(start->host) + WORKER_ID_HELPER;
	worker.state_fd = -1;
	give(&worker, request_fd, HELPER_FD_REQUEST);
	give(&worker, report_end, HELPER_FD_REPORT);
	give(&worker, host_policy_fd(start->host), WORKER_FD_POLICY);
	return worker_spawn(start->host, &worker, &run->pid_fd, &run->step_fd, err);
}

int helper_run_start(struct helper_run *run, const struct helper_start *start, struct err *err)
{
	int r = spawn(run, start, err);

	if (r < 0)
		return r;
	run->not_started = start->not_started;
	run->ended = start->ended;
	run->userdata = start->userdata;
	r = loop_add(start->loop, run->pid_fd, EPOLLIN, on_exit_of_helper, run, &run->pid_source);
	if (r >= 0)
		r = loop_add_timer(start->loop, clock_add(clock_boottime(), start->timeout),
				   on_timer, run, &run->timer);
	if (r < 0) {
		helper_run_end(run);
		return err_fail(err, r, start->mode, "watch");
	}
	return 0;
}

void helper_run_kill(const struct helper_run *run)
{
	(void)kernel_pidfd_send_signal(run->pid_fd, SIGKILL);
}

void helper_run_end(struct helper_run *run)
{
	worker_end(run->pid_fd, run->program);
	helper_run_done(run);
}

void helper_run_done(struct helper_run *run)
{
	run->pid_source = loop_remove(run->pid_source);
	run->timer = loop_remove(run->timer);
	run->pid_fd = fd_close(run->pid_fd);
	run->step_fd = fd_close(run->step_fd);
	run->report_fd = fd_close(run->report_fd);
}
