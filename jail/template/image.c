/*
 * Theory. The index names a manifest by its digest, that names all else by theirs. Each blob is a
 * file whose name says the digest; its bytes are counted and digested as they are read, in every
 * pass over them, and only what agrees is believed: a document before it is parsed, a layer before
 * what came of it can become a template. So the one thing that is taken on trust is the index, and
 * what was asked for.
 */
#include "jail/template/image.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"

#include "jail/template/layer.h"

#define LAYOUT_FILE "oci-layout"
#define INDEX_FILE  "index.json"
/* An index in an index is one of platforms; more makes no sense. */
#define INDEX_DEPTH 3

struct image {
	struct tree *tree;
	struct source *source;
	int layout_fd;
	const struct oci_platform *platform;
	const char *ref;
};

static bool is_file(int folder_fd, const char *name)
{
	struct stat st;

	return fstatat(folder_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
}

bool image_is_layout(int folder_fd)
{
	struct stat st;

	return is_file(folder_fd, LAYOUT_FILE) && is_file(folder_fd, INDEX_FILE) &&
	       fstatat(folder_fd, "blobs", &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

static int fail(struct image *image, int error, const char *name)
{
	return bounds_fail(image->tree->bounds, (enum template_error)error,
			   error == TEMPLATE_E_SYSTEM ? ENOMEM : 0, name);
}

/* The descriptor of a regular file of that size, or -1. */
static int open_blob(struct image *image, const struct oci_blob *blob)
{
	static const char *const folders[] = {"blobs", "sha256"};
	AUTO_CLOSE int fd = fd_dup(image->layout_fd, 0);
	struct stat st;

	for (size_t i = 0; fd >= 0 && i < ARRAY_SIZE(folders); i++) {
		int next = openat(fd, folders[i], O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

		(void)fd_close(fd);
		fd = next;
	}
	if (fd >= 0) {
		int next = openat(fd, blob->hex, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

		(void)fd_close(fd);
		fd = next;
	}
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return fail(image, TEMPLATE_E_OCI_BLOB, blob->hex);
	if ((uint64_t)st.st_size != blob->size)
		return fail(image, TEMPLATE_E_OCI_DIGEST, blob->hex);
	return TAKE_FD(fd);
}

/* The whole document, to be freed. 0 or -1. */
static int read_document(struct image *image, const struct oci_blob *blob, char **ret_text,
			 size_t *ret_size)
{
	AUTO_CLOSE int fd = open_blob(image, blob);
	uint8_t digest[SHA256_DIGEST_SIZE];
	AUTO_FREE char *text = NULL;
	struct sha256_ctx sha256;
	size_t size = 0;
	int r;

	if (fd < 0)
		return -1;
	r = io_read_file(fd, OCI_DOCUMENT_MAX_BYTES, &text, &size);
	if (r == -EFBIG)
		return fail(image, TEMPLATE_E_OCI, blob->hex);
	if (r < 0)
		return bounds_fail_errno(image->tree->bounds, r, blob->hex);
	sha256_init(&sha256);
	sha256_update(&sha256, size, (const uint8_t *)text);
	sha256_digest(&sha256, sizeof(digest), digest);
	if (size != blob->size || memcmp(digest, blob->sha256, sizeof(digest)) != 0)
		return fail(image, TEMPLATE_E_OCI_DIGEST, blob->hex);
	*ret_text = TAKE_PTR(text);
	*ret_size = size;
	return 0;
}

static int read_index(struct image *image, char **ret_text, size_t *ret_size)
{
	AUTO_CLOSE int fd = openat(image->layout_fd, INDEX_FILE,
				   O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	int r = fd < 0 ? -errno : io_read_file(fd, OCI_DOCUMENT_MAX_BYTES, ret_text, ret_size);

	if (r == -EFBIG)
		return fail(image, TEMPLATE_E_OCI, INDEX_FILE);
	return r < 0 ? bounds_fail_errno(image->tree->bounds, r, INDEX_FILE) : 0;
}

/* From the index on to a manifest. */
static int find_manifest(struct image *image, struct oci_blob *ret_blob)
{
	const char *ref = image->ref;
	AUTO_FREE char *text = NULL;
	size_t size = 0;

	if (read_index(image, &text, &size) < 0)
		return -1;
	for (int depth = 0; depth < INDEX_DEPTH; depth++) {
		int r = oci_choose(text, size, image->platform, ref, ret_blob);

		if (r != 0)
			return fail(image, r, depth == 0 ? INDEX_FILE : ret_blob->hex);
		if (ret_blob->kind == OCI_KIND_MANIFEST)
			return 0;
		free(TAKE_PTR(text));
		if (read_document(image, ret_blob, &text, &size) < 0)
			return -1;
		/* Tags are in the first one only. */
		ref = "";
	}
	return fail(image, TEMPLATE_E_OCI, INDEX_FILE);
}

static int read_manifest(struct image *image, const struct oci_blob *blob,
			 struct oci_manifest *manifest)
{
	AUTO_FREE char *text = NULL;
	AUTO_FREE char *config = NULL;
	size_t size = 0;
	int r;

	if (read_document(image, blob, &text, &size) < 0)
		return -1;
	r = oci_manifest_parse(text, size, manifest);
	if (r != 0)
		return fail(image, r, blob->hex);
	if (read_document(image, &manifest->config, &config, &size) < 0)
		return -1;
	r = oci_config_check(config, size, image->platform, manifest->n_layers);
	return r != 0 ? fail(image, r, manifest->config.hex) : 0;
}

static int unpack_pass(struct image *image, const struct oci_blob *blob, enum layer_pass pass)
{
	AUTO_CLOSE int fd = open_blob(image, blob);
	struct template_report *report = &image->tree->bounds->report;
	uint8_t digest[SHA256_DIGEST_SIZE];
	int r;

	if (fd < 0)
		return -1;
	source_init(image->source, fd, blob->size);
	r = layer_unpack(image->tree, image->source, pass, blob->filters);
	/* Other bytes than those that were named are the better reason. */
	if (source_end(image->source, digest) < 0 || image->source->n_bytes != blob->size ||
	    memcmp(digest, blob->sha256, sizeof(digest)) != 0) {
		report->error = TEMPLATE_E_NONE;
		memset(report->name, 0, sizeof(report->name));
		return fail(image, TEMPLATE_E_OCI_DIGEST, blob->hex);
	}
	return r;
}

static int unpack_layers(struct image *image, const struct oci_manifest *manifest)
{
	for (size_t i = 0; i < manifest->n_layers; i++) {
		if (unpack_pass(image, &manifest->layer[i], LAYER_WHITEOUTS) < 0 ||
		    unpack_pass(image, &manifest->layer[i], LAYER_ENTRIES) < 0)
			return -1;
	}
	image->tree->bounds->report.n_layers = manifest->n_layers;
	return 0;
}

int image_unpack(struct tree *tree, struct source *source, int layout_fd,
		 const struct oci_platform *platform, const char *ref)
{
	struct image image = {
		.tree = tree,
		.source = source,
		.layout_fd = layout_fd,
		.platform = platform,
		.ref = ref,
	};
	AUTO_FREE struct oci_manifest *manifest = malloc(sizeof(*manifest));
	struct oci_blob blob = {.kind = OCI_KIND_INDEX};

	if (!manifest)
		return bounds_fail_errno(tree->bounds, -ENOMEM, NULL);
	if (find_manifest(&image, &blob) < 0 || read_manifest(&image, &blob, manifest) < 0 ||
	    unpack_layers(&image, manifest) < 0)
		return -1;
	memcpy(tree->bounds->report.source_sha256, blob.sha256, sizeof(blob.sha256));
	return 0;
}
