/*
 * sandbox-archive: see include/sandboxd/archive.h. Static; exec'd by descriptor.
 */
#include <errno.h>
#include <fcntl.h>
#include <langinfo.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/io.h"
#include "base/num.h"
#include "base/path.h"
#include "base/str.h"

#include "jail/archive/clear.h"
#include "jail/archive/create.h"
#include "jail/archive/extract.h"

#define ARGUMENTS_MAX 512
#define USAGE                                                                                      \
	"usage: sandbox-archive create|extract|replace MAX_BYTES MAX_ENTRIES [-x PATTERN]... "     \
	"PATH...\n"

struct arguments {
	const char *path[ARGUMENTS_MAX];
	const char *exclude[ARGUMENTS_MAX];
};

/* The library asks nl_langinfo(3) in which character set names are, by this name: bytes that are
 * said to be UTF-8 need no conversion. */
char *archive_codeset(nl_item item);
char *archive_codeset(nl_item item)
{
	static char codeset[] = "UTF-8";

	(void)item;
	return codeset;
}

static int read_paths(char *const *word, struct arguments *arguments, struct archive_job *job)
{
	for (; *word; word++) {
		bool is_pattern = str_equal(*word, "-x");

		if (job->n_excludes == ARGUMENTS_MAX || job->n_paths == ARGUMENTS_MAX)
			return -E2BIG;
		if (is_pattern && !*++word)
			return -EINVAL;
		if (is_pattern) {
			arguments->exclude[job->n_excludes++] = *word;
			continue;
		}
		if (**word != '/' || path_check_relative(*word + 1) < 0)
			return -EINVAL;
		arguments->path[job->n_paths++] = *word + 1;
	}
	job->path = arguments->path;
	job->exclude = arguments->exclude;
	return job->n_paths > 0 ? 0 : -EINVAL;
}

static int run_create(struct archive_job *job)
{
	return create_run(job, STDOUT_FILENO);
}

static int run_extract(struct archive_job *job)
{
	return extract_run(job, STDIN_FILENO);
}

static int run_replace(struct archive_job *job)
{
	int r = clear_run(job);

	return r < 0 ? r : run_extract(job);
}

static const struct mode {
	const char *name;
	int (*run)(struct archive_job *job);
} modes[] = {
	{"create",  run_create },
	{"extract", run_extract},
	{"replace", run_replace},
};

static const struct mode *find_mode(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(modes); i++)
		if (str_equal(modes[i].name, name))
			return &modes[i];
	return NULL;
}

int main(int argc, char *argv[])
{
	static struct arguments arguments;
	struct archive_job job = {.is_root = geteuid() == 0, .summary.magic = ARCHIVE_MAGIC};
	AUTO_CLOSE int root_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	const struct mode *mode = argc > 1 ? find_mode(argv[1]) : NULL;
	int r;

	if (argc < 5 || !mode || num_parse_u64(argv[2], 0, UINT64_MAX, &job.max_bytes) < 0 ||
	    num_parse_u64(argv[3], 0, UINT64_MAX, &job.max_entries) < 0 ||
	    read_paths(argv + 4, &arguments, &job) < 0) {
		(void)fprintf(stderr, USAGE);
		return 2;
	}
	job.root_fd = root_fd;
	r = mode->run(&job);
	if (io_write_all(STDERR_FILENO, &job.summary, sizeof(job.summary)) < 0)
		return 1;
	return r < 0 ? 1 : 0;
}
