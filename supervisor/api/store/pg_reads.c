#include <errno.h>
#include <string.h>

#include "base/num.h"

#include "supervisor/api/store/pg_store.h"

#define READS_MAX_SENT 32
#define UNSURE_MAX     1024

/* ---- sending ---- */

static bool is_in(const struct holds *holds, const struct id *session)
{
	return holds_fence(holds, session) != FENCE_ANY;
}

static bool send_take(struct pg_store *s, const struct read *read, struct pg_sent *sent)
{
	const struct read_viewer *viewer = read->viewer;
	char id[ID_TEXT_BYTES];

	sent->takes = true;
	/* One that is held is in memory: whoever asks will find it. */
	sent->takes_again = is_in(&s->unsure, &read->id) && !is_in(&s->queue.holds, &read->id);

	const struct value wanted[] = {
		value_integer(viewer->sees_all),
		value_text_or_null(viewer->owner),
		value_text_or_null(viewer->workspace),
		value_id(&read->id, id),
		value_text(s->queue.host),
		value_integer(sent->takes_again),
	};

	return pg_send(s, PG_QUERY_TAKE, wanted, ARRAY_SIZE(wanted));
}

static bool send_read(struct pg_store *s, const struct read *read, struct pg_sent *sent)
{
	char id[ID_TEXT_BYTES];
	struct value values[4] = {value_id(&read->id, id)};

	if (read->use_seen)
		return pg_send(s, QUERY_FRAMES_USE, NULL, 0);
	if (read->gone_seen) {
		values[0] = value_text(read->sessions);
		return pg_send(s, PG_QUERY_GONE, values, 1);
	}
	if (read->session_read)
		return send_take(s, read, sent);
	if (read->airbyte_read) {
		struct value wanted[READ_AIRBYTE_VALUES];
		size_t n = read_airbyte_values(read, id, wanted);

		return pg_send(s, read->viewer->is_list ? QUERY_AIRBYTE_LIST : QUERY_AIRBYTE_GET,
			       wanted, n);
	}
	if (read->task_read && read->of_session) {
		values[1] = value_integer(STORE_TASKS_MAX);
		return pg_send(s, QUERY_TASKS_OF_SESSION, values, 2);
	}
	if (read->task_read)
		return pg_send(s, QUERY_TASK_GET, values, 1);
	if (read->component_read) {
		values[1] = value_text(read->after_file);
		values[2] = value_integer((int64_t)read->generation);
		return pg_send(s, QUERY_COMPONENT_GET, values, 3);
	}
	values[1] = value_integer(read->after);
	values[2] = value_integer((int64_t)read->max_bytes);
	values[3] = value_integer(FRAMES_A_READ + 1);
	return pg_send(s, QUERY_FRAMES_GET, values, 4);
}

bool pg_reads_may_send(const struct pg_store *s)
{
	uint32_t n = 0;

	LIST_FOR_EACH (link, &s->queue.reading)
		n++;
	return n < READS_MAX_SENT;
}

void pg_reads_send(struct pg_store *s, usec_t now)
{
	LIST_FOR_EACH_SAFE (link, following, &s->queue.reads) {
		struct read *read = LIST_ENTRY(link, struct read, link);
		struct pg_sent *sent;

		if (!pg_reads_may_send(s))
			break;
		sent = pg_sent_new(s, PG_SENT_READ);
		if (!sent)
			break;
		list_remove(link);
		list_append(&s->queue.reading, link);
		sent->read = read;
		if (!send_read(s, read, sent) || !pg_sync(s)) {
			pg_disconnect(s, now, "send");
			return;
		}
	}
}

/* ---- answers ---- */

static struct columns columns_of(const PGresult *result, int row)
{
	struct columns columns = {0};
	int n = PQnfields(result);

	ASSERT(n <= COLUMNS_MAX);
	for (int i = 0; i < n; i++)
		columns.text[i] = PQgetisnull(result, row, i) ? NULL : PQgetvalue(result, row, i);
	return columns;
}

