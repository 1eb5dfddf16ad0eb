/*
 * Theory. inotify takes a name and follows it wherever it leads, so no name is given to it: the
 * folder is opened as every other is, below its root and without following a link below the top,
 * the helper goes into it by the descriptor, and asks for ".". It goes out again at once: a folder
 * that someone is in, or has open, is not gone for the kernel, and nobody would be told.
 *
 * Nothing is queued here. Where the client is slow the pipe fills and the helper sleeps in write();
 * the kernel then queues up to its bound, for the session's account, and says that it lost some.
 * What is below is looked at again then, and the client is told to do the same.
 *
 * A folder that comes is listed after it is watched: what it held by then is told as created, what
 * came in between maybe twice. `user` can rename as it likes meanwhile. The worst that comes of it
 * is a path that was right a moment ago: where a path leads is decided anew each time, and a folder
 * whose former place is known is forgotten there and found again where it is.
 */
#include "shim/files_watch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/io.h"
#include "base/path.h"
#include "base/str.h"

#include "shim/files_ops.h"
#include "shim/watch_folders.h"

#define WATCH_MASK                                                                                 \
	(IN_CREATE | IN_MODIFY | IN_CLOSE_WRITE | IN_ATTRIB | IN_DELETE | IN_MOVED_FROM |          \
	 IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR | IN_EXCL_UNLINK)
#define WATCH_READ_BYTES 16384
#define WATCH_OUT_BYTES  16384
/* The two halves of a rename are queued one after the other, but not in one step. */
#define WATCH_MOVE_MS    10

/* The first half of a rename. */
struct watch_move {
	uint32_t cookie; /* 0: none */
	uint32_t folder;
	bool is_folder;
	char name[NAME_MAX + 1];
};

struct watch {
	const struct files_operation *operation;
	int fd; /* inotify */
	bool is_recursive;
	bool is_lossy; /* WIRE_EVENT_OVERFLOW is owed */
	bool is_gone;
	struct watch_folders folders;
	struct watch_move move;
	uint8_t *out;
	size_t out_size;
};

static int watch_flush(struct watch *watch)
{
	size_t size = watch->out_size;

	watch->out_size = 0;
	return size > 0 ? io_write_all(watch->operation->out_fd, watch->out, size) : 0;
}

static int watch_tell(struct watch *watch, uint16_t kind, bool is_folder, const char *path,
		      const char *from)
{
	const struct wire_file_event event = {
		.kind = kind,
		.is_folder = is_folder,
		.path_bytes = (uint16_t)strnlen(path, FILE_PATH_BYTES),
		.from_bytes = (uint16_t)strnlen(from, FILE_PATH_BYTES),
	};
	size_t size = sizeof(event) + event.path_bytes + event.from_bytes;
	uint8_t *at;
	int r = 0;

	if (size > WATCH_OUT_BYTES - watch->out_size)
		r = watch_flush(watch);
	at = watch->out + watch->out_size;
	memcpy(at, &event, sizeof(event));
	memcpy(at + sizeof(event), path, event.path_bytes);
	memcpy(at + sizeof(event) + event.path_bytes, from, event.from_bytes);
	watch->out_size += size;
	return r;
}

static int watch_tell_at(struct watch *watch, uint16_t kind, bool is_folder, uint32_t folder,
			 const char *name)
{
	char path[FILE_PATH_BYTES];

	if (watch_folders_path(&watch->folders, folder, name, path) < 0) {
		watch->is_lossy = true; /* longer than any path that could be given */
		return 0;
	}
	return watch_tell(watch, kind, is_folder, path, "");
}

/* Folders. */

static void watch_dropped(void *userdata, int wd)
{
	const struct watch *watch = userdata;

	/* The kernel may have removed it. */
	(void)inotify_rm_watch(watch->fd, wd);
}

static void watch_drop(struct watch *watch, uint32_t folder)
{
	watch_folders_drop(&watch->folders, folder, watch_dropped, watch);
}

static void watch_drop_child(struct watch *watch, uint32_t parent, const char *name)
{
	uint32_t child = watch_folders_child(&watch->folders, parent, name);

	if (child != WATCH_FOLDER_NONE)
		watch_drop(watch, child);
}

static int watch_add_child(struct watch *watch, uint32_t parent, const char *name, bool is_new)
{
	int r;

	if (!watch->is_recursive)
		return 0;
	watch_drop_child(watch, parent, name); /* a former one of that name */
	r = watch_folders_add(&watch->folders, parent, name, is_new);
	if (r == -ENOSPC)
		watch->is_lossy = true;
	return r == -ENOSPC ? 0 : r;
}

