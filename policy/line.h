/*
 * One line of a policy file as tokens, with the place it stands at, so that every error says
 * file:line and what was expected there.
 *
 * A token is a word of [A-Za-z0-9_.@-] or one of the marks : { } & = ==. `#` begins a comment.
 */
#pragma once

#include <stddef.h>

#include "base/auto.h"
#include "base/err.h"

#define LINE_MAX_BYTES  512
#define LINE_MAX_TOKENS 96
#define LINE_FILE_BYTES 40

/* Where a statement stands: travels with it through resolve and lint. */
struct line_where {
	char file[LINE_FILE_BYTES]; /* base name; NUL terminated */
	unsigned int number;        /* from 1 */
};

struct line {
	struct line_where where;
	char text[2 * LINE_MAX_BYTES]; /* the tokens, each with its NUL */
	const char *token[LINE_MAX_TOKENS];
	size_t n_tokens;
	size_t at; /* next token */
};

/* Iterates over the lines of a text that holds statements. */
struct line_reader {
	const char *data;
	size_t size;
	size_t at;
	struct line_where where;
};

void line_reader_init(struct line_reader *reader, const char *file, const char *data, size_t size);

/* The next line that is not empty. 1: *ret_line holds it; 0: end; -EINVAL with the place in err. */
MUST_USE int line_next(struct line_reader *reader, struct line *ret_line, struct err *err);

/* The next token or NULL at the end of the line. */
const char *line_peek(const struct line *line);
const char *line_take(struct line *line);

/* Take the next token if it equals `text`: 0; else -EINVAL "expected 'text'". */
MUST_USE int line_expect(struct line *line, const char *text, struct err *err);
/* 0 if nothing follows, else -EINVAL. */
MUST_USE int line_expect_end(struct line *line, struct err *err);

/* err_fail with -EINVAL and "file:line: " in front. */
int line_fail(const struct line_where *where, struct err *err, const char *format, ...)
	PRINTF_LIKE(3, 4);
