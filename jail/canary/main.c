/*
 * sandbox-canary: tries what a session must not be able to, each thing once, and says what came of
 * it. Runs as a command of a session that was made for it and is removed after it. Where something
 * works after all it has happened to that session alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/bpf.h>
#include <linux/io_uring.h>
#include <linux/keyctl.h>

#include "base/auto.h"
#include "base/io.h"

#include "sandboxd/canary.h"

#define LAST_FD 255

static long try_user_namespace(void)
{
	return unshare(CLONE_NEWUSER);
}

static long try_mount(void)
{
	return mount("none", "/tmp", "tmpfs", 0, NULL);
}

static long try_keyring(void)
{
	return syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_USER_KEYRING, 0);
}

static long try_bpf(void)
{
	union bpf_attr attr = {.map_type = BPF_MAP_TYPE_ARRAY};

	return syscall(SYS_bpf, BPF_MAP_CREATE, &attr, sizeof(attr));
}

static long try_io_uring(void)
{
	struct io_uring_params params = {0};

	return syscall(SYS_io_uring_setup, 1u, &params);
}

static long try_vsock(void)
{
	return socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static long try_root_id(void)
{
	return syscall(SYS_setresuid, 0, 0, 0);
}

static long try_signal_init(void)
{
	return kill(1, SIGCONT);
}

static long try_trace_init(void)
{
	return ptrace(PTRACE_SEIZE, 1, NULL, NULL);
}

static long try_read_init(void)
{
	return open("/proc/1/environ", O_RDONLY | O_CLOEXEC);
}

static long try_write_template(void)
{
	return open("/usr/sandbox-canary", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
}

/* Left open by whoever started us. */
static long try_descriptors(void)
{
	long r = -1;

	for (int fd = STDERR_FILENO + 1; fd <= LAST_FD && r < 0; fd++)
		r = fcntl(fd, F_GETFD);
	return r;
}

/* Landlock is asked before the capability, which nobody has either. */
static long try_device(void)
{
	return mknod("/session/canary", S_IFBLK | 0600, 0);
}

static long (*const checks[])(void) = {
	[CANARY_DESCRIPTORS] = try_descriptors,
	[CANARY_USER_NAMESPACE] = try_user_namespace,
	[CANARY_MOUNT] = try_mount,
	[CANARY_KEYRING] = try_keyring,
	[CANARY_BPF] = try_bpf,
	[CANARY_IO_URING] = try_io_uring,
	[CANARY_VSOCK] = try_vsock,
	[CANARY_ROOT_ID] = try_root_id,
	[CANARY_SIGNAL_INIT] = try_signal_init,
	[CANARY_TRACE_INIT] = try_trace_init,
	[CANARY_READ_INIT] = try_read_init,
	[CANARY_WRITE_TEMPLATE] = try_write_template,
	[CANARY_DEVICE] = try_device,
};
_Static_assert(ARRAY_SIZE(checks) == CANARY_MAX_, "one function per check");

int main(void)
{
	struct canary_report report = {.magic = CANARY_MAGIC, .n = CANARY_MAX_};

	/* The last first: what the others open is no descriptor that was left. */
	for (size_t i = CANARY_MAX_; i > 0; i--)
		report.error[i - 1] = checks[i - 1]() < 0 ? errno : 0;
	return io_write_all(STDOUT_FILENO, &report, sizeof(report)) < 0 ? EXIT_FAILURE
									: EXIT_SUCCESS;
}
