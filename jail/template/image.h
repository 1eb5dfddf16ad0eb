/*
 * An OCI image layout as the source of the tree.
 */
#pragma once

#include <stdbool.h>

#include "jail/template/oci.h"
#include "jail/template/source.h"
#include "jail/template/tree.h"

/* It has the files that say so. */
bool image_is_layout(int folder_fd);
/* The image of that platform and tag ("": the only one). 0 or -1 (bounds_fail). */
MUST_USE int image_unpack(struct tree *tree, struct source *source, int layout_fd,
			  const struct oci_platform *platform, const char *ref);
