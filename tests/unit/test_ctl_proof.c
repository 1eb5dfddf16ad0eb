#include <errno.h>
#include <unistd.h>

#include "ctl/proof.h"
#include "tests/lib/test.h"

static const char status_text[] = "Name:\tcat\nUid:\t1000\t1000\t1000\t1000\n"
				  "CapInh:\t0000000000000000\nCapPrm:\t0000000000000020\n"
				  "CapEff:\t0000000000000000\nCapBnd:\t00000000000001e0\n"
				  "CapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n"
				  "Seccomp_filters:\t1\n";

static void test_proof_take_status_all_sets_are_joined(void **state)
{
	struct proof_facts facts;

	(void)state;
	proof_facts_init(&facts);
	proof_take_status(&facts, status_text, true);
	assert_int_equal(facts.uid, 1000);
	assert_int_equal(facts.seccomp, 2);
	assert_int_equal(facts.no_new_privs, 1);
	assert_int_equal(facts.caps, 0x1e0);
	proof_take_status(&facts, status_text, false);
	assert_int_equal(facts.caps, 0x20);
}

static void test_proof_take_status_missing_lines_are_unknown(void **state)
{
	struct proof_facts facts;

	(void)state;
	proof_facts_init(&facts);
	proof_take_status(&facts, "Name:\tcat\nSeccomp:\tx\nCapPrm:\tzz\n", true);
	assert_true(facts.uid == UINT64_MAX);
	assert_true(facts.seccomp == UINT64_MAX);
	assert_true(facts.caps == UINT64_MAX);
}

static void test_proof_look_outside_another_process_is_not_taken(void **state)
{
	struct proof_facts facts;

	(void)state;
	assert_int_equal(proof_look_outside(getpid(), 1, &facts), -ENOENT);
	assert_true(facts.ns[PROOF_AT_MNT] != UINT64_MAX);
	assert_int_equal(proof_look_outside(getpid(), facts.ns[PROOF_AT_MNT], &facts), 0);
	assert_int_equal(facts.uid, getuid());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_proof_take_status_all_sets_are_joined),
		cmocka_unit_test(test_proof_take_status_missing_lines_are_unknown),
		cmocka_unit_test(test_proof_look_outside_another_process_is_not_taken),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
