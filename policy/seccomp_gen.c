/*
 * Theory. libseccomp 2.5.4 wants care (B13): its merging of 64-bit compares is wrong in places, and
 * a rule without conditions swallows every rule with conditions of the same call. So
 * - only masked EQ is used, and only on the low 32 bits (the mask clears the rest), so that no
 *   compare is ever split into two;
 * - "else" of a call with argument rules is itself a pair of rules on the argument that all of them
 *   look at first: (arg & bit) == 0 and (arg & bit) == bit, one of which always holds. They are
 *   added last, and `bit` is part of every mask used on that argument, so that the library keeps
 *   them behind the matches; a match that fails at a later condition goes on to them.
 * The tree ignores seccomp_syscall_priority, and no order is missed: the kernel answers calls whose
 * verdict depends on the number alone from a bitmap, and the checked ones run at most 45
 * instructions. None of this is trusted: equiv_check() compares the exported program with the
 * resolved filter over every number and all boundary values before sandbox-policyc writes a byte.
 */
#include "policy/seccomp_gen.h"

#include <errno.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <unistd.h>

#include <linux/filter.h>

#include "base/io.h"

#include "policy/resolve.h"

static void release_context(scmp_filter_ctx *context)
{
	if (*context)
		seccomp_release(*context);
}

static uint32_t action_of(struct profile_verdict verdict)
{
	switch (verdict.action) {
	case PROFILE_ALLOW:
		return SCMP_ACT_ALLOW;
	case PROFILE_KILL:
		return SCMP_ACT_KILL_PROCESS;
	case PROFILE_ERRNO:
		return SCMP_ACT_ERRNO((uint32_t)verdict.error_number);
	case PROFILE_ACTION_MAX_:
		break;
	}
	ASSERT(false);
	return SCMP_ACT_KILL_PROCESS;
}

static struct scmp_arg_cmp compare(const struct profile_condition *condition)
{
	return (struct scmp_arg_cmp){
		.arg = condition->arg,
		.op = SCMP_CMP_MASKED_EQ,
		.datum_a = condition->mask,
		.datum_b = condition->value,
	};
}

static int add_rule(scmp_filter_ctx context, struct profile_verdict verdict, int number, size_t n,
		    const struct scmp_arg_cmp *compares, struct err *err)
{
	int r = seccomp_rule_add_array(context, action_of(verdict), number, (unsigned int)n,
				       compares);

	/* Where a mask is a single bit, one half of an "else" is a match, which then stays. */
	if (r == -EEXIST)
		return 0;
	return r < 0 ? err_fail(err, r, "generate", "rule of call number %d", number) : 0;
}

/* The lowest bit that the first masks of all matches have in common: 0 if there is none. */
static uint32_t common_bit(const struct resolve_filter *filter, int number)
{
	uint32_t bits = UINT32_MAX;

	for (size_t i = 0; i < filter->n_matches; i++) {
		if (filter->match[i].number == number)
			bits &= filter->match[i].condition[0].mask;
	}
	return bits & -bits;
}

static int add_else(scmp_filter_ctx context, const struct resolve_filter *filter, int number,
		    struct err *err)
{
	const struct resolve_call *call = &filter->call[number];
	struct profile_condition any = {.arg = call->first_arg, .mask = common_bit(filter, number)};
	struct scmp_arg_cmp compares;
	int r;

	if (any.mask == 0)
		return err_fail(err, -EINVAL, "generate",
				"number %d: masks on arg%u have no bit in common", number, any.arg);
	compares = compare(&any);
	r = add_rule(context, call->otherwise, number, 1, &compares, err);
	if (r < 0)
		return r;
	any.value = any.mask;
	compares = compare(&any);
	return add_rule(context, call->otherwise, number, 1, &compares, err);
}

static int add_match(scmp_filter_ctx context, const struct resolve_filter *filter,
		     const struct resolve_match *match, struct err *err)
{
	struct scmp_arg_cmp compares[PROFILE_MAX_CONDITIONS];

	for (size_t i = 0; i < match->n_conditions; i++)
		compares[i] = compare(&match->condition[i]);
	return add_rule(context, filter->call[match->number].verdict, match->number,
			match->n_conditions, compares, err);
}

static int add_matches(scmp_filter_ctx context, const struct resolve_filter *filter, int number,
		       struct err *err)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < filter->n_matches; i++) {
		if (filter->match[i].number == number)
			r = add_match(context, filter, &filter->match[i], err);
	}
	if (r < 0 || profile_verdict_equal(filter->call[number].otherwise, filter->otherwise))
		return r;
	return add_else(context, filter, number, err);
}

static int add_calls(scmp_filter_ctx context, const struct resolve_filter *filter, struct err *err)
{
	for (int number = 0; number < RESOLVE_MAX_NUMBER; number++) {
		const struct resolve_call *call = &filter->call[number];
		int r = 0;

		if (!call->present)
			continue;
		if (call->conditional)
			r = add_matches(context, filter, number, err);
		else if (!profile_verdict_equal(call->verdict, filter->otherwise))
			r = add_rule(context, call->verdict, number, 0, NULL, err);
		if (r < 0)
			return r;
	}
	return 0;
}

static int set_attributes(scmp_filter_ctx context, struct err *err)
{
	static const struct {
		enum scmp_filter_attr attribute;
		uint32_t value;
	} rows[] = {
		{SCMP_FLTATR_ACT_BADARCH,  SCMP_ACT_KILL_PROCESS}, /* i386 and x32 (B6) */
		{SCMP_FLTATR_CTL_OPTIMIZE,
		 2					      }, /* a binary tree instead of a chain of 400 compares */
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		int r = seccomp_attr_set(context, rows[i].attribute, rows[i].value);

		if (r < 0)
			return err_fail(err, r, "generate", "attribute %d", (int)rows[i].attribute);
	}
	return 0;
}

/* libseccomp 2.5.4 exports to a descriptor only. */
static int export_program(scmp_filter_ctx context, struct sock_filter *program, size_t *ret_n,
			  struct err *err)
{
	AUTO_CLOSE int fd = memfd_create("policy-bpf", MFD_CLOEXEC);
	size_t n;
	off_t size;
	int r;

	if (fd < 0)
		return err_fail(err, -errno, "generate", "memfd_create");
	r = seccomp_export_bpf(context, fd);
	if (r < 0)
		return err_fail(err, r, "generate", "export of the program");
	size = lseek(fd, 0, SEEK_END);
	if (size <= 0 || (size_t)size % sizeof(*program) != 0)
		return err_fail(err, -EIO, "generate", "the exported program has no whole size");
	n = (size_t)size / sizeof(*program);
	if (n > POLICY_MAX_BPF)
		return err_fail(err, -E2BIG, "generate", "%zu instructions, at most %d", n,
				POLICY_MAX_BPF);
	if (lseek(fd, 0, SEEK_SET) < 0)
		return err_fail(err, -errno, "generate", "lseek");
	r = io_read_exact(fd, program, n * sizeof(*program));
	if (r < 0)
		return err_fail(err, r, "generate", "read of the program");
	*ret_n = n;
	return 0;
}

int seccomp_gen_filter(const struct resolve_filter *filter, struct sock_filter *program,
		       size_t *ret_n, struct err *err)
{
	scmp_filter_ctx context __attribute__((cleanup(release_context))) =
		seccomp_init(action_of(filter->otherwise));
	int r;

	if (!context)
		return -ENOMEM;
	r = set_attributes(context, err);
	if (r < 0)
		return r;
	r = add_calls(context, filter, err);
	if (r < 0)
		return r;
	return export_program(context, program, ret_n, err);
}
