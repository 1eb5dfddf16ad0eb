/*
 * Packet lines, and what of a push goes through.
 */
#include <string.h>

#include "jail/git/pkt.h"
#include "tests/lib/test.h"

#define ZERO "0000000000000000000000000000000000000000"
#define ONE  "1111111111111111111111111111111111111111"
#define MAIN "refs/heads/main"

static bool updates(const char *data, size_t size)
{
	return pkt_updates((const uint8_t *)data, size, MAIN, strlen(MAIN));
}
#define UPDATES(text) updates(text, sizeof(text) - 1)

static void test_head_reads_sizes_and_kinds(void **state)
{
	static const struct {
		const char *head;
		bool is_good;
		enum pkt_kind kind;
		size_t size;
	} rows[] = {
		{"0000", true,  PKT_FLUSH, 0    },
                {"0001", true,  PKT_OTHER, 0    },
		{"0002", true,  PKT_OTHER, 0    },
                {"0003", false, PKT_OTHER, 0    },
		{"0004", true,  PKT_DATA,  0    },
                {"000a", true,  PKT_DATA,  6    },
		{"FFf0", true,  PKT_DATA,  65516},
                {"fff1", false, PKT_DATA,  0    },
		{"-001", false, PKT_DATA,  0    },
                {"00 4", false, PKT_DATA,  0    },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		enum pkt_kind kind = PKT_DATA;
		size_t size = 0;

		assert_int_equal(pkt_head((const uint8_t *)rows[i].head, &kind, &size),
				 rows[i].is_good);
		if (!rows[i].is_good)
			continue;
		assert_int_equal(kind, rows[i].kind);
		assert_int_equal(size, rows[i].size);
	}
}

static void test_advertisement_is_found_with_and_without_service(void **state)
{
	const char with[] = "001e# service=git-upload-pack\n0000000eversion 2\n0000";
	const char without[] = "000eversion 2\n0000";
	const char cut[] = "001e# service=git-upload-pack\n00";
	const uint8_t *data = (const uint8_t *)with;
	size_t skip = pkt_service_bytes(data, sizeof(with) - 1, "git-upload-pack");

	(void)state;
	assert_int_equal(skip, 34);
	assert_true(pkt_is_version_2(data + skip, sizeof(with) - 1 - skip));
	assert_int_equal(pkt_service_bytes(data, sizeof(with) - 1, "git-receive-pack"), 0);
	data = (const uint8_t *)without;
	assert_int_equal(pkt_service_bytes(data, sizeof(without) - 1, "git-upload-pack"), 0);
	assert_true(pkt_is_version_2(data, sizeof(without) - 1));
	assert_false(pkt_is_version_2(data, 10));
	assert_false(pkt_is_version_2((const uint8_t *)"000eversion 1\n", 14));
	assert_int_equal(
		pkt_service_bytes((const uint8_t *)cut, sizeof(cut) - 1, "git-upload-pack"), 0);
}

static void test_push_of_the_named_ref_alone(void **state)
{
	(void)state;
	assert_true(UPDATES(ZERO " " ONE " " MAIN "\0 report-status"));
	assert_true(UPDATES(ONE " " ONE " " MAIN "\n"));
	assert_true(UPDATES(ONE " " ONE " " MAIN));
	assert_false(UPDATES(ZERO " " ONE " refs/heads/other\0 report-status"));
	assert_false(UPDATES(ZERO " " ONE " refs/heads/mai"));
	assert_false(UPDATES(ZERO " " ONE " refs/heads/main2"));
	assert_false(UPDATES(ZERO " " ONE " refs/heads/main x"));
	/* A deletion. */
	assert_false(UPDATES(ONE " " ZERO " " MAIN));
	assert_false(UPDATES(ZERO ZERO " " ONE " " MAIN));
	assert_false(UPDATES("g" ZERO " " ONE " " MAIN));
	assert_false(UPDATES(ZERO " " ONE));
	assert_false(UPDATES(ZERO));
	assert_false(UPDATES("push-cert\0 x"));
	assert_false(UPDATES(""));
}

/* A server may merge, deploy or open to all by an option of a push. */
static void test_a_push_asks_for_nothing_beside(void **state)
{
	(void)state;
	assert_true(UPDATES(ZERO " " ONE " " MAIN "\0 report-status-v2 side-band-64k quiet atomic"
				 " object-format=sha1 agent=git/2.39.5"));
	assert_true(UPDATES(ZERO " " ONE " " MAIN "\0report-status\n"));
	assert_true(UPDATES(ZERO " " ONE " " MAIN "\0"));
	assert_false(UPDATES(ZERO " " ONE " " MAIN "\0 report-status push-options"));
	assert_false(UPDATES(ZERO " " ONE " " MAIN "\0push-options"));
	assert_false(UPDATES(ZERO " " ONE " " MAIN "\0 push-options\n"));
	assert_false(UPDATES(ZERO " " ONE " " MAIN "\0 push-cert=x"));
	assert_false(UPDATES(ZERO " " ONE " " MAIN "\0 report-status-v3"));
	assert_false(UPDATES(ZERO " " ONE " " MAIN "\0 agent=x\0 push-options"));
	assert_false(UPDATES(ZERO " " ONE " " MAIN "\0 agent"));
}

static bool is_shallow(const char *text)
{
	return pkt_is_shallow((const uint8_t *)text, strlen(text));
}

static void test_a_shallow_line_has_one_object(void **state)
{
	(void)state;
	assert_true(is_shallow("shallow " ONE));
	assert_true(is_shallow("shallow " ONE "\n"));
	assert_false(is_shallow("shallow "));
	assert_false(is_shallow("shallow " ONE " " ONE));
	assert_false(is_shallow("shallow " ONE "push-options"));
	assert_false(is_shallow(ONE));
	assert_false(pkt_is_shallow((const uint8_t *)"shallow " ONE "\0 x",
				    sizeof("shallow " ONE "\0 x") - 1));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_head_reads_sizes_and_kinds),
	cmocka_unit_test(test_advertisement_is_found_with_and_without_service),
	cmocka_unit_test(test_push_of_the_named_ref_alone),
	cmocka_unit_test(test_a_push_asks_for_nothing_beside),
	cmocka_unit_test(test_a_shallow_line_has_one_object),
};
TEST_MAIN(tests)