/* Open one, for reading. The top is where its path leads now. */
static int watch_open(const struct watch *watch, uint32_t folder)
{
	const struct files_operation *operation = watch->operation;
	AUTO_CLOSE int top_fd = -1;
	char path[FILE_PATH_BYTES];
	int r;

	r = watch_folders_path(&watch->folders, folder, "", path);
	if (r < 0)
		return r;
	top_fd = path_open_within(operation->root_fd, operation->file->path,
				  O_RDONLY | O_DIRECTORY | O_NONBLOCK);
	if (top_fd < 0 || path[0] == '\0')
		return TAKE_FD(top_fd);
	return path_open_beneath(top_fd, path, O_RDONLY | O_DIRECTORY | O_NONBLOCK, 0);
}

/* The number of its watch, or -errno. */
static int watch_ask(const struct watch *watch, int dir_fd)
{
	int wd = fchdir(dir_fd) < 0 ? -1 : inotify_add_watch(watch->fd, ".", WATCH_MASK);
	int r = wd < 0 ? -errno : wd;

	return fchdir(watch->operation->root_fd) < 0 ? -errno : r;
}

static bool watch_is_folder(int dir_fd, const struct dirent *item)
{
	struct stat st;

	if (item->d_type != DT_UNKNOWN)
		return item->d_type == DT_DIR;
	return fstatat(dir_fd, item->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

/* Takes the descriptor. */
static int watch_list(struct watch *watch, uint32_t folder, int dir_fd, bool is_new)
{
	DIR *dir = fdopendir(dir_fd);
	const struct dirent *item;
	int r = 0;

	if (!dir) {
		(void)fd_close(dir_fd);
		return -ENOMEM;
	}
	/* One thread. NOLINTNEXTLINE(concurrency-mt-unsafe) */
	while (r >= 0 && (item = readdir(dir))) {
		bool is_folder = watch_is_folder(dir_fd, item);

		if (str_equal(item->d_name, ".") || str_equal(item->d_name, ".."))
			continue;
		if (is_new)
			r = watch_tell_at(watch, WIRE_EVENT_CREATED, is_folder, folder,
					  item->d_name);
		/* One that is known, after a loss, is due by itself. */
		if (r >= 0 && is_folder &&
		    watch_folders_child(&watch->folders, folder, item->d_name) == WATCH_FOLDER_NONE)
			r = watch_add_child(watch, folder, item->d_name, is_new);
	}
	(void)closedir(dir);
	return r;
}

/* The watch of the folder that is there now. 0, or -errno of it. */
static int watch_hold(struct watch *watch, uint32_t folder, int dir_fd)
{
	int *held = &watch->folders.wd[folder];
	int wd = watch_ask(watch, dir_fd);
	uint32_t other = wd < 0 ? folder : watch_folders_by_wd(&watch->folders, wd);

	if (other != WATCH_FOLDER_NONE && other != folder) {
		/* It was elsewhere, and is looked at here as if it had come just now. */
		watch_drop(watch, other);
		wd = watch_folders_has(&watch->folders, folder) ? watch_ask(watch, dir_fd)
								: -ENOENT;
	}
	if (wd < 0)
		return wd;
	if (*held >= 0 && *held != wd)
		watch_dropped(watch, *held);
	*held = wd;
	return 0;
}

/* 0, or -errno: of the top, or there is no memory. */
static int watch_place(struct watch *watch, uint32_t folder)
{
	bool is_new = watch->folders.folder[folder].is_new;
	AUTO_CLOSE int dir_fd = -1;
	int r;

	watch->folders.folder[folder].is_due = false;
	watch->folders.folder[folder].is_new = false;
	dir_fd = watch_open(watch, folder);
	r = dir_fd < 0 ? dir_fd : watch_hold(watch, folder, dir_fd);
	if (r >= 0)
		return watch->is_recursive ? watch_list(watch, folder, TAKE_FD(dir_fd), is_new) : 0;
	if (folder == WATCH_FOLDER_TOP)
		return r;
	/* It is gone, or replaced by something else, or not to be read: nobody is told of what is
	 * in it. */
	if (r == -ENOSPC || r == -ENAMETOOLONG || r == -EMFILE)
		watch->is_lossy = true;
	if (watch_folders_has(&watch->folders, folder))
		watch_drop(watch, folder);
	return r == -ENOMEM ? r : 0;
}

/* 1: there are events; 0: none came in time; -ECANCELED: pid 1 wants no more. */
static int watch_wait(const struct watch *watch, int timeout_ms)
{
	struct pollfd fds[2] = {
		{.fd = watch->operation->socket_fd, .events = POLLIN},
		{.fd = watch->fd,                   .events = POLLIN},
	};
	int n = poll(fds, ARRAY_SIZE(fds), timeout_ms);

	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	if (fds[0].revents != 0)
		return -ECANCELED;
	return fds[1].revents != 0;
}

/* All that is due, what is found on the way included. */
static int watch_place_due(struct watch *watch)
{
	bool is_due = true;
	int r = 0;

	while (is_due && r >= 0) {
		is_due = false;
		for (uint32_t i = 0; r >= 0 && i < watch->folders.n; i++) {
			if (!watch_folders_has(&watch->folders, i) ||
			    !watch->folders.folder[i].is_due)
				continue;
			is_due = true;
			r = watch_place(watch, i);
			/* `user` may make folders as fast as they are found. */
			if (r >= 0)
				r = watch_wait(watch, 0);
		}
	}
	return r < 0 ? r : 0;
}

/* Events. */

/* The second half did not come: it went elsewhere. */
static int watch_settle_move(struct watch *watch)
{
	const struct watch_move *move = &watch->move;
	uint32_t folder = move->folder;

	if (move->cookie == 0)
		return 0;
	watch->move.cookie = 0;
	if (!watch_folders_has(&watch->folders, folder))
		return 0;
	if (move->is_folder)
		watch_drop_child(watch, folder, move->name);
	return watch_tell_at(watch, WIRE_EVENT_REMOVED, move->is_folder, folder, move->name);
}

static int watch_begin_move(struct watch *watch, uint32_t folder, const struct inotify_event *event)
{
	watch->move = (struct watch_move){
		.cookie = event->cookie,
		.folder = folder,
		.is_folder = (event->mask & IN_ISDIR) != 0,
	};
	return str_copy(watch->move.name, sizeof(watch->move.name), event->name);
}

static int watch_created(struct watch *watch, uint32_t folder, const struct inotify_event *event)
{
	bool is_folder = (event->mask & IN_ISDIR) != 0;
	int r = watch_tell_at(watch, WIRE_EVENT_CREATED, is_folder, folder, event->name);

	if (r >= 0 && is_folder)
		r = watch_add_child(watch, folder, event->name, true);
	return r < 0 ? r : watch_place_due(watch);
}

/* Both halves are here. */
static int watch_moved(struct watch *watch, uint32_t folder, const struct inotify_event *event)
{
	const struct watch_move *move = &watch->move;
	char from[FILE_PATH_BYTES];
	char path[FILE_PATH_BYTES];
	uint32_t child;
	int r;

	watch->move.cookie = 0;
	if (!watch_folders_has(&watch->folders, move->folder))
		return watch_created(watch, folder, event);
	if (watch_folders_path(&watch->folders, move->folder, move->name, from) < 0 ||
	    watch_folders_path(&watch->folders, folder, event->name, path) < 0)
		watch->is_lossy = true;
	else if ((r = watch_tell(watch, WIRE_EVENT_MOVED, move->is_folder, path, from)) < 0)
		return r;
	if (!move->is_folder)
		return 0;
	watch_drop_child(watch, folder, event->name); /* an empty one that it has replaced */
	child = watch_folders_child(&watch->folders, move->folder, move->name);
	r = child == WATCH_FOLDER_NONE
		    ? watch_add_child(watch, folder, event->name, true)
		    : watch_folders_move(&watch->folders, child, folder, event->name);
	if (r == -ELOOP) {
		watch_drop(watch, child);
		watch->is_lossy = true;
		r = 0;
	}
	return r < 0 ? r : watch_place_due(watch);
}

/* The kernel had no more room: what is there is looked at again. */
static int watch_lost(struct watch *watch)
{
	watch->is_lossy = true;
	watch->move.cookie = 0;
	for (uint32_t i = 0; watch->is_recursive && i < watch->folders.n; i++)
		watch->folders.folder[i].is_due = watch_folders_has(&watch->folders, i);
	return watch_place_due(watch);
}

static int watch_take_name(struct watch *watch, uint32_t folder, const struct inotify_event *event)
{
	static const struct {
		uint32_t mask;
		uint16_t kind;
	} rows[] = {
		{IN_MODIFY,      WIRE_EVENT_MODIFIED},
		{IN_CLOSE_WRITE, WIRE_EVENT_CLOSED  },
		{IN_ATTRIB,      WIRE_EVENT_CHANGED },
		{IN_DELETE,      WIRE_EVENT_REMOVED },
	};
	bool is_folder = (event->mask & IN_ISDIR) != 0;

	if (event->mask & IN_MOVED_FROM)
		return watch_begin_move(watch, folder, event);
	if (event->mask & (IN_CREATE | IN_MOVED_TO))
		return watch_created(watch, folder, event);
	if ((event->mask & IN_DELETE) && is_folder)
		watch_drop_child(watch, folder, event->name);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (event->mask & rows[i].mask)
			return watch_tell_at(watch, rows[i].kind, is_folder, folder, event->name);
	return 0;
}

/* Of a watched folder itself; of those below the top its parent has told, or will. */
static int watch_take_self(struct watch *watch, uint32_t folder, const struct inotify_event *event)
{
	if (folder == WATCH_FOLDER_TOP && (event->mask & IN_ATTRIB))
		return watch_tell(watch, WIRE_EVENT_CHANGED, true, "", "");
	if (folder == WATCH_FOLDER_TOP)
		watch->is_gone = true;
	else if (event->mask & IN_IGNORED)
		watch_drop(watch, folder);
	return 0;
}

static int watch_take(struct watch *watch, const struct inotify_event *event)
{
	bool is_second = (event->mask & IN_MOVED_TO) && watch->move.cookie == event->cookie &&
			 event->cookie != 0;
	uint32_t folder;
	int r;

	if (event->mask & IN_Q_OVERFLOW)
		return watch_lost(watch);
	r = is_second ? 0 : watch_settle_move(watch);
	/* By then: that may have dropped it. */
	folder = watch_folders_by_wd(&watch->folders, event->wd);
	if (r < 0 || folder == WATCH_FOLDER_NONE)
		return r < 0 || !is_second ? r : watch_settle_move(watch);
	if (event->len == 0)
		return watch_take_self(watch, folder, event);
	return is_second ? watch_moved(watch, folder, event)
			 : watch_take_name(watch, folder, event);
}

static int watch_read(struct watch *watch)
{
	static _Alignas(struct inotify_event) uint8_t block[WATCH_READ_BYTES];
	ssize_t n = io_read(watch->fd, block, sizeof(block));
	int r = n < 0 ? (int)n : 0;

	for (ssize_t at = 0; r >= 0 && at < n && !watch->is_gone;) {
		const struct inotify_event *event = (const void *)(block + at);

		r = watch_take(watch, event);
		at += (ssize_t)(sizeof(*event) + event->len);
	}
	return r;
}

static int watch_turn(struct watch *watch)
{
	int r = watch_wait(watch, watch->move.cookie != 0 ? WATCH_MOVE_MS : -1);

	if (r > 0)
		r = watch_read(watch);
	else if (r == 0)
		r = watch_settle_move(watch);
	if (r >= 0 && watch->is_lossy) {
		watch->is_lossy = false;
		r = watch_tell(watch, WIRE_EVENT_OVERFLOW, true, "", "");
	}
	if (r >= 0 && watch->is_gone)
		r = watch_tell(watch, WIRE_EVENT_GONE, true, "", "");
	return r < 0 ? r : watch_flush(watch);
}

static int watch_run(struct watch *watch)
{
	int r = watch_place_due(watch);

	if (r >= 0)
		r = watch_tell(watch, WIRE_EVENT_READY, true, "", "");
	if (r >= 0 && watch->is_lossy) {
		watch->is_lossy = false;
		r = watch_tell(watch, WIRE_EVENT_OVERFLOW, true, "", "");
	}
	if (r >= 0)
		r = watch_flush(watch);
	while (r >= 0 && !watch->is_gone)
		r = watch_turn(watch);
	return r;
}

int files_watch(const struct files_operation *operation)
{
	static uint8_t out[WATCH_OUT_BYTES];
	struct watch watch = {
		.operation = operation,
		.is_recursive = (operation->file->head.flags & WIRE_FILE_RECURSIVE) != 0,
		.out = out,
	};
	int r;

	watch.fd = inotify_init1(IN_CLOEXEC);
	if (watch.fd < 0)
		return -errno;
	r = watch_folders_init(&watch.folders);
	if (r >= 0) {
		r = watch_run(&watch);
		watch_folders_done(&watch.folders);
	}
	watch.fd = fd_close(watch.fd);
	return r;
}
