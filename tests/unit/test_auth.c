#include <string.h>

#include "supervisor/api/http/auth.h"
#include "tests/lib/test.h"

static const struct api_config config = {
	.n_trusted_peers = 2,
	.trusted_peer = {0, 33},
	.header_user = "X-Sandbox-User",
	.header_workspace = "X-Sandbox-Workspace",
	.header_project = "X-Sandbox-Project",
	.header_scopes = "X-Sandbox-Scopes",
};

static void add(struct auth_headers *headers, const char *name, const char *value)
{
	auth_headers_add(headers, &config, name, value, value ? strlen(value) : 0);
}

static enum auth_result decide_one(const char *name, const char *value, struct identity *ret)
{
	struct auth_headers headers = {0};

	add(&headers, "X-Sandbox-User", "alice");
	add(&headers, name, value);
	return auth_decide(&headers, true, false, true, ret);
}

static void test_auth_decide_takes_a_well_formed_identity(void **state)
{
	struct auth_headers headers = {0};
	struct identity identity;

	(void)state;
	add(&headers, "Host", "x");
	add(&headers, "x-sandbox-user", "alice@example.com");
	add(&headers, "X-SANDBOX-WORKSPACE", "00000000-0000-0000-0000-000000000004");
	add(&headers, "X-Sandbox-Project", "p:1");
	add(&headers, "X-Sandbox-Scopes", "data:read  other data:write");
	assert_int_equal(auth_decide(&headers, true, false, true, &identity), AUTH_OK);
	assert_string_equal(identity.user, "alice@example.com");
	assert_string_equal(identity.workspace, "00000000-0000-0000-0000-000000000004");
	assert_string_equal(identity.project, "p:1");
	assert_false(identity.is_operator);
	assert_int_equal(auth_missing(&identity, AUTH_DATA_READ | AUTH_DATA_WRITE |
							 AUTH_SANDBOX_READ | AUTH_SANDBOX_WRITE),
			 0);
	assert_int_equal(auth_missing(&identity, AUTH_ADMIN), AUTH_ADMIN);
}

static void test_auth_decide_refuses_malformed_headers(void **state)
{
	static const struct {
		const char *name;
		const char *value;
	} bad[] = {
		{"X-Sandbox-User",      "bob"                                  }, /* the second */
		{"X-Sandbox-Workspace", ""                                     },
		{"X-Sandbox-Workspace", NULL                                   },
		{"X-Sandbox-Workspace", "a b"                                  },
		{"X-Sandbox-Workspace", "a,b"                                  },
		{"X-Sandbox-Workspace", "a/b"                                  },
		{"X-Sandbox-Workspace", "a\r\nb"                               },
		{"X-Sandbox-Workspace", "\xc3\xa9"                             },
		{"X-Sandbox-Workspace", "0123456789012345678901234567890123456"}, /* 37 */
		{"X-Sandbox-Scopes",    ""                                     },
		{"X-Sandbox-Scopes",    "data:read,data:write"                 },
		{"X-Sandbox-Scopes",    "data:read\tdata:write"                },
		{"X_Sandbox_User",      "root"                                 },
		{"x-sandbox_workspace", "w"                                    },
		{"X_SANDBOX-SCOPES",    "platform:admin"                       },
	};
	struct identity identity;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(decide_one(bad[i].name, bad[i].value, &identity), AUTH_BAD_HEADER);
}

static void test_auth_decide_bounds_are_exact(void **state)
{
	char scopes[IDENTITY_SCOPES_MAX + 2];
	struct identity identity;

	(void)state;
	assert_int_equal(decide_one("X-Sandbox-Workspace", "012345678901234567890123456789012345",
				    &identity),
			 AUTH_OK);
	memset(scopes, 'a', sizeof(scopes));
	scopes[IDENTITY_SCOPES_MAX] = '\0';
	assert_int_equal(decide_one("X-Sandbox-Scopes", scopes, &identity), AUTH_OK);
	assert_int_equal(identity.scopes, 0);
	scopes[IDENTITY_SCOPES_MAX] = 'a';
	scopes[IDENTITY_SCOPES_MAX + 1] = '\0';
	assert_int_equal(decide_one("X-Sandbox-Scopes", scopes, &identity), AUTH_BAD_HEADER);
}

