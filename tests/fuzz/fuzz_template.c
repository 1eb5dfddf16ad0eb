/*
 * A whole image, into a folder that is made for it: whatever it says, what is made is files,
 * folders and links below `root` without a setuid bit, no more than the bounds allow, and counted
 * as it is; what was there outside is as it was. Then once more as a layer over itself.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"

#include "jail/template/layer.h"
#include "jail/template/unpack.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/world.h"

#define MAX_BYTES  ((uint64_t)64 * 1024)
#define MAX_INODES 48u

struct world {
	char top[WORLD_TOP_BYTES];
	int top_fd;
	int tree_fd;
	struct stat outside;
};

static void make_world(struct world *world)
{
	world->top_fd = world_top(world->top);
	ASSERT(mkdirat(world->top_fd, "tree", 0755) == 0 &&
	       mkdirat(world->top_fd, "outside", 0755) == 0);
	world->tree_fd = openat(world->top_fd, "tree", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ASSERT(world->tree_fd >= 0 &&
	       fstatat(world->top_fd, "outside", &world->outside, AT_SYMLINK_NOFOLLOW) == 0);
}

/* Inodes by their first name only: whatever has several is counted by the bounds once. */
static void check_inside(const struct world *world, const struct bounds *bounds)
{
	char path[PATH_MAX];
	FTS *tree = world_open_tree(world->top, "tree", path);
	const FTSENT *entry;
	uint64_t n_inodes = 0;
	uint64_t n_linked = 0;

	while ((entry = fts_read(tree))) {
		ASSERT(entry->fts_info == FTS_D || entry->fts_info == FTS_DP ||
		       entry->fts_info == FTS_F || entry->fts_info == FTS_SL ||
		       entry->fts_info == FTS_DNR);
		ASSERT((entry->fts_statp->st_mode & (S_ISUID | S_ISGID)) == 0);
		if (entry->fts_info == FTS_DP || entry->fts_level < 2)
			continue;
		n_inodes++;
		n_linked += entry->fts_info != FTS_D && entry->fts_statp->st_nlink > 1;
	}
	ASSERT(errno == 0);
	(void)fts_close(tree);
	/* The folder that was one too many is there, too, and the trash is not counted twice. */
	ASSERT(n_inodes <= bounds->report.n_inodes + n_linked + TEMPLATE_PATH_MAX / 2);
	ASSERT(bounds->report.error != TEMPLATE_E_NONE || n_linked > 0 ||
	       n_inodes == bounds->report.n_inodes);
}

static void check_outside(const struct world *world)
{
	struct stat st;

	ASSERT(fstatat(world->top_fd, "outside", &st, AT_SYMLINK_NOFOLLOW) == 0);
	ASSERT(st.st_nlink == world->outside.st_nlink && st.st_mode == world->outside.st_mode &&
	       memcmp(&st.st_ctim, &world->outside.st_ctim, sizeof(st.st_ctim)) == 0);
}

static void unpack_stream(const struct world *world, int in_fd)
{
	struct unpack unpack = {
		.tree_fd = world->tree_fd,
		.source_fd = in_fd,
		.ref = "",
		.bounds = {.max_bytes = MAX_BYTES, .max_inodes = MAX_INODES},
	};
	int r;

	ASSERT(oci_platform_parse("linux/amd64", &unpack.platform) == 0);
	ASSERT(lseek(in_fd, 0, SEEK_SET) == 0);
	r = unpack_run(&unpack);
	ASSERT((r == 0) == (unpack.bounds.report.error == TEMPLATE_E_NONE));
	ASSERT(unpack.bounds.report.error < TEMPLATE_E_MAX_ &&
	       unpack.bounds.report.n_bytes <= MAX_BYTES &&
	       unpack.bounds.report.n_inodes <= MAX_INODES);
	check_inside(world, &unpack.bounds);
	check_outside(world);
}

static void unpack_layer(const struct world *world, int in_fd)
{
	AUTO_CLOSE int root_fd =
		openat(world->tree_fd, "root", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct bounds bounds = {.max_bytes = MAX_BYTES, .max_inodes = MAX_INODES};
	AUTO_FREE struct source *source = malloc(sizeof(*source));
	struct trash trash;
	struct tree tree;
	int r;

	ASSERT(source && root_fd >= 0);
	ASSERT(trash_open(&trash, world->tree_fd, &bounds) == 0);
	tree_init(&tree, root_fd, &bounds, &trash);
	for (int pass = LAYER_WHITEOUTS; pass <= LAYER_ENTRIES; pass++) {
		ASSERT(lseek(in_fd, 0, SEEK_SET) == 0);
		source_init(source, in_fd, bounds_source_bytes(&bounds));
		r = layer_unpack(&tree, source, (enum layer_pass)pass, LAYER_FILTER_ANY);
		ASSERT((r == 0) == (bounds.report.error == TEMPLATE_E_NONE));
		if (r < 0)
			break;
	}
	tree_done(&tree);
	check_outside(world);
	trash_done(&trash);
	ASSERT(trash_adopt(&trash, world->tree_fd) == 0 && trash_empty(&trash) == 0);
	trash_done(&trash);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	AUTO_CLOSE int in_fd = world_archive(data, size);
	struct world world;

	make_world(&world);
	unpack_stream(&world, in_fd);
	unpack_layer(&world, in_fd);
	world.tree_fd = fd_close(world.tree_fd);
	ASSERT(unlinkat(world.top_fd, "tree", AT_REMOVEDIR) == 0 &&
	       unlinkat(world.top_fd, "outside", AT_REMOVEDIR) == 0);
	world.top_fd = fd_close(world.top_fd);
	ASSERT(rmdir(world.top) == 0);
	return 0;
}
