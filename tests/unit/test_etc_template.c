#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"

#include "supervisor/etc_template.h"
#include "tests/lib/test.h"

static void make_host(const struct test_temp *etc)
{
	assert_int_equal(mkdirat(etc->fd, "ssl", 0755), 0);
	assert_int_equal(mkdirat(etc->fd, "ssl/certs", 0755), 0);
	assert_int_equal(mkdirat(etc->fd, "ssl/private", 0755), 0);
	assert_int_equal(mkdirat(etc->fd, "java-17", 0755), 0);
	test_temp_write(etc, "ssl/certs/ca.crt", "certificate");
	test_temp_write(etc, "ssl/private/key.pem", "key");
	test_temp_write(etc, "ssl/openssl.cnf", "settings");
	test_temp_write(etc, "java-17/closed", "closed");
	test_temp_write(etc, "java-17/open", "open");
	test_temp_write(etc, "shadow", "root:secret");
	test_temp_write(etc, "passwd", "the host's own");
	test_temp_write(etc, "machine-id", "the host's own");
	assert_int_equal(fchmodat(etc->fd, "ssl/certs/ca.crt", 0644, 0), 0);
	assert_int_equal(fchmodat(etc->fd, "ssl/private/key.pem", 0644, 0), 0);
	assert_int_equal(fchmodat(etc->fd, "ssl/openssl.cnf", 0644, 0), 0);
	assert_int_equal(fchmodat(etc->fd, "java-17/open", 0644, 0), 0);
	assert_int_equal(fchmodat(etc->fd, "java-17/closed", 0600, 0), 0);
	assert_int_equal(mkfifoat(etc->fd, "mime.types", 0666), 0);
	assert_int_equal(symlinkat("/var/lib/x", etc->fd, "ssl/certs/link"), 0);
}

static bool has(const struct test_temp *temp, const char *path)
{
	return faccessat(temp->fd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void test_etc_template_build_takes_only_what_is_listed_and_open(void **state)
{
	struct test_temp host;
	struct test_temp dest;
	char text[512];

	(void)state;
	test_temp_init(&host);
	test_temp_init(&dest);
	make_host(&host);
	assert_int_equal(etc_template_build(dest.fd, host.fd, NULL), 0);
	assert_true(has(&dest, "ssl/certs/ca.crt"));
	assert_true(has(&dest, "ssl/certs/link"));
	assert_true(has(&dest, "ssl/openssl.cnf"));
	assert_true(has(&dest, "os-release"));
	assert_true(has(&dest, "java-17/open"));
	assert_true(has(&dest, "nsswitch.conf"));
	assert_false(has(&dest, "ssl/private"));
	assert_false(has(&dest, "java-17/closed"));
	assert_false(has(&dest, "shadow"));
	assert_false(has(&dest, "machine-id"));
	assert_false(has(&dest, "mime.types"));
	assert_true(io_read_at(dest.fd, "passwd", text, sizeof(text)) > 0);
	assert_null(strstr(text, "the host's own"));
	assert_non_null(strstr(text, "user:x:1000:1000:"));
	test_temp_done(&host);
	test_temp_done(&dest);
}

/* On hosts with systemd-resolved it leads to /run, which no worker sees. */
static void test_etc_template_worker_has_the_text_of_a_linked_resolv_conf(void **state)
{
	struct test_temp host;
	struct test_temp dest;
	char text[64];

	(void)state;
	test_temp_init(&host);
	test_temp_init(&dest);
	assert_int_equal(mkdirat(host.fd, "elsewhere", 0755), 0);
	assert_int_equal(etc_template_write(host.fd, "elsewhere/x", "nameserver 10.0.0.2\n", 0644),
			 0);
	assert_int_equal(symlinkat("elsewhere/x", host.fd, "resolv.conf"), 0);
	assert_int_equal(etc_template_worker(dest.fd, host.fd, NULL), 0);
	assert_true(io_read_at(dest.fd, "resolv.conf", text, sizeof(text)) > 0);
	assert_string_equal(text, "nameserver 10.0.0.2");
	/* One that leads nowhere, or is not for all to read, is none. */
	assert_int_equal(unlinkat(dest.fd, "resolv.conf", 0), 0);
	assert_int_equal(fchmodat(host.fd, "elsewhere/x", 0600, 0), 0);
	assert_int_equal(etc_template_worker(dest.fd, host.fd, NULL), 0);
	assert_false(has(&dest, "resolv.conf"));
	assert_int_equal(unlinkat(host.fd, "elsewhere/x", 0), 0);
	assert_int_equal(etc_template_worker(dest.fd, host.fd, NULL), 0);
	assert_false(has(&dest, "resolv.conf"));
	test_temp_done(&host);
	test_temp_done(&dest);
}

static void test_etc_template_write_existing_name_is_refused(void **state)
{
	struct test_temp dest;

	(void)state;
	test_temp_init(&dest);
	assert_int_equal(etc_template_write(dest.fd, "a", "text", 0644), 0);
	assert_int_equal(etc_template_write(dest.fd, "a", "text", 0644), -EEXIST);
	test_temp_done(&dest);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_etc_template_build_takes_only_what_is_listed_and_open),
		cmocka_unit_test(test_etc_template_worker_has_the_text_of_a_linked_resolv_conf),
		cmocka_unit_test(test_etc_template_write_existing_name_is_refused),
	};
	int n_before = test_begin();

	return test_end(n_before, cmocka_run_group_tests(tests, NULL, NULL));
}
