/*
 * sandboxd-api: the unprivileged worker that speaks HTTP. It is exec'd by the supervisor in a root
 * of its own, with ids of its own and descriptors by fixed number (include/sandboxd/worker.h).
 *
 * Runs as the worker's id, no groups, no capabilities. First thing, before a byte from outside:
 * Landlock domain, no_new_privs, not dumpable, seccomp filter.
 */
#include <sodium.h>
#include <stdlib.h>

#include "base/confine.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/log.h"
#include "base/str.h"

#include "policy/confine_worker.h"
#include "policy/image.h"
#include "supervisor/api/app.h"
#include "supervisor/api/config.h"
#include "supervisor/api/names.h"

/* Of the worker's root, for a client of servers: whom the host trusts, and the hosts file. */
#define FACTS "/etc"

#define PROFILE         "worker-api"
#define PROFILE_NETWORK "worker-api-network"

static int confine_files(bool network)
{
	if (CONFINE_SANITIZED)
		return 0;
	return network ? confine_folder_and_reads(WORKER_STATE_DIR, FACTS)
		       : confine_folder(WORKER_STATE_DIR);
}

/* The supervisor says which of the two: nothing was read yet. */
int main(int argc, char *argv[])
{
	bool network = argc == 2 && str_equal(argv[1], WORKER_MODE_NETWORK);
	AUTO(config_free) struct api_config *config = NULL;
	struct image policy = IMAGE_NULL;
	struct names *names = NULL;
	struct err err = ERR_NULL;
	bool applied = false;
	int code;
	int r;

	log_init("sandboxd-api", LOG_LEVEL_INFO);
	log_set_format(LOG_FORMAT_RECORD); /* the supervisor gives it its form */
	doc_wipe_freed();
	if (sodium_init() < 0) {
		log_line(LOG_LEVEL_ERROR, NULL, "cannot start", "reason=\"libsodium\"");
		return EXIT_FAILURE;
	}
	/* What it reads of the worker's root is out of reach afterwards. */
	r = network ? names_new(&names) : 0;
	if (r < 0) {
		(void)err_fail(&err, r, "names", "the resolver");
		log_err(LOG_LEVEL_ERROR, NULL, "cannot start", &err);
		return EXIT_FAILURE;
	}
	r = confine_files(network);
	if (r < 0) {
		(void)err_fail(&err, r, "confine", "files");
		log_err(LOG_LEVEL_ERROR, NULL, "not confined", &err);
		return EXIT_FAILURE;
	}
	if (confine_worker(WORKER_FD_POLICY, network ? PROFILE_NETWORK : PROFILE, &applied, &err) <
	    0) {
		log_err(LOG_LEVEL_ERROR, NULL, "not confined", &err);
		return EXIT_FAILURE;
	}
	if (!applied)
		log_line(LOG_LEVEL_WARNING, NULL, "no seccomp filter, no Landlock domain",
			 "reason=sanitizer");
	if (config_read(WORKER_FD_CONFIG, &config, &err) < 0 ||
	    image_open(WORKER_FD_POLICY, &policy, &err) < 0) {
		log_err(LOG_LEVEL_ERROR, NULL, "cannot start", &err);
		return EXIT_FAILURE;
	}
	/* Keys and passwords: it would be a copy of them that nothing overwrites. */
	(void)fd_close(WORKER_FD_CONFIG);
	log_set_level((enum log_level)config->log_level);
	code = app_run(config, &policy, names);
	image_close(&policy);
	return code;
}
