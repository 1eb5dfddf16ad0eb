#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

#include <linux/audit.h>
#include <linux/filter.h>

#include "policy/equiv.h"
#include "policy/resolve.h"
#include "policy/seccomp_gen.h"
#include "tests/lib/test.h"
#include "tests/unit/policy_text.h"

#define DEFAULT "default errno ENOSYS\n"

static const struct policy_text_file files[] = {
	{"two.set",   "# a comment\nset two\nread write\n"},
	{"new.set",   "set new\nfchmodat2=452 read=0\n"   },
	{"wrong.set", "set other\nread\n"                 },
	{"empty.set", "# nothing\n"                       },
	{"bad.set",   "set bad\nread nonsense\n"          },
	{"clash.set", "set clash\nread=1\n"               },
	{NULL,        NULL				},
};

static const char *verdict(const struct resolve_filter *filter, uint32_t nr, uint64_t arg0,
			   uint64_t arg1, uint64_t arg2)
{
	const uint64_t args[6] = {arg0, arg1, arg2};

	return profile_verdict_text(resolve_verdict(filter, AUDIT_ARCH_X86_64, nr, args));
}

static void test_resolve_verdict_follows_sets_rules_and_default(void **state)
{
	AUTO(resolve_filter_free) struct resolve_filter *filter = NULL;
	struct err err = ERR_NULL;

	(void)state;
	assert_int_equal(policy_text_resolve(DEFAULT
					     "allow @two\nerrno EPERM mount\nkill reboot\n"
					     "clone: arg0 & CLONE_NEW_MASK == 0 allow\n"
					     "clone: else errno EPERM\n"
					     "socket: arg0 == AF_UNIX allow\n"
					     "socket: arg0 == AF_NETLINK and arg2 == 0 allow\n"
					     "socket: else errno EAFNOSUPPORT\n",
					     files, &filter, &err),
			 0);
	assert_string_equal(verdict(filter, SYS_read, 0, 0, 0), "allow");
	assert_string_equal(verdict(filter, SYS_mount, 0, 0, 0), "EPERM");
	assert_string_equal(verdict(filter, SYS_reboot, 0, 0, 0), "kill");
	assert_string_equal(verdict(filter, SYS_open, 0, 0, 0), "ENOSYS");
	assert_string_equal(verdict(filter, 5000, 0, 0, 0), "ENOSYS");
	assert_string_equal(verdict(filter, UINT32_MAX, 0, 0, 0), "ENOSYS");
	assert_string_equal(verdict(filter, 0x40000000, 0, 0, 0), "kill");
	assert_string_equal(verdict(filter, SYS_clone, 0x3d0f00, 0, 0), "allow");
	assert_string_equal(verdict(filter, SYS_clone, 0x10000000, 0, 0), "EPERM");
	assert_string_equal(verdict(filter, SYS_clone, 0x110000000, 0, 0), "EPERM");
	assert_string_equal(verdict(filter, SYS_socket, 0x700000001, 0, 0), "allow");
	assert_string_equal(verdict(filter, SYS_socket, 16, 0, 0), "allow");
	assert_string_equal(verdict(filter, SYS_socket, 16, 0, 9), "EAFNOSUPPORT");
}

static const struct {
	const char *statements;
	const char *error;
} bad[] = {
	{"allow nonsense\n",						"t.profile:5: unknown system call 'nonsense'"           },
	{"allow waitpid\n",						 "t.profile:5: x86-64 has no system call 'waitpid'"      },
	{"allow read\nallow read\n",					"t.profile:6: read: already decided at t.profile:5"     },
	{"allow @two\nerrno EPERM write\n",                                 "t.profile:6: write: already decided at two.set:3"      },
	{"allow socket\nsocket: arg0 == 1 allow\n",
	 "t.profile:6: socket: already decided at t.profile:5"								      },
	{"socket: arg0 == 1 allow\nallow socket\n",
	 "t.profile:6: socket: already decided at t.profile:5"								      },
	{"socket: arg0 == 1 allow\nsocket: arg0 == 2 kill\n",
	 "t.profile:6: socket: the other rules say 'allow'"									 },
	{"socket: arg0 == 1 allow\n",				       "t.profile:5: the argument rules have no 'else'"        },
	{"socket: else kill\n",					     "t.profile:5: socket: 'else' follows its argument rules"},
	{"socket: arg0 == 1 allow\nsocket: else kill\nsocket: else kill\n",
	 "t.profile:7: socket: already decided at t.profile:6"								      },
	{"socket: arg0 == 1 allow\nsocket: else allow\n",
	 "t.profile:6: socket: 'else' equals the other rules"								       },
	{"socket: arg0 == 1 errno ENOSYS\nsocket: else allow\n",
	 "t.profile:6: the rules say what the default says"									 },
	{"errno EPERM @two=3\n",					    "t.profile:5: a set takes a plain verdict only"         },
	{"allow @wrong\n",						  "wrong.set:1: expected 'wrong', found 'other'"          },
	{"allow @empty\n",						  "empty.set: no 'set empty'"                             },
	{"allow @bad\n",						    "bad.set:2: unknown system call 'nonsense'"             },
	{"allow @clash\n",						  "clash.set:2: read is number 0"                         },
};

