/*
 * Layers as a session with root commands sees them: what root of the host owns belongs to the
 * session's root, so that programs which look at owners find what they expect. Nothing becomes
 * writable by that, as every layer is read-only, and nothing is shown that was covered.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/auto.h"

/* Which layers can be mapped on this host: KERNEL_USR_IDMAP, KERNEL_TMPFS_IDMAP; and templates:
 * KERNEL_STATE_IDMAP. Needs the supervisor's own root (rootfs.h) and its /proc. */
uint32_t idmap_probe(void);
/* In a session's own mount namespace, before its roots are put together: cover each such layer by a
 * mapped view of itself: those of the host's /usr, or those around a template, which is mapped
 * already. 0 or -errno. */
MUST_USE int idmap_layers(uint32_t probes, bool has_template, int userns_fd);
