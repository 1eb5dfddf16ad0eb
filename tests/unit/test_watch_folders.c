/*
 * The tree of names behind a watch: paths, moves, and a random walk against a plain model.
 */
#include <errno.h>
#include <string.h>

#include "base/str.h"

#include "shim/watch_folders.h"
#include "tests/lib/test.h"

static int dropped[FILE_WATCH_MAX_FOLDERS];
static size_t n_dropped;

static void on_dropped(void *userdata, int wd)
{
	(void)userdata;
	dropped[n_dropped++] = wd;
}

static void begin(struct watch_folders *folders)
{
	assert_int_equal(watch_folders_init(folders), 0);
	n_dropped = 0;
}

static uint32_t add(struct watch_folders *folders, uint32_t parent, const char *name, int wd)
{
	uint32_t index;

	assert_int_equal(watch_folders_add(folders, parent, name, false), 0);
	index = watch_folders_child(folders, parent, name);
	assert_true(index != WATCH_FOLDER_NONE);
	folders->wd[index] = wd;
	return index;
}

static void check_path(const struct watch_folders *folders, uint32_t index, const char *name,
		       const char *expected)
{
	char path[FILE_PATH_BYTES];

	assert_int_equal(watch_folders_path(folders, index, name, path), 0);
	assert_string_equal(path, expected);
}

static void test_path_is_made_of_names(void **state)
{
	struct watch_folders folders;
	uint32_t a;
	uint32_t b;

	(void)state;
	begin(&folders);
	a = add(&folders, WATCH_FOLDER_TOP, "a", 2);
	b = add(&folders, a, "b", 3);
	check_path(&folders, WATCH_FOLDER_TOP, "", "");
	check_path(&folders, WATCH_FOLDER_TOP, "x", "x");
	check_path(&folders, b, "", "a/b");
	check_path(&folders, b, "f", "a/b/f");
	assert_int_equal(watch_folders_move(&folders, b, WATCH_FOLDER_TOP, "c"), 0);
	check_path(&folders, b, "f", "c/f");
	assert_int_equal(watch_folders_move(&folders, a, b, "a"), 0);
	check_path(&folders, a, "", "c/a");
	assert_int_equal(watch_folders_move(&folders, b, a, "b"), -ELOOP);
	assert_int_equal(watch_folders_move(&folders, b, b, "b"), -ELOOP);
	check_path(&folders, a, "", "c/a");
	watch_folders_done(&folders);
}

static void test_path_too_long_is_refused(void **state)
{
	struct watch_folders folders;
	char path[FILE_PATH_BYTES];
	char name[256];
	uint32_t at = WATCH_FOLDER_TOP;

	(void)state;
	begin(&folders);
	memset(name, 'x', 255);
	name[255] = '\0';
	for (int i = 0; i < 15; i++)
		at = add(&folders, at, name, i + 2);
	name[254] = '\0';
	assert_int_equal(watch_folders_path(&folders, at, name, path), 0);
	assert_int_equal(strlen(path), 15 * 256 + 254);
	at = add(&folders, at, "y", 100);
	assert_int_equal(watch_folders_path(&folders, at, name, path), -ENAMETOOLONG);
	watch_folders_done(&folders);
}

static void test_drop_takes_what_is_below(void **state)
{
	struct watch_folders folders;
	uint32_t a;
	uint32_t b;
	uint32_t c;

	(void)state;
	begin(&folders);
	c = add(&folders, WATCH_FOLDER_TOP, "c", 5);
	a = add(&folders, WATCH_FOLDER_TOP, "a", 2);
	b = add(&folders, a, "b", 3);
	add(&folders, b, "without", -1);
	watch_folders_drop(&folders, a, on_dropped, NULL);
	assert_int_equal(n_dropped, 2);
	assert_int_equal(dropped[0] + dropped[1], 5);
	assert_false(watch_folders_has(&folders, a) || watch_folders_has(&folders, b));
	assert_int_equal(folders.n_used, 2);
	assert_int_equal(watch_folders_by_wd(&folders, 3), WATCH_FOLDER_NONE);
	assert_int_equal(watch_folders_by_wd(&folders, 5), c);
	/* A place that was free is another's now, and nothing of the former one is below it. */
	a = add(&folders, c, "new", 7);
	check_path(&folders, a, "", "c/new");
	assert_int_equal(folders.n_used, 3);
	watch_folders_done(&folders);
}

