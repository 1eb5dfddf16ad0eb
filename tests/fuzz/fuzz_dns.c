/*
 * DNS questions: names are canonical, and the answer to whatever was read begins with its question.
 */
#include <string.h>

#include "base/err.h"

#include "supervisor/egress/dns.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t address[4] = {198, 18, 0, 1};
	struct dns_question question;
	uint8_t reply[DNS_REPLY_MAX];
	char name[HOST_NAME_BYTES];

	dns_parse(data, size, &question);
	ASSERT(question.kind < DNS_KIND_MAX_ && question.bytes <= size);
	if (question.kind == DNS_KIND_ADDRESS || question.kind == DNS_KIND_NODATA) {
		ASSERT(host_name_canonical(question.name, strlen(question.name), name) == 0);
		ASSERT(strcmp(name, question.name) == 0);
	}
	if (question.kind != DNS_KIND_DROP) {
		size_t n = dns_reply(data, size, question.bytes, DNS_RCODE_NONE,
				     question.bytes ? address : NULL, reply);

		ASSERT(n >= 12 && n <= sizeof(reply));
		ASSERT(question.bytes == 0 ||
		       memcmp(reply + 12, data + 12, question.bytes - 12) == 0);
	}
	return 0;
}
