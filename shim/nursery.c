/*
 * Theory. Runs as the session's unmapped id with shim_caps() in the session's user namespace, in
 * all namespaces of the session; must hold neither the listener nor the ready pipe; must never read
 * a byte that did not come from pid 1. It waits for nobody: SIGCHLD is ignored, so the kernel reaps
 * its children, and pid 1 sees the end of one by the end-of-file of its socket.
 *
 * Fork without exec: nobody here has threads, and the children are the point of the process.
 */
#include "shim/nursery.h"

#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/sockmsg.h"

#include "shim/domain.h"
#include "shim/files.h"
#include "shim/message.h"
#include "shim/secrets.h"
#include "shim/spawner.h"
#include "shim/steps.h"

static _Noreturn void nursery_child(const struct nursery_context *context, uint32_t type, int fd)
{
	if (type != MESSAGE_HELPER)
		spawner_main(context, fd, type == MESSAGE_ROOT_SPAWNER);
	(void)fd_close(SHIM_FD_LOADER);
	(void)fd_close(SHIM_FD_GIT);
	(void)fd_close(SHIM_FD_ARCHIVE);
	domain_close_queues();
	secrets_forget(context->secrets);
	files_main(context, fd);
}

static bool nursery_makes(const struct nursery_context *context, uint32_t type)
{
	if (type == MESSAGE_ROOT_SPAWNER)
		return (context->params.flags & SHIM_PARAMS_ROOT_COMMANDS) != 0;
	return type == MESSAGE_SPAWNER || type == MESSAGE_HELPER;
}

static void nursery_serve(const struct nursery_context *context, int socket_fd)
{
	for (;;) {
		AUTO_CLOSE int child_fd = -1;
		struct message message;
		pid_t pid;
		int r;

		r = message_receive(socket_fd, &message, sizeof(message), &message, &child_fd, 1);
		if (r <= 0)
			return;
		if (child_fd < 0 || !nursery_makes(context, message.type))
			return;
		pid = fork();
		if (pid == 0) {
			(void)fd_close(socket_fd);
			nursery_child(context, message.type, TAKE_FD(child_fd));
		}
		/* Where fork failed the end-of-file of the socket says so. */
	}
}

int nursery_start(const struct nursery_context *context, struct nursery *ret_nursery,
		  struct err *err)
{
	AUTO_CLOSE int ours = -1;
	AUTO_CLOSE int theirs = -1;
	AUTO_CLOSE int spawner_fd = -1;
	int pair[2];
	pid_t pid;
	int r;

	r = sockmsg_pair(pair, 0);
	if (r < 0)
		return err_fail(err, r, "shim-nursery", "socketpair");
	ours = pair[0];
	theirs = pair[1];
	r = fd_set_nonblock(ours, 1);
	if (r < 0)
		return err_fail(err, r, "shim-nursery", "nonblock");
	/* Before the fork, so that the nursery need not be woken for it. */
	r = message_request(ours, MESSAGE_SPAWNER, &spawner_fd);
	if (r < 0)
		return err_fail(err, r, "shim-spawner", "request");

	pid = fork();
	if (pid < 0)
		return err_fail(err, -errno, "shim-nursery", "fork");
	if (pid == 0) {
		(void)fd_close(TAKE_FD(ours));
		(void)fd_close(TAKE_FD(spawner_fd));
		(void)fd_close(SHIM_FD_LISTEN);
		(void)fd_close(SHIM_FD_READY);
		/* Pid 1 has it, and none outlives that. */
		if (context->params.flags & SHIM_PARAMS_TEMPLATE)
			(void)fd_close(SHIM_FD_TEMPLATE);
		(void)signal(SIGCHLD, SIG_IGN);
		if (shim_weak(&context->params, SHIM_PARAMS_WEAK_CAPS) ||
		    steps_caps(shim_caps(context->params.flags), NULL) >= 0)
			nursery_serve(context, theirs);
		_exit(1);
	}
	(void)fd_close(SHIM_FD_LOADER);
	(void)fd_close(SHIM_FD_GIT);
	(void)fd_close(SHIM_FD_ARCHIVE);
	domain_close_queues();
	*ret_nursery = (struct nursery){
		.fd = TAKE_FD(ours),
		.pid = pid,
		.spawner_fd = TAKE_FD(spawner_fd),
	};
	return 0;
}
