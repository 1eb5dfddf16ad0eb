#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/config_bundle.h"
#include "base/io.h"

#include "tests/lib/test.h"

struct fixture {
	struct test_temp temp;
	struct config_bundle head;
	char text[256];
	const char *provider; /* of the variable */
	struct err err;
};

static int set_up(void **state)
{
	static struct fixture fixture;

	memset(&fixture, 0, sizeof(fixture));
	test_temp_init(&fixture.temp);
	assert_int_equal(mkdirat(fixture.temp.fd, CONFIG_DROPINS, 0755), 0);
	*state = &fixture;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *fixture = *state;

	test_temp_done(&fixture->temp);
	return 0;
}

static void put(struct fixture *fixture, const char *name, const char *text, mode_t mode)
{
	int fd = openat(fixture->temp.fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(io_write_all(fd, text, strlen(text)), 0);
	assert_int_equal(fchmod(fd, mode), 0);
	(void)fd_close(fd);
}

/* 0, with the bundle in the fixture. */
static int make(struct fixture *fixture, bool may_be_missing)
{
	int fd = config_bundle_make(fixture->temp.fd, "/some/x.conf", may_be_missing,
				    fixture->provider, NULL, &fixture->err);
	ssize_t n;

	if (fd < 0)
		return fd;
	assert_int_equal(io_read_exact(fd, &fixture->head, sizeof(fixture->head)), 0);
	n = io_read(fd, fixture->text, sizeof(fixture->text) - 1);
	assert_true(n >= 0);
	fixture->text[n] = '\0';
	(void)fd_close(fd);
	assert_int_equal(fixture->head.magic, CONFIG_BUNDLE_MAGIC);
	return 0;
}

static void need_root(void)
{
	if (geteuid() != 0)
		skip();
}

static void test_config_bundle_orders_drop_ins_by_name(void **state)
{
	struct fixture *fixture = *state;

	need_root();
	put(fixture, "x.conf", "a", 0644);
	put(fixture, CONFIG_DROPINS "/20-c.conf", "c", 0644);
	put(fixture, CONFIG_DROPINS "/10-b.conf", "bb", 0600);
	put(fixture, CONFIG_DROPINS "/30-d.conf.dpkg-old", "no", 0644);
	put(fixture, CONFIG_DROPINS "/.40-e.conf", "no", 0644);
	assert_int_equal(make(fixture, false), 0);
	assert_int_equal(fixture->head.n_files, 3);
	assert_string_equal(fixture->head.file[1].name, "conf.d/10-b.conf");
	assert_int_equal(fixture->head.file[1].bytes, 2);
	assert_true(fixture->head.file[0].is_readable && !fixture->head.file[1].is_readable);
	assert_string_equal(fixture->text, "abbc");
}

static void test_config_bundle_missing_file_is_an_error_unless_it_is_the_default(void **state)
{
	struct fixture *fixture = *state;

	need_root();
	assert_int_equal(make(fixture, false), -ENOENT);
	assert_string_equal(fixture->err.text, "/some/x.conf cannot be opened");
	assert_int_equal(make(fixture, true), 0);
	assert_int_equal(fixture->head.n_files, 0);
}

static void test_config_bundle_refuses_what_is_not_roots_alone(void **state)
{
	struct fixture *fixture = *state;

	need_root();
	put(fixture, "x.conf", "a", 0664);
	assert_int_equal(make(fixture, false), -EPERM);
	put(fixture, "x.conf", "a", 0644);
	assert_int_equal(make(fixture, false), 0);
	put(fixture, CONFIG_DROPINS "/a.conf", "b", 0646);
	assert_int_equal(make(fixture, false), -EPERM);
	assert_non_null(strstr(fixture->err.text, "a.conf"));
	assert_int_equal(unlinkat(fixture->temp.fd, CONFIG_DROPINS "/a.conf", 0), 0);
	assert_int_equal(fchownat(fixture->temp.fd, "x.conf", 1000, 0, 0), 0);
	assert_int_equal(make(fixture, false), -EPERM);
	assert_int_equal(fchownat(fixture->temp.fd, "x.conf", 0, 0, 0), 0);
	assert_int_equal(fchmodat(fixture->temp.fd, CONFIG_DROPINS, 0777, 0), 0);
	assert_int_equal(make(fixture, false), -EPERM);
}

static void test_config_bundle_follows_no_symlink_and_opens_no_fifo(void **state)
{
	struct fixture *fixture = *state;

	need_root();
	put(fixture, "x.conf", "a", 0644);
	assert_int_equal(symlinkat("../x.conf", fixture->temp.fd, CONFIG_DROPINS "/a.conf"), 0);
	assert_int_equal(make(fixture, false), -ELOOP);
	assert_int_equal(unlinkat(fixture->temp.fd, CONFIG_DROPINS "/a.conf", 0), 0);
	assert_int_equal(mkfifoat(fixture->temp.fd, CONFIG_DROPINS "/a.conf", 0644), 0);
	assert_int_equal(make(fixture, false), -EINVAL);
}

static void test_config_bundle_is_bounded(void **state)
{
	struct fixture *fixture = *state;
	char name[128];

	need_root();
	put(fixture, "x.conf", "a", 0644);
	for (int i = 0; i <= CONFIG_DROPINS_MAX; i++) {
		(void)snprintf(name, sizeof(name), CONFIG_DROPINS "/%02d.conf", i);
		put(fixture, name, "", 0644);
	}
	assert_int_equal(make(fixture, false), -E2BIG);
	assert_int_equal(unlinkat(fixture->temp.fd, name, 0), 0);
	assert_int_equal(make(fixture, false), 0);
	assert_int_equal(fixture->head.n_files, CONFIG_DROPINS_MAX + 1);
	fixture->provider = "native";
	assert_int_equal(make(fixture, false), 0);
	assert_int_equal(fixture->head.n_files, CONFIG_FILES_MAX);
	put(fixture, "x.conf", "", 0644);
	(void)snprintf(name, sizeof(name), "%s/x.conf", fixture->temp.path);
	assert_int_equal(truncate(name, CONFIG_FILE_MAX_BYTES + 1), 0);
	assert_int_equal(make(fixture, false), -EFBIG);
}

static void test_config_bundle_has_the_variable_last(void **state)
{
	static const char *const wrong[] = {"a b",   "docker\n[docker]\nimage = x",
					    "[api]", "a=b",
					    "a.b",   "-12345678901234567890123456789012"};
	struct fixture *fixture = *state;

	need_root();
	put(fixture, "x.conf", "a\n", 0644);
	fixture->provider = "";
	assert_int_equal(make(fixture, false), 0);
	assert_int_equal(fixture->head.n_files, 1);
	fixture->provider = "docker";
	assert_int_equal(make(fixture, false), 0);
	assert_int_equal(fixture->head.n_files, 2);
	assert_string_equal(fixture->head.file[1].name, CONFIG_PROVIDER_VARIABLE);
	assert_string_equal(fixture->text, "a\n[api]\nprovider = docker\n");
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		fixture->provider = wrong[i];
		assert_int_equal(make(fixture, false), -EINVAL);
		assert_string_equal(fixture->err.text, "SANDBOX_PROVIDER is no name of a provider");
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test_setup_teardown(test_config_bundle_has_the_variable_last, set_up,
					tear_down),
	cmocka_unit_test_setup_teardown(test_config_bundle_orders_drop_ins_by_name, set_up,
					tear_down),
	cmocka_unit_test_setup_teardown(
		test_config_bundle_missing_file_is_an_error_unless_it_is_the_default, set_up,
		tear_down),
	cmocka_unit_test_setup_teardown(test_config_bundle_refuses_what_is_not_roots_alone, set_up,
					tear_down),
	cmocka_unit_test_setup_teardown(test_config_bundle_follows_no_symlink_and_opens_no_fifo,
					set_up, tear_down),
	cmocka_unit_test_setup_teardown(test_config_bundle_is_bounded, set_up, tear_down),
};

TEST_MAIN(tests)
