#include "policy/profile.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "base/str.h"

#include "policy/names.h"
#include "sandboxd/limits.h"
#include "sandboxd/plan.h"

/* State of one parse: the profile, the filter that statements go to, whether we are in an include.
 */
struct parser {
	struct profile *profile;
	struct profile_filter *filter; /* NULL before the first `filter` */
	const struct profile_source *source;
	bool included;
};

static const char *const filter_names[] = {
	[POLICY_FILTER_COMMAND] = "command",
	[POLICY_FILTER_SHIM] = "shim",
	[POLICY_FILTER_HELPER] = "helper",
	[POLICY_FILTER_WORKER] = "worker",
};
_Static_assert(ARRAY_SIZE(filter_names) == POLICY_FILTER_MAX_, "one name each");

const char *profile_filter_name(enum policy_filter filter)
{
	return filter_names[filter];
}

const char *profile_verdict_text(struct profile_verdict verdict)
{
	switch (verdict.action) {
	case PROFILE_ALLOW:
		return "allow";
	case PROFILE_KILL:
		return "kill";
	case PROFILE_ERRNO:
		return names_errno_text(verdict.error_number);
	case PROFILE_ACTION_MAX_:
		break;
	}
	ASSERT(false);
	return NULL;
}

bool profile_verdict_equal(struct profile_verdict a, struct profile_verdict b)
{
	return a.action == b.action &&
	       (a.action != PROFILE_ERRNO || a.error_number == b.error_number);
}

/* ---- limits: one row each; sizes and durations in the forms of base/num.h ---- */

enum limit_form {
	LIMIT_SIZE,
	LIMIT_COUNT,
	LIMIT_SECONDS,
	LIMIT_MINUTES
};

struct limit_row {
	const char *name;
	size_t offset;
	size_t bytes;
	enum limit_form form;
	uint64_t max;
};

/* clang-format off */
#define LIMIT(name, field, form, max) \
	{name, offsetof(struct policy_limits, field), sizeof(((struct policy_limits *)0)->field), form, max}
static const struct limit_row limit_rows[] = {
	LIMIT("tmpfs",           tmpfs_bytes,       LIMIT_SIZE,    PLAN_TMPFS_MAX_BYTES),
	LIMIT("inodes",          tmpfs_inodes,      LIMIT_COUNT,   PLAN_INODES_MAX),
	LIMIT("memory",          memory_bytes,      LIMIT_SIZE,    PLAN_MEMORY_MAX_BYTES),
	LIMIT("pids",            max_pids,          LIMIT_COUNT,   PLAN_PIDS_MAX),
	LIMIT("files",           max_files,         LIMIT_COUNT,   PLAN_FILES_MAX),
	LIMIT("cpu",             cpu_pct,           LIMIT_COUNT,   PLAN_CPU_MAX_PCT),
	LIMIT("cpu-weight",      cpu_weight,        LIMIT_COUNT,   10000),
	LIMIT("ptys",            max_ptys,          LIMIT_COUNT,   PLAN_PTYS_MAX),
	LIMIT("output-rate",     output_rate_bytes, LIMIT_SIZE,    1ull << 40),
	LIMIT("output-max",      output_max_bytes,  LIMIT_SIZE,    1ull << 40),
	LIMIT("ttl",             ttl_minutes,       LIMIT_MINUTES, AGENT_TTL_MAX_MINUTES),
	LIMIT("ttl-max",         ttl_max_minutes,   LIMIT_MINUTES, AGENT_TTL_MAX_MINUTES),
	LIMIT("load-timeout",    load_timeout_s,    LIMIT_SECONDS, 86400),
	LIMIT("execute-timeout", execute_timeout_s, LIMIT_SECONDS, 86400),
	LIMIT("command-timeout", command_timeout_s, LIMIT_SECONDS, 86400),
};
/* clang-format on */
_Static_assert(ARRAY_SIZE(limit_rows) < 32, "bits of limits_set");

