/*
 * A store as it may lie on the disk. Its codes would stop nearly every input at the header, so the
 * header and each row are given right ones, as somebody with the key could write them: what is
 * behind is then read for what it says.
 */
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

#include "supervisor/helper/secret_store.h"
#include "tests/fuzz/fuzz.h"

#define MAX_BYTES 65536

static const struct secret_key key = {.bytes = {1}};

static void read_all(const uint8_t *data, size_t size)
{
	const struct secret_request anybody = {.flags = SECRET_REQUEST_OPERATOR};
	struct secret_store store;

	if (secret_store_open(&store, data, size, &key, 0) < 0) {
		secret_store_close(&store);
		return;
	}
	for (uint32_t i = 0; i < store.header.n; i++) {
		static uint8_t value[SECRET_VALUE_MAX_BYTES];
		struct secret_row row;

		if (secret_store_row(&store, i, &row) < 0)
			continue;
		ASSERT(row.value_bytes <= sizeof(value));
		ASSERT(row.offset + row.value_bytes <= size);
		(void)!secret_store_unseal(&store, &row, value);
		ASSERT(secret_row_usable(&row, &anybody));
	}
	secret_store_close(&store);
}

/* The codes as secret_store.c makes them. */
static void sign(uint8_t *file, size_t size)
{
	struct secret_store_header header;
	uint8_t mac_key[SECRET_KEY_BYTES];

	if (size < sizeof(header))
		return;
	memcpy(&header, file, sizeof(header));
	header.magic = SECRET_STORE_MAGIC;
	header.version = SECRET_STORE_VERSION;
	header.key_kind = SECRET_KEY_FILE;
	header.row_bytes = sizeof(struct secret_row);
	header.n %= 8;
	(void)crypto_kdf_derive_from_key(mac_key, sizeof(mac_key), 2, "sbxsecrt", key.bytes);
	(void)crypto_generichash(header.mac, sizeof(header.mac), (const uint8_t *)&header,
				 offsetof(struct secret_store_header, mac), mac_key,
				 sizeof(mac_key));
	memcpy(file, &header, sizeof(header));
	for (uint64_t i = 0; i < header.n; i++) {
		size_t at = sizeof(header) + i * sizeof(struct secret_row);
		crypto_generichash_state state;
		struct secret_row row;

		if (at > size || size - at < sizeof(row))
			return;
		memcpy(&row, file + at, sizeof(row));
		(void)crypto_generichash_init(&state, mac_key, sizeof(mac_key), sizeof(row.mac));
		(void)crypto_generichash_update(&state, (const uint8_t *)&header.generation,
						sizeof(header.generation));
		(void)crypto_generichash_update(&state, (const uint8_t *)&i, sizeof(i));
		(void)crypto_generichash_update(&state, (const uint8_t *)&row,
						offsetof(struct secret_row, mac));
		(void)crypto_generichash_final(&state, row.mac, sizeof(row.mac));
		memcpy(file + at, &row, sizeof(row));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t file[MAX_BYTES];

	if (size > sizeof(file) || sodium_init() < 0)
		return 0;
	read_all(data, size);
	memcpy(file, data, size);
	sign(file, size);
	read_all(file, size);
	return 0;
}
