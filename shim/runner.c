/*
 * Theory. A timeout or a cancel has to end everything that a command started, also what double-
 * forked into a session of its own, and nothing of any other command. Inside the session there is
 * no group of ours to kill (no cgroup is writable), a process group can be left, and every command
 * has the same uid. What a process cannot leave is its ancestry, so each command has a *runner*: a
 * child subreaper, to which every orphan below it is re-parented.
 *
 *   - Normal case: the runner clones the command, waits, reports, and waits for the next one. It is
 *     forked at the first command of a session and used again, so it costs one fork once. Only a
 *     runner without children is used again. Descendants that outlive their command's leader
 *     belong to the session: the runner reports, leaves, and pid 1 inherits them.
 *   - TERM: to every descendant that /proc shows.
 *   - KILL, first: rounds of { the group, every direct child; reap } until no child is left. A
 *     killed process hands its children up to the runner, so each round reaches one level deeper.
 *     That ends every ordinary tree, and a fork bomb that stays in its group, in one step of the
 *     kernel.
 *   - KILL, then: a bomb that leaves its group at each fork refills in each round what the round
 *     killed (each death frees a pid). So the tree is first *stopped*: what is stopped keeps its
 *     pid, so the session's pids limit ends the growth, and one pass later all of it stands still;
 *     then it is killed as a whole. tree.c.
 *   - Last: a tree that somebody keeps continuing from outside survives even that. After
 *     RUNNER_LAST_RESORT_US one kill(-1) under the id of `user` ends all commands of the session at
 *     once (nobody forks between). Other commands then end too, and their runners say so. For a
 *     root command that is the id 0: what took another id and is continued from outside its tree
 *     lives until the session ends.
 *
 * Direct children are read from /proc/thread-self/children, which hidepid does not cover. A process
 * group is signalled only while its leader is unreaped, so its number cannot be another's (B19).
 *
 * Runs as the session's unmapped id, confined like a command, with its spawner's capabilities.
 * Reads only from pid 1; must not touch what a command wrote.
 */
#include "shim/runner.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/frame.h"
#include "base/io.h"

#include "shim/exec.h"
#include "shim/message.h"
#include "shim/nursery.h"
#include "shim/pty.h"
#include "shim/secrets.h"
#include "shim/tree.h"
#include "shim/usage.h"

#define RUNNER_ROUND_MS       2
/* Rounds of the first kind; passes of the second in one round. */
#define RUNNER_FIRST_ROUNDS   3
#define RUNNER_STOP_PASSES    50
/* A pass; and all passes, of what the api worker waits for the answer. */
#define RUNNER_HALT_MS        1
#define RUNNER_HALT_US        (USEC_PER_SEC / 2)
#define RUNNER_LAST_RESORT_US (6 * USEC_PER_SEC)

struct runner {
	const struct shim_params *params;
	const struct secrets *secrets;
	bool is_root;
	int socket_fd;
	int signal_fd;
	pid_t leader; /* 0: idle, or reaped */
	bool busy;    /* from EXEC to the report */
	bool stopping;
	bool childless;
	usec_t killing_since; /* 0: not killing */
	uint32_t n_rounds;    /* of killing */
	struct message exit;
	size_t n_stopped; /* who was so before HALT */
	pid_t stopped[PLAN_PIDS_MAX];
	uint8_t buffer[MESSAGE_MAX_BYTES]; /* untouched pages cost nothing */
};

/* Signal every direct child. Returns their number, or -errno. */
static int runner_signal_children(int number)
{
	AUTO_CLOSE int fd = -1;
	char text[4096];
	pid_t pid = 0;
	int count = 0;

	fd = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	for (;;) {
		ssize_t n;

		n = io_read(fd, text, sizeof(text));
		if (n < 0)
			return (int)n;
		if (n == 0)
			return count;
		/* Numbers, each followed by a space; one may lie across two reads. */
		for (ssize_t i = 0; i < n; i++) {
			if (text[i] >= '0' && text[i] <= '9') {
				pid = pid * 10 + (text[i] - '0');
				continue;
			}
			/* It is our unreaped child, so the number is its own. */
			if (pid > 1 && kill(pid, number) >= 0)
				count++;
			pid = 0;
		}
	}
}

static void runner_signal_near(const struct runner *runner, int number)
{
	if (runner->leader > 0)
		(void)kill(-runner->leader, number); /* ESRCH: before its setsid */
	if (runner->leader > 0)
		(void)kill(runner->leader, number);
	/* Without /proc only the group is reached, and the last resort remains. */
	(void)runner_signal_children(number);
}

