/*
 * A whole job: from a source, whatever it is, to a root that a session can have.
 */
#pragma once

#include "jail/template/bounds.h"
#include "jail/template/oci.h"

struct unpack {
	int tree_fd;   /* not owned; where `root` is made */
	int source_fd; /* not owned; a folder, or a stream */
	struct oci_platform platform;
	const char *ref;
	struct bounds bounds;
};

/* 0, or -1 and bounds.report says why; what was made until then stays. */
MUST_USE int unpack_run(struct unpack *unpack);
