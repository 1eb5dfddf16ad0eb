/*
 * From a resolved filter to classic BPF, by libseccomp, at build time.
 */
#pragma once

#include <stddef.h>

#include "base/auto.h"
#include "base/err.h"

#include "sandboxd/policy_image.h"

struct resolve_filter;
struct sock_filter;

/* Fills at most POLICY_MAX_BPF instructions, for which `program` has room. 0; -E2BIG; -errno of the
 * library with err. */
MUST_USE int seccomp_gen_filter(const struct resolve_filter *filter, struct sock_filter *program,
				size_t *ret_n, struct err *err);
