#include "supervisor/cgroup_find.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <linux/magic.h>

#include "base/io.h"
#include "base/str.h"

#define CGROUP_FILE_MAX_BYTES ((size_t)4 * 1024 * 1024)

/* The next field of a line that is separated by `separator`; NULL at its end. */
static char *next_field(char **rest, char separator)
{
	char *field = *rest;

	if (!field)
		return NULL;
	char *end = strchr(field, separator);
	if (end) {
		*end = '\0';
		*rest = end + 1;
	} else {
		*rest = NULL;
	}
	return field;
}

static bool list_has(const char *list, const char *word)
{
	size_t length = strlen(word);

	for (const char *at = list; (at = strstr(at, word)); at += length) {
		bool starts = at == list || at[-1] == ',';
		bool ends = at[length] == '\0' || at[length] == ',';
		if (starts && ends)
			return true;
	}
	return false;
}

bool cgroup_find_lists(const char *line, const char *controller)
{
	char controllers[128];

	const char *begin = strchr(line, ':');
	const char *end = begin ? strchr(begin + 1, ':') : NULL;
	if (!end ||
	    str_copy_n(controllers, sizeof(controllers), begin + 1, (size_t)(end - begin - 1)) < 0)
		return false;
	return list_has(controllers, controller);
}

/* mountinfo writes space, tab, newline and backslash as \ooo. */
static void unescape(char *text)
{
	char *to = text;

	for (const char *from = text; *from; to++) {
		if (from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && from[2] >= '0' &&
		    from[2] <= '7' && from[3] >= '0' && from[3] <= '7') {
			*to = (char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + (from[3] - '0'));
			from += 4;
		} else {
			*to = *from++;
		}
	}
	*to = '\0';
}

static int read_proc(const char *name, char **ret_text, struct err *err)
{
	size_t size = 0;
	AUTO_CLOSE int fd = open(name, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return err_fail(err, -errno, "cgroup", "open %s", name);
	int r = io_read_file(fd, CGROUP_FILE_MAX_BYTES, ret_text, &size);
	if (r < 0)
		return err_fail(err, r, "cgroup", "read %s", name);
	return 0;
}

/* One line: id parent major:minor root mountpoint options [tags…] - type source super-options. */
static bool mount_matches(char *line, const char *controller, const char **ret_root,
			  const char **ret_point)
{
	char *tail = strstr(line, " - ");

	if (!tail)
		return false;
	*tail = '\0';
	tail += 3;
	for (int i = 0; i < 3; i++)
		(void)next_field(&line, ' ');
	char *root = next_field(&line, ' ');
	char *point = next_field(&line, ' ');
	const char *type = next_field(&tail, ' ');
	(void)next_field(&tail, ' ');
	const char *options = next_field(&tail, ' ');
	if (!root || !point || !type || !options)
		return false;
	if (controller ? !(str_equal(type, "cgroup") && list_has(options, controller))
		       : !str_equal(type, "cgroup2"))
		return false;
	unescape(root);
	unescape(point);
	*ret_root = root;
	*ret_point = point;
	return true;
}

/* One line of /proc/self/cgroup: id:controllers:path; v2 is "0::path". */
static char *own_path(char *text, const char *controller)
{
	char *line = NULL;

	while ((line = next_field(&text, '\n'))) {
		const char *id = next_field(&line, ':');
		const char *controllers = next_field(&line, ':');
		if (!id || !controllers || !line)
			continue;
		if (controller ? list_has(controllers, controller) : str_equal(id, "0"))
			return line;
	}
	return NULL;
}

static int open_group(const char *point, const char *below, bool is_v2)
{
	AUTO_CLOSE int mount_fd = open(point, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (mount_fd < 0)
		return -errno;
	while (*below == '/')
		below++;
	AUTO_CLOSE int fd =
		openat(mount_fd, *below ? below : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	struct statfs fs;
	if (fstatfs(fd, &fs) < 0)
		return -errno;
	/* Something else may be mounted over the group's path. */
	if (fs.f_type != (is_v2 ? CGROUP2_SUPER_MAGIC : CGROUP_SUPER_MAGIC))
		return -ENOTTY;
	return TAKE_FD(fd);
}

/* Open `own`, or the top of the tree, in the first mount of the hierarchy that shows it. */
static int find(const char *controller, const char *own, bool top, struct err *err)
{
	AUTO_FREE char *mounts = NULL;
	const char *root = NULL;
	const char *point = NULL;
	char *line = NULL;

	int r = read_proc("/proc/self/mountinfo", &mounts, err);
	if (r < 0)
		return r;
	char *rest = mounts;
	r = -ENOENT;
	while ((line = next_field(&rest, '\n'))) {
		if (!mount_matches(line, controller, &root, &point))
			continue;
		/* The mount shows the tree from `root` on; our own path counts from its top. */
		size_t length = str_equal(root, "/") ? 0 : strlen(root);
		if (strncmp(own, root, length) != 0)
			continue;
		r = open_group(point, top ? "" : own + length, controller == NULL);
		if (r >= 0)
			return r;
	}
	return r;
}

int cgroup_find_own(const char *controller, struct err *err)
{
	static const char leaf[] = "/" CGROUP_FIND_LEAF;
	AUTO_FREE char *groups = NULL;

	int r = read_proc("/proc/self/cgroup", &groups, err);
	if (r < 0)
		return r;
	char *own = own_path(groups, controller);
	if (!own || strstr(own, "/.."))
		return -ENOENT;
	if (!controller && str_has_suffix(own, leaf))
		own[strlen(own) - strlen(leaf)] = '\0';
	return find(controller, own, false, err);
}

int cgroup_find_at(const char *controller, const char *path, struct err *err)
{
	if (strstr(path, "/.."))
		return -EINVAL;
	return find(controller, path, false, err);
}

int cgroup_find_top(struct err *err)
{
	return find(NULL, "/", true, err);
}

int cgroup_find_below(int parent_fd, const char *name, int *ret_fd)
{
	if (mkdirat(parent_fd, name, 0755) < 0 && errno != EEXIST)
		return -errno;
	int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}
