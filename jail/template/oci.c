#include "jail/template/oci.h"

#include <errno.h>
#include <string.h>

#include "base/json.h"
#include "base/str.h"

#include "jail/template/layer.h"

#define SCHEMA_VERSION 2
#define DIGEST_PREFIX  "sha256:"
#define REF_NAME       "org.opencontainers.image.ref.name"
#define IMAGE_NAME     "io.containerd.image.name"

/* What Docker called them before, too. */
static const struct media {
	const char *name;
	enum oci_kind kind;
	unsigned int filters;
} media_rows[] = {
	{"application/vnd.oci.image.index.v1+json",                   OCI_KIND_INDEX,    0                },
	{"application/vnd.docker.distribution.manifest.list.v2+json", OCI_KIND_INDEX,    0                },
	{"application/vnd.oci.image.manifest.v1+json",                OCI_KIND_MANIFEST, 0                },
	{"application/vnd.docker.distribution.manifest.v2+json",      OCI_KIND_MANIFEST, 0                },
	{"application/vnd.oci.image.config.v1+json",                  OCI_KIND_CONFIG,   0                },
	{"application/vnd.docker.container.image.v1+json",            OCI_KIND_CONFIG,   0                },
	{"application/vnd.oci.image.layer.v1.tar",                    OCI_KIND_LAYER,    LAYER_FILTER_NONE},
	{"application/vnd.oci.image.layer.v1.tar+gzip",               OCI_KIND_LAYER,    LAYER_FILTER_GZIP},
	{"application/vnd.oci.image.layer.v1.tar+zstd",               OCI_KIND_LAYER,    LAYER_FILTER_ZSTD},
	{"application/vnd.docker.image.rootfs.diff.tar",              OCI_KIND_LAYER,    LAYER_FILTER_NONE},
	{"application/vnd.docker.image.rootfs.diff.tar.gzip",         OCI_KIND_LAYER,    LAYER_FILTER_GZIP},
	{"application/vnd.docker.image.rootfs.diff.tar.zstd",         OCI_KIND_LAYER,    LAYER_FILTER_ZSTD},
};

static const struct media *find_media(const char *name)
{
	for (size_t i = 0; name && i < ARRAY_SIZE(media_rows); i++) {
		if (str_equal(media_rows[i].name, name))
			return &media_rows[i];
	}
	return NULL;
}

/* A string without NUL, or NULL. */
static const char *text_of(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);
	const char *text = json_string_value(value);

	return text && strlen(text) == json_string_length(value) ? text : NULL;
}

