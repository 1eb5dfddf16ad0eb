#include "tests/unit/shim_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/capability.h>
#include <linux/securebits.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/frame.h"
#include "base/io.h"
#include "base/landlock.h"
#include "base/num.h"
#include "base/sockmsg.h"
#include "base/str.h"

#include "policy/image.h"
#include "sandboxd/kernel.h"
#include "sandboxd/plan.h"
#include "tests/lib/test.h"

#define RIG_DO(expression) rig_must((expression), #expression)

/* For the child: any failure ends it, and the test by its exit. */
static void rig_must(int64_t result, const char *what)
{
	if (result >= 0)
		return;
	(void)fprintf(stderr, "rig: %s: %s\n", what, strerrordesc_np(errno));
	_exit(99);
}

union rig_address {
	struct sockaddr any;
	struct sockaddr_un un;
};

static const uint8_t rig_session[ID_BYTES] = {1, 2, 3, 4, 5, 6, 0x47, 8, 0x89};
static uint8_t rig_buffer[WIRE_FRAME_MAX_BYTES];

void rig_require(void)
{
	if (geteuid() != 0) {
		(void)fprintf(stderr, "needs root\n");
		skip();
	}
}

static int rig_file(const char *name)
{
	return open(name, O_RDONLY | O_CLOEXEC);
}

/* The real policy of the first session profile. */
static int rig_policy(void)
{
	AUTO_CLOSE int fd = rig_file(TEST_BIN_DIR "/policy.img");
	struct image image = IMAGE_NULL;
	void *data = NULL;
	size_t size = 0;
	int policy_fd;

	assert_true(fd >= 0);
	assert_int_equal(image_open(fd, &image, NULL), 0);
	assert_int_equal(image_session(&image, 0, &data, &size), 0);
	policy_fd = fd_memfd_sealed("policy", data, size, 0);
	free(data);
	image_close(&image);
	return policy_fd;
}

static int rig_loader(void)
{
	AUTO_CLOSE int fd = rig_file(TEST_BIN_DIR "/sandbox-loader");
	AUTO_FREE char *data = NULL;
	size_t size;

	if (fd < 0)
		return fd_memfd_sealed("loader", "", 0, 1);
	assert_int_equal(io_read_file(fd, 64ul * 1024 * 1024, &data, &size), 0);
	return fd_memfd_sealed("loader", data, size, 1);
}

static int rig_params(void)
{
	struct shim_params params = {
		.magic = PLAN_MAGIC,
		.version = PLAN_VERSION,
		.size = sizeof(params),
		.user_id = SESSION_USER_ID,
		.group_id = SESSION_USER_ID,
		.max_files = 1024,
		.ring_bytes = SHIM_RING_BYTES,
		.landlock_abi = getenv("SHIM_TEST_NO_LANDLOCK") ? 0 : landlock_abi(),
	};

	memcpy(params.session, rig_session, sizeof(params.session));
	return fd_memfd_sealed("params", &params, sizeof(params), 0);
}

static void rig_dir(const char *name, mode_t mode)
{
	if (mkdir(name, mode) < 0 && errno != EEXIST)
		RIG_DO(-1);
}

