/*
 * Where this process stands in each control group hierarchy: read once at start.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"

/*
 * Open the directory of the calling process's own group. controller NULL: the v2 tree. The paths
 * come from /proc/self/mountinfo and /proc/self/cgroup, and the result is checked to be on the
 * right file system. The descriptor; -ENOENT: no such hierarchy is mounted; -errno.
 */
MUST_USE int cgroup_find_own(const char *controller, struct err *err);
/* The group of that path, counted from the top of the hierarchy as in /proc/PID/cgroup; it has to
 * be there. As above, and -EINVAL for a path with `..`. */
MUST_USE int cgroup_find_at(const char *controller, const char *path, struct err *err);
/* The top of the v2 tree, as far as this process's control group namespace shows it. */
MUST_USE int cgroup_find_top(struct err *err);

/* A group below another one, made where it is not there. 0 and a descriptor, or -errno. */
MUST_USE int cgroup_find_below(int parent_fd, const char *name, int *ret_fd);

/* v2 hands controllers down from groups without processes only: the supervisor's own move to this
 * leaf. Who is in it counts as being in its parent, so that a restarted one finds its groups again.
 */
#define CGROUP_FIND_LEAF "sandboxd-supervisor"

/* The same for processes that keep a group which we were told of. */
#define CGROUP_HOLDER_LEAF "holder"

/* Does this line of /proc/PID/cgroup ("4:cpu,cpuacct:/path") belong to the controller? */
bool cgroup_find_lists(const char *line, const char *controller);
