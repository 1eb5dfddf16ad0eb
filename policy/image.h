/*
 * Reader of the compiled policy (include/sandboxd/policy_image.h): the only part of policy/ that
 * the running programs link. Every offset and count is checked once, in image_open; the getters
 * cannot fail afterwards.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/err.h"

#include "sandboxd/policy_image.h"

struct sock_filter;

struct image {
	const struct policy_image_header *header; /* mapped read-only */
	size_t bytes;
};
#define IMAGE_NULL ((struct image){0})

/* Map the image in fd (which stays the caller's) and check it. 0; -EBADMSG with what is wrong in
 * err; -errno. */
MUST_USE int image_open(int fd, struct image *ret_image, struct err *err);
void image_close(struct image *image); /* accepts IMAGE_NULL; *image is IMAGE_NULL afterwards */

/* Check bytes that are in memory. 0 or -EBADMSG. */
MUST_USE int image_check(const void *data, size_t size, struct err *err);

/* NULL: there is none. The profile lives as long as the image. */
const struct policy_profile *image_profile(const struct image *image, uint32_t index);
const struct policy_profile *image_find(const struct image *image, const char *name,
					uint32_t *ret_index);

/* Instructions of one filter; NULL and 0 where the profile has none. */
const struct sock_filter *image_filter(const struct image *image,
				       const struct policy_profile *profile,
				       enum policy_filter filter, size_t *ret_n);

/*
 * Cut the struct session_policy of a session profile out of the image: what a shim gets as
 * SHIM_FD_POLICY. The caller frees *ret_data. 0; -ENOENT: no such session profile; -ENOMEM.
 */
MUST_USE int image_session(const struct image *image, uint32_t index, void **ret_data,
			   size_t *ret_size);
