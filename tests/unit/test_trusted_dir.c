#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "supervisor/trusted_dir.h"
#include "tests/lib/test.h"

/* Only root can own a path that is trusted. */
static void need_root(void)
{
	if (geteuid() != 0)
		skip();
}

static void test_trusted_dir_open_makes_what_is_missing(void **state)
{
	struct test_temp temp;
	struct stat st;
	char path[128];
	int fd;

	(void)state;
	need_root();
	test_temp_init(&temp);
	(void)snprintf(path, sizeof(path), "%s/a//b/c/", temp.path);
	fd = trusted_dir_open(path, 0700, "test", NULL);
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	(void)fd_close(fd);
	fd = trusted_dir_open(path, 0755, "test", NULL);
	assert_true(fd >= 0);
	(void)fd_close(fd);
	test_temp_done(&temp);
}

static void test_trusted_dir_open_others_may_write_is_refused(void **state)
{
	struct test_temp temp;
	char path[128];

	(void)state;
	need_root();
	test_temp_init(&temp);
	assert_int_equal(mkdirat(temp.fd, "open", 0700), 0);
	assert_int_equal(fchmodat(temp.fd, "open", 0777, 0), 0);
	(void)snprintf(path, sizeof(path), "%s/open/below", temp.path);
	assert_int_equal(trusted_dir_open(path, 0700, "test", NULL), -EPERM);
	assert_int_equal(faccessat(temp.fd, "open/below", F_OK, 0), -1);
	test_temp_done(&temp);
}

static void test_trusted_dir_open_symlink_is_refused(void **state)
{
	struct test_temp temp;
	char path[128];

	(void)state;
	need_root();
	test_temp_init(&temp);
	assert_int_equal(symlinkat("/usr", temp.fd, "link"), 0);
	(void)snprintf(path, sizeof(path), "%s/link/below", temp.path);
	assert_true(trusted_dir_open(path, 0700, "test", NULL) < 0);
	test_temp_done(&temp);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_trusted_dir_open_makes_what_is_missing),
	cmocka_unit_test(test_trusted_dir_open_others_may_write_is_refused),
	cmocka_unit_test(test_trusted_dir_open_symlink_is_refused),
};

TEST_MAIN(tests)
