#include "supervisor/api/suspend_persist.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/launch.h"
#include "base/log.h"

#include "supervisor/api/events.h"
#include "supervisor/api/provider.h"
#include "supervisor/api/snapshot.h"
#include "supervisor/api/snapshot_remote.h"

#define RETRY_AFTER   (60 * USEC_PER_SEC) /* what has failed: each try moves processes */
#define RESEND_AFTER  (5 * USEC_PER_SEC)  /* of a file that is there; doubled each time */
#define RESEND_MAX    6u                  /* so often */
#define KNOWN_TIMEOUT (10 * USEC_PER_SEC)

enum stage {
	STAGE_PART,
	STAGE_KNOWN, /* its shim, which was adopted frozen, says what it has */
	STAGE_SNAPSHOT,
	STAGE_JOIN,
	STAGE_UPLOAD, /* all of it is frozen */
	STAGE_ROW,
};

struct suspend_persist {
	suspend_persisted *done;
	enum stage stage;
	bool is_given_up;
	int r;
	json_t *former; /* owned; reference of the snapshot before; NULL: none */
	struct snapshot_transfer *transfer; /* UPLOAD */
	sd_event_source *timer;
};

/* Something asked for; whoever asked may be gone when the answer comes. */
struct op {
	struct app *app;
	struct id session;
	uint32_t number;     /* of the one that asked */
	uint64_t generation; /* whose snapshot is written of */
	bool is_degraded;
};

static struct op *op_new(const struct live *live)
{
	struct op *op = calloc(1, sizeof(*op));

	if (!op)
		return NULL;
	op->app = live->app;
	op->session = live->session->id;
	op->number = live->n_persists;
	return op;
}

/* NULL: nobody waits for it. */
static struct live *op_live(const struct op *op)
{
	struct session *session = registry_find(&op->app->registry, &op->session);
	struct live *live = session ? live_of(session) : NULL;

	if (!live || !live->persist || live->n_persists != op->number ||
	    session->state >= SESSION_STATE_CLOSING)
		return NULL;
	return live;
}

/* Of the supervisor. As op_live. */
static struct live *op_answered(struct op *op, int fd)
{
	struct live *live = op_live(op);

	(void)fd_close(fd);
	free(op);
	return live;
}

static void persist_free(struct suspend_persist *persist)
{
	persist->timer = sd_event_source_disable_unref(persist->timer);
	persist->transfer = snapshot_transfer_cancel(persist->transfer);
	json_decref(persist->former);
	free(persist);
}

static void finish(struct live *live, int r)
{
	struct suspend_persist *persist = live->persist;
	suspend_persisted *done = persist->done;

	live->persist = NULL;
	if (r == -EREMOTEIO) {
		live->persist_at = clock_add(clock_boottime(), RESEND_AFTER << live->n_resends);
		live->n_resends += live->n_resends < RESEND_MAX;
	} else if (r < 0 && r != -ECANCELED) {
		live->persist_at = clock_add(clock_boottime(), RETRY_AFTER);
	}
	persist_free(persist);
	done(live, r);
}

static int ask(struct live *live, provider_ask *what, supervisor_answer answer)
{
	struct op *op = op_new(live);
	int r = -ENOMEM;

	if (op)
		r = what(live->app, &live->session->id, answer, op);
	if (r < 0)
		free(op);
	return r;
}

/* The row. */

static void remove_former(struct live *live)
{
	json_t *former = live->persist->former;
	int r = former ? live->provider->delete_snapshot(live->app, &live->session->id, former) : 0;

	if (r < 0)
		log_line(LOG_LEVEL_WARNING, &(struct log_context){.session = &live->session->id},
			 "a former snapshot is not removed now", "errno=%d", -r);
}

static void on_written(void *userdata, enum store_result result)
{
	struct op *op = userdata;
	struct session *session = registry_find(&op->app->registry, &op->session);
	bool is_first = !op->is_degraded;
	struct live *live = op_live(op);

	sessions_note_write(session, result, &op->is_degraded);
	if (session && result == STORE_OK)
		session->suspension.stored_generation = op->generation;
	if (!op->is_degraded)
		free(op);
	if (!is_first || !live)
		return;
	/* A next worker may restore the former one, until the row says so. */
	if (result != STORE_OK) {
		finish(live, -EIO);
		return;
	}
	remove_former(live);
	events_note(
		live->session, "snapshot",
		json_pack("{s:I}", "generation", (json_int_t)live->session->suspension.generation));
	finish(live, 0);
}

