/*
 * The secrets of the session: read once at the start, given to commands in their environment, and
 * masked in what leaves.
 */
#pragma once

#include <stddef.h>

#include "base/auto.h"
#include "base/err.h"
#include "base/frame.h"

#include "sandboxd/secret.h"
#include "shim/mask.h"

struct secret_view;

struct secrets {
	size_t n;
	char *entry[SECRETS_SESSION_MAX]; /* "VARIABLE=value" */
	struct mask_pattern *pattern;
	size_t n_patterns;
	struct mask mask; /* n == 0: nothing is masked */
	void *map;        /* holds all of the above points to: kept in memory, in no dump */
	size_t map_bytes;
};

/* Read SHIM_FD_SECRETS to its end and close it; without that descriptor there are none. Before the
 * nursery is forked, so that the spawner's runners have them without any further copy. */
MUST_USE int secrets_read(struct secrets *secrets, struct err *err);
/* For what is parsed already: tests, fuzzing. 0 or -ENOMEM. */
MUST_USE int secrets_take(struct secrets *secrets, const struct secret_view *views, size_t n);
/* Unmap them: in processes that need none. */
void secrets_forget(struct secrets *secrets);
/* Add each variable that the command's environment does not have: what the api worker sets (the
 * endpoints, PATH) and what the caller gave this command win. */
void secrets_give(const struct secrets *secrets, struct frame_exec *exec);