static const char *limit_form_text(enum limit_form form)
{
	switch (form) {
	case LIMIT_SIZE:
		return "a size such as 64MiB";
	case LIMIT_COUNT:
		return "a number";
	case LIMIT_SECONDS:
	case LIMIT_MINUTES:
		return "a time such as 30min";
	}
	return "a value";
}

static int parse_limit_value(const struct limit_row *row, const char *text, uint64_t *ret_value)
{
	uint64_t value;
	int r;

	if (str_equal(text, "none")) {
		*ret_value = 0;
		return 0;
	}
	if (row->form == LIMIT_SIZE)
		return num_parse_size(text, row->max, ret_value);
	if (row->form == LIMIT_COUNT)
		return num_parse_u64(text, 1, row->max, ret_value);
	r = num_parse_seconds(text, row->form == LIMIT_MINUTES ? row->max * 60 : row->max, &value);
	if (r < 0)
		return r;
	if (row->form == LIMIT_MINUTES && value % 60 != 0)
		return -EINVAL;
	*ret_value = row->form == LIMIT_MINUTES ? value / 60 : value;
	return 0;
}

/* limit NAME VALUE */
static int parse_limit(struct parser *parser, struct line *line, struct err *err)
{
	const char *name = line_take(line);
	const char *text = line_take(line);
	const struct limit_row *row = NULL;
	uint8_t *field;
	uint64_t value = 0;
	uint32_t bit = 0;

	for (size_t i = 0; name && i < ARRAY_SIZE(limit_rows); i++) {
		if (str_equal(limit_rows[i].name, name)) {
			row = &limit_rows[i];
			bit = 1u << i;
		}
	}
	if (!row || !text)
		return line_fail(&line->where, err,
				 "expected 'limit NAME VALUE' with a known name");
	if (parser->profile->limits_set & bit)
		return line_fail(&line->where, err, "limit %s is set twice", name);
	if (parse_limit_value(row, text, &value) < 0)
		return line_fail(&line->where, err, "expected %s or 'none' for %s",
				 limit_form_text(row->form), name);
	field = (uint8_t *)&parser->profile->limits + row->offset;
	if (row->bytes == sizeof(uint64_t)) {
		memcpy(field, &value, sizeof(value));
	} else {
		uint32_t narrow = (uint32_t)value; /* every 32-bit row has a maximum that fits */

		memcpy(field, &narrow, sizeof(narrow));
	}
	parser->profile->limits_set |= bit;
	return line_expect_end(line, err);
}

/* ---- words of a filter ---- */

/* allow | kill | errno NAME */
static int parse_verdict(struct line *line, struct profile_verdict *ret_verdict, struct err *err)
{
	const char *word = line_take(line);
	struct profile_verdict verdict = {.action = PROFILE_ALLOW};

	if (word && str_equal(word, "kill")) {
		verdict.action = PROFILE_KILL;
	} else if (word && str_equal(word, "errno")) {
		const char *name = line_take(line);

		verdict.action = PROFILE_ERRNO;
		if (!name || names_errno(name, &verdict.error_number) < 0)
			return line_fail(&line->where, err,
					 "expected an errno name that policies use");
	} else if (!word || !str_equal(word, "allow")) {
		return line_fail(&line->where, err, "expected 'allow', 'kill' or 'errno NAME'");
	}
	*ret_verdict = verdict;
	return 0;
}

/* Room for one more statement of the current filter, filled with place and call. */
static int new_statement(struct parser *parser, const struct line *line, const char *call,
			 struct profile_statement **ret_statement, struct err *err)
{
	struct profile_filter *filter = parser->filter;
	struct profile_statement *statement;

