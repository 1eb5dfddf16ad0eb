/*
 * The store on PostgreSQL asks for the names of its hosts: how often it connects, whenever the
 * answers come. The names, and libpq's first call, are the test's own.
 */
#include <stdlib.h>
#include <sys/socket.h>

#include "supervisor/api/store/pg_store.h"
#include "tests/lib/test.h"

static struct {
	unsigned int n_asked;
	unsigned int n_connects;
	struct names_query *first; /* not answered yet */
	bool is_late;              /* the first answer comes while the second name is asked for */
} world;

PGconn *PQconnectStartParams(const char *const *keywords, const char *const *values,
			     int expand_dbname)
{
	(void)keywords;
	(void)values;
	(void)expand_dbname;
	world.n_connects++;
	return NULL; /* no memory */
}

static void answer(struct names_query *query)
{
	query->answer.n = 1;
	query->answer.address[0] = (struct egress_address){
		.family = AF_INET, .bytes = {127, 0, 0, 1}
        };
	query->question = NULL;
}

int names_ask(struct names *names, const char *name, struct names_query *query)
{
	void *nothing = &world; /* what is not NULL, and not looked into */

	(void)names;
	(void)name;
	if (world.n_asked++ == 0) {
		world.first = query;
		query->question = nothing;
		return 0;
	}
	answer(query);
	if (world.is_late) {
		answer(world.first);
		world.first->done(world.first->userdata);
	}
	return 1;
}

void names_cancel(struct names_query *query)
{
	query->question = NULL;
}

int names_fd(const struct names *names)
{
	(void)names;
	return -1;
}

void names_process(struct names *names)
{
	(void)names;
}

static struct pg_store *begin(bool is_late)
{
	struct pg_store *s = calloc(1, sizeof(*s));
	void *nothing = &world;
	struct err err = ERR_NULL;

	assert_non_null(s);
	world.n_asked = world.n_connects = 0;
	world.is_late = is_late;
	s->names = nothing; /* only asked by the functions above */
	assert_int_equal(pg_dsn_parse(&s->dsn, "postgresql://me@one.example,two.example/db", "",
				      false, &err),
			 0);
	pg_connect(s, 1);
	assert_int_equal(world.n_asked, 2);
	return s;
}

static void end(struct pg_store *s)
{
	pg_dsn_done(&s->dsn);
	free(s);
}

static void test_pg_connect_waits_for_all_names(void **state)
{
	struct pg_store *s = begin(false);

	(void)state;
	assert_int_equal(s->state, PG_STATE_RESOLVING);
	assert_int_equal(world.n_connects, 0);
	answer(world.first);
	world.first->done(world.first->userdata);
	assert_int_equal(world.n_connects, 1);
	end(s);
}

static void test_pg_connect_begins_once_where_an_answer_comes_while_it_asks(void **state)
{
	struct pg_store *s = begin(true);

	(void)state;
	assert_int_equal(world.n_connects, 1);
	end(s);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_pg_connect_waits_for_all_names),
	cmocka_unit_test(test_pg_connect_begins_once_where_an_answer_comes_while_it_asks),
};

TEST_MAIN(tests)
