/*
 * Theory. One operation of the file helper for one request. What it found is collected where it is
 * small, and handed to the client as it comes where it is a file: between shim and client there is
 * one ring of WIRE_FILE_WINDOW_BYTES, and the shim sends no more until the client has taken some.
 * The other way round the library keeps a piece until the shim has taken what it has, and then the
 * kernel stops the client. So no file is ever held here, whatever its size.
 *
 * A request that ends early takes its operation with it; the helper then leaves no file behind.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/ring.h"
#include "base/str.h"

#include "supervisor/api/command_actions.h"
#include "supervisor/api/components.h"
#include "supervisor/api/file_reply.h"
#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/reply.h"
#include "supervisor/api/live.h"

#define FOUND_MAX_BYTES ((size_t)4 * 1024 * 1024)
#define NOTED_PATH_MAX  256

struct file_work {
	struct activity activity;
	struct answer_to to;
	uint16_t op;
	bool is_active;    /* the shim works on it */
	bool is_attached;  /* a stream or an upload of the request has it */
	bool is_cut;       /* not all of it was kept */
	bool is_begun;     /* GET: the answer has begun */
	bool is_suspended; /* PUT, COPY: given up, and the shim has yet to say whether in time */
	struct wire_file range;
	struct buf found;  /* GET: its entry */
	struct ring ring;  /* GET */
	uint64_t left;     /* GET: bytes that the client is still to get */
	uint64_t put_sent; /* PUT */
	uint64_t put_taken;
	char shown[FILE_SHOWN_BYTES]; /* the path of what the answer describes */
};

static void work_free(struct file_work *work)
{
	if (work->is_active || work->is_attached)
		return;
	buf_done(&work->found);
	ring_done(&work->ring);
	free(work);
}

static void give_up(struct file_work *work)
{
	if (!work->is_active)
		return;
	work->is_active = false;
	live_give_up(&work->activity);
}

static void on_detached(void *userdata)
{
	struct file_work *work = userdata;

	work->is_attached = false;
	give_up(work);
	work_free(work);
}

/* GET. */

static ssize_t get_read(void *userdata, char *data, size_t size)
{
	struct file_work *work = userdata;
	size_t n = ring_peek(&work->ring, 0, data, size);

	if (n == 0 && work->left == 0)
		return -ENODATA;
	if (n == 0)
		return work->is_active
			       ? 0
			       : -EIO; /* it is shorter, or its session is suspended or gone */
	ring_drop(&work->ring, n);
	work->left -= n;
	if (work->is_active)
		shim_link_file_credit(work->activity.live->shim, work->activity.wire_job, n);
	return (ssize_t)n;
}

static const struct request_stream get_ops = {
	.read = get_read,
	.closed = on_detached,
};

static void add_get_headers(struct request *request, const struct wire_file_entry *entry)
{
	char text[64];

	IGNORE_RESULT(str_format(text, sizeof(text), "\"%llx-%llx-%llx\"",
				 (unsigned long long)entry->inode, (unsigned long long)entry->size,
				 (unsigned long long)entry->mtime_ns));
	request_add_header(request, MHD_HTTP_HEADER_ETAG, text);
	request_add_header(request, MHD_HTTP_HEADER_ACCEPT_RANGES, "bytes");
	IGNORE_RESULT(str_format(text, sizeof(text), "%04o", entry->mode & 07777u));
	request_add_header(request, "Sandbox-File-Mode", text);
}

static void add_content_range(struct request *request, uint64_t from, uint64_t size, uint64_t total)
{
	char text[64];

	if (size > 0)
		IGNORE_RESULT(str_format(
			text, sizeof(text), "bytes %llu-%llu/%llu", (unsigned long long)from,
			(unsigned long long)(from + size - 1), (unsigned long long)total));
	else
		IGNORE_RESULT(
			str_format(text, sizeof(text), "bytes */%llu", (unsigned long long)total));
	request_add_header(request, MHD_HTTP_HEADER_CONTENT_RANGE, text);
}

static bool has_range(const struct wire_file *range)
{
	return (range->flags & WIRE_FILE_LAST) || range->offset > 0 || range->size != UINT64_MAX;
}

/* The helper reckons the same from the same size. */
static void begin_get(struct request *request, struct file_work *work,
		      const struct wire_file_entry *entry)
{
	const struct wire_file *range = &work->range;
	struct request_body body = {.status = MHD_HTTP_OK,
				    .content_type = "application/octet-stream"};
	uint64_t from = range->offset < entry->size ? range->offset : entry->size;

	if (range->flags & WIRE_FILE_LAST)
		from = range->size < entry->size ? entry->size - range->size : 0;
	body.size = entry->size - from < range->size ? entry->size - from : range->size;
	work->left = body.size;
	if (has_range(range)) {
		add_content_range(request, from, body.size, entry->size);
		body.status = MHD_HTTP_PARTIAL_CONTENT;
		if (body.size == 0) {
			reply_detail(request, MHD_HTTP_RANGE_NOT_SATISFIABLE,
				     "the file has no such bytes");
			return;
		}
	}
	add_get_headers(request, entry);
	if (body.size == 0) {
		reply_text(request, MHD_HTTP_OK, body.content_type, "");
		return;
	}
	work->is_attached = true;
	request_start_body(request, &body, &get_ops, work);
}

