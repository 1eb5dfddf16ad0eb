/*
 * Theory. Below the state directory lies `secrets`, root's alone:
 *
 *   lock        held by whoever writes, for the whole of read, change and replace
 *   key         our own key, where the host has none; made with the first secret
 *   store       replaced by rename, so that readers need no lock
 *   generation  of the newest store, written after it: a store that is older was put back
 *
 * A crash between the last two leaves a store that is newer than `generation`, which is right; and
 * whoever reads without the lock reads `generation` first, so that a store that is replaced
 * meanwhile looks newer, not older.
 *
 * The value comes through standard input and is in no argument, no message and no environment; it
 * is read before the lock is taken, so that whoever types one keeps nobody waiting. Runs as root
 * with the administrator's own arguments, so it is not confined.
 */
#include "supervisor/helper/seal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/confine.h"
#include "base/io.h"
#include "base/num.h"
#include "base/path.h"
#include "base/secret.h"
#include "base/str.h"

#include "supervisor/helper/secret_key.h"
#include "supervisor/helper/secret_store.h"

/* sandboxctl's, see sandboxctl(1). */
enum {
	STATUS_OK = 0,
	STATUS_FAILED = 1,
	STATUS_USAGE = 2,
	STATUS_NOT_FOUND = 3,
	STATUS_REFUSED = 4,
};

struct seal {
	int dir_fd; /* STATE_DIR/secrets; -1: there is none, so no secret either */
	int lock_fd;
	enum secret_key_kind kind;
	struct secret_store store;
	uint8_t *file;
	struct secret_row row; /* `put`: what is put, and its value */
	char *value;
	size_t value_bytes; /* as read */
	struct err err;
};

/* A step of ours, and the kernel's reason. */
static int cannot(struct seal *seal, int error_number, const char *what)
{
	return err_fail(&seal->err, error_number, "secret", "cannot %s", what);
}

