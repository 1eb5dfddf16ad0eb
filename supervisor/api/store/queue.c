/*
 * Writes wait in one queue, in order. If the store refuses (full, busy, away), nobody's write was
 * done, all stay queued, those that have not heard it are told STORE_DEGRADED, and the next try
 * comes after a delay that doubles up to RETRY_MAX. Once one does not fit the queue, those behind
 * it are given up as well, small as they may be: rows then end early, but have no hole.
 */
#include "supervisor/api/store/queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/plant.h"
#include "base/str.h"

#include "supervisor/api/store/rows.h"

#define RETRY_MIN         (50 * USEC_PER_MS)
#define RETRY_MAX         (5 * USEC_PER_SEC)
#define MAX_WAITING_BYTES (64ull * 1024 * 1024)

static const char *const result_text[] = {
	[STORE_OK] = "ok",
	[STORE_NOT_FOUND] = "not found",
	[STORE_DUPLICATE] = "duplicate",
	[STORE_DEGRADED] = "degraded",
	[STORE_REFUSED] = "refused",
	[STORE_LOST] = "lost",
	[STORE_FENCED] = "fenced",
};
_Static_assert(ARRAY_SIZE(result_text) == STORE_RESULT_MAX_, "one text per result");

const char *store_result_text(enum store_result result)
{
	ASSERT((size_t)result < ARRAY_SIZE(result_text));
	return result_text[result];
}

int queue_init(struct store_queue *queue, const struct store_ops *ops, const char *host,
	       uint64_t max_waiting_bytes)
{
	queue->store.ops = ops;
	list_init(&queue->waiting);
	list_init(&queue->in_flight);
	list_init(&queue->finished);
	list_init(&queue->reads);
	list_init(&queue->reading);
	queue->max_waiting_bytes = max_waiting_bytes ? max_waiting_bytes : MAX_WAITING_BYTES;
	queue->host = strdup(host ? host : "");
	return queue->host ? 0 : -ENOMEM;
}

static void drop_writes(struct list *list)
{
	LIST_FOR_EACH_SAFE (link, following, list) {
		list_remove(link);
		(void)write_free(LIST_ENTRY(link, struct write, link));
	}
}

void queue_free_read(struct read *read)
{
	free(read->after_file);
	free(read->sessions);
	free(read->viewer);
	free(read);
}

static void drop_reads(struct list *list)
{
	LIST_FOR_EACH_SAFE (link, following, list) {
		list_remove(link);
		queue_free_read(LIST_ENTRY(link, struct read, link));
	}
}

void queue_done(struct store_queue *queue)
{
	drop_writes(&queue->waiting);
	drop_writes(&queue->in_flight);
	drop_writes(&queue->finished);
	drop_reads(&queue->reads);
	drop_reads(&queue->reading);
	holds_done(&queue->holds);
	free(queue->host);
}

void queue_finish(struct store_queue *queue, struct write *write)
{
	list_remove(&write->link);
	list_append(&queue->finished, &write->link);
	queue->n_retentions -= write->is_retention;
	queue->waiting_bytes -= write->bytes;
	queue->stats.n_waiting--;
	queue->stats.n_writes++;
}

void queue_note_commit(struct store_queue *queue)
{
	queue->stats.n_commits++;
	queue->stats.degraded = false;
	queue->is_full = false;
	queue->retry_delay = 0;
	queue->retry_at = 0;
}

void queue_note_failure(struct store_queue *queue, usec_t now, const char *why)
{
	queue->stats.n_failed_commits++;
	queue->stats.degraded = true;
	queue->stats.reason = why;
	queue->retry_delay = queue->retry_delay ? queue->retry_delay * 2 : RETRY_MIN;
	if (queue->retry_delay > RETRY_MAX)
		queue->retry_delay = RETRY_MAX;
	queue->retry_at = clock_add(now, queue->retry_delay);
}

void queue_tell_finished(struct store_queue *queue)
{
	struct list *last = queue->finished.prev;
	bool end = list_empty(&queue->finished);

	/* What a callback queues and loses at once waits for the next flush. */
	while (!end) {
		struct write *write = LIST_ENTRY(queue->finished.next, struct write, link);

		end = &write->link == last;
		list_remove(&write->link);
		if (write->done)
			write->done(write->userdata, write->result);
		(void)write_free(write);
	}
}

