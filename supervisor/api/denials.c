/*
 * Theory. The kernel counts what a limit refused and tells nobody who it was, so these records have
 * no program. The counts come with each look at a session (quotas.c) and with the end of its tree;
 * whoever asks for the records, and a command that was killed, makes one more look. The records
 * live as long as the session and this worker: they explain, nothing depends on them.
 */
#include "supervisor/api/denials.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#include "base/str.h"

#include "supervisor/api/denials/syscall_name.h"
#include "supervisor/api/events.h"
#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/reply.h"
#include "supervisor/api/jobs/progress.h"
#include "supervisor/api/provider.h"
#include "supervisor/api/tasks.h"

_Static_assert((int)DENIAL_KIND_MAX_ == (int)METRICS_DENIAL_MAX_ &&
		       (int)DENIAL_SYSCALL == (int)METRICS_DENIAL_SYSCALL &&
		       (int)DENIAL_OUTPUT == (int)METRICS_DENIAL_OUTPUT,
	       "the same kinds in the same order");

#define MIB (1024ULL * 1024)

static void tell_job(struct app *app, struct session *session, struct denial *denial)
{
	struct job *job = job_running(session);
	uint32_t first;

	/* What a tree was refused before this worker saw it was told by an earlier one. */
	if (!job || session->cpu_from_before ||
	    !denials_first_of_job(&session->denials, denial, job->wire_job))
		return;
	first = job->frames.next_seq;
	if (progress_denied(job, session, denial, clock_realtime()) >= 0)
		tasks_store_frames(app, job, first, NULL);
}

void denials_note(struct app *app, struct session *session, const struct denial_report *report)
{
	struct denial *denial;

	app->metrics.n_denials[report->kind] += report->count;
	denial = denials_add(&session->denials, report, clock_realtime());
	if (denial)
		tell_job(app, session, denial);
	if (denial && report->kind == DENIAL_MEMORY)
		events_note(session, "oom", NULL);
}

static uint32_t more_than(uint32_t *seen, uint32_t now)
{
	/* Less than before: the tree is another one. */
	uint32_t more = now >= *seen ? now - *seen : now;

	*seen = now;
	return more;
}

void denials_count(struct app *app, struct session *session, uint32_t oom_kills,
		   uint32_t forks_refused)
{
	char rule[DENIAL_TEXT_BYTES];

	IGNORE_RESULT(str_format(rule, sizeof(rule),
				 "memory limit of %llu MiB, files of the session included",
				 session->plan.memory_bytes / MIB));
	denials_output(app, session);
	denials_note(app, session,
		     &(struct denial_report){
			     .kind = DENIAL_MEMORY,
			     .count = more_than(&session->denials.oom_kills_seen, oom_kills),
			     .what = "more memory: the kernel killed a process for it",
			     .rule = rule,
			     .source = "memory control group, which does not tell whom",
			     .advice =
				     "use less at once, or a profile with a larger `limit memory`, "
				     "up to limits.session_memory",
		     });
	IGNORE_RESULT(str_format(rule, sizeof(rule), "limit of %u processes and threads",
				 session->plan.max_pids));
	denials_note(
		app, session,
		&(struct denial_report){
			.kind = DENIAL_PIDS,
			.count = more_than(&session->denials.forks_refused_seen, forks_refused),
			.what = "more processes and threads (EAGAIN)",
			.rule = rule,
			.source = "count of processes, which does not tell whom",
			.advice = "run fewer at once, or a profile with a larger `limit pids`, up "
				  "to limits.session_pids",
		});
}

void denials_tree_gone(struct app *app, struct session *session, const struct launch_gone *gone)
{
	if (gone)
		denials_count(app, session, gone->oom_kills, gone->forks_refused);
	session->denials.oom_kills_seen = 0;
	session->denials.forks_refused_seen = 0;
}

/* A look at the counters. */

struct look {
	struct app *app;
	struct id session;
	struct answer_to to; /* the records go to it; or nobody */
};

static void answer(struct look *look, const struct session *session)
{
	struct request *request = answer_get(&look->to);
	char id[ID_TEXT_BYTES];

	if (!request)
		return;
	id_format(&look->session, id);
	if (session && session_is_visible(session, clock_realtime()))
		reply_json(request, MHD_HTTP_OK, denials_describe(&session->denials, id));
	else
		reply_not_found(request);
}