/* May free it. */
static void take_file(struct file_work *work, const uint8_t *data, size_t size)
{
	size_t missing = sizeof(struct wire_file_entry) - work->found.size;
	size_t n = size < missing ? size : missing;
	struct request *request = answer_get(&work->to);
	struct wire_file_entry entry;

	if (n > 0) {
		if (buf_append(&work->found, data, n) < 0)
			work->is_cut = true;
		shim_link_file_credit(work->activity.live->shim, work->activity.wire_job, n);
		data += n;
		size -= n;
	}
	if (size > 0 && ring_put(&work->ring, data, size) < size)
		work->is_cut = true; /* more than the window: it will be missing */
	if (!work->is_begun && work->found.size == sizeof(entry)) {
		work->is_begun = true;
		memcpy(&entry, work->found.data, sizeof(entry));
		if (request)
			begin_get(request, work, &entry);
	} else if (work->is_attached && request) {
		request_wake(request);
	}
	if (!request && !work->is_attached) {
		give_up(work);
		work_free(work);
	}
}

/* PUT. */

static ssize_t put_take(void *userdata, const char *data, size_t size)
{
	struct file_work *work = userdata;
	uint64_t on_the_way = work->put_sent - work->put_taken;
	size_t room = on_the_way < WIRE_FILE_WINDOW_BYTES
			      ? WIRE_FILE_WINDOW_BYTES - (size_t)on_the_way
			      : 0;
	int r;

	if (!work->is_active)
		return -EPIPE;
	if (work->is_suspended)
		return 0; /* its answer is near */
	if (room > size)
		room = size;
	if (room == 0)
		return 0;
	r = shim_link_file_put(work->activity.live->shim, work->activity.wire_job, data, room);
	if (r < 0)
		return r;
	work->put_sent += room;
	return (ssize_t)room;
}

static void put_end(void *userdata)
{
	struct file_work *work = userdata;
	struct request *request = answer_get(&work->to);

	if (work->is_suspended)
		return;
	if (work->is_active &&
	    shim_link_file_put_end(work->activity.live->shim, work->activity.wire_job) >= 0)
		return;
	if (request)
		reply_runtime_error(request, RUNTIME_PROVIDER_UNAVAILABLE, NULL);
}

static const struct request_upload put_ops = {
	.take = put_take,
	.end = put_end,
	.closed = on_detached,
};

static void on_taken(struct activity *activity, const struct wire_taken *taken)
{
	struct file_work *work = LIST_ENTRY(activity, struct file_work, activity);
	struct request *request = answer_get(&work->to);

	/* Its word about itself: more than was sent gives it nothing. */
	if (taken->taken > work->put_taken && taken->taken <= work->put_sent)
		work->put_taken = taken->taken;
	if (request)
		request_wake_upload(request);
}

/* All. */

static void on_file_data(struct activity *activity, const uint8_t *data, size_t size)
{
	struct file_work *work = LIST_ENTRY(activity, struct file_work, activity);

	if (work->op == WIRE_FILE_GET) {
		take_file(work, data, size);
		return;
	}
	if (buf_append(&work->found, data, size) < 0)
		work->is_cut = true;
	shim_link_file_credit(activity->live->shim, activity->wire_job, size);
}

static void answer_found(struct request *request, const struct file_work *work)
{
	struct file_entry entry;
	size_t at = 0;

	if (work->op == WIRE_FILE_LIST)
		reply_json(request, MHD_HTTP_OK,
			   file_list_object(&work->found, work->shown, work->is_cut));
	else if (work->op == WIRE_FILE_REMOVE)
		reply_json(request, MHD_HTTP_OK,
			   json_pack("{s:s, s:b}", "path", work->shown, "removed", true));
	else if (file_entry_next(&work->found, &at, &entry))
		reply_json(request, MHD_HTTP_OK, file_entry_object(&entry, work->shown));
	else
		reply_runtime_error(request, RUNTIME_PROVIDER_UNAVAILABLE, NULL);
}

