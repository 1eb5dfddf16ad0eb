#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <linux/filter.h>

#include "policy/image.h"
#include "tests/lib/test.h"

/* A session profile with three filters of 2, 3 and 1 instructions, and a worker with one of 4. */
struct sample {
	struct policy_image_header header;
	struct sock_filter instruction[10];
};

static struct sample sample_new(void)
{
	struct sample sample = {
		.header =
			{
				 .magic = POLICY_IMAGE_MAGIC,
				 .version = POLICY_IMAGE_VERSION,
				 .header_bytes = sizeof(sample.header),
				 .total_bytes = sizeof(sample),
				 .n_profiles = 2,
				 .profile =
					{
						{.name = "one",
						 .kind = POLICY_KIND_SESSION,
						 .proc = POLICY_PROC_SUBSET,
						 .root = POLICY_ROOT_ALLOWED},
						{.name = "two", .kind = POLICY_KIND_WORKER},
					}, },
	};
	uint32_t start = sizeof(sample.header);

	sample.header.profile[0].filter[POLICY_FILTER_COMMAND] = (struct policy_span){start, 2};
	sample.header.profile[0].filter[POLICY_FILTER_SHIM] = (struct policy_span){start + 16, 3};
	sample.header.profile[0].filter[POLICY_FILTER_HELPER] = (struct policy_span){start + 40, 1};
	sample.header.profile[1].filter[POLICY_FILTER_WORKER] = (struct policy_span){start + 48, 4};
	for (uint32_t i = 0; i < ARRAY_SIZE(sample.instruction); i++)
		sample.instruction[i] = (struct sock_filter){.code = BPF_RET | BPF_K, .k = i};
	return sample;
}

static void test_image_open_and_getters_find_what_is_there(void **state)
{
	struct sample sample = sample_new();
	struct image image = IMAGE_NULL;
	struct err err = ERR_NULL;
	const struct sock_filter *filter;
	AUTO_CLOSE int fd = -1;
	uint32_t index = 9;
	size_t n = 9;

	(void)state;
	fd = fd_memfd_sealed("image", &sample, sizeof(sample), 0);
	assert_true(fd >= 0);
	assert_int_equal(image_open(fd, &image, &err), 0);
	assert_ptr_equal(image_find(&image, "two", &index), image_profile(&image, 1));
	assert_int_equal(index, 1);
	assert_null(image_find(&image, "three", NULL));
	assert_null(image_profile(&image, 2));
	filter = image_filter(&image, image_profile(&image, 0), POLICY_FILTER_SHIM, &n);
	assert_int_equal(n, 3);
	assert_int_equal(filter[0].k, 2);
	assert_null(image_filter(&image, image_profile(&image, 0), POLICY_FILTER_WORKER, &n));
	assert_int_equal(n, 0);
	image_close(&image);
	assert_null(image.header);
	image_close(&image);
}

static void test_image_session_cuts_the_filters_out(void **state)
{
	struct sample sample = sample_new();
	struct image image = {.header = &sample.header, .bytes = sizeof(sample)};
	AUTO_FREE void *data = NULL;
	struct session_policy policy;
	struct sock_filter first;
	size_t size = 0;

	(void)state;
	assert_int_equal(image_session(&image, 1, &data, &size), -ENOENT);
	assert_int_equal(image_session(&image, 7, &data, &size), -ENOENT);
	assert_null(data);
	assert_int_equal(image_session(&image, 0, &data, &size), 0);
	assert_int_equal(size, sizeof(policy) + 6 * sizeof(struct sock_filter));
	memcpy(&policy, data, sizeof(policy));
	assert_int_equal(policy.magic, POLICY_IMAGE_MAGIC);
	assert_int_equal(policy.total_bytes, size);
	assert_int_equal(policy.filter[POLICY_FILTER_HELPER].n, 1);
	assert_int_equal(policy.filter[POLICY_FILTER_WORKER].n, 0);
	memcpy(&first, (uint8_t *)data + policy.filter[POLICY_FILTER_HELPER].offset, sizeof(first));
	assert_int_equal(first.k, 5);
}

