/*
 * The pipes of a job.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/clock.h"

struct job;
struct job_output;

/* Bytes of a file that wait for the helper: one component of the largest size, sent in one go, and
 * some. Beyond them the job fails with {REQUEST, ENOBUFS}, as beyond EXEC_STDIN_MAX_BYTES of a
 * command's standard input. */
#define STDIO_PUT_MAX_BYTES (2ul * 1024 * 1024)

/* Both ends of a pipe; ours is `mine` (0: read, 1: write) and non-blocking. */
MUST_USE int stdio_pipe(int mine, int *ret_fd, int *ret_child_fd);
/* What is done where the session has secrets. */
enum stdio_mask {
	STDIO_MASK_TEXT,
	STDIO_MASK_RECORDS, /* lengths in it mean something: what is masked keeps its length */
	STDIO_MASK_NONE,    /* the content of files, which is not masked where it is read either */
};
MUST_USE int stdio_open_output(struct job *job, int index, uint16_t type, enum stdio_mask mask,
			       int *ret_child_fd);
MUST_USE int stdio_open_input(struct job *job, size_t max_bytes, int *ret_child_fd);
/* What a terminal needs that could fail, before there is one; then the terminal, which is taken
 * also on failure. 0 or -errno. */
MUST_USE int stdio_expect_terminal(struct job *job);
MUST_USE int stdio_open_terminal(struct job *job, int pty_fd);
void stdio_close(struct job *job);

/* The command runs: watch its pipes. */
void stdio_watch(struct job *job);
/* Read what is allowed and there is, watch or unwatch the pipes accordingly. */
void stdio_pump(struct job *job, usec_t now);
/* The leader ended, as job->exit says: note what each pipe holds, which is certainly read, and let
 * the masks of those at their end decide. */
void stdio_leader_ended(struct job *job);
/* Close the pipes that others hold open; what was held back for masking is decided. */
void stdio_give_up(struct job *job);
/* All pipes from the command are at their end. */
bool stdio_at_end(const struct job *job);
/* Nothing that the leader wrote is left in a pipe. */
bool stdio_owes_nothing(const struct job *job);

/* Queue bytes for the reader. 0; -ENOBUFS: the queue is full; -ENOMEM. */
MUST_USE int stdio_write(struct job *job, const uint8_t *data, size_t size);
/* To a terminal: its end-of-file character, which is no end of ours. */
void stdio_write_end(struct job *job);
