/* What suspending and resuming share: who waits, what is asked, and how time is counted. */
#include <errno.h>
#include <stdlib.h>

#include "base/log.h"

#include "supervisor/api/events.h"
#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/reply.h"
#include "supervisor/api/rebuild.h"
#include "supervisor/api/snapshot_failure.h"
#include "supervisor/api/suspend_persist.h"
#include "supervisor/api/suspend_state.h"

struct suspend_waiter {
	struct list link;
	struct answer_to to;
};

/* Who waits. */

/* Why a suspend is not durable. */
static json_t *durable_error(const struct live *live)
{
	const char *detail;
	enum runtime_error code = snapshot_failure(live->persist_error, true, &detail);
	json_t *doc = reply_error_object(code, detail);

	(void)json_object_set_new(doc, "generation",
				  json_integer((json_int_t)live->persist_failed));
	return doc;
}

void suspend_show_error(const struct live *live, json_t *doc)
{
	if (live->persist_error < 0)
		(void)json_object_set_new(doc, "durable_error", durable_error(live));
}

void suspend_note_persisted(struct live *live, int r)
{
	if (r == -ECANCELED)
		return;
	live->persist_error = r;
	live->persist_failed = live->session->suspension.generation;
	if (r < 0)
		events_note(live->session, "snapshot_failed", durable_error(live));
}

void suspend_reply(struct request *request, const struct session *session)
{
	const struct suspension *suspension = &session->suspension;
	const char *resumed = suspension_resumed_text(suspension->resumed);
	json_t *doc = action_sandbox(request, session);

	if (suspension->state == SUSPENSION_RUNNING)
		(void)json_object_set_new(doc, "resumed",
					  resumed ? json_string(resumed) : json_null());
	reply_json(request, MHD_HTTP_OK, doc);
}

void suspend_free(struct suspend *suspend)
{
	suspend->prepare = suspend_prepare_free(suspend->prepare);
	suspend->timer = sd_event_source_disable_unref(suspend->timer);
	free(suspend);
}

/* False: there is none. *ret_request: NULL: its client left. */
static bool take_waiter(struct suspend *suspend, struct request **ret_request)
{
	struct suspend_waiter *waiter;

	if (list_empty(&suspend->waiters))
		return false;
	waiter = LIST_ENTRY(suspend->waiters.next, struct suspend_waiter, link);
	list_remove(&waiter->link);
	*ret_request = answer_get(&waiter->to);
	free(waiter);
	return true;
}

void suspend_end(struct live *live, enum runtime_error error, const char *detail)
{
	struct suspend *suspend = live->suspend;
	struct request *request;
	bool is_back;
	json_t *said;

	if (!suspend)
		return; /* its time was over */
	live->suspend = NULL;
	said = error == RUNTIME_ERROR_MAX_ ? NULL : suspend_prepare_said(suspend->prepare);
	is_back = live->session->suspension.state == SUSPENSION_RUNNING;
	while (take_waiter(suspend, &request)) {
		if (request && error != RUNTIME_ERROR_MAX_)
			reply_runtime_error_with(request, error, detail, json_incref(said));
		else if (request && is_back && !session_has_tree(live->session))
			rebuild_wait(request, live->session);
		else if (request)
			suspend_reply(request, live->session);
	}
	json_decref(said);
	suspend_free(suspend);
}

bool suspend_wait_for(struct request *request, struct suspend *suspend)
{
	struct suspend_waiter *waiter = calloc(1, sizeof(*waiter));

	if (!waiter) {
		reply_runtime_error(request, RUNTIME_BUSY, "out of memory");
		return false;
	}
	waiter->to = answer_to(request);
	list_append(&suspend->waiters, &waiter->link);
	return true;
}

int suspend_begin(struct live *live)
{
	struct suspend *suspend = calloc(1, sizeof(*suspend));

	ASSERT(!live->suspend);
	if (!suspend)
		return -ENOMEM;
	suspend->live = live;
	list_init(&suspend->waiters);
	live->suspend = suspend;
	return 0;
}

