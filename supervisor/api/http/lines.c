#include "supervisor/api/http/lines.h"

#include <string.h>

int lines_fill(struct lines *lines, lines_read read, void *userdata)
{
	ssize_t n;

	if (lines->at < lines->size)
		return 1;
	n = read(userdata, lines->block, sizeof(lines->block));
	if (n <= 0)
		return (int)n;
	lines->at = 0;
	lines->size = (size_t)n;
	return 1;
}

ssize_t lines_take(struct lines *lines, lines_read read, void *userdata, void *data, size_t size,
		   bool *ret_ended)
{
	size_t n = 0;
	int r;

	*ret_ended = false;
	while ((r = lines_fill(lines, read, userdata)) > 0) {
		const char *start = lines->block + lines->at;
		size_t rest = lines->size - lines->at;
		const char *newline = memchr(start, '\n', rest);
		size_t length = newline ? (size_t)(newline - start) : rest;
		bool fits = length <= size - n;

		if (!fits)
			length = size - n;
		memcpy((char *)data + n, start, length);
		n += length;
		lines->at += length;
		/* A newline right behind a full piece still belongs to it. */
		if (newline && fits) {
			lines->at++;
			*ret_ended = true;
			break;
		}
		if (!fits)
			break;
	}
	/* What is there goes out; an end or an error comes again. */
	return r < 0 && n == 0 ? r : (ssize_t)n;
}
