/*
 * Theory. The connection goes round this circle:
 *
 *   DOWN        nothing; queue.retry_at is when the next try may begin
 *   RESOLVING   the addresses of its hosts are asked for, where they have names
 *   CONNECTING  libpq's own steps; the deadline ends them
 *   SETUP       who we are, what the schema is, statements; the deadline ends it
 *   READY       batches and reads; an answer that does not come ends it
 *
 * libpq closes and opens descriptors as it connects, so the loop's source is made again after each
 * step. What is sent between two Syncs is one transaction of the server's, and one struct pg_sent;
 * answers come in the order of the questions.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/log.h"

#include "sandboxd/limits.h"
#include "supervisor/api/store/pg_reason.h"
#include "supervisor/api/store/pg_store.h"

#define NUMBER_BYTES 24

struct pg_sent *pg_sent_new(struct pg_store *s, enum pg_sent_kind kind)
{
	struct pg_sent *sent = calloc(1, sizeof(*sent));

	if (!sent)
		return NULL;
	list_init(&sent->link);
	sent->kind = kind;
	list_append(&s->sent, &sent->link);
	return sent;
}

void pg_sent_free(struct pg_sent *sent)
{
	list_remove(&sent->link);
	if (sent->read) {
		list_remove(&sent->read->link);
		queue_free_read(sent->read);
	}
	PQclear(sent->result);
	free(sent);
}

/* ---- the loop ---- */

static int on_socket(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
	(void)source;
	(void)fd;
	(void)events;
	pg_drive(userdata, clock_boottime());
	return 0; /* the end of the turn flushes */
}

static void watch(struct pg_store *s)
{
	uint32_t events = EPOLLIN | (s->wants_write ? (uint32_t)EPOLLOUT : 0);
	int r = 0;

	if (!s->event)
		return;
	if (s->source)
		r = sd_event_source_set_io_events(s->source, events);
	else
		r = sd_event_add_io(s->event, &s->source, PQsocket(s->conn), events, on_socket, s);
	if (r < 0)
		log_line(LOG_LEVEL_ERROR, NULL, "the store's socket is not watched", "errno=%d",
			 -r);
}

static void unwatch(struct pg_store *s)
{
	s->source = sd_event_source_disable_unref(s->source);
}

void pg_flush_out(struct pg_store *s, usec_t now)
{
	int r = PQflush(s->conn);

	if (r < 0) {
		pg_disconnect(s, now, "write");
		return;
	}
	s->wants_write = r > 0;
	watch(s);
}

/* ---- sending ---- */

bool pg_sync(struct pg_store *s)
{
	return PQpipelineSync(s->conn) == 1;
}

bool pg_send(struct pg_store *s, unsigned int query, const struct value *values, size_t n_values)
{
	const struct pg_query_text *text = pg_query(query);
	char number[WRITE_MAX_VALUES][NUMBER_BYTES];
	const char *param[WRITE_MAX_VALUES];
	int length[WRITE_MAX_VALUES];
	int format[WRITE_MAX_VALUES];

	ASSERT(n_values <= WRITE_MAX_VALUES);
	for (size_t i = 0; i < n_values; i++) {
		format[i] = (text->binary_params & (1u << i)) != 0;
		length[i] = (int)values[i].size;
		param[i] = values[i].text;
		if (values[i].type == VALUE_NULL)
			param[i] = NULL;
		if (values[i].type != VALUE_INTEGER)
			continue;
		(void)snprintf(number[i], NUMBER_BYTES, "%lld", (long long)values[i].number);
		param[i] = number[i];
	}
	return PQsendQueryPrepared(s->conn, text->name, (int)n_values, param, length, format,
				   text->binary_result) == 1;
}

/* ---- the circle ---- */

void pg_disconnect(struct pg_store *s, usec_t now, const char *why)
{
	unwatch(s);
	for (size_t i = 0; i < PG_HOSTS_MAX; i++)
		names_cancel(&s->query[i]);
	if (s->err.error_number == 0)
		(void)err_fail(&s->err, -EIO, "store", "%s: connection lost", why);
	if (!s->queue.stats.degraded || s->state == PG_STATE_READY)
		log_err(LOG_LEVEL_ERROR, NULL, "no connection to the store", &s->err);
	PQfinish(s->conn);
	s->conn = NULL;
	s->state = PG_STATE_DOWN;
	s->wants_write = false;
	s->is_fenced = false;
	s->lease_is_renewed = false;
	pg_batch_lost(s);
	LIST_FOR_EACH_SAFE (link, following, &s->sent) {
		struct pg_sent *sent = LIST_ENTRY(link, struct pg_sent, link);

		/* Its reader is told that the store does not answer. */
		if (sent->kind == PG_SENT_READ) {
			list_remove(link);
			list_append(&s->answered, link);
			continue;
		}
		s->now_done |= sent->kind == PG_SENT_NOW;
		pg_sent_free(sent);
	}
	queue_note_failure(&s->queue, now, s->err.text);
}

