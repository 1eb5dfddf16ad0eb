#include "supervisor/instance.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "base/str.h"

#include "sandboxd/limits.h"
#include "supervisor/trusted_dir.h"

#define RUNTIME_LOCK  "supervisor.lock"
#define LOCK_TRIES    150u
#define LOCK_PAUSE_NS 20000000 /* three seconds in all */

static int make_id(int id_fd, char id[INSTANCE_ID_BYTES])
{
	uint8_t bytes[4];

	if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
		return -EIO;
	str_hex(id, bytes, sizeof(bytes));
	if (pwrite(id_fd, id, INSTANCE_ID_BYTES - 1, 0) != INSTANCE_ID_BYTES - 1)
		return -EIO;
	/* Names of groups and id blocks that outlive a crash carry it. */
	if (fsync(id_fd) < 0)
		return -errno;
	return 0;
}

static int read_id(int id_fd, char id[INSTANCE_ID_BYTES], struct err *err)
{
	char text[INSTANCE_ID_BYTES + 1] = {0};
	ssize_t n = pread(id_fd, text, sizeof(text) - 1, 0);

	if (n < 0)
		return err_fail(err, -errno, "instance", "read the id");
	if (n == 0) {
		int r = make_id(id_fd, id);

		return r < 0 ? err_fail(err, r, "instance", "make an id") : 0;
	}
	if (n == INSTANCE_ID_BYTES && text[INSTANCE_ID_BYTES - 1] == '\n')
		text[--n] = '\0';
	if (n != INSTANCE_ID_BYTES - 1 || strspn(text, "0123456789abcdef") != INSTANCE_ID_BYTES - 1)
		return err_fail(err, -EINVAL, "instance",
				"the file `instance` does not hold 8 hexadecimal digits");
	memcpy(id, text, INSTANCE_ID_BYTES);
	return 0;
}

/* The one before us may be on its last way out: its keeper died a moment ago, say. */
static int take_lock(int fd)
{
	/* A process lock, not an flock: children that are still on their way to exec, and helpers
	 * that outlive a killed supervisor by a moment, must not hold it. */
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	const struct timespec pause = {.tv_nsec = LOCK_PAUSE_NS};

	for (unsigned int i = 0; i < LOCK_TRIES; i++) {
		if (fcntl(fd, F_SETLK, &lock) == 0)
			return 0;
		if (errno != EAGAIN && errno != EACCES && errno != EINTR)
			return -errno;
		(void)nanosleep(&pause, NULL);
	}
	return -EAGAIN;
}

