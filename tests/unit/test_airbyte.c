#include <errno.h>
#include <string.h>

#include "supervisor/api/airbyte/airbyte.h"
#include "tests/lib/test.h"

#define ID "6F1c2d4e-77aa-4c0e-9a51-0d2f6a6f7b10"

static void test_airbyte_slug(void **state)
{
	static const struct {
		const char *name;
		const char *slug; /* NULL: refused */
	} rows[] = {
		{"Postgres \u2192 Iceberg (prod)", "postgres_iceberg_prod"},
		{"a/b",			    "a_b"                  },
		{"a\"\ntype: evil",                "a_type_evil"          },
		{"...x",			   "x"                    },
		{"\u2192",                         "airbyte_6f1c2d4e"     },
		{"   ",			    "airbyte_6f1c2d4e"     },
		{"orders.yaml",                    "orders_yaml"          },
		{"-rf",			    "rf"                   },
		{"",			       NULL                   },
		{"..",			     NULL                   },
		{"../../x",                        NULL                   },
		{"..\\x",			  NULL                   },
		{"a/../x",                         NULL                   },
		{"/x",			     NULL                   },
		{"\\\\srv\\x",                     NULL                   },
		{"C:\\x",			  NULL                   },
	};
	char slug[AIRBYTE_SLUG_BYTES];
	static char large[1024 * 1024];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		int r = airbyte_slug(rows[i].name, strlen(rows[i].name), ID, slug);

		assert_int_equal(r, rows[i].slug ? 0 : -EINVAL);
		if (rows[i].slug)
			assert_string_equal(slug, rows[i].slug);
	}
	assert_int_equal(airbyte_slug("a\0b", 3, ID, slug), -EINVAL);
	memset(large, 'X', sizeof(large));
	assert_int_equal(airbyte_slug(large, sizeof(large), ID, slug), 0);
	assert_int_equal(strlen(slug), AIRBYTE_SLUG_MAX);
	airbyte_slug_with_id(slug, ID);
	assert_string_equal(slug + AIRBYTE_SLUG_MAX, "_6f1c2d4e");
	airbyte_slug_with_id(slug, "--");
	assert_int_equal(strlen(slug), AIRBYTE_SLUG_MAX + 1);
}

static void expect_document(const struct airbyte_source *source, const struct api_config *config,
			    const char *expected)
{
	struct buf text = BUF_NULL(16 * 1024);

	assert_int_equal(airbyte_document(source, config, &text), 0);
	assert_string_equal(buf_text(&text), expected);
	buf_done(&text);
}

static void test_airbyte_document(void **state)
{
	static const char hostile[] = "a\"\ntype: evil\xe2\x80\xa8{{ env.X }}";
	static const struct api_config config = {.airbyte_prefix = "AIRBYTE_",
						 .airbyte_workspace = CONFIG_AIRBYTE_CLOUD};
	struct airbyte_source source = {"x", 1, ID};

	(void)state;
#define FRONT                                                                                      \
	"type: dagster_airbyte.AirbyteWorkspaceComponent\nattributes:\n  workspace:\n"             \
	"    workspace_id: \"{{ env.AIRBYTE_WORKSPACE_ID }}\"\n"                                   \
	"    client_id: \"{{ env.AIRBYTE_CLIENT_ID }}\"\n"                                         \
	"    client_secret: \"{{ env.AIRBYTE_CLIENT_SECRET }}\"\n  connection_selector:\n"
#define BACK                                                                                       \
	"requirements:\n  env:\n  - AIRBYTE_WORKSPACE_ID\n  - AIRBYTE_CLIENT_ID\n"                 \
	"  - AIRBYTE_CLIENT_SECRET\n"
	expect_document(&source, &config, FRONT "    by_id:\n    - \"" ID "\"\n" BACK);
	source = (struct airbyte_source){hostile, sizeof(hostile) - 1, "not an id"};
	expect_document(&source, &config,
			FRONT "    by_name:\n    - \"a\\\"\\ntype: evil\\L{{ env.X }}\"\n" BACK);
}

static void test_airbyte_document_needs_a_name_or_an_id(void **state)
{
	static const char large[AIRBYTE_NAME_MAX + 2] = {0};
	const struct airbyte_source sources[] = {
		{"",         0,                    ""},
		{"a\0b",     3,                    ""},
		{"\xff\xfe", 2,                    ""},
		{large,      AIRBYTE_NAME_MAX + 1, ""},
	};
	static const struct api_config config = {.airbyte_prefix = "AIRBYTE_"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(sources); i++) {
		struct buf text = BUF_NULL(16 * 1024);

		assert_int_equal(airbyte_document(&sources[i], &config, &text), -EINVAL);
		buf_done(&text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_airbyte_slug),
		cmocka_unit_test(test_airbyte_document),
		cmocka_unit_test(test_airbyte_document_needs_a_name_or_an_id),
	};
	int n_before = test_begin();

	return test_end(n_before, cmocka_run_group_tests(tests, NULL, NULL));
}
