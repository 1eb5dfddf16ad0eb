#include <errno.h>
#include <string.h>

#include "base/fd.h"
#include "base/log.h"

#include "sandboxd/archive.h"
#include "supervisor/api/command.h"
#include "supervisor/api/loader_run.h"
#include "supervisor/api/provider.h"
#include "supervisor/api/snapshot_state.h"
#include "supervisor/api/snapshot_words.h"

#define PROGRAM        "sandbox-archive"
#define TIMEOUT_MS     (60u * 60u * 1000u)
#define GRACE_MS       2000u
#define SAID_MAX_BYTES ((size_t)16 * 1024)
#define READ_BYTES     ((size_t)60 * 1024)
#define CHECK_BYTES    ((size_t)1024 * 1024)       /* looked at in one turn */
#define QUOTA_EVERY    ((uint64_t)4 * 1024 * 1024) /* it looks at all sessions */

/* Life. */

static struct live *live_of_run(const struct snapshot_run *run)
{
	struct session *session = registry_find(&run->app->registry, &run->session);

	return session && live_of(session)->snapshot == run ? live_of(session) : NULL;
}

static void run_free(struct snapshot_run *run)
{
	list_remove(&run->link);
	run->turn = sd_event_source_disable_unref(run->turn);
	run->transfer = snapshot_transfer_cancel(run->transfer);
	run->fetched_fd = fd_close(run->fetched_fd);
	snapshot_file_done(&run->file);
	buf_done(&run->said);
	json_decref(run->reference);
	free(run);
}

static void count(const struct snapshot_run *run)
{
	struct app_counters *counters = &run->app->counters;

	if (run->error == 0 && run->makes)
		counters->n_snapshots_made++;
	else if (run->error == 0)
		counters->n_snapshots_restored++;
	else if (run->error != -ECANCELED && run->makes)
		counters->n_snapshots_not_made++;
	else if (run->error != -ECANCELED)
		counters->n_snapshots_not_restored++;
}

static void finish(struct snapshot_run *run)
{
	struct live *live = live_of_run(run);

	count(run);
	run->result.error = run->error;
	run->result.reference = run->makes && run->error == 0 ? run->reference : NULL;
	run->result.bytes = run->file.reference.bytes;
	if (live)
		live->snapshot = NULL;
	snapshot_file_done(&run->file);
	run->done(run->userdata, live ? live->session : NULL, &run->result);
	run_free(run);
}

static void again(struct snapshot_run *run)
{
	(void)sd_event_source_set_enabled(run->turn, SD_EVENT_ONESHOT);
}

static void retire(struct snapshot_run *run)
{
	bool is_made = run->makes && run->error == 0;

	run->phase = is_made ? SNAPSHOT_PHASE_SYNC : SNAPSHOT_PHASE_RETIRE;
	if (!is_made)
		(void)sd_event_source_set_priority(run->turn, SD_EVENT_PRIORITY_NORMAL);
	again(run);
}

/* The program is told to end; its last frame says when it has. */
static void fail(struct snapshot_run *run, int error)
{
	if (run->error == 0)
		run->error = error;
	if (run->phase != SNAPSHOT_PHASE_RUN)
		/* Somebody waits for its end, however busy we are. */
		(void)sd_event_source_set_priority(run->turn, SD_EVENT_PRIORITY_NORMAL);
	if (run->phase == SNAPSHOT_PHASE_FETCH) {
		run->transfer = snapshot_transfer_cancel(run->transfer);
		again(run);
	}
	if (run->phase != SNAPSHOT_PHASE_RUN)
		return;
	if (run->activity.live->shim)
		shim_link_cancel(run->activity.live->shim, run->activity.wire_job);
}

/* What whoever waits can do nothing about is one. */
static int store_error(const struct snapshot_run *run, int r)
{
	if (r >= 0 || r == -EDQUOT || r == -ENOSPC || r == -ENOMEM)
		return r;
	log_line(LOG_LEVEL_ERROR, &(struct log_context){.session = &run->session},
		 "a snapshot cannot be written", "errno=%d", -r);
	return -EROFS;
}