int instance_lock_runtime(struct instance *instance, int runtime_fd, struct err *err)
{
	struct stat st = {0};

	/* Whoever ends removes the file; what was opened before that locks nothing any more. */
	while (st.st_nlink == 0) {
		instance->lock_fd = fd_close(instance->lock_fd);
		instance->lock_fd =
			openat(runtime_fd, RUNTIME_LOCK,
			       O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
		if (instance->lock_fd < 0)
			return err_fail(err, -errno, "instance", "open %s", RUNTIME_LOCK);
		if (take_lock(instance->lock_fd) < 0) {
			instance->lock_fd = fd_close(instance->lock_fd);
			return err_fail(err, -EAGAIN, "instance",
					"another supervisor runs on this runtime directory");
		}
		if (fstat(instance->lock_fd, &st) < 0)
			return err_fail(err, -errno, "instance", "stat %s", RUNTIME_LOCK);
	}
	return 0;
}

void instance_unlock_runtime(struct instance *instance, int runtime_fd)
{
	if (instance->lock_fd >= 0)
		(void)unlinkat(runtime_fd, RUNTIME_LOCK, 0);
	instance->lock_fd = fd_close(instance->lock_fd);
}

int instance_open(struct instance *instance, const char *state_dir, struct err *err)
{
	struct stat st;

	instance->state_fd = trusted_dir_open(state_dir, 0700, "state-dir", err);
	if (instance->state_fd < 0)
		return instance->state_fd;
	instance->id_fd = openat(instance->state_fd, "instance",
				 O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	if (instance->id_fd < 0)
		return err_fail(err, -errno, "instance", "open the file `instance`");
	if (fstat(instance->id_fd, &st) < 0)
		return err_fail(err, -errno, "instance", "stat");
	if (!S_ISREG(st.st_mode) || st.st_uid != 0)
		return err_fail(err, -EPERM, "instance", "`instance` is no regular file of root");
	if (take_lock(instance->id_fd) < 0)
		return err_fail(err, -EAGAIN, "instance",
				"another supervisor runs on this state directory");
	return read_id(instance->id_fd, instance->id, err);
}

/*
 * The worker's ids come from an id block and may differ from those of the last run, so the store
 * changes hands. What lies in that directory was made by a worker that may have been taken over,
 * and root working through such a directory is how most escapes from containers began (A16, A18).
 * Hence: never recursive, only these names; O_PATH|O_NOFOLLOW opens nothing and follows nothing; a
 * regular file with one link cannot be a hard link to a file elsewhere; and no worker is alive that
 * could swap a name in between.
 */
static int take_over_file(int dir_fd, const char *name, uint32_t worker_id)
{
	AUTO_CLOSE int fd = -1;
	struct stat st;

	fd = openat(dir_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_nlink != 1)
		return -EPERM;
	if (st.st_uid == worker_id && st.st_gid == worker_id)
		return 0;
	if (fchownat(fd, "", worker_id, worker_id, AT_EMPTY_PATH) < 0)
		return -errno;
	return 0;
}

static void audit_name(char name[32], unsigned int number)
{
	if (number == 0)
		(void)snprintf(name, 32, AUDIT_FILE_NAME);
	else
		(void)snprintf(name, 32, AUDIT_FILE_NAME ".%u", number);
}

/* As above: what is no regular file with one name is not ours to give, and not the worker's to use.
 */
static int take_over_snapshots(int api_fd, uint32_t worker_id)
{
	AUTO_CLOSE int fd = -1;
	const struct dirent *entry;
	DIR *dir;

	if (mkdirat(api_fd, SNAPSHOT_FOLDER, 0700) < 0 && errno != EEXIST)
		return -errno;
	fd = openat(api_fd, SNAPSHOT_FOLDER, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fchmod(fd, 0700) < 0 || fchown(fd, worker_id, worker_id) < 0)
		return -errno;
	dir = fdopendir(fd);
	if (!dir)
		return -errno;
	(void)TAKE_FD(fd);
	while ((entry = readdir(dir))) /* NOLINT(concurrency-mt-unsafe): one thread */
		(void)take_over_file(dirfd(dir), entry->d_name, worker_id);
	(void)closedir(dir);
	return 0;
}

int instance_open_api_dir(const struct instance *instance, uint32_t worker_id, struct err *err)
{
	static const char *const files[] = {"api.db", "api.db-wal", "api.db-shm",
					    STORE_INSTANCE_NAME, REDIS_KEY_NAME};
	const unsigned int n_files = ARRAY_SIZE(files);
	AUTO_CLOSE int fd = -1;
	int r;

	if (mkdirat(instance->state_fd, "api", 0700) < 0 && errno != EEXIST)
		return err_fail(err, -errno, "api-state", "make the directory");
	fd = openat(instance->state_fd, "api", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return err_fail(err, -errno, "api-state", "open the directory");
	if (fchmod(fd, 0700) < 0 || fchown(fd, worker_id, worker_id) < 0)
		return err_fail(err, -errno, "api-state", "give the directory to the worker");
	for (unsigned int i = 0; i < n_files + AUDIT_OLD_FILES + 1; i++) {
		char audit[32];
		const char *name = i < n_files ? files[i] : audit;

		audit_name(audit, i < n_files ? 0 : i - n_files);
		r = take_over_file(fd, name, worker_id);
		if (r < 0)
			return err_fail(err, r, "api-state",
					"%s: give to the worker, or no regular file", name);
	}
	r = take_over_snapshots(fd, worker_id);
	if (r < 0)
		return err_fail(err, r, "api-state", "give the folder of snapshots to the worker");
	return TAKE_FD(fd);
}

void instance_done(struct instance *instance)
{
	instance->lock_fd = fd_close(instance->lock_fd);
	instance->id_fd = fd_close(instance->id_fd);
	instance->state_fd = fd_close(instance->state_fd);
}
