#include "supervisor/api/command_stream.h"

#include <errno.h>

#include "supervisor/api/stream_out.h"

#define FILL_BYTES    ((size_t)64 * 1024)
/* An event is at most one frame, of which a character can become six. */
#define PENDING_BYTES (FILL_BYTES + (size_t)8 * WIRE_FRAME_MAX_BYTES)

struct command_stream {
	struct command_reader reader;
	struct list link; /* app->command_streams */
	struct answer_to to;
	struct stream_out out;
	bool start_shown;
	bool stands_still; /* as it was shown */
	bool ended;        /* the last event was formatted */
};

static void on_wake(struct command_reader *reader)
{
	struct command_stream *stream = LIST_ENTRY(reader, struct command_stream, reader);
	struct request *request = answer_get(&stream->to);

	if (request)
		request_wake(request);
}

static int open_event(struct command_stream *stream, const char *type, uint64_t seq)
{
	if (stream->out.as_lines)
		return 0;
	/* What has no number must not become the client's position. */
	return seq > 0 ? buf_printf(&stream->out.pending,
				    "id: %llu\nevent: %s\ndata: ", (unsigned long long)seq, type)
		       : buf_printf(&stream->out.pending, "event: %s\ndata: ", type);
}

static int close_event(struct command_stream *stream)
{
	return stream_out_end_item(&stream->out);
}

static int show_start(struct command_stream *stream)
{
	const struct command *command = stream->reader.command;
	char id[ID_TEXT_BYTES];
	int r;

	if (stream->start_shown || command->pid == 0)
		return 0;
	stream->start_shown = true;
	id_format(&command->id, id);
	r = open_event(stream, "start", 0);
	if (r >= 0)
		r = buf_printf(&stream->out.pending,
			       "{\"type\":\"start\",\"pid\":%d,\"command_id\":\"%s\"}",
			       command->pid, id);
	return r < 0 ? r : close_event(stream);
}

static int show_lost(struct command_stream *stream)
{
	int r;

	if (!stream->reader.lost)
		return 0;
	stream->reader.lost = false;
	r = open_event(stream, "dropped", 0);
	if (r >= 0)
		r = buf_append_str(
			&stream->out.pending,
			"{\"type\":\"dropped\",\"detail\":\"older output was not kept\"}");
	return r < 0 ? r : close_event(stream);
}

/* Nothing comes, and nothing is wrong. */
static int show_standing(struct command_stream *stream, bool stands_still)
{
	const char *type = stands_still ? "suspended" : "resumed";
	int r;

	if (stream->stands_still == stands_still)
		return 0;
	stream->stands_still = stands_still;
	r = open_event(stream, type, 0);
	if (r >= 0)
		r = buf_printf(&stream->out.pending, "{\"type\":\"%s\"}", type);
	return r < 0 ? r : close_event(stream);
}

static int show_event(struct command_stream *stream, const struct command_event *event)
{
	static const char *const types[COMMAND_EVENT_KIND_MAX_] = {
		[COMMAND_EVENT_STDOUT] = "stdout", [COMMAND_EVENT_STDERR] = "stderr",
		[COMMAND_EVENT_EXIT] = "exit",     [COMMAND_EVENT_FAILED] = "error",
		[COMMAND_EVENT_LOST] = "error",
	};
	int r;

	r = open_event(stream, types[event->kind], event->seq);
	if (r >= 0)
		r = command_event_format(&stream->out.pending, event);
	if (event->kind >= COMMAND_EVENT_EXIT)
		stream->ended = true;
	return r < 0 ? r : close_event(stream);
}

/* 0, or -errno: cut. */
static int fill(struct command_stream *stream)
{
	const struct command_event *event;
	bool stands_still;
	int r = 0;

	if (!stream->reader.command || stream->ended)
		return 0;
	stands_still = command_stands_still(stream->reader.command);
	r = show_start(stream);
	if (r >= 0 && !stands_still)
		r = show_standing(stream, false);
	while (r >= 0 && stream->out.pending.size < FILL_BYTES) {
		r = show_lost(stream);
		event = r >= 0 ? command_take(&stream->reader) : NULL;
		if (!event)
			break;
		r = show_event(stream, event);
	}
	/* Behind what it had said. */
	if (r >= 0 && stands_still && !stream->reader.next)
		r = show_standing(stream, true);
	return r;
}

static bool is_over(const struct command_stream *stream)
{
	return stream->ended || command_read_all(&stream->reader);
}

static ssize_t stream_read(void *userdata, char *data, size_t size)
{
	struct command_stream *stream = userdata;
	int r = stream_out_is_empty(&stream->out) ? fill(stream) : 0;
	ssize_t n;

	if (r < 0)
		return r;
	n = stream_out_take(&stream->out, is_over(stream), data, size);
	if (n != 0 || !is_over(stream))
		return n;
	return stream->ended || !command_is_cut(&stream->reader) ? -ENODATA : -EPIPE;
}

/* The request is over: the client has everything, or it left. */
static void stream_closed(void *userdata)
{
	struct command_stream *stream = userdata;

	command_read_end(&stream->reader);
	list_remove(&stream->link);
	stream_out_done(&stream->out);
	free(stream);
}

static const struct request_stream stream_ops = {
	.read = stream_read,
	.closed = stream_closed,
};

void command_streams_heartbeat(struct app *app, usec_t now)
{
	LIST_FOR_EACH (entry, &app->command_streams) {
		struct command_stream *stream = LIST_ENTRY(entry, struct command_stream, link);

		if (stream_out_is_due(&stream->out, now))
			on_wake(&stream->reader);
	}
}

int command_stream_start(struct request *request, struct command *command,
			 const struct command_stream_options *options)
{
	struct command_stream *stream = calloc(1, sizeof(*stream));

	if (!stream)
		return -ENOMEM;
	stream->reader.wake = on_wake;
	stream->to = answer_to(request);
	stream_out_init(&stream->out, PENDING_BYTES, options->as_lines);
	stream->start_shown = options->after > 0;
	list_append(&request_app(request)->command_streams, &stream->link);
	command_read(command, &stream->reader, options->after, options->pacing);
	request_start_stream(request, stream_out_type(&stream->out), &stream_ops, stream);
	return 0;
}