	if (filter->n_statements == PROFILE_MAX_STATEMENTS)
		return line_fail(&line->where, err, "more than %d statements in a filter",
				 PROFILE_MAX_STATEMENTS);
	if (filter->n_statements == filter->n_allocated) {
		size_t n = filter->n_allocated ? filter->n_allocated * 2 : 64;
		struct profile_statement *grown =
			reallocarray(filter->statement, n, sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		filter->statement = grown;
		filter->n_allocated = n;
	}
	statement = &filter->statement[filter->n_statements];
	*statement = (struct profile_statement){.where = line->where, .number = -1};
	if (str_copy(statement->call, sizeof(statement->call), call) < 0)
		return line_fail(&line->where, err, "a system call's name is shorter than %d bytes",
				 PROFILE_CALL_BYTES);
	filter->n_statements++;
	*ret_statement = statement;
	return 0;
}

/* NAME or NAME=NUMBER; *ret_number is -1 without a number. */
static int parse_call(struct line *line, const char **ret_call, int *ret_number, struct err *err)
{
	const char *call = line_take(line);
	const char *next = line_peek(line);
	uint32_t number;

	if (!call)
		return line_fail(&line->where, err, "expected a system call");
	*ret_number = -1;
	if (next && str_equal(next, "=")) {
		(void)line_take(line);
		next = line_take(line);
		if (!next || num_parse_u32(next, 0, 1023, &number) < 0)
			return line_fail(&line->where, err, "expected a number, 0 to 1023");
		*ret_number = (int)number;
	}
	*ret_call = call;
	return 0;
}

/* CALL... behind allow, errno E or kill */
static int parse_calls(struct parser *parser, struct line *line, struct profile_verdict verdict,
		       struct err *err)
{
	if (!line_peek(line))
		return line_fail(&line->where, err, "expected system calls or @sets");
	while (line_peek(line)) {
		struct profile_statement *statement;
		const char *call;
		int number;
		int r;

		r = parse_call(line, &call, &number, err);
		if (r < 0)
			return r;
		r = new_statement(parser, line, call, &statement, err);
		if (r < 0)
			return r;
		statement->type = PROFILE_VERDICT;
		statement->verdict = verdict;
		statement->number = number;
	}
	return 0;
}

/* ---- argument rules ---- */

static int parse_constant(struct line *line, uint32_t *ret_value, struct err *err)
{
	const char *word = line_take(line);

	if (!word || names_constant(word, ret_value) < 0)
		return line_fail(&line->where, err, "expected a known constant or a number");
	return 0;
}

/* argN */
static int parse_arg(struct line *line, const char *call, uint32_t *ret_arg, struct err *err)
{
	const char *word = line_take(line);

	if (!word || strlen(word) != 4 || !str_has_prefix(word, "arg") || word[3] < '0' ||
	    word[3] > '5')
		return line_fail(&line->where, err, "expected 'else' or arg0 ... arg5");
	*ret_arg = (uint32_t)(word[3] - '0');
	if (!names_argument_checkable(call, *ret_arg))
		return line_fail(&line->where, err, "%s of %s is not known to be a 32-bit value",
				 word, call);
	return 0;
}

/* The alternatives that `in { A B C }` gives; == and & give one. */
struct alternatives {
	size_t n;
	uint32_t value[16];
};

static int parse_condition(struct line *line, const char *call,
			   struct profile_condition *ret_condition,
			   struct alternatives *ret_alternatives, struct err *err)
{
	struct profile_condition condition = {.mask = UINT32_MAX};
	struct alternatives found = {0};
	const char *word;
	int r;

