/*
 * Theory. A filter that asks for every call, and a listener that notes its number and lets it go
 * on. The watched program may do what its caller may: between the look at a call and the call
 * itself its memory can change, which does not matter here, as only registers are looked at and
 * nothing is protected by the answer. What a session would refuse whatever the profile says is
 * refused here as well, so that the program shows what it does then.
 *
 * The child cannot hand over its listener itself: the call for that would be asked for already. So
 * it leaves the number in shared memory, and the parent takes the descriptor.
 */
#include "policy/learn.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>

#include "base/fd.h"

#include "sandboxd/kernel.h"

#define LEARN_NAMES_A_LINE  8
#define LEARN_VALUES_A_LINE 16
#define LEARN_NEW_NAMESPACE                                                                        \
	((uint64_t)(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER |  \
		    CLONE_NEWPID | CLONE_NEWNET))

union notification {
	struct seccomp_notif call;
	uint8_t room[512]; /* a later kernel may have more to say */
};

static void learn_value(struct learn_values *values, uint64_t argument)
{
	for (size_t i = 0; i < values->n; i++)
		if (values->value[i] == (uint32_t)argument)
			return;
	if (values->n == LEARN_MAX_VALUES)
		values->overflow = true;
	else
		values->value[values->n++] = (uint32_t)argument;
}

static void learn_arguments(struct learn *learn, uint32_t number, const uint64_t args[6])
{
	switch (number) {
	case SYS_socket:
		learn_value(&learn->socket, args[0]);
		break;
	case SYS_socketpair:
		learn_value(&learn->socketpair, args[0]);
		break;
	case SYS_ioctl:
		learn_value(&learn->ioctl, args[1]);
		break;
	case SYS_fcntl:
		learn_value(&learn->fcntl, args[1]);
		break;
	case SYS_prctl:
		learn_value(&learn->prctl, args[0]);
		break;
	default:
		break;
	}
}

bool learn_note(struct learn *learn, uint32_t arch, uint32_t number, const uint64_t args[6],
		int *ret_error)
{
	*ret_error = ENOSYS;
	if (arch != AUDIT_ARCH_X86_64 || number >= RESOLVE_MAX_NUMBER) {
		learn->n_foreign++;
		return false;
	}
	/* Its flags lie in memory: C libraries fall back on this answer. */
	if (learn->absent[number] || number == SYS_clone3)
		return false;
	learn->called[number] = true;
	*ret_error = EPERM;
	if (learn->refused[number] || (number == SYS_clone && (args[0] & LEARN_NEW_NAMESPACE)))
		return false;
	learn_arguments(learn, number, args);
	return true;
}

static _Noreturn void learn_child(char *const argv[], atomic_int *listener)
{
	struct sock_filter all = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF);
	struct sock_fprog program = {.len = 1, .filter = &all};
	long fd;

	if (dup2(STDERR_FILENO, STDOUT_FILENO) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		_exit(126);
	fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
		     &program);
	atomic_store(listener, fd < 0 ? -errno : (int)fd);
	if (fd >= 0)
		(void)execvp(argv[0], argv);
	_exit(127);
}

/* The listener, once the child has it. */
static int learn_listener(pid_t pid, const atomic_int *listener)
{
	AUTO_CLOSE int pid_fd = kernel_pidfd_open(pid, 0);
	const struct timespec pause = {.tv_nsec = 1000000};
	long fd;

	if (pid_fd < 0)
		return -errno;
	while (atomic_load(listener) == 0) {
		struct pollfd ended = {.fd = pid_fd, .events = POLLIN};

		if (poll(&ended, 1, 0) != 0)
			return -ECHILD;
		(void)nanosleep(&pause, NULL);
	}
	if (atomic_load(listener) < 0)
		return atomic_load(listener);
	fd = syscall(SYS_pidfd_getfd, pid_fd, atomic_load(listener), 0);
	return fd < 0 ? -errno : (int)fd;
}

static int learn_answer(struct learn *learn, int fd)
{
	struct seccomp_notif_resp answer = {0};
	union notification in = {.room = {0}};
	uint64_t args[6];
	int error = 0;

	if (ioctl(fd, SECCOMP_IOCTL_NOTIF_RECV, &in) < 0)
		return errno == ENOENT || errno == EINTR ? 0 : -errno;
	memcpy(args, in.call.data.args, sizeof(args));
	answer.id = in.call.id;
	if (learn_note(learn, in.call.data.arch, (uint32_t)in.call.data.nr, args, &error))
		answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
	else
		answer.error = -error;
	/* ENOENT: it was interrupted meanwhile, and asks again. */
	if (ioctl(fd, SECCOMP_IOCTL_NOTIF_SEND, &answer) < 0 && errno != ENOENT)
		return -errno;
	return 0;
}

