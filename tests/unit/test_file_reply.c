/*
 * What a shim says that a file operation found: it may say anything.
 */
#include <string.h>
#include <sys/stat.h>

#include "supervisor/api/file_reply.h"
#include "supervisor/api/http/routes.h"
#include "tests/lib/test.h"

const struct route_list routes_dagster;

static void say(struct buf *found, uint32_t mode, const char *name)
{
	const struct wire_file_entry entry = {.mode = mode, .name_bytes = (uint16_t)strlen(name)};

	assert_int_equal(buf_append(found, &entry, sizeof(entry)), 0);
	assert_int_equal(buf_append(found, name, strlen(name)), 0);
}

static void expect_list(const struct buf *found, bool is_cut, size_t n_entries, bool is_truncated)
{
	json_t *list = file_list_object(found, "/session", is_cut);

	assert_int_equal(json_array_size(json_object_get(list, "entries")), n_entries);
	assert_int_equal(json_is_true(json_object_get(list, "truncated")), is_truncated);
	json_decref(list);
}

static void test_a_list_of_one(void **state)
{
	struct buf found = BUF_NULL(4096);

	(void)state;
	say(&found, S_IFREG | 0644u, "one");
	expect_list(&found, false, 1, false);
	expect_list(&found, true, 1, true);
	say(&found, 0, "");
	expect_list(&found, false, 1, true);
	buf_done(&found);
}

static void test_a_list_has_an_end(void **state)
{
	struct buf found = BUF_NULL((size_t)16 * 1024 * 1024);

	(void)state;
	for (size_t i = 0; i < FILE_LIST_MAX; i++)
		say(&found, S_IFREG, "");
	expect_list(&found, false, FILE_LIST_MAX, false);
	for (size_t i = 0; i < (size_t)9 * FILE_LIST_MAX; i++)
		say(&found, S_IFREG, "");
	expect_list(&found, false, FILE_LIST_MAX, true);
	buf_done(&found);
}

static void test_a_list_that_breaks_off(void **state)
{
	struct buf found = BUF_NULL(4096);

	(void)state;
	say(&found, S_IFDIR, "whole");
	say(&found, S_IFDIR, "broken");
	found.size--;
	expect_list(&found, false, 1, false);
	buf_done(&found);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_a_list_of_one),
	cmocka_unit_test(test_a_list_has_an_end),
	cmocka_unit_test(test_a_list_that_breaks_off),
};

TEST_MAIN(tests)
