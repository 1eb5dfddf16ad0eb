/*
 * Theory. What the supervisor's child prepares for a shim on this host, prepared inside a container
 * instead: the descriptors of enum shim_fd, an id that commands do not have, shim_caps() as
 * permitted, ambient and bounding set. The shim itself is the same program and knows no difference.
 *
 * What a container of a foreign engine does not have: a user namespace of its own (so there are no
 * root commands), Landlock (the image may be laid out in any way), RLIMIT_NPROC (ids are the
 * host's, and the limit would count other containers; the engine's limit of processes holds).
 *
 * The order: files and socket as uid 0; ids with the capabilities kept; capabilities; exec.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <linux/capability.h>
#include <linux/securebits.h>

#include "base/fd.h"
#include "base/id.h"
#include "base/io.h"
#include "base/num.h"

#include "jail/contain/contain.h"
#include "policy/image.h"
#include "sandboxd/contain.h"
#include "sandboxd/kernel.h"
#include "sandboxd/plan.h"

#define HIGH_FD 64 /* above every number that the shim is given */

struct start {
	const char *session;
	const char *profile;
	const char *max_files;
	int fds[SHIM_FD_NEXT_]; /* to become that number; -1: none */
	int shim_fd;
};

/* fd is a descriptor, which becomes ours, or -errno. */
static int keep(struct start *start, enum shim_fd number, int fd)
{
	if (fd < 0)
		return fd;
	start->fds[number] = fd_dup(fd, HIGH_FD);
	(void)fd_close(fd);
	return start->fds[number] < 0 ? start->fds[number] : 0;
}

static int open_file(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static int step_folders(struct start *start)
{
	(void)start;
	(void)umask(022);
	/* Some runtimes give a tmpfs the mode that the image's folder has. */
	if (chmod("/tmp", 01777) < 0)
		return -errno;
	/* In this order: afterwards it is not ours to change. */
	if (chmod("/session", 0755) < 0 || chown("/session", SESSION_USER_ID, SESSION_USER_ID) < 0)
		return -errno;
	return 0;
}

static int step_policy(struct start *start)
{
	AUTO_CLOSE int fd = open_file(CONTAIN_DIR "/policy.img", O_RDONLY);
	AUTO_FREE void *data = NULL;
	struct image image = IMAGE_NULL;
	uint32_t index = 0;
	size_t size = 0;
	int r;

	if (fd < 0)
		return fd;
	r = image_open(fd, &image, NULL);
	if (r < 0)
		return r;
	if (!image_find(&image, start->profile, &index))
		return -ENOENT;
	r = image_session(&image, index, &data, &size);
	image_close(&image);
	return r < 0 ? r
		     : keep(start, SHIM_FD_POLICY,
			    fd_memfd_sealed("session-policy", data, size, 0));
}

static int step_params(struct start *start)
{
	struct shim_params params = {
		.magic = PLAN_MAGIC,
		.version = PLAN_VERSION,
		.size = sizeof(params),
		.user_id = SESSION_USER_ID,
		.group_id = SESSION_USER_ID,
		.flags = SHIM_PARAMS_STOPS,
		.ring_bytes = (uint64_t)SHIM_RING_BYTES,
	};
	struct id id;
	uint32_t max_files;
	int r;

	r = id_parse(start->session, &id);
	if (r < 0)
		return r;
	memcpy(params.session, id.bytes, ID_BYTES);
	r = num_parse_u32(start->max_files, PLAN_FILES_MIN, PLAN_FILES_MAX, &max_files);
	if (r < 0)
		return r;
	params.max_files = max_files;
	return keep(start, SHIM_FD_PARAMS,
		    fd_memfd_sealed("shim-params", &params, sizeof(params), 0));
}

/* A descriptor, or -errno. */
static int listen_at(const char *path, int type)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const void *at = &address; /* a cast would be a pun to the compiler */
	AUTO_CLOSE int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

	memcpy(address.sun_path, path, strlen(path) + 1);
	if (fd < 0)
		return -errno;
	if (unlink(path) < 0 && errno != ENOENT)
		return -errno;
	if (bind(fd, at, sizeof(address)) < 0)
		return -errno;
	if (listen(fd, 4) < 0)
		return -errno;
	return TAKE_FD(fd);
}

static int step_listener(struct start *start)
{
	/* Whatever the engine made of the mount's options: nobody but uid 0 comes to the sockets.
	 */
	if (chmod(CONTAIN_SOCKET_DIR, 0700) < 0)
		return -errno;
	return keep(start, SHIM_FD_LISTEN, listen_at(CONTAIN_SOCKET, SOCK_SEQPACKET));
}

/* Before anything of the shim's: the child has this socket and no other descriptor. */
static int step_relay(struct start *start)
{
	AUTO_CLOSE int fd = listen_at(CONTAIN_RELAY, SOCK_STREAM | SOCK_NONBLOCK);
	pid_t pid;

	if (fd < 0)
		return fd;
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid > 0)
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(start->fds); i++)
		start->fds[i] = fd_close(start->fds[i]);
	_exit(contain_drop_capabilities() < 0 ? EXIT_FAILURE : contain_relay(fd));
}

