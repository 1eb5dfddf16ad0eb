#include "supervisor/config/option_key.h"

#include <errno.h>
#include <string.h>

#include "base/str.h"

#include "sandboxd/limits.h"

static int read_key(const char *text, size_t length, uint8_t key[SNAPSHOT_KEY_BYTES])
{
	if (length != (size_t)2 * SNAPSHOT_KEY_BYTES)
		return -EINVAL;
	for (size_t i = 0; i < SNAPSHOT_KEY_BYTES; i++) {
		int high = str_hex_digit(text[2 * i]);
		int low = str_hex_digit(text[2 * i + 1]);

		if (high < 0 || low < 0)
			return -EINVAL;
		key[i] = (uint8_t)(high << 4 | low);
	}
	return 0;
}

/* `*`, or a tenant as the sections of quotas name it. */
static int read_organization(const char *text, size_t length, struct snapshot_key_config *key)
{
	static const struct {
		const char *prefix;
		enum quota_scope scope;
	} scopes[] = {
		{"owner:",     QUOTA_SCOPE_OWNER    },
		{"workspace:", QUOTA_SCOPE_WORKSPACE},
	};

	if (length == 1 && text[0] == '*') {
		key->scope = QUOTA_SCOPE_HOST;
		return 0;
	}
	for (size_t i = 0; i < ARRAY_SIZE(scopes); i++) {
		size_t before = strlen(scopes[i].prefix);

		if (length <= before || strncmp(text, scopes[i].prefix, before) != 0)
			continue;
		if (length - before > IDENTITY_MAX ||
		    !str_only(text + before, length - before, "._:@-"))
			return -EINVAL;
		key->scope = scopes[i].scope;
		return str_copy_n(key->name, sizeof(key->name), text + before, length - before);
	}
	return -EINVAL;
}

static int read_id(const char *text, size_t length, const struct snapshot_key_list *keys,
		   struct snapshot_key_config *key)
{
	if (length == 0 || length >= sizeof(key->id) || !str_only(text, length, "._-"))
		return -EINVAL;
	for (uint32_t i = 0; i < keys->n; i++)
		if (strlen(keys->key[i].id) == length &&
		    strncmp(keys->key[i].id, text, length) == 0)
			return -EINVAL;
	return str_copy_n(key->id, sizeof(key->id), text, length);
}

int option_key_add(const char *entry, size_t length, struct snapshot_key_list *keys)
{
	const char *equals = memchr(entry, '=', length);
	const char *end = entry + length;
	const char *colon = equals ? memchr(equals, ':', (size_t)(end - equals)) : NULL;
	struct snapshot_key_config key = {.zero = 0};
	int r;

	if (!colon || keys->n == SNAPSHOT_KEYS_MAX)
		return -EINVAL;
	r = read_organization(entry, (size_t)(equals - entry), &key);
	if (r >= 0)
		r = read_id(equals + 1, (size_t)(colon - equals - 1), keys, &key);
	if (r >= 0)
		r = read_key(colon + 1, (size_t)(end - colon - 1), key.key);
	if (r >= 0)
		keys->key[keys->n++] = key;
	explicit_bzero(&key, sizeof(key));
	return r < 0 ? -EINVAL : 0;
}
