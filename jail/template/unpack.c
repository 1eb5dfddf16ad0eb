/*
 * Theory. Whether a stream is the archive of a root or of an image layout is seen when it is
 * unpacked: a layout has three names at its top that no root has. It goes aside then, and is the
 * source of the root; so a stream is read once, and may come from a pipe.
 */
#include "jail/template/unpack.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "jail/template/accounts.h"
#include "jail/template/folder.h"
#include "jail/template/image.h"
#include "jail/template/layer.h"

#define ROOT_MODE   0755
#define LAYOUT_NAME "layout"

struct work {
	struct unpack *unpack;
	struct bounds *bounds;
	struct source *source;
	struct trash trash;
	int root_fd;
	struct tree tree;
};

static int open_root(struct work *work)
{
	int tree_fd = work->unpack->tree_fd;

	if (mkdirat(tree_fd, TEMPLATE_ROOT, ROOT_MODE) < 0)
		return bounds_fail_errno(work->bounds, -errno, TEMPLATE_ROOT);
	work->root_fd =
		openat(tree_fd, TEMPLATE_ROOT, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (work->root_fd < 0)
		return bounds_fail_errno(work->bounds, -errno, TEMPLATE_ROOT);
	tree_init(&work->tree, work->root_fd, work->bounds, &work->trash);
	return 0;
}

/* What was unpacked is a layout: begin again with that. */
static int unpack_layout(struct work *work)
{
	struct template_report *report = &work->bounds->report;
	AUTO_CLOSE int layout_fd = TAKE_FD(work->root_fd);
	int tree_fd = work->unpack->tree_fd;
	int r;

	tree_done(&work->tree);
	if (renameat2(tree_fd, TEMPLATE_ROOT, tree_fd, LAYOUT_NAME, RENAME_NOREPLACE) < 0)
		return bounds_fail_errno(work->bounds, -errno, LAYOUT_NAME);
	*report = (struct template_report){.magic = TEMPLATE_REPORT_MAGIC};
	work->bounds->n_entries = 0;
	work->bounds->n_xattr_bytes = 0;
	if (open_root(work) < 0 || image_unpack(&work->tree, work->source, layout_fd,
						&work->unpack->platform, work->unpack->ref) < 0)
		return -1;
	/* None of it was counted in this report. */
	work->trash.bounds = NULL;
	r = trash_put(&work->trash, tree_fd, LAYOUT_NAME);
	if (r == 0)
		r = trash_empty(&work->trash);
	work->trash.bounds = work->bounds;
	return r < 0 ? bounds_fail_errno(work->bounds, r, LAYOUT_NAME) : 0;
}

static int unpack_stream(struct work *work)
{
	struct bounds *bounds = work->bounds;
	int r;

	source_init(work->source, work->unpack->source_fd, bounds_source_bytes(bounds));
	if (layer_unpack(&work->tree, work->source, LAYER_WHOLE, LAYER_FILTER_ANY) < 0)
		return -1;
	r = source_end(work->source, bounds->report.source_sha256);
	if (r == -EFBIG)
		return bounds_fail(bounds, TEMPLATE_E_BYTES, 0, NULL);
	if (r < 0)
		return bounds_fail_errno(bounds, r, NULL);
	return image_is_layout(work->root_fd) ? unpack_layout(work) : 0;
}

static int unpack_source(struct work *work)
{
	int source_fd = work->unpack->source_fd;
	struct stat st;

	if (fstat(source_fd, &st) < 0)
		return bounds_fail_errno(work->bounds, -errno, NULL);
	if (!S_ISDIR(st.st_mode))
		return unpack_stream(work);
	if (image_is_layout(source_fd))
		return image_unpack(&work->tree, work->source, source_fd, &work->unpack->platform,
				    work->unpack->ref);
	return folder_copy(&work->tree, source_fd);
}

static int finish(struct work *work)
{
	int r;

	if (work->bounds->report.n_inodes == 0)
		return bounds_fail(work->bounds, TEMPLATE_E_EMPTY, 0, NULL);
	if (tree_finish(&work->tree) < 0 || accounts_merge(&work->tree) < 0)
		return -1;
	r = trash_empty(&work->trash);
	if (r == 0)
		r = trash_remove(&work->trash);
	return r < 0 ? bounds_fail_errno(work->bounds, r, NULL) : 0;
}

int unpack_run(struct unpack *unpack)
{
	struct work work = {
		.unpack = unpack, .bounds = &unpack->bounds, .trash = TRASH_NULL, .root_fd = -1};
	int r;

	tree_init(&work.tree, -1, work.bounds, &work.trash);
	work.source = malloc(sizeof(*work.source));
	r = work.source ? trash_open(&work.trash, unpack->tree_fd, work.bounds) : -ENOMEM;
	if (r < 0)
		r = bounds_fail_errno(work.bounds, r, NULL);
	else if (open_root(&work) < 0 || unpack_source(&work) < 0 || finish(&work) < 0)
		r = -1;
	tree_done(&work.tree);
	trash_done(&work.trash);
	work.root_fd = fd_close(work.root_fd);
	free(work.source);
	return r;
}
