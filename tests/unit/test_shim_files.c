/*
 * Files and the jail tool through a real shim.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sandboxd/loader.h"
#include "tests/lib/test.h"
#include "tests/unit/shim_rig.h"

static struct rig rig;

static int setup(void **state)
{
	(void)state;
	return rig_begin(&rig, -1);
}

static int teardown(void **state)
{
	(void)state;
	return rig_end(&rig);
}

static void put(const char *path, const void *data, size_t size, struct rig_result *result)
{
	rig_put(&rig, 31, path, data, size, size);
	rig_wait(&rig, 31, result);
	free(result->out);
	result->out = NULL;
}

static void expect_put(const char *path, const char *text)
{
	struct rig_result result;

	rig_put(&rig, 31, path, text, strlen(text), strlen(text));
	rig_wait(&rig, 31, &result);
	if (result.last == WIRE_FAILED)
		fail_msg("%s: step %u errno %d", path, result.failed.step,
			 result.failed.error_number);
	assert_int_equal(result.last, WIRE_PUT_DONE);
	rig_result_done(&result);
}

static void expect_put_fails(const char *path, uint32_t step, int error_number)
{
	struct rig_result result;

	rig_put(&rig, 32, path, "abc", 3, 3);
	rig_wait(&rig, 32, &result);
	assert_int_equal(result.last, WIRE_FAILED);
	assert_int_equal(result.failed.step, step);
	assert_int_equal(result.failed.error_number, error_number);
	rig_result_done(&result);
}

static void run(const char *script, struct rig_result *result)
{
	rig_shell(&rig, 7, script);
	rig_wait(&rig, 7, result);
	assert_int_equal(result->last, WIRE_EXIT);
}

static void test_put_makes_file_of_user(void **state)
{
	struct rig_result result;

	(void)state;
	rig_require();
	expect_put("a.yaml", "type: x\n");
	expect_put("deep/er/b.yaml", "type: y\n");
	expect_put("a.yaml", "type: z\n");
	expect_put("empty", "");
	run("cat a.yaml deep/er/b.yaml; stat -c '%a %u %g %s' a.yaml empty deep; ls -A", &result);
	assert_string_equal((const char *)result.out,
			    "type: z\ntype: y\n640 1000 1000 8\n640 1000 1000 0\n755 1000 1000 60\n"
			    "a.yaml\ndeep\nempty\n");
	rig_result_done(&result);
}

static void test_put_of_one_mebibyte_in_one_go(void **state)
{
	struct rig_result result;
	uint8_t *data = malloc(1024 * 1024);

	(void)state;
	rig_require();
	assert_non_null(data);
	for (size_t i = 0; i < 1024u * 1024; i++)
		data[i] = (uint8_t)(i % 251);
	put("big", data, 1024 * 1024, &result);
	assert_int_equal(result.last, WIRE_PUT_DONE);
	run("python3 -c 'print(open(\"big\",\"rb\").read() == (bytes(range(251)) * 4200)[:1048576])'; "
	    "rm big",
	    &result);
	assert_string_equal((const char *)result.out, "True\n");
	rig_result_done(&result);
	free(data);
}

static void test_put_refuses_paths_that_lead_out(void **state)
{
	struct rig_result result;

	(void)state;
	rig_require();
	run("ln -s /tmp out; ln -s a.yaml link; mkdir dir; touch dir/x; mkfifo fifo; ln -s "
	    "/proc/self/root root",
	    &result);
	rig_result_done(&result);
	expect_put_fails("../x", WIRE_STEP_OPEN, EINVAL);
	expect_put_fails("/etc/x", WIRE_STEP_OPEN, EINVAL);
	expect_put_fails("a//b", WIRE_STEP_OPEN, EINVAL);
	expect_put_fails("out/x", WIRE_STEP_OPEN, ELOOP);
	expect_put_fails("root/session/x", WIRE_STEP_OPEN, ELOOP);
	expect_put_fails("a.yaml/x", WIRE_STEP_OPEN, ENOTDIR);
	expect_put_fails("dir", WIRE_STEP_RENAME, EISDIR);
	/* A link and a fifo are replaced, not followed. */
	expect_put("link", "new");
	expect_put("fifo", "new");
	run("stat -c %F link fifo; ls -A /tmp | wc -l; ls -A | grep -c '^.put'; rm -rf out link dir "
	    "fifo root",
	    &result);
	assert_string_equal((const char *)result.out, "regular file\nregular file\n0\n0\n");
	rig_result_done(&result);
}