static void deliver_task(const struct read *read, const PGresult *result)
{
	struct store_task task;
	bool found = false;

	if (PQntuples(result) > 0) {
		const struct columns columns = columns_of(result, 0);

		found = rows_read_task(&columns, &task) == 0;
	}
	read->task_read(read->userdata, found ? STORE_OK : STORE_NOT_FOUND, found ? &task : NULL);
}

static void deliver_tasks(const struct read *read, const PGresult *result)
{
	for (int i = 0; i < PQntuples(result) && read->task_read; i++) {
		const struct columns columns = columns_of(result, i);
		struct store_task task;

		if (rows_read_task(&columns, &task) == 0)
			read->task_read(read->userdata, STORE_OK, &task);
	}
	if (read->task_read)
		read->task_read(read->userdata, STORE_NOT_FOUND, NULL);
}

static void deliver_frames(const struct read *read, const PGresult *result)
{
	struct store_frame frames[FRAMES_A_READ];
	size_t bytes = 0;
	bool more = false;
	size_t n = 0;

	for (int i = 0; i < PQntuples(result); i++) {
		size_t size = (size_t)PQgetlength(result, i, 2);
		int stage = frames_stage_from_text(PQgetvalue(result, i, 1));
		uint32_t seq;

		if (n == FRAMES_A_READ || (n > 0 && bytes + size > read->max_bytes)) {
			more = true;
			break;
		}
		if (stage < 0 || num_parse_u32(PQgetvalue(result, i, 0), 0, UINT32_MAX, &seq) < 0)
			continue;
		frames[n++] = (struct store_frame){
			.seq = seq,
			.stage = (enum frames_stage)stage,
			.text = PQgetvalue(result, i, 2),
			.size = size,
		};
		bytes += size;
	}
	read->frames_read(read->userdata, STORE_OK, frames, n, more);
}

static void deliver_component(const struct read *read, const PGresult *result)
{
	struct store_component component = {0};

	if (PQntuples(result) == 0) {
		read->component_read(read->userdata, STORE_NOT_FOUND, NULL);
		return;
	}
	component.file = PQgetvalue(result, 0, 0);
	component.body = PQgetvalue(result, 0, 1);
	component.body_length = (size_t)PQgetlength(result, 0, 1);
	read->component_read(read->userdata, STORE_OK, &component);
}

static void deliver_use(const struct read *read, const PGresult *result)
{
	for (int i = 0; i < PQntuples(result) && read->use_seen; i++) {
		const struct columns columns = columns_of(result, i);
		const struct store_frames_use use = {
			.owner = columns.text[0],
			.workspace = columns.text[1],
			.bytes = columns_number(&columns, 2),
		};

		read->use_seen(read->userdata, STORE_OK, &use);
	}
	if (read->use_seen)
		read->use_seen(read->userdata, STORE_NOT_FOUND, NULL);
}

static void deliver_gone(const struct read *read, const PGresult *result)
{
	for (int i = 0; i < PQntuples(result) && read->gone_seen; i++) {
		const struct columns columns = columns_of(result, i);
		struct store_gone gone = {.not_before = columns_number(&columns, 1)};

		if (columns.text[0] && id_parse(columns.text[0], &gone.session) == 0)
			read->gone_seen(read->userdata, STORE_OK, &gone);
	}
	if (read->gone_seen)
		read->gone_seen(read->userdata, STORE_NOT_FOUND, NULL);
}

static void deliver_airbyte(const struct read *read, const PGresult *result)
{
	int n = PQntuples(result);

	for (int i = 0; i < n && read->airbyte_read; i++) {
		const struct store_airbyte row = {
			.id = PQgetvalue(result, i, 0),
			.name = PQgetvalue(result, i, 1),
			.name_length = (size_t)PQgetlength(result, i, 1),
			.connection_id = PQgetvalue(result, i, 2),
			.files_json = PQgetvalue(result, i, 3),
		};

		read->airbyte_read(read->userdata, STORE_OK, &row);
	}
	if (read->airbyte_read && (read->viewer->is_list || n == 0))
		read->airbyte_read(read->userdata, STORE_NOT_FOUND, NULL);
}

static void deliver_session(const struct read *read, const PGresult *result)
{
	struct store_session row;
	bool found = false;

	if (PQntuples(result) > 0) {
		const struct columns columns = columns_of(result, 0);

		found = rows_read_session(&columns, &row) == 0;
	}
	read->session_read(read->userdata, found ? STORE_OK : STORE_NOT_FOUND, found ? &row : NULL);
}

