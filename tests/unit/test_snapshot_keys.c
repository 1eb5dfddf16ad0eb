/*
 * Which key writes and which reads, and that none is another organisation's.
 */
#include <errno.h>
#include <sodium.h>
#include <string.h>

#include "base/str.h"

#include "supervisor/api/store/snapshot_keys.h"
#include "supervisor/config/option_key.h"
#include "tests/lib/test.h"

#define KEY_A "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define KEY_B "ff112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static const struct snapshot_organization blue = {QUOTA_SCOPE_WORKSPACE, "blue"};
static const struct snapshot_organization green = {QUOTA_SCOPE_WORKSPACE, "green"};
static const struct snapshot_organization ana = {QUOTA_SCOPE_OWNER, "ana"};
static const struct snapshot_organization blue_owner = {QUOTA_SCOPE_OWNER, "blue"};

static int add(struct snapshot_key_list *list, const char *entry)
{
	return option_key_add(entry, strlen(entry), list);
}

static struct snapshot_keys *keys_of(const char *const entries[])
{
	static struct snapshot_key_list list; /* big for a stack */
	struct snapshot_keys *keys;

	memset(&list, 0, sizeof(list));
	for (size_t i = 0; entries[i]; i++)
		assert_int_equal(add(&list, entries[i]), 0);
	assert_int_equal(snapshot_keys_new(&list, &keys), 0);
	assert_true(sodium_is_zero((const uint8_t *)&list, sizeof(list)));
	return keys;
}

static void test_option_key_add_takes_only_the_form(void **state)
{
	static const char *const wrong[] = {
		"",
		"*",
		"*=",
		"*=one",
		"*=one:",
		"*=one:00",
		"*=:" KEY_A,
		"=one:" KEY_A,
		"blue=one:" KEY_A,
		"workspace:=one:" KEY_A,
		"owner:=one:" KEY_A,
		"owner:a b=one:" KEY_A,
		"owner:a/b=one:" KEY_A,
		"owner:a234567890123456789012345678901234567=one:" KEY_A,
		"**=one:" KEY_A,
		"*=o/ne:" KEY_A,
		"*=a23456789012345678901234:" KEY_A,
		"*=one:" KEY_A "0",
		"*=one:g0112233445566778899aabbccddeeff00112233445566778899aabbccddeeff",
	};
	static struct snapshot_key_list list;
	char entry[128];

	(void)state;
	memset(&list, 0, sizeof(list));
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		assert_int_equal(add(&list, wrong[i]), -EINVAL);
	assert_int_equal(list.n, 0);
	assert_int_equal(add(&list, "workspace:user:a@b=one:" KEY_A), 0);
	assert_string_equal(list.key[0].name, "user:a@b");
	assert_int_equal(list.key[0].key[1], 0x11);
	assert_int_equal(add(&list, "*=upper:A0112233445566778899AABBCCDDEEFF"
				    "00112233445566778899aabbccddeeff"),
			 0);
	assert_int_equal(list.key[1].key[10], 0xaa);
	assert_int_equal(add(&list, "*=one:" KEY_B), -EINVAL); /* an id that is taken */
	for (unsigned int i = list.n; i < SNAPSHOT_KEYS_MAX; i++) {
		assert_int_equal(str_format(entry, sizeof(entry), "*=k%u:" KEY_A, i), 0);
		assert_int_equal(add(&list, entry), 0);
	}
	assert_int_equal(add(&list, "*=last:" KEY_A), -EINVAL);
}

static void assert_newest(const struct snapshot_keys *keys,
			  const struct snapshot_organization *organization, const char *id)
{
	struct snapshot_key key;
	struct snapshot_key found;

	if (!id) {
		assert_int_equal(snapshot_keys_newest(keys, organization, &key), -ENOKEY);
		return;
	}
	assert_int_equal(snapshot_keys_newest(keys, organization, &key), 0);
	assert_string_equal(key.id, id);
	assert_int_equal(snapshot_keys_find(keys, organization, id, &found), 0);
	assert_memory_equal(&found, &key, sizeof(key));
}