static void test_add_beyond_the_bound_is_refused(void **state)
{
	struct watch_folders folders;
	char name[16];

	(void)state;
	begin(&folders);
	for (int i = 1; i < FILE_WATCH_MAX_FOLDERS; i++) {
		assert_int_equal(str_format(name, sizeof(name), "%d", i), 0);
		assert_int_equal(watch_folders_add(&folders, WATCH_FOLDER_TOP, name, false), 0);
	}
	assert_int_equal(watch_folders_add(&folders, WATCH_FOLDER_TOP, "x", false), -ENOSPC);
	watch_folders_drop(&folders, 100, on_dropped, NULL);
	assert_int_equal(watch_folders_add(&folders, WATCH_FOLDER_TOP, "x", false), 0);
	assert_int_equal(watch_folders_child(&folders, WATCH_FOLDER_TOP, "x"), 100);
	watch_folders_done(&folders);
}

/* The model: each folder has its whole path as text. */
#define MODEL_N 24
struct model {
	char path[MODEL_N][256]; /* "": none */
};

static bool is_below(const char *path, const char *top)
{
	size_t length = strlen(top);

	return strncmp(path, top, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

static void model_move(struct model *model, const char *from, const char *to)
{
	size_t length = strlen(from);
	char moved[256];

	for (size_t i = 0; i < MODEL_N; i++) {
		if (model->path[i][0] == '\0' || !is_below(model->path[i], from))
			continue;
		if (to)
			assert_int_equal(str_format(moved, sizeof(moved), "%s%s", to,
						    model->path[i] + length),
					 0);
		else
			moved[0] = '\0';
		memcpy(model->path[i], moved, sizeof(moved));
	}
}

/* wd is the model's index + 2. */
static void check_model(const struct watch_folders *folders, const struct model *model)
{
	uint32_t n = 1;

	for (size_t i = 0; i < MODEL_N; i++) {
		uint32_t index = watch_folders_by_wd(folders, (int)i + 2);

		assert_int_equal(index != WATCH_FOLDER_NONE, model->path[i][0] != '\0');
		if (index == WATCH_FOLDER_NONE)
			continue;
		check_path(folders, index, "", model->path[i]);
		n++;
	}
	assert_int_equal(folders->n_used, n);
}

static void random_step(struct watch_folders *folders, struct model *model,
			struct test_random *random, int step)
{
	uint32_t i = test_random_below(random, MODEL_N);
	uint32_t j = test_random_below(random, MODEL_N);
	uint32_t at = watch_folders_by_wd(folders, (int)i + 2);
	uint32_t parent = watch_folders_by_wd(folders, (int)j + 2);
	char name[16];
	char path[256];
	int r;

	assert_int_equal(str_format(name, sizeof(name), "n%d", step), 0);
	if (parent == WATCH_FOLDER_NONE)
		parent = WATCH_FOLDER_TOP;
	if (parent != WATCH_FOLDER_TOP && strlen(model->path[j]) > 100)
		return;
	r = parent == WATCH_FOLDER_TOP
		    ? str_copy(path, sizeof(path), name)
		    : str_format(path, sizeof(path), "%s/%s", model->path[j], name);
	assert_int_equal(r, 0);
	if (at == WATCH_FOLDER_NONE) {
		add(folders, parent, name, (int)i + 2);
		memcpy(model->path[i], path, sizeof(path));
	} else if (step % 4 == 0) {
		watch_folders_drop(folders, at, on_dropped, NULL);
		n_dropped = 0;
		memcpy(path, model->path[i], sizeof(path));
		model_move(model, path, NULL);
	} else {
		char from[256];

		memcpy(from, model->path[i], sizeof(from));
		r = watch_folders_move(folders, at, parent, name);
		assert_int_equal(r,
				 parent != WATCH_FOLDER_TOP && is_below(path, from) ? -ELOOP : 0);
		if (r == 0)
			model_move(model, from, path);
	}
}

static void test_random_walk_agrees_with_model(void **state)
{
	struct watch_folders folders;
	struct test_random random = TEST_RANDOM(11);
	struct model model = {0};

	(void)state;
	begin(&folders);
	for (int step = 0; step < 20000; step++) {
		random_step(&folders, &model, &random, step);
		check_model(&folders, &model);
	}
	watch_folders_done(&folders);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_path_is_made_of_names),
	cmocka_unit_test(test_path_too_long_is_refused),
	cmocka_unit_test(test_drop_takes_what_is_below),
	cmocka_unit_test(test_add_beyond_the_bound_is_refused),
	cmocka_unit_test(test_random_walk_agrees_with_model),
};

TEST_MAIN(tests)
