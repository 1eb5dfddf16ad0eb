/*
 * Writes about sessions, what the store says of them, and with it that a session is another host's
 * by now.
 */
#include <stdlib.h>

#include "base/log.h"

#include "supervisor/api/app.h"
#include "supervisor/api/creation.h"
#include "supervisor/api/live.h"

struct write_op {
	struct app *app;
	struct id session;
	bool is_degraded;
	bool is_insert;
};

void sessions_note_write(struct session *session, enum store_result result, bool *is_degraded)
{
	bool was_degraded = *is_degraded;

	*is_degraded = result == STORE_DEGRADED;
	if (!session)
		return;
	if (*is_degraded && !was_degraded)
		session->n_degraded++;
	else if (was_degraded && !*is_degraded)
		session->n_degraded--;
	if (result == STORE_FENCED) {
		live_of(session)->taken = true;
		live_of(session)->app->has_taken = true;
	} else if (result != STORE_OK && result != STORE_DEGRADED) {
		session->row_incomplete = true;
	}
}

static void on_write(void *userdata, enum store_result result)
{
	struct write_op *op = userdata;
	struct session *session = registry_find(&op->app->registry, &op->session);

	sessions_note_write(session, result, &op->is_degraded);
	if (session && op->is_insert) {
		session->row_exists = result == STORE_OK;
		creation_row_done(session);
	}
	if (!op->is_degraded)
		free(op);
}

void *sessions_write(struct app *app, const struct id *session)
{
	struct write_op *op = calloc(1, sizeof(*op));

	if (op) {
		op->app = app;
		op->session = *session;
	}
	return op;
}

store_done sessions_write_done(void)
{
	return on_write;
}

void sessions_write_status(struct app *app, const struct session *session)
{
	void *op = sessions_write(app, &session->id);

	if (op && store_session_status(app->store, session, clock_realtime(), on_write, op) < 0)
		free(op);
}

void sessions_write_egress(struct app *app, const struct session *session)
{
	void *op = sessions_write(app, &session->id);

	if (op && store_session_egress(app->store, session, clock_realtime(), on_write, op) < 0)
		free(op);
}

void sessions_write_registry(struct app *app, const struct session *session)
{
	void *op = sessions_write(app, &session->id);

	if (op && store_registry_put(app->store, session, clock_realtime(), on_write, op) < 0)
		free(op);
}

void sessions_write_log(struct app *app, const struct session *session)
{
	void *op = sessions_write(app, &session->id);

	if (op && store_session_log(app->store, session, clock_realtime(), on_write, op) < 0)
		free(op);
}

void sessions_note(struct app *app, struct session *session, const char *code, const char *message)
{
	/* A summary for readers: nothing depends on it. */
	if (session_log_note(session, code, message, clock_realtime()) >= 0)
		sessions_write_log(app, session);
}

void sessions_insert(struct app *app, struct session *session)
{
	struct write_op *op = sessions_write(app, &session->id);

	if (op)
		op->is_insert = true;
	if (op && store_session_insert(app->store, session, on_write, op) >= 0)
		return;
	free(op);
	creation_row_done(session);
}

static void on_checked(void *userdata, enum store_result result)
{
	struct write_op *op = userdata;

	if (result != STORE_DEGRADED)
		op->app->n_lease_checks--;
	on_write(op, result);
}

static void check_all(struct app *app)
{
	LIST_FOR_EACH (entry, &app->lives) {
		const struct session *session = LIST_ENTRY(entry, struct live, link)->session;
		void *op = sessions_write(app, &session->id);

		if (op && store_session_check(app->store, &session->id, on_checked, op) >= 0)
			app->n_lease_checks++;
		else
			free(op);
	}
}

void sessions_drop_taken(struct app *app)
{
	if (store_lease_regained(app->store))
		check_all(app);
	if (!app->has_taken)
		return;
	app->has_taken = false;
	LIST_FOR_EACH_SAFE (entry, following, &app->lives) {
		struct live *live = LIST_ENTRY(entry, struct live, link);
		struct log_context context = {.session = &live->session->id};

		if (!live->taken || live->session->state >= SESSION_STATE_CLOSING)
			continue;
		log_line(LOG_LEVEL_WARNING, &context, "another host has taken the session", NULL);
		tasks_give_up(app, live->session);
		sessions_event(app, live->session, SESSION_EVENT_CLOSE, SESSION_REASON_TAKEN);
	}
}
