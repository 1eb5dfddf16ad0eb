/*
 * The documents of an OCI image. Pure: bytes in, what they name out.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"

#include "sandboxd/template_jail.h"

#define OCI_LAYERS_MAX         512
#define OCI_DOCUMENT_MAX_BYTES ((size_t)4 * 1024 * 1024)
#define OCI_WORD_BYTES         64
#define OCI_DIGEST_HEX         64

enum oci_kind {
	OCI_KIND_INDEX,
	OCI_KIND_MANIFEST,
	OCI_KIND_CONFIG,
	OCI_KIND_LAYER,
};

struct oci_blob {
	enum oci_kind kind;
	unsigned int filters; /* of a layer: enum layer_filter */
	uint64_t size;
	uint8_t sha256[TEMPLATE_DIGEST_BYTES];
	char hex[OCI_DIGEST_HEX + 1];
};

struct oci_platform {
	char os[OCI_WORD_BYTES];
	char architecture[OCI_WORD_BYTES];
	char variant[OCI_WORD_BYTES]; /* "": whichever */
};

struct oci_manifest {
	struct oci_blob config;
	size_t n_layers;
	struct oci_blob layer[OCI_LAYERS_MAX];
};

/* OS/ARCHITECTURE[/VARIANT]. 0 or -EINVAL. */
MUST_USE int oci_platform_parse(const char *text, struct oci_platform *ret_platform);

/* The one manifest or index below an index. ref: a tag, or "" for whichever there is. 0, or the
 * enum template_error, positive. */
MUST_USE int oci_choose(const char *text, size_t size, const struct oci_platform *platform,
			const char *ref, struct oci_blob *ret_blob);
MUST_USE int oci_manifest_parse(const char *text, size_t size, struct oci_manifest *ret_manifest);
/* It is for that platform, and of as many layers. */
MUST_USE int oci_config_check(const char *text, size_t size, const struct oci_platform *platform,
			      size_t n_layers);