static int take_bytes(struct snapshot_run *run, const struct session *session, const uint8_t *data,
		      size_t size)
{
	uint64_t before = run->file.reference.bytes / QUOTA_EVERY;
	int r = store_error(run, snapshot_write(&run->file, data, size));

	if (r < 0 || run->file.reference.bytes / QUOTA_EVERY == before)
		return r;
	return snapshot_is_over_quota(run, session) ? -EDQUOT : 0;
}

/* What the program says. */

static void on_output(struct activity *activity, uint64_t number, bool is_stderr,
		      const uint8_t *data, size_t size)
{
	struct snapshot_run *run = LIST_ENTRY(activity, struct snapshot_run, activity);
	int r = 0;

	if (is_stderr)
		r = buf_append(&run->said, data, size) < 0 ? -EPROTO : 0;
	else if (run->makes && run->error == 0)
		r = take_bytes(run, activity->live->session, data, size);
	if (r < 0)
		fail(run, r);
	live_settle(activity->live, number);
}

static void feed(struct snapshot_run *run)
{
	static uint8_t chunk[READ_BYTES];
	struct shim_link *shim = run->activity.live->shim;

	while (!run->input_ended && run->error == 0 && shim &&
	       run->sent - run->taken + sizeof(chunk) <= COMMAND_STDIN_WINDOW_BYTES) {
		ssize_t n = snapshot_read(&run->file, chunk, sizeof(chunk));
		int r;

		if (n > 0)
			r = shim_link_stdin(shim, run->activity.wire_job, chunk, (size_t)n);
		else
			r = n < 0 ? (int)n : shim_link_stdin_end(shim, run->activity.wire_job);
		run->input_ended = n == 0;
		if (n > 0)
			run->sent += (uint64_t)n;
		/* It ended by itself: how, it has yet to say. */
		if (r == -ESRCH)
			run->input_ended = true;
		else if (r < 0)
			fail(run, r);
	}
}

static void on_taken(struct activity *activity, const struct wire_taken *taken)
{
	struct snapshot_run *run = LIST_ENTRY(activity, struct snapshot_run, activity);

	if (run->makes)
		return;
	if (taken->taken > run->taken && taken->taken <= run->sent)
		run->taken = taken->taken;
	if (taken->is_closed)
		run->input_ended = true;
	feed(run);
}

/* Numbers of a program inside: nothing but how it failed follows from them. */
static int error_of(const struct archive_summary *summary, bool makes)
{
	static const int errors[ARCHIVE_E_MAX_] = {
		[ARCHIVE_E_EMPTY] = -ENODATA,     [ARCHIVE_E_BYTES] = -EFBIG,
		[ARCHIVE_E_ENTRIES] = -EFBIG,     [ARCHIVE_E_NAME] = -ENAMETOOLONG,
		[ARCHIVE_E_OUTSIDE] = -EBADMSG,   [ARCHIVE_E_LINK_ON_WAY] = -ELOOP,
		[ARCHIVE_E_TYPE] = -EBADMSG,      [ARCHIVE_E_DUPLICATE] = -EEXIST,
		[ARCHIVE_E_HARD_LINK] = -EBADMSG, [ARCHIVE_E_FORMAT] = -EBADMSG,
	};

	if (summary->error == ARCHIVE_E_NONE || summary->error >= ARCHIVE_E_MAX_)
		return -EPROTO;
	/* We make none with such a name. */
	if (summary->error == ARCHIVE_E_NAME && !makes)
		return -EBADMSG;
	if (summary->error != ARCHIVE_E_SYSTEM)
		return errors[summary->error];
	if (!makes && (summary->error_number == ENOSPC || summary->error_number == EDQUOT))
		return -ENOSPC;
	return summary->error_number == ENOMEM ? -ENOMEM : -EIO;
}

/* As rows and answers can have it. */
static uint64_t number_of(uint64_t said)
{
	return said < INT64_MAX ? said : INT64_MAX;
}

