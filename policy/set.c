#include "policy/set.h"

#include <errno.h>
#include <stdbool.h>

#include "base/num.h"
#include "base/str.h"

int set_parse_call(struct line *line, const char **ret_call, int *ret_number, struct err *err)
{
	const char *call = line_take(line);
	const char *next = line_peek(line);
	uint32_t number;

	if (!call)
		return line_fail(&line->where, err, "expected a system call");
	if (!next || !str_equal(next, "=")) {
		*ret_call = call;
		*ret_number = -1;
		return 0;
	}
	(void)line_take(line);
	next = line_take(line);
	if (!next || num_parse_u32(next, 0, SET_MAX_NUMBER, &number) < 0)
		return line_fail(&line->where, err, "expected a number, 0 to %d", SET_MAX_NUMBER);
	*ret_call = call;
	*ret_number = (int)number;
	return 0;
}

static int parse_name(struct line *line, const char *name, struct err *err)
{
	int r;

	r = line_expect(line, "set", err);
	if (r == 0)
		r = line_expect(line, name, err);
	return r < 0 ? r : line_expect_end(line, err);
}

static int parse_members(struct line *line, set_call call, void *userdata, struct err *err)
{
	while (line_peek(line)) {
		const char *word = NULL;
		int number = -1;
		int r;

		r = set_parse_call(line, &word, &number, err);
		if (r == 0)
			r = call(userdata, &line->where, word, number, err);
		if (r < 0)
			return r;
	}
	return 0;
}

int set_parse(const char *name, const char *data, size_t size, set_call call, void *userdata,
	      struct err *err)
{
	struct line_reader reader;
	struct line line;
	char file[SET_NAME_BYTES + 8];
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
			break;
		r = named ? parse_members(&line, call, userdata, err)
			  : parse_name(&line, name, err);
		if (r < 0)
			return r;
		named = true;
	}
	return named ? 0 : err_fail(err, -EINVAL, "policy", "%s: no 'set %s'", file, name);
}