	r = parse_arg(line, call, &condition.arg, err);
	if (r < 0)
		return r;
	word = line_take(line);
	if (word && str_equal(word, "in")) {
		r = line_expect(line, "{", err);
		while (r == 0 && found.n < ARRAY_SIZE(found.value) && line_peek(line) &&
		       !str_equal(line_peek(line), "}"))
			r = parse_constant(line, &found.value[found.n++], err);
		if (r == 0 && found.n == 0)
			return line_fail(&line->where, err, "expected constants in { }");
		if (r == 0)
			r = line_expect(line, "}", err);
	} else {
		if (word && str_equal(word, "&")) {
			r = parse_constant(line, &condition.mask, err);
			if (r < 0)
				return r;
			word = line_take(line);
		}
		if (!word || !str_equal(word, "=="))
			return line_fail(&line->where, err, "expected '==', '& MASK ==' or 'in {'");
		r = parse_constant(line, &found.value[found.n++], err);
		if (r == 0 && ((found.value[0] & ~condition.mask) != 0 || condition.mask == 0))
			return line_fail(&line->where, err, "the value has bits outside the mask");
	}
	if (r < 0)
		return r;
	*ret_condition = condition;
	*ret_alternatives = found;
	return 0;
}

/* CALL: else VERDICT */
static int parse_else(struct parser *parser, struct line *line, const char *call, struct err *err)
{
	struct profile_statement *statement;
	int r;

	(void)line_take(line);
	r = new_statement(parser, line, call, &statement, err);
	if (r < 0)
		return r;
	statement->type = PROFILE_ELSE;
	r = parse_verdict(line, &statement->verdict, err);
	return r < 0 ? r : line_expect_end(line, err);
}

/* CALL: COND [and COND] VERDICT */
static int parse_match(struct parser *parser, struct line *line, const char *call, struct err *err)
{
	struct profile_condition condition[PROFILE_MAX_CONDITIONS];
	struct alternatives alternatives[PROFILE_MAX_CONDITIONS] = {{0}};
	struct profile_verdict verdict;
	size_t n = 0;
	int r;

	do {
		if (n == PROFILE_MAX_CONDITIONS)
			return line_fail(&line->where, err, "more than %d conditions",
					 PROFILE_MAX_CONDITIONS);
		r = parse_condition(line, call, &condition[n], &alternatives[n], err);
		if (r < 0)
			return r;
		n++;
	} while (line_peek(line) && str_equal(line_peek(line), "and") && line_take(line));
	if (n == 2 && condition[1].arg <= condition[0].arg)
		return line_fail(&line->where, err, "conditions stand in the order of arguments");
	r = parse_verdict(line, &verdict, err);
	if (r < 0)
		return r;
	r = line_expect_end(line, err);
	if (r < 0)
		return r;
	for (size_t i = 0; i < alternatives[0].n; i++) {
		for (size_t j = 0; j < (n == 2 ? alternatives[1].n : 1); j++) {
			struct profile_statement *statement;

			r = new_statement(parser, line, call, &statement, err);
			if (r < 0)
				return r;
			statement->type = PROFILE_MATCH;
			statement->verdict = verdict;
			statement->n_conditions = n;
			memcpy(statement->condition, condition, n * sizeof(condition[0]));
			statement->condition[0].value = alternatives[0].value[i];
			if (n == 2)
				statement->condition[1].value = alternatives[1].value[j];
		}
	}
	return 0;
}

/* ---- statements ---- */

static int parse_lines(struct parser *parser, const char *file, const char *data, size_t size,
		       struct err *err);

/* include FILE.rules: one level deep, so that a reader has two files open at most. */
static int parse_include(struct parser *parser, struct line *line, struct err *err)
{
	struct parser inner = *parser;
	const char *name = line_take(line);
	AUTO_FREE char *data = NULL;
	size_t size;
	int r;

	if (!name || !str_has_suffix(name, ".rules"))
		return line_fail(&line->where, err, "expected the name of a .rules file");
	if (parser->included)
		return line_fail(&line->where, err, "an included file includes no other");
	r = parser->source->read(parser->source->userdata, name, &data, &size, err);
	if (r < 0)
		return r;
	inner.included = true;
	r = parse_lines(&inner, name, data, size, err);
	return r < 0 ? r : line_expect_end(line, err);
}

static int parse_default(struct parser *parser, struct line *line, struct err *err)
{
	struct profile_filter *filter = parser->filter;
	int r;

	if (filter->has_otherwise)
		return line_fail(&line->where, err, "the filter has a default already");
	r = parse_verdict(line, &filter->otherwise, err);
	if (r < 0)
		return r;
	if (filter->otherwise.action == PROFILE_ALLOW)
		return line_fail(&line->where, err, "a filter is an allowlist: no 'default allow'");
	filter->has_otherwise = true;
	return line_expect_end(line, err);
}

static int parse_in_filter(struct parser *parser, struct line *line, struct err *err)
{
	const char *word = line_take(line);
	const char *next = line_peek(line);
	struct profile_verdict verdict;
	int r;

	if (next && str_equal(next, ":")) {
		(void)line_take(line);
		if (line_peek(line) && str_equal(line_peek(line), "else"))
			return parse_else(parser, line, word, err);
		return parse_match(parser, line, word, err);
	}
	if (str_equal(word, "include"))
		return parse_include(parser, line, err);
	if (str_equal(word, "default"))
		return parse_default(parser, line, err);
	line->at = 0;
	r = parse_verdict(line, &verdict, err);
	return r < 0 ? r : parse_calls(parser, line, verdict, err);
}

static int parse_filter(struct parser *parser, struct line *line, struct err *err)
{
	const char *name = line_take(line);

	for (size_t i = 0; name && i < ARRAY_SIZE(filter_names); i++) {
		if (!str_equal(filter_names[i], name))
			continue;
		if (parser->profile->filter[i].present)
			return line_fail(&line->where, err, "filter %s appears twice", name);
		parser->filter = &parser->profile->filter[i];
		parser->filter->present = true;
		parser->filter->where = line->where;
		return line_expect_end(line, err);
	}
	return line_fail(&line->where, err, "expected 'command', 'shim', 'helper' or 'worker'");
}

/* A word that is one of two values: kind session|worker, proc subset|masked. */
static int parse_choice(struct line *line, const char *const names[2], uint32_t *field,
			struct err *err)
{
	const char *word = line_take(line);

