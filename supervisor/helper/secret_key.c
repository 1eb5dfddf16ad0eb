#include "supervisor/helper/secret_key.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>

#include "base/io.h"

#define HOST_KEY_MAX_BYTES 65536
/* systemd writes four kilobytes of randomness; anything near nothing is no key. */
#define HOST_KEY_MIN_BYTES 1024

int secret_key_read(int fd, enum secret_key_kind kind, struct secret_key *ret_key)
{
	static const uint8_t purpose[] = "sandboxd secrets, from the host's credential key";
	char *data = NULL;
	size_t size = 0;
	int r;

	r = io_read_file(fd, HOST_KEY_MAX_BYTES, &data, &size);
	if (r < 0)
		return r;
	if (kind == SECRET_KEY_FILE ? size != SECRET_KEY_BYTES : size < HOST_KEY_MIN_BYTES) {
		r = -EBADMSG;
	} else if (kind == SECRET_KEY_FILE) {
		memcpy(ret_key->bytes, data, SECRET_KEY_BYTES);
	} else {
		crypto_generichash_state state;

		(void)crypto_generichash_init(&state, NULL, 0, SECRET_KEY_BYTES);
		(void)crypto_generichash_update(&state, purpose, sizeof(purpose));
		(void)crypto_generichash_update(&state, (const uint8_t *)data, size);
		(void)crypto_generichash_final(&state, ret_key->bytes, SECRET_KEY_BYTES);
	}
	sodium_memzero(data, size);
	free(data);
	return r;
}