static void test_put_of_wrong_size_leaves_nothing(void **state)
{
	const struct {
		struct wire_put put;
		char path[16];
	} open = {
		.put = {.mode = 0644, .path_bytes = 16, .size_bytes = 3},
		.path = "long-cancelled1"
        };
	struct rig_result result;

	(void)state;
	rig_require();
	rig_put(&rig, 33, "short", "abc", 3, 4);
	rig_wait(&rig, 33, &result);
	assert_int_equal(result.failed.step, WIRE_STEP_WRITE);
	assert_int_equal(result.failed.error_number, EMSGSIZE);
	rig_result_done(&result);
	rig_put(&rig, 34, "long", "abcd", 4, 3);
	rig_wait(&rig, 34, &result);
	assert_int_equal(result.failed.error_number, EMSGSIZE);
	rig_result_done(&result);
	rig_send(&rig, WIRE_PUT, 35, &open, sizeof(open));
	rig_send(&rig, WIRE_PUT_DATA, 35, "ab", 2);
	rig_send(&rig, WIRE_CANCEL, 35, NULL, 0);
	rig_wait(&rig, 35, &result);
	assert_int_equal(result.failed.error_number, ECANCELED);
	rig_result_done(&result);
	run("sleep 0.2; ls -A | grep -cE 'short|long|put'", &result);
	assert_string_equal((const char *)result.out, "0\n");
	rig_result_done(&result);
}

static void test_put_on_full_disk_says_so_and_cleans_up(void **state)
{
	static uint8_t data[300000];
	struct rig_result result;

	(void)state;
	rig_require();
	run("yes | head -c 8200000 > filler", &result);
	rig_result_done(&result);
	put("more", data, sizeof(data), &result);
	assert_int_equal(result.last, WIRE_FAILED);
	assert_int_equal(result.failed.step, WIRE_STEP_WRITE);
	assert_int_equal(result.failed.error_number, ENOSPC);
	run("ls -A | grep -cE 'more|put'; rm filler", &result);
	assert_string_equal((const char *)result.out, "0\n");
	rig_result_done(&result);
}

static void test_helper_that_is_killed_is_made_again(void **state)
{
	struct rig_result result;

	(void)state;
	rig_require();
	expect_put("one", "1");
	run("kill -9 -1", &result); /* the helper has the id of `user`, outside the domain */
	rig_result_done(&result);
	expect_put("two", "2");
}

static uint32_t uid_of(pid_t pid)
{
	uint32_t uid = 0;
	char path[64];
	char line[256];
	FILE *file;

	/* Not the owner of its folder: it is not dumpable. */
	(void)snprintf(path, sizeof(path), "/proc/%d/status", pid);
	file = fopen(path, "re");
	/* One that has ended and is not reaped yet is none. */
	while (file && fgets(line, sizeof(line), file) && strncmp(line, "State:\tZ", 8) != 0)
		if (sscanf(line, "Uid: %u", &uid) == 1)
			break;
	if (file)
		(void)fclose(file);
	return uid;
}

/* The file helper: a grandchild of the shim with the id of `user`, while no command runs. */
static pid_t find_helper(pid_t parent, int levels)
{
	char path[64];
	pid_t found = 0;
	pid_t pid;
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", parent, parent);
	file = fopen(path, "re");
	assert_non_null(file);
	while (found == 0 && fscanf(file, "%d", &pid) == 1) {
		if (levels > 1)
			found = find_helper(pid, levels - 1);
		else if (uid_of(pid) == RIG_ID_BASE + SESSION_USER_ID)
			found = pid;
	}
	(void)fclose(file);
	return found;
}

static pid_t idle_helper(void)
{
	pid_t pid;

	expect_put("one", "1");
	pid = find_helper(rig.shim_pid, 2);
	assert_true(pid > 0);
	return pid;
}

