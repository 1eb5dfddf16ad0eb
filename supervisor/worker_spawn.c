/*
 * Theory. The child of one clone3 works through the table below and execs the program by its
 * descriptor. The order matters:
 *
 *   groups        root's; before the descriptors go
 *   engine        the host's path, or that of a credential, looked up in its own mount namespace
 *   root          needs SYS_ADMIN over the new mount namespace
 *   descriptors   only now: until here any low number may be one of the host's descriptors
 *   bounding set  needs SETPCAP; after it no exec can give a capability back
 *   ids           groups first, they need SETGID; leaving uid 0 empties the capability sets
 *   keyring       after the ids, so that the new one is the worker's
 *   no_new_privs  after the ids, so that it is the last word
 *   death signal  after the ids: a change of ids clears it
 *
 * PDEATHSIG is KILL: a worker without its supervisor is no state of the service, and the next one
 * must find the state directory free. Everything that a worker promised is on disk by then.
 *
 * Workers keep the host's network namespace where their work needs it (the egress worker connects,
 * the api worker reaches Redis and PostgreSQL); the configuration reader gets an empty one.
 */
#include "supervisor/worker_spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/keyctl.h>

#include "base/io.h"
#include "base/log.h"
#include "base/path.h"
#include "base/plant.h"

#include "sandboxd/kernel.h"
#include "sandboxd/worker.h"
#include "supervisor/host.h"
#include "supervisor/privileges.h"
#include "supervisor/rlimits.h"
#include "supervisor/signals.h"

#define HIGH_FD        64 /* above every number that a worker is given */
#define CLOSE_ON_EXEC_ 4U /* CLOSE_RANGE_CLOEXEC */
#define END_TIMEOUT_MS 1000

struct spawn_child {
	const struct host *host;
	const struct worker_spawn *spawn;
	int program_fd;
	int error_fd;
	int engine_fd;  /* -1: none */
	uint32_t group; /* the worker's */
};

static int step_session(struct spawn_child *child, struct err *err)
{
	int r = signals_reset();

	(void)child;
	if (r < 0)
		return err_fail(err, r, "worker-session", "signals");
	if (setsid() < 0)
		return err_fail(err, -errno, "worker-session", "setsid");
	(void)umask(0077);
	return 0;
}

static int step_groups(struct spawn_child *child, struct err *err)
{
	int r = host_join_workers(child->host, child->spawn->guarded);

	return r < 0 ? err_fail(err, r, "worker-groups", "join those of version 1") : 0;
}

/*
 * The engine's socket, as a descriptor that is good for connect() alone. A worker has no group but
 * its own, and here that of the socket, never root's: one that admits its group needs no other
 * mode.
 */
static int check_socket(struct spawn_child *child, const struct stat *st, struct err *err)
{
	if (!S_ISSOCK(st->st_mode))
		return err_fail(err, -ENOTSOCK, "worker-engine", "open its socket");
	if (st->st_gid != 0)
		child->group = st->st_gid;
	return 0;
}

/* What others may read is no secret, and what others may write is not the operator's. */
static int check_credential(struct spawn_child *child, const struct stat *st, struct err *err)
{
	(void)child;
	if (!S_ISREG(st->st_mode) || st->st_uid != 0 || (st->st_mode & 0077) != 0)
		return err_fail(err, -EPERM, "worker-engine",
				"its credential is no file of root's alone");
	return 0;
}

/* The path is the operator's, without a link on the way. */
static int step_engine(struct spawn_child *child, struct err *err)
{
	const struct worker_spawn *spawn = child->spawn;
	const char *path = spawn->credential ? spawn->credential : spawn->engine;
	int flags = spawn->credential ? O_RDONLY | O_NONBLOCK | O_NOCTTY : O_PATH;
	AUTO_CLOSE int own_fd = -1;
	AUTO_CLOSE int root_fd = -1;
	struct stat st;
	int r;

	if (!path)
		return 0;
	own_fd = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
	if (own_fd < 0 || setns(host_mounts_fd(child->host), CLONE_NEWNS) < 0)
		return err_fail(err, -errno, "worker-engine", "enter the host's mounts");
	root_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root_fd < 0)
		return err_fail(err, -errno, "worker-engine", "open the root");
	child->engine_fd = path_open_beneath(root_fd, path + 1, flags | O_NOFOLLOW, 0);
	if (child->engine_fd < 0 || fstat(child->engine_fd, &st) < 0)
		return err_fail(err, child->engine_fd < 0 ? child->engine_fd : -errno,
				"worker-engine", "open its %s",
				spawn->credential ? "credential" : "socket");
	r = spawn->credential ? check_credential(child, &st, err) : check_socket(child, &st, err);
	if (r < 0)
		return r;
	if (setns(own_fd, CLONE_NEWNS) < 0)
		return err_fail(err, -errno, "worker-engine", "leave the host's mounts");
	return 0;
}

