/*
 * The documents of an image: whatever they say, what comes of them is whole, and a digest is only a
 * name that no path has.
 */
#include <string.h>

#include "base/err.h"
#include "base/str.h"

#include "jail/template/layer.h"
#include "jail/template/oci.h"
#include "tests/fuzz/fuzz.h"

static void check_blob(const struct oci_blob *blob, bool is_layer)
{
	ASSERT(strlen(blob->hex) == OCI_DIGEST_HEX);
	ASSERT(strspn(blob->hex, "0123456789abcdef") == OCI_DIGEST_HEX);
	ASSERT((blob->kind == OCI_KIND_LAYER) == is_layer);
	ASSERT((blob->filters != 0) == is_layer && blob->filters <= LAYER_FILTER_ANY);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const refs[] = {"", "1.0"};
	static struct oci_manifest manifest;
	struct oci_platform platform;
	const char *text = (const char *)data;
	char word[2 * OCI_WORD_BYTES];
	struct oci_blob blob;

	ASSERT(oci_platform_parse("linux/amd64", &platform) == 0);
	for (size_t i = 0; i < ARRAY_SIZE(refs); i++) {
		int r = oci_choose(text, size, &platform, refs[i], &blob);

		ASSERT(r >= 0 && r < TEMPLATE_E_MAX_);
		if (r != 0)
			continue;
		ASSERT(blob.kind == OCI_KIND_INDEX || blob.kind == OCI_KIND_MANIFEST);
		check_blob(&blob, false);
	}
	if (oci_manifest_parse(text, size, &manifest) == 0) {
		check_blob(&manifest.config, false);
		ASSERT(manifest.n_layers <= OCI_LAYERS_MAX);
		for (size_t i = 0; i < manifest.n_layers; i++)
			check_blob(&manifest.layer[i], true);
	}
	ASSERT(oci_config_check(text, size, &platform, 1) >= 0);
	if (str_copy_n(word, sizeof(word), text, size < sizeof(word) ? size : sizeof(word) - 1) ==
		    0 &&
	    oci_platform_parse(word, &platform) == 0)
		ASSERT(platform.os[0] != '\0' && platform.architecture[0] != '\0');
	return 0;
}
