/*
 * Theory. The keeper does what systemd would: it holds the listening sockets, starts the supervisor
 * with them (the LISTEN_FDS protocol), starts it again when it dies, and reaps what is orphaned to
 * it (child subreaper). It gives up its own capabilities; as root it can still exec a supervisor
 * that has them.
 *
 * - The supervisor dies: workers end with it (PDEATHSIG); sessions lose their parent and live on.
 *   The next supervisor, started with a growing pause, adopts them; that it is not their parent is
 *   why the keeper reaps. The keeper never gives up trying, not even for want of memory.
 * - The keeper dies: the supervisor reads end-of-file from the keeper's socket and ends, sessions
 *   live on. "Running without a keeper" is no state of the service; the next one adopts them.
 * - TERM or INT: passed on; the supervisor ends sessions and workers and exits 0. One that does not
 *   in STOP_TIMEOUT is killed, and the exit status says so.
 * - USR2: passed on; the supervisor and the workers end, sessions live on for the next start.
 * - A supervisor that was never ready is not started again: its configuration or its host is wrong,
 *   and the status goes to whoever started us.
 */
#include "supervisor/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/sockmsg.h"
#include "base/str.h"

#include "sandboxd/config.h"
#include "sandboxd/kernel.h"
#include "supervisor/listeners.h"
#include "supervisor/privileges.h"
#include "supervisor/signals.h"
#include "supervisor/trusted_dir.h"

#define BACKOFF_MIN  (100 * USEC_PER_MS)
#define BACKOFF_MAX  (10 * USEC_PER_SEC)
#define STEADY_AFTER (60 * USEC_PER_SEC)
#define STOP_TIMEOUT (60 * USEC_PER_SEC)
#define ENV_MAX      16

struct keeper {
	struct loop *loop;
	struct listeners listeners;
	char **argv; /* of the supervisor; owned, the texts are main's */
	int program_fd;
	int lock_fd;
	int signal_fd;
	int supervisor_fd; /* its READY and our life sign */
	pid_t pid;         /* 0: not running */
	bool ready;        /* this supervisor, or one before it, was */
	bool stopping;
	bool leaving;   /* as stopping, and sessions live on */
	bool overruled; /* it was leaving, or had left, when the word came to stop */
	bool last_try;  /* the supervisor that is to end what another left when it stopped */
	usec_t started_at;
	usec_t backoff;
	struct loop_source *signal_source;
	struct loop_source *supervisor_source;
	struct loop_source *timer;
};

/* Runs in the child between fork and exec. Everything but the three sockets is close-on-exec. */
static int exec_supervisor(const struct keeper *keeper, int life_fd)
{
	static const char *const passed_on[] = {
		"SANDBOX_KERNEL",    "SANDBOX_FAIL_STEP", CONFIG_PROVIDER_VARIABLE,
#ifdef SANDBOXD_TEST_HOOKS
		"SANDBOX_LAYER_OFF", "SANDBOX_PLANT",     "SANDBOX_CRASH_STEP",
#endif
		"ASAN_OPTIONS",      "UBSAN_OPTIONS",     "JOURNAL_STREAM"};
	const int sockets[] = {keeper->listeners.control_fd, keeper->listeners.operator_fd,
			       life_fd};
	int copies[ARRAY_SIZE(sockets)];
	char pid_text[32];
	char fds_text[] = "LISTEN_FDS=3";
	char names_text[] = "LISTEN_FDNAMES=control:operator:keeper";
	char texts[ARRAY_SIZE(passed_on)][256];
	char *env[ENV_MAX] = {pid_text, fds_text, names_text};
	size_t n_env = 3;
	int program_fd;

	if (str_format(pid_text, sizeof(pid_text), "LISTEN_PID=%d", (int)getpid()) < 0)
		return -EINVAL;
	for (size_t i = 0; i < ARRAY_SIZE(passed_on); i++) {
		const char *value = getenv(passed_on[i]); /* NOLINT(concurrency-mt-unsafe) */

		if (value &&
		    str_format(texts[i], sizeof(texts[i]), "%s=%s", passed_on[i], value) == 0)
			env[n_env++] = texts[i];
	}
	/* Out of the way first: a source may sit on the number another one goes to. */
	program_fd = fd_dup(keeper->program_fd, 16);
	if (program_fd < 0)
		return program_fd;
	for (size_t i = 0; i < ARRAY_SIZE(sockets); i++) {
		copies[i] = fd_dup(sockets[i], 16);
		if (copies[i] < 0)
			return copies[i];
	}
	for (size_t i = 0; i < ARRAY_SIZE(sockets); i++) {
		if (dup2(copies[i], LISTENERS_FIRST_FD + (int)i) < 0)
			return -errno;
	}
	/* The signals stay blocked over the exec: a TERM that comes now waits until the supervisor
	 * reads it, instead of killing one that has not cleaned up yet. */
	(void)kernel_execveat(program_fd, keeper->argv, env);
	return -errno;
}

