#include "policy/resolve.h"

#include <errno.h>
#include <seccomp.h>
#include <string.h>

#include <linux/audit.h>

#include "base/str.h"

/* x32 calls come as AUDIT_ARCH_X86_64 with this bit set in the number. */
#define X32_BIT 0x40000000u

struct resolver {
	struct resolve_filter *filter;
	const struct profile_source *source;
	resolve_used used;
	const struct profile_statement *statement; /* whose set is being opened */
};

/* The number of a name, or the one written beside it, which must then be one that the library does
 * not know by another number. */
static int call_number(const struct line_where *where, const char *name, int written,
		       int *ret_number, struct err *err)
{
	int number = seccomp_syscall_resolve_name_arch(SCMP_ARCH_X86_64, name);

	if (number == __NR_SCMP_ERROR && written < 0)
		return line_fail(where, err, "unknown system call '%s'", name);
	if (number == __NR_SCMP_ERROR)
		number = written;
	else if (written >= 0 && written != number)
		return line_fail(where, err, "%s is number %d", name, number);
	if (number < 0 || number >= RESOLVE_MAX_NUMBER)
		return line_fail(where, err, "x86-64 has no system call '%s'", name);
	*ret_number = number;
	return 0;
}

const char *resolve_name(int number, char text[PROFILE_CALL_BYTES])
{
	AUTO_FREE char *name = seccomp_syscall_resolve_num_arch(SCMP_ARCH_X86_64, number);

	if (!name || str_copy(text, PROFILE_CALL_BYTES, name) < 0)
		return NULL;
	return text;
}

static int fail_twice(const struct line_where *where, const struct resolve_call *call,
		      const char *name, struct err *err)
{
	return line_fail(where, err, "%s: already decided at %s:%u", name, call->where.file,
			 call->where.number);
}

/* It says why, so it may stand before or behind what it is about. */
static int add_need(struct resolve_call *call, const struct profile_statement *statement,
		    const char *name, struct err *err)
{
	if (call->needed_by[0] != '\0')
		return line_fail(&statement->where, err, "%s: its need stands at %s:%u already",
				 name, call->need_where.file, call->need_where.number);
	memcpy(call->needed_by, statement->programs, sizeof(call->needed_by));
	call->need_where = statement->where;
	return 0;
}

/* A statement of one call, by name. */
static int add_call(struct resolver *resolver, const struct line_where *where, const char *name,
		    int written, struct err *err)
{
	const struct profile_statement *statement = resolver->statement;
	struct resolve_filter *filter = resolver->filter;
	struct resolve_call *call;
	int number = -1;
	int r;

	r = call_number(where, name, written, &number, err);
	if (r < 0)
		return r;
	call = &filter->call[number];
	if (statement->type == PROFILE_NEED)
		return add_need(call, statement, name, err);
	switch (statement->type) {
	case PROFILE_VERDICT:
		if (call->present)
			return fail_twice(where, call, name, err);
		call->verdict = statement->verdict;
		break;
	case PROFILE_MATCH:
		if (call->present && !call->conditional)
			return fail_twice(where, call, name, err);
		if (call->conditional && !profile_verdict_equal(call->verdict, statement->verdict))
			return line_fail(where, err, "%s: the other rules say '%s'", name,
					 profile_verdict_text(call->verdict));
		if (call->conditional && call->first_arg != statement->condition[0].arg)
			return line_fail(where, err, "%s: the other rules look at arg%u first",
					 name, call->first_arg);
		if (filter->n_matches == RESOLVE_MAX_MATCHES)
			return line_fail(where, err, "more than %d argument rules",
					 RESOLVE_MAX_MATCHES);
		call->verdict = statement->verdict;
		call->conditional = true;
		call->first_arg = statement->condition[0].arg;
		filter->match[filter->n_matches].number = number;
		filter->match[filter->n_matches].n_conditions = statement->n_conditions;
		memcpy(filter->match[filter->n_matches].condition, statement->condition,
		       sizeof(statement->condition));
		filter->n_matches++;
		break;
	case PROFILE_ELSE:
		if (!call->conditional)
			return line_fail(where, err, "%s: 'else' follows its argument rules", name);
		if (call->has_otherwise)
			return fail_twice(where, call, name, err);
		if (profile_verdict_equal(call->verdict, statement->verdict))
			return line_fail(where, err, "%s: 'else' equals the other rules", name);
		call->otherwise = statement->verdict;
		call->has_otherwise = true;
		break;
	case PROFILE_NEED:
		break;
	}
	call->present = true;
	call->where = *where;
	return 0;
}

