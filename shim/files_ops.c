/*
 * Theory. Every path is resolved by openat2 below the descriptor of its root, so a link counts only
 * where it leads to a place below the same root; the last component is then named to the *at calls
 * that never follow it. What is written is complete under a temporary name before it is seen under
 * its own. Only regular files are read and written, never a fifo, a socket or a device: that would
 * make the helper wait for whoever is at its other end.
 *
 * A put is whole when pid 1 says how many bytes there were (MESSAGE_COMMIT) and so many came: the
 * end of the pipe alone is also what a client that left looks like. A copy that is complete says
 * so, and waits for the same word: what pid 1 has cancelled is never seen.
 */
#include "shim/files_ops.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "base/io.h"
#include "base/path.h"
#include "base/str.h"

#include "sandboxd/kernel.h"
#include "shim/files_tree.h"
#include "shim/files_watch.h"
#include "shim/message.h"

#define OPS_FILE_MODE   0644u
#define OPS_BLOCK_BYTES ((size_t)64 * 1024)
#define OPS_SEND_BYTES  ((size_t)1024 * 1024)

/* Step and error in one: each operation sets the step before what may fail. */
struct ops {
	const struct files_operation *operation;
	uint32_t step;
};

/* `user` sets it to what it likes. */
static int64_t ops_mtime(const struct stat *st)
{
	int64_t ns;

	if (__builtin_mul_overflow((int64_t)st->st_mtim.tv_sec, INT64_C(1000000000), &ns) ||
	    __builtin_add_overflow(ns, (int64_t)st->st_mtim.tv_nsec, &ns))
		return st->st_mtim.tv_sec < 0 ? INT64_MIN : INT64_MAX;
	return ns;
}

static int ops_write_entry(int out_fd, const struct stat *st, const char *name, const char *target)
{
	uint8_t block[sizeof(struct wire_file_entry) + NAME_MAX + PATH_MAX];
	struct wire_file_entry entry = {
		.size = (uint64_t)st->st_size,
		.mtime_ns = ops_mtime(st),
		.inode = st->st_ino,
		.mode = st->st_mode,
		.uid = st->st_uid,
		.gid = st->st_gid,
		.name_bytes = (uint16_t)strnlen(name, NAME_MAX),
		.target_bytes = (uint16_t)strnlen(target, PATH_MAX - 1),
	};

	memcpy(block, &entry, sizeof(entry));
	memcpy(block + sizeof(entry), name, entry.name_bytes);
	memcpy(block + sizeof(entry) + entry.name_bytes, target, entry.target_bytes);
	return io_write_all(out_fd, block, sizeof(entry) + entry.name_bytes + entry.target_bytes);
}

/* "" where it is no link, or not to be read. */
static void ops_read_target(int dir_fd, const char *name, const struct stat *st,
			    char target[PATH_MAX])
{
	ssize_t n = S_ISLNK(st->st_mode) ? readlinkat(dir_fd, name, target, PATH_MAX - 1) : 0;

	target[n > 0 ? n : 0] = '\0';
}

static int ops_answer(const struct ops *ops, int fd)
{
	char target[PATH_MAX];
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	ops_read_target(fd, "", &st, target);
	return ops_write_entry(ops->operation->out_fd, &st, "", target);
}

/* What stands at a name now. */
static int ops_answer_at(const struct ops *ops, int dir_fd, const char *name)
{
	char target[PATH_MAX];
	struct stat st;

	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	ops_read_target(dir_fd, name, &st, target);
	return ops_write_entry(ops->operation->out_fd, &st, "", target);
}

/* The folder `path` below the root with those on the way, made where they are not there. */
static int ops_make_folders(int root_fd, const char *path)
{
	AUTO_CLOSE int folder_fd = fd_dup(root_fd, 3);
	char prefix[FILE_PATH_BYTES];
	size_t at = 0;
	int r;

	while (folder_fd >= 0) {
		size_t end = at + strcspn(path + at, "/");
		int next;

		r = str_copy_n(prefix, sizeof(prefix), path, end);
		if (r < 0)
			return r;
		/* From the root each time: a link on the way may lead up, though not out. */
		next = path_open_within(root_fd, prefix, O_PATH | O_DIRECTORY);
		if (next == -ENOENT) {
			if (mkdirat(folder_fd, prefix + at, FILES_DIR_MODE) < 0 && errno != EEXIST)
				return -errno;
			next = path_open_within(root_fd, prefix, O_PATH | O_DIRECTORY);
		}
		if (next < 0)
			return next;
		(void)fd_close(folder_fd);
		folder_fd = next;
		if (path[end] == '\0')
			break;
		at = end + 1;
	}
	return TAKE_FD(folder_fd);
}

