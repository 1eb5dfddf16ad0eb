/*
 * Theory. An instance holds its sessions while its row of sandbox_writers says so: until
 * lease_until, by the server's clock. Each batch moves that on, and a query of its own every third
 * of a lease, which also tells whether others live on this store. After it another instance may
 * take a session, with one conditional write that raises the session's fence; whatever this one
 * still sends for it is refused by its row (QUERY_SESSION_HOLD). The moment counts here from before
 * the question, so that it is over here before it is there, however clocks differ; and what is
 * answered after that moment may have been done after it as well, with a taking in between.
 *
 * Where no other instance is known, nobody can have taken anything, and a store that is away for
 * longer than a lease stops nothing. Where another one was there of late, sessions stand still
 * before the lease is over (api/lease.c).
 */
#include <stdbool.h>

#include "base/num.h"
#include "base/str.h"

#include "supervisor/api/store/pg_store.h"

#define LEASE       (PG_LEASE_SECONDS * USEC_PER_SEC)
#define RENEW_AFTER (LEASE / 3)

usec_t pg_lease_next(const struct pg_store *s)
{
	if (s->state != PG_STATE_READY)
		return USEC_NEVER;
	if (s->lease_is_renewed)
		return clock_add(s->renew_asked, PG_ANSWER_TIMEOUT);
	return s->renew_asked == 0 ? 0 : clock_add(s->renew_asked, RENEW_AFTER);
}

void pg_lease_send(struct pg_store *s, usec_t now)
{
	const struct value generation = value_integer((int64_t)s->generation);
	struct pg_sent *sent;

	if (now < pg_lease_next(s))
		return;
	if (s->lease_is_renewed) {
		pg_disconnect(s, now, "no answer");
		return;
	}
	sent = pg_sent_new(s, PG_SENT_RENEW);
	if (!sent)
		return;
	sent->asked = now;
	s->renew_asked = now;
	s->lease_is_renewed = true;
	if (!pg_send(s, PG_QUERY_RENEW, &generation, 1) || !pg_sync(s))
		pg_disconnect(s, now, "send");
}

void pg_lease_renewed(struct pg_store *s, usec_t asked, usec_t now)
{
	if (s->lease_until != 0 && now >= s->lease_until)
		s->lease_lapsed = true;
	s->lease_until = clock_add(asked, LEASE);
}

void pg_lease_result(struct pg_store *s, usec_t asked, const PGresult *result, usec_t now)
{
	uint32_t n = 0;

	s->lease_is_renewed = false;
	if (PQresultStatus(result) != PGRES_TUPLES_OK || PQntuples(result) != 1)
		return;
	if (num_parse_u32(PQgetvalue(result, 0, 1), 0, UINT32_MAX, &n) == 0)
		s->has_others = n > 0;
	if (num_parse_u32(PQgetvalue(result, 0, 2), 0, UINT32_MAX, &n) == 0)
		s->others_live = n > 0;
	if (str_equal(PQgetvalue(result, 0, 0), "1"))
		pg_lease_renewed(s, asked, now);
}

int pg_lease_ask(struct pg_store *s)
{
	const struct value generation = value_integer((int64_t)s->generation);
	usec_t asked = clock_boottime();
	PGresult *result = NULL;
	int r = pg_ask(s, PG_QUERY_RENEW, &generation, 1, &result);

	if (r < 0)
		return r;
	s->renew_asked = asked;
	pg_lease_result(s, asked, result, clock_boottime());
	PQclear(result);
	return 0;
}

bool pg_lease_lapsed(const struct store *store, usec_t now)
{
	const struct pg_store *s = pg_store_of_const(store);

	return s->has_others && now >= s->lease_until;
}

usec_t pg_lease_end(const struct store *store)
{
	const struct pg_store *s = pg_store_of_const(store);

	return s->others_live ? s->lease_until : USEC_NEVER;
}

bool pg_lease_regained(struct store *store)
{
	struct pg_store *s = pg_store_of(store);
	bool lapsed = s->lease_lapsed;

	s->lease_lapsed = false;
	return lapsed;
}