static void connect_failed(struct pg_store *s, usec_t now, const char *why)
{
	s->err = ERR_NULL;
	(void)err_fail(&s->err, -EIO, "store", "%s", why);
	pg_disconnect(s, now, "connect");
}

/* The library would print it: what a server, or a trigger of the platform's, has to say may repeat
 * values. */
static void drop_notice(void *arg, const PGresult *result)
{
	(void)arg;
	(void)result;
}

static void begin_connect(struct pg_store *s, usec_t now)
{
	s->conn = PQconnectStartParams(s->dsn.keyword, s->dsn.value, 0);
	if (!s->conn) {
		s->state = PG_STATE_DOWN;
		queue_note_failure(&s->queue, now, "no memory");
		return;
	}
	(void)PQsetNoticeReceiver(s->conn, drop_notice, NULL);
	s->state = PG_STATE_CONNECTING;
	if (PQstatus(s->conn) == CONNECTION_BAD) {
		connect_failed(s, now, pg_reason_of_connection(s->conn));
		return;
	}
	s->wants_write = true;
	watch(s);
}

static void on_addresses(struct pg_store *s, usec_t now)
{
	const struct names_answer *answer[PG_HOSTS_MAX];
	int r;

	/* An answer may come while the next name is asked for, and be the last one that counts. */
	if (s->state != PG_STATE_RESOLVING)
		return;
	for (size_t i = 0; i < s->dsn.n_hosts; i++) {
		if (s->query[i].question)
			return;
		answer[i] = &s->query[i].answer;
	}
	r = pg_dsn_place(&s->dsn, answer);
	if (r == 0)
		begin_connect(s, now);
	else
		connect_failed(s, now,
			       r == -ENOENT
				       ? "the server cannot be reached: its name has no address"
				       : "no memory");
}

static void on_name(void *userdata)
{
	on_addresses(userdata, clock_boottime());
}

static void look_up(struct pg_store *s, usec_t now)
{
	s->state = PG_STATE_RESOLVING;
	for (size_t i = 0; i < s->dsn.n_hosts; i++) {
		s->query[i] = (struct names_query){.done = on_name, .userdata = s};
		/* Without an answer it has none. */
		if (s->names)
			IGNORE_RESULT(names_ask(s->names, s->dsn.host[i], &s->query[i]));
	}
	on_addresses(s, now);
}

void pg_connect(struct pg_store *s, usec_t now)
{
	s->deadline = clock_add(now, PG_CONNECT_TIMEOUT);
	if (s->dsn.n_hosts > 0)
		look_up(s, now);
	else
		begin_connect(s, now);
}

static void begin_setup(struct pg_store *s, usec_t now)
{
	s->state = PG_STATE_SETUP;
	s->wants_write = false;
	watch(s);
	if (PQsetnonblocking(s->conn, 1) < 0 || PQenterPipelineMode(s->conn) != 1 ||
	    !pg_setup_send(s)) {
		connect_failed(s, now, "the connection cannot be set up");
		return;
	}
	pg_flush_out(s, now);
}

/* A refused login needs other words than a server that is not there, and no second try at start. */
static const char *why_not(struct pg_store *s)
{
	s->is_refused |= PQconnectionNeedsPassword(s->conn) || PQconnectionUsedPassword(s->conn) ||
			 strstr(PQerrorMessage(s->conn), "certificate");
	return pg_reason_of_connection(s->conn);
}

static void drive_connect(struct pg_store *s, usec_t now)
{
	PostgresPollingStatusType status;

	unwatch(s);
	status = PQconnectPoll(s->conn);
	switch (status) {
	case PGRES_POLLING_OK:
		begin_setup(s, now);
		return;
	case PGRES_POLLING_READING:
	case PGRES_POLLING_WRITING:
		s->wants_write = status == PGRES_POLLING_WRITING;
		watch(s);
		return;
	case PGRES_POLLING_FAILED:
	case PGRES_POLLING_ACTIVE:
		break;
	}
	connect_failed(s, now, why_not(s));
}

