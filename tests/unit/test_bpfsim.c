#include <errno.h>
#include <string.h>

#include <linux/filter.h>
#include <linux/seccomp.h>

#include "policy/bpfsim.h"
#include "tests/lib/test.h"

#define RET_A                                                                                      \
	{                                                                                          \
		BPF_RET | BPF_A, 0, 0, 0                                                           \
	}
#define STMT(code, k)                                                                              \
	{                                                                                          \
		(code), 0, 0, (k)                                                                  \
	}
#define JUMP(code, k, jt, jf)                                                                      \
	{                                                                                          \
		BPF_JMP | (code), (jt), (jf), (k)                                                  \
	}

static const struct seccomp_data data = {
	.nr = 7,
	.arch = 0xc000003e,
	.instruction_pointer = 0x1111222233334444,
	.args = {0xaaaaaaaabbbbbbbb, 2, 3, 4, 5, 0x66666666ffffffff},
};

#define MAX_PROGRAM 10
static const struct {
	uint32_t result;
	struct sock_filter program[MAX_PROGRAM];
} good[] = {
	{9,	    {STMT(BPF_RET | BPF_K, 9)}						     },
	{7,	    {STMT(BPF_LD | BPF_W | BPF_ABS, 0), RET_A}                                     },
	{0xc000003e,   {STMT(BPF_LD | BPF_W | BPF_ABS, 4), RET_A}                                     },
	{0xbbbbbbbb,   {STMT(BPF_LD | BPF_W | BPF_ABS, 16), RET_A}                                    },
	{0xaaaaaaaa,   {STMT(BPF_LD | BPF_W | BPF_ABS, 20), RET_A}                                    },
	{0x66666666,   {STMT(BPF_LD | BPF_W | BPF_ABS, 60), RET_A}                                    },
	{sizeof(data), {STMT(BPF_LD | BPF_W | BPF_LEN, 0), RET_A}                                     },
	{12,           {STMT(BPF_LD | BPF_IMM, 5), STMT(BPF_ALU | BPF_ADD | BPF_K, 7), RET_A}         },
	{0xfffffffe,   {STMT(BPF_LD | BPF_IMM, 5), STMT(BPF_ALU | BPF_SUB | BPF_K, 7), RET_A}         },
	{35,           {STMT(BPF_LD | BPF_IMM, 5), STMT(BPF_ALU | BPF_MUL | BPF_K, 7), RET_A}         },
	{3,	    {STMT(BPF_LD | BPF_IMM, 21), STMT(BPF_ALU | BPF_DIV | BPF_K, 7), RET_A}        },
	{5,	    {STMT(BPF_LD | BPF_IMM, 21), STMT(BPF_ALU | BPF_AND | BPF_K, 7), RET_A}        },
	{23,           {STMT(BPF_LD | BPF_IMM, 21), STMT(BPF_ALU | BPF_OR | BPF_K, 7), RET_A}         },
	{18,           {STMT(BPF_LD | BPF_IMM, 21), STMT(BPF_ALU | BPF_XOR | BPF_K, 7), RET_A}        },
	{84,           {STMT(BPF_LD | BPF_IMM, 21), STMT(BPF_ALU | BPF_LSH | BPF_K, 2), RET_A}        },
	{5,	    {STMT(BPF_LD | BPF_IMM, 21), STMT(BPF_ALU | BPF_RSH | BPF_K, 2), RET_A}        },
	{0xffffffeb,   {STMT(BPF_LD | BPF_IMM, 21), STMT(BPF_ALU | BPF_NEG, 0), RET_A}                },
	{30,
	 {STMT(BPF_LDX | BPF_IMM, 9), STMT(BPF_LD | BPF_IMM, 21),
	  STMT(BPF_ALU | BPF_ADD | BPF_X, 0), RET_A}                                                  },
	{6,
	 {STMT(BPF_LD | BPF_IMM, 6), STMT(BPF_ST, 15), STMT(BPF_LD | BPF_IMM, 1),
	  STMT(BPF_LD | BPF_MEM, 15), RET_A}							  },
	{8,
	 {STMT(BPF_LDX | BPF_IMM, 8), STMT(BPF_STX, 0), STMT(BPF_LDX | BPF_IMM, 1),
	  STMT(BPF_LDX | BPF_MEM, 0), STMT(BPF_MISC | BPF_TXA, 0), RET_A}                             },
	{64,           {STMT(BPF_LDX | BPF_W | BPF_LEN, 0), STMT(BPF_MISC | BPF_TXA, 0), RET_A}       },
	{10,
	 {STMT(BPF_LD | BPF_IMM, 5), STMT(BPF_MISC | BPF_TAX, 0),
	  STMT(BPF_ALU | BPF_ADD | BPF_X, 0), RET_A}                                                  },
	{2,	    {STMT(BPF_JMP | BPF_JA, 1), STMT(BPF_RET | BPF_K, 1), STMT(BPF_RET | BPF_K, 2)}},
	{1,
	 {STMT(BPF_LD | BPF_IMM, 5), JUMP(BPF_JEQ | BPF_K, 5, 0, 1), STMT(BPF_RET | BPF_K, 1),
	  STMT(BPF_RET | BPF_K, 2)}								   },
	{2,
	 {STMT(BPF_LD | BPF_IMM, 5), JUMP(BPF_JGT | BPF_K, 5, 0, 1), STMT(BPF_RET | BPF_K, 1),
	  STMT(BPF_RET | BPF_K, 2)}								   },
	{1,
	 {STMT(BPF_LD | BPF_IMM, 5), JUMP(BPF_JGE | BPF_K, 5, 0, 1), STMT(BPF_RET | BPF_K, 1),
	  STMT(BPF_RET | BPF_K, 2)}								   },
	{2,
	 {STMT(BPF_LD | BPF_IMM, 5), JUMP(BPF_JSET | BPF_K, 2, 0, 1), STMT(BPF_RET | BPF_K, 1),
	  STMT(BPF_RET | BPF_K, 2)}								   },
	{1,
	 {STMT(BPF_LDX | BPF_IMM, 4), STMT(BPF_LD | BPF_IMM, 5), JUMP(BPF_JSET | BPF_X, 0, 0, 1),
	  STMT(BPF_RET | BPF_K, 1), STMT(BPF_RET | BPF_K, 2)}                                         },
};

