/*
 * Commands of a session. A command has an id, what it said as far as that is kept, and any number
 * of readers of it, each with a position of its own.
 *
 * A *foreground* command belongs to the request that began it: that one paces it (what it has not
 * taken is not settled, so the shim's ring fills and the kernel stops the command), and its end
 * ends the command, unless the caller asked to keep it. A *background* command belongs to the
 * session: its output is settled at once and the oldest makes room for the newest. One that holds
 * its output is paced until its first reader has all that was there when it came, so that this one
 * misses nothing.
 *
 * Whatever is to outlive this worker is kept by the shim too (WIRE_EXEC_KEEP), which says it all
 * again to the next worker; so nothing of it is in the store.
 */
#pragma once

#include <sys/types.h>

#include "supervisor/api/http/request.h"
#include "supervisor/api/http/runtime_errors.h"
#include "supervisor/api/jobs/command_log.h"
#include "supervisor/api/live.h"
#include "supervisor/api/session/spec.h"

/* Kept output: of one command, of all of a session, of all sessions; beyond the last two, or of an
 * owner whose share of the last is too large (shares.h), what is over the floor goes. */
#define COMMAND_KEPT_MAX_BYTES         ((size_t)1024 * 1024)
#define COMMAND_SESSION_KEPT_MAX_BYTES ((size_t)4 * 1024 * 1024)
#define COMMAND_ALL_KEPT_MAX_BYTES     ((size_t)256 * 1024 * 1024)
#define COMMAND_KEPT_FLOOR_BYTES       ((size_t)64 * 1024)
/* What one JSON answer holds at most, what it holds where the caller says nothing, and what all
 * hold that wait for their command's end: apart from what is held for requests, as they may wait
 * for hours. */
#define COMMAND_ANSWER_MAX_BYTES       ((size_t)8 * 1024 * 1024)
#define COMMAND_ANSWER_BYTES           ((size_t)1024 * 1024)
#define COMMAND_ALL_ANSWERS_MAX_BYTES  ((size_t)128 * 1024 * 1024)
#define COMMAND_TEXT_BYTES             256
/* Standard input that was sent and that the command has not taken. */
#define COMMAND_STDIN_WINDOW_BYTES     ((size_t)768 * 1024)

struct command_reader {
	struct list link;        /* command->readers */
	struct command *command; /* NULL: it is forgotten */
	struct command_event *next;
	uint64_t after; /* seq of the last one that it took */
	bool lost;      /* something behind `after` was dropped before it was taken */
	void (*wake)(struct command_reader *reader);
};

enum command_state {
	COMMAND_STATE_STARTING,
	COMMAND_STATE_RUNNING,
	COMMAND_STATE_ENDED,
};

struct command {
	struct activity activity; /* until ENDED */
	struct list link;  /* live->commands; alone: its session is gone, or it is forgotten */
	struct live *live; /* NULL: as alone */
	struct id id;
	enum command_state state;
	struct command_log log;
	size_t counted_bytes; /* of the log, in the session's and everybody's sum */
	struct list readers;
	struct list waiters; /* command_wait.c */
	struct command_reader *pacer;
	size_t unread_bytes; /* that the pacer has not taken, or the first reader will */
	struct buf held;     /* uint64_t: numbers that are not settled */
	uint32_t tree;       /* live->tree of its slot in the shim */
	uint32_t wire_job;
	int32_t pid;
	bool ending; /* on_ended: not freed meanwhile */
	bool is_cut; /* no end follows: it goes on where nobody hears it now */
	bool background;
	bool holds;          /* its output, until the first reader */
	bool catches_up;     /* the pacer, a first reader: until it has what was held */
	bool keeps;          /* outlives its request and this worker */
	bool has_credential; /* on its input, for a program of ours */
	bool stdin_open;
	bool stdin_closed; /* nobody reads it */
	uint64_t stdin_sent;
	uint64_t stdin_taken;
	struct wire_size size; /* of its terminal; 0: none */
	usec_t created_at;     /* realtime, as ended_at */
	usec_t ended_at;
	usec_t began; /* boottime; 0: with an earlier worker */
	usec_t started;
	char text[COMMAND_TEXT_BYTES]; /* its words, cut: UTF-8 */
};

/* Begin one; the environment is made. 0 and it runs; -EAGAIN: a command of `root` could change what
 * another one reads a credential with; or -errno as of shim_link_exec. */
MUST_USE int command_begin(struct live *live, const struct spec_command *spec,
			   const struct environment *environment, usec_t began,
			   struct command **ret_command);
/* `kept` of the link. */
MUST_USE int commands_adopt(struct live *live, uint32_t wire_job, const struct wire_kept *kept,
			    const uint8_t *note, size_t note_bytes);
/* The session is gone; who still reads gets the rest. */
void commands_leave(struct live *live);
/* Its link is gone and its tree is not: those that are kept are forgotten, as the next link tells
 * of them again. Who reads one is cut, who waits for one is refused. The others are left. */
void commands_unlink(struct live *live);
struct command *command_find(const struct live *live, const struct id *id);
/* The end, or NULL. */
const struct command_event *command_end_event(const struct command *command);
const char *command_status(const struct command *command);

/* From after `after`; pacing: the command waits for it. */
void command_read(struct command *command, struct command_reader *reader, uint64_t after,
		  bool pacing);
/* The next event, which is valid until the next call; NULL: none yet, or no more. */
const struct command_event *command_take(struct command_reader *reader);
bool command_read_all(const struct command_reader *reader); /* nothing follows */
/* Nor does an end: another stream may go on with it later. */
static inline bool command_is_cut(const struct command_reader *reader)
{
	return reader->command && reader->command->is_cut;
}
/* It has not ended, and its session is suspended. */
bool command_stands_still(const struct command *command);
/* Readers look again: their session stands still, or goes on. */
void commands_wake(struct live *live);
/* Of a foreground command the pacer's end is the command's. */
void command_read_end(struct command_reader *reader);
void command_cancel(struct command *command);

/* command_tell.c */

/* 0; -EAGAIN: the command does not read what it has; -EPIPE: it takes no input (any more);
 * -ENOBUFS, -ENOMEM. All or nothing. */
MUST_USE int command_stdin(struct command *command, const void *data, size_t size);
MUST_USE int command_stdin_end(struct command *command);
size_t command_stdin_room(const struct command *command);
MUST_USE int command_signal(struct command *command, const struct wire_signal *signal);
MUST_USE int command_resize(struct command *command, const struct wire_size *size);

/* command_wait.c */

/* It has started (started) or ended. */
void command_tell_waiters(struct command *command);
/* All of them: it cannot be waited for. */
void command_refuse_waiters(struct command *command, enum runtime_error error);
/* Its session is suspended: who can ask again is told so. Others wait for it to go on: one answer
 * of a command that ends with its request, and for a start, which has a time of its own. */
void commands_tell_suspended(struct live *live);
