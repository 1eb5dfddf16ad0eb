/*
 * Printing. What comes from a session can hold terminal control sequences (C6): it is escaped
 * whenever it goes to a terminal, unless --raw was given; results that are names or texts of an
 * answer are escaped always.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Text of an answer, escaped always; NULL prints nothing. */
void print_text(FILE *file, const char *text);

/* The text, escaped, then spaces up to `width` and two more. 0: no spaces. A negative width: cut to
 * that many bytes, and no spaces. */
void print_cell(const char *text, int width);

/* A word of ours, padded to width; in colour on a terminal, unless NO_COLOR is set or TERM is dumb.
 */
enum print_color {
	PRINT_GREEN,
	PRINT_YELLOW,
	PRINT_RED,
};
void print_verdict(const char *word, int width, enum print_color color);

/* A name on a line of its own; NULL: "-". */
void print_name(const char *name);

/* Bytes that a command wrote, to our descriptor 1 or 2. carry keeps an incomplete UTF-8 sequence
 * between calls. */
struct print_stream {
	FILE *file;
	bool escape;
	char carry[4];
	size_t n_carry;
};
void print_stream_init(struct print_stream *stream, FILE *file, bool raw);
/* 0, or -ESHUTDOWN: whoever reads our output is gone. */
int print_flush(FILE *file);
/* The same after writing. */
int print_stream_write(struct print_stream *stream, const char *data, size_t length);
void print_stream_end(struct print_stream *stream);

/* A JSON document, indented, on standard output. */
void print_json(const json_t *doc);
/* One compact line. */
void print_json_line(const json_t *doc);

struct options;
/* Print the answer as -o json wants it; false: it is to be printed as a table or as names. */
bool print_answer(const struct options *options, const json_t *doc);

/* A text, or the bytes of its base64 (NAME_base64) where it was no UTF-8. Freed by the caller;
 * NULL: none. */
char *print_member_bytes(const json_t *doc, const char *name, size_t *ret_size);
/* The same, as what a command wrote. 0 or -ESHUTDOWN. */
int print_member_stream(const struct options *options, FILE *file, const json_t *doc,
			const char *name);

/* Text of a member, "-" where it is null or missing. */
const char *print_member(const json_t *object, const char *key);
