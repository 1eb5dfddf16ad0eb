/*
 * Names, requests and records of secrets.
 */
#include <errno.h>
#include <string.h>

#include "base/secret.h"

#include "tests/lib/test.h"

static void test_secret_name_is_a_word(void **state)
{
	static const char *const good[] = {"a", "db.password", "A-1_b", "9"};
	static const char *const bad[] = {"", ".a", "-a", "_a", "a/b", "a b", "\xc3\xa4", "a\n"};
	char longest[SECRET_NAME_BYTES + 1];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		assert_true(secret_name_valid(good[i], strlen(good[i])));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_false(secret_name_valid(bad[i], strlen(bad[i])));
	memset(longest, 'a', sizeof(longest));
	assert_true(secret_name_valid(longest, 64));
	assert_false(secret_name_valid(longest, 65));
}

static void test_variable_that_programs_trust_is_refused(void **state)
{
	static const char *const bad[] = {"PATH", "HOME", "LD_PRELOAD", "LD_", "BASH_ENV",
					  "1A",   "a",    "",           "A-B", "SANDBOX_X"};

	(void)state;
	assert_true(variable_name_allowed("DB_PASSWORD", 11));
	assert_true(variable_name_allowed("_", 1));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_false(variable_name_allowed(bad[i], strlen(bad[i])));
}

static void test_secret_request_is_checked_to_the_last_byte(void **state)
{
	const struct secret_request good = {
		.n = 2, .workspace = "blue", .name = {"a", "b"}
        };
	struct secret_request request = good;

	(void)state;
	assert_int_equal(secret_request_check(&request), 0);
	assert_int_equal(secret_request_check(&(struct secret_request){0}), 0);
	request.n = SECRETS_SESSION_MAX + 1;
	assert_int_equal(secret_request_check(&request), -EPROTO);
	request = good;
	request.n = 1; /* a name behind the last */
	assert_int_equal(secret_request_check(&request), -EPROTO);
	request.n = 3; /* an empty name */
	assert_int_equal(secret_request_check(&request), -EPROTO);
	request = good;
	request.name[1][10] = 'x'; /* a byte behind the NUL */
	assert_int_equal(secret_request_check(&request), -EPROTO);
	request = good;
	memset(request.workspace, 'a', sizeof(request.workspace));
	assert_int_equal(secret_request_check(&request), -EPROTO);
	request = good;
	request.flags = 2;
	assert_int_equal(secret_request_check(&request), -EPROTO);
}

static size_t stream_of(uint8_t *data)
{
	const struct secret_record record = {
		.name_bytes = 2, .variable_bytes = 3, .value_bytes = 5};
	const struct secret_stream head = {.magic = SECRET_MAGIC,
					   .version = SECRET_VERSION,
					   .n = 1,
					   .bytes = sizeof(record) + 10};

	memcpy(data, &head, sizeof(head));
	memcpy(data + sizeof(head), &record, sizeof(record));
	memcpy(data + sizeof(head) + sizeof(record), "dbDB_value", 10);
	return sizeof(head) + sizeof(record) + 10;
}

static void test_secret_stream_is_split(void **state)
{
	struct secret_view views[SECRETS_SESSION_MAX];
	uint8_t data[64];
	size_t size = stream_of(data);
	size_t n = 0;

	(void)state;
	assert_int_equal(secret_stream_parse(data, size, views, &n), 0);
	assert_int_equal(n, 1);
	assert_memory_equal(views[0].name, "db", 2);
	assert_memory_equal(views[0].variable, "DB_", 3);
	assert_memory_equal(views[0].value, "value", 5);
	assert_int_equal(views[0].value_length, 5);
	for (size_t cut = 0; cut < size; cut++)
		assert_int_equal(secret_stream_parse(data, cut, views, &n), -EBADMSG);
	data[size] = 0;
	assert_int_equal(secret_stream_parse(data, size + 1, views, &n), -EBADMSG);
	data[size - 1] = '\0'; /* in a value */
	assert_int_equal(secret_stream_parse(data, size, views, &n), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_secret_name_is_a_word),
		cmocka_unit_test(test_variable_that_programs_trust_is_refused),
		cmocka_unit_test(test_secret_request_is_checked_to_the_last_byte),
		cmocka_unit_test(test_secret_stream_is_split),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
