/*
 * Theory. One writer at a time, by a lock on the folder itself. What is made is made under a name
 * that no template has, written out, and renamed; what is removed is renamed to another one first.
 * So whatever ends a writer, the next one finds at most these two, and removes them.
 *
 * This process is root and walks no tree: what is in one, sandbox-template made, and that removes
 * it as well. It looks at one name of it only, when nobody can change it any more.
 */
#include "supervisor/template/store.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "base/path.h"
#include "base/template.h"

#include "sandboxd/kernel.h"
#include "supervisor/template/jail.h"
#include "supervisor/trusted_dir.h"

#define NEW_NAME  ".import"
#define GONE_NAME ".removed"
#define TREE_NAME "tree" /* what the jail has of the first */

/* A step of ours, and the kernel's reason. */
static int cannot(struct err *err, int error_number, const char *what)
{
	return err_fail(err, error_number, "template", "cannot %s", what);
}

static int open_folder(int dir_fd, const char *name)
{
	int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* A folder of ours, new and empty. The descriptor or -errno. */
static int make_folder(int dir_fd, const char *name)
{
	return mkdirat(dir_fd, name, 0700) < 0 ? -errno : open_folder(dir_fd, name);
}

static int check_dir(int dir_fd)
{
	struct stat st;

	if (fstat(dir_fd, &st) < 0)
		return -errno;
	return st.st_uid == 0 && (st.st_mode & 077) == 0 ? 0 : -EPERM;
}

static int mount_of(int fd, uint64_t *ret_id)
{
	struct statx st;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &st) < 0)
		return -errno;
	*ret_id = st.stx_mnt_id;
	return 0;
}

/* The service has the state directory's mount and none that lies on it. */
static int check_mount(int state_fd, int dir_fd)
{
	uint64_t state_id = 0;
	uint64_t dir_id = 0;
	int r = mount_of(state_fd, &state_id);

	if (r == 0)
		r = mount_of(dir_fd, &dir_id);
	if (r < 0)
		return r;
	return state_id == dir_id ? 0 : -EXDEV;
}

static int open_dir(struct store *store, int state_fd, struct err *err)
{
	int r = open_folder(state_fd, TEMPLATES_FOLDER);

	if (r == -ENOENT)
		return STORE_E_NONE_YET;
	if (r < 0)
		return cannot(err, r, "open the directory `templates`");
	store->dir_fd = r;
	r = check_dir(store->dir_fd);
	if (r < 0)
		return cannot(err, r, "trust `templates`: it is not root's alone");
	r = check_mount(state_fd, store->dir_fd);
	return r < 0 ? cannot(err, r, "use `templates`, which is a mount of its own") : 0;
}

int store_open(struct store *store, const char *state_dir, struct err *err)
{
	AUTO_CLOSE int state_fd = -1;

	*store = STORE_NULL;
	state_fd = path_open_trusted(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (state_fd == -ENOENT)
		return STORE_E_NONE_YET;
	if (state_fd < 0)
		return cannot(err, state_fd, "open the state directory");
	return open_dir(store, state_fd, err);
}

void store_done(struct store *store)
{
	store->dir_fd = fd_close(store->dir_fd);
	store->signal_fd = fd_close(store->signal_fd);
}

/* From now on they end the jail, and we clean up. */
static int take_signals(struct store *store)
{
	static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
	sigset_t set;

	(void)sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		(void)sigaddset(&set, numbers[i]);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0) /* NOLINT(concurrency-mt-unsafe): one thread */
		return -errno;
	store->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return store->signal_fd < 0 ? -errno : 0;
}

/* Nobody uses it, nor can begin to while the descriptor is open. The descriptor; -EBUSY: somebody
 * does; -ENOENT: nobody can, as it has no record; -errno. */
