/*
 * Who tells the records of denials/ring.h, and who hears of them: the counters of the session's
 * groups, the ends of its commands, and the words of its shim; metrics, and the job that runs.
 */
#pragma once

#include "supervisor/api/app.h"
#include "supervisor/api/denials/ring.h"
#include "supervisor/api/live.h"

/* One refusal in a session. */
void denials_note(struct app *app, struct session *session, const struct denial_report *report);
/* The groups of its tree count so much; what is more than before was refused since. */
void denials_count(struct app *app, struct session *session, uint32_t oom_kills,
		   uint32_t forks_refused);
/* Nothing is left of the tree: the next one counts from nothing. gone: its last counts, or NULL. */
void denials_tree_gone(struct app *app, struct session *session, const struct launch_gone *gone);
/* The shim says that the filter of commands refused calls. */
void denials_syscall(struct live *live, const struct wire_denied *denied);
/* denials_output.c: a look at how fast output comes, and at what one that ended was cut by. */
void denials_output(struct app *app, struct session *session);
void denials_output_ended(struct live *live, const struct activity *activity,
			  const struct wire_exit *exit_info);
/* A command or a file operation ended so. */
void denials_activity_ended(struct live *live, const struct activity *activity,
			    const struct activity_result *result);
