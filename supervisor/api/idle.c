#include "supervisor/api/idle.h"

#include "base/log.h"

#include "supervisor/api/command.h"
#include "supervisor/api/file_watch.h"
#include "supervisor/api/metrics/metrics.h"
#include "supervisor/api/suspend_persist.h"
#include "supervisor/api/suspend_state.h"

void idle_touch(struct live *live)
{
	live->used_at = clock_boottime();
}

bool idle_resumes(const struct app *app)
{
	return app->config->idle_timeout_s > 0;
}

usec_t idle_keep(const struct app *app)
{
	return app->config->snapshot_retention_s * (usec_t)USEC_PER_SEC;
}

/* A command in the background goes on after the resume, and a watch asks for nothing. */
static bool is_busy(const struct live *live)
{
	size_t n_idle = 0;
	size_t n = 0;

	LIST_FOR_EACH (entry, &live->commands) {
		const struct command *command = LIST_ENTRY(entry, struct command, link);

		n_idle += command->state != COMMAND_STATE_ENDED && command->background &&
			  list_empty(&command->readers) && list_empty(&command->waiters);
	}
	LIST_FOR_EACH (entry, &live->activities) {
		n_idle += file_watch_is(LIST_ENTRY(entry, struct activity, link));
		n++;
	}
	/* One that is about to be put back is looked through before. */
	return n > n_idle || live->snapshot;
}

static void look_at_running(struct live *live, usec_t now)
{
	usec_t idle = live->app->config->idle_timeout_s * (usec_t)USEC_PER_SEC;

	if (idle == 0 || live->session->dagster || live->session->state != SESSION_STATE_OPEN)
		return;
	if (is_busy(live))
		live->used_at = now;
	else if (now - live->used_at >= idle)
		suspend_idle(live);
}

/* Its memory is given back; the next resume begins with its snapshot. */
static void demote(struct live *live)
{
	struct session *session = live->session;
	const struct log_context context = {.session = &session->id};

	log_line(LOG_LEVEL_INFO, &context, "suspended session gives its memory back",
		 "generation=%llu bytes=%llu", (unsigned long long)session->suspension.generation,
		 (unsigned long long)session->suspension.memory_bytes);
	live->app->counters.n_demotions++;
	sessions_event(live->app, session, SESSION_EVENT_STOP, SESSION_REASON_DEMOTED);
}

/* What is not durable is made so first, and demoted in a later tick. */
static void give_back(struct live *live)
{
	if (suspension_is_durable(&live->session->suspension) && !live->persist)
		demote(live);
	else if (!live->persist && clock_boottime() >= live->persist_at)
		IGNORE_RESULT(suspend_persist(live));
}

static bool is_frozen(const struct live *live)
{
	return live->session->suspension.state == SUSPENSION_SUSPENDED && live->shim &&
	       !live->suspend && live->session->state < SESSION_STATE_FALLING;
}

/* The one that is suspended for longest, of those that were not looked at. */
static struct live *oldest_frozen(struct app *app, usec_t after)
{
	struct live *oldest = NULL;

	LIST_FOR_EACH (entry, &app->lives) {
		struct live *live = LIST_ENTRY(entry, struct live, link);
		usec_t since = live->session->suspension.since;

		if (is_frozen(live) && since > after &&
		    (!oldest || since < oldest->session->suspension.since))
			oldest = live;
	}
	return oldest;
}

static uint64_t frozen_bytes(const struct app *app)
{
	uint64_t bytes = 0;

	LIST_FOR_EACH (entry, &app->lives) {
		const struct live *live = LIST_ENTRY(entry, struct live, link);

		if (is_frozen(live))
			bytes += live->session->suspension.memory_bytes;
	}
	return bytes;
}

int idle_append_metrics(struct buf *text, const struct app *app)
{
	const struct metrics_value resumes[] = {
		{"from=\"memory\"",   app->counters.n_resumes[SUSPENSION_RESUMED_MEMORY]  },
		{"from=\"snapshot\"", app->counters.n_resumes[SUSPENSION_RESUMED_SNAPSHOT]},
	};
	uint64_t n = 0;
	int r;

	LIST_FOR_EACH (entry, &app->lives)
		n += is_frozen(LIST_ENTRY(entry, struct live, link));
	r = metrics_append(text, "sessions_frozen", "gauge", "Suspended sessions with processes.",
			   &(struct metrics_value){"", n}, 1);
	if (r < 0)
		return r;
	r = metrics_append(text, "frozen_memory_bytes", "gauge", "Memory of suspended sessions.",
			   &(struct metrics_value){"", frozen_bytes(app)}, 1);
	if (r >= 0)
		r = metrics_append(text, "demotions_total", "counter",
				   "Suspended sessions that gave their memory back.",
				   &(struct metrics_value){"", app->counters.n_demotions}, 1);
	if (r < 0)
		return r;
	return metrics_append(text, "resumes_total", "counter", "Suspended sessions that went on.",
			      resumes, ARRAY_SIZE(resumes));
}

/* The oldest first, until the rest is small enough and young enough. */
static void look_at_frozen(struct app *app)
{
	usec_t frozen_max = app->config->frozen_max_s * (usec_t)USEC_PER_SEC;
	uint64_t memory_max = app->config->frozen_memory_max_bytes;
	uint64_t bytes = memory_max > 0 ? frozen_bytes(app) : 0;
	usec_t now = clock_realtime();
	struct live *live;
	usec_t after = 0;

	while ((live = oldest_frozen(app, after))) {
		struct suspension *suspension = &live->session->suspension;
		bool is_old = frozen_max > 0 && now > suspension->since &&
			      now - suspension->since >= frozen_max;
		bool is_much = memory_max > 0 && bytes > memory_max;

		if (!is_old && !is_much)
			return;
		after = suspension->since;
		bytes -= suspension->memory_bytes < bytes ? suspension->memory_bytes : bytes;
		give_back(live);
	}
}

/* The object store was away: its snapshot is a file of this host that has yet to go there. */
static void send_again(struct live *live, usec_t now)
{
	if (is_frozen(live) && live->staged && !live->persist &&
	    live->session->suspension.is_wanted &&
	    !suspension_is_durable(&live->session->suspension) && now >= live->persist_at)
		IGNORE_RESULT(suspend_persist(live));
}

void idle_tick(struct app *app)
{
	usec_t now = clock_boottime();

	LIST_FOR_EACH_SAFE (entry, following, &app->lives) {
		struct live *live = LIST_ENTRY(entry, struct live, link);

		if (live->session->suspension.state == SUSPENSION_RUNNING && !live->suspend)
			look_at_running(live, now);
		else
			send_again(live, now);
	}
	look_at_frozen(app);
}
