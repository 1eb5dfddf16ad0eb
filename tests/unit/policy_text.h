/*
 * Policy files in memory, for the tests of policy/.
 */
#pragma once

#include <stddef.h>

#include "policy/profile.h"
#include "policy/resolve.h"

struct policy_text_file {
	const char *name;
	const char *text;
};

/* Ends with a row whose name is NULL; the userdata of policy_text_source. */
struct profile_source policy_text_source(const struct policy_text_file *files);

/* A worker profile whose filter holds `statements`, parsed and resolved: 0 or -errno with err. */
MUST_USE int policy_text_resolve(const char *statements, const struct policy_text_file *files,
				 struct resolve_filter **ret_filter, struct err *err);
