#include "supervisor/api/command_stream.h"

#include <errno.h>
#include <string.h>

#include "base/frame.h"
#include "base/str.h"

#define BUFFER_HIGH_BYTES ((size_t)1024 * 1024) /* settle at once below this */
#define BUFFER_LOW_BYTES  ((size_t)512 * 1024)  /* settle what was held at or below this */
/* Above the mark comes at most what one ring holds, as base64 with its braces. Tiny frames grow
 * most, and they are bounded by the link's window. A shim that sends more is no shim of ours. */
#define BUFFER_MAX_BYTES  ((size_t)8 * 1024 * 1024)
#define HELD_MAX_BYTES    (2 * SHIM_LINK_WINDOW * sizeof(uint64_t))

struct command {
	struct activity activity;
	struct answer_to to;
	struct buf out; /* lines; from `sent` on not yet taken */
	size_t sent;
	struct buf held; /* uint64_t: numbers in `out` that are not settled */
	usec_t began;    /* boottime: the request */
	usec_t started;  /* boottime; 0: not yet */
	bool ended;      /* the shim has said its last */
	bool client_gone;
};

static size_t waiting_bytes(const struct command *command)
{
	return command->out.size - command->sent;
}

static void settle_held(struct command *command)
{
	for (size_t at = 0; at < command->held.size; at += sizeof(uint64_t)) {
		uint64_t number;

		memcpy(&number, command->held.data + at, sizeof(number));
		live_settle(command->activity.live, number);
	}
	buf_reset(&command->held);
}

static void command_free(struct command *command)
{
	buf_done(&command->out);
	buf_done(&command->held);
	free(command);
}

static void wake(struct command *command)
{
	struct request *request = answer_get(&command->to);

	if (request)
		request_wake(request);
}

static int append_output(struct command *command, bool is_stderr, const uint8_t *data, size_t size)
{
	size_t text_bytes = str_base64_bytes(size);
	int r;

	r = buf_append_str(&command->out, is_stderr ? "{\"type\":\"stderr\",\"data\":\""
						    : "{\"type\":\"stdout\",\"data\":\"");
	if (r >= 0)
		r = buf_reserve(&command->out, text_bytes);
	if (r < 0)
		return r;
	command->out.size += str_base64((char *)command->out.data + command->out.size, data, size);
	return buf_append_str(&command->out, "\"}\n");
}

static void on_started(struct activity *activity, int32_t pid)
{
	struct command *command = LIST_ENTRY(activity, struct command, activity);

	command->started = clock_boottime();
	histogram_add(&activity->live->app->metrics.exec[METRICS_EXEC_SPAWN],
		      command->started - command->began);
	if (command->client_gone)
		return;
	IGNORE_RESULT(buf_printf(&command->out, "{\"type\":\"start\",\"pid\":%d}\n", pid));
	wake(command);
}

/* Not enough memory, or more than a ring can hold: this command cannot be answered further. */
static void give_up(struct command *command)
{
	struct live *live = command->activity.live;

	shim_link_cancel(live->shim, command->activity.wire_job);
	command->client_gone = true;
	settle_held(command);
}

static void on_output(struct activity *activity, uint64_t number, bool is_stderr,
		      const uint8_t *data, size_t size)
{
	struct command *command = LIST_ENTRY(activity, struct command, activity);

	if (command->client_gone) {
		live_settle(activity->live, number);
		return;
	}
	if (append_output(command, is_stderr, data, size) < 0) {
		live_settle(activity->live, number);
		give_up(command);
	} else if (waiting_bytes(command) < BUFFER_HIGH_BYTES ||
		   buf_append(&command->held, &number, sizeof(number)) < 0) {
		live_settle(activity->live, number);
	}
	wake(command);
}

static const char *flag_text(uint32_t flags, uint32_t bit)
{
	return flags & bit ? "true" : "false";
}

