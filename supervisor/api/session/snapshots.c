#include "supervisor/api/session/snapshots.h"

#include <errno.h>

#include "base/str.h"

#include "supervisor/api/session/session.h"

size_t snapshots_count(const struct session *session)
{
	return json_array_size(session->spec.runtime.snapshots);
}

int snapshots_add(struct session *session, json_t *snapshot)
{
	struct spec_runtime *runtime = &session->spec.runtime;

	if (!runtime->snapshots)
		runtime->snapshots = json_array();
	return json_array_append_new(runtime->snapshots, snapshot) < 0 ? -ENOMEM : 0;
}

static const char *text_of(const json_t *object, const char *member)
{
	const char *text = json_string_value(json_object_get(object, member));

	return text ? text : "";
}

/* Its place, or the number of all. */
static size_t place_of(const struct session *session, const char *id)
{
	size_t n = snapshots_count(session);

	for (size_t i = 0; i < n; i++)
		if (str_equal(text_of(json_array_get(session->spec.runtime.snapshots, i), "id"),
			      id))
			return i;
	return n;
}

json_t *snapshots_find(const struct session *session, const char *id)
{
	return json_array_get(session->spec.runtime.snapshots, place_of(session, id));
}

json_t *snapshots_take(struct session *session, const char *id)
{
	size_t place = place_of(session, id);
	json_t *snapshot = json_incref(json_array_get(session->spec.runtime.snapshots, place));

	if (snapshot)
		(void)json_array_remove(session->spec.runtime.snapshots, place);
	return snapshot;
}

json_t *snapshots_references(const struct session *session)
{
	json_t *own = session->suspension.snapshot;
	json_t *references;
	const json_t *snapshot;
	size_t i;

	if (!own && snapshots_count(session) == 0)
		return NULL;
	references = json_array();
	if (own)
		(void)json_array_append(references, own);
	json_array_foreach(session->spec.runtime.snapshots, i, snapshot)
	{
		(void)json_array_append(references, json_object_get(snapshot, "ref"));
	}
	return references;
}

bool snapshots_is_remote(const json_t *reference)
{
	return str_equal(text_of(reference, "kind"), SNAPSHOT_KIND_S3);
}

json_t *snapshots_encryption_key(const json_t *reference)
{
	return json_object_get(reference,
			       snapshots_is_remote(reference) ? SNAPSHOT_ENCRYPTION_KEY : "key");
}

bool snapshots_have_key(const struct session *session, const char *key)
{
	json_t *references = snapshots_references(session);
	const json_t *reference;
	bool found = false;
	size_t i;

	json_array_foreach(references, i, reference)
	{
		found |=
			snapshots_is_remote(reference) && str_equal(text_of(reference, "key"), key);
	}
	json_decref(references);
	return found;
}

bool snapshots_have_file(const struct session *session, const char *name)
{
	const json_t *snapshot;
	size_t i;

	json_array_foreach(session->spec.runtime.snapshots, i, snapshot)
	{
		if (str_equal(text_of(json_object_get(snapshot, "ref"), "name"), name))
			return true;
	}
	return str_equal(text_of(session->suspension.snapshot, "name"), name);
}

uint64_t snapshots_file_bytes(const json_t *reference)
{
	json_int_t bytes = json_integer_value(json_object_get(reference, "bytes"));

	return bytes > 0 ? (uint64_t)bytes : 0;
}

static void add_to_sum(const json_t *reference, struct snapshots_sum *plain,
		       struct snapshots_sum *encrypted)
{
	struct snapshots_sum *sum = snapshots_encryption_key(reference) ? encrypted : plain;

	if (!reference)
		return;
	sum->n++;
	sum->bytes += snapshots_file_bytes(reference);
}

void snapshots_sum(const struct session *session, struct snapshots_sum *plain,
		   struct snapshots_sum *encrypted)
{
	const json_t *snapshot;
	size_t i;

	add_to_sum(session->suspension.snapshot, plain, encrypted);
	json_array_foreach(session->spec.runtime.snapshots, i, snapshot)
	{
		add_to_sum(json_object_get(snapshot, "ref"), plain, encrypted);
	}
}

uint64_t snapshots_bytes(const struct session *session)
{
	struct snapshots_sum sum = {0};

	snapshots_sum(session, &sum, &sum);
	return sum.bytes;
}
