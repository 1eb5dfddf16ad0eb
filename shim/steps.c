/*
 * Theory. The supervisor's child did everything that needs privilege over the host; what is left
 * happens under the session's unmapped id, with a few capabilities in the session's user namespace
 * (shim_caps in include/sandboxd/plan.h). From here on each process only gives up:
 *
 *   pid 1        KILL stays (a runner that hangs); Landlock domain without a file; own filter last
 *   nursery      all: the others are its children and take theirs from it
 *   spawner      SETUID SETGID KILL; bounding set empty; Landlock domain; COMMAND filter
 *   second one   of root commands: what they have, KILL and SETPCAP; what they have is its bounding
 *                set; Landlock domain; COMMAND filter
 *   file helper  nothing; ids of `user`; Landlock domain of /session; HELPER filter
 *
 * Every set is also read back by the supervisor (proof of effect), which trusts none of this.
 */
#include "shim/steps.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>

#include "base/io.h"

/* The linker's name for where this program begins. */
/* NOLINTNEXTLINE(cert-dcl37-c): the name is ld's */
extern const Elf64_Ehdr __ehdr_start __attribute__((visibility("hidden")));

static int steps_listener(struct err *err)
{
	int type = 0;
	int accepting = 0;
	socklen_t size = sizeof(int);

	if (getsockopt(SHIM_FD_LISTEN, SOL_SOCKET, SO_TYPE, &type, &size) < 0)
		return err_fail(err, -errno, "shim-descriptors", "listener");
	size = sizeof(int);
	if (getsockopt(SHIM_FD_LISTEN, SOL_SOCKET, SO_ACCEPTCONN, &accepting, &size) < 0)
		return err_fail(err, -errno, "shim-descriptors", "listener");
	if (type != SOCK_SEQPACKET || !accepting)
		return err_fail(err, -EPROTOTYPE, "shim-descriptors", "listener");
	return 0;
}

