#include <errno.h>
#include <string.h>

#include "base/log.h"

#include "supervisor/api/config.h"
#include "tests/lib/test.h"

/* Larger than a test's stack may be. */
static struct api_config config; /* NOLINT(cppcoreguidelines-avoid-non-const-global-variables) */

static void set_good(void)
{
	static const struct api_config good = {
		.magic = CONFIG_MAGIC,
		.version = CONFIG_VERSION,
		.size = sizeof(struct api_config),
		.n_trusted_peers = 1,
		.header_user = "X-Sandbox-User",
		.header_workspace = "X-Sandbox-Workspace",
		.header_project = "X-Sandbox-Project",
		.header_scopes = "X-Sandbox-Scopes",
		.env_prefix = "ALPHASWARM_",
		.stream_url = "/chat/stream/",
		.max_sessions = 10,
	};

	config = good;
}

static void test_config_check_takes_a_good_one(void **state)
{

	(void)state;
	set_good();
	assert_int_equal(config_check(&config, NULL), 0);
}

static void test_config_check_refuses_what_is_not_terminated(void **state)
{

	(void)state;
	set_good();
	memset(config.header_user, 'a', sizeof(config.header_user));
	assert_int_equal(config_check(&config, NULL), -EBADMSG);
	set_good();
	memset(config.env_prefix, 'A', sizeof(config.env_prefix));
	assert_int_equal(config_check(&config, NULL), -EBADMSG);
	set_good();
	memset(config.endpoint_default[5], 'a', sizeof(config.endpoint_default[5]));
	assert_int_equal(config_check(&config, NULL), -EBADMSG);
}

static void test_config_check_refuses_bad_numbers_and_names(void **state)
{

	(void)state;
	set_good();
	config.n_trusted_peers = CONFIG_MAX_PEERS + 1;
	assert_int_equal(config_check(&config, NULL), -EBADMSG);
	set_good();
	config.magic++;
	assert_int_equal(config_check(&config, NULL), -EBADMSG);
	set_good();
	config.header_scopes[0] = ':';
	assert_int_equal(config_check(&config, NULL), -EBADMSG);
	set_good();
	config.max_sessions = 0;
	assert_int_equal(config_check(&config, NULL), -EBADMSG);
	set_good();
	config.log_level = LOG_LEVEL_MAX_;
	assert_int_equal(config_check(&config, NULL), -EBADMSG);
}

static void test_config_read_wants_exactly_the_struct(void **state)
{
	struct api_config *read_back = NULL;
	AUTO_CLOSE int fd = -1;
	AUTO_CLOSE int short_fd = -1;

	(void)state;
	set_good();
	fd = fd_memfd_sealed("config", &config, sizeof(config), 0);
	short_fd = fd_memfd_sealed("config", &config, sizeof(config) - 1, 0);
	assert_true(fd >= 0 && short_fd >= 0);
	assert_int_equal(config_read(fd, &read_back, NULL), 0);
	free(read_back);
	/* A worker that is started again gets the same descriptor. */
	assert_int_equal(config_read(fd, &read_back, NULL), 0);
	assert_memory_equal(read_back, &config, sizeof(config));
	free(read_back);
	assert_int_equal(config_read(short_fd, &read_back, NULL), -EBADMSG);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_config_check_takes_a_good_one),
	cmocka_unit_test(test_config_check_refuses_what_is_not_terminated),
	cmocka_unit_test(test_config_check_refuses_bad_numbers_and_names),
	cmocka_unit_test(test_config_read_wants_exactly_the_struct),
};

TEST_MAIN(tests)
