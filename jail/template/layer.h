/*
 * One tar archive into the tree: a whole image, or one layer of it.
 */
#pragma once

#include <stdint.h>

#include "jail/template/source.h"
#include "jail/template/tree.h"

enum layer_pass {
	LAYER_WHOLE,     /* all of it; names have no meaning of their own */
	LAYER_WHITEOUTS, /* only what it takes away from the layers below */
	LAYER_ENTRIES,   /* all but that */
};

/* How a layer may be compressed. */
enum layer_filter {
	LAYER_FILTER_NONE = 1,
	LAYER_FILTER_GZIP = 2,
	LAYER_FILTER_ZSTD = 4,
	LAYER_FILTER_BZIP2 = 8,
	LAYER_FILTER_XZ = 16,
	LAYER_FILTER_ANY = 31,
};

/* 0 or -1 (bounds_fail). The archive may end before its source does. */
MUST_USE int layer_unpack(struct tree *tree, struct source *source, enum layer_pass pass,
			  unsigned int filters);
