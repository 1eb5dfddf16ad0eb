#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "supervisor/usr_mask.h"
#include "tests/lib/test.h"

static void make_tree(const struct test_temp *usr)
{
	assert_int_equal(mkdirat(usr->fd, "bin", 0755), 0);
	assert_int_equal(mkdirat(usr->fd, "lib", 0755), 0);
	assert_int_equal(mkdirat(usr->fd, "lib/modules", 0755), 0);
	assert_int_equal(mkdirat(usr->fd, "lib/keep", 0755), 0);
	assert_int_equal(mkdirat(usr->fd, "local", 0755), 0);
	assert_int_equal(mkdirat(usr->fd, "closed", 0700), 0);
	test_temp_write(usr, "bin/true", "");
	test_temp_write(usr, "bin/sudo", "");
	test_temp_write(usr, "lib/keep/secret", "");
	test_temp_write(usr, "local/tool", "");
	assert_int_equal(fchmodat(usr->fd, "bin/true", 0755, 0), 0);
	assert_int_equal(fchmodat(usr->fd, "bin/sudo", 04755, 0), 0);
	assert_int_equal(fchmodat(usr->fd, "lib/keep/secret", 0640, 0), 0);
	assert_int_equal(mkfifoat(usr->fd, "lib/keep/fifo", 0666), 0);
	assert_int_equal(symlinkat("/etc/shadow", usr->fd, "lib/link"), 0);
}

static bool is_covered(const struct test_temp *mask, const char *path)
{
	struct stat st;

	return fstatat(mask->fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISCHR(st.st_mode) &&
	       st.st_rdev == 0;
}

static bool is_absent(const struct test_temp *mask, const char *path)
{
	return faccessat(mask->fd, path, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
}

static void test_usr_mask_build_covers_what_nobody_may_see(void **state)
{
	struct test_temp usr;
	struct test_temp mask;
	struct usr_mask found = {0};

	(void)state;
	test_temp_init(&usr);
	test_temp_init(&mask);
	make_tree(&usr);
	assert_int_equal(usr_mask_build(usr.fd, mask.fd, &found, NULL), 0);
	assert_true(is_covered(&mask, "bin/sudo"));
	assert_true(is_covered(&mask, "lib/keep/secret"));
	assert_true(is_covered(&mask, "lib/keep/fifo"));
	assert_true(is_covered(&mask, "lib/modules"));
	assert_true(is_covered(&mask, "local"));
	assert_true(is_covered(&mask, "closed"));
	assert_true(is_absent(&mask, "bin/true"));
	assert_true(is_absent(&mask, "lib/link"));
	assert_int_equal(found.n_setuid, 1);
	assert_int_equal(found.n_sockets, 1);
	assert_int_equal(found.n_private, 2);
	assert_int_equal(found.n_devices, 0);
	test_temp_done(&usr);
	test_temp_done(&mask);
}

static void test_usr_mask_build_minds_no_umask(void **state)
{
	struct test_temp usr;
	struct test_temp mask;
	struct usr_mask found;
	struct stat st;

	(void)state;
	test_temp_init(&usr);
	test_temp_init(&mask);
	make_tree(&usr);
	mode_t old_mask = umask(077);
	assert_int_equal(usr_mask_build(usr.fd, mask.fd, &found, NULL), 0);
	assert_int_equal(umask(old_mask), 077);
	assert_int_equal(fstatat(mask.fd, "lib/keep", &st, 0), 0);
	assert_int_equal(st.st_mode & 0777, 0755);
	test_temp_done(&usr);
	test_temp_done(&mask);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_usr_mask_build_covers_what_nobody_may_see),
		cmocka_unit_test(test_usr_mask_build_minds_no_umask),
	};
	int n_before = test_begin();

	return test_end(n_before, cmocka_run_group_tests(tests, NULL, NULL));
}
