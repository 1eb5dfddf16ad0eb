/*
 * Theory. First nothing new, then from the outside inwards: the api worker, while sessions still
 * live, so that it can tell its clients and write its rows; then the sessions; then the egress
 * workers, which nobody needs any more. Each wait is bounded. A session whose end does not come in
 * time (a process stuck in the kernel) is logged and left to the next start, which finds its group
 * by the instance's id.
 */
#include "supervisor/stop.h"

#include <errno.h>

#include "base/clock.h"
#include "base/log.h"

#define API_GRACE        (5 * USEC_PER_SEC)
#define EGRESS_GRACE     (1 * USEC_PER_SEC)
#define SESSIONS_TIMEOUT (20 * USEC_PER_SEC)

/* Not at once: whoever reports the last end is still on the stack, and the engine frees its session
 * at the end of this turn. */
static void finish(struct stop *stop)
{
	stop->state = STOP_STATE_DONE;
	loop_timer_set(stop->timer, clock_boottime());
}

static void stop_egress(struct stop *stop)
{
	stop->state = STOP_STATE_EGRESS;
	loop_timer_set(stop->timer, USEC_NEVER);
	if (stop->workers)
		workers_stop(stop->workers, SERVE_WORKER_EGRESS, EGRESS_GRACE);
	else
		finish(stop);
}

static void stop_sessions(struct stop *stop)
{
	stop->state = STOP_STATE_SESSIONS;
	loop_timer_set(stop->timer, clock_add(clock_boottime(), SESSIONS_TIMEOUT));
	serve_kill_all(stop->serve);
}

static int on_timer(void *userdata, uint32_t events)
{
	struct stop *stop = userdata;

	(void)events;
	if (stop->state == STOP_STATE_SESSIONS) {
		log_line(LOG_LEVEL_ERROR, NULL, "sessions do not end", "n=%u",
			 serve_session_count(stop->serve));
		stop->result = -ETIMEDOUT;
		stop_egress(stop);
	} else if (stop->state == STOP_STATE_DONE) {
		loop_quit(stop->loop, stop->result);
	}
	return 0;
}

int stop_init(struct stop *stop, struct loop *loop, const struct notify *notify)
{
	stop->loop = loop;
	stop->notify = notify;
	return loop_add_timer(loop, USEC_NEVER, on_timer, stop, &stop->timer);
}

void stop_done(struct stop *stop)
{
	stop->timer = loop_remove(stop->timer);
}

void stop_begin(struct stop *stop, int result)
{
	if (stop->state != STOP_STATE_RUNNING)
		return;
	log_line(LOG_LEVEL_INFO, NULL, "service stops", "sessions=%u",
		 serve_session_count(stop->serve));
	(void)notify_send(stop->notify, "STOPPING=1");
	stop->state = STOP_STATE_API;
	stop->result = result;
	serve_refuse_launches(stop->serve);
	if (stop->workers)
		workers_stop(stop->workers, SERVE_WORKER_API, API_GRACE);
	else
		stop_sessions(stop);
}

void stop_workers_gone(struct stop *stop, enum serve_worker kind)
{
	if (stop->state == STOP_STATE_API && kind == SERVE_WORKER_API)
		stop_sessions(stop);
	else if (stop->state == STOP_STATE_EGRESS && kind == SERVE_WORKER_EGRESS)
		finish(stop);
}

void stop_sessions_gone(struct stop *stop)
{
	if (stop->state == STOP_STATE_SESSIONS)
		stop_egress(stop);
}