static void on_ended(struct activity *activity, const struct activity_result *result)
{
	struct file_work *work = LIST_ENTRY(activity, struct file_work, activity);
	struct request *request = answer_get(&work->to);
	struct live *live = activity->live;

	live_settle(live, result->number);
	work->is_active = false;
	if (request && work->is_begun)
		request_wake(request);
	else if (request && result->end == ACTIVITY_PUT_DONE)
		answer_found(request, work);
	else if (request && work->is_suspended)
		reply_runtime_error(request, RUNTIME_SUSPENDED, NULL);
	else if (request && result->end == ACTIVITY_FAILED)
		file_reply_failed(request, result->failed);
	else if (request)
		reply_tree_lost(request, live->session);
	work_free(work);
	tasks_next(live->app, live->session);
}

static const struct activity_ops file_ops = {
	.output = activity_ignore_output,
	.taken = on_taken,
	.file_data = on_file_data,
	.ended = on_ended,
};

/* May free it. */
static void end_suspended(struct file_work *work)
{
	struct request *request = answer_get(&work->to);

	give_up(work);
	if (request && work->is_begun)
		request_wake(request); /* and cut behind what came */
	else if (request)
		reply_runtime_error(request, RUNTIME_SUSPENDED, NULL);
	work_free(work);
}

/* One that was complete before has changed something, and says so. */
static void cancel(struct file_work *work)
{
	work->is_suspended = true;
	shim_link_cancel(work->activity.live->shim, work->activity.wire_job);
}

static bool makes_file(uint16_t op)
{
	return op == WIRE_FILE_PUT || op == WIRE_FILE_COPY;
}

void files_suspended(struct live *live, bool is_frozen)
{
	LIST_FOR_EACH_SAFE (entry, following, &live->activities) {
		struct activity *activity = LIST_ENTRY(entry, struct activity, link);
		struct file_work *work = LIST_ENTRY(activity, struct file_work, activity);

		if (activity->ops != &file_ops)
			continue;
		if (!is_frozen && makes_file(work->op) && live->shim)
			cancel(work);
		else if (is_frozen || work->op == WIRE_FILE_GET)
			end_suspended(work);
	}
}

static void note_path(struct request *request, const char *key, const char *path)
{
	size_t length = strnlen(path, NOTED_PATH_MAX);

	length -= str_utf8_partial(path, length);
	request_note(request, key, json_stringn(path, length));
}

static int work_new(struct request *request, const struct spec_file *spec,
		    struct file_work **ret_work)
{
	struct file_work *work = calloc(1, sizeof(*work));
	bool has_target = spec->head.op == WIRE_FILE_MOVE || spec->head.op == WIRE_FILE_COPY;
	int r = 0;

	if (!work)
		return -ENOMEM;
	work->to = answer_to(request);
	work->op = spec->head.op;
	work->range = spec->head;
	work->found = BUF_NULL(FOUND_MAX_BYTES);
	file_show_path(&spec->path, work->shown);
	note_path(request, "path", work->shown);
	if (has_target) {
		file_show_path(&spec->to, work->shown);
		note_path(request, "to", work->shown);
	}
	if (work->op == WIRE_FILE_GET)
		r = ring_init(&work->ring, WIRE_FILE_WINDOW_BYTES);
	if (r < 0) {
		free(work);
		return r;
	}
	*ret_work = work;
	return 0;
}

static int start(struct live *live, const struct spec_file *spec, struct file_work *work)
{
	bool has_target = spec->head.op == WIRE_FILE_MOVE || spec->head.op == WIRE_FILE_COPY;
	struct wire_file head = spec->head;
	uint32_t wire_job;
	int r;

	head.root = spec->path.root;
	head.to_root = spec->to.root;
	r = live->shim ? shim_link_file(live->shim, &head, spec->path.text,
					has_target ? spec->to.text : NULL, &wire_job)
		       : -EPIPE;
	if (r < 0)
		return r;
	work->is_active = true;
	live_add(live, &work->activity, &file_ops, wire_job);
	return 0;
}

static bool is_streamed(const struct spec_file *spec)
{
	return spec->head.op == WIRE_FILE_GET || spec->head.op == WIRE_FILE_PUT;
}

static bool makes_bytes(const struct spec_file *spec)
{
	return spec->head.op == WIRE_FILE_PUT || spec->head.op == WIRE_FILE_COPY;
}

void action_file(struct request *request, struct session *session, const struct spec_file *spec)
{
	struct file_work *work = NULL;
	int r;

	if (makes_bytes(spec) && !command_may_work(request, session))
		return;
	if (is_streamed(spec) && (!request_may_stream(request)))
		return;
	if (is_streamed(spec) && !request_hold(request, WIRE_FILE_WINDOW_BYTES)) {
		reply_busy(request, "too much is held for requests: memory");
		return;
	}
	r = work_new(request, spec, &work);
	if (r >= 0)
		r = start(live_of(session), spec, work);
	if (r < 0) {
		if (work)
			work_free(work);
		reply_link_error(request, session, r);
		return;
	}
	if (work->op == WIRE_FILE_PUT) {
		work->is_attached = true;
		request_start_upload(request, &put_ops, work);
	}
}
