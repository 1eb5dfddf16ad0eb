#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/str.h"

#include "sandboxd/limits.h"
#include "supervisor/api/store/pg_store.h"
#include "supervisor/api/store/postgres.h"

#define OPEN_TIMEOUT  (10 * USEC_PER_SEC) /* below the supervisor's patience with a new worker */
#define ASK_TIMEOUT   (6 * USEC_PER_SEC)  /* above the server's own bound of a statement */
#define CLOSE_TIMEOUT (2 * USEC_PER_SEC)

/* ---- a turn ---- */

static bool somebody_waits(const struct store_queue *queue)
{
	return !list_empty(&queue->waiting) || !list_empty(&queue->in_flight) ||
	       !list_empty(&queue->reads) || !list_empty(&queue->reading);
}

/* What no event says: it is time to try again, or to stop waiting. */
static void check_clock(struct pg_store *s, usec_t now)
{
	struct store_queue *queue = &s->queue;

	if (s->state == PG_STATE_DOWN && now >= queue->retry_at)
		pg_connect(s, now);
	if (pg_is_connecting(s) && now >= s->deadline) {
		s->err = ERR_NULL;
		(void)err_fail(&s->err, -ETIMEDOUT, "store", "the server does not answer");
		pg_disconnect(s, now, "connect");
	}
	if (!somebody_waits(queue)) {
		s->waiting_since = 0;
		/* Reads were slow, and no commit is due that would say that this is over. */
		if (s->state == PG_STATE_READY)
			queue->stats.degraded = false;
		return;
	}
	if (s->waiting_since == 0)
		s->waiting_since = now;
	if (now - s->waiting_since >= PG_PATIENCE) {
		if (!queue->stats.degraded)
			queue->stats.reason = "the server answers slowly";
		queue->stats.degraded = true;
	}
	if (s->state == PG_STATE_READY && !list_empty(&s->sent) &&
	    now - s->waiting_since >= PG_ANSWER_TIMEOUT) {
		pg_disconnect(s, now, "no answer");
		s->waiting_since = now;
	}
}

static void send_all(struct pg_store *s, usec_t now)
{
	if (s->state == PG_STATE_READY)
		pg_batch_send(s, now);
	if (s->state == PG_STATE_READY)
		pg_reads_send(s, now);
	if (s->state == PG_STATE_READY)
		pg_lease_send(s, now);
	if (s->state == PG_STATE_READY)
		pg_flush_out(s, now);
}

static void pg_flush(struct store *store, usec_t now)
{
	struct pg_store *s = pg_store_of(store);

	check_clock(s, now);
	send_all(s, now);
	pg_reads_deliver(s);
	queue_tell_finished(&s->queue);
	if (!s->queue.stats.degraded)
		return;
	queue_tell_degraded(&s->queue);
	if (s->state != PG_STATE_READY || now - s->waiting_since >= PG_PATIENCE)
		pg_reads_refuse(s);
}

static usec_t earlier(usec_t a, usec_t b)
{
	return a < b ? a : b;
}

static usec_t next_work(const struct store *store)
{
	const struct pg_store *s = pg_store_of_const(store);
	const struct store_queue *queue = &s->queue;
	bool degraded = queue->stats.degraded;
	usec_t next = USEC_NEVER;

	if (!list_empty(&queue->finished) || !list_empty(&s->answered) ||
	    (degraded && queue_has_untold(queue)))
		return 0;
	if (pg_is_connecting(s))
		next = s->deadline;
	else if (s->state == PG_STATE_DOWN ||
		 (!list_empty(&queue->waiting) && list_empty(&queue->in_flight)))
		next = queue->retry_at;
	if (!list_empty(&queue->reads) &&
	    (s->state == PG_STATE_READY ? pg_reads_may_send(s) : degraded))
		return 0;
	if (!somebody_waits(queue))
		return next;
	if (s->waiting_since == 0)
		return 0;
	if (!degraded)
		return earlier(next, s->waiting_since + PG_PATIENCE);
	return s->state == PG_STATE_READY && !list_empty(&s->sent)
		       ? earlier(next, s->waiting_since + PG_ANSWER_TIMEOUT)
		       : next;
}

static usec_t pg_next_wakeup(const struct store *store)
{
	return earlier(next_work(store), pg_lease_next(pg_store_of_const(store)));
}

/* ---- waiting, at start and at the end ---- */

