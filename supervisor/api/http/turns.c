#include "supervisor/api/http/turns.h"

#include "supervisor/api/http/server_state.h"

/* Of one user in one turn: some tens of small requests, so that a queue is for what is large. */
#define TURN_TIME (2 * USEC_PER_MS)

void turns_init(struct turns *turns)
{
	turns->now = 1;
	list_init(&turns->queue);
	list_init(&turns->counted);
}

bool turns_may_run(struct turns *turns, struct request *request)
{
	struct share *share = request->share;

	if (!share || request->has_turn)
		return true;
	if (share->turn != turns->now) {
		share->turn = turns->now;
		share->turn_time = 0;
	}
	if (list_empty(&share->waiting)) {
		if (share->turn_time < TURN_TIME)
			return true;
		list_append(&turns->queue, &share->turn_link);
	}
	list_append(&share->waiting, &request->turn_link);
	return false;
}

void turns_count(struct request *request, usec_t began)
{
	struct share *share = request->share;

	if (!share)
		return;
	share->turn_time += clock_boottime() - began;
	if (list_empty(&share->counted_link))
		list_append(&request->server->turns.counted, &share_ref(share)->counted_link);
}

void turns_leave(struct request *request)
{
	struct share *share = request->share;

	if (!share || list_empty(&request->turn_link))
		return;
	list_remove(&request->turn_link);
	if (list_empty(&share->waiting))
		list_remove(&share->turn_link);
}

void turns_done(struct turns *turns)
{
	while (!list_empty(&turns->counted)) {
		struct share *share = LIST_ENTRY(turns->counted.next, struct share, counted_link);

		list_remove(&share->counted_link);
		(void)share_put(share);
	}
}

void turns_next(struct turns *turns)
{
	turns_done(turns);
	turns->now++;
	LIST_FOR_EACH_SAFE (entry, following, &turns->queue) {
		struct share *share = LIST_ENTRY(entry, struct share, turn_link);
		struct request *request =
			LIST_ENTRY(share->waiting.next, struct request, turn_link);

		share->turn = turns->now;
		share->turn_time = 0;
		turns_leave(request);
		request->has_turn = true;
		request_resume(request);
	}
}

bool turns_are_awaited(const struct turns *turns)
{
	return !list_empty(&turns->queue);
}
