/*
 * The whole way from profile files to one image: parse, resolve, lint, generate, compare. Part of
 * sandbox-policyc only.
 */
#pragma once

#include <stddef.h>

#include "base/auto.h"
#include "base/buf.h"
#include "base/err.h"

#include "policy/equiv.h"
#include "policy/lint.h"
#include "policy/profile.h"
#include "policy/resolve.h"

#define COMPILE_IMAGE_MAX_BYTES ((size_t)4 * 1024 * 1024)

struct compile_unit {
	struct profile *profile;                             /* owned */
	struct resolve_filter *resolved[POLICY_FILTER_MAX_]; /* owned; NULL where not present */
	struct sock_filter *program[POLICY_FILTER_MAX_];     /* owned */
	size_t n_instructions[POLICY_FILTER_MAX_];
	struct equiv_report report[POLICY_FILTER_MAX_];
};

struct compile {
	int sets_fd;     /* directory of the *.set files */
	int profiles_fd; /* directory of the profile in work: its *.rules files */
	struct lint_sets used;
	bool shared[RESOLVE_MAX_NUMBER];
	bool sensitive[RESOLVE_MAX_NUMBER];
	struct compile_unit unit[POLICY_MAX_PROFILES];
	size_t n_units;
};

/* BLAKE2b-256 of the bytes. */
typedef void (*compile_hash)(const void *data, size_t size, uint8_t ret_hash[32]);

MUST_USE int compile_new(const char *sets_dir, struct compile **ret_compile, struct err *err);
struct compile *compile_free(struct compile *compile);
DEFINE_AUTO(struct compile *, compile_free);

/* Add a profile: its index in the image is the order of calls. 0, -EINVAL with file:line, -errno.
 */
MUST_USE int compile_add(struct compile *compile, const char *path, struct err *err);
/* Rules about all profiles together. */
MUST_USE int compile_finish(const struct compile *compile, struct err *err);
/* The image's bytes, appended to an empty buffer. */
MUST_USE int compile_image(const struct compile *compile, compile_hash hash, struct buf *image,
			   struct err *err);
