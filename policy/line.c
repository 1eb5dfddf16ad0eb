#include "policy/line.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

int line_fail(const struct line_where *where, struct err *err, const char *format, ...)
{
	char text[ERR_TEXT_BYTES];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	return err_fail(err, -EINVAL, "policy", "%s:%u: %s", where->file, where->number, text);
}

void line_reader_init(struct line_reader *reader, const char *file, const char *data, size_t size)
{
	const char *slash = strrchr(file, '/');

	*reader = (struct line_reader){.data = data, .size = size};
	if (str_copy(reader->where.file, sizeof(reader->where.file), slash ? slash + 1 : file) < 0)
		reader->where.file[0] = '?'; /* a longer name than any of ours */
}

static bool is_word(char c)
{
	/* Not isalnum(): the locale has no say in what a policy means. */
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '_' || c == '.' || c == '@' || c == '-';
}

/* Length of the token at `text`, 0 if no token begins there. */
static size_t token_length(const char *text, size_t size)
{
	size_t n = 0;

	while (n < size && is_word(text[n]))
		n++;
	if (n > 0)
		return n;
	if (size >= 2 && text[0] == '=' && text[1] == '=')
		return 2;
	return strchr(":{}&=", text[0]) && text[0] != '\0' ? 1 : 0;
}

static int tokenise(struct line *line, const char *text, size_t size, struct err *err)
{
	char *out = line->text;
	size_t at = 0;

	while (at < size && text[at] != '#') {
		size_t n;

		if (text[at] == ' ' || text[at] == '\t') {
			at++;
			continue;
		}
		n = token_length(text + at, size - at);
		if (n == 0)
			return line_fail(&line->where, err, "unexpected byte 0x%02x",
					 (unsigned int)(unsigned char)text[at]);
		if (line->n_tokens == LINE_MAX_TOKENS)
			return line_fail(&line->where, err, "more than %d words", LINE_MAX_TOKENS);
		/* Fits: one NUL for each token of at least one byte, and text is twice a line. */
		memcpy(out, text + at, n);
		out[n] = '\0';
		line->token[line->n_tokens++] = out;
		out += n + 1;
		at += n;
	}
	return 0;
}

int line_next(struct line_reader *reader, struct line *ret_line, struct err *err)
{
	while (reader->at < reader->size) {
		const char *text = reader->data + reader->at;
		size_t left = reader->size - reader->at;
		const char *end = memchr(text, '\n', left);
		size_t size = end ? (size_t)(end - text) : left;
		int r;

		reader->at += end ? size + 1 : size;
		reader->where.number++;
		ret_line->where = reader->where;
		ret_line->n_tokens = 0;
		ret_line->at = 0;
		if (size > LINE_MAX_BYTES)
			return line_fail(&reader->where, err, "line longer than %d bytes",
					 LINE_MAX_BYTES);
		r = tokenise(ret_line, text, size, err);
		if (r < 0)
			return r;
		if (ret_line->n_tokens > 0)
			return 1;
	}
	return 0;
}

const char *line_peek(const struct line *line)
{
	return line->at < line->n_tokens ? line->token[line->at] : NULL;
}

const char *line_take(struct line *line)
{
	return line->at < line->n_tokens ? line->token[line->at++] : NULL;
}

int line_expect(struct line *line, const char *text, struct err *err)
{
	const char *token = line_take(line);

	if (!token)
		return line_fail(&line->where, err, "expected '%s' before the end of the line",
				 text);
	if (!str_equal(token, text))
		return line_fail(&line->where, err, "expected '%s', found '%.32s'", text, token);
	return 0;
}

int line_expect_end(struct line *line, struct err *err)
{
	const char *token = line_peek(line);

	if (token)
		return line_fail(&line->where, err, "expected the end of the line, found '%.32s'",
				 token);
	return 0;
}
