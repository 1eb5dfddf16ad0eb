/*
 * The compiled policy of this build against tests/data/seccomp.tsv, and its limits against the
 * table of defaults.
 */
#include <errno.h>
#include <fcntl.h>
#include <seccomp.h>
#include <stdio.h>
#include <string.h>

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>

#include "base/str.h"

#include "policy/bpfsim.h"
#include "policy/image.h"
#include "tests/lib/test.h"

#define X32_BIT 0x40000000u

static struct image image;

static int open_image(void **state)
{
	AUTO_CLOSE int fd = open(TEST_BIN_DIR "/policy.img", O_RDONLY | O_CLOEXEC);
	struct err err = ERR_NULL;

	(void)state;
	return fd < 0 ? -1 : image_open(fd, &image, &err);
}

static int close_image(void **state)
{
	(void)state;
	image_close(&image);
	return 0;
}

struct row {
	const char *filter;
	const char *abi;
	const char *call;
	const char *args;
	const char *verdict;
};

static const struct {
	const char *abi;
	uint32_t arch;
	uint32_t number_bit;
} abis[] = {
	{"x86-64", AUDIT_ARCH_X86_64,  0      },
	{"x32",    AUDIT_ARCH_X86_64,  X32_BIT},
	{"i386",   AUDIT_ARCH_I386,    0      },
	{"arm64",  AUDIT_ARCH_AARCH64, 0      },
};

static const struct {
	const char *text;
	uint32_t action;
} actions[] = {
	{"allow",        SECCOMP_RET_ALLOW               },
	{"kill",         SECCOMP_RET_KILL_PROCESS        },
	{"EPERM",        SECCOMP_RET_ERRNO | EPERM       },
	{"ENOSYS",       SECCOMP_RET_ERRNO | ENOSYS      },
	{"EACCES",       SECCOMP_RET_ERRNO | EACCES      },
	{"ENOTTY",       SECCOMP_RET_ERRNO | ENOTTY      },
	{"EAFNOSUPPORT", SECCOMP_RET_ERRNO | EAFNOSUPPORT},
	{"EINVAL",       SECCOMP_RET_ERRNO | EINVAL      },
	{"ENOMEM",       SECCOMP_RET_ERRNO | ENOMEM      },
	{"EOPNOTSUPP",   SECCOMP_RET_ERRNO | EOPNOTSUPP  },
	{"ENOPROTOOPT",  SECCOMP_RET_ERRNO | ENOPROTOOPT },
	{"nothing",      SECCOMP_RET_ERRNO | 0           },
};

static struct seccomp_data row_data(const struct row *row)
{
	struct seccomp_data data = {0};
	const char *at = row->args;
	bool known = false;
	char *end;
	int number;

	for (size_t i = 0; i < ARRAY_SIZE(abis); i++) {
		if (!str_equal(abis[i].abi, row->abi))
			continue;
		known = row->call[0] >= '0' && row->call[0] <= '9';
		if (known) {
			number = (int)(uint32_t)strtoul(row->call, NULL, 10);
		} else {
			number = seccomp_syscall_resolve_name_arch(SCMP_ARCH_X86_64, row->call);
			known = number != __NR_SCMP_ERROR;
		}
		data.arch = abis[i].arch;
		data.nr = (int)((uint32_t)number | abis[i].number_bit);
	}
	assert_true(known);
	for (size_t i = 0; i < 6 && *at != '-' && *at != '\0'; i++) {
		data.args[i] = strtoull(at, &end, 16);
		at = *end == ',' ? end + 1 : end;
	}
	return data;
}

static void check_row(const struct row *row, const char *profile_name, enum policy_filter which)
{
	const struct policy_profile *profile = image_find(&image, profile_name, NULL);
	struct seccomp_data data = row_data(row);
	const struct sock_filter *program;
	uint32_t found = 0;
	uint32_t wanted = 0;
	size_t n;

	assert_non_null(profile);
	program = image_filter(&image, profile, which, &n);
	assert_non_null(program);
	assert_int_equal(bpfsim_check(program, n), 0);
	assert_int_equal(bpfsim_run(program, n, &data, &found, NULL), 0);
	for (size_t i = 0; i < ARRAY_SIZE(actions); i++) {
		if (str_equal(actions[i].text, row->verdict))
			wanted = actions[i].action;
	}
	assert_int_not_equal(wanted, 0);
	if (found != wanted)
		print_error("%s %s: %s %s %s is %x, wanted %s\n", profile_name, row->filter,
			    row->abi, row->call, row->args, found, row->verdict);
	assert_int_equal(found, wanted);
}

