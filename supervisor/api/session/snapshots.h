/*
 * The snapshots that a session's row speaks of, the oldest first, and that of its last suspend.
 * Each is an object: `id`, `created_at` (as answers show it), `content_bytes`, `entries`,
 * `left_out`, `changed`, and `ref`, the reference of supervisor/api/snapshot.h, with `name` and
 * `bytes`.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/auto.h"

struct session;

#define SNAPSHOTS_MAX 16 /* of one session */

/* References of what is in an object store have its key there as `key`; the id of the key that it
 * is encrypted with, which others have as `key`, has a name of its own. */
#define SNAPSHOT_KIND_S3        "s3-tar"
#define SNAPSHOT_ENCRYPTION_KEY "encryption_key"

/* Of a reference: it is an object. */
bool snapshots_is_remote(const json_t *reference);
/* Of a reference; NULL: it is not encrypted. */
json_t *snapshots_encryption_key(const json_t *reference);
/* Of an object: one of these is it. */
bool snapshots_have_key(const struct session *session, const char *key);

size_t snapshots_count(const struct session *session);
/* Takes the reference. 0 or -ENOMEM. */
MUST_USE int snapshots_add(struct session *session, json_t *snapshot);
/* Borrowed, or NULL. */
json_t *snapshots_find(const struct session *session, const char *id);
/* A new reference to it, which is in the list no more; NULL: there is none. */
json_t *snapshots_take(struct session *session, const char *id);
/* All references; new, or NULL: none, or no memory. */
json_t *snapshots_references(const struct session *session);
/* Of a file of the store: one of these is it. */
bool snapshots_have_file(const struct session *session, const char *name);
uint64_t snapshots_bytes(const struct session *session);
/* Of one reference; NULL: 0. */
uint64_t snapshots_file_bytes(const json_t *reference);
/* Of all of them, added to what is there; both may be the same. */
struct snapshots_sum {
	uint64_t n;
	uint64_t bytes;
};
void snapshots_sum(const struct session *session, struct snapshots_sum *plain,
		   struct snapshots_sum *encrypted);
