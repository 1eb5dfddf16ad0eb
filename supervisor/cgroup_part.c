/*
 * Theory. A frozen session's shim cannot work for it: to read its files, say, while its commands
 * stand still. Then the group is parted: what is not ours in it goes to a group `work` below, which
 * stays frozen when the group itself is thawed. All of it is moved while all of it is frozen, so
 * that nothing forks on the way, and back in the same way: in normal life there is no such group,
 * and a release that knows nothing of it can remove the session's.
 *
 * What goes on is the shim alone: pid 1, and its first child, the nursery, which is 2 in there and
 * has its id (the block's last, which is not mapped in the session, so that no command can take
 * it). Spawners and runners have that id as well, and a command that is about to begin has it
 * still: they stand still with the commands. Of the nursery's children only what it makes after the
 * thaw goes on.
 *
 * Moving waits for the kernel, and what is killed meanwhile may give its number to another process:
 * each one is looked at once more before it is moved.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/num.h"
#include "base/str.h"

#include "supervisor/cgroup.h"

#define WORK              CGROUP_PART_WORK
#define PATH_BYTES        96
#define STATUS_BYTES      8192
#define THREADS_MAX_BYTES ((size_t)4 * 1024 * 1024)
#define WAIT_MAX          (5 * USEC_PER_SEC)
#define PAUSE_NS          500000

/* "<name>/<below>/<file>"; below "": the group itself. */
static int group_path(char path[PATH_BYTES], const char *name, const char *below, const char *file)
{
	return str_format(path, PATH_BYTES, "%s%s%s/%s", name, below[0] ? "/" : "", below, file);
}

static int write_group(const struct cgroup *cgroup, const char *name, const char *below,
		       const char *file, const char *text)
{
	char path[PATH_BYTES];
	int r = group_path(path, name, below, file);

	return r < 0 ? r : io_write_at(cgroup->v2_fd, path, text);
}

/* All of it has stopped, what is below included. */
static int wait_frozen(const struct cgroup *cgroup, const char *name)
{
	const struct timespec pause = {.tv_nsec = PAUSE_NS};
	usec_t deadline = clock_add(clock_boottime(), WAIT_MAX);
	char path[PATH_BYTES];
	char text[128];

	int r = group_path(path, name, "", "cgroup.events");
	while (r >= 0) {
		ssize_t n = io_read_at(cgroup->v2_fd, path, text, sizeof(text));
		if (n < 0)
			return (int)n;
		if (strstr(text, "frozen 1"))
			return 0;
		if (clock_boottime() >= deadline)
			return -ETIMEDOUT;
		(void)nanosleep(&pause, NULL);
	}
	return r;
}

/* A line feed in a process's own name is shown escaped: these lines are the kernel's. */
static bool is_nursery(const char *status, const struct cgroup_shim *shim)
{
	const char *numbers = strstr(status, "\nNSpid:\t"); /* the last one is that in there */
	const char *end = numbers ? strchr(numbers + 1, '\n') : NULL;
	char ids[80];
	char parent[32];
	uint32_t id = shim->id;

	if (str_format(ids, sizeof(ids), "\nUid:\t%u\t%u\t%u\t%u\n", id, id, id, id) < 0 ||
	    str_format(parent, sizeof(parent), "\nPPid:\t%d\n", shim->pid) < 0)
		return false;
	return strstr(status, ids) && strstr(status, parent) && end && end[-1] == '2' &&
	       end[-2] == '\t';
}

/* 1: it goes on; 0: it does not, or is gone. */
static int is_shims(const char *pid, uint64_t number, const struct cgroup_shim *shim)
{
	char path[64];
	char status[STATUS_BYTES];

	if (number == (uint64_t)shim->pid)
		return 1;
	int r = str_format(path, sizeof(path), "/proc/%s/status", pid);
	if (r < 0)
		return r;
	ssize_t n = io_read_at(AT_FDCWD, path, status, sizeof(status));
	/* The nursery is in no groups that could make it that long. */
	if (n == -ENOENT || n == -ESRCH || n == -EFBIG)
		return 0;
	return n < 0 ? (int)n : is_nursery(status, shim);
}

