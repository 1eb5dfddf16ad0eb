/*
 * What an answer says of a snapshot that failed.
 */
#include <errno.h>

#include "supervisor/api/snapshot_failure.h"
#include "tests/lib/test.h"

static void test_snapshot_failure_says_damaged_of_what_was_written_only(void **state)
{
	const char *detail;

	(void)state;
	assert_int_equal(snapshot_failure(-EBADMSG, false, &detail), RUNTIME_SNAPSHOT_DAMAGED);
	assert_int_equal(snapshot_failure(-EBADMSG, true, &detail), RUNTIME_PROVIDER_UNAVAILABLE);
	assert_null(detail);
}

static void test_snapshot_failure_tells_the_two_full_disks_apart(void **state)
{
	const char *detail;

	(void)state;
	assert_int_equal(snapshot_failure(-ENOSPC, true, &detail), RUNTIME_SNAPSHOT_STORE);
	assert_string_equal(detail, "no room for the snapshot on the host");
	assert_int_equal(snapshot_failure(-ENOSPC, false, &detail), RUNTIME_NO_SPACE);
	assert_null(detail);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_snapshot_failure_says_damaged_of_what_was_written_only),
	cmocka_unit_test(test_snapshot_failure_tells_the_two_full_disks_apart),
};

TEST_MAIN(tests)