static int append_exit(struct command *command, const struct wire_exit *exit_info)
{
	int r;

	r = buf_append_str(&command->out, "{\"type\":\"exit\",");
	if (r >= 0 && exit_info->signal != 0)
		r = buf_printf(&command->out, "\"code\":null,\"signal\":%d", exit_info->signal);
	else if (r >= 0)
		r = buf_printf(&command->out, "\"code\":%d,\"signal\":null", exit_info->code);
	if (r < 0)
		return r;
	return buf_printf(
		&command->out,
		",\"timed_out\":%s,\"truncated\":%s,\"cancelled\":%s,\"dropped_bytes\":%llu,"
		"\"usage\":{\"user_us\":%llu,\"system_us\":%llu,\"max_rss_kib\":%llu}}\n",
		flag_text(exit_info->flags, WIRE_EXIT_TIMED_OUT),
		flag_text(exit_info->flags, WIRE_EXIT_TRUNCATED),
		flag_text(exit_info->flags, WIRE_EXIT_CANCELLED),
		(unsigned long long)exit_info->dropped_bytes,
		(unsigned long long)exit_info->user_us, (unsigned long long)exit_info->system_us,
		(unsigned long long)exit_info->max_rss_kib);
}

static int append_failed(struct command *command, const struct wire_failed *failed)
{
	const char *name = failed->error_number != 0 ? strerrorname_np(failed->error_number) : NULL;

	return buf_printf(&command->out,
			  "{\"type\":\"error\",\"code\":\"command_failed\",\"step\":\"%s\","
			  "\"errno\":\"%s\",\"detail\":\"command failed at step %s: %s\"}\n",
			  frame_step_name(failed->step), name ? name : "",
			  frame_step_name(failed->step), name ? name : "-");
}

static void on_ended(struct activity *activity, const struct activity_result *result)
{
	struct command *command = LIST_ENTRY(activity, struct command, activity);
	struct live *live = activity->live;
	int r = 0;

	settle_held(command);
	live_settle(live, result->number);
	command->ended = true;
	if (command->started > 0)
		histogram_add(&live->app->metrics.exec[METRICS_EXEC_RUN],
			      clock_boottime() - command->started);
	switch (result->end) {
	case ACTIVITY_EXITED:
		r = append_exit(command, result->exit_info);
		break;
	case ACTIVITY_FAILED:
		r = append_failed(command, result->failed);
		break;
	case ACTIVITY_LOST:
	case ACTIVITY_PUT_DONE:
	case ACTIVITY_END_MAX_:
		r = buf_printf(
			&command->out,
			"{\"type\":\"error\",\"code\":\"%s\",\"detail\":\"session ended\"}\n",
			session_reason_code(live->session->reason));
		break;
	}
	if (r < 0)
		command->client_gone = true;
	if (command->to.server) /* the request is not over yet: it frees */
		wake(command);
	else
		command_free(command);
	tasks_next(live->app, live->session);
}

static const struct activity_ops command_ops = {
	.started = on_started,
	.output = on_output,
	.ended = on_ended,
};

static ssize_t stream_read(void *userdata, char *data, size_t size)
{
	struct command *command = userdata;
	size_t n = waiting_bytes(command);

	if (n == 0 && command->client_gone)
		return -EIO; /* given up: the cut says so */
	if (n == 0)
		return command->ended ? -ENODATA : 0;
	if (n > size)
		n = size;
	memcpy(data, command->out.data + command->sent, n);
	command->sent += n;
	if (command->sent == command->out.size) {
		buf_reset(&command->out);
		command->sent = 0;
	} else if (command->sent >= BUFFER_LOW_BYTES) {
		buf_consume(&command->out, command->sent);
		command->sent = 0;
	}
	if (!command->ended && waiting_bytes(command) <= BUFFER_LOW_BYTES)
		settle_held(command);
	return (ssize_t)n;
}

/* The request is over: the client has everything, or it left. */
static void stream_closed(void *userdata)
{
	struct command *command = userdata;

	command->to = ANSWER_TO_NULL;
	if (command->ended) {
		command_free(command);
		return;
	}
	command->client_gone = true;
	settle_held(command);
	shim_link_cancel(command->activity.live->shim, command->activity.wire_job);
}

static const struct request_stream stream_ops = {
	.read = stream_read,
	.closed = stream_closed,
};

int command_stream_start(struct request *request, struct live *live, uint32_t wire_job)
{
	struct command *command = calloc(1, sizeof(*command));

	if (!command)
		return -ENOMEM;
	command->to = answer_to(request);
	command->began = request->began;
	command->out = BUF_NULL(BUFFER_MAX_BYTES);
	command->held = BUF_NULL(HELD_MAX_BYTES);
	live_add(live, &command->activity, &command_ops, wire_job);
	request_start_stream(request, "application/x-ndjson", &stream_ops, command);
	return 0;
}