static void write_row(struct live *live)
{
	struct op *op = op_new(live);

	live->persist->stage = STAGE_ROW;
	if (op)
		op->generation = live->session->suspension.durable_generation;
	if (op && store_registry_put(live->app->store, live->session, clock_realtime(), on_written,
				     op) >= 0)
		return;
	free(op);
	finish(live, -ENOMEM);
}

/* The file of a snapshot that is to go to the object store. */

static void drop_staged(struct live *live)
{
	if (live->staged)
		IGNORE_RESULT(
			snapshot_remove_reference(live->app, &live->session->id, live->staged));
	json_decref(live->staged);
	live->staged = NULL;
}

static bool has_staged(const struct live *live)
{
	return live->staged && live->staged_generation == live->session->suspension.generation;
}

static void take_reference(struct live *live, json_t *reference)
{
	struct suspension *suspension = &live->session->suspension;

	json_decref(live->persist->former);
	live->persist->former = suspension->snapshot;
	suspension->snapshot = json_incref(reference);
	suspension->durable_generation = suspension->generation;
	log_line(LOG_LEVEL_INFO, &(struct log_context){.session = &live->session->id},
		 "suspended session is durable", "generation=%llu bytes=%lld",
		 (unsigned long long)suspension->generation,
		 (long long)json_integer_value(json_object_get(reference, "bytes")));
}

/* Until the object is complete the row speaks of the former one. */
static void on_sent(void *userdata, int error, const struct s3_report *report, json_t *reference)
{
	struct live *live = userdata;

	(void)report;
	live->persist->transfer = NULL;
	if (error < 0) {
		log_line(LOG_LEVEL_WARNING, &(struct log_context){.session = &live->session->id},
			 "suspended session is not durable", "errno=%d", -error);
		finish(live, error);
		return;
	}
	json_decref(live->staged); /* its file is gone */
	live->staged = NULL;
	live->n_resends = 0;
	take_reference(live, reference);
	write_row(live);
}

static void upload(struct live *live)
{
	int r;

	live->persist->stage = STAGE_UPLOAD;
	r = snapshot_upload(live->app, &live->session->id, live->staged, on_sent, live,
			    &live->persist->transfer);
	if (r >= 0)
		return;
	/* What was swept is made again. */
	drop_staged(live);
	finish(live, r);
}

/* What is staged stays where it is if snapshots are kept on this host by now. */
static void send_staged(struct live *live)
{
	if (snapshot_goes_away(live->app)) {
		upload(live);
		return;
	}
	take_reference(live, live->staged);
	json_decref(live->staged);
	live->staged = NULL;
	write_row(live);
}

/* All of it is frozen again. */

static void on_joined(void *userdata, const struct launch_msg *answer, int fd)
{
	struct live *live = op_answered(userdata, fd);

	if (!live)
		return;
	if (!answer || answer->error != LAUNCH_E_NONE) {
		log_line(LOG_LEVEL_ERROR, &(struct log_context){.session = &live->session->id},
			 "a suspended session cannot be made whole", "error=%s",
			 answer ? launch_error_text(answer->error) : "timeout");
		finish(live, -EPROTO);
		return;
	}
	live->is_parted = false;
	if (live->persist->r < 0)
		finish(live, live->persist->r);
	else if (!has_staged(live))
		write_row(live);
	else if (live->persist->is_given_up)
		finish(live, -ECANCELED);
	else
		send_staged(live);
}

static void join(struct live *live, int r)
{
	live->persist->stage = STAGE_JOIN;
	live->persist->r = r;
	if (ask(live, live->provider->persist_close, on_joined) < 0)
		finish(live, -EPROTO);
}

/* The snapshot. */

static void take_result(struct live *live, const struct snapshot_result *result)
{
	log_line(LOG_LEVEL_INFO, &(struct log_context){.session = &live->session->id},
		 "snapshot of a suspended session", "generation=%llu bytes=%llu changed=%llu",
		 (unsigned long long)live->session->suspension.generation,
		 (unsigned long long)result->bytes, (unsigned long long)result->n_changed);
	if (snapshot_goes_away(live->app)) {
		live->staged = json_incref(result->reference);
		live->staged_generation = live->session->suspension.generation;
	} else {
		take_reference(live, result->reference);
	}
	join(live, 0);
}