/* 1: it is in that very group; 0: it is not, or is gone. */
static int is_in(const struct cgroup *cgroup, const char *name, const char *below, const char *pid)
{
	char suffix[PATH_BYTES];
	char path[64];
	char text[STATUS_BYTES];

	int r = str_format(suffix, sizeof(suffix), "/%s/%s%s%s", cgroup->name, name,
			   below[0] ? "/" : "", below);
	if (r >= 0)
		r = str_format(path, sizeof(path), "/proc/%s/cgroup", pid);
	if (r < 0)
		return r;
	ssize_t n = io_read_at(AT_FDCWD, path, text, sizeof(text));
	if (n == -ENOENT || n == -ESRCH)
		return 0;
	if (n < 0)
		return (int)n;
	for (char *line = text; line;) {
		char *next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		if (str_has_prefix(line, "0::"))
			return str_has_suffix(line, suffix);
		line = next;
	}
	return 0;
}

/* Each thread: a process whose first one has ended is in the list of processes of the group that
 * this one was in then, wherever the others are. */
static int read_threads(const struct cgroup *cgroup, const char *name, const char *below,
			char **ret_text)
{
	char path[PATH_BYTES];
	size_t size = 0;

	int r = group_path(path, name, below, "cgroup.threads");
	if (r < 0)
		return r;
	AUTO_CLOSE int fd = openat(cgroup->v2_fd, path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : io_read_file(fd, THREADS_MAX_BYTES, ret_text, &size);
}

/* From one of the two groups to the other; all of it but the shim, or with it (NULL). */
static int move_all(const struct cgroup *cgroup, const char *name, const char *from, const char *to,
		    const struct cgroup_shim *shim)
{
	AUTO_FREE char *text = NULL;
	int r = read_threads(cgroup, name, from, &text);

	for (char *pid = text; r >= 0 && pid && *pid;) {
		char *next = strchr(pid, '\n');
		uint64_t number;
		bool stays;
		if (next)
			*next++ = '\0';
		/* 0 would be ourselves: a process of no PID namespace that we can see. */
		r = num_parse_u64(pid, 1, INT32_MAX, &number);
		if (r >= 0 && shim)
			r = is_shims(pid, number, shim);
		stays = r == 1;
		if (r == 0)
			r = is_in(cgroup, name, from, pid);
		/* All of its process; the others of that are not in there any more. */
		if (r == 1 && !stays)
			r = write_group(cgroup, name, to, "cgroup.procs", pid);
		if (r == -ESRCH)
			r = 0; /* killed meanwhile */
		pid = next;
	}
	return r < 0 ? r : 0;
}

int cgroup_join(const struct cgroup *cgroup, const char *name)
{
	char path[PATH_BYTES];

	int r = cgroup_freeze(cgroup, name, true);
	if (r >= 0 && !cgroup_is_parted(cgroup, name))
		return 0;
	if (r >= 0)
		r = wait_frozen(cgroup, name);
	if (r >= 0)
		r = move_all(cgroup, name, WORK, "", NULL);
	if (r >= 0)
		r = str_format(path, sizeof(path), "%s/" WORK, name);
	if (r >= 0 && unlinkat(cgroup->v2_fd, path, AT_REMOVEDIR) < 0)
		r = -errno;
	return r;
}

int cgroup_part(const struct cgroup *cgroup, const char *name, const struct cgroup_shim *shim)
{
	char path[PATH_BYTES];

	int r = str_format(path, sizeof(path), "%s/" WORK, name);
	if (r >= 0)
		r = wait_frozen(cgroup, name);
	if (r >= 0 && mkdirat(cgroup->v2_fd, path, 0755) < 0)
		r = -errno;
	if (r >= 0)
		r = write_group(cgroup, name, WORK, "cgroup.freeze", "1");
	if (r >= 0)
		r = move_all(cgroup, name, "", WORK, shim);
	if (r >= 0)
		r = cgroup_freeze(cgroup, name, false);
	if (r < 0)
		IGNORE_RESULT(cgroup_join(cgroup, name));
	return r;
}

bool cgroup_is_parted(const struct cgroup *cgroup, const char *name)
{
	char path[PATH_BYTES];

	return str_format(path, sizeof(path), "%s/" WORK, name) == 0 &&
	       faccessat(cgroup->v2_fd, path, F_OK, 0) == 0;
}

void cgroup_remove_work(const struct cgroup *cgroup, const char *name)
{
	char path[PATH_BYTES];

	if (str_format(path, sizeof(path), "%s/" WORK, name) == 0)
		(void)unlinkat(cgroup->v2_fd, path, AT_REMOVEDIR);
}
