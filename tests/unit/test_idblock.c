#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/str.h"

#include "sandboxd/limits.h"
#include "supervisor/idblock.h"
#include "tests/lib/test.h"

/* Leaves blocks 8, 9 and 10 only, so that a test can use them up. */
#define ALL_BUT_THREE "x:720896:1878261760\n"
#define BLOCK(n)      ((uint32_t)(n)*IDBLOCK_SIZE)

struct rig {
	struct test_temp temp;
	char file[96];
};

static void rig_init(struct rig *rig, const char *subuid)
{
	test_temp_init(&rig->temp);
	assert_int_equal(str_format(rig->file, sizeof(rig->file), "%s/blocks", rig->temp.path), 0);
	test_temp_write(&rig->temp, "subuid", subuid);
	test_temp_write(&rig->temp, "passwd", "root:x:0:0::/:/bin/sh\nbroken line\n");
}

static int open_as(const struct rig *rig, const char *instance, uint64_t group_id,
		   struct idblock *idblock)
{
	const struct idblock_options options = {
		.file = rig->file,
		.etc = rig->temp.path,
		.instance = instance,
		.group_id = group_id,
		.group_fd = -1,
	};

	return idblock_open(idblock, &options, NULL);
}

static void test_idblock_take_new_file_gives_first_blocks(void **state)
{
	struct rig rig;
	static struct idblock idblock;
	uint32_t base = 0;

	(void)state;
	rig_init(&rig, "");
	assert_int_equal(open_as(&rig, "aaaaaaaa", 1, &idblock), 0);
	assert_int_equal(idblock_take(&idblock, 1000, &base), 0);
	assert_int_equal(base, BLOCK(8));
	assert_int_equal(idblock_take(&idblock, 1000, &base), 0);
	assert_int_equal(base, BLOCK(9));
	idblock_done(&idblock);
	test_temp_done(&rig.temp);
}

static void test_idblock_take_listed_ids_are_skipped(void **state)
{
	struct rig rig;
	static struct idblock idblock;
	uint32_t base = 0;

	(void)state;
	/* Block 8 by its last id, block 10 by a group's id. */
	rig_init(&rig, "x:589823:1\n");
	test_temp_write(&rig.temp, "group", "g:x:655360:\n");
	assert_int_equal(open_as(&rig, "aaaaaaaa", 1, &idblock), 0);
	assert_false(idblock_usable(&idblock, 8));
	assert_true(idblock_usable(&idblock, 9));
	assert_false(idblock_usable(&idblock, 10));
	assert_false(idblock_usable(&idblock, 7));
	assert_false(idblock_usable(&idblock, IDBLOCK_LAST + 1));
	assert_int_equal(idblock_take(&idblock, 0, &base), 0);
	assert_int_equal(base, BLOCK(9));
	assert_int_equal(idblock_take(&idblock, 0, &base), 0);
	assert_int_equal(base, BLOCK(11));
	idblock_done(&idblock);
	test_temp_done(&rig.temp);
}

