/*
 * The key of the store from the file that keeps it.
 */
#pragma once

#include "base/auto.h"

#include "supervisor/helper/secret_store.h"

/* Read all of the file and derive the key. -EBADMSG: it is too short or too long to be one. */
MUST_USE int secret_key_read(int fd, enum secret_key_kind kind, struct secret_key *ret_key);
