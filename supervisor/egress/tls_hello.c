/*
 * Two layers: records are taken off first and their payload copied together, as many as are there;
 * then the handshake message is read from the copy. What is not there yet is MORE, never a guess.
 */
#include "supervisor/egress/tls_hello.h"

#include <stdbool.h>
#include <string.h>

#define RECORD_HEADER    5
#define RECORD_MAX       16384
#define RECORD_HANDSHAKE 22
#define MESSAGE_HEADER   4
#define CLIENT_HELLO     1
#define EXTENSION_NAME   0
#define NAME_HOST        0
#define RANDOM_BYTES     32

/* Whatever is taken lies wholly inside, or nothing is. */
struct cursor {
	const uint8_t *at;
	size_t left;
	bool short_; /* more was asked for than there is */
};

static const uint8_t *take(struct cursor *cursor, size_t size)
{
	const uint8_t *at = cursor->at;

	if (cursor->left < size) {
		cursor->short_ = true;
		cursor->left = 0;
		return NULL;
	}
	cursor->at += size;
	cursor->left -= size;
	return at;
}

static size_t take_number(struct cursor *cursor, size_t bytes)
{
	const uint8_t *at = take(cursor, bytes);
	size_t value = 0;

	for (size_t i = 0; at && i < bytes; i++)
		value = value << 8 | at[i];
	return value;
}

/* What follows a length of `bytes` bytes. */
static struct cursor take_vector(struct cursor *cursor, size_t bytes)
{
	size_t size = take_number(cursor, bytes);
	const uint8_t *at = take(cursor, size);

	return (struct cursor){.at = at, .left = at ? size : 0, .short_ = !at};
}

static size_t message_bytes(const uint8_t header[MESSAGE_HEADER])
{
	return MESSAGE_HEADER + ((size_t)header[1] << 16 | (size_t)header[2] << 8 | header[3]);
}

/* Payload of the records that are wholly or partly there, up to the end of the first message: what
 * follows it may be early data (RFC 8446, 4.2.10), and is the server's. TLS_BAD: other than a
 * handshake, or a record that goes on behind the message, before any answer. */
static enum tls_verdict join_records(const uint8_t *data, size_t size, uint8_t *joined,
				     size_t *ret_size)
{
	size_t used = 0;

	while (size > 0) {
		size_t payload;
		size_t claimed;

		if (data[0] != RECORD_HANDSHAKE || (size > 1 && data[1] != 3))
			return TLS_BAD;
		if (size < RECORD_HEADER)
			break;
		payload = (size_t)data[3] << 8 | data[4];
		/* An empty handshake record is forbidden (RFC 8446, 5.1). */
		if (payload == 0 || payload > RECORD_MAX)
			return TLS_BAD;
		data += RECORD_HEADER;
		size -= RECORD_HEADER;
		claimed = used + payload;
		if (payload > size)
			payload = size;
		memcpy(joined + used, data, payload);
		used += payload;
		data += payload;
		size -= payload;
		if (used < MESSAGE_HEADER)
			continue;
		if (claimed > message_bytes(joined))
			return TLS_BAD;
		if (used == message_bytes(joined))
			break;
	}
	*ret_size = used;
	return TLS_MORE;
}

/* One name of type host_name, and nothing else in the list (RFC 6066, 3). */
static enum tls_verdict read_name(struct cursor extension, struct tls_hello *hello)
{
	struct cursor list = take_vector(&extension, 2);
	size_t type = take_number(&list, 1);
	struct cursor name = take_vector(&list, 2);

	if (list.short_ || name.short_ || extension.left > 0 || list.left > 0 || type != NAME_HOST)
		return TLS_BAD;
	if (host_name_canonical((const char *)name.at, name.left, hello->name) < 0)
		return TLS_BAD;
	return TLS_NAME;
}

static enum tls_verdict read_extensions(struct cursor extensions, struct tls_hello *hello)
{
	enum tls_verdict verdict = TLS_NO_NAME;

	while (extensions.left > 0) {
		size_t type = take_number(&extensions, 2);
		struct cursor extension = take_vector(&extensions, 2);

		if (extensions.short_ || extension.short_)
			return TLS_BAD;
		if (type != EXTENSION_NAME)
			continue;
		/* Two names: the server may take the one that we do not. */
		if (verdict != TLS_NO_NAME)
			return TLS_BAD;
		verdict = read_name(extension, hello);
		if (verdict != TLS_NAME)
			return verdict;
	}
	return verdict;
}

static enum tls_verdict read_hello(struct cursor body, struct tls_hello *hello)
{
	(void)take(&body, 2 + RANDOM_BYTES); /* version, random */
	(void)take_vector(&body, 1);         /* session id */
	(void)take_vector(&body, 2);         /* cipher suites */
	(void)take_vector(&body, 1);         /* compression */
	if (body.short_)
		return TLS_BAD;
	if (body.left == 0)
		return TLS_NO_NAME;
	struct cursor extensions = take_vector(&body, 2);
	if (body.short_ || body.left > 0)
		return TLS_BAD;
	return read_extensions(extensions, hello);
}

void tls_hello_parse(const uint8_t *data, size_t size, struct tls_hello *ret_hello)
{
	uint8_t joined[TLS_HELLO_MAX];
	size_t joined_bytes = 0;
	struct tls_hello hello = {.verdict = TLS_BAD};

	*ret_hello = hello;
	if (size > TLS_HELLO_MAX)
		return;
	hello.verdict = join_records(data, size, joined, &joined_bytes);
	if (hello.verdict == TLS_MORE && joined_bytes > 0 && joined[0] != CLIENT_HELLO)
		hello.verdict = TLS_BAD;
	if (hello.verdict == TLS_MORE && joined_bytes >= MESSAGE_HEADER) {
		if (message_bytes(joined) > TLS_HELLO_MAX)
			hello.verdict = TLS_BAD;
		else if (joined_bytes == message_bytes(joined))
			hello.verdict =
				read_hello((struct cursor){.at = joined + MESSAGE_HEADER,
							   .left = joined_bytes - MESSAGE_HEADER},
					   &hello);
	}
	if (hello.verdict == TLS_MORE && size == TLS_HELLO_MAX)
		hello.verdict = TLS_BAD; /* there is no room for more */
	if (hello.verdict != TLS_NAME)
		memset(hello.name, 0, sizeof(hello.name)); /* one that was read before the fault */
	*ret_hello = hello;
}