static void test_resolve_filter_contradictions_are_errors(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct resolve_filter *filter = NULL;
		char text[512];
		struct err err = ERR_NULL;
		int r;

		assert_true(strlen(bad[i].statements) + sizeof(DEFAULT) < sizeof(text));
		(void)strcat(strcpy(text, DEFAULT), bad[i].statements);
		r = policy_text_resolve(text, files, &filter, &err);
		if (r != -EINVAL)
			print_error("accepted: %s\n", bad[i].statements);
		assert_int_equal(r, -EINVAL);
		assert_string_equal(err.text, bad[i].error);
		assert_null(filter);
	}
}

static void test_resolve_set_missing_file_is_named(void **state)
{
	struct resolve_filter *filter = NULL;
	struct err err = ERR_NULL;

	(void)state;
	assert_int_equal(policy_text_resolve(DEFAULT "allow @gone\n", files, &filter, &err),
			 -ENOENT);
	assert_string_equal(err.text, "no file gone.set");
}

static void test_resolve_number_beside_a_name_serves_newer_calls(void **state)
{
	AUTO(resolve_filter_free) struct resolve_filter *filter = NULL;
	struct err err = ERR_NULL;

	(void)state;
	assert_int_equal(policy_text_resolve(DEFAULT "allow @new\n", files, &filter, &err), 0);
	assert_string_equal(verdict(filter, 452, 0, 0, 0), "allow");
	assert_string_equal(verdict(filter, 0, 0, 0, 0), "allow");
}

static int generate(const char *statements, struct sock_filter *program, size_t *ret_n,
		    struct resolve_filter **ret_filter, struct err *err)
{
	int r = policy_text_resolve(statements, files, ret_filter, err);

	return r < 0 ? r : seccomp_gen_filter(*ret_filter, program, ret_n, err);
}

#define TWO_FAMILIES                                                                               \
	"socket: arg0 == 1 allow\nsocket: arg0 == 16 and arg2 == 0 allow\n"                        \
	"socket: arg0 == 16 and arg2 == 4 allow\nsocket: else errno EAFNOSUPPORT\n"
#define TWO_SECOND_ARGUMENTS                                                                       \
	"socket: arg0 == 2 and arg1 == 3 allow\nsocket: arg0 == 2 and arg2 == 6 allow\n"           \
	"socket: else errno EPERM\n"
#define TWO_CALLS                                                                                  \
	"mmap: arg2 & PROT_EXEC == 0 allow\nmmap: else errno EACCES\n"                             \
	"openat: arg2 & OPEN_WRITES == 0 allow\nopenat: else errno EACCES\n"

static const char *const equivalent[] = {
	DEFAULT,
	"default kill\nallow @two\n",
	"default errno EPERM\nkill read\nerrno ENOSYS write\n",
	DEFAULT "ioctl: arg1 in { TIOCSTI TIOCLINUX } errno EPERM\nioctl: else allow\n",
	DEFAULT "clone: arg0 & CLONE_NEW_MASK == 0 allow\nclone: else errno EPERM\n",
	DEFAULT "clone: arg0 & 0x1 == 1 allow\nclone: arg0 & 0x3 == 2 allow\nclone: else kill\n",
	DEFAULT
	"socket: arg0 == 16 and arg2 == 0 allow\nsocket: arg0 == 1 allow\nsocket: else kill\n",
	DEFAULT TWO_FAMILIES,
	DEFAULT TWO_SECOND_ARGUMENTS,
	DEFAULT
	"personality: arg0 in { 0 0x40000 0xffffffff } allow\npersonality: else errno EPERM\n",
	DEFAULT "prctl: arg0 in { 0 1 2 3 } allow\nprctl: else errno ENOSYS\n",
	"default kill\n" TWO_CALLS,
};

static void test_seccomp_gen_filter_means_what_the_policy_says(void **state)
{
	static struct sock_filter program[POLICY_MAX_BPF];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(equivalent); i++) {
		AUTO(resolve_filter_free) struct resolve_filter *filter = NULL;
		struct equiv_report report = {0};
		struct err err = ERR_NULL;
		size_t n = 0;
		int r = generate(equivalent[i], program, &n, &filter, &err);

		if (r == 0)
			r = equiv_check(filter, program, n, &report, &err);
		if (r < 0)
			print_error("%s%s\n", equivalent[i], err.text);
		assert_int_equal(r, 0);
		assert_true(report.n_cases > 30000);
	}
}

