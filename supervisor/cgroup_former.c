/*
 * Groups that a former supervisor of the instance left. By name below our own directories, or by
 * the kernel's id of a group where the service was started in another place than before.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/num.h"
#include "base/str.h"

#include "supervisor/cgroup.h"
#include "supervisor/dirwalk.h"

#define PATH_BYTES         96
#define LINK_BYTES         4096
#define PROCS_MAX_BYTES    ((size_t)1024 * 1024)
#define FILEID_KERNFS_TYPE 0xfe /* file handles of cgroup2: the 64-bit id alone */
#define END_TIMEOUT        (3 * USEC_PER_SEC)

struct visitor {
	cgroup_visit visit;
	void *userdata;
	bool is_v2;
};

static int on_entry(void *userdata, const struct dirwalk_entry *entry)
{
	const struct visitor *visitor = userdata;

	if (entry->type != DT_DIR || entry->name[0] == '.')
		return 0;
	return visitor->visit(visitor->userdata, entry->name, visitor->is_v2);
}

int cgroup_visit_all(const struct cgroup *cgroup, cgroup_visit visit, void *userdata)
{
	struct visitor visitor = {.visit = visit, .userdata = userdata, .is_v2 = true};
	int r = dirwalk(cgroup->v2_fd, on_entry, &visitor);

	visitor.is_v2 = false;
	for (unsigned int i = 0; r == 0 && i < CGROUP_CONTROLLER_MAX_; i++) {
		if (cgroup->v1_fd[i] >= 0)
			r = dirwalk(cgroup->v1_fd[i], on_entry, &visitor);
	}
	return r;
}

int cgroup_check(const struct cgroup *cgroup, const char *name, uint64_t id)
{
	struct stat st;

	if (fstatat(cgroup->v2_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (!S_ISDIR(st.st_mode) || st.st_ino != id)
		return -ESTALE;
	for (unsigned int i = 0; i < CGROUP_CONTROLLER_MAX_; i++) {
		if (cgroup->v1_fd[i] >= 0 && faccessat(cgroup->v1_fd[i], name, F_OK, 0) < 0)
			return -errno;
	}
	return 0;
}

int cgroup_holds(const struct cgroup *cgroup, const char *name, int pid)
{
	char path[PATH_BYTES];
	AUTO_FREE char *text = NULL;
	size_t size = 0;

	int r = str_format(path, sizeof(path), "%s/cgroup.procs", name);
	if (r < 0)
		return r;
	AUTO_CLOSE int fd = openat(cgroup->v2_fd, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	r = io_read_file(fd, PROCS_MAX_BYTES, &text, &size);
	if (r < 0)
		return r;
	for (char *line = text; line && *line;) {
		uint32_t found = 0;
		char *next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		if (num_parse_u32(line, 1, INT32_MAX, &found) == 0 && (int)found == pid)
			return 1;
		line = next;
	}
	return 0;
}

int cgroup_open_by_id(int tree_fd, uint64_t id)
{
	union {
		struct file_handle handle;
		uint8_t bytes[sizeof(struct file_handle) + sizeof(uint64_t)];
	} name = {.bytes = {0}};

	name.handle.handle_bytes = sizeof(id);
	name.handle.handle_type = FILEID_KERNFS_TYPE;
	memcpy(name.bytes + offsetof(struct file_handle, f_handle), &id, sizeof(id));
	int fd = open_by_handle_at(tree_fd, &name.handle, O_PATH | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* The kernel says where the group is: its last component has to be the name. */
static int check_name(int group_fd, const char *name)
{
	char path[64];
	char link[LINK_BYTES];

	int r = str_format(path, sizeof(path), "/proc/self/fd/%d", group_fd);
	if (r < 0)
		return r;
	ssize_t n = readlink(path, link, sizeof(link) - 1);
	if (n < 0)
		return -errno;
	link[n] = '\0';
	const char *last = strrchr(link, '/');
	return last && str_equal(last + 1, name) ? 0 : -ESTALE;
}

int cgroup_end_by_id(const struct cgroup *cgroup, uint64_t id, const char *name)
{
	const struct timespec pause = {.tv_nsec = 2000000};
	usec_t deadline = clock_add(clock_boottime(), END_TIMEOUT);
	AUTO_CLOSE int fd = cgroup_open_by_id(cgroup->v2_fd, id);

	if (fd < 0)
		return fd == -ESTALE ? 0 : fd;
	int r = check_name(fd, name);
	if (r < 0)
		return r;
	AUTO_CLOSE int parent_fd = openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (parent_fd < 0)
		return -errno;
	r = io_write_at(fd, "cgroup.kill", "1");
	while (r == 0) {
		(void)unlinkat(fd, CGROUP_PART_WORK, AT_REMOVEDIR); /* there is seldom one */
		if (unlinkat(parent_fd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
			break;
		if (errno != EBUSY || clock_boottime() >= deadline)
			r = -errno;
		else
			(void)nanosleep(&pause, NULL);
	}
	return r;
}
