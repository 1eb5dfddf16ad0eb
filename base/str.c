#include "base/str.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

bool str_equal(const char *a, const char *b)
{
	return strcmp(a, b) == 0;
}

bool str_has_prefix(const char *text, const char *prefix)
{
	return strncmp(text, prefix, strlen(prefix)) == 0;
}

bool str_has_suffix(const char *text, const char *suffix)
{
	size_t text_length = strlen(text);
	size_t suffix_length = strlen(suffix);

	if (suffix_length > text_length)
		return false;
	return memcmp(text + text_length - suffix_length, suffix, suffix_length) == 0;
}

int str_copy(char *dest, size_t dest_bytes, const char *src)
{
	return str_copy_n(dest, dest_bytes, src, strlen(src));
}

int str_copy_n(char *dest, size_t dest_bytes, const char *src, size_t length)
{
	if (length >= dest_bytes)
		return -ENAMETOOLONG;
	memcpy(dest, src, length);
	dest[length] = '\0';
	return 0;
}

int str_format(char *dest, size_t dest_bytes, const char *format, ...)
{
	va_list args;
	int n;

	if (dest_bytes == 0)
		return -ENAMETOOLONG;
	va_start(args, format);
	n = vsnprintf(dest, dest_bytes, format, args);
	va_end(args);
	if (n < 0 || (size_t)n >= dest_bytes) {
		dest[0] = '\0';
		return -ENAMETOOLONG;
	}
	return 0;
}

/*
 * One code point of more than one byte, as table 3-7 of the Unicode standard: the bounds of the
 * second byte exclude overlong forms (E0, F0), surrogates (ED) and what is above U+10FFFF (F4).
 * Returns its number of bytes, or 0 if it is not valid.
 */
static size_t utf8_multibyte(const uint8_t *at, size_t length, uint32_t *ret_code)
{
	static const struct {
		uint8_t first_min;
		uint8_t first_max;
		uint8_t second_min;
		uint8_t second_max;
		uint8_t n;
	} forms[] = {
		{0xc2, 0xdf, 0x80, 0xbf, 2},
                {0xe0, 0xe0, 0xa0, 0xbf, 3},
		{0xe1, 0xec, 0x80, 0xbf, 3},
                {0xed, 0xed, 0x80, 0x9f, 3},
		{0xee, 0xef, 0x80, 0xbf, 3},
                {0xf0, 0xf0, 0x90, 0xbf, 4},
		{0xf1, 0xf3, 0x80, 0xbf, 4},
                {0xf4, 0xf4, 0x80, 0x8f, 4},
	};

	for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
		uint32_t code;

		if (at[0] < forms[i].first_min || at[0] > forms[i].first_max)
			continue;
		if (length < forms[i].n || at[1] < forms[i].second_min ||
		    at[1] > forms[i].second_max)
			return 0;
		code = at[0] & (0x7fu >> forms[i].n);
		code = code << 6 | (at[1] & 0x3fu);
		for (size_t k = 2; k < forms[i].n; k++) {
			if ((at[k] & 0xc0) != 0x80)
				return 0;
			code = code << 6 | (at[k] & 0x3fu);
		}
		*ret_code = code;
		return forms[i].n;
	}
	return 0;
}

bool str_utf8_valid(const char *text, size_t length)
{
	const uint8_t *bytes = (const uint8_t *)text;
	uint32_t code;
	size_t at = 0;

	while (at < length) {
		size_t n;

		if (bytes[at] < 0x80) {
			uint64_t eight;

			/* Most text is ASCII: eight bytes at a time. */
			while (length - at >= sizeof(eight)) {
				memcpy(&eight, bytes + at, sizeof(eight));
				if (eight & 0x8080808080808080ull)
					break;
				at += sizeof(eight);
			}
			while (at < length && bytes[at] < 0x80)
				at++;
			continue;
		}
		n = utf8_multibyte(bytes + at, length - at, &code);
		if (n == 0)
			return false;
		at += n;
	}
	return true;
}

size_t str_utf8_partial(const char *text, size_t length)
{
	for (size_t n = 1; n <= 3 && n <= length; n++) {
		unsigned char byte = (unsigned char)text[length - n];
		size_t wanted = 1;

		if ((byte & 0xc0) == 0x80)
			continue;
		if (byte >= 0xf0 && byte <= 0xf4)
			wanted = 4;
		else if (byte >= 0xe0 && byte < 0xf0)
			wanted = 3;
		else if (byte >= 0xc2 && byte < 0xe0)
			wanted = 2;
		return wanted > n ? n : 0;
	}
	return 0;
}

bool str_only(const char *text, size_t length, const char *extra)
{
	for (size_t i = 0; i < length; i++) {
		char c = text[i];

		if ((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))
			continue;
		if (c == '\0' || !strchr(extra, c))
			return false;
	}
	return true;
}

void str_printable(char *text)
{
	for (; *text; text++)
		if (*text < ' ' || *text > '~')
			*text = '?';
}

/* Code points that move the cursor, reorder or hide text: a log or terminal must not see them. */
static bool code_is_unsafe(uint32_t code)
{
	static const struct {
		uint32_t first;
		uint32_t last;
	} unsafe[] = {
		{0x80,    0x9f   }, /* C1 controls */
		{0xad,    0xad   }, /* soft hyphen */
		{0x61c,   0x61c  }, /* Arabic letter mark */
		{0x200b,  0x200f }, /* zero width, direction marks */
		{0x2028,  0x202e }, /* line and paragraph separators, embeddings, overrides */
		{0x2060,  0x206f }, /* invisible operators, isolates */
		{0xfeff,  0xfeff }, /* byte order mark */
		{0xfff9,  0xfffb }, /* interlinear annotation */
		{0xe0000, 0xe0fff}, /* tags, variation selectors */
	};

	for (size_t i = 0; i < ARRAY_SIZE(unsafe); i++)
		if (code >= unsafe[i].first && code <= unsafe[i].last)
			return true;
	return false;
}

