/*
 * The opening handshake of a WebSocket: the first line is the configured origins, each further one
 * a header. What is taken has one well-formed key, and an origin that is the host's or configured.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/err.h"
#include "base/str.h"
#include "base/websocket_key.h"

#include "supervisor/api/http/handshake.h"
#include "tests/fuzz/fuzz.h"

static bool has_word(const char *words, const char *word)
{
	size_t length = strlen(word);

	for (const char *at = words; (at = strcasestr(at, word)); at++) {
		bool begins = at == words || at[-1] == ' ';

		if (begins && (at[length] == '\0' || at[length] == ' '))
			return true;
	}
	return false;
}

static void check_taken(const struct handshake *handshake, const char *origins)
{
	char accept[WEBSOCKET_ACCEPT_BYTES];
	const char *authority;

	ASSERT(handshake->n_key == 1 && strlen(handshake->key) == 24);
	ASSERT(handshake->upgrade && handshake->connection && handshake->version_13);
	websocket_key_answer(handshake->key, accept);
	ASSERT(strlen(accept) == WEBSOCKET_ACCEPT_BYTES - 1);
	if (handshake->n_origin == 0 || has_word(origins, "*"))
		return;
	ASSERT(handshake->n_origin == 1 && handshake->origin[0] != '\0');
	if (has_word(origins, handshake->origin))
		return;
	authority = strstr(handshake->origin, "://");
	ASSERT(authority && handshake->n_host == 1);
	ASSERT(strcasecmp(authority + 3, handshake->host) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	AUTO_FREE char *text = malloc(size + 1);
	struct handshake handshake = {0};
	char *rest = text;
	const char *origins;
	char *line;

	ASSERT(text);
	memcpy(text, data, size);
	text[size] = '\0';
	origins = strsep(&rest, "\n");
	while ((line = strsep(&rest, "\n"))) {
		const char *name = strsep(&line, ":");

		if (line)
			line += strspn(line, " ");
		handshake_add(&handshake, name, line);
	}
	if (handshake_judge(&handshake, origins) == HANDSHAKE_OK)
		check_taken(&handshake, origins);
	return 0;
}