static void check_session_row(const struct row *row)
{
	static const struct {
		const char *name;
		enum policy_filter which;
	} filters[] = {
		{"command", POLICY_FILTER_COMMAND},
		{"shim",    POLICY_FILTER_SHIM   },
		{"helper",  POLICY_FILTER_HELPER },
	};

	if (str_equal(row->filter, "component") || str_equal(row->filter, "agent")) {
		check_row(row, row->filter, POLICY_FILTER_COMMAND);
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(filters); i++) {
		if (!str_equal(filters[i].name, row->filter))
			continue;
		check_row(row, "component", filters[i].which);
		check_row(row, "agent", filters[i].which);
		return;
	}
	fail_msg("unknown filter %s", row->filter);
}

static void test_policy_gives_the_promised_verdicts(void **state)
{
	FILE *file = fopen(TEST_DATA_DIR "/seccomp.tsv", "re");
	char line[256];
	size_t n = 0;

	(void)state;
	assert_non_null(file);
	while (fgets(line, sizeof(line), file)) {
		struct row row = {0};
		const char **field[] = {&row.filter, &row.abi, &row.call, &row.args, &row.verdict};
		char *at = line;

		if (line[0] == '#')
			continue;
		line[strcspn(line, "\n")] = '\0';
		for (size_t i = 0; i < ARRAY_SIZE(field); i++) {
			assert_non_null(at);
			*field[i] = strsep(&at, "\t");
		}
		assert_null(at);
		if (str_has_prefix(row.filter, "worker-"))
			check_row(&row, row.filter, POLICY_FILTER_WORKER);
		else
			check_session_row(&row);
		n++;
	}
	assert_int_equal(fclose(file), 0);
	assert_true(n > 800);
}

static void test_policy_profiles_have_their_indices(void **state)
{
	static const char *const names[] = {
		"component",     "agent",           "worker-api",       "worker-egress",
		"worker-config", "worker-helper",   "worker-inspector", "worker-api-network",
		"worker-redis",  "worker-template", "worker-provider",  "worker-remote",
		"worker-s3"};

	(void)state;
	assert_int_equal(image.header->n_profiles, ARRAY_SIZE(names));
	for (uint32_t i = 0; i < ARRAY_SIZE(names); i++)
		assert_string_equal(image_profile(&image, i)->name, names[i]);
	assert_memory_not_equal(image_profile(&image, 0)->hash, image_profile(&image, 1)->hash, 32);
}

static void test_policy_limits_are_the_documented_defaults(void **state)
{
	const struct policy_limits component = {
		.tmpfs_bytes = 256ull << 20,
		.tmpfs_inodes = 65536,
		.memory_bytes = 1ull << 30,
		.output_rate_bytes = 10ull << 20,
		.output_max_bytes = 64ull << 20,
		.max_pids = 256,
		.max_files = 4096,
		.cpu_pct = 100,
		.cpu_weight = 100,
		.max_ptys = 16,
		.ttl_minutes = 60,
		.ttl_max_minutes = 720,
		.load_timeout_s = 60,
		.execute_timeout_s = 1800,
		.command_timeout_s = 60,
	};
	const struct policy_limits agent = {
		.tmpfs_bytes = 2ull << 30,
		.tmpfs_inodes = 1000000,
		.memory_bytes = 4ull << 30,
		.output_rate_bytes = 10ull << 20,
		.output_max_bytes = 64ull << 20,
		.max_pids = 2048,
		.max_files = 4096,
		.cpu_pct = 200,
		.cpu_weight = 100,
		.max_ptys = 64,
		.ttl_minutes = 60,
		.ttl_max_minutes = 7 * 24 * 60,
		.command_timeout_s = 60,
	};

	(void)state;
	assert_memory_equal(&image_profile(&image, 0)->limits, &component, sizeof(component));
	assert_memory_equal(&image_profile(&image, 1)->limits, &agent, sizeof(agent));
	assert_int_equal(image_profile(&image, 0)->proc, POLICY_PROC_SUBSET);
	assert_int_equal(image_profile(&image, 1)->proc, POLICY_PROC_MASKED);
	assert_int_equal(image_profile(&image, 0)->root, POLICY_ROOT_REFUSED);
	assert_int_equal(image_profile(&image, 1)->root, POLICY_ROOT_ALLOWED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_policy_gives_the_promised_verdicts),
		cmocka_unit_test(test_policy_profiles_have_their_indices),
		cmocka_unit_test(test_policy_limits_are_the_documented_defaults),
	};
	int n_before = test_begin();

	return test_end(n_before, cmocka_run_group_tests(tests, open_image, close_image));
}