	if (*field != 0)
		return line_fail(&line->where, err, "this statement appears twice");
	if (word && str_equal(word, names[0]))
		*field = 1;
	else if (word && str_equal(word, names[1]))
		*field = 2;
	else
		return line_fail(&line->where, err, "expected '%s' or '%s'", names[0], names[1]);
	return line_expect_end(line, err);
}
_Static_assert(POLICY_KIND_SESSION == 1 && POLICY_KIND_WORKER == 2, "order of parse_choice");
_Static_assert(POLICY_PROC_SUBSET == 1 && POLICY_PROC_MASKED == 2, "order of parse_choice");

static int parse_name(struct parser *parser, struct line *line, struct err *err)
{
	const char *name = line_take(line);
	struct profile *profile = parser->profile;

	if (profile->name[0] != '\0')
		return line_fail(&line->where, err, "a file holds one profile");
	if (!name || str_copy(profile->name, sizeof(profile->name), name) < 0 ||
	    !str_only(name, strlen(name), "-"))
		return line_fail(&line->where, err, "expected a name of letters, digits and '-'");
	profile->where = line->where;
	return line_expect_end(line, err);
}

static int parse_header(struct parser *parser, struct line *line, struct err *err)
{
	static const char *const kinds[2] = {"session", "worker"};
	static const char *const procs[2] = {"subset", "masked"};
	const char *word = line_take(line);

	if (str_equal(word, "profile"))
		return parse_name(parser, line, err);
	if (parser->profile->name[0] == '\0')
		return line_fail(&line->where, err, "expected 'profile NAME' first");
	if (str_equal(word, "kind"))
		return parse_choice(line, kinds, &parser->profile->kind, err);
	if (str_equal(word, "proc"))
		return parse_choice(line, procs, &parser->profile->proc, err);
	if (str_equal(word, "limit"))
		return parse_limit(parser, line, err);
	return line_fail(&line->where, err, "expected kind, proc, limit or filter");
}

static int parse_lines(struct parser *parser, const char *file, const char *data, size_t size,
		       struct err *err)
{
	struct line_reader reader;
	struct line line;
	int r;

