#include "supervisor/rootfs_mount.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

int rootfs_mount(const char *type, const struct rootfs_option *options, size_t n_options,
		 unsigned int mount_attr)
{
	AUTO_CLOSE int fs_fd = fsopen(type, FSOPEN_CLOEXEC);

	if (fs_fd < 0)
		return -errno;
	for (size_t i = 0; i < n_options; i++) {
		int r = options[i].value
				? fsconfig(fs_fd, FSCONFIG_SET_STRING, options[i].key,
					   options[i].value, 0)
				: fsconfig(fs_fd, FSCONFIG_SET_FLAG, options[i].key, NULL, 0);
		if (r < 0)
			return -errno;
	}
	if (fsconfig(fs_fd, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return -errno;
	int fd = fsmount(fs_fd, FSMOUNT_CLOEXEC, mount_attr);
	return fd < 0 ? -errno : fd;
}

int rootfs_clone(int dir_fd, const char *path)
{
	int fd = open_tree(dir_fd, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW);

	return fd < 0 ? -errno : fd;
}

int rootfs_attach(int mount_fd, int dir_fd, const char *path)
{
	return move_mount(mount_fd, "", dir_fd, path, MOVE_MOUNT_F_EMPTY_PATH) < 0 ? -errno : 0;
}

int rootfs_set_attr(int mount_fd, uint64_t set, uint64_t clear)
{
	struct mount_attr attr = {.attr_set = set, .attr_clr = clear};

	return mount_setattr(mount_fd, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0 ? -errno : 0;
}

int rootfs_pivot(int mount_fd)
{
	if (fchdir(mount_fd) < 0)
		return -errno;
	if (syscall(SYS_pivot_root, ".", ".") < 0)
		return -errno;
	/* "." is now the old root, stacked on the new one. */
	if (umount2(".", MNT_DETACH) < 0)
		return -errno;
	return chdir("/") < 0 ? -errno : 0;
}