/* Runs in the child, in new namespaces, as root. */
static void rig_root(void)
{
	static const char *const links[][2] = {
		{"usr/bin",   "bin"  },
		{"usr/lib",   "lib"  },
		{"usr/lib64", "lib64"},
		{"usr/sbin",  "sbin" }
        };
	char data[64];

	RIG_DO(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
	RIG_DO(mount("root", "/mnt", "tmpfs", 0, "mode=755"));
	RIG_DO(chdir("/mnt"));
	rig_dir("usr", 0755);
	rig_dir("proc", 0755);
	rig_dir("dev", 0755);
	rig_dir("dev/pts", 0755);
	rig_dir("dev/shm", 0777);
	rig_dir("etc", 0755);
	rig_dir("session", 0700);
	rig_dir("tmp", 0777);
	for (size_t i = 0; i < ARRAY_SIZE(links); i++)
		RIG_DO(symlink(links[i][0], links[i][1]));
	RIG_DO(mount("/usr", "usr", NULL, MS_BIND | MS_REC, NULL));
	RIG_DO(snprintf(data, sizeof(data), "hidepid=invisible,gid=%u",
			RIG_ID_BASE + SESSION_SHIM_OFFSET));
	RIG_DO(mount("proc", "proc", "proc", MS_NOSUID | MS_NOEXEC | MS_NODEV, data));
	RIG_DO(mknod("dev/null", S_IFCHR | 0666, makedev(1, 3)));
	RIG_DO(chmod("dev/null", 0666));
	RIG_DO(mknod("dev/tty", S_IFCHR | 0666, makedev(5, 0)));
	RIG_DO(snprintf(data, sizeof(data), "mode=700,size=8m,nr_inodes=4096"));
	RIG_DO(mount("session", "session", "tmpfs", MS_NOSUID | MS_NODEV, data));
	RIG_DO(chown("session", RIG_ID_BASE + SESSION_USER_ID, RIG_ID_BASE + SESSION_USER_ID));
	/* Not chroot: a chrooted process may make no user namespace. */
	RIG_DO(syscall(SYS_pivot_root, ".", "."));
	RIG_DO(umount2(".", MNT_DETACH));
	RIG_DO(chdir("/"));
}

static void rig_capabilities(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {
		{.effective = SHIM_CAPS, .permitted = SHIM_CAPS, .inheritable = SHIM_CAPS}
        };

	RIG_DO(prctl(PR_SET_SECUREBITS,
		     SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP |
			     SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED,
		     0, 0, 0));
	RIG_DO(syscall(SYS_capset, &header, data));
	for (unsigned long cap = 0; cap < 32; cap++) {
		if (SHIM_CAPS & (1ull << cap))
			RIG_DO(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0));
	}
	RIG_DO(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
}

/* pid 1 of the new PID namespace. to/from: the parent writes the id maps in between. */
static _Noreturn void rig_child(const int *fds, int shim_fd, int to_fd, int from_fd)
{
	char *const argv[] = {(char[]){"sandbox-shim"}, NULL};
	char *const envp[] = {NULL};
	char byte = 0;

	rig_root();
	RIG_DO(setgroups(0, NULL));
	RIG_DO(setresgid(RIG_ID_BASE + SESSION_SHIM_OFFSET, RIG_ID_BASE + SESSION_SHIM_OFFSET,
			 RIG_ID_BASE + SESSION_SHIM_OFFSET));
	RIG_DO(setresuid(RIG_ID_BASE + SESSION_SHIM_OFFSET, RIG_ID_BASE + SESSION_SHIM_OFFSET,
			 RIG_ID_BASE + SESSION_SHIM_OFFSET));
	RIG_DO(unshare(CLONE_NEWUSER));
	RIG_DO(io_write_all(to_fd, "m", 1));
	RIG_DO(io_read_exact(from_fd, &byte, 1));
	RIG_DO(setsid());
	/* Out of the way first, then to their places. */
	for (int i = 0; i < SHIM_FD_NEXT_; i++)
		if (fds[i] >= 0)
			RIG_DO(fcntl(fds[i], F_DUPFD_CLOEXEC, 100 + i) - (100 + i));
	RIG_DO(fcntl(shim_fd, F_DUPFD_CLOEXEC, 120) - 120);
	(void)close(SHIM_FD_SECRETS);
	(void)close(SHIM_FD_QUEUES);
	(void)close(SHIM_FD_TEMPLATE);
	for (int i = 0; i < SHIM_FD_NEXT_; i++)
		if (fds[i] >= 0)
			RIG_DO(dup3(100 + i, i, 0));
	RIG_DO(dup3(120, SHIM_FD_NEXT_, O_CLOEXEC));
	RIG_DO(fd_close_from(SHIM_FD_NEXT_ + 1));
	rig_capabilities();
	/* A test that dies leaves no session behind. */
	RIG_DO(prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0));
	RIG_DO(kernel_execveat(SHIM_FD_NEXT_, argv, envp));
	_exit(99);
}

static void rig_write_map(pid_t pid, const char *name)
{
	char path[64];
	char text[64];
	AUTO_CLOSE int fd = -1;
	int r;

	assert_int_equal(str_format(path, sizeof(path), "/proc/%d/%s", pid, name), 0);
	assert_int_equal(str_format(text, sizeof(text), "0 %u %d\n", RIG_ID_BASE, IDBLOCK_MAPPED),
			 0);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	r = io_write_all(fd, text, strlen(text));
	assert_int_equal(r, 0);
}

static void rig_listen(struct rig *rig)
{
	union rig_address address = {.un.sun_family = AF_UNIX};

	assert_int_equal(str_format(rig->socket_path, sizeof(rig->socket_path),
				    "/tmp/shim-rig-%d.sock", getpid()),
			 0);
	assert_int_equal(
		str_copy(address.un.sun_path, sizeof(address.un.sun_path), rig->socket_path), 0);
	rig->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_true(rig->listen_fd >= 0);
	(void)unlink(rig->socket_path);
	assert_int_equal(bind(rig->listen_fd, &address.any, sizeof(address)), 0);
	assert_int_equal(listen(rig->listen_fd, 4), 0);
}

