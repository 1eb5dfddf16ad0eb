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

static const struct {
	enum spawner_kind spawner;
	uint32_t message; /* that makes it */
} agent_runners[AGENT_HELPER] = {
	[AGENT_RUNNER] = {SPAWNER_USER,      MESSAGE_SPAWNER     },
	[AGENT_ROOT_RUNNER] = {SPAWNER_ROOT,      MESSAGE_ROOT_SPAWNER},
	[AGENT_TOOL_RUNNER] = {SPAWNER_TOOL,      MESSAGE_SPAWNER     },
	[AGENT_ROOT_TOOL_RUNNER] = {SPAWNER_ROOT_TOOL, MESSAGE_ROOT_SPAWNER},
};

static int agent_request_runner(struct shim *shim, enum agent_kind agent, int *ret_fd)
{
	enum spawner_kind kind = agent_runners[agent].spawner;
	int *fd = &shim->spawner_fd[kind];
	int r = -EPIPE;

	if (*fd >= 0)
		r = message_request(*fd, MESSAGE_RUNNER, ret_fd);
	if (r != -EPIPE && r != -ECONNRESET)
		return r;
	/* The first of its kind, or the spawner was ended (B24). A new one reads this request when
	 * it is confined; if it cannot be, its socket closes and the job says that the spawner is
	 * lost. */
	denials_forget_spawner(shim, kind);
	*fd = fd_close(*fd);
	r = message_request(shim->nursery_fd, agent_runners[agent].message, fd);
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
	return agent_request_runner(shim, kind, ret_fd);
}

/* Whatever is left of them is frozen with the commands the next time. */
void agent_drop_tools(struct shim *shim)
{
	for (size_t i = AGENT_TOOL_RUNNER; i <= AGENT_ROOT_TOOL_RUNNER; i++) {
		enum spawner_kind kind = agent_runners[i].spawner;

		shim->idle_fd[i] = fd_close(shim->idle_fd[i]);
		denials_forget_spawner(shim, kind);
		shim->spawner_fd[kind] = fd_close(shim->spawner_fd[kind]);
	}
}

int agent_release(struct shim *shim, enum agent_kind kind, int fd)
{
	if (shim->idle_fd[kind] < 0) {
		shim->idle_fd[kind] = fd;
		return -1;
	}
	return fd_close(fd);
}