static void on_stat(void *userdata, const struct launch_msg *message, int fd)
{
	struct look *look = userdata;
	struct session *session = registry_find(&look->app->registry, &look->session);

	(void)fd_close(fd);
	if (session && message && message->error == LAUNCH_E_NONE)
		denials_count(look->app, session, message->u.stat.oom_kills,
			      message->u.stat.forks_refused);
	answer(look, session);
	free(look);
}

/* -ENOMEM, or as supervisor_client_request; then nobody is answered. */
static int look_at(struct app *app, const struct session *session, const struct answer_to *to)
{
	struct look *look = calloc(1, sizeof(*look));
	int r;

	if (!look)
		return -ENOMEM;
	look->app = app;
	look->session = session->id;
	if (to)
		look->to = *to;
	r = live_of(session)->provider->stat(app, &session->id, on_stat, look);
	if (r < 0)
		free(look);
	return r;
}

void denials_syscall(struct live *live, const struct wire_denied *denied)
{
	const struct policy_profile *profile =
		image_profile(&live->app->policy, live->session->plan.profile);
	const char *name = syscall_name(denied->number);
	char rule[DENIAL_TEXT_BYTES];
	char what[DENIAL_TEXT_BYTES];

	if (name)
		IGNORE_RESULT(str_format(what, sizeof(what), "system call %s (EPERM)", name));
	else
		IGNORE_RESULT(
			str_format(what, sizeof(what), "system call %d (EPERM)", denied->number));
	IGNORE_RESULT(str_format(rule, sizeof(rule), "command filter of profile %.*s",
				 POLICY_NAME_BYTES, profile ? profile->name : "?"));
	denials_note(
		live->app, live->session,
		&(struct denial_report){
			.kind = DENIAL_SYSCALL,
			.count = denied->count,
			.pid = denied->pid,
			.comm = live_program(live, denied->pid),
			.what = what,
			.rule = rule,
			.source = "seccomp notification",
			.advice = "a profile that allows it; `sandbox-policyc explain` shows each "
				  "verdict, sandbox-policy(5)",
		});
}

static void note_timeout(struct live *live, const struct activity *activity)
{
	denials_note(live->app, live->session,
		     &(struct denial_report){
			     .kind = DENIAL_TIME,
			     .count = 1,
			     .pid = activity->pid,
			     .comm = activity->program,
			     .what = "a longer run: the command was ended",
			     .rule = "timeout of the command",
			     .source = "shim",
			     .advice = "a larger timeout_ms in the request, or a profile with a "
				       "larger `limit command-timeout` or `limit execute-timeout`",
		     });
}

static void note_full(struct live *live)
{
	char rule[DENIAL_TEXT_BYTES];

	IGNORE_RESULT(str_format(rule, sizeof(rule), "private folder of %llu MiB and %llu files",
				 (unsigned long long)(live->session->plan.tmpfs_bytes / MIB),
				 (unsigned long long)live->session->plan.tmpfs_inodes));
	denials_note(live->app, live->session,
		     &(struct denial_report){
			     .kind = DENIAL_DISK,
			     .count = 1,
			     .what = "a file of the API (ENOSPC)",
			     .rule = rule,
			     .source = "file helper",
			     .advice = "remove files, or a profile with a larger `limit tmpfs` or "
				       "`limit inodes`",
		     });
}

void denials_activity_ended(struct live *live, const struct activity *activity,
			    const struct activity_result *result)
{
	if (result->end == ACTIVITY_FAILED && result->failed->error_number == ENOSPC)
		note_full(live);
	if (result->end != ACTIVITY_EXITED)
		return;
	denials_output_ended(live, activity, result->exit_info);
	if (result->exit_info->flags & WIRE_EXIT_TIMED_OUT)
		note_timeout(live, activity);
	else if (result->exit_info->signal == SIGKILL || result->exit_info->code == 128 + SIGKILL)
		IGNORE_RESULT(look_at(live->app, live->session, NULL)); /* else the next tick */
}

void action_denials(struct request *request, struct session *session)
{
	const struct live *live = live_of(session);
	struct answer_to to = answer_to(request);
	char id[ID_TEXT_BYTES];

	if (live->shim && look_at(request_app(request), session, &to) >= 0)
		return;
	id_format(&session->id, id);
	reply_json(request, MHD_HTTP_OK, denials_describe(&session->denials, id));
}
