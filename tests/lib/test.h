/*
 * What every unit test needs: cmocka's headers in their order, a descriptor-leak check around each
 * group, death tests for ASSERT, a seeded generator, temporary folders and golden bytes.
 */
#pragma once

/* cmocka.h needs the others before it. */
/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#include "base/auto.h"

/* The main of a test program. Fails also if the group leaves a descriptor open. */
#define TEST_MAIN(tests) TEST_MAIN_AFTER(0, tests)
/* Behind something that a library needs, and that fails with a negative number. */
#define TEST_MAIN_AFTER(begin, tests)                                                              \
	int main(void)                                                                             \
	{                                                                                          \
		int begun = (begin);                                                               \
		int n_before = test_begin();                                                       \
		if (begun < 0)                                                                     \
			return 1;                                                                  \
		int n_failed = cmocka_run_group_tests(tests, NULL, NULL);                          \
		return test_end(n_before, n_failed);                                               \
	}
int test_begin(void);
int test_end(int n_before, int n_failed);

/* True if function ends its process by abort(): run in a child without a core or its message. */
bool test_aborts(void (*function)(void *userdata), void *userdata);

/* A small generator with a fixed seed: a failure repeats. */
struct test_random {
	uint64_t state;
};
#define TEST_RANDOM(seed) ((struct test_random){.state = (seed) | 1})
uint64_t test_random(struct test_random *random);
/* 0 .. below - 1 */
uint32_t test_random_below(struct test_random *random, uint32_t below);
void test_random_fill(struct test_random *random, void *data, size_t size);

/* A new folder and its descriptor; test_temp_done removes it with all that is in it. */
struct test_temp {
	char path[64];
	int fd;
};
void test_temp_init(struct test_temp *temp);
void test_temp_done(struct test_temp *temp);
/* Make a file below the folder. */
void test_temp_write(const struct test_temp *temp, const char *name, const char *text);

/*
 * Bytes that two programs agree on equal tests/data/golden/<name>.hex. With TEST_GOLDEN_UPDATE=1 in
 * the environment the file is written instead: the change is then a diff to review.
 */
void test_golden(const char *name, const void *data, size_t size);
