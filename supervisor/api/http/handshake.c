#include "supervisor/api/http/handshake.h"

#include <string.h>
#include <strings.h>

#include "base/str.h"
#include "base/websocket_key.h"

/* Is `word` in a list between any of `separators`? */
static bool list_has(const char *list, const char *separators, const char *word)
{
	size_t length = strlen(word);

	while (list[0]) {
		size_t n;

		list += strspn(list, separators);
		n = strcspn(list, separators);
		if (n == length && strncasecmp(list, word, n) == 0)
			return true;
		list += n;
	}
	return false;
}

void handshake_add(struct handshake *handshake, const char *name, const char *value)
{
	if (!value)
		value = "";
	if (strcasecmp(name, "Upgrade") == 0) {
		handshake->upgrade |= list_has(value, ", \t", "websocket");
	} else if (strcasecmp(name, "Connection") == 0) {
		handshake->connection |= list_has(value, ", \t", "upgrade");
	} else if (strcasecmp(name, "Sec-WebSocket-Key") == 0) {
		handshake->key = value;
		handshake->n_key++;
	} else if (strcasecmp(name, "Sec-WebSocket-Version") == 0) {
		handshake->version_13 = str_equal(value, "13");
		handshake->n_version++;
	} else if (strcasecmp(name, "Origin") == 0) {
		handshake->origin = value;
		handshake->n_origin++;
	} else if (strcasecmp(name, "Host") == 0) {
		handshake->host = value;
		handshake->n_host++;
	}
}

static bool key_well_formed(const char *key)
{
	uint8_t nonce[16];
	size_t size;

	return strlen(key) == WEBSOCKET_KEY_CHARS &&
	       str_base64_decode(nonce, sizeof(nonce), key, WEBSOCKET_KEY_CHARS, &size) >= 0 &&
	       size == sizeof(nonce);
}

static bool origin_allowed(const struct handshake *handshake, const char *origins)
{
	const char *authority;

	if (handshake->n_origin == 0)
		return true;
	if (handshake->origin[0] != '\0' &&
	    (list_has(origins, " ", "*") || list_has(origins, " ", handshake->origin)))
		return true;
	authority = strstr(handshake->origin, "://");
	if (!authority || handshake->n_host != 1 || handshake->host[0] == '\0')
		return false;
	return strcasecmp(authority + strlen("://"), handshake->host) == 0;
}

enum handshake_result handshake_judge(const struct handshake *handshake, const char *origins)
{
	if (!handshake->upgrade)
		return HANDSHAKE_NONE;
	if (!handshake->connection || handshake->n_key != 1 || handshake->n_version > 1 ||
	    handshake->n_origin > 1 || !key_well_formed(handshake->key))
		return HANDSHAKE_BAD_REQUEST;
	if (!handshake->version_13)
		return HANDSHAKE_BAD_VERSION;
	return origin_allowed(handshake, origins) ? HANDSHAKE_OK : HANDSHAKE_BAD_ORIGIN;
}
