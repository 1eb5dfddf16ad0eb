#include <stdlib.h>
#include <string.h>

#include "supervisor/api/jobs/job.h"
#include "supervisor/api/session/registry.h"
#include "supervisor/api/session/tenant_quota.h"
#include "tests/lib/test.h"

#define GIB  (1ull << 30)
#define MIB  (1ull << 20)
#define NOON (12ull * 60 * USEC_PER_MINUTE)

struct fixture {
	struct registry registry;
	struct quota_config config;
	struct quota_refusal refusal;
	uint8_t n_made;
};

static int set_up(void **state)
{
	static struct fixture fixture;

	memset(&fixture, 0, sizeof(fixture));
	assert_int_equal(registry_init(&fixture.registry), 0);
	fixture.config.limits[QUOTA_SCOPE_OWNER] =
		(struct quota_limits){.sessions = 3, .jobs = 1, .memory_bytes = 3 * GIB};
	fixture.config.limits[QUOTA_SCOPE_WORKSPACE] =
		(struct quota_limits){.sessions = 4, .jobs = 2, .stored_bytes = 2 * MIB};
	fixture.config.limits[QUOTA_SCOPE_HOST] =
		(struct quota_limits){.sessions = 6, .jobs = 10, .cpu_s = 7200};
	*state = &fixture;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *fixture = *state;

	while (!list_empty(&fixture->registry.by_age)) {
		struct session *session =
			LIST_ENTRY(fixture->registry.by_age.next, struct session, by_age);

		list_init(&session->jobs);
		registry_remove(&fixture->registry, session);
		(void)session_free(session);
	}
	registry_done(&fixture->registry);
	return 0;
}

static bool ask(struct fixture *fixture, const char *owner, const char *workspace,
		uint64_t memory_bytes)
{
	const struct quota_asker asker = {owner, workspace, memory_bytes, USEC_PER_SEC, NOON};

	return tenant_quota_session(&fixture->registry.tenants, &fixture->config, &asker,
				    &fixture->refusal);
}

static struct session *enter(struct fixture *fixture, const char *owner, const char *workspace,
			     uint64_t memory_bytes)
{
	struct spec_create spec = {.profile = "component", .ttl_minutes = 1};
	struct id id = {{++fixture->n_made}};
	struct session *session = session_new(&id, &spec, 0);

	assert_non_null(session);
	(void)strcpy(session->owner, owner);
	(void)strcpy(session->workspace, workspace);
	session->operator_owned = owner[0] == '\0';
	session->plan.memory_bytes = memory_bytes;
	assert_int_equal(registry_add(&fixture->registry, session), 0);
	return session;
}

static void leave(struct fixture *fixture, struct session *session)
{
	registry_remove(&fixture->registry, session);
	(void)session_free(session);
}

static void test_tenant_quota_sessions_of_each_scope(void **state)
{
	struct fixture *fixture = *state;
	struct session *first = enter(fixture, "a", "w", 1);

	(void)enter(fixture, "a", "w", 1);
	assert_true(ask(fixture, "a", "w", 1));
	(void)enter(fixture, "a", "", 1);
	assert_false(ask(fixture, "a", "w", 1));
	assert_string_equal(fixture->refusal.detail, "quota: 3 live sessions for this owner");
	assert_int_equal(fixture->refusal.retry_after_s, 30);
	(void)enter(fixture, "b", "w", 1);
	(void)enter(fixture, "c", "w", 1);
	assert_false(ask(fixture, "c", "w", 1));
	assert_string_equal(fixture->refusal.detail, "quota: 4 live sessions for this workspace");
	assert_true(ask(fixture, "c", "", 1));
	(void)enter(fixture, "", "", 1);
	assert_false(ask(fixture, "c", "", 1));
	assert_string_equal(fixture->refusal.detail, "quota: 6 live sessions for this host");
	leave(fixture, first);
	assert_true(ask(fixture, "c", "", 1));
	assert_true(ask(fixture, "a", "w", 1));
}

