/*
 * Progress frames of one task: {task_id, stage, message, timestamp, seq, ...extras}. Built once,
 * kept as JSON text, numbered from 1, exactly one terminal (`done` or `error`) and nothing after
 * it.
 *
 * Kept: at most TASK_FRAMES_MAX frames and TASK_FRAMES_MAX_BYTES of text. A `log` frame that does
 * not fit is dropped before it gets a number; one `log` frame, written just before the terminal
 * one, says how many. The other stages are always taken: their number is bounded by the components.
 *
 * A frame may be shown to readers once it is *settled*: durable, or the store has said that it is
 * degraded. Settled frames may leave memory (frames_trim); readers below `first` read the store.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/id.h"

enum frames_stage {
	FRAMES_STAGE_START,
	FRAMES_STAGE_MATERIALIZE,
	FRAMES_STAGE_LOG,
	FRAMES_STAGE_DONE,
	FRAMES_STAGE_ERROR,
	FRAMES_STAGE_MAX_,
};
const char *frames_stage_text(enum frames_stage stage);
int frames_stage_from_text(const char *text); /* or -1 */
static inline bool frames_stage_terminal(enum frames_stage stage)
{
	return stage == FRAMES_STAGE_DONE || stage == FRAMES_STAGE_ERROR;
}

struct frames_line {
	uint32_t seq;
	enum frames_stage stage;
	uint32_t size; /* bytes of text without the NUL */
	char *text;    /* owned: one JSON object, no newline */
};

struct frames {
	struct id task;
	struct frames_line *line; /* owned, rising seq */
	size_t n_lines;
	size_t n_allocated;   /* after frames_reserve one more than is used */
	char *reserve;        /* owned: for a last frame without memory */
	size_t bytes;         /* of text in memory */
	size_t total_bytes;   /* of all frames so far */
	uint32_t next_seq;    /* from 1 */
	uint32_t settled_seq; /* readers see up to here */
	uint32_t trimmed_seq; /* frames up to here are only in the store */
	uint32_t n_dropped;   /* log frames */
	size_t max_frames;
	size_t max_bytes;
	bool terminal;
};

void frames_init(struct frames *frames, const struct id *task);
void frames_done(struct frames *frames);
/* Room for frames_end_plain, so that a task can end whatever happens. 0 or -ENOMEM. */
MUST_USE int frames_reserve(struct frames *frames);
/* Frames 1..last_seq of this task are in the store only (a task read back after a restart). */
void frames_resume(struct frames *frames, uint32_t last_seq, bool terminal);

/*
 * Add a frame. extras: object whose members follow the core keys (a core key in it is ignored);
 * borrowed, may be NULL. timestamp is `now`. 0 and ret_seq (may be NULL); FRAMES_E_TERMINAL: the
 * task has ended; FRAMES_E_DROPPED: a log frame beyond the bounds; -ENOMEM.
 */
#define FRAMES_ROW_BYTES  128 /* of a frame in the store, beside its text */
#define FRAMES_E_TERMINAL 1
#define FRAMES_E_DROPPED  2
MUST_USE int frames_add(struct frames *frames, enum frames_stage stage, const char *message,
			json_t *extras, usec_t now, uint32_t *ret_seq);
/* The terminal `error` frame with the least that it needs, once, without memory. code and message
 * are texts of ours. */
void frames_end_plain(struct frames *frames, const struct id *session, const char *code,
		      const char *message, usec_t now);
/* What the frames from first_seq on take in the store, rows included. */
uint64_t frames_stored_bytes(const struct frames *frames, uint32_t first_seq);
/* A `log` frame must fit in that many bytes more, and in TASK_FRAMES_MAX_BYTES. */
void frames_bound(struct frames *frames, uint64_t room);
void frames_settle(struct frames *frames, uint32_t seq);
/* First frame with a number above `after`, settled or not; NULL: none. Valid until the next add. */
const struct frames_line *frames_after(const struct frames *frames, uint32_t after);
/* The same, but only what a reader may see. */
const struct frames_line *frames_next_visible(const struct frames *frames, uint32_t after);
/* A reader at `after` must read the store first. */
bool frames_need_store(const struct frames *frames, uint32_t after);
/* All is settled and the reader at `after` has seen the terminal frame. */
bool frames_finished(const struct frames *frames, uint32_t after);
/* Drop all settled texts from memory. Bytes given back. */
size_t frames_trim(struct frames *frames);