static void on_snapshot(void *userdata, struct session *session,
			const struct snapshot_result *result)
{
	struct op *op = userdata;
	struct live *live = op_live(op);
	struct app *app = op->app;
	struct id id = op->session;

	(void)session;
	free(op);
	if (!live) {
		/* Nobody speaks of it. */
		if (result->error == 0)
			IGNORE_RESULT(snapshot_remove_reference(app, &id, result->reference));
		return;
	}
	if (result->error == 0) {
		take_result(live, result);
		return;
	}
	if (result->error != -ECANCELED)
		log_line(LOG_LEVEL_WARNING, &(struct log_context){.session = &live->session->id},
			 "suspended session is not durable", "errno=%d", -result->error);
	join(live, result->error);
}

static void make_snapshot(struct live *live)
{
	struct op *op = op_new(live);
	int r = op ? snapshot_make(live, on_snapshot, op) : -ENOMEM;

	live->persist->stage = STAGE_SNAPSHOT;
	if (r >= 0)
		return;
	free(op);
	join(live, r);
}

static int on_known_timer(sd_event_source *source, uint64_t at, void *userdata)
{
	struct live *live = userdata;

	(void)source;
	(void)at;
	if (live->persist->stage == STAGE_KNOWN)
		join(live, -ETIMEDOUT);
	return 0;
}

static void wait_known(struct live *live)
{
	live->persist->stage = STAGE_KNOWN;
	if (sd_event_add_time_relative(live->app->event, &live->persist->timer, CLOCK_BOOTTIME,
				       KNOWN_TIMEOUT, 0, on_known_timer, live) < 0)
		join(live, -ENOMEM);
}

void suspend_persist_known(struct live *live)
{
	if (!live->persist || live->persist->stage != STAGE_KNOWN)
		return;
	if (shim_link_has(live->shim, WIRE_FEATURE_PAUSE))
		make_snapshot(live);
	else
		join(live, -ENOSYS);
}

static void on_parted(void *userdata, const struct launch_msg *answer, int fd)
{
	struct live *live = op_answered(userdata, fd);

	if (!live)
		return;
	live->is_parted = true; /* or may be */
	if (!answer || answer->error != LAUNCH_E_NONE)
		join(live, -EIO);
	else if (live->persist->is_given_up)
		join(live, -ECANCELED);
	else if (live->shim && !shim_link_known(live->shim))
		wait_known(live);
	else
		make_snapshot(live);
}

static int persist_new(struct live *live, suspend_persisted *done)
{
	struct suspend_persist *persist = calloc(1, sizeof(*persist));

	if (!persist)
		return -ENOMEM;
	persist->done = done;
	live->persist = persist;
	live->n_persists++;
	return 0;
}

int suspend_persist_begin(struct live *live, suspend_persisted *done)
{
	const struct suspension *suspension = &live->session->suspension;
	int r;

	if (live->persist || live->is_parted)
		return -EBUSY;
	/* There is one: the store did not say that it knows. */
	if (suspension->durable_generation == suspension->generation) {
		r = persist_new(live, done);
		if (r >= 0)
			write_row(live);
		return r;
	}
	if (has_staged(live)) {
		r = persist_new(live, done);
		if (r >= 0)
			send_staged(live);
		return r;
	}
	drop_staged(live);
	if (!live->shim || !shim_link_has(live->shim, WIRE_FEATURE_PAUSE))
		return -ENOSYS;
	r = persist_new(live, done);
	if (r < 0)
		return r;
	r = ask(live, live->provider->persist_open, on_parted);
	if (r < 0) {
		persist_free(live->persist);
		live->persist = NULL;
	}
	/* By a name of its own: -ENOTSUP, the same number, is an object store's. */
	return r == -EOPNOTSUPP ? -ENOTTY : r;
}

int suspend_persist_end(struct live *live, suspend_persisted *done)
{
	struct suspend_persist *persist = live->persist;
	int r;

	if (!persist) {
		r = persist_new(live, done);
		if (r < 0)
			return r;
		join(live, -ECANCELED);
		return 0;
	}
	persist->done = done;
	if (!persist->is_given_up && persist->stage == STAGE_SNAPSHOT)
		snapshot_cancel(live);
	persist->is_given_up = true;
	if (persist->stage == STAGE_KNOWN)
		join(live, -ECANCELED);
	else if (persist->stage == STAGE_UPLOAD)
		finish(live, -ECANCELED);
	return 0;
}

void suspend_persist_drop(struct live *live)
{
	drop_staged(live);
	if (!live->persist)
		return;
	persist_free(live->persist);
	live->persist = NULL;
}
