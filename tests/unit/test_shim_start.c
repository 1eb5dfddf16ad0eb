/*
 * A shim that is started wrongly says at which step, and ends. Needs no root: it fails before.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/io.h"

#include "sandboxd/plan.h"
#include "sandboxd/policy_image.h"
#include "sandboxd/secret.h"
#include "tests/lib/test.h"

#define ASIDE 50 /* descriptors from here on: the shim's, until each has its number */

struct start {
	int listen_type; /* 0: no listener */
	struct shim_params params;
	struct session_policy policy;
	const char *secrets; /* NULL: no descriptor */
	size_t secrets_bytes;
};

static struct start start_right(void)
{
	return (struct start){
		.listen_type = SOCK_SEQPACKET,
		.params = {.magic = PLAN_MAGIC,
			   .version = PLAN_VERSION,
			   .size = sizeof(struct shim_params),
			   .user_id = SESSION_USER_ID,
			   .group_id = SESSION_USER_ID,
			   .max_files = 1024,
			   .ring_bytes = SHIM_RING_BYTES},
		.policy = {.magic = POLICY_IMAGE_MAGIC,
			   .version = POLICY_IMAGE_VERSION,
			   .header_bytes = sizeof(struct session_policy),
			   .total_bytes = sizeof(struct session_policy)},
	};
}

static int listener(int type)
{
	/* Autobind: an abstract name that the kernel chooses. */
	const struct sockaddr address = {.sa_family = AF_UNIX};
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, &address, sizeof(sa_family_t)), 0);
	assert_int_equal(listen(fd, 1), 0);
	return fd;
}

static void run_shim(const struct start *start, int ready_fd)
{
	const int fds[] = {
		[SHIM_FD_LISTEN] = start->listen_type ? listener(start->listen_type) : -1,
		[SHIM_FD_POLICY] =
			fd_memfd_sealed("policy", &start->policy, sizeof(start->policy), 0),
		[SHIM_FD_LOADER] = open("/dev/null", O_RDONLY | O_CLOEXEC),
		[SHIM_FD_PARAMS] =
			fd_memfd_sealed("params", &start->params, sizeof(start->params), 0),
		[SHIM_FD_READY] = ready_fd,
		[SHIM_FD_SECRETS] = start->secrets ? fd_memfd_sealed("secrets", start->secrets,
								     start->secrets_bytes, 0)
						   : -1,
		[SHIM_FD_QUEUES] = -1,
		[SHIM_FD_GIT] = open("/dev/null", O_RDONLY | O_CLOEXEC),
		[SHIM_FD_ARCHIVE] = open("/dev/null", O_RDONLY | O_CLOEXEC),
		[SHIM_FD_TEMPLATE] = -1,
	};

	_Static_assert(sizeof(fds) / sizeof(fds[0]) == SHIM_FD_NEXT_, "each descriptor is given");
	for (int fd = SHIM_FD_LISTEN; fd < SHIM_FD_NEXT_; fd++) {
		if (fds[fd] >= 0)
			(void)dup2(fds[fd], ASIDE + fd);
	}
	/* What the test has open by chance must not stand for a descriptor that was not given. */
	(void)close_range(SHIM_FD_LISTEN, ASIDE - 1, 0);
	for (int fd = SHIM_FD_LISTEN; fd < SHIM_FD_NEXT_; fd++) {
		if (fds[fd] >= 0)
			(void)dup2(ASIDE + fd, fd);
	}
	(void)execl(TEST_BIN_DIR "/sandbox-shim", "sandbox-shim", (char *)NULL);
	_exit(99);
}

static void expect_error(const struct start *start, const char *step, int error_number)
{
	struct err err = ERR_NULL;
	int status = 0;
	int ready[2];
	pid_t pid;

	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0)
		run_shim(start, ready[1]);
	assert_true(pid > 0);
	(void)fd_close(ready[1]);
	assert_int_equal(io_read_exact(ready[0], &err, sizeof(err)), 0);
	(void)fd_close(ready[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	err_sanitize(&err);
	assert_string_equal(err.step, step);
	assert_int_equal(err.error_number, error_number);
}

static void test_start_without_listener_is_refused(void **state)
{
	struct start start = start_right();

	(void)state;
	start.listen_type = 0;
	expect_error(&start, "shim-descriptors", EBADF);
	start.listen_type = SOCK_STREAM;
	expect_error(&start, "shim-descriptors", EPROTOTYPE);
}

static void test_start_with_wrong_params_is_refused(void **state)
{
	struct start start = start_right();

	(void)state;
	start.params.magic++;
	expect_error(&start, "shim-params", EPROTO);
	start = start_right();
	start.params.version++;
	expect_error(&start, "shim-params", EPROTO);
	start = start_right();
	start.params.user_id = 0; /* would be root inside */
	expect_error(&start, "shim-params", EINVAL);
	start = start_right();
	start.params.group_id = IDBLOCK_MAPPED;
	expect_error(&start, "shim-params", EINVAL);
	start = start_right();
	start.params.flags = 1u << 31;
	expect_error(&start, "shim-params", EINVAL);
	start = start_right();
	start.params.ring_bytes = 4096;
	expect_error(&start, "shim-params", EINVAL);
}

static void test_start_with_wrong_policy_is_refused(void **state)
{
	struct start start = start_right();

	(void)state;
	start.policy.total_bytes++;
	expect_error(&start, "shim-policy", EPROTO);
	start = start_right();
	start.policy.filter[POLICY_FILTER_SHIM] =
		(struct policy_span){.offset = sizeof(struct session_policy), .n = 1};
	expect_error(&start, "shim-policy", EPROTO);
	start.policy.filter[POLICY_FILTER_SHIM] =
		(struct policy_span){.offset = 0xfffffff8u, .n = POLICY_MAX_BPF};
	expect_error(&start, "shim-policy", EPROTO);
}

/* A helper that died half way: a session without its secrets would show them unmasked. */
static void test_start_with_broken_secrets_is_refused(void **state)
{
	const struct secret_stream head = {
		.magic = SECRET_MAGIC, .version = SECRET_VERSION, .n = 1, .bytes = 40};
	struct start start = start_right();

	(void)state;
	start.secrets = "";
	expect_error(&start, "shim-secrets", EBADMSG);
	start.secrets = (const char *)&head;
	start.secrets_bytes = sizeof(head);
	expect_error(&start, "shim-secrets", EBADMSG);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_start_with_broken_secrets_is_refused),
	cmocka_unit_test(test_start_without_listener_is_refused),
	cmocka_unit_test(test_start_with_wrong_params_is_refused),
	cmocka_unit_test(test_start_with_wrong_policy_is_refused),
};
TEST_MAIN(tests)
