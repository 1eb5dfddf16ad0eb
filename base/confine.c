#include "base/confine.h"

#include <errno.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>

int confine_no_new_privs(void)
{
	return prctl(PR_SET_NO_NEW_PRIVS, 1ul, 0ul, 0ul, 0ul) < 0 ? -errno : 0;
}

int confine_not_dumpable(void)
{
	return prctl(PR_SET_DUMPABLE, 0ul, 0ul, 0ul, 0ul) < 0 ? -errno : 0;
}

/*
 * Rights beyond the first ABI are not in the headers of Linux 6.1: by number, each with the ABI
 * that brought it. A ruleset that handles everything and allows nothing refuses everything.
 */
static uint64_t landlock_rights(long abi)
{
	static const struct {
		long abi;
		uint64_t rights;
	} levels[] = {
		{1, 0x1fff    }, /* execute, read, write, list, remove, make */
		{2, 1ull << 13}, /* refer */
		{3, 1ull << 14}, /* truncate */
		{5, 1ull << 15}, /* ioctl on devices */
	};
	uint64_t rights = 0;

	for (size_t i = 0; i < ARRAY_SIZE(levels); i++) {
		if (abi >= levels[i].abi)
			rights |= levels[i].rights;
	}
	return rights;
}

static int allow_reads(int ruleset_fd, int dir_fd)
{
	const struct landlock_path_beneath_attr below = {
		.allowed_access = LANDLOCK_ACCESS_FS_READ_FILE,
		.parent_fd = dir_fd,
	};

	return syscall(SYS_landlock_add_rule, ruleset_fd, LANDLOCK_RULE_PATH_BENEATH, &below, 0ul) <
			       0
		       ? -errno
		       : 0;
}

int confine_reads_below(int dir_fd)
{
	AUTO_CLOSE int fd = -1;
	uint64_t handled; /* struct landlock_ruleset_attr of the first ABI */
	long abi;
	int r;

	r = confine_no_new_privs();
	if (r < 0)
		return r;
	abi = syscall(SYS_landlock_create_ruleset, NULL, 0ul, 1ul); /* ..._VERSION */
	if (abi < 0)
		return errno == ENOSYS || errno == EOPNOTSUPP ? 0 : -errno;
	handled = landlock_rights(abi);
	fd = (int)syscall(SYS_landlock_create_ruleset, &handled, sizeof(handled), 0ul);
	if (fd < 0)
		return -errno;
	r = dir_fd < 0 ? 0 : allow_reads(fd, dir_fd);
	if (r < 0)
		return r;
	if (syscall(SYS_landlock_restrict_self, fd, 0ul) < 0)
		return -errno;
	return 0;
}

int confine_no_files(void)
{
	return confine_reads_below(-1);
}

int confine_seccomp(const struct sock_filter *filter, size_t n)
{
	/* The kernel only reads the program; its struct has no const. */
	union {
		const struct sock_filter *in;
		struct sock_filter *out;
	} program = {.in = filter};
	struct sock_fprog fprog = {.len = (unsigned short)n, .filter = program.out};

	if (n == 0 || n > BPF_MAXINSNS)
		return -EINVAL;
	/*
	 * Flags knowingly left out: TSYNC, since every caller has one thread and a filter that has
	 * to reach others means that a thread started too early; LOG, since refusals are counted by
	 * us and a session could flood the host's log; SPEC_ALLOW, which turns mitigations off.
	 */
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0ul, &fprog) < 0)
		return -errno;
	return 0;
}
