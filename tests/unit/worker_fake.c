/*
 * The api worker of the tests: all of sandboxd-api but its confinement, and one provider more. Its
 * state is in the folder of the first argument; the second is provider_fake_begin's.
 */
#include <fcntl.h>
#include <sodium.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "base/num.h"

#include "policy/image.h"
#include "supervisor/api/app.h"
#include "supervisor/api/config.h"
#include "tests/unit/provider_fake.h"

/* As provider_table.c, with one behind. */
const struct provider *const providers[] = {
	&provider_native, &provider_docker, &provider_remote, &provider_fake, NULL,
};

int main(int argc, char *argv[])
{
	AUTO(config_free) struct api_config *config = NULL;
	struct image policy = IMAGE_NULL;
	struct err err = ERR_NULL;
	uint64_t is_late;
	int root_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	int code;

	log_init("worker_fake", LOG_LEVEL_INFO);
	if (argc != 3 || root_fd < 0 || sodium_init() < 0 ||
	    num_parse_u64(argv[2], 0, UINT64_MAX, &is_late) < 0)
		return EXIT_FAILURE;
	if (config_read(WORKER_FD_CONFIG, &config, &err) < 0 ||
	    image_open(WORKER_FD_POLICY, &policy, &err) < 0) {
		log_err(LOG_LEVEL_ERROR, NULL, "cannot start", &err);
		return EXIT_FAILURE;
	}
	provider_fake_begin(is_late);
	if (chroot(argv[1]) < 0 || chdir("/") < 0)
		return EXIT_FAILURE;
	code = app_run(config, &policy, NULL);
	image_close(&policy);
	/* A sanitizer looks at /proc at the end. */
	if (fchdir(root_fd) < 0 || chroot(".") < 0)
		return EXIT_FAILURE;
	return code;
}
