/*
 * Theory. All writes that wait go out as one transaction, which begins with the fence: it fails
 * unless this connection is the instance's newest, and notes the batch's number in the same
 * transaction. A write that can never succeed makes the whole transaction void; it has its result
 * then, and the others are sent again: answers come in the order of the writes. If the connection
 * is lost before the answer, the next one reads the number: at least ours, all of it is durable;
 * below, none of it ever will be.
 */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/num.h"
#include "base/str.h"

#include "supervisor/api/store/pg_reason.h"
#include "supervisor/api/store/pg_store.h"

#define BATCH_MAX_WRITES 512
#define NO_ROW_LEFT      "22012" /* our own: the division by the number of rows */
#define BATCH_MAX_BYTES  (4ull * 1024 * 1024)

/* Parameters of QUERY_SESSION_INSERT. */
#define INSERT_OWNER          4
#define INSERT_WORKSPACE      5
#define INSERT_PROJECT        6
#define INSERT_OWNER_TEXT     9
#define INSERT_WORKSPACE_TEXT 19
#define INSERT_PROJECT_TEXT   20
#define INSERT_TENANT         21
#define INSERT_N              22

static bool send_write(struct pg_store *s, const struct write *write)
{
	for (const struct write_step *step = write->first; step; step = step->next) {
		/* Values that only this store has are NULL at first. */
		size_t n = step->query == QUERY_SESSION_INSERT ? INSERT_N : step->n_values;

		if (!pg_send(s, step->query, step->value, n))
			return false;
	}
	return true;
}

/* The next answer is that of the first write from `link` on that was sent. */
static void await(struct pg_store *s, struct list *link)
{
	s->write = NULL;
	for (; !s->write && link != &s->queue.in_flight; link = link->next) {
		struct write *write = LIST_ENTRY(link, struct write, link);

		if (!write->decided)
			s->write = write;
	}
	s->step = s->write ? s->write->first : NULL;
}

void pg_batch_send(struct pg_store *s, usec_t now)
{
	const struct value fence[] = {
		value_integer((int64_t)s->generation),
		value_integer((int64_t)s->batch + 1),
	};
	struct store_queue *queue = &s->queue;
	struct pg_sent *sent;
	uint64_t bytes = 0;
	uint32_t n = 0;

	if (list_empty(&queue->waiting) || !list_empty(&queue->in_flight) || now < queue->retry_at)
		return;
	sent = pg_sent_new(s, PG_SENT_BATCH);
	if (!sent) {
		queue_note_failure(queue, now, "no memory");
		return;
	}
	s->batch++;
	s->batch_is_open = true;
	sent->asked = now;
	s->failed = NULL;
	if (!pg_send(s, PG_QUERY_FENCE, fence, ARRAY_SIZE(fence))) {
		pg_disconnect(s, now, "send");
		return;
	}
	LIST_FOR_EACH_SAFE (link, following, &queue->waiting) {
		struct write *write = LIST_ENTRY(link, struct write, link);

		if (n == BATCH_MAX_WRITES || (n > 0 && bytes + write->bytes > BATCH_MAX_BYTES))
			break;
		list_remove(link);
		list_append(&queue->in_flight, link);
		write->n_changed = 0;
		n++;
		bytes += write->bytes;
		if (!write->decided && !send_write(s, write)) {
			pg_disconnect(s, now, "send");
			return;
		}
	}
	if (!pg_sync(s)) {
		pg_disconnect(s, now, "send");
		return;
	}
	await(s, queue->in_flight.next);
}

/* All of in_flight to the front of what waits, in order. */
static void put_back(struct store_queue *queue)
{
	while (!list_empty(&queue->in_flight)) {
		struct list *last = queue->in_flight.prev;

		list_remove(last);
		list_prepend(&queue->waiting, last);
	}
}

static enum store_result result_of(const struct write *write)
{
	return write->is_retention && write->n_changed == 0 ? STORE_NOT_FOUND : STORE_OK;
}

