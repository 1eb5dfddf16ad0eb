#include "policy/image.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <linux/filter.h>

#include "base/str.h"

/* Enough for POLICY_MAX_PROFILES profiles with the longest filters. */
#define IMAGE_MAX_BYTES (4u * 1024 * 1024)

_Static_assert(sizeof(struct sock_filter) == 8, "offsets are multiples of 8");
_Static_assert(sizeof(struct policy_image_header) % 8 == 0, "the first filter is aligned");
_Static_assert(sizeof(struct session_policy) % 8 == 0, "the first filter is aligned");

static int check_span(const struct policy_image_header *header, const struct policy_span *span,
		      bool wanted)
{
	uint64_t end;

	if (!wanted)
		return span->n == 0 && span->offset == 0 ? 0 : -EBADMSG;
	if (span->n == 0 || span->n > POLICY_MAX_BPF || span->offset % 8 != 0 ||
	    span->offset < sizeof(*header))
		return -EBADMSG;
	end = (uint64_t)span->offset + (uint64_t)span->n * sizeof(struct sock_filter);
	return end <= header->total_bytes ? 0 : -EBADMSG;
}

static int check_profile(const struct policy_image_header *header,
			 const struct policy_profile *profile)
{
	bool session = profile->kind == POLICY_KIND_SESSION;
	size_t length = strnlen(profile->name, sizeof(profile->name));

	if (length == 0 || length == sizeof(profile->name) || !str_only(profile->name, length, "-"))
		return -EBADMSG;
	if (!session && profile->kind != POLICY_KIND_WORKER)
		return -EBADMSG;
	if (session ? profile->proc != POLICY_PROC_SUBSET && profile->proc != POLICY_PROC_MASKED
		    : profile->proc != 0)
		return -EBADMSG;
	if (session ? profile->root != POLICY_ROOT_REFUSED && profile->root != POLICY_ROOT_ALLOWED
		    : profile->root != 0)
		return -EBADMSG;
	for (uint32_t i = 0; i < POLICY_FILTER_MAX_; i++) {
		bool wanted = session ? i != POLICY_FILTER_WORKER : i == POLICY_FILTER_WORKER;

		if (check_span(header, &profile->filter[i], wanted) < 0)
			return -EBADMSG;
	}
	return 0;
}

static bool same_name_before(const struct policy_image_header *header, uint32_t index)
{
	for (uint32_t i = 0; i < index; i++) {
		if (str_equal(header->profile[i].name, header->profile[index].name))
			return true;
	}
	return false;
}

int image_check(const void *data, size_t size, struct err *err)
{
	const struct policy_image_header *header = data;

	if (size < sizeof(*header))
		return err_fail(err, -EBADMSG, "policy", "image: %zu bytes are no image", size);
	if (header->magic != POLICY_IMAGE_MAGIC)
		return err_fail(err, -EBADMSG, "policy", "image: wrong magic");
	if (header->version != POLICY_IMAGE_VERSION || header->header_bytes != sizeof(*header))
		return err_fail(err, -EBADMSG, "policy", "image: version %u, expected %d",
				(unsigned int)header->version, POLICY_IMAGE_VERSION);
	if (header->total_bytes != size)
		return err_fail(err, -EBADMSG, "policy", "image: %zu bytes, expected %u", size,
				header->total_bytes);
	if (header->n_profiles == 0 || header->n_profiles > POLICY_MAX_PROFILES)
		return err_fail(err, -EBADMSG, "policy", "image: %u profiles", header->n_profiles);
	for (uint32_t i = 0; i < header->n_profiles; i++) {
		if (check_profile(header, &header->profile[i]) < 0 || same_name_before(header, i))
			return err_fail(err, -EBADMSG, "policy", "image: profile %u is malformed",
					i);
	}
	return 0;
}

int image_open(int fd, struct image *ret_image, struct err *err)
{
	struct stat st;
	void *data;
	int r;

	if (fstat(fd, &st) < 0)
		return err_fail(err, -errno, "policy", "fstat of the image");
	if (!S_ISREG(st.st_mode) || st.st_size <= 0 || st.st_size > (off_t)IMAGE_MAX_BYTES)
		return err_fail(err, -EBADMSG, "policy", "image: not a file of a possible size");
	data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (data == MAP_FAILED)
		return err_fail(err, -errno, "policy", "mmap of the image");
	r = image_check(data, (size_t)st.st_size, err);
	if (r < 0) {
		(void)munmap(data, (size_t)st.st_size);
		return r;
	}
	*ret_image = (struct image){.header = data, .bytes = (size_t)st.st_size};
	return 0;
}

void image_close(struct image *image)
{
	if (image->header) {
		/* The mapping was made by image_open; the const is ours. */
		union {
			const void *in;
			void *out;
		} address = {.in = image->header};

		(void)munmap(address.out, image->bytes);
	}
	*image = IMAGE_NULL;
}

const struct policy_profile *image_profile(const struct image *image, uint32_t index)
{
	return index < image->header->n_profiles ? &image->header->profile[index] : NULL;
}

const struct policy_profile *image_find(const struct image *image, const char *name,
					uint32_t *ret_index)
{
	for (uint32_t i = 0; i < image->header->n_profiles; i++) {
		if (str_equal(image->header->profile[i].name, name)) {
			if (ret_index)
				*ret_index = i;
			return &image->header->profile[i];
		}
	}
	return NULL;
}

const struct sock_filter *image_filter(const struct image *image,
				       const struct policy_profile *profile,
				       enum policy_filter filter, size_t *ret_n)
{
	const struct policy_span *span = &profile->filter[filter];

	*ret_n = span->n;
	if (span->n == 0)
		return NULL;
	return (const void *)((const uint8_t *)image->header + span->offset);
}

int image_session(const struct image *image, uint32_t index, void **ret_data, size_t *ret_size)
{
	const struct policy_profile *profile = image_profile(image, index);
	struct session_policy policy = {
		.magic = POLICY_IMAGE_MAGIC,
		.version = POLICY_IMAGE_VERSION,
		.header_bytes = sizeof(policy),
		.total_bytes = sizeof(policy),
	};
	uint8_t *data;

	if (!profile || profile->kind != POLICY_KIND_SESSION)
		return -ENOENT;
	for (size_t i = 0; i < POLICY_FILTER_MAX_; i++) {
		if (profile->filter[i].n == 0)
			continue;
		policy.filter[i].offset = policy.total_bytes;
		policy.filter[i].n = profile->filter[i].n;
		policy.total_bytes += profile->filter[i].n * (uint32_t)sizeof(struct sock_filter);
	}
	data = malloc(policy.total_bytes);
	if (!data)
		return -ENOMEM;
	memcpy(data, &policy, sizeof(policy));
	for (enum policy_filter i = 0; i < POLICY_FILTER_MAX_; i++) {
		size_t n;
		const struct sock_filter *filter = image_filter(image, profile, i, &n);

		if (filter)
			memcpy(data + policy.filter[i].offset, filter, n * sizeof(*filter));
	}
	*ret_data = data;
	*ret_size = policy.total_bytes;
	return 0;
}
