#include "supervisor/api/stream_out.h"

#include <string.h>

#include "supervisor/api/app.h"

void stream_out_init(struct stream_out *out, size_t max_bytes, bool as_lines)
{
	*out = (struct stream_out){
		.pending = BUF_NULL(max_bytes),
		.last_sent = clock_boottime(),
		.as_lines = as_lines,
	};
}

void stream_out_done(struct stream_out *out)
{
	buf_done(&out->pending);
}

bool stream_out_is_empty(struct stream_out *out)
{
	if (out->sent < out->pending.size)
		return false;
	buf_reset(&out->pending);
	out->sent = 0;
	return true;
}

int stream_out_end_item(struct stream_out *out)
{
	return buf_append_str(&out->pending, out->as_lines ? "\n" : "\n\n");
}

ssize_t stream_out_take(struct stream_out *out, bool is_over, char *data, size_t size)
{
	size_t n;
	int r;

	if (out->pending.size == 0 && out->heartbeat && !is_over) {
		out->heartbeat = false;
		r = buf_append_str(&out->pending, ": heartbeat\n\n");
		if (r < 0)
			return r;
	}
	n = out->pending.size - out->sent;
	if (n == 0)
		return 0;
	if (n > size)
		n = size;
	memcpy(data, out->pending.data + out->sent, n);
	out->sent += n;
	out->last_sent = clock_boottime();
	return (ssize_t)n;
}

bool stream_out_is_due(struct stream_out *out, usec_t now)
{
	if (out->as_lines || now - out->last_sent < APP_HEARTBEAT)
		return false;
	out->heartbeat = true;
	return true;
}

const char *stream_out_type(const struct stream_out *out)
{
	return out->as_lines ? "application/x-ndjson" : "text/event-stream";
}