/* Callbacks may queue; what they queue stands behind `n` of waiting. */
static void tell_list(const struct list *list, uint32_t n)
{
	LIST_FOR_EACH (link, list) {
		struct write *write = LIST_ENTRY(link, struct write, link);

		if (n-- == 0)
			break;
		if (write->told)
			continue;
		write->told = true;
		if (write->done)
			write->done(write->userdata, STORE_DEGRADED);
	}
}

bool queue_answers_early(struct store_queue *queue, usec_t now)
{
	if (!planted("answer-early") || list_empty(&queue->waiting))
		return false;
	if (queue->retry_at == 0)
		queue->retry_at = clock_add(now, USEC_PER_SEC);
	LIST_FOR_EACH (link, &queue->waiting) {
		struct write *write = LIST_ENTRY(link, struct write, link);

		if (write->done)
			write->done(write->userdata, STORE_OK);
		write->done = NULL;
	}
	return now < queue->retry_at;
}

static uint32_t count(const struct list *list)
{
	uint32_t n = 0;

	LIST_FOR_EACH (link, list)
		n++;
	return n;
}

void queue_tell_degraded(struct store_queue *queue)
{
	uint32_t n_waiting = count(&queue->waiting);

	tell_list(&queue->in_flight, count(&queue->in_flight));
	tell_list(&queue->waiting, n_waiting);
}

bool queue_has_untold(const struct store_queue *queue)
{
	const struct list *lists[] = {&queue->waiting, &queue->in_flight};

	/* They are told in order, so the last one is told last. */
	for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
		if (!list_empty(lists[i]) && !LIST_ENTRY(lists[i]->prev, struct write, link)->told)
			return true;
	return false;
}

void queue_stats(const struct store *store, struct store_stats *ret_stats)
{
	*ret_stats = ((const struct store_queue *)(const void *)store)->stats;
}

void queue_forget(struct store *store, const void *userdata)
{
	struct store_queue *queue = queue_of(store);
	struct list *writes[] = {&queue->waiting, &queue->in_flight, &queue->finished};
	struct list *reads[] = {&queue->reads, &queue->reading};

	for (size_t i = 0; i < ARRAY_SIZE(writes); i++)
		LIST_FOR_EACH (link, writes[i]) {
			struct write *write = LIST_ENTRY(link, struct write, link);

			if (write->userdata == userdata)
				write->done = NULL;
		}
	for (size_t i = 0; i < ARRAY_SIZE(reads); i++)
		LIST_FOR_EACH (link, reads[i]) {
			struct read *read = LIST_ENTRY(link, struct read, link);

			if (read->userdata != userdata)
				continue;
			read->task_read = NULL;
			read->frames_read = NULL;
			read->component_read = NULL;
			read->use_seen = NULL;
			read->gone_seen = NULL;
			read->airbyte_read = NULL;
			read->session_read = NULL;
		}
}

/* ---- queueing ---- */

static int add_write(struct store_queue *queue, struct write *write)
{
	if (!write)
		return -ENOMEM;
	if (write->failed) {
		(void)write_free(write);
		return -ENOMEM;
	}
	if (!write->is_retention && queue->stats.degraded &&
	    queue->waiting_bytes + write->bytes > queue->max_waiting_bytes)
		queue->is_full = true;
	if (queue->is_full && !write->is_retention) {
		write->result = STORE_LOST;
		list_append(&queue->finished, &write->link);
		return 0;
	}
	queue->waiting_bytes += write->bytes;
	queue->stats.n_waiting++;
	queue->n_retentions += write->is_retention;
	list_append(&queue->waiting, &write->link);
	return 0;
}

int queue_hold(struct store *store, const struct id *session, int64_t fence)
{
	return holds_set(&queue_of(store)->holds, session, fence);
}

void queue_let_go(struct store *store, const struct id *session)
{
	holds_drop(&queue_of(store)->holds, session);
}

/* The rest of the write is done only while the session is ours. */
static struct write *write_held(struct store *store, const struct id *session, store_done done,
				void *userdata)
{
	struct write *write = write_new(done, userdata);
	char id[ID_TEXT_BYTES];
	const struct value values[] = {
		value_id(session, id),
		value_integer(holds_fence(&queue_of(store)->holds, session)),
	};

	write_add(write, QUERY_SESSION_HOLD, values, ARRAY_SIZE(values));
	return write;
}

