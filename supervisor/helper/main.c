/*
 * sandboxd-helper: one job, then it exits. `unseal` and `redis` are started by the supervisor, with
 * its own id, an empty root, the files as descriptors and a filter; `put`, `ls` and `rm` by root,
 * through `sandboxctl secret`.
 */
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/confine.h"
#include "base/str.h"

#include "policy/confine_worker.h"
#include "sandboxd/worker.h"
#include "supervisor/helper/redis.h"
#include "supervisor/helper/seal.h"
#include "supervisor/helper/unseal.h"

#define REDIS_MEMORY (256ul * 1024 * 1024)

/* It is in the api worker's group, and an answer of the server is as big as sessions' keys have
 * names: it fails alone. A sanitizer reserves more than that for itself. */
static int limit_memory(void)
{
	const struct rlimit limit = {.rlim_cur = REDIS_MEMORY, .rlim_max = REDIS_MEMORY};

	return CONFINE_SANITIZED ? 0 : setrlimit(RLIMIT_AS, &limit);
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		(void)fputs("usage: sandboxd-helper unseal | redis | put | ls | rm\n", stderr);
		return 2;
	}
	if (str_equal(argv[1], "redis")) {
		if (limit_memory() < 0 ||
		    confine_fileless_worker(WORKER_FD_POLICY, "worker-redis") < 0)
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
