#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "supervisor/api/session/registry.h"
#include "tests/lib/test.h"

static struct session *make(struct test_random *random, usec_t now, const char *owner,
			    const char *workspace)
{
	struct spec_create spec = {.profile = "component",
				   .ttl_minutes = 1 + test_random_below(random, 100)};
	struct session *session;
	uint32_t actions;
	struct id id;

	test_random_fill(random, id.bytes, sizeof(id.bytes));
	id.bytes[6] = (uint8_t)((id.bytes[6] & 0x0f) | 0x40);
	id.bytes[8] = (uint8_t)((id.bytes[8] & 0x3f) | 0x80);
	session = session_new(&id, &spec, now);
	assert_non_null(session);
	(void)strcpy(session->owner, owner);
	(void)strcpy(session->workspace, workspace);
	assert_int_equal(session_apply(session, SESSION_EVENT_LAUNCHED, 0, &actions), 0);
	return session;
}

static void drop(struct registry *registry, struct session *session)
{
	registry_remove(registry, session);
	(void)session_free(session);
}

static void test_registry_find_visible_is_one_not_found(void **state)
{
	struct test_random random = TEST_RANDOM(1);
	const struct viewer alice = {"alice", "", false, NULL};
	const struct viewer bob = {"bob", "", false, NULL};
	const struct viewer carol = {"carol", "w1", false, NULL};
	const struct viewer local = {"operator", "", true, NULL};
	const struct viewer nobody = {"", "", false, NULL};
	const struct viewer same_name = {"operator", "", false, NULL};
	struct registry registry;
	struct session *plain;
	struct session *shared;
	char id[ID_TEXT_BYTES];
	uint32_t actions;

	(void)state;
	assert_int_equal(registry_init(&registry), 0);
	plain = make(&random, 1, "alice", "");
	shared = make(&random, 2, "alice", "w1");
	assert_int_equal(registry_add(&registry, plain), 0);
	assert_int_equal(registry_add(&registry, shared), 0);
	assert_int_equal(registry_add(&registry, plain), -EEXIST);

	id_format(&plain->id, id);
	assert_ptr_equal(registry_find_visible(&registry, id, &alice, 0), plain);
	assert_null(registry_find_visible(&registry, id, &bob, 0));
	assert_null(registry_find_visible(&registry, id, &carol, 0));
	assert_null(registry_find_visible(&registry, id, &nobody, 0));
	assert_ptr_equal(registry_find_visible(&registry, id, &local, 0), plain);
	assert_null(registry_find_visible(&registry, id, &alice, plain->expires_at));
	/* A user with the operator's name is not the operator. */
	(void)strcpy(plain->owner, "operator");
	assert_ptr_equal(registry_find_visible(&registry, id, &same_name, 0), plain);
	plain->operator_owned = true;
	assert_null(registry_find_visible(&registry, id, &same_name, 0));
	assert_ptr_equal(registry_find_visible(&registry, id, &local, 0), plain);
	id[0] = 'X';
	assert_null(registry_find_visible(&registry, id, &local, 0));
	assert_null(registry_find_visible(&registry, "", &local, 0));
	id_format(&shared->id, id);
	assert_ptr_equal(registry_find_visible(&registry, id, &carol, 0), shared);
	assert_int_equal(
		session_apply(shared, SESSION_EVENT_CLOSE, SESSION_REASON_DELETED, &actions), 0);
	assert_null(registry_find_visible(&registry, id, &carol, 0));
	assert_null(registry_find_visible(&registry, id, &local, 0));
	drop(&registry, plain);
	drop(&registry, shared);
	registry_done(&registry);
}

static void test_registry_list_pages_newest_first(void **state)
{
	struct test_random random = TEST_RANDOM(2);
	const struct viewer viewer = {"alice", "", false, NULL};
	struct registry_filter filter = {.limit = 4};
	struct session *sessions[20];
	struct session *page[4];
	struct registry registry;
	struct id unknown = {{9}};
	uint32_t actions;
	int n_seen = 0;
	int n;

	(void)state;
	assert_int_equal(registry_init(&registry), 0);
	/* Out of order, as adoption may bring them; every second one is foreign. */
	for (size_t i = 0; i < ARRAY_SIZE(sessions); i++) {
		sessions[i] = make(&random, (i * 7) % 20, i % 2 ? "bob" : "alice", "");
		assert_int_equal(registry_add(&registry, sessions[i]), 0);
	}
	while ((n = registry_list(&registry, &viewer, &filter, 0, page)) > 0) {
		for (int i = 0; i < n; i++) {
			assert_string_equal(page[i]->owner, "alice");
			if (i > 0)
				assert_true(page[i - 1]->created_at >= page[i]->created_at);
		}
		n_seen += n;
		filter.after = &page[n - 1]->id;
	}
	assert_int_equal(n, 0);
	assert_int_equal(n_seen, 10);
	filter.after = &unknown;
	assert_int_equal(registry_list(&registry, &viewer, &filter, 0, page), -ENOENT);
	filter.after = &sessions[1]->id; /* foreign: as unknown */
	assert_int_equal(registry_list(&registry, &viewer, &filter, 0, page), -ENOENT);
	filter.after = NULL;
	filter.status = REGISTRY_STATUS_RUNNING;
	assert_int_equal(registry_list(&registry, &viewer, &filter, 0, page), 0);
	assert_int_equal(session_apply(sessions[4], SESSION_EVENT_JOB_STARTED, 0, &actions), 0);
	assert_int_equal(registry_list(&registry, &viewer, &filter, 0, page), 1);
	assert_ptr_equal(page[0], sessions[4]);
	for (size_t i = 0; i < ARRAY_SIZE(sessions); i++)
		drop(&registry, sessions[i]);
	registry_done(&registry);
}

