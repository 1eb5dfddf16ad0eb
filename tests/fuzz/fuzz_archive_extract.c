/*
 * A whole archive, into a folder that is made for it: whatever it says, nothing comes to lie
 * outside of the workspace, nothing but files, folders and links lies in it, no more than the
 * bounds allow, and what was there outside is as it was. Twice: into an empty workspace, and in
 * place of what the first time made. Links that lead out are there from the beginning.
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
#include "base/io.h"
#include "base/path.h"
#include "base/str.h"

#include "jail/archive/clear.h"
#include "jail/archive/extract.h"
#include "jail/archive/name.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/world.h"

#define MAX_BYTES   ((uint64_t)256 * 1024)
#define MAX_ENTRIES 64u
#define BLOCK_BYTES ((size_t)512)
#define CANARY      "is what it was"

static const char *const workspace[] = {"session", "tmp/made"};

struct world {
	char top[WORLD_TOP_BYTES];
	int top_fd;
	int root_fd;
	struct stat outside;
	struct stat canary;
};

static void make_world(struct world *world)
{
	AUTO_CLOSE int outside_fd = -1;
	AUTO_CLOSE int canary_fd = -1;

	world->top_fd = world_top(world->top);
	ASSERT(mkdirat(world->top_fd, "root", 0755) == 0 &&
	       mkdirat(world->top_fd, "outside", 0755) == 0);
	world->root_fd = openat(world->top_fd, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	outside_fd = openat(world->top_fd, "outside", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	canary_fd = openat(outside_fd, "canary", O_WRONLY | O_CREAT | O_CLOEXEC, 0640);
	ASSERT(world->root_fd >= 0 && io_write_all(canary_fd, CANARY, sizeof(CANARY) - 1) == 0);
	/* As a program of the session may have left them. */
	ASSERT(mkdirat(world->root_fd, "session", 0755) == 0 &&
	       symlinkat("../../outside", world->root_fd, "session/out") == 0 &&
	       symlinkat("../../outside/canary", world->root_fd, "session/canary") == 0 &&
	       symlinkat("../outside", world->root_fd, "tmp") == 0);
	ASSERT(fstat(outside_fd, &world->outside) == 0 && fstat(canary_fd, &world->canary) == 0);
}

static bool is_same(const struct stat *one, const struct stat *other)
{
	return one->st_ino == other->st_ino && one->st_mode == other->st_mode &&
	       one->st_uid == other->st_uid && one->st_gid == other->st_gid &&
	       one->st_nlink == other->st_nlink && one->st_size == other->st_size &&
	       memcmp(&one->st_mtim, &other->st_mtim, sizeof(one->st_mtim)) == 0 &&
	       memcmp(&one->st_ctim, &other->st_ctim, sizeof(one->st_ctim)) == 0;
}

/* Only the workspace, and only what may lie there. */
static void check_inside(const struct world *world)
{
	char path[PATH_MAX];
	FTS *tree = world_open_tree(world->top, "root", path);
	size_t before = strlen(path) + 1;
	uint64_t bytes = 0;
	const FTSENT *entry;

	while ((entry = fts_read(tree))) {
		const char *name = entry->fts_level > 0 ? entry->fts_path + before : "";

		ASSERT(entry->fts_info == FTS_D || entry->fts_info == FTS_DP ||
		       entry->fts_info == FTS_F || entry->fts_info == FTS_SL ||
		       entry->fts_info == FTS_DNR);
		ASSERT(entry->fts_level == 0 || str_equal(name, "tmp") ||
		       name_is_below(name, workspace, ARRAY_SIZE(workspace)));
		if (entry->fts_info == FTS_F && entry->fts_statp->st_nlink == 1)
			bytes += (uint64_t)entry->fts_statp->st_blocks * BLOCK_BYTES;
	}
	ASSERT(errno == 0);
	(void)fts_close(tree);
	/* Of its own size, or some pages more for each. */
	ASSERT(bytes <= MAX_BYTES + (uint64_t)2 * MAX_ENTRIES * 65536);
}

static void check_outside(const struct world *world)
{
	char path[PATH_MAX];
	struct stat outside;
	struct stat canary;
	FTS *tree = world_open_tree(world->top, ".", path);
	const FTSENT *entry;
	size_t n = 0;

	while ((entry = fts_read(tree))) {
		n++;
		if (entry->fts_level == 1 && str_equal(entry->fts_name, "root"))
			(void)fts_set(tree, (FTSENT *)(uintptr_t)entry, FTS_SKIP);
	}
	(void)fts_close(tree);
	/* ".", "outside" and "root", each twice; "canary". */
	ASSERT(n == 7);
	ASSERT(fstatat(world->top_fd, "outside", &outside, AT_SYMLINK_NOFOLLOW) == 0 &&
	       fstatat(world->top_fd, "outside/canary", &canary, AT_SYMLINK_NOFOLLOW) == 0);
	ASSERT(is_same(&outside, &world->outside) && is_same(&canary, &world->canary));
}

static void remove_world(struct world *world)
{
	char path[PATH_MAX];
	FTS *tree = world_open_tree(world->top, ".", path);
	const FTSENT *entry;

	while ((entry = fts_read(tree))) {
		if (entry->fts_info == FTS_D)
			(void)chmod(entry->fts_accpath, 0700);
		else if (entry->fts_level > 0)
			ASSERT((entry->fts_info == FTS_DP ? rmdir(entry->fts_accpath)
							  : unlink(entry->fts_accpath)) == 0);
	}
	(void)fts_close(tree);
	world->root_fd = fd_close(world->root_fd);
	world->top_fd = fd_close(world->top_fd);
	ASSERT(rmdir(world->top) == 0);
}

static void extract(const struct world *world, int in_fd, bool replaces)
{
	struct archive_job job = {
		.root_fd = world->root_fd,
		.max_bytes = MAX_BYTES,
		.max_entries = MAX_ENTRIES,
		.path = workspace,
		.n_paths = ARRAY_SIZE(workspace),
		.is_root = replaces && geteuid() == 0,
		.summary = {.magic = ARCHIVE_MAGIC},
	};
	int r = replaces ? clear_run(&job) : 0;

	ASSERT(lseek(in_fd, 0, SEEK_SET) == 0);
	if (r == 0)
		r = extract_run(&job, in_fd);
	ASSERT((r == 0) == (job.summary.error == ARCHIVE_E_NONE));
	ASSERT(job.summary.error < ARCHIVE_E_MAX_ && job.summary.n_bytes <= MAX_BYTES &&
	       job.summary.n_entries <= MAX_ENTRIES);
	check_inside(world);
	check_outside(world);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	AUTO_CLOSE int in_fd = world_archive(data, size);
	struct world world;

	make_world(&world);
	extract(&world, in_fd, false);
	extract(&world, in_fd, true);
	remove_world(&world);
	return 0;
}
