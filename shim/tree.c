/*
 * Theory. One pass reads the parent of every process and marks what hangs below the root, then
 * signals it, parents before children where the list allows. Processes of other ids are visible
 * because the session's /proc is mounted with gid= the group of pid 1 and its runners, which
 * hidepid exempts; commands are in no such group. Where it is not, a pass sees no descendant but
 * our own children, and the caller has other means.
 *
 * A number may be another process by the time it is signalled (B19). So each is opened first and
 * its parent read again through that descriptor, and the signal goes to the descriptor.
 */
#include "shim/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/num.h"
#include "base/str.h"

#include "sandboxd/kernel.h"
#include "sandboxd/plan.h"

#define TREE_STAT_BYTES 512

struct tree_entry {
	pid_t pid;
	pid_t parent;
	bool is_below;
};

/* Untouched pages cost nothing. */
struct tree {
	struct tree_entry entry[PLAN_PIDS_MAX];
	size_t n;
};

/* The parent and state from the stat file in dir_fd. 0 or -errno. */
static int tree_read(int dir_fd, const char *name, pid_t *ret_parent, char *ret_state)
{
	char text[TREE_STAT_BYTES];
	char *at;
	uint32_t parent;
	ssize_t n;
	int r;

	n = io_read_at(dir_fd, name, text, sizeof(text));
	if (n < 0)
		return (int)n;
	/* The name of the program stands in parentheses and may hold anything. */
	at = strrchr(text, ')');
	if (!at || strlen(at) < strlen(") S 1 "))
		return -EBADMSG;
	*ret_state = at[2];
	at += strlen(") S ");
	at[strcspn(at, " ")] = '\0';
	r = num_parse_u32(at, 0, INT32_MAX, &parent);
	if (r < 0)
		return r;
	*ret_parent = (pid_t)parent;
	return 0;
}

static void tree_add(struct tree *tree, int proc_fd, const char *name)
{
	struct tree_entry *entry = &tree->entry[tree->n];
	char path[32];
	uint32_t pid;
	char state;

	if (tree->n == ARRAY_SIZE(tree->entry) || num_parse_u32(name, 1, INT32_MAX, &pid) < 0)
		return;
	if (str_format(path, sizeof(path), "%s/stat", name) < 0 ||
	    tree_read(proc_fd, path, &entry->parent, &state) < 0)
		return; /* it has ended */
	entry->pid = (pid_t)pid;
	entry->is_below = false;
	tree->n++;
}

static bool tree_has(const struct tree *tree, pid_t root, pid_t pid)
{
	if (pid == root)
		return true;
	for (size_t i = 0; i < tree->n; i++) {
		if (tree->entry[i].pid == pid)
			return tree->entry[i].is_below;
	}
	return false;
}

/* Until nothing is added: numbers grow from parent to child but for a wrap, so few rounds. */
static void tree_mark(struct tree *tree, pid_t root)
{
	bool more = true;

	while (more) {
		more = false;
		for (size_t i = 0; i < tree->n; i++) {
			struct tree_entry *entry = &tree->entry[i];

			if (entry->is_below || !tree_has(tree, root, entry->parent))
				continue;
			entry->is_below = true;
			more = true;
		}
	}
}

/* 1: it ran before; 0: it did not, or is another by now. Whose parent this pass has ended is the
 * root's child now, which is below it as well. */
static int tree_signal_one(const struct tree_entry *entry, pid_t root, int proc_fd, int number)
{
	AUTO_CLOSE int fd = -1;
	char name[16];
	pid_t parent = 0;
	char state = 'Z';

	if (str_format(name, sizeof(name), "%d", entry->pid) < 0)
		return 0;
	fd = openat(proc_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || tree_read(fd, "stat", &parent, &state) < 0 ||
	    (parent != entry->parent && parent != root))
		return 0;
	if (number == SIGSTOP && (state == 'T' || state == 't'))
		return 0;
	/* A zombie may have threads that live, so it is signalled too. */
	if (kernel_pidfd_send_signal(fd, number) < 0)
		return 0;
	return state != 'Z' && state != 'X' && state != 'T' && state != 't';
}

int tree_signal(pid_t root, int number)
{
	static struct tree tree;
	const struct dirent *dirent;
	int count = 0;
	DIR *dir;

	dir = opendir("/proc");
	if (!dir)
		return -errno;
	tree.n = 0;
	while ((dirent = readdir(dir))) /* NOLINT(concurrency-mt-unsafe): one thread */
		tree_add(&tree, dirfd(dir), dirent->d_name);
	tree_mark(&tree, root);
	for (size_t i = 0; i < tree.n; i++) {
		if (tree.entry[i].is_below)
			count += tree_signal_one(&tree.entry[i], root, dirfd(dir), number);
	}
	(void)closedir(dir);
	return count;
}
