#include <errno.h>
#include <string.h>
#include <sys/syscall.h>

#include "policy/lint.h"
#include "tests/lib/test.h"
#include "tests/unit/policy_text.h"

#define DEFAULT "default errno ENOSYS\n"

static int lint(const char *statements, struct err *err)
{
	AUTO(resolve_filter_free) struct resolve_filter *filter = NULL;
	struct profile profile = {.filter = {[POLICY_FILTER_WORKER] = {.where = {"t.profile", 3}}}};
	bool shared[RESOLVE_MAX_NUMBER] = {[SYS_keyctl] = true, [SYS_bpf] = true};
	int r;

	r = policy_text_resolve(statements, NULL, &filter, err);
	assert_int_equal(r, 0);
	return lint_filter(&profile, POLICY_FILTER_WORKER, filter, shared, err);
}

static const struct {
	const char *statements;
	const char *error; /* NULL: accepted */
} cases[] = {
	{DEFAULT "errno EPERM keyctl\n",                               NULL							  },
	{DEFAULT "allow keyctl\n",
	 "t.profile:5: keyctl (worker): allowed, but shared between sessions"                                                        },
	{DEFAULT "errno ENOSYS clone3\n",                              NULL							  },
	{DEFAULT "errno EPERM clone3\n",                               "t.profile:5: clone3 (worker): must say errno ENOSYS"         },
	{DEFAULT "allow clone3\n",				     "t.profile:5: clone3 (worker): must say errno ENOSYS"         },
	{"default errno EPERM\n",				      "t.profile:3: clone3: must say errno ENOSYS"                  },
	{"default kill\n",					     "t.profile:3: clone3: must say errno ENOSYS"                  },
	{"default kill\nerrno ENOSYS clone3\n",                        NULL							  },
	{DEFAULT "allow clone\n",				      "t.profile:5: clone (worker): allowed without argument rules" },
	{DEFAULT "allow socket\n",				     "t.profile:5: socket (worker): allowed without argument rules"},
	{DEFAULT "socket: arg0 == AF_UNIX allow\nsocket: else kill\n", NULL                                                          },
	{DEFAULT "allow ioctl\n",				      "t.profile:5: ioctl (worker): allowed without argument rules" },
	{DEFAULT "allow fcntl\n",				      "t.profile:5: fcntl (worker): allowed without argument rules" },
	{DEFAULT "allow prctl\n",				      "t.profile:5: prctl (worker): allowed without argument rules" },
	{DEFAULT "allow mmap\n",				       "t.profile:5: mmap (worker): allowed without argument rules"  },
	{DEFAULT "errno EPERM socket\n",                               NULL							  },
};

static void test_lint_filter_each_rule(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct err err = ERR_NULL;

		assert_int_equal(lint(cases[i].statements, &err), cases[i].error ? -EINVAL : 0);
		assert_string_equal(err.text, cases[i].error ? cases[i].error : "");
	}
}

static const struct {
	enum policy_filter which;
	const char *statements;
	const char *error;
} needs[] = {
	{POLICY_FILTER_COMMAND, DEFAULT "allow splice\nneed go: splice\n",                         NULL},
	{POLICY_FILTER_COMMAND, DEFAULT "need go node: splice tee=276\nallow splice tee\n",        NULL},
	{POLICY_FILTER_COMMAND, DEFAULT "allow read\n",                                            NULL},
	{POLICY_FILTER_COMMAND,
	 DEFAULT "need x: ioctl\nioctl: arg1 == TIOCSTI errno EPERM\nioctl: else allow\n",         NULL},
	{POLICY_FILTER_WORKER,  DEFAULT "allow splice\n",                                          NULL},
	{POLICY_FILTER_COMMAND, DEFAULT "allow splice\n",
	 "t.profile:5: splice (command): allowed, but no program is said to need it"                   },
	{POLICY_FILTER_COMMAND, DEFAULT "ioctl: arg1 == TIOCSTI errno EPERM\nioctl: else allow\n",
	 "t.profile:6: ioctl (command): allowed, but no program is said to need it"                    },
	{POLICY_FILTER_COMMAND, DEFAULT "need go: splice\n",
	 "t.profile:5: command does not allow the need of go, or it needs no words"                    },
	{POLICY_FILTER_COMMAND, DEFAULT "allow read\nneed go: read\n",
	 "t.profile:6: command does not allow the need of go, or it needs no words"                    },
	{POLICY_FILTER_WORKER,  DEFAULT "allow splice\nneed go: splice\n",
	 "t.profile:6: worker does not allow the need of go, or it needs no words"                     },
};

static void test_lint_needs_each_rule(void **state)
{
	static const bool sensitive[RESOLVE_MAX_NUMBER] = {
		[SYS_splice] = true,
		[SYS_tee] = true,
		[SYS_ioctl] = true,
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(needs); i++) {
		AUTO(resolve_filter_free) struct resolve_filter *filter = NULL;
		struct profile profile = {.filter = {[POLICY_FILTER_WORKER] = {.where = {"t", 3}}}};
		struct err err = ERR_NULL;

		assert_int_equal(policy_text_resolve(needs[i].statements, NULL, &filter, &err), 0);
		assert_int_equal(lint_needs(&profile, needs[i].which, filter, sensitive, &err),
				 needs[i].error ? -EINVAL : 0);
		assert_string_equal(err.text, needs[i].error ? needs[i].error : "");
	}
}

static void test_lint_unused_sets_names_the_file(void **state)
{
	struct lint_sets used = {.n = 0};
	struct test_temp temp;
	struct err err = ERR_NULL;

	(void)state;
	test_temp_init(&temp);
	test_temp_write(&temp, "one.set", "");
	test_temp_write(&temp, "shared.set", "");
	test_temp_write(&temp, "sensitive.set", "");
	test_temp_write(&temp, "README", "");
	assert_int_equal(lint_unused_sets(temp.fd, &used, &err), -EINVAL);
	assert_string_equal(err.text, "one.set: no profile uses this set");
	lint_sets_add(&used, "one");
	lint_sets_add(&used, "one");
	assert_int_equal(used.n, 1);
	assert_int_equal(lint_unused_sets(temp.fd, &used, &err), 0);
	assert_int_equal(lint_unused_sets(-1, &used, &err), -EBADF);
	test_temp_done(&temp);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_lint_filter_each_rule),
	cmocka_unit_test(test_lint_needs_each_rule),
	cmocka_unit_test(test_lint_unused_sets_names_the_file),
};
TEST_MAIN(tests)
