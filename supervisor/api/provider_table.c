/* All there are. A file of its own, so that a test can have one more. */
#include <stddef.h>

#include "supervisor/api/provider.h"

const struct provider *const providers[] = {
	&provider_native,
	&provider_docker,
	&provider_remote,
	NULL,
};
