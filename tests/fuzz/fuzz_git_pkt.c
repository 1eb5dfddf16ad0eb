/*
 * Packet lines of a git server and of git itself: read one after the other as sandbox-git does, no
 * line reaches beyond what there is, and the one ref of a push is the only one that passes.
 */
#include <string.h>

#include "base/err.h"

#include "jail/git/pkt.h"
#include "tests/fuzz/fuzz.h"

#define REF "refs/heads/main"

static void check_update(const uint8_t *data, size_t size)
{
	const uint8_t *name;

	if (!pkt_updates(data, size, REF, strlen(REF)))
		return;
	name = memchr(data, ' ', size);
	ASSERT(name);
	name = memchr(name + 1, ' ', size - (size_t)(name + 1 - data));
	ASSERT(name && size - (size_t)(name + 1 - data) >= strlen(REF));
	ASSERT(memcmp(name + 1, REF, strlen(REF)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t skip = pkt_service_bytes(data, size, "git-receive-pack");
	enum pkt_kind kind;
	size_t bytes;

	ASSERT(skip <= size);
	(void)pkt_is_version_2(data + skip, size - skip);
	for (size_t at = skip; size - at >= PKT_HEAD_BYTES; at += PKT_HEAD_BYTES + bytes) {
		if (!pkt_head(data + at, &kind, &bytes))
			break;
		ASSERT(bytes <= PKT_MAX_BYTES - PKT_HEAD_BYTES && (kind == PKT_DATA || bytes == 0));
		if (bytes > size - at - PKT_HEAD_BYTES)
			break;
		check_update(data + at + PKT_HEAD_BYTES, bytes);
	}
	check_update(data, size);
	return 0;
}
