/*
 * Theory. The child is cloned with CLONE_VM | CLONE_VFORK: no page table is copied, and the caller
 * sleeps until the child has exec'd or ended, so the child can leave {step, errno} in the caller's
 * memory and no pipe is needed. Between clone and exec the child runs on a stack of its own, makes
 * raw system calls only (glibc's set*id and signal wrappers keep state for all threads), and writes
 * nothing but *failure and errno.
 *
 * For that time a process with the id of `user` shares the memory of one that may change ids. It
 * must not be traceable, and is not: the memory is not dumpable (steps_self). A change of ids would
 * set it to fs.suid_dumpable, which a host may have set to 1; so ids first (a tracer lacks the
 * capabilities that the child still has), then not dumpable again, then capabilities: at no moment
 * can `user` attach (A12, B10). Seen in /proc/PID as well: its files stay root's. The same holds of
 * a root command's child, against other root commands: see spawner.c.
 *
 * Order: setsid; descriptors; groups, ids; dumpable; capabilities; all but 0, 1, 2 closed; umask,
 * slice, cwd (as `user`: a folder that it may not enter is refused); signals; exec. Bounding set,
 * no_new_privs, rlimits, Landlock and filter are the spawner's.
 */
#include "shim/exec.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/capability.h>

#include "base/str.h"

#include "sandboxd/kernel.h"
#include "shim/steps.h"

#define EXEC_STACK_BYTES  16384
#define EXEC_DEFAULT_PATH "/usr/bin:/bin"
#define EXEC_PATH_BYTES   4096
/* The kernel's set of signals, which is smaller than glibc's. */
#define EXEC_SIGSET_BYTES 8

struct exec_child {
	const struct shim_params *params;
	const struct frame_exec *exec;
	int fd[3]; /* what becomes 0, 1, 2; -1: stays */
	const char *path;
	struct exec_failure *failure;
};

static int exec_fail(const struct exec_child *child, uint32_t step)
{
	child->failure->step = step;
	child->failure->error_number = errno;
	return -1;
}