/* What runs from here on has a number of its own, which no writer of before knows. */
static void raise_fence(struct store *store, struct write *write, const struct id *session)
{
	struct holds *holds = &queue_of(store)->holds;
	int64_t fence = holds_fence(holds, session);
	char id[ID_TEXT_BYTES];
	const struct value values[] = {value_id(session, id), value_integer(fence + 1)};

	if (fence == FENCE_ANY)
		return;
	write_add(write, QUERY_SESSION_RAISE, values, ARRAY_SIZE(values));
	IGNORE_RESULT(holds_set(holds, session, fence + 1)); /* it is there already */
}

int queue_session_check(struct store *store, const struct id *session, store_done done,
			void *userdata)
{
	return add_write(queue_of(store), write_held(store, session, done, userdata));
}

int queue_session_insert(struct store *store, const struct session *session, store_done done,
			 void *userdata)
{
	struct write *write = write_new(done, userdata);

	if (write && queue_hold(store, &session->id, 0) < 0)
		write->failed = true;
	rows_session_insert(write, session, queue_of(store)->host);
	return add_write(queue_of(store), write);
}

/* Those of one session, as it is now. */
static int put_rows(struct store *store, const struct session *session, usec_t now,
		    void (*rows)(struct write *write, const struct session *session, usec_t now),
		    store_done done, void *userdata)
{
	struct write *write = write_held(store, &session->id, done, userdata);

	rows(write, session, now);
	return add_write(queue_of(store), write);
}

int queue_session_status(struct store *store, const struct session *session, usec_t now,
			 store_done done, void *userdata)
{
	return put_rows(store, session, now, rows_session_status, done, userdata);
}

int queue_session_component(struct store *store, const struct id *session,
			    const struct store_component *component, usec_t now, store_done done,
			    void *userdata)
{
	struct write *write = write_held(store, session, done, userdata);

	rows_session_component(write, session, component, now);
	return add_write(queue_of(store), write);
}

int queue_session_tree(struct store *store, const struct id *session, enum store_tree tree,
		       store_done done, void *userdata)
{
	struct write *write = write_held(store, session, done, userdata);
	char id[ID_TEXT_BYTES];
	const struct value values[] = {value_id(session, id), value_integer(tree)};

	if (tree == STORE_TREE_RESTORING)
		raise_fence(store, write, session);
	write_add(write, QUERY_SESSION_TREE, values, ARRAY_SIZE(values));
	return add_write(queue_of(store), write);
}

int queue_session_egress(struct store *store, const struct session *session, usec_t now,
			 store_done done, void *userdata)
{
	return put_rows(store, session, now, rows_session_egress, done, userdata);
}

int queue_registry_put(struct store *store, const struct session *session, usec_t now,
		       store_done done, void *userdata)
{
	return put_rows(store, session, now, rows_registry, done, userdata);
}

int queue_session_runtime(struct store *store, const struct session *session, usec_t now,
			  store_done done, void *userdata)
{
	return put_rows(store, session, now, rows_session_runtime, done, userdata);
}

int queue_session_log(struct store *store, const struct session *session, usec_t now,
		      store_done done, void *userdata)
{
	return put_rows(store, session, now, rows_session_log, done, userdata);
}

int queue_session_close(struct store *store, const struct id *session, const char *reason,
			usec_t now, store_done done, void *userdata)
{
	struct write *write = write_held(store, session, done, userdata);
	char id[ID_TEXT_BYTES];
	char closed[CLOCK_ISO_BYTES];
	const struct value values[] = {
		value_id(session, id),
		value_text(reason),
		value_time(now, closed),
	};

	write_add(write, QUERY_SESSION_CLOSE, values, ARRAY_SIZE(values));
	write_add(write, QUERY_REGISTRY_CLOSE, values, ARRAY_SIZE(values));
	return add_write(queue_of(store), write);
}