/* The folder of the last component, which is *ret_name. -EBUSY: that is the root itself. */
static int ops_open_parent(int root_fd, const char *path, bool makes, const char **ret_name)
{
	const char *slash = strrchr(path, '/');
	char folder[FILE_PATH_BYTES];
	int fd;
	int r;

	if (str_equal(path, "."))
		return -EBUSY;
	*ret_name = slash ? slash + 1 : path;
	if (!slash)
		return fd_dup(root_fd, 3);
	r = str_copy_n(folder, sizeof(folder), path, (size_t)(slash - path));
	if (r < 0)
		return r;
	fd = path_open_within(root_fd, folder, O_PATH | O_DIRECTORY);
	return fd == -ENOENT && makes ? ops_make_folders(root_fd, folder) : fd;
}

/* A regular file, for reading. */
static int ops_open_file(int root_fd, const char *path, struct stat *ret_st)
{
	AUTO_CLOSE int fd = path_open_within(root_fd, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);

	if (fd < 0)
		return TAKE_FD(fd);
	if (fstat(fd, ret_st) < 0)
		return -errno;
	if (S_ISDIR(ret_st->st_mode))
		return -EISDIR;
	return S_ISREG(ret_st->st_mode) ? TAKE_FD(fd) : -ENXIO;
}

static int ops_stat(struct ops *ops)
{
	const struct files_operation *operation = ops->operation;
	AUTO_CLOSE int fd =
		path_open_within(operation->root_fd, operation->file->path, O_PATH | O_NOFOLLOW);

	return fd < 0 ? fd : ops_answer(ops, fd);
}