static void runner_terminate(const struct runner *runner)
{
	/* Once to each: a second TERM means something else to many programs. Without /proc only the
	 * group and the direct children are reached. */
	if (tree_signal(getpid(), SIGTERM) <= 0)
		runner_signal_near(runner, SIGTERM);
}

/* Stop all of it, then kill all of it. */
static void runner_kill_far(void)
{
	for (int i = 0; i < RUNNER_STOP_PASSES; i++) {
		if (tree_signal(getpid(), SIGSTOP) <= 0)
			break;
	}
	if (tree_signal(getpid(), SIGKILL) < 0)
		return; /* no /proc: the last resort follows */
}

static void runner_reap(struct runner *runner)
{
	for (;;) {
		struct rusage usage;
		int status;
		pid_t pid;

		pid = wait4(-1, &status, WNOHANG, &usage);
		if (pid <= 0) {
			runner->childless = pid < 0 && errno == ECHILD;
			return;
		}
		if (pid != runner->leader)
			continue;
		runner->leader = 0;
		runner->exit.wait_status = status;
		usage_fill(&usage, &runner->exit);
	}
}

/* Report the end when it is one. A tree that was told to stop has ended when it is empty. */
static void runner_report(struct runner *runner)
{
	int r;

	if (!runner->busy || runner->leader > 0 || (runner->stopping && !runner->childless))
		return;
	runner->exit.type = MESSAGE_EXIT;
	runner->exit.n_children = runner->childless ? 0 : 1;
	r = message_send(runner->socket_fd, &runner->exit, NULL, NULL, 0);
	if (r < 0 || !runner->childless)
		_exit(0);
	runner->busy = false;
	runner->stopping = false;
	runner->killing_since = 0;
}

static void runner_fail(struct runner *runner, uint32_t step, int error_number)
{
	const struct message failed = {
		.type = MESSAGE_FAILED,
		.step = step,
		.error_number = error_number,
	};

	if (message_send(runner->socket_fd, &failed, NULL, NULL, 0) < 0)
		_exit(0);
	runner->busy = false;
}

static void runner_signal(const struct runner *runner, int number, uint32_t scope)
{
	/* Unreaped, so its number, and that of its group, is its own (B19). */
	if (runner->leader <= 0)
		return;
	/* Without /proc the group is what can be reached. */
	if (scope == WIRE_SIGNAL_TREE && tree_signal(getpid(), number) > 0)
		return;
	(void)kill(scope == WIRE_SIGNAL_LEADER ? runner->leader : -runner->leader, number);
}

/* Begin it on what it gets: [stdin,] stdout, stderr, or the terminal. As exec_start. */
static int runner_begin(struct runner *runner, const struct frame_exec *exec, const int *fds,
			int tty_fd, struct exec_failure *failure)
{
	bool has_stdin = (exec->head.flags & WIRE_EXEC_STDIN) != 0;

	if (tty_fd >= 0)
		return exec_start(runner->params, exec, tty_fd, tty_fd, tty_fd, failure);
	if (fds[has_stdin ? 2 : 1] < 0)
		_exit(1);
	return exec_start(runner->params, exec, has_stdin ? fds[0] : -1, fds[has_stdin ? 1 : 0],
			  fds[has_stdin ? 2 : 1], failure);
}

static void runner_exec(struct runner *runner, const struct message *message, const int *fds)
{
	static struct frame_exec exec; /* ten kilobytes of pointers */
	struct exec_failure failure = {0};
	AUTO_CLOSE int pty_fd = -1;
	AUTO_CLOSE int tty_fd = -1;
	int r;

	runner->busy = true;
	r = frame_exec_parse(runner->buffer + sizeof(*message), message->n_bytes, &exec);
	if (r >= 0 && ((exec.head.flags & WIRE_EXEC_ROOT) != 0) != runner->is_root)
		r = -EPERM;
	if (r < 0) {
		runner_fail(runner, WIRE_STEP_REQUEST, -r);
		return;
	}
	if (exec.head.program == WIRE_PROGRAM_ARGV)
		secrets_give(runner->secrets, &exec);
	if (exec.head.flags & WIRE_EXEC_PTY) {
		r = pty_open(runner->params, runner->is_root, &exec.head.size, &pty_fd, &tty_fd);
		if (r < 0) {
			runner_fail(runner, WIRE_STEP_PTY, -r);
			return;
		}
	}
	runner->exit = (struct message){0};
	runner->childless = false;
	r = runner_begin(runner, &exec, fds, tty_fd, &failure);
	if (r < 0) {
		runner_fail(runner, failure.step, failure.error_number);
		return;
	}
	runner->leader = r;
	{
		const struct message started = {
			.type = MESSAGE_STARTED,
			.pid = r,
			.peer_pid = getpid(),
		};

		if (message_send(runner->socket_fd, &started, NULL, &pty_fd, pty_fd >= 0 ? 1 : 0) <
		    0)
			_exit(0);
	}
}