/* A generated program may be refused (libseccomp cannot express it), but never accepted wrong. */
static void test_seccomp_gen_random_policies_are_equivalent_or_refused(void **state)
{
	static struct sock_filter program[POLICY_MAX_BPF];
	static const char *const verdicts[] = {"allow", "kill", "errno EPERM", "errno EACCES"};
	static const char *const calls[] = {"socket", "clone", "ioctl", "prctl"};
	static const unsigned int args[] = {0, 0, 1, 0};
	struct test_random random = TEST_RANDOM(42);
	size_t n_refused = 0;

	(void)state;
	for (int round = 0; round < 40; round++) {
		AUTO(resolve_filter_free) struct resolve_filter *filter = NULL;
		char text[4096] = DEFAULT;
		struct err err = ERR_NULL;
		size_t n = 0;
		int r;

		for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
			uint32_t mask = UINT32_MAX >> test_random_below(&random, 31);
			uint32_t first = test_random_below(&random, 4);
			char line[256];

			for (uint32_t j = test_random_below(&random, 4) + 1; j > 0; j--) {
				uint32_t value = (uint32_t)test_random(&random) & mask;

				(void)snprintf(line, sizeof(line), "%s: arg%u & 0x%x == 0x%x %s\n",
					       calls[i], args[i], mask, value, verdicts[first]);
				(void)strcat(text, line);
			}
			(void)snprintf(line, sizeof(line), "%s: else %s\n", calls[i],
				       verdicts[(first + 1) % ARRAY_SIZE(verdicts)]);
			(void)strcat(text, line);
		}
		r = generate(text, program, &n, &filter, &err);
		if (r < 0) {
			n_refused++;
			continue;
		}
		r = equiv_check(filter, program, n, NULL, &err);
		if (r < 0)
			print_error("%s%s\n", text, err.text);
		assert_int_equal(r, 0);
	}
	assert_true(n_refused < 20);
}

static void test_seccomp_gen_masks_without_a_common_bit_are_refused(void **state)
{
	static struct sock_filter program[POLICY_MAX_BPF];
	AUTO(resolve_filter_free) struct resolve_filter *filter = NULL;
	struct err err = ERR_NULL;
	size_t n = 0;

	(void)state;
	assert_int_equal(generate(DEFAULT "clone: arg0 & 1 == 1 allow\nclone: arg0 & 2 == 2 allow\n"
					  "clone: else kill\n",
				  program, &n, &filter, &err),
			 -EINVAL);
	assert_string_equal(err.text, "number 56: masks on arg0 have no bit in common");
}

/* Every number and constant of a program matters: a change of one is seen. */
static void test_equiv_check_sees_each_changed_constant(void **state)
{
	static struct sock_filter program[POLICY_MAX_BPF];
	AUTO(resolve_filter_free) struct resolve_filter *filter = NULL;
	struct err err = ERR_NULL;
	size_t n = 0;
	size_t n_changed = 0;

	(void)state;
	assert_int_equal(generate(DEFAULT "allow @two\nerrno EPERM mount\n"
					  "clone: arg0 & CLONE_NEW_MASK == 0 allow\n"
					  "clone: else errno EPERM\n",
				  program, &n, &filter, &err),
			 0);
	for (size_t i = 0; i < n; i++) {
		struct sock_filter saved = program[i];

		/* Only what has one right value: a border between two numbers may lie anywhere in
		 * the gap, a mask may be wider where a mask before it has cleared the bits. */
		if (saved.code != (BPF_JMP | BPF_JEQ | BPF_K) && saved.code != (BPF_RET | BPF_K))
			continue;
		/* The high half is masked to nothing and compared with nothing. */
		if (saved.k == 0 && program[i - 1].k == 0)
			continue;
		program[i].k ^= 1;
		if (equiv_check(filter, program, n, NULL, &err) == 0)
			print_error("instruction %zu: %x %u %u %x\n", i, saved.code, saved.jt,
				    saved.jf, saved.k);
		assert_int_equal(equiv_check(filter, program, n, NULL, &err), -EILSEQ);
		program[i] = saved;
		n_changed++;
	}
	assert_true(n_changed >= 8);
	program[n - 1].code = 0xff;
	assert_int_equal(equiv_check(filter, program, n, NULL, &err), -EILSEQ);
	assert_string_equal(err.text, "the kernel would refuse the program");
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_resolve_verdict_follows_sets_rules_and_default),
	cmocka_unit_test(test_resolve_filter_contradictions_are_errors),
	cmocka_unit_test(test_resolve_set_missing_file_is_named),
	cmocka_unit_test(test_resolve_number_beside_a_name_serves_newer_calls),
	cmocka_unit_test(test_seccomp_gen_filter_means_what_the_policy_says),
	cmocka_unit_test(test_seccomp_gen_random_policies_are_equivalent_or_refused),
	cmocka_unit_test(test_seccomp_gen_masks_without_a_common_bit_are_refused),
	cmocka_unit_test(test_equiv_check_sees_each_changed_constant),
};
TEST_MAIN(tests)
