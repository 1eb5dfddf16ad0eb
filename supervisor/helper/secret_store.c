/*
 * Theory. Nothing of the file is believed before its code is right. The header's code covers what
 * the file consists of; a row's code covers the row, its place and the header's generation, so a
 * row that was taken from an older file, or from another place, fails by itself and by name, and
 * the others stay usable. Values are sealed apart, bound to their row by its name. The generation
 * in a file of its own (seal.c) finds an older store that was put back whole.
 *
 * All sizes are fixed or checked against the file's, so there is nothing to parse.
 */
#include "supervisor/helper/secret_store.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "base/secret.h"

#define CONTEXT "sbxsecrt"

_Static_assert(crypto_aead_xchacha20poly1305_ietf_ABYTES == 16 &&
		       crypto_aead_xchacha20poly1305_ietf_NPUBBYTES == 24 &&
		       crypto_aead_xchacha20poly1305_ietf_KEYBYTES == SECRET_KEY_BYTES &&
		       crypto_kdf_KEYBYTES == SECRET_KEY_BYTES &&
		       crypto_kdf_CONTEXTBYTES == sizeof(CONTEXT) - 1,
	       "libsodium's sizes are those of the file");

static void header_mac(const struct secret_store *store, const struct secret_store_header *header,
		       uint8_t mac[32])
{
	(void)crypto_generichash(mac, 32, (const uint8_t *)header,
				 offsetof(struct secret_store_header, mac), store->mac_key.bytes,
				 sizeof(store->mac_key.bytes));
}

static void row_mac(const struct secret_store *store, uint64_t generation, uint64_t place,
		    const struct secret_row *row, uint8_t mac[32])
{
	crypto_generichash_state state;

	(void)crypto_generichash_init(&state, store->mac_key.bytes, sizeof(store->mac_key.bytes),
				      32);
	(void)crypto_generichash_update(&state, (const uint8_t *)&generation, sizeof(generation));
	(void)crypto_generichash_update(&state, (const uint8_t *)&place, sizeof(place));
	(void)crypto_generichash_update(&state, (const uint8_t *)row,
					offsetof(struct secret_row, mac));
	(void)crypto_generichash_final(&state, mac, 32);
}

int secret_store_key_kind(const uint8_t *data, size_t size)
{
	struct secret_store_header header;

	if (size == 0)
		return 0;
	if (size < sizeof(header))
		return -EBADMSG;
	memcpy(&header, data, sizeof(header));
	if (header.magic != SECRET_STORE_MAGIC || header.version != SECRET_STORE_VERSION)
		return -EBADMSG;
	if (header.key_kind != SECRET_KEY_FILE && header.key_kind != SECRET_KEY_HOST)
		return -EBADMSG;
	return header.key_kind;
}

int secret_store_open(struct secret_store *store, const uint8_t *data, size_t size,
		      const struct secret_key *key, uint64_t oldest)
{
	uint8_t mac[32];
	int r;

	*store = (struct secret_store){.data = data, .size = size};
	(void)crypto_kdf_derive_from_key(store->seal_key.bytes, SECRET_KEY_BYTES, 1, CONTEXT,
					 key->bytes);
	(void)crypto_kdf_derive_from_key(store->mac_key.bytes, SECRET_KEY_BYTES, 2, CONTEXT,
					 key->bytes);
	r = secret_store_key_kind(data, size);
	if (r < 0)
		return r;
	if (r == 0)
		return oldest == 0 ? 0 : -ESTALE; /* there was a store */
	memcpy(&store->header, data, sizeof(store->header));
	header_mac(store, &store->header, mac);
	if (sodium_memcmp(mac, store->header.mac, sizeof(mac)) != 0 ||
	    store->header.n > SECRETS_STORE_MAX ||
	    store->header.row_bytes != sizeof(struct secret_row))
		return -EBADMSG;
	return store->header.generation < oldest ? -ESTALE : 0;
}

