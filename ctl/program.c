#include "ctl/program.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"

#include "ctl/options.h"

/* The directory of this program, or "" where it is not known. */
static void own_directory(char path[PATH_MAX])
{
	ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);
	char *slash;

	path[n > 0 ? n : 0] = '\0';
	slash = strrchr(path, '/');
	if (slash)
		*slash = '\0';
}

int program_become(const char *name, int stdin_fd, char *const argv[])
{
	static char *const no_environment[] = {NULL};
	char own[PATH_MAX];
	const char *const folders[] = {own, SANDBOXD_LIBEXECDIR};
	sigset_t none;

	own_directory(own);
	(void)fflush(stdout);
	(void)sigemptyset(&none);
	/* A client blocks signals. One thread. NOLINTNEXTLINE(concurrency-mt-unsafe) */
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	/* The connection to the service is ours: the next program may be less trusted than we. */
	if (dup2(stdin_fd, STDIN_FILENO) < 0 || fd_close_from(STDERR_FILENO + 1) < 0) {
		(void)fprintf(stderr, "sandboxctl: %s\n", strerrordesc_np(errno));
		return EXIT_FAILED;
	}
	for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
		char path[PATH_MAX];

		if (folders[i][0] != '/' ||
		    str_format(path, sizeof(path), "%s/%s", folders[i], name) < 0)
			continue;
		(void)execve(path, argv, no_environment);
		if (errno != ENOENT)
			break;
	}
	(void)fprintf(stderr, "sandboxctl: %s cannot be run: %s\n", name, strerrordesc_np(errno));
	return EXIT_FAILED;
}
