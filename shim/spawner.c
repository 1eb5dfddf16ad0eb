/*
 * Theory. The confinement that every command has is taken here, once: bounding set, no_new_privs,
 * Landlock domain, COMMAND filter. A command is then one fork (of an idle runner: none) and one
 * exec. Exactly one filter is in force in a command: pid 1 takes its own only after the nursery was
 * forked.
 *
 * Runs as the session's unmapped id, with SETUID, SETGID and KILL permitted in the session's user
 * namespace and an empty bounding set. Keeps SHIM_FD_LOADER, SHIM_FD_GIT and SHIM_FD_ARCHIVE,
 * close-on-exec, for the jail tools.
 *
 * That of root commands has their capabilities permitted and as its bounding set, from which uid 0
 * takes them at its exec. It keeps SETPCAP beside them: a child that is on its way to uid 0 and
 * still shares our memory has one capability that no root command has, so that none can trace it,
 * whatever fs.suid_dumpable says (A12, B10).
 *
 * It waits for nobody (SIGCHLD ignored): each runner reaps its own command. See runner.c.
 */
#include "shim/spawner.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"

#include "shim/domain.h"
#include "shim/message.h"
#include "shim/nursery.h"
#include "shim/runner.h"
#include "shim/steps.h"

#define SPAWNER_START_TIMEOUT_MS 10000

static int spawner_confine(const struct nursery_context *context, bool is_root,
			   int *ret_listener_fd, struct err *err)
{
	uint64_t commands = is_root ? shim_caps_command(context->params.landlock_abi) : 0;
	int r;

	if (is_root && shim_weak(&context->params, SHIM_PARAMS_WEAK_ROOT_CAP))
		commands |= SHIM_CAP_SETPCAP;
	r = steps_bounding(commands, err);
	if (r < 0)
		return r;
	r = steps_securebits(&context->params, is_root, err);
	if (r < 0)
		return r;
	if (!shim_weak(&context->params, SHIM_PARAMS_WEAK_CAPS)) {
		r = steps_caps(is_root ? SHIM_CAPS_ROOT | SHIM_CAP_SETPCAP : SHIM_CAPS_SPAWNER,
			       err);
		if (r < 0)
			return r;
	}
	r = steps_rlimits(&context->params, err);
	if (r < 0)
		return r;
	r = domain_command(&context->params, err);
	if (r < 0)
		return r;
	return steps_filter_told(context->policy, ret_listener_fd, err);
}

static void spawner_fork(const struct nursery_context *context, bool is_root, int socket_fd,
			 int runner_fd)
{
	pid_t pid;

	pid = fork();
	if (pid < 0) {
		const struct message failed = {
			.type = MESSAGE_FAILED,
			.step = WIRE_STEP_FORK,
			.error_number = errno,
		};

		/* pid 1 may have left meanwhile; then we are next. */
		if (message_send(runner_fd, &failed, NULL, NULL, 0) < 0)
			return;
		return;
	}
	if (pid == 0) {
		(void)fd_close(socket_fd);
		runner_main(context, is_root, runner_fd);
	}
}

_Noreturn void spawner_main(const struct nursery_context *context, int fd, bool is_root)
{
	struct message message = {.type = MESSAGE_UP, .n_bytes = sizeof(struct err)};
	struct err err = ERR_NULL;
	int listener_fd = -1;
	int r;

	r = spawner_confine(context, is_root, &listener_fd, &err);
	if (r < 0)
		message.error_number = -r;
	r = message_send(fd, &message, &err, &listener_fd, listener_fd >= 0 ? 1 : 0);
	/* Only pid 1 may hold it: who answers could also say go on. */
	listener_fd = fd_close(listener_fd);
	if (r < 0 || message.error_number != 0)
		_exit(1);

	for (;;) {
		AUTO_CLOSE int runner_fd = -1;

		r = message_receive(fd, &message, sizeof(message), &message, &runner_fd, 1);
		if (r <= 0 || message.type != MESSAGE_RUNNER || runner_fd < 0)
			_exit(r == 0 ? 0 : 1);
		spawner_fork(context, is_root, fd, runner_fd);
	}
}

int spawner_wait(int fd, int *ret_listener_fd, struct err *err)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
	uint8_t buffer[sizeof(struct message) + sizeof(struct err)];
	struct message message;
	struct err child;
	int r;

	r = poll(&poll_fd, 1, SPAWNER_START_TIMEOUT_MS);
	if (r < 0)
		return err_fail(err, -errno, "shim-spawner", "poll");
	if (r == 0)
		return err_fail(err, -ETIMEDOUT, "shim-spawner", "no report");
	r = message_receive(fd, buffer, sizeof(buffer), &message, ret_listener_fd, 1);
	if (r < 0)
		return err_fail(err, r, "shim-spawner", "receive");
	if (r == 0 || message.type != MESSAGE_UP || message.n_bytes != sizeof(child))
		return err_fail(err, -EPIPE, "shim-spawner", "it ended");
	if (message.error_number == 0)
		return 0;
	memcpy(&child, buffer + sizeof(message), sizeof(child));
	err_sanitize(&child);
	if (err)
		*err = child;
	return -message.error_number;
}