/* One field wrong at a time. */
static const struct {
	size_t offset;
	uint32_t value;
	size_t bytes;
} corruptions[] = {
#define FIELD(path, value)                                                                         \
	{                                                                                          \
		offsetof(struct sample, path), (value), sizeof(((struct sample *)0)->path)         \
	}
	FIELD(header.magic, 1),
	FIELD(header.version, POLICY_IMAGE_VERSION + 1),
	FIELD(header.header_bytes, 8),
	FIELD(header.total_bytes, sizeof(struct sample) - 1),
	FIELD(header.total_bytes, sizeof(struct sample) + 8),
	FIELD(header.n_profiles, 0),
	FIELD(header.n_profiles, 3),
	FIELD(header.n_profiles, POLICY_MAX_PROFILES + 1),
	FIELD(header.n_profiles, UINT32_MAX),
	FIELD(header.profile[0].kind, 0),
	FIELD(header.profile[0].kind, 3),
	FIELD(header.profile[0].kind, POLICY_KIND_WORKER),
	FIELD(header.profile[0].proc, 0),
	FIELD(header.profile[1].proc, 1),
	FIELD(header.profile[0].root, 0),
	FIELD(header.profile[0].root, 3),
	FIELD(header.profile[1].root, POLICY_ROOT_REFUSED),
	FIELD(header.profile[0].name[0], 0),
	FIELD(header.profile[0].name[1], '/'),
	FIELD(header.profile[0].filter[0].n, 0),
	FIELD(header.profile[0].filter[0].n, 11),
	FIELD(header.profile[0].filter[0].n, POLICY_MAX_BPF + 1),
	FIELD(header.profile[0].filter[0].n, UINT32_MAX),
	FIELD(header.profile[0].filter[0].offset, 0),
	FIELD(header.profile[0].filter[0].offset, sizeof(struct policy_image_header) - 8),
	FIELD(header.profile[0].filter[0].offset, sizeof(struct policy_image_header) + 4),
	FIELD(header.profile[0].filter[0].offset, sizeof(struct sample) - 8),
	FIELD(header.profile[0].filter[0].offset, UINT32_MAX - 7),
	FIELD(header.profile[0].filter[3].n, 1),
	FIELD(header.profile[0].filter[3].offset, 8),
	FIELD(header.profile[1].filter[3].n, 0),
	FIELD(header.profile[1].filter[0].n, 1),
};

static void test_image_check_refuses_each_wrong_field(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(corruptions); i++) {
		struct sample sample = sample_new();
		struct err err = ERR_NULL;
		int r;

		assert_int_equal(image_check(&sample, sizeof(sample), &err), 0);
		memcpy((uint8_t *)&sample + corruptions[i].offset, &corruptions[i].value,
		       corruptions[i].bytes);
		r = image_check(&sample, sizeof(sample), &err);
		if (r != -EBADMSG)
			print_error("corruption %zu was accepted\n", i);
		assert_int_equal(r, -EBADMSG);
	}
}

static void test_image_check_refuses_twin_names_and_short_files(void **state)
{
	struct sample sample = sample_new();
	struct image image = IMAGE_NULL;
	struct err err = ERR_NULL;
	AUTO_CLOSE int fd = -1;
	int pair[2];

	(void)state;
	for (size_t size = 0; size < sizeof(sample); size += 37)
		assert_int_equal(image_check(&sample, size, &err), -EBADMSG);
	memcpy(sample.header.profile[1].name, "one", 4);
	assert_int_equal(image_check(&sample, sizeof(sample), &err), -EBADMSG);
	memset(sample.header.profile[1].name, 'a', POLICY_NAME_BYTES);
	assert_int_equal(image_check(&sample, sizeof(sample), &err), -EBADMSG);
	fd = fd_memfd_sealed("empty", "", 0, 0);
	assert_true(fd >= 0);
	assert_int_equal(image_open(fd, &image, &err), -EBADMSG);
	assert_int_equal(pipe(pair), 0);
	assert_int_equal(image_open(pair[0], &image, &err), -EBADMSG);
	assert_int_equal(image_open(-1, &image, &err), -EBADF);
	(void)fd_close(pair[0]);
	(void)fd_close(pair[1]);
	assert_null(image.header);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_image_open_and_getters_find_what_is_there),
	cmocka_unit_test(test_image_session_cuts_the_filters_out),
	cmocka_unit_test(test_image_check_refuses_each_wrong_field),
	cmocka_unit_test(test_image_check_refuses_twin_names_and_short_files),
};
TEST_MAIN(tests)
