/*
 * Theory. What a layer takes away is of the layers below, wherever in the archive it says so; so
 * that is a pass of its own, before anything is made. Whatever of the archive is no file, folder,
 * link or hard link is left out, as are attributes that no template has.
 *
 * Every byte of content was announced by its entry, and counted before it is read. What the library
 * reads without telling is bounded with the time and memory of the process.
 */
#include "jail/template/layer.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/str.h"

#include "jail/archive/name.h"

#define WHITEOUT        ".wh."
#define WHITEOUT_OWN    ".wh..wh." /* of the format's own use; one of them has a meaning */
#define WHITEOUT_OPAQUE ".wh..wh..opq"
#define NSEC_PER_SEC    1000000000l

_Static_assert(TEMPLATE_PATH_MAX == ARCHIVE_PATH_MAX, "of name_normalize");

struct layer {
	struct tree *tree;
	struct source *source;
	enum layer_pass pass;
	struct archive *in;
	struct archive_entry *entry;
	char path[TEMPLATE_PATH_MAX + 1];
};

static int fail(struct layer *layer, enum template_error error)
{
	return bounds_fail(layer->tree->bounds, error, 0, layer->path);
}

/* What the library could not read: it knows no more than that. */
static int fail_read(struct layer *layer)
{
	struct bounds *bounds = layer->tree->bounds;

	if (layer->source->error == -EFBIG)
		return bounds_fail(bounds, TEMPLATE_E_BYTES, 0, NULL);
	if (layer->source->error < 0)
		return bounds_fail(bounds, TEMPLATE_E_SYSTEM, -layer->source->error, NULL);
	if (archive_errno(layer->in) == ENOMEM)
		return bounds_fail(bounds, TEMPLATE_E_SYSTEM, ENOMEM, layer->path);
	return fail(layer, TEMPLATE_E_FORMAT);
}

static la_ssize_t on_read(struct archive *in, void *userdata, const void **ret_data)
{
	struct layer *layer = userdata;
	ssize_t n = source_next(layer->source);

	*ret_data = layer->source->chunk;
	if (n >= 0)
		return n;
	archive_set_error(in, (int)-n, "cannot be read");
	return -1;
}

static struct tree_attributes attributes_of(struct layer *layer)
{
	struct timespec mtime = {
		.tv_sec = archive_entry_mtime(layer->entry),
		.tv_nsec = archive_entry_mtime_nsec(layer->entry),
	};

	if (mtime.tv_nsec < 0 || mtime.tv_nsec >= NSEC_PER_SEC)
		mtime.tv_nsec = 0;
	return tree_attributes(layer->tree->bounds, archive_entry_mode(layer->entry),
			       archive_entry_uid(layer->entry), archive_entry_gid(layer->entry),
			       mtime);
}

static int set_xattrs(struct layer *layer, int fd)
{
	const char *name;
	const void *value;
	size_t size;

	(void)archive_entry_xattr_reset(layer->entry);
	while (archive_entry_xattr_next(layer->entry, &name, &value, &size) == ARCHIVE_OK) {
		if (name && tree_set_xattr(layer->tree, fd, layer->path, name, value, size) < 0)
			return -1;
	}
	return 0;
}

static int write_block(struct layer *layer, int fd, const char *data, size_t n, uint64_t at)
{
	while (n > 0) {
		ssize_t written = pwrite(fd, data, n, (off_t)at);

		if (written < 0 && errno == EINTR)
			continue;
		if (written < 0)
			return bounds_fail_errno(layer->tree->bounds, -errno, layer->path);
		data += written;
		n -= (size_t)written;
		at += (uint64_t)written;
	}
	return 0;
}

static int write_content(struct layer *layer, int fd, uint64_t size)
{
	const void *data;
	la_int64_t at;
	size_t n;
	int r;

	while ((r = archive_read_data_block(layer->in, &data, &n, &at)) == ARCHIVE_OK) {
		if (at < 0 || n > size || (uint64_t)at > size - n)
			return fail(layer, TEMPLATE_E_FORMAT);
		if (write_block(layer, fd, data, n, (uint64_t)at) < 0)
			return -1;
	}
	return r == ARCHIVE_EOF ? 0 : fail_read(layer);
}

static int make_file(struct layer *layer)
{
	struct tree_attributes attributes = attributes_of(layer);
	int64_t size = archive_entry_size(layer->entry);
	AUTO_CLOSE int fd = -1;

	if (size < 0)
		return fail(layer, TEMPLATE_E_FORMAT);
	fd = tree_make_file(layer->tree, layer->path, (uint64_t)size);
	if (fd < 0)
		return -1;
	if (write_content(layer, fd, (uint64_t)size) < 0 || set_xattrs(layer, fd) < 0)
		return -1;
	return tree_end_file(layer->tree, fd, layer->path, (uint64_t)size, &attributes);
}

static int make_folder(struct layer *layer)
{
	struct tree_attributes attributes = attributes_of(layer);

	/* The xattrs of folders are left out: they are policy, or of the format. */
	layer->tree->bounds->report.n_xattrs += (uint64_t)archive_entry_xattr_count(layer->entry);
	return tree_make_folder(layer->tree, layer->path, &attributes);
}