static int take_summary(struct snapshot_run *run, const struct wire_exit *exit_info)
{
	struct archive_summary summary;

	if (exit_info->flags & WIRE_EXIT_TIMED_OUT)
		return -ETIME;
	if (run->said.size < sizeof(summary))
		return -EPROTO;
	memcpy(&summary, run->said.data + run->said.size - sizeof(summary), sizeof(summary));
	if (summary.magic != ARCHIVE_MAGIC)
		return -EPROTO;
	run->result.content_bytes = number_of(summary.n_bytes);
	run->result.n_entries = number_of(summary.n_entries);
	run->result.n_left_out = number_of(summary.n_left_out);
	run->result.n_changed = number_of(summary.n_changed);
	if (exit_info->code == 0 && summary.error == ARCHIVE_E_NONE)
		return 0;
	return error_of(&summary, run->makes);
}

static void on_ended(struct activity *activity, const struct activity_result *result)
{
	struct snapshot_run *run = LIST_ENTRY(activity, struct snapshot_run, activity);
	struct live *live = activity->live;
	int r = -EPIPE;

	live_settle(live, result->number);
	if (result->end == ACTIVITY_EXITED)
		r = take_summary(run, result->exit_info);
	else if (result->end == ACTIVITY_FAILED)
		r = result->failed->step == WIRE_STEP_BUSY ? -EBUSY : -EIO;
	if (run->error == 0)
		run->error = r;
	retire(run);
	tasks_next(live->app, live->session);
}

static const struct activity_ops snapshot_ops = {
	.output = on_output,
	.taken = on_taken,
	.ended = on_ended,
};

/* Starting it. */

/* As the session's root where it has one: files that are not `user`'s keep their owners. */
static int start_program(struct snapshot_run *run, struct live *live)
{
	static const char *const no_env[] = {NULL};
	bool is_root =
		live->provider->can.root && session_profile(live)->root == POLICY_ROOT_ALLOWED;
	struct snapshot_words words;
	struct shim_link_command command = {
		.head = {.program = WIRE_PROGRAM_ARCHIVE,
			 .flags = is_root ? WIRE_EXEC_ROOT : 0u,
			 .timeout_ms = TIMEOUT_MS,
			 .grace_ms = GRACE_MS},
		.cwd = "/",
		.argv = words.word,
		.env = no_env,
		.stdin_open = !run->makes,
	};
	uint32_t wire_job;
	int r;

	snapshot_words_make(run, PROGRAM, &words);
	r = live->shim ? shim_link_exec(live->shim, &command, &wire_job) : -EPIPE;
	if (r < 0)
		return r;
	run->phase = SNAPSHOT_PHASE_RUN;
	live_add(live, &run->activity, &snapshot_ops, wire_job);
	live_name(live, wire_job, PROGRAM);
	if (!run->makes)
		feed(run);
	return 0;
}

/* Some of the file. 1: there is more; 0: it is what was written; -EBADMSG; -errno. */
static int check_some(struct snapshot_run *run)
{
	static uint8_t chunk[CHECK_BYTES];
	size_t all = 0;
	ssize_t n = 1;

	/* Of one that is encrypted a read gives a block. */
	while (n > 0 && all < sizeof(chunk)) {
		n = snapshot_read(&run->file, chunk, sizeof(chunk));
		all += n > 0 ? (size_t)n : 0;
	}
	return n > 0 ? 1 : (int)n;
}

/* The key is not held in between. */
static int open_file(struct snapshot_run *run)
{
	const struct session *owner = registry_find(&run->app->registry, &run->owner);
	struct snapshot_key key;
	int fd = run->fetched_fd >= 0 ? fd_dup(run->fetched_fd, 0)
				      : snapshot_open(&run->app->snapshots, &run->parsed);
	int r = owner ? 0 : -ENOENT;

	if (fd < 0)
		return fd;
	if (r >= 0)
		r = snapshot_key_to_read(run->app, owner, &run->parsed, &key);
	if (r < 0) {
		(void)fd_close(fd);
		return r;
	}
	r = snapshot_read_begin(&run->file, &run->parsed, r > 0 ? &key : NULL, fd);
	sodium_memzero(&key, sizeof(key));
	return r;
}

