/*
 * Which capabilities root keeps, and what for.
 *
 * Knowingly left out: SYS_RESOURCE (hard limits are only lowered), SYS_MODULE, SYS_RAWIO, SYS_BOOT,
 * SYS_TIME, NET_RAW, NET_BIND_SERVICE, SETFCAP (no map holds host id 0), LINUX_IMMUTABLE, MAC_*,
 * AUDIT_*, SYSLOG, PERFMON.
 */
#include "supervisor/privileges.h"

#include <errno.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/capability.h>

struct capability_sets {
	uint64_t effective;
	uint64_t permitted;
	uint64_t inheritable;
};

static const struct kept {
	unsigned int capability;
	const char *name;
	const char *why; /* for the reader of this table */
} kept[] = {
	{CAP_SYS_ADMIN,       "SYS_ADMIN",       "clone of namespaces, mounts, pivot_root, setns"                  },
	{CAP_SYS_CHROOT,      "SYS_CHROOT",      "entering a mount namespace asks for it beside SYS_ADMIN"         },
	{CAP_SETUID,          "SETUID",          "worker and shim ids, uid_map"                                    },
	{CAP_SETGID,          "SETGID",          "worker and shim ids, setgroups, gid_map"                         },
	{CAP_SETPCAP,         "SETPCAP",         "bounding and ambient sets, securebits of children"               },
	{CAP_CHOWN,           "CHOWN",           "tmpfs of a session and state of the api worker change hands"     },
	{CAP_DAC_OVERRIDE,    "DAC_OVERRIDE",    "the api worker's state directory is not root's"                  },
	{CAP_FOWNER,          "FOWNER",          "modes of what now belongs to a block"                            },
	{CAP_MKNOD,           "MKNOD",           "null, zero, full, random, urandom and tty of the template's /dev"},
	{CAP_DAC_READ_SEARCH, "DAC_READ_SEARCH",
	 "groups of other instances by id: are their id blocks free"                                               },
	{CAP_KILL,            "KILL",            "sessions and workers have other ids"                             },
	{CAP_NET_ADMIN,       "NET_ADMIN",       "lo, routes and sysctls of a session's network namespace"         },
	{CAP_BPF,             "BPF",             "steering a session's connections, bounding the egress worker's"  },
	{CAP_SYS_PTRACE,      "SYS_PTRACE",
	 "/proc/PID/ns of helpers and undumpable shims, and their status"                                          },
};

static int read_sets(struct capability_sets *ret_sets)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {{0}};

	if (syscall(SYS_capget, &header, data) < 0)
		return -errno;
	*ret_sets = (struct capability_sets){
		.effective = data[0].effective | (uint64_t)data[1].effective << 32,
		.permitted = data[0].permitted | (uint64_t)data[1].permitted << 32,
		.inheritable = data[0].inheritable | (uint64_t)data[1].inheritable << 32,
	};
	return 0;
}

static int write_sets(const struct capability_sets *sets)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {
		{(uint32_t)sets->effective,         (uint32_t)sets->permitted,         (uint32_t)sets->inheritable},
		{(uint32_t)(sets->effective >> 32), (uint32_t)(sets->permitted >> 32),
		 (uint32_t)(sets->inheritable >> 32)							      },
	};

	if (syscall(SYS_capset, &header, data) < 0)
		return -errno;
	return 0;
}

/* Needs SETPCAP in the effective set, so it comes before anything is given up. */
static int limit_bounding(uint64_t mask, struct err *err)
{
	for (unsigned int capability = 0; capability < 64; capability++) {
		int present = prctl(PR_CAPBSET_READ, capability, 0, 0, 0);

		/* EINVAL: beyond the last one this kernel knows. */
		if (present < 0)
			break;
		if (present == 0 || (mask & 1ull << capability))
			continue;
		if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) < 0)
			return err_fail(err, -errno, "privileges",
					"drop capability %u from the bounding set", capability);
	}
	return 0;
}

int privileges_keep(uint64_t mask, struct err *err)
{
	const struct capability_sets sets = {.effective = mask, .permitted = mask};
	int r = limit_bounding(mask, err);

	if (r < 0)
		return r;
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
		return err_fail(err, -errno, "privileges", "clear the ambient set");
	r = write_sets(&sets);
	if (r < 0)
		return err_fail(err, r, "privileges", "capset");
	return 0;
}

int privileges_limit(struct err *err)
{
	struct capability_sets sets = {0};
	uint64_t mask = 0;
	int r;

	r = read_sets(&sets);
	if (r < 0)
		return err_fail(err, r, "privileges", "capget");
	for (size_t i = 0; i < ARRAY_SIZE(kept); i++) {
		mask |= 1ull << kept[i].capability;
		if (!(sets.permitted & 1ull << kept[i].capability))
			return err_fail(err, -EPERM, "privileges", "CAP_%s is missing: %s",
					kept[i].name, kept[i].why);
	}
	return privileges_keep(mask, err);
}

int privileges_drop_current(struct err *err)
{
	const struct capability_sets none = {0};
	int r;

	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
		return err_fail(err, -errno, "privileges", "clear the ambient set");
	r = write_sets(&none);
	if (r < 0)
		return err_fail(err, r, "privileges", "capset");
	return 0;
}

int privileges_drop_bounding(struct err *err)
{
	return limit_bounding(0, err);
}
