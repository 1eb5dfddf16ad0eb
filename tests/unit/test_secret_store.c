/*
 * The sealed store: what was written comes back; what was changed, cut off or put back fails by
 * name, and the rest stays usable.
 */
#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "supervisor/helper/secret_store.h"
#include "tests/lib/test.h"

static const struct secret_key key = {
	.bytes = {1, 2, 3}
};

static struct secret_row row_of(const char *name, const char *value)
{
	struct secret_row row = {.value_bytes = (uint32_t)strlen(value), .n_workspaces = 1};

	(void)strncpy(row.name, name, sizeof(row.name) - 1);
	(void)strncpy(row.variable, "TOKEN", sizeof(row.variable) - 1);
	(void)strncpy(row.workspace[0], "blue", sizeof(row.workspace[0]) - 1);
	return row;
}

/* The file after `put`; the old one is given back. */
static struct buf put(struct buf file, const char *name, const char *value)
{
	const struct secret_row row = row_of(name, value ? value : "none");
	const struct secret_change change = {name, value ? &row : NULL, (const uint8_t *)value};
	struct secret_store store;
	struct buf next = BUF_NULL(0);

	assert_int_equal(secret_store_open(&store, file.data, file.size, &key, 0), 0);
	assert_int_equal(secret_store_write(&store, SECRET_KEY_FILE, &change, &next, NULL), 0);
	secret_store_close(&store);
	buf_done(&file);
	return next;
}

static struct buf three(void)
{
	struct buf file = BUF_NULL(0);

	file = put(file, "one", "first value");
	file = put(file, "two", "second value");
	return put(file, "three", "third value");
}

/* 0 and the value, or the error of the step that fails. */
static int get(const struct buf *file, uint64_t oldest, const char *name, char *value)
{
	struct secret_store store;
	struct secret_row row;
	uint32_t place;
	int r;

	r = secret_store_open(&store, file->data, file->size, &key, oldest);
	if (r == 0)
		r = secret_store_find(&store, name, &place, &row);
	if (r == 0)
		r = secret_store_unseal(&store, &row, (uint8_t *)value);
	if (r == 0)
		value[row.value_bytes] = '\0';
	secret_store_close(&store);
	return r;
}

static void expect(const struct buf *file, const char *name, const char *value)
{
	char got[64];

	assert_int_equal(get(file, 0, name, got), 0);
	assert_string_equal(got, value);
}

static void test_store_gives_back_what_was_put(void **state)
{
	struct buf file = three();
	char value[64];

	(void)state;
	expect(&file, "one", "first value");
	expect(&file, "three", "third value");
	file = put(file, "two", "another");
	expect(&file, "two", "another");
	expect(&file, "one", "first value");
	file = put(file, "one", NULL);
	assert_int_equal(get(&file, 0, "one", value), -ENOENT);
	expect(&file, "three", "third value");
	assert_null(memmem(file.data, file.size, "third", 5));
	buf_done(&file);
}

static void test_store_with_another_key_is_refused(void **state)
{
	const struct secret_key other = {.bytes = {9}};
	struct buf file = three();
	struct secret_store store;

	(void)state;
	assert_int_equal(secret_store_open(&store, file.data, file.size, &other, 0), -EBADMSG);
	secret_store_close(&store);
	buf_done(&file);
}

/* Each byte of the file: whatever it is of, no other value comes out of it. */
static void test_store_with_a_changed_byte_gives_no_other_value(void **state)
{
	static const char *const names[] = {"one", "two", "three"};
	static const char *const values[] = {"first value", "second value", "third value"};
	struct buf file = three();
	char value[64];

	(void)state;
	for (size_t at = 0; at < file.size; at += at < 200 ? 1 : 13) {
		size_t wrong = 0;

		file.data[at] ^= 0x20;
		for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
			int r = get(&file, 0, names[i], value);

			if (r == 0)
				assert_string_equal(value, values[i]);
			else
				wrong++;
		}
		/* Behind the header one entry is lost, not all. */
		assert_true(at < sizeof(struct secret_store_header) ? wrong == 3 : wrong == 1);
		file.data[at] ^= 0x20;
	}
	buf_done(&file);
}

