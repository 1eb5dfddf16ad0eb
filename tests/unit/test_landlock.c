/* What a domain refuses by ABI: each check in a child of its own, which takes the domain first. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/random.h>

#include "base/confine.h"
#include "base/fd.h"
#include "base/landlock.h"
#include "base/str.h"

#include "tests/lib/test.h"

#define KEEP                                                                                       \
	(LANDLOCK_READ | LANDLOCK_LIST | LANDLOCK_WRITE | LANDLOCK_MAKE_REG | LANDLOCK_UNLINK |    \
	 LANDLOCK_REFER)

/* The working directory is a temporary one, with the folders "own", "also", "other" and files. */
static const struct landlock_rule rules[] = {
	{"own",          KEEP | LANDLOCK_TRUNCATE,       -1},
	{"also",         KEEP,			   -1},
	{"other",        LANDLOCK_READ | LANDLOCK_LIST,  -1},
	{"/dev/null",    LANDLOCK_READ | LANDLOCK_WRITE, -1},
	{"/dev/urandom", LANDLOCK_READ,                  -1},
	{NULL,           KEEP,			   -1},
};
static const struct landlock_domain domain = {
	.rules = rules,
	.n_rules = ARRAY_SIZE(rules),
	.net = LANDLOCK_NET_BIND,
	.scopes = LANDLOCK_SCOPE_ABSTRACT | LANDLOCK_SCOPE_SIGNAL,
};

static int status_of(bool ok)
{
	return ok ? 0 : errno;
}

static int try_open(const char *path, int flags)
{
	return status_of(open(path, flags | O_CLOEXEC, 0600) >= 0);
}

static int try_read_own(void)
{
	return try_open("own/file", O_RDONLY);
}

static int try_read_elsewhere(void)
{
	return try_open("file", O_RDONLY);
}

static int try_make_own(void)
{
	return try_open("own/new", O_WRONLY | O_CREAT);
}

static int try_write_other(void)
{
	return try_open("other/file", O_WRONLY);
}

static int try_rename_between(void)
{
	return status_of(rename("own/file", "also/file") == 0);
}

static int try_rename_widens(void)
{
	return status_of(rename("also/file", "own/file") == 0);
}

static int try_rename_out(void)
{
	return status_of(rename("own/file", "other/moved") == 0);
}

static int try_truncate(void)
{
	return status_of(truncate("also/file", 0) == 0);
}

static int try_device(void)
{
	int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
	int count = 0;

	return fd < 0 ? -1 : status_of(ioctl(fd, RNDGETENTCNT, &count) == 0);
}

static int try_bind(void)
{
	const union {
		struct sockaddr any;
		struct sockaddr_in v4;
	} address = {.v4.sin_family = AF_INET};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return fd < 0 ? -1 : status_of(bind(fd, &address.any, sizeof(address.v4)) == 0);
}

static int try_signal(void)
{
	return status_of(kill(getppid(), 0) == 0);
}

static int try_make_fifo(void)
{
	return status_of(mknod("own/node", S_IFIFO | 0600, 0) == 0);
}

static const struct check {
	int (*run)(void);
	uint32_t abi; /* refused from this one on; 0: never */
	int error;
} checks[] = {
	{try_read_own,       0, 0     },
        {try_make_own,       0, 0     },
        {try_read_elsewhere, 1, EACCES},
	{try_write_other,    1, EACCES},
        {try_make_fifo,      1, EACCES},
        {try_rename_between, 0, 0     },
	{try_rename_widens,  3, EXDEV },
        {try_rename_out,     1, EACCES},
        {try_truncate,       3, EACCES},
	{try_device,         5, EACCES},
        {try_bind,           4, EACCES},
        {try_signal,         6, EPERM },
};

static int run_check(const struct check *check, uint32_t abi)
{
	int status = 0;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		if (confine_no_new_privs() < 0 || landlock_take(abi, &domain) < 0)
			_exit(255);
		_exit(check->run());
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void make_files(struct test_temp *temp)
{
	static const char *const names[] = {"file", "own/file", "also/file", "other/file"};

	test_temp_init(temp);
	assert_int_equal(fchdir(temp->fd), 0);
	assert_int_equal(mkdir("own", 0700), 0);
	assert_int_equal(mkdir("also", 0700), 0);
	assert_int_equal(mkdir("other", 0700), 0);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		test_temp_write(temp, names[i], "content");
}

static void check_abi(uint32_t abi)
{
	for (size_t i = 0; i < ARRAY_SIZE(checks); i++) {
		const struct check *check = &checks[i];
		bool refused = check->abi != 0 && abi >= check->abi;
		struct test_temp temp;
		int r;

		make_files(&temp);
		r = run_check(check, abi);
		if (r != (refused ? check->error : 0))
			print_error("ABI %u, check %zu\n", abi, i);
		assert_int_equal(r, refused ? check->error : 0);
		assert_int_equal(chdir("/"), 0);
		test_temp_done(&temp);
	}
}

static void test_landlock_refuses_by_abi(void **state)
{
	(void)state;
	/* The kernel of the tests has Landlock, or this proves nothing. */
	assert_true(landlock_abi() >= 2);
	for (uint32_t abi = 2; abi <= landlock_abi(); abi++)
		check_abi(abi);
}

/* The control: nothing of it is refused without a domain. */
static void test_landlock_zero_is_no_domain(void **state)
{
	(void)state;
	check_abi(0);
}

static int take_missing(void)
{
	static const struct landlock_rule missing = {"not-there", LANDLOCK_READ, -1};

	return -landlock_take(landlock_abi(),
			      &(struct landlock_domain){.rules = &missing, .n_rules = 1});
}

static void test_landlock_a_missing_path_is_an_error(void **state)
{
	const struct check check = {.run = take_missing};

	(void)state;
	assert_int_equal(run_check(&check, 0), ENOENT);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_landlock_refuses_by_abi),
	cmocka_unit_test(test_landlock_zero_is_no_domain),
	cmocka_unit_test(test_landlock_a_missing_path_is_an_error),
};

TEST_MAIN(tests)