/* caps: what is left, permitted and effective. */
static int exec_become(const struct shim_params *params, bool is_root, uint64_t caps)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	const struct __user_cap_data_struct data[2] = {
		{.effective = (uint32_t)caps, .permitted = (uint32_t)caps},
		{0			  },
	};
	const uint32_t uid = is_root ? 0 : params->user_id;
	const uint32_t gid = is_root ? 0 : params->group_id;

	if (syscall(SYS_setgroups, 0, NULL) < 0)
		return -1;
	if (syscall(SYS_setresgid, gid, gid, gid) < 0)
		return -1;
	if (syscall(SYS_setresuid, uid, uid, uid) < 0)
		return -1;
	if (syscall(SYS_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return -1;
	if (shim_weak(params, SHIM_PARAMS_WEAK_CAPS))
		return 0;
	if (syscall(SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
		return -1;
	return (int)syscall(SYS_capset, &header, data);
}

/* argv and env lie in the caller's memory, which exec copies. */
static void exec_file(const struct exec_child *child, const char *file)
{
	(void)syscall(SYS_execve, file, child->exec->argv, child->exec->env);
}

/*
 * As execvp searches, with the PATH of the command's own environment: what is missing is passed
 * over, what may not be run is remembered (EACCES wins over ENOENT), anything else ends the search.
 * A text file without an interpreter is ENOEXEC: no shell is guessed.
 */
static void exec_search(const struct exec_child *child)
{
	const char *name = child->exec->argv[0];
	const char *at = child->path;
	size_t name_length = strlen(name);
	bool refused = false;
	char file[EXEC_PATH_BYTES];

	if (strchr(name, '/') || name_length == 0) {
		exec_file(child, name);
		return;
	}
	for (;;) {
		size_t length = strcspn(at, ":");

		errno = ENAMETOOLONG;
		if (length + 1 + name_length + 1 <= sizeof(file)) {
			memcpy(file, at, length);
			if (length > 0)
				file[length++] = '/'; /* an empty element is the current folder */
			memcpy(file + length, name, name_length + 1);
			exec_file(child, file);
		}
		if (errno == EACCES)
			refused = true;
		else if (errno != ENOENT && errno != ENOTDIR && errno != ENAMETOOLONG)
			return;
		at += strcspn(at, ":");
		if (*at == '\0')
			break;
		at++;
	}
	errno = refused ? EACCES : ENOENT;
}

/*
 * A pipe belongs to the id that made it, ours: a command that opens its own /dev/stdout by name
 * would be refused. Others may therefore open it, but only for what the command does with it; if
 * they could read their output back, what pid 1 counts as owed would not come.
 */
static int exec_stdio(const struct exec_child *child)
{
	bool is_terminal = (child->exec->head.flags & WIRE_EXEC_PTY) != 0;

	for (int i = 0; i < 3; i++) {
		unsigned int mode = i == STDIN_FILENO ? S_IROTH : S_IWOTH;

		if (child->fd[i] < 0)
			continue;
		/* A terminal is its user's (pty.c). */
		if (!is_terminal && syscall(SYS_fchmod, child->fd[i], S_IRUSR | S_IWUSR | mode) < 0)
			return -1;
		if (syscall(SYS_dup3, child->fd[i], i, 0) < 0)
			return -1;
	}
	return is_terminal ? (int)syscall(SYS_ioctl, STDIN_FILENO, TIOCSCTTY, 0) : 0;
}

/* The descriptor of a jail tool, or -1. */
static int exec_tool(const struct exec_child *child)
{
	switch (child->exec->head.program) {
	case WIRE_PROGRAM_LOADER:
		return SHIM_FD_LOADER;
	case WIRE_PROGRAM_GIT:
		return SHIM_FD_GIT;
	case WIRE_PROGRAM_ARCHIVE:
		return SHIM_FD_ARCHIVE;
	default:
		return -1;
	}
}

/* Really closed, not by the exec only: a cwd of /proc/self/fd/N must lead nowhere (A2). A jail
 * tool's own program stays, close-on-exec. */
static int exec_close(const struct exec_child *child)
{
	int tool_fd = exec_tool(child);

	if (shim_weak(child->params, SHIM_PARAMS_WEAK_FD))
		return (int)syscall(SYS_dup, SHIM_FD_LOADER);
	if (tool_fd < 0)
		return (int)syscall(SYS_close_range, 3, ~0u, 0);
	if (syscall(SYS_close_range, 3, tool_fd - 1, 0) < 0)
		return -1;
	return (int)syscall(SYS_close_range, tool_fd + 1, ~0u, 0);
}

static int exec_child_become(const struct exec_child *child)
{
	bool is_root = (child->exec->head.flags & WIRE_EXEC_ROOT) != 0;

	return exec_become(child->params, is_root,
			   is_root ? shim_caps_command(child->params->landlock_abi) : 0);
}

static int exec_child_main(void *userdata)
{
	const struct exec_child *child = userdata;
	const uint64_t no_signals = 0;

	if (syscall(SYS_setsid) < 0)
		return exec_fail(child, WIRE_STEP_FORK);
	if (exec_stdio(child) < 0)
		return exec_fail(child, WIRE_STEP_PIPE);
	if (exec_child_become(child) < 0)
		return exec_fail(child, WIRE_STEP_IDS);
	if (exec_close(child) < 0)
		return exec_fail(child, WIRE_STEP_EXEC);
	(void)syscall(SYS_umask, 022);
	(void)kernel_set_slice(0); /* ours is for who moves bytes, not for who computes */
	if (syscall(SYS_chdir, child->exec->cwd) < 0)
		return exec_fail(child, WIRE_STEP_CWD);
	/* No handler exists and nothing is ignored (steps_signals); pending ones are not inherited.
	 */
	if (syscall(SYS_rt_sigprocmask, SIG_SETMASK, &no_signals, NULL, EXEC_SIGSET_BYTES) < 0)
		return exec_fail(child, WIRE_STEP_EXEC);
	if (exec_tool(child) >= 0)
		(void)syscall(SYS_execveat, exec_tool(child), "", child->exec->argv,
			      child->exec->env, 0x1000 /* AT_EMPTY_PATH */);
	else
		exec_search(child);
	return exec_fail(child, WIRE_STEP_EXEC);
}

static const char *exec_path(const struct frame_exec *exec)
{
	for (size_t i = 0; exec->env[i]; i++) {
		if (str_has_prefix(exec->env[i], "PATH="))
			return exec->env[i] + strlen("PATH=");
	}
	return EXEC_DEFAULT_PATH;
}

/* Run `function` in a child that shares our memory; we sleep until it has exec'd or ended. */
static pid_t exec_clone(int (*function)(void *), void *userdata)
{
	static uint8_t stack[EXEC_STACK_BYTES] __attribute__((aligned(16)));

	return clone(function, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD, userdata);
}

int exec_start(const struct shim_params *params, const struct frame_exec *exec, int stdin_fd,
	       int stdout_fd, int stderr_fd, struct exec_failure *ret_failure)
{
	struct exec_failure failure = {0};
	struct exec_child child = {
		.params = params,
		.exec = exec,
		.fd = {stdin_fd, stdout_fd, stderr_fd},
		.path = exec_path(exec),
		.failure = &failure,
	};
	pid_t pid;

	pid = exec_clone(exec_child_main, &child);
	if (pid < 0) {
		*ret_failure = (struct exec_failure){WIRE_STEP_FORK, errno};
		return -1;
	}
	/* The child wrote it while we slept; the compiler cannot know. */
	__asm__ volatile("" ::: "memory");
	if (failure.step == 0)
		return pid;
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		continue;
	*ret_failure = failure;
	return -1;
}

struct exec_all {
	struct shim_params params;
	bool is_root;
	int number;
};

static int exec_all_child(void *userdata)
{
	const struct exec_all *all = userdata;

	/* Without capabilities -1 means: all of that id, but us. */
	if (exec_become(&all->params, all->is_root, 0) < 0)
		return 1;
	(void)syscall(SYS_kill, -1, all->number); /* ESRCH: there is none */
	return 0;
}

int exec_signal_all(const struct shim_params *params, bool is_root, int number)
{
	struct exec_all all = {.params = *params, .is_root = is_root, .number = number};
	int status = 0;
	pid_t pid;

	pid = exec_clone(exec_all_child, &all);
	if (pid < 0)
		return -EAGAIN;
	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return -EAGAIN;
	}
	return status == 0 ? 0 : -EAGAIN;
}
