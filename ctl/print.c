#include "print.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/str.h"

#include "ctl/options.h"

#define ESCAPE_CHUNK 1024

static void write_escaped(FILE *file, const char *data, size_t length, bool keep_newlines)
{
	char text[ESCAPE_CHUNK * 4 + 8];

	(void)str_escape(text, sizeof(text), data, length, keep_newlines);
	(void)fputs(text, file);
}

/* Length of the longest part of data that does not end within a UTF-8 sequence. */
static size_t whole_characters(const char *data, size_t length)
{
	size_t back;

	for (back = 1; back <= 3 && back <= length; back++) {
		unsigned char c = (unsigned char)data[length - back];
		size_t wants;

		if ((c & 0xc0) == 0x80)
			continue;
		wants = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
		return wants > back ? length - back : length;
	}
	return length;
}

int print_flush(FILE *file)
{
	return fflush(file) == 0 && !ferror(file) ? 0 : -ESHUTDOWN;
}

void print_text(FILE *file, const char *text)
{
	size_t length = text ? strlen(text) : 0;

	while (length > 0) {
		size_t n = length < ESCAPE_CHUNK ? length : whole_characters(text, ESCAPE_CHUNK);

		write_escaped(file, text, n, false);
		text += n;
		length -= n;
	}
}

void print_cell(const char *text, int width)
{
	char cell[512];
	size_t length = strlen(text);

	if (width < 0 && length > (size_t)-width)
		length = (size_t)-width;
	if (length > sizeof(cell) / 4 - 2)
		length = sizeof(cell) / 4 - 2;
	(void)str_escape(cell, sizeof(cell), text, length, false);
	(void)printf(width > 0 ? "%-*s  " : "%*s", width > 0 ? width : 0, cell);
}

static bool wants_color(void)
{
	/* One thread. NOLINTBEGIN(concurrency-mt-unsafe) */
	const char *no_color = getenv("NO_COLOR");
	const char *terminal = getenv("TERM");
	/* NOLINTEND(concurrency-mt-unsafe) */

	return isatty(STDOUT_FILENO) == 1 && (!no_color || no_color[0] == '\0') && terminal &&
	       !str_equal(terminal, "dumb");
}

void print_verdict(const char *word, int width, enum print_color color)
{
	static const char *const codes[] = {
		[PRINT_GREEN] = "32", [PRINT_YELLOW] = "33", [PRINT_RED] = "31"};

	if (wants_color())
		(void)printf("\033[%sm%-*s\033[0m", codes[color], width, word);
	else
		(void)printf("%-*s", width, word);
}

void print_name(const char *name)
{
	print_text(stdout, name ? name : "-");
	(void)putchar('\n');
}

void print_stream_init(struct print_stream *stream, FILE *file, bool raw)
{
	*stream = (struct print_stream){.file = file, .escape = !raw && isatty(fileno(file)) == 1};
}

int print_stream_write(struct print_stream *stream, const char *data, size_t length)
{
	if (!stream->escape) {
		(void)fwrite(data, 1, length, stream->file);
		return print_flush(stream->file);
	}
	while (length > 0) {
		char chunk[ESCAPE_CHUNK];
		size_t n = sizeof(chunk) - stream->n_carry;
		size_t whole;

		n = n < length ? n : length;
		memcpy(chunk, stream->carry, stream->n_carry);
		memcpy(chunk + stream->n_carry, data, n);
		data += n;
		length -= n;
		n += stream->n_carry;
		whole = whole_characters(chunk, n);
		write_escaped(stream->file, chunk, whole, true);
		stream->n_carry = n - whole;
		memcpy(stream->carry, chunk + whole, stream->n_carry);
	}
	return print_flush(stream->file);
}

void print_stream_end(struct print_stream *stream)
{
	if (stream->n_carry > 0)
		write_escaped(stream->file, stream->carry, stream->n_carry, true);
	stream->n_carry = 0;
	(void)fflush(stream->file);
}

/* Everything but this one control character is escaped by the JSON library. */
static void put_json(char *text)
{
	char *rest = text;

	for (char *at = text ? strchr(text, 0x7f) : NULL; at; at = strchr(rest, 0x7f)) {
		*at = '\0';
		(void)fputs(rest, stdout);
		(void)fputs("\\u007f", stdout);
		rest = at + 1;
	}
	if (text)
		(void)puts(rest);
	free(text);
}

void print_json(const json_t *doc)
{
	put_json(json_dumps(doc, JSON_INDENT(2) | JSON_ENCODE_ANY | JSON_ENSURE_ASCII));
}

void print_json_line(const json_t *doc)
{
	put_json(doc_format(doc, 1));
}

bool print_answer(const struct options *options, const json_t *doc)
{
	if (options->output != OUTPUT_JSON)
		return false;
	print_json(doc);
	return true;
}

const char *print_member(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "-";
}

char *print_member_bytes(const json_t *doc, const char *name, size_t *ret_size)
{
	const json_t *text = json_object_get(doc, name);
	const char *encoded;
	size_t length;
	char other[32];
	char *bytes;

	*ret_size = json_string_length(text);
	if (text)
		return json_is_string(text) ? strdup(json_string_value(text)) : NULL;
	(void)snprintf(other, sizeof(other), "%s_base64", name);
	encoded = json_string_value(json_object_get(doc, other));
	length = encoded ? strlen(encoded) : 0;
	bytes = calloc(1, length + 1);
	if (bytes &&
	    str_base64_decode(bytes, length + 1, encoded ? encoded : "", length, ret_size) < 0)
		*ret_size = 0;
	return bytes;
}

int print_member_stream(const struct options *options, FILE *file, const json_t *doc,
			const char *name)
{
	size_t size;
	AUTO_FREE char *text = print_member_bytes(doc, name, &size);
	struct print_stream stream;
	int r;

	print_stream_init(&stream, file, options->raw);
	r = text && size > 0 ? print_stream_write(&stream, text, size) : 0;
	print_stream_end(&stream);
	return r;
}
