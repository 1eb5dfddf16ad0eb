/*
 * Snapshots in a folder: whole or not there, what was written or refused, swept when nobody's.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"

#include "sandboxd/limits.h"
#include "supervisor/api/store/snapshot_store.h"
#include "tests/lib/test.h"

struct rig {
	struct test_temp temp;
	struct snapshot_store store;
	struct id sandbox;
	struct id snapshot;
};

static void rig_init(struct rig *rig)
{
	test_temp_init(&rig->temp);
	assert_int_equal(snapshot_store_open(&rig->store, rig->temp.fd), -ENOENT);
	assert_int_equal(mkdirat(rig->temp.fd, SNAPSHOT_FOLDER, 0700), 0);
	assert_int_equal(snapshot_store_open(&rig->store, rig->temp.fd), 0);
	assert_int_equal(id_random(&rig->sandbox), 0);
	assert_int_equal(id_random(&rig->snapshot), 0);
}

static void rig_done(struct rig *rig)
{
	snapshot_store_close(&rig->store);
	test_temp_done(&rig->temp);
}

static bool nothing_stays(void *userdata, const struct snapshot_entry *entry)
{
	(void)userdata;
	(void)entry;
	return false;
}

static void write_with(struct rig *rig, const struct snapshot_key *key, const char *text,
		       size_t size, struct snapshot_reference *ret_reference)
{
	struct snapshot_file file;

	assert_int_equal(snapshot_write_begin(&file, &rig->store, &rig->sandbox, &rig->snapshot,
					      key, 1000000),
			 0);
	assert_int_equal(snapshot_write(&file, text, size), 0);
	assert_int_equal(snapshot_write_last(&file), 0);
	assert_int_equal(snapshot_write_end(&file), 0);
	*ret_reference = file.reference;
	snapshot_file_done(&file);
}

static void write_one(struct rig *rig, const char *text, struct snapshot_reference *ret_reference)
{
	write_with(rig, NULL, text, strlen(text), ret_reference);
}

static ssize_t read_with(const struct rig *rig, const struct snapshot_key *key,
			 const struct snapshot_reference *reference, char *text)
{
	struct snapshot_file file = SNAPSHOT_FILE_NULL;
	int fd = snapshot_open(&rig->store, reference);
	ssize_t n = fd < 0 ? fd : snapshot_read_begin(&file, reference, key, fd);
	ssize_t all = 0;

	while (n >= 0) {
		n = snapshot_read(&file, text + all, 1021);
		if (n <= 0)
			break;
		all += n;
	}
	snapshot_file_done(&file);
	return n < 0 ? n : all;
}

static ssize_t read_all(const struct rig *rig, const struct snapshot_reference *reference,
			char *text)
{
	return read_with(rig, NULL, reference, text);
}

static void test_what_was_written_comes_back(void **state)
{
	struct rig rig;
	struct snapshot_reference reference;
	struct snapshot_reference parsed;
	char text[2048] = "";
	json_t *object;

	(void)state;
	rig_init(&rig);
	write_one(&rig, "one two three", &reference);
	assert_int_equal(read_all(&rig, &reference, text), 13);
	assert_string_equal(text, "one two three");
	object = snapshot_reference_format(&reference);
	assert_int_equal(snapshot_reference_parse(object, &rig.sandbox, &parsed), 0);
	/* A row that names the file of another one. */
	assert_int_equal(snapshot_reference_parse(object, &rig.snapshot, &parsed), -EBADMSG);
	assert_int_equal(snapshot_reference_parse(object, &rig.sandbox, &parsed), 0);
	assert_memory_equal(&parsed, &reference, sizeof(parsed));
	json_decref(object);
	assert_int_equal(snapshot_remove(&rig.store, reference.name), 0);
	assert_int_equal(snapshot_remove(&rig.store, reference.name), 0);
	assert_int_equal(read_all(&rig, &reference, text), -ENOENT);
	rig_done(&rig);
}

