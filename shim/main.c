/*
 * sandbox-shim: pid 1 of a session.
 *
 * Theory. What the supervisor's child leaves here is a process in all namespaces of the session,
 * under the block's last, unmapped id, with SHIM_CAPS in the session's user namespace. The order
 * below is the point of this file: the nursery is forked before pid 1 takes its own filter, so that
 * no command inherits it; everything that is allocated is allocated before the first byte from
 * outside; and the ready byte is written when spawner and pid 1 are confined, so a session that is
 * ready is a session that is closed.
 *
 *   self        not dumpable, no_new_privs (A12)
 *   signals     default, blocked
 *   descriptors as include/sandboxd/plan.h says, close-on-exec, nothing else (A2)
 *   params, policy, secrets
 *   nursery     forked with the request for the spawner, which confines itself meanwhile
 *   loop        tables, signalfd, listener
 *   caps        KILL only
 *   domain      no file, no TCP
 *   filter      SHIM
 *   spawner     waited for
 *   ready
 *
 * Knowingly left out: no log (a session has nobody to log to), no environment, no arguments.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/io.h"

#include "shim/domain.h"
#include "shim/init.h"
#include "shim/jobs.h"
#include "shim/message.h"
#include "shim/serve.h"
#include "shim/shim.h"
#include "shim/spawner.h"
#include "shim/steps.h"

static int start_self(struct shim *shim, struct err *err)
{
	(void)shim;
	return steps_self(err);
}

static int start_signals(struct shim *shim, struct err *err)
{
	(void)shim;
	return steps_signals(err);
}

static int start_descriptors(struct shim *shim, struct err *err)
{
	(void)shim;
	return steps_descriptors(err);
}

static int start_params(struct shim *shim, struct err *err)
{
	return steps_params(&shim->context.params, err);
}

static int start_policy(struct shim *shim, struct err *err)
{
	return steps_policy(&shim->context.policy, err);
}

static int start_secrets(struct shim *shim, struct err *err)
{
	shim->context.secrets = &shim->secrets;
	return secrets_read(&shim->secrets, err);
}

static int start_nursery(struct shim *shim, struct err *err)
{
	struct nursery nursery;
	int r;

	for (size_t i = 0; i < AGENT_MAX_; i++)
		shim->idle_fd[i] = -1;
	for (size_t i = 0; i < SPAWNER_MAX_; i++)
		shim->spawner_fd[i] = -1;
	shim->halt = HALT_NULL;
	r = nursery_start(&shim->context, &nursery, err);
	if (r < 0)
		return r;
	shim->nursery_fd = nursery.fd;
	shim->nursery_pid = nursery.pid;
	shim->spawner_fd[SPAWNER_USER] = nursery.spawner_fd;
	return 0;
}

/* From here on the spawner confines itself on another processor: a filter takes the kernel a tenth
 * of a millisecond to check and translate. */
static int start_loop(struct shim *shim, struct err *err)
{
	int r;

	r = loop_new(&shim->loop);
	if (r >= 0)
		r = jobs_init(shim);
	if (r >= 0)
		r = init_start(shim);
	if (r >= 0)
		r = denials_init(shim);
	if (r >= 0)
		r = serve_init(shim);
	return r < 0 ? err_fail(err, r, "shim-loop", "set up") : 0;
}

static int start_spawner(struct shim *shim, struct err *err)
{
	AUTO_CLOSE int listener_fd = -1;
	int r;

	r = spawner_wait(shim->spawner_fd[SPAWNER_USER], &listener_fd, err);
	if (r < 0)
		return r;
	r = denials_listen(shim, TAKE_FD(listener_fd));
	return r < 0 ? err_fail(err, r, "shim-denials", "listen") : 0;
}

static int start_caps(struct shim *shim, struct err *err)
{
	int r;

	r = steps_securebits(&shim->context.params, false, err);
	return r < 0 ? r : steps_caps(SHIM_CAPS_PID1, err);
}

static int start_domain(struct shim *shim, struct err *err)
{
	return domain_init(&shim->context.params, err);
}

static int start_filter(struct shim *shim, struct err *err)
{
	return steps_filter(shim->context.policy, POLICY_FILTER_SHIM, err);
}

static int (*const start_steps[])(struct shim *, struct err *) = {
	start_self,    start_signals, start_descriptors, start_params, start_policy, start_secrets,
	start_nursery, start_loop,    start_caps,        start_domain, start_filter, start_spawner,
};

int main(void)
{
	static struct shim app; /* too large for a stack */
	const uint8_t ready = SHIM_READY_BYTE;
	struct err err = ERR_NULL;
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(start_steps) && r >= 0; i++)
		r = start_steps[i](&app, &err);
	if (r < 0) {
		/* Where the reader is gone the exit status says it. */
		r = io_write_all(SHIM_FD_READY, &err, sizeof(err));
		return r < 0 ? EXIT_FAILURE + 1 : EXIT_FAILURE;
	}
	r = io_write_all(SHIM_FD_READY, &ready, sizeof(ready));
	(void)fd_close(SHIM_FD_READY);
	if (r < 0)
		return EXIT_FAILURE;
	r = loop_run(app.loop);
	return r < 0 ? EXIT_FAILURE : r;
}