static int begin_restore(struct snapshot_run *run)
{
	int r;

	snapshot_file_done(&run->file);
	r = open_file(run);
	return r < 0 ? r : start_program(run, live_of_run(run));
}

/* Another tree is filled by whoever made it. */
static bool has_tree(const struct snapshot_run *run)
{
	const struct live *live = live_of_run(run);

	return live && live->shim && live->tree == run->tree;
}

static void check(struct snapshot_run *run)
{
	int r = run->error;

	if (r == 0)
		r = has_tree(run) ? check_some(run) : -EPIPE;
	if (r == 0)
		r = begin_restore(run);
	else if (r > 0)
		again(run);
	if (r >= 0)
		return;
	if (run->error == 0)
		run->error = r;
	finish(run);
}

/* Its object is here, or will not be. */
static void on_fetched(void *userdata, int error, const struct s3_report *report, json_t *reference)
{
	struct snapshot_run *run = userdata;
	int r = error;

	(void)report;
	(void)reference;
	run->transfer = NULL;
	if (r >= 0)
		r = open_file(run);
	if (r < 0) {
		fail(run, r);
		return;
	}
	run->phase = SNAPSHOT_PHASE_CHECK;
	again(run);
}

/* On the disk, and named. */
static int keep(struct snapshot_run *run)
{
	const struct live *live = live_of_run(run);
	json_t *object;
	int r = live && snapshot_is_over_quota(run, live->session) ? -EDQUOT
								   : snapshot_write_end(&run->file);

	if (r < 0)
		return r;
	object = snapshot_reference_format(&run->file.reference);
	r = object && json_object_update(run->reference, object) == 0 ? 0 : -ENOMEM;
	json_decref(object);
	if (r < 0)
		IGNORE_RESULT(snapshot_remove(&run->app->snapshots, run->file.reference.name));
	return r;
}

/* To wait for all at once would hold up everybody. */
static void sync_some(struct snapshot_run *run)
{
	int r = run->error < 0 ? run->error : snapshot_write_last(&run->file);

	if (r == 0)
		r = snapshot_write_sync(&run->file);
	if (r > 0) {
		again(run);
		return;
	}
	run->error = run->error < 0 ? run->error : store_error(run, r < 0 ? r : keep(run));
	finish(run);
}

static int on_turn(sd_event_source *source, void *userdata)
{
	struct snapshot_run *run = userdata;

	(void)source;
	switch (run->phase) {
	case SNAPSHOT_PHASE_FETCH: /* in vain */
		finish(run);
		break;
	case SNAPSHOT_PHASE_CHECK:
		check(run);
		break;
	case SNAPSHOT_PHASE_SYNC:
		sync_some(run);
		break;
	case SNAPSHOT_PHASE_RETIRE:
		finish(run);
		break;
	case SNAPSHOT_PHASE_RUN:
		break;
	}
	return 0;
}

/* Beginning. */

static int run_new(struct live *live, snapshot_done done, void *userdata,
		   struct snapshot_run **ret_run)
{
	struct snapshot_run *run;
	int r;

	if (live->snapshot)
		return -EBUSY;
	if (!live->shim)
		return -EPIPE;
	if (!shim_link_has(live->shim, WIRE_FEATURE_ARCHIVE))
		return -ENOSYS;
	run = calloc(1, sizeof(*run));
	if (!run)
		return -ENOMEM;
	run->app = live->app;
	run->session = live->session->id;
	run->tree = live->tree;
	run->said = BUF_NULL(SAID_MAX_BYTES);
	run->file = SNAPSHOT_FILE_NULL;
	run->fetched_fd = -1;
	run->phase = SNAPSHOT_PHASE_CHECK;
	run->done = done;
	run->userdata = userdata;
	list_append(&live->app->snapshot_runs, &run->link);
	r = sd_event_add_defer(live->app->event, &run->turn, on_turn, run);
	if (r >= 0)
		r = sd_event_source_set_enabled(run->turn, SD_EVENT_OFF);
	/* A large file is looked through while others are served. */
	if (r >= 0)
		r = sd_event_source_set_priority(run->turn, SD_EVENT_PRIORITY_IDLE);
	if (r < 0) {
		run_free(run);
		return r;
	}
	*ret_run = run;
	return 0;
}

