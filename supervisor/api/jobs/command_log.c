#include "supervisor/api/jobs/command_log.h"

#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "base/frame.h"
#include "base/str.h"

/* One frame is at most three events: the two beginnings that waited and the end. */
#define SEQ_STEP 4

void command_log_init(struct command_log *log)
{
	*log = (struct command_log){0};
	list_init(&log->events);
}

void command_log_done(struct command_log *log)
{
	while (!list_empty(&log->events))
		command_log_drop_first(log);
}

size_t command_event_cost(const struct command_event *event)
{
	return sizeof(*event) + event->size;
}

static int add(struct command_log *log, uint64_t seq, enum command_event_kind kind, size_t size,
	       struct command_event **ret_event)
{
	struct command_event *event = malloc(sizeof(*event) + size);

	if (!event)
		return -ENOMEM;
	*event = (struct command_event){.seq = seq, .kind = kind, .size = size};
	list_append(&log->events, &event->link);
	log->bytes += command_event_cost(event);
	log->seq = seq;
	*ret_event = event;
	return 0;
}

int command_log_output(struct command_log *log, uint64_t number, bool is_stderr,
		       const uint8_t *data, size_t size, struct command_event **ret_event)
{
	const size_t stream = is_stderr ? 1 : 0;
	size_t before = log->partial[stream].size;
	struct command_event *event = NULL;
	size_t rest;
	int r;

	*ret_event = NULL;
	r = add(log, number * SEQ_STEP, is_stderr ? COMMAND_EVENT_STDERR : COMMAND_EVENT_STDOUT,
		before + size, &event);
	if (r < 0)
		return r;
	memcpy(event->data, log->partial[stream].bytes, before);
	memcpy(event->data + before, data, size);
	rest = str_utf8_partial((const char *)event->data, event->size);
	event->size -= rest;
	log->bytes -= rest;
	memcpy(log->partial[stream].bytes, event->data + event->size, rest);
	log->partial[stream].size = rest;
	if (event->size > 0) {
		*ret_event = event;
		return 0;
	}
	log->bytes -= command_event_cost(event);
	list_remove(&event->link);
	free(event);
	return 0;
}

int command_log_end(struct command_log *log, uint64_t number, enum command_event_kind kind,
		    const void *data, size_t size)
{
	uint64_t seq = number > 0 ? number * SEQ_STEP : log->seq + 1;
	struct command_event *event;
	int r;

	for (size_t i = 0; i < ARRAY_SIZE(log->partial); i++) {
		size_t rest = log->partial[i].size;

		if (rest == 0)
			continue;
		r = add(log, seq++, i ? COMMAND_EVENT_STDERR : COMMAND_EVENT_STDOUT, rest, &event);
		if (r < 0)
			return r;
		memcpy(event->data, log->partial[i].bytes, rest);
		log->partial[i].size = 0;
	}
	r = add(log, seq, kind, size, &event);
	if (r >= 0)
		memcpy(event->data, data, size);
	return r;
}

void command_log_dropped(struct command_log *log, uint64_t number)
{
	log->dropped = number * SEQ_STEP;
	if (log->seq < log->dropped)
		log->seq = log->dropped;
}

struct command_event *command_log_first(const struct command_log *log)
{
	return list_empty(&log->events) ? NULL
					: LIST_ENTRY(log->events.next, struct command_event, link);
}

struct command_event *command_log_next(const struct command_log *log,
				       const struct command_event *event)
{
	return event->link.next == &log->events
		       ? NULL
		       : LIST_ENTRY(event->link.next, struct command_event, link);
}

struct command_event *command_log_after(const struct command_log *log, uint64_t seq)
{
	struct command_event *event = command_log_first(log);

	while (event && event->seq <= seq)
		event = command_log_next(log, event);
	return event;
}

void command_log_drop_first(struct command_log *log)
{
	struct command_event *event = command_log_first(log);

	ASSERT(event);
	log->dropped = event->seq;
	log->bytes -= command_event_cost(event);
	list_remove(&event->link);
	free(event);
}

/* Formats. */

/* Output becomes JSON here and by no library: all that sessions say passes the one loop, and what
 * each byte takes there all others wait for. */