/* Asking the store and the supervisor. */

struct suspend_step *suspend_step_new(struct live *live,
				      void (*next)(struct live *live, enum store_result result))
{
	struct suspend_step *step = calloc(1, sizeof(*step));

	if (!step)
		return NULL;
	step->app = live->app;
	step->session = live->session->id;
	step->number = ++live->suspend_steps;
	step->next = next;
	return step;
}

static struct live *step_live(const struct suspend_step *step)
{
	struct session *session = registry_find(&step->app->registry, &step->session);
	struct live *live = session ? live_of(session) : NULL;

	if (!live || !live->suspend || live->suspend_steps != step->number ||
	    session->state >= SESSION_STATE_CLOSING)
		return NULL;
	return live;
}

struct live *suspend_step_end(struct suspend_step *step)
{
	struct live *live = step_live(step);

	free(step);
	return live;
}

struct live *suspend_answered(void *userdata, int fd)
{
	(void)fd_close(fd);
	return suspend_step_end(userdata);
}

static void on_written(void *userdata, enum store_result result)
{
	struct suspend_step *step = userdata;
	bool is_first = !step->is_degraded;

	sessions_note_write(registry_find(&step->app->registry, &step->session), result,
			    &step->is_degraded);
	if (is_first && step->next && step_live(step))
		step->next(step_live(step), result);
	if (!step->is_degraded)
		free(step);
}

void suspend_write_row(struct live *live, void (*next)(struct live *live, enum store_result result))
{
	struct suspend_step *step = suspend_step_new(live, next);

	if (step && store_registry_put(live->app->store, live->session, clock_realtime(),
				       on_written, step) >= 0)
		return;
	free(step);
	if (next)
		next(live, STORE_LOST);
}

int suspend_ask(struct live *live, provider_ask *what, supervisor_answer answer)
{
	struct suspend_step *step = suspend_step_new(live, NULL);
	int r = -ENOMEM;

	if (step)
		r = what(live->app, &live->session->id, answer, step);
	if (r < 0)
		free(step);
	return r;
}

void suspend_ignore_answer(void *userdata, const struct launch_msg *answer, int fd)
{
	(void)answer;
	(void)fd_close(fd);
	free(userdata);
}

void suspend_tell_thawed(struct live *live)
{
	int r = live->shim && shim_link_known(live->shim) ? shim_link_pause(live->shim, false) : 0;

	/* Without room its socket is lost soon, and with it the tree. */
	if (r < 0 && r != -EOPNOTSUPP)
		log_line(LOG_LEVEL_WARNING, &(struct log_context){.session = &live->session->id},
			 "the shim was not told that time counts again", NULL);
}

void suspend_set_expiry(struct live *live, usec_t expires_at)
{
	struct session *session = live->session;

	session->expires_at = expires_at;
	registry_deadline_changed(&live->app->registry, session);
	sessions_write_status(live->app, session);
	sessions_arm_deadline(live->app);
	if (expires_at <= clock_realtime() && session->state < SESSION_STATE_CLOSING)
		sessions_event(live->app, session, SESSION_EVENT_CLOSE, SESSION_REASON_EXPIRED);
}

void suspend_go_on(struct live *live)
{
	struct session *session = live->session;

	if (session_has_tree(session))
		rebuild_go_on(session);
	else if (session->state == SESSION_STATE_DORMANT && !list_empty(&live->tree_waiters))
		sessions_event(live->app, session, SESSION_EVENT_USE, SESSION_REASON_NONE);
}

void suspend_drop(struct live *live)
{
	struct request *request;

	suspend_persist_drop(live);
	if (!live->suspend)
		return;
	while (take_waiter(live->suspend, &request))
		if (request)
			reply_not_found(request);
	suspend_free(live->suspend);
	live->suspend = NULL;
}