/* One wait for the socket, and what it brought. */
static void spin(struct pg_store *s, usec_t until)
{
	usec_t now = clock_boottime();
	struct pollfd socket = {.fd = -1, .events = POLLIN};
	usec_t end = until;

	if (s->state == PG_STATE_DOWN && now >= s->queue.retry_at)
		pg_connect(s, now);
	if (s->state == PG_STATE_DOWN)
		end = earlier(end, s->queue.retry_at);
	else if (s->state != PG_STATE_READY)
		end = earlier(end, s->deadline);
	if (s->conn) {
		socket.fd = PQsocket(s->conn);
		socket.events |= s->wants_write ? POLLOUT : 0;
	} else if (s->state == PG_STATE_RESOLVING) {
		socket.fd = names_fd(s->names);
	}
	/* A signal that interrupts it is seen at the caller's next look. */
	if (end > now)
		(void)poll(&socket, 1, (int)((end - now) / USEC_PER_MS) + 1);
	now = clock_boottime();
	if (socket.revents != 0 && s->state == PG_STATE_RESOLVING)
		names_process(s->names);
	else if (socket.revents != 0)
		pg_drive(s, now);
	check_clock(s, now);
}

static int ask_until(struct pg_store *s, usec_t until, unsigned int query,
		     const struct value *values, size_t n_values, PGresult **ret_result)
{
	if (s->state != PG_STATE_READY)
		return -EIO;
	s->now_done = false;
	s->now_result = NULL;
	if (!pg_sent_new(s, PG_SENT_NOW))
		return -ENOMEM;
	if (!pg_send(s, query, values, n_values) || !pg_sync(s)) {
		pg_disconnect(s, clock_boottime(), "send");
		return -EIO;
	}
	pg_flush_out(s, clock_boottime());
	while (!s->now_done && s->state == PG_STATE_READY && clock_boottime() < until)
		spin(s, until);
	if (!s->now_done && s->state == PG_STATE_READY)
		pg_disconnect(s, clock_boottime(), "no answer");
	if (s->now_result && PQresultStatus(s->now_result) != PGRES_TUPLES_OK &&
	    PQresultStatus(s->now_result) != PGRES_COMMAND_OK) {
		PQclear(s->now_result);
		s->now_result = NULL;
	}
	*ret_result = s->now_result;
	s->now_result = NULL;
	return *ret_result ? 0 : -EIO;
}

int pg_ask(struct pg_store *s, unsigned int query, const struct value *values, size_t n_values,
	   PGresult **ret_result)
{
	return ask_until(s, clock_add(clock_boottime(), ASK_TIMEOUT), query, values, n_values,
			 ret_result);
}

static void pg_free(struct pg_store *s)
{
	s->source = sd_event_source_disable_unref(s->source);
	for (size_t i = 0; i < PG_HOSTS_MAX; i++)
		names_cancel(&s->query[i]);
	PQfinish(s->conn);
	LIST_FOR_EACH_SAFE (link, following, &s->sent)
		pg_sent_free(LIST_ENTRY(link, struct pg_sent, link));
	LIST_FOR_EACH_SAFE (link, following, &s->answered)
		pg_sent_free(LIST_ENTRY(link, struct pg_sent, link));
	holds_done(&s->unsure);
	queue_done(&s->queue);
	pg_dsn_done(&s->dsn);
	s->event = sd_event_unref(s->event);
	free(s->instance);
	free(s);
}

static bool is_written(const struct pg_store *s)
{
	return list_empty(&s->queue.waiting) && list_empty(&s->queue.in_flight);
}

static void write_all(struct pg_store *s, usec_t until)
{
	while (!is_written(s) && clock_boottime() < until) {
		send_all(s, clock_boottime());
		spin(s, until);
	}
}

/* A last try for what waits; what fails now was told as degraded, or nobody was told. */
static void pg_close(struct store *store)
{
	struct pg_store *s = pg_store_of(store);

	write_all(s, clock_add(clock_boottime(), CLOSE_TIMEOUT));
	pg_free(s);
}

static void pg_give_back(struct store *store, const struct id *sessions, size_t n)
{
	struct pg_store *s = pg_store_of(store);
	usec_t until = clock_add(clock_boottime(), CLOSE_TIMEOUT);
	AUTO_FREE char *ids = queue_id_array(sessions, n);
	PGresult *result = NULL;
	const struct value values[] = {
		value_integer((int64_t)s->generation),
		value_text(ids),
	};

	write_all(s, until);
	if (ids && is_written(s))
		IGNORE_RESULT(ask_until(s, until, PG_QUERY_GIVE_BACK, values, ARRAY_SIZE(values),
					&result));
	PQclear(result);
}

/* ---- start ---- */