static int begin_make(struct snapshot_run *run, struct live *live)
{
	struct snapshot_key key;
	uint64_t max = 0;
	int r = snapshot_room(live, &max);

	run->makes = true;
	if (r >= 0)
		r = id_random(&run->result.id);
	if (r < 0)
		return r;
	run->reference = snapshot_workspace(live->session, live->app->config);
	if (!run->reference)
		return -ENOMEM;
	r = snapshot_key_to_write(live, &key);
	if (r < 0)
		return r;
	r = store_error(run, snapshot_write_begin(&run->file, &run->app->snapshots, &run->session,
						  &run->result.id, r > 0 ? &key : NULL, max));
	sodium_memzero(&key, sizeof(key));
	return r < 0 ? r : start_program(run, live);
}

/* Before it began: `done` does not follow. */
static void give_up(struct snapshot_run *run, int error)
{
	run->error = error;
	count(run);
	run_free(run);
}

int snapshot_make(struct live *live, snapshot_done done, void *userdata)
{
	struct snapshot_run *run;
	int r = run_new(live, done, userdata, &run);

	if (r < 0)
		return r;
	r = begin_make(run, live);
	if (r < 0)
		give_up(run, r);
	else
		live->snapshot = run;
	return r;
}

static int fetch(struct snapshot_run *run)
{
	int r = snapshot_fetch(run->app, &run->parsed, on_fetched, run, &run->fetched_fd,
			       &run->transfer);

	if (r >= 0)
		run->phase = SNAPSHOT_PHASE_FETCH;
	return r;
}

int snapshot_restore(struct live *live, const struct id *owner, json_t *reference, bool replaces,
		     snapshot_done done, void *userdata)
{
	struct snapshot_reference parsed;
	struct snapshot_run *run;
	int r = snapshot_reference_parse(reference, owner, &parsed);

	if (r >= 0)
		r = run_new(live, done, userdata, &run);
	if (r < 0)
		return r;
	run->replaces = replaces;
	run->owner = *owner;
	run->parsed = parsed;
	run->reference = json_object_get(reference, "include")
				 ? json_incref(reference)
				 : snapshot_workspace(live->session, live->app->config);
	if (parsed.key[0] != '\0')
		r = fetch(run);
	else
		r = open_file(run);
	if (r >= 0 && run->phase == SNAPSHOT_PHASE_CHECK)
		r = sd_event_source_set_enabled(run->turn, SD_EVENT_ONESHOT);
	if (r < 0)
		give_up(run, r);
	else
		live->snapshot = run;
	return r;
}

void snapshot_cancel(struct live *live)
{
	if (live->snapshot)
		fail(live->snapshot, -ECANCELED);
}

/* The whole. */

int snapshots_start(struct app *app)
{
	int r = snapshots_take_keys(app, app->config);

	return r < 0 ? r : snapshot_store_open(&app->snapshots, WORKER_FD_STATE);
}

void snapshots_give_up(struct app *app)
{
	while (!list_empty(&app->snapshot_runs)) {
		struct snapshot_run *run =
			LIST_ENTRY(app->snapshot_runs.next, struct snapshot_run, link);

		run->error = -ECANCELED;
		finish(run);
	}
	snapshots_drop_remote(app);
}

void snapshots_stop(struct app *app)
{
	snapshot_store_close(&app->snapshots);
	app->snapshot_keys = snapshot_keys_free(app->snapshot_keys);
}
