#include "supervisor/api/live.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"

#include "supervisor/api/command.h"
#include "supervisor/api/denials.h"
#include "supervisor/api/events.h"
#include "supervisor/api/provider.h"
#include "supervisor/api/suspend.h"

#define GONE_WAIT (100 * USEC_PER_MS)

static struct activity *find_activity(struct live *live, uint32_t wire_job)
{
	LIST_FOR_EACH (entry, &live->activities) {
		struct activity *activity = LIST_ENTRY(entry, struct activity, link);

		if (activity->wire_job == wire_job)
			return activity;
	}
	return NULL;
}

static void on_started(void *userdata, uint32_t wire_job, int32_t pid)
{
	struct activity *activity = find_activity(userdata, wire_job);

	if (!activity)
		return;
	activity->pid = pid;
	if (activity->ops->started)
		activity->ops->started(activity, pid);
}

static void on_output(void *userdata, uint32_t wire_job, uint64_t number, bool is_stderr,
		      const uint8_t *data, size_t size)
{
	struct live *live = userdata;
	struct activity *activity = find_activity(live, wire_job);

	if (activity) {
		activity->came_bytes += size;
		activity->ops->output(activity, number, is_stderr, data, size);
	} else {
		live_settle(live, number); /* given up; its last frame is still to come */
	}
}

static void end_activity(struct live *live, uint32_t wire_job, const struct activity_result *result)
{
	struct activity *activity = find_activity(live, wire_job);

	if (!activity) {
		live_settle(live, result->number);
		return;
	}
	list_remove(&activity->link);
	denials_activity_ended(live, activity, result);
	activity->ops->ended(activity, result);
}

static void on_exited(void *userdata, uint32_t wire_job, uint64_t number,
		      const struct wire_exit *exit_info)
{
	end_activity(userdata, wire_job,
		     &(struct activity_result){
			     .end = ACTIVITY_EXITED, .exit_info = exit_info, .number = number});
}

static void on_failed(void *userdata, uint32_t wire_job, uint64_t number,
		      const struct wire_failed *failed)
{
	end_activity(userdata, wire_job,
		     &(struct activity_result){
			     .end = ACTIVITY_FAILED, .failed = failed, .number = number});
}

static void on_put_done(void *userdata, uint32_t wire_job, uint64_t number)
{
	end_activity(userdata, wire_job,
		     &(struct activity_result){.end = ACTIVITY_PUT_DONE, .number = number});
}

static void on_denied(void *userdata, const struct wire_denied *denied)
{
	denials_syscall(userdata, denied);
}

static void on_taken(void *userdata, uint32_t wire_job, const struct wire_taken *taken)
{
	struct activity *activity = find_activity(userdata, wire_job);

	if (activity && activity->ops->taken)
		activity->ops->taken(activity, taken);
}

static void on_file_data(void *userdata, uint32_t wire_job, const uint8_t *data, size_t size)
{
	struct activity *activity = find_activity(userdata, wire_job);

	/* Of one that was given up no more than the window comes. */
	if (activity && activity->ops->file_data)
		activity->ops->file_data(activity, data, size);
}

static int on_kept(void *userdata, uint32_t wire_job, const struct wire_kept *kept,
		   const uint8_t *note, size_t note_bytes)
{
	return commands_adopt(userdata, wire_job, kept, note, note_bytes);
}

static void on_known(void *userdata)
{
	struct live *live = userdata;

	suspend_known(live);
	/* What was settled so far could not be acknowledged yet. */
	if (list_empty(&live->credit))
		list_append(&live->app->crediting, &live->credit);
	sessions_event(live->app, live->session, SESSION_EVENT_RESTORED, SESSION_REASON_NONE);
	tasks_go_on(live->app, live->session);
}

static void on_paused(void *userdata)
{
	suspend_paused(userdata);
}

static void lose(struct live *live, int error)
{
	struct log_context context = {.session = &live->session->id};

	if (live->session->state < SESSION_STATE_FALLING) {
		log_line(LOG_LEVEL_WARNING, &context, "session's shim is lost", "errno=%d", -error);
		/* Where it died the supervisor says so, and why; a kill would hide that. */
		live->kill_later = error == -EPIPE || error == -ECONNRESET;
	}
	sessions_event(live->app, live->session, SESSION_EVENT_LOST, SESSION_REASON_LOST);
}

static bool is_gone(const struct live *live)
{
	return live->provider->is_gone && live->provider->is_gone(live);
}

void live_unlink(struct live *live)
{
	struct session *session = live->session;
	bool is_ending = session->state >= SESSION_STATE_FALLING && !live->kill_later;

	if ((!live->shim && !live->lost_timer) || is_ending)
		return;
	if (live->is_incomplete) {
		lose(live, -ENOTCONN); /* it is of no use, and ended when it can be */
		return;
	}
	live->is_away = true;
	sessions_event(live->app, session, SESSION_EVENT_UNLINKED, SESSION_REASON_RESTART);
}

static int on_lost_timer(sd_event_source *source, uint64_t at, void *userdata)
{
	struct live *live = userdata;

	(void)source;
	(void)at;
	/* Of one that is being ended by now the provider may be another process already. */
	if (live->session->state < SESSION_STATE_FALLING && is_gone(live))
		live->provider->gone(live->app);
	else
		lose(live, live->lost_error);
	live->lost_timer = sd_event_source_disable_unref(live->lost_timer);
	return 0;
}