static void test_tenant_quota_operator_is_bound_by_the_host_alone(void **state)
{
	struct fixture *fixture = *state;

	for (int i = 0; i < 6; i++) {
		assert_true(ask(fixture, "", "", 100 * GIB));
		(void)enter(fixture, "", "", 100 * GIB);
	}
	assert_false(ask(fixture, "", "", 1));
}

static void test_tenant_quota_memory_is_a_sum(void **state)
{
	struct fixture *fixture = *state;

	(void)enter(fixture, "a", "", 2 * GIB);
	assert_true(ask(fixture, "a", "", GIB));
	assert_false(ask(fixture, "a", "", GIB + 1));
	assert_string_equal(fixture->refusal.detail,
			    "quota: 3 GiB of memory in all sessions for this owner");
	fixture->config.limits[QUOTA_SCOPE_OWNER].memory_bytes = GIB; /* a reload */
	assert_false(ask(fixture, "a", "", 1));
	fixture->config.limits[QUOTA_SCOPE_OWNER].memory_bytes = 0;
	assert_true(ask(fixture, "a", "", 1000 * GIB));
}

static void test_tenant_quota_of_one_tenant_goes_first(void **state)
{
	struct fixture *fixture = *state;

	fixture->config.n_overrides = 2;
	fixture->config.override[0] =
		(struct quota_override){.name = "a", .scope = QUOTA_SCOPE_WORKSPACE};
	fixture->config.override[1] = (struct quota_override){
		.name = "a", .scope = QUOTA_SCOPE_OWNER, .limits = {.sessions = 1}};
	(void)enter(fixture, "a", "w", 1);
	assert_false(ask(fixture, "a", "w", 1));
	assert_string_equal(fixture->refusal.detail, "quota: 1 live sessions for this owner");
	assert_false(ask(fixture, "b", "a", 1));
	assert_string_equal(fixture->refusal.detail, "quota: 0 live sessions for this workspace");
}

static void test_tenant_quota_jobs_that_wait(void **state)
{
	struct fixture *fixture = *state;
	struct session *busy = enter(fixture, "a", "", 1);
	struct session *idle = enter(fixture, "a", "", 1);

	busy->n_jobs = 1; /* in a list that is empty here: it waits */
	assert_false(tenant_quota_job(busy, &fixture->config, NOON, &fixture->refusal));
	assert_string_equal(fixture->refusal.detail, "quota: 1 queued jobs for this owner");
	assert_int_equal(fixture->refusal.retry_after_s, 5);
	assert_true(tenant_quota_job(idle, &fixture->config, NOON, &fixture->refusal));
	busy->n_jobs = 0;
	assert_true(tenant_quota_job(busy, &fixture->config, NOON, &fixture->refusal));
}

static void test_tenant_quota_stored_counts_what_is_coming(void **state)
{
	struct fixture *fixture = *state;
	struct session *one = enter(fixture, "a", "w", 1);
	struct session *two = enter(fixture, "b", "w", 1);

	assert_int_equal(session_component_set(one, "x.yaml", MIB), 0);
	two->coming_bytes = MIB - 10;
	assert_true(tenant_quota_store(two, &fixture->config, 10, 10, 0, &fixture->refusal));
	assert_false(tenant_quota_store(two, &fixture->config, 11, 11, 0, &fixture->refusal));
	assert_string_equal(fixture->refusal.detail,
			    "quota: 2 MiB of stored bytes for this workspace");
}