static void test_a_large_one_goes_to_the_disk_in_pieces(void **state)
{
	static const uint8_t block[512 * 1024];
	struct rig rig;
	struct snapshot_file file;
	unsigned int n = 0;
	int r = 1;

	(void)state;
	rig_init(&rig);
	assert_int_equal(snapshot_write_begin(&file, &rig.store, &rig.sandbox, &rig.snapshot, NULL,
					      UINT64_MAX),
			 0);
	assert_int_equal(snapshot_write_sync(&file), 0); /* nothing was written */
	for (int i = 0; i < 9; i++)
		assert_int_equal(snapshot_write(&file, block, sizeof(block)), 0);
	for (; r > 0; n++)
		r = snapshot_write_sync(&file);
	assert_int_equal(r, 0);
	assert_in_range(n, 4, 5);
	assert_int_equal(snapshot_write_sync(&file), 0);
	assert_int_equal(snapshot_write_end(&file), 0);
	assert_true(file.reference.bytes == 9 * sizeof(block));
	snapshot_file_done(&file);
	rig_done(&rig);
}

static void test_what_is_not_whole_is_not_there(void **state)
{
	struct rig rig;
	struct snapshot_file file;
	int found = 0;

	(void)state;
	rig_init(&rig);
	assert_int_equal(
		snapshot_write_begin(&file, &rig.store, &rig.sandbox, &rig.snapshot, NULL, 4), 0);
	assert_int_equal(snapshot_write(&file, "1234", 4), 0);
	assert_int_equal(snapshot_write(&file, "5", 1), -EDQUOT);
	snapshot_file_done(&file);
	found = snapshot_sweep(&rig.store, nothing_stays, NULL);
	assert_int_equal(found, 0);
	rig_done(&rig);
}

static void test_another_content_is_refused(void **state)
{
	struct rig rig;
	struct snapshot_reference reference;
	char path[128];
	char text[2048];
	int fd;

	(void)state;
	rig_init(&rig);
	write_one(&rig, "one two three", &reference);
	IGNORE_RESULT(str_format(path, sizeof(path), SNAPSHOT_FOLDER "/%s", reference.name));
	fd = openat(rig.temp.fd, path, O_WRONLY | O_CLOEXEC);
	assert_int_equal(pwrite(fd, "T", 1, 4), 1);
	assert_int_equal(read_all(&rig, &reference, text), -EBADMSG);
	assert_int_equal(pwrite(fd, "t", 1, 4), 1);
	assert_int_equal(read_all(&rig, &reference, text), 13);
	assert_int_equal(ftruncate(fd, 12), 0);
	assert_int_equal(read_all(&rig, &reference, text), -EBADMSG);
	(void)fd_close(fd);
	rig_done(&rig);
}

static void test_names_of_others_are_no_references(void **state)
{
	static const char *const names[] = {
		"../store.db", "a/b", "", "x.tar.zst", "00000000-0000-0000-0000-000000000000.tar",
	};
	struct rig rig;
	struct snapshot_reference reference;
	json_t *object;

	(void)state;
	rig_init(&rig);
	write_one(&rig, "x", &reference);
	object = snapshot_reference_format(&reference);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		(void)json_object_set_new(object, "name", json_string(names[i]));
		assert_int_equal(snapshot_reference_parse(object, &rig.sandbox, &reference),
				 -EBADMSG);
	}
	(void)json_object_set_new(object, "kind", json_string("other"));
	assert_int_equal(snapshot_reference_parse(object, &rig.sandbox, &reference), -EBADMSG);
	json_decref(object);
	rig_done(&rig);
}

/* As snapshot_remote.c makes it of one of a file. */
static json_t *sent(const struct snapshot_reference *reference)
{
	json_t *object = snapshot_reference_format(reference);
	char key[S3_KEY_BYTES];

	assert_int_equal(str_format(key, sizeof(key), "p/i/%s", reference->name), 0);
	(void)json_object_del(object, "name");
	(void)json_object_set_new(object, "kind", json_string("s3-tar"));
	(void)json_object_set_new(object, "key", json_string(key));
	return object;
}

static void test_objects_have_their_files_names(void **state)
{
	struct snapshot_reference reference;
	struct snapshot_reference parsed;
	struct rig rig;
	json_t *object;

	(void)state;
	rig_init(&rig);
	write_one(&rig, "x", &reference);
	object = sent(&reference);
	assert_int_equal(snapshot_reference_parse(object, &rig.sandbox, &parsed), 0);
	assert_string_equal(parsed.name, reference.name);
	assert_int_equal(parsed.bytes, 1);
	assert_false(parsed.is_unknown);
	assert_int_equal(snapshot_reference_parse(object, &rig.snapshot, &parsed), -EBADMSG);
	assert_string_equal(parsed.key, "");
	/* Without a digest nothing would be checked. */
	(void)json_object_del(object, "digest");
	assert_int_equal(snapshot_reference_parse(object, &rig.sandbox, &parsed), -EBADMSG);
	json_decref(object);
	rig_done(&rig);
}

