/*
 * A folder as the source of the tree.
 */
#pragma once

#include "base/auto.h"

#include "jail/template/tree.h"

/* All that is in it, on its own mount. 0 or -1 (bounds_fail). */
MUST_USE int folder_copy(struct tree *tree, int source_fd);
