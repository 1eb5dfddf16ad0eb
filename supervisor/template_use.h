/*
 * The template of one session: looked up by the supervisor when it launches, in use until the
 * session's pid 1 has ended.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct template_use {
	int record_fd; /* holds it, and so do all duplicates; -1: none, as the next */
	int tree_fd;   /* its root as a detached mount: ro nosuid nodev */
};
#define TEMPLATE_USE_NULL ((struct template_use){.record_fd = -1, .tree_fd = -1})

struct template_wish {
	const char *name;
	uint32_t id_base; /* of the session's id block, which is its number as a user */
	int userns_fd;    /* the session's user namespace; -1: layers are not mapped */
};

/*
 * Needs the supervisor's own root (rootfs.h), whose /d has the templates. -ENOENT: there is none of
 * that name, or it is being removed; -EINVAL: no name of a template; otherwise -errno as of
 * template_record_open, or of a mount. The caller closes what it got.
 */
MUST_USE int template_use_take(const struct template_wish *wish, struct template_use *ret_use,
			       struct err *err);
/* Close both; the session's pid 1 may have a duplicate of the first. Accepts TEMPLATE_USE_NULL. */
void template_use_close(struct template_use *use);
