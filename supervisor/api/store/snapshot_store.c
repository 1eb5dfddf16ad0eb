#include "supervisor/api/store/snapshot_store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/io.h"
#include "base/str.h"

#include "sandboxd/limits.h"
#include "supervisor/api/session/snapshots.h"

#define FILE_MODE   0600
#define SUFFIX      ".tar.zst"
#define SEALED      ".enc"
#define PART        ".part"
#define PART_BYTES  (SNAPSHOT_NAME_BYTES + sizeof(PART) - 1)
#define KIND        "dir-tar"
#define FOREIGN     ".tar.gz"
#define FLUSH_BYTES ((uint64_t)4 * 1024 * 1024)
#define SYNC_BYTES  ((uint64_t)1024 * 1024) /* waited for at once */

_Static_assert(SNAPSHOT_DIGEST_BYTES == crypto_generichash_BYTES, "BLAKE2b-256");

int snapshot_store_open(struct snapshot_store *store, int state_fd)
{
	store->dir_fd =
		openat(state_fd, SNAPSHOT_FOLDER, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return store->dir_fd < 0 ? -errno : 0;
}

void snapshot_store_close(struct snapshot_store *store)
{
	store->dir_fd = fd_close(store->dir_fd);
}

static void part_name(const struct snapshot_file *file, char part[PART_BYTES])
{
	IGNORE_RESULT(str_format(part, PART_BYTES, "%s" PART, file->reference.name));
}

/* Of one that is encrypted: a block, as it is in the file and as it was written. */
struct snapshot_sealed {
	struct snapshot_cipher *cipher;
	size_t n_text; /* written: so far; read: of the block */
	size_t n_read; /* of these */
	bool is_last;  /* no other block is to come */
	uint8_t text[SNAPSHOT_BLOCK_BYTES];
	uint8_t block[SNAPSHOT_SEALED_BYTES];
};

static struct snapshot_sealed *sealed_free(struct snapshot_sealed *sealed)
{
	if (!sealed)
		return NULL;
	sealed->cipher = snapshot_cipher_free(sealed->cipher);
	sodium_memzero(sealed->text, sizeof(sealed->text));
	free(sealed);
	return NULL;
}

static int begin(struct snapshot_file *file, const struct snapshot_store *store)
{
	*file = SNAPSHOT_FILE_NULL;
	file->store = store;
	return crypto_generichash_init(&file->hash, NULL, 0, SNAPSHOT_DIGEST_BYTES) == 0 ? 0
											 : -EINVAL;
}

static int write_bytes(struct snapshot_file *file, const void *data, size_t size)
{
	uint64_t written = file->reference.bytes;
	int r;

	if (size > file->max_bytes - written)
		return -EDQUOT;
	r = io_write_all(file->fd, data, size);
	if (r < 0)
		return r;
	(void)crypto_generichash_update(&file->hash, data, size);
	written += size;
	file->reference.bytes = written;
	/* So that little is left to wait for at the end; a failure is told then. */
	if (written - file->flushed >= FLUSH_BYTES) {
		(void)sync_file_range(file->fd, (off_t)file->flushed,
				      (off_t)(written - file->flushed), SYNC_FILE_RANGE_WRITE);
		file->flushed = written;
	}
	return 0;
}

static int seal_begin(struct snapshot_file *file, const struct snapshot_key *key)
{
	struct snapshot_head head;
	int r;

	file->sealed = calloc(1, sizeof(*file->sealed));
	if (!file->sealed)
		return -ENOMEM;
	r = snapshot_cipher_seal_begin(key, file->reference.name, &head, &file->sealed->cipher);
	if (r < 0)
		return r;
	memcpy(file->reference.key_id, key->id, sizeof(file->reference.key_id));
	return write_bytes(file, &head, sizeof(head));
}

static int seal_block(struct snapshot_file *file, bool is_last)
{
	struct snapshot_sealed *sealed = file->sealed;
	size_t n = snapshot_cipher_seal(sealed->cipher, sealed->text, sealed->n_text, is_last,
					sealed->block);

	sealed->n_text = 0;
	return write_bytes(file, sealed->block, n);
}

int snapshot_write_begin(struct snapshot_file *file, const struct snapshot_store *store,
			 const struct id *sandbox, const struct id *snapshot,
			 const struct snapshot_key *key, uint64_t max_bytes)
{
	char sandbox_text[ID_TEXT_BYTES];
	char snapshot_text[ID_TEXT_BYTES];
	char part[PART_BYTES];
	int r = begin(file, store);

	if (r < 0)
		return r;
	id_format(sandbox, sandbox_text);
	id_format(snapshot, snapshot_text);
	IGNORE_RESULT(str_format(file->reference.name, sizeof(file->reference.name),
				 "%s-%s" SUFFIX "%s", sandbox_text, snapshot_text,
				 key ? SEALED : ""));
	part_name(file, part);
	file->max_bytes = max_bytes;
	file->fd = openat(store->dir_fd, part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
			  FILE_MODE);
	if (file->fd < 0)
		return -errno;
	return key ? seal_begin(file, key) : 0;
}

int snapshot_write(struct snapshot_file *file, const void *data, size_t size)
{
	struct snapshot_sealed *sealed = file->sealed;
	const uint8_t *at = data;
	int r = 0;

	if (!sealed)
		return write_bytes(file, data, size);
	while (r == 0 && size > 0) {
		size_t room = sizeof(sealed->text) - sealed->n_text;
		size_t n = size < room ? size : room;

		memcpy(sealed->text + sealed->n_text, at, n);
		sealed->n_text += n;
		at += n;
		size -= n;
		if (n == room)
			r = seal_block(file, false);
	}
	return r;
}

int snapshot_write_last(struct snapshot_file *file)
{
	if (!file->sealed || file->sealed->is_last)
		return 0;
	file->sealed->is_last = true;
	return seal_block(file, true);
}

int snapshot_write_sync(struct snapshot_file *file)
{
	uint64_t left = file->reference.bytes - file->synced;
	uint64_t size = left < SYNC_BYTES ? left : SYNC_BYTES;

	/* An error that this has told, fsync does not tell again. */
	if (size > 0 && sync_file_range(file->fd, (off_t)file->synced, (off_t)size,
					SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
						SYNC_FILE_RANGE_WAIT_AFTER) < 0)
		return -errno;
	file->synced += size;
	return size < left ? 1 : 0;
}

int snapshot_write_end(struct snapshot_file *file)
{
	const struct snapshot_store *store = file->store;
	char part[PART_BYTES];

	ASSERT(!file->sealed || file->sealed->is_last);
	(void)crypto_generichash_final(&file->hash, file->reference.digest, SNAPSHOT_DIGEST_BYTES);
	part_name(file, part);
	if (fsync(file->fd) < 0 ||
	    renameat(store->dir_fd, part, store->dir_fd, file->reference.name) < 0)
		return -errno;
	file->fd = fd_close(file->fd);
	if (fsync(store->dir_fd) < 0)
		return -errno;
	return 0;
}

static ssize_t read_some(struct snapshot_file *file, void *data, size_t size)
{
	ssize_t n = io_read(file->fd, data, size);

	if (n > 0)
		(void)crypto_generichash_update(&file->hash, data, (size_t)n);
	return n;
}

/* As many as there are. */
static ssize_t read_full(struct snapshot_file *file, uint8_t *data, size_t size)
{
	size_t all = 0;
	ssize_t n = 1;

	while (n > 0 && all < size) {
		n = read_some(file, data + all, size - all);
		if (n > 0)
			all += (size_t)n;
	}
	return n < 0 ? n : (ssize_t)all;
}

static int check_end(struct snapshot_file *file)
{
	uint8_t digest[SNAPSHOT_DIGEST_BYTES];

	if (file->reference.is_unknown)
		return 0;
	(void)crypto_generichash_final(&file->hash, digest, sizeof(digest));
	return memcmp(digest, file->reference.digest, sizeof(digest)) == 0 ? 0 : -EBADMSG;
}

static int open_begin(struct snapshot_file *file, const struct snapshot_key *key)
{
	struct snapshot_head head;
	ssize_t n;

	file->sealed = calloc(1, sizeof(*file->sealed));
	if (!file->sealed)
		return -ENOMEM;
	n = read_full(file, (uint8_t *)&head, sizeof(head));
	if (n < 0)
		return (int)n;
	if (n != (ssize_t)sizeof(head))
		return -EBADMSG;
	return snapshot_cipher_open_begin(key, file->reference.name, &head, &file->sealed->cipher);
}

static int open_block(struct snapshot_file *file)
{
	struct snapshot_sealed *sealed = file->sealed;
	ssize_t n = read_full(file, sealed->block, sizeof(sealed->block));

	if (n >= 0)
		n = snapshot_cipher_open(sealed->cipher, sealed->block, (size_t)n, sealed->text,
					 &sealed->is_last);
	if (n < 0)
		return (int)n;
	sealed->n_text = (size_t)n;
	sealed->n_read = 0;
	return 0;
}

int snapshot_open(const struct snapshot_store *store, const struct snapshot_reference *reference)
{
	int fd = openat(store->dir_fd, reference->name,
			O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return errno == ELOOP ? -EBADMSG : -errno;
	return fd;
}

int snapshot_new_unnamed(const struct snapshot_store *store)
{
	int fd = openat(store->dir_fd, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, FILE_MODE);

	return fd < 0 ? -errno : fd;
}

int snapshot_read_begin(struct snapshot_file *file, const struct snapshot_reference *reference,
			const struct snapshot_key *key, int fd)
{
	struct stat st;
	int r = begin(file, NULL);

	file->fd = fd;
	if (r < 0)
		return r;
	file->reference = *reference;
	if (fstat(fd, &st) < 0 || lseek(fd, 0, SEEK_SET) < 0)
		return -errno;
	if (reference->is_unknown)
		file->reference.bytes = (uint64_t)st.st_size;
	/* An archive of nothing is not empty: this one would be put back as nothing, unchecked. */
	if (reference->is_unknown && st.st_size == 0)
		return -EBADMSG;
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != file->reference.bytes)
		return -EBADMSG;
	return key ? open_begin(file, key) : 0;
}

ssize_t snapshot_read(struct snapshot_file *file, void *data, size_t size)
{
	struct snapshot_sealed *sealed = file->sealed;
	ssize_t n;

	if (!sealed) {
		n = read_some(file, data, size);
		return n == 0 ? check_end(file) : n;
	}
	if (sealed->n_read == sealed->n_text && !sealed->is_last) {
		int r = open_block(file);

		if (r < 0)
			return r;
	}
	n = (ssize_t)(sealed->n_text - sealed->n_read);
	if (n == 0)
		return read_some(file, sealed->block, 1) == 0 ? check_end(file) : -EBADMSG;
	if ((size_t)n > size)
		n = (ssize_t)size;
	memcpy(data, sealed->text + sealed->n_read, (size_t)n);
	sealed->n_read += (size_t)n;
	return n;
}

/* One that is read, or is whole, has no part. */
void snapshot_file_done(struct snapshot_file *file)
{
	char part[PART_BYTES];

	if (file->fd >= 0 && file->max_bytes > 0) {
		part_name(file, part);
		(void)unlinkat(file->store->dir_fd, part, 0);
	}
	file->fd = fd_close(file->fd);
	file->sealed = sealed_free(file->sealed);
}

int snapshot_remove(const struct snapshot_store *store, const char *name)
{
	return unlinkat(store->dir_fd, name, 0) < 0 && errno != ENOENT ? -errno : 0;
}

static bool parse_entry(struct snapshot_entry *entry)
{
	char id[ID_TEXT_BYTES];
	size_t length = strlen(entry->name);

	entry->is_part = str_has_suffix(entry->name, SUFFIX PART) ||
			 str_has_suffix(entry->name, SUFFIX SEALED PART);
	if (length < sizeof(id) || length >= PART_BYTES ||
	    !(entry->is_part || str_has_suffix(entry->name, SUFFIX) ||
	      str_has_suffix(entry->name, SUFFIX SEALED)))
		return false;
	memcpy(id, entry->name, sizeof(id) - 1);
	id[sizeof(id) - 1] = '\0';
	return id_parse(id, &entry->sandbox) >= 0;
}

/* 1: it was removed. */
static int sweep_entry(const struct snapshot_store *store, const char *name, snapshot_seen seen,
		       void *userdata)
{
	struct snapshot_entry entry = {.name = name};
	struct stat st;

	if (!parse_entry(&entry) || fstatat(store->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    !S_ISREG(st.st_mode))
		return 0;
	entry.written_at = (usec_t)st.st_mtim.tv_sec * USEC_PER_SEC;
	if (seen(userdata, &entry))
		return 0;
	return unlinkat(store->dir_fd, name, 0) < 0 ? 0 : 1;
}

int snapshot_sweep(const struct snapshot_store *store, snapshot_seen seen, void *userdata)
{
	AUTO_CLOSE int fd =
		openat(store->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;
	int n = 0;

	if (!dir)
		return -errno;
	(void)TAKE_FD(fd);
	/* One thread. */
	while ((entry = readdir(dir))) /* NOLINT(concurrency-mt-unsafe) */
		n += sweep_entry(store, entry->d_name, seen, userdata);
	(void)closedir(dir);
	return n;
}

int snapshot_name_parse(const char *name, struct id *ret_sandbox)
{
	struct snapshot_entry entry = {.name = name};

	if (strchr(name, '/') || !parse_entry(&entry) || entry.is_part)
		return -EBADMSG;
	*ret_sandbox = entry.sandbox;
	return 0;
}

json_t *snapshot_reference_format(const struct snapshot_reference *reference)
{
	char digest[SNAPSHOT_DIGEST_TEXT];

	(void)sodium_bin2hex(digest, sizeof(digest), reference->digest, SNAPSHOT_DIGEST_BYTES);
	return json_pack("{s:s, s:s, s:I, s:s, s:s*}", "kind", KIND, "name", reference->name,
			 "bytes", (json_int_t)reference->bytes, "digest", digest, "key",
			 reference->key_id[0] != '\0' ? reference->key_id : NULL);
}

/* What the name says of it and what the row says have to agree. */
static int parse_key(const json_t *object, const char *member, const char *name,
		     char key_id[static SNAPSHOT_KEY_ID_BYTES])
{
	const json_t *key = json_object_get(object, member);
	const char *id = json_string_value(key);

	if (str_has_suffix(name, SEALED) != (key != NULL))
		return -EBADMSG;
	if (!key)
		return 0;
	return id && id[0] != '\0' && str_copy(key_id, SNAPSHOT_KEY_ID_BYTES, id) >= 0 ? 0
										       : -EBADMSG;
}

/* name: of the file, or the last part of the object's key. */
static int parse_own(json_t *object, const struct id *sandbox, const char *name, const char *key,
		     struct snapshot_reference *reference)
{
	const char *digest = NULL;
	json_int_t bytes = 0;
	size_t length = 0;
	struct id owner;

	if (json_unpack(object, "{s:I, s:s}", "bytes", &bytes, "digest", &digest) < 0)
		return -EBADMSG;
	/* A name of ours has no slash, and no file of ours but these is in the folder. */
	if (bytes < 0 || strlen(name) >= sizeof(reference->name) ||
	    snapshot_name_parse(name, &owner) < 0 || !id_equal(&owner, sandbox) ||
	    sodium_hex2bin(reference->digest, SNAPSHOT_DIGEST_BYTES, digest, strlen(digest), NULL,
			   &length, NULL) != 0 ||
	    length != SNAPSHOT_DIGEST_BYTES || parse_key(object, key, name, reference->key_id) < 0)
		return -EBADMSG;
	memcpy(reference->name, name, strlen(name) + 1);
	reference->bytes = (uint64_t)bytes;
	return 0;
}

static int parse_remote(json_t *object, const struct id *sandbox,
			struct snapshot_reference *reference)
{
	const char *key = NULL;
	const char *name;
	struct id owner;

	if (json_unpack(object, "{s:s}", "key", &key) < 0 ||
	    str_copy(reference->key, sizeof(reference->key), key) < 0 || key[0] == '\0')
		return -EBADMSG;
	name = strrchr(key, '/');
	name = name ? name + 1 : key;
	if (json_object_get(object, "digest"))
		return parse_own(object, sandbox, name, SNAPSHOT_ENCRYPTION_KEY, reference);
	/* One of ours is not taken for the platform's, whose digest nobody looks at. */
	if (!str_has_suffix(name, FOREIGN) || snapshot_name_parse(name, &owner) >= 0)
		return -EBADMSG;
	reference->is_unknown = true;
	return 0;
}

int snapshot_reference_parse(json_t *object, const struct id *sandbox,
			     struct snapshot_reference *ret_reference)
{
	const char *kind = NULL;
	const char *name = NULL;
	int r = -EBADMSG;

	*ret_reference = (struct snapshot_reference){.bytes = 0};
	if (json_unpack(object, "{s:s}", "kind", &kind) < 0)
		return -EBADMSG;
	if (str_equal(kind, SNAPSHOT_KIND_S3))
		r = parse_remote(object, sandbox, ret_reference);
	else if (str_equal(kind, KIND) && json_unpack(object, "{s:s}", "name", &name) >= 0)
		r = parse_own(object, sandbox, name, "key", ret_reference);
	if (r < 0)
		*ret_reference = (struct snapshot_reference){.bytes = 0};
	return r;
}
