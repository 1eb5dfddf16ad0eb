/* The head of the answer that a stream follows. */
#include <errno.h>
#include <string.h>

#include "supervisor/provider/attach_head.h"
#include "tests/lib/test.h"

#define HEAD "HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"

static int take_all(const char *text, size_t step, size_t *ret_taken)
{
	struct attach_head head = {0};
	size_t length = strlen(text);
	size_t at = 0;
	int r = 0;

	while (r == 0 && at < length) {
		size_t taken;

		r = attach_head_take(&head, text + at, length - at < step ? length - at : step,
				     &taken);
		at += taken;
	}
	*ret_taken = at;
	return r;
}

static void test_what_follows_is_left(void **state)
{
	size_t taken;

	(void)state;
	for (size_t step = 1; step < 100; step++) {
		assert_int_equal(take_all(HEAD "\1\0\0\0stream", step, &taken), 1);
		assert_int_equal(taken, strlen(HEAD));
	}
	assert_int_equal(take_all("HTTP/1.1 200 OK\r\nX: \r\r\n\r\n", 3, &taken), 1);
}

static void test_other_answers(void **state)
{
	static char longest[ATTACH_HEAD_MAX + 64];
	size_t taken;

	(void)state;
	assert_int_equal(take_all("HTTP/1.1 404 Not Found\r\n\r\n", 7, &taken), -EPROTO);
	assert_int_equal(take_all("HTTP/1.0 101 x\r\n\r\n", 7, &taken), -EPROTO);
	assert_int_equal(take_all("\r\n\r\n", 7, &taken), -EPROTO);
	assert_int_equal(take_all("HTTP/1.1 101 x\r\nnot all", 7, &taken), 0);
	memset(longest, 'x', sizeof(longest) - 1);
	assert_int_equal(take_all(longest, 100, &taken), -EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_follows_is_left),
		cmocka_unit_test(test_other_answers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
