/*
 * How the group that the instance's group is made below hands its controllers down in v2: only
 * while no process is in it (its top excepted).
 */
#pragma once

#include "supervisor/cgroup.h"

/* Has the parent that controller? */
bool cgroup_delegate_offers(const struct cgroup *cgroup, const char *controller);
/* Is in the parent a process that is neither this one nor its keeper? What cannot be read counts as
 * one. */
bool cgroup_delegate_has_strangers(const struct cgroup *cgroup);
/* From the parent to the instance's group, and from there to those below. Processes of ours in the
 * parent move to a leaf where that is in the way. 0 or -errno. */
MUST_USE int cgroup_delegate(const struct cgroup *cgroup, const char *controller);
