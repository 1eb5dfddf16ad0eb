/*
 * An entry of the list of keys of snapshots, see sandboxd.conf(5).
 */
#pragma once

#include <stddef.h>

#include "base/auto.h"

#include "sandboxd/worker.h"

/* ORGANISATION=ID:KEY, behind the others. 0 or -EINVAL: not of that form, an id that another one
 * has, or no room. */
MUST_USE int option_key_add(const char *entry, size_t length, struct snapshot_key_list *keys);