int queue_session_redis(struct store *store, const struct id *session, bool left)
{
	struct write *write = write_held(store, session, NULL, NULL);
	char id[ID_TEXT_BYTES];
	const struct value values[] = {
		value_id(session, id),
		left ? value_integer(1) : VALUE_NOTHING,
	};

	write_add(write, QUERY_SESSION_REDIS, values, ARRAY_SIZE(values));
	return add_write(queue_of(store), write);
}

int queue_task_insert(struct store *store, const struct job *job, store_done done, void *userdata)
{
	struct write *write = write_held(store, &job->session, done, userdata);

	raise_fence(store, write, &job->session);
	rows_task_insert(write, job);
	return add_write(queue_of(store), write);
}

int queue_task_state(struct store *store, const struct job *job, store_done done, void *userdata)
{
	struct write *write = write_held(store, &job->session, done, userdata);

	rows_task_state(write, job);
	return add_write(queue_of(store), write);
}

int queue_frames_put(struct store *store, const struct job *job, const struct store_batch *batch,
		     store_done done, void *userdata)
{
	struct write *write = write_held(store, &job->session, done, userdata);

	rows_frames(write, job, batch);
	return add_write(queue_of(store), write);
}

int queue_usage_put(struct store *store, const struct store_usage *usage)
{
	struct write *write = write_new(NULL, NULL);
	const struct value values[] = {
		value_integer(usage->day),
		value_integer(usage->scope),
		value_text(usage->name),
		value_integer((int64_t)usage->cpu_us),
	};

	write_add(write, QUERY_USAGE_FORGET, values, 1);
	write_add(write, QUERY_USAGE_PUT, values, ARRAY_SIZE(values));
	return add_write(queue_of(store), write);
}

int queue_retain(struct store *store, const struct janitor_retention *retention, store_done done,
		 void *userdata)
{
	struct write *write = write_new(done, userdata);

	if (write)
		write->is_retention = true;
	rows_retain(write, retention);
	return add_write(queue_of(store), write);
}

int queue_task_get(struct store *store, const struct id *task, store_task_read task_read,
		   void *userdata)
{
	struct read *read = calloc(1, sizeof(*read));

	if (!read)
		return -ENOMEM;
	read->id = *task;
	read->task_read = task_read;
	read->userdata = userdata;
	list_append(&queue_of(store)->reads, &read->link);
	return 0;
}

int queue_tasks_of_session(struct store *store, const struct id *session, store_task_read task_read,
			   void *userdata)
{
	struct read *read = calloc(1, sizeof(*read));

	if (!read)
		return -ENOMEM;
	read->id = *session;
	read->of_session = true;
	read->task_read = task_read;
	read->userdata = userdata;
	list_append(&queue_of(store)->reads, &read->link);
	return 0;
}

int queue_frames_get(struct store *store, const struct id *task, uint32_t after, size_t max_bytes,
		     store_frames_read frames_read, void *userdata)
{
	struct read *read = calloc(1, sizeof(*read));

	if (!read)
		return -ENOMEM;
	read->id = *task;
	read->after = after;
	read->max_bytes = max_bytes;
	read->frames_read = frames_read;
	read->userdata = userdata;
	list_append(&queue_of(store)->reads, &read->link);
	return 0;
}

int queue_component_get(struct store *store, const struct id *session, const char *after,
			uint64_t generation, store_component_read component_read, void *userdata)
{
	struct read *read = calloc(1, sizeof(*read));

	if (!read)
		return -ENOMEM;
	read->after_file = strdup(after ? after : "");
	if (!read->after_file) {
		free(read);
		return -ENOMEM;
	}
	read->id = *session;
	read->generation = generation;
	read->component_read = component_read;
	read->userdata = userdata;
	list_append(&queue_of(store)->reads, &read->link);
	return 0;
}

int queue_frames_use(struct store *store, store_frames_use_seen seen, void *userdata)
{
	struct read *read = calloc(1, sizeof(*read));

	if (!read)
		return -ENOMEM;
	read->use_seen = seen;
	read->userdata = userdata;
	list_append(&queue_of(store)->reads, &read->link);
	return 0;
}

char *queue_id_array(const struct id *ids, size_t n)
{
	char *text = malloc(n * ID_TEXT_BYTES + sizeof("{}"));
	char *at = text;

	if (!text)
		return NULL;
	*at++ = '{';
	for (size_t i = 0; i < n; i++) {
		id_format(&ids[i], at);
		at += ID_TEXT_BYTES - 1;
		if (i + 1 < n)
			*at++ = ',';
	}
	*at++ = '}';
	*at = '\0';
	return text;
}