static void test_idblock_release_rests_and_returns_in_order(void **state)
{
	struct rig rig;
	static struct idblock idblock;
	uint32_t base[4] = {0};
	usec_t now = 100 * USEC_PER_SEC;

	(void)state;
	rig_init(&rig, ALL_BUT_THREE);
	assert_int_equal(open_as(&rig, "aaaaaaaa", 1, &idblock), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(idblock_take(&idblock, now, &base[i]), 0);
	assert_int_equal(idblock_take(&idblock, now, &base[3]), -EBUSY);
	idblock_release(&idblock, base[1], now);
	assert_int_equal(idblock_take(&idblock, now + IDBLOCK_QUARANTINE - 1, &base[3]), -EBUSY);
	idblock_release(&idblock, base[0], now + 1);
	/* Both have rested; the cursor is behind the last one, so the search begins in front. */
	assert_int_equal(idblock_take(&idblock, now + IDBLOCK_QUARANTINE + 1, &base[3]), 0);
	assert_int_equal(base[3], base[0]);
	assert_int_equal(idblock_take(&idblock, now + IDBLOCK_QUARANTINE + 1, &base[3]), 0);
	assert_int_equal(base[3], base[1]);
	idblock_done(&idblock);
	test_temp_done(&rig.temp);
}

static void test_idblock_take_two_instances_never_share(void **state)
{
	struct rig rig;
	static struct idblock a;
	static struct idblock b;
	uint32_t base = 0;

	(void)state;
	rig_init(&rig, ALL_BUT_THREE);
	assert_int_equal(open_as(&rig, "aaaaaaaa", 1, &a), 0);
	assert_int_equal(open_as(&rig, "bbbbbbbb", 2, &b), 0);
	assert_int_equal(idblock_take(&a, 0, &base), 0);
	assert_int_equal(idblock_take(&b, 0, &base), 0);
	assert_int_equal(base, BLOCK(9));
	/* What belongs to another instance is not released by mistake. */
	idblock_release(&a, base, 0);
	assert_int_equal(idblock_take(&a, IDBLOCK_QUARANTINE, &base), 0);
	assert_int_equal(base, BLOCK(10));
	assert_int_equal(idblock_take(&a, 2 * IDBLOCK_QUARANTINE, &base), -EBUSY);
	idblock_done(&a);
	idblock_done(&b);
	test_temp_done(&rig.temp);
}

static void test_idblock_release_all_keeps_one_and_others(void **state)
{
	struct rig rig;
	static struct idblock a;
	static struct idblock b;
	struct idblock_set kept = {{0}};
	uint32_t keep = 0;
	uint32_t base = 0;

	(void)state;
	rig_init(&rig, ALL_BUT_THREE);
	assert_int_equal(open_as(&rig, "aaaaaaaa", 1, &a), 0);
	assert_int_equal(open_as(&rig, "bbbbbbbb", 2, &b), 0);
	assert_int_equal(idblock_take(&a, 0, &keep), 0);
	assert_int_equal(idblock_take(&a, 0, &base), 0);
	assert_int_equal(idblock_take(&b, 0, &base), 0);
	idblock_set_add(&kept, keep);
	assert_int_equal(idblock_holds(&a, base), 0);
	assert_int_equal(idblock_holds(&b, base), 1);
	assert_int_equal(idblock_release_all(&a, &kept, 0), 0);
	assert_int_equal(idblock_holds(&a, keep), 1);
	assert_int_equal(idblock_holds(&a, keep + 1), 0);
	assert_int_equal(idblock_holds(&a, 0), 0);
	assert_int_equal(idblock_take(&a, IDBLOCK_QUARANTINE, &base), 0);
	assert_int_equal(base, BLOCK(9));
	assert_int_equal(idblock_take(&a, IDBLOCK_QUARANTINE, &base), -EBUSY);
	idblock_done(&a);
	idblock_done(&b);
	test_temp_done(&rig.temp);
}

/* More than are read at once. */
static void test_idblock_release_all_of_many(void **state)
{
	struct rig rig;
	static struct idblock owner[2];
	struct idblock_set kept = {{0}};
	uint32_t base[600] = {0};

	(void)state;
	rig_init(&rig, "");
	assert_int_equal(open_as(&rig, "aaaaaaaa", 1, &owner[0]), 0);
	assert_int_equal(open_as(&rig, "bbbbbbbb", 2, &owner[1]), 0);
	for (size_t i = 0; i < ARRAY_SIZE(base); i++) {
		assert_int_equal(idblock_take(&owner[i % 2], 0, &base[i]), 0);
		if (i % 10 == 0)
			idblock_set_add(&kept, base[i]);
	}
	assert_int_equal(idblock_release_all(&owner[0], &kept, 0), 0);
	for (size_t i = 0; i < ARRAY_SIZE(base); i++) {
		bool held = i % 2 == 1 || i % 10 == 0;

		assert_int_equal(idblock_holds(&owner[i % 2], base[i]), held);
	}
	idblock_done(&owner[0]);
	idblock_done(&owner[1]);
	test_temp_done(&rig.temp);
}

static void test_idblock_open_readable_by_others_is_refused(void **state)
{
	struct rig rig;
	static struct idblock idblock;

	(void)state;
	rig_init(&rig, "");
	test_temp_write(&rig.temp, "blocks", "");
	assert_int_equal(chmod(rig.file, 0644), 0);
	assert_int_equal(open_as(&rig, "aaaaaaaa", 1, &idblock), -EPERM);
	idblock_done(&idblock);
	test_temp_done(&rig.temp);
}

static void test_idblock_open_foreign_content_begins_empty(void **state)
{
	struct rig rig;
	static struct idblock idblock;
	uint32_t base = 0;

	(void)state;
	rig_init(&rig, "");
	test_temp_write(
		&rig.temp, "blocks",
		"something that is no table of blocks at all, and longer than a header of it");
	assert_int_equal(chmod(rig.file, 0600), 0);
	assert_int_equal(open_as(&rig, "aaaaaaaa", 1, &idblock), 0);
	assert_int_equal(idblock_take(&idblock, 0, &base), 0);
	assert_int_equal(base, BLOCK(8));
	idblock_done(&idblock);
	test_temp_done(&rig.temp);
}

/* A live instance of another release knows blocks that this one cannot read. */
static void test_idblock_open_other_version_is_refused(void **state)
{
	const uint32_t version = 99;
	struct rig rig;
	static struct idblock idblock;

	(void)state;
	rig_init(&rig, "");
	assert_int_equal(open_as(&rig, "aaaaaaaa", 1, &idblock), 0);
	assert_int_equal(pwrite(idblock.fd, &version, sizeof(version), 4), sizeof(version));
	idblock_done(&idblock);
	assert_int_equal(open_as(&rig, "bbbbbbbb", 2, &idblock), -EPROTO);
	idblock_done(&idblock);
	test_temp_done(&rig.temp);
}

static void test_idblock_take_does_not_wait_for_a_stuck_holder(void **state)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	struct rig rig;
	static struct idblock holder;
	static struct idblock idblock;
	uint32_t base = 0;

	(void)state;
	rig_init(&rig, "");
	assert_int_equal(open_as(&rig, "aaaaaaaa", 1, &holder), 0);
	assert_int_equal(open_as(&rig, "bbbbbbbb", 2, &idblock), 0);
	assert_int_equal(fcntl(holder.fd, F_OFD_SETLK, &lock), 0);
	assert_int_equal(idblock_take(&idblock, 0, &base), -ETIMEDOUT);
	idblock_done(&holder);
	assert_int_equal(idblock_take(&idblock, 0, &base), 0);
	idblock_done(&idblock);
	test_temp_done(&rig.temp);
}

