/*
 * Theory. First nothing new, then from the outside inwards: the api worker, while sessions still
 * live, so that it can tell its clients and write its rows; then the sessions; then the egress
 * workers, which nobody needs any more. Each wait is bounded, also for what was killed: a process
 * that is stuck in the kernel does not keep the others. It is logged and left to the next start,
 * which finds its group by the instance's id.
 *
 * When the service is only started again the sessions stay, and the api worker is told so by
 * another signal: it says nothing of their end. What is still being launched is killed.
 */
#include "supervisor/stop.h"

#include <errno.h>
#include <signal.h>

#include "base/clock.h"
#include "base/log.h"

/* TERM to KILL of a worker, and KILL to going on without its end. Together with the sessions' they
 * stay below the keeper's STOP_TIMEOUT and the unit's TimeoutStopSec. */
#define API_GRACE        (5 * USEC_PER_SEC)
#define EGRESS_GRACE     (1 * USEC_PER_SEC)
#define KILLED_TIMEOUT   (3 * USEC_PER_SEC)
#define SESSIONS_TIMEOUT (20 * USEC_PER_SEC)

/* Not at once: whoever reports the last end is still on the stack, and the engine frees its session
 * at the end of this turn. */
static void finish(struct stop *stop)
{
	stop->state = STOP_STATE_DONE;
	loop_timer_set(stop->timer, clock_boottime());
}

static void stop_workers(struct stop *stop, enum stop_state state, enum serve_worker kind,
			 int signal_number, usec_t grace)
{
	stop->state = state;
	loop_timer_set(stop->timer, clock_add(clock_boottime(), clock_add(grace, KILLED_TIMEOUT)));
	/* A stop before there were any. */
	if (stop->workers)
		workers_stop(stop->workers, kind, signal_number, grace);
	else
		stop_workers_gone(stop, kind);
}

static void stop_egress(struct stop *stop)
{
	/* Not waited for: nothing of it is anybody's any more. */
	if (stop->workers)
		workers_stop(stop->workers, SERVE_WORKER_PROVIDER, SIGTERM, EGRESS_GRACE);
	stop_workers(stop, STOP_STATE_EGRESS, SERVE_WORKER_EGRESS, SIGTERM, EGRESS_GRACE);
}

static void stop_sessions(struct stop *stop)
{
	stop->state = STOP_STATE_SESSIONS;
	if (stop->leaving) { /* nothing to wait for: on with the next turn */
		serve_kill_starting(stop->serve);
		loop_timer_set(stop->timer, clock_boottime());
		return;
	}
	loop_timer_set(stop->timer, clock_add(clock_boottime(), SESSIONS_TIMEOUT));
	serve_kill_all(stop->serve);
}

/* Go on without what does not end. */
static void give_up(struct stop *stop, const char *what)
{
	log_line(LOG_LEVEL_ERROR, NULL, "something does not end and is left", "what=%s sessions=%u",
		 what, serve_session_count(stop->serve));
	stop->result = -ETIMEDOUT;
}

static int on_timer(void *userdata, uint32_t events)
{
	struct stop *stop = userdata;

	(void)events;
	switch (stop->state) {
	case STOP_STATE_API:
		give_up(stop, "api-worker");
		stop_sessions(stop);
		break;
	case STOP_STATE_SESSIONS:
		if (!stop->leaving)
			give_up(stop, "sessions");
		stop_egress(stop);
		break;
	case STOP_STATE_EGRESS:
		give_up(stop, "egress-workers");
		finish(stop);
		break;
	case STOP_STATE_DONE:
		loop_quit(stop->loop, stop->result);
		break;
	case STOP_STATE_RUNNING:
	case STOP_STATE_MAX_:
		break;
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

static void begin(struct stop *stop, int result, int signal_number)
{
	log_line(LOG_LEVEL_INFO, NULL, stop->leaving ? "service leaves" : "service stops",
		 "sessions=%u", serve_session_count(stop->serve));
	(void)notify_send(stop->notify, "STOPPING=1");
	stop->result = result;
	serve_refuse_launches(stop->serve);
	stop_workers(stop, STOP_STATE_API, SERVE_WORKER_API, signal_number, API_GRACE);
}

void stop_begin(struct stop *stop, int result)
{
	if (stop->state == STOP_STATE_RUNNING) {
		begin(stop, result, SIGTERM);
		return;
	}
	if (!stop->leaving)
		return;
	stop->leaving = false;
	/* Past the sessions already: back to them. */
	if (stop->state != STOP_STATE_API)
		stop_sessions(stop);
}

void stop_leave(struct stop *stop, int result, bool at_once)
{
	if (stop->state != STOP_STATE_RUNNING)
		return;
	stop->leaving = true;
	begin(stop, result, at_once ? SIGKILL : SIGUSR2);
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
