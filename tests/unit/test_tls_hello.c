#include <string.h>

#include "supervisor/egress/tls_hello.h"
#include "tests/lib/test.h"

/* A hello with one cipher suite; `extensions` behind it with their length. */
static size_t make(uint8_t *data, const char *extensions, size_t size)
{
	size_t body = 2 + 32 + 1 + 4 + 2 + 2 + size;
	size_t at = 0;

	memset(data, 0, 512);
	data[at++] = 22;
	data[at++] = 3;
	data[at++] = 1;
	data[at++] = (uint8_t)((body + 4) >> 8);
	data[at++] = (uint8_t)(body + 4);
	data[at++] = 1;
	at++;
	data[at++] = (uint8_t)(body >> 8);
	data[at++] = (uint8_t)body;
	data[at++] = 3;
	data[at++] = 3;
	at += 32 + 1;
	data[at + 1] = 2;
	at += 4;
	data[at++] = 1;
	at++;
	data[at++] = (uint8_t)(size >> 8);
	data[at++] = (uint8_t)size;
	memcpy(data + at, extensions, size);
	return at + size;
}

static uint32_t verdict(const uint8_t *data, size_t size, char *ret_name)
{
	struct tls_hello hello;

	tls_hello_parse(data, size, &hello);
	if (ret_name)
		memcpy(ret_name, hello.name, sizeof(hello.name));
	return hello.verdict;
}

#define SNI      "\0\0\0\xa\0\x8\0\0\5a.com"
#define OTHER    "\0\x17\0\0"
#define OF(text) text, sizeof(text) - 1

static void test_tls_hello_parse_name(void **state)
{
	char name[HOST_NAME_BYTES + 2];
	uint8_t data[512];
	size_t size = make(data, OF(OTHER SNI OTHER));

	(void)state;
	assert_int_equal(verdict(data, size, name), TLS_NAME);
	assert_string_equal(name, "a.com");
	for (size_t i = 1; i < size; i++)
		assert_int_equal(verdict(data, i, NULL), TLS_MORE);
	size = make(data, OF(OTHER));
	assert_int_equal(verdict(data, size, NULL), TLS_NO_NAME);
}

static void test_tls_hello_parse_split_over_records(void **state)
{
	char name[HOST_NAME_BYTES + 2];
	uint8_t data[512], split[4096];
	size_t size = make(data, OF(SNI));
	size_t used = 0;

	(void)state;
	for (size_t i = 5; i < size; i++) {
		memcpy(split + used, "\x16\3\3\0\1", 5);
		split[used + 5] = data[i];
		used += 6;
	}
	assert_int_equal(verdict(split, used, name), TLS_NAME);
	assert_string_equal(name, "a.com");
	assert_int_equal(verdict(split, used - 1, NULL), TLS_MORE);
}

/* The verdict is the same however much of it came with the hello. */
static void test_tls_hello_parse_early_data(void **state)
{
	static const char *const next[] = {"\x14\3\3\0\1\1", "\x17\3\3\0\1\7", "\x16\3\1\0\1\1"};
	char name[HOST_NAME_BYTES + 2];
	uint8_t data[512];
	size_t size = make(data, OF(SNI));

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(next); i++) {
		memcpy(data + size, next[i], 6);
		for (size_t j = 0; j <= 6; j++) {
			assert_int_equal(verdict(data, size + j, name), TLS_NAME);
			assert_string_equal(name, "a.com");
		}
	}
}

static void test_tls_hello_parse_refuses(void **state)
{
	static const struct {
		const char *extensions;
		size_t size;
	} bad[] = {
		{OF(SNI SNI)},                                  /* two extensions */
		{OF("\0\0\0\x12\0\x10\0\0\5a.com\0\0\5b.com")}, /* two names */
		{OF("\0\0\0\xa\0\x8\1\0\5a.com")},              /* of another type */
		{OF("\0\0\0\xa\0\x8\0\0\5a.c\0m")},             /* NUL */
		{OF("\0\0\0\xa\0\x8\0\0\5a_com")},
		{OF("\0\0\0\xa\0\x8\0\0\7"
		    "1.2.3")},
		{OF("\0\0\0\5\0\3\0\0\0")}, /* empty */
		{OF("\0\0\0\0")},
		{OF("\0\0\0\x20")},
		{OF("\0\0\0")},
	};
	uint8_t data[512];
	size_t size;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		size = make(data, bad[i].extensions, bad[i].size);
		assert_int_equal(verdict(data, size, NULL), TLS_BAD);
	}
	size = make(data, OF(SNI));
	data[4]++; /* the record goes on behind the message, before any answer */
	assert_int_equal(verdict(data, size, NULL), TLS_BAD);
	assert_int_equal(verdict(data, size + 1, NULL), TLS_BAD);
	data[4]--;
	data[0] = 23;
	assert_int_equal(verdict(data, size, NULL), TLS_BAD);
	assert_int_equal(verdict((const uint8_t *)"GET / HTTP/1.1", 14, NULL), TLS_BAD);
	assert_int_equal(verdict((const uint8_t *)"\x16\3\1\0\0", 5, NULL), TLS_BAD);
	assert_int_equal(verdict((const uint8_t *)"\x16\3\1\0\4\1\xff\xff\xff", 9, NULL), TLS_BAD);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tls_hello_parse_name),
		cmocka_unit_test(test_tls_hello_parse_split_over_records),
		cmocka_unit_test(test_tls_hello_parse_early_data),
		cmocka_unit_test(test_tls_hello_parse_refuses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
