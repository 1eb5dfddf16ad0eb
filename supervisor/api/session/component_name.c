#include "supervisor/api/session/component_name.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "base/str.h"

static const char *const reason_text[] = {
	[COMPONENT_NAME_OK] = "ok",
	[COMPONENT_NAME_EMPTY] = "empty",
	[COMPONENT_NAME_TOO_LONG] = "too-long",
	[COMPONENT_NAME_NUL] = "nul",
	[COMPONENT_NAME_CONTROL] = "control-character",
	[COMPONENT_NAME_ENCODING] = "encoding",
	[COMPONENT_NAME_SEPARATOR] = "separator",
	[COMPONENT_NAME_TOO_DEEP] = "too-deep",
	[COMPONENT_NAME_FIRST_CHARACTER] = "first-character",
	[COMPONENT_NAME_CHARACTER] = "character",
	[COMPONENT_NAME_TRAILING] = "trailing-character",
	[COMPONENT_NAME_DEVICE] = "device-name",
};
_Static_assert(ARRAY_SIZE(reason_text) == COMPONENT_NAME_REASON_MAX_, "one text per reason");

/*
 * Letters that compatible mode takes beyond ASCII. Each range holds only characters that are
 * themselves in normal form C and that nothing in another listed range composes with, so that no
 * table of Unicode is needed to know that a name is normalised. Combining marks, full-width and
 * other compatibility forms, invisible and direction-changing characters are in none.
 */
static const struct {
	uint32_t first;
	uint32_t last;
} letters[] = {
	{0x00c0, 0x00d6},
        {0x00d8, 0x00f6},
        {0x00f8, 0x024f}, /* Latin */
	{0x0386, 0x0386},
        {0x0388, 0x038a},
        {0x038c, 0x038c}, /* Greek */
	{0x038e, 0x03a1},
        {0x03a3, 0x03ce}, /* Greek */
	{0x0400, 0x0481},
        {0x048a, 0x052f}, /* Cyrillic */
	{0x3041, 0x3096},
        {0x30a1, 0x30fa},
        {0x30fc, 0x30fc}, /* kana */
	{0x4e00, 0x9fff}, /* Han */
	{0xac00, 0xd7a3}, /* Hangul syllables */
};

