/* Other processes and descriptors: A1, A2, A12, B10, B18, B19, B24, C3, C4, C8, E3. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attacks/attack.h"

static pid_t pid_of(const char *text)
{
	return strcmp(text, "parent") == 0 ? getppid() : (pid_t)strtol(text, NULL, 10);
}

static long try_read_memory(pid_t pid)
{
	char byte = 0;
	struct iovec here = {.iov_base = &byte, .iov_len = 1};
	struct iovec there = {.iov_base = &byte, .iov_len = 1};

	/* A wrong address in a process that we may look into is EFAULT. */
	long r = process_vm_readv(pid, &here, 1, &there, 1, 0);
	return r < 0 && errno == EFAULT ? 0 : r;
}

static long try_write_memory(pid_t pid)
{
	char byte = 0;
	struct iovec here = {.iov_base = &byte, .iov_len = 1};
	struct iovec there = {.iov_base = (void *)1, .iov_len = 1};

	long r = process_vm_writev(pid, &here, 1, &there, 1, 0);
	return r < 0 && errno == EFAULT ? 0 : r;
}

static long try_get_descriptor(pid_t pid)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0u);

	return syscall(SYS_pidfd_getfd, fd, 0, 0u);
}

static long try_seize(pid_t pid)
{
	long r = ptrace(PTRACE_SEIZE, pid, NULL, NULL);

	if (r == 0)
		(void)ptrace(PTRACE_DETACH, pid, NULL, NULL);
	return r;
}

/* argv: pids, or `parent`. */
int attack_process(int argc, char **argv)
{
	char step[96];

	for (int i = 0; i < argc; i++) {
		pid_t pid = pid_of(argv[i]);

#define STEP(text) ((void)snprintf(step, sizeof(step), "%s %s", text, argv[i]), step)
		FORKED(STEP("ptrace seize"), try_seize(pid));
		FORKED(STEP("process_vm_readv"), try_read_memory(pid));
		FORKED(STEP("process_vm_writev"), try_write_memory(pid));
		FORKED(STEP("pidfd_getfd"), try_get_descriptor(pid));
		FORKED(STEP("kcmp"), syscall(SYS_kcmp, getpid(), pid, 0, 0, 0));
	}
	return 0;
}

/* Files of /proc/PID that show or change another process. */
int attack_memory_of(int argc, char **argv)
{
	static const struct {
		const char *name;
		int flags;
	} files[] = {
		{"mem",     O_RDWR           },
		{"environ", O_RDONLY         },
		{"maps",    O_RDONLY         },
		{"exe",     O_RDONLY         },
		{"root",    O_RDONLY | O_PATH},
		{"cwd",     O_RDONLY | O_PATH},
		{"fd/3",    O_RDONLY | O_PATH},
		{"ns/mnt",  O_RDONLY         },
		{"status",  O_RDONLY         },
	};
	char path[64];
	char step[96];

	for (int i = 0; i < argc; i++) {
		for (size_t j = 0; j < sizeof(files) / sizeof(files[0]); j++) {
			(void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid_of(argv[i]),
				       files[j].name);
			(void)snprintf(step, sizeof(step), "%s of %s", files[j].name, argv[i]);
			int fd = open(path, files[j].flags | O_CLOEXEC);
			say_result(step, fd);
			if (fd >= 0)
				(void)close(fd);
		}
	}
	return 0;
}

int attack_limits_of(int argc, char **argv)
{
	struct rlimit limit = {.rlim_cur = 3, .rlim_max = 3};
	struct sched_param param = {0};
	cpu_set_t set;
	char step[96];

	CPU_ZERO(&set);
	CPU_SET(0, &set);
	for (int i = 0; i < argc; i++) {
		pid_t pid = pid_of(argv[i]);

		say_result(STEP("prlimit"), prlimit(pid, RLIMIT_NOFILE, &limit, NULL));
		say_result(STEP("setpriority"), setpriority(PRIO_PROCESS, (id_t)pid, 19));
		say_result(STEP("sched_setaffinity"), sched_setaffinity(pid, sizeof(set), &set));
		say_result(STEP("sched_setscheduler"), sched_setscheduler(pid, SCHED_IDLE, &param));
		say_result(STEP("ioprio_set"), syscall(SYS_ioprio_set, 1, pid, 3 << 13));
	}
	return 0;
}

/* argv: pids. */
int attack_signal(int argc, char **argv)
{
	static const int numbers[] = {0, SIGCONT, SIGSTOP, SIGTERM, SIGKILL};
	char step[96];

	for (int i = 0; i < argc; i++) {
		for (size_t j = 0; j < sizeof(numbers) / sizeof(numbers[0]); j++) {
			(void)snprintf(step, sizeof(step), "signal %d to %s", numbers[j], argv[i]);
			say_result(step, kill(pid_of(argv[i]), numbers[j]));
		}
		int fd = (int)syscall(SYS_pidfd_open, pid_of(argv[i]), 0u);
		(void)snprintf(step, sizeof(step), "pidfd signal to %s", argv[i]);
		say_result(step, syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0u));
		if (fd >= 0)
			(void)close(fd);
	}
	return 0;
}

/* CVE-2019-5736: hold another process's program, write to it when nothing runs it any more.
 * argv[0]: how many pids are looked at, for argv[1] milliseconds. Or `copy FILE`: the way itself.
 */
