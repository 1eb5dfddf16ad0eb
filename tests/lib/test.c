#include "tests/lib/test.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/io.h"
#include "base/str.h"

int test_begin(void)
{
	return fd_count();
}

int test_end(int n_before, int n_failed)
{
	int n_after = fd_count();

	if (n_after == n_before)
		return n_failed;
	(void)fprintf(stderr, "descriptors: %d before the group, %d after it\n", n_before, n_after);
	return n_failed + 1;
}

bool test_aborts(void (*function)(void *userdata), void *userdata)
{
	int status = 0;
	pid_t pid, waited;

	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		int null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);

		(void)prctl(PR_SET_DUMPABLE, 0);
		(void)dup2(null_fd, STDERR_FILENO);
		(void)signal(SIGABRT, SIG_DFL);
		function(userdata);
		_exit(0);
	}
	do
		waited = waitpid(pid, &status, 0);
	while (waited < 0 && errno == EINTR);
	assert_int_equal(waited, pid);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

/* xorshift64*: good enough to choose test steps. */
uint64_t test_random(struct test_random *random)
{
	random->state ^= random->state >> 12;
	random->state ^= random->state << 25;
	random->state ^= random->state >> 27;
	return random->state * 0x2545f4914f6cdd1dull;
}

uint32_t test_random_below(struct test_random *random, uint32_t below)
{
	return (uint32_t)((test_random(random) >> 32) % below);
}

void test_random_fill(struct test_random *random, void *data, size_t size)
{
	uint8_t *bytes = data;

	for (size_t i = 0; i < size; i++)
		bytes[i] = (uint8_t)(test_random(random) >> 56);
}

void test_temp_init(struct test_temp *temp)
{
	assert_int_equal(str_copy(temp->path, sizeof(temp->path), "/tmp/sandboxd-test-XXXXXX"), 0);
	assert_non_null(mkdtemp(temp->path));
	temp->fd = open(temp->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(temp->fd >= 0);
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
	(void)st;
	(void)kind;
	(void)ftw;
	return remove(path);
}

void test_temp_done(struct test_temp *temp)
{
	temp->fd = fd_close(temp->fd);
	/* NOLINTNEXTLINE(concurrency-mt-unsafe): one thread */
	assert_int_equal(nftw(temp->path, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
}

void test_temp_write(const struct test_temp *temp, const char *name, const char *text)
{
	int fd = openat(temp->fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(io_write_all(fd, text, strlen(text)), 0);
	(void)fd_close(fd);
}

#define GOLDEN_LINE      16 /* bytes a line */
#define GOLDEN_MAX_BYTES ((size_t)1024 * 1024)

void test_golden(const char *name, const void *data, size_t size)
{
	struct buf expected = BUF_NULL(GOLDEN_MAX_BYTES);
	const uint8_t *bytes = data;
	char *text AUTO_FREE = NULL;
	size_t text_size = 0;
	char path[512];
	int fd;

	for (size_t at = 0; at < size; at += GOLDEN_LINE) {
		char line[2 * GOLDEN_LINE + 1];
		size_t n = size - at < GOLDEN_LINE ? size - at : GOLDEN_LINE;

		str_hex(line, bytes + at, n);
		assert_int_equal(buf_printf(&expected, "%s\n", line), 0);
	}
	assert_int_equal(str_format(path, sizeof(path), TEST_DATA_DIR "/golden/%s.hex", name), 0);
	/* NOLINTNEXTLINE(concurrency-mt-unsafe): one thread */
	if (getenv("TEST_GOLDEN_UPDATE")) {
		fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
		assert_true(fd >= 0);
		assert_int_equal(io_write_all(fd, expected.data, expected.size), 0);
		(void)fd_close(fd);
	}
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		fail_msg("%s is missing; TEST_GOLDEN_UPDATE=1 writes it", path);
	assert_int_equal(io_read_file(fd, GOLDEN_MAX_BYTES, &text, &text_size), 0);
	(void)fd_close(fd);
	assert_string_equal(text, buf_text(&expected));
	buf_done(&expected);
}
