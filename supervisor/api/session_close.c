#include "supervisor/api/session_close.h"

#include <stdlib.h>

#include "base/err.h"

#include "supervisor/api/redis.h"
#include "supervisor/api/session/snapshots.h"
#include "supervisor/api/snapshot.h"

/* The end of a row, on its way: it begins with the close and outlives the session. */
struct row_close {
	struct app *app;
	struct id session;
	json_t *snapshots;   /* owned: their references, or NULL */
	struct list waiters; /* once nothing is left of the tree */
	bool is_gone;
	bool is_answered; /* the store has spoken */
	bool is_owed;     /* it will speak, or speak again */
	bool redis_owed;  /* Redis has not answered */
	uint32_t n_redis_keys;
	enum end_result result;
};

void session_close_tell(struct list *waiters, enum end_result result, uint32_t n_redis_keys)
{
	while (!list_empty(waiters)) {
		struct end_waiter *waiter = LIST_ENTRY(waiters->next, struct end_waiter, link);

		list_remove(&waiter->link);
		waiter->n_redis_keys = n_redis_keys;
		waiter->ended(waiter, result);
	}
}

/* Once all have spoken, those who wait hear of it. */
static void close_step(struct row_close *close)
{
	if (!close->is_gone || close->redis_owed)
		return;
	if (close->is_answered)
		session_close_tell(&close->waiters, close->result, close->n_redis_keys);
	if (close->is_owed)
		return;
	json_decref(close->snapshots);
	free(close);
}

static void on_redis_dropped(void *userdata, uint32_t n_keys)
{
	struct row_close *close = userdata;

	close->redis_owed = false;
	close->n_redis_keys = n_keys;
	close_step(close);
}

static void on_row_closed(void *userdata, enum store_result result)
{
	struct row_close *close = userdata;

	close->is_answered = true;
	close->result = result == STORE_OK       ? END_DONE
			: result == STORE_FENCED ? END_TAKEN
						 : END_DEGRADED;
	close->is_owed = result == STORE_DEGRADED;
	/* Not before: a row that is still open, or another host's, may need them. */
	if (result == STORE_OK)
		snapshots_remove(close->app, &close->session, close->snapshots);
	close_step(close);
}

/* Nobody waits for it. */
static void close_without_row(struct row_close *close)
{
	close->is_gone = true;
	close->is_owed = false;
	close_step(close);
}

void session_close_row(struct app *app, struct session *session)
{
	struct live *live = live_of(session);
	struct row_close *close;

	ASSERT(!live->row_close);
	/* Row and keys are another's. */
	if (session->reason == SESSION_REASON_TAKEN) {
		redis_leave(app, &session->id);
		return;
	}
	close = calloc(1, sizeof(*close));
	if (!close) {
		(void)redis_drop(app, &session->id, NULL, NULL);
		return;
	}
	close->app = app;
	close->session = session->id;
	close->snapshots = snapshots_references(session);
	list_init(&close->waiters);
	close->is_owed = true;
	/* At once: from here on its programs reach nothing there. */
	close->redis_owed = redis_drop(app, &session->id, on_redis_dropped, close);
	if (store_session_close(app->store, &session->id, session_reason_text(session->reason),
				clock_realtime(), on_row_closed, close) >= 0)
		live->row_close = close;
	else
		close_without_row(close);
}

void session_close_end(struct live *live)
{
	struct row_close *close = live->row_close;

	live->row_close = NULL;
	if (!close) {
		session_close_tell(&live->waiters, END_DEGRADED, 0);
		return;
	}
	close->is_gone = true;
	while (!list_empty(&live->waiters)) {
		struct list *entry = live->waiters.next;

		list_remove(entry);
		list_append(&close->waiters, entry);
	}
	close_step(close);
}
