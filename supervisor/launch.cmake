# The launch engine: everything behind host.h and session.h. It links the reader of the compiled
# policy and nothing that parses anything else.
add_library(sandboxd_launch STATIC
	adopt.c
	bpf.c
	cgroup.c
	cgroup_delegate.c
	cgroup_find.c
	cgroup_former.c
	cgroup_part.c
	cgroup_workers.c
	dirwalk.c
	egress_guard.c
	etc_template.c
	host.c
	idblock.c
	idmap.c
	lookup_reserve.c
	mountns.c
	netns.c
	netns_restore.c
	netns_routes.c
	probe.c
	prove.c
	record.c
	rlimits.c
	rootfs.c
	rootfs_mount.c
	session.c
	session_part.c
	sklookup.c
	steps_child.c
	steps_parent.c
	template_use.c
	userns.c
	usr_copies.c
	usr_mask.c
	weaken.c
)
target_link_libraries(sandboxd_launch PUBLIC sandboxd_base sandboxd_policy_image)

# Developer program: the engine without the processes around it.
add_executable(launch-probe ${PROJECT_SOURCE_DIR}/tests/integration/launch_probe.c)
target_link_libraries(launch-probe PRIVATE sandboxd_launch)
