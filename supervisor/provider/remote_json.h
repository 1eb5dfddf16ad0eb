/*
 * Pure: the documents that a remote service takes and gives; docs/providers.md has them all.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"

#include "supervisor/provider/engine_json.h"

#define REMOTE_TOKEN_BYTES 4096 /* NUL included, as below */
#define REMOTE_PAGE_BYTES  256

enum remote_state {
	REMOTE_STARTING,
	REMOTE_RUNNING,
	REMOTE_PAUSED,
	REMOTE_ENDED, /* what is none of these is this, too */
};

/* The body of a create: the caller frees. NULL: no memory. Of `container` the programs and
 * max_processes are not used: both are the service's. */
char *remote_json_sandbox(const struct engine_container *container);
/* A token that a header can have, and for how many seconds it is good. 0, or -EBADMSG. */
MUST_USE int remote_json_token(const char *body, size_t size, char ret_token[REMOTE_TOKEN_BYTES],
			       uint32_t *ret_seconds);
/* enum remote_state of one sandbox, or -EBADMSG. */
MUST_USE int remote_json_state(const char *body, size_t size);
/* Calls `each` for every sandbox of one page of a list. ret_next: where the next one begins, as a
 * query has it; "": it was the last. 0, or -EBADMSG. */
MUST_USE int remote_json_list(const char *body, size_t size, engine_json_each each, void *userdata,
			      char ret_next[REMOTE_PAGE_BYTES]);
/* What it does not tell is 0. 0, or -EBADMSG. */
MUST_USE int remote_json_stat(const char *body, size_t size, struct launch_stat *ret_stat);
