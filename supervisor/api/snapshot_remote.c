/*
 * Theory. A transfer waits for its turn, then asks the supervisor for a helper, then for what the
 * helper says on its socket. Whoever cancels closes the socket, which is how the helper learns of
 * it. Deletions are transfers that nobody waits for. An object that should be gone and is not has
 * no row, so the sweep (snapshot_remote_sweep.c) finds it: as for files, what is younger than an
 * hour may still get one.
 */
#include "supervisor/api/snapshot_remote.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/io.h"
#include "base/log.h"
#include "base/sockmsg.h"
#include "base/str.h"

#include "supervisor/api/metrics/metrics.h"
#include "supervisor/api/session/snapshots.h"
#include "supervisor/api/snapshot_state.h"

#define WAITING_MAX 4096u /* deletions beyond are left to the sweep */

struct snapshot_transfer {
	struct list link; /* app->transfers */
	struct app *app;
	struct s3_job job;
	int file_fd;
	int socket_fd;
	bool is_asked;     /* the supervisor */
	bool is_cancelled; /* while it was asked: its answer frees this */
	int error;
	sd_event_source *source; /* of its socket */
	sd_event_source *turn;   /* says how it ended */
	json_t *reference;       /* PUT: owned; of the file */
	char name[SNAPSHOT_NAME_BYTES];
	struct id owner;           /* PUT */
	snapshot_transferred done; /* NULL: nobody waits */
	void *userdata;
};

static const struct {
	const char *text; /* for the log */
	int error;
} statuses[S3_STATUS_MAX_] = {
	[S3_DONE] = {"",					    0         },
	[S3_E_CONNECT] = {"it does not answer, or not to the end",       -EREMOTEIO},
	[S3_E_TLS] = {"its certificate is not good",                 -EREMOTEIO},
	[S3_E_DENIED] = {"it refuses the credentials",                  -EREMOTEIO},
	[S3_E_CLOCK] = {"its clock and this host's differ",            -EREMOTEIO},
	[S3_E_BUCKET] = {"it has no such bucket, or in another region", -EREMOTEIO},
	[S3_E_MISSING] = {"it has no such object",                       -ENXIO    },
	[S3_E_SIZE] = {"the object has another size",                 -EBADMSG  },
	[S3_E_SERVER] = {"it answers with an error",                    -EREMOTEIO},
	[S3_E_FILE] = {"the file on this host",                       -EROFS    },
	[S3_E_KEY] = {"the key is not below the prefix",             -EBADMSG  },
};

bool snapshot_goes_away(const struct app *app)
{
	return app->config->snapshot_store == CONFIG_SNAPSHOTS_S3;
}

/* Life. */

static void transfer_free(struct snapshot_transfer *transfer)
{
	list_remove(&transfer->link);
	transfer->app->n_transfers_running -= transfer->is_asked;
	transfer->source = sd_event_source_disable_unref(transfer->source);
	transfer->turn = sd_event_source_disable_unref(transfer->turn);
	transfer->socket_fd = fd_close(transfer->socket_fd);
	transfer->file_fd = fd_close(transfer->file_fd);
	json_decref(transfer->reference);
	free(transfer);
}

static void start_waiting(struct app *app);

/* The whole reference is another one. */
static int take_key(struct snapshot_transfer *transfer, const struct s3_report *report)
{
	json_t *object = json_deep_copy(transfer->reference);
	json_t *key = json_object_get(object, "key");
	int r = object ? 0 : -ENOMEM;

	if (r >= 0 && key)
		r = json_object_set(object, SNAPSHOT_ENCRYPTION_KEY, key);
	if (r >= 0)
		r = json_object_set_new(object, "kind", json_string(SNAPSHOT_KIND_S3));
	if (r >= 0)
		r = json_object_set_new(object, "key", json_string(report->key));
	if (r < 0) {
		json_decref(object);
		return -ENOMEM;
	}
	(void)json_object_del(object, "name");
	json_decref(transfer->reference);
	transfer->reference = object;
	IGNORE_RESULT(snapshot_remove(&transfer->app->snapshots, transfer->name));
	return 0;
}

