/*
 * Theory. The child is a copy of the supervisor with all its power, so the order in which it gives
 * that power up is the heart of the isolation. Three rules hold the table together:
 *
 *   - What needs the host's root comes first (groups, network, mounts); after `ids` and
 *     `user-namespace` no way leads back, and what is left can only narrow.
 *   - Nothing of the session's runs, and nothing untrusted is read, before the last step: until
 * then no race with anybody inside is possible (A12, E10).
 *   - Only raw system calls and functions that allocate nothing: everything is prepared in
 *     struct steps_child. A failing step is reported as {step, errno} through the ready pipe; end
 * of file without a word means that the child was killed.
 *
 * Not here: Landlock and seccomp. The shim takes its own filter and the spawner that of the
 * commands, each exactly one; a filter taken here would be in force below theirs as well.
 */
#include "supervisor/steps_child.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/capability.h>
#include <linux/keyctl.h>
#include <linux/securebits.h>

#include "base/fd.h"
#include "base/io.h"
#include "base/sockmsg.h"
#include "base/str.h"

#include "sandboxd/kernel.h"
#include "supervisor/etc_template.h"
#include "supervisor/idmap.h"
#include "supervisor/netns.h"
#include "supervisor/rlimits.h"
#include "supervisor/weaken.h"

#define FD_SAFE        64 /* above every descriptor number of enum shim_fd */
#define SHIM_MIN_FILES 512

/* It was sent before the clone, so this never waits. */
static int step_plan(struct steps_child *child)
{
	struct steps_plan plan;
	int fd = -1;

	ssize_t n = sockmsg_recv(child->plan_fd, &plan, sizeof(plan), &fd, 1);
	if (n < 0)
		return (int)n;
	if (n == 0)
		return -EPIPE;
	if ((size_t)n != sizeof(plan) || fd < 0 ||
	    memcmp(&plan, &child->expected, sizeof(plan)) != 0)
		return -EPROTO;
	child->userns_fd = fd;
	/* Else the end of the supervisor would be none of what is waited for below. */
	return close(child->parent_plan_fd) < 0 ? -errno : 0;
}

/* Here and not in the clone: the supervisor makes the groups of version 1 meanwhile. */
static int step_namespaces(struct steps_child *child)
{
	(void)child;
	return unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) < 0 ? -errno : 0;
}

/* Before anything is made that they should count, and when they have their limits. The v2 group is
 * this process's from birth. */
static int step_groups_v1(struct steps_child *child)
{
	uint8_t go = 0;
	ssize_t n = sockmsg_recv(child->plan_fd, &go, sizeof(go), NULL, 0);

	if (n < 0)
		return (int)n;
	if (n == 0)
		return -EPIPE;
	if (go != STEPS_GO)
		return -EPROTO;
	return cgroup_join_self(child->cgroup, child->tasks);
}

/* After the v1 groups are joined: made earlier, the namespace's root would be the supervisor's own
 * group, and /proc/self/cgroup would show the host's names as /../.. */
static int step_cgroup_namespace(struct steps_child *child)
{
	(void)child;
	return unshare(CLONE_NEWCGROUP) < 0 ? -errno : 0;
}

static int step_loopback(struct steps_child *child)
{
	(void)child;
	return netns_loopback();
}

static int step_sysctls(struct steps_child *child)
{
	(void)child;
	return netns_sysctls();
}

static int step_routes(struct steps_child *child)
{
	return netns_routes(child->ipv6);
}

/* While the network is still the host's to shape and /proc still shows it; after the sysctls, which
 * keep the session from the listener's port. */
static int step_sockets(struct steps_child *child)
{
	struct steps_net net;
	int fds[NETNS_FDS];

	int r = netns_sockets(child->ipv6, &child->lookup, fds);
	if (r < 0)
		return r;
	memcpy(net.session, child->params.session, sizeof(net.session));
	r = sockmsg_send(child->plan_fd, &net, sizeof(net), fds, ARRAY_SIZE(fds));
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		(void)fd_close(fds[i]);
	return r;
}

