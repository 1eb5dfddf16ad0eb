#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/path.h"
#include "base/str.h"

#include "tests/lib/test.h"

static void test_path_check_relative_table(void **state)
{
	static const struct {
		const char *path;
		int expected;
	} table[] = {
		{"a",      0      },
		{"a/b",    0      },
		{"...",    0      },
		{".a",     0      },
		{"a/..b",  0      },
		{"",       -EINVAL},
		{"/a",     -EINVAL},
		{"a/",     -EINVAL},
		{"a//b",   -EINVAL},
		{".",      -EINVAL},
		{"..",     -EINVAL},
		{"a/.",    -EINVAL},
		{"a/../b", -EINVAL},
		{"../a",   -EINVAL},
		{"a/..",   -EINVAL},
	};
	char text[5000];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		assert_int_equal(path_check_relative(table[i].path), table[i].expected);
	memset(text, 'a', sizeof(text));
	text[255] = '\0';
	assert_int_equal(path_check_relative(text), 0);
	text[255] = 'a';
	text[256] = '\0';
	assert_int_equal(path_check_relative(text), -ENAMETOOLONG);
	memset(text, 'a', sizeof(text));
	for (size_t i = 1; i < sizeof(text); i += 2)
		text[i] = '/';
	text[sizeof(text) - 1] = '\0';
	assert_int_equal(path_check_relative(text), -ENAMETOOLONG);
}

static void test_path_open_beneath_escapes_are_refused(void **state)
{
	struct test_temp temp;
	int fd AUTO_CLOSE = -1;

	(void)state;
	test_temp_init(&temp);
	assert_int_equal(mkdirat(temp.fd, "dir", 0755), 0);
	test_temp_write(&temp, "dir/file", "x");
	assert_int_equal(symlinkat("file", temp.fd, "dir/link"), 0);
	assert_int_equal(symlinkat("/etc", temp.fd, "out"), 0);
	assert_int_equal(path_open_beneath(temp.fd, "/etc/passwd", O_RDONLY, 0), -EXDEV);
	assert_int_equal(path_open_beneath(temp.fd, "../x", O_RDONLY, 0), -EXDEV);
	assert_int_equal(path_open_beneath(temp.fd, "dir/../../x", O_RDONLY, 0), -EXDEV);
	assert_int_equal(path_open_beneath(temp.fd, "dir/link", O_RDONLY, 0), -ELOOP);
	assert_int_equal(path_open_beneath(temp.fd, "out/passwd", O_RDONLY, 0), -ELOOP);
	assert_int_equal(path_open_beneath(temp.fd, "dir/none", O_RDONLY, 0), -ENOENT);
	fd = path_open_beneath(temp.fd, "dir/file", O_RDONLY, 0);
	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	(void)fd_close(fd);
	fd = path_open_beneath(temp.fd, "dir/new", O_WRONLY | O_CREAT | O_EXCL, 0600);
	assert_true(fd >= 0);
	test_temp_done(&temp);
}

static int open_trusted_below(const struct test_temp *temp, const char *name, int flags)
{
	char path[128];

	assert_int_equal(str_format(path, sizeof(path), "%s/%s", temp->path, name), 0);
	return path_open_trusted(path, flags);
}

static void test_path_open_trusted_checks_each_component(void **state)
{
	struct test_temp temp;
	int fd AUTO_CLOSE = -1;

	(void)state;
	if (geteuid() != 0)
		skip();
	test_temp_init(&temp); /* below a sticky directory, 0700 */
	assert_int_equal(mkdirat(temp.fd, "dir", 0755), 0);
	test_temp_write(&temp, "dir/file", "x");
	assert_int_equal(symlinkat("dir", temp.fd, "link"), 0);
	assert_int_equal(mkfifoat(temp.fd, "fifo", 0666), 0);
	assert_int_equal(fchmodat(temp.fd, "fifo", 0666, 0), 0);

	fd = open_trusted_below(&temp, "dir/file", O_RDONLY);
	assert_true(fd >= 0);
	(void)fd_close(fd);
	assert_int_equal(open_trusted_below(&temp, "link/file", O_RDONLY), -EPERM);
	assert_int_equal(open_trusted_below(&temp, "link", O_RDONLY), -EPERM);
	assert_int_equal(open_trusted_below(&temp, "none", O_RDONLY), -ENOENT);
	assert_int_equal(open_trusted_below(&temp, "dir/../dir/file", O_RDONLY), -EINVAL);
	assert_int_equal(open_trusted_below(&temp, "fifo", O_RDONLY), -EPERM); /* does not hang */

	assert_int_equal(fchmodat(temp.fd, "dir/file", 0664, 0), 0);
	assert_int_equal(open_trusted_below(&temp, "dir/file", O_RDONLY), -EPERM);
	assert_int_equal(fchmodat(temp.fd, "dir/file", 0644, 0), 0);
	assert_int_equal(fchmodat(temp.fd, "dir", 0777, 0), 0);
	assert_int_equal(open_trusted_below(&temp, "dir/file", O_RDONLY), -EPERM);
	assert_int_equal(fchmodat(temp.fd, "dir", 01777, 0), 0);
	fd = open_trusted_below(&temp, "dir/file", O_RDONLY);
	assert_true(fd >= 0);
	assert_int_equal(open_trusted_below(&temp, "dir", O_RDONLY | O_DIRECTORY), -EPERM);
	assert_int_equal(fchownat(temp.fd, "dir/file", 1000, 0, 0), 0);
	assert_int_equal(open_trusted_below(&temp, "dir/file", O_RDONLY), -EPERM);
	test_temp_done(&temp);
}

static void test_path_open_trusted_forms(void **state)
{
	int fd AUTO_CLOSE = -1;

	(void)state;
	assert_int_equal(path_open_trusted("etc", O_RDONLY), -EINVAL);
	assert_int_equal(path_open_trusted("", O_RDONLY), -EINVAL);
	assert_int_equal(path_open_trusted("//etc", O_RDONLY), -EINVAL);
	assert_int_equal(path_open_trusted("/etc/", O_RDONLY), -EINVAL);
	assert_int_equal(path_open_trusted("/etc/new", O_WRONLY | O_CREAT), -EINVAL);
	fd = path_open_trusted("/", O_RDONLY | O_DIRECTORY);
	assert_true(fd >= 0);
	(void)fd_close(fd);
	fd = path_open_trusted("/etc", O_PATH);
	assert_true(fd >= 0);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_path_check_relative_table),
	cmocka_unit_test(test_path_open_beneath_escapes_are_refused),
	cmocka_unit_test(test_path_open_trusted_checks_each_component),
	cmocka_unit_test(test_path_open_trusted_forms),
};
TEST_MAIN(tests)