int queue_sessions_gone(struct store *store, const struct id *sessions, size_t n,
			store_gone_seen seen, void *userdata)
{
	struct read *read = calloc(1, sizeof(*read));

	if (!read)
		return -ENOMEM;
	read->sessions = queue_id_array(sessions, n);
	if (!read->sessions) {
		free(read);
		return -ENOMEM;
	}
	read->gone_seen = seen;
	read->userdata = userdata;
	list_append(&queue_of(store)->reads, &read->link);
	return 0;
}

/* ---- connections of Airbyte ---- */

size_t read_airbyte_values(const struct read *read, char id[ID_TEXT_BYTES],
			   struct value values[READ_AIRBYTE_VALUES])
{
	const struct read_viewer *what = read->viewer;

	values[0] = value_integer(what->sees_all);
	values[1] = value_text_or_null(what->owner);
	values[2] = value_text_or_null(what->workspace);
	if (what->is_list) {
		values[3] = value_integer(STORE_AIRBYTE_MAX);
		return 4;
	}
	values[3] = value_text(what->connection);
	values[4] = value_id(&read->id, id);
	return 5;
}

/* NULL: no memory, or a text that names nothing. */
static struct read *add_viewer_read(struct store_queue *queue, const struct store_viewer *viewer,
				    const char *connection, const struct id *session)
{
	struct read_viewer *what = calloc(1, sizeof(*what));
	struct read *read = calloc(1, sizeof(*read));

	if (!what || !read || str_copy(what->owner, sizeof(what->owner), viewer->owner) < 0 ||
	    str_copy(what->workspace, sizeof(what->workspace), viewer->workspace) < 0 ||
	    str_copy(what->connection, sizeof(what->connection), connection ? connection : "") <
		    0) {
		free(what);
		free(read);
		return NULL;
	}
	what->sees_all = viewer->sees_all;
	what->is_list = !connection;
	if (session)
		read->id = *session;
	read->viewer = what;
	list_append(&queue->reads, &read->link);
	return read;
}

int queue_session_take(struct store *store, const struct store_viewer *viewer,
		       const struct id *session, store_session_read session_read, void *userdata)
{
	struct read *read = add_viewer_read(queue_of(store), viewer, NULL, session);

	if (!read)
		return -ENOMEM;
	read->session_read = session_read;
	read->userdata = userdata;
	return 0;
}

int queue_airbyte_get(struct store *store, const struct store_viewer *viewer,
		      const char *connection, const struct id *session,
		      store_airbyte_read airbyte_read, void *userdata)
{
	struct read *read = add_viewer_read(queue_of(store), viewer, connection, session);

	if (!read)
		return -ENOMEM;
	read->airbyte_read = airbyte_read;
	read->userdata = userdata;
	return 0;
}

int queue_airbyte_put(struct store *store, const struct store_airbyte_put *row, usec_t now,
		      store_done done, void *userdata)
{
	struct write *write = write_new(done, userdata);
	char id_text[ID_TEXT_BYTES];
	char at[CLOCK_ISO_BYTES];
	struct id id;
	int r = id_random(&id);
	const struct value values[] = {
		r < 0 ? VALUE_NOTHING : value_id(&id, id_text),
		value_text(row->name),
		value_text(row->connection_id),
		value_text_or_null(row->source_id),
		value_text_or_null(row->destination_id),
		value_text(row->streams_json),
		value_text_or_null(row->owner),
		value_text_or_null(row->workspace),
		value_time(now, at),
	};

	if (r < 0 && write)
		write->failed = true;
	write_add(write, QUERY_AIRBYTE_CHANGE, values, ARRAY_SIZE(values));
	write_add(write, QUERY_AIRBYTE_INSERT, values, ARRAY_SIZE(values));
	return add_write(queue_of(store), write);
}

int queue_airbyte_drop(struct store *store, const char *row_id, store_done done, void *userdata)
{
	struct write *write = write_new(done, userdata);
	const struct value id = value_text(row_id);

	write_add(write, QUERY_AIRBYTE_DROP, &id, 1);
	return add_write(queue_of(store), write);
}
