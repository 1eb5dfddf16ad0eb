/*
 * Templates: names and records, the documents of an image, and whole jobs in a folder of the
 * test's.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/template.h"

#include "jail/template/oci.h"
#include "jail/template/trash.h"
#include "jail/template/tree.h"
#include "tests/lib/test.h"

#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define MANIFEST                                                                                   \
	"\"mediaType\":\"application/vnd.oci.image.manifest.v1+json\",\"size\":7,\"digest\":"      \
	"\"sha256:" HEX "\""

static void test_template_name_is_valid(void **state)
{
	static const char *const good[] = {"a", "0", "base", "a.b_c-d", "9-"};
	static const char *const bad[] = {"",   ".", "..",  ".a",  "-a",
					  "_a", "A", "a/b", "a b", "a\n"};
	char name[TEMPLATE_NAME_BYTES + 1];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		assert_true(template_name_is_valid(good[i]));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_false(template_name_is_valid(bad[i]));
	memset(name, 'a', sizeof(name));
	name[TEMPLATE_NAME_BYTES - 1] = '\0';
	assert_true(template_name_is_valid(name));
	name[TEMPLATE_NAME_BYTES - 1] = 'a';
	name[TEMPLATE_NAME_BYTES] = '\0';
	assert_false(template_name_is_valid(name));
}

static int make_folder(char path[32])
{
	(void)snprintf(path, 32, "/tmp/test-template-XXXXXX");
	assert_non_null(mkdtemp(path));
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

static void write_record(int folder_fd, const void *data, size_t size)
{
	AUTO_CLOSE int fd = openat(folder_fd, TEMPLATE_RECORD_FILE,
				   O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(io_write_all(fd, data, size), 0);
}

static const struct template_record usual = {
	.magic = TEMPLATE_MAGIC,
	.version = TEMPLATE_VERSION,
	.size = sizeof(struct template_record),
	.n_inodes = 1,
};

static int read_changed(int folder_fd, size_t at, uint8_t byte)
{
	union {
		struct template_record record;
		uint8_t bytes[sizeof(struct template_record)];
	} changed = {.record = usual};
	struct template_record record;

	changed.bytes[at] = byte;
	write_record(folder_fd, &changed, sizeof(changed));
	return template_record_open(folder_fd, &record);
}

static void test_template_record_open_checks_each_field(void **state)
{
	struct template_record record;
	uint8_t longer[sizeof(record) + 1] = {0};
	char path[32];
	AUTO_CLOSE int fd = make_folder(path);
	AUTO_CLOSE int record_fd = -1;

	(void)state;
	assert_int_equal(template_record_open(fd, &record), -ENOENT);
	write_record(fd, &usual, sizeof(usual));
	record_fd = template_record_open(fd, &record);
	assert_true(record_fd >= 0);
	assert_memory_equal(&record, &usual, sizeof(usual));
	assert_int_equal(read_changed(fd, offsetof(struct template_record, magic), 1), -EINVAL);
	assert_int_equal(read_changed(fd, offsetof(struct template_record, version), 2), -EPROTO);
	assert_int_equal(read_changed(fd, offsetof(struct template_record, size), 73), -EPROTO);
	assert_int_equal(read_changed(fd, offsetof(struct template_record, id_base), 1), -EINVAL);
	assert_int_equal(read_changed(fd, offsetof(struct template_record, reserved), 1), -EINVAL);
	assert_int_equal(read_changed(fd, offsetof(struct template_record, n_inodes), 0), -EINVAL);
	memcpy(longer, &usual, sizeof(usual));
	write_record(fd, longer, sizeof(longer));
	assert_int_equal(template_record_open(fd, &record), -EPROTO);
	write_record(fd, &usual, sizeof(usual) - 1);
	assert_int_equal(template_record_open(fd, &record), -EPROTO);
	write_record(fd, &usual, sizeof(usual));
	assert_int_equal(fchmodat(fd, TEMPLATE_RECORD_FILE, 0640, 0), 0);
	assert_int_equal(template_record_open(fd, &record), -EPERM);
	assert_int_equal(unlinkat(fd, TEMPLATE_RECORD_FILE, 0), 0);
	assert_int_equal(symlinkat("/etc/passwd", fd, TEMPLATE_RECORD_FILE), 0);
	assert_int_equal(template_record_open(fd, &record), -ELOOP);
	assert_int_equal(unlinkat(fd, TEMPLATE_RECORD_FILE, 0), 0);
	assert_int_equal(rmdir(path), 0);
}

static void test_template_hold_counts_until_closed(void **state)
{
	struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	struct template_record record;
	char path[32];
	AUTO_CLOSE int fd = make_folder(path);
	AUTO_CLOSE int writer_fd = -1;
	int holder_fd[3];
	uint32_t n = 9;

	(void)state;
	write_record(fd, &usual, sizeof(usual));
	for (uint32_t i = 0; i < 3; i++) {
		holder_fd[i] = template_record_open(fd, &record);
		assert_true(holder_fd[i] >= 0);
		assert_int_equal(template_count_users(holder_fd[i], &n), 0);
		assert_int_equal(n, i);
		assert_int_equal(template_hold(holder_fd[i], 8 + i), 0);
	}
	writer_fd = openat(fd, TEMPLATE_RECORD_FILE, O_RDWR | O_CLOEXEC);
	assert_true(writer_fd >= 0);
	assert_int_equal(template_count_users(writer_fd, &n), 0);
	assert_int_equal(n, 3);
	assert_int_equal(fcntl(writer_fd, F_OFD_SETLK, &whole), -1);
	for (int i = 0; i < 3; i++)
		(void)fd_close(holder_fd[i]);
	assert_int_equal(fcntl(writer_fd, F_OFD_SETLK, &whole), 0);
	/* It is being removed; then it was. */
	holder_fd[0] = template_record_open(fd, &record);
	assert_int_equal(template_hold(holder_fd[0], 8), -ENOENT);
	assert_int_equal(unlinkat(fd, TEMPLATE_RECORD_FILE, 0), 0);
	writer_fd = fd_close(writer_fd);
	assert_int_equal(template_hold(holder_fd[0], 8), -ENOENT);
	(void)fd_close(holder_fd[0]);
	assert_int_equal(rmdir(path), 0);
}

