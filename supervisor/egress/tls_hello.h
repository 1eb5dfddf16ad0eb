/*
 * The server name in a TLS ClientHello, read without decrypting anything (D4). The hello may be
 * split over records and segments. Pure; runs in the inspector.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/host_name.h"

#define TLS_HELLO_MAX 12288 /* a hello with post-quantum key shares has 2 KiB */

enum tls_verdict {
	TLS_MORE, /* is one so far */
	TLS_NAME, /* complete; `name` is canonical, and empty with all others */
	TLS_NO_NAME,
	TLS_BAD, /* no ClientHello, or one that a client does not send; or a name that is none */
	TLS_VERDICT_MAX_,
};

struct tls_hello {
	uint32_t verdict;
	uint32_t zero;
	char name[HOST_NAME_BYTES + 2];
};

void tls_hello_parse(const uint8_t *data, size_t size, struct tls_hello *ret_hello);
