/*
 * A real shim in real namespaces, without the supervisor: a small root made of the host's /usr, a
 * tmpfs session folder, a user namespace below, the unmapped id. Needs root and tests/isolated.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "sandboxd/wire.h"

#define RIG_ID_BASE 1073741824u /* what id 0 of the session is outside */

struct rig {
	pid_t shim_pid; /* in our PID namespace */
	int listen_fd;
	int ready_fd;
	int api_fd; /* -1: not connected */
	int secrets_fd;
	char socket_path[108];
	uint64_t acked;  /* last number seen, acknowledged by rig_next unless `hold` */
	bool hold;       /* do not acknowledge */
	uint64_t expect; /* number of the next durable frame */
};

/* One job's life, filled by rig_wait. */
struct rig_result {
	int32_t pid;
	uint8_t *out; /* stdout and stderr, as they came; freed by rig_result_done */
	size_t out_bytes;
	struct wire_exit exit;
	struct wire_failed failed;
	uint16_t last; /* type of the last frame */
};

/* skip() where it cannot run here. */
void rig_require(void);
/* Set-up and end of a group of tests; nothing without root. Starts it and connects. secrets_fd: a
 * pipe with records, or -1; stays the caller's. 0. */
int rig_begin(struct rig *rig, int secrets_fd);
int rig_end(struct rig *rig);
/* Connect and greet with rig->acked. Returns the shim's number. */
uint64_t rig_connect(struct rig *rig);
void rig_disconnect(struct rig *rig);

void rig_send(struct rig *rig, uint16_t type, uint32_t job, const void *payload, size_t size);
struct rig_command {
	const char *const *argv;
	const char *cwd; /* NULL: /session */
	uint32_t flags;
	uint16_t program;
	uint32_t timeout_ms; /* 0: 20 s */
	uint32_t grace_ms;
	uint64_t rate;
	uint64_t max;
	const char *const *env; /* NULL: PATH only */
	const char *note;       /* NULL: none */
	struct wire_size size;
};
void rig_exec(struct rig *rig, uint32_t job, const struct rig_command *command);
void rig_shell(struct rig *rig, uint32_t job, const char *script);
void rig_put(struct rig *rig, uint32_t job, const char *path, const void *data, size_t size,
	     uint64_t announced);
/* The next frame, checked by frame_check; durable ones must come in order of their numbers. -1:
 * nothing within timeout_ms; -2: disconnected. Else the payload's size. */
int rig_next(struct rig *rig, int timeout_ms, struct wire_header *ret_header,
	     const uint8_t **ret_payload);
void rig_ack(struct rig *rig, uint64_t number);
/* Until the last frame of `job`; frames of other jobs fail the test. */
void rig_wait(struct rig *rig, uint32_t job, struct rig_result *result);
void rig_result_done(struct rig_result *result);