void secret_store_close(struct secret_store *store)
{
	sodium_memzero(store, sizeof(*store));
}

static bool text_valid(const char *text, size_t size, bool (*valid)(const char *, size_t))
{
	size_t length = strnlen(text, size);

	return length < size && valid(text, length);
}

static bool row_valid(const struct secret_store *store, const struct secret_row *row)
{
	if (!text_valid(row->name, sizeof(row->name), secret_name_valid) ||
	    !text_valid(row->variable, sizeof(row->variable), variable_name_allowed))
		return false;
	if (row->n_workspaces > SECRET_WORKSPACES_MAX ||
	    row->value_bytes < SECRET_VALUE_MIN_BYTES || row->value_bytes > SECRET_VALUE_MAX_BYTES)
		return false;
	for (size_t i = 0; i < row->n_workspaces; i++)
		if (!memchr(row->workspace[i], '\0', sizeof(row->workspace[i])))
			return false;
	return row->offset <= store->size && row->value_bytes <= store->size - row->offset;
}

int secret_store_row(const struct secret_store *store, uint32_t i, struct secret_row *ret_row)
{
	size_t at = sizeof(struct secret_store_header) + (size_t)i * sizeof(*ret_row);
	uint8_t mac[32];

	ASSERT(i < store->header.n);
	memset(ret_row, 0, sizeof(*ret_row));
	if (at > store->size || store->size - at < sizeof(*ret_row))
		return -EBADMSG;
	memcpy(ret_row, store->data + at, sizeof(*ret_row));
	row_mac(store, store->header.generation, i, ret_row, mac);
	if (sodium_memcmp(mac, ret_row->mac, sizeof(mac)) == 0 && row_valid(store, ret_row))
		return 0;
	/* Its name may be all that is right, or not even that. */
	if (!text_valid(ret_row->name, sizeof(ret_row->name), secret_name_valid))
		memset(ret_row->name, 0, sizeof(ret_row->name));
	return -EBADMSG;
}

int secret_store_find(const struct secret_store *store, const char *name, uint32_t *ret_i,
		      struct secret_row *ret_row)
{
	for (uint32_t i = 0; i < store->header.n; i++) {
		int r = secret_store_row(store, i, ret_row);

		if (strcmp(ret_row->name, name) != 0)
			continue;
		*ret_i = i;
		return r;
	}
	return -ENOENT;
}

int secret_store_unseal(const struct secret_store *store, const struct secret_row *row,
			uint8_t *value)
{
	if (crypto_aead_xchacha20poly1305_ietf_decrypt_detached(
		    value, NULL, store->data + row->offset, row->value_bytes, row->tag,
		    (const uint8_t *)row->name, sizeof(row->name), row->nonce,
		    store->seal_key.bytes) != 0)
		return -EBADMSG;
	/* What a shim would refuse is refused here, by name. */
	return memchr(value, '\0', row->value_bytes) ? -EBADMSG : 0;
}

bool secret_row_usable(const struct secret_row *row, const struct secret_request *request)
{
	if (request->flags & SECRET_REQUEST_OPERATOR)
		return true;
	for (size_t i = 0; i < row->n_workspaces; i++)
		if (request->workspace[0] != '\0' &&
		    strcmp(row->workspace[i], request->workspace) == 0)
			return true;
	return false;
}

/* The file while it is made: rows first, their values behind all rows. */
struct writing {
	const struct secret_store *store;
	struct secret_store_header header;
	struct secret_row *rows;
	struct buf values;
};

/* Of a damaged row nothing is believed, so it is not sealed again: what stays is its name, without
 * a value, which makes no valid row. It is named as damaged until it is removed. */
static void keep_name(struct secret_row *row)
{
	struct secret_row only = {0};

	memcpy(only.name, row->name, sizeof(only.name));
	*row = only;
}

