#include "base/landlock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"

#define VERSION           1ul
#define RULE_PATH_BENEATH 1ul

/* Of what a program does before its exec, and of domains that a session makes itself: either would
 * let a session write to the log of the host. */
#define LOG_SAME_EXEC_OFF  (1ul << 0)
#define LOG_SUBDOMAINS_OFF (1ul << 2)
#define ABI_LOG            7

/* struct landlock_ruleset_attr and struct landlock_path_beneath_attr of the newest ABI. */
struct ruleset {
	uint64_t files;
	uint64_t net;
	uint64_t scopes;
};
struct path_beneath {
	uint64_t rights;
	int32_t fd;
} __attribute__((packed));

static const struct level {
	uint32_t abi;
	uint64_t files;
	uint64_t net;
	uint64_t scopes;
} levels[] = {
	{1, LANDLOCK_REFER - 1, 0,					0					      },
        {2, LANDLOCK_REFER,     0,                                        0                                              },
	{3, LANDLOCK_TRUNCATE,  0,					0					      },
        {4, 0,                  LANDLOCK_NET_BIND | LANDLOCK_NET_CONNECT, 0                                              },
	{5, LANDLOCK_DEVICE,    0,					0					      },
        {6, 0,                  0,                                        LANDLOCK_SCOPE_ABSTRACT | LANDLOCK_SCOPE_SIGNAL},
};

uint32_t landlock_abi(void)
{
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0ul, VERSION);

	return abi < 0 ? 0 : (uint32_t)abi;
}

static struct ruleset known(uint32_t abi)
{
	struct ruleset all = {0};

	for (size_t i = 0; i < ARRAY_SIZE(levels); i++) {
		if (abi < levels[i].abi)
			continue;
		all.files |= levels[i].files;
		all.net |= levels[i].net;
		all.scopes |= levels[i].scopes;
	}
	return all;
}

static int add(int ruleset_fd, const struct landlock_rule *rule, uint64_t handled)
{
	AUTO_CLOSE int opened_fd = -1;
	struct path_beneath beneath = {.rights = rule->rights & handled, .fd = rule->fd};

	if (rule->path) {
		beneath.fd = opened_fd = open(rule->path, O_PATH | O_CLOEXEC);
		if (opened_fd < 0)
			return -errno;
	}
	if (beneath.fd < 0)
		return 0;
	/* A right of a newer ABI alone: the older one does not refuse it anyway. */
	if (beneath.rights == 0)
		return 0;
	return syscall(SYS_landlock_add_rule, ruleset_fd, RULE_PATH_BENEATH, &beneath, 0ul) < 0
		       ? -errno
		       : 0;
}

int landlock_take(uint32_t abi, const struct landlock_domain *domain)
{
	struct ruleset ruleset = known(abi);
	AUTO_CLOSE int fd = -1;
	int r = 0;

	if (abi == 0)
		return 0;
	ruleset.net &= domain->net;
	ruleset.scopes &= domain->scopes;
	/* An older kernel takes the longer struct as long as what it does not know is zero. */
	fd = (int)syscall(SYS_landlock_create_ruleset, &ruleset, sizeof(ruleset), 0ul);
	if (fd < 0)
		return -errno;
	for (size_t i = 0; i < domain->n_rules && r == 0; i++)
		r = add(fd, &domain->rules[i], ruleset.files);
	if (r < 0)
		return r;
	return syscall(SYS_landlock_restrict_self, fd,
		       abi >= ABI_LOG ? LOG_SAME_EXEC_OFF | LOG_SUBDOMAINS_OFF : 0ul) < 0
		       ? -errno
		       : 0;
}
