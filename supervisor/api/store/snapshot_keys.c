#include "supervisor/api/store/snapshot_keys.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>

#include "base/str.h"

#define CONTEXT "sandboxd snapshot key 1"

struct snapshot_keys {
	struct snapshot_key_list list;
};

_Static_assert(SNAPSHOT_KEY_BYTES == crypto_generichash_KEYBYTES, "a key of BLAKE2b");
_Static_assert(sizeof(struct snapshot_keys) % sizeof(uint64_t) == 0,
	       "sodium_malloc aligns to its end");

int snapshot_keys_new(struct snapshot_key_list *list, struct snapshot_keys **ret_keys)
{
	struct snapshot_keys *keys = sodium_malloc(sizeof(*keys));

	if (keys)
		keys->list = *list;
	sodium_memzero(list, sizeof(*list));
	if (!keys)
		return -ENOMEM;
	*ret_keys = keys;
	return 0;
}

struct snapshot_keys *snapshot_keys_free(struct snapshot_keys *keys)
{
	sodium_free(keys);
	return NULL;
}

const char *snapshot_keys_id(const struct snapshot_keys *keys, uint32_t number)
{
	return number < keys->list.n ? keys->list.key[number].id : NULL;
}

static bool is_of(const struct snapshot_key_config *key,
		  const struct snapshot_organization *organization)
{
	return key->scope == organization->scope && str_equal(key->name, organization->name);
}

/* Every part has one length only, so that no two organisations' parts are the same bytes. */
static int derive(const struct snapshot_key_config *key,
		  const struct snapshot_organization *organization, struct snapshot_key *ret_key)
{
	struct {
		char context[sizeof(CONTEXT)];
		uint8_t scope;
		char name[sizeof(key->name)];
	} parts = {.context = CONTEXT, .scope = (uint8_t)organization->scope};

	if (str_copy(parts.name, sizeof(parts.name), organization->name) < 0)
		return -ENOKEY;
	if (crypto_generichash(ret_key->bytes, sizeof(ret_key->bytes), (const uint8_t *)&parts,
			       sizeof(parts), key->key, sizeof(key->key)) != 0)
		return -EINVAL;
	memcpy(ret_key->id, key->id, sizeof(ret_key->id));
	return 0;
}

int snapshot_keys_newest(const struct snapshot_keys *keys,
			 const struct snapshot_organization *organization,
			 struct snapshot_key *ret_key)
{
	const struct snapshot_key_config *own = NULL;
	const struct snapshot_key_config *everybodys = NULL;

	for (uint32_t i = 0; i < keys->list.n; i++) {
		const struct snapshot_key_config *key = &keys->list.key[i];

		if (key->scope == QUOTA_SCOPE_HOST)
			everybodys = key;
		else if (is_of(key, organization))
			own = key;
	}
	if (!own && !everybodys)
		return -ENOKEY;
	return derive(own ? own : everybodys, organization, ret_key);
}

int snapshot_keys_find(const struct snapshot_keys *keys,
		       const struct snapshot_organization *organization, const char *id,
		       struct snapshot_key *ret_key)
{
	for (uint32_t i = 0; i < keys->list.n; i++) {
		const struct snapshot_key_config *key = &keys->list.key[i];

		if (str_equal(key->id, id) &&
		    (key->scope == QUOTA_SCOPE_HOST || is_of(key, organization)))
			return derive(key, organization, ret_key);
	}
	return -ENOKEY;
}
