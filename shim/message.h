/*
 * Messages between the processes of one shim: pid 1, nursery, spawner, runners and file helpers.
 *
 * All are forked from one image, so there is no version, and all run under the session's unmapped
 * id (the file helper under that of `user`). A message is one SOCK_SEQPACKET packet: this struct,
 * then `n_bytes` further bytes. What a runner or helper says decides about its own job only.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"

#include "sandboxd/wire.h"

enum message_type {
	/* pid 1 to nursery; one descriptor each: the new process's end of a socket pair */
	MESSAGE_SPAWNER = 1,
	MESSAGE_ROOT_SPAWNER,
	MESSAGE_HELPER,
	/* pid 1 to spawner; one descriptor as above */
	MESSAGE_RUNNER,
	/* pid 1 to runner */
	/* a WIRE_EXEC payload; descriptors: [stdin,] stdout, stderr; none where it gets a terminal
	 */
	MESSAGE_EXEC,
	MESSAGE_TERM,   /* end the tree politely */
	MESSAGE_KILL,   /* end the tree */
	MESSAGE_SIGNAL, /* wait_status: the number; step: enum wire_signal_scope */
	/* to one that has no command; answered with DONE or FAILED */
	MESSAGE_HALT,  /* stop all commands. step: 1: again, who began meanwhile */
	MESSAGE_GO_ON, /* who was stopped by it goes on */
	/* pid 1 to file helper */
	MESSAGE_PUT, /* a WIRE_PUT payload; descriptor: the pipe that carries the bytes */
	/* a WIRE_FILE payload; descriptors: the pipe for what is found, [that with the bytes] */
	MESSAGE_FILE,
	MESSAGE_COMMIT, /* uint64_t: how many bytes the pipe of a WIRE_FILE_PUT carried; 0: a copy
			 */
	MESSAGE_CANCEL, /* a put or a copy that was not committed, and will not be */

	/* to pid 1 */
	MESSAGE_UP,      /* spawner: confined. Otherwise `step` and `error_number` say why not */
	MESSAGE_STARTED, /* runner: pid, peer_pid; descriptor: our side of its terminal, if any */
	MESSAGE_FAILED,  /* runner, helper: step, error_number */
	MESSAGE_EXIT,    /* runner: wait_status, usage, n_children */
	MESSAGE_DONE,    /* helper; runner: of HALT and GO_ON */
	MESSAGE_WRITTEN, /* helper: a copy is complete, and seen when it is committed */
};

struct message {
	uint32_t type; /* enum message_type */
	uint32_t n_bytes;
	int32_t pid;      /* STARTED: the command */
	int32_t peer_pid; /* STARTED: the runner itself */
	uint32_t step;    /* FAILED: enum wire_step */
	int32_t error_number;
	int32_t wait_status;
	uint32_t n_children; /* EXIT: 1 while descendants of the command live on */
	uint64_t user_us;
	uint64_t system_us;
	uint64_t max_rss_kib;
};
_Static_assert(sizeof(struct message) == 56, "no padding crosses a socket");

#define MESSAGE_MAX_BYTES (sizeof(struct message) + WIRE_PAYLOAD_MAX_BYTES)
#define MESSAGE_MAX_FDS   3

/* Send a message with `n_bytes` of payload. 0, -EAGAIN on a non-blocking socket, or -errno. */
MUST_USE int message_send(int fd, const struct message *message, const void *payload,
			  const int *fds, size_t n_fds);

/* Ask nursery or spawner for a process (MESSAGE_…SPAWNER, MESSAGE_HELPER, MESSAGE_RUNNER). *ret_fd:
 * our end of its socket pair, non-blocking. 0 or -errno. */
MUST_USE int message_request(int fd, uint32_t type, int *ret_fd);

/* Receive one into buffer (MESSAGE_MAX_BYTES). The payload lies behind the struct. 1: a message;
 * 0: the peer is gone; -EAGAIN; -EPROTO and others: treat the peer as gone. */
MUST_USE int message_receive(int fd, void *buffer, size_t buffer_bytes, struct message *ret_message,
			     int *ret_fds, size_t max_fds);

/* The peer is gone, or says CANCEL next. Takes nothing. */
bool message_is_cancelled(int fd);