/* Escape one byte to `out`; number of characters. */
static size_t escape_byte(char out[4], uint8_t byte)
{
	static const char digits[] = "0123456789abcdef";

	out[0] = '\\';
	switch (byte) {
	case '\n':
		out[1] = 'n';
		return 2;
	case '\t':
		out[1] = 't';
		return 2;
	case '\r':
		out[1] = 'r';
		return 2;
	case '\\':
		out[1] = '\\';
		return 2;
	default:
		out[1] = 'x';
		out[2] = digits[byte >> 4];
		out[3] = digits[byte & 0x0f];
		return 4;
	}
}

/* The next unit of the source: how many bytes it is, and whether it may stay as it is. */
static size_t next_unit(const uint8_t *at, size_t length, bool keep_newlines, bool *ret_stays)
{
	uint32_t code;
	size_t n;

	if (at[0] < 0x80) {
		*ret_stays = (at[0] >= ' ' && at[0] <= '~' && at[0] != '\\') ||
			     (keep_newlines && (at[0] == '\n' || at[0] == '\t'));
		return 1;
	}
	n = utf8_multibyte(at, length, &code);
	*ret_stays = n > 0 && !code_is_unsafe(code);
	return n > 0 ? n : 1;
}

size_t str_escape(char *dest, size_t dest_bytes, const char *src, size_t length, bool keep_newlines)
{
	const uint8_t *at = (const uint8_t *)src;
	size_t used = 0;

	if (dest_bytes == 0)
		return 0;
	while (length > 0) {
		char out[4 * 4]; /* four bytes, each four characters */
		size_t n_out = 0;
		bool stays;
		size_t n = next_unit(at, length, keep_newlines, &stays);

		if (stays) {
			memcpy(out, at, n);
			n_out = n;
		} else {
			for (size_t i = 0; i < n; i++)
				n_out += escape_byte(out + n_out, at[i]);
		}
		if (n_out >= dest_bytes - used)
			break; /* whole units only, never half an escape */
		memcpy(dest + used, out, n_out);
		used += n_out;
		at += n;
		length -= n;
	}
	dest[used] = '\0';
	return used;
}

int str_hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

void str_hex(char *dest, const void *data, size_t size)
{
	static const char digits[] = "0123456789abcdef";
	const uint8_t *bytes = data;

	for (size_t i = 0; i < size; i++) {
		dest[2 * i] = digits[bytes[i] >> 4];
		dest[2 * i + 1] = digits[bytes[i] & 0x0f];
	}
	dest[2 * size] = '\0';
}

static const char base64_digits[] =
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

size_t str_base64(char *dest, const void *data, size_t size)
{
	const uint8_t *in = data;
	char *out = dest;

	for (; size >= 3; size -= 3, in += 3) {
		uint32_t group = (uint32_t)in[0] << 16 | (uint32_t)in[1] << 8 | in[2];

		*out++ = base64_digits[group >> 18];
		*out++ = base64_digits[group >> 12 & 0x3f];
		*out++ = base64_digits[group >> 6 & 0x3f];
		*out++ = base64_digits[group & 0x3f];
	}
	if (size > 0) {
		uint32_t group = (uint32_t)in[0] << 16 | (size == 2 ? (uint32_t)in[1] << 8 : 0);

		*out++ = base64_digits[group >> 18];
		*out++ = base64_digits[group >> 12 & 0x3f];
		*out++ = (char)(size == 2 ? base64_digits[group >> 6 & 0x3f] : '=');
		*out++ = '=';
	}
	*out = '\0';
	return (size_t)(out - dest);
}

static int base64_value(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	if (c == '+')
		return 62;
	if (c == '/')
		return 63;
	return -1;
}

int str_base64_decode(void *dest, size_t dest_bytes, const char *src, size_t length,
		      size_t *ret_size)
{
	uint8_t *out = dest;
	size_t n_pad = 0;
	size_t size;
	uint32_t group = 0;

	if (length % 4 != 0)
		return -EINVAL;
	while (n_pad < 2 && n_pad < length && src[length - 1 - n_pad] == '=')
		n_pad++;
	size = length / 4 * 3 - n_pad;
	/* Look at all of it before writing: dest is untouched on failure. */
	for (size_t i = 0; i < length - n_pad; i++)
		if (base64_value(src[i]) < 0)
			return -EINVAL;
	/* Canonical: the bits that the padding cuts off are zero. */
	if (n_pad > 0 && base64_value(src[length - 1 - n_pad]) & (n_pad == 1 ? 0x3 : 0xf))
		return -EINVAL;
	if (size > dest_bytes)
		return -ENOSPC;
	for (size_t i = 0, written = 0; i < length; i++) {
		int value = i < length - n_pad ? base64_value(src[i]) : 0;

		group = group << 6 | (uint32_t)value;
		if (i % 4 != 3)
			continue;
		for (int shift = 16; shift >= 0 && written < size; shift -= 8)
			out[written++] = (uint8_t)(group >> shift);
		group = 0;
	}
	*ret_size = size;
	return 0;
}