static void test_snapshot_keys_newest_is_the_last_of_its_own(void **state)
{
	static const char *const none[] = {NULL};
	static const char *const own[] = {"workspace:blue=b1:" KEY_A, "owner:ana=a1:" KEY_A,
					  "workspace:blue=b2:" KEY_B, NULL};
	static const char *const all[] = {"*=e1:" KEY_A, "workspace:blue=b1:" KEY_A, "*=e2:" KEY_B,
					  NULL};
	struct snapshot_keys *keys = keys_of(none);
	struct snapshot_key key;

	(void)state;
	assert_newest(keys, &blue, NULL);
	keys = snapshot_keys_free(keys);
	keys = keys_of(own);
	assert_newest(keys, &blue, "b2");
	assert_newest(keys, &ana, "a1");
	assert_newest(keys, &green, NULL);
	assert_newest(keys, &blue_owner, NULL); /* the same name, another kind */
	assert_int_equal(snapshot_keys_find(keys, &blue, "b1", &key), 0);
	assert_int_equal(snapshot_keys_find(keys, &blue, "a1", &key), -ENOKEY);
	assert_int_equal(snapshot_keys_find(keys, &green, "b1", &key), -ENOKEY);
	keys = snapshot_keys_free(keys);
	keys = keys_of(all);
	assert_newest(keys, &blue, "b1");
	assert_newest(keys, &green, "e2");
	assert_int_equal(snapshot_keys_find(keys, &blue, "e1", &key), 0);
	assert_null(snapshot_keys_free(keys));
	assert_null(snapshot_keys_free(NULL));
}

static void test_snapshot_keys_differ_by_organization(void **state)
{
	static const char *const entries[] = {"*=e:" KEY_A, "workspace:blue=b:" KEY_B,
					      "workspace:green=g:" KEY_B, NULL};
	static const struct snapshot_organization *const everybody[] = {&blue, &green, &ana,
									&blue_owner};
	struct snapshot_keys *keys = keys_of(entries);
	struct snapshot_key key[ARRAY_SIZE(everybody)];
	struct snapshot_key own;
	struct snapshot_key other;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(everybody); i++) {
		assert_int_equal(snapshot_keys_find(keys, everybody[i], "e", &key[i]), 0);
		for (size_t j = 0; j < i; j++)
			assert_memory_not_equal(key[i].bytes, key[j].bytes, sizeof(own.bytes));
	}
	assert_int_equal(snapshot_keys_find(keys, &blue, "b", &own), 0);
	assert_int_equal(snapshot_keys_find(keys, &green, "g", &other), 0);
	assert_memory_not_equal(own.bytes, other.bytes, sizeof(own.bytes));
	assert_null(snapshot_keys_free(keys));
}

/* Files that are there stay readable: what is made of a key does not change with the code. */
static void test_snapshot_keys_stay_what_they_are(void **state)
{
	static const char *const entries[] = {"*=e:" KEY_A, NULL};
	struct snapshot_keys *keys = keys_of(entries);
	struct snapshot_key key;
	char text[2 * SNAPSHOT_KEY_BYTES + 1];

	(void)state;
	assert_int_equal(snapshot_keys_find(keys, &blue, "e", &key), 0);
	assert_string_equal(sodium_bin2hex(text, sizeof(text), key.bytes, sizeof(key.bytes)),
			    "bfeee46bf327812b94b538b89480c30e47dbf58f71cf56042b676ed089b6748c");
	assert_null(snapshot_keys_free(keys));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_option_key_add_takes_only_the_form),
	cmocka_unit_test(test_snapshot_keys_newest_is_the_last_of_its_own),
	cmocka_unit_test(test_snapshot_keys_differ_by_organization),
	cmocka_unit_test(test_snapshot_keys_stay_what_they_are),
};

TEST_MAIN_AFTER(sodium_init(), tests)
