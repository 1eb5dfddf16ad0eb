#include "supervisor/cgroup_delegate.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/num.h"
#include "base/str.h"

#include "supervisor/cgroup_find.h"

#define PID_BYTES        12
#define CONTROLLER_BYTES 64

/* Who is in a v2 group, as far as it concerns us. */
struct members {
	bool has_keeper;
	bool has_strangers; /* neither this process nor its keeper */
};

static struct members read_members(int group_fd)
{
	struct members members = {0};
	char pids[4096];
	uint32_t pid = 0;

	if (io_read_at(group_fd, "cgroup.procs", pids, sizeof(pids)) < 0)
		return (struct members){.has_strangers = true};
	for (char *line = pids; line && *line;) {
		char *next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		/* pid 0: a parent outside of our PID namespace, and no keeper. */
		bool parsed = num_parse_u32(line, 0, INT32_MAX, &pid) == 0;
		if (parsed && pid != 0 && (pid_t)pid == getppid())
			members.has_keeper = true;
		else if (!parsed || (pid_t)pid != getpid())
			members.has_strangers = true;
		line = next;
	}
	return members;
}

bool cgroup_delegate_has_strangers(const struct cgroup *cgroup)
{
	return read_members(cgroup->v2_parent_fd).has_strangers;
}

static int join(int group_fd, uint32_t pid)
{
	char text[PID_BYTES];
	int r = str_format(text, sizeof(text), "%u", pid);

	return r < 0 ? r : io_write_at(group_fd, "cgroup.procs", text);
}

/* The group that we were told of is ours, with whoever keeps it from being removed. */
static int move_holders(const struct cgroup *cgroup)
{
	AUTO_CLOSE int leaf_fd = -1;
	char pids[4096];
	uint32_t pid = 0;

	int r = cgroup_find_below(cgroup->v2_parent_fd, CGROUP_HOLDER_LEAF, &leaf_fd);
	if (r < 0)
		return r;
	ssize_t n = io_read_at(cgroup->v2_parent_fd, "cgroup.procs", pids, sizeof(pids));
	if (n < 0)
		return (int)n;
	for (char *line = pids; line && *line;) {
		char *next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		r = num_parse_u32(line, 1, INT32_MAX, &pid);
		if (r == 0)
			r = join(leaf_fd, pid);
		if (r < 0 && r != -ESRCH)
			return r;
		line = next;
	}
	return 0;
}

/*
 * Move this process and its keeper to a leaf beside the sessions. A parent that is in another group
 * is no keeper: under systemd it is pid 1, which must stay where it is.
 */
static int move_to_leaf(const struct cgroup *cgroup)
{
	const struct members members = read_members(cgroup->v2_parent_fd);
	AUTO_CLOSE int leaf_fd = -1;

	int r = cgroup_find_below(cgroup->v2_parent_fd, CGROUP_FIND_LEAF, &leaf_fd);
	if (r < 0)
		return r;
	r = join(leaf_fd, (uint32_t)getpid());
	if (r == 0 && members.has_keeper)
		r = join(leaf_fd, (uint32_t)getppid());
	return r;
}

int cgroup_delegate(const struct cgroup *cgroup, const char *controller)
{
	char text[CONTROLLER_BYTES];

	int r = str_format(text, sizeof(text), "+%s", controller);
	if (r < 0)
		return r;
	r = io_write_at(cgroup->v2_parent_fd, "cgroup.subtree_control", text);
	if (r == -EBUSY) {
		r = cgroup->parent_is_told ? move_holders(cgroup) : move_to_leaf(cgroup);
		if (r == 0)
			r = io_write_at(cgroup->v2_parent_fd, "cgroup.subtree_control", text);
	}
	if (r < 0)
		return r;
	return io_write_at(cgroup->v2_fd, "cgroup.subtree_control", text);
}

bool cgroup_delegate_offers(const struct cgroup *cgroup, const char *controller)
{
	char text[256];

	if (io_read_at(cgroup->v2_parent_fd, "cgroup.controllers", text, sizeof(text)) < 0)
		return false;
	for (char *word = text; word;) {
		char *next = strchr(word, ' ');
		if (next)
			*next++ = '\0';
		if (str_equal(word, controller))
			return true;
		word = next;
	}
	return false;
}
