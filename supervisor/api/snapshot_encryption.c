/* Which key a snapshot is encrypted with. */
#include <errno.h>

#include "base/log.h"
#include "base/str.h"

#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/reply.h"
#include "supervisor/api/session/snapshots.h"
#include "supervisor/api/snapshot_state.h"
#include "supervisor/api/store/snapshot_keys.h"

/* As snapshot_keep.c has it: the workspace, or who has none. */
static struct snapshot_organization organization_of(const struct session *session)
{
	if (session->workspace[0] != '\0')
		return (struct snapshot_organization){QUOTA_SCOPE_WORKSPACE, session->workspace};
	return (struct snapshot_organization){
		session->operator_owned ? QUOTA_SCOPE_HOST : QUOTA_SCOPE_OWNER, session->owner};
}

int snapshots_take_keys(struct app *app, struct api_config *config)
{
	struct snapshot_keys *keys;
	int r = snapshot_keys_new(&config->snapshot_keys, &keys);

	if (r < 0)
		return r;
	(void)snapshot_keys_free(app->snapshot_keys);
	app->snapshot_keys = keys;
	return 0;
}

int snapshot_key_to_write(const struct live *live, struct snapshot_key *ret_key)
{
	const struct snapshot_organization organization = organization_of(live->session);
	const struct app *app = live->app;
	int r;

	*ret_key = (struct snapshot_key){.id = ""};
	if (app->config->snapshot_encryption == CONFIG_ENCRYPTION_OFF)
		return 0;
	r = snapshot_keys_newest(app->snapshot_keys, &organization, ret_key);
	if (r == -ENOKEY && app->config->snapshot_encryption == CONFIG_ENCRYPTION_AVAILABLE)
		return 0;
	return r < 0 ? r : 1;
}

int snapshot_key_to_read(const struct app *app, const struct session *owner,
			 const struct snapshot_reference *reference, struct snapshot_key *ret_key)
{
	const struct snapshot_organization organization = organization_of(owner);
	int r;

	*ret_key = (struct snapshot_key){.id = ""};
	if (reference->key_id[0] == '\0')
		return 0;
	r = snapshot_keys_find(app->snapshot_keys, &organization, reference->key_id, ret_key);
	return r < 0 ? r : 1;
}

bool snapshot_key_is_there(struct request *request, const struct session *owner, json_t *reference)
{
	struct snapshot_reference parsed;
	struct snapshot_key key;
	char detail[128];
	int r;

	if (!reference || snapshot_reference_parse(reference, &owner->id, &parsed) < 0)
		return true; /* what is wrong with it is told when it is read */
	r = snapshot_key_to_read(request_app(request), owner, &parsed, &key);
	sodium_memzero(&key, sizeof(key));
	if (r != -ENOKEY)
		return true;
	str_printable(parsed.key_id); /* a row's word */
	if (str_format(detail, sizeof(detail),
		       "the key %s that the snapshot is encrypted with is not configured",
		       parsed.key_id) == 0)
		reply_runtime_error(request, RUNTIME_SNAPSHOT_KEY, detail);
	return false;
}

static json_t *key_row(json_t *keys, const char *id, bool is_configured)
{
	if (!json_object_get(keys, id))
		(void)json_object_set_new(
			keys, id,
			json_pack("{s:b, s:i}", "configured", is_configured, "snapshots", 0));
	return json_object_get(keys, id);
}

static void count_key(json_t *keys, const json_t *reference)
{
	const char *id = json_string_value(snapshots_encryption_key(reference));
	json_t *n = id ? json_object_get(key_row(keys, id, false), "snapshots") : NULL;

	if (n)
		(void)json_integer_set(n, json_integer_value(n) + 1);
}

json_t *snapshot_keys_describe(const struct app *app)
{
	json_t *keys = json_object();
	const char *id;

	for (uint32_t i = 0; (id = snapshot_keys_id(app->snapshot_keys, i)); i++)
		(void)key_row(keys, id, true);
	LIST_FOR_EACH (entry, &app->lives) {
		json_t *references =
			snapshots_references(LIST_ENTRY(entry, struct live, link)->session);
		const json_t *reference;
		size_t i;

		json_array_foreach(references, i, reference) count_key(keys, reference);
		json_decref(references);
	}
	return keys;
}

void snapshots_tell_missing_keys(const struct app *app)
{
	json_t *keys = snapshot_keys_describe(app);
	const char *id;
	json_t *row;

	json_object_foreach(keys, id, row)
	{
		if (json_is_true(json_object_get(row, "configured")))
			continue;
		log_line(LOG_LEVEL_WARNING, NULL, "snapshots need a key that is not configured",
			 "key=\"%s\" snapshots=%lld", id,
			 (long long)json_integer_value(json_object_get(row, "snapshots")));
	}
	json_decref(keys);
}
