/*
 * One session's connection to its shim (include/sandboxd/wire.h): jobs out, frames in, durable
 * acknowledgements back. Never blocks. Everything that arrives is hostile: each message passes
 * frame_check, its job must be one that this link started and in a state that allows the frame, and
 * numbers must follow each other (docs/THREATS.md C4). Any surprise ends the link.
 *
 * Numbers. Each durable frame is handed up with its number; whoever took it says shim_link_settle
 * when it is committed (tasks) or out of our hands (commands). Numbers settle in any order; what is
 * acknowledged is the longest settled run from the start (jobs/flow.h), once per turn by
 * shim_link_flush.
 * Where the unsettled run grows beyond SHIM_LINK_WINDOW the link stops reading, and the kernel
 * stops the shim: no queue here grows without bound. Nor by long frames: a shim that sends more
 * bytes than its rings hold before they are acknowledged is none of ours.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#include "base/auto.h"
#include "base/id.h"

#include "sandboxd/wire.h"
#include "supervisor/api/jobs/flow.h"

#define SHIM_LINK_WINDOW ((size_t)16384) /* unsettled frames */
/* Twice what an honest one may owe, see shim_link_state.h. */
#define SHIM_LINK_OWED_MAX_BYTES                                                                   \
	((size_t)2 * (SHIM_MAX_JOBS * SHIM_RING_BYTES + SHIM_N_SLOTS * WIRE_FRAME_MAX_BYTES))
#define SHIM_LINK_OUT_MAX_BYTES ((size_t)8 * 1024 * 1024) /* waiting for the socket */

struct shim_link;

/* None of these may free the link: that is done at the end of a turn. */
struct shim_link_events {
	void (*started)(void *userdata, uint32_t job, int32_t pid);
	void (*output)(void *userdata, uint32_t job, uint64_t number, bool is_stderr,
		       const uint8_t *data, size_t size);
	void (*exited)(void *userdata, uint32_t job, uint64_t number,
		       const struct wire_exit *status);
	void (*failed)(void *userdata, uint32_t job, uint64_t number,
		       const struct wire_failed *failed);
	/* Standard input of a command went on. May be NULL. */
	void (*taken)(void *userdata, uint32_t job, const struct wire_taken *taken);
	/* What a file operation found; it is answered by shim_link_file_credit. */
	void (*file_data)(void *userdata, uint32_t job, const uint8_t *data, size_t size);
	/* Of an adopted session, before any frame of it: a command that an earlier worker had kept.
	 * It goes on here. 0, or -errno: the link is lost. May be NULL: then it is ended. */
	int (*kept)(void *userdata, uint32_t job, const struct wire_kept *kept, const uint8_t *note,
		    size_t note_bytes);
	void (*put_done)(void *userdata, uint32_t job, uint64_t number);
	/* The command filter refused calls. May be NULL. */
	void (*denied)(void *userdata, const struct wire_denied *denied);
	/* The shim knows that it is about to be frozen. May be NULL. */
	void (*paused)(void *userdata);
	/* Of an adopted session, once: everything that an earlier worker left has been heard of.
	 * Before that no job can be started. */
	void (*known)(void *userdata);
	/* End-of-file or a protocol error; once. No further callback follows. */
	void (*lost)(void *userdata, int error);
};

struct shim_link_options {
	const struct id *session;
	struct flow *flow; /* the session's numbers; not owned, outlives the link */
	bool adopted;      /* frames of jobs that an earlier worker started are dropped, the jobs
			      cancelled, but for those of shim_link_resume; else they are a
			      protocol error */
	uint32_t first_job;
	uint8_t *scratch; /* WIRE_FRAME_MAX_BYTES, shared by the links of one loop; not owned */
};

/* Sends HELLO. fd becomes the link's on success. */
MUST_USE int shim_link_new(sd_event *event, int fd, const struct shim_link_options *options,
			   const struct shim_link_events *events, void *userdata,
			   struct shim_link **ret_link);
