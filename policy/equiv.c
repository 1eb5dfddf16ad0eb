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
	struct values all[6];  /* of each argument that a condition looks at, else none */
	struct values edge[6]; /* the same without the single wrong bits */
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
				"arch %x nr %x args %llx %llx %llx %llx: %x, wanted %x", arch, nr,
				(unsigned long long)args[0], (unsigned long long)args[1],
				(unsigned long long)args[2], (unsigned long long)args[3], found,
				wanted);
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

static void add_edges(struct values *values, const struct profile_condition *condition)
{
	uint32_t value = condition->value;

	add_halves(values, value);
	add_halves(values, value + 1);
	add_halves(values, value - 1);
	add_halves(values, value | ~condition->mask);
}

/* Each bit wrong by itself, the bits outside the mask all zero and all one: the difference that a
 * lost compare or a changed mask would hide. */
static void add_wrong_bits(struct values *values, const struct profile_condition *condition)
{
	uint32_t value = condition->value;

	for (uint32_t bit = 1; bit != 0; bit <<= 1) {
		add_value(values, value ^ bit);
		add_value(values, (value | ~condition->mask) ^ bit);
	}
}

static bool collect(struct check *check, int number, uint32_t arg)
{
	struct values *all = &check->all[arg];
	struct values *edge = &check->edge[arg];
	bool matters = false;

	all->n = 0;
	edge->n = 0;
	for (size_t i = 0; i < check->filter->n_matches; i++) {
		const struct resolve_match *match = &check->filter->match[i];

		for (size_t j = 0; match->number == number && j < match->n_conditions; j++) {
			if (match->condition[j].arg != arg)
				continue;
			matters = true;
			add_edges(edge, &match->condition[j]);
			add_edges(all, &match->condition[j]);
			add_wrong_bits(all, &match->condition[j]);
		}
	}
	if (!matters)
		return false;
	add_halves(edge, 0);
	add_halves(edge, UINT32_MAX);
	add_halves(all, 0);
	add_halves(all, UINT32_MAX);
	for (uint32_t bit = 1; bit != 0; bit <<= 1)
		add_value(all, bit);
	return true;
}

/* All combinations of the lists; list[i] NULL: the argument does not matter and stays as it is. */
static int check_product(struct check *check, int number, const struct values *const list[6],
			 uint64_t args[6])
{
	size_t at[6] = {0};
	size_t i;

	do {
		int r;

		for (i = 0; i < 6; i++) {
			if (list[i])
				args[i] = list[i]->value[at[i]];
		}
		r = check_one(check, AUDIT_ARCH_X86_64, (uint32_t)number, args);
		if (r < 0)
			return r;
		for (i = 0; i < 6; i++) {
			if (list[i] && ++at[i] < list[i]->n)
				break;
			at[i] = 0;
		}
	} while (i < 6);
	return 0;
}

/*
 * Up to two arguments: every value of one with every value of the other. Three would be tens of
 * millions of cases, so every value of each is tried with the edges of the others.
 */
static int check_conditional(struct check *check, int number)
{
	static const uint64_t others[] = {0, UINT32_MAX, UINT64_MAX};
	uint32_t n_matter = 0;
	uint32_t first = 0;
	bool matters[6];

	for (uint32_t arg = 0; arg < 6; arg++) {
		matters[arg] = collect(check, number, arg);
		if (matters[arg] && n_matter++ == 0)
			first = arg;
	}
	for (size_t i = 0; i < 6 * ARRAY_SIZE(others); i++) {
		uint64_t other = others[i / 6];
		uint64_t args[6] = {other, other, other, other, other, other};
		const struct values *list[6] = {NULL};
		int r;

		if (!matters[i % 6] || (n_matter <= 2 && i % 6 != first))
			continue;
		for (size_t arg = 0; arg < 6; arg++) {
			if (matters[arg])
				list[arg] = n_matter <= 2 || arg == i % 6 ? &check->all[arg]
									  : &check->edge[arg];
		}
		r = check_product(check, number, list, args);
		if (r < 0)
			return r;
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
