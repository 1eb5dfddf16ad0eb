/*
 * Several instances on one database: of the store on PostgreSQL only. Its lease is reckoned from
 * the clock that each turn is given, so a turn can be one of another time.
 */
#include "tests/unit/store_rig.h"

#define OTHER   "'22222222-2222-4222-8222-222222222222'"
#define OURS    "'11111111-1111-4111-8111-111111111111'"
#define SECONDS (USEC_PER_SEC)
#define LEASE   (30 * SECONDS)

#define SERVER_ONLY()                                                                              \
	do {                                                                                       \
		if (!rig_dsn())                                                                    \
			skip();                                                                    \
	} while (0)

#define OTHER_UNTIL(until)                                                                         \
	"INSERT INTO sandbox_writers (id, host, generation, batch, seen_at, lease_until)"          \
	" SELECT " OTHER ", 'there', 1, 0, now, now + interval '" until "'"                        \
	" FROM timezone('UTC', clock_timestamp()) now"

static void set_up_other(const struct rig *rig, bool lives)
{
	rig_run_sql(rig, "DELETE FROM sandbox_writers WHERE id = " OTHER);
	rig_run_sql(rig, lives ? OTHER_UNTIL("1 hour") : OTHER_UNTIL("-1 hour"));
}

/* One write in a turn at that time, and what the server says to it. */
static void write_at(struct rig *rig, usec_t at)
{
	struct answers answers = {0};
	uint64_t n;

	store_flush(rig->store, clock_boottime()); /* nobody waits */
	n = store_stats(rig->store).n_writes;
	assert_int_equal(store_session_check(rig->store, &rig->session->id, rig_note, &answers), 0);
	store_flush(rig->store, at);
	for (int i = 0; store_stats(rig->store).n_writes == n; i++) {
		assert_true(i < 6000);
		rig_listen();
	}
	store_flush(rig->store, clock_boottime());
	assert_int_equal(answers.last, STORE_OK);
}

/* It is known that there are others; nothing is held that far ahead. */
static void await_others(const struct rig *rig, usec_t now)
{
	for (int i = 0; !store_lease_lapsed(rig->store, now + 3600 * SECONDS); i++) {
		assert_true(i < 6000);
		rig_listen();
	}
}

static void test_lease_busy_instance_hears_of_another(void **state)
{
	struct rig *rig = *state;
	usec_t now = clock_boottime();

	SERVER_ONLY();
	rig_run_sql(rig, "DELETE FROM sandbox_writers WHERE id = " OTHER);
	rig_insert(rig);
	write_at(rig, now + SECONDS);
	assert_false(store_lease_lapsed(rig->store, now + 3600 * SECONDS));
	set_up_other(rig, true);
	for (int i = 1; i <= 3; i++)
		write_at(rig, now + (usec_t)i * 6 * SECONDS);
	await_others(rig, now);
}

/* A write that came later, and moved nothing on, does not make it longer. */
static void test_lease_counts_from_its_own_question(void **state)
{
	struct rig *rig = *state;
	struct answers answers = {0};
	usec_t now = clock_boottime() + 11 * SECONDS;

	SERVER_ONLY();
	set_up_other(rig, true);
	rig_insert(rig);
	await_others(rig, now);
	store_flush(rig->store, now);
	assert_int_equal(store_session_insert(rig->store, rig->session, rig_note, &answers), 0);
	store_flush(rig->store, now + 9 * SECONDS);
	for (int i = 0; store_lease_lapsed(rig->store, now + LEASE - 1); i++) {
		assert_true(i < 6000);
		rig_listen();
	}
	assert_true(store_lease_lapsed(rig->store, now + LEASE));
	rig_flush(rig->store, 1);
	assert_int_equal(answers.last, STORE_DUPLICATE);
}

/* Asked while it was held, answered when it was not any more. */
static void test_lease_answered_late_was_lost_perhaps(void **state)
{
	struct rig *rig = *state;
	usec_t now = clock_boottime();

	SERVER_ONLY();
	rig_insert(rig);
	(void)store_lease_regained(rig->store);
	write_at(rig, now - LEASE - 10 * SECONDS);
	assert_false(store_lease_regained(rig->store));
	write_at(rig, now - 11 * SECONDS);
	assert_true(store_lease_regained(rig->store));
	assert_false(store_lease_regained(rig->store));
}

struct taken {
	int n;
	enum store_result result;
};

static void see_taken(void *userdata, enum store_result result, const struct store_session *row)
{
	struct taken *taken = userdata;

	(void)row;
	taken->n++;
	taken->result = result;
}

static enum store_result take(struct rig *rig, const char *owner, const char *workspace)
{
	const struct store_viewer viewer = {.owner = owner, .workspace = workspace};
	struct taken taken = {0};

	assert_int_equal(
		store_session_take(rig->store, &viewer, &rig->session->id, see_taken, &taken), 0);
	rig_flush(rig->store, 1);
	assert_int_equal(taken.n, 1);
	return taken.result;
}

