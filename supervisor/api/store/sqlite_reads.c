#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

#include "supervisor/api/store/migrate.h"
#include "supervisor/api/store/rows.h"
#include "supervisor/api/store/sqlite_store.h"

/* Texts are the statement's, until its next step. */
static struct columns columns_of(sqlite3_stmt *statement)
{
	struct columns columns = {0};
	int n = sqlite3_column_count(statement);

	ASSERT(n <= COLUMNS_MAX);
	for (int i = 0; i < n; i++)
		columns.text[i] = (const char *)sqlite3_column_text(statement, i);
	return columns;
}

static int read_task_row(sqlite3_stmt *statement, struct store_task *ret_task)
{
	const struct columns columns = columns_of(statement);

	return rows_read_task(&columns, ret_task);
}

static void read_task(struct sqlite_store *s, struct read *read)
{
	sqlite3_stmt *statement = s->statement[QUERY_TASK_GET];
	enum store_result result = STORE_DEGRADED;
	struct store_task task;
	char id[ID_TEXT_BYTES];
	int r;

	id_format(&read->id, id);
	r = sqlite3_bind_text(statement, 1, id, -1, SQLITE_STATIC);
	if (r == SQLITE_OK)
		r = sqlite3_step(statement);
	if (r == SQLITE_ROW)
		result = read_task_row(statement, &task) == 0 ? STORE_OK : STORE_NOT_FOUND;
	else if (r == SQLITE_DONE)
		result = STORE_NOT_FOUND;
	if (read->task_read)
		read->task_read(read->userdata, result, result == STORE_OK ? &task : NULL);
	(void)sqlite3_reset(statement);
}

static void read_tasks(struct sqlite_store *s, struct read *read)
{
	sqlite3_stmt *statement = s->statement[QUERY_TASKS_OF_SESSION];
	struct store_task task;
	char id[ID_TEXT_BYTES];
	int r;

	id_format(&read->id, id);
	r = sqlite3_bind_text(statement, 1, id, -1, SQLITE_STATIC);
	if (r == SQLITE_OK)
		r = sqlite3_bind_int(statement, 2, STORE_TASKS_MAX);
	while (r == SQLITE_OK || r == SQLITE_ROW) {
		r = sqlite3_step(statement);
		if (r == SQLITE_ROW && read_task_row(statement, &task) == 0)
			read->task_read(read->userdata, STORE_OK, &task);
	}
	read->task_read(read->userdata, r == SQLITE_DONE ? STORE_NOT_FOUND : STORE_DEGRADED, NULL);
	(void)sqlite3_reset(statement);
}

/* Copies, because the texts of a row end with the next row. */
static int collect_frames(sqlite3_stmt *statement, size_t max_bytes, struct store_frame *frames,
			  char **texts, size_t *ret_n, bool *ret_more)
{
	size_t bytes = 0;
	size_t n = 0;
	int r;

	*ret_more = false;
	while ((r = sqlite3_step(statement)) == SQLITE_ROW) {
		const char *stage = (const char *)sqlite3_column_text(statement, 1);
		const void *text = sqlite3_column_text(statement, 2);
		size_t size = (size_t)sqlite3_column_bytes(statement, 2);
		int known = stage ? frames_stage_from_text(stage) : -1;
		char *copy;

		if (n == FRAMES_A_READ || (n > 0 && bytes + size > max_bytes)) {
			*ret_more = true;
			r = SQLITE_DONE;
			break;
		}
		if (known < 0 || !text)
			continue;
		copy = malloc(size + 1);
		if (!copy) {
			r = SQLITE_NOMEM;
			break;
		}
		memcpy(copy, text, size + 1);
		texts[n] = copy;
		frames[n++] = (struct store_frame){
			.seq = (uint32_t)sqlite3_column_int64(statement, 0),
			.stage = (enum frames_stage)known,
			.text = copy,
			.size = size,
		};
		bytes += size;
	}
	*ret_n = n;
	return r == SQLITE_DONE ? SQLITE_OK : r;
}

static void read_frames(struct sqlite_store *s, struct read *read)
{
	sqlite3_stmt *statement = s->statement[QUERY_FRAMES_GET];
	struct store_frame frames[FRAMES_A_READ];
	char *texts[FRAMES_A_READ];
	char id[ID_TEXT_BYTES];
	size_t n = 0;
	bool more = false;
	int r;

	id_format(&read->id, id);
	r = sqlite3_bind_text(statement, 1, id, -1, SQLITE_STATIC);
	if (r == SQLITE_OK)
		r = sqlite3_bind_int64(statement, 2, read->after);
	if (r == SQLITE_OK)
		r = collect_frames(statement, read->max_bytes, frames, texts, &n, &more);
	(void)sqlite3_reset(statement);
	if (read->frames_read)
		read->frames_read(read->userdata, r == SQLITE_OK ? STORE_OK : STORE_DEGRADED,
				  frames, r == SQLITE_OK ? n : 0, r == SQLITE_OK && more);
	for (size_t i = 0; i < n; i++)
		free(texts[i]);
}

