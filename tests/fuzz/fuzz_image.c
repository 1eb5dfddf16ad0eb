/*
 * A compiled policy from somewhere else: what image_check accepts can be used whole; and any
 * program in it that bpfsim accepts runs to its end.
 */
#include <string.h>

#include <linux/filter.h>
#include <linux/seccomp.h>

#include "base/err.h"

#include "policy/bpfsim.h"
#include "policy/image.h"
#include "tests/fuzz/fuzz.h"

static void run_filter(const struct sock_filter *program, size_t n)
{
	const struct seccomp_data data = {
		.nr = 1, .args = {1, 2, 3, 4, 5, 6}
        };
	size_t n_executed = 0;
	uint32_t action;

	if (!program || bpfsim_check(program, n) < 0)
		return;
	if (bpfsim_run(program, n, &data, &action, &n_executed) < 0)
		return; /* a division by zero */
	ASSERT(n_executed > 0 && n_executed <= n);
}

static void use_image(const struct image *image)
{
	for (uint32_t i = 0; i < image->header->n_profiles; i++) {
		const struct policy_profile *profile = image_profile(image, i);
		AUTO_FREE void *session = NULL;
		size_t size = 0;

		ASSERT(image_find(image, profile->name, NULL) == profile);
		for (enum policy_filter j = 0; j < POLICY_FILTER_MAX_; j++) {
			size_t n;
			const struct sock_filter *program = image_filter(image, profile, j, &n);

			run_filter(program, n);
		}
		if (image_session(image, i, &session, &size) == 0)
			ASSERT(size > sizeof(struct session_policy));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* A copy of its own size: aligned, and a read behind it is seen. */
	AUTO_FREE uint8_t *copy = malloc(size + 1);
	struct err err = ERR_NULL;
	struct image image = {.bytes = size};

	if (!copy)
		return 0;
	memcpy(copy, data, size);
	if (image_check(copy, size, &err) < 0) {
		ASSERT(err.text[0] != '\0');
		return 0;
	}
	image.header = (const void *)copy;
	use_image(&image);
	return 0;
}