/* Accepts NULL, returns NULL; no callback. */
struct shim_link *shim_link_free(struct shim_link *link);

/* What starts a command. Strings are copied into the frame. */
struct shim_link_command {
	struct wire_exec head; /* program, limits; counts are filled in */
	const char *cwd;
	const char *const *argv; /* NULL-terminated, as env */
	const char *const *env;
	const char *stdin_data; /* NULL: /dev/null */
	size_t stdin_bytes;
	bool stdin_open;  /* more follows by shim_link_stdin */
	const void *note; /* comes back in `kept` */
	uint16_t note_bytes;
};

/* Its session ends: what is still to be begun finds the link lost. */
void shim_link_begin_end(struct shim_link *link);
/* An adopted session's is known when all that an earlier worker left has been heard of. */
bool shim_link_known(const struct shim_link *link);
/* A tree of an earlier release may lack it. */
bool shim_link_has(const struct shim_link *link, enum wire_features feature);
/* Nobody has run a command of `root` in this tree. */
bool shim_link_is_untouched(const struct shim_link *link);

/* Both: 0 and the job's number; -ENOBUFS: too much waits for this session (retry later); -E2BIG:
 * does not fit a frame; -EPIPE: lost; -EBUSY: SHIM_MAX_JOBS are running, or have ended and are not
 * acknowledged (a flush may make room). */
MUST_USE int shim_link_exec(struct shim_link *link, const struct shim_link_command *command,
			    uint32_t *ret_job);
MUST_USE int shim_link_put(struct shim_link *link, const char *path, uint32_t mode,
			   const void *data, size_t size, uint32_t *ret_job);
/* An operation on files: ends with put_done or failed. path and to (NULL: none) as wire.h says;
 * their sizes are filled in. Returns as above. */
MUST_USE int shim_link_file(struct shim_link *link, const struct wire_file *file, const char *path,
			    const char *to, uint32_t *ret_job);
/* Bytes of a WIRE_FILE_PUT. The caller keeps to WIRE_FILE_WINDOW_BYTES beyond what was `taken`. 0;
 * -ESRCH: it has ended; -errno. */
MUST_USE int shim_link_file_put(struct shim_link *link, uint32_t job, const void *data,
				size_t size);
MUST_USE int shim_link_file_put_end(struct shim_link *link, uint32_t job);
/* So many bytes more of file_data are out of the way. */
void shim_link_file_credit(struct shim_link *link, uint32_t id, size_t size);
/* A command that an earlier worker started goes on here. Right after shim_link_new, of an adopted
 * session. 0 or -EBUSY. One that the shim does not have fails, without a number, before `known`. */
MUST_USE int shim_link_resume(struct shim_link *link, uint32_t job);
/* To a command whose standard input is open. 0; -ENOBUFS: too much waits for the socket; -ESRCH: no
 * such command runs; -errno. */
MUST_USE int shim_link_stdin(struct shim_link *link, uint32_t job, const void *data, size_t size);
MUST_USE int shim_link_stdin_end(struct shim_link *link, uint32_t job);
MUST_USE int shim_link_signal(struct shim_link *link, uint32_t job,
			      const struct wire_signal *signal);
MUST_USE int shim_link_resize(struct shim_link *link, uint32_t job, const struct wire_size *size);
/* The session is about to be frozen (`paused` follows), or was thawed. -EOPNOTSUPP: the tree is of
 * an earlier release. Of an adopted session not before it is known. */
MUST_USE int shim_link_pause(struct shim_link *link, bool is_paused);
/* A kept command that has ended takes no room in the shim any more. */
void shim_link_forget(struct shim_link *link, uint32_t id);
void shim_link_cancel(struct shim_link *link, uint32_t job); /* its last frame still follows */

void shim_link_settle(struct shim_link *link, uint64_t number);
/* End of turn: one CREDIT where due. 0; -errno: it is still due, call again. */
MUST_USE int shim_link_flush(struct shim_link *link);
uint32_t shim_link_jobs(const struct shim_link *link);