static void read_component(struct sqlite_store *s, struct read *read)
{
	sqlite3_stmt *statement = s->statement[QUERY_COMPONENT_GET];
	enum store_result result = STORE_DEGRADED;
	struct store_component component = {0};
	char id[ID_TEXT_BYTES];
	int r;

	id_format(&read->id, id);
	r = sqlite3_bind_text(statement, 1, id, -1, SQLITE_STATIC);
	if (r == SQLITE_OK)
		r = sqlite3_bind_text(statement, 2, read->after_file, -1, SQLITE_STATIC);
	if (r == SQLITE_OK)
		r = sqlite3_bind_int64(statement, 3, (sqlite3_int64)read->generation);
	if (r == SQLITE_OK)
		r = sqlite3_step(statement);
	if (r == SQLITE_ROW) {
		component.file = (const char *)sqlite3_column_text(statement, 0);
		component.body = (const char *)sqlite3_column_text(statement, 1);
		component.body_length = (size_t)sqlite3_column_bytes(statement, 1);
		result = component.file && component.body ? STORE_OK : STORE_DEGRADED;
	} else if (r == SQLITE_DONE) {
		result = STORE_NOT_FOUND;
	}
	read->component_read(read->userdata, result, result == STORE_OK ? &component : NULL);
	(void)sqlite3_reset(statement);
	(void)sqlite3_clear_bindings(statement);
}

static void read_frames_use(struct sqlite_store *s, struct read *read)
{
	sqlite3_stmt *statement = s->statement[QUERY_FRAMES_USE];
	int r = SQLITE_ROW;

	while ((r = sqlite3_step(statement)) == SQLITE_ROW) {
		const struct store_frames_use use = {
			.owner = (const char *)sqlite3_column_text(statement, 0),
			.workspace = (const char *)sqlite3_column_text(statement, 1),
			.bytes = (uint64_t)sqlite3_column_int64(statement, 2),
		};

		if (use.owner && use.workspace)
			read->use_seen(read->userdata, STORE_OK, &use);
	}
	(void)sqlite3_reset(statement);
	read->use_seen(read->userdata, r == SQLITE_DONE ? STORE_NOT_FOUND : STORE_DEGRADED, NULL);
}

static void read_airbyte(struct sqlite_store *s, struct read *read)
{
	bool is_list = read->viewer->is_list;
	sqlite3_stmt *statement = s->statement[is_list ? QUERY_AIRBYTE_LIST : QUERY_AIRBYTE_GET];
	struct value values[READ_AIRBYTE_VALUES];
	char id[ID_TEXT_BYTES];
	bool found = false;
	int r;

	r = sqlite_bind(statement, values, read_airbyte_values(read, id, values));
	while (r == SQLITE_OK || (r == SQLITE_ROW && is_list)) {
		r = sqlite3_step(statement);
		if (r != SQLITE_ROW)
			break;
		const struct columns columns = columns_of(statement);
		const struct store_airbyte row = {
			.id = columns.text[0],
			.name = columns.text[1],
			.name_length = (size_t)sqlite3_column_bytes(statement, 1),
			.connection_id = columns.text[2],
			.files_json = columns.text[3],
		};

		found = true;
		if (row.id && row.name && row.connection_id && row.files_json)
			read->airbyte_read(read->userdata, STORE_OK, &row);
		else if (!is_list)
			read->airbyte_read(read->userdata, STORE_NOT_FOUND, NULL);
	}
	(void)sqlite3_reset(statement);
	(void)sqlite3_clear_bindings(statement);
	if (is_list || !found)
		read->airbyte_read(read->userdata,
				   r == SQLITE_DONE ? STORE_NOT_FOUND : STORE_DEGRADED, NULL);
}

void sqlite_do_reads(struct sqlite_store *s)
{
	struct list *last = s->queue.reads.prev;
	bool end = list_empty(&s->queue.reads);

	/* Reads that a callback queues wait for the next flush. */
	while (!end) {
		struct read *read = LIST_ENTRY(s->queue.reads.next, struct read, link);

		end = &read->link == last;
		list_remove(&read->link);
		if (read->task_read && read->of_session)
			read_tasks(s, read);
		else if (read->task_read)
			read_task(s, read);
		else if (read->frames_read)
			read_frames(s, read);
		else if (read->component_read)
			read_component(s, read);
		else if (read->use_seen)
			read_frames_use(s, read);
		else if (read->airbyte_read)
			read_airbyte(s, read);
		queue_free_read(read);
	}
}

int sqlite_each_open_session(struct store *store, store_session_seen seen, void *userdata)
{
	sqlite3_stmt *statement = sqlite_store_of(store)->statement[QUERY_SESSIONS_OPEN];
	struct store_session row;
	int r = 0;
	int rc;

	while ((rc = sqlite3_step(statement)) == SQLITE_ROW) {
		const struct columns columns = columns_of(statement);

		/* A row that is none of ours is left alone. */
		if (rows_read_session(&columns, &row) < 0)
			continue;
		r = seen(userdata, &row);
		if (r < 0)
			break;
	}
	(void)sqlite3_reset(statement);
	if (r < 0)
		return r;
	return migrate_errno(rc);
}

