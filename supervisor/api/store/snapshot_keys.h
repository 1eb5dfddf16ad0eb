/*
 * The operator's keys of snapshots. Each is one organisation's, or everybody's, and none encrypts
 * by itself: what does is made of it and of the organisation's name, so that no organisation's file
 * can be read with what another one's was written with, also where both have the same key.
 *
 * A file is written with the last key of its organisation, or where that has none with the last of
 * everybody's, and names it; so it is read with that one, whatever has come since.
 */
#pragma once

#include <stdint.h>

#include "base/auto.h"

#include "sandboxd/worker.h"

struct snapshot_organization {
	enum quota_scope scope; /* QUOTA_SCOPE_HOST: the local operator, without a workspace */
	const char *name;
};

/* What encrypts; whoever has it overwrites it. */
struct snapshot_key {
	char id[SNAPSHOT_KEY_ID_BYTES];
	uint8_t bytes[SNAPSHOT_KEY_BYTES];
};

/* Locked in memory, where the kernel permits, and overwritten at its end. */
struct snapshot_keys;

/* The list is overwritten. Its texts are terminated. 0 or -ENOMEM. */
MUST_USE int snapshot_keys_new(struct snapshot_key_list *list, struct snapshot_keys **ret_keys);
struct snapshot_keys *snapshot_keys_free(struct snapshot_keys *keys); /* returns NULL */

/* Their ids, in the order of the list. NULL: there is no such one. */
const char *snapshot_keys_id(const struct snapshot_keys *keys, uint32_t number);

/* 0; -ENOKEY: there is none for it. */
MUST_USE int snapshot_keys_newest(const struct snapshot_keys *keys,
				  const struct snapshot_organization *organization,
				  struct snapshot_key *ret_key);
/* The same of one that a file names. */
MUST_USE int snapshot_keys_find(const struct snapshot_keys *keys,
				const struct snapshot_organization *organization, const char *id,
				struct snapshot_key *ret_key);
