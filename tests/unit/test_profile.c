#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "policy/line.h"
#include "policy/names.h"
#include "policy/profile.h"
#include "tests/lib/test.h"
#include "tests/unit/policy_text.h"

#define LIMITS                                                                                     \
	"limit tmpfs 256MiB\nlimit inodes 65536\nlimit memory 1GiB\nlimit pids 256\n"              \
	"limit files 4096\nlimit cpu 100\nlimit cpu-weight 100\nlimit ptys 16\n"                   \
	"limit output-rate 10MiB\nlimit output-max none\nlimit ttl 60min\nlimit ttl-max 12h\n"     \
	"limit load-timeout 60s\nlimit execute-timeout 30min\nlimit command-timeout none\n"
#define SESSION "profile p\nkind session\nproc subset\nroot refused\n" LIMITS
#define WORKER  "profile w\nkind worker\nfilter worker\ndefault errno ENOSYS\n"
#define FILTERS                                                                                    \
	"filter command\ndefault errno ENOSYS\nfilter shim\ndefault kill\nfilter helper\n"         \
	"default errno EPERM\n"

static int parse(const char *text, const struct policy_text_file *files,
		 struct profile **ret_profile, struct err *err)
{
	struct profile_source source = policy_text_source(files);

	return profile_parse("p.profile", text, strlen(text), &source, ret_profile, err);
}

static void test_profile_parse_session_fills_every_field(void **state)
{
	AUTO(profile_free) struct profile *profile = NULL;
	struct err err = ERR_NULL;

	(void)state;
	assert_int_equal(parse(SESSION FILTERS, NULL, &profile, &err), 0);
	assert_string_equal(profile->name, "p");
	assert_int_equal(profile->kind, POLICY_KIND_SESSION);
	assert_int_equal(profile->proc, POLICY_PROC_SUBSET);
	assert_int_equal(profile->limits.value.tmpfs_bytes, 256ull << 20);
	assert_int_equal(profile->limits.value.output_max_bytes, 0);
	assert_int_equal(profile->limits.value.ttl_max_minutes, 720);
	assert_int_equal(profile->limits.value.execute_timeout_s, 1800);
	assert_true(profile_verdict_equal(profile->filter[POLICY_FILTER_SHIM].otherwise,
					  (struct profile_verdict){.action = PROFILE_KILL}));
}

static void test_profile_parse_in_gives_one_statement_each(void **state)
{
	AUTO(profile_free) struct profile *profile = NULL;
	const struct profile_filter *filter;
	struct err err = ERR_NULL;

	(void)state;
	assert_int_equal(parse(WORKER
			       "socket: arg0 in { AF_UNIX AF_INET } and arg2 in { 0 0x6 } allow\n"
			       "socket: else errno EAFNOSUPPORT\n"
			       "allow read write=1 # both\n",
			       NULL, &profile, &err),
			 0);
	filter = &profile->filter[POLICY_FILTER_WORKER];
	assert_int_equal(filter->n_statements, 4 + 1 + 2);
	assert_int_equal(filter->statement[3].condition[0].value, 2);
	assert_int_equal(filter->statement[3].condition[1].value, 6);
	assert_int_equal(filter->statement[4].type, PROFILE_ELSE);
	assert_int_equal(filter->statement[6].number, 1);
	assert_int_equal(filter->statement[6].where.number, 7);
}

static void test_profile_parse_three_conditions_combine(void **state)
{
	static const uint32_t protocols[] = {0, 6, 17};
	AUTO(profile_free) struct profile *profile = NULL;
	const struct profile_filter *filter;
	struct err err = ERR_NULL;

	(void)state;
	assert_int_equal(parse(WORKER
			       "socket: arg0 in { 2 10 } and arg1 & SOCK_TYPE_MASK in { 1 2 }"
			       " and arg2 in { 0 6 17 } errno 0\n"
			       "socket: else allow\n",
			       NULL, &profile, &err),
			 0);
	filter = &profile->filter[POLICY_FILTER_WORKER];
	assert_int_equal(filter->n_statements, 2 * 2 * 3 + 1);
	for (size_t i = 0; i < 12; i++) {
		const struct profile_statement *statement = &filter->statement[i];

		assert_int_equal(statement->n_conditions, 3);
		assert_int_equal(statement->condition[0].value, i < 6 ? 2 : 10);
		assert_int_equal(statement->condition[1].mask, 0xf);
		assert_int_equal(statement->condition[1].value, i / 3 % 2 + 1);
		assert_int_equal(statement->condition[2].value, protocols[i % 3]);
	}
	assert_string_equal(profile_verdict_text(filter->statement[0].verdict), "0");
}