/* Another's, which is away; nothing of it is known here. */
static void give_to_other(struct rig *rig, const char *sql)
{
	set_up_other(rig, false);
	rig_run_sql(rig, "UPDATE dagster_sandbox_sessions SET instance = " OTHER
			 ", expires_at = timezone('UTC', now()) + interval '1 hour'");
	rig_run_sql(rig, sql);
	store_let_go(rig->store, &rig->session->id);
}

#define NAMES_AS_TEXTS(tenant)                                                                     \
	"UPDATE dagster_sandbox_sessions SET owner_user_id = NULL, owner_text = 'alice',"          \
	" tenant = " tenant ", workspace_id = NULL, workspace_text = 'blue'"

static void test_take_by_names_that_the_platform_does_not_know(void **state)
{
	struct rig *rig = *state;

	SERVER_ONLY();
	rig_insert(rig);
	give_to_other(rig, NAMES_AS_TEXTS("true"));
	assert_int_equal(take(rig, "bob", ""), STORE_NOT_FOUND);
	assert_int_equal(take(rig, "bob", "red"), STORE_NOT_FOUND);
	assert_int_equal(take(rig, "", ""), STORE_NOT_FOUND);
	assert_int_equal(take(rig, "alice", ""), STORE_OK);
	give_to_other(rig, NAMES_AS_TEXTS("true"));
	assert_int_equal(take(rig, "bob", "blue"), STORE_OK);
	/* The text is the operator's then, whose name a tenant may bear. */
	give_to_other(rig, NAMES_AS_TEXTS("NULL"));
	assert_int_equal(take(rig, "alice", ""), STORE_NOT_FOUND);
}

/* The row is ours, and nobody here knows of it. */
static void test_take_that_nobody_heard_of_is_heard_at_the_next(void **state)
{
	const struct store_viewer viewer = {.owner = "", .workspace = "", .sees_all = true};
	struct rig *rig = *state;
	struct taken taken = {0};

	SERVER_ONLY();
	rig_insert(rig);
	give_to_other(rig, NAMES_AS_TEXTS("true"));
	assert_int_equal(
		store_session_take(rig->store, &viewer, &rig->session->id, see_taken, &taken), 0);
	store_flush(rig->store, clock_boottime());
	store_forget(rig->store, &taken);
	rig_flush(rig->store, 1);
	assert_int_equal(taken.n, 0);
	rig_assert_sql(rig, "SELECT instance = " OURS " FROM dagster_sandbox_sessions", "t");
	/* Who may not see it changes nothing. */
	assert_int_equal(take(rig, "bob", ""), STORE_NOT_FOUND);
	assert_int_equal(take(rig, "alice", ""), STORE_OK);
	assert_int_equal(take(rig, "alice", ""), STORE_NOT_FOUND);
}

struct gone {
	int n;
	struct store_gone last;
	enum store_result result;
};

static void see_gone(void *userdata, enum store_result result, const struct store_gone *seen)
{
	struct gone *gone = userdata;

	gone->result = result;
	if (!seen)
		return;
	gone->n++;
	gone->last = *seen;
}

static struct gone ask_gone(struct rig *rig, const struct id *sessions, size_t n)
{
	struct gone gone = {0};

	assert_int_equal(store_sessions_gone(rig->store, sessions, n, see_gone, &gone), 0);
	rig_flush(rig->store, 1);
	assert_int_equal(gone.result, STORE_NOT_FOUND);
	return gone;
}

/* Whoever has one that is open, it is not; one without a row may be another store's. */
static void test_gone_is_what_is_closed_or_has_no_row(void **state)
{
	struct rig *rig = *state;
	struct answers answers = {0};
	struct id ids[2] = {rig->session->id, rig_id(99)};
	struct gone gone;

	SERVER_ONLY();
	rig_insert(rig);
	give_to_other(rig, NAMES_AS_TEXTS("true"));
	gone = ask_gone(rig, ids, ARRAY_SIZE(ids));
	assert_int_equal(gone.n, 1);
	assert_true(id_equal(&gone.last.session, &ids[1]));
	assert_true(gone.last.not_before > 0 && gone.last.not_before <= clock_realtime());
	rig_run_sql(rig, "UPDATE dagster_sandbox_sessions SET instance = " OURS);
	assert_int_equal(store_session_close(rig->store, &ids[0], "deleted", 50 * SECONDS, rig_note,
					     &answers),
			 0);
	rig_flush(rig->store, 1);
	assert_int_equal(ask_gone(rig, ids, ARRAY_SIZE(ids)).n, 2);
	gone = ask_gone(rig, ids, 1);
	assert_int_equal(gone.n, 1);
	assert_int_equal(gone.last.not_before, 0);
}

static const struct CMUnitTest tests[] = {
	STORE_TEST(test_lease_busy_instance_hears_of_another),
	STORE_TEST(test_lease_counts_from_its_own_question),
	STORE_TEST(test_lease_answered_late_was_lost_perhaps),
	STORE_TEST(test_take_by_names_that_the_platform_does_not_know),
	STORE_TEST(test_take_that_nobody_heard_of_is_heard_at_the_next),
	STORE_TEST(test_gone_is_what_is_closed_or_has_no_row),
};

TEST_MAIN(tests)
