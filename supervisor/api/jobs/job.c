#include "supervisor/api/jobs/job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/plant.h"
#include "base/str.h"

#include "supervisor/api/session/registry.h"
#include "supervisor/api/session/session.h"

static const char *const state_text[] = {
	[JOB_STATE_QUEUED] = "queued",
	[JOB_STATE_RUNNING] = "running",
	[JOB_STATE_DONE] = "done",
	[JOB_STATE_ERROR] = "error",
};
_Static_assert(ARRAY_SIZE(state_text) == JOB_STATE_MAX_, "one text per state");

const char *job_state_text(enum job_state state)
{
	ASSERT((size_t)state < ARRAY_SIZE(state_text));
	return state_text[state];
}

int job_state_from_text(const char *text)
{
	for (size_t i = 0; i < ARRAY_SIZE(state_text); i++)
		if (str_equal(state_text[i], text))
			return (int)i;
	return -1;
}

static struct job *job_alloc(const struct id *id, const struct id *session, const char *owner,
			     const char *workspace)
{
	struct job *job = calloc(1, sizeof(*job));

	if (!job)
		return NULL;
	job->id = *id;
	job->session = *session;
	if (str_copy(job->owner, sizeof(job->owner), owner) < 0 ||
	    str_copy(job->workspace, sizeof(job->workspace), workspace) < 0) {
		/* A row that no release of ours wrote: then nobody but the operator sees it. */
		job->owner[0] = '\0';
		job->workspace[0] = '\0';
	}
	frames_init(&job->frames, id);
	list_init(&job->queue_link);
	list_init(&job->table_link);
	if (frames_reserve(&job->frames) < 0)
		return job_free(job);
	return job;
}

struct job *job_new(const struct id *id, const struct session *session, usec_t now)
{
	struct job *job = job_alloc(id, &session->id, registry_owner(session), session->workspace);

	if (job)
		job->created_at = now;
	return job;
}

struct job *job_restore(const struct id *id, const struct id *session, const char *owner,
			const char *workspace, enum job_state state, uint32_t last_seq)
{
	struct job *job = job_alloc(id, session, owner, workspace);

	if (!job)
		return NULL;
	job->state = state;
	frames_resume(&job->frames, last_seq, job_state_ended(state));
	return job;
}

struct job *job_free(struct job *job)
{
	if (!job)
		return NULL;
	ASSERT(list_empty(&job->queue_link));
	ASSERT(list_empty(&job->table_link));
	frames_done(&job->frames);
	load_parser_done(&job->parser);
	json_decref(job->tags);
	free(job);
	return NULL;
}

void job_enqueue(struct job *job, struct session *session)
{
	ASSERT(job->state == JOB_STATE_QUEUED || job->state == JOB_STATE_RUNNING);
	list_append(&session->jobs, &job->queue_link);
	session->n_jobs++;
}

static struct job *job_first(const struct session *session)
{
	if (list_empty(&session->jobs))
		return NULL;
	return LIST_ENTRY(session->jobs.next, struct job, queue_link);
}

struct job *job_running(const struct session *session)
{
	struct job *job = job_first(session);

	return job && job->state == JOB_STATE_RUNNING ? job : NULL;
}

struct job *job_next(const struct session *session)
{
	struct job *job = job_first(session);

	if (planted("skip-lock"))
		LIST_FOR_EACH (entry, &session->jobs) {
			job = LIST_ENTRY(entry, struct job, queue_link);
			if (job->state == JOB_STATE_QUEUED)
				break;
		}
	return job && job->state == JOB_STATE_QUEUED ? job : NULL;
}

uint32_t job_waiting(const struct session *session)
{
	return session->n_jobs - (job_running(session) ? 1 : 0);
}

void job_start(struct job *job, uint32_t wire_job, usec_t now)
{
	ASSERT(job->state == JOB_STATE_QUEUED);
	job->state = JOB_STATE_RUNNING;
	job->wire_job = wire_job;
	job->started_at = now;
}

static void leave_queue(struct job *job, struct session *session)
{
	if (list_empty(&job->queue_link))
		return;
	ASSERT(session);
	list_remove(&job->queue_link);
	session->n_jobs--;
}

void job_end(struct job *job, struct session *session, enum job_state state, usec_t now)
{
	ASSERT(!job_state_ended(job->state) && job_state_ended(state));
	ASSERT(job->frames.terminal);
	job->state = state;
	job->ended_at = now;
	leave_queue(job, session);
	load_parser_done(&job->parser);
}

void job_drop(struct job_table *table, struct job *job, struct session *session)
{
	leave_queue(job, session);
	job_table_remove(table, job);
	(void)job_free(job);
}

/* ---- the table ---- */

void job_table_init(struct job_table *table, size_t max_bytes)
{
	*table = (struct job_table){.by_id = IDMAP_NULL, .max_bytes = max_bytes};
	list_init(&table->ended);
}

void job_table_done(struct job_table *table)
{
	for (size_t i = 0; i < table->by_id.n_slots; i++) {
		struct job *job = table->by_id.entry[i].object;

		if (!job)
			continue;
		list_remove(&job->table_link);
		list_remove(&job->queue_link);
		(void)job_free(job);
	}
	idmap_done(&table->by_id);
}

int job_table_add(struct job_table *table, struct job *job)
{
	int r;

	r = idmap_add(&table->by_id, &job->id, job);
	if (r < 0)
		return r;
	if (job_state_ended(job->state))
		job_table_note_ended(table, job);
	return 0;
}

struct job *job_table_find(const struct job_table *table, const struct id *id)
{
	return idmap_get(&table->by_id, id);
}

void job_table_remove(struct job_table *table, struct job *job)
{
	idmap_remove(&table->by_id, &job->id);
	list_remove(&job->table_link);
}

void job_table_note_ended(struct job_table *table, struct job *job)
{
	list_remove(&job->table_link);
	list_append(&table->ended, &job->table_link);
}

void job_table_shrink(struct job_table *table)
{
	size_t held = 0;

	LIST_FOR_EACH (link, &table->ended)
		held += sizeof(struct job) + LIST_ENTRY(link, struct job, table_link)->frames.bytes;
	LIST_FOR_EACH_SAFE (link, following, &table->ended) {
		struct job *job = LIST_ENTRY(link, struct job, table_link);

		if (held <= table->max_bytes)
			break;
		/* What is not written yet is nowhere else. Frames that readers may see already,
		 * because the store is degraded, are not written either. */
		if (job->n_owed > 0)
			continue;
		held -= sizeof(struct job) + job->frames.bytes;
		job_table_remove(table, job);
		(void)job_free(job);
	}
}

static json_t *time_or_null(usec_t at)
{
	char text[CLOCK_ISO_BYTES];

	if (at == 0)
		return json_null();
	clock_format_iso(at, text);
	return json_string(text);
}

json_t *job_describe(const struct job *job, const char *stream_url)
{
	char session[ID_TEXT_BYTES];
	char id[ID_TEXT_BYTES];
	char url[128];

	id_format(&job->id, id);
	id_format(&job->session, session);
	if (str_format(url, sizeof(url), "%s%s", stream_url, id) < 0)
		return NULL;
	return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:s?, s:I, s:s}", "task_id", id,
			 "session_id", session, "status", job_state_text(job->state), "created_at",
			 time_or_null(job->created_at), "started_at", time_or_null(job->started_at),
			 "ended_at", time_or_null(job->ended_at), "code",
			 job->code[0] ? job->code : NULL, "seq",
			 (json_int_t)job->frames.settled_seq, "stream_url", url);
}