static void test_tenant_quota_processor_time_is_of_a_day(void **state)
{
	struct fixture *fixture = *state;
	struct session *session = enter(fixture, "a", "w", 1);
	struct tenants *tenants = &fixture->registry.tenants;

	(void)tenants_turn_day(tenants, NOON);
	tenants_charge_cpu(session, 7199 * USEC_PER_SEC);
	assert_true(tenant_quota_work(session, &fixture->config, NOON, &fixture->refusal));
	tenants_charge_cpu(session, 7200 * USEC_PER_SEC);
	assert_false(tenant_quota_work(session, &fixture->config, NOON, &fixture->refusal));
	assert_string_equal(fixture->refusal.detail,
			    "quota: 2 h of processor time a day for this host");
	assert_int_equal(fixture->refusal.retry_after_s, 12 * 60 * 60);
	assert_false(ask(fixture, "z", "", 1));
	assert_int_equal(tenants_find(tenants, QUOTA_SCOPE_OWNER, "a")->cpu_us,
			 7200 * USEC_PER_SEC);
	/* Another tree begins at zero; one that an earlier worker saw is not charged again. */
	tenants_charge_cpu(session, USEC_PER_SEC);
	assert_int_equal(tenants->host.cpu_us, 7201 * USEC_PER_SEC);
	session->cpu_from_before = true;
	tenants_charge_cpu(session, 50 * USEC_PER_SEC);
	assert_int_equal(tenants->host.cpu_us, 7201 * USEC_PER_SEC);
	assert_false(tenants_turn_day(tenants, NOON));
	assert_true(tenants_turn_day(tenants, 2 * NOON));
	assert_true(tenant_quota_work(session, &fixture->config, 2 * NOON, &fixture->refusal));
}

static void test_tenant_take_is_a_bucket_of_one_second(void **state)
{
	usec_t next = 0;
	usec_t now = 10 * USEC_PER_SEC;

	(void)state;
	for (int i = 0; i < 5; i++)
		assert_true(tenant_take(&next, 5, 1, now));
	assert_false(tenant_take(&next, 5, 1, now));
	assert_true(tenant_take(&next, 5, 1, now + USEC_PER_SEC / 5));
	assert_false(tenant_take(&next, 5, 1, now + USEC_PER_SEC / 5));
	assert_true(tenant_take(&next, 0, 1, now));
	next = 0;
	assert_true(tenant_take(&next, MIB, 5 * MIB, now)); /* more than there ever is */
	assert_false(tenant_take(&next, MIB, 1, now));
	assert_true(tenant_take(&next, MIB, MIB, now + USEC_PER_SEC));
}

static void test_tenant_quota_frames_are_stored_bytes(void **state)
{
	struct fixture *fixture = *state;
	struct session *session = enter(fixture, "a", "w", 1);
	struct tenants *tenants = &fixture->registry.tenants;
	struct tenant *owner = session->place[QUOTA_SCOPE_OWNER].tenant;

	(void)tenants_turn_day(tenants, NOON);
	assert_int_equal(tenant_quota_room(session, &fixture->config), 2 * MIB);
	tenants_charge_frames(tenants, "a", "w", 2 * MIB - 1);
	assert_int_equal(tenant_quota_room(session, &fixture->config), 1);
	assert_true(tenant_quota_job(session, &fixture->config, NOON, &fixture->refusal));
	tenants_charge_frames(tenants, "", "w", 5);
	assert_false(tenant_quota_job(session, &fixture->config, NOON, &fixture->refusal));
	assert_string_equal(fixture->refusal.detail,
			    "quota: 2 MiB of stored bytes for this workspace");
	assert_int_equal(tenant_quota_room(session, &fixture->config), 0);
	assert_int_equal(owner->frames_bytes, 2 * MIB - 1);
	assert_int_equal(tenants->host.frames_bytes, 2 * MIB + 4);
	/* A tenant without a session is kept for them over midnight. */
	tenants_charge_frames(tenants, "gone", "", 7);
	(void)tenants_turn_day(tenants, 3 * NOON);
	assert_int_equal(tenants_find(tenants, QUOTA_SCOPE_OWNER, "gone")->frames_bytes, 7);
	tenants_forget_frames(tenants);
	assert_true(tenant_quota_job(session, &fixture->config, NOON, &fixture->refusal));
	assert_int_equal(tenants->host.frames_bytes, 0);
}

