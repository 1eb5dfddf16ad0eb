#include "policy/equiv.h"

#include <errno.h>
#include <stdbool.h>

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>

#include "policy/bpfsim.h"
#include "policy/resolve.h"

#define X32_BIT    0x40000000u
#define MAX_VALUES 4096

/* Values worth trying in one argument. */
struct values {
	uint64_t value[MAX_VALUES];
	size_t n;
};

struct check {
	const struct resolve_filter *filter;
	const struct sock_filter *program;
	size_t n;
	struct equiv_report report;
	struct err *err;
	struct values values[3]; /* of args 0 to 2, where all that may be checked lie (names.c) */
};

static uint32_t seccomp_action(struct profile_verdict verdict)
{
	switch (verdict.action) {
	case PROFILE_ALLOW:
		return SECCOMP_RET_ALLOW;
	case PROFILE_KILL:
		return SECCOMP_RET_KILL_PROCESS;
	case PROFILE_ERRNO:
		return SECCOMP_RET_ERRNO | (uint32_t)verdict.error_number;
	case PROFILE_ACTION_MAX_:
		break;
	}
	ASSERT(false);
	return SECCOMP_RET_KILL_PROCESS;
}

static int check_one(struct check *check, uint32_t arch, uint32_t nr, const uint64_t args[6])
{
	struct seccomp_data data = {.nr = (int)nr, .arch = arch, .instruction_pointer = ~0ull};
	uint32_t wanted = seccomp_action(resolve_verdict(check->filter, arch, nr, args));
	uint32_t found = 0;
	size_t n_executed = 0;
	int r;

	for (size_t i = 0; i < 6; i++)
		data.args[i] = args[i];
	r = bpfsim_run(check->program, check->n, &data, &found, &n_executed);
	if (r < 0 || found != wanted)
		return err_fail(check->err, -EILSEQ, "equiv",
				"arch %x nr %x args %llx %llx %llx: %x, wanted %x", arch, nr,
				(unsigned long long)args[0], (unsigned long long)args[1],
				(unsigned long long)args[2], found, wanted);
	check->report.n_cases++;
	if (n_executed > check->report.n_executed_max)
		check->report.n_executed_max = n_executed;
	return 0;
}

static void add_value(struct values *values, uint64_t value)
{
	for (size_t i = 0; i < values->n; i++) {
		if (values->value[i] == value)
			return;
	}
	ASSERT(values->n < MAX_VALUES);
	values->value[values->n++] = value;
}

/* A 32-bit value alone, sign-extended and below garbage (CVE-2019-10063 compared 64 bits). */
static void add_halves(struct values *values, uint32_t low)
{
	add_value(values, low);
	add_value(values, 0xffffffff00000000ull | low);
	add_value(values, 0x0000000100000000ull | low);
}

static void add_condition(struct values *values, const struct profile_condition *condition)
{
	uint32_t value = condition->value;

	add_halves(values, value);
	add_halves(values, value + 1);
	add_halves(values, value - 1);
	add_halves(values, value | ~condition->mask);
	/* Each bit wrong by itself, the bits outside the mask all zero and all one: the difference
	 * that a lost compare or a changed mask would hide. */
	for (uint32_t bit = 1; bit != 0; bit <<= 1) {
		add_value(values, value ^ bit);
		add_value(values, (value | ~condition->mask) ^ bit);
	}
}

static void collect(const struct resolve_filter *filter, int number, uint32_t arg,
		    struct values *values)
{
	values->n = 0;
	add_halves(values, 0);
	for (size_t i = 0; i < filter->n_matches; i++) {
		const struct resolve_match *match = &filter->match[i];

		for (size_t j = 0; match->number == number && j < match->n_conditions; j++) {
			if (match->condition[j].arg == arg)
				add_condition(values, &match->condition[j]);
		}
	}
	/* An argument with no condition has the three forms of 0 only; it may not matter. */
	if (values->n > 3) {
		add_halves(values, UINT32_MAX);
		for (uint32_t bit = 1; bit != 0; bit <<= 1)
			add_value(values, bit);
	}
}

/* All combinations of values of the arguments in conditions. */
static int check_conditional(struct check *check, int number)
{
	struct values *values = check->values;

	for (uint32_t arg = 0; arg < 3; arg++)
		collect(check->filter, number, arg, &values[arg]);
	for (size_t i = 0; i < values[0].n; i++) {
		for (size_t j = 0; j < values[1].n; j++) {
			for (size_t k = 0; k < values[2].n; k++) {
				const uint64_t args[6] = {values[0].value[i], values[1].value[j],
							  values[2].value[k]};
				int r = check_one(check, AUDIT_ARCH_X86_64, (uint32_t)number, args);

				if (r < 0)
					return r;
			}
		}
	}
	return 0;
}

/* One number on each ABI, with arguments that no rule asks for. */
static int check_number(struct check *check, uint32_t nr)
{
	static const uint32_t archs[] = {AUDIT_ARCH_X86_64, AUDIT_ARCH_I386, AUDIT_ARCH_AARCH64, 0};
	static const uint64_t samples[][6] = {
		{0,             0,             0,              0,     0,     0    },
		{~0ull,         ~0ull,         ~0ull,          ~0ull, ~0ull, ~0ull},
		{1,             1,             1,              1,     1,     1    },
		{0x7fffffffull, 0x80000000ull, 0x100000000ull, 7,     8,     9    },
	};

	for (size_t i = 0; i < ARRAY_SIZE(archs); i++) {
		for (size_t j = 0; j < ARRAY_SIZE(samples); j++) {
			int r = check_one(check, archs[i], nr, samples[j]);

			if (r == 0)
				r = check_one(check, archs[i], nr | X32_BIT, samples[j]);
			if (r < 0)
				return r;
		}
	}
	return 0;
}

int equiv_check(const struct resolve_filter *filter, const struct sock_filter *program, size_t n,
		struct equiv_report *ret_report, struct err *err)
{
	static const uint32_t edges[] = {
		RESOLVE_MAX_NUMBER, 0xffff,     X32_BIT - 1,    X32_BIT,
		0x7fffffff,         0x80000000, UINT32_MAX - 1, UINT32_MAX};
	AUTO_FREE struct check *check = calloc(1, sizeof(*check));
	int r;

	if (!check)
		return -ENOMEM;
	check->filter = filter;
	check->program = program;
	check->n = n;
	check->err = err;
	r = bpfsim_check(program, n);
	if (r < 0)
		return err_fail(err, -EILSEQ, "equiv", "the kernel would refuse the program");
	for (uint32_t nr = 0; nr < RESOLVE_MAX_NUMBER; nr++) {
		r = check_number(check, nr);
		if (r == 0 && filter->call[nr].conditional)
			r = check_conditional(check, (int)nr);
		if (r < 0)
			return r;
	}
	for (size_t i = 0; i < ARRAY_SIZE(edges); i++) {
		r = check_number(check, edges[i]);
		if (r < 0)
			return r;
	}
	if (ret_report)
		*ret_report = check->report;
	return 0;
}
