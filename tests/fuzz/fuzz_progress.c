/*
 * A loader's output as a session may write it, in pieces of any size: the input's first byte is the
 * size of a piece, the rest the output. Whatever comes, each frame is one JSON document, the task
 * ends once, and what is held stays within its bounds.
 */
#include <string.h>

#include "base/err.h"
#include "base/json.h"

#include "supervisor/api/jobs/progress.h"
#include "tests/fuzz/fuzz.h"

static void check_frames(const struct frames *frames)
{
	for (size_t i = 0; i < frames->n_lines; i++) {
		const struct frames_line *line = &frames->line[i];
		const char *reason;
		json_t *doc = NULL;

		ASSERT(line->seq == i + 1 && strlen(line->text) == line->size);
		ASSERT(doc_parse(line->text, line->size, &doc, &reason) == 0);
		ASSERT(frames_stage_terminal(line->stage) == (i + 1 == frames->n_lines));
		json_decref(doc);
	}
	ASSERT(frames->terminal);
}

static void run(struct job *job, struct session *session, const uint8_t *data, size_t size)
{
	const struct wire_exit exit_info = {0};
	size_t piece = (size_t)data[0] + 1;
	enum job_state ended = JOB_STATE_ERROR;
	int r = 0;

	for (size_t at = 1; at < size && r == 0; at += piece) {
		if (piece > size - at)
			piece = size - at;
		r = progress_feed(job, session, data + at, piece, 1);
		ASSERT(progress_held_bytes(job) <= (uint64_t)PROGRESS_HOLD_BYTES + piece);
	}
	if (r == 0)
		ASSERT(progress_finish(job, session, &exit_info, 1, &ended) == 0);
	else
		progress_fail(job, session, "loader_output", "not understood", 1);
	ASSERT(job->frames.terminal);
	check_frames(&job->frames);
	job_end(job, session, ended, 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct summary_context context = {.host = "h"};
	struct spec_create spec = {.profile = "component", .ttl_minutes = 1};
	const struct id id = {{1}};
	struct session *session;
	struct job *job;

	if (size < 1)
		return 0;
	session = session_new(&id, &spec, 1);
	ASSERT(session);
	job = job_new(&id, session, 1);
	ASSERT(job);
	job_enqueue(job, session);
	job_start(job, 1, 1);
	ASSERT(progress_start(job, session, &context, 1) == 0);
	run(job, session, data, size);
	(void)job_free(job);
	(void)session_free(session);
	return 0;
}
