/*
 * What a snapshot is of, as its reference has it, and as the arguments of sandbox-archive say it.
 */
#pragma once

#include "supervisor/api/snapshot_state.h"

#define SNAPSHOT_WORDS_MAX    256
#define SNAPSHOT_NUMBER_BYTES 24

struct snapshot_words {
	const char *word[SNAPSHOT_WORDS_MAX + 1];
	size_t n;
	char max_bytes[SNAPSHOT_NUMBER_BYTES];
	char max_entries[SNAPSHOT_NUMBER_BYTES];
};

/* {include, exclude, max_bytes, max_entries}: absolute paths, all of /session where the session has
 * none. The caller's; NULL: no memory. */
json_t *snapshot_workspace(const struct session *session, const struct api_config *config);
/* Of the run's reference; they live as long as both. */
void snapshot_words_make(const struct snapshot_run *run, const char *program,
			 struct snapshot_words *words);