static void finish(struct snapshot_transfer *transfer, int error, const struct s3_report *report)
{
	struct app *app = transfer->app;
	struct transfer_counters *counters = &app->counters.transfers[transfer->job.action];

	if (error == 0 && transfer->reference)
		error = take_key(transfer, report);
	if (error == 0)
		counters->n_done++;
	else
		counters->n_failed++;
	if (transfer->done)
		transfer->done(transfer->userdata, error, report,
			       error == 0 ? transfer->reference : NULL);
	transfer_free(transfer);
	start_waiting(app);
}

static int on_end(sd_event_source *source, void *userdata)
{
	struct snapshot_transfer *transfer = userdata;

	(void)source;
	finish(transfer, transfer->error, NULL);
	return 0;
}

/* In a turn of its own. */
static void fail(struct snapshot_transfer *transfer, int error)
{
	transfer->error = error;
	(void)sd_event_source_set_enabled(transfer->turn, SD_EVENT_ONESHOT);
}

static int error_of(const struct snapshot_transfer *transfer, const struct s3_report *report)
{
	int error = statuses[report->status].error;

	if (report->status == S3_E_FILE && report->error_number == ENOSPC)
		return -ENOSPC;
	/* It took what it does not have now. */
	if ((report->status == S3_E_SIZE || report->status == S3_E_MISSING) &&
	    transfer->job.action == S3_PUT)
		return -EREMOTEIO;
	if (report->status == S3_E_SIZE && transfer->job.bytes == 0)
		return -EFBIG;
	return error;
}

static int on_report(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
	struct snapshot_transfer *transfer = userdata;
	struct s3_report report;
	ssize_t n = sockmsg_recv(fd, &report, sizeof(report), NULL, 0);

	(void)source;
	(void)events;
	if (n == -EAGAIN)
		return 0;
	if (n != (ssize_t)sizeof(report) || report.magic != S3_MAGIC ||
	    report.version != S3_VERSION || report.status >= S3_STATUS_MAX_ ||
	    !memchr(report.key, '\0', sizeof(report.key))) {
		log_line(LOG_LEVEL_WARNING, NULL, "the helper of the object store ended", NULL);
		finish(transfer, -EREMOTEIO, NULL);
		return 0;
	}
	if (statuses[report.status].error == -EREMOTEIO)
		transfer->app->transfer_failure = statuses[report.status].text;
	else if (report.status == S3_DONE)
		transfer->app->transfer_failure = NULL;
	if (report.status != S3_DONE)
		log_line(LOG_LEVEL_WARNING, NULL, "the object store of snapshots",
			 "reason=\"%s\" status=%u errno=%d", statuses[report.status].text,
			 report.http_status, report.error_number);
	finish(transfer, error_of(transfer, &report), &report);
	return 0;
}

static void on_helper(void *userdata, const struct launch_msg *answer, int fd)
{
	struct snapshot_transfer *transfer = userdata;
	int r;

	if (transfer->is_cancelled) {
		struct app *app = transfer->app;

		(void)fd_close(fd);
		transfer_free(transfer);
		start_waiting(app);
		return;
	}
	transfer->socket_fd = fd;
	if (!answer || answer->error != LAUNCH_E_NONE || fd < 0) {
		fail(transfer, answer && answer->error == LAUNCH_E_STATE ? -ENOTSUP : -EREMOTEIO);
		return;
	}
	r = sockmsg_send(fd, &transfer->job, sizeof(transfer->job), &transfer->file_fd,
			 transfer->file_fd >= 0);
	transfer->file_fd = fd_close(transfer->file_fd);
	if (r >= 0)
		r = fd_set_nonblock(fd, 1);
	if (r >= 0)
		r = sd_event_add_io(transfer->app->event, &transfer->source, fd, EPOLLIN, on_report,
				    transfer);
	if (r < 0)
		fail(transfer, -EREMOTEIO);
}

static uint32_t n_running_but_fetches(const struct app *app)
{
	uint32_t n = 0;

	LIST_FOR_EACH (entry, &app->transfers) {
		const struct snapshot_transfer *transfer =
			LIST_ENTRY(entry, struct snapshot_transfer, link);

		n += transfer->is_asked && transfer->job.action != S3_GET;
	}
	return n;
}

/* What somebody waits for comes before deletions, which may be many; and one helper is left for
 * what is fetched: a sandbox is not resumed meanwhile, and what is sent may be large, and
 * anybody's. */
static struct snapshot_transfer *next_waiting(const struct app *app)
{
	bool may_be_any = n_running_but_fetches(app) + 1 < S3_AT_ONCE;
	struct snapshot_transfer *deletion = NULL;