/* Random adds, removals and changed deadlines against a plain array. */
static void test_registry_random_model(void **state)
{
	struct test_random random = TEST_RANDOM(3);
	struct session *model[300] = {NULL};
	struct registry registry;
	size_t n = 0;

	(void)state;
	assert_int_equal(registry_init(&registry), 0);
	for (int step = 0; step < 20000; step++) {
		uint32_t what = test_random_below(&random, 3);
		struct session *earliest = NULL;

		if (what == 0 && n < ARRAY_SIZE(model)) {
			model[n] = make(&random, (usec_t)step, "o", "");
			assert_int_equal(registry_add(&registry, model[n++]), 0);
		} else if (what == 1 && n > 0) {
			size_t at = test_random_below(&random, (uint32_t)n);

			drop(&registry, model[at]);
			model[at] = model[--n];
		} else if (n > 0) {
			struct session *session = model[test_random_below(&random, (uint32_t)n)];

			session->expires_at = test_random_below(&random, 1000000);
			registry_deadline_changed(&registry, session);
		}
		assert_int_equal(registry_count(&registry), n);
		for (size_t i = 0; i < n; i++)
			if (!earliest || model[i]->expires_at < earliest->expires_at)
				earliest = model[i];
		if (earliest)
			assert_int_equal(registry_next_deadline(&registry)->expires_at,
					 earliest->expires_at);
		else
			assert_null(registry_next_deadline(&registry));
		if (n > 0) {
			struct session *any = model[test_random_below(&random, (uint32_t)n)];

			assert_ptr_equal(registry_find(&registry, &any->id), any);
		}
	}
	while (n > 0)
		drop(&registry, model[--n]);
	registry_done(&registry);
}

static void test_registry_next_deadline_passes_over_closing_ones(void **state)
{
	struct test_random random = TEST_RANDOM(4);
	struct session *a = make(&random, 0, "o", "");
	struct session *b = make(&random, 0, "o", "");
	struct registry registry;
	uint32_t actions;

	(void)state;
	assert_int_equal(registry_init(&registry), 0);
	a->expires_at = 1;
	b->expires_at = 2;
	assert_int_equal(registry_add(&registry, a), 0);
	assert_int_equal(registry_add(&registry, b), 0);
	assert_ptr_equal(registry_next_deadline(&registry), a);
	assert_int_equal(session_apply(a, SESSION_EVENT_CLOSE, SESSION_REASON_EXPIRED, &actions),
			 0);
	assert_ptr_equal(registry_next_deadline(&registry), b);
	drop(&registry, a);
	drop(&registry, b);
	assert_null(registry_next_deadline(&registry));
	registry_done(&registry);
}

static void test_registry_names_are_of_one_owner(void **state)
{
	struct test_random random = TEST_RANDOM(5);
	const struct viewer colleague = {"bob", "w1", false, NULL};
	const struct viewer stranger = {"carol", "", false, NULL};
	struct registry_filter filter = {.limit = 4, .name = "web"};
	struct session *named = make(&random, 0, "alice", "w1");
	struct session *plain = make(&random, 0, "alice", "w1");
	struct session *page[4];
	struct registry registry;
	uint32_t actions;

	(void)state;
	assert_int_equal(registry_init(&registry), 0);
	(void)strcpy(named->spec.name, "web");
	assert_int_equal(registry_add(&registry, named), 0);
	assert_int_equal(registry_add(&registry, plain), 0);
	assert_ptr_equal(registry_find_named(&registry, "alice", false, "web", 0), named);
	assert_null(registry_find_named(&registry, "alice", false, "we", 0));
	assert_null(registry_find_named(&registry, "bob", false, "web", 0));
	assert_null(registry_find_named(&registry, "alice", true, "web", 0));
	assert_null(registry_find_named(&registry, "alice", false, "web", named->expires_at));
	assert_int_equal(registry_list(&registry, &colleague, &filter, 0, page), 1);
	assert_ptr_equal(page[0], named);
	assert_int_equal(registry_list(&registry, &stranger, &filter, 0, page), 0);
	/* The operator's owner text is no user's name. */
	named->operator_owned = true;
	assert_null(registry_find_named(&registry, "alice", false, "web", 0));
	assert_ptr_equal(registry_find_named(&registry, "root", true, "web", 0), named);
	assert_int_equal(
		session_apply(named, SESSION_EVENT_CLOSE, SESSION_REASON_DELETED, &actions), 0);
	assert_null(registry_find_named(&registry, "root", true, "web", 0));
	drop(&registry, named);
	drop(&registry, plain);
	registry_done(&registry);
}

