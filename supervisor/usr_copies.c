/*
 * The build runs as root, at start, in the process that also writes the mask (usr_mask.c), on a
 * clone of the host's /usr.
 */
#include "supervisor/usr_copies.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"

/* The loader and libc belong together and come from one package. */
static const char *const hot[] = {
	"lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
	"lib/x86_64-linux-gnu/libc.so.6",
	"lib/x86_64-linux-gnu/libm.so.6",
	"lib/x86_64-linux-gnu/libgcc_s.so.1",
	"lib/x86_64-linux-gnu/libz.so.1",
	"lib/x86_64-linux-gnu/libexpat.so.1",
	"lib/x86_64-linux-gnu/libtinfo.so.6",
	"lib/x86_64-linux-gnu/libselinux.so.1",
	"lib/x86_64-linux-gnu/libpcre2-8.so.0",
	"bin/bash",
	"bin/dash",
	"bin/python3",
};
_Static_assert(ARRAY_SIZE(hot) <= USR_COPIES_MAX, "too many");

static const char *const folders[] = {"bin", "lib", "lib/x86_64-linux-gnu"};

/* The file itself where the name is a link to one beside it, which is how libraries have versions.
 * -ENOENT for other links. */
static int resolve(int usr_fd, const char *name, char *path, size_t path_bytes)
{
	char target[64];
	ssize_t n = readlinkat(usr_fd, name, target, sizeof(target) - 1);

	if (n < 0)
		return errno == EINVAL ? str_copy(path, path_bytes, name) : -errno;
	target[n] = '\0';
	if (strchr(target, '/'))
		return -ENOENT;
	return str_format(path, path_bytes, "%.*s/%s", (int)(strrchr(name, '/') - name), name,
			  target);
}

static int describe(int dir_fd, const char *path, struct usr_copies_file *ret_file)
{
	struct stat st;

	if (fstatat(dir_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	/* What the mask would hide is nothing to copy. */
	if (!S_ISREG(st.st_mode) || !(st.st_mode & S_IROTH) || (st.st_mode & (S_ISUID | S_ISGID)))
		return -ENOENT;
	ret_file->ino = st.st_ino;
	ret_file->size = (uint64_t)st.st_size;
	ret_file->changed_s = st.st_ctim.tv_sec;
	ret_file->changed_ns = (uint32_t)st.st_ctim.tv_nsec;
	return 0;
}

static int copy(int from_dir_fd, int to_dir_fd, const struct usr_copies_file *file)
{
	struct stat st;
	AUTO_CLOSE int from_fd = openat(from_dir_fd, file->path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	if (from_fd < 0 || fstat(from_fd, &st) < 0)
		return -errno;
	AUTO_CLOSE int to_fd = openat(to_dir_fd, file->path,
				      O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (to_fd < 0)
		return -errno;
	for (off_t left = st.st_size; left > 0;) {
		ssize_t n = sendfile(to_fd, from_fd, NULL, (size_t)left);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -ESTALE;
		left -= n;
	}
	const struct timespec times[] = {st.st_atim, st.st_mtim};
	return fchmod(to_fd, st.st_mode & 0755) < 0 || futimens(to_fd, times) < 0 ? -errno : 0;
}

static int make_set(int usr_fd, int copies_fd, unsigned int set, const struct usr_copies *copies)
{
	char name[4];
	int r = str_format(name, sizeof(name), "%u", set);

	if (r < 0)
		return r;
	if (mkdirat(copies_fd, name, 0755) < 0)
		return -errno;
	AUTO_CLOSE int fd =
		openat(copies_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
		if (mkdirat(fd, folders[i], 0755) < 0)
			return -errno;
	}
	for (uint32_t i = 0; r == 0 && i < copies->n; i++)
		r = copy(usr_fd, fd, &copies->file[i]);
	return r;
}

int usr_copies_build(int usr_fd, int copies_fd, struct usr_copies *ret_copies, struct err *err)
{
	struct usr_copies copies = {0};
	/* As of the mask: a session sees these folders, whatever our umask. */
	mode_t old_mask = umask(022);
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(hot); i++) {
		struct usr_copies_file *file = &copies.file[copies.n];
		r = resolve(usr_fd, hot[i], file->path, sizeof(file->path));
		if (r == 0)
			r = describe(usr_fd, file->path, file);
		if (r == 0)
			copies.n++;
		else if (r == -ENOENT)
			r = 0;
	}
	for (unsigned int set = 1; r == 0 && set <= USR_COPIES_SETS; set++)
		r = make_set(usr_fd, copies_fd, set, &copies);
	(void)umask(old_mask);
	if (r < 0)
		return err_fail(err, r, "usr-copies", "copy files of /usr");
	*ret_copies = copies;
	return 0;
}

bool usr_copies_current(const struct usr_copies *copies, const char *dir)
{
	AUTO_CLOSE int dir_fd = -1;

	if (copies->n == 0)
		return false;
	dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir_fd < 0)
		return false;
	for (uint32_t i = 0; i < copies->n; i++) {
		const struct usr_copies_file *file = &copies->file[i];
		struct usr_copies_file now = {0};

		if (describe(dir_fd, file->path, &now) < 0 || now.ino != file->ino ||
		    now.size != file->size || now.changed_s != file->changed_s ||
		    now.changed_ns != file->changed_ns)
			return false;
	}
	return true;
}

uint8_t usr_copies_take(struct usr_copies_use *use)
{
	uint8_t least = 1;

	for (uint8_t set = 2; set <= USR_COPIES_SETS; set++) {
		if (use->n[set] < use->n[least])
			least = set;
	}
	use->n[least]++;
	return least;
}

void usr_copies_give(struct usr_copies_use *use, uint8_t set)
{
	if (set != 0)
		use->n[set]--;
}
