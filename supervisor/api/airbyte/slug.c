#include <errno.h>
#include <string.h>

#include "base/str.h"

#include "supervisor/api/airbyte/airbyte.h"

#define ID_PART 8

static bool is_separator(char c)
{
	return c == '/' || c == '\\';
}

static bool is_plain(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

static char lower(char c)
{
	if (c >= 'A' && c <= 'Z')
		c = (char)(c - 'A' + 'a');
	return c;
}

/* Absolute of either kind, or with a part of dots. `a/b` is none: such names are made by people. */
static bool is_escape(const char *name, size_t length)
{
	size_t start = 0;

	if (length == 0 || is_separator(name[0]) ||
	    (length > 2 && name[1] == ':' && is_separator(name[2])))
		return true;
	for (size_t i = 0; i <= length; i++) {
		if (i < length && !is_separator(name[i]))
			continue;
		if (i - start == 2 && name[start] == '.' && name[start + 1] == '.')
			return true;
		start = i + 1;
	}
	return false;
}

static void add_id(char *slug, const char *id)
{
	size_t at = strlen(slug);

	for (size_t n = 0; n < ID_PART && *id; id++) {
		char c = lower(*id);

		if (is_plain(c)) {
			slug[at++] = c;
			n++;
		}
	}
	slug[at] = '\0';
}

void airbyte_slug_with_id(char slug[AIRBYTE_SLUG_BYTES], const char *id)
{
	size_t at = strnlen(slug, AIRBYTE_SLUG_MAX);

	slug[at++] = '_';
	slug[at] = '\0';
	add_id(slug, id);
}

int airbyte_slug(const char *name, size_t length, const char *id, char ret_slug[AIRBYTE_SLUG_BYTES])
{
	size_t n = 0;

	if (memchr(name, '\0', length) || is_escape(name, length))
		return -EINVAL;
	for (size_t i = 0; i < length && n < AIRBYTE_SLUG_MAX; i++) {
		char c = lower(name[i]);

		if (is_plain(c))
			ret_slug[n++] = c;
		else if (n > 0 && ret_slug[n - 1] != '_')
			ret_slug[n++] = '_';
	}
	while (n > 0 && ret_slug[n - 1] == '_')
		n--;
	ret_slug[n] = '\0';
	if (n > 0)
		return 0;
	memcpy(ret_slug, "airbyte", sizeof("airbyte"));
	airbyte_slug_with_id(ret_slug, id);
	return 0;
}