static void take_all(struct pg_store *s)
{
	LIST_FOR_EACH_SAFE (link, following, &s->queue.in_flight) {
		struct write *write = LIST_ENTRY(link, struct write, link);

		if (!write->decided)
			write->result = result_of(write);
		queue_finish(&s->queue, write);
	}
	queue_note_commit(&s->queue);
}

void pg_batch_lost(struct pg_store *s)
{
	s->write = NULL;
	s->step = NULL;
	s->failed = NULL;
	/* Those that are in flight stay there until it is known what became of them. */
}

void pg_batch_found(struct pg_store *s, uint64_t committed)
{
	if (s->batch_is_open && committed >= s->batch) {
		/* What a retention deleted is not known: it is asked for once more. */
		LIST_FOR_EACH (link, &s->queue.in_flight)
			LIST_ENTRY(link, struct write, link)->n_changed = 1;
		take_all(s);
	}
	put_back(&s->queue);
	s->batch_is_open = false;
	s->batch = committed;
}

/* ---- answers ---- */

static const struct reference {
	const char *word; /* in the constraint's name, by the common convention */
	size_t from;
	size_t to;
} references[] = {
	{"workspace", INSERT_WORKSPACE, INSERT_WORKSPACE_TEXT},
	{"project",   INSERT_PROJECT,   INSERT_PROJECT_TEXT  },
	{"user",      INSERT_OWNER,     INSERT_OWNER_TEXT    },
};

static void move(struct write_step *step, const struct reference *reference)
{
	if (reference->from == INSERT_OWNER)
		step->value[INSERT_TENANT] = value_text("true");
	step->value[reference->to] = step->value[reference->from];
	step->value[reference->from] = VALUE_NOTHING;
}

/* The same value of the same column, in every row that is yet to be written: or each of them would
 * make its batch void once. */
static void move_all(struct list *writes, const struct reference *reference,
		     const struct value *refused)
{
	LIST_FOR_EACH (link, writes) {
		struct write *write = LIST_ENTRY(link, struct write, link);

		for (struct write_step *step = write->first; step; step = step->next) {
			const struct value *value = &step->value[reference->from];

			if (step->query == QUERY_SESSION_INSERT && value->type == VALUE_TEXT &&
			    value->size == refused->size &&
			    memcmp(value->text, refused->text, value->size) == 0)
				move(step, reference);
		}
	}
}

/*
 * The platform's table refuses an owner, workspace or project that it does not know: the same row
 * without the reference, and the name as a text. Where the constraint's name does not tell which,
 * all three. False: that was not it.
 */
static bool without_reference(struct pg_store *s, const struct write_step *step,
			      const char *constraint)
{
	bool is_named = false;
	bool moved = false;

	if (step->query != QUERY_SESSION_INSERT)
		return false;
	for (size_t i = 0; constraint && i < ARRAY_SIZE(references); i++)
		is_named |= strstr(constraint, references[i].word) &&
			    step->value[references[i].from].type == VALUE_TEXT;
	for (size_t i = 0; i < ARRAY_SIZE(references); i++) {
		const struct value refused = step->value[references[i].from];

		if (refused.type != VALUE_TEXT ||
		    (is_named && !strstr(constraint, references[i].word)))
			continue;
		move_all(&s->queue.in_flight, &references[i], &refused);
		move_all(&s->queue.waiting, &references[i], &refused);
		moved = true;
	}
	return moved;
}

/* STORE_DEGRADED: the store refuses. STORE_OK: the write was changed and may succeed now. */
static enum store_result judge(struct pg_store *s, const PGresult *result)
{
	static const struct {
		const char *prefix;
		enum store_result result;
	} codes[] = {
		{NO_ROW_LEFT, STORE_DUPLICATE},
                {"23505",     STORE_DUPLICATE},
		{"22",        STORE_REFUSED  }, /* a value that the column does not take */
		{"23",        STORE_REFUSED  },
                {"54",        STORE_REFUSED  }, /* too large */
	};
	const char *code = PQresultErrorField(result, PG_DIAG_SQLSTATE);

