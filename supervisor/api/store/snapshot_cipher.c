#include "supervisor/api/store/snapshot_cipher.h"

#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"

#define MAGIC    "SBXSNAP1"
#define OF_BYTES 128

/* What every block is bound to. */
struct binding {
	char magic[sizeof(((struct snapshot_head *)NULL)->magic)];
	char key_id[SNAPSHOT_KEY_ID_BYTES];
	char of[OF_BYTES];
};

struct snapshot_cipher {
	struct binding binding;
	crypto_secretstream_xchacha20poly1305_state state;
	uint32_t zero; /* sodium_malloc aligns to its end */
};

_Static_assert(sizeof(struct snapshot_head) == 56, "has no holes");
_Static_assert(sizeof(struct snapshot_cipher) % sizeof(uint32_t) == 0, "aligned at its end");
_Static_assert(SNAPSHOT_KEY_BYTES == crypto_secretstream_xchacha20poly1305_KEYBYTES,
	       "a key of the stream");

static int cipher_new(const struct snapshot_key *key, const char *of,
		      struct snapshot_cipher **ret_cipher)
{
	struct snapshot_cipher *cipher = sodium_malloc(sizeof(*cipher));

	if (!cipher)
		return -ENOMEM;
	memset(cipher, 0, sizeof(*cipher));
	memcpy(cipher->binding.magic, MAGIC, sizeof(cipher->binding.magic));
	memcpy(cipher->binding.key_id, key->id, sizeof(cipher->binding.key_id));
	if (str_copy(cipher->binding.of, sizeof(cipher->binding.of), of) < 0) {
		sodium_free(cipher);
		return -EINVAL;
	}
	*ret_cipher = cipher;
	return 0;
}

int snapshot_cipher_seal_begin(const struct snapshot_key *key, const char *of,
			       struct snapshot_head *ret_head, struct snapshot_cipher **ret_cipher)
{
	struct snapshot_cipher *cipher;
	int r = cipher_new(key, of, &cipher);

	if (r < 0)
		return r;
	memcpy(ret_head->magic, cipher->binding.magic, sizeof(ret_head->magic));
	memcpy(ret_head->key_id, cipher->binding.key_id, sizeof(ret_head->key_id));
	(void)crypto_secretstream_xchacha20poly1305_init_push(&cipher->state, ret_head->stream,
							      key->bytes);
	*ret_cipher = cipher;
	return 0;
}

size_t snapshot_cipher_seal(struct snapshot_cipher *cipher, const uint8_t *text, size_t size,
			    bool is_last, uint8_t *ret_sealed)
{
	unsigned long long n = 0;

	ASSERT(size <= SNAPSHOT_BLOCK_BYTES && (is_last || size == SNAPSHOT_BLOCK_BYTES));
	(void)crypto_secretstream_xchacha20poly1305_push(
		&cipher->state, ret_sealed, &n, text, size, (const uint8_t *)&cipher->binding,
		sizeof(cipher->binding),
		is_last ? crypto_secretstream_xchacha20poly1305_TAG_FINAL
			: crypto_secretstream_xchacha20poly1305_TAG_MESSAGE);
	return (size_t)n;
}

int snapshot_cipher_open_begin(const struct snapshot_key *key, const char *of,
			       const struct snapshot_head *head,
			       struct snapshot_cipher **ret_cipher)
{
	struct snapshot_cipher *cipher;
	int r;

	if (memcmp(head->magic, MAGIC, sizeof(head->magic)) != 0 ||
	    memcmp(head->key_id, key->id, sizeof(head->key_id)) != 0)
		return -EBADMSG;
	r = cipher_new(key, of, &cipher);
	if (r < 0)
		return r;
	(void)crypto_secretstream_xchacha20poly1305_init_pull(&cipher->state, head->stream,
							      key->bytes);
	*ret_cipher = cipher;
	return 0;
}

ssize_t snapshot_cipher_open(struct snapshot_cipher *cipher, const uint8_t *sealed, size_t size,
			     uint8_t *ret_text, bool *ret_is_last)
{
	unsigned long long n = 0;
	uint8_t tag = 0;

	if (size > SNAPSHOT_SEALED_BYTES ||
	    crypto_secretstream_xchacha20poly1305_pull(&cipher->state, ret_text, &n, &tag, sealed,
						       size, (const uint8_t *)&cipher->binding,
						       sizeof(cipher->binding)) != 0)
		return -EBADMSG;
	*ret_is_last = tag == crypto_secretstream_xchacha20poly1305_TAG_FINAL;
	return *ret_is_last || n == SNAPSHOT_BLOCK_BYTES ? (ssize_t)n : -EBADMSG;
}

struct snapshot_cipher *snapshot_cipher_free(struct snapshot_cipher *cipher)
{
	sodium_free(cipher);
	return NULL;
}
