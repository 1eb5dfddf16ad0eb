#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

#include "supervisor/api/session/component_name.h"
#include "supervisor/api/session/spec.h"
#include "tests/lib/test.h"

static int check(const char *name, enum component_name_mode mode, char file[COMPONENT_FILE_BYTES])
{
	return component_name_check(name, strlen(name), mode, file, NULL);
}

/* What the API answers for one row of the table: the body first, then the name. */
static int answer(const char *text, size_t size)
{
	struct spec_component spec = SPEC_COMPONENT_NULL;
	char file[COMPONENT_FILE_BYTES];
	json_t *errors = NULL;
	int status = 200;

	if (spec_parse_component(text, size, NULL, &spec, &errors) != 0) {
		json_decref(errors);
		return 422;
	}
	if (component_name_check(spec.name, spec.name_length, COMPONENT_NAME_STRICT, file, NULL))
		status = 400;
	spec_component_done(&spec);
	return status;
}

static size_t from_hex(const char *hex, char *dest)
{
	size_t n = 0;
	unsigned int byte;

	for (; hex[0] && hex[1] && sscanf(hex, "%2x", &byte) == 1; hex += 2)
		dest[n++] = (char)byte;
	return n;
}

static void test_component_name_table_of_hostile_names(void **state)
{
	FILE *file = fopen(TEST_DATA_DIR "/names.tsv", "re");
	static char line[4096];
	static char body[8192];
	int n_rows = 0;

	(void)state;
	assert_non_null(file);
	while (fgets(line, sizeof(line), file)) {
		static char raw[4096];
		char *status;
		char *name;
		size_t size;

		line[strcspn(line, "\n")] = '\0';
		if (line[0] == '#' || line[0] == '\0')
			continue;
		status = strchr(line, '\t');
		assert_non_null(status);
		*status++ = '\0';
		name = strchr(status, '\t');
		assert_non_null(name);
		*name++ = '\0';
		size = (size_t)snprintf(body, sizeof(body), "{\"name\":");
		if (str_has_prefix(name, "hex:")) {
			size_t n = from_hex(name + 4, raw);

			/* The bytes may stand with or without their quotes. */
			if (n > 0 && raw[0] != '"')
				body[size++] = '"';
			memcpy(body + size, raw, n);
			size += n;
			if (n > 0 && raw[n - 1] != '"')
				body[size++] = '"';
		} else {
			memcpy(body + size, name, strlen(name));
			size += strlen(name);
		}
		size += (size_t)snprintf(body + size, sizeof(body) - size,
					 ",\"body\":\"a: 1\\n\"}");
		if (answer(body, size) != atoi(status))
			fail_msg("row %s: %d, wanted %s", line, answer(body, size), status);
		n_rows++;
	}
	(void)fclose(file);
	assert_true(n_rows > 60);
}

static void test_component_name_check_suffix_is_cut_once_and_kept(void **state)
{
	static const struct {
		const char *name;
		const char *file;
	} cases[] = {
		{"demo",        "demo.yaml"   },
		{"demo.yaml",   "demo.yaml"   },
		{"demo.yml",    "demo.yml"    },
		{"a.YAML",      "a.YAML.yaml" },
		{"x.yaml.yaml", "x.yaml.yaml" },
		{"a.b-c_d",     "a.b-c_d.yaml"},
		{"0",           "0.yaml"      },
		{"console",     "console.yaml"},
		{"com10",       "com10.yaml"  },
		{"x.con",       "x.con.yaml"  },
	};
	char file[COMPONENT_FILE_BYTES];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(check(cases[i].name, COMPONENT_NAME_STRICT, file), 0);
		assert_string_equal(file, cases[i].file);
	}
}

static void test_component_name_check_length_limits(void **state)
{
	char name[COMPONENT_STEM_MAX + 8];
	char file[COMPONENT_FILE_BYTES];
	enum component_name_reason reason;

	(void)state;
	memset(name, 'x', sizeof(name));
	assert_int_equal(component_name_check(name, COMPONENT_STEM_MAX, COMPONENT_NAME_STRICT, file,
					      &reason),
			 0);
	assert_int_equal(strlen(file), COMPONENT_STEM_MAX + 5);
	assert_int_equal(component_name_check(name, COMPONENT_STEM_MAX + 1, COMPONENT_NAME_STRICT,
					      file, &reason),
			 COMPONENT_NAME_E_REFUSED);
	assert_int_equal(reason, COMPONENT_NAME_TOO_LONG);
}

