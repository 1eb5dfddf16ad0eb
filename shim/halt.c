/*
 * Theory. SIGSTOP to all of `user`, in the end at once: none can refuse it, and none is left to
 * continue another. (A process can have the kernel do so: a timer whose signal is SIGCONT. What
 * that one writes is its own.) A runner does it, as pid 1 opens nothing: it notes who was stopped
 * before, and later continues the others, children before their parents.
 *
 * A command on its way when the others were stopped says so when it starts, and they are stopped
 * once more. Ours are of another id and go on, but the file helpers, which nobody asks meanwhile.
 */
#include "shim/halt.h"

#include <errno.h>
#include <sys/epoll.h>

#include "base/loop.h"

#include "shim/agent.h"
#include "shim/message.h"
#include "shim/serve.h"
#include "shim/shim.h"

static void halt_lose(struct halt *halt)
{
	halt->source = loop_remove(halt->source);
	halt->fd = fd_close(halt->fd);
	halt->n_asked = 0;
	halt->state = HALT_FAILED;
}

/* The answer to the last question. */
static void halt_answered(struct shim *shim, bool is_done)
{
	struct halt *halt = &shim->halt;

	if (!is_done) {
		halt->state = HALT_FAILED;
	} else if (halt->state == HALT_ASKED) {
		halt->state = HALT_DONE;
	} else if (halt->state == HALT_LEAVING) {
		halt->state = HALT_NO;
		halt->source = loop_remove(halt->source);
		halt->fd = agent_release(shim, AGENT_RUNNER, halt->fd);
	}
}

static int halt_on_runner(void *userdata, uint32_t events)
{
	struct shim *shim = userdata;
	struct halt *halt = &shim->halt;
	struct message message;
	int fd = -1;
	int r;

	(void)events;
	r = message_receive(halt->fd, &message, sizeof(message), &message, &fd, 1);
	(void)fd_close(fd);
	if (r == -EAGAIN)
		return 0;
	if (r <= 0 || halt->n_asked == 0)
		halt_lose(halt);
	else if (--halt->n_asked == 0)
		halt_answered(shim, message.type == MESSAGE_DONE);
	serve_flush(shim);
	return 0;
}

static void halt_ask(struct shim *shim, enum halt_state state, const struct message *message)
{
	struct halt *halt = &shim->halt;
	int r = 0;

	if (halt->fd < 0) {
		r = agent_acquire(shim, AGENT_RUNNER, &halt->fd);
		if (r >= 0)
			r = loop_add(shim->loop, halt->fd, EPOLLIN, halt_on_runner, shim,
				     &halt->source);
	}
	if (r >= 0)
		r = message_send(halt->fd, message, NULL, NULL, 0);
	if (r < 0) {
		halt_lose(halt);
		return;
	}
	halt->n_asked++;
	halt->state = state;
}

void halt_set(struct shim *shim, bool is_paused)
{
	enum halt_state state = shim->halt.state;
	bool is_free = state == HALT_NO || state == HALT_LEAVING;

	if (!(shim->context.params.flags & SHIM_PARAMS_STOPS) || is_paused != is_free)
		return;
	if (is_paused)
		halt_ask(shim, HALT_ASKED, &(struct message){.type = MESSAGE_HALT});
	else
		halt_ask(shim, HALT_LEAVING, &(struct message){.type = MESSAGE_GO_ON});
}

void halt_again(struct shim *shim)
{
	if (shim->halt.state == HALT_ASKED || shim->halt.state == HALT_DONE)
		halt_ask(shim, HALT_ASKED, &(struct message){.type = MESSAGE_HALT, .step = 1});
}

bool halt_is_asked(const struct halt *halt)
{
	return halt->state == HALT_ASKED;
}

bool halt_is_done(const struct shim *shim)
{
	return !(shim->context.params.flags & SHIM_PARAMS_STOPS) || shim->halt.state == HALT_DONE;
}
