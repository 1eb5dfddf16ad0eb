#include "base/config_bundle.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/io.h"
#include "base/path.h"
#include "base/str.h"

#define MAX_DROPINS              CONFIG_DROPINS_MAX
#define CONFIG_PROVIDER_NAME_MAX 32
#define TEXT_BYTES               (sizeof(struct config_bundle) + CONFIG_FILE_MAX_BYTES + 1)

struct bundle {
	struct config_bundle head;
	char *text; /* owned: head and texts, CONFIG_FILE_MAX_BYTES of them at most */
	size_t n_text;
	usec_t changed_at;
	size_t n_names;
	char name[MAX_DROPINS][CONFIG_FILE_NAME_BYTES];
};

int config_bundle_open_dir(const char *path, bool is_default, struct err *err)
{
	const char *slash = strrchr(path, '/');
	char dir[PATH_MAX];
	int fd;

	if (path[0] != '/' || slash[1] == '\0')
		return err_fail(err, -EINVAL, "config", "%s is no absolute path of a file", path);
	if (str_copy_n(dir, sizeof(dir), path, slash == path ? 1 : (size_t)(slash - path)) < 0)
		return err_fail(err, -ENAMETOOLONG, "config", "the name of a file is too long");
	fd = path_open_trusted(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd == -ENOENT && is_default)
		return -ENOENT;
	if (fd == -EPERM)
		return err_fail(err, fd, "config",
				"the configuration, or a directory above it, is not root's alone");
	if (fd < 0)
		return err_fail(err, fd, "config", "%s cannot be opened", dir);
	return fd;
}