static int step_hostname(struct steps_child *child)
{
	(void)child;
	return sethostname(ETC_TEMPLATE_HOSTNAME, strlen(ETC_TEMPLATE_HOSTNAME)) < 0 ? -errno : 0;
}

static int step_tmpfs(struct steps_child *child)
{
	return mountns_tmpfs(&child->mountns);
}

static int step_folders(struct steps_child *child)
{
	return mountns_folders(&child->mountns);
}

static int step_idmap(struct steps_child *child)
{
	return idmap_layers(child->idmap, child->template_fd >= 0, child->userns_fd);
}

static int step_root(struct steps_child *child)
{
	return mountns_root(&child->mountns);
}

static int step_usr(struct steps_child *child)
{
	return mountns_usr(&child->mountns);
}

static int step_dev(struct steps_child *child)
{
	return mountns_dev(&child->mountns);
}

static int step_writable(struct steps_child *child)
{
	return mountns_writable(&child->mountns);
}

static int step_queues(struct steps_child *child)
{
	return child->params.landlock_abi > 0 ? mountns_queues(&child->mountns) : 0;
}

static int step_proc(struct steps_child *child)
{
	return mountns_proc(&child->mountns);
}

static int step_mask(struct steps_child *child)
{
	return mountns_mask(&child->mountns);
}

/* The last look at the supervisor's root; its mounts leave the namespace with it (C2). */
static int step_pivot(struct steps_child *child)
{
	return mountns_pivot(&child->mountns);
}

/* The session's own null device, not one of the host's (A3). */
static int step_stdio(struct steps_child *child)
{
	(void)child;
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	for (int target = 0; target <= 2; target++) {
		if (fd != target && dup3(fd, target, 0) < 0)
			return -errno;
	}
	return 0;
}

/* Before the ids: afterwards SETGID over the host's groups is gone, and they would stay. */
static int step_groups(struct steps_child *child)
{
	(void)child;
	return syscall(SYS_setgroups, 0, NULL) < 0 ? -errno : 0;
}

/* Else setresuid to a non-zero id would clear SYS_ADMIN, which setns below still needs. */
static int step_keep_caps(struct steps_child *child)
{
	(void)child;
	return prctl(PR_SET_SECUREBITS, SECBIT_KEEP_CAPS | SECBIT_NO_SETUID_FIXUP, 0, 0, 0) < 0
		       ? -errno
		       : 0;
}

/* The block's last id, which the user namespace does not map: nobody inside can take it, signal it
 * or set its limits (B24). It must be taken outside: inside it is no valid id. */
static int step_ids(struct steps_child *child)
{
	unsigned int id = child->expected.id_base + SESSION_SHIM_OFFSET;

	if (syscall(SYS_setresgid, id, id, id) < 0)
		return -errno;
	return syscall(SYS_setresuid, id, id, id) < 0 ? -errno : 0;
}

/* From here on every capability is one over the session's ids only: the mount, network, IPC and UTS
 * namespaces belong to the host's user namespace (B1). */
static int step_user_namespace(struct steps_child *child)
{
	return setns(child->userns_fd, CLONE_NEWUSER) < 0 ? -errno : 0;
}

/* Keyrings are not namespaced: the supervisor's session keyring must not be inherited (B7). */
static int step_keyring(struct steps_child *child)
{
	(void)child;
	if (weakened(WEAKEN_KEYRING))
		return 0;
	return syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0 ? -errno : 0;
}

/* No controlling terminal (B8), nothing blocked or ignored that the supervisor blocks or ignores.
 */
static int step_session(struct steps_child *child)
{
	struct sigaction action = {.sa_handler = SIG_DFL};
	sigset_t none;

	(void)child;
	if (setsid() < 0)
		return -errno;
	if (sigaction(SIGPIPE, &action, NULL) < 0)
		return -errno;
	/* The child is one thread. NOLINTNEXTLINE(concurrency-mt-unsafe) */
	if (sigemptyset(&none) < 0 || sigprocmask(SIG_SETMASK, &none, NULL) < 0)
		return -errno;
	(void)umask(022);
	return 0;
}

