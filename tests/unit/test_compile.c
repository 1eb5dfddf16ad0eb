#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/str.h"

#include "policy/compile.h"
#include "policy/image.h"
#include "tests/lib/test.h"

#define WORKER "kind worker\nfilter worker\ndefault errno ENOSYS\n"

/* No hash of ours to test here: the bytes that it is given are. */
static void hash_sum(const void *data, size_t size, uint8_t ret_hash[32])
{
	const uint8_t *bytes = data;
	uint32_t sum = 0;

	for (size_t i = 0; i < size; i++)
		sum = sum * 31 + bytes[i];
	memset(ret_hash, 0, 32);
	memcpy(ret_hash, &sum, sizeof(sum));
}

static char path_text[128];

static const char *path_of(const struct test_temp *temp, const char *name)
{
	assert_int_equal(str_format(path_text, sizeof(path_text), "%s/%s", temp->path, name), 0);
	return path_text;
}

static struct compile *compile_in(const struct test_temp *temp)
{
	struct compile *compile = NULL;
	struct err err = ERR_NULL;

	assert_int_equal(compile_new(temp->path, &compile, &err), 0);
	return compile;
}

static void write_sets(const struct test_temp *temp)
{
	test_temp_write(temp, "shared.set", "set shared\nkeyctl\n");
	test_temp_write(temp, "sensitive.set", "set sensitive\nsplice\n");
	test_temp_write(temp, "two.set", "set two\nread write\n");
}

static void test_compile_image_holds_every_profile_in_order(void **state)
{
	struct test_temp temp;
	AUTO(compile_free) struct compile *compile = NULL;
	struct buf bytes = BUF_NULL(COMPILE_IMAGE_MAX_BYTES);
	struct buf again = BUF_NULL(COMPILE_IMAGE_MAX_BYTES);
	struct image image;
	struct err err = ERR_NULL;
	size_t n = 0;

	(void)state;
	test_temp_init(&temp);
	write_sets(&temp);
	test_temp_write(&temp, "b.profile", "profile b\n" WORKER "include x.rules\n");
	test_temp_write(&temp, "a.profile", "profile a\n" WORKER "kill reboot\n");
	test_temp_write(&temp, "x.rules", "allow @two\n");
	compile = compile_in(&temp);
	assert_int_equal(compile_add(compile, path_of(&temp, "b.profile"), &err), 0);
	assert_int_equal(compile_add(compile, path_of(&temp, "a.profile"), &err), 0);
	assert_int_equal(compile_finish(compile, &err), 0);
	assert_int_equal(compile_image(compile, hash_sum, &bytes, &err), 0);
	assert_int_equal(compile_image(compile, hash_sum, &again, &err), 0);
	assert_int_equal(bytes.size, again.size);
	assert_memory_equal(bytes.data, again.data, bytes.size);
	image = (struct image){.header = (const void *)bytes.data, .bytes = bytes.size};
	assert_string_equal(image_profile(&image, 0)->name, "b");
	assert_string_equal(image_profile(&image, 1)->name, "a");
	assert_memory_not_equal(image_profile(&image, 0)->hash, image_profile(&image, 1)->hash, 32);
	assert_non_null(image_filter(&image, image_profile(&image, 1), POLICY_FILTER_WORKER, &n));
	assert_int_equal(n, compile->unit[1].n_instructions[POLICY_FILTER_WORKER]);
	buf_done(&bytes);
	buf_done(&again);
	test_temp_done(&temp);
}

static const struct {
	const char *profile;
	int result;
	const char *error;
} bad[] = {
	{"profile p\n" WORKER "allow keyctl\n",       -EINVAL,
	 "p.profile:5: keyctl (worker): allowed, but shared between sessions"                                  },
	{"profile p\n" WORKER "need x: splice\n",     -EINVAL,
	 "p.profile:5: worker does not allow the need of x, or it needs no words"                              },
	{"profile p\n" WORKER "allow @gone\n",        -ENOENT, "open gone.set"                                 },
	{"profile p\n" WORKER "include gone.rules\n", -ENOENT, "open gone.rules"                               },
	{"profile p\n" WORKER "clone: arg0 & 1 == 1 allow\nclone: arg0 & 2 == 2 allow\n"
	 "clone: else kill\n",	       -EINVAL, "number 56: masks on arg0 have no bit in common"},
};

static void test_compile_add_each_error_is_told(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct test_temp temp;
		AUTO(compile_free) struct compile *compile = NULL;
		struct err err = ERR_NULL;

		test_temp_init(&temp);
		write_sets(&temp);
		test_temp_write(&temp, "p.profile", bad[i].profile);
		compile = compile_in(&temp);
		assert_int_equal(compile_add(compile, path_of(&temp, "p.profile"), &err),
				 bad[i].result);
		assert_string_equal(err.text, bad[i].error);
		test_temp_done(&temp);
	}
}

static void test_compile_refuses_twins_unused_sets_and_missing_files(void **state)
{
	struct test_temp temp;
	AUTO(compile_free) struct compile *compile = NULL;
	struct compile *none = NULL;
	struct err err = ERR_NULL;

	(void)state;
	test_temp_init(&temp);
	write_sets(&temp);
	test_temp_write(&temp, "p.profile", "profile p\n" WORKER);
	compile = compile_in(&temp);
	assert_int_equal(compile_add(compile, path_of(&temp, "none.profile"), &err), -ENOENT);
	assert_int_equal(compile_add(compile, "/nonexistent/p.profile", &err), -ENOENT);
	assert_int_equal(compile_add(compile, path_of(&temp, "p.profile"), &err), 0);
	assert_int_equal(compile_add(compile, path_of(&temp, "p.profile"), &err), -EINVAL);
	assert_string_equal(err.text, "p.profile:1: profile p appears twice");
	assert_int_equal(compile_finish(compile, &err), -EINVAL);
	assert_string_equal(err.text, "two.set: no profile uses this set");
	assert_int_equal(compile_new("/nonexistent", &none, &err), -ENOENT);
	assert_null(none);
	test_temp_done(&temp);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_compile_image_holds_every_profile_in_order),
	cmocka_unit_test(test_compile_add_each_error_is_told),
	cmocka_unit_test(test_compile_refuses_twins_unused_sets_and_missing_files),
};
TEST_MAIN(tests)
