/*
 * What is asked of a store, as writes and reads of its queue.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"

#include "supervisor/api/store/queue.h"
#include "supervisor/api/store/rows.h"

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
	return queue_add(queue_of(store), write_held(store, session, done, userdata));
}

int queue_session_insert(struct store *store, const struct session *session, store_done done,
			 void *userdata)
{
	struct write *write = write_new(done, userdata);

	if (write && queue_hold(store, &session->id, 0) < 0)
		write->failed = true;
	rows_session_insert(write, session, queue_of(store)->host);
	return queue_add(queue_of(store), write);
}

/* Those of one session, as it is now. */
static int put_rows(struct store *store, const struct session *session, usec_t now,
		    void (*rows)(struct write *write, const struct session *session, usec_t now),
		    store_done done, void *userdata)
{
	struct write *write = write_held(store, &session->id, done, userdata);

	rows(write, session, now);
	return queue_add(queue_of(store), write);
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
	return queue_add(queue_of(store), write);
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
	return queue_add(queue_of(store), write);
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
	return queue_add(queue_of(store), write);
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
	return queue_add(queue_of(store), write);
}

int queue_task_insert(struct store *store, const struct job *job, store_done done, void *userdata)
{
	struct write *write = write_held(store, &job->session, done, userdata);

	raise_fence(store, write, &job->session);
	rows_task_insert(write, job);
	return queue_add(queue_of(store), write);
}

int queue_task_state(struct store *store, const struct job *job, store_done done, void *userdata)
{
	struct write *write = write_held(store, &job->session, done, userdata);

	rows_task_state(write, job);
	return queue_add(queue_of(store), write);
}

int queue_frames_put(struct store *store, const struct job *job, const struct store_batch *batch,
		     store_done done, void *userdata)
{
	struct write *write = write_held(store, &job->session, done, userdata);

	rows_frames(write, job, batch);
	return queue_add(queue_of(store), write);
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
	return queue_add(queue_of(store), write);
}

int queue_retain(struct store *store, const struct janitor_retention *retention, store_done done,
		 void *userdata)
{
	struct write *write = write_new(done, userdata);

	if (write)
		write->is_retention = true;
	rows_retain(write, retention);
	return queue_add(queue_of(store), write);
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
	return queue_add(queue_of(store), write);
}

int queue_airbyte_drop(struct store *store, const char *row_id, store_done done, void *userdata)
{
	struct write *write = write_new(done, userdata);
	const struct value id = value_text(row_id);

	write_add(write, QUERY_AIRBYTE_DROP, &id, 1);
	return queue_add(queue_of(store), write);
}