static int lock_record(int folder_fd)
{
	struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	AUTO_CLOSE int fd = openat(folder_fd, TEMPLATE_RECORD_FILE,
				   O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (fcntl(fd, F_OFD_SETLK, &whole) < 0)
		return errno == EAGAIN || errno == EACCES ? -EBUSY : -errno;
	return TAKE_FD(fd);
}

/* A folder of ours and all in it, which a jail removes, whatever signals came. Its record is
 * locked, or is not there. */
static int clear_locked(struct store *store, const char *name, int fd, struct err *err)
{
	struct jail jail = {.word = {"remove"}, .tree_fd = fd, .source_fd = -1, .signal_fd = -1};
	struct template_report report;
	int r;

	/* Root's own, whoever owns the rest. */
	if (unlinkat(fd, TEMPLATE_RECORD_FILE, 0) < 0 && errno != ENOENT)
		return cannot(err, -errno, "remove the record");
	r = jail_run(&jail, &report, err);
	/* Made on another file system or kernel, where mounts could not be mapped, or only there.
	 */
	jail.owners = jail.id_base == TEMPLATE_OWNERS_PLAIN ? JAIL_OWNERS_BLOCK : JAIL_OWNERS_PLAIN;
	if (r == 0 && report.error != TEMPLATE_E_NONE)
		r = jail_run(&jail, &report, err);
	if (r < 0)
		return r;
	if (report.error != TEMPLATE_E_NONE)
		return err_fail(err, -(report.error_number > 0 ? report.error_number : EIO),
				"template", "cannot remove %s", name);
	if (unlinkat(store->dir_fd, name, AT_REMOVEDIR) < 0)
		return cannot(err, -errno, "remove the folder");
	return 0;
}

/* What an earlier one left. Who removed it and was ended may not have taken the record away: a
 * session that had found the folder by its name before then holds it. */
static int clear(struct store *store, const char *name, struct err *err)
{
	AUTO_CLOSE int fd = open_folder(store->dir_fd, name);
	AUTO_CLOSE int record_fd = -1;

	if (fd == -ENOENT)
		return 0;
	if (fd < 0)
		return cannot(err, fd, "open what is to be removed");
	record_fd = lock_record(fd);
	if (record_fd == -EBUSY)
		return STORE_E_IN_USE;
	if (record_fd < 0 && record_fd != -ENOENT)
		return cannot(err, record_fd, "lock the record");
	return clear_locked(store, name, fd, err);
}

int store_lock(struct store *store, const char *state_dir, struct err *err)
{
	AUTO_CLOSE int state_fd = -1;
	int r;

	*store = STORE_NULL;
	state_fd = trusted_dir_open(state_dir, 0700, "template", err);
	if (state_fd < 0)
		return state_fd;
	if (mkdirat(state_fd, TEMPLATES_FOLDER, 0700) < 0 && errno != EEXIST)
		return cannot(err, -errno, "make the directory `templates`");
	r = open_dir(store, state_fd, err);
	if (r != 0)
		return r;
	if (flock(store->dir_fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? STORE_E_BUSY : cannot(err, -errno, "take the lock");
	r = take_signals(store);
	if (r < 0)
		return cannot(err, r, "take signals");
	r = clear(store, NEW_NAME, err);
	return r == 0 ? clear(store, GONE_NAME, err) : r;
}

static int write_record(int folder_fd, const struct template_record *record)
{
	AUTO_CLOSE int fd = openat(folder_fd, TEMPLATE_RECORD_FILE,
				   O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	int r;

	if (fd < 0)
		return -errno;
	/* Whatever the umask is. */
	if (fchmod(fd, 0600) < 0)
		return -errno;
	r = io_write_all(fd, record, sizeof(*record));
	return r < 0 ? r : fsync(fd) < 0 ? -errno : 0;
}

/* The jail has ended: what is there stays. Out of its folder, which must be empty then. */
static int take_root(int new_fd, int tree_fd)
{
	struct stat st;

	if (fstatat(tree_fd, TEMPLATE_ROOT, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (!S_ISDIR(st.st_mode))
		return -ENOTDIR;
	if (renameat(tree_fd, TEMPLATE_ROOT, new_fd, TEMPLATE_ROOT) < 0)
		return -errno;
	return unlinkat(new_fd, TREE_NAME, AT_REMOVEDIR) < 0 ? -errno : 0;
}

/* All on the disk, then the name. */
static int publish(struct store *store, int new_fd, const char *name,
		   const struct template_record *record, struct err *err)
{
	int r = write_record(new_fd, record);

	if (r < 0)
		return cannot(err, r, "write the record");
	if (syncfs(new_fd) < 0)
		return cannot(err, -errno, "write it to the disk");
	if (kernel_renameat2(store->dir_fd, NEW_NAME, store->dir_fd, name, RENAME_NOREPLACE) < 0)
		return cannot(err, -errno, "give it its name");
	return fsync(store->dir_fd) < 0 ? cannot(err, -errno, "write the name to the disk") : 0;
}

static struct template_record record_of(const struct template_report *report, uint32_t id_base)
{
	struct template_record record = {
		.magic = TEMPLATE_MAGIC,
		.version = TEMPLATE_VERSION,
		.size = sizeof(record),
		.id_base = id_base,
		.n_bytes = report->n_bytes,
		.n_inodes = report->n_inodes + 1,
		.created_s = (uint64_t)time(NULL),
	};

	memcpy(record.source_sha256, report->source_sha256, sizeof(record.source_sha256));
	return record;
}

static int import_into(struct store *store, const struct store_import *import, int new_fd,
		       struct template_record *ret_record, struct err *err)
{
	AUTO_CLOSE int tree_fd = make_folder(new_fd, TREE_NAME);
	struct jail jail = {
		.word = {"unpack", import->max_bytes, import->max_inodes, import->platform,
			 import->ref},
		.tree_fd = tree_fd,
		.source_fd = import->source_fd,
		.signal_fd = store->signal_fd,
	};
	struct template_record record;
	int r;

	if (tree_fd < 0)
		return cannot(err, tree_fd, "make a folder");
	r = jail_run(&jail, &store->report, err);
	if (r < 0)
		return r;
	if (store->report.error != TEMPLATE_E_NONE)
		return STORE_E_IMAGE;
	r = take_root(new_fd, tree_fd);
	if (r < 0)
		return cannot(err, r, "take what was unpacked");
	record = record_of(&store->report, jail.id_base);
	r = publish(store, new_fd, import->name, &record, err);
	if (r == 0)
		*ret_record = record;
	return r;
}

int store_import(struct store *store, const struct store_import *import,
		 struct template_record *ret_record, struct err *err)
{
	AUTO_CLOSE int new_fd = -1;
	struct err ignored = ERR_NULL;
	struct stat st;
	int r;

	if (fstatat(store->dir_fd, import->name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return STORE_E_EXISTS;
	new_fd = make_folder(store->dir_fd, NEW_NAME);
	if (new_fd < 0)
		return cannot(err, new_fd, "make a folder");
	r = import_into(store, import, new_fd, ret_record, err);
	/* What stays behind the next one removes, and says why it stayed. */
	if (r != 0)
		IGNORE_RESULT(clear(store, NEW_NAME, &ignored));
	return r;
}

int store_read(const struct store *store, const char *name, struct template_record *ret_record,
	       uint32_t *ret_users)
{
	AUTO_CLOSE int folder_fd = open_folder(store->dir_fd, name);
	AUTO_CLOSE int record_fd = -1;

	if (folder_fd < 0)
		return folder_fd == -ENOENT ? STORE_E_UNKNOWN : folder_fd;
	record_fd = template_record_open(folder_fd, ret_record);
	return record_fd < 0 ? record_fd : template_count_users(record_fd, ret_users);
}

int store_remove(struct store *store, const char *name, struct err *err)
{
	AUTO_CLOSE int folder_fd = open_folder(store->dir_fd, name);
	AUTO_CLOSE int record_fd = -1;

	if (folder_fd < 0)
		return folder_fd == -ENOENT ? STORE_E_UNKNOWN
					    : cannot(err, folder_fd, "open the template");
	record_fd = lock_record(folder_fd);
	if (record_fd == -EBUSY)
		return STORE_E_IN_USE;
	if (record_fd < 0 && record_fd != -ENOENT)
		return cannot(err, record_fd, "lock the record");
	if (renameat(store->dir_fd, name, store->dir_fd, GONE_NAME) < 0)
		return cannot(err, -errno, "take its name");
	if (fsync(store->dir_fd) < 0)
		return cannot(err, -errno, "write that to the disk");
	return clear_locked(store, GONE_NAME, folder_fd, err);
}
