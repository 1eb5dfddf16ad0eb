#include "tests/fuzz/world.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/io.h"
#include "base/str.h"

#define BLOCK_BYTES ((size_t)512)
#define SUM_AT      148u
#define SUM_BYTES   8u
#define MAGIC_AT    257u

static void mend_sums(uint8_t *data, size_t size)
{
	for (size_t at = 0; at + BLOCK_BYTES <= size; at += BLOCK_BYTES) {
		uint8_t *block = data + at;
		unsigned int sum = 0;

		if (memcmp(block + MAGIC_AT, "ustar", 5) != 0)
			continue;
		memset(block + SUM_AT, ' ', SUM_BYTES);
		for (size_t i = 0; i < BLOCK_BYTES; i++)
			sum += block[i];
		for (size_t i = 0; i < 6; i++)
			block[SUM_AT + 5 - i] = (uint8_t)('0' + (sum >> 3 * i & 7));
		block[SUM_AT + 6] = '\0';
	}
}

int world_archive(const uint8_t *data, size_t size)
{
	AUTO_FREE uint8_t *mended = malloc(size + 1);
	int fd = memfd_create("archive", MFD_CLOEXEC);

	ASSERT(mended && fd >= 0);
	memcpy(mended, data, size);
	mend_sums(mended, size);
	ASSERT(io_write_all(fd, mended, size) == 0);
	return fd;
}

int world_top(char ret_top[WORLD_TOP_BYTES])
{
	int fd;

	IGNORE_RESULT(str_format(ret_top, WORLD_TOP_BYTES, "%s/fuzz-world-XXXXXX",
				 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"));
	ASSERT(mkdtemp(ret_top));
	fd = open(ret_top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ASSERT(fd >= 0);
	return fd;
}

FTS *world_open_tree(const char *top, const char *name, char path[PATH_MAX])
{
	char *const paths[] = {path, NULL};
	FTS *tree;

	IGNORE_RESULT(str_format(path, PATH_MAX, "%s/%s", top, name));
	tree = fts_open(paths, FTS_PHYSICAL, NULL);
	ASSERT(tree);
	return tree;
}
