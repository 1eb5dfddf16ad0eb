/*
 * Theory. Moving processes between groups waits for the kernel, tens of milliseconds and more: a
 * copy of this process does it, while the loop goes on. Its end is the answer. Until then the
 * session is FROZEN and nothing but a kill is done to it; a kill ends the copy first.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"

#include "sandboxd/kernel.h"
#include "sandboxd/limits.h"
#include "supervisor/session_state.h"

/*
 * Runs as: a copy of the supervisor, with its capabilities and descriptors. The exit status is the
 * errno.
 */
static _Noreturn void mover(const struct session *session, bool apart, pid_t parent)
{
	const struct cgroup *cgroup = &session->host->cgroup;
	const struct cgroup_shim shim = {
		.id = session->userns.base + SESSION_SHIM_OFFSET,
		.pid = session->pid,
	};
	int r;

	/* The next supervisor finds what is there, and nothing that changes it. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
		_exit(ESRCH);
	r = apart ? cgroup_part(cgroup, session->name, &shim) : cgroup_join(cgroup, session->name);

	_exit(-r & 0xff);
}

static int on_moved(void *userdata, uint32_t events)
{
	struct session *session = userdata;
	const struct log_context context = {.session = &session->id};
	session_parted *done = session->parted;
	siginfo_t info = {0};
	int r;

	(void)events;
	if (waitid(P_PIDFD, (id_t)session->mover_fd, &info, WEXITED | WNOHANG) < 0 ||
	    info.si_pid == 0)
		return 0;
	r = info.si_code == CLD_EXITED ? -info.si_status : -ECANCELED;
	session->mover_source = loop_remove(session->mover_source);
	session->mover_fd = fd_close(session->mover_fd);
	session->parted = NULL;
	session->is_parted = cgroup_is_parted(&session->host->cgroup, session->name);
	if (r < 0 && session->state != SESSION_STATE_ENDING)
		log_line(LOG_LEVEL_ERROR, &context, "processes of a session cannot be moved",
			 "errno=%d parted=%d", -r, session->is_parted);
	if (done)
		done(session->parted_userdata, session, r);
	session_moved(session);
	return 0;
}

int session_part(struct session *session, bool apart, session_parted *done, void *userdata)
{
	struct clone_args args = {.flags = CLONE_PIDFD,
				  .pidfd = (uintptr_t)&session->mover_fd,
				  .exit_signal = SIGCHLD};
	pid_t parent = getpid();
	pid_t pid;
	int r;

	if (session->state != SESSION_STATE_FROZEN || session->mover_fd >= 0)
		return -EINVAL;
	pid = kernel_clone3(&args);
	if (pid == 0)
		mover(session, apart, parent);
	if (pid < 0)
		return -errno;
	r = loop_add(session->host->loop, session->mover_fd, EPOLLIN, on_moved, session,
		     &session->mover_source);
	if (r < 0) {
		(void)kernel_pidfd_send_signal(session->mover_fd, SIGKILL);
		(void)waitid(P_PIDFD, (id_t)session->mover_fd, &(siginfo_t){0}, WEXITED);
		session->mover_fd = fd_close(session->mover_fd);
		return r;
	}
	session->parted = done;
	session->parted_userdata = userdata;
	return 0;
}

void session_part_stop(struct session *session)
{
	if (session->mover_fd >= 0)
		(void)kernel_pidfd_send_signal(session->mover_fd, SIGKILL);
}
