/*
 * sandboxd-helper: one job, then it exits. `unseal` and `redis` are started by the supervisor, with
 * its own id, an empty root, the files as descriptors and a filter; `put`, `ls` and `rm` by root,
 * through `sandboxctl secret`.
 */
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/str.h"

#include "policy/confine_worker.h"
#include "sandboxd/worker.h"
#include "supervisor/helper/redis.h"
#include "supervisor/helper/seal.h"
#include "supervisor/helper/unseal.h"

int main(int argc, char **argv)
{
	if (argc < 2) {
		(void)fputs("usage: sandboxd-helper unseal | redis | put | ls | rm\n", stderr);
		return 2;
	}
	if (str_equal(argv[1], "redis")) {
		if (confine_fileless_worker(WORKER_FD_POLICY, "worker-redis") < 0)
			return EXIT_FAILURE;
		return redis_run();
	}
	/* Before the filter: it looks for its source of randomness. */
	if (sodium_init() < 0)
		return EXIT_FAILURE;
	if (!str_equal(argv[1], "unseal"))
		return seal_run(argc - 1, argv + 1);
	if (confine_fileless_worker(WORKER_FD_POLICY, "worker-helper") < 0)
		return EXIT_FAILURE;
	return unseal_run();
}