	if (!code)
		return STORE_DEGRADED;
	if (s->step->query == QUERY_SESSION_HOLD && str_equal(code, NO_ROW_LEFT))
		return STORE_FENCED;
	if (str_equal(code, "23503") &&
	    without_reference(s, s->step, PQresultErrorField(result, PG_DIAG_CONSTRAINT_NAME)))
		return STORE_OK;
	for (size_t i = 0; i < ARRAY_SIZE(codes); i++)
		if (str_has_prefix(code, codes[i].prefix))
			return codes[i].result;
	return STORE_DEGRADED;
}

static void note_refusal(struct pg_store *s, const PGresult *result)
{
	const char *field = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	const char *code = field ? field : "unknown";
	const char *known = pg_reason_of_sqlstate(code);

	if (!s->queue.stats.degraded)
		log_line(LOG_LEVEL_ERROR, NULL, "the store refuses", "sqlstate=%s", code);
	if (known)
		IGNORE_RESULT(str_format(s->refusal, sizeof(s->refusal), "%s", known));
	else
		IGNORE_RESULT(str_format(s->refusal, sizeof(s->refusal),
					 "the server refuses: SQLSTATE %s", code));
}

void pg_batch_result(struct pg_store *s, struct pg_sent *sent, PGresult *result)
{
	ExecStatusType status = PQresultStatus(result);
	bool is_fence = sent->n_results == 0;
	uint32_t n = 0;

	if (sent->failed || status == PGRES_PIPELINE_ABORTED)
		return;
	if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) {
		const char *code = PQresultErrorField(result, PG_DIAG_SQLSTATE);

		sent->failed = true;
		s->failed_result = STORE_DEGRADED;
		s->is_fenced = is_fence && code && str_equal(code, NO_ROW_LEFT);
		if (!is_fence && s->write) {
			s->failed = s->write;
			s->failed_result = judge(s, result);
		}
		if (s->failed_result == STORE_DEGRADED)
			note_refusal(s, result);
		return;
	}
	if (is_fence || !s->write)
		return;
	if (num_parse_u32(PQcmdTuples(result), 0, UINT32_MAX, &n) == 0)
		s->write->n_changed += n;
	s->step = s->step->next;
	if (!s->step)
		await(s, s->write->link.next);
}

static bool is_held_as(const struct write *write, const struct write_step *hold)
{
	const struct write_step *step = write->first;

	return step && step->query == QUERY_SESSION_HOLD &&
	       step->value[0].size == hold->value[0].size &&
	       memcmp(step->value[0].text, hold->value[0].text, hold->value[0].size) == 0 &&
	       step->value[1].number <= hold->value[1].number;
}

/* Whatever else was to be written with that number or a lower one: it would make its batch void as
 * well, one by one. */
static void refuse_all(struct pg_store *s, const struct write *fenced)
{
	LIST_FOR_EACH (link, &s->queue.in_flight) {
		struct write *write = LIST_ENTRY(link, struct write, link);

		if (write->decided || !is_held_as(write, fenced->first))
			continue;
		write->result = STORE_FENCED;
		write->decided = true;
	}
}

void pg_batch_done(struct pg_store *s, struct pg_sent *sent, usec_t now)
{
	s->batch_is_open = false;
	if (!sent->failed) {
		pg_lease_renewed(s, sent->asked, now);
		take_all(s);
		return;
	}
	s->batch--; /* its number was not used */
	if (s->failed && s->failed_result != STORE_DEGRADED && s->failed_result != STORE_OK) {
		s->failed->result = s->failed_result;
		s->failed->decided = true;
		if (s->failed_result == STORE_FENCED)
			refuse_all(s, s->failed);
	}
	put_back(&s->queue);
	if (s->failed_result == STORE_DEGRADED)
		queue_note_failure(&s->queue, now, s->refusal);
	s->failed = NULL;
}