	LIST_FOR_EACH (entry, &app->transfers) {
		struct snapshot_transfer *transfer =
			LIST_ENTRY(entry, struct snapshot_transfer, link);

		if (transfer->is_asked || (!may_be_any && transfer->job.action != S3_GET))
			continue;
		if (transfer->done)
			return transfer;
		if (!deletion)
			deletion = transfer;
	}
	return deletion;
}

static void start_waiting(struct app *app)
{
	struct snapshot_transfer *transfer;
	int r;

	if (!app->supervisor)
		return; /* the end */
	while (app->n_transfers_running < S3_AT_ONCE && (transfer = next_waiting(app))) {
		transfer->is_asked = true;
		app->n_transfers_running++;
		r = supervisor_client_request(
			app->supervisor,
			&(struct supervisor_request){.type = LAUNCH_S3,
						     .timeout = APP_REQUEST_TIMEOUT},
			on_helper, transfer);
		if (r < 0)
			fail(transfer, -EPIPE);
	}
}

static struct snapshot_transfer *transfer_new(struct app *app, enum s3_action action,
					      snapshot_transferred done, void *userdata)
{
	struct snapshot_transfer *transfer = calloc(1, sizeof(*transfer));
	int r;

	if (!transfer)
		return NULL;
	transfer->app = app;
	transfer->job = (struct s3_job){
		.magic = S3_MAGIC, .version = S3_VERSION, .action = (uint16_t)action};
	transfer->file_fd = transfer->socket_fd = -1;
	transfer->done = done;
	transfer->userdata = userdata;
	list_append(&app->transfers, &transfer->link);
	r = sd_event_add_defer(app->event, &transfer->turn, on_end, transfer);
	if (r >= 0)
		r = sd_event_source_set_enabled(transfer->turn, SD_EVENT_OFF);
	if (r >= 0)
		return transfer;
	transfer_free(transfer);
	return NULL;
}

struct snapshot_transfer *snapshot_transfer_cancel(struct snapshot_transfer *transfer)
{
	struct app *app;

	if (!transfer)
		return NULL;
	app = transfer->app;
	transfer->done = NULL;
	if (transfer->is_asked && transfer->socket_fd < 0 && transfer->error == 0) {
		transfer->is_cancelled = true;
		return NULL;
	}
	transfer_free(transfer);
	start_waiting(app);
	return NULL;
}

/* Sending and fetching. */

int snapshot_upload(struct app *app, const struct id *owner, json_t *reference,
		    snapshot_transferred done, void *userdata,
		    struct snapshot_transfer **ret_transfer)
{
	struct snapshot_transfer *transfer = transfer_new(app, S3_PUT, done, userdata);
	struct snapshot_reference parsed;
	int r;

	if (!transfer)
		return -ENOMEM;
	r = snapshot_reference_parse(reference, owner, &parsed);
	if (r >= 0)
		r = transfer->file_fd = snapshot_open(&app->snapshots, &parsed);
	if (r >= 0)
		r = str_copy(transfer->job.key, sizeof(transfer->job.key), parsed.name);
	if (r < 0) {
		transfer_free(transfer);
		return r;
	}
	memcpy(transfer->name, parsed.name, sizeof(transfer->name));
	transfer->owner = *owner;
	transfer->job.bytes = parsed.bytes;
	transfer->reference = json_incref(reference);
	start_waiting(app);
	*ret_transfer = transfer;
	return 0;
}

bool snapshot_is_sent(const struct app *app, const struct id *owner)
{
	LIST_FOR_EACH (entry, &app->transfers) {
		const struct snapshot_transfer *transfer =
			LIST_ENTRY(entry, struct snapshot_transfer, link);

		if (transfer->job.action == S3_PUT && !transfer->is_cancelled &&
		    id_equal(&transfer->owner, owner))
			return true;
	}
	return false;
}

uint64_t snapshots_sent_bytes(const struct app *app, const struct session *asker,
			      bool (*counts)(const struct session *session,
					     const struct session *asker))
{
	uint64_t sum = 0;

	LIST_FOR_EACH (entry, &app->transfers) {
		const struct snapshot_transfer *transfer =
			LIST_ENTRY(entry, struct snapshot_transfer, link);
		const struct session *session =
			transfer->job.action == S3_PUT
				? registry_find(&app->registry, &transfer->owner)
				: NULL;

		if (session && live_of(session)->staged != transfer->reference &&
		    counts(session, asker))
			sum += transfer->job.bytes;
	}
	return sum;
}