static void test_profile_parse_include_is_one_level_deep(void **state)
{
	static const struct policy_text_file files[] = {
		{"a.rules", "allow read\n"                  },
		{"b.rules", "allow write\ninclude a.rules\n"},
		{"c.rules", "filter shim\n"                 },
		{NULL,      NULL			    },
	};
	AUTO(profile_free) struct profile *profile = NULL;
	struct err err = ERR_NULL;

	(void)state;
	assert_int_equal(parse(WORKER "include a.rules\n", files, &profile, &err), 0);
	assert_string_equal(profile->filter[POLICY_FILTER_WORKER].statement[0].where.file,
			    "a.rules");
	profile = profile_free(profile);
	assert_int_equal(parse(WORKER "include b.rules\n", files, &profile, &err), -EINVAL);
	assert_string_equal(err.text, "b.rules:2: an included file includes no other");
	assert_int_equal(parse(WORKER "include c.rules\n", files, &profile, &err), -EINVAL);
	assert_int_equal(parse(WORKER "include none.rules\n", files, &profile, &err), -ENOENT);
	assert_int_equal(parse(WORKER "include none\n", files, &profile, &err), -EINVAL);
	assert_null(profile);
}

static const struct {
	const char *text;
	const char *error; /* the whole text */
} bad[] = {
	{"",									   "p.profile: no 'profile NAME'"                                 },
	{"kind worker\n",							      "p.profile:1: expected 'profile NAME' first"                   },
	{"profile\n",								  "p.profile:1: expected a name of letters, digits and '-'"      },
	{"profile a.b\n",							      "p.profile:1: expected a name of letters, digits and '-'"      },
	{"profile a\nprofile b\n",						     "p.profile:2: a file holds one profile"                        },
	{"profile a\n",								"p.profile:1: the profile has no 'kind'"                       },
	{"profile a\nkind other\n",						    "p.profile:2: expected 'session' or 'worker'"                  },
	{"profile a\nkind worker\nkind worker\n",                                      "p.profile:3: this statement appears twice"                    },
	{"profile a\nfilter worker\n",						 "p.profile:2: expected 'kind' before a filter"                 },
	{"profile a\nfrobnicate\n",						    "p.profile:2: expected kind, proc, root, limit or filter"      },
	{"profile a\nkind session\n",
	 "p.profile:1: 'proc' belongs to every session profile and to no other"                                                                       },
	{"profile a\nkind session\nproc subset\n",
	 "p.profile:1: 'root' belongs to every session profile and to no other"                                                                       },
	{"profile a\nkind worker\nroot refused\n",
	 "p.profile:1: 'root' belongs to every session profile and to no other"                                                                       },
	{"profile a\nroot yes\n",						      "p.profile:2: expected 'refused' or 'allowed'"                 },
	{"profile a\nkind session\nproc subset\nroot allowed\n",
	 "p.profile:1: limit tmpfs is missing"													},
	{"profile a\nkind worker\nproc subset\n",
	 "p.profile:1: 'proc' belongs to every session profile and to no other"                                                                       },
	{"profile a\nlimit speed 3\n",
	 "p.profile:2: expected 'limit NAME VALUE' with a known name"										 },
	{"profile a\nlimit pids 0\n",						  "p.profile:2: expected a number for pids, in its range"        },
	{"profile a\nlimit pids 99999999\n",
	 "p.profile:2: expected a number for pids, in its range"										      },
	{"profile a\nlimit memory x\n",
	 "p.profile:2: expected a size such as 64MiB for memory, in its range"                                                                        },
	{"profile a\nlimit ttl 90s\n",
	 "p.profile:2: expected a time such as 30min for ttl, in its range"									   },
	{"profile a\nlimit memory none\n",
	 "p.profile:2: expected a size such as 64MiB for memory, in its range"                                                                        },
	{"profile a\nlimit tmpfs 1K\n",
	 "p.profile:2: expected a size such as 64MiB for tmpfs, in its range"                                                                         },
	{"profile a\nlimit output-max 0\n",
	 "p.profile:2: expected a size such as 64MiB or 'none' for output-max, in its range"                                                          },
	{"profile a\nlimit pids 9\nlimit pids 9\n",                                    "p.profile:3: limit pids is set twice"                         },
	{"profile a\nlimit pids 9 9\n",						"p.profile:2: expected the end of the line, found '9'"         },
	{SESSION "filter command\ndefault kill\n",
	 "p.profile:1: filter shim is missing in this kind of profile"										},
	{"profile a\nkind worker\nfilter shim\ndefault kill\n",
	 "p.profile:3: filter shim is not used in this kind of profile"									       },
	{"profile a\nkind worker\nfilter worker\n",                                    "p.profile:3: filter worker has no default"                    },
	{WORKER "filter worker\n",						     "p.profile:5: filter worker appears twice"                     },
	{WORKER "filter other\n",						      "p.profile:5: expected 'command', 'shim', 'helper' or 'worker'"},
	{WORKER "default kill\n",						      "p.profile:5: the filter has a default already"                },
	{"profile a\nkind worker\nfilter worker\ndefault allow\n",
	 "p.profile:4: a filter is an allowlist: no 'default allow'"										  },
	{WORKER "permit read\n",						       "p.profile:5: expected 'allow', 'kill' or 'errno NAME'"        },
	{WORKER "errno EWHAT read\n",						  "p.profile:5: expected an errno name that policies use"        },
	{WORKER "allow\n",							     "p.profile:5: expected system calls or @sets"                  },
	{WORKER "allow read=x\n",						      "p.profile:5: expected a number, 0 to 1023"                    },
	{WORKER "allow read=1024\n",						   "p.profile:5: expected a number, 0 to 1023"                    },
	{WORKER "allow a_name_that_is_longer_than_any_call\n",
	 "p.profile:5: a system call's name is shorter than 32 bytes"										 },
	{WORKER "read: arg0 == 1 allow\n",
	 "p.profile:5: arg0 of read is not known to be a 32-bit value"										},
	{WORKER "ioctl: arg2 == 1 allow\n",
	 "p.profile:5: arg2 of ioctl is not known to be a 32-bit value"									       },
	{WORKER "ioctl: arg9 == 1 allow\n",					    "p.profile:5: expected 'else' or arg0 ... arg5"                },
	{WORKER "ioctl: arg1 > 1 allow\n",					     "p.profile:5: unexpected byte 0x3e"                            },
	{WORKER "ioctl: arg1 = 1 allow\n",					     "p.profile:5: expected '==', '& MASK ==' or 'in {'"            },
	{WORKER "need go read\n",						      "p.profile:5: expected 'need PROGRAM...: CALL...'"             },
	{WORKER "need go:\n",							  "p.profile:5: expected 'need PROGRAM...: CALL...'"             },
	{WORKER "need a12345678901234567890123456789012 "
		"b12345678901234567890123456789: read\n",		     "p.profile:5: the programs are shorter than 64 bytes"          },
	{WORKER "ioctl: arg1 == TIOCWHAT allow\n",
	 "p.profile:5: expected a known constant or a number"											 },
	{WORKER "ioctl: arg1 == 0x123456789 allow\n",
	 "p.profile:5: expected a known constant or a number"											 },
	{WORKER "clone: arg0 & 0xf0 == 1 allow\n",
	 "p.profile:5: the value has bits outside the mask"											   },
	{WORKER "clone: arg0 & 0 == 0 allow\n",                                        "p.profile:5: the value has bits outside the mask"             },
	{WORKER "socket: arg0 in { } allow\n",                                         "p.profile:5: expected constants in { }"                       },
	{WORKER "socket: arg0 in { 1 2\n",					     "p.profile:5: expected '}' before the end of the line"         },
	{WORKER "socket: arg0 in 1 allow\n",                                           "p.profile:5: expected '{', found '1'"                         },
	{WORKER "socket: arg2 == 0 and arg0 == 1 allow\n",
	 "p.profile:5: conditions stand in the order of arguments"										    },
	{WORKER "socket: arg1 & 0xf in { 1 0x12 } allow\n",
	 "p.profile:5: the value has bits outside the mask"											   },
	{WORKER "socket: arg0 == 0 and arg2 == 1 and arg1 == 1 allow\n",
	 "p.profile:5: conditions stand in the order of arguments"										    },
	{WORKER "socket: arg0 == 0 and arg1 == 1 and arg2 == 1 and arg2 == 1 allow\n",
	 "p.profile:5: more than 3 conditions"													},
	{WORKER "socket: arg0 == 1\n",						 "p.profile:5: expected 'allow', 'kill' or 'errno NAME'"        },
	{WORKER "socket: else\n",						      "p.profile:5: expected 'allow', 'kill' or 'errno NAME'"        },
	{WORKER "socket: else allow now\n",
	 "p.profile:5: expected the end of the line, found 'now'"										     },
};