static bool is_roots_alone(const struct stat *st)
{
	return st->st_uid == 0 && (st->st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

static void note_change(struct bundle *bundle, const struct stat *st)
{
	usec_t at = (usec_t)st->st_ctim.tv_sec * USEC_PER_SEC + (usec_t)st->st_ctim.tv_nsec / 1000;

	if (at > bundle->changed_at)
		bundle->changed_at = at;
}

/* Behind the others, and nowhere else: it has keys and passwords. Its size, or -errno. */
static ssize_t read_text(const struct bundle *bundle, int fd)
{
	char *at = bundle->text + sizeof(bundle->head) + bundle->n_text;
	size_t max = CONFIG_FILE_MAX_BYTES - bundle->n_text;
	size_t used = 0;
	ssize_t n;

	/* One byte more than the maximum, to see that there is more. */
	while ((n = io_read(fd, at + used, max + 1 - used)) > 0) {
		used += (size_t)n;
		if (used > max)
			return -EFBIG;
	}
	return n < 0 ? n : (ssize_t)used;
}

/* One file behind the others. 0, 1: it is missing, or -errno. */
static int add_file(struct bundle *bundle, int dir_fd, const char *name, struct err *err)
{
	struct config_bundle_file *file = &bundle->head.file[bundle->head.n_files];
	AUTO_CLOSE int fd = -1;
	struct stat st;
	ssize_t size;
	int r;

	r = str_copy(file->name, sizeof(file->name), name);
	if (r < 0)
		return err_fail(err, r, "config", "the name of a file is too long");
	fd = path_open_beneath(dir_fd, name, O_RDONLY | O_NOCTTY | O_NONBLOCK, 0);
	if (fd == -ENOENT)
		return 1;
	if (fd < 0)
		return err_fail(err, fd, "config", "%s cannot be opened", name);
	if (fstat(fd, &st) < 0)
		return err_fail(err, -errno, "config", "%s cannot be read", name);
	if (!S_ISREG(st.st_mode))
		return err_fail(err, -EINVAL, "config", "%s is no regular file", name);
	if (!is_roots_alone(&st))
		return err_fail(err, -EPERM, "config",
				"%s is not root's alone: the configuration has to be", name);
	note_change(bundle, &st);
	size = read_text(bundle, fd);
	if (size < 0)
		return err_fail(err, (int)size, "config", "%s cannot be read", name);
	file->bytes = (uint32_t)size;
	file->is_readable = (st.st_mode & (S_IRGRP | S_IROTH)) != 0;
	bundle->n_text += (size_t)size;
	bundle->head.n_files++;
	return 0;
}

static int add_name(struct bundle *bundle, const char *name, struct err *err)
{
	size_t length = strlen(name);

	/* What editors and package managers leave beside it has another ending. */
	if (name[0] == '.' || !str_has_suffix(name, CONFIG_DROPIN_SUFFIX))
		return 0;
	if (!str_only(name, length, "._-+@"))
		return err_fail(err, -EINVAL, "config",
				"a drop-in's name holds more than letters, digits, . _ - + @");
	if (bundle->n_names == MAX_DROPINS)
		return err_fail(err, -E2BIG, "config", "there are more than %d drop-ins",
				MAX_DROPINS);
	if (str_format(bundle->name[bundle->n_names], CONFIG_FILE_NAME_BYTES, "%s/%s",
		       CONFIG_DROPINS, name) < 0)
		return err_fail(err, -ENAMETOOLONG, "config", "the name of a file is too long");
	bundle->n_names++;
	return 0;
}

/* Names of the drop-ins, in no order. */
static int list_names(struct bundle *bundle, int dir_fd, struct err *err)
{
	AUTO_CLOSE int fd = -1;
	const struct dirent *entry;
	struct stat st;
	DIR *dir;
	int r = 0;

	fd = path_open_beneath(dir_fd, CONFIG_DROPINS, O_RDONLY | O_DIRECTORY, 0);
	if (fd == -ENOENT)
		return 0;
	if (fd < 0)
		return err_fail(err, fd, "config", "%s cannot be opened", CONFIG_DROPINS);
	if (fstat(fd, &st) < 0)
		return err_fail(err, -errno, "config", "%s cannot be read", CONFIG_DROPINS);
	if (!is_roots_alone(&st))
		return err_fail(err, -EPERM, "config",
				"%s is not root's alone: the configuration has to be",
				CONFIG_DROPINS);
	note_change(bundle, &st); /* a file that is gone leaves no other trace */
	dir = fdopendir(fd);
	if (!dir)
		return err_fail(err, -errno, "config", "%s cannot be read", CONFIG_DROPINS);
	(void)TAKE_FD(fd);
	/* One thread, one directory stream. NOLINTNEXTLINE(concurrency-mt-unsafe) */
	while (r == 0 && (entry = readdir(dir)))
		r = add_name(bundle, entry->d_name, err);
	(void)closedir(dir);
	return r;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(a, b);
}

static int add_all(struct bundle *bundle, int dir_fd, const char *path, bool may_be_missing,
		   struct err *err)
{
	const char *slash = strrchr(path, '/');
	struct stat st;
	int r;

	if (fstat(dir_fd, &st) < 0)
		return err_fail(err, -errno, "config", "%s cannot be read", "its directory");
	if (st.st_nlink == 0)
		return err_fail(err, -ESTALE, "config",
				"the directory of the configuration was removed or replaced");
	r = add_file(bundle, dir_fd, slash ? slash + 1 : path, err);
	if (r == 1 && !may_be_missing)
		return err_fail(err, -ENOENT, "config", "%s cannot be opened", path);
	if (r < 0)
		return r;
	r = list_names(bundle, dir_fd, err);
	if (r < 0)
		return r;
	qsort(bundle->name, bundle->n_names, sizeof(bundle->name[0]), by_name);
	for (size_t i = 0; i < bundle->n_names; i++) {
		r = add_file(bundle, dir_fd, bundle->name[i], err);
		if (r < 0)
			return r; /* one that was removed meanwhile is not there */
	}
	return 0;
}

/* As one more file, so that the reader needs no other way for it, and knows it by its name. */
static int add_provider(struct bundle *bundle, const char *value, struct err *err)
{
	struct config_bundle_file *file = &bundle->head.file[bundle->head.n_files];
	size_t length = strlen(value);
	char text[128];

	/* Any other line of it would be an option, too. */
	if (length > CONFIG_PROVIDER_NAME_MAX || !str_only(value, length, "-_"))
		return err_fail(err, -EINVAL, "config", "%s is no name of a provider",
				CONFIG_PROVIDER_VARIABLE);
	if (str_format(text, sizeof(text), "[api]\nprovider = %s\n", value) < 0 ||
	    bundle->n_text + strlen(text) > CONFIG_FILE_MAX_BYTES)
		return err_fail(err, -EFBIG, "config", "%s cannot be read",
				CONFIG_PROVIDER_VARIABLE);
	memcpy(file->name, CONFIG_PROVIDER_VARIABLE, sizeof(CONFIG_PROVIDER_VARIABLE));
	file->bytes = (uint32_t)strlen(text);
	memcpy(bundle->text + sizeof(bundle->head) + bundle->n_text, text, file->bytes);
	bundle->n_text += file->bytes;
	bundle->head.n_files++;
	return 0;
}

int config_bundle_make(int dir_fd, const char *path, bool may_be_missing, const char *provider,
		       usec_t *ret_changed_at, struct err *err)
{
	AUTO_FREE struct bundle *bundle = calloc(1, sizeof(*bundle));
	AUTO_FREE char *text = malloc(TEXT_BYTES);
	int r = 0;

	if (!bundle || !text)
		return err_fail(err, -ENOMEM, "config", "out of memory");
	bundle->text = text;
	bundle->head.magic = CONFIG_BUNDLE_MAGIC;
	if (dir_fd >= 0)
		r = add_all(bundle, dir_fd, path, may_be_missing, err);
	if (r >= 0 && provider && provider[0] != '\0')
		r = add_provider(bundle, provider, err);
	if (r >= 0) {
		memcpy(text, &bundle->head, sizeof(bundle->head));
		r = fd_memfd_sealed("config", text, sizeof(bundle->head) + bundle->n_text, 0);
		if (r < 0)
			(void)err_fail(err, r, "config", "%s cannot be read", "the snapshot");
	}
	explicit_bzero(text, TEXT_BYTES);
	if (r < 0)
		return r;
	if (ret_changed_at)
		*ret_changed_at = bundle->changed_at;
	return r;
}
