/*
 * Readers of a task's frames: Server-Sent Events or one JSON object a line, from the frames that
 * are kept. A reader holds a position, not a queue: what it has not taken stays where it is anyway,
 * so a slow one costs the text that is being sent and nothing more. Frames that have left memory
 * are read from the store.
 */
#include <errno.h>

#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/reply.h"
#include "supervisor/api/live.h"
#include "supervisor/api/stream_out.h"
#include "supervisor/api/tasks.h"

#define READ_BYTES    ((size_t)256 * 1024)
#define PENDING_BYTES ((size_t)TASK_FRAMES_MAX_BYTES + READ_BYTES)

struct task_stream {
	struct list link; /* app->streams */
	struct app *app;
	struct answer_to to;
	struct id task;
	uint32_t after;
	struct stream_out out;
	bool reading; /* the store was asked */
	bool ended;   /* the terminal frame, or all that there is, was formatted */
	bool failed;  /* the store cannot be read: the end that comes is none */
	bool closed;  /* the request is over; freed when the store has answered */
};

static void stream_free(struct task_stream *stream)
{
	list_remove(&stream->link);
	stream_out_done(&stream->out);
	free(stream);
}

static int format_frame(struct task_stream *stream, uint32_t seq, const char *text, size_t size)
{
	int r = 0;

	if (!stream->out.as_lines)
		r = buf_printf(&stream->out.pending, "id: %u\ndata: ", seq);
	if (r >= 0)
		r = buf_append(&stream->out.pending, text, size);
	if (r >= 0)
		r = stream_out_end_item(&stream->out);
	stream->after = seq;
	return r;
}

static void wake(struct task_stream *stream)
{
	struct request *request = answer_get(&stream->to);

	if (request)
		request_wake(request);
}

static void on_stored(void *userdata, enum store_result result, const struct store_frame *frames,
		      size_t n, bool more)
{
	struct task_stream *stream = userdata;
	const struct job *job;

	stream->reading = false;
	if (stream->closed) {
		stream_free(stream);
		return;
	}
	for (size_t i = 0; result == STORE_OK && i < n; i++) {
		if (frames[i].seq <= stream->after)
			continue;
		if (format_frame(stream, frames[i].seq, frames[i].text, frames[i].size) < 0) {
			result = STORE_DEGRADED;
			break;
		}
		if (frames_stage_terminal(frames[i].stage))
			stream->ended = true;
	}
	if (result != STORE_OK && result != STORE_NOT_FOUND)
		stream->failed = true;
	job = job_table_find(&stream->app->tasks, &stream->task);
	/* The store has no more, and no task in memory makes more. */
	if (!more && !job)
		stream->ended = true;
	/* What retention has deleted does not come again. */
	if (!more && job && stream->after < job->frames.trimmed_seq)
		stream->after = job->frames.trimmed_seq;
	wake(stream);
}

/* Format what may be shown next. 0, or -errno: cut. */
static int fill(struct task_stream *stream)
{
	const struct job *job = job_table_find(&stream->app->tasks, &stream->task);
	const struct frames_line *line;
	int r;

	if (stream->reading || stream->ended || stream->failed)
		return 0;
	if (!job || frames_need_store(&job->frames, stream->after)) {
		r = store_frames_get(stream->app->store, &stream->task, stream->after, READ_BYTES,
				     on_stored, stream);
		stream->reading = r >= 0;
		return r;
	}
	while (stream->out.pending.size < READ_BYTES &&
	       (line = frames_next_visible(&job->frames, stream->after))) {
		r = format_frame(stream, line->seq, line->text, line->size);
		if (r < 0)
			return r;
		if (frames_stage_terminal(line->stage))
			stream->ended = true;
	}
	if (frames_finished(&job->frames, stream->after))
		stream->ended = true;
	return 0;
}

static ssize_t stream_read(void *userdata, char *data, size_t size)
{
	struct task_stream *stream = userdata;
	int r = stream_out_is_empty(&stream->out) ? fill(stream) : 0;
	ssize_t n;

	if (r < 0)
		return r;
	n = stream_out_take(&stream->out, stream->ended, data, size);
	if (n == 0 && stream->failed)
		return -EIO;
	return n == 0 && stream->ended ? -ENODATA : n;
}

static void stream_closed(void *userdata)
{
	struct task_stream *stream = userdata;

	if (stream->reading) {
		stream->closed = true;
		stream->to = ANSWER_TO_NULL;
		return;
	}
	stream_free(stream);
}

static const struct request_stream stream_ops = {
	.read = stream_read,
	.closed = stream_closed,
};

void task_streams_wake(struct app *app, const struct id *task)
{
	LIST_FOR_EACH (entry, &app->streams) {
		struct task_stream *stream = LIST_ENTRY(entry, struct task_stream, link);

		if (id_equal(&stream->task, task))
			wake(stream);
	}
}

void tasks_wake_all(struct app *app)
{
	LIST_FOR_EACH (entry, &app->streams)
		wake(LIST_ENTRY(entry, struct task_stream, link));
}

void tasks_heartbeat(struct app *app, usec_t now)
{
	LIST_FOR_EACH (entry, &app->streams) {
		struct task_stream *stream = LIST_ENTRY(entry, struct task_stream, link);

		if (stream_out_is_due(&stream->out, now))
			wake(stream);
	}
}

void task_stream_start(struct request *request, const struct id *task, uint32_t after,
		       bool as_lines)
{
	struct app *app = request_app(request);
	struct task_stream *stream = calloc(1, sizeof(*stream));

	if (!stream) {
		reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
		return;
	}
	stream->app = app;
	stream->to = answer_to(request);
	stream->task = *task;
	stream->after = after;
	stream_out_init(&stream->out, PENDING_BYTES, as_lines);
	list_append(&app->streams, &stream->link);
	request_start_stream(request, stream_out_type(&stream->out), &stream_ops, stream);
}