static int step_programs(struct start *start)
{
	static const struct {
		enum shim_fd number;
		const char *path;
	} programs[] = {
		{SHIM_FD_LOADER,  CONTAIN_DIR "/sandbox-loader" },
		{SHIM_FD_GIT,     CONTAIN_DIR "/sandbox-git"    },
		{SHIM_FD_ARCHIVE, CONTAIN_DIR "/sandbox-archive"},
	};
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(programs); i++)
		r = keep(start, programs[i].number, open_file(programs[i].path, O_RDONLY));
	/* Nobody waits for its word: who connects hears of it, or of the container's end. */
	if (r == 0)
		r = keep(start, SHIM_FD_READY, open_file("/dev/null", O_WRONLY));
	if (r < 0)
		return r;
	start->shim_fd = open_file(CONTAIN_DIR "/sandbox-shim", O_RDONLY);
	return start->shim_fd < 0 ? start->shim_fd : 0;
}

static int step_limits(struct start *start)
{
	/* One byte, as in supervisor/rlimits.h. */
	const struct rlimit core = {.rlim_cur = 1, .rlim_max = 1};

	(void)start;
	return setrlimit(RLIMIT_CORE, &core) < 0 ? -errno : 0;
}

static int step_ids(struct start *start)
{
	const uint32_t id = CONTAIN_SHIM_ID;

	(void)start;
	if (prctl(PR_SET_SECUREBITS, SECBIT_KEEP_CAPS | SECBIT_NO_SETUID_FIXUP, 0, 0, 0) < 0)
		return -errno;
	if (setgroups(0, NULL) < 0 || setresgid(id, id, id) < 0 || setresuid(id, id, id) < 0)
		return -errno;
	return 0;
}

static int step_capabilities(struct start *start)
{
	const uint64_t caps = shim_caps(0);
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	const struct __user_cap_data_struct data[2] = {
		{(uint32_t)caps,  (uint32_t)caps, (uint32_t)caps},
		{0},
	};

	(void)start;
	for (unsigned long cap = 0; cap < 64; cap++) {
		if (caps & (1ull << cap))
			continue;
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) == 0)
			continue;
		if (errno == EINVAL)
			break; /* behind the last one that this kernel knows */
		return -errno;
	}
	if (syscall(SYS_capset, &header, data) < 0)
		return -errno;
	for (unsigned long cap = 0; cap < 64; cap++) {
		if ((caps & (1ull << cap)) &&
		    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0) < 0)
			return -errno;
	}
	if (prctl(PR_SET_SECUREBITS,
		  SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP |
			  SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED |
			  SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED,
		  0, 0, 0) < 0)
		return -errno;
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : 0;
}

static int step_descriptors(struct start *start)
{
	int null_fd = open_file("/dev/null", O_RDWR);

	if (null_fd < 0)
		return null_fd;
	for (int i = 0; i <= STDERR_FILENO; i++) {
		if (dup2(null_fd, i) < 0)
			return -errno;
	}
	start->shim_fd = fd_dup(start->shim_fd, HIGH_FD);
	if (start->shim_fd < 0)
		return start->shim_fd;
	for (int i = SHIM_FD_LISTEN; i < SHIM_FD_NEXT_; i++) {
		if (start->fds[i] < 0)
			(void)close(i); /* whatever is there; mostly nothing */
		else if (dup2(start->fds[i], i) < 0)
			return -errno;
	}
	return 0;
}

static int step_exec(struct start *start)
{
	char name[] = "sandbox-shim";
	char *argv[] = {name, NULL};
	char *envp[] = {NULL};

	(void)kernel_execveat(start->shim_fd, argv, envp);
	return -errno;
}

static const struct {
	const char *name;
	int (*run)(struct start *start);
} steps[] = {
	{"folders",      step_folders     },
	{"policy",       step_policy      },
	{"params",       step_params      },
	{"listener",     step_listener    },
	{"relay",        step_relay       },
	{"programs",     step_programs    },
	{"limits",       step_limits      },
	{"ids",          step_ids         },
	{"capabilities", step_capabilities},
	{"descriptors",  step_descriptors },
	{"exec",         step_exec        },
};

int contain_start(char *argv[])
{
	struct start start = {.session = argv[0], .profile = argv[1], .max_files = argv[2]};

	for (size_t i = 0; i < ARRAY_SIZE(start.fds); i++)
		start.fds[i] = -1;
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		int r = steps[i].run(&start);

		if (r < 0) {
			/* The engine keeps what its containers say. */
			(void)fprintf(stderr, "sandbox-contain: step %s: errno %d\n", steps[i].name,
				      -r);
			return EXIT_FAILURE;
		}
	}
	return EXIT_FAILURE; /* not reached: the last step does not return 0 */
}