static int wait_ready(struct pg_store *s, struct err *err)
{
	usec_t until = clock_add(clock_boottime(), OPEN_TIMEOUT);

	while (s->state != PG_STATE_READY && !s->is_refused && clock_boottime() < until)
		spin(s, until);
	if (s->state == PG_STATE_READY)
		return 0;
	if (s->err.error_number == 0)
		return err_fail(err, -ETIMEDOUT, "store", "the server does not answer");
	*err = s->err;
	return -err->error_number;
}

int store_open_postgres(const struct postgres_options *options, struct store **ret_store,
			struct err *err)
{
	struct pg_store *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return err_fail(err, -ENOMEM, "store", "no memory");
	list_init(&s->sent);
	list_init(&s->answered);
	s->event = sd_event_ref(options->event);
	s->names = options->names;
	s->instance = strdup(options->instance);
	r = queue_init(&s->queue, &pg_ops, options->host, options->max_waiting_bytes);
	r = r == 0 && s->instance
		    ? pg_dsn_parse(&s->dsn, options->dsn, options->password, false, err)
		    : err_fail(err, -ENOMEM, "store", "no memory");
	if (r == 0)
		r = wait_ready(s, err);
	if (r < 0) {
		pg_free(s);
		return r;
	}
	*ret_store = &s->queue.store;
	return 0;
}

static int make_instance(int state_fd, int fd, char text[ID_TEXT_BYTES])
{
	struct id id;
	int r;

	r = id_random(&id);
	if (r < 0)
		return r;
	id_format(&id, text);
	r = io_write_all(fd, text, strlen(text));
	/* Rows will bear it: it must not be another one after a crash. */
	return r == 0 && (fsync(fd) < 0 || fsync(state_fd) < 0) ? -errno : r;
}

int postgres_instance(int state_fd, char text[ID_TEXT_BYTES])
{
	AUTO_CLOSE int fd = openat(state_fd, STORE_INSTANCE_NAME,
				   O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	struct id id;
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = io_read(fd, text, ID_TEXT_BYTES - 1);
	if (n < 0)
		return (int)n;
	/* Empty: it is new, or a start that made it got no further. */
	if (n == 0)
		return make_instance(state_fd, fd, text);
	text[n] = '\0';
	return id_parse(text, &id);
}

/* The table is the platform's: it is read. */
static int no_airbyte_put(struct store *store, const struct store_airbyte_put *row, usec_t now,
			  store_done done, void *userdata)
{
	(void)store;
	(void)row;
	(void)now;
	(void)done;
	(void)userdata;
	return -EOPNOTSUPP;
}

static int no_airbyte_drop(struct store *store, const char *row_id, store_done done, void *userdata)
{
	(void)store;
	(void)row_id;
	(void)done;
	(void)userdata;
	return -EOPNOTSUPP;
}

const struct store_ops pg_ops = {
	.close = pg_close,
	.each_open_session = pg_each_open_session,
	.each_open_task = pg_each_open_task,
	.task_progress = pg_task_progress,
	.hold = queue_hold,
	.let_go = queue_let_go,
	.session_check = queue_session_check,
	.lease_lapsed = pg_lease_lapsed,
	.lease_regained = pg_lease_regained,
	.lease_end = pg_lease_end,
	.give_back = pg_give_back,
	.session_insert = queue_session_insert,
	.session_status = queue_session_status,
	.session_component = queue_session_component,
	.session_tree = queue_session_tree,
	.session_log = queue_session_log,
	.session_close = queue_session_close,
	.session_egress = queue_session_egress,
	.registry_put = queue_registry_put,
	.session_runtime = queue_session_runtime,
	.session_redis = queue_session_redis,
	.each_redis_left = pg_each_redis_left,
	.task_insert = queue_task_insert,
	.task_state = queue_task_state,
	.frames_put = queue_frames_put,
	.task_get = queue_task_get,
	.tasks_of_session = queue_tasks_of_session,
	.frames_get = queue_frames_get,
	.component_get = queue_component_get,
	.session_take = queue_session_take,
	.airbyte_get = queue_airbyte_get,
	.airbyte_put = no_airbyte_put,
	.airbyte_drop = no_airbyte_drop,
	.usage_put = queue_usage_put,
	.each_usage = pg_each_usage,
	.frames_use = queue_frames_use,
	.sessions_gone = queue_sessions_gone,
	.retain = queue_retain,
	.forget = queue_forget,
	.flush = pg_flush,
	.next_wakeup = pg_next_wakeup,
	.stats = queue_stats,
};
