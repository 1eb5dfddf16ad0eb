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

int queue_add(struct store_queue *queue, struct write *write)
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