/* A session that was taken and that nobody here knows of would be nobody's until the next start:
 * its next seeker may find it ours. */
static void note_taking(struct pg_store *s, const struct pg_sent *sent)
{
	bool is_taken = !sent->result || (PQresultStatus(sent->result) == PGRES_TUPLES_OK &&
					  PQntuples(sent->result) > 0);

	if (!sent->takes || !is_taken)
		return;
	if (sent->result && sent->read->session_read)
		holds_drop(&s->unsure, &sent->read->id);
	else if (s->unsure.n < UNSURE_MAX)
		IGNORE_RESULT(holds_set(&s->unsure, &sent->read->id, 0));
}

static void refuse(const struct read *read)
{
	if (read->task_read)
		read->task_read(read->userdata, STORE_DEGRADED, NULL);
	else if (read->frames_read)
		read->frames_read(read->userdata, STORE_DEGRADED, NULL, 0, false);
	else if (read->component_read)
		read->component_read(read->userdata, STORE_DEGRADED, NULL);
	else if (read->use_seen)
		read->use_seen(read->userdata, STORE_DEGRADED, NULL);
	else if (read->gone_seen)
		read->gone_seen(read->userdata, STORE_DEGRADED, NULL);
	else if (read->airbyte_read)
		read->airbyte_read(read->userdata, STORE_DEGRADED, NULL);
	else if (read->session_read)
		read->session_read(read->userdata, STORE_DEGRADED, NULL);
}

static void deliver(const struct read *read, const PGresult *result)
{
	if (!result || PQresultStatus(result) != PGRES_TUPLES_OK)
		refuse(read);
	else if (read->task_read && read->of_session)
		deliver_tasks(read, result);
	else if (read->task_read)
		deliver_task(read, result);
	else if (read->frames_read)
		deliver_frames(read, result);
	else if (read->component_read)
		deliver_component(read, result);
	else if (read->use_seen)
		deliver_use(read, result);
	else if (read->gone_seen)
		deliver_gone(read, result);
	else if (read->airbyte_read)
		deliver_airbyte(read, result);
	else if (read->session_read)
		deliver_session(read, result);
}

void pg_reads_deliver(struct pg_store *s)
{
	struct list *last = s->answered.prev;
	bool end = list_empty(&s->answered);

	/* Callbacks may lose the connection for nobody: they only queue. */
	while (!end) {
		struct pg_sent *sent = LIST_ENTRY(s->answered.next, struct pg_sent, link);

		end = &sent->link == last;
		list_remove(&sent->link);
		note_taking(s, sent);
		deliver(sent->read, sent->result);
		pg_sent_free(sent);
	}
}

static void silence(struct read *read)
{
	read->task_read = NULL;
	read->frames_read = NULL;
	read->component_read = NULL;
	read->use_seen = NULL;
	read->gone_seen = NULL;
	read->airbyte_read = NULL;
	read->session_read = NULL;
}

void pg_reads_refuse(struct pg_store *s)
{
	struct list *last = s->queue.reads.prev;
	bool end = list_empty(&s->queue.reads);

	/* The answer of those that were sent is thrown away when it comes. */
	LIST_FOR_EACH (link, &s->queue.reading) {
		struct read *read = LIST_ENTRY(link, struct read, link);
		const struct read copy = *read;

		silence(read);
		refuse(&copy);
	}
	while (!end) {
		struct read *read = LIST_ENTRY(s->queue.reads.next, struct read, link);

		end = &read->link == last;
		list_remove(&read->link);
		refuse(read);
		queue_free_read(read);
	}
}

/* ---- at start ---- */