static void test_profile_parse_bad_text_says_where_and_what(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct profile *profile = NULL;
		struct err err = ERR_NULL;
		int r = parse(bad[i].text, NULL, &profile, &err);

		if (r != -EINVAL)
			print_error("accepted: %s\n", bad[i].text);
		assert_int_equal(r, -EINVAL);
		assert_string_equal(err.text, bad[i].error);
		assert_null(profile);
	}
}

static void test_line_next_refuses_long_lines_and_odd_bytes(void **state)
{
	char text[LINE_MAX_BYTES + 2];
	struct line_reader reader;
	struct line line;
	struct err err = ERR_NULL;

	(void)state;
	memset(text, 'a', sizeof(text));
	line_reader_init(&reader, "x/y.profile", text, LINE_MAX_BYTES + 1);
	assert_int_equal(line_next(&reader, &line, &err), -EINVAL);
	assert_string_equal(err.text, "y.profile:1: line longer than 512 bytes");
	line_reader_init(&reader, "y.profile", text, LINE_MAX_BYTES);
	assert_int_equal(line_next(&reader, &line, &err), 1);
	assert_int_equal(line.n_tokens, 1);
	assert_int_equal(line_next(&reader, &line, &err), 0);
	line_reader_init(&reader, "y.profile", "a\0b\n", 4);
	assert_int_equal(line_next(&reader, &line, &err), -EINVAL);
	for (size_t i = 0; i < LINE_MAX_BYTES; i++)
		text[i] = i % 2 ? ' ' : 'a';
	line_reader_init(&reader, "y.profile", text, LINE_MAX_BYTES);
	assert_int_equal(line_next(&reader, &line, &err), -EINVAL);
	assert_string_equal(err.text, "y.profile:1: more than 96 words");
}

