#include "base/id.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "base/str.h"

int id_random(struct id *ret_id)
{
	struct id id;
	ssize_t n;

	do
		n = getrandom(id.bytes, sizeof(id.bytes), 0);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	if ((size_t)n != sizeof(id.bytes))
		return -EIO;
	id.bytes[6] = (uint8_t)((id.bytes[6] & 0x0f) | 0x40); /* version 4 */
	id.bytes[8] = (uint8_t)((id.bytes[8] & 0x3f) | 0x80); /* variant 1 */
	*ret_id = id;
	return 0;
}

/* Number of bytes before each dash: 8-4-4-4-12 digits. */
static bool dash_before(size_t byte)
{
	return byte == 4 || byte == 6 || byte == 8 || byte == 10;
}

void id_format(const struct id *id, char text[ID_TEXT_BYTES])
{
	char *at = text;

	for (size_t i = 0; i < ID_BYTES; i++) {
		char pair[3];

		if (dash_before(i))
			*at++ = '-';
		str_hex(pair, &id->bytes[i], 1);
		*at++ = pair[0];
		*at++ = pair[1];
	}
	*at = '\0';
}

static int digit_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

int id_parse(const char *text, struct id *ret_id)
{
	const char *at = text;
	struct id id;

	for (size_t i = 0; i < ID_BYTES; i++) {
		int high, low;

		if (dash_before(i) && *at++ != '-')
			return -EINVAL;
		high = digit_value(at[0]);
		if (high < 0)
			return -EINVAL;
		low = digit_value(at[1]);
		if (low < 0)
			return -EINVAL;
		id.bytes[i] = (uint8_t)(high << 4 | low);
		at += 2;
	}
	if (*at != '\0' || (id.bytes[6] & 0xf0) != 0x40 || (id.bytes[8] & 0xc0) != 0x80)
		return -EINVAL;
	*ret_id = id;
	return 0;
}

bool id_equal(const struct id *a, const struct id *b)
{
	return memcmp(a->bytes, b->bytes, ID_BYTES) == 0;
}

bool id_is_null(const struct id *id)
{
	static const struct id null_id;

	return id_equal(id, &null_id);
}

uint32_t id_hash(const struct id *id)
{
	uint32_t hash;

	/* The first four bytes carry no version or variant bits. */
	memcpy(&hash, id->bytes, sizeof(hash));
	return hash;
}
