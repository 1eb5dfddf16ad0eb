/*
 * The main of a fuzz target without libFuzzer: give every file of the named folders to it once.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/auto.h"
#include "base/io.h"

#include "tests/fuzz/fuzz.h"

#define INPUT_MAX_BYTES (4 * 1024 * 1024)

static int replay_file(int dir_fd, const char *name)
{
	char *data AUTO_FREE = NULL;
	int fd AUTO_CLOSE = -1;
	size_t size = 0;

	fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || io_read_file(fd, INPUT_MAX_BYTES, &data, &size) < 0) {
		(void)fprintf(stderr, "cannot read %s\n", name);
		return 1;
	}
	(void)LLVMFuzzerTestOneInput((const uint8_t *)data, size);
	return 0;
}

static int replay_folder(const char *path)
{
	DIR *dir = opendir(path);
	int n_files = 0;
	int n_failed = 0;

	if (!dir) {
		(void)fprintf(stderr, "cannot open %s\n", path);
		return 1;
	}
	for (;;) {
		struct dirent *entry = readdir(dir); /* NOLINT(concurrency-mt-unsafe) */

		if (!entry)
			break;
		if (entry->d_name[0] == '.')
			continue;
		n_files++;
		n_failed += replay_file(dirfd(dir), entry->d_name);
	}
	(void)closedir(dir);
	printf("%s: %d inputs\n", path, n_files);
	/* An empty corpus proves nothing. */
	return n_files == 0 ? 1 : n_failed;
}

int main(int argc, char **argv)
{
	int n_failed = 0;

	for (int i = 1; i < argc; i++)
		if (argv[i][0] != '-') /* libFuzzer's options */
			n_failed += replay_folder(argv[i]);
	return n_failed > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
