#include "shim/agent.h"

#include <errno.h>
#include <poll.h>

#include "shim/message.h"
#include "shim/nursery.h"
#include "shim/shim.h"

/* An idle agent says nothing; anything to read is its end. */
static bool agent_is_idle(int fd)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

	return poll(&poll_fd, 1, 0) == 0;
}

static int agent_request_runner(struct shim *shim, enum spawner_kind kind, int *ret_fd)
{
	int *fd = &shim->spawner_fd[kind];
	int r = -EPIPE;

	if (*fd >= 0)
		r = message_request(*fd, MESSAGE_RUNNER, ret_fd);
	if (r != -EPIPE && r != -ECONNRESET)
		return r;
	/* The first root command, or the spawner was ended (B24). A new one reads this request when
	 * it is confined; if it cannot be, its socket closes and the job says that the spawner is
	 * lost. */
	denials_forget_spawner(shim, kind);
	*fd = fd_close(*fd);
	r = message_request(shim->nursery_fd,
			    kind == SPAWNER_ROOT ? MESSAGE_ROOT_SPAWNER : MESSAGE_SPAWNER, fd);
	if (r < 0)
		return r;
	r = denials_expect(shim, kind);
	if (r < 0) {
		/* Refused calls of its commands would wait for ever. */
		*fd = fd_close(*fd);
		return r;
	}
	return message_request(*fd, MESSAGE_RUNNER, ret_fd);
}

int agent_acquire(struct shim *shim, enum agent_kind kind, int *ret_fd)
{
	if (shim->idle_fd[kind] >= 0 && agent_is_idle(shim->idle_fd[kind])) {
		*ret_fd = TAKE_FD(shim->idle_fd[kind]);
		return 0;
	}
	shim->idle_fd[kind] = fd_close(shim->idle_fd[kind]);
	if (kind == AGENT_HELPER)
		return message_request(shim->nursery_fd, MESSAGE_HELPER, ret_fd);
	return agent_request_runner(shim, kind == AGENT_ROOT_RUNNER ? SPAWNER_ROOT : SPAWNER_USER,
				    ret_fd);
}

int agent_release(struct shim *shim, enum agent_kind kind, int fd)
{
	if (shim->idle_fd[kind] < 0) {
		shim->idle_fd[kind] = fd;
		return -1;
	}
	return fd_close(fd);
}
