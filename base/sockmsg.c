/*
 * Theory. A SOCK_SEQPACKET message arrives whole or not at all, so there is no reassembly; what can
 * go wrong is a message larger than our buffer (the kernel cuts it and says MSG_TRUNC) and
 * descriptors that we did not ask for. A peer that sends descriptors to a process that does not
 * look at them fills that process's table, so the control buffer is always given, always examined,
 * and whatever is in it beyond the caller's wish is closed at once.
 *
 * That close is a trap of its own: the last close of a TCP socket with SO_LINGER waits for its
 * other end, for as long as whoever made it said, whether we close it or the kernel drops it for
 * us. A peer could so stop a process that never blocks. Hence the control buffer has room for all
 * that one message can carry, so that nothing is dropped behind our back; what is not wanted loses
 * its linger time before it is closed; and a socket is drained before it is closed with messages in
 * it. Where the kernel can (6.16), a socket that expects no descriptor takes none:
 * sockmsg_refuse_fds.
 *
 * An empty message cannot be told from end-of-file, so sending one is refused.
 */
#include "base/sockmsg.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

#include "base/err.h"

#define KERNEL_MAX_FDS 253 /* SCM_MAX_FD: in one message */
#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

union control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(SOCKMSG_MAX_FDS * sizeof(int))];
};
/* With an odd number CMSG_SPACE has room for one more, which a peer could fill. */
_Static_assert(CMSG_SPACE(SOCKMSG_MAX_FDS * sizeof(int)) == CMSG_LEN(SOCKMSG_MAX_FDS * sizeof(int)),
	       "the control buffer holds SOCKMSG_MAX_FDS and no more");

union received_control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(KERNEL_MAX_FDS * sizeof(int))];
};

int sockmsg_send(int fd, const void *data, size_t size, const int *fds, size_t n_fds)
{
	/* iovec has no const form; sendmsg only reads. */
	union {
		const void *in;
		void *out;
	} unconst = {.in = data};
	struct iovec iov = {.iov_base = unconst.out, .iov_len = size};

	return sockmsg_sendv(fd, &iov, 1, fds, n_fds);
}

int sockmsg_sendv(int fd, const struct iovec *iov, size_t n_iov, const int *fds, size_t n_fds)
{
	union {
		const struct iovec *in;
		struct iovec *out;
	} unconst = {.in = iov};
	struct msghdr msg = {.msg_iov = unconst.out, .msg_iovlen = n_iov};
	union control control;
	size_t total = 0;
	ssize_t n;

	ASSERT(n_fds <= SOCKMSG_MAX_FDS);
	for (size_t i = 0; i < n_iov; i++)
		total += iov[i].iov_len;
	if (total == 0)
		return -EINVAL;
	if (n_fds > 0) {
		struct cmsghdr *cmsg;

		memset(&control, 0, sizeof(control));
		msg.msg_control = control.bytes;
		msg.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		cmsg = CMSG_FIRSTHDR(&msg);
		ASSERT(cmsg);
		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(cmsg), fds, n_fds * sizeof(int));
	}
	do
		n = sendmsg(fd, &msg, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	return (size_t)n == total ? 0 : -EIO;
}

/* Close a descriptor that somebody pushed on us, without waiting for whatever it is. */
static void discard(int fd)
{
	const struct linger none = {.l_onoff = 0};

	/* ENOTSOCK for most. */
	(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
	(void)fd_close(fd);
}

/* Collect the descriptors of a received message. Returns false if there was anything else. */
static bool take_control(struct msghdr *msg, int got[KERNEL_MAX_FDS], size_t *ret_n)
{
	bool clean = true;
	size_t n = 0;

	for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(msg); cmsg; cmsg = CMSG_NXTHDR(msg, cmsg)) {
		size_t bytes;

		if (cmsg->cmsg_level != SOL_SOCKET || cmsg->cmsg_type != SCM_RIGHTS) {
			clean = false;
			continue;
		}
		bytes = cmsg->cmsg_len - CMSG_LEN(0);
		/* The control buffer has no room for more. */
		ASSERT(n + bytes / sizeof(int) <= KERNEL_MAX_FDS);
		memcpy(got + n, CMSG_DATA(cmsg), bytes);
		n += bytes / sizeof(int);
	}
	*ret_n = n;
	return clean;
}

ssize_t sockmsg_recv(int fd, void *data, size_t size, int *ret_fds, size_t max_fds)
{
	struct iovec iov = {.iov_base = data, .iov_len = size};
	union received_control control;
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes),
	};
	int got[KERNEL_MAX_FDS];
	size_t n_got = 0;
	bool clean;
	ssize_t n;

	ASSERT(max_fds <= SOCKMSG_MAX_FDS);
	do
		n = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;

	clean = take_control(&msg, got, &n_got);
	if (!clean || n_got > max_fds || (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) ||
	    (n == 0 && n_got > 0)) {
		for (size_t i = 0; i < n_got; i++)
			discard(got[i]);
		return -EPROTO;
	}
	for (size_t i = 0; i < max_fds; i++)
		ret_fds[i] = i < n_got ? got[i] : -1;
	return n;
}

void sockmsg_refuse_fds(int fd)
{
	const int no = 0;

	/* ENOPROTOOPT before 6.16: sockmsg_recv then finds and closes them. */
	(void)setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof(no));
}

void sockmsg_drain(int fd)
{
	char byte;
	ssize_t n;

	/* From here on nothing is added. ENOTCONN: the other end was first. */
	(void)shutdown(fd, SHUT_RDWR);
	/* ECONNRESET comes once, before what is in the queue. */
	do
		n = sockmsg_recv(fd, &byte, sizeof(byte), NULL, 0);
	while (n > 0 || n == -EPROTO || n == -ECONNRESET);
}

int sockmsg_peer(int fd, pid_t *ret_pid, uid_t *ret_uid, gid_t *ret_gid)
{
	struct ucred cred = {0};
	socklen_t size = sizeof(cred);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &size) < 0)
		return -errno;
	if (size != sizeof(cred))
		return -EPROTO;
	*ret_pid = cred.pid;
	*ret_uid = cred.uid;
	*ret_gid = cred.gid;
	return 0;
}

int sockmsg_pair(int ret_fds[2], int nonblock)
{
	int fds[2];
	int type = SOCK_SEQPACKET | SOCK_CLOEXEC | (nonblock ? SOCK_NONBLOCK : 0);

	if (socketpair(AF_UNIX, type, 0, fds) < 0)
		return -errno;
	ret_fds[0] = fds[0];
	ret_fds[1] = fds[1];
	return 0;
}