static void test_store_cut_off_loses_what_is_behind(void **state)
{
	struct buf file = three();
	char value[64];
	int r;

	(void)state;
	file.size -= strlen("third value");
	expect(&file, "one", "first value");
	expect(&file, "two", "second value");
	assert_int_equal(get(&file, 0, "three", value), -EBADMSG);
	for (; file.size > 0; file.size--) {
		r = get(&file, 0, "one", value);
		assert_true(r == 0 || r == -EBADMSG || r == -ENOENT);
	}
	/* Where a store was, none is no empty store. */
	assert_int_equal(get(&file, 3, "one", value), -ESTALE);
	buf_done(&file);
}

static void test_store_entry_put_back_fails_by_name(void **state)
{
	struct buf old = put(BUF_NULL(0), "one", "an older value");
	struct buf file = put(BUF_NULL(0), "one", "an older value");
	char value[64];

	(void)state;
	file = put(file, "one", "the new values");
	expect(&file, "one", "the new values");
	/* Row and value of the older file, header of the newer. */
	assert_int_equal(file.size, old.size);
	memcpy(file.data + sizeof(struct secret_store_header),
	       old.data + sizeof(struct secret_store_header),
	       old.size - sizeof(struct secret_store_header));
	assert_int_equal(get(&file, 0, "one", value), -EBADMSG);
	/* The whole older file. */
	assert_int_equal(get(&old, 1, "one", value), 0);
	assert_int_equal(get(&old, 2, "one", value), -ESTALE);
	buf_done(&old);
	buf_done(&file);
}

/* Several damaged ones: each stays damaged by its name, and nothing else is kept from a change. */
static void test_store_with_damaged_entries_takes_others(void **state)
{
	struct buf file = three();
	char value[64];

	(void)state;
	file.data[sizeof(struct secret_store_header) + offsetof(struct secret_row, flags)] ^= 1;
	file.data[sizeof(struct secret_store_header) + sizeof(struct secret_row) +
		  offsetof(struct secret_row, flags)] ^= 1;
	file = put(file, "four", "fourth value");
	expect(&file, "three", "third value");
	expect(&file, "four", "fourth value");
	assert_int_equal(get(&file, 0, "one", value), -EBADMSG);
	assert_int_equal(get(&file, 0, "two", value), -EBADMSG);
	file = put(file, "one", NULL);
	file = put(file, "two", "another");
	assert_int_equal(get(&file, 0, "one", value), -ENOENT);
	expect(&file, "two", "another");
	expect(&file, "three", "third value");
	buf_done(&file);
}

static void test_row_is_usable_by_its_workspaces_only(void **state)
{
	const struct secret_row row = row_of("one", "value");
	struct secret_row none = row;
	struct secret_request request = {.workspace = "blue"};

	(void)state;
	none.n_workspaces = 0;
	assert_true(secret_row_usable(&row, &request));
	assert_false(secret_row_usable(&none, &request));
	(void)strncpy(request.workspace, "red", sizeof(request.workspace) - 1);
	assert_false(secret_row_usable(&row, &request));
	memset(request.workspace, 0, sizeof(request.workspace));
	assert_false(secret_row_usable(&row, &request));
	assert_false(secret_row_usable(&none, &request));
	request.flags = SECRET_REQUEST_OPERATOR;
	assert_true(secret_row_usable(&none, &request));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_store_gives_back_what_was_put),
	cmocka_unit_test(test_store_with_another_key_is_refused),
	cmocka_unit_test(test_store_with_a_changed_byte_gives_no_other_value),
	cmocka_unit_test(test_store_cut_off_loses_what_is_behind),
	cmocka_unit_test(test_store_entry_put_back_fails_by_name),
	cmocka_unit_test(test_store_with_damaged_entries_takes_others),
	cmocka_unit_test(test_row_is_usable_by_its_workspaces_only),
};

TEST_MAIN_AFTER(sodium_init(), tests)
