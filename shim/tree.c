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
#include <sys/stat.h>
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
	char state;
	bool is_below;       /* or, of the others below: it is to be stopped, to go on */
	uint32_t n_children; /* that are to go on before it */
};

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

	if (tree->n == ARRAY_SIZE(tree->entry) || num_parse_u32(name, 1, INT32_MAX, &pid) < 0)
		return;
	if (str_format(path, sizeof(path), "%s/stat", name) < 0 ||
	    tree_read(proc_fd, path, &entry->parent, &entry->state) < 0)
		return; /* it has ended */
	entry->pid = (pid_t)pid;
	entry->is_below = false;
	entry->n_children = 0;
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

/* All of /proc. To be closed; NULL: errno says why. */
static DIR *tree_fill(struct tree *tree)
{
	const struct dirent *dirent;
	DIR *dir = opendir("/proc");

	if (!dir)
		return NULL;
	tree->n = 0;
	while ((dirent = readdir(dir))) /* NOLINT(concurrency-mt-unsafe): one thread */
		tree_add(tree, dirfd(dir), dirent->d_name);
	return dir;
}

/* Untouched pages cost nothing. */
static struct tree *tree_get(void)
{
	static struct tree tree;

	return &tree;
}

int tree_signal(pid_t root, int number)
{
	struct tree *tree = tree_get();
	int count = 0;
	DIR *dir;

	dir = tree_fill(tree);
	if (!dir)
		return -errno;
	tree_mark(tree, root);
	for (size_t i = 0; i < tree->n; i++) {
		if (tree->entry[i].is_below)
			count += tree_signal_one(&tree->entry[i], root, dirfd(dir), number);
	}
	(void)closedir(dir);
	return count;
}

int tree_stopped(pid_t *ret_pid, size_t max)
{
	struct tree *tree = tree_get();
	int count = 0;
	DIR *dir;

	dir = tree_fill(tree);
	if (!dir)
		return -errno;
	(void)closedir(dir);
	for (size_t i = 0; i < tree->n && (size_t)count < max; i++) {
		if (tree->entry[i].state == 'T')
			ret_pid[count++] = tree->entry[i].pid;
	}
	return count;
}

/* One that is marked, or NULL. */
static struct tree_entry *tree_find(struct tree *tree, pid_t pid)
{
	for (size_t i = 0; i < tree->n; i++) {
		if (tree->entry[i].pid == pid && tree->entry[i].is_below)
			return &tree->entry[i];
	}
	return NULL;
}

static bool tree_is_running(const struct tree_entry *entry, int proc_fd, uid_t uid)
{
	char name[16];
	struct stat st;

	return !strchr("TtZX", entry->state) &&
	       str_format(name, sizeof(name), "%d", entry->pid) >= 0 &&
	       fstatat(proc_fd, name, &st, 0) == 0 && st.st_uid == uid;
}

int tree_stop(uid_t uid)
{
	struct tree *tree = tree_get();
	int count = 0;
	DIR *dir;

	dir = tree_fill(tree);
	if (!dir)
		return -errno;
	for (size_t i = 0; i < tree->n; i++)
		tree->entry[i].is_below = tree_is_running(&tree->entry[i], dirfd(dir), uid);
	(void)closedir(dir);
	for (size_t i = 0; i < tree->n; i++) {
		if (!tree->entry[i].is_below)
			continue;
		count++;
		/* Whoever has its number by now is stopped a moment later. */
		if (!tree_find(tree, tree->entry[i].parent))
			(void)kill(tree->entry[i].pid, SIGSTOP);
	}
	return count;
}

/* Threads of a zombie may be stopped, and who is traced stops when its tracer goes on: SIGCONT
 * takes the stop back that waits for it. */
static bool tree_goes_on(const struct tree_entry *entry, const pid_t *but, size_t n_but)
{
	if (entry->state != 'T' && entry->state != 't' && entry->state != 'Z')
		return false;
	for (size_t i = 0; i < n_but; i++) {
		if (but[i] == entry->pid)
			return false;
	}
	return true;
}

int tree_continue(const pid_t *but, size_t n_but)
{
	struct tree *tree = tree_get();
	struct tree_entry *parent;
	DIR *dir;

	dir = tree_fill(tree);
	if (!dir)
		return -errno;
	(void)closedir(dir);
	for (size_t i = 0; i < tree->n; i++)
		tree->entry[i].is_below = tree_goes_on(&tree->entry[i], but, n_but);
	for (size_t i = 0; i < tree->n; i++) {
		parent = tree->entry[i].is_below ? tree_find(tree, tree->entry[i].parent) : NULL;
		if (parent)
			parent->n_children++;
	}
	for (size_t i = 0; i < tree->n; i++) {
		struct tree_entry *entry = &tree->entry[i];

		/* Up from who has no child to wait for, as far as that was the last one. */
		while (entry && entry->is_below && entry->n_children == 0) {
			/* Whoever has its number by now loses nothing. */
			(void)kill(entry->pid, SIGCONT);
			entry->is_below = false;
			entry = tree_find(tree, entry->parent);
			if (entry)
				entry->n_children--;
		}
	}
	return 0;
}
