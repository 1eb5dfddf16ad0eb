/*
 * Theory. The helper in the session says what changes, in records of wire.h. Between shim and
 * client there is one ring, as for a file that is read: where the client is slow it fills, the shim
 * stops reading, the helper stops, and the kernel counts what it can keep no more. So the client
 * hears of a loss, and nothing grows.
 *
 * The answer begins with the first record, so what cannot be watched is an error like any other.
 */
#include "supervisor/api/file_watch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/ring.h"
#include "base/str.h"

#include "supervisor/api/components.h"
#include "supervisor/api/file_reply.h"
#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/reply.h"
#include "supervisor/api/live.h"
#include "supervisor/api/stream_out.h"

#define FILL_BYTES    ((size_t)64 * 1024)
#define PATH_BYTES    (FILE_SHOWN_BYTES + FILE_PATH_BYTES)
/* A record has two paths; of each a byte can become six, beside its base64. */
#define PENDING_BYTES (FILL_BYTES + (size_t)16 * PATH_BYTES)

struct file_watch {
	struct activity activity;
	struct list link; /* app->file_watches */
	struct answer_to to;
	struct stream_out out;
	struct ring ring;
	bool is_active;   /* the shim works on it */
	bool is_attached; /* a stream of the request has it */
	bool is_over;     /* the last event was shown */
	const char *code; /* why it ended, where the folder is not what is gone; or NULL */
	char shown[FILE_SHOWN_BYTES];
};

static const char *const kinds[WIRE_EVENT_MAX_] = {
	[WIRE_EVENT_READY] = "ready",       [WIRE_EVENT_CREATED] = "created",
	[WIRE_EVENT_MODIFIED] = "modified", [WIRE_EVENT_CLOSED] = "closed",
	[WIRE_EVENT_CHANGED] = "changed",   [WIRE_EVENT_MOVED] = "moved",
	[WIRE_EVENT_REMOVED] = "removed",   [WIRE_EVENT_OVERFLOW] = "overflow",
	[WIRE_EVENT_GONE] = "gone",
};

static void watch_free(struct file_watch *watch)
{
	if (watch->is_active || watch->is_attached)
		return;
	list_remove(&watch->link);
	ring_done(&watch->ring);
	stream_out_done(&watch->out);
	free(watch);
}

static void give_up(struct file_watch *watch)
{
	if (!watch->is_active)
		return;
	watch->is_active = false;
	live_give_up(&watch->activity);
}

/* The client left. */
static void on_left(void *userdata)
{
	struct file_watch *watch = userdata;

	watch->is_attached = false;
	give_up(watch);
	watch_free(watch);
}

/* Records. */

struct record {
	struct wire_file_event head;
	char path[FILE_PATH_BYTES];
	char from[FILE_PATH_BYTES];
};

/* 1: one was taken; 0: there is no whole one; -EPROTO: it is none. */
static int take_record(struct file_watch *watch, struct record *record)
{
	struct ring *ring = &watch->ring;
	struct wire_file_event *head = &record->head;
	size_t size;

	if (ring_peek(ring, 0, head, sizeof(*head)) < sizeof(*head))
		return 0;
	if (head->kind == 0 || head->kind >= WIRE_EVENT_MAX_ ||
	    head->path_bytes >= FILE_PATH_BYTES || head->from_bytes >= FILE_PATH_BYTES)
		return -EPROTO;
	size = sizeof(*head) + head->path_bytes + head->from_bytes;
	if (ring->used < size)
		return 0;
	(void)ring_peek(ring, sizeof(*head), record->path, head->path_bytes);
	(void)ring_peek(ring, sizeof(*head) + head->path_bytes, record->from, head->from_bytes);
	ring_drop(ring, size);
	if (watch->is_active)
		shim_link_file_credit(watch->activity.live->shim, watch->activity.wire_job, size);
	return 1;
}

static void set_path(const struct file_watch *watch, json_t *doc, const char *key,
		     const char *raw_key, const char *below, size_t size)
{
	char path[PATH_BYTES];
	size_t length = strlen(watch->shown);

	memcpy(path, watch->shown, length);
	if (size > 0)
		path[length++] = '/';
	memcpy(path + length, below, size);
	file_bytes_set(doc, key, raw_key, path, length + size);
}

static json_t *event_object(const struct file_watch *watch, const struct record *record)
{
	const struct wire_file_event *head = &record->head;
	json_t *doc = json_pack("{s:s}", "type", kinds[head->kind]);

	if (!doc)
		return NULL;
	set_path(watch, doc, "path", "path_base64", record->path, head->path_bytes);
	if (head->kind == WIRE_EVENT_MOVED)
		set_path(watch, doc, "from", "from_base64", record->from, head->from_bytes);
	if (head->kind != WIRE_EVENT_OVERFLOW)
		(void)json_object_set_new(doc, "is_folder", json_boolean(head->is_folder));
	else
		(void)json_object_set_new(doc, "detail",
					  json_string("some changes are not told, or not all "
						      "folders are watched: list again"));
	return doc;
}

/* Takes the object. */
static int show(struct file_watch *watch, const char *type, json_t *doc)
{
	struct stream_out *out = &watch->out;
	char *text = doc ? doc_format(doc, 0) : NULL;
	int r = text ? 0 : -ENOMEM;

	json_decref(doc);
	if (r >= 0 && !out->as_lines)
		r = buf_printf(&out->pending, "event: %s\ndata: ", type);
	if (r >= 0)
		r = buf_append_str(&out->pending, text);
	free(text);
	return r < 0 ? r : stream_out_end_item(out);
}

