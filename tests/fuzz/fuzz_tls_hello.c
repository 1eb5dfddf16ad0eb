/*
 * TLS hellos: a verdict on less is MORE, or the same as on all of it; a name is canonical.
 */
#include <string.h>

#include "base/err.h"

#include "supervisor/egress/tls_hello.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tls_hello hello, part;
	char name[HOST_NAME_BYTES];

	tls_hello_parse(data, size, &hello);
	ASSERT(hello.verdict < TLS_VERDICT_MAX_);
	if (hello.verdict == TLS_NAME) {
		ASSERT(host_name_canonical(hello.name, strlen(hello.name), name) == 0);
		ASSERT(strcmp(name, hello.name) == 0);
	}
	for (size_t i = 1; i < size; i++) {
		tls_hello_parse(data, i, &part);
		ASSERT(part.verdict == TLS_MORE || part.verdict == hello.verdict ||
		       size > TLS_HELLO_MAX);
		ASSERT(part.verdict != TLS_NAME || size > TLS_HELLO_MAX ||
		       !strcmp(part.name, hello.name));
		i += size / 64; /* 64 of them in a long one */
	}
	return 0;
}