int steps_descriptors(struct err *err)
{
	int r;

	for (int fd = 0; fd < SHIM_FD_NEXT_; fd++) {
		if ((fd == SHIM_FD_SECRETS || fd == SHIM_FD_QUEUES || fd == SHIM_FD_TEMPLATE) &&
		    fcntl(fd, F_GETFD) < 0)
			continue; /* the session has none */
		if (fcntl(fd, F_GETFD) < 0)
			return err_fail(err, -errno, "shim-descriptors", "descriptor %d", fd);
		if (fd > STDERR_FILENO && fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
			return err_fail(err, -errno, "shim-descriptors", "descriptor %d", fd);
	}
	r = steps_listener(err);
	if (r < 0)
		return r;
	r = fd_set_nonblock(SHIM_FD_LISTEN, 1);
	if (r < 0)
		return err_fail(err, r, "shim-descriptors", "listener");
	r = fd_close_from(SHIM_FD_NEXT_);
	if (r < 0)
		return err_fail(err, r, "shim-descriptors", "close_range");
	return 0;
}

int steps_params(struct shim_params *ret_params, struct err *err)
{
	struct shim_params params;
	int r;

	r = io_read_exact(SHIM_FD_PARAMS, &params, sizeof(params));
	if (r < 0)
		return err_fail(err, r, "shim-params", "read");
	if (params.magic != PLAN_MAGIC || params.version != PLAN_VERSION ||
	    params.size != sizeof(params))
		return err_fail(err, -EPROTO, "shim-params", "magic, version or size");
	if (params.user_id == 0 || params.user_id >= IDBLOCK_MAPPED || params.group_id == 0 ||
	    params.group_id >= IDBLOCK_MAPPED)
		return err_fail(err, -EINVAL, "shim-params", "ids");
	if (params.max_files < PLAN_FILES_MIN || params.max_files > PLAN_FILES_MAX)
		return err_fail(err, -EINVAL, "shim-params", "max_files");
	if (params.ring_bytes < 2ull * WIRE_FRAME_MAX_BYTES ||
	    params.ring_bytes > (uint64_t)SHIM_RING_BYTES)
		return err_fail(err, -EINVAL, "shim-params", "ring_bytes");
	if ((params.flags & ~(uint32_t)SHIM_PARAMS_ALL_) != 0)
		return err_fail(err, -EINVAL, "shim-params", "flags");
	(void)fd_close(SHIM_FD_PARAMS);
	*ret_params = params;
	return 0;
}

static int steps_policy_check(const struct session_policy *policy, size_t size)
{
	if (policy->magic != POLICY_IMAGE_MAGIC || policy->version != POLICY_IMAGE_VERSION ||
	    policy->header_bytes != sizeof(*policy) || policy->total_bytes != size)
		return -EPROTO;
	for (size_t i = 0; i < POLICY_FILTER_MAX_; i++) {
		const struct policy_span *span = &policy->filter[i];
		size_t bytes = (size_t)span->n * sizeof(struct sock_filter);

		if (span->n == 0)
			continue;
		if (span->n > POLICY_MAX_BPF || span->offset % 8 != 0 ||
		    span->offset < sizeof(*policy) || span->offset > size ||
		    bytes > size - span->offset)
			return -EPROTO;
	}
	return 0;
}

int steps_policy(const struct session_policy **ret_policy, struct err *err)
{
	struct stat st;
	size_t size;
	void *map;
	int r;

	if (fstat(SHIM_FD_POLICY, &st) < 0)
		return err_fail(err, -errno, "shim-policy", "fstat");
	if (st.st_size < (int64_t)sizeof(struct session_policy) ||
	    st.st_size > (int64_t)(1024 * 1024))
		return err_fail(err, -EPROTO, "shim-policy", "size");
	size = (size_t)st.st_size;
	map = mmap(NULL, size, PROT_READ, MAP_PRIVATE, SHIM_FD_POLICY, 0);
	if (map == MAP_FAILED)
		return err_fail(err, -errno, "shim-policy", "mmap");
	r = steps_policy_check(map, size);
	if (r < 0)
		return err_fail(err, r, "shim-policy", "not a session policy");
	(void)fd_close(SHIM_FD_POLICY);
	*ret_policy = map;
	return 0;
}

int steps_signals(struct err *err)
{
	struct sigaction action = {.sa_handler = SIG_DFL};
	sigset_t all;
	int r;

	/* Only an ignored signal would be inherited by commands; SIGKILL, SIGSTOP and glibc's own
	 * two refuse, and cannot be ignored either. */
	for (int number = 1; number < SIGRTMAX; number++)
		(void)sigaction(number, &action, NULL);
	(void)sigfillset(&all);
	r = pthread_sigmask(SIG_SETMASK, &all, NULL);
	if (r != 0)
		return err_fail(err, -r, "shim-signals", "block");
	return 0;
}

/* What the linker has laid out to be read-only once it is relocated. glibc's start-up does the same
 * for a static program, musl's does not. */
static int steps_relro(struct err *err)
{
	static const size_t page_bytes = 4096; /* of all x86-64 */
	const uint8_t *base = (const uint8_t *)&__ehdr_start;

	for (size_t i = 0; i < __ehdr_start.e_phnum; i++) {
		Elf64_Phdr header;
		const uint8_t *start;
		size_t size;

		memcpy(&header, base + __ehdr_start.e_phoff + i * sizeof(header), sizeof(header));
		if (header.p_type != PT_GNU_RELRO)
			continue;
		start = base + header.p_vaddr / page_bytes * page_bytes;
		size = (size_t)(base + header.p_vaddr + header.p_memsz - start);
		/* mprotect has no const; it changes no byte. */
		if (syscall(SYS_mprotect, start, size / page_bytes * page_bytes, PROT_READ) < 0)
			return err_fail(err, -errno, "shim-self", "relro");
	}
	return 0;
}

int steps_self(struct err *err)
{
	int r;

	r = steps_relro(err);
	if (r < 0)
		return r;
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return err_fail(err, -errno, "shim-self", "dumpable");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_fail(err, -errno, "shim-self", "no_new_privs");
	return 0;
}

int steps_caps(uint64_t mask, struct err *err)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {
		{.effective = (uint32_t)mask,         .permitted = (uint32_t)mask        },
		{.effective = (uint32_t)(mask >> 32), .permitted = (uint32_t)(mask >> 32)},
	};

	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
		return err_fail(err, -errno, "shim-caps", "ambient");
	if (syscall(SYS_capset, &header, data) < 0)
		return err_fail(err, -errno, "shim-caps", "capset");
	return 0;
}

int steps_bounding(uint64_t keep, struct err *err)
{
	/* EINVAL ends the list: the kernel knows no capability above. */
	for (unsigned long cap = 0; cap < 64; cap++) {
		if (keep & (1ull << cap))
			continue;
		/* Most are gone since before the exec, and a look makes no new credentials. */
		if (prctl(PR_CAPBSET_READ, cap, 0, 0, 0) == 0 ||
		    prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) >= 0)
			continue;
		if (errno == EINVAL && cap > 0)
			break;
		return err_fail(err, -errno, "shim-bounding", "drop %lu", cap);
	}
	return 0;
}