static void test_an_object_without_a_digest_is_not_empty(void **state)
{
	const struct snapshot_reference reference = {.is_unknown = true};
	struct rig rig;

	(void)state;
	rig_init(&rig);
	for (int n = 0; n < 2; n++) {
		struct snapshot_file file = SNAPSHOT_FILE_NULL;
		int fd = snapshot_new_unnamed(&rig.store);

		assert_true(fd >= 0);
		assert_int_equal(write(fd, "x", (size_t)n), n);
		assert_int_equal(snapshot_read_begin(&file, &reference, NULL, fd),
				 n > 0 ? 0 : -EBADMSG);
		snapshot_file_done(&file);
	}
	rig_done(&rig);
}

static void test_objects_of_the_platform_have_a_key_alone(void **state)
{
	static const char *const wrong[] = {"", "sandboxes/x", "sandboxes/x.tar.zst"};
	struct snapshot_reference parsed;
	struct id id;
	json_t *object =
		json_pack("{s:s, s:s}", "kind", "s3-tar", "key", "sandboxes/6f1c/snapshot.tar.gz");

	(void)state;
	assert_int_equal(id_random(&id), 0);
	assert_int_equal(snapshot_reference_parse(object, &id, &parsed), 0);
	assert_true(parsed.is_unknown);
	assert_string_equal(parsed.key, "sandboxes/6f1c/snapshot.tar.gz");
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		(void)json_object_set_new(object, "key", json_string(wrong[i]));
		assert_int_equal(snapshot_reference_parse(object, &id, &parsed), -EBADMSG);
	}
	(void)json_object_del(object, "key");
	assert_int_equal(snapshot_reference_parse(object, &id, &parsed), -EBADMSG);
	json_decref(object);
}

static bool see(void *userdata, const struct snapshot_entry *entry)
{
	struct rig *rig = userdata;

	assert_true(id_equal(&entry->sandbox, &rig->sandbox));
	assert_true(entry->written_at > 0);
	return !entry->is_part;
}