int pg_each_open_session(struct store *store, store_session_seen seen, void *userdata)
{
	struct pg_store *s = pg_store_of(store);
	const struct value host = value_text(s->queue.host);
	PGresult *result = NULL;
	int r;

	/* Before they are read: from here on nobody takes them. */
	r = pg_lease_ask(s);
	/* Rows that the platform wrote and that nobody has taken. */
	if (r == 0)
		r = pg_ask(s, PG_QUERY_CLAIM, &host, 1, &result);
	PQclear(result);
	result = NULL;
	if (r == 0)
		r = pg_ask(s, QUERY_SESSIONS_OPEN, NULL, 0, &result);
	for (int i = 0; r == 0 && i < PQntuples(result); i++) {
		const struct columns columns = columns_of(result, i);
		struct store_session row;

		/* A row that is none of ours is left alone. */
		if (rows_read_session(&columns, &row) == 0)
			r = seen(userdata, &row);
	}
	PQclear(result);
	return r < 0 ? r : 0;
}

int pg_each_open_task(struct store *store, store_task_seen seen, void *userdata)
{
	PGresult *result = NULL;
	int r = pg_ask(pg_store_of(store), QUERY_TASKS_OPEN, NULL, 0, &result);

	for (int i = 0; r == 0 && i < PQntuples(result); i++) {
		const struct columns columns = columns_of(result, i);
		struct store_task task;

		if (rows_read_task(&columns, &task) == 0)
			r = seen(userdata, &task);
	}
	PQclear(result);
	return r < 0 ? r : 0;
}

int pg_each_redis_left(struct store *store, uint32_t max, store_id_seen seen, void *userdata)
{
	const struct value limit = value_integer(max);
	PGresult *result = NULL;
	int r = pg_ask(pg_store_of(store), QUERY_REDIS_LEFT, &limit, 1, &result);

	for (int i = 0; r == 0 && i < PQntuples(result); i++) {
		const struct columns columns = columns_of(result, i);
		struct id id;

		if (columns.text[0] && id_parse(columns.text[0], &id) == 0)
			r = seen(userdata, &id);
	}
	PQclear(result);
	return r < 0 ? r : 0;
}

int pg_each_usage(struct store *store, uint32_t day, store_usage_seen seen, void *userdata)
{
	const struct value of_day = value_integer(day);
	PGresult *result = NULL;
	int r = pg_ask(pg_store_of(store), QUERY_USAGES, &of_day, 1, &result);

	for (int i = 0; r == 0 && i < PQntuples(result); i++) {
		const struct columns columns = columns_of(result, i);
		const struct store_usage usage = {
			.day = day,
			.scope = (uint32_t)columns_number(&columns, 0),
			.name = columns.text[1],
			.cpu_us = columns_number(&columns, 2),
		};

		r = seen(userdata, &usage);
	}
	PQclear(result);
	return r < 0 ? r : 0;
}

static int read_progress(struct pg_store *s, const struct value *id,
			 struct store_progress *progress)
{
	PGresult *result = NULL;
	int r = pg_ask(s, QUERY_TASK_PROGRESS, id, 1, &result);

	if (r == 0 && PQntuples(result) == 0)
		r = -ENOENT;
	if (r == 0) {
		const struct columns columns = columns_of(result, 0);

		*progress = (struct store_progress){
			.resumable = columns_number(&columns, 0) != 0,
			.n_assets_shown = (uint32_t)columns_number(&columns, 1),
			.n_problems_shown = (uint32_t)columns_number(&columns, 2),
			.n_dropped = (uint32_t)columns_number(&columns, 3),
			.frames_bytes = columns_number(&columns, 4),
		};
	}
	PQclear(result);
	return r;
}

int pg_task_progress(struct store *store, const struct id *task,
		     struct store_progress *ret_progress, store_output_seen seen, void *userdata)
{
	struct pg_store *s = pg_store_of(store);
	struct store_progress progress;
	PGresult *result = NULL;
	char text[ID_TEXT_BYTES];
	const struct value id = value_id(task, text);
	int r;

	r = read_progress(s, &id, &progress);
	if (r == 0)
		r = pg_ask(s, QUERY_OUTPUT_GET, &id, 1, &result);
	for (int i = 0; r == 0 && i < PQntuples(result); i++) {
		const struct store_output output = {
			.data = PQgetvalue(result, i, 0),
			.size = (size_t)PQgetlength(result, i, 0),
		};

		r = seen(userdata, &output);
	}
	PQclear(result);
	if (r == 0)
		*ret_progress = progress;
	return r;
}
