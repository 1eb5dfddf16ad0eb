/*
 * The record of a session as another process may leave it: written in part, by another release, by
 * somebody else, or with values that cannot be.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/str.h"

#include "sandboxd/wire.h"
#include "supervisor/idblock.h"
#include "supervisor/record.h"
#include "tests/lib/test.h"

#define NAME "0f6a2c1e-5b7d-4c8a-9e3f-1a2b3c4d5e6f"
#define FILE NAME RECORD_SUFFIX

static struct record good_record(void)
{
	struct record record = {
		.magic = RECORD_MAGIC,
		.version = RECORD_VERSION,
		.size = sizeof(record),
		.instance = {'0',  '1', '2', '3', 'a', 'b', 'c', 'd'},
		.group_id = 4711,
		.born_at_us = 1,
		.id_base = 9 * IDBLOCK_SIZE,
		.state = RECORD_STATE_LIVE,
		.wire_version = WIRE_VERSION,
		.pid = 77,
		.release = "0.1.0",
		.plan =
			{
                             .magic = PLAN_MAGIC,
                             .version = PLAN_VERSION,
                             .size = sizeof(struct plan),
                             .tmpfs_bytes = 16u << 20,
                             .tmpfs_inodes = 1000,
                             .memory_bytes = 64u << 20,
                             .max_pids = 64,
                             .max_files = 1024,
                             .cpu_pct = 100,
                             .cpu_weight = 100,
                             .max_ptys = 4,
			     },
		.proof = {.shim_pid = 77, .id_base = 9 * IDBLOCK_SIZE},
	};
	struct id id;

	assert_int_equal(id_parse(NAME, &id), 0);
	memcpy(record.plan.session, id.bytes, ID_BYTES);
	return record;
}

static void put(const struct test_temp *temp, const void *data, size_t size)
{
	AUTO_CLOSE int fd = openat(temp->fd, FILE, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, size), (ssize_t)size);
}

static int read_back(const struct test_temp *temp, const void *data, size_t size)
{
	struct record record;

	put(temp, data, size);
	return record_read(temp->fd, NAME, &record);
}

static void test_record_written_is_read(void **state)
{
	struct test_temp temp;
	struct record record = good_record();
	struct record found;
	struct stat st;
	int fd;

	(void)state;
	test_temp_init(&temp);
	record.state = RECORD_STATE_STARTING;
	record.pid = 0;
	fd = record_write(temp.fd, NAME, &record);
	assert_true(fd >= 0);
	assert_int_equal(fstatat(temp.fd, FILE, &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(record_read(temp.fd, NAME, &found), 0);
	assert_memory_equal(&found, &record, sizeof(record));
	record = good_record();
	assert_int_equal(record_rewrite(fd, &record), 0);
	(void)fd_close(fd);
	assert_int_equal(record_read(temp.fd, NAME, &found), 0);
	assert_memory_equal(&found, &record, sizeof(record));
	/* Somebody's: not overwritten, and nothing of the attempt is left. */
	assert_int_equal(record_write(temp.fd, NAME, &record), -EEXIST);
	assert_int_equal(faccessat(temp.fd, NAME RECORD_REST, F_OK, 0), -1);
	record_remove(temp.fd, NAME);
	assert_int_equal(record_read(temp.fd, NAME, &found), -ENOENT);
	record_remove(temp.fd, NAME);
	test_temp_done(&temp);
}

static void test_record_every_shorter_or_longer_file_is_refused(void **state)
{
	struct test_temp temp;
	struct record record = good_record();
	uint8_t bytes[sizeof(record) + 1] = {0};

	(void)state;
	test_temp_init(&temp);
	memcpy(bytes, &record, sizeof(record));
	for (size_t size = 0; size < sizeof(record); size++)
		assert_int_equal(read_back(&temp, bytes, size), -EINVAL);
	assert_int_equal(read_back(&temp, bytes, sizeof(record)), 0);
	assert_int_equal(read_back(&temp, bytes, sizeof(bytes)), -EINVAL);
	test_temp_done(&temp);
}

/* Of another release, whatever its size is: told apart from what is broken. */
static void test_record_of_another_version(void **state)
{
	struct test_temp temp;
	struct record record = good_record();
	uint8_t bytes[4096] = {0};

	(void)state;
	test_temp_init(&temp);
	record.version = RECORD_VERSION + 1;
	memcpy(bytes, &record, sizeof(record));
	assert_int_equal(read_back(&temp, bytes, sizeof(bytes)), -EPROTO);
	assert_int_equal(read_back(&temp, bytes, 8), -EPROTO);
	record = good_record();
	record.wire_version++;
	memcpy(bytes, &record, sizeof(record));
	assert_int_equal(read_back(&temp, bytes, sizeof(record)), -EPROTO);
	record.magic ^= 1;
	memcpy(bytes, &record, sizeof(record));
	assert_int_equal(read_back(&temp, bytes, sizeof(bytes)), -EINVAL);
	test_temp_done(&temp);
}

