#include "policy/names.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <asm/prctl.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <linux/tiocl.h>

#include "base/num.h"
#include "base/str.h"

/* clang-format off */
#define E(name) {#name, name}
static const struct {
	const char *name;
	int value;
} errno_names[] = {
	E(EPERM), E(ENOSYS), E(EACCES), E(EINVAL), E(ENOTTY), E(EAFNOSUPPORT), E(EPROTONOSUPPORT),
	E(ENOENT), E(EOPNOTSUPP), E(ENOMEM), E(ENOPROTOOPT),
	{"0", 0}, /* says that it was done, and does nothing */
};
#undef E

/* CLONE_NEWTIME lies inside CSIGNAL: clone() reads it as a signal number, so it is no part of the
 * mask, and a time namespace can only be had by unshare and clone3, which are refused as calls. */
#define CLONE_NEW_MASK ((uint32_t)CLONE_NEWNS | (uint32_t)CLONE_NEWCGROUP | (uint32_t)CLONE_NEWUTS | \
	(uint32_t)CLONE_NEWIPC | (uint32_t)CLONE_NEWUSER | (uint32_t)CLONE_NEWPID | \
	(uint32_t)CLONE_NEWNET)
#define PERSONALITY_QUERY 0xffffffffu
/* An open that can change something. O_TMPFILE needs write access, so it is in. */
#define OPEN_WRITES ((uint32_t)O_ACCMODE | (uint32_t)O_CREAT | (uint32_t)O_TRUNC)

/* Of a mode: whoever runs the file takes its owner's identity. */
#define SET_ID_BITS ((uint32_t)S_ISUID | (uint32_t)S_ISGID)

/* The low bits of socket()'s type; the rest are SOCK_CLOEXEC and SOCK_NONBLOCK. */
#define SOCK_TYPE_MASK 0xfu
/* Linux 5.8: a pipe that is a queue of kernel notifications. */
#define O_NOTIFICATION_PIPE O_EXCL
/* Newer than the headers of Linux 6.1. */
#ifndef PR_SET_MEMORY_MERGE
#define PR_SET_MEMORY_MERGE 67 /* Linux 6.4 */
#endif
#ifndef F_SETDELEG
#define F_SETDELEG (1024 + 16) /* Linux 6.19 */
#endif

#define C(name) {#name, (uint32_t)(name)}
static const struct {
	const char *name;
	uint32_t value;
} constant_names[] = {
	C(AF_UNIX), C(AF_INET), C(AF_INET6), C(AF_NETLINK), C(NETLINK_ROUTE), C(SOCK_STREAM),
	C(SOCK_DGRAM), C(SOCK_SEQPACKET), C(SOCK_TYPE_MASK), C(IPPROTO_TCP), C(IPPROTO_UDP),
	C(SOL_SOCKET), C(SO_ATTACH_FILTER), C(SO_ATTACH_REUSEPORT_CBPF),
	C(TCP_ULP), C(UDP_ENCAP), C(MSG_OOB), C(O_NOTIFICATION_PIPE), C(RWF_NOWAIT),
	C(MAP_HUGETLB), C(MFD_HUGETLB), C(SHM_HUGETLB), C(MADV_MERGEABLE), C(MADV_COLD), C(MADV_PAGEOUT), C(POSIX_FADV_DONTNEED),
	C(CLONE_NEW_MASK), C(CLONE_THREAD),
	C(TIOCSTI), C(TIOCLINUX), C(TIOCSETD),
	C(SIOCGIFBR), C(SIOCSIFBR), C(SIOCBRADDBR), C(SIOCBRDELBR), C(SIOCGIFVLAN), C(SIOCSIFVLAN), C(TCGETS), C(TIOCGWINSZ), C(TIOCSWINSZ), C(FIONBIO), C(FIONREAD),
	C(FIOCLEX), C(FIONCLEX),
	C(F_DUPFD), C(F_DUPFD_CLOEXEC), C(F_GETFD), C(F_SETFD), C(F_GETFL), C(F_SETFL), C(F_GETLK),
	C(F_SETLK), C(F_SETLKW), C(F_OFD_GETLK), C(F_OFD_SETLK), C(F_SETPIPE_SZ), C(F_GETPIPE_SZ),
	C(F_SETLEASE), C(F_NOTIFY), C(F_SETDELEG), C(F_GET_SEALS), C(F_ADD_SEALS),
	C(ADDR_NO_RANDOMIZE), C(PERSONALITY_QUERY),
	C(PROT_EXEC), C(PROT_WRITE), C(OPEN_WRITES), C(SET_ID_BITS),
	C(PR_SET_NAME), C(PR_GET_NAME), C(PR_SET_PDEATHSIG), C(PR_SET_DUMPABLE), C(PR_GET_DUMPABLE),
	C(PR_SET_NO_NEW_PRIVS), C(PR_GET_NO_NEW_PRIVS), C(PR_CAPBSET_DROP), C(PR_CAPBSET_READ),
	C(PR_CAP_AMBIENT), C(PR_SET_VMA), C(PR_SET_MM), C(PR_SET_TIMERSLACK), C(PR_SET_SECCOMP), C(PR_SCHED_CORE), C(PR_SET_MEMORY_MERGE),
	C(PR_GET_SECCOMP),
	C(SECCOMP_SET_MODE_FILTER), C(SECCOMP_GET_ACTION_AVAIL),
};
#undef C

