#include <errno.h>

#include "supervisor/bpf.h"
#include "tests/lib/test.h"

static void test_bpf_jumps_become_distances(void **state)
{
	struct bpf_insn insns[] = {
		INSN_IF_ZERO(BPF_REG_1, 1), /* forward, over two */
		INSN_MOV_K(BPF_REG_0, 1),    INSN_LABEL(0), INSN_RETURN(), INSN_LABEL(1),
		INSN_LOAD_MAP(BPF_REG_1, 7), INSN_CALL(1),  INSN_GOTO(0), /* back */
	};

	(void)state;
	assert_int_equal(bpf_resolve_labels(insns, ARRAY_SIZE(insns)), 7);
	assert_int_equal(insns[0].off, 2);
	assert_int_equal(insns[2].code, BPF_JMP | BPF_EXIT);
	assert_int_equal(insns[3].imm, 7);
	assert_int_equal(insns[5].code, BPF_JMP | BPF_CALL);
	assert_int_equal(insns[5].off, 0);
	assert_int_equal(insns[6].off, -5);
}

static void test_bpf_labels_that_are_wrong(void **state)
{
	struct bpf_insn missing[] = {INSN_GOTO(3), INSN_RETURN()};
	struct bpf_insn twice[] = {INSN_LABEL(3), INSN_LABEL(3), INSN_RETURN()};
	struct bpf_insn high[] = {INSN_LABEL(INSN_LABELS), INSN_RETURN()};
	struct bpf_insn far_away[] = {INSN_GOTO(INSN_LABELS), INSN_RETURN()};
	struct bpf_insn negative[] = {INSN_GOTO(-1), INSN_RETURN()};

	(void)state;
	assert_int_equal(bpf_resolve_labels(missing, ARRAY_SIZE(missing)), -EINVAL);
	assert_int_equal(bpf_resolve_labels(twice, ARRAY_SIZE(twice)), -EINVAL);
	assert_int_equal(bpf_resolve_labels(high, ARRAY_SIZE(high)), -EINVAL);
	assert_int_equal(bpf_resolve_labels(far_away, ARRAY_SIZE(far_away)), -EINVAL);
	assert_int_equal(bpf_resolve_labels(negative, ARRAY_SIZE(negative)), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bpf_jumps_become_distances),
		cmocka_unit_test(test_bpf_labels_that_are_wrong),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