int snapshot_fetch(struct app *app, const struct snapshot_reference *reference,
		   snapshot_transferred done, void *userdata, int *ret_fd,
		   struct snapshot_transfer **ret_transfer)
{
	struct snapshot_transfer *transfer = transfer_new(app, S3_GET, done, userdata);
	AUTO_CLOSE int fd = -1;
	int r;

	if (!transfer)
		return -ENOMEM;
	fd = snapshot_new_unnamed(&app->snapshots);
	r = fd < 0 ? fd : 0;
	if (r >= 0)
		r = transfer->file_fd = fd_dup(fd, 0);
	if (r >= 0)
		r = str_copy(transfer->job.key, sizeof(transfer->job.key), reference->key);
	if (r < 0) {
		transfer_free(transfer);
		return r;
	}
	transfer->job.bytes = reference->bytes;
	transfer->job.max_bytes = app->config->snapshot_max_bytes;
	start_waiting(app);
	*ret_fd = TAKE_FD(fd);
	*ret_transfer = transfer;
	return 0;
}

int snapshot_list(struct app *app, snapshot_transferred done, void *userdata, int *ret_fd)
{
	struct snapshot_transfer *transfer = transfer_new(app, S3_LIST, done, userdata);
	AUTO_CLOSE int fd = -1;
	int r;

	if (!transfer)
		return -ENOMEM;
	fd = snapshot_new_unnamed(&app->snapshots);
	r = fd < 0 ? fd : 0;
	if (r >= 0)
		r = transfer->file_fd = fd_dup(fd, 0);
	if (r < 0) {
		transfer_free(transfer);
		return r;
	}
	start_waiting(app);
	*ret_fd = TAKE_FD(fd);
	return 0;
}

/* What goes. */

static uint32_t n_waiting(const struct app *app)
{
	uint32_t n = 0;

	LIST_FOR_EACH (entry, &app->transfers)
		n++;
	return n;
}

void snapshot_remove_remote(struct app *app, const char *key)
{
	struct snapshot_transfer *transfer =
		n_waiting(app) < WAITING_MAX ? transfer_new(app, S3_DELETE, NULL, NULL) : NULL;

	if (!transfer || str_copy(transfer->job.key, sizeof(transfer->job.key), key) < 0) {
		log_line(LOG_LEVEL_WARNING, NULL, "an object is not deleted now", NULL);
		if (transfer)
			transfer_free(transfer);
		return;
	}
	start_waiting(app);
}

json_t *snapshot_store_describe(const struct app *app)
{
	return json_pack("{s:s, s:s?}", "store", snapshot_goes_away(app) ? "s3" : "local",
			 "failure", app->transfer_failure);
}

int snapshots_append_remote_metrics(struct buf *text, const struct app *app)
{
	const struct transfer_counters *of = app->counters.transfers;
	int r = metrics_append(text, "snapshot_transfers_total", "counter",
			       "What was asked of the object store of snapshots and done.",
			       (const struct metrics_value[]){
				       {"what=\"put\"",    of[S3_PUT].n_done   },
				       {"what=\"get\"",    of[S3_GET].n_done   },
				       {"what=\"delete\"", of[S3_DELETE].n_done},
				       {"what=\"list\"",   of[S3_LIST].n_done  },
        },
			       4);

	if (r < 0)
		return r;
	return metrics_append(text, "snapshot_transfer_failures_total", "counter",
			      "What was asked of it and not done.",
			      (const struct metrics_value[]){
				      {"what=\"put\"",    of[S3_PUT].n_failed   },
				      {"what=\"get\"",    of[S3_GET].n_failed   },
				      {"what=\"delete\"", of[S3_DELETE].n_failed},
				      {"what=\"list\"",   of[S3_LIST].n_failed  },
        },
			      4);
}

void snapshots_drop_remote(struct app *app)
{
	while (!list_empty(&app->transfers)) {
		struct snapshot_transfer *transfer =
			LIST_ENTRY(app->transfers.next, struct snapshot_transfer, link);

		if (transfer->done)
			transfer->done(transfer->userdata, -ECANCELED, NULL, NULL);
		transfer_free(transfer);
	}
	/* One that has its list by now. */
	snapshots_sweep_remote_end(app);
}
