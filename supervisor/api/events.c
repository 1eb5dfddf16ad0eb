/*
 * Theory. An event is formatted once and kept as text. A stream has what it still owes its reader;
 * one that owes too much is cut, and goes on with `after`. Numbers are times in microseconds, made
 * to rise: so those of the next worker are above those of this one, and a client that continues
 * there misses what was lost with the worker, not what follows.
 */
#include "supervisor/api/events.h"

#include <errno.h>
#include <stdlib.h>

#include "base/json.h"

#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/reply.h"
#include "supervisor/api/live.h"
#include "supervisor/api/stream_out.h"

#define EVENTS_KEPT   64
#define PENDING_BYTES ((size_t)128 * 1024)

struct event {
	uint64_t seq;
	const char *type;
	char *text; /* owned */
};

/* A ring: of the newest event n - 1 the place is (n - 1) % EVENTS_KEPT. */
struct event_log {
	struct event event[EVENTS_KEPT];
	uint64_t n;
	uint64_t last_seq;
};

struct event_stream {
	struct list link; /* live->event_streams; alone once that is gone */
	struct list all;  /* app->event_streams */
	struct answer_to to;
	struct stream_out out;
	bool is_over;
	bool is_cut;
};

static void wake(const struct event_stream *stream)
{
	struct request *request = answer_get(&stream->to);

	if (request)
		request_wake(request);
}

static void show(struct event_stream *stream, const struct event *event)
{
	struct stream_out *out = &stream->out;
	int r = 0;

	(void)stream_out_is_empty(out);
	if (!out->as_lines)
		r = buf_printf(&out->pending,
			       "id: %llu\nevent: %s\ndata: ", (unsigned long long)event->seq,
			       event->type);
	if (r >= 0)
		r = buf_append_str(&out->pending, event->text);
	if (r >= 0)
		r = stream_out_end_item(out);
	if (r < 0)
		stream->is_cut = true;
}

static char *format(const char *type, uint64_t seq, usec_t now, json_t *more)
{
	char time[CLOCK_ISO_BYTES];
	json_t *doc;
	char *text;

	clock_format_iso(now, time);
	doc = json_pack("{s:I, s:s, s:s}", "seq", (json_int_t)seq, "type", type, "time", time);
	if (doc && more)
		(void)json_object_update_missing(doc, more);
	json_decref(more);
	text = doc ? doc_format(doc, 0) : NULL;
	json_decref(doc);
	return text;
}

/* NULL: no memory, and nobody hears of it. */
static const struct event *keep(struct live *live, const char *type, json_t *more)
{
	usec_t now = clock_realtime();
	struct event_log *log = live->events;
	struct event *event;
	char *text;

	if (!log)
		log = live->events = calloc(1, sizeof(*log));
	if (!log) {
		json_decref(more);
		return NULL;
	}
	log->last_seq = now > log->last_seq ? now : log->last_seq + 1;
	text = format(type, log->last_seq, now, more);
	if (!text)
		return NULL;
	event = &log->event[log->n++ % EVENTS_KEPT];
	free(event->text);
	*event = (struct event){.seq = log->last_seq, .type = type, .text = text};
	return event;
}

static void tell(struct session *session, const char *type, json_t *more, bool is_last)
{
	struct live *live = live_of(session);
	const struct event *event = keep(live, type, more);

	LIST_FOR_EACH (entry, &live->event_streams) {
		struct event_stream *stream = LIST_ENTRY(entry, struct event_stream, link);

		if (event)
			show(stream, event);
		stream->is_over |= is_last;
		wake(stream);
	}
}

void events_note(struct session *session, const char *type, json_t *more)
{
	tell(session, type, more, false);
}

void events_end(struct session *session, const char *type, json_t *more)
{
	tell(session, type, more, true);
}

static ssize_t stream_read(void *userdata, char *data, size_t size)
{
	struct event_stream *stream = userdata;
	ssize_t n;

	(void)stream_out_is_empty(&stream->out);
	n = stream_out_take(&stream->out, stream->is_over || stream->is_cut, data, size);
	if (n != 0)
		return n;
	if (stream->is_over)
		return -ENODATA;
	return stream->is_cut ? -EPIPE : 0;
}

/* The request is over: the client has everything, or it left. */
static void stream_closed(void *userdata)
{
	struct event_stream *stream = userdata;

	list_remove(&stream->link);
	list_remove(&stream->all);
	stream_out_done(&stream->out);
	free(stream);
}

static const struct request_stream stream_ops = {
	.read = stream_read,
	.closed = stream_closed,
};

static void show_kept(struct event_stream *stream, const struct event_log *log, uint64_t after)
{
	uint64_t first = log && log->n > EVENTS_KEPT ? log->n - EVENTS_KEPT : 0;

	for (uint64_t i = first; log && i < log->n; i++)
		if (log->event[i % EVENTS_KEPT].seq > after)
			show(stream, &log->event[i % EVENTS_KEPT]);
}

void action_events(struct request *request, struct session *session, bool as_lines, uint64_t after)
{
	struct live *live = live_of(session);
	struct event_stream *stream;

	if (!request_may_stream(request))
		return;
	stream = calloc(1, sizeof(*stream));
	if (!stream) {
		reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
		return;
	}
	stream->to = answer_to(request);
	stream_out_init(&stream->out, PENDING_BYTES, as_lines);
	list_append(&live->event_streams, &stream->link);
	list_append(&live->app->event_streams, &stream->all);
	show_kept(stream, live->events, after);
	request_start_stream(request, stream_out_type(&stream->out), &stream_ops, stream);
}

void events_heartbeat(struct app *app, usec_t now)
{
	LIST_FOR_EACH (entry, &app->event_streams) {
		struct event_stream *stream = LIST_ENTRY(entry, struct event_stream, all);

		if (stream_out_is_due(&stream->out, now))
			wake(stream);
	}
}

void events_done(struct live *live)
{
	while (!list_empty(&live->event_streams)) {
		struct event_stream *stream =
			LIST_ENTRY(live->event_streams.next, struct event_stream, link);

		list_remove(&stream->link);
		stream->is_cut = true;
		wake(stream);
	}
	for (size_t i = 0; live->events && i < EVENTS_KEPT; i++)
		free(live->events->event[i].text);
	free(live->events);
	live->events = NULL;
}