static void test_parts_are_swept_and_other_files_stay(void **state)
{
	struct rig rig;
	struct snapshot_reference reference;
	char path[128];
	char text[2048];
	int fd;

	(void)state;
	rig_init(&rig);
	write_one(&rig, "whole", &reference);
	IGNORE_RESULT(str_format(path, sizeof(path), SNAPSHOT_FOLDER "/%s.part", reference.name));
	fd = openat(rig.temp.fd, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	(void)fd_close(fd);
	fd = openat(rig.temp.fd, SNAPSHOT_FOLDER "/other", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	(void)fd_close(fd);
	assert_int_equal(snapshot_sweep(&rig.store, see, &rig), 1);
	assert_int_equal(read_all(&rig, &reference, text), 5);
	assert_int_equal(faccessat(rig.temp.fd, SNAPSHOT_FOLDER "/other", F_OK, 0), 0);
	rig_done(&rig);
}

/* Encrypted. */

#define LONG_BYTES (2 * SNAPSHOT_BLOCK_BYTES + 100)

static struct snapshot_key key_of(const char *id, uint8_t byte)
{
	struct snapshot_key key = {.id = ""};

	IGNORE_RESULT(str_copy(key.id, sizeof(key.id), id));
	memset(key.bytes, byte, sizeof(key.bytes));
	return key;
}

static char *long_text(size_t size)
{
	char *text = malloc(size);

	assert_non_null(text);
	for (size_t i = 0; i < size; i++)
		text[i] = "a long text "[i % 12];
	return text;
}

static size_t file_size(const struct rig *rig, const struct snapshot_reference *reference)
{
	struct stat st;

	assert_int_equal(fstatat(rig->store.dir_fd, reference->name, &st, 0), 0);
	return (size_t)st.st_size;
}

static void test_what_was_encrypted_comes_back(void **state)
{
	static const size_t sizes[] = {
		0,
		1,
		SNAPSHOT_BLOCK_BYTES - 1,
		SNAPSHOT_BLOCK_BYTES,
		SNAPSHOT_BLOCK_BYTES + 1,
		2 * SNAPSHOT_BLOCK_BYTES,
		LONG_BYTES,
	};
	const struct snapshot_key key = key_of("one", 1);
	struct rig rig;

	(void)state;
	rig_init(&rig);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		AUTO_FREE char *text = long_text(LONG_BYTES);
		AUTO_FREE char *back = malloc(LONG_BYTES + 1024);
		struct snapshot_reference reference;
		struct snapshot_reference parsed;
		json_t *object;

		assert_int_equal(id_random(&rig.snapshot), 0);
		write_with(&rig, &key, text, sizes[i], &reference);
		assert_true(reference.bytes == file_size(&rig, &reference));
		assert_true(str_has_suffix(reference.name, ".tar.zst.enc"));
		object = snapshot_reference_format(&reference);
		assert_int_equal(snapshot_reference_parse(object, &rig.sandbox, &parsed), 0);
		assert_memory_equal(&parsed, &reference, sizeof(parsed));
		/* What the row says and what the name says differ. */
		(void)json_object_del(object, "key");
		assert_int_equal(snapshot_reference_parse(object, &rig.sandbox, &parsed), -EBADMSG);
		json_decref(object);
		assert_int_equal(read_with(&rig, &key, &reference, back), sizes[i]);
		assert_memory_equal(back, text, sizes[i]);
	}
	rig_done(&rig);
}

static void test_nothing_of_it_can_be_read_in_the_file(void **state)
{
	const struct snapshot_key key = key_of("one", 1);
	static const char word[] = "a word that is looked for";
	AUTO_FREE char *bytes = malloc(LONG_BYTES);
	struct rig rig;
	struct snapshot_reference plain;
	struct snapshot_reference reference;
	int fd;
	ssize_t n;

	(void)state;
	rig_init(&rig);
	write_with(&rig, &key, word, sizeof(word), &reference);
	write_one(&rig, word, &plain);
	fd = openat(rig.store.dir_fd, reference.name, O_RDONLY | O_CLOEXEC);
	n = read(fd, bytes, LONG_BYTES);
	(void)fd_close(fd);
	assert_true(n > (ssize_t)sizeof(word));
	assert_null(memmem(bytes, (size_t)n, word, sizeof(word) - 1));
	fd = openat(rig.store.dir_fd, plain.name, O_RDONLY | O_CLOEXEC);
	n = read(fd, bytes, LONG_BYTES);
	(void)fd_close(fd);
	assert_non_null(memmem(bytes, (size_t)n, word, sizeof(word) - 1));
	rig_done(&rig);
}

/* Whoever writes the file writes the row, too: the digest is that of what is there. */
static void put_file(const struct rig *rig, struct snapshot_reference *reference,
		     const uint8_t *bytes, size_t size)
{
	int fd = openat(rig->store.dir_fd, reference->name,
			O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, size), size);
	(void)fd_close(fd);
	reference->bytes = size;
	(void)crypto_generichash(reference->digest, sizeof(reference->digest), bytes, size, NULL,
				 0);
}

static uint8_t *get_file(const struct rig *rig, const struct snapshot_reference *reference)
{
	uint8_t *bytes = malloc(reference->bytes + SNAPSHOT_SEALED_BYTES);
	int fd = openat(rig->store.dir_fd, reference->name, O_RDONLY | O_CLOEXEC);

	assert_non_null(bytes);
	assert_int_equal(read(fd, bytes, reference->bytes), reference->bytes);
	(void)fd_close(fd);
	return bytes;
}

static void assert_refused(const struct rig *rig, const struct snapshot_key *key,
			   const struct snapshot_reference *reference, const uint8_t *bytes,
			   size_t size)
{
	AUTO_FREE char *back = malloc(4 * LONG_BYTES);
	struct snapshot_reference forged = *reference;

	put_file(rig, &forged, bytes, size);
	assert_int_equal(read_with(rig, key, &forged, back), -EBADMSG);
}

static void test_every_bit_counts(void **state)
{
	const struct snapshot_key key = key_of("one", 1);
	struct rig rig;
	struct snapshot_reference reference;
	char back[2048];
	uint8_t *bytes;

	(void)state;
	rig_init(&rig);
	write_with(&rig, &key, "text", 4, &reference);
	bytes = get_file(&rig, &reference);
	for (size_t i = 0; i < 8 * reference.bytes; i++) {
		bytes[i / 8] ^= (uint8_t)(1u << i % 8);
		assert_refused(&rig, &key, &reference, bytes, reference.bytes);
		bytes[i / 8] ^= (uint8_t)(1u << i % 8);
	}
	put_file(&rig, &reference, bytes, reference.bytes);
	assert_int_equal(read_with(&rig, &key, &reference, back), 4);
	free(bytes);
	rig_done(&rig);
}

