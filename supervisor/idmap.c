#include "supervisor/idmap.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/io.h"
#include "base/str.h"

#include "sandboxd/kernel.h"
#include "supervisor/rootfs_mount.h"

static const struct layer {
	uint32_t probe;
	const char *path;
	bool of_template;
} layers[] = {
	{KERNEL_USR_IDMAP,   "/u", false},
        {KERNEL_TMPFS_IDMAP, "/m", false},
	{KERNEL_TMPFS_IDMAP, "/h", false},
        {KERNEL_TMPFS_IDMAP, "/e", false},
	{KERNEL_TMPFS_IDMAP, "/f", true },
};
/* Mapped by the supervisor, template by template. */
static const struct layer state = {KERNEL_STATE_IDMAP, "/d", true};

/* A detached clone, mapped. It must not be attached yet: the mapping of a mount in use is fixed. */
static int mapped_clone(const char *path, int userns_fd)
{
	struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint32_t)userns_fd};
	AUTO_CLOSE int fd = rootfs_clone(AT_FDCWD, path);

	if (fd < 0)
		return fd;
	if (mount_setattr(fd, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
		return -errno;
	return TAKE_FD(fd);
}

int idmap_layers(uint32_t probes, bool has_template, int userns_fd)
{
	for (size_t i = 0; i < ARRAY_SIZE(layers); i++) {
		AUTO_CLOSE int fd = -1;
		int r;

		if (!(probes & layers[i].probe) || layers[i].of_template != has_template)
			continue;
		fd = mapped_clone(layers[i].path, userns_fd);
		r = fd < 0 ? fd : rootfs_attach(fd, AT_FDCWD, layers[i].path);
		if (r < 0)
			return r;
	}
	return 0;
}

/* A user namespace with one id in it, of a child that only waits. */
static int probe_userns(pid_t pid)
{
	char path[64];
	int r;

	r = str_format(path, sizeof(path), "/proc/%d/uid_map", (int)pid);
	if (r == 0)
		r = io_write_at(AT_FDCWD, path, "0 1 1\n");
	if (r == 0)
		r = str_format(path, sizeof(path), "/proc/%d/gid_map", (int)pid);
	if (r == 0)
		r = io_write_at(AT_FDCWD, path, "0 1 1\n");
	if (r == 0)
		r = str_format(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
	if (r < 0)
		return r;
	r = open(path, O_RDONLY | O_CLOEXEC);
	return r < 0 ? -errno : r;
}

static uint32_t probe_layer(const struct layer *layer, int userns_fd)
{
	int fd = mapped_clone(layer->path, userns_fd);

	if (fd < 0)
		return 0;
	(void)fd_close(fd);
	return layer->probe;
}

static uint32_t probe_layers(int userns_fd)
{
	uint32_t probes = probe_layer(&state, userns_fd);

	for (size_t i = 0; i < ARRAY_SIZE(layers); i++)
		probes |= probe_layer(&layers[i], userns_fd);
	return probes;
}

uint32_t idmap_probe(void)
{
	struct clone_args args = {.flags = CLONE_NEWUSER, .exit_signal = SIGCHLD};
	AUTO_CLOSE int userns_fd = -1;
	uint32_t probes = 0;
	pid_t parent = getpid();
	pid_t pid = kernel_clone3(&args);

	if (pid == 0) {
		/* Else it would live on with all that we hold, if we are ended meanwhile. */
		if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
			_exit(1);
		for (;;)
			(void)pause();
	}
	if (pid < 0)
		return 0;
	userns_fd = probe_userns(pid);
	if (userns_fd >= 0)
		probes = probe_layers(userns_fd);
	/* Our own unreaped child. */
	(void)kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		continue;
	return probes;
}
