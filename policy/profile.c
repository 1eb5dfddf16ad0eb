#include "policy/profile.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

#include "policy/names.h"
#include "policy/set.h"
/* State of one parse. */
struct parser {
	struct profile *profile;
	struct profile_filter *filter; /* NULL before the first `filter` */
	const struct profile_source *source;
	struct line_reader outer;
	struct line_reader inner;
	char *included; /* owned; NULL outside of an include */
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
	struct profile_statement *statement = NULL;

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

/* The next CALL or @set of the line, as a statement of its own. */
static int take_call(struct parser *parser, struct line *line,
		     struct profile_statement **ret_statement, struct err *err)
{
	struct profile_statement *statement = NULL;
	const char *call = NULL;
	int number = -1;
	int r;

	r = set_parse_call(line, &call, &number, err);
	if (r < 0)
		return r;
	r = new_statement(parser, line, call, &statement, err);
	if (statement)
		statement->number = number;
	*ret_statement = statement;
	return r;
}

/* CALL... behind allow, errno E or kill */
static int parse_calls(struct parser *parser, struct line *line, struct profile_verdict verdict,
		       struct err *err)
{
	if (!line_peek(line))
		return line_fail(&line->where, err, "expected system calls or @sets");
	while (line_peek(line)) {
		struct profile_statement *statement = NULL;
		int r = take_call(parser, line, &statement, err);

		if (r < 0)
			return r;
		statement->type = PROFILE_VERDICT;
		statement->verdict = verdict;
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

/* The alternatives that `in { A B C }` gives; == gives one. */
struct alternatives {
	size_t n;
	uint32_t value[16];
};

/* { A B C } */
static int parse_in(struct line *line, struct alternatives *found, struct err *err)
{
	const char *next;
	int r;

	r = line_expect(line, "{", err);
	for (next = line_peek(line); r == 0 && next && !str_equal(next, "}");
	     next = line_peek(line)) {
		if (found->n == ARRAY_SIZE(found->value))
			return line_fail(&line->where, err, "more than %zu constants",
					 ARRAY_SIZE(found->value));
		r = parse_constant(line, &found->value[found->n++], err);
	}
	if (r == 0 && found->n == 0)
		return line_fail(&line->where, err, "expected constants in { }");
	return r < 0 ? r : line_expect(line, "}", err);
}

/* == VALUE or in { VALUE... }, either behind & MASK */
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
	if (word && str_equal(word, "&")) {
		r = parse_constant(line, &condition.mask, err);
		word = line_take(line);
	}
	if (r < 0)
		return r;
	if (word && str_equal(word, "in"))
		r = parse_in(line, &found, err);
	else if (word && str_equal(word, "=="))
		r = parse_constant(line, &found.value[found.n++], err);
	else
		return line_fail(&line->where, err, "expected '==', '& MASK ==' or 'in {'");
	if (r < 0)
		return r;
	for (size_t i = 0; i < found.n; i++) {
		if ((found.value[i] & ~condition.mask) != 0 || condition.mask == 0)
			return line_fail(&line->where, err, "the value has bits outside the mask");
	}
	*ret_condition = condition;
	*ret_alternatives = found;
	return 0;
}

/* CALL: else VERDICT */
static int parse_else(struct parser *parser, struct line *line, const char *call, struct err *err)
{
	struct profile_statement *statement = NULL;
	int r;

	(void)line_take(line);
	r = new_statement(parser, line, call, &statement, err);
	if (r < 0)
		return r;
	statement->type = PROFILE_ELSE;
	r = parse_verdict(line, &statement->verdict, err);
	return r < 0 ? r : line_expect_end(line, err);
}

/* A rule whose conditions may each have several values. */
struct rule {
	size_t n;
	struct profile_condition condition[PROFILE_MAX_CONDITIONS];
	struct alternatives alternatives[PROFILE_MAX_CONDITIONS];
	struct profile_verdict verdict;
};

/* COND [and COND] VERDICT */
static int parse_rule(struct line *line, const char *call, struct rule *rule, struct err *err)
{
	int r;

	for (;;) {
		if (rule->n == PROFILE_MAX_CONDITIONS)
			return line_fail(&line->where, err, "more than %d conditions",
					 PROFILE_MAX_CONDITIONS);
		r = parse_condition(line, call, &rule->condition[rule->n],
				    &rule->alternatives[rule->n], err);
		if (r < 0)
			return r;
		rule->n++;
		if (!line_peek(line) || !str_equal(line_peek(line), "and"))
			break;
		(void)line_take(line);
	}
	for (size_t i = 1; i < rule->n; i++) {
		if (rule->condition[i].arg <= rule->condition[i - 1].arg)
			return line_fail(&line->where, err,
					 "conditions stand in the order of arguments");
	}
	r = parse_verdict(line, &rule->verdict, err);
	return r < 0 ? r : line_expect_end(line, err);
}

/* CALL: COND [and COND] VERDICT: one statement for each combination of values */
static int parse_match(struct parser *parser, struct line *line, const char *call, struct err *err)
{
	struct rule rule = {0};
	size_t n_combinations = 1;
	int r;

	r = parse_rule(line, call, &rule, err);
	if (r < 0)
		return r;
	for (size_t i = 0; i < rule.n; i++)
		n_combinations *= rule.alternatives[i].n;
	for (size_t i = 0; i < n_combinations; i++) {
		struct profile_statement *statement = NULL;
		size_t rest = i;

		r = new_statement(parser, line, call, &statement, err);
		if (r < 0)
			return r;
		statement->type = PROFILE_MATCH;
		statement->verdict = rule.verdict;
		statement->n_conditions = rule.n;
		memcpy(statement->condition, rule.condition, sizeof(rule.condition));
		for (size_t j = rule.n; j-- > 0; rest /= rule.alternatives[j].n)
			statement->condition[j].value =
				rule.alternatives[j].value[rest % rule.alternatives[j].n];
	}
	return 0;
}

/* ---- needs ---- */

/* need PROGRAM...: CALL... */
static int parse_need(struct parser *parser, struct line *line, struct err *err)
{
	char programs[PROFILE_PROGRAMS_BYTES] = "";
	size_t length = 0;
	const char *word;

	for (word = line_take(line); word && !str_equal(word, ":"); word = line_take(line)) {
		if (str_format(programs + length, sizeof(programs) - length, "%s%s",
			       length > 0 ? " " : "", word) < 0)
			return line_fail(&line->where, err,
					 "the programs are shorter than %d bytes",
					 PROFILE_PROGRAMS_BYTES);
		length = strlen(programs);
	}
	if (!word || length == 0 || !line_peek(line))
		return line_fail(&line->where, err, "expected 'need PROGRAM...: CALL...'");
	while (line_peek(line)) {
		struct profile_statement *statement = NULL;
		int r = take_call(parser, line, &statement, err);

		if (r < 0)
			return r;
		statement->type = PROFILE_NEED;
		memcpy(statement->programs, programs, sizeof(programs));
	}
	return 0;
}

/* ---- statements ---- */

/* include FILE.rules: one level deep, so that a reader has two files open at most. parse_lines goes
 * on in that file and comes back at its end. */
static int parse_include(struct parser *parser, struct line *line, struct err *err)
{
	const char *name = line_take(line);
	size_t size = 0;
	int r;

	if (!name || !str_has_suffix(name, ".rules"))
		return line_fail(&line->where, err, "expected the name of a .rules file");
	if (parser->included)
		return line_fail(&line->where, err, "an included file includes no other");
	r = line_expect_end(line, err);
	if (r < 0)
		return r;
	r = parser->source->read(parser->source->userdata, name, &parser->included, &size, err);
	if (r < 0)
		return r;
	line_reader_init(&parser->inner, name, parser->included, size);
	return 0;
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
	struct profile_verdict verdict = {.action = PROFILE_KILL};
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
	if (str_equal(word, "need"))
		return parse_need(parser, line, err);
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

/* A word that is one of two values: kind session|worker, proc subset|masked, root refused|allowed.
 */
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
_Static_assert(POLICY_ROOT_REFUSED == 1 && POLICY_ROOT_ALLOWED == 2, "order of parse_choice");

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
	static const char *const roots[2] = {"refused", "allowed"};
	const char *word = line_take(line);

	if (str_equal(word, "profile"))
		return parse_name(parser, line, err);
	if (parser->profile->name[0] == '\0')
		return line_fail(&line->where, err, "expected 'profile NAME' first");
	if (str_equal(word, "kind"))
		return parse_choice(line, kinds, &parser->profile->kind, err);
	if (str_equal(word, "proc"))
		return parse_choice(line, procs, &parser->profile->proc, err);
	if (str_equal(word, "root"))
		return parse_choice(line, roots, &parser->profile->root, err);
	if (str_equal(word, "limit"))
		return limit_parse(line, &parser->profile->limits, err);
	return line_fail(&line->where, err, "expected kind, proc, root, limit or filter");
}

static int parse_line(struct parser *parser, struct line *line, struct err *err)
{
	if (!parser->included && str_equal(line_peek(line), "filter")) {
		(void)line_take(line);
		if (parser->profile->kind == 0)
			return line_fail(&line->where, err, "expected 'kind' before a filter");
		return parse_filter(parser, line, err);
	}
	return parser->filter ? parse_in_filter(parser, line, err)
			      : parse_header(parser, line, err);
}

static int parse_lines(struct parser *parser, struct err *err)
{
	for (;;) {
		struct line line;
		int r;

		r = line_next(parser->included ? &parser->inner : &parser->outer, &line, err);
		if (r < 0)
			return r;
		if (r == 0 && !parser->included)
			return 0;
		if (r == 0) {
			free(TAKE_PTR(parser->included));
			continue;
		}
		r = parse_line(parser, &line, err);
		if (r < 0)
			return r;
	}
}

/* ---- what must be there ---- */

/* Session: command, shim and helper, proc and every limit. Worker: the worker filter, no more. */
static int check_complete(const struct profile *profile, struct err *err)
{
	bool session = profile->kind == POLICY_KIND_SESSION;
	int r;

	if (profile->kind == 0)
		return line_fail(&profile->where, err, "the profile has no 'kind'");
	if ((profile->proc != 0) != session)
		return line_fail(&profile->where, err,
				 "'proc' belongs to every session profile and to no other");
	if ((profile->root != 0) != session)
		return line_fail(&profile->where, err,
				 "'root' belongs to every session profile and to no other");
	if (!session && profile->limits.given != 0)
		return line_fail(&profile->where, err, "a worker profile has no limits");
	r = session ? limit_check(&profile->limits, &profile->where, err) : 0;
	if (r < 0)
		return r;
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
		return err_fail(err, -EINVAL, "policy", "%s: larger than %zu bytes", file,
				PROFILE_FILE_MAX_BYTES);
	line_reader_init(&parser.outer, file, data, size);
	r = parse_lines(&parser, err);
	free(parser.included);
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