static const char short_escapes[] = {
	['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n',  ['\f'] = 'f',
	['\r'] = 'r', ['"'] = '"',  ['\\'] = '\\',
};

/* What a byte becomes in a JSON string. */
static size_t escaped_bytes(uint8_t byte)
{
	if (byte >= ' ' && byte != '"' && byte != '\\')
		return 1;
	return short_escapes[byte] ? 2 : 6;
}

static size_t escape(uint8_t *at, uint8_t byte)
{
	static const char digits[] = "0123456789abcdef";
	static const uint8_t control[] = {'\\', 'u', '0', '0'};
	size_t n = escaped_bytes(byte);

	if (n == 1) {
		*at = byte;
	} else if (n == 2) {
		at[0] = '\\';
		at[1] = (uint8_t)short_escapes[byte];
	} else {
		memcpy(at, control, sizeof(control));
		at[4] = (uint8_t)digits[byte >> 4];
		at[5] = (uint8_t)digits[byte & 0xf];
	}
	return n;
}

int command_text_format(struct buf *out, const uint8_t *data, size_t size)
{
	size_t total = 2;
	size_t n_controls = 0;
	uint8_t *at;
	int r;

	for (size_t i = 0; i < size; i++) {
		size_t n = escaped_bytes(data[i]);

		total += n;
		n_controls += n > 2;
	}
	/* What is mostly control characters is no text, although it may be UTF-8. */
	if (n_controls > 64 + size / 16 || !str_utf8_valid((const char *)data, size))
		return 0;
	r = buf_reserve(out, total);
	if (r < 0)
		return r;
	at = out->data + out->size;
	*at++ = '"';
	for (size_t i = 0; i < size; i++)
		at += escape(at, data[i]);
	*at = '"';
	out->size += total;
	return 1;
}

int command_base64_format(struct buf *out, const uint8_t *data, size_t size)
{
	int r = buf_append_str(out, "\"");

	if (r >= 0)
		r = buf_reserve(out, str_base64_bytes(size));
	if (r < 0)
		return r;
	out->size += str_base64((char *)out->data + out->size, data, size);
	return buf_append_str(out, "\"");
}

static int format_output(struct buf *out, const struct command_event *event)
{
	size_t start = out->size;
	int r = buf_append_str(out, "\"text\":");

	if (r >= 0)
		r = command_text_format(out, event->data, event->size);
	if (r != 0)
		return r < 0 ? r : 0;
	out->size = start;
	r = buf_append_str(out, "\"data\":");
	return r < 0 ? r : command_base64_format(out, event->data, event->size);
}

static const char *flag_text(uint32_t flags, uint32_t bit)
{
	return flags & bit ? "true" : "false";
}

int command_exit_format(struct buf *out, const struct wire_exit *exit_info)
{
	int r;

	if (exit_info->signal != 0)
		r = buf_printf(out, "\"code\":null,\"signal\":%d", exit_info->signal);
	else
		r = buf_printf(out, "\"code\":%d,\"signal\":null", exit_info->code);
	if (r < 0)
		return r;
	return buf_printf(
		out,
		",\"timed_out\":%s,\"truncated\":%s,\"cancelled\":%s,\"dropped_bytes\":%llu,"
		"\"usage\":{\"user_us\":%llu,\"system_us\":%llu,\"max_rss_kib\":%llu}",
		flag_text(exit_info->flags, WIRE_EXIT_TIMED_OUT),
		flag_text(exit_info->flags, WIRE_EXIT_TRUNCATED),
		flag_text(exit_info->flags, WIRE_EXIT_CANCELLED),
		(unsigned long long)exit_info->dropped_bytes,
		(unsigned long long)exit_info->user_us, (unsigned long long)exit_info->system_us,
		(unsigned long long)exit_info->max_rss_kib);
}

static int format_failed(struct buf *out, const struct command_event *event)
{
	struct wire_failed failed;
	const char *name = NULL;

	memcpy(&failed, event->data, sizeof(failed));
	if (failed.error_number != 0)
		name = strerrorname_np(failed.error_number);
	return buf_printf(out,
			  "\"code\":\"command_failed\",\"step\":\"%s\",\"errno\":\"%s\","
			  "\"retryable\":false,\"detail\":\"command failed at step %s: %s\"",
			  frame_step_name(failed.step), name ? name : "",
			  frame_step_name(failed.step), name ? name : "-");
}

static int format_exit(struct buf *out, const struct command_event *event)
{
	struct wire_exit exit_info;

	memcpy(&exit_info, event->data, sizeof(exit_info));
	return command_exit_format(out, &exit_info);
}

static int format_lost(struct buf *out, const struct command_event *event)
{
	return buf_printf(out, "\"code\":\"%s\",\"retryable\":false,\"detail\":\"session ended\"",
			  (const char *)event->data);
}

int command_event_format(struct buf *out, const struct command_event *event)
{
	static const struct {
		const char *type;
		int (*format)(struct buf *out, const struct command_event *event);
	} rows[COMMAND_EVENT_KIND_MAX_] = {
		[COMMAND_EVENT_STDOUT] = {"stdout", format_output},
		[COMMAND_EVENT_STDERR] = {"stderr", format_output},
		[COMMAND_EVENT_EXIT] = {"exit",   format_exit  },
		[COMMAND_EVENT_FAILED] = {"error",  format_failed},
		[COMMAND_EVENT_LOST] = {"error",  format_lost  },
	};
	int r;

	r = buf_printf(out, "{\"type\":\"%s\",\"seq\":%llu,", rows[event->kind].type,
		       (unsigned long long)event->seq);
	if (r >= 0)
		r = rows[event->kind].format(out, event);
	return r < 0 ? r : buf_append_str(out, "}");
}
