/*
 * One SOCK_SEQPACKET message with at most SOCKMSG_MAX_FDS descriptors.
 */
#pragma once

#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/auto.h"

#define SOCKMSG_MAX_FDS 4

/* Send one message (MSG_NOSIGNAL). fds stay the caller's. 0, -EAGAIN, or -errno. A short send is
 * -EIO; an empty message, which could not be told from the end, -EINVAL. */
MUST_USE int sockmsg_send(int fd, const void *data, size_t size, const int *fds, size_t n_fds);
MUST_USE int sockmsg_sendv(int fd, const struct iovec *iov, size_t n_iov, const int *fds,
			   size_t n_fds);

/*
 * Receive one message. Descriptors arrive close-on-exec and are the caller's: ret_fds holds max_fds
 * entries, unused ones are -1. Descriptors beyond max_fds and any other ancillary data are closed
 * and the message is refused with -EPROTO, as is a message longer than size (MSG_TRUNC,
 * MSG_CTRUNC). Returns the length (0: peer closed), -EAGAIN, or -errno. ret_fds may be NULL with
 * max_fds 0.
 */
MUST_USE ssize_t sockmsg_recv(int fd, void *data, size_t size, int *ret_fds, size_t max_fds);

/* From now on nobody can send a descriptor to this socket, nor to one accepted from it; on kernels
 * before 6.16 nothing changes. */
void sockmsg_refuse_fds(int fd);
/* End the connection and take out what is still in it: before the close of a socket whose other end
 * may have put descriptors in. */
void sockmsg_drain(int fd);

/* Peer credentials of a Unix socket. 0 or -errno. */
MUST_USE int sockmsg_peer(int fd, pid_t *ret_pid, uid_t *ret_uid, gid_t *ret_gid);

/* A socketpair of SOCK_SEQPACKET, close-on-exec, nonblock as asked. 0 or -errno. */
MUST_USE int sockmsg_pair(int ret_fds[2], int nonblock);