/* Until nobody is under the filter any more. */
static int learn_listen(struct learn *learn, int fd)
{
	for (;;) {
		struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
		int r;

		if (poll(&poll_fd, 1, -1) < 0)
			return -errno;
		if (!(poll_fd.revents & POLLIN))
			return 0;
		r = learn_answer(learn, fd);
		if (r < 0)
			return r;
	}
}

/* When it returns nobody listens any more: where that is too early, what is called is ENOSYS. */
static int learn_watch(struct learn *learn, pid_t pid, const atomic_int *listener)
{
	AUTO_CLOSE int fd = learn_listener(pid, listener);

	return fd < 0 ? fd : learn_listen(learn, fd);
}

int learn_run(struct learn *learn, char *const argv[], struct err *err)
{
	atomic_int *listener = mmap(NULL, sizeof(*listener), PROT_READ | PROT_WRITE,
				    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid;
	int r;

	if (listener == MAP_FAILED)
		return err_fail(err, -errno, "learn", "mmap");
	pid = fork();
	if (pid == 0)
		learn_child(argv, listener);
	r = pid < 0 ? -errno : learn_watch(learn, pid, listener);
	while (pid > 0 && waitpid(pid, &learn->wait_status, 0) < 0 && errno == EINTR)
		continue;
	(void)munmap(listener, sizeof(*listener));
	return r < 0 ? err_fail(err, r, "learn", "listen to %s", argv[0]) : 0;
}

static void print_name(FILE *file, int number)
{
	char text[PROFILE_CALL_BYTES];
	const char *name = resolve_name(number, text);

	if (name)
		(void)fprintf(file, " %s", name);
	else
		(void)fprintf(file, " call%d=%d", number, number);
}

static bool has_rule(int number)
{
	static const int argument_calls[] = {SYS_clone, SYS_socket, SYS_socketpair, SYS_ioctl,
					     SYS_fcntl, SYS_prctl,  SYS_mmap};

	for (size_t i = 0; i < ARRAY_SIZE(argument_calls); i++)
		if (argument_calls[i] == number)
			return true;
	return false;
}

/* Names in lines that begin with `word`; refused: those that no profile may allow. */
static void print_names(const struct learn *learn, const char *word, bool refused, FILE *file)
{
	size_t n = 0;

	for (int i = 0; i < RESOLVE_MAX_NUMBER; i++) {
		if (!learn->called[i] || learn->refused[i] != refused || (!refused && has_rule(i)))
			continue;
		if (n++ % LEARN_NAMES_A_LINE == 0)
			(void)fprintf(file, "%s%s", n > 1 ? "\n" : "", word);
		print_name(file, i);
	}
	if (n > 0)
		(void)fputc('\n', file);
}

static int print_values(const struct learn_values *values, const char *call, const char *argument,
			const char *error, FILE *file)
{
	if (values->n == 0)
		return 0;
	if (values->overflow)
		return -E2BIG;
	for (size_t i = 0; i < values->n; i += LEARN_VALUES_A_LINE) {
		(void)fprintf(file, "%s: %s in {", call, argument);
		for (size_t j = i; j < values->n && j < i + LEARN_VALUES_A_LINE; j++)
			(void)fprintf(file, " 0x%x", values->value[j]);
		(void)fprintf(file, " } allow\n");
	}
	(void)fprintf(file, "%s: else errno %s\n", call, error);
	return 0;
}

int learn_print(const struct learn *learn, FILE *file)
{
	const struct {
		const struct learn_values *values;
		const char *call;
		const char *argument;
		const char *error;
	} rules[] = {
		{&learn->socket,     "socket",     "arg0", "EAFNOSUPPORT"},
		{&learn->socketpair, "socketpair", "arg0", "EAFNOSUPPORT"},
		{&learn->ioctl,      "ioctl",      "arg1", "ENOTTY"      },
		{&learn->fcntl,      "fcntl",      "arg1", "EINVAL"      },
		{&learn->prctl,      "prctl",      "arg0", "EINVAL"      },
	};

	(void)fprintf(file,
		      "profile learned\nkind worker\n\nfilter worker\ndefault errno ENOSYS\n");
	if (learn->n_foreign > 0)
		(void)fprintf(file,
			      "# %u calls by another ABI or unknown: such kill in a session\n",
			      learn->n_foreign);
	print_names(learn, "# refused in every session:", true, file);
	print_names(learn, "allow", false, file);
	if (learn->called[SYS_mmap])
		(void)fprintf(file,
			      "mmap: arg3 & MAP_HUGETLB == 0 allow\nmmap: else errno ENOMEM\n");
	if (learn->called[SYS_clone])
		(void)fprintf(file,
			      "clone: arg0 & CLONE_NEW_MASK == 0 allow\nclone: else errno EPERM\n");
	for (size_t i = 0; i < ARRAY_SIZE(rules); i++) {
		int r = print_values(rules[i].values, rules[i].call, rules[i].argument,
				     rules[i].error, file);
		if (r < 0)
			return r;
	}
	return 0;
}