static int ops_list(struct ops *ops)
{
	static const struct stat more;
	const struct files_operation *operation = ops->operation;
	uint64_t left = operation->file->head.size;
	char target[PATH_MAX];
	const struct dirent *item;
	DIR *dir;
	int r;

	r = path_open_within(operation->root_fd, operation->file->path,
			     O_RDONLY | O_DIRECTORY | O_NONBLOCK);
	if (r < 0)
		return r;
	dir = fdopendir(r);
	if (!dir) {
		(void)fd_close(r);
		return -ENOMEM;
	}
	r = 0;
	/* One thread. NOLINTNEXTLINE(concurrency-mt-unsafe) */
	while (r >= 0 && (item = readdir(dir))) {
		struct stat st;

		if (str_equal(item->d_name, ".") || str_equal(item->d_name, "..") ||
		    fstatat(dirfd(dir), item->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if (left-- == 0) {
			r = ops_write_entry(operation->out_fd, &more, "", "");
			break;
		}
		ops_read_target(dirfd(dir), item->d_name, &st, target);
		r = ops_write_entry(operation->out_fd, &st, item->d_name, target);
	}
	(void)closedir(dir);
	return r;
}

static int ops_get(struct ops *ops)
{
	const struct wire_file *head = &ops->operation->file->head;
	AUTO_CLOSE int fd = -1;
	struct stat st;
	uint64_t size;
	uint64_t left;
	off_t at;
	int r;

	fd = ops_open_file(ops->operation->root_fd, ops->operation->file->path, &st);
	if (fd < 0)
		return TAKE_FD(fd);
	ops->step = WIRE_STEP_WRITE;
	r = ops_write_entry(ops->operation->out_fd, &st, "", "");
	if (r < 0)
		return r;
	size = (uint64_t)st.st_size;
	at = (off_t)(head->offset < size ? head->offset : size);
	if (head->flags & WIRE_FILE_LAST)
		at = (off_t)(head->size < size ? size - head->size : 0);
	left = size - (uint64_t)at < head->size ? size - (uint64_t)at : head->size;
	while (left > 0) {
		ssize_t n = sendfile(ops->operation->out_fd, fd, &at,
				     left < OPS_SEND_BYTES ? (size_t)left : OPS_SEND_BYTES);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : 0; /* it became shorter */
		left -= (uint64_t)n;
	}
	return 0;
}

/* Bytes until the end of the pipe. */
static int ops_take_bytes(int in_fd, int fd, uint64_t *ret_total)
{
	static uint8_t block[OPS_BLOCK_BYTES];

	*ret_total = 0;
	for (;;) {
		ssize_t n = io_read(in_fd, block, sizeof(block));
		int r;

		if (n <= 0)
			return (int)n;
		r = io_write_all(fd, block, (size_t)n);
		if (r < 0)
			return r;
		*ret_total += (uint64_t)n;
	}
}

/* -ECANCELED: it does not come, or says another number. */
static int ops_await_commit(int socket_fd, uint64_t total)
{
	uint8_t buffer[sizeof(struct message) + sizeof(total)];
	struct message message;
	uint64_t committed = 0;
	int no_fd = -1;
	int r;

	r = message_receive(socket_fd, buffer, sizeof(buffer), &message, &no_fd, 1);
	(void)fd_close(no_fd);
	if (r <= 0 || message.type != MESSAGE_COMMIT || message.n_bytes != sizeof(committed))
		return -ECANCELED;
	memcpy(&committed, buffer + sizeof(message), sizeof(committed));
	return committed == total ? 0 : -ECANCELED;
}

/* May a file take this name? *mode is completed: as what is there, or the default. */
static int ops_judge_target(const struct wire_file *head, int dir_fd, const char *name,
			    mode_t *mode)
{
	struct stat st;

	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		if (*mode == (mode_t)UINT32_MAX)
			*mode = OPS_FILE_MODE;
		return errno == ENOENT ? 0 : -errno;
	}
	if (S_ISDIR(st.st_mode))
		return -EISDIR;
	if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
		return -ENXIO;
	if (head->flags & WIRE_FILE_KEEP)
		return -EEXIST;
	if (*mode == (mode_t)UINT32_MAX)
		*mode = S_ISREG(st.st_mode) ? st.st_mode & 0777 : OPS_FILE_MODE;
	return 0;
}

static int ops_rename(int dir_fd, const char *name, int to_fd, const char *to, bool keeps)
{
	return kernel_renameat2(dir_fd, name, to_fd, to, keeps ? RENAME_NOREPLACE : 0) < 0 ? -errno
											   : 0;
}

/* Write a file under a temporary name by `fill`, then give it its own. */
struct ops_fill {
	int (*fill)(const struct ops *ops, int fd, int from_fd);
	int from_fd;
};

static int ops_replace(struct ops *ops, int dir_fd, const char *name, mode_t mode,
		       const struct ops_fill *fill)
{
	bool keeps = (ops->operation->file->head.flags & WIRE_FILE_KEEP) != 0;
	char temporary[FILES_NAME_MAX_BYTES];
	AUTO_CLOSE int fd = -1;
	int r;

	r = ops_judge_target(&ops->operation->file->head, dir_fd, name, &mode);
	if (r >= 0)
		r = files_temporary_name(temporary);
	if (r >= 0)
		r = fd = path_open_beneath(dir_fd, temporary, O_WRONLY | O_CREAT | O_EXCL, 0600);
	if (r < 0)
		return r;
	ops->step = WIRE_STEP_WRITE;
	r = fill->fill(ops, fd, fill->from_fd);
	if (r >= 0 && fchmod(fd, mode & 0777) < 0)
		r = -errno;
	if (r >= 0) {
		ops->step = WIRE_STEP_RENAME;
		r = ops_rename(dir_fd, temporary, dir_fd, name, keeps);
	}
	if (r < 0) {
		(void)unlinkat(dir_fd, temporary, 0);
		return r;
	}
	return ops_answer(ops, fd);
}

static int ops_fill_from_pipe(const struct ops *ops, int fd, int from_fd)
{
	uint64_t total;
	int r = ops_take_bytes(from_fd, fd, &total);

	return r < 0 ? r : ops_await_commit(ops->operation->socket_fd, total);
}

static int ops_put(struct ops *ops)
{
	const struct files_operation *operation = ops->operation;
	const struct ops_fill fill = {ops_fill_from_pipe, operation->in_fd};
	const char *name = NULL;
	AUTO_CLOSE int dir_fd = -1;

	if (operation->in_fd < 0)
		return -EPROTO;
	dir_fd = ops_open_parent(operation->root_fd, operation->file->path, true, &name);
	if (dir_fd < 0)
		return dir_fd == -EBUSY ? -EISDIR : TAKE_FD(dir_fd);
	return ops_replace(ops, dir_fd, name, (mode_t)operation->file->head.mode, &fill);
}

static int ops_mkdir(struct ops *ops)
{
	const struct files_operation *operation = ops->operation;
	mode_t mode = (mode_t)operation->file->head.mode;
	const char *name = NULL;
	AUTO_CLOSE int dir_fd = -1;
	AUTO_CLOSE int fd = -1;

	if (!str_equal(operation->file->path, ".")) {
		dir_fd = ops_open_parent(operation->root_fd, operation->file->path, true, &name);
		if (dir_fd < 0)
			return TAKE_FD(dir_fd);
		ops->step = WIRE_STEP_WRITE;
		if (mkdirat(dir_fd, name, mode == (mode_t)UINT32_MAX ? FILES_DIR_MODE : mode) < 0 &&
		    errno != EEXIST)
			return -errno;
	}
	fd = path_open_within(operation->root_fd, operation->file->path, O_PATH | O_DIRECTORY);
	if (fd == -ENOTDIR)
		return -EEXIST;
	return fd < 0 ? TAKE_FD(fd) : ops_answer(ops, fd);
}

static int ops_remove(struct ops *ops)
{
	const struct files_operation *operation = ops->operation;
	const char *name = NULL;
	AUTO_CLOSE int dir_fd = -1;

	dir_fd = ops_open_parent(operation->root_fd, operation->file->path, false, &name);
	if (dir_fd < 0)
		return TAKE_FD(dir_fd);
	ops->step = WIRE_STEP_WRITE;
	if (operation->file->head.flags & WIRE_FILE_RECURSIVE)
		return files_tree_remove(dir_fd, name);
	if (unlinkat(dir_fd, name, 0) == 0 ||
	    (errno == EISDIR && unlinkat(dir_fd, name, AT_REMOVEDIR) == 0))
		return 0;
	return -errno;
}

/* A copy is complete. */
static int ops_ask_commit(const struct ops *ops)
{
	const struct message written = {.type = MESSAGE_WRITTEN};
	int r = message_send(ops->operation->socket_fd, &written, NULL, NULL, 0);

	return r < 0 ? r : ops_await_commit(ops->operation->socket_fd, 0);
}

static int ops_fill_from_file(const struct ops *ops, int fd, int from_fd)
{
	int r = files_tree_copy_bytes(from_fd, fd, ops->operation->socket_fd);

	return r < 0 ? r : ops_ask_commit(ops);
}

/* The bytes of one file, or all that a folder holds, which is seen when it is complete. */
static int ops_copy_to(struct ops *ops, int dir_fd, const char *name)
{
	const struct files_operation *operation = ops->operation;
	AUTO_CLOSE int from_fd = -1;
	char temporary[FILES_NAME_MAX_BYTES];
	struct stat st;
	int r;

	from_fd = ops_open_file(operation->root_fd, operation->file->path, &st);
	if (from_fd >= 0)
		return ops_replace(ops, dir_fd, name, st.st_mode & 0777,
				   &(const struct ops_fill){ops_fill_from_file, from_fd});
	if (from_fd != -EISDIR || !(operation->file->head.flags & WIRE_FILE_RECURSIVE))
		return TAKE_FD(from_fd);
	from_fd = path_open_within(operation->root_fd, operation->file->path,
				   O_RDONLY | O_DIRECTORY | O_NONBLOCK);
	if (from_fd < 0)
		return TAKE_FD(from_fd);
	r = files_temporary_name(temporary);
	if (r < 0)
		return r;
	ops->step = WIRE_STEP_WRITE;
	r = files_tree_copy(TAKE_FD(from_fd), dir_fd, temporary, operation->socket_fd);
	if (r >= 0)
		r = ops_ask_commit(ops);
	if (r >= 0) {
		ops->step = WIRE_STEP_RENAME;
		r = ops_rename(dir_fd, temporary, dir_fd, name, true);
	}
	if (r < 0)
		IGNORE_RESULT(files_tree_discard(dir_fd, temporary));
	return r < 0 ? r : ops_answer_at(ops, dir_fd, name);
}

static int ops_copy(struct ops *ops)
{
	const struct files_operation *operation = ops->operation;
	const char *name = NULL;
	AUTO_CLOSE int dir_fd =
		ops_open_parent(operation->to_root_fd, operation->file->to, true, &name);

	return dir_fd < 0 ? TAKE_FD(dir_fd) : ops_copy_to(ops, dir_fd, name);
}

/* The two roots are two mounts. As rename would: it is seen when it is complete, a link stays
 * one, and what may be replaced is the same. It is gone from its old place before anybody is told:
 * the client may have left, which ends this process. */
static int ops_move_across(struct ops *ops, int dir_fd, const char *name, int to_fd, const char *to)
{
	bool keeps = (ops->operation->file->head.flags & WIRE_FILE_KEEP) != 0;
	char temporary[FILES_NAME_MAX_BYTES];
	int r;

	ops->step = WIRE_STEP_WRITE;
	r = files_temporary_name(temporary);
	if (r < 0)
		return r;
	r = files_tree_copy_item(dir_fd, name, to_fd, temporary);
	if (r >= 0) {
		ops->step = WIRE_STEP_RENAME;
		r = ops_rename(to_fd, temporary, to_fd, to, keeps);
	}
	if (r < 0) {
		IGNORE_RESULT(files_tree_discard(to_fd, temporary));
		return r;
	}
	ops->step = WIRE_STEP_WRITE;
	r = files_tree_discard(dir_fd, name);
	return r < 0 ? r : ops_answer_at(ops, to_fd, to);
}

static int ops_move(struct ops *ops)
{
	const struct files_operation *operation = ops->operation;
	bool keeps = (operation->file->head.flags & WIRE_FILE_KEEP) != 0;
	const char *name = NULL;
	const char *to = NULL;
	AUTO_CLOSE int dir_fd = -1;
	AUTO_CLOSE int to_fd = -1;
	int r;

	dir_fd = ops_open_parent(operation->root_fd, operation->file->path, false, &name);
	if (dir_fd < 0)
		return TAKE_FD(dir_fd);
	to_fd = ops_open_parent(operation->to_root_fd, operation->file->to, true, &to);
	if (to_fd < 0)
		return TAKE_FD(to_fd);
	ops->step = WIRE_STEP_RENAME;
	r = ops_rename(dir_fd, name, to_fd, to, keeps);
	if (r == -EXDEV)
		return ops_move_across(ops, dir_fd, name, to_fd, to);
	return r < 0 ? r : ops_answer_at(ops, to_fd, to);
}

static int ops_chmod(struct ops *ops)
{
	const struct files_operation *operation = ops->operation;
	const int flags = O_NONBLOCK | O_NOCTTY | O_NOFOLLOW;
	AUTO_CLOSE int fd = -1;

	/* By descriptor: a name could lead elsewhere in the next moment. */
	fd = path_open_within(operation->root_fd, operation->file->path, O_RDONLY | flags);
	if (fd == -EACCES)
		fd = path_open_within(operation->root_fd, operation->file->path, O_WRONLY | flags);
	if (fd < 0)
		return TAKE_FD(fd);
	if (fchmod(fd, (mode_t)operation->file->head.mode & 0777) < 0)
		return -errno;
	return ops_answer(ops, fd);
}

static int ops_tell_space(int out_fd, int root_fd)
{
	struct wire_file_space space;
	struct statfs st;

	if (fstatfs(root_fd, &st) < 0)
		return -errno;
	space = (struct wire_file_space){
		.size_bytes = (uint64_t)st.f_blocks * (uint64_t)st.f_bsize,
		.used_bytes = (uint64_t)(st.f_blocks - st.f_bfree) * (uint64_t)st.f_bsize,
		.max_inodes = st.f_files,
		.used_inodes = st.f_files - st.f_ffree,
	};
	return io_write_all(out_fd, &space, sizeof(space));
}

static int ops_space(struct ops *ops)
{
	const struct files_operation *operation = ops->operation;
	int r = ops_tell_space(operation->out_fd, operation->root_fd);

	return r < 0 ? r : ops_tell_space(operation->out_fd, operation->to_root_fd);
}

static int ops_watch(struct ops *ops)
{
	return files_watch(ops->operation);
}

void files_operate(const struct files_operation *operation, struct files_result *ret_result)
{
	static int (*const operations[WIRE_FILE_OP_MAX_])(struct ops * ops) = {
		[WIRE_FILE_STAT] = ops_stat,   [WIRE_FILE_LIST] = ops_list,
		[WIRE_FILE_GET] = ops_get,     [WIRE_FILE_PUT] = ops_put,
		[WIRE_FILE_MKDIR] = ops_mkdir, [WIRE_FILE_REMOVE] = ops_remove,
		[WIRE_FILE_MOVE] = ops_move,   [WIRE_FILE_COPY] = ops_copy,
		[WIRE_FILE_CHMOD] = ops_chmod, [WIRE_FILE_WATCH] = ops_watch,
		[WIRE_FILE_SPACE] = ops_space,
	};
	struct ops ops = {.operation = operation, .step = WIRE_STEP_OPEN};
	int r = operations[operation->file->head.op](&ops);

	*ret_result = (struct files_result){0};
	if (r < 0)
		*ret_result = (struct files_result){.step = ops.step, .error_number = -r};
}