static int keep_rows(struct writing *writing, const char *name, struct err *err)
{
	const struct secret_store *store = writing->store;

	for (uint32_t i = 0; i < store->header.n; i++) {
		struct secret_row *row = &writing->rows[writing->header.n];
		int r = secret_store_row(store, i, row);

		if (strcmp(row->name, name) == 0)
			continue; /* replaced or removed, also when it is damaged */
		if (r < 0)
			keep_name(row);
		r = buf_append(&writing->values, store->data + row->offset, row->value_bytes);
		if (r < 0)
			return err_fail(err, r == -EMSGSIZE ? -ENOSPC : r, "secret",
					"the store is full");
		row->offset = writing->values.size - row->value_bytes;
		writing->header.n++;
	}
	return 0;
}

static int add_row(struct writing *writing, const struct secret_row *row, const uint8_t *value,
		   struct err *err)
{
	struct secret_row *added = &writing->rows[writing->header.n];
	AUTO_FREE uint8_t *sealed = malloc(row->value_bytes);
	int r;

	if (writing->header.n >= SECRETS_STORE_MAX)
		return err_fail(err, -ENOSPC, "secret", "%d secrets are in the store",
				SECRETS_STORE_MAX);
	if (!sealed)
		return err_fail(err, -ENOMEM, "secret", "cannot get memory");
	*added = *row;
	added->offset = writing->values.size;
	randombytes_buf(added->nonce, sizeof(added->nonce));
	(void)crypto_aead_xchacha20poly1305_ietf_encrypt_detached(
		sealed, added->tag, NULL, value, row->value_bytes, (const uint8_t *)added->name,
		sizeof(added->name), NULL, added->nonce, writing->store->seal_key.bytes);
	r = buf_append(&writing->values, sealed, row->value_bytes);
	if (r < 0)
		return err_fail(err, r == -EMSGSIZE ? -ENOSPC : r, "secret", "the store is full");
	writing->header.n++;
	return 0;
}

static int put_together(struct writing *writing, struct buf *ret_file)
{
	struct buf file = BUF_NULL(SECRET_FILE_MAX_BYTES);
	size_t values_at = sizeof(writing->header) + writing->header.n * sizeof(struct secret_row);
	int r;

	header_mac(writing->store, &writing->header, writing->header.mac);
	r = buf_append(&file, &writing->header, sizeof(writing->header));
	for (uint32_t i = 0; r >= 0 && i < writing->header.n; i++) {
		struct secret_row *row = &writing->rows[i];

		row->offset += values_at;
		row_mac(writing->store, writing->header.generation, i, row, row->mac);
		r = buf_append(&file, row, sizeof(*row));
	}
	if (r >= 0)
		r = buf_append(&file, writing->values.data, writing->values.size);
	if (r < 0)
		buf_done(&file);
	else
		*ret_file = file;
	return r;
}

int secret_store_write(const struct secret_store *store, enum secret_key_kind kind,
		       const struct secret_change *change, struct buf *ret_file, struct err *err)
{
	struct writing writing = {
		.store = store,
		.header = {.magic = SECRET_STORE_MAGIC,
			   .version = SECRET_STORE_VERSION,
			   .key_kind = (uint16_t)kind,
			   .row_bytes = sizeof(struct secret_row),
			   .generation = store->header.generation + 1},
		.rows = calloc(store->header.n + 1, sizeof(struct secret_row)),
		.values = BUF_NULL(SECRET_STORE_MAX_BYTES),
	};
	int r;

	if (!writing.rows)
		return err_fail(err, -ENOMEM, "secret", "cannot get memory");
	r = keep_rows(&writing, change->name, err);
	if (r >= 0 && change->row)
		r = add_row(&writing, change->row, change->value, err);
	if (r >= 0) {
		r = put_together(&writing, ret_file);
		if (r < 0)
			(void)err_fail(err, r, "secret", "cannot get memory");
	}
	free(writing.rows);
	buf_done(&writing.values);
	return r;
}