/* What cannot be written now is written by the next call that gets the lock. */
static void test_idblock_release_under_another_lock_is_owed(void **state)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	struct flock unlock = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
	struct rig rig;
	static struct idblock holder;
	static struct idblock idblock;
	uint32_t base[3] = {0};

	(void)state;
	rig_init(&rig, "");
	assert_int_equal(open_as(&rig, "aaaaaaaa", 1, &holder), 0);
	assert_int_equal(open_as(&rig, "bbbbbbbb", 2, &idblock), 0);
	for (size_t i = 0; i < ARRAY_SIZE(base); i++)
		assert_int_equal(idblock_take(&idblock, 0, &base[i]), 0);
	assert_int_equal(idblock_settle(&idblock, 0), 0);
	assert_int_equal(fcntl(holder.fd, F_OFD_SETLK, &lock), 0);
	idblock_release(&idblock, base[0], 0);
	idblock_release(&idblock, base[1], 0);
	assert_int_equal(idblock_settle(&idblock, 0), -ETIMEDOUT);
	assert_int_equal(fcntl(holder.fd, F_OFD_SETLK, &unlock), 0);
	assert_int_equal(idblock_holds(&idblock, base[0]), 1);
	assert_int_equal(idblock_settle(&idblock, 0), 0);
	for (size_t i = 0; i < ARRAY_SIZE(base); i++)
		assert_int_equal(idblock_holds(&idblock, base[i]), i == 2);
	/* The last of them at the end. */
	assert_int_equal(fcntl(holder.fd, F_OFD_SETLK, &lock), 0);
	idblock_release(&idblock, base[2], 0);
	assert_int_equal(fcntl(holder.fd, F_OFD_SETLK, &unlock), 0);
	idblock_done(&idblock);
	assert_int_equal(open_as(&rig, "bbbbbbbb", 2, &idblock), 0);
	assert_int_equal(idblock_holds(&idblock, base[2]), 0);
	idblock_done(&idblock);
	idblock_done(&holder);
	test_temp_done(&rig.temp);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_idblock_take_new_file_gives_first_blocks),
		cmocka_unit_test(test_idblock_take_listed_ids_are_skipped),
		cmocka_unit_test(test_idblock_release_rests_and_returns_in_order),
		cmocka_unit_test(test_idblock_take_two_instances_never_share),
		cmocka_unit_test(test_idblock_release_all_keeps_one_and_others),
		cmocka_unit_test(test_idblock_release_all_of_many),
		cmocka_unit_test(test_idblock_open_readable_by_others_is_refused),
		cmocka_unit_test(test_idblock_open_foreign_content_begins_empty),
		cmocka_unit_test(test_idblock_open_other_version_is_refused),
		cmocka_unit_test(test_idblock_take_does_not_wait_for_a_stuck_holder),
		cmocka_unit_test(test_idblock_release_under_another_lock_is_owed),
	};
	int n_before = test_begin();

	return test_end(n_before, cmocka_run_group_tests(tests, NULL, NULL));
}