static void test_component_name_check_refused_leaves_the_file_untouched(void **state)
{
	char file[COMPONENT_FILE_BYTES] = "before";

	(void)state;
	assert_int_equal(check("../x", COMPONENT_NAME_STRICT, file), COMPONENT_NAME_E_REFUSED);
	assert_string_equal(file, "before");
}

static void test_component_name_check_reasons(void **state)
{
	static const struct {
		const char *name;
		enum component_name_reason reason;
	} cases[] = {
		{"",         COMPONENT_NAME_EMPTY          },
		{".yaml",    COMPONENT_NAME_EMPTY          },
		{"a/b",      COMPONENT_NAME_SEPARATOR      },
		{"a\\b",     COMPONENT_NAME_SEPARATOR      },
		{"a\n",      COMPONENT_NAME_CONTROL        },
		{"\xc0\xaf", COMPONENT_NAME_ENCODING       },
		{".x",       COMPONENT_NAME_FIRST_CHARACTER},
		{"a b",      COMPONENT_NAME_CHARACTER      },
		{"a.",       COMPONENT_NAME_TRAILING       },
		{"x..yaml",  COMPONENT_NAME_TRAILING       },
		{"NuL.a",    COMPONENT_NAME_DEVICE         },
		{"lpt1",     COMPONENT_NAME_DEVICE         },
	};
	char file[COMPONENT_FILE_BYTES];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		enum component_name_reason reason = COMPONENT_NAME_OK;

		assert_int_equal(component_name_check(cases[i].name, strlen(cases[i].name),
						      COMPONENT_NAME_STRICT, file, &reason),
				 COMPONENT_NAME_E_REFUSED);
		assert_int_equal(reason, cases[i].reason);
		assert_true(strlen(component_name_reason_text(reason)) > 0);
	}
}

static void test_component_name_check_compatible_takes_parts_and_letters(void **state)
{
	static const char *const good[] = {"a/b",
					   "x/defs.yaml",
					   "a b",
					   "\xc3\xa9t\xc3\xa9",
					   "1/2/3/4/5/6/7/8",
					   "\xe4\xb8\xad\xe6\x96\x87"};
	static const char *const bad[] = {
		"a//b",
		"/a",
		"a/",
		"./a",
		"../a",
		"a/../b",
		"a\\b",
		"a:b",
		"1/2/3/4/5/6/7/8/9",
		"e\xcc\x81",                  /* combining accent */
		"\xef\xbc\x8e\xef\xbc\x8e/x", /* full-width dots */
		"\xe2\x80\xae"
		"a",             /* direction */
		"a\xe2\x80\x8b", /* invisible */
		"a\xe2\x88\x95"
		"b", /* looks like a slash */
		"a /b",
		"con/x",
		"x/con",
		"con .a",
		".a/b",
		"a/.b",
		"COM1.x/y",
	};
	char file[COMPONENT_FILE_BYTES];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		if (check(good[i], COMPONENT_NAME_COMPATIBLE, file) != 0)
			fail_msg("refused: %s", good[i]);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (check(bad[i], COMPONENT_NAME_COMPATIBLE, file) == 0)
			fail_msg("taken: %s", bad[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_component_name_table_of_hostile_names),
		cmocka_unit_test(test_component_name_check_suffix_is_cut_once_and_kept),
		cmocka_unit_test(test_component_name_check_length_limits),
		cmocka_unit_test(test_component_name_check_refused_leaves_the_file_untouched),
		cmocka_unit_test(test_component_name_check_reasons),
		cmocka_unit_test(test_component_name_check_compatible_takes_parts_and_letters),
	};
	int n_before = test_begin();

	return test_end(n_before, cmocka_run_group_tests(tests, NULL, NULL));
}
