/*
 * The child's half of the floor (floor.h): runs between clone3 and exec, raw system calls only.
 */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include <linux/filter.h>

struct floor_child {
	int sync_fd;     /* one byte from the parent: the plan */
	int group_fd[3]; /* the v1 groups to join; -1: none */
	int ready_fd;    /* the program's descriptor 3 */
	int userns_fd;   /* prepared user namespace */
	int program_fd;  /* sealed memfd */
	uid_t id_base;
	const struct sock_filter *filter;
	unsigned short n_filter;
	const char *tmpfs_options[8]; /* pairs key, value; NULL ends */
};

/* Does not return on success; on failure the exit status is the number of the step. */
__attribute__((noreturn)) void floor_child_run(const struct floor_child *child);
