/*
 * HTTP heads and heads of chunks. A good head ends with its empty line, says one host, and is read
 * the same whatever follows it; a path has no segment of dots.
 */
#include <string.h>

#include "base/err.h"

#include "supervisor/egress/http_head.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data;
	struct http_head head, again;
	struct http_chunk chunk;

	http_head_parse(text, size, &head);
	ASSERT(head.verdict < HTTP_VERDICT_MAX_ && head.head_bytes <= size);
	if (head.verdict == HTTP_OK) {
		ASSERT(memcmp(text + head.head_bytes - 4, "\r\n\r\n", 4) == 0);
		ASSERT(head.host[0] != '\0');
		ASSERT(!strstr(head.path, "/../") && !strstr(head.path, "//"));
		http_head_parse(text, head.head_bytes, &again);
		ASSERT(memcmp(&head, &again, sizeof(head)) == 0);
		http_head_parse(text, head.head_bytes - 1, &again);
		ASSERT(again.verdict != HTTP_OK);
	}
	for (int is_first = 0; is_first < 2; is_first++) {
		http_chunk_parse(text, size, is_first, &chunk);
		ASSERT(chunk.verdict < HTTP_VERDICT_MAX_ && chunk.head_bytes <= size);
	}
	return 0;
}