void live_lost(struct live *live, int error)
{
	usec_t wait = is_gone(live) ? 0 : GONE_WAIT;

	/* While it is being ended, the end of its socket is what we asked for. */
	if (live->session->state == SESSION_STATE_CLOSED)
		return;
	/* Of a process that ends, the kernel closes one socket after the other. */
	live->lost_error = error;
	if (live->session->state >= SESSION_STATE_FALLING || !live->provider->is_gone ||
	    sd_event_add_time_relative(live->app->event, &live->lost_timer, CLOCK_BOOTTIME, wait,
				       USEC_PER_MS, on_lost_timer, live) < 0)
		lose(live, error);
}

static void on_lost(void *userdata, int error)
{
	live_lost(userdata, error);
}

static const struct shim_link_events link_events = {
	.started = on_started,
	.output = on_output,
	.exited = on_exited,
	.failed = on_failed,
	.put_done = on_put_done,
	.taken = on_taken,
	.file_data = on_file_data,
	.kept = on_kept,
	.denied = on_denied,
	.known = on_known,
	.paused = on_paused,
	.lost = on_lost,
};

int live_new(struct app *app, struct session *session, struct live **ret_live)
{
	struct live *live = calloc(1, sizeof(*live));

	if (!live)
		return -ENOMEM;
	live->app = app;
	live->session = session;
	live->provider = provider_find(session->provider);
	if (!provider_is_configured(app, live->provider))
		live->provider = &provider_absent;
	live->used_at = live->made_at = clock_boottime();
	list_init(&live->activities);
	list_init(&live->commands);
	list_init(&live->event_streams);
	list_init(&live->credit);
	list_init(&live->waiters);
	list_init(&live->tree_waiters);
	list_append(&app->lives, &live->link);
	session->link = live;
	*ret_live = live;
	return 0;
}

struct live *live_free(struct live *live)
{
	if (!live)
		return NULL;
	ASSERT(list_empty(&live->activities));
	ASSERT(list_empty(&live->waiters));
	ASSERT(list_empty(&live->tree_waiters));
	ASSERT(!live->creation && !live->rebuild && !live->suspend);
	commands_leave(live);
	events_done(live);
	json_decref(live->staged);
	list_remove(&live->link);
	list_remove(&live->credit);
	live->lost_timer = sd_event_source_disable_unref(live->lost_timer);
	live->shim = shim_link_free(live->shim);
	live->session->link = NULL;
	free(live);
	return NULL;
}

/* Job numbers of a new connection start at a random place, so that those of an earlier worker,
 * whose last frames may still come, are not taken for ours. */
static uint32_t first_job(void)
{
	uint32_t first = 1;

	if (getrandom(&first, sizeof(first), 0) != (ssize_t)sizeof(first))
		first = 1;
	return (first & 0x7fffffffu) | 1u;
}

int live_connect(struct live *live, int fd)
{
	struct shim_link_options options = {
		.session = &live->session->id,
		.flow = &live->session->flow,
		.adopted = live->adopted,
		.first_job = live->adopted ? first_job() : 1,
		.scratch = live->app->scratch,
	};

	ASSERT(!live->shim);
	live->engine_link = live->app->n_engine_links;
	return shim_link_new(live->app->event, fd, &options, &link_events, live, &live->shim);
}

void live_add(struct live *live, struct activity *activity, const struct activity_ops *ops,
	      uint32_t wire_job)
{
	activity->ops = ops;
	activity->live = live;
	activity->wire_job = wire_job;
	list_append(&live->activities, &activity->link);
}

void live_name(struct live *live, uint32_t wire_job, const char *program)
{
	struct activity *activity = find_activity(live, wire_job);
	const char *slash = strrchr(program, '/');

	if (activity)
		(void)strncpy(activity->program, slash ? slash + 1 : program,
			      sizeof(activity->program) - 1);
}

const char *live_program(const struct live *live, int32_t pid)
{
	LIST_FOR_EACH (entry, &live->activities) {
		const struct activity *activity = LIST_ENTRY(entry, struct activity, link);

		if (activity->pid == pid && pid != 0)
			return activity->program;
	}
	return NULL;
}

void live_settle(struct live *live, uint64_t number)
{
	if (!live->shim || number == 0)
		return;
	shim_link_settle(live->shim, number);
	if (list_empty(&live->credit))
		list_append(&live->app->crediting, &live->credit);
}

void live_give_up(struct activity *activity)
{
	list_remove(&activity->link);
	if (activity->live->shim)
		shim_link_cancel(activity->live->shim, activity->wire_job);
}

void activity_ignore_output(struct activity *activity, uint64_t number, bool is_stderr,
			    const uint8_t *data, size_t size)
{
	(void)is_stderr;
	(void)data;
	(void)size;
	live_settle(activity->live, number);
}

void live_end_all(struct live *live)
{
	static const struct activity_result lost = {.end = ACTIVITY_LOST};

	/* What was about to begin, in a turn of its own say, would have no end. */
	if (live->shim)
		shim_link_begin_end(live->shim);
	while (!list_empty(&live->activities)) {
		struct activity *activity =
			LIST_ENTRY(live->activities.next, struct activity, link);

		list_remove(&activity->link);
		activity->ops->ended(activity, &lost);
	}
}

void live_drop_tree(struct live *live)
{
	ASSERT(list_empty(&live->activities));
	list_remove(&live->credit);
	live->lost_timer = sd_event_source_disable_unref(live->lost_timer);
	live->shim = shim_link_free(live->shim);
	live->adopted = false;
	live->kill_asked = false;
	live->kill_later = false;
	live->tree++;
}