static void rig_ready(int fd)
{
	struct err err = ERR_NULL;
	ssize_t n;

	n = read(fd, &err, sizeof(err));
	if (n == (ssize_t)sizeof(err)) {
		err_sanitize(&err);
		fail_msg("shim: step %s: %s: %s", err.step, err.text,
			 strerrordesc_np(err.error_number));
	}
	assert_int_equal(n, 1);
	assert_int_equal(*(const uint8_t *)&err, SHIM_READY_BYTE);
	assert_int_equal(read(fd, &err, sizeof(err)), 0);
}

static void rig_start(struct rig *rig, int secrets_fd)
{
	AUTO_CLOSE int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	AUTO_CLOSE int policy_fd = rig_policy();
	AUTO_CLOSE int loader_fd = rig_loader();
	AUTO_CLOSE int params_fd = rig_params();
	AUTO_CLOSE int shim_fd = rig_file(TEST_BIN_DIR "/sandbox-shim");
	struct clone_args args = {
		.flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET,
		.exit_signal = SIGCHLD,
	};
	int ready[2];
	int to[2];
	int from[2];
	char byte = 0;

	*rig = (struct rig){.api_fd = -1, .expect = 1, .secrets_fd = secrets_fd};
	rig_listen(rig);
	assert_true(shim_fd >= 0);
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	assert_int_equal(pipe2(to, O_CLOEXEC), 0);
	assert_int_equal(pipe2(from, O_CLOEXEC), 0);
	rig->shim_pid = kernel_clone3(&args);
	if (rig->shim_pid == 0) {
		const int fds[SHIM_FD_NEXT_] = {
			null_fd,   null_fd,   null_fd,  rig->listen_fd,  policy_fd,
			loader_fd, params_fd, ready[1], rig->secrets_fd, -1,
			loader_fd, loader_fd, -1};

		rig_child(fds, shim_fd, to[1], from[0]);
	}
	assert_true(rig->shim_pid > 0);
	(void)fd_close(to[1]);
	(void)fd_close(ready[1]);
	assert_int_equal(io_read_exact(to[0], &byte, 1), 0);
	rig_write_map(rig->shim_pid, "uid_map");
	rig_write_map(rig->shim_pid, "gid_map");
	assert_int_equal(io_write_all(from[1], "m", 1), 0);
	(void)fd_close(to[0]);
	(void)fd_close(from[0]);
	(void)fd_close(from[1]);
	rig_ready(ready[0]);
	(void)fd_close(ready[0]);
	rig->listen_fd = fd_close(rig->listen_fd);
}

int rig_begin(struct rig *rig, int secrets_fd)
{
	if (geteuid() != 0)
		return 0;
	rig_start(rig, secrets_fd);
	(void)rig_connect(rig);
	return 0;
}

int rig_end(struct rig *rig)
{
	int status = 0;

	if (geteuid() != 0)
		return 0;
	rig_disconnect(rig);
	assert_int_equal(kill(rig->shim_pid, SIGTERM), 0);
	assert_int_equal(waitpid(rig->shim_pid, &status, 0), rig->shim_pid);
	assert_int_equal(status, 0);
	(void)unlink(rig->socket_path);
	return 0;
}

static int rig_dial(const struct rig *rig)
{
	union rig_address address = {.un.sun_family = AF_UNIX};
	int fd;

	assert_int_equal(
		str_copy(address.un.sun_path, sizeof(address.un.sun_path), rig->socket_path), 0);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	assert_int_equal(connect(fd, &address.any, sizeof(address)), 0);
	return fd;
}

uint64_t rig_connect(struct rig *rig)
{
	const struct wire_hello hello = frame_hello(rig_session, rig->acked);
	struct wire_hello answer;
	struct wire_header header;
	const uint8_t *payload = NULL;
	int n;

	rig->api_fd = rig_dial(rig);
	rig->expect = rig->acked + 1;
	rig_send(rig, WIRE_HELLO, 0, &hello, sizeof(hello));
	n = rig_next(rig, 60000, &header, &payload);
	assert_int_equal(n, sizeof(answer));
	assert_int_equal(header.type, WIRE_HELLO);
	memcpy(&answer, payload, sizeof(answer));
	assert_int_equal(frame_hello_check(&answer, rig_session), 0);
	return answer.acked;
}

void rig_disconnect(struct rig *rig)
{
	rig->api_fd = fd_close(rig->api_fd);
}

void rig_send(struct rig *rig, uint16_t type, uint32_t job, const void *payload, size_t size)
{
	static uint8_t frame[WIRE_FRAME_MAX_BYTES];
	const struct wire_header header = frame_header(type, job, 0, size);

	assert_true(size <= WIRE_PAYLOAD_MAX_BYTES);
	memcpy(frame, &header, sizeof(header));
	if (size > 0)
		memcpy(frame + sizeof(header), payload, size);
	assert_int_equal(sockmsg_send(rig->api_fd, frame, sizeof(header) + size, NULL, 0), 0);
}

