#include "shim/message.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/sockmsg.h"

int message_send(int fd, const struct message *message, const void *payload, const int *fds,
		 size_t n_fds)
{
	struct message head = *message;
	struct iovec iov[2] = {
		{.iov_base = &head, .iov_len = sizeof(head)},
		{.iov_base = NULL,  .iov_len = head.n_bytes},
	};

	/* iovec has no const; sendmsg does not write. */
	memcpy(&iov[1].iov_base, &payload, sizeof(payload));
	return sockmsg_sendv(fd, iov, head.n_bytes > 0 ? 2 : 1, fds, n_fds);
}

int message_request(int fd, uint32_t type, int *ret_fd)
{
	const struct message message = {.type = type};
	AUTO_CLOSE int ours = -1;
	AUTO_CLOSE int theirs = -1;
	int pair[2];
	int r;

	r = sockmsg_pair(pair, 0);
	if (r < 0)
		return r;
	ours = pair[0];
	theirs = pair[1];
	r = fd_set_nonblock(ours, 1);
	if (r < 0)
		return r;
	r = message_send(fd, &message, NULL, &theirs, 1);
	if (r < 0)
		return r;
	*ret_fd = TAKE_FD(ours);
	return 0;
}

int message_receive(int fd, void *buffer, size_t buffer_bytes, struct message *ret_message,
		    int *ret_fds, size_t max_fds)
{
	struct message head;
	ssize_t n;

	n = sockmsg_recv(fd, buffer, buffer_bytes, ret_fds, max_fds);
	if (n <= 0)
		return (int)n;
	if ((size_t)n < sizeof(head))
		goto refuse;
	memcpy(&head, buffer, sizeof(head));
	if (head.n_bytes != (size_t)n - sizeof(head))
		goto refuse;
	*ret_message = head;
	return 1;

refuse:
	for (size_t i = 0; i < max_fds; i++)
		ret_fds[i] = fd_close(ret_fds[i]);
	return -EPROTO;
}

bool message_is_cancelled(int fd)
{
	struct message message = {0};
	struct iovec iov = {.iov_base = &message, .iov_len = sizeof(message)};
	struct msghdr header = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n = recvmsg(fd, &header, MSG_PEEK | MSG_DONTWAIT);

	return n == 0 || (n == (ssize_t)sizeof(message) && message.type == MESSAGE_CANCEL);
}
