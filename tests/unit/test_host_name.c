#include <errno.h>
#include <string.h>

#include "base/host_name.h"

#include "tests/lib/test.h"

static void test_host_name_canonical_one_form(void **state)
{
	static const char *const good[][2] = {
		{"example.com",       "example.com"      },
		{"ALLOWED.com.",      "allowed.com"      },
		{"polaris",           "polaris"          },
		{"xn--bcher-kva.de",  "xn--bcher-kva.de" },
		{"a-b.0x.c0m",        "a-b.0x.c0m"       },
		{"1.2.3.4.in.a.zone", "1.2.3.4.in.a.zone"},
		{"0xg",               "0xg"              },
		{"x",                 "x"                },
	};
	char name[HOST_NAME_BYTES];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		assert_int_equal(host_name_canonical(good[i][0], strlen(good[i][0]), name), 0);
		assert_string_equal(name, good[i][1]);
	}
}

static void test_host_name_canonical_refuses_never_repairs(void **state)
{
	static const struct {
		const char *text;
		size_t length;
	} bad[] = {
		{"",                  0 },
		{".",                 1 },
		{"..",                2 },
		{"a..b",              4 },
		{".a",                2 },
		{"a.b..",             5 },
		{"evil.com\0.ok.com", 16},
		{"ok.com\0",          7 },
		{"a b",               3 },
		{"a_b.c",             5 },
		{"a%2e.b",            6 },
		{"u@h",               3 },
		{"h:80",              4 },
		{"-a.b",              4 },
		{"a-.b",              4 },
		{"a.-",               3 },
		{"*.a.b",             5 },
		{"b\xc3\xbc.de",      6 },
		{"a\n",               2 },
		{"a\x7f",             2 },
		{"[::1]",             5 },
		{"::1",               3 },
		{"1.2.3.4",           7 },
		{"1.2.3.4.",          8 },
		{"2130706433",        10},
		{"0177.0.0.1",        10},
		{"0x7f000001",        10},
		{"127.0x1",           7 },
		{"a.0x",              4 },
		{"127.1",             5 },
	};
	char name[HOST_NAME_BYTES] = "untouched";

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(host_name_canonical(bad[i].text, bad[i].length, name), -EINVAL);
	assert_string_equal(name, "untouched");
}

static void test_host_name_canonical_lengths(void **state)
{
	char text[300];
	char name[HOST_NAME_BYTES];

	(void)state;
	memset(text, 'a', sizeof(text));
	assert_int_equal(host_name_canonical(text, 63, name), 0);
	assert_int_equal(host_name_canonical(text, 64, name), -EINVAL);
	for (size_t i = 49; i < sizeof(text); i += 50)
		text[i] = '.';
	assert_int_equal(host_name_canonical(text, 253, name), 0);
	assert_int_equal(strlen(name), 253);
	assert_int_equal(host_name_canonical(text, 254, name), -EINVAL);
	text[253] = '.';
	assert_int_equal(host_name_canonical(text, 254, name), 0); /* the dot is none of the 253 */
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_host_name_canonical_one_form),
		cmocka_unit_test(test_host_name_canonical_refuses_never_repairs),
		cmocka_unit_test(test_host_name_canonical_lengths),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
