#include "supervisor/egress/dns.h"

#include <string.h>

#define HEADER_BYTES 12

#define TYPE_A     1
#define TYPE_AAAA  28
#define TYPE_SVCB  64
#define TYPE_HTTPS 65
#define CLASS_IN   1

#define FLAG_RESPONSE 0x80 /* byte 2 */
#define OPCODE_MASK   0x78
#define FLAG_TRUNC    0x02
#define FLAG_RECURSE  0x01
#define FLAG_CAN      0x80 /* byte 3: recursion available */

static uint32_t get_u16(const uint8_t *at)
{
	return (uint32_t)at[0] << 8 | at[1];
}

/* The labels as text, dots between them. Position behind the name; 0: not well-formed. *ret_length
 * 0: well-formed, but never a host name. */
static size_t read_name(const uint8_t *packet, size_t size, char text[HOST_NAME_BYTES],
			size_t *ret_length)
{
	size_t at = HEADER_BYTES;
	size_t length = 0;
	int is_text = 1;

	while (at < size && packet[at] != 0) {
		size_t label = packet[at++];

		/* No pointer: a question has nothing before it to point to. */
		if (label > 63 || at + label >= size || length + label + 1 > HOST_NAME_BYTES)
			return 0;
		if (length > 0)
			text[length++] = '.';
		/* A dot inside a label would read as two of them. */
		if (memchr(packet + at, '.', label))
			is_text = 0;
		memcpy(text + length, packet + at, label);
		length += label;
		at += label;
	}
	if (at >= size)
		return 0;
	*ret_length = is_text ? length : 0;
	return at + 1;
}

static enum dns_kind kind_of(uint32_t type, uint32_t class_)
{
	if (class_ != CLASS_IN)
		return DNS_KIND_OTHER;
	switch (type) {
	case TYPE_A:
		return DNS_KIND_ADDRESS;
	case TYPE_AAAA:
	case TYPE_HTTPS:
	case TYPE_SVCB:
		return DNS_KIND_NODATA;
	default:
		return DNS_KIND_OTHER;
	}
}

void dns_parse(const uint8_t *packet, size_t size, struct dns_question *ret_question)
{
	struct dns_question question = {.kind = DNS_KIND_DROP};
	char text[HOST_NAME_BYTES];
	size_t length = 0;
	size_t end;

	*ret_question = question;
	if (size < HEADER_BYTES || size > DNS_PACKET_MAX || packet[2] & FLAG_RESPONSE)
		return;
	ret_question->kind = DNS_KIND_FORMAT;
	/* One question, no answers; at most one additional record, which is EDNS's. */
	if (get_u16(packet + 4) != 1 || get_u16(packet + 6) != 0 || get_u16(packet + 8) != 0 ||
	    get_u16(packet + 10) > 1 || packet[2] & FLAG_TRUNC)
		return;
	end = read_name(packet, size, text, &length);
	if (end == 0 || size - end < 4)
		return;
	if (size - end > 4 && get_u16(packet + 10) == 0)
		return;
	question.kind = packet[2] & OPCODE_MASK
				? DNS_KIND_OTHER
				: kind_of(get_u16(packet + end), get_u16(packet + end + 2));
	question.bytes = (uint32_t)end + 4;
	if (host_name_canonical(text, length, question.name) < 0)
		question.kind = DNS_KIND_OTHER;
	*ret_question = question;
}

size_t dns_reply(const uint8_t *packet, size_t size, uint32_t question_bytes, enum dns_rcode rcode,
		 const uint8_t *address, uint8_t *ret_reply)
{
	static const uint8_t record[12] = {0xc0, HEADER_BYTES, 0, TYPE_A, 0, CLASS_IN, 0, 0,
					   0,    0 /* TTL */,  0, 4};
	size_t used = question_bytes > 0 ? question_bytes : HEADER_BYTES;

	if (size < HEADER_BYTES || used > size || used > DNS_PACKET_MAX || used < HEADER_BYTES)
		return 0;
	memcpy(ret_reply, packet, used);
	ret_reply[2] = (uint8_t)(FLAG_RESPONSE | (packet[2] & (OPCODE_MASK | FLAG_RECURSE)));
	ret_reply[3] = (uint8_t)(FLAG_CAN | (unsigned int)rcode);
	memset(ret_reply + 4, 0, 8);
	ret_reply[5] = question_bytes > 0;
	if (!address)
		return used;
	ret_reply[7] = 1;
	memcpy(ret_reply + used, record, sizeof(record));
	memcpy(ret_reply + used + sizeof(record), address, 4);
	return used + sizeof(record) + 4;
}
