/*
 * Theory. How full the folders are only the session knows: they are mounts of its own, which no
 * process outside looks into. So its file helper is asked, and that is a word of the session about
 * itself; what its memory is charged for, files included, is the supervisor's count. A session that
 * does not answer soon, as its processes may be stopped, is described without.
 */
#include "supervisor/api/stats.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sandboxd/launch.h"
#include "supervisor/api/http/reply.h"
#include "supervisor/api/live.h"

#define WAIT_US (2 * USEC_PER_SEC)

enum {
	SPACE_SESSION,
	SPACE_TMP,
	SPACE_MAX_,
};

struct stats {
	struct activity activity;
	struct answer_to to;
	sd_event_source *timer;
	json_t *doc; /* owned */
	struct wire_file_space space[SPACE_MAX_];
	size_t n_bytes; /* of them that came */
	bool is_active;
};

static json_t *make_document(const char *session_id, const struct launch_stat *stat)
{
	return json_pack("{s:s, s:I, s:I, s:I, s:i, s:b, s:i, s:n}", "session_id", session_id,
			 "memory_bytes", (json_int_t)stat->memory_bytes, "memory_peak_bytes",
			 (json_int_t)stat->memory_peak_bytes, "cpu_us", (json_int_t)stat->cpu_us,
			 "pids", (int)stat->n_pids, "frozen", stat->frozen != 0, "oom_kills",
			 (int)stat->oom_kills, "disk");
}

static json_t *space_object(const struct wire_file_space *space)
{
	return json_pack("{s:I, s:I, s:I, s:I}", "size_bytes", (json_int_t)space->size_bytes,
			 "used_bytes", (json_int_t)space->used_bytes, "max_inodes",
			 (json_int_t)space->max_inodes, "used_inodes",
			 (json_int_t)space->used_inodes);
}

/* Answers, where the client is still there. */
static void stats_free(struct stats *stats)
{
	struct request *request = answer_get(&stats->to);

	if (stats->is_active)
		live_give_up(&stats->activity);
	if (request)
		reply_json(request, MHD_HTTP_OK, json_incref(stats->doc));
	stats->timer = sd_event_source_disable_unref(stats->timer);
	json_decref(stats->doc);
	free(stats);
}

static int on_time(sd_event_source *source, uint64_t now, void *userdata)
{
	(void)source;
	(void)now;
	stats_free(userdata);
	return 0;
}

static void on_file_data(struct activity *activity, const uint8_t *data, size_t size)
{
	struct stats *stats = LIST_ENTRY(activity, struct stats, activity);
	size_t room = sizeof(stats->space) - stats->n_bytes;

	shim_link_file_credit(activity->live->shim, activity->wire_job, size);
	if (size > room)
		size = room; /* it says more than it was asked */
	memcpy((uint8_t *)stats->space + stats->n_bytes, data, size);
	stats->n_bytes += size;
}

static void on_ended(struct activity *activity, const struct activity_result *result)
{
	struct stats *stats = LIST_ENTRY(activity, struct stats, activity);
	struct live *live = activity->live;

	live_settle(live, result->number);
	stats->is_active = false;
	if (result->end == ACTIVITY_PUT_DONE && stats->n_bytes == sizeof(stats->space))
		(void)json_object_set_new(stats->doc, "disk",
					  json_pack("{s:o?, s:o?}", "/session",
						    space_object(&stats->space[SPACE_SESSION]),
						    "/tmp",
						    space_object(&stats->space[SPACE_TMP])));
	stats_free(stats);
	tasks_next(live->app, live->session);
}

static const struct activity_ops stats_ops = {
	.output = activity_ignore_output,
	.file_data = on_file_data,
	.ended = on_ended,
};

static int ask(struct live *live, struct stats *stats)
{
	const struct wire_file head = {
		.op = WIRE_FILE_SPACE, .root = WIRE_FILE_SESSION, .to_root = WIRE_FILE_TMP};
	uint32_t wire_job;
	int r;

	r = sd_event_add_time(live->app->event, &stats->timer, CLOCK_BOOTTIME,
			      clock_add(clock_boottime(), WAIT_US), USEC_PER_MS, on_time, stats);
	if (r >= 0)
		r = shim_link_file(live->shim, &head, ".", NULL, &wire_job);
	if (r < 0)
		return r;
	stats->is_active = true;
	live_add(live, &stats->activity, &stats_ops, wire_job);
	return 0;
}

void stats_reply(struct request *request, struct session *session, const char *session_id,
		 const struct launch_stat *stat)
{
	struct live *live = session ? live_of(session) : NULL;
	struct stats *stats = calloc(1, sizeof(*stats));

	if (!stats) {
		reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
		return;
	}
	stats->to = answer_to(request);
	stats->doc = make_document(session_id, stat);
	if (stat->frozen || !live || !live->shim ||
	    !shim_link_has(live->shim, WIRE_FEATURE_SPACE) || ask(live, stats) < 0)
		stats_free(stats);
}