static int exe_of_a_copy(const char *file)
{
	char path[64];

	pid_t pid = fork();
	if (pid == 0) {
		(void)execl(file, file, "leave-group", "wait", (char *)NULL);
		_exit(127);
	}
	(void)usleep(100000);
	(void)snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	say_result("open the program", fd);
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	say_result("write to it", open(path, O_WRONLY | O_CLOEXEC));
	return 0;
}

int attack_exe(int argc, char **argv)
{
	char path[64];
	char target[300];
	char own[300] = "";
	int n_opened = 0;

	if (argc < 2)
		return 2;
	if (strcmp(argv[0], "copy") == 0)
		return exe_of_a_copy(argv[1]);
	(void)!readlink("/proc/self/exe", own, sizeof(own) - 1);
	for (long ms = strtol(argv[1], NULL, 10); ms > 0; ms -= 2) {
		for (long pid = 1; pid <= strtol(argv[0], NULL, 10); pid++) {
			(void)snprintf(path, sizeof(path), "/proc/%ld/exe", pid);
			int fd = open(path, O_RDONLY | O_CLOEXEC);
			if (fd < 0)
				continue;
			(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
			memset(target, 0, sizeof(target));
			(void)!readlink(path, target, sizeof(target) - 1);
			/* Programs of the template are what the session sees anyway. */
			n_opened += strcmp(own, target) != 0 && strncmp(target, "/usr/", 5) != 0;
			(void)close(fd);
		}
		(void)usleep(2000);
	}
	say("programs that are not the session's", "%d", n_opened);
	return 0;
}

int attack_descriptors(int argc, char **argv)
{
	char text[2048] = "";
	size_t length = 0;

	(void)argc;
	(void)argv;
	for (int fd = 0; fd < 1024 && length < sizeof(text) - 8; fd++) {
		if (fcntl(fd, F_GETFD) >= 0)
			length += (size_t)snprintf(text + length, sizeof(text) - length, "%s%d",
						   length > 0 ? " " : "", fd);
	}
	say("open", "%s", text);
	return 0;
}

/* Send a descriptor, a socket or a terminal's worth of them, to whoever reads our output. */
int attack_pass_descriptor(int argc, char **argv)
{
	char control[CMSG_SPACE(sizeof(int))] = {0};
	char byte = 'x';
	struct iovec vector = {.iov_base = &byte, .iov_len = 1};
	struct msghdr message = {
		.msg_iov = &vector,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	char step[32];
	int fds[3];

	(void)argc;
	(void)argv;
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	int fd = open("/", O_PATH | O_CLOEXEC);
	memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	for (int i = 0; i < 3; i++)
		fds[i] = (int)sendmsg(i, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? errno : 0;
	for (int i = 0; i < 3; i++) {
		(void)snprintf(step, sizeof(step), "over descriptor %d", i);
		errno = fds[i];
		say_result(step, fds[i] == 0 ? 0 : -1);
	}
	return 0;
}

/* A frame header of wire.h and rubbish, into every descriptor but our output. */
int attack_forge_frames(int argc, char **argv)
{
	const uint32_t frame[6] = {24, 67, 1, 0, 1, 0}; /* WIRE_EXIT */
	int n_taken = 0;

	(void)argc;
	(void)argv;
	for (int fd = 3; fd < 1024; fd++)
		n_taken += write(fd, frame, sizeof(frame)) > 0;
	say("descriptors that take a frame", "%d", n_taken);
	return 0;
}

int attack_core(int argc, char **argv)
{
	struct rlimit limit = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
	int status = 0;

	(void)argc;
	(void)argv;
	say_result("raise the limit", setrlimit(RLIMIT_CORE, &limit));
	pid_t pid = fork();
	if (pid == 0) {
		(void)kill(getpid(), SIGSEGV);
		_exit(1);
	}
	(void)waitpid(pid, &status, 0);
	say("core dumped", "%s", WCOREDUMP(status) ? "yes" : "no");
	return 0;
}

/* Apart, because no variable of its caller may live in a register across it. */
static __attribute__((noinline)) pid_t end_at_once(void)
{
	pid_t pid = vfork();

	if (pid == 0)
		_exit(0);
	return pid;
}

/* Fork until the number of a process that was reaped comes again: what a kill by number hits. */
int attack_reuse_pid(int argc, char **argv)
{
	long most = argc > 0 ? strtol(argv[0], NULL, 10) : 40000;
	pid_t first = 0;

	for (long i = 0; i < most; i++) {
		pid_t pid = end_at_once();

		if (pid < 0) {
			say_result("reused", -1);
			return 0;
		}
		(void)waitpid(pid, NULL, 0);
		if (first == pid) {
			say("reused", "yes");
			return 0;
		}
		/* Numbers up to 300 are given out once only. */
		if (first == 0 && pid > 300)
			first = pid;
	}
	say("reused", "no");
	return 0;
}

/* Two forks and a setsid, as a daemon does it. `wait`: just stay. */
int attack_leave_group(int argc, char **argv)
{
	if (argc > 0 && strcmp(argv[0], "wait") == 0) {
		(void)sleep(600);
		return 0;
	}
	if (fork() != 0)
		return 0;
	(void)setsid();
	if (fork() != 0)
		return 0;
	(void)close(1);
	(void)close(2);
	(void)signal(SIGTERM, SIG_IGN);
	(void)signal(SIGHUP, SIG_IGN);
	(void)sleep(600);
	return 0;
}

int attack_core_cookie(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	/* PR_SCHED_CORE, PR_SCHED_CORE_CREATE, self, thread group */
	say_result("core scheduling", syscall(SYS_prctl, 62, 1, 0, 1, 0));
	return 0;
}
