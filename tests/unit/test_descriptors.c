#include "sandboxd/launch.h"
#include "sandboxd/limits.h"
#include "supervisor/egress/descriptors.h"
#include "tests/lib/test.h"

static void test_descriptors_connections_leave_room_for_every_session(void **state)
{
	(void)state;
	for (uint64_t files = 16; files < 2000000; files += files / 7 + 1) {
		uint64_t sessions = files > FILES_OF_SUPERVISOR
					    ? (files - FILES_OF_SUPERVISOR) / FILES_OF_SESSION
					    : 0;
		uint64_t n = descriptors_connections(files);

		assert_true(n > 0);
		assert_true(n * 2 + sessions * LAUNCH_NET_FDS <= files);
		/* And something for all the rest. */
		assert_true(files - n * 2 - sessions * LAUNCH_NET_FDS >=
			    (files < 6000 ? files / 8 : 750));
		if (files > 100000)
			break;
	}
}

static void test_descriptors_connections_thousand_sessions_have_five_each(void **state)
{
	(void)state;
	assert_true(descriptors_connections(20000) >= 5000);
	assert_true(descriptors_connections(UINT64_MAX) == UINT32_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_descriptors_connections_leave_room_for_every_session),
		cmocka_unit_test(test_descriptors_connections_thousand_sessions_have_five_each),
	};
	int n_before = test_begin();

	return test_end(n_before, cmocka_run_group_tests(tests, NULL, NULL));
}