static size_t length(const struct sock_filter *program)
{
	size_t n = MAX_PROGRAM;

	/* The rows end with a return; what follows is zero, which is no instruction in use. */
	while (n > 1 && program[n - 1].code == 0 && program[n - 1].k == 0)
		n--;
	return n;
}

static void test_bpfsim_run_each_instruction(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		size_t n = length(good[i].program);
		uint32_t action = ~good[i].result;

		assert_int_equal(bpfsim_check(good[i].program, n), 0);
		assert_int_equal(bpfsim_run(good[i].program, n, &data, &action, NULL), 0);
		assert_int_equal(action, good[i].result);
	}
}

static const struct sock_filter refused[][2] = {
	{STMT(BPF_LD | BPF_IMM, 0),        STMT(BPF_LD | BPF_IMM,  0)}, /* no return */
	{STMT(BPF_LD | BPF_W | BPF_ABS,                     64),  RET_A}, /* outside the data */
	{STMT(BPF_LD | BPF_W | BPF_ABS,                     2),  RET_A }, /* unaligned */
	{STMT(BPF_LD | BPF_H | BPF_ABS,                     0),  RET_A}, /* half words are not for seccomp */
	{STMT(BPF_LD | BPF_B | BPF_ABS,                     0),  RET_A },
	{STMT(BPF_LD | BPF_W | BPF_IND,                     0),  RET_A},
	{STMT(BPF_LDX | BPF_B | BPF_MSH,                     0), RET_A},
	{STMT(BPF_JMP | BPF_JA,                     1),          RET_A         }, /* behind the end */
	{STMT(BPF_JMP | BPF_JA,                     UINT32_MAX),          RET_A},
	{JUMP(BPF_JEQ | BPF_K,                     0,           1,                     0), RET_A},
	{JUMP(BPF_JEQ | BPF_K,                   0,                       0,                         255), RET_A},
	{STMT(BPF_ALU | BPF_DIV | BPF_K,  0),RET_A},
	{STMT(BPF_ALU | BPF_MOD | BPF_K,                     3), RET_A                   }, /* seccomp has no modulo */
	{STMT(BPF_LD | BPF_MEM,                     16), RET_A                   },
	{STMT(BPF_ST,                     16),          RET_A},
	{STMT(0xffff,                     0),                    RET_A},
};

static void test_bpfsim_check_refuses_what_the_kernel_refuses(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(refused); i++)
		assert_int_equal(bpfsim_check(refused[i], 2), -EINVAL);
	assert_int_equal(bpfsim_check(refused[0], 0), -EINVAL);
	assert_int_equal(bpfsim_check(refused[0], BPF_MAXINSNS + 1), -EINVAL);
}

static void test_bpfsim_run_division_by_zero_is_an_error(void **state)
{
	const struct sock_filter program[] = {STMT(BPF_ALU | BPF_DIV | BPF_X, 0), RET_A};
	uint32_t action = 0;

	(void)state;
	assert_int_equal(bpfsim_check(program, 2), 0);
	assert_int_equal(bpfsim_run(program, 2, &data, &action, NULL), -EINVAL);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_bpfsim_run_each_instruction),
	cmocka_unit_test(test_bpfsim_check_refuses_what_the_kernel_refuses),
	cmocka_unit_test(test_bpfsim_run_division_by_zero_is_an_error),
};
TEST_MAIN(tests)