static int make_link(struct layer *layer)
{
	struct tree_attributes attributes = attributes_of(layer);
	const char *target = archive_entry_symlink(layer->entry);

	return target ? tree_make_link(layer->tree, layer->path, target, &attributes)
		      : fail(layer, TEMPLATE_E_FORMAT);
}

static int make_hard_link(struct layer *layer, const char *to)
{
	char target[TEMPLATE_PATH_MAX + 1];

	if (name_normalize(to, target) != ARCHIVE_E_NONE)
		return fail(layer, TEMPLATE_E_HARD_LINK);
	return tree_make_hard_link(layer->tree, layer->path, target);
}

static int make(struct layer *layer)
{
	const char *to = archive_entry_hardlink(layer->entry);

	if (to)
		return make_hard_link(layer, to);
	switch (archive_entry_filetype(layer->entry)) {
	case AE_IFREG:
		return make_file(layer);
	case AE_IFDIR:
		return make_folder(layer);
	case AE_IFLNK:
		return make_link(layer);
	default:
		layer->tree->bounds->report.n_devices++;
		return 0;
	}
}

/* What a whiteout names, in place of it in the path. */
static int take_away(struct layer *layer, char *name)
{
	const char *target = name + strlen(WHITEOUT);
	bool is_top = name == layer->path;

	if (str_equal(name, WHITEOUT_OPAQUE)) {
		name[is_top ? 0 : -1] = '\0';
		return tree_remove_children(layer->tree, layer->path);
	}
	if (str_has_prefix(name, WHITEOUT_OWN))
		return 0;
	if (target[0] == '\0' || str_equal(target, ".") || str_equal(target, ".."))
		return fail(layer, TEMPLATE_E_NAME);
	memmove(name, target, strlen(target) + 1);
	return tree_remove(layer->tree, layer->path);
}

static int take_entry(struct layer *layer)
{
	const char *name = archive_entry_pathname(layer->entry);
	char *last;

	layer->path[0] = '\0';
	if (bounds_count_entry(layer->tree->bounds, name) < 0)
		return -1;
	if (!name)
		return fail(layer, TEMPLATE_E_NAME);
	/* The root itself: what it is, is ours to say. */
	if (str_equal(name, ".") || str_equal(name, "./"))
		return 0;
	if (name_normalize(name, layer->path) != ARCHIVE_E_NONE)
		return bounds_fail(layer->tree->bounds, TEMPLATE_E_NAME, 0, name);
	last = strrchr(layer->path, '/');
	last = last ? last + 1 : layer->path;
	switch (layer->pass) {
	case LAYER_WHOLE:
		return make(layer);
	case LAYER_WHITEOUTS:
		return str_has_prefix(last, WHITEOUT) ? take_away(layer, last) : 0;
	case LAYER_ENTRIES:
		return str_has_prefix(last, WHITEOUT) ? 0 : make(layer);
	}
	return 0;
}

static const struct filter {
	enum layer_filter filter;
	int (*add)(struct archive *in);
} filters_known[] = {
	{LAYER_FILTER_GZIP,  archive_read_support_filter_gzip },
	{LAYER_FILTER_ZSTD,  archive_read_support_filter_zstd },
	{LAYER_FILTER_BZIP2, archive_read_support_filter_bzip2},
	{LAYER_FILTER_XZ,    archive_read_support_filter_xz   },
};

static int open_archive(struct layer *layer, unsigned int filters)
{
	if (archive_read_support_format_tar(layer->in) != ARCHIVE_OK)
		return bounds_fail_errno(layer->tree->bounds, -ENOMEM, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(filters_known); i++) {
		if ((filters & filters_known[i].filter) &&
		    filters_known[i].add(layer->in) != ARCHIVE_OK)
			return bounds_fail_errno(layer->tree->bounds, -ENOMEM, NULL);
	}
	return archive_read_open(layer->in, layer, NULL, on_read, NULL) == ARCHIVE_OK
		       ? 0
		       : fail_read(layer);
}

static int unpack(struct layer *layer, unsigned int filters)
{
	struct bounds *bounds = layer->tree->bounds;
	int r = open_archive(layer, filters);

	if (r < 0)
		return r;
	/* A warning is an attribute that is not as the format has it. */
	while ((r = archive_read_next_header(layer->in, &layer->entry)) == ARCHIVE_OK ||
	       r == ARCHIVE_WARN) {
		if (take_entry(layer) < 0)
			return -1;
		if ((uint64_t)archive_filter_bytes(layer->in, 0) > bounds_source_bytes(bounds))
			return bounds_fail(bounds, TEMPLATE_E_BYTES, 0, layer->path);
	}
	if (r != ARCHIVE_EOF)
		return fail_read(layer);
	r = trash_empty(layer->tree->trash);
	return r < 0 ? bounds_fail_errno(bounds, r, NULL) : 0;
}

int layer_unpack(struct tree *tree, struct source *source, enum layer_pass pass,
		 unsigned int filters)
{
	struct layer layer = {.tree = tree, .source = source, .pass = pass};
	int r;

	layer.in = archive_read_new();
	r = layer.in ? unpack(&layer, filters) : bounds_fail_errno(tree->bounds, -ENOMEM, NULL);
	IGNORE_RESULT(archive_read_free(layer.in));
	return r;
}
