#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/sockmsg.h"

#include "tests/lib/test.h"

static int setup(void **state)
{
	static int fds[2];

	assert_int_equal(sockmsg_pair(fds, 1), 0);
	*state = fds;
	return 0;
}

static int teardown(void **state)
{
	int *fds = *state;

	fds[0] = fd_close(fds[0]);
	fds[1] = fd_close(fds[1]);
	return 0;
}

static void test_sockmsg_recv_whole_message(void **state)
{
	const int *fds = *state;
	char data[16];

	assert_int_equal(sockmsg_recv(fds[1], data, sizeof(data), NULL, 0), -EAGAIN);
	assert_int_equal(sockmsg_send(fds[0], "one", 3, NULL, 0), 0);
	assert_int_equal(sockmsg_send(fds[0], "three", 5, NULL, 0), 0);
	assert_int_equal(sockmsg_recv(fds[1], data, sizeof(data), NULL, 0), 3);
	assert_int_equal(sockmsg_recv(fds[1], data, sizeof(data), NULL, 0), 5);
	assert_memory_equal(data, "three", 5);
}

static void test_sockmsg_sendv_is_one_message(void **state)
{
	const int *fds = *state;
	char a[] = "ab";
	char b[] = "cde";
	struct iovec iov[2] = {
		{a, 2},
                {b, 3}
        };
	char data[16];

	assert_int_equal(sockmsg_sendv(fds[0], iov, 2, NULL, 0), 0);
	assert_int_equal(sockmsg_recv(fds[1], data, sizeof(data), NULL, 0), 5);
	assert_memory_equal(data, "abcde", 5);
}

static void test_sockmsg_recv_descriptors_are_cloexec(void **state)
{
	const int *fds = *state;
	int sent[2] = {0, 1};
	int got[4];
	char data[4];

	assert_int_equal(sockmsg_send(fds[0], "x", 1, sent, 2), 0);
	assert_int_equal(sockmsg_recv(fds[1], data, sizeof(data), got, 4), 1);
	assert_true(got[0] >= 0 && got[1] >= 0);
	assert_int_equal(got[2], -1);
	assert_int_equal(got[3], -1);
	assert_int_equal(fcntl(got[0], F_GETFD), FD_CLOEXEC);
	(void)fd_close(got[0]);
	(void)fd_close(got[1]);
}

static void test_sockmsg_recv_too_many_descriptors_are_closed(void **state)
{
	const int *fds = *state;
	int sent[4] = {0, 1, 2, 0};
	int n_before = fd_count();
	int got[4] = {-7, -7, -7, -7};
	char data[4];

	for (size_t max = 0; max < 4; max++) {
		assert_int_equal(sockmsg_send(fds[0], "x", 1, sent, 4), 0);
		assert_int_equal(sockmsg_recv(fds[1], data, sizeof(data), max ? got : NULL, max),
				 -EPROTO);
		assert_int_equal(fd_count(), n_before);
		assert_int_equal(got[0], -7);
	}
}

/* More than our own sender can send: raw. */
static void test_sockmsg_recv_control_cut_is_refused(void **state)
{
	const int *fds = *state;
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(20 * sizeof(int))];
	} control = {0};
	char byte = 'x';
	struct iovec iov = {&byte, 1};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control.bytes,
			     .msg_controllen = sizeof(control.bytes)};
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
	int n_before = fd_count();
	int got[4];
	char data[4];

	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN(20 * sizeof(int)); /* twenty times descriptor 0 */
	assert_int_equal(sendmsg(fds[0], &msg, 0), 1);
	assert_int_equal(sockmsg_recv(fds[1], data, sizeof(data), got, 4), -EPROTO);
	assert_int_equal(fd_count(), n_before);
}

static void test_sockmsg_recv_credentials_are_refused(void **state)
{
	const int *fds = *state;
	int on = 1;
	char data[4];

	assert_int_equal(setsockopt(fds[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)), 0);
	assert_int_equal(sockmsg_send(fds[0], "x", 1, NULL, 0), 0);
	assert_int_equal(sockmsg_recv(fds[1], data, sizeof(data), NULL, 0), -EPROTO);
}

static void test_sockmsg_recv_long_message_is_refused(void **state)
{
	const int *fds = *state;
	int sent[1] = {0};
	int n_before = fd_count();
	int got[1];
	char data[4];

	assert_int_equal(sockmsg_send(fds[0], "12345", 5, sent, 1), 0);
	assert_int_equal(sockmsg_send(fds[0], "1234", 4, NULL, 0), 0);
	assert_int_equal(sockmsg_recv(fds[1], data, sizeof(data), got, 1), -EPROTO);
	assert_int_equal(fd_count(), n_before);
	assert_int_equal(sockmsg_recv(fds[1], data, sizeof(data), got, 1), 4);
}

static void test_sockmsg_send_empty_is_refused(void **state)
{
	const int *fds = *state;

	assert_int_equal(sockmsg_send(fds[0], "", 0, NULL, 0), -EINVAL);
}

static void test_sockmsg_recv_end_is_zero(void **state)
{
	int *fds = *state;
	char data[4];

	fds[0] = fd_close(fds[0]);
	assert_int_equal(sockmsg_recv(fds[1], data, sizeof(data), NULL, 0), 0);
	assert_int_equal(sockmsg_send(fds[1], "x", 1, NULL, 0), -EPIPE); /* and no SIGPIPE */
}

static void test_sockmsg_send_full_is_eagain(void **state)
{
	const int *fds = *state;
	int r = 0;

	for (int i = 0; i < 100000 && r == 0; i++)
		r = sockmsg_send(fds[0], "x", 1, NULL, 0);
	assert_int_equal(r, -EAGAIN);
}

static void test_sockmsg_peer_is_us(void **state)
{
	const int *fds = *state;
	pid_t pid = 0;
	uid_t uid = 1;
	gid_t gid = 1;

	assert_int_equal(sockmsg_peer(fds[0], &pid, &uid, &gid), 0);
	assert_int_equal(pid, getpid());
	assert_int_equal(uid, geteuid());
	assert_int_equal(gid, getegid());
	assert_int_equal(sockmsg_peer(0, &pid, &uid, &gid), -ENOTSOCK);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
static const struct CMUnitTest tests[] = {
	TEST(test_sockmsg_recv_whole_message),
	TEST(test_sockmsg_sendv_is_one_message),
	TEST(test_sockmsg_recv_descriptors_are_cloexec),
	TEST(test_sockmsg_recv_too_many_descriptors_are_closed),
	TEST(test_sockmsg_recv_control_cut_is_refused),
	TEST(test_sockmsg_recv_credentials_are_refused),
	TEST(test_sockmsg_recv_long_message_is_refused),
	TEST(test_sockmsg_send_empty_is_refused),
	TEST(test_sockmsg_recv_end_is_zero),
	TEST(test_sockmsg_send_full_is_eagain),
	TEST(test_sockmsg_peer_is_us),
};
TEST_MAIN(tests)
