/*
 * Identity headers: lines of "name: value"; the first byte says who the peer is. Nobody gets an
 * identity that is not written out in exactly one well-formed header.
 */
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

#include "supervisor/api/http/auth.h"
#include "tests/fuzz/fuzz.h"

static void fill(struct api_config *config)
{
	static const char *const names[] = {"X-Sandbox-User", "X-Sandbox-Workspace",
					    "X-Sandbox-Project", "X-Sandbox-Scopes"};
	char *const fields[] = {config->header_user, config->header_workspace,
				config->header_project, config->header_scopes};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		IGNORE_RESULT(str_copy(fields[i], sizeof(config->header_user), names[i]));
}

static void check(const struct auth_headers *headers, uint8_t peer)
{
	struct identity identity = {0};
	struct buf text = BUF_NULL(4096);
	enum auth_result result = auth_decide(headers, peer & 1, peer & 2, peer & 4, &identity);

	if (result != AUTH_OK)
		return;
	ASSERT((identity.scopes & ~(uint32_t)AUTH_ALL) == 0);
	ASSERT(identity.is_operator == ((peer & 2) != 0));
	if (!identity.is_operator && identity.user[0] != '\0') {
		ASSERT((peer & 1) && headers->n[AUTH_FIELD_USER] == 1 && !headers->underscore);
		ASSERT(strlen(identity.user) == headers->length[AUTH_FIELD_USER]);
		for (const char *c = identity.user; *c; c++)
			ASSERT(*c > 0x20 && *c < 0x7f);
	}
	if (auth_missing(&identity, AUTH_ALL) != 0)
		ASSERT(auth_missing_text(auth_missing(&identity, AUTH_ALL), &text) == 0);
	buf_done(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct api_config config;
	struct auth_headers headers = {0};
	char copy[4096];
	char *line = copy;

	if (size < 1 || size > sizeof(copy) - 1)
		return 0;
	fill(&config);
	memcpy(copy, data + 1, size - 1);
	copy[size - 1] = '\0';
	while (line) {
		char *next = strchr(line, '\n');
		char *colon;

		if (next)
			*next++ = '\0';
		colon = strchr(line, ':');
		if (colon)
			*colon++ = '\0';
		auth_headers_add(&headers, &config, line, colon, colon ? strlen(colon) : 0);
		line = next;
	}
	check(&headers, data[0]);
	return 0;
}