static void expect_refused(const struct test_temp *temp, const struct record *record)
{
	assert_int_equal(read_back(temp, record, sizeof(*record)), -EINVAL);
}

#define REFUSED(member, value)                                                                     \
	do {                                                                                       \
		struct record bad_ = good_record();                                                \
		bad_.member = (value);                                                             \
		expect_refused(&temp, &bad_);                                                      \
	} while (0)

static void test_record_values_out_of_range_are_refused(void **state)
{
	struct test_temp temp;

	(void)state;
	test_temp_init(&temp);
	REFUSED(size, sizeof(struct record) - 8);
	REFUSED(instance[0], 'g');
	REFUSED(instance[7], '\0');
	REFUSED(group_id, 0);
	REFUSED(born_at_us, UINT64_MAX);
	REFUSED(id_base, 0);
	REFUSED(id_base, 9 * IDBLOCK_SIZE + 1);
	REFUSED(id_base, 10 * IDBLOCK_SIZE); /* not what was proven */
	REFUSED(id_base, (IDBLOCK_LAST + 1) * IDBLOCK_SIZE);
	REFUSED(state, 0);
	REFUSED(state, RECORD_STATE_STARTING); /* with a pid */
	REFUSED(state, 3);
	REFUSED(pid, 1);
	REFUSED(pid, -1);
	REFUSED(pid, 78); /* not what was proven */
	REFUSED(release[0], '\0');
	REFUSED(release[1], '\n');
	REFUSED(release[RECORD_RELEASE_BYTES - 1], 'x');
	REFUSED(plan.magic, 0);
	REFUSED(plan.session[0], 0); /* another session's */
	REFUSED(plan.memory_bytes, 0);
	REFUSED(plan.max_pids, PLAN_PIDS_MAX + 1);
	test_temp_done(&temp);
}

static void test_record_that_is_not_ours_alone_is_refused(void **state)
{
	struct test_temp temp;
	struct record record = good_record();
	struct record found;

	(void)state;
	test_temp_init(&temp);
	put(&temp, &record, sizeof(record));
	assert_int_equal(fchmodat(temp.fd, FILE, 0640, 0), 0);
	assert_int_equal(record_read(temp.fd, NAME, &found), -EPERM);
	assert_int_equal(fchmodat(temp.fd, FILE, 0600, 0), 0);
	assert_int_equal(record_read(temp.fd, NAME, &found), 0);
	assert_int_equal(linkat(temp.fd, FILE, temp.fd, "other", 0), 0);
	assert_int_equal(record_read(temp.fd, NAME, &found), -EPERM);
	assert_int_equal(unlinkat(temp.fd, FILE, 0), 0);
	assert_int_equal(symlinkat("other", temp.fd, FILE), 0);
	assert_int_equal(record_read(temp.fd, NAME, &found), -EPERM);
	assert_int_equal(unlinkat(temp.fd, FILE, 0), 0);
	assert_int_equal(mkfifoat(temp.fd, FILE, 0600), 0);
	assert_int_equal(record_read(temp.fd, NAME, &found), -EPERM);
	assert_int_equal(unlinkat(temp.fd, FILE, 0), 0);
	assert_int_equal(mkdirat(temp.fd, FILE, 0700), 0);
	assert_true(record_read(temp.fd, NAME, &found) < 0);
	test_temp_done(&temp);
}

/* Whatever the bytes are: an answer, never a record that the checks would not have passed. */
static void test_record_random_changes(void **state)
{
	struct test_random random = TEST_RANDOM(20261129);
	struct test_temp temp;

	(void)state;
	test_temp_init(&temp);
	for (int i = 0; i < 2000; i++) {
		struct record record = good_record();
		uint8_t *bytes = (uint8_t *)&record;
		int r;

		for (uint32_t n = 1 + test_random_below(&random, 4); n > 0; n--)
			bytes[test_random_below(&random, sizeof(record))] ^=
				(uint8_t)(1 + test_random_below(&random, 255));
		r = read_back(&temp, &record, sizeof(record));
		assert_true(r == 0 || r == -EINVAL || r == -EPROTO);
	}
	test_temp_done(&temp);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_record_written_is_read),
		cmocka_unit_test(test_record_every_shorter_or_longer_file_is_refused),
		cmocka_unit_test(test_record_of_another_version),
		cmocka_unit_test(test_record_values_out_of_range_are_refused),
		cmocka_unit_test(test_record_that_is_not_ours_alone_is_refused),
		cmocka_unit_test(test_record_random_changes),
	};
	int n_before = test_begin();

	return test_end(n_before, cmocka_run_group_tests(tests, NULL, NULL));
}
