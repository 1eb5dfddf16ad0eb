#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "supervisor/usr_copies.h"
#include "tests/lib/test.h"

#define LIBC   "lib/x86_64-linux-gnu/libc.so.6"
#define PYTHON "bin/python3.11"

static void make_tree(const struct test_temp *usr)
{
	assert_int_equal(mkdirat(usr->fd, "bin", 0755), 0);
	assert_int_equal(mkdirat(usr->fd, "lib", 0755), 0);
	assert_int_equal(mkdirat(usr->fd, "lib/x86_64-linux-gnu", 0755), 0);
	test_temp_write(usr, LIBC, "the library");
	test_temp_write(usr, PYTHON, "the interpreter");
	test_temp_write(usr, "bin/dash", "nobody else's");
	assert_int_equal(fchmodat(usr->fd, LIBC, 0644, 0), 0);
	assert_int_equal(fchmodat(usr->fd, PYTHON, 0777, 0), 0);
	assert_int_equal(fchmodat(usr->fd, "bin/dash", 0750, 0), 0);
	assert_int_equal(symlinkat("python3.11", usr->fd, "bin/python3"), 0);
	assert_int_equal(symlinkat("/etc/shadow", usr->fd, "bin/bash"), 0);
}

static struct stat stat_of(int fd, const char *path)
{
	struct stat st = {0};

	assert_int_equal(fstatat(fd, path, &st, AT_SYMLINK_NOFOLLOW), 0);
	return st;
}

static void test_usr_copies_build_makes_sets_of_their_own_inodes(void **state)
{
	struct test_temp usr;
	struct test_temp sets;
	struct usr_copies copies = {0};
	char text[16] = "";

	(void)state;
	test_temp_init(&usr);
	test_temp_init(&sets);
	make_tree(&usr);
	assert_int_equal(usr_copies_build(usr.fd, sets.fd, &copies, NULL), 0);
	/* Neither a link that leads away, nor what not everybody may read, nor what is not there.
	 */
	assert_int_equal(copies.n, 2);
	struct stat original = stat_of(usr.fd, LIBC);
	struct stat first = stat_of(sets.fd, "1/" LIBC);
	struct stat last = stat_of(sets.fd, "4/" LIBC);
	assert_true(original.st_ino != first.st_ino && first.st_ino != last.st_ino);
	assert_int_equal(first.st_mode, S_IFREG | 0644);
	assert_int_equal(first.st_mtime, original.st_mtime);
	assert_int_equal(stat_of(sets.fd, "2/" PYTHON).st_mode, S_IFREG | 0755);
	assert_int_equal(faccessat(sets.fd, "1/bin/bash", F_OK, AT_SYMLINK_NOFOLLOW), -1);
	assert_int_equal(faccessat(sets.fd, "1/bin/dash", F_OK, 0), -1);
	int fd = openat(sets.fd, "3/" PYTHON, O_RDONLY | O_CLOEXEC);
	assert_int_equal(read(fd, text, sizeof(text)), 15);
	assert_memory_equal(text, "the interpreter", 15);
	(void)close(fd);
	test_temp_done(&sets);
	test_temp_done(&usr);
}

static void test_usr_copies_current_sees_another_file(void **state)
{
	struct test_temp usr;
	struct test_temp sets;
	struct usr_copies copies = {0};

	(void)state;
	test_temp_init(&usr);
	test_temp_init(&sets);
	make_tree(&usr);
	assert_false(usr_copies_current(&copies, usr.path));
	assert_int_equal(usr_copies_build(usr.fd, sets.fd, &copies, NULL), 0);
	assert_true(usr_copies_current(&copies, usr.path));
	/* As dpkg does it: a new file takes the name. */
	test_temp_write(&usr, "lib/new", "the library");
	assert_int_equal(renameat(usr.fd, "lib/new", usr.fd, LIBC), 0);
	assert_false(usr_copies_current(&copies, usr.path));
	test_temp_done(&sets);
	test_temp_done(&usr);
}

static void test_usr_copies_take_deals_sessions_out(void **state)
{
	struct usr_copies_use use = {0};
	uint8_t taken[USR_COPIES_SETS];

	(void)state;
	for (size_t i = 0; i < USR_COPIES_SETS; i++)
		taken[i] = usr_copies_take(&use);
	for (size_t i = 0; i < USR_COPIES_SETS; i++)
		assert_int_equal(use.n[i + 1], 1);
	assert_int_equal(use.n[0], 0);
	usr_copies_give(&use, taken[2]);
	usr_copies_give(&use, 0);
	assert_int_equal(usr_copies_take(&use), taken[2]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_usr_copies_build_makes_sets_of_their_own_inodes),
		cmocka_unit_test(test_usr_copies_current_sees_another_file),
		cmocka_unit_test(test_usr_copies_take_deals_sessions_out),
	};
	int n_before = test_begin();

	return test_end(n_before, cmocka_run_group_tests(tests, NULL, NULL));
}