static const struct {
	const char *call;
	uint8_t args; /* bit per argument */
} checkable[] = {
	{"clone", 1u << 0},       /* lower_32_bits() of the flags */
	{"socket", 7u},           /* int family, type, protocol */
	{"socketpair", 7u},
	{"ioctl", 1u << 1},       /* unsigned int cmd */
	{"fcntl", 1u << 1},       /* unsigned int cmd */
	{"personality", 1u << 0}, /* unsigned int */
	{"prctl", 1u << 0},       /* int option */
	{"seccomp", 3u},          /* unsigned int op, flags */
	{"mmap", 3u << 2},        /* every PROT_ and MAP_ bit lies in the low 32 */
	{"mprotect", 1u << 2},
	{"pkey_mprotect", 1u << 2},
	{"kill", 1u << 1},        /* int sig; the pid is signed, sets of values only */
	{"openat", 3u << 2},      /* int flags, umode_t mode */
	{"mkdirat", 1u << 2},     /* umode_t mode */
	{"fchmod", 1u << 1},      /* umode_t mode */
	{"madvise", 1u << 2},     /* int behaviour */
	{"memfd_create", 1u << 1}, /* unsigned int flags */
	{"shmget", 1u << 2},      /* int flags */
	{"pipe2", 1u << 1},       /* int flags */
	{"setsockopt", 3u << 1},  /* int level, optname */
	{"sendto", 1u << 3},      /* unsigned int flags */
	{"sendmsg", 1u << 2},
	{"sendmmsg", 1u << 3},
	{"preadv2", 1u << 5},     /* int flags */
	{"fadvise64", 1u << 3},   /* int advice */
};
/* clang-format on */

int names_errno(const char *name, int *ret_error_number)
{
	for (size_t i = 0; i < ARRAY_SIZE(errno_names); i++) {
		if (str_equal(errno_names[i].name, name)) {
			*ret_error_number = errno_names[i].value;
			return 0;
		}
	}
	return -ENOENT;
}

const char *names_errno_text(int error_number)
{
	for (size_t i = 0; i < ARRAY_SIZE(errno_names); i++) {
		if (errno_names[i].value == error_number)
			return errno_names[i].name;
	}
	return NULL;
}

static int parse_hex(const char *digits, uint32_t *ret_value)
{
	static const char hex[] = "0123456789abcdef";
	uint32_t value = 0;
	size_t n = strlen(digits);

	if (n == 0)
		return -ENOENT;
	if (n > 8)
		return -ERANGE;
	for (size_t i = 0; i < n; i++) {
		const char *digit = strchr(hex, digits[i]);

		if (!digit)
			return -ENOENT;
		value = value << 4 | (uint32_t)(digit - hex);
	}
	*ret_value = value;
	return 0;
}

int names_constant(const char *name, uint32_t *ret_value)
{
	int r;

	if (str_has_prefix(name, "0x"))
		return parse_hex(name + 2, ret_value);
	for (size_t i = 0; i < ARRAY_SIZE(constant_names); i++) {
		if (str_equal(constant_names[i].name, name)) {
			*ret_value = constant_names[i].value;
			return 0;
		}
	}
	r = num_parse_u32(name, 0, UINT32_MAX, ret_value);
	return r == -EINVAL ? -ENOENT : r;
}

bool names_argument_checkable(const char *call, unsigned int arg)
{
	for (size_t i = 0; i < ARRAY_SIZE(checkable); i++) {
		if (str_equal(checkable[i].call, call))
			return arg < 6 && ((uint32_t)checkable[i].args >> arg & 1u) != 0;
	}
	return false;
}