static void test_blocks_are_not_moved_cut_or_added(void **state)
{
	const struct snapshot_key key = key_of("one", 1);
	AUTO_FREE char *text = long_text(LONG_BYTES);
	AUTO_FREE char *back = malloc(LONG_BYTES + 1024);
	AUTO_FREE uint8_t *block = malloc(SNAPSHOT_SEALED_BYTES);
	struct rig rig;
	struct snapshot_reference reference;
	uint8_t *bytes;
	uint8_t *first;

	(void)state;
	rig_init(&rig);
	write_with(&rig, &key, text, LONG_BYTES, &reference);
	bytes = get_file(&rig, &reference);
	first = bytes + sizeof(struct snapshot_head);
	for (size_t n = 0; n < reference.bytes;
	     n += n < sizeof(struct snapshot_head) + 2 ? 1 : 9973)
		assert_refused(&rig, &key, &reference, bytes, n);
	/* At the end of each block. */
	assert_refused(&rig, &key, &reference, bytes,
		       sizeof(struct snapshot_head) + SNAPSHOT_SEALED_BYTES);
	assert_refused(&rig, &key, &reference, bytes,
		       sizeof(struct snapshot_head) + 2 * SNAPSHOT_SEALED_BYTES);
	bytes[reference.bytes] = 0;
	assert_refused(&rig, &key, &reference, bytes, reference.bytes + 1);
	memcpy(block, first, SNAPSHOT_SEALED_BYTES);
	memcpy(first, first + SNAPSHOT_SEALED_BYTES, SNAPSHOT_SEALED_BYTES);
	assert_refused(&rig, &key, &reference, bytes, reference.bytes); /* twice */
	memcpy(first + SNAPSHOT_SEALED_BYTES, block, SNAPSHOT_SEALED_BYTES);
	assert_refused(&rig, &key, &reference, bytes, reference.bytes); /* exchanged */
	memcpy(first + SNAPSHOT_SEALED_BYTES, first, SNAPSHOT_SEALED_BYTES);
	memcpy(first, block, SNAPSHOT_SEALED_BYTES);
	put_file(&rig, &reference, bytes, reference.bytes);
	assert_int_equal(read_with(&rig, &key, &reference, back), LONG_BYTES);
	free(bytes);
	rig_done(&rig);
}

static void test_a_file_is_one_snapshots_alone(void **state)
{
	const struct snapshot_key key = key_of("one", 1);
	const struct snapshot_key others[] = {key_of("one", 2), key_of("two", 1)};
	struct rig rig;
	struct snapshot_reference reference;
	struct snapshot_reference other;
	char back[2048];
	uint8_t *bytes;

	(void)state;
	rig_init(&rig);
	write_with(&rig, &key, "text", 4, &reference);
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		assert_int_equal(read_with(&rig, &others[i], &reference, back), -EBADMSG);
	bytes = get_file(&rig, &reference);
	assert_int_equal(id_random(&rig.snapshot), 0);
	write_with(&rig, &key, "more", 4, &other);
	assert_refused(&rig, &key, &other, bytes, reference.bytes);
	assert_int_equal(id_random(&rig.sandbox), 0);
	write_with(&rig, &key, "more", 4, &other);
	assert_refused(&rig, &key, &other, bytes, reference.bytes);
	assert_int_equal(read_with(&rig, &key, &reference, back), 4);
	free(bytes);
	rig_done(&rig);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_what_was_written_comes_back),
	cmocka_unit_test(test_a_large_one_goes_to_the_disk_in_pieces),
	cmocka_unit_test(test_what_is_not_whole_is_not_there),
	cmocka_unit_test(test_another_content_is_refused),
	cmocka_unit_test(test_names_of_others_are_no_references),
	cmocka_unit_test(test_objects_have_their_files_names),
	cmocka_unit_test(test_an_object_without_a_digest_is_not_empty),
	cmocka_unit_test(test_objects_of_the_platform_have_a_key_alone),
	cmocka_unit_test(test_parts_are_swept_and_other_files_stay),
	cmocka_unit_test(test_what_was_encrypted_comes_back),
	cmocka_unit_test(test_nothing_of_it_can_be_read_in_the_file),
	cmocka_unit_test(test_every_bit_counts),
	cmocka_unit_test(test_blocks_are_not_moved_cut_or_added),
	cmocka_unit_test(test_a_file_is_one_snapshots_alone),
};

TEST_MAIN_AFTER(sodium_init(), tests)
