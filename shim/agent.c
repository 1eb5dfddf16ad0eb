#include "shim/agent.h"

#include <errno.h>
#include <poll.h>

#include "base/sockmsg.h"

#include "shim/message.h"
#include "shim/nursery.h"
#include "shim/shim.h"

/* An idle agent says nothing; anything to read is its end. */
static bool agent_is_idle(int fd)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

	return poll(&poll_fd, 1, 0) == 0;
}

static int agent_request_runner(struct shim *shim, int *ret_fd)
{
	const struct message message = {.type = MESSAGE_RUNNER};
	AUTO_CLOSE int ours = -1;
	AUTO_CLOSE int theirs = -1;
	int pair[2];
	int r;

	r = sockmsg_pair(pair, 0);
	if (r < 0)
		return r;
	ours = pair[0];
	theirs = pair[1];
	r = fd_set_nonblock(ours, 1);
	if (r < 0)
		return r;
	r = shim->spawner_fd >= 0 ? message_send(shim->spawner_fd, &message, NULL, &theirs, 1)
				  : -EPIPE;
	if (r == -EPIPE || r == -ECONNRESET) {
		/* The spawner was ended (B24). A new one reads this request when it is confined;
		 * if it cannot be, its socket closes and the job says that the spawner is lost. */
		shim->spawner_fd = fd_close(shim->spawner_fd);
		r = nursery_request(shim->nursery_fd, MESSAGE_SPAWNER, &shim->spawner_fd);
		if (r < 0)
			return r;
		r = message_send(shim->spawner_fd, &message, NULL, &theirs, 1);
	}
	if (r < 0)
		return r;
	*ret_fd = TAKE_FD(ours);
	return 0;
}

int agent_acquire(struct shim *shim, enum agent_kind kind, int *ret_fd)
{
	if (shim->idle_fd[kind] >= 0 && agent_is_idle(shim->idle_fd[kind])) {
		*ret_fd = TAKE_FD(shim->idle_fd[kind]);
		return 0;
	}
	shim->idle_fd[kind] = fd_close(shim->idle_fd[kind]);
	if (kind == AGENT_HELPER)
		return nursery_request(shim->nursery_fd, MESSAGE_HELPER, ret_fd);
	return agent_request_runner(shim, ret_fd);
}

int agent_release(struct shim *shim, enum agent_kind kind, int fd)
{
	if (shim->idle_fd[kind] < 0) {
		shim->idle_fd[kind] = fd;
		return -1;
	}
	return fd_close(fd);
}