static int add_set_call(void *userdata, const struct line_where *where, const char *name,
			int number, struct err *err)
{
	return add_call(userdata, where, name, number, err);
}

static int read_set(const char *name, const struct profile_source *source, set_call call,
		    void *userdata, struct err *err)
{
	char file[PROFILE_CALL_BYTES + 8];
	AUTO_FREE char *data = NULL;
	size_t size = 0;
	int r;

	r = str_format(file, sizeof(file), "%s.set", name);
	if (r < 0)
		return r;
	r = source->read(source->userdata, file, &data, &size, err);
	return r < 0 ? r : set_parse(name, data, size, call, userdata, err);
}

static int add_statement(struct resolver *resolver, const struct profile_statement *statement,
			 struct err *err)
{
	resolver->statement = statement;
	if (statement->call[0] != '@')
		return add_call(resolver, &statement->where, statement->call, statement->number,
				err);
	if (statement->type != PROFILE_VERDICT || statement->number >= 0)
		return line_fail(&statement->where, err, "a set takes a plain verdict only");
	if (resolver->used)
		resolver->used(resolver->source->userdata, statement->call + 1);
	return read_set(statement->call + 1, resolver->source, add_set_call, resolver, err);
}

static int check_calls(const struct resolve_filter *filter, struct err *err)
{
	for (int i = 0; i < RESOLVE_MAX_NUMBER; i++) {
		const struct resolve_call *call = &filter->call[i];

		if (call->conditional && !call->has_otherwise)
			return line_fail(&call->where, err, "the argument rules have no 'else'");
		/* The generator adds no rule for what the default says, so the matches, which must
		 * be rules, may not say it. */
		if (call->conditional && profile_verdict_equal(call->verdict, filter->otherwise))
			return line_fail(&call->where, err, "the rules say what the default says");
	}
	return 0;
}

int resolve_filter_new(const struct profile_filter *source_filter,
		       const struct profile_source *source, resolve_used used,
		       struct resolve_filter **ret_filter, struct err *err)
{
	AUTO(resolve_filter_free) struct resolve_filter *filter = calloc(1, sizeof(*filter));
	struct resolver resolver = {.filter = filter, .source = source, .used = used};
	int r;

	if (!filter)
		return -ENOMEM;
	filter->otherwise = source_filter->otherwise;
	for (size_t i = 0; i < source_filter->n_statements; i++) {
		r = add_statement(&resolver, &source_filter->statement[i], err);
		if (r < 0)
			return r;
	}
	r = check_calls(filter, err);
	if (r < 0)
		return r;
	*ret_filter = TAKE_PTR(filter);
	return 0;
}

struct resolve_filter *resolve_filter_free(struct resolve_filter *filter)
{
	free(filter);
	return NULL;
}

static int mark_member(void *userdata, const struct line_where *where, const char *name,
		       int written, struct err *err)
{
	bool *member = userdata;
	int number = -1;
	int r;

	r = call_number(where, name, written, &number, err);
	if (r < 0)
		return r;
	member[number] = true;
	return 0;
}

int resolve_set(const char *name, const struct profile_source *source,
		bool member[RESOLVE_MAX_NUMBER], struct err *err)
{
	memset(member, 0, RESOLVE_MAX_NUMBER * sizeof(member[0]));
	return read_set(name, source, mark_member, member, err);
}

static bool match_holds(const struct resolve_match *match, const uint64_t args[6])
{
	for (size_t i = 0; i < match->n_conditions; i++) {
		const struct profile_condition *condition = &match->condition[i];

		if (((uint32_t)args[condition->arg] & condition->mask) != condition->value)
			return false;
	}
	return true;
}

struct profile_verdict resolve_verdict(const struct resolve_filter *filter, uint32_t arch,
				       uint32_t nr, const uint64_t args[6])
{
	const struct resolve_call *call;

	/* (B6): another ABI would go round every argument rule. -1 is no x32 number: it is what a
	 * tracer writes to skip a call. */
	if (arch != AUDIT_ARCH_X86_64 || (nr >= X32_BIT && nr != UINT32_MAX))
		return (struct profile_verdict){.action = PROFILE_KILL};
	if (nr >= RESOLVE_MAX_NUMBER || !filter->call[nr].present)
		return filter->otherwise;
	call = &filter->call[nr];
	if (!call->conditional)
		return call->verdict;
	for (size_t i = 0; i < filter->n_matches; i++) {
		if (filter->match[i].number == (int)nr && match_holds(&filter->match[i], args))
			return call->verdict;
	}
	return call->otherwise;
}