static int set_capabilities(uint64_t mask)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {
		{(uint32_t)mask,         (uint32_t)mask,         (uint32_t)mask        },
		{(uint32_t)(mask >> 32), (uint32_t)(mask >> 32), (uint32_t)(mask >> 32)},
	};

	return syscall(SYS_capset, &header, data) < 0 ? -errno : 0;
}

/* Entering the user namespace gave every capability there and reset the securebits. What is left
 * over the session's ids: shim_caps(), ambient, because the exec of an id that is not 0 keeps no
 * others; the bounding set the same, so that no file and no root inside gains more (A10, B12).
 * Where there may be root commands, the shim locks what a uid 0 means, as steps_securebits says. */
static int step_capabilities(struct steps_child *child)
{
	const uint64_t caps = shim_caps(child->params.flags);
	unsigned long bits = SECBIT_NOROOT | SECBIT_NO_SETUID_FIXUP | SECBIT_NO_CAP_AMBIENT_RAISE |
			     SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;

	if (!(child->params.flags & SHIM_PARAMS_ROOT_COMMANDS))
		bits |= SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP_LOCKED |
			SECBIT_KEEP_CAPS_LOCKED;
	for (unsigned long cap = 0; cap < 64; cap++) {
		if (caps & (1ull << cap))
			continue;
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0) {
			if (errno == EINVAL)
				break; /* behind the last one that this kernel knows */
			return -errno;
		}
	}
	int r = set_capabilities(caps);
	if (r < 0)
		return r;
	for (unsigned long cap = 0; cap < 64; cap++) {
		if ((caps & (1ull << cap)) &&
		    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0) < 0)
			return -errno;
	}
	return prctl(PR_SET_SECUREBITS, bits, 0, 0, 0) < 0 ? -errno : 0;
}

/* Per-process and per-id limits of the kernel that no control group counts (B18, B20). NPROC is in
 * front of the pids group (B16), see plan_user_pids. */
static int step_rlimits(struct steps_child *child)
{
	const struct plan *plan = &child->expected.plan;
	/* The shim itself holds a few descriptors per job; commands get their own limit from it. */
	const uint64_t max_files =
		plan->max_files > SHIM_MIN_FILES ? plan->max_files : SHIM_MIN_FILES;
	const struct {
		__rlimit_resource_t resource;
		uint64_t value;
	} rows[] = {
		{RLIMIT_CORE,   RLIMITS_NO_CORE               },
		{RLIMIT_NOFILE, max_files                     },
		{RLIMIT_NPROC,  plan_user_pids(plan->max_pids)},
		{RLIMIT_NICE,   0                             },
		{RLIMIT_RTPRIO, 0                             },
		{RLIMIT_RTTIME, 0                             },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		int r = rlimits_lower(rows[i].resource, rows[i].value);
		if (r < 0)
			return r;
	}
	return rlimits_lower_counted();
}

/* struct shim_params through a pipe that is full and closed before anybody reads it. */
static int step_params(struct steps_child *child)
{
	int fds[2] = {-1, -1};

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	int r = io_write_all(fds[1], &child->params, sizeof(child->params));
	if (r < 0)
		return r;
	child->params_fd = fds[0];
	return close(fds[1]) < 0 ? -errno : 0;
}

/* The listed descriptors at their numbers, nothing else: no directory or socket of the supervisor
 * reaches the session (A2, C3). */
static int step_descriptors(struct steps_child *child)
{
	const int from[] = {child->listen_fd,         child->policy_fd, child->loader_fd,
			    child->params_fd,         child->ready_fd,  child->secrets_fd,
			    child->mountns.queues_fd, child->git_fd,    child->archive_fd,
			    child->template_fd,       child->shim_fd};
	int safe[ARRAY_SIZE(from)];

	_Static_assert(SHIM_FD_NEXT_ - SHIM_FD_LISTEN == ARRAY_SIZE(from) - 1, "enum shim_fd");
	for (size_t i = 0; i < ARRAY_SIZE(from); i++) {
		safe[i] = from[i] < 0 ? -1 : fcntl(from[i], F_DUPFD_CLOEXEC, FD_SAFE);
		if (from[i] >= 0 && safe[i] < 0)
			return -errno;
	}
	for (size_t i = 0; i < ARRAY_SIZE(from); i++) {
		if (safe[i] < 0) {
			/* No secrets, no queues, no template: the number stays empty, whatever
			 * the supervisor has there. */
			if (close(SHIM_FD_LISTEN + (int)i) < 0 && errno != EBADF)
				return -errno;
			continue;
		}
		/* The program's own descriptor closes by itself when the exec has happened. */
		int flags = i == ARRAY_SIZE(from) - 1 ? O_CLOEXEC : 0;
		if (dup3(safe[i], SHIM_FD_LISTEN + (int)i, flags) < 0)
			return -errno;
	}
	child->ready_fd = SHIM_FD_READY;
	child->shim_fd = SHIM_FD_NEXT_;
	return fd_close_from(SHIM_FD_NEXT_ + 1);
}