static int step_root(struct spawn_child *child, struct err *err)
{
	return host_enter_worker_root(child->host, child->spawn->state_fd, err);
}

static int step_descriptors(struct spawn_child *child, struct err *err)
{
	const struct worker_spawn *spawn = child->spawn;
	int copies[WORKER_SPAWN_MAX_FDS];
	int engine_fd = -1;

	if (child->engine_fd >= 0) {
		engine_fd = fd_dup(child->engine_fd, HIGH_FD);
		if (engine_fd < 0)
			return err_fail(err, engine_fd, "worker-descriptors",
					"copy of the engine's");
	}

	for (size_t i = 0; i < spawn->n_fds; i++) {
		copies[i] = fd_dup(spawn->fds[i].from, HIGH_FD);
		if (copies[i] < 0)
			return err_fail(err, copies[i], "worker-descriptors", "copy for %d",
					spawn->fds[i].to);
	}
	/* All are close-on-exec at birth; this makes it true whatever a library forgot. What is
	 * placed below is not. */
	if (syscall(SYS_close_range, 0U, ~0U, CLOSE_ON_EXEC_) < 0)
		return err_fail(err, -errno, "worker-descriptors", "close_range");
	for (size_t i = 0; i < spawn->n_fds; i++) {
		if (dup2(copies[i], spawn->fds[i].to) < 0)
			return err_fail(err, -errno, "worker-descriptors", "place %d",
					spawn->fds[i].to);
	}
	if (engine_fd >= 0 && dup2(engine_fd, WORKER_FD_ENGINE) < 0)
		return err_fail(err, -errno, "worker-descriptors", "place the engine's");
	return 0;
}

static int step_limits(struct spawn_child *child, struct err *err)
{
	int r;

	(void)child;
	/* A core of a worker would hold tenants' data. */
	r = rlimits_lower(RLIMIT_CORE, RLIMITS_NO_CORE);
	return r < 0 ? err_fail(err, r, "worker-limits", "RLIMIT_CORE") : 0;
}

static int step_bounding(struct spawn_child *child, struct err *err)
{
	(void)child;
	return privileges_drop_bounding(err);
}

static int step_ids(struct spawn_child *child, struct err *err)
{
	uint32_t id = child->spawn->id;
	uint32_t group = child->group;

	if (id == 0)
		return err_fail(err, -EPERM, "worker-ids", "no worker is root");
	if (setgroups(0, NULL) < 0)
		return err_fail(err, -errno, "worker-ids", "setgroups");
	if (setresgid(group, group, group) < 0)
		return err_fail(err, -errno, "worker-ids", "setresgid");
	if (setresuid(id, id, id) < 0)
		return err_fail(err, -errno, "worker-ids", "setresuid");
	/* Until the exec this is a copy of the supervisor's memory, under an id that workers have:
	 * a change of ids sets it to fs.suid_dumpable, which a host may have set to 1. */
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return err_fail(err, -errno, "worker-ids", "PR_SET_DUMPABLE");
	/* The kernel emptied permitted and effective with the change of ids, unless a securebit
	 * says otherwise; this also empties the inheritable set and fails on nothing. */
	return privileges_drop_current(err);
}

/* Keyrings are not namespaced: whoever is in root's session keyring possesses its keys, whatever
 * its ids are (B7). */
static int step_keyring(struct spawn_child *child, struct err *err)
{
	(void)child;
	if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0)
		return err_fail(err, -errno, "worker-keyring", "join a new one");
	return 0;
}

static int step_no_new_privs(struct spawn_child *child, struct err *err)
{
	(void)child;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_fail(err, -errno, "worker-no-new-privs", "prctl");
	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		return err_fail(err, -errno, "worker-no-new-privs", "PR_SET_PDEATHSIG");
	return 0;
}