static void test_file_that_nobody_takes_is_refused(void **state)
{
	const struct {
		struct wire_put put;
		char path[4];
	} open = {
		.put = {.mode = 0644, .path_bytes = 4, .size_bytes = 8388608},
                  .path = "big"
        };
	static uint8_t data[WIRE_PAYLOAD_MAX_BYTES];
	struct rig_result result;
	pid_t pid;

	(void)state;
	rig_require();
	pid = idle_helper();
	assert_int_equal(kill(pid, SIGSTOP), 0);
	rig_send(&rig, WIRE_PUT, 40, &open, sizeof(open.put) + sizeof(open.path));
	for (size_t n = 0; n < 3ul * 1024 * 1024; n += sizeof(data))
		rig_send(&rig, WIRE_PUT_DATA, 40, data, sizeof(data));
	rig_wait(&rig, 40, &result);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(result.failed.step, WIRE_STEP_REQUEST);
	assert_int_equal(result.failed.error_number, ENOBUFS);
	rig_result_done(&result);
	expect_put("two", "2");
}

static void test_helper_that_dies_at_work_is_said(void **state)
{
	const struct {
		struct wire_file file;
		char path[4];
	} open = {
		.file = {.op = WIRE_FILE_PUT, .path_bytes = 4, .mode = 0644},
                  .path = "one"
        };
	const uint8_t *payload = NULL;
	struct wire_header header;
	struct rig_result result;
	struct wire_exit end;
	pid_t pid;

	(void)state;
	rig_require();
	run("rm -f .put-*", &result);
	rig_result_done(&result);
	pid = idle_helper();
	rig_send(&rig, WIRE_FILE, 41, &open, sizeof(open.file) + sizeof(open.path));
	rig_send(&rig, WIRE_PUT_DATA, 41, "new", 3);
	/* It is at work when its temporary file is there: of one that dies idle nothing is said,
	 * another one does the work. */
	rig_shell(
		&rig, 7,
		"for i in $(seq 200); do ls -A | grep -q '^.put-' && exit; sleep 0.1; done; exit 1");
	do
		assert_true(rig_next(&rig, 60000, &header, &payload) >= 0);
	while (header.job != 7 || header.type != WIRE_EXIT);
	memcpy(&end, payload, sizeof(end));
	assert_int_equal(end.code, 0);
	assert_int_equal(kill(pid, SIGKILL), 0);
	rig_send(&rig, WIRE_PUT_END, 41, NULL, 0);
	rig_wait(&rig, 41, &result);
	assert_int_equal(result.last, WIRE_FAILED);
	assert_int_equal(result.failed.step, WIRE_STEP_HELPER_LOST);
	rig_result_done(&result);
	expect_put("two", "2");
	run("cat one", &result);
	assert_string_equal((const char *)result.out, "1");
	rig_result_done(&result);
}

static void test_loader_reports_components(void **state)
{
	const char *const argv[] = {"sandbox-loader", "/session", NULL};
	const struct loader_record *records;
	struct rig_result result;

	(void)state;
	rig_require();
	run("rm -rf *", &result);
	rig_result_done(&result);
	expect_put("a.yaml", "type: x.Y\n");
	expect_put("b.yaml", "type: x.Y\n a: b\n");
	expect_put("c.yml", "type: x.Y\nattributes: {}\n");
	rig_exec(&rig, 8, &(struct rig_command){.argv = argv, .program = WIRE_PROGRAM_LOADER});
	rig_wait(&rig, 8, &result);
	assert_int_equal(result.last, WIRE_EXIT);
	assert_int_equal(result.exit.code, 0);
	assert_int_equal(result.out_bytes, 5 * sizeof(*records));
	records = (const struct loader_record *)(const void *)result.out;
	assert_int_equal(records[0].type, LOADER_ASSET);
	assert_string_equal(records[0].name, "a.yaml");
	assert_int_equal(records[1].type, LOADER_PROBLEM);
	assert_int_equal(records[1].line, 2);
	assert_int_equal(records[2].type, LOADER_ASSET);
	assert_int_equal(records[3].type, LOADER_STORED);
	assert_int_equal(records[4].type, LOADER_END);
	assert_int_equal(records[4].n_documents, 2);
	rig_result_done(&result);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_put_makes_file_of_user),
		cmocka_unit_test(test_put_of_one_mebibyte_in_one_go),
		cmocka_unit_test(test_put_refuses_paths_that_lead_out),
		cmocka_unit_test(test_put_of_wrong_size_leaves_nothing),
		cmocka_unit_test(test_put_on_full_disk_says_so_and_cleans_up),
		cmocka_unit_test(test_helper_that_is_killed_is_made_again),
		cmocka_unit_test(test_file_that_nobody_takes_is_refused),
		cmocka_unit_test(test_helper_that_dies_at_work_is_said),
		cmocka_unit_test(test_loader_reports_components),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