static void test_tenant_quota_changes_have_a_rate_and_a_burst(void **state)
{
	struct fixture *fixture = *state;
	struct tenants *tenants = &fixture->registry.tenants;
	struct quota_config *config = &fixture->config;
	usec_t now = 10 * USEC_PER_SEC;

	config->limits[QUOTA_SCOPE_OWNER].changes_per_s = 2;
	for (int i = 0; i < 10; i++)
		assert_true(tenant_quota_change(tenants, config, "a", now, &fixture->refusal));
	assert_false(tenant_quota_change(tenants, config, "a", now, &fixture->refusal));
	assert_string_equal(fixture->refusal.detail, "quota: 2 changes a second for this owner");
	assert_int_equal(fixture->refusal.retry_after_s, 1);
	assert_true(tenant_quota_change(tenants, config, "b", now, &fixture->refusal));
	now += USEC_PER_SEC / 2;
	assert_true(tenant_quota_change(tenants, config, "a", now, &fixture->refusal));
	assert_false(tenant_quota_change(tenants, config, "a", now, &fixture->refusal));
	config->limits[QUOTA_SCOPE_OWNER].changes_per_s = 0;
	assert_true(tenant_quota_change(tenants, config, "a", now, &fixture->refusal));
}

static void test_tenant_quota_launches_have_a_rate_of_their_owner(void **state)
{
	struct fixture *fixture = *state;

	fixture->config.limits[QUOTA_SCOPE_OWNER].launches_per_s = 2;
	assert_true(ask(fixture, "a", "", 1));
	assert_true(ask(fixture, "a", "", 1));
	assert_false(ask(fixture, "a", "", 1));
	assert_string_equal(fixture->refusal.detail, "quota: 2 launches a second for this owner");
	assert_true(ask(fixture, "b", "", 1));
}

/* Many owners, each found again. */
static void test_tenants_find_each_of_many(void **state)
{
	struct fixture *fixture = *state;
	struct tenants *tenants = &fixture->registry.tenants;
	char name[16];

	for (int i = 0; i < 2000; i++) {
		(void)snprintf(name, sizeof(name), "user%d", i);
		assert_non_null(tenants_get(tenants, QUOTA_SCOPE_OWNER, name));
	}
	for (int i = 0; i < 2000; i++) {
		(void)snprintf(name, sizeof(name), "user%d", i);
		assert_string_equal(tenants_find(tenants, QUOTA_SCOPE_OWNER, name)->name, name);
		assert_null(tenants_find(tenants, QUOTA_SCOPE_WORKSPACE, name));
	}
	assert_null(tenants_get(tenants, QUOTA_SCOPE_OWNER, ""));
	assert_true(tenants_turn_day(tenants, 2 * NOON)); /* those without sessions are freed */
	assert_null(tenants_find(tenants, QUOTA_SCOPE_OWNER, "user7"));
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

static const struct CMUnitTest tests[] = {
	TEST(test_tenant_quota_sessions_of_each_scope),
	TEST(test_tenant_quota_operator_is_bound_by_the_host_alone),
	TEST(test_tenant_quota_memory_is_a_sum),
	TEST(test_tenant_quota_of_one_tenant_goes_first),
	TEST(test_tenant_quota_jobs_that_wait),
	TEST(test_tenant_quota_stored_counts_what_is_coming),
	TEST(test_tenant_quota_processor_time_is_of_a_day),
	TEST(test_tenant_take_is_a_bucket_of_one_second),
	TEST(test_tenant_quota_launches_have_a_rate_of_their_owner),
	TEST(test_tenant_quota_frames_are_stored_bytes),
	TEST(test_tenant_quota_changes_have_a_rate_and_a_burst),
	TEST(test_tenants_find_each_of_many),
};

TEST_MAIN(tests)