/* makes: where it is missing; otherwise that is no error. */
static int open_dir(struct seal *seal, const char *state_dir, bool makes)
{
	AUTO_CLOSE int state_fd = path_open_trusted(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct stat st;

	if (state_fd < 0)
		return err_fail(&seal->err, state_fd, "secret",
				"cannot open the state directory %s", state_dir);
	if (makes &&
	    (mkdirat(state_fd, "secrets", 0700) < 0 ? errno != EEXIST : fsync(state_fd) < 0))
		return cannot(seal, -errno, "make the directory `secrets`");
	seal->dir_fd = openat(state_fd, "secrets", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (seal->dir_fd < 0 && errno == ENOENT && !makes)
		return 0;
	if (seal->dir_fd < 0 || fstat(seal->dir_fd, &st) < 0)
		return cannot(seal, -errno, "open the directory `secrets`");
	if (st.st_uid != 0 || (st.st_mode & 077) != 0)
		return err_fail(&seal->err, -EPERM, "secret", "%s/secrets is not root's alone",
				state_dir);
	return 0;
}

static int take_lock(struct seal *seal)
{
	struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

	seal->lock_fd =
		openat(seal->dir_fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (seal->lock_fd < 0)
		return cannot(seal, -errno, "open the lock");
	/* Another put takes a moment. */
	if (fcntl(seal->lock_fd, F_OFD_SETLKW, &whole) < 0)
		return cannot(seal, -errno, "take the lock");
	return 0;
}

/* Write a new file and put it in the place of `name`, durably. */
static int replace(struct seal *seal, const char *name, const void *data, size_t size)
{
	AUTO_CLOSE int fd = -1;
	int r;

	(void)unlinkat(seal->dir_fd, "new", 0); /* of one that was interrupted */
	fd = openat(seal->dir_fd, "new", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
		    0600);
	if (fd < 0)
		return cannot(seal, -errno, "make a file");
	r = io_write_all(fd, data, size);
	if (r >= 0 && fsync(fd) < 0)
		r = -errno;
	if (r >= 0 && renameat(seal->dir_fd, "new", seal->dir_fd, name) < 0)
		r = -errno;
	if (r >= 0 && fsync(seal->dir_fd) < 0)
		r = -errno;
	if (r < 0) {
		(void)unlinkat(seal->dir_fd, "new", 0);
		return cannot(seal, r, "write a file of the store");
	}
	return 0;
}

static int open_host_key(void)
{
	return path_open_trusted(SECRET_HOST_KEY_DIR "/" SECRET_HOST_KEY_FILE,
				 O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
}

/* The key of an existing store, or of one that is to be made: the host's where it has one. */
static int get_key(struct seal *seal, int kind, struct secret_key *ret_key)
{
	AUTO_CLOSE int fd = -1;
	int r;

	if (kind != SECRET_KEY_FILE) {
		fd = open_host_key();
		if (fd < 0 && kind == SECRET_KEY_HOST)
			return cannot(seal, fd, "open the host's credential key");
		if (fd >= 0)
			kind = SECRET_KEY_HOST;
	}
	if (kind == 0 || kind == SECRET_KEY_FILE) {
		bool is_new = kind == 0;

		kind = SECRET_KEY_FILE;
		fd = openat(seal->dir_fd, "key", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0 && errno == ENOENT && is_new) {
			uint8_t bytes[SECRET_KEY_BYTES];

			randombytes_buf(bytes, sizeof(bytes));
			r = replace(seal, "key", bytes, sizeof(bytes));
			sodium_memzero(bytes, sizeof(bytes));
			if (r < 0)
				return r;
			fd = openat(seal->dir_fd, "key", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
		}
		if (fd < 0)
			return cannot(seal, -errno, "open the key");
	}
	seal->kind = (enum secret_key_kind)kind;
	r = secret_key_read(fd, seal->kind, ret_key);
	return r < 0 ? cannot(seal, r, "read the key") : 0;
}

static int read_generation(struct seal *seal, uint64_t *ret_generation)
{
	char text[32];
	ssize_t n = io_read_at(seal->dir_fd, "generation", text, sizeof(text));

	*ret_generation = 0;
	if (n == -ENOENT)
		return 0;
	if (n < 0 || num_parse_u64(text, 0, UINT64_MAX - 1, ret_generation) < 0)
		return cannot(seal, -EBADMSG, "read the generation");
	return 0;
}

/* The file, and the kind of key that it asks for; 0: there is none. */
static int read_store(struct seal *seal, size_t *ret_size)
{
	AUTO_CLOSE int fd = openat(seal->dir_fd, "store", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	char *file = NULL;
	int r = 0;

	if (fd < 0 && errno != ENOENT)
		return cannot(seal, -errno, "open the store");
	if (fd >= 0)
		r = io_read_file(fd, SECRET_FILE_MAX_BYTES, &file, ret_size);
	if (r < 0)
		return cannot(seal, r, "read the store");
	seal->file = (uint8_t *)file;
	r = secret_store_key_kind(seal->file, *ret_size);
	return r < 0 ? err_fail(&seal->err, r, "secret", "the store is damaged") : r;
}

/* makes: the key as well, where the host has none. */
static int open_store(struct seal *seal, bool makes)
{
	struct secret_key key = {0};
	uint64_t oldest = 0;
	size_t size = 0;
	int r;

	if (seal->dir_fd < 0)
		return 0;
	r = read_generation(seal, &oldest);
	if (r >= 0)
		r = read_store(seal, &size);
	/* Of no store nothing is opened and nothing is sealed. */
	if (r > 0 || (r == 0 && makes))
		r = get_key(seal, r, &key);
	if (r < 0)
		return r;
	r = secret_store_open(&seal->store, seal->file, size, &key, oldest);
	sodium_memzero(&key, sizeof(key));
	if (r == -ESTALE)
		return err_fail(&seal->err, r, "secret", "an older store lies in its place");
	if (r < 0)
		return err_fail(&seal->err, r, "secret", "the store is damaged, or not this key's");
	return 0;
}

static int store_replace(struct seal *seal, const char *name, const struct secret_row *row,
			 const uint8_t *value)
{
	const struct secret_change change = {name, row, value};
	struct buf file = BUF_NULL(0);
	char generation[24];
	int r;

	r = secret_store_write(&seal->store, seal->kind, &change, &file, &seal->err);
	if (r < 0)
		return r;
	r = replace(seal, "store", file.data, file.size);
	buf_done(&file);
	if (r < 0)
		return r;
	(void)snprintf(generation, sizeof(generation), "%" PRIu64,
		       seal->store.header.generation + 1);
	return replace(seal, "generation", generation, strlen(generation));
}

/* --- put ------------------------------------------------------------------------------------- */

/* NAME in upper case, with what no variable may hold as `_`. */
static void make_variable(const char *name, char variable[SECRET_NAME_BYTES])
{
	size_t i;

	for (i = 0; i < SECRET_NAME_BYTES - 1u && name[i] != '\0'; i++) {
		char c = name[i];

		if (c >= 'a' && c <= 'z')
			c = (char)(c - 'a' + 'A');
		else if (c == '.' || c == '-')
			c = '_';
		variable[i] = c;
	}
	variable[i] = '\0';
}

static int refuse(const char *what)
{
	(void)fprintf(stderr, "sandboxctl: secret: %s\n", what);
	return STATUS_USAGE;
}

static int fill_row(struct secret_row *row, int argc, char **argv)
{
	uint32_t flags;
	struct timespec now;

	if (!secret_name_valid(argv[0], strlen(argv[0])))
		return refuse("a name is up to 64 of A-Z a-z 0-9 . _ - and begins with a letter or "
			      "digit");
	IGNORE_RESULT(str_copy(row->name, sizeof(row->name), argv[0]));
	make_variable(row->name, row->variable);
	if (argv[1][0] != '\0' && str_copy(row->variable, sizeof(row->variable), argv[1]) < 0)
		return refuse("the variable's name is too long");
	if (!variable_name_allowed(row->variable, strlen(row->variable)))
		return refuse("this environment variable cannot be set: give another with --as");
	if (num_parse_u32(argv[2], 0, SECRET_RECORD_ENCODINGS, &flags) < 0)
		return refuse("unknown flags");
	row->flags = (uint8_t)flags;
	if (argc - 3 > SECRET_WORKSPACES_MAX)
		return refuse("a secret has at most 32 workspaces");
	for (int i = 3; i < argc; i++) {
		char *workspace = row->workspace[row->n_workspaces++];

		if (argv[i][0] == '\0' || !str_only(argv[i], strlen(argv[i]), "._:@-") ||
		    str_copy(workspace, sizeof(row->workspace[0]), argv[i]) < 0)
			return refuse("a workspace is up to 36 of A-Z a-z 0-9 . _ : @ -");
	}
	if (clock_gettime(CLOCK_REALTIME, &now) == 0)
		row->created_at = (uint64_t)now.tv_sec;
	return STATUS_OK;
}

static int check_value(struct secret_row *row, const char *value, size_t size)
{
	/* What an editor or `echo` put behind it. */
	if (size > 0 && value[size - 1] == '\n')
		size--;
	if (size < SECRET_VALUE_MIN_BYTES)
		return refuse("a value has at least 4 bytes: a shorter one would be masked "
			      "everywhere");
	if (size > SECRET_VALUE_MAX_BYTES)
		return refuse("a value has at most 64 KiB");
	if (memchr(value, '\0', size))
		return refuse("a value holds no NUL: it could be in no environment");
	if ((row->flags & SECRET_RECORD_ENCODINGS) && size > SECRET_ENCODINGS_MAX_BYTES)
		return refuse("--mask-encodings takes values of at most 4 KiB");
	row->value_bytes = (uint32_t)size;
	return STATUS_OK;
}

static int prepare_put(struct seal *seal, int argc, char **argv)
{
	int status;
	int r;

	if (argc < 3)
		return refuse("put NAME VARIABLE FLAGS [WORKSPACE...]");
	status = fill_row(&seal->row, argc, argv);
	if (status != STATUS_OK)
		return status;
	r = io_read_file(STDIN_FILENO, SECRET_VALUE_MAX_BYTES + 1, &seal->value,
			 &seal->value_bytes);
	if (r == -EFBIG)
		return refuse("a value has at most 64 KiB");
	if (r < 0) {
		(void)cannot(seal, r, "read the value");
		return STATUS_FAILED;
	}
	return check_value(&seal->row, seal->value, seal->value_bytes);
}

static int put(struct seal *seal, int argc, char **argv)
{
	(void)argc;
	(void)argv;
	if (store_replace(seal, seal->row.name, &seal->row, (const uint8_t *)seal->value) == 0)
		return STATUS_OK;
	return seal->err.error_number == ENOSPC ? STATUS_REFUSED : STATUS_FAILED;
}

/* --- ls, rm ---------------------------------------------------------------------------------- */

static void print_row(const struct secret_row *row, int damaged, bool json, bool is_first)
{
	char time[32] = "";
	time_t at = (time_t)row->created_at;
	struct tm tm;

	if (gmtime_r(&at, &tm))
		(void)strftime(time, sizeof(time), "%Y-%m-%dT%H:%M:%SZ", &tm);
	if (damaged) {
		(void)printf(json ? "%s{\"name\":\"%s\",\"damaged\":true}" : "%s%-24s  (damaged)\n",
			     json && !is_first ? "," : "", row->name);
		return;
	}
	/* Names and workspaces hold nothing that either form would have to escape. */
	(void)printf(json ? "%s{\"name\":\"%s\",\"variable\":\"%s\",\"bytes\":%u,\"set_at\":\"%s\","
			    "\"mask_encodings\":%s,\"workspaces\":["
			  : "%s%-24s  %-24s  %5u  %-20s  %-9s  ",
		     json && !is_first ? "," : "", row->name, row->variable, row->value_bytes, time,
		     row->flags & SECRET_RECORD_ENCODINGS ? "true" : "false");
	for (size_t i = 0; i < row->n_workspaces; i++)
		(void)printf(json ? "%s\"%s\"" : "%s%s", i > 0 ? "," : "", row->workspace[i]);
	(void)printf(json ? "]}" : "%s\n", row->n_workspaces > 0 ? "" : "-");
}

static int ls(struct seal *seal, int argc, char **argv)
{
	bool json = argc == 1 && str_equal(argv[0], "json");
	struct secret_row row;

	if (argc == 1 && str_equal(argv[0], "name")) {
		for (uint32_t i = 0; i < seal->store.header.n; i++) {
			if (secret_store_row(&seal->store, i, &row) == 0)
				(void)printf("%s\n", row.name);
		}
		return fflush(stdout) == 0 ? STATUS_OK : STATUS_FAILED;
	}
	(void)printf(json ? "[" : "%-24s  %-24s  %5s  %-20s  %-9s  %s\n", "NAME", "VARIABLE",
		     "BYTES", "SET", "ENCODINGS", "WORKSPACES");
	for (uint32_t i = 0; i < seal->store.header.n; i++)
		print_row(&row, secret_store_row(&seal->store, i, &row), json, i == 0);
	if (json)
		(void)fputs("]\n", stdout);
	return fflush(stdout) == 0 ? STATUS_OK : STATUS_FAILED;
}

static int prepare_rm(struct seal *seal, int argc, char **argv)
{
	(void)seal;
	(void)argv;
	return argc == 1 ? STATUS_OK : refuse("rm NAME");
}

static int rm(struct seal *seal, int argc, char **argv)
{
	struct secret_row row;
	uint32_t place;

	(void)argc;
	if (secret_store_find(&seal->store, argv[0], &place, &row) == -ENOENT) {
		(void)fprintf(stderr, "sandboxctl: secret: there is none of that name\n");
		return STATUS_NOT_FOUND;
	}
	return store_replace(seal, row.name, NULL, NULL) < 0 ? STATUS_FAILED : STATUS_OK;
}

static const struct mode {
	const char *name;
	int (*prepare)(struct seal *seal, int argc, char **argv); /* before the lock; may be NULL */
	int (*run)(struct seal *seal, int argc, char **argv);
	bool writes;
	bool makes; /* directory and key, where they are missing */
} modes[] = {
	{"put", prepare_put, put, true,  true },
	{"ls",  NULL,        ls,  false, false},
	{"rm",  prepare_rm,  rm,  true,  false},
};

static int run_mode(struct seal *seal, const struct mode *mode, const char *state_dir, int argc,
		    char **argv)
{
	int status = STATUS_OK;
	int r = confine_not_dumpable();

	if (r >= 0 && mode->prepare)
		status = mode->prepare(seal, argc, argv);
	if (status != STATUS_OK)
		return status;
	if (r >= 0)
		r = open_dir(seal, state_dir, mode->makes);
	if (r >= 0 && mode->writes && seal->dir_fd >= 0)
		r = take_lock(seal);
	if (r >= 0)
		r = open_store(seal, mode->makes);
	return r < 0 ? STATUS_FAILED : mode->run(seal, argc, argv);
}

int seal_run(int argc, char **argv)
{
	struct seal seal = {.dir_fd = -1, .lock_fd = -1};
	int status = STATUS_USAGE;

	for (size_t i = 0; argc >= 2 && i < ARRAY_SIZE(modes); i++)
		if (str_equal(modes[i].name, argv[0]))
			status = run_mode(&seal, &modes[i], argv[1], argc - 2, argv + 2);
	if (seal.err.error_number != 0)
		(void)fprintf(stderr, "sandboxctl: secret: %s: %s\n", seal.err.text,
			      strerrordesc_np(seal.err.error_number));
	secret_store_close(&seal.store);
	free(seal.file);
	if (seal.value)
		sodium_memzero(seal.value, seal.value_bytes);
	free(seal.value);
	seal.lock_fd = fd_close(seal.lock_fd);
	seal.dir_fd = fd_close(seal.dir_fd);
	return status;
}