	line_reader_init(&reader, file, data, size);
	for (;;) {
		r = line_next(&reader, &line, err);
		if (r <= 0)
			return r;
		if (!parser->included && str_equal(line_peek(&line), "filter")) {
			(void)line_take(&line);
			r = parser->profile->kind == 0
				    ? line_fail(&line.where, err, "expected 'kind' before a filter")
				    : parse_filter(parser, &line, err);
		} else if (parser->filter) {
			r = parse_in_filter(parser, &line, err);
		} else {
			r = parse_header(parser, &line, err);
		}
		if (r < 0)
			return r;
	}
}

/* ---- what must be there ---- */

/* Session: command, shim and helper, proc and every limit. Worker: the worker filter, no more. */
static int check_complete(const struct profile *profile, struct err *err)
{
	bool session = profile->kind == POLICY_KIND_SESSION;
	uint32_t all = (1u << ARRAY_SIZE(limit_rows)) - 1;

	if (profile->kind == 0)
		return line_fail(&profile->where, err, "the profile has no 'kind'");
	if ((profile->proc != 0) != session)
		return line_fail(&profile->where, err,
				 "'proc' belongs to every session profile and to no other");
	for (size_t i = 0; i < ARRAY_SIZE(limit_rows); i++) {
		if (session && (profile->limits_set & 1u << i) == 0)
			return line_fail(&profile->where, err, "limit %s is missing",
					 limit_rows[i].name);
	}
	if (!session && (profile->limits_set & all) != 0)
		return line_fail(&profile->where, err, "a worker profile has no limits");
	for (size_t i = 0; i < POLICY_FILTER_MAX_; i++) {
		const struct profile_filter *filter = &profile->filter[i];

		if (filter->present !=
		    (session ? i != POLICY_FILTER_WORKER : i == POLICY_FILTER_WORKER))
			return line_fail(filter->present ? &filter->where : &profile->where, err,
					 "filter %s is %s in this kind of profile", filter_names[i],
					 filter->present ? "not used" : "missing");
		if (filter->present && !filter->has_otherwise)
			return line_fail(&filter->where, err, "filter %s has no default",
					 filter_names[i]);
	}
	return 0;
}

int profile_parse(const char *file, const char *data, size_t size,
		  const struct profile_source *source, struct profile **ret_profile,
		  struct err *err)
{
	AUTO(profile_free) struct profile *profile = calloc(1, sizeof(*profile));
	struct parser parser = {.profile = profile, .source = source};
	int r;

	if (!profile)
		return -ENOMEM;
	if (size > PROFILE_FILE_MAX_BYTES)
		return err_fail(err, -EINVAL, "policy", "%s: larger than %u bytes", file,
				PROFILE_FILE_MAX_BYTES);
	r = parse_lines(&parser, file, data, size, err);
	if (r < 0)
		return r;
	if (profile->name[0] == '\0')
		return err_fail(err, -EINVAL, "policy", "%s: no 'profile NAME'", file);
	r = check_complete(profile, err);
	if (r < 0)
		return r;
	*ret_profile = TAKE_PTR(profile);
	return 0;
}

struct profile *profile_free(struct profile *profile)
{
	if (!profile)
		return NULL;
	for (size_t i = 0; i < POLICY_FILTER_MAX_; i++)
		free(profile->filter[i].statement);
	free(profile);
	return NULL;
}

int profile_parse_set(const char *name, const char *data, size_t size, profile_set_call call,
		      void *userdata, struct err *err)
{
	struct line_reader reader;
	struct line line;
	char file[PROFILE_CALL_BYTES + 8];
	bool named = false;
	int r;

	r = str_format(file, sizeof(file), "%s.set", name);
	if (r < 0)
		return err_fail(err, -EINVAL, "policy", "a set's name is too long");
	line_reader_init(&reader, file, data, size);
	for (;;) {
		r = line_next(&reader, &line, err);
		if (r < 0)
			return r;
		if (r == 0)
			return named ? 0
				     : err_fail(err, -EINVAL, "policy", "%s: no 'set %s'", file,
						name);
		if (!named) {
			r = line_expect(&line, "set", err);
			if (r == 0)
				r = line_expect(&line, name, err);
			if (r == 0)
				r = line_expect_end(&line, err);
			if (r < 0)
				return r;
			named = true;
			continue;
		}
		while (line_peek(&line)) {
			const char *word;
			int number;

			r = parse_call(&line, &word, &number, err);
			if (r == 0)
				r = call(userdata, &line.where, word, number, err);
			if (r < 0)
				return r;
		}
	}
}