int steps_securebits(const struct shim_params *params, bool is_root, struct err *err)
{
	unsigned long bits = SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP_LOCKED |
			     SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;

	if (!(params->flags & SHIM_PARAMS_ROOT_COMMANDS))
		return 0;
	/* Programs that give up root by steps keep capabilities over one of them (setpriv). */
	if (!is_root)
		bits |= SECBIT_NOROOT | SECBIT_NO_SETUID_FIXUP | SECBIT_KEEP_CAPS_LOCKED;
	if (prctl(PR_SET_SECUREBITS, bits, 0, 0, 0) < 0)
		return err_fail(err, -errno, "shim-securebits", "lock");
	return 0;
}

int steps_become_user(const struct shim_params *params, struct err *err)
{
	if (setgroups(0, NULL) < 0)
		return err_fail(err, -errno, "shim-user", "setgroups");
	if (setresgid(params->group_id, params->group_id, params->group_id) < 0)
		return err_fail(err, -errno, "shim-user", "setresgid");
	if (setresuid(params->user_id, params->user_id, params->user_id) < 0)
		return err_fail(err, -errno, "shim-user", "setresuid");
	/* A change of ids sets it to fs.suid_dumpable, which a host may have set to 1. While
	 * capabilities remain nobody inside can trace us (A12), so the order closes the gap. */
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return err_fail(err, -errno, "shim-user", "dumpable");
	return steps_caps(0, err);
}

int steps_rlimits(const struct shim_params *params, struct err *err)
{
	const struct rlimit files = {.rlim_cur = params->max_files, .rlim_max = params->max_files};
	struct rlimit core;

	if (setrlimit(RLIMIT_NOFILE, &files) < 0)
		return err_fail(err, -errno, "shim-rlimits", "nofile");
	/* As pid 1 was given it, and no more. */
	if (getrlimit(RLIMIT_CORE, &core) < 0)
		return err_fail(err, -errno, "shim-rlimits", "core");
	if (core.rlim_max > 1)
		core.rlim_max = 1;
	core.rlim_cur = core.rlim_max;
	if (setrlimit(RLIMIT_CORE, &core) < 0)
		return err_fail(err, -errno, "shim-rlimits", "core");
	return 0;
}

int steps_filter(const struct session_policy *policy, enum policy_filter which, struct err *err)
{
	const struct policy_span *span = &policy->filter[which];
	struct sock_fprog program = {.len = (unsigned short)span->n};
	const void *instructions = (const uint8_t *)policy + span->offset;

	if (span->n == 0)
		return err_fail(err, -ENOENT, "shim-filter", "filter %d is missing", (int)which);
	/* sock_fprog has no const; the kernel copies. */
	memcpy(&program.filter, &instructions, sizeof(instructions));
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0)
		return err_fail(err, -errno, "shim-filter", "filter %d", (int)which);
	return 0;
}

/*
 * The policy says EPERM and stays the one truth; only who gives that answer changes. One return of
 * the program is another, so no call that is allowed takes longer. Not WAIT_KILLABLE_RECV: a
 * freeze between receiving and answering would wait for a caller that cannot be frozen.
 */
int steps_filter_told(const struct session_policy *policy, int *ret_fd, struct err *err)
{
	const struct policy_span *span = &policy->filter[POLICY_FILTER_COMMAND];
	struct sock_fprog program = {.len = (unsigned short)span->n};
	AUTO_FREE struct sock_filter *told = NULL;
	long fd;

	*ret_fd = -1;
	told = calloc(span->n + 1u, sizeof(*told));
	if (!told)
		return err_fail(err, -ENOMEM, "shim-filter", "memory");
	memcpy(told, (const uint8_t *)policy + span->offset, span->n * sizeof(*told));
	for (size_t i = 0; i < span->n; i++)
		if (told[i].code == (BPF_RET | BPF_K) &&
		    told[i].k == (SECCOMP_RET_ERRNO | (uint32_t)EPERM))
			told[i].k = SECCOMP_RET_USER_NOTIF;
	program.filter = told;
	fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
		     &program);
	/* EBUSY: a container around this host listens already. */
	if (fd < 0)
		return steps_filter(policy, POLICY_FILTER_COMMAND, err);
	*ret_fd = (int)fd;
	return 0;
}