static void test_registry_project_is_part_of_whose_it_is(void **state)
{
	struct test_random random = TEST_RANDOM(7);
	const struct {
		const char *project;
		bool dagster;
		const char *asks;
		bool sees;
	} rows[] = {
		{"p1", false, "p1", true },
                {"p1", false, "p2", false},
                {"p1", false, "",   true },
		{"p1", false, NULL, true },
                {"",   false, "p2", true },
                {"p1", true,  "p2", true },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct viewer viewer = {"alice", "", false, rows[i].asks};
		const struct viewer all = {"x", "", true, rows[i].asks};
		struct session *session = make(&random, 1, "alice", "");
		struct registry registry;
		char id[ID_TEXT_BYTES];

		assert_int_equal(registry_init(&registry), 0);
		(void)strcpy(session->project, rows[i].project);
		session->dagster = rows[i].dagster;
		assert_int_equal(registry_add(&registry, session), 0);
		id_format(&session->id, id);
		assert_int_equal(registry_find_visible(&registry, id, &viewer, 0) != NULL,
				 rows[i].sees);
		assert_non_null(registry_find_visible(&registry, id, &all, 0));
		drop(&registry, session);
		registry_done(&registry);
	}
}

/* Of one moment, in any order of adding, in pages of one, while what was shown ends. */
static void test_registry_list_goes_on_behind_what_has_ended(void **state)
{
	struct test_random random = TEST_RANDOM(8);
	const struct viewer viewer = {"alice", "", false, NULL};
	struct registry_filter filter = {.limit = 1};
	struct session *page[1];
	struct registry registry;
	struct id last = {{0}};
	int n = 0;

	(void)state;
	assert_int_equal(registry_init(&registry), 0);
	for (size_t i = 0; i < 20; i++) {
		struct session *session = make(&random, 5, "alice", "");

		assert_int_equal(registry_add(&registry, session), 0);
	}
	while (registry_list(&registry, &viewer, &filter, 0, page) == 1) {
		if (n > 0)
			assert_true(memcmp(last.bytes, page[0]->id.bytes, ID_BYTES) > 0);
		last = page[0]->id;
		filter.before_at = page[0]->created_at;
		filter.before_id = last;
		drop(&registry, page[0]);
		n++;
	}
	assert_int_equal(n, 20);
	registry_done(&registry);
}

#define VIEWER(OWNER, WORKSPACE, PROJECT)                                                          \
	(&(const struct viewer){.owner = OWNER, .workspace = WORKSPACE, .project = PROJECT})

static void test_registry_key_is_one_organisations(void **state)
{
	struct test_random random = TEST_RANDOM(9);
	struct registry registry;
	struct session *session;
	uint32_t actions;
	usec_t now = 100;

	(void)state;
	assert_int_equal(registry_init(&registry), 0);
	session = make(&random, now, "alice", "");
	session->expires_at = now + 2 * REGISTRY_IDEMPOTENCY_AGE;
	(void)strcpy(session->spec.runtime.idempotency_key, "k");
	(void)strcpy(session->project, "p");
	assert_int_equal(registry_add(&registry, session), 0);
	assert_ptr_equal(registry_find_idempotent(&registry, VIEWER("alice", "", "p"), "k", now),
			 session);
	assert_null(registry_find_idempotent(&registry, VIEWER("alice", "", ""), "k", now));
	assert_null(registry_find_idempotent(&registry, VIEWER("", "alice", "p"), "k", now));
	assert_null(
		registry_find_idempotent(&registry, VIEWER("bob", "user:alice", "p"), "k", now));
	assert_null(registry_find_idempotent(&registry, VIEWER("bob", "", "p"), "k", now));
	assert_null(registry_find_idempotent(&registry, VIEWER("alice", "", "p"), "l", now));
	assert_null(registry_find_idempotent(&registry, VIEWER("alice", "", "p"), "k",
					     now + REGISTRY_IDEMPOTENCY_AGE));
	assert_int_equal(
		session_apply(session, SESSION_EVENT_CLOSE, SESSION_REASON_DELETED, &actions), 0);
	assert_null(registry_find_idempotent(&registry, VIEWER("alice", "", "p"), "k", now));
	drop(&registry, session);
	registry_done(&registry);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_registry_find_visible_is_one_not_found),
		cmocka_unit_test(test_registry_list_pages_newest_first),
		cmocka_unit_test(test_registry_project_is_part_of_whose_it_is),
		cmocka_unit_test(test_registry_list_goes_on_behind_what_has_ended),
		cmocka_unit_test(test_registry_key_is_one_organisations),
		cmocka_unit_test(test_registry_random_model),
		cmocka_unit_test(test_registry_next_deadline_passes_over_closing_ones),
		cmocka_unit_test(test_registry_names_are_of_one_owner),
	};
	int n_before = test_begin();

	return test_end(n_before, cmocka_run_group_tests(tests, NULL, NULL));
}