static void forget_supervisor(struct keeper *keeper)
{
	keeper->supervisor_source = loop_remove(keeper->supervisor_source);
	keeper->supervisor_fd = fd_close(keeper->supervisor_fd);
	keeper->pid = 0;
}

static int on_supervisor(void *userdata, uint32_t events);

/* On failure nothing is left of the attempt. */
static int start_supervisor(struct keeper *keeper)
{
	AUTO_CLOSE int life_fd = -1;
	int pair[2];
	pid_t pid;
	int r;

	keeper->started_at = clock_boottime();
	r = sockmsg_pair(pair, 1);
	if (r < 0)
		return r;
	keeper->supervisor_fd = pair[0];
	life_fd = pair[1];
	r = loop_add(keeper->loop, keeper->supervisor_fd, EPOLLIN, on_supervisor, keeper,
		     &keeper->supervisor_source);
	if (r < 0) {
		forget_supervisor(keeper);
		return r;
	}
	pid = fork();
	if (pid < 0) {
		r = -errno;
		forget_supervisor(keeper);
		return r;
	}
	if (pid == 0) {
		struct err err = ERR_NULL;

		(void)err_fail(&err, exec_supervisor(keeper, life_fd), "exec", "supervisor");
		log_err(LOG_LEVEL_ERROR, NULL, "supervisor cannot be started", &err);
		_exit(127);
	}
	keeper->pid = pid;
	return 0;
}

static int on_supervisor(void *userdata, uint32_t events)
{
	struct keeper *keeper = userdata;
	char text[128];
	ssize_t n;

	(void)events;
	n = sockmsg_recv(keeper->supervisor_fd, text, sizeof(text) - 1, NULL, 0);
	if (n == -EAGAIN)
		return 0;
	if (n <= 0) {
		/* It is ending; SIGCHLD tells the rest. */
		keeper->supervisor_source = loop_remove(keeper->supervisor_source);
		return 0;
	}
	text[n] = '\0';
	if (str_equal(text, "READY=1"))
		keeper->ready = true;
	return 0;
}

static void start_later(struct keeper *keeper)
{
	usec_t now = clock_boottime();

	if (now - keeper->started_at > STEADY_AFTER)
		keeper->backoff = BACKOFF_MIN;
	loop_timer_set(keeper->timer, clock_add(now, keeper->backoff));
	keeper->backoff *= 2;
	if (keeper->backoff > BACKOFF_MAX)
		keeper->backoff = BACKOFF_MAX;
}

/* One more life, which ends what the former left, then stops. */
static int start_to_stop(struct keeper *keeper)
{
	int r = start_supervisor(keeper);

	if (r < 0)
		return r;
	(void)kill(keeper->pid, SIGTERM);
	loop_timer_set(keeper->timer, clock_add(clock_boottime(), STOP_TIMEOUT));
	return 0;
}

/* TERM and INT are blocked and read in the loop: one that came a moment ago is still there. */
static bool stop_is_pending(void)
{
	sigset_t set;

	return sigpending(&set) == 0 &&
	       (sigismember(&set, SIGTERM) == 1 || sigismember(&set, SIGINT) == 1);
}

