#include "supervisor/api/jobs/flow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

#define WORD_BITS 64

void flow_init(struct flow *flow, uint64_t acked)
{
	*flow = (struct flow){.received = acked, .settled = acked, .credited = acked};
}

void flow_done(struct flow *flow)
{
	free(flow->bits);
	*flow = FLOW_NULL;
}

static int flow_reserve(struct flow *flow, uint64_t bit)
{
	size_t n_words = flow->n_words ? flow->n_words : 1;
	uint64_t *bits;

	while (n_words * WORD_BITS <= bit)
		n_words *= 2;
	if (n_words == flow->n_words)
		return 0;
	bits = reallocarray(flow->bits, n_words, sizeof(*bits));
	if (!bits)
		return -ENOMEM;
	memset(bits + flow->n_words, 0, (n_words - flow->n_words) * sizeof(*bits));
	flow->bits = bits;
	flow->n_words = n_words;
	return 0;
}

int flow_receive(struct flow *flow, uint64_t number)
{
	int r;

	if (number <= flow->received)
		return FLOW_E_DUPLICATE;
	if (number != flow->received + 1)
		return -EPROTO;
	if (number - flow->settled > FLOW_MAX_OUTSTANDING)
		return -ENOBUFS;
	/* Now, where a failure ends the link: one that is settled must not fail, or all behind it
	 * would wait for ever. The common case, one at a time, needs no bits at all. */
	r = number - flow->settled > 1 ? flow_reserve(flow, number - flow->settled - 1) : 0;
	if (r < 0)
		return r;
	flow->received = number;
	return 0;
}

/* Move everything down by n bits; only `n_used` words hold any. */
static void flow_shift(struct flow *flow, uint64_t n, size_t n_used)
{
	size_t words = (size_t)(n / WORD_BITS);
	unsigned int rest = (unsigned int)(n % WORD_BITS);

	for (size_t i = 0; i < n_used; i++) {
		uint64_t low = i + words < n_used ? flow->bits[i + words] : 0;
		uint64_t high = i + words + 1 < n_used ? flow->bits[i + words + 1] : 0;

		flow->bits[i] = rest ? (low >> rest) | (high << (WORD_BITS - rest)) : low;
	}
}

int flow_settle(struct flow *flow, uint64_t number)
{
	size_t n_used = (size_t)((flow->received - flow->settled + WORD_BITS - 1) / WORD_BITS);
	uint64_t bit;
	uint64_t n = 1;

	if (number > flow->received)
		return -ERANGE;
	if (number <= flow->settled)
		return 0;
	if (number == flow->settled + 1 && number == flow->received) {
		flow->settled = number;
		return 0;
	}
	bit = number - flow->settled - 1;
	ASSERT(n_used <= flow->n_words && bit / WORD_BITS < n_used);
	flow->bits[bit / WORD_BITS] |= 1ull << (bit % WORD_BITS);
	if (bit != 0)
		return 0;
	while (n / WORD_BITS < n_used && (flow->bits[n / WORD_BITS] >> (n % WORD_BITS)) & 1)
		n++;
	flow->settled += n;
	flow_shift(flow, n, n_used);
	return 0;
}

bool flow_credit(const struct flow *flow, uint64_t *ret_acked)
{
	if (flow->settled == flow->credited)
		return false;
	*ret_acked = flow->settled;
	return true;
}

void flow_credited(struct flow *flow, uint64_t acked)
{
	ASSERT(acked >= flow->credited && acked <= flow->settled);
	flow->credited = acked;
}