/* No file can give privilege any more (B12); until the exec nobody may look into this copy of the
 * supervisor's memory (A12). */
static int step_no_new_privs(struct steps_child *child)
{
	(void)child;
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return -errno;
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : 0;
}

/* From a sealed memfd by descriptor: no file of the host that could be written through
 * /proc/PID/exe (A1), no path. */
static int step_exec(struct steps_child *child)
{
	char name[] = "sandbox-shim";
	char *argv[] = {name, NULL};
	char *envp[] = {NULL};

	(void)kernel_execveat(child->shim_fd, argv, envp);
	return -errno;
}

static const struct step {
	const char *name;
	int (*run)(struct steps_child *child);
} steps[] = {
	{"plan",             step_plan            },
	{"namespaces",       step_namespaces      },
	{"join",             step_groups_v1       },
	{"cgroup-namespace", step_cgroup_namespace},
	{"loopback",         step_loopback        },
	{"routes",           step_routes          },
	{"sysctls",          step_sysctls         },
	{"sockets",          step_sockets         },
	{"hostname",         step_hostname        },
	{"tmpfs",            step_tmpfs           },
	{"folders",          step_folders         },
	{"idmap",            step_idmap           },
	{"root",             step_root            },
	{"usr",              step_usr             },
	{"dev",              step_dev             },
	{"writable",         step_writable        },
	{"queues",           step_queues          },
	{"proc",             step_proc            },
	{"proc-mask",        step_mask            },
	{"pivot",            step_pivot           },
	{"stdio",            step_stdio           },
	{"groups",           step_groups          },
	{"keep-caps",        step_keep_caps       },
	{"ids",              step_ids             },
	{"user-namespace",   step_user_namespace  },
	{"keyring",          step_keyring         },
	{"session",          step_session         },
	{"capabilities",     step_capabilities    },
	{"rlimits",          step_rlimits         },
	{"params",           step_params          },
	{"descriptors",      step_descriptors     },
	{"no-new-privs",     step_no_new_privs    },
	{"exec",             step_exec            },
};
_Static_assert(ARRAY_SIZE(steps) <= STEPS_CHILD_MAX, "struct steps_clock");

const char *steps_child_name(uint32_t index)
{
	return index < ARRAY_SIZE(steps) ? steps[index].name : NULL;
}

static void __attribute__((noreturn)) fail(const struct steps_child *child, const char *step, int r)
{
	struct err err = {.error_number = -r};

	/* Names of steps are shorter than the field: see the table. */
	(void)!str_copy(err.step, sizeof(err.step), step);
	/* Nobody to tell if the parent is gone. */
	(void)!io_write_all(child->ready_fd, &err, sizeof(err));
	_exit(1);
}

void steps_child_run(struct steps_child *child)
{
	for (uint32_t i = 0; i < ARRAY_SIZE(steps); i++) {
		int r = child->fail_step && str_equal(child->fail_step, steps[i].name) ? -EIO : 0;
		/* The exec ends this function when it works: its time is taken before. */
		if (i + 1 == ARRAY_SIZE(steps))
			child->clock->n = i;
		if (r == 0)
			r = steps[i].run(child);
		if (r < 0)
			fail(child, steps[i].name, r);
		child->clock->us[i] = (uint32_t)(clock_boottime() - child->begun_at);
	}
	_exit(1); /* not reached: the last step never returns 0 */
}