static void supervisor_ended(struct keeper *keeper, int status)
{
	bool clean = WIFEXITED(status) && WEXITSTATUS(status) == 0;

	forget_supervisor(keeper);
	/* This end may be heard of before a word that came earlier; whoever said it is not to find
	 * us gone and the sessions there. */
	if ((!keeper->stopping || keeper->leaving) && stop_is_pending()) {
		keeper->stopping = keeper->overruled = true;
		keeper->leaving = false;
	}
	/* Killed in, or just before, its stop; or it left, perhaps before it heard of the stop. */
	if (keeper->stopping && !keeper->leaving && !keeper->last_try &&
	    (WIFSIGNALED(status) || keeper->overruled)) {
		keeper->last_try = true;
		if (start_to_stop(keeper) == 0)
			return;
	}
	if (keeper->stopping || clean || !keeper->ready) {
		loop_quit(keeper->loop, WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILURE);
		return;
	}
	log_line(LOG_LEVEL_ERROR, NULL, "supervisor died and is started again", "wait_status=%d",
		 status);
	start_later(keeper);
}

static void reap(struct keeper *keeper)
{
	for (;;) {
		int status;
		pid_t pid = waitpid(-1, &status, WNOHANG);

		if (pid <= 0)
			return; /* none left (ECHILD) or none dead */
		if (pid == keeper->pid)
			supervisor_ended(keeper, status);
	}
}

static void stop(struct keeper *keeper)
{
	if (keeper->leaving) /* a stop is the stronger word */
		keeper->overruled = true;
	keeper->leaving = false;
	if (keeper->stopping) {
		if (keeper->pid > 0)
			(void)kill(keeper->pid, SIGTERM);
		return;
	}
	keeper->stopping = true;
	if (keeper->pid == 0) { /* between two lives */
		keeper->last_try = true;
		if (start_to_stop(keeper) < 0)
			loop_quit(keeper->loop, EXIT_FAILURE);
		return;
	}
	(void)kill(keeper->pid, SIGTERM);
	loop_timer_set(keeper->timer, clock_add(clock_boottime(), STOP_TIMEOUT));
}

static void leave(struct keeper *keeper)
{
	if (keeper->stopping)
		return;
	keeper->stopping = keeper->leaving = true;
	if (keeper->pid == 0) { /* between two lives: there is nothing to end */
		loop_quit(keeper->loop, EXIT_SUCCESS);
		return;
	}
	(void)kill(keeper->pid, SIGUSR2);
	loop_timer_set(keeper->timer, clock_add(clock_boottime(), STOP_TIMEOUT));
}

static int on_signal(void *userdata, uint32_t events)
{
	struct keeper *keeper = userdata;
	int number;

	(void)events;
	while ((number = signals_read(keeper->signal_fd)) > 0) {
		if (number == SIGCHLD)
			reap(keeper);
		else if (number == SIGTERM || number == SIGINT)
			stop(keeper);
		else if (number == SIGUSR2)
			leave(keeper);
		else if (keeper->pid > 0)
			(void)kill(keeper->pid, number); /* HUP */
	}
	return number;
}

static int on_timer(void *userdata, uint32_t events)
{
	struct keeper *keeper = userdata;
	int r;

	(void)events;
	if (!keeper->stopping) {
		r = start_supervisor(keeper);
		if (r < 0) {
			log_line(LOG_LEVEL_ERROR, NULL, "supervisor cannot be started yet",
				 "errno=%d", -r);
			start_later(keeper);
		}
		return 0;
	}
	log_line(LOG_LEVEL_ERROR, NULL, "supervisor does not stop and is killed",
		 "leftovers=\"removed at the next start\"");
	(void)kill(keeper->pid, SIGKILL);
	return 0;
}

