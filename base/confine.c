#include "base/confine.h"

#include <errno.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/filter.h>
#include <linux/seccomp.h>

#include "base/landlock.h"

int confine_no_new_privs(void)
{
	return prctl(PR_SET_NO_NEW_PRIVS, 1ul, 0ul, 0ul, 0ul) < 0 ? -errno : 0;
}

int confine_not_dumpable(void)
{
	return prctl(PR_SET_DUMPABLE, 0ul, 0ul, 0ul, 0ul) < 0 ? -errno : 0;
}

#define FOLDER_RIGHTS                                                                              \
	(LANDLOCK_READ | LANDLOCK_LIST | LANDLOCK_WRITE | LANDLOCK_TRUNCATE | LANDLOCK_MAKE_REG |  \
	 LANDLOCK_UNLINK)

/* The files of these rules; no port to listen on, and nobody outside the domain. */
static int confine_domain(const struct landlock_rule *rules, size_t n_rules)
{
	const struct landlock_domain domain = {
		.rules = rules,
		.n_rules = n_rules,
		.net = LANDLOCK_NET_BIND,
		.scopes = LANDLOCK_SCOPE_ABSTRACT | LANDLOCK_SCOPE_SIGNAL,
	};
	int r = confine_no_new_privs();

	return r < 0 ? r : landlock_take(landlock_abi(), &domain);
}

int confine_no_files(void)
{
	return confine_domain(NULL, 0);
}

int confine_reads_below(const char *path)
{
	return confine_domain(
		&(struct landlock_rule){.path = path, .rights = LANDLOCK_READ, .fd = -1}, 1);
}

int confine_folder(const char *path)
{
	return confine_domain(
		&(struct landlock_rule){.path = path, .rights = FOLDER_RIGHTS, .fd = -1}, 1);
}

int confine_folder_and_reads(const char *path, const char *read_path)
{
	const struct landlock_rule rules[] = {
		{.path = path,      .rights = FOLDER_RIGHTS, .fd = -1},
		{.path = read_path, .rights = LANDLOCK_READ, .fd = -1},
	};

	return confine_domain(rules, ARRAY_SIZE(rules));
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
