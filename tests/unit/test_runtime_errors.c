#include <stdio.h>
#include <string.h>

#include "base/auto.h"

#include "supervisor/api/http/runtime_errors.h"
#include "tests/lib/test.h"

static void test_runtime_error_row_is_whole(void **state)
{
	(void)state;
	for (int i = 0; i < RUNTIME_ERROR_MAX_; i++) {
		const struct runtime_error_row *row = runtime_error_row((enum runtime_error)i);

		assert_true(row->code && row->code[0] && row->detail && row->detail[0]);
		assert_true(row->status >= 400 && row->status < 600);
		/* Nobody is told to try again what can never be. */
		if (row->status == 403 || row->status == 404 || row->status == 422)
			assert_false(row->retryable);
		for (int j = 0; j < i; j++)
			assert_string_not_equal(row->code,
						runtime_error_row((enum runtime_error)j)->code);
	}
}

static void test_runtime_error_of_status_table(void **state)
{
	static const struct {
		int status;
		const char *code; /* NULL: none of the table's */
	} rows[] = {
		{400, NULL                  },
		{401, NULL                  },
		{403, "denied"              },
		{404, NULL                  },
		{409, "conflict"            },
		{413, NULL                  },
		{422, NULL                  },
		{429, "quota"               },
		{503, "provider_unavailable"},
		{501, "not_supported"       },
		{504, "timeout"             },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct runtime_error_row *row = runtime_error_of_status(rows[i].status);

		if (rows[i].code)
			assert_string_equal(row->code, rows[i].code);
		else
			assert_null(row);
	}
}

/* sandboxd-api(7) has the same rows. */
static void test_runtime_error_manual_has_each(void **state)
{
	static char page[512 * 1024];
	FILE *file = fopen(TEST_DATA_DIR "/../../docs/man/sandboxd-api.7", "re");
	size_t n_rows = 0;
	char line[160];

	(void)state;
	assert_non_null(file);
	assert_true(fread(page, 1, sizeof(page) - 1, file) > 0);
	(void)fclose(file);
	for (int i = 0; i < RUNTIME_ERROR_MAX_; i++) {
		const struct runtime_error_row *row = runtime_error_row((enum runtime_error)i);

		(void)snprintf(line, sizeof(line), "\n.It %s Ta %d Ta %s\n", row->code, row->status,
			       row->retryable ? "yes" : "no");
		if (!strstr(page, line))
			fail_msg("the manual has no line%s", line);
	}
	for (const char *at = page; (at = strstr(at, "\n.It ")); at++) {
		const char *end = strchr(at + 1, '\n');

		n_rows += strstr(at, " Ta yes\n") == end - 7 || strstr(at, " Ta no\n") == end - 6;
	}
	assert_int_equal(n_rows, RUNTIME_ERROR_MAX_);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_runtime_error_row_is_whole),
		cmocka_unit_test(test_runtime_error_of_status_table),
		cmocka_unit_test(test_runtime_error_manual_has_each),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