static void end_sync(struct pg_store *s, struct pg_sent *sent, usec_t now)
{
	switch (sent->kind) {
	case PG_SENT_SETUP:
		/* Not before: until our generation is committed, an older one may still write. */
		pg_batch_found(s, s->found_batch);
		s->state = PG_STATE_READY;
		s->renew_asked = 0; /* others may have come meanwhile */
		s->err = ERR_NULL;
		s->queue.stats.degraded = false;
		s->queue.retry_at = 0;
		s->queue.retry_delay = 0;
		log_line(LOG_LEVEL_INFO, NULL, "connected to the store", "generation=%llu",
			 (unsigned long long)s->generation);
		break;
	case PG_SENT_BATCH:
		pg_batch_done(s, sent, now);
		break;
	case PG_SENT_READ:
		list_remove(&sent->link);
		list_append(&s->answered, &sent->link);
		return;
	case PG_SENT_NOW:
		s->now_done = true;
		break;
	case PG_SENT_RENEW:
		break;
	}
	pg_sent_free(sent);
}

/* Only one service is this instance, unless a state directory was copied with its identity. Both
 * would take the place from each other with each write: not so often. */
static void fenced(struct pg_store *s, usec_t now)
{
	s->err = ERR_NULL;
	(void)err_fail(&s->err, -EIO, "store",
		       "another service writes as this one: of a state directory and its copy, "
		       "remove %s from one that is not running",
		       STORE_INSTANCE_NAME);
	pg_disconnect(s, now, "fenced");
	s->queue.retry_at = clock_add(now, PG_FENCED_PAUSE);
}

/* Takes the result. False: the connection is over. */
static bool take_result(struct pg_store *s, PGresult *result, usec_t now)
{
	struct pg_sent *sent = LIST_ENTRY(s->sent.next, struct pg_sent, link);
	int r = 0;

	s->waiting_since = now;
	if (list_empty(&s->sent)) {
		PQclear(result);
		pg_disconnect(s, now, "an answer that nobody asked for");
		return false;
	}
	if (PQresultStatus(result) == PGRES_PIPELINE_SYNC) {
		PQclear(result);
		end_sync(s, sent, now);
		if (!s->is_fenced)
			return true;
		s->is_fenced = false;
		fenced(s, now);
		return false;
	}
	switch (sent->kind) {
	case PG_SENT_SETUP:
		r = pg_setup_result(s, sent, result);
		break;
	case PG_SENT_BATCH:
		pg_batch_result(s, sent, result);
		break;
	case PG_SENT_READ:
		sent->result = TAKE_PTR(result);
		break;
	case PG_SENT_NOW:
		s->now_result = TAKE_PTR(result);
		break;
	case PG_SENT_RENEW:
		pg_lease_result(s, sent->asked, result, now);
		break;
	}
	PQclear(result);
	sent->n_results++;
	if (r == 0)
		return true;
	s->is_refused |= r == -EPROTONOSUPPORT;
	pg_disconnect(s, now, "setup");
	return false;
}

static void drive_results(struct pg_store *s, usec_t now)
{
	if (PQconsumeInput(s->conn) == 0) {
		pg_disconnect(s, now, "read");
		return;
	}
	while (!PQisBusy(s->conn)) {
		PGresult *result = PQgetResult(s->conn);

		/* Each query ends with a NULL; a second one in a row is the end of all. */
		if (!result) {
			if (list_empty(&s->sent) || PQisBusy(s->conn))
				break;
			result = PQgetResult(s->conn);
			if (!result)
				break;
		}
		if (!take_result(s, result, now))
			return;
	}
	if (PQstatus(s->conn) == CONNECTION_BAD) {
		pg_disconnect(s, now, "read");
		return;
	}
	pg_flush_out(s, now);
}

void pg_drive(struct pg_store *s, usec_t now)
{
	switch (s->state) {
	case PG_STATE_CONNECTING:
		drive_connect(s, now);
		break;
	case PG_STATE_SETUP:
	case PG_STATE_READY:
		drive_results(s, now);
		break;
	case PG_STATE_DOWN:
	case PG_STATE_RESOLVING:
	case PG_STATE_MAX_:
		break;
	}
}