void rig_exec(struct rig *rig, uint32_t job, const struct rig_command *command)
{
	static const char *const path_only[] = {"PATH=/usr/bin:/bin", NULL};
	static uint8_t payload[WIRE_PAYLOAD_MAX_BYTES];
	const struct wire_exec head = {
		.flags = command->flags,
		.program = command->program,
		.timeout_ms = command->timeout_ms ? command->timeout_ms : 50000,
		.grace_ms = command->grace_ms,
		.output_rate_bytes = command->rate,
		.output_max_bytes = command->max,
		.size = command->size,
		.note_bytes = (uint16_t)(command->note ? strlen(command->note) : 0),
	};
	size_t size;

	assert_int_equal(frame_exec_build(payload, sizeof(payload), &head,
					  command->cwd ? command->cwd : "/session", command->argv,
					  command->env ? command->env : path_only, command->note,
					  &size),
			 0);
	rig_send(rig, WIRE_EXEC, job, payload, size);
}

void rig_shell(struct rig *rig, uint32_t job, const char *script)
{
	const char *const argv[] = {"sh", "-c", script, NULL};

	rig_exec(rig, job, &(struct rig_command){.argv = argv});
}

void rig_put(struct rig *rig, uint32_t job, const char *path, const void *data, size_t size,
	     uint64_t announced)
{
	uint8_t payload[sizeof(struct wire_put) + 256];
	const struct wire_put put = {
		.mode = 0640,
		.path_bytes = (uint32_t)strlen(path) + 1,
		.size_bytes = announced,
	};

	assert_true(put.path_bytes <= 256);
	memcpy(payload, &put, sizeof(put));
	memcpy(payload + sizeof(put), path, put.path_bytes);
	rig_send(rig, WIRE_PUT, job, payload, sizeof(put) + put.path_bytes);
	for (size_t at = 0; at < size; at += WIRE_PAYLOAD_MAX_BYTES) {
		size_t n = size - at < WIRE_PAYLOAD_MAX_BYTES ? size - at : WIRE_PAYLOAD_MAX_BYTES;

		rig_send(rig, WIRE_PUT_DATA, job, (const uint8_t *)data + at, n);
	}
	rig_send(rig, WIRE_PUT_END, job, NULL, 0);
}

void rig_ack(struct rig *rig, uint64_t number)
{
	const struct wire_credit credit = {.acked = number};

	rig->acked = number;
	rig_send(rig, WIRE_CREDIT, 0, &credit, sizeof(credit));
}

int rig_next(struct rig *rig, int timeout_ms, struct wire_header *ret_header,
	     const uint8_t **ret_payload)
{
	struct pollfd poll_fd = {.fd = rig->api_fd, .events = POLLIN};
	size_t size;
	ssize_t n;

	if (poll(&poll_fd, 1, timeout_ms) == 0)
		return -1;
	n = sockmsg_recv(rig->api_fd, rig_buffer, sizeof(rig_buffer), NULL, 0);
	if (n <= 0)
		return -2;
	assert_int_equal(
		frame_check(rig_buffer, (size_t)n, FRAME_FROM_SHIM, ret_header, ret_payload, &size),
		0);
	if (frame_is_durable(ret_header->type)) {
		assert_int_equal(ret_header->number, rig->expect);
		rig->expect++;
		if (!rig->hold)
			rig_ack(rig, ret_header->number);
	}
	return (int)size;
}

void rig_wait(struct rig *rig, uint32_t job, struct rig_result *result)
{
	struct buf out = BUF_NULL(64u * 1024 * 1024);
	struct wire_header header;
	struct wire_started started;
	const uint8_t *payload = NULL;

	*result = (struct rig_result){0};
	do {
		int n = rig_next(rig, 60000, &header, &payload);

		assert_true(n >= 0);
		assert_int_equal(header.job, job);
		if (header.type == WIRE_STDOUT || header.type == WIRE_STDERR)
			assert_int_equal(buf_append(&out, payload, (size_t)n), 0);
		if (header.type == WIRE_STARTED) {
			memcpy(&started, payload, sizeof(started));
			result->pid = started.pid;
		}
		if (header.type == WIRE_EXIT)
			memcpy(&result->exit, payload, sizeof(result->exit));
		if (header.type == WIRE_FAILED)
			memcpy(&result->failed, payload, sizeof(result->failed));
	} while (header.type != WIRE_EXIT && header.type != WIRE_FAILED &&
		 header.type != WIRE_PUT_DONE);
	result->last = header.type;
	assert_non_null(buf_text(&out));
	result->out_bytes = out.size;
	result->out = out.data;
}

void rig_result_done(struct rig_result *result)
{
	free(result->out);
	*result = (struct rig_result){0};
}
