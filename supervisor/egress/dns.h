/*
 * The stub's DNS: reads one question, writes one answer. Own code, because Debian's c-ares reads
 * replies only, and because the stub wants less than a resolver's parser gives: one question, no
 * compression, nothing else in the message but EDNS, whose content plays no part. Pure.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/host_name.h"

#define DNS_PACKET_MAX 512 /* of a question */
#define DNS_REPLY_MAX  (DNS_PACKET_MAX + 16)

enum dns_kind {
	DNS_KIND_DROP,    /* no question at all: no answer */
	DNS_KIND_FORMAT,  /* a question that is not well-formed, but has an id */
	DNS_KIND_OTHER,   /* a type, class or operation that is never answered; or no host name */
	DNS_KIND_NODATA,  /* AAAA, HTTPS, SVCB: clients then ask for, or stay with, A */
	DNS_KIND_ADDRESS, /* A */
	DNS_KIND_MAX_,
};

enum dns_rcode {
	DNS_RCODE_NONE = 0,
	DNS_RCODE_FORMAT = 1,
	DNS_RCODE_FAILURE = 2,
	DNS_RCODE_REFUSED = 5,
};

struct dns_question {
	uint32_t kind;
	uint32_t bytes; /* header and question; the answer begins with them. 0: header only */
	char name[HOST_NAME_BYTES + 2]; /* canonical; "" where it is no host name */
};

void dns_parse(const uint8_t *packet, size_t size, struct dns_question *ret_question);

/* question_bytes: of `packet`, as parsed. address: 4 bytes, or NULL for no answer record. ret_reply
 * holds DNS_REPLY_MAX. Size of the reply; 0 where question_bytes is not possible. */
size_t dns_reply(const uint8_t *packet, size_t size, uint32_t question_bytes, enum dns_rcode rcode,
		 const uint8_t *address, uint8_t *ret_reply);
