/*
 * Theory. Landlock is the second line behind the mounts: each place has the rights that its mount
 * is meant to give, said once more to another part of the kernel. What is mounted by mistake
 * somewhere else cannot be read, and no mount can be changed by whoever is in a domain that handles
 * files. A rule holds for the place and all below it, mounts included.
 *
 * TCP ports are not ruled: a rule names a port and no address, every port of the session's network
 * namespace is its own, and which name a connection may go to is decided outside (the programs
 * bind and connect to localhost as they like). Our own processes, which do neither, are refused.
 *
 * Where the root is a template, every path of it may have programs and be written to: the rights of
 * the files themselves say what, and a mount by mistake is bound by no more than these. What stays
 * refused is what nobody gets: device nodes, ioctls of devices, changes of mounts.
 *
 * The nursery has no domain: its children need different ones. It opens nothing.
 */
#include "shim/domain.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/id.h"
#include "base/landlock.h"
#include "base/str.h"

#include "shim/steps.h"

#define SEE (LANDLOCK_READ | LANDLOCK_LIST)
#define KEEP                                                                                       \
	(SEE | LANDLOCK_WRITE | LANDLOCK_TRUNCATE | LANDLOCK_RMDIR | LANDLOCK_UNLINK |             \
	 LANDLOCK_MAKE_DIR | LANDLOCK_MAKE_REG | LANDLOCK_MAKE_SOCK | LANDLOCK_MAKE_FIFO |         \
	 LANDLOCK_MAKE_LINK | LANDLOCK_REFER)
#define USE  (LANDLOCK_READ | LANDLOCK_WRITE)
#define BOTH (LANDLOCK_SCOPE_ABSTRACT | LANDLOCK_SCOPE_SIGNAL)
#define TCP  (LANDLOCK_NET_BIND | LANDLOCK_NET_CONNECT)

/* Device nodes can be made nowhere. Test builds: what PLANT_LANDLOCK gives to all of "/"; not what
 * domain_check() tries. */
#define WIDE (KEEP | LANDLOCK_EXECUTE | LANDLOCK_DEVICE | LANDLOCK_MAKE_CHAR)

/*
 * "/" for `ls /`; /dev/shm for POSIX semaphores; writing in /proc for comm and oom_score_adj. Of
 * the devices only terminals take an ioctl, and the null device, as whoever asks it whether it is
 * one looks at the errno. The message queues are a mount of the kernel's that has no name. The last
 * two rows are left away where they do not apply.
 */
static const struct landlock_rule command_rules[] = {
	{"/",         LANDLOCK_LIST,                            -1            },
	{"/usr",      SEE | LANDLOCK_EXECUTE,                   -1            },
	{"/etc",      SEE,				      -1            },
	{"/session",  KEEP | LANDLOCK_EXECUTE,                  -1            },
	{"/tmp",      KEEP | LANDLOCK_EXECUTE,                  -1            },
	{"/dev/shm",  KEEP,				     -1            },
	{"/dev",      USE,				      -1            },
	{"/dev/null", USE | LANDLOCK_DEVICE,                    -1            },
	{"/dev/tty",  USE | LANDLOCK_DEVICE,                    -1            },
	{"/dev/pts",  USE | LANDLOCK_DEVICE,                    -1            },
	{"/proc",     SEE | LANDLOCK_WRITE | LANDLOCK_TRUNCATE, -1            },
	{NULL,        KEEP,				     SHIM_FD_QUEUES},
	{"/",         WIDE,				     -1            },
};
enum {
	RULE_ROOT,
	RULE_USR,
	RULE_WIDE = ARRAY_SIZE(command_rules) - 1,
	RULE_QUEUES = RULE_WIDE - 1,
};

static const struct landlock_rule helper_rules[] = {
	{STEPS_SESSION_DIR, KEEP, -1},
	{STEPS_TMP_DIR,     KEEP, -1},
};

/*
 * The kernel shows nobody a process's domain, so it is tried: no rule gives block devices, and a
 * domain is asked before capabilities are, which would refuse them with EPERM. Not a whiteout
 * (character device 0), which needs no capability: to newer kernels, and to 6.1 as it is kept, that
 * is a regular file.
 */
static int domain_check(void)
{
	char name[ID_TEXT_BYTES + 8];
	char text[ID_TEXT_BYTES];
	struct id id;
	int r;

	r = id_random(&id);
	if (r < 0)
		return r;
	id_format(&id, text);
	r = str_format(name, sizeof(name), "/tmp/%s", text);
	if (r < 0)
		return r;
	if (mknod(name, S_IFBLK | 0600, 0) == 0) {
		(void)unlink(name);
		return -ENOTRECOVERABLE;
	}
	return errno == EACCES ? 0 : -errno;
}

void domain_close_queues(void)
{
	if (fcntl(SHIM_FD_QUEUES, F_GETFD) >= 0)
		(void)fd_close(SHIM_FD_QUEUES);
}

int domain_command(const struct shim_params *params, struct err *err)
{
	struct landlock_rule rules[ARRAY_SIZE(command_rules)];
	const struct landlock_domain domain = {
		.rules = rules,
		.n_rules = ARRAY_SIZE(rules),
		.scopes = BOTH,
	};
	int r;

	memcpy(rules, command_rules, sizeof(rules));
	if (fcntl(SHIM_FD_QUEUES, F_GETFD) < 0)
		rules[RULE_QUEUES].fd = -1; /* the kernel has none */
	if (params->flags & SHIM_PARAMS_TEMPLATE) {
		rules[RULE_ROOT].rights = KEEP | LANDLOCK_EXECUTE;
		rules[RULE_USR] = (struct landlock_rule){.fd = -1}; /* it need not have one */
	}
	if (!shim_weak(params, SHIM_PARAMS_WEAK_LANDLOCK))
		rules[RULE_WIDE] = (struct landlock_rule){.fd = -1};
	r = landlock_take(params->landlock_abi, &domain);
	if (r < 0)
		return err_fail(err, r, "shim-landlock", "domain of commands");
	domain_close_queues();
	r = params->landlock_abi > 0 ? domain_check() : 0;
	return r < 0 ? err_fail(err, r, "shim-landlock", "it is not in force") : 0;
}

int domain_helper(const struct shim_params *params, struct err *err)
{
	const struct landlock_domain domain = {
		.rules = helper_rules,
		.n_rules = ARRAY_SIZE(helper_rules),
		.net = TCP,
		.scopes = BOTH,
	};
	int r = landlock_take(params->landlock_abi, &domain);

	return r < 0 ? err_fail(err, r, "shim-landlock", "domain of the file helper") : 0;
}

int domain_init(const struct shim_params *params, struct err *err)
{
	/* Not the scope of signals: it ends runners that hang, whose domain is not below its own.
	 */
	const struct landlock_domain domain = {.net = TCP, .scopes = LANDLOCK_SCOPE_ABSTRACT};
	int r = landlock_take(params->landlock_abi, &domain);

	return r < 0 ? err_fail(err, r, "shim-landlock", "domain of pid 1") : 0;
}