/* Before anything in the runtime directory is touched: its sockets may be another keeper's. */
static int lock_runtime_dir(struct keeper *keeper, struct err *err)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	struct stat st;

	keeper->lock_fd = openat(keeper->listeners.runtime_fd, "lock",
				 O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	if (keeper->lock_fd < 0)
		return err_fail(err, -errno, "keeper", "lock file of the runtime directory");
	if (fcntl(keeper->lock_fd, F_SETLK, &lock) < 0 || fstat(keeper->lock_fd, &st) < 0)
		return err_fail(err, -errno, "keeper", "the runtime directory is in use");
	/* The keeper before us removed the file between our open and our lock, so the next one
	 * makes another. */
	if (st.st_nlink == 0)
		return err_fail(err, -EAGAIN, "keeper", "the runtime directory was in use");
	return 0;
}

static int open_keeper(struct keeper *keeper, const struct options *options, struct err *err)
{
	static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR2, SIGCHLD, 0};
	int r;

	keeper->signal_fd = signals_open(signals, err);
	if (keeper->signal_fd < 0)
		return keeper->signal_fd;
	/* Only opened to be executed, so O_PATH. */
	keeper->program_fd = open("/proc/self/exe", O_PATH | O_CLOEXEC);
	if (keeper->program_fd < 0)
		return err_fail(err, -errno, "keeper", "open /proc/self/exe");
	if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
		return err_fail(err, -errno, "keeper", "become subreaper");
	keeper->listeners.runtime_fd =
		trusted_dir_open(options->runtime_dir, 0755, "runtime-dir", err);
	if (keeper->listeners.runtime_fd < 0)
		return keeper->listeners.runtime_fd;
	r = lock_runtime_dir(keeper, err);
	if (r < 0)
		return r;
	r = listeners_make(&keeper->listeners, err);
	if (r < 0)
		return r;
	r = loop_new(&keeper->loop);
	if (r < 0)
		return err_fail(err, r, "keeper", "loop");
	r = loop_add(keeper->loop, keeper->signal_fd, EPOLLIN, on_signal, keeper,
		     &keeper->signal_source);
	if (r < 0)
		return err_fail(err, r, "keeper", "watch signals");
	r = loop_add_timer(keeper->loop, USEC_NEVER, on_timer, keeper, &keeper->timer);
	if (r < 0)
		return err_fail(err, r, "keeper", "timer");
	return privileges_drop_current(err);
}

static void close_keeper(struct keeper *keeper)
{
	forget_supervisor(keeper);
	keeper->signal_source = loop_remove(keeper->signal_source);
	keeper->timer = loop_remove(keeper->timer);
	loop_free(keeper->loop);
	if (keeper->lock_fd >= 0 && keeper->listeners.made_here)
		(void)unlinkat(keeper->listeners.runtime_fd, "lock", 0);
	listeners_done(&keeper->listeners);
	keeper->lock_fd = fd_close(keeper->lock_fd);
	keeper->signal_fd = fd_close(keeper->signal_fd);
	keeper->program_fd = fd_close(keeper->program_fd);
	free(keeper->argv);
}

int keeper_run(const struct options *options, int argc, char *const argv[], struct err *err)
{
	static char supervisor_option[] = "--supervisor"; /* exec's argv is not const */
	struct keeper keeper = {
		.listeners = LISTENERS_NULL,
		.program_fd = -1,
		.lock_fd = -1,
		.signal_fd = -1,
		.supervisor_fd = -1,
		.backoff = BACKOFF_MIN,
	};
	int r;

	keeper.argv = calloc((size_t)argc + 2, sizeof(char *));
	if (!keeper.argv)
		return err_fail(err, -ENOMEM, "keeper", "arguments");
	memcpy(keeper.argv, argv, (size_t)argc * sizeof(char *));
	keeper.argv[argc] = supervisor_option;
	r = open_keeper(&keeper, options, err);
	if (r == 0) {
		r = start_supervisor(&keeper);
		if (r == 0)
			r = loop_run(keeper.loop);
		if (r < 0)
			(void)err_fail(err, r, "keeper", "start or watch the supervisor");
	}
	close_keeper(&keeper);
	return r;
}