static int show_end(struct file_watch *watch)
{
	watch->is_over = true;
	return show(watch, "error",
		    json_pack("{s:s, s:s, s:b, s:s}", "type", "error", "code", watch->code,
			      "retryable", false, "detail", "the watch has ended"));
}

/* The stream. */

static int fill(struct file_watch *watch)
{
	static struct record record; /* too large for a stack */
	int r = 1;

	while (r > 0 && !watch->is_over && watch->out.pending.size < FILL_BYTES) {
		r = take_record(watch, &record);
		if (r <= 0)
			break;
		watch->is_over = record.head.kind == WIRE_EVENT_GONE;
		r = show(watch, kinds[record.head.kind], event_object(watch, &record));
		r = r < 0 ? r : 1;
	}
	if (r == 0 && !watch->is_over && !watch->is_active)
		r = show_end(watch);
	return r < 0 ? r : 0;
}

static ssize_t stream_read(void *userdata, char *data, size_t size)
{
	struct file_watch *watch = userdata;
	int r = stream_out_is_empty(&watch->out) ? fill(watch) : 0;
	ssize_t n;

	if (r < 0)
		return r;
	n = stream_out_take(&watch->out, watch->is_over, data, size);
	return n == 0 && watch->is_over ? -ENODATA : n;
}

static const struct request_stream stream_ops = {
	.read = stream_read,
	.closed = on_left,
};

/* What the shim says. */

static void wake(struct file_watch *watch)
{
	struct request *request = answer_get(&watch->to);

	if (request && watch->is_attached)
		request_wake(request);
}

/* May free it. */
static void on_file_data(struct activity *activity, const uint8_t *data, size_t size)
{
	struct file_watch *watch = LIST_ENTRY(activity, struct file_watch, activity);
	struct request *request = answer_get(&watch->to);

	/* More than the window is its fault, and shows as a record that is none. */
	(void)ring_put(&watch->ring, data, size);
	if (watch->is_attached) {
		wake(watch);
	} else if (request) {
		watch->is_attached = true;
		request_start_stream(request, stream_out_type(&watch->out), &stream_ops, watch);
	}
}

static void on_ended(struct activity *activity, const struct activity_result *result)
{
	struct file_watch *watch = LIST_ENTRY(activity, struct file_watch, activity);
	struct request *request = answer_get(&watch->to);
	struct live *live = activity->live;

	live_settle(live, result->number);
	watch->is_active = false;
	watch->code = result->end == ACTIVITY_LOST
			      ? session_reason_code(live->session->reason)
			      : runtime_error_row(RUNTIME_PROVIDER_UNAVAILABLE)->code;
	if (watch->is_attached)
		wake(watch);
	else if (request && result->end == ACTIVITY_FAILED)
		file_reply_failed(request, result->failed);
	else if (request)
		reply_tree_lost(request, live->session);
	watch_free(watch);
	tasks_next(live->app, live->session);
}

static const struct activity_ops watch_ops = {
	.output = activity_ignore_output,
	.file_data = on_file_data,
	.ended = on_ended,
};

bool file_watch_is(const struct activity *activity)
{
	return activity->ops == &watch_ops;
}

static size_t count(const struct live *live)
{
	size_t n = 0;

	LIST_FOR_EACH (entry, &live->activities)
		n += file_watch_is(LIST_ENTRY(entry, struct activity, link));
	return n;
}

/* False: it was answered. */
static bool may_watch(struct request *request, const struct live *live)
{
	if (!live->shim || !shim_link_has(live->shim, WIRE_FEATURE_WATCH)) {
		reply_runtime_error(request, RUNTIME_OLDER_TREE, NULL);
		return false;
	}
	if (count(live) >= FILE_WATCHES_MAX) {
		reply_runtime_error(request, RUNTIME_QUOTA,
				    "so many folders of the sandbox are watched");
		return false;
	}
	if (!request_may_stream(request))
		return false;
	if (!request_hold(request, WIRE_FILE_WINDOW_BYTES)) {
		reply_busy(request, "too much is held for requests: memory");
		return false;
	}
	return true;
}

static int start(struct live *live, const struct spec_file *spec, struct file_watch *watch)
{
	struct wire_file head = spec->head;
	uint32_t wire_job;
	int r;

	r = ring_init(&watch->ring, WIRE_FILE_WINDOW_BYTES);
	if (r < 0)
		return r;
	head.root = spec->path.root;
	r = shim_link_file(live->shim, &head, spec->path.text, NULL, &wire_job);
	if (r < 0)
		return r;
	watch->is_active = true;
	live_add(live, &watch->activity, &watch_ops, wire_job);
	return 0;
}

void action_file_watch(struct request *request, struct session *session,
		       const struct spec_file *spec, bool as_lines)
{
	struct live *live = live_of(session);
	struct file_watch *watch;
	int r;

	if (!may_watch(request, live))
		return;
	watch = calloc(1, sizeof(*watch));
	if (!watch) {
		reply_runtime_error(request, RUNTIME_BUSY, "out of memory");
		return;
	}
	watch->to = answer_to(request);
	stream_out_init(&watch->out, PENDING_BYTES, as_lines);
	list_append(&live->app->file_watches, &watch->link);
	file_show_path(&spec->path, watch->shown);
	r = start(live, spec, watch);
	if (r < 0) {
		watch_free(watch);
		reply_link_error(request, session, r);
		return;
	}
	request_on_left(request, on_left, watch);
}

void file_watches_heartbeat(struct app *app, usec_t now)
{
	LIST_FOR_EACH (entry, &app->file_watches) {
		struct file_watch *watch = LIST_ENTRY(entry, struct file_watch, link);

		if (stream_out_is_due(&watch->out, now))
			wake(watch);
	}
}