static void test_oci_platform_parse(void **state)
{
	static const char *const bad[] = {
		"", "linux", "linux/", "/amd64", "linux/arm64/", "linux/arm64/v8/", "linux//v8"};
	struct oci_platform platform;

	(void)state;
	assert_int_equal(oci_platform_parse("linux/amd64", &platform), 0);
	assert_string_equal(platform.os, "linux");
	assert_string_equal(platform.architecture, "amd64");
	assert_string_equal(platform.variant, "");
	assert_int_equal(oci_platform_parse("linux/arm64/v8", &platform), 0);
	assert_string_equal(platform.variant, "v8");
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(oci_platform_parse(bad[i], &platform), -EINVAL);
}

static int choose(const char *text, const char *ref)
{
	static const struct oci_platform platform = {.os = "linux", .architecture = "amd64"};
	struct oci_blob blob;

	return oci_choose(text, strlen(text), &platform, ref, &blob);
}

static void test_oci_choose(void **state)
{
	static const struct {
		const char *text;
		const char *ref;
		int result;
	} rows[] = {
		{"{\"schemaVersion\":2,\"manifests\":[{" MANIFEST "}]}",                               "",  0                      },
 /* Under two tags it is one. */
		{"{\"schemaVersion\":2,\"manifests\":[{" MANIFEST "},{" MANIFEST "}]}",                "",  0                      },
		{"{\"schemaVersion\":2,\"manifests\":[{" MANIFEST "}]}",                               "a", TEMPLATE_E_OCI_REF     },
		{"{\"schemaVersion\":2,\"manifests\":[{" MANIFEST
		 ",\"annotations\":{\"org.opencontainers.image.ref.name\":\"a\"}}]}", "a", 0                      },
		{"{\"schemaVersion\":2,\"manifests\":[{" MANIFEST
		 ",\"platform\":{\"os\":\"linux\",\"architecture\":\"arm64\"}}]}",    "",  TEMPLATE_E_OCI_PLATFORM},
		{"{\"schemaVersion\":2,\"manifests\":[]}",                                             "",  TEMPLATE_E_OCI_PLATFORM},
		{"{\"schemaVersion\":1,\"manifests\":[{" MANIFEST "}]}",                               "",  TEMPLATE_E_OCI         },
		{"{\"schemaVersion\":2,\"manifests\":{}}",                                             "",  TEMPLATE_E_OCI         },
		{"{\"schemaVersion\":2,\"manifests\":[7]}",                                            "",  TEMPLATE_E_OCI         },
		{"{\"schemaVersion\":2,\"manifests\":[{" MANIFEST ",\"size\":7}]}",                    "",
		 TEMPLATE_E_OCI												    },
		{"[]",										 "",  TEMPLATE_E_OCI         },
		{"",										   "",  TEMPLATE_E_OCI         },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		assert_int_equal(choose(rows[i].text, rows[i].ref), rows[i].result);
}

/* Deeper than any path is long: no recursion, no descriptor for each. */
static void test_trash_empty_removes_a_deep_tree(void **state)
{
	struct bounds bounds = {.max_inodes = 100000};
	struct trash trash;
	char path[32];
	AUTO_CLOSE int top_fd = make_folder(path);
	AUTO_CLOSE int fd = -1;

	(void)state;
	assert_int_equal(mkdirat(top_fd, "work", 0700), 0);
	fd = openat(top_fd, "work", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	for (int i = 0; i < 3000; i++) {
		assert_int_equal(mkdirat(fd, "folder", 0700), 0);
		assert_int_equal(mkdirat(fd, "empty", 0700), 0);
		assert_int_equal(symlinkat("/etc", fd, "link"), 0);
		int next = openat(fd, "folder", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(next >= 0);
		(void)fd_close(fd);
		fd = next;
	}
	bounds.report.n_inodes = 9001;
	assert_int_equal(trash_open(&trash, top_fd, &bounds), 0);
	assert_int_equal(trash_put(&trash, top_fd, "work"), 0);
	assert_int_equal(trash_empty(&trash), 0);
	assert_int_equal(trash_remove(&trash), 0);
	trash_done(&trash);
	assert_int_equal(bounds.report.n_inodes, 0);
	assert_int_equal(rmdir(path), 0);
}

static void test_tree_makes_nothing_through_a_link(void **state)
{
	const struct tree_attributes attributes = {
		.mode = 0755, .uid = geteuid(), .gid = getegid()};
	struct bounds bounds = {.max_inodes = 100, .max_bytes = 100};
	struct trash trash;
	struct tree tree;
	char path[32];
	char outside[32];
	AUTO_CLOSE int top_fd = make_folder(path);
	AUTO_CLOSE int outside_fd = make_folder(outside);
	AUTO_CLOSE int root_fd = -1;

	(void)state;
	assert_int_equal(trash_open(&trash, top_fd, &bounds), 0);
	assert_int_equal(mkdirat(top_fd, "root", 0755), 0);
	root_fd = openat(top_fd, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	tree_init(&tree, root_fd, &bounds, &trash);
	assert_int_equal(tree_make_link(&tree, "out", outside, &attributes), 0);
	assert_int_equal(tree_make_folder(&tree, "out/a", &attributes), -1);
	assert_int_equal(bounds.report.error, TEMPLATE_E_LINK_ON_WAY);
	bounds.report.error = TEMPLATE_E_NONE;
	assert_int_equal(tree_make_file(&tree, "out/b", 1), -1);
	assert_int_equal(tree_remove(&tree, "out/b"), -1);
	assert_int_equal(tree_remove_children(&tree, "out"), -1);
	/* The control: the name does lead there. */
	assert_int_equal(mkdirat(root_fd, "out/made", 0755), 0);
	assert_int_equal(unlinkat(outside_fd, "made", AT_REMOVEDIR), 0);
	bounds.report.error = TEMPLATE_E_NONE;
	assert_int_equal(tree_make_folder(&tree, "out", &attributes), 0);
	assert_int_equal(tree_make_folder(&tree, "out/a", &attributes), 0);
	assert_int_equal(faccessat(outside_fd, "a", F_OK, 0), -1);
	tree_done(&tree);
	trash_done(&trash);
	assert_int_equal(trash_adopt(&trash, top_fd), 0);
	assert_int_equal(trash_empty(&trash), 0);
	trash_done(&trash);
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(rmdir(outside), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_template_name_is_valid),
		cmocka_unit_test(test_template_record_open_checks_each_field),
		cmocka_unit_test(test_template_hold_counts_until_closed),
		cmocka_unit_test(test_oci_platform_parse),
		cmocka_unit_test(test_oci_choose),
		cmocka_unit_test(test_trash_empty_removes_a_deep_tree),
		cmocka_unit_test(test_tree_makes_nothing_through_a_link),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
