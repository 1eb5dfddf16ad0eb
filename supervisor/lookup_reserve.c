#include "supervisor/lookup_reserve.h"

#include "base/clock.h"

/* When whoever waits for the launch that took one has had its answer; between two of them the loop
 * goes round. */
#define PAUSE_US (4 * USEC_PER_MS)

/* A failure shows, with its reason, in the launch that makes its own. */
static int on_pause_end(void *userdata, uint32_t events)
{
	struct lookup_reserve *reserve = userdata;
	struct sklookup lookup = SKLOOKUP_NULL;

	(void)events;
	if (reserve->n_ready == LOOKUP_RESERVE || sklookup_make(&lookup) < 0)
		return 0;
	reserve->ready[reserve->n_ready++] = lookup;
	lookup_reserve_refill(reserve);
	return 0;
}

int lookup_reserve_init(struct lookup_reserve *reserve, struct loop *loop)
{
	*reserve = (struct lookup_reserve){.n_ready = 0};
	return loop_add_timer(loop, USEC_NEVER, on_pause_end, reserve, &reserve->pause);
}

void lookup_reserve_done(struct lookup_reserve *reserve)
{
	reserve->pause = loop_remove(reserve->pause);
	while (reserve->n_ready > 0)
		sklookup_close(&reserve->ready[--reserve->n_ready]);
}

void lookup_reserve_refill(struct lookup_reserve *reserve)
{
	if (reserve->n_ready < LOOKUP_RESERVE)
		loop_timer_set(reserve->pause, clock_add(clock_boottime(), PAUSE_US));
}

struct sklookup lookup_reserve_take(struct lookup_reserve *reserve)
{
	return reserve->n_ready > 0 ? reserve->ready[--reserve->n_ready] : SKLOOKUP_NULL;
}