static void test_names_constant_takes_names_and_numbers(void **state)
{
	uint32_t value = 7;
	int error = 0;

	(void)state;
	assert_int_equal(names_constant("TIOCSTI", &value), 0);
	assert_int_equal(value, 0x5412);
	assert_int_equal(names_constant("0xffffffff", &value), 0);
	assert_int_equal(value, UINT32_MAX);
	assert_int_equal(names_constant("CLONE_NEW_MASK", &value), 0);
	assert_int_equal(value, 0x7e020000);
	assert_int_equal(names_constant("0x", &value), -ENOENT);
	assert_int_equal(names_constant("0xFF", &value), -ENOENT);
	assert_int_equal(names_constant("4294967296", &value), -ERANGE);
	assert_int_equal(names_constant("", &value), -ENOENT);
	assert_int_equal(names_errno("ENOSYS", &error), 0);
	assert_int_equal(error, ENOSYS);
	assert_null(names_errno_text(9999));
	assert_false(names_argument_checkable("ioctl", 6));
	assert_false(names_argument_checkable("ioctl", 40));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_profile_parse_session_fills_every_field),
	cmocka_unit_test(test_profile_parse_in_gives_one_statement_each),
	cmocka_unit_test(test_profile_parse_three_conditions_combine),
	cmocka_unit_test(test_profile_parse_include_is_one_level_deep),
	cmocka_unit_test(test_profile_parse_bad_text_says_where_and_what),
	cmocka_unit_test(test_line_next_refuses_long_lines_and_odd_bytes),
	cmocka_unit_test(test_names_constant_takes_names_and_numbers),
};
TEST_MAIN(tests)
