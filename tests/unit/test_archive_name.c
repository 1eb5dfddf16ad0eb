/*
 * What an archive may call its entries, and which of a workspace are left out.
 */
#include <string.h>

#include "jail/archive/name.h"
#include "tests/lib/test.h"

static void test_normalize(void **state)
{
	static const struct {
		const char *name;
		const char *path; /* NULL: refused */
	} rows[] = {
		{"a/b",      "a/b"     },
		{"./a/b/",   "a/b"     },
		{"././a",    "a"       },
		{"a/...",    "a/..."   },
		{"\xff\xc3", "\xff\xc3"},
		{"",         NULL      },
		{".",        NULL      },
		{"./",       NULL      },
		{"/a",       NULL      },
		{".//a",     NULL      },
		{"..",       NULL      },
		{"a/../b",   NULL      },
		{"a/..",     NULL      },
		{"a//b",     NULL      },
		{"a/./b",    NULL      },
		{"a//",      NULL      },
		{"/",        NULL      },
	};
	char path[ARCHIVE_PATH_MAX + 1];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		int r = name_normalize(rows[i].name, path);

		assert_int_equal(r, rows[i].path ? ARCHIVE_E_NONE : ARCHIVE_E_NAME);
		if (rows[i].path)
			assert_string_equal(path, rows[i].path);
	}
}

static void test_below(void **state)
{
	static const char *const paths[] = {"session", "tmp/made"};

	(void)state;
	assert_true(name_is_below("session", paths, 2));
	assert_true(name_is_below("session/a", paths, 2));
	assert_true(name_is_below("tmp/made/a", paths, 2));
	assert_false(name_is_below("session-not", paths, 2));
	assert_false(name_is_below("tmp", paths, 2));
	assert_false(name_is_below("tmp/madeer", paths, 2));
	assert_false(name_is_below("", paths, 2));
}

static bool excluded(const char *path, const char *pattern)
{
	return name_is_excluded(path, &pattern, 1);
}

static void test_excluded(void **state)
{
	(void)state;
	assert_true(excluded("session/a/node_modules", "node_modules"));
	assert_true(excluded("session/x.o", "*.o"));
	assert_true(excluded("session/repo/src", "repo/src"));
	assert_true(excluded("session/target", "/session/target"));
	assert_false(excluded("session/sub/session/target", "/session/target"));
	assert_false(excluded("session/node_modules2", "node_modules"));
	assert_false(excluded("session/a/b.o", "session/*.o"));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_normalize),
	cmocka_unit_test(test_below),
	cmocka_unit_test(test_excluded),
};
TEST_MAIN(tests)
