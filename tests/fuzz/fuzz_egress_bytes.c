/*
 * What the egress worker reads of a session: the first byte chooses the reader. A verdict that more
 * bytes could still change says so: what is told of a beginning stays true of the whole.
 */
#include <string.h>

#include "base/err.h"

#include "supervisor/egress/dns.h"
#include "supervisor/egress/http_head.h"
#include "supervisor/egress/tls_hello.h"
#include "tests/fuzz/fuzz.h"

static void read_dns(const uint8_t *data, size_t size)
{
	static const uint8_t address[4] = {198, 18, 0, 1};
	struct dns_question question;
	uint8_t reply[DNS_REPLY_MAX];
	size_t reply_bytes;

	dns_parse(data, size, &question);
	ASSERT(question.kind < DNS_KIND_MAX_ && question.bytes <= size);
	ASSERT(memchr(question.name, '\0', sizeof(question.name)));
	if (question.kind == DNS_KIND_DROP)
		return;
	reply_bytes = dns_reply(data, size, question.bytes, DNS_RCODE_NONE,
				question.kind == DNS_KIND_ADDRESS ? address : NULL, reply);
	ASSERT(reply_bytes <= DNS_REPLY_MAX);
	if (question.kind == DNS_KIND_ADDRESS)
		ASSERT(question.name[0] != '\0' && reply_bytes == question.bytes + 16);
}

static void read_tls(const uint8_t *data, size_t size)
{
	struct tls_hello whole, part;

	tls_hello_parse(data, size, &whole);
	ASSERT(whole.verdict < TLS_VERDICT_MAX_);
	ASSERT((whole.verdict == TLS_NAME) == (whole.name[0] != '\0'));
	tls_hello_parse(data, size / 2, &part);
	/* What follows a complete one before there is an answer makes it BAD, and nothing else. */
	if (part.verdict != TLS_MORE && whole.verdict != TLS_BAD)
		ASSERT(part.verdict == whole.verdict && strcmp(part.name, whole.name) == 0);
}

static void read_head(const char *data, size_t size)
{
	struct http_head whole, part;

	http_head_parse(data, size, &whole);
	ASSERT(whole.verdict < HTTP_VERDICT_MAX_);
	if (whole.verdict == HTTP_OK) {
		ASSERT(whole.head_bytes >= 4 && whole.head_bytes <= size);
		ASSERT(memcmp(data + whole.head_bytes - 4, "\r\n\r\n", 4) == 0);
		ASSERT(whole.body < HTTP_BODY_MAX_ && whole.upgrade < HTTP_UPGRADE_MAX_);
		ASSERT(memchr(whole.host, '\0', sizeof(whole.host)));
		ASSERT(memchr(whole.path, '\0', sizeof(whole.path)));
		if (whole.upgrade != HTTP_UPGRADE_NONE)
			ASSERT(whole.upgrade_at + HTTP_UPGRADE_NAME <= whole.head_bytes);
	}
	http_head_parse(data, size / 2, &part);
	if (part.verdict == HTTP_OK)
		ASSERT(memcmp(&part, &whole, sizeof(part)) == 0);
	if (part.verdict == HTTP_BAD)
		ASSERT(whole.verdict == HTTP_BAD);
}

static void read_chunk(const char *data, size_t size, int is_first)
{
	struct http_chunk whole, part;

	http_chunk_parse(data, size, is_first, &whole);
	ASSERT(whole.verdict < HTTP_VERDICT_MAX_);
	if (whole.verdict == HTTP_OK)
		ASSERT(whole.head_bytes > 0 && whole.head_bytes <= size &&
		       whole.is_last == (whole.bytes == 0));
	http_chunk_parse(data, size / 2, is_first, &part);
	if (part.verdict == HTTP_OK)
		ASSERT(memcmp(&part, &whole, sizeof(part)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data + 1;

	if (size < 1)
		return 0;
	switch (data[0] & 3) {
	case 0:
		read_dns(data + 1, size - 1);
		break;
	case 1:
		read_tls(data + 1, size - 1);
		break;
	case 2:
		read_head(text, size - 1);
		break;
	default:
		read_chunk(text, size - 1, data[0] >> 7);
		break;
	}
	return 0;
}
