/*
 * What a command said, in the order of its frames, as far as it is kept. Pure.
 *
 * Text is cut between characters: the beginning of one at the end of a frame waits for the next
 * frame of that stream, or for the end. So an event that is valid UTF-8 holds whole characters.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/buf.h"
#include "base/list.h"

#include "sandboxd/wire.h"

enum command_event_kind {
	COMMAND_EVENT_STDOUT,
	COMMAND_EVENT_STDERR,
	COMMAND_EVENT_EXIT,   /* data: struct wire_exit */
	COMMAND_EVENT_FAILED, /* data: struct wire_failed */
	COMMAND_EVENT_LOST,   /* data: a code of session_reason_code, with its NUL */
	COMMAND_EVENT_KIND_MAX_,
};

struct command_event {
	struct list link;
	uint64_t seq; /* grows; gaps mean nothing */
	enum command_event_kind kind;
	size_t size;
	uint8_t data[];
};

struct command_log {
	struct list events;
	size_t bytes;     /* with what each event costs */
	uint64_t seq;     /* the highest */
	uint64_t dropped; /* the highest that was dropped; 0: none */
	struct {
		uint8_t bytes[4];
		size_t size;
	} partial[2]; /* of a character of stdout, stderr */
};

void command_log_init(struct command_log *log);
void command_log_done(struct command_log *log);
/* A frame of output. *ret_event: what became of it; NULL: it only began a character. 0 or -ENOMEM:
 * then it is lost. */
MUST_USE int command_log_output(struct command_log *log, uint64_t number, bool is_stderr,
				const uint8_t *data, size_t size, struct command_event **ret_event);
/* The last event, behind what was only begun. number 0: it came without one. 0 or -ENOMEM. */
MUST_USE int command_log_end(struct command_log *log, uint64_t number, enum command_event_kind kind,
			     const void *data, size_t size);
/* The events up to `number` were dropped before we heard of them. */
void command_log_dropped(struct command_log *log, uint64_t number);
struct command_event *command_log_first(const struct command_log *log);
/* The one behind, or NULL. */
struct command_event *command_log_next(const struct command_log *log,
				       const struct command_event *event);
/* The first behind a position, or NULL. */
struct command_event *command_log_after(const struct command_log *log, uint64_t seq);
/* There is one. */
void command_log_drop_first(struct command_log *log);
size_t command_event_cost(const struct command_event *event);

/* An event as one JSON object without a newline. 0, -ENOMEM or -EMSGSIZE. */
MUST_USE int command_event_format(struct buf *out, const struct command_event *event);
/* The members of an exit, without braces. */
MUST_USE int command_exit_format(struct buf *out, const struct wire_exit *exit_info);
/* Bytes as a JSON string, where they are UTF-8 and at most one in 16 (and 64 of few) is a control
 * character: 1; else 0 and nothing is added. -ENOMEM, -EMSGSIZE. */
MUST_USE int command_text_format(struct buf *out, const uint8_t *data, size_t size);
MUST_USE int command_base64_format(struct buf *out, const uint8_t *data, size_t size);