static bool is_alnum(unsigned char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

static bool is_letter(uint32_t code)
{
	for (size_t i = 0; i < ARRAY_SIZE(letters); i++)
		if (code >= letters[i].first && code <= letters[i].last)
			return true;
	return false;
}

/* The text is valid UTF-8 already: decode one character that is not ASCII. */
static uint32_t decode(const unsigned char *text, size_t *ret_bytes)
{
	if (text[0] < 0xe0) {
		*ret_bytes = 2;
		return ((uint32_t)(text[0] & 0x1f) << 6) | (text[1] & 0x3fu);
	}
	if (text[0] < 0xf0) {
		*ret_bytes = 3;
		return ((uint32_t)(text[0] & 0x0f) << 12) | ((uint32_t)(text[1] & 0x3f) << 6) |
		       (text[2] & 0x3fu);
	}
	*ret_bytes = 4;
	return ((uint32_t)(text[0] & 0x07) << 18) | ((uint32_t)(text[1] & 0x3f) << 12) |
	       ((uint32_t)(text[2] & 0x3f) << 6) | (text[3] & 0x3fu);
}

/* Names that some file systems take for devices, whatever follows the first dot: rows may be
 * rebuilt on another medium. */
static bool is_device(const char *part, size_t length)
{
	static const char *const plain[] = {"CON", "PRN", "AUX", "NUL"};
	const char *dot = memchr(part, '.', length);
	size_t n = dot ? (size_t)(dot - part) : length;

	while (n > 0 && part[n - 1] == ' ')
		n--;
	if (n == 3) {
		for (size_t i = 0; i < ARRAY_SIZE(plain); i++)
			if (strncasecmp(part, plain[i], 3) == 0)
				return true;
		return false;
	}
	if (n != 4 || part[3] < '1' || part[3] > '9')
		return false;
	return strncasecmp(part, "COM", 3) == 0 || strncasecmp(part, "LPT", 3) == 0;
}

static enum component_name_reason check_character(const unsigned char *text, bool first,
						  bool compatible, size_t *ret_bytes)
{
	unsigned char c = *text;

	*ret_bytes = 1;
	if (is_alnum(c))
		return COMPONENT_NAME_OK;
	if (c >= 0x80) {
		if (compatible && is_letter(decode(text, ret_bytes)))
			return COMPONENT_NAME_OK;
		return first ? COMPONENT_NAME_FIRST_CHARACTER : COMPONENT_NAME_CHARACTER;
	}
	if (first)
		return COMPONENT_NAME_FIRST_CHARACTER;
	if (c == '.' || c == '_' || c == '-' || (compatible && c == ' '))
		return COMPONENT_NAME_OK;
	return COMPONENT_NAME_CHARACTER;
}

static enum component_name_reason check_part(const char *part, size_t length, bool compatible)
{
	enum component_name_reason reason;
	size_t bytes;

	if (length == 0)
		return COMPONENT_NAME_EMPTY;
	if (length > COMPONENT_STEM_MAX)
		return COMPONENT_NAME_TOO_LONG;
	for (size_t at = 0; at < length; at += bytes) {
		reason = check_character((const unsigned char *)part + at, at == 0, compatible,
					 &bytes);
		if (reason != COMPONENT_NAME_OK)
			return reason;
	}
	if (part[length - 1] == '.' || part[length - 1] == ' ')
		return COMPONENT_NAME_TRAILING;
	if (is_device(part, length))
		return COMPONENT_NAME_DEVICE;
	return COMPONENT_NAME_OK;
}

static enum component_name_reason check_parts(const char *stem, size_t length)
{
	enum component_name_reason reason;
	size_t n_parts = 0;
	size_t from = 0;

	for (;;) {
		const char *slash = memchr(stem + from, '/', length - from);
		size_t to = slash ? (size_t)(slash - stem) : length;

		if (++n_parts > COMPONENT_NAME_MAX_PARTS)
			return COMPONENT_NAME_TOO_DEEP;
		reason = check_part(stem + from, to - from, true);
		if (reason != COMPONENT_NAME_OK)
			return reason == COMPONENT_NAME_EMPTY ? COMPONENT_NAME_SEPARATOR : reason;
		if (!slash)
			return COMPONENT_NAME_OK;
		from = to + 1;
	}
}

/* What is wrong whatever the mode, most telling reason first. */
static enum component_name_reason check_bytes(const char *name, size_t length,
					      enum component_name_mode mode)
{
	if (length == 0)
		return COMPONENT_NAME_EMPTY;
	if (length >= COMPONENT_FILE_BYTES)
		return COMPONENT_NAME_TOO_LONG;
	if (memchr(name, '\0', length))
		return COMPONENT_NAME_NUL;
	for (size_t i = 0; i < length; i++) {
		unsigned char c = (unsigned char)name[i];

		if (c < 0x20 || c == 0x7f)
			return COMPONENT_NAME_CONTROL;
		if (c == '\\' || c == ':' || (c == '/' && mode == COMPONENT_NAME_STRICT))
			return COMPONENT_NAME_SEPARATOR;
	}
	if (!str_utf8_valid(name, length))
		return COMPONENT_NAME_ENCODING;
	return COMPONENT_NAME_OK;
}

static bool ends_with(const char *name, size_t length, const char *suffix)
{
	size_t n = strlen(suffix);

	return length >= n && memcmp(name + length - n, suffix, n) == 0;
}

int component_name_check(const char *name, size_t length, enum component_name_mode mode,
			 char ret_file[COMPONENT_FILE_BYTES],
			 enum component_name_reason *ret_reason)
{
	enum component_name_reason reason;
	const char *suffix = ".yaml";
	size_t stem = length;

	reason = check_bytes(name, length, mode);
	if (reason == COMPONENT_NAME_OK) {
		if (ends_with(name, length, ".yaml")) {
			stem = length - 5;
		} else if (ends_with(name, length, ".yml")) {
			stem = length - 4;
			suffix = ".yml";
		}
		if (mode == COMPONENT_NAME_STRICT)
			reason = check_part(name, stem, false);
		else
			reason = check_parts(name, stem);
	}
	if (ret_reason)
		*ret_reason = reason;
	if (reason != COMPONENT_NAME_OK)
		return COMPONENT_NAME_E_REFUSED;
	memcpy(ret_file, name, stem);
	memcpy(ret_file + stem, suffix, strlen(suffix) + 1);
	return 0;
}

const char *component_name_reason_text(enum component_name_reason reason)
{
	return (size_t)reason < ARRAY_SIZE(reason_text) ? reason_text[reason] : "unknown";
}