static void test_auth_decide_nul_in_value_is_refused(void **state)
{
	struct auth_headers headers = {0};
	struct identity identity;

	(void)state;
	auth_headers_add(&headers, &config, "X-Sandbox-User", "ali\0ce", 6);
	assert_int_equal(auth_decide(&headers, true, false, true, &identity), AUTH_BAD_HEADER);
}

static void test_auth_decide_nobody_without_user(void **state)
{
	struct auth_headers headers = {0};
	struct identity identity;

	(void)state;
	assert_int_equal(auth_decide(&headers, true, false, true, &identity), AUTH_UNAUTHENTICATED);
	assert_int_equal(auth_decide(&headers, true, false, false, &identity), AUTH_OK);
	add(&headers, "X-Sandbox-Scopes", "platform:admin");
	assert_int_equal(auth_decide(&headers, true, false, true, &identity), AUTH_UNAUTHENTICATED);
}

static void test_auth_decide_untrusted_peer_is_nobody(void **state)
{
	struct auth_headers headers = {0};
	struct identity identity;

	(void)state;
	add(&headers, "X-Sandbox-User", "alice");
	assert_int_equal(auth_decide(&headers, false, false, true, &identity),
			 AUTH_UNAUTHENTICATED);
	assert_int_equal(auth_decide(&headers, false, false, false, &identity),
			 AUTH_UNAUTHENTICATED);
	/* What is malformed is so for everybody, and says nothing about who is trusted. */
	add(&headers, "X-Sandbox-User", "alice");
	assert_int_equal(auth_decide(&headers, false, false, true, &identity), AUTH_BAD_HEADER);
	assert_true(auth_peer_trusted(&config, 0));
	assert_true(auth_peer_trusted(&config, 33));
	assert_false(auth_peer_trusted(&config, 1000));
}

static void test_auth_decide_operator_takes_no_headers(void **state)
{
	struct auth_headers headers = {0};
	struct identity identity;

	(void)state;
	assert_int_equal(auth_decide(&headers, true, true, true, &identity), AUTH_OK);
	assert_true(identity.is_operator);
	assert_string_equal(identity.user, "operator");
	assert_int_equal(auth_missing(&identity, AUTH_ALL), 0);
	add(&headers, "X-Sandbox-Project", "p");
	assert_int_equal(auth_decide(&headers, true, true, true, &identity), AUTH_BAD_HEADER);
}

static void test_auth_missing_text_lists_exactly_the_missing(void **state)
{
	struct buf text = BUF_NULL(256);

	(void)state;
	assert_int_equal(auth_missing_text(AUTH_DATA_WRITE, &text), 0);
	assert_string_equal(buf_text(&text), "missing scope(s): ['data:write']");
	buf_reset(&text);
	assert_int_equal(auth_missing_text(AUTH_DATA_READ | AUTH_ADMIN, &text), 0);
	assert_string_equal(buf_text(&text), "missing scope(s): ['data:read', 'platform:admin']");
	buf_done(&text);
}

static void test_auth_scopes_none_implies_another(void **state)
{
	static const struct {
		const char *text;
		uint32_t scopes;
	} cases[] = {
		{"data:read",                     AUTH_DATA_READ | AUTH_SANDBOX_READ  },
		{"data:write",                    AUTH_DATA_WRITE | AUTH_SANDBOX_WRITE},
		{"sandbox:read",                  AUTH_SANDBOX_READ                   },
		{"sandbox:write",                 AUTH_SANDBOX_WRITE                  },
		{"platform:admin",                AUTH_ADMIN                          },
		{"data:rea data:readx DATA:READ", 0                                   },
		{" ",			     0				   },
	};
	struct identity identity;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(decide_one("X-Sandbox-Scopes", cases[i].text, &identity), AUTH_OK);
		assert_int_equal(identity.scopes, cases[i].scopes);
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_auth_decide_takes_a_well_formed_identity),
	cmocka_unit_test(test_auth_decide_refuses_malformed_headers),
	cmocka_unit_test(test_auth_decide_bounds_are_exact),
	cmocka_unit_test(test_auth_decide_nul_in_value_is_refused),
	cmocka_unit_test(test_auth_decide_nobody_without_user),
	cmocka_unit_test(test_auth_decide_untrusted_peer_is_nobody),
	cmocka_unit_test(test_auth_decide_operator_takes_no_headers),
	cmocka_unit_test(test_auth_missing_text_lists_exactly_the_missing),
	cmocka_unit_test(test_auth_scopes_none_implies_another),
};

TEST_MAIN(tests)