static int step_exec(struct spawn_child *child, struct err *err)
{
	char name[64];
	char mode[16];
	char *argv[] = {name, child->spawn->mode ? mode : NULL, NULL};
	char *env[] = {plant_environment(), NULL};

	(void)snprintf(name, sizeof(name), "%s", child->spawn->program);
	(void)snprintf(mode, sizeof(mode), "%s", child->spawn->mode ? child->spawn->mode : "");
	(void)kernel_execveat(child->program_fd, argv, env);
	return err_fail(err, -errno, "worker-exec", "execveat %s", name);
}

static const struct spawn_step {
	const char *name;
	int (*run)(struct spawn_child *child, struct err *err);
} spawn_steps[] = {
	{"worker-session",      step_session     },
	{"worker-groups",       step_groups      },
	{"worker-engine",       step_engine      },
	{"worker-root",         step_root        },
	{"worker-descriptors",  step_descriptors },
	{"worker-limits",       step_limits      },
	{"worker-bounding",     step_bounding    },
	{"worker-ids",          step_ids         },
	{"worker-keyring",      step_keyring     },
	{"worker-no-new-privs", step_no_new_privs},
	{"worker-exec",         step_exec        },
};

/* Runs as root in the new namespaces, a copy of the supervisor: no log, no loop, no return. */
static _Noreturn void run_child(struct spawn_child *child)
{
	struct err err = ERR_NULL;

	child->program_fd = fd_dup(child->program_fd, HIGH_FD);
	child->error_fd = fd_dup(child->error_fd, HIGH_FD);
	for (size_t i = 0; child->program_fd >= 0 && i < ARRAY_SIZE(spawn_steps); i++) {
		if (spawn_steps[i].run(child, &err) < 0)
			break;
	}
	/* A parent that is gone reads nothing; the status is all that is left to say. */
	if (io_write_all(child->error_fd, &err, sizeof(err)) < 0)
		_exit(126);
	_exit(127);
}

int worker_spawn(const struct host *host, const struct worker_spawn *spawn, int *ret_pid_fd,
		 int *ret_error_fd, struct err *err)
{
	AUTO_CLOSE int read_fd = -1;
	AUTO_CLOSE int write_fd = -1;
	struct spawn_child child = {
		.host = host, .spawn = spawn, .engine_fd = -1, .group = spawn->id};
	struct clone_args args = {0};
	int group_fd = spawn->guarded ? host_egress_group(host) : host_worker_group(host);
	int pid_fd = -1;
	int pipe_fds[2];
	int pid;

	child.program_fd = host_program(host, spawn->program);
	if (child.program_fd < 0)
		return err_fail(err, -ENOENT, "worker-spawn", "%s is not in the program directory",
				spawn->program);
	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return err_fail(err, -errno, "worker-spawn", "pipe");
	read_fd = pipe_fds[0];
	write_fd = pipe_fds[1];
	child.error_fd = write_fd;

	args.flags = CLONE_PIDFD | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS;
	if (spawn->no_network)
		args.flags |= CLONE_NEWNET;
	args.pidfd = (__u64)(uintptr_t)&pid_fd;
	args.exit_signal = SIGCHLD;
	if (group_fd >= 0) {
		args.flags |= CLONE_INTO_CGROUP;
		args.cgroup = (__u64)group_fd;
	}
	pid = kernel_clone3(&args);
	if (pid < 0)
		return err_fail(err, -errno, "worker-spawn", "clone3 for %s", spawn->program);
	if (pid == 0)
		run_child(&child);
	*ret_pid_fd = pid_fd;
	*ret_error_fd = TAKE_FD(read_fd);
	return 0;
}

void worker_end(int pid_fd, const char *program)
{
	struct pollfd ended = {.fd = pid_fd, .events = POLLIN};

	/* ESRCH: dead already, and its pidfd tells. */
	(void)kernel_pidfd_send_signal(pid_fd, SIGKILL);
	if (poll(&ended, 1, END_TIMEOUT_MS) > 0 &&
	    waitid(P_PIDFD, (id_t)pid_fd, &(siginfo_t){0}, WEXITED | WNOHANG) == 0)
		return;
	log_line(LOG_LEVEL_ERROR, NULL, "a killed worker does not end and is left", "worker=%s",
		 program);
}

int worker_spawn_result(int error_fd, struct err *ret_err)
{
	struct err err;
	ssize_t n;

	if (fd_set_nonblock(error_fd, 1) < 0)
		return 0;
	n = io_read(error_fd, &err, sizeof(err));
	if (n != (ssize_t)sizeof(err))
		return 0;
	err_sanitize(&err);
	*ret_err = err;
	return 1;
}
