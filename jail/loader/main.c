/*
 * sandbox-loader DIR: report the components of a session folder (include/sandboxd/loader.h).
 *
 * Runs inside a session as `user`, under the policy of its commands: the one YAML parser of the
 * system works where a bug in it gains nothing. Links base and libyaml, statically, and is exec'd
 * by descriptor. The limits below bound a hostile document; the job's own timeout comes on top.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/auto.h"

#include "jail/loader/folder.h"
#include "jail/loader/report.h"

#define LOADER_CPU_S       20
#define LOADER_MEMORY      (192ul * 1024 * 1024)
#define LOADER_RECORDS_MAX (64 * sizeof(struct loader_record))

static int loader_limits(void)
{
	/* A limit that is already lower stays as it is. */
	const struct rlimit cpu = {.rlim_cur = LOADER_CPU_S, .rlim_max = LOADER_CPU_S};
	const struct rlimit memory = {.rlim_cur = LOADER_MEMORY, .rlim_max = LOADER_MEMORY};

	if (setrlimit(RLIMIT_CPU, &cpu) < 0 && errno != EPERM)
		return -errno;
	if (setrlimit(RLIMIT_AS, &memory) < 0 && errno != EPERM)
		return -errno;
	return 0;
}

int main(int argc, char *argv[])
{
	struct report report = {.records = BUF_NULL(LOADER_RECORDS_MAX)};
	AUTO_CLOSE int dir_fd = -1;
	int r;

	if (argc != 2) {
		(void)fprintf(stderr, "usage: sandbox-loader DIR\n");
		return 2;
	}
	r = loader_limits();
	if (r >= 0) {
		dir_fd = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		r = dir_fd < 0 ? -errno : folder_load(dir_fd, &report, STDOUT_FILENO);
	}
	buf_done(&report.records);
	if (r < 0) {
		(void)fprintf(stderr, "sandbox-loader: %s\n", strerrordesc_np(-r));
		return EXIT_FAILURE;
	}
	return EXIT_SUCCESS;
}
