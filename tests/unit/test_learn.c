/*
 * sandbox-policyc learn: what it prints compiles, the program runs under it, and without one of the
 * learned calls it does not.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/audit.h>

#include "base/confine.h"
#include "base/io.h"
#include "base/str.h"

#include "policy/image.h"
#include "policy/learn.h"
#include "tests/lib/test.h"

#define POLICYC TEST_BIN_DIR "/sandbox-policyc"

static char shell[] = "/bin/sh";
static char option[] = "-c";
static char script[] = "x=$(echo learned); test \"$x\" = learned";
static char *const program[] = {shell, option, script, NULL};

static void test_learn_note_answers_as_a_session_does(void **state)
{
	static struct learn learn;
	const uint64_t args[6] = {1, 2, 3};
	const uint64_t namespace[6] = {0x10000000};
	int error = 0;

	(void)state;
	learn.refused[SYS_keyctl] = true;
	learn.absent[SYS_io_uring_setup] = true;
	assert_true(learn_note(&learn, AUDIT_ARCH_X86_64, SYS_read, args, &error));
	assert_true(learn_note(&learn, AUDIT_ARCH_X86_64, SYS_ioctl, args, &error));
	assert_true(learn_note(&learn, AUDIT_ARCH_X86_64, SYS_ioctl, args, &error));
	assert_int_equal(learn.ioctl.n, 1);
	assert_int_equal(learn.ioctl.value[0], 2);
	assert_false(learn_note(&learn, AUDIT_ARCH_X86_64, SYS_keyctl, args, &error));
	assert_int_equal(error, EPERM);
	assert_false(learn_note(&learn, AUDIT_ARCH_X86_64, SYS_clone, namespace, &error));
	assert_int_equal(error, EPERM);
	assert_false(learn_note(&learn, AUDIT_ARCH_X86_64, SYS_clone3, args, &error));
	assert_int_equal(error, ENOSYS);
	assert_false(learn_note(&learn, AUDIT_ARCH_X86_64, SYS_io_uring_setup, args, &error));
	assert_int_equal(error, ENOSYS);
	assert_false(learn_note(&learn, AUDIT_ARCH_I386, 3, args, &error));
	assert_false(learn_note(&learn, AUDIT_ARCH_X86_64, 0x40000000u, args, &error));
	assert_int_equal(learn.n_foreign, 2);
	assert_true(learn.called[SYS_read] && learn.called[SYS_keyctl]);
	assert_false(learn.called[SYS_clone3]);
}

static void test_learn_print_gives_up_on_too_many_values(void **state)
{
	static struct learn learn;
	static char text[65536];
	FILE *file = fmemopen(text, sizeof(text), "w");
	int error = 0;

	(void)state;
	assert_non_null(file);
	for (uint64_t i = 0; i <= LEARN_MAX_VALUES; i++) {
		const uint64_t args[6] = {0, i};

		assert_int_equal(learn_print(&learn, file), 0);
		rewind(file);
		assert_true(learn_note(&learn, AUDIT_ARCH_X86_64, SYS_ioctl, args, &error));
	}
	assert_int_equal(learn_print(&learn, file), -E2BIG);
	(void)fclose(file);
}

static int run(char *const argv[])
{
	int status = 0;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		(void)execv(argv[0], argv);
		_exit(127);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

/* `program` under the filter of the image. */
static int run_under(const char *image_path)
{
	int status = 0;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		struct image image = IMAGE_NULL;
		struct err err = ERR_NULL;
		const struct sock_filter *filter;
		size_t n = 0;

		if (image_open(open(image_path, O_RDONLY | O_CLOEXEC), &image, &err) < 0)
			_exit(90);
		filter = image_filter(&image, image_profile(&image, 0), POLICY_FILTER_WORKER, &n);
		if (confine_no_new_privs() < 0 || confine_seccomp(filter, n) < 0)
			_exit(91);
		(void)execv(program[0], program);
		_exit(92);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void path_in(const struct test_temp *temp, const char *name, char text[128])
{
	assert_int_equal(str_format(text, 128, "%s/%s", temp->path, name), 0);
}

static void compile(const struct test_temp *temp, const char *profile, const char *image)
{
	char profile_path[128];
	char image_path[128];
	char sets[128];

	path_in(temp, profile, profile_path);
	path_in(temp, image, image_path);
	path_in(temp, ".", sets);
	char *const argv[] = {(char[]){POLICYC}, (char[]){"compile"}, (char[]){"--sets"}, sets,
			      (char[]){"-o"},    image_path,          profile_path,       NULL};
	assert_int_equal(run(argv), 0);
}

/* The learned text without one call that the program makes. */
static void write_without(const struct test_temp *temp, char *text, const char *call)
{
	char *at = strstr(text, call);

	assert_non_null(at);
	memset(at, 0x20, strlen(call));
	test_temp_write(temp, "less.profile", text);
}

static void test_learn_profile_runs_its_program(void **state)
{
	char profile[128];
	char image[128];
	AUTO_FREE char *text = NULL;
	AUTO_CLOSE int fd = -1;
	struct test_temp temp;
	size_t size = 0;

	(void)state;
	test_temp_init(&temp);
	test_temp_write(&temp, "shared.set", "set shared\nkeyctl\n");
	test_temp_write(&temp, "sensitive.set", "set sensitive\nsplice\n");
	path_in(&temp, "learned.profile", profile);
	path_in(&temp, "image", image);
	char *const argv[] = {(char[]){POLICYC},
			      (char[]){"learn"},
			      (char[]){"--sets"},
			      (char[]){TEST_SETS_DIR},
			      (char[]){"-o"},
			      profile,
			      (char[]){"--"},
			      program[0],
			      program[1],
			      program[2],
			      NULL};
	assert_int_equal(run(argv), 0);
	compile(&temp, "learned.profile", "image");
	assert_int_equal(run_under(image), 0);

	/* The control: with a call less it fails. */
	fd = open(profile, O_RDONLY | O_CLOEXEC);
	assert_int_equal(io_read_file(fd, 65536, &text, &size), 0);
	write_without(&temp, text, " write ");
	compile(&temp, "less.profile", "image");
	assert_int_not_equal(run_under(image), 0);
	test_temp_done(&temp);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_learn_note_answers_as_a_session_does),
	cmocka_unit_test(test_learn_print_gives_up_on_too_many_values),
	cmocka_unit_test(test_learn_profile_runs_its_program),
};

TEST_MAIN(tests)
