#include "jail/git/pkt.h"

#include <string.h>

#include "base/str.h"

#define SHA1_DIGITS   40
#define SHA256_DIGITS 64

bool pkt_head(const uint8_t head[PKT_HEAD_BYTES], enum pkt_kind *ret_kind, size_t *ret_size)
{
	size_t size = 0;

	for (size_t i = 0; i < PKT_HEAD_BYTES; i++) {
		int digit = str_hex_digit((char)head[i]);

		if (digit < 0)
			return false;
		size = size * 16 + (size_t)digit;
	}
	*ret_size = 0;
	if (size < PKT_HEAD_BYTES) {
		*ret_kind = size == 0 ? PKT_FLUSH : PKT_OTHER;
		return size < 3;
	}
	if (size > PKT_MAX_BYTES)
		return false;
	*ret_kind = PKT_DATA;
	*ret_size = size - PKT_HEAD_BYTES;
	return true;
}

/* One line with this text, with or without a newline. Its bytes, or 0. */
static size_t line_is(const uint8_t *data, size_t size, const char *before, const char *text)
{
	size_t n_before = strlen(before);
	size_t n = n_before + strlen(text);
	enum pkt_kind kind;
	size_t bytes;

	if (size < PKT_HEAD_BYTES || !pkt_head(data, &kind, &bytes) || kind != PKT_DATA ||
	    bytes > size - PKT_HEAD_BYTES || (bytes != n && bytes != n + 1))
		return 0;
	if (memcmp(data + PKT_HEAD_BYTES, before, n_before) != 0 ||
	    memcmp(data + PKT_HEAD_BYTES + n_before, text, n - n_before) != 0)
		return 0;
	if (bytes == n + 1 && data[PKT_HEAD_BYTES + n] != '\n')
		return 0;
	return PKT_HEAD_BYTES + bytes;
}

size_t pkt_service_bytes(const uint8_t *data, size_t size, const char *service)
{
	size_t n = line_is(data, size, "# service=", service);

	if (n == 0 || size - n < PKT_HEAD_BYTES || memcmp(data + n, "0000", PKT_HEAD_BYTES) != 0)
		return 0;
	return n + PKT_HEAD_BYTES;
}

bool pkt_is_version_2(const uint8_t *data, size_t size)
{
	return line_is(data, size, "version 2", "") > 0;
}

/* Number of hexadecimal digits up to a space; *ret_zero: all of them are 0. */
static size_t object_name(const uint8_t *data, size_t size, bool *ret_zero)
{
	size_t n = 0;

	*ret_zero = true;
	while (n < size && data[n] != ' ') {
		if (str_hex_digit((char)data[n]) < 0)
			return 0;
		*ret_zero = *ret_zero && data[n] == '0';
		n++;
	}
	return n < size && (n == SHA1_DIGITS || n == SHA256_DIGITS) ? n : 0;
}

/* What git itself asks for in a push; each changes how the server answers, never what it does. */
static bool is_capability(const uint8_t *word, size_t length)
{
	static const char *const known[] = {
		"report-status", "report-status-v2", "side-band-64k",  "quiet",       "atomic",
		"ofs-delta",     "delete-refs",      "object-format=", "session-id=", "agent=",
	};

	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		size_t n = strlen(known[i]);
		bool has_value = known[i][n - 1] == '=';

		if ((has_value ? length >= n : length == n) && memcmp(word, known[i], n) == 0)
			return true;
	}
	return false;
}

/* Words between spaces, maybe a newline behind them. */
static bool only_capabilities(const uint8_t *text, size_t size)
{
	if (size > 0 && text[size - 1] == '\n')
		size--;
	while (size > 0) {
		const uint8_t *space = memchr(text, ' ', size);
		size_t length = space ? (size_t)(space - text) : size;

		if (length > 0 && !is_capability(text, length))
			return false;
		text += length;
		size -= length;
		if (size > 0) {
			text++;
			size--;
		}
	}
	return true;
}

bool pkt_updates(const uint8_t *data, size_t size, const char *ref, size_t ref_length)
{
	const uint8_t *end;
	size_t digits;
	bool is_zero;

	for (int i = 0; i < 2; i++) {
		digits = object_name(data, size, &is_zero);
		if (digits == 0)
			return false;
		data += digits + 1;
		size -= digits + 1;
	}
	end = memchr(data, '\0', size);
	if (end) {
		size_t before = (size_t)(end - data);

		if (!only_capabilities(end + 1, size - before - 1))
			return false;
		size = before;
	}
	if (size > 0 && data[size - 1] == '\n')
		size--;
	return !is_zero && size == ref_length && memcmp(data, ref, size) == 0;
}

bool pkt_is_shallow(const uint8_t *data, size_t size)
{
	static const char word[] = "shallow ";
	size_t n = strlen(word);

	if (size < n || memcmp(data, word, n) != 0)
		return false;
	if (data[size - 1] == '\n')
		size--;
	for (size_t i = n; i < size; i++)
		if (str_hex_digit((char)data[i]) < 0)
			return false;
	return size - n == SHA1_DIGITS || size - n == SHA256_DIGITS;
}
