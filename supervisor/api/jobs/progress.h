/*
 * The frames of one execute, in their order: `start` (with the refusal of the live loader in its
 * metadata), `materialize` per asset, `log` per problem, then one `done` or one `error`.
 *
 * Records of the loader are held until END (a problem can follow its asset at any distance), but
 * never more than PROGRESS_HOLD_BYTES or the output of PROGRESS_HOLD_FEEDS frames: held records are
 * not acknowledged, and the shim's ring and the link's window are finite. The wire numbers of the
 * last progress_held_bytes() must not be settled; those before them must be, or the ring fills for
 * ever: frames of the wire end anywhere in a record.
 *
 * Every function adds frames to job->frames; the caller stores what frames_after() gives and then
 * settles. Nothing here ends the job: call job_end after a terminal frame.
 */
#pragma once

#include <stddef.h>

#include "base/auto.h"
#include "base/clock.h"

#include "sandboxd/wire.h"
#include "supervisor/api/jobs/job.h"
#include "supervisor/api/session/session.h"
#include "supervisor/api/session/summary.h"

#define PROGRESS_HOLD_BYTES (512u * 1024u)
#define PROGRESS_HOLD_FEEDS 1024u

/* The `start` frame. 0 or -ENOMEM. */
MUST_USE int progress_start(struct job *job, struct session *session,
			    const struct summary_context *context, usec_t now);
/* Standard output of the loader. 0; -EBADMSG: not the loader's; -ENOMEM. On an error the caller
 * cancels the wire job and calls progress_fail. */
MUST_USE int progress_feed(struct job *job, struct session *session, const void *data, size_t size,
			   usec_t now);
/* Bytes at the end of what was fed that no frame shows yet. */
uint64_t progress_held_bytes(const struct job *job);
/*
 * The loader ended: the remaining frames and the terminal one. *ret_state is DONE or ERROR
 * (non-zero status, signal, time-out, or an incomplete output). The session gets the result. 0 or
 * -ENOMEM.
 */
MUST_USE int progress_finish(struct job *job, struct session *session,
			     const struct wire_exit *exit_info, usec_t now,
			     enum job_state *ret_state);
/* One `error` frame {code}; nothing if the task has ended. session may be NULL. Needs no memory. */
void progress_fail(struct job *job, struct session *session, const char *code, const char *message,
		   usec_t now);
/* A `log` frame: the session expires within so many minutes. 0 or -ENOMEM. */
MUST_USE int progress_warn(struct job *job, struct session *session, uint32_t minutes, usec_t now);
/* A `log` frame: the session was refused something. 0 or -ENOMEM. */
MUST_USE int progress_denied(struct job *job, struct session *session, const struct denial *denial,
			     usec_t now);
/* Array of {file, line, column, text}, at most max. A new reference; NULL: no memory. */
json_t *progress_problems(const struct load_result *load, size_t max);
/* Result of a load that is no task: session->load is replaced. A loader that failed is a problem of
 * the folder as a whole. 0, or -ENOMEM and the old result stays. The parser is emptied. */
MUST_USE int progress_load_finish(struct load_parser *parser, struct session *session,
				  const struct wire_exit *exit_info);
/* The same where the loader did not get that far; text: of ours, no byte of the session. */
MUST_USE int progress_load_fail(struct session *session, const char *text);