static void runner_answer(struct runner *runner, int r)
{
	const struct message done = {.type = MESSAGE_DONE};

	if (r < 0)
		runner_fail(runner, WIRE_STEP_FORK, -r);
	else if (message_send(runner->socket_fd, &done, NULL, NULL, 0) < 0)
		_exit(0);
}

/* Whoever gets the signal runs no further instruction of its own: what a call in the kernel has yet
 * to do ends before a freeze does. */
static int runner_halt(struct runner *runner, bool again)
{
	usec_t until = clock_add(clock_boottime(), RUNNER_HALT_US);
	int n = again ? 0 : tree_stopped(runner->stopped, ARRAY_SIZE(runner->stopped));

	if (n < 0)
		return n;
	if (!again)
		runner->n_stopped = (size_t)n;
	/* Parents first, for who is well-behaved; then all, who may hide or be woken meanwhile. */
	while (tree_stop(runner->params->user_id) > 0 && clock_boottime() < until)
		(void)poll(NULL, 0, RUNNER_HALT_MS);
	return exec_signal_all(runner->params, false, SIGSTOP);
}

static void runner_receive(struct runner *runner)
{
	int fds[MESSAGE_MAX_FDS];
	struct message message;
	int r;

	r = message_receive(runner->socket_fd, runner->buffer, sizeof(runner->buffer), &message,
			    fds, MESSAGE_MAX_FDS);
	if (r <= 0)
		_exit(0); /* dismissed; what lives on is pid 1's */
	switch (message.type) {
	case MESSAGE_EXEC:
		if (runner->busy)
			_exit(1);
		runner_exec(runner, &message, fds);
		break;
	case MESSAGE_TERM:
		runner->stopping = true;
		if (runner->busy)
			runner_terminate(runner);
		break;
	case MESSAGE_KILL:
		runner->stopping = true;
		if (runner->busy && runner->killing_since == 0) {
			runner->killing_since = clock_boottime();
			runner->n_rounds = 0;
		}
		break;
	case MESSAGE_SIGNAL:
		if (runner->busy)
			runner_signal(runner, message.wait_status, message.step);
		break;
	case MESSAGE_HALT:
		runner_answer(runner, runner_halt(runner, message.step != 0));
		break;
	case MESSAGE_GO_ON:
		runner_answer(runner, tree_continue(runner->stopped, runner->n_stopped));
		runner->n_stopped = 0;
		break;
	default:
		_exit(1);
	}
	for (size_t i = 0; i < MESSAGE_MAX_FDS; i++)
		fds[i] = fd_close(fds[i]);
	/* A stop that crossed our report on the wire is for a command that has ended. */
	if (!runner->busy)
		runner->stopping = false;
}

static void runner_round(struct runner *runner)
{
	if (runner->killing_since == 0 || runner->childless)
		return;
	if (runner->n_rounds++ < RUNNER_FIRST_ROUNDS)
		runner_signal_near(runner, SIGKILL);
	else
		runner_kill_far();
	if (clock_boottime() < clock_add(runner->killing_since, RUNNER_LAST_RESORT_US))
		return;
	/* Without a free pid there is nothing to try; the next round asks again. */
	IGNORE_RESULT(exec_signal_all(runner->params, runner->is_root, SIGKILL));
	runner->killing_since = clock_boottime();
}

_Noreturn void runner_main(const struct nursery_context *context, bool is_root, int fd)
{
	static struct runner runner;
	sigset_t mask;

	runner.params = &context->params;
	runner.secrets = context->secrets;
	runner.is_root = is_root;
	runner.socket_fd = fd;
	(void)sigemptyset(&mask);
	(void)sigaddset(&mask, SIGCHLD);
	(void)signal(SIGCHLD, SIG_DFL); /* the spawner's is ignored, which reaps */
	runner.signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	if (runner.signal_fd < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
		_exit(1);

	for (;;) {
		struct pollfd poll_fds[2] = {
			{.fd = fd,               .events = POLLIN},
			{.fd = runner.signal_fd, .events = POLLIN},
		};
		struct signalfd_siginfo info;

		if (poll(poll_fds, 2, runner.killing_since ? RUNNER_ROUND_MS : -1) < 0)
			_exit(1);
		if (poll_fds[1].revents) {
			/* One record stands for any number of children. */
			(void)!read(runner.signal_fd, &info, sizeof(info));
		}
		if (poll_fds[1].revents || runner.killing_since)
			runner_reap(&runner);
		runner_report(&runner);
		if (poll_fds[0].revents)
			runner_receive(&runner);
		runner_round(&runner);
	}
}
