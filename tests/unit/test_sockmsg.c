#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
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
/* A TCP socket whose last close waits: its other end does not read, and the linger time is long. */
static int lingering_socket(int *ret_listener)
{
	static const char block[65536];
	const struct linger linger = {.l_onoff = 1, .l_linger = 60};
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	*ret_listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_return_code(bind(*ret_listener, &address, size), errno);
	assert_return_code(listen(*ret_listener, 1), errno);
	assert_return_code(getsockname(*ret_listener, &address, &size), errno);
	assert_return_code(connect(fd, &address, size), errno);
	assert_return_code(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), errno);
	assert_return_code(fcntl(fd, F_SETFL, O_NONBLOCK), errno);
	while (write(fd, block, sizeof(block)) > 0)
		continue;
	return fd;
}

/* Nobody stops us by a descriptor whose close waits, whether it is read or left in the queue. */
static void test_sockmsg_pushed_socket_does_not_linger(void **state)
{
	int *fds = *state;
	int listener = -1;
	int fd = lingering_socket(&listener);
	usec_t begun_at = clock_boottime();
	char data[4];

	assert_int_equal(sockmsg_send(fds[0], "a", 1, &fd, 1), 0);
	fd = fd_close(fd);
	assert_int_equal(sockmsg_recv(fds[1], data, sizeof(data), NULL, 0), -EPROTO);
	listener = fd_close(listener);
	fd = lingering_socket(&listener);
	assert_int_equal(sockmsg_send(fds[0], "a", 1, NULL, 0), 0);
	assert_int_equal(sockmsg_send(fds[0], "b", 1, &fd, 1), 0);
	fd = fd_close(fd);
	sockmsg_drain(fds[1]);
	fds[1] = fd_close(fds[1]);
	assert_true(clock_boottime() - begun_at < 30 * USEC_PER_SEC);
	listener = fd_close(listener);
}

static void test_sockmsg_refuse_fds_where_the_kernel_can(void **state)
{
	const int *fds = *state;
	int n_before = fd_count();
	int sent = 0;
	char data[4];
	int r;

	sockmsg_refuse_fds(fds[1]);
	assert_int_equal(sockmsg_send(fds[0], "a", 1, NULL, 0), 0);
	assert_int_equal(sockmsg_recv(fds[1], data, sizeof(data), NULL, 0), 1);
	r = sockmsg_send(fds[0], "b", 1, &sent, 1);
	if (r == 0)
		assert_int_equal(sockmsg_recv(fds[1], data, sizeof(data), NULL, 0), -EPROTO);
	else
		assert_int_equal(r, -EPERM);
	assert_int_equal(fd_count(), n_before);
	/* The other direction is untouched. */
	assert_int_equal(sockmsg_send(fds[1], "c", 1, &sent, 1), 0);
}

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
	TEST(test_sockmsg_pushed_socket_does_not_linger),
	TEST(test_sockmsg_refuse_fds_where_the_kernel_can),
};
TEST_MAIN(tests)