static int digit_of(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int read_digest(const char *text, struct oci_blob *blob)
{
	if (!text || !str_has_prefix(text, DIGEST_PREFIX))
		return TEMPLATE_E_OCI;
	text += strlen(DIGEST_PREFIX);
	if (strlen(text) != OCI_DIGEST_HEX)
		return TEMPLATE_E_OCI;
	for (size_t i = 0; i < TEMPLATE_DIGEST_BYTES; i++) {
		int high = digit_of(text[2 * i]);
		int low = digit_of(text[2 * i + 1]);

		if (high < 0 || low < 0)
			return TEMPLATE_E_OCI;
		blob->sha256[i] = (uint8_t)(high << 4 | low);
	}
	memcpy(blob->hex, text, sizeof(blob->hex));
	return 0;
}

/* A descriptor. TEMPLATE_E_OCI_MEDIA: of a kind that we do not know. */
static int read_blob(const json_t *descriptor, struct oci_blob *ret_blob)
{
	const json_t *size = json_object_get(descriptor, "size");
	const struct media *media;
	struct oci_blob blob = {0};
	int r;

	if (!json_is_object(descriptor) || !json_is_integer(size) || json_integer_value(size) < 0)
		return TEMPLATE_E_OCI;
	r = read_digest(text_of(descriptor, "digest"), &blob);
	if (r != 0)
		return r;
	media = find_media(text_of(descriptor, "mediaType"));
	if (!media)
		return TEMPLATE_E_OCI_MEDIA;
	blob.kind = media->kind;
	blob.filters = media->filters;
	blob.size = (uint64_t)json_integer_value(size);
	*ret_blob = blob;
	return 0;
}

/* An object with that version, to be given back with json_decref. */
static int parse(const char *text, size_t size, json_t **ret_doc)
{
	const char *reason;
	int r = doc_parse(text, size, ret_doc, &reason);

	if (r == -ENOMEM)
		return TEMPLATE_E_SYSTEM;
	if (r < 0)
		return TEMPLATE_E_OCI;
	if (json_is_object(*ret_doc))
		return 0;
	json_decref(*ret_doc);
	return TEMPLATE_E_OCI;
}

static bool has_version(const json_t *doc)
{
	return json_integer_value(json_object_get(doc, "schemaVersion")) == SCHEMA_VERSION;
}

static int copy_word(const char **text, char word[OCI_WORD_BYTES])
{
	size_t n = strcspn(*text, "/");
	int r = n > 0 ? str_copy_n(word, OCI_WORD_BYTES, *text, n) : -EINVAL;

	*text += n;
	return r < 0 ? -EINVAL : 0;
}

int oci_platform_parse(const char *text, struct oci_platform *ret_platform)
{
	struct oci_platform platform = {.variant = ""};
	int r = copy_word(&text, platform.os);

	if (r < 0 || *text++ != '/')
		return -EINVAL;
	r = copy_word(&text, platform.architecture);
	if (r == 0 && *text == '/') {
		text++;
		r = copy_word(&text, platform.variant);
	}
	if (r < 0 || *text != '\0')
		return -EINVAL;
	*ret_platform = platform;
	return 0;
}

static bool is_platform(const json_t *object, const struct oci_platform *platform)
{
	const char *os = text_of(object, "os");
	const char *architecture = text_of(object, "architecture");
	const char *variant = text_of(object, "variant");

	return os && architecture && str_equal(os, platform->os) &&
	       str_equal(architecture, platform->architecture) &&
	       (platform->variant[0] == '\0' || !variant || str_equal(variant, platform->variant));
}

static bool has_ref(const json_t *descriptor, const char *ref)
{
	const json_t *annotations = json_object_get(descriptor, "annotations");
	const char *name = text_of(annotations, REF_NAME);
	const char *image = text_of(annotations, IMAGE_NAME);

	return (name && str_equal(name, ref)) || (image && str_equal(image, ref));
}

struct choice {
	size_t n_with_ref;
	size_t n_left;
	struct oci_blob blob;
};

static int consider(const json_t *descriptor, const struct oci_platform *platform, const char *ref,
		    struct choice *choice)
{
	const json_t *its_platform = json_object_get(descriptor, "platform");
	struct oci_blob blob;
	int r = read_blob(descriptor, &blob);

	/* Signatures and the like are beside the images. */
	if (r == TEMPLATE_E_OCI_MEDIA)
		return 0;
	if (r != 0)
		return r;
	if (blob.kind != OCI_KIND_INDEX && blob.kind != OCI_KIND_MANIFEST)
		return 0;
	if (ref[0] != '\0' && !has_ref(descriptor, ref))
		return 0;
	choice->n_with_ref++;
	if (its_platform && !is_platform(its_platform, platform))
		return 0;
	/* The same one under two tags is one. */
	if (choice->n_left > 0 && str_equal(choice->blob.hex, blob.hex))
		return 0;
	choice->n_left++;
	choice->blob = blob;
	return 0;
}

static int choose(const json_t *doc, const struct oci_platform *platform, const char *ref,
		  struct oci_blob *ret_blob)
{
	const json_t *manifests = json_object_get(doc, "manifests");
	struct choice choice = {.n_left = 0};

	if (!has_version(doc) || !json_is_array(manifests))
		return TEMPLATE_E_OCI;
	for (size_t i = 0; i < json_array_size(manifests); i++) {
		int r = consider(json_array_get(manifests, i), platform, ref, &choice);

		if (r != 0)
			return r;
	}
	if (choice.n_with_ref == 0 && ref[0] != '\0')
		return TEMPLATE_E_OCI_REF;
	if (choice.n_left == 0)
		return TEMPLATE_E_OCI_PLATFORM;
	if (choice.n_left > 1)
		return TEMPLATE_E_OCI_SEVERAL;
	*ret_blob = choice.blob;
	return 0;
}

int oci_choose(const char *text, size_t size, const struct oci_platform *platform, const char *ref,
	       struct oci_blob *ret_blob)
{
	json_t *doc;
	int r = parse(text, size, &doc);

	if (r != 0)
		return r;
	r = choose(doc, platform, ref, ret_blob);
	json_decref(doc);
	return r;
}

static int read_manifest(const json_t *doc, struct oci_manifest *manifest)
{
	const json_t *layers = json_object_get(doc, "layers");
	int r;

	if (!has_version(doc) || !json_is_array(layers) || json_array_size(layers) > OCI_LAYERS_MAX)
		return TEMPLATE_E_OCI;
	r = read_blob(json_object_get(doc, "config"), &manifest->config);
	if (r != 0)
		return r;
	if (manifest->config.kind != OCI_KIND_CONFIG)
		return TEMPLATE_E_OCI_MEDIA;
	manifest->n_layers = json_array_size(layers);
	for (size_t i = 0; i < manifest->n_layers; i++) {
		r = read_blob(json_array_get(layers, i), &manifest->layer[i]);
		if (r != 0)
			return r;
		if (manifest->layer[i].kind != OCI_KIND_LAYER)
			return TEMPLATE_E_OCI_MEDIA;
	}
	return 0;
}

int oci_manifest_parse(const char *text, size_t size, struct oci_manifest *ret_manifest)
{
	json_t *doc;
	int r = parse(text, size, &doc);

	if (r != 0)
		return r;
	r = read_manifest(doc, ret_manifest);
	json_decref(doc);
	return r;
}

int oci_config_check(const char *text, size_t size, const struct oci_platform *platform,
		     size_t n_layers)
{
	const json_t *diffs;
	json_t *doc;
	int r = parse(text, size, &doc);

	if (r != 0)
		return r;
	diffs = json_object_get(json_object_get(doc, "rootfs"), "diff_ids");
	if (!json_is_array(diffs) || json_array_size(diffs) != n_layers)
		r = TEMPLATE_E_OCI;
	else
		r = is_platform(doc, platform) ? 0 : TEMPLATE_E_OCI_PLATFORM;
	json_decref(doc);
	return r;
}
