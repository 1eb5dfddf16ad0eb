/*
 * A stream that is encrypted in blocks, with libsodium's secretstream (XChaCha20-Poly1305):
 *
 *   head     struct snapshot_head
 *   blocks   each of SNAPSHOT_BLOCK_BYTES and its tag; the last one is shorter, or empty, and says
 *            that it is the last
 *
 * A block that was changed, left out, moved or repeated is refused, and so is a stream that ends
 * before its last block or goes on after it. Every block is bound to what the caller says the
 * stream is, and to the key's id: a whole stream is refused in the place of another one. Nothing is
 * held but one block.
 */
#pragma once

#include <sodium.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"

#include "supervisor/api/store/snapshot_keys.h"

#define SNAPSHOT_BLOCK_BYTES  ((size_t)64 * 1024)
#define SNAPSHOT_SEALED_BYTES (SNAPSHOT_BLOCK_BYTES + crypto_secretstream_xchacha20poly1305_ABYTES)

struct snapshot_head {
	char magic[8];
	char key_id[SNAPSHOT_KEY_ID_BYTES];
	uint8_t stream[crypto_secretstream_xchacha20poly1305_HEADERBYTES];
};

struct snapshot_cipher;

/* of: what the stream is. Head: to be written first. 0 or -ENOMEM. */
MUST_USE int snapshot_cipher_seal_begin(const struct snapshot_key *key, const char *of,
					struct snapshot_head *ret_head,
					struct snapshot_cipher **ret_cipher);
/* At most SNAPSHOT_BLOCK_BYTES of text; ret_sealed has room for SNAPSHOT_SEALED_BYTES. Every block
 * but the last one is full. Returns how many bytes to write. */
size_t snapshot_cipher_seal(struct snapshot_cipher *cipher, const uint8_t *text, size_t size,
			    bool is_last, uint8_t *ret_sealed);
/* 0; -EBADMSG: the head is none, or of another key; -ENOMEM. */
MUST_USE int snapshot_cipher_open_begin(const struct snapshot_key *key, const char *of,
					const struct snapshot_head *head,
					struct snapshot_cipher **ret_cipher);
/* One sealed block; ret_text has room for SNAPSHOT_BLOCK_BYTES. The size of its text;
 * *ret_is_last: nothing may follow. -EBADMSG. */
MUST_USE ssize_t snapshot_cipher_open(struct snapshot_cipher *cipher, const uint8_t *sealed,
				      size_t size, uint8_t *ret_text, bool *ret_is_last);
struct snapshot_cipher *snapshot_cipher_free(struct snapshot_cipher *cipher); /* returns NULL */
