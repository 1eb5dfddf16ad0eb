/*
 * Runs as root in the supervisor's own mount namespace. What is in a template is hostile; its
 * folder and record are root's alone. The name is one component of a path in a folder that only
 * root can write, and no link is followed on the way (A7, A8).
 */
#include "supervisor/template_use.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"
#include "base/template.h"

#include "sandboxd/limits.h"

#define FOLDER "/d/" TEMPLATES_FOLDER

static int open_folder(const char *name)
{
	AUTO_CLOSE int dir_fd = open(FOLDER, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (dir_fd < 0)
		return -errno;
	return path_open_beneath(dir_fd, name, O_PATH | O_DIRECTORY, 0);
}

/* Detached, as the mapping of a mount in use is fixed; the state directory's mount has noexec,
 * which must not become the root's. */
static int clone_tree(int folder_fd, int userns_fd)
{
	struct mount_attr attr = {
		.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
		.attr_clr = MOUNT_ATTR_NOEXEC,
	};
	AUTO_CLOSE int root_fd =
		path_open_beneath(folder_fd, TEMPLATE_ROOT, O_PATH | O_DIRECTORY, 0);

	if (root_fd < 0)
		return root_fd;
	AUTO_CLOSE int fd =
		open_tree(root_fd, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
	if (fd < 0)
		return -errno;
	if (userns_fd >= 0) {
		attr.attr_set |= MOUNT_ATTR_IDMAP;
		attr.userns_fd = (uint32_t)userns_fd;
	}
	if (mount_setattr(fd, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
		return -errno;
	return TAKE_FD(fd);
}

int template_use_take(const struct template_wish *wish, struct template_use *ret_use,
		      struct err *err)
{
	struct template_record record;

	/* The name was checked with the message it came in; it becomes a path here. */
	if (!template_name_is_valid(wish->name) || str_equal(wish->name, TEMPLATE_BASE))
		return err_fail(err, -EINVAL, "template", "name");
	AUTO_CLOSE int folder_fd = open_folder(wish->name);
	if (folder_fd < 0)
		return err_fail(err, folder_fd, "template", "open its folder");
	AUTO_CLOSE int record_fd = template_record_open(folder_fd, &record);
	if (record_fd < 0)
		return err_fail(err, record_fd, "template", "read its record");
	int r = template_hold(record_fd, wish->id_base / IDBLOCK_SIZE);
	if (r < 0)
		return err_fail(err, r, "template", "hold it");
	/* Owners that were moved already are nobody of the session's. */
	int tree_fd = clone_tree(folder_fd,
				 record.id_base == TEMPLATE_OWNERS_PLAIN ? wish->userns_fd : -1);
	if (tree_fd < 0)
		return err_fail(err, tree_fd, "template", "mount its root");
	*ret_use = (struct template_use){.record_fd = TAKE_FD(record_fd), .tree_fd = tree_fd};
	return 0;
}

void template_use_close(struct template_use *use)
{
	use->record_fd = fd_close(use->record_fd);
	use->tree_fd = fd_close(use->tree_fd);
}
