#include "base/websocket_key.h"

#include <nettle/sha1.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"

static const char key_suffix[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

void websocket_key_answer(const char *key, char ret_accept[WEBSOCKET_ACCEPT_BYTES])
{
	uint8_t digest[SHA1_DIGEST_SIZE];
	struct sha1_ctx context;
	size_t n;

	sha1_init(&context);
	sha1_update(&context, strlen(key), (const uint8_t *)key);
	sha1_update(&context, strlen(key_suffix), (const uint8_t *)key_suffix);
	sha1_digest(&context, sizeof(digest), digest);
	n = str_base64(ret_accept, digest, sizeof(digest));
	ASSERT(n < WEBSOCKET_ACCEPT_BYTES);
	ret_accept[n] = '\0';
}