int sqlite_each_redis_left(struct store *store, uint32_t max, store_id_seen seen, void *userdata)
{
	sqlite3_stmt *statement = sqlite_store_of(store)->statement[QUERY_REDIS_LEFT];
	int rc = sqlite3_bind_int64(statement, 1, max);
	int r = 0;

	while (r >= 0 && (rc == SQLITE_OK || rc == SQLITE_ROW)) {
		const char *text;
		struct id id;

		rc = sqlite3_step(statement);
		if (rc != SQLITE_ROW)
			break;
		text = (const char *)sqlite3_column_text(statement, 0);
		if (text && id_parse(text, &id) == 0)
			r = seen(userdata, &id);
	}
	(void)sqlite3_reset(statement);
	return r < 0 ? r : migrate_errno(rc);
}

int sqlite_each_open_task(struct store *store, store_task_seen seen, void *userdata)
{
	sqlite3_stmt *statement = sqlite_store_of(store)->statement[QUERY_TASKS_OPEN];
	struct store_task task;
	int r = 0;
	int rc;

	while ((rc = sqlite3_step(statement)) == SQLITE_ROW) {
		if (read_task_row(statement, &task) < 0)
			continue;
		r = seen(userdata, &task);
		if (r < 0)
			break;
	}
	(void)sqlite3_reset(statement);
	if (r < 0)
		return r;
	return migrate_errno(rc);
}

int sqlite_each_usage(struct store *store, uint32_t day, store_usage_seen seen, void *userdata)
{
	sqlite3_stmt *statement = sqlite_store_of(store)->statement[QUERY_USAGES];
	int rc = sqlite3_bind_int64(statement, 1, day);
	int r = 0;

	while (rc == SQLITE_OK || rc == SQLITE_ROW) {
		struct store_usage usage = {.day = day};

		rc = sqlite3_step(statement);
		if (rc != SQLITE_ROW)
			break;
		usage.scope = (uint32_t)sqlite3_column_int64(statement, 0);
		usage.name = (const char *)sqlite3_column_text(statement, 1);
		usage.cpu_us = (uint64_t)sqlite3_column_int64(statement, 2);
		r = usage.name ? seen(userdata, &usage) : 0;
		if (r < 0)
			break;
	}
	(void)sqlite3_reset(statement);
	return r < 0 ? r : migrate_errno(rc);
}

static int read_progress(struct sqlite_store *s, const char *id, struct store_progress *progress)
{
	sqlite3_stmt *statement = s->statement[QUERY_TASK_PROGRESS];
	int rc;

	rc = sqlite3_bind_text(statement, 1, id, -1, SQLITE_STATIC);
	if (rc == SQLITE_OK)
		rc = sqlite3_step(statement);
	if (rc == SQLITE_ROW)
		*progress = (struct store_progress){
			.resumable = sqlite3_column_int(statement, 0) != 0,
			.n_assets_shown = (uint32_t)sqlite3_column_int64(statement, 1),
			.n_problems_shown = (uint32_t)sqlite3_column_int64(statement, 2),
			.n_dropped = (uint32_t)sqlite3_column_int64(statement, 3),
			.frames_bytes = (uint64_t)sqlite3_column_int64(statement, 4),
		};
	(void)sqlite3_reset(statement);
	(void)sqlite3_clear_bindings(statement);
	if (rc == SQLITE_DONE)
		return -ENOENT;
	return migrate_errno(rc);
}

int sqlite_task_progress(struct store *store, const struct id *task,
			 struct store_progress *ret_progress, store_output_seen seen,
			 void *userdata)
{
	struct sqlite_store *s = sqlite_store_of(store);
	sqlite3_stmt *statement = s->statement[QUERY_OUTPUT_GET];
	struct store_progress progress;
	char id[ID_TEXT_BYTES];
	int rc;
	int r;

	id_format(task, id);
	r = read_progress(s, id, &progress);
	if (r < 0)
		return r;
	rc = sqlite3_bind_text(statement, 1, id, -1, SQLITE_STATIC);
	if (rc == SQLITE_OK)
		rc = sqlite3_step(statement);
	for (; r >= 0 && rc == SQLITE_ROW; rc = sqlite3_step(statement)) {
		struct store_output output = {.data = sqlite3_column_blob(statement, 0)};

		output.size = (size_t)sqlite3_column_bytes(statement, 0);
		r = seen(userdata, &output);
	}
	(void)sqlite3_reset(statement);
	(void)sqlite3_clear_bindings(statement);
	if (r >= 0)
		r = migrate_errno(rc);
	if (r == 0)
		*ret_progress = progress;
	return r;
}
