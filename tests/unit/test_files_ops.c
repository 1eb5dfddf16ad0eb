/*
 * What the file helper does below a folder, without a shim around it: paths with every trick,
 * ranges, puts that end early, and a folder that is full.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/io.h"
#include "base/sockmsg.h"
#include "base/str.h"

#include "shim/files_ops.h"
#include "shim/files_tree.h"
#include "shim/message.h"
#include "tests/lib/test.h"

#define FOUND_MAX_BYTES 65536

struct rig {
	struct test_temp temp;
	struct frame_file file;
	uint8_t found[FOUND_MAX_BYTES];
	size_t n_found;
};

static void begin(struct rig *rig)
{
	memset(rig, 0, sizeof(*rig));
	test_temp_init(&rig->temp);
}

static struct wire_file_entry entry_of(const struct rig *rig)
{
	struct wire_file_entry entry;

	assert_true(rig->n_found >= sizeof(entry));
	memcpy(&entry, rig->found, sizeof(entry));
	return entry;
}

/* Its error, positive; 0: done. Takes in_fd. */
static int operate_with(struct rig *rig, int socket_fd, int in_fd)
{
	struct files_result result;
	int out[2];
	ssize_t n;

	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	files_operate(
		&(const struct files_operation){
			.file = &rig->file,
			.root_fd = rig->temp.fd,
			.to_root_fd = rig->temp.fd,
			.socket_fd = socket_fd,
			.out_fd = out[1],
			.in_fd = in_fd,
		},
		&result);
	(void)fd_close(out[1]);
	(void)fd_close(in_fd);
	rig->n_found = 0;
	while ((n = io_read(out[0], rig->found + rig->n_found, FOUND_MAX_BYTES - rig->n_found)) > 0)
		rig->n_found += (size_t)n;
	(void)fd_close(out[0]);
	assert_int_equal(result.step != 0, result.error_number != 0);
	return result.error_number;
}

/* Whose pid 1 says that. 0: it is gone. */
static int copy_with(struct rig *rig, uint32_t type)
{
	const uint64_t none = 0;
	const struct message message = {.type = type,
					.n_bytes = type == MESSAGE_COMMIT ? sizeof(none) : 0};
	int pair[2];
	int r;

	assert_int_equal(sockmsg_pair(pair, 0), 0);
	if (type != 0)
		assert_int_equal(message_send(pair[1], &message, &none, NULL, 0), 0);
	else
		pair[1] = fd_close(pair[1]);
	r = operate_with(rig, pair[0], -1);
	(void)fd_close(pair[0]);
	(void)fd_close(pair[1]);
	return r;
}

static int operate(struct rig *rig, uint16_t op, const char *path, uint16_t flags)
{
	rig->file.path = path;
	rig->file.head.op = op;
	rig->file.head.flags = flags;
	rig->file.head.mode = UINT32_MAX;
	return op == WIRE_FILE_COPY ? copy_with(rig, MESSAGE_COMMIT) : operate_with(rig, -1, -1);
}

static int operate_to(struct rig *rig, uint16_t op, const char *path, const char *to,
		      uint16_t flags)
{
	rig->file.to = to;
	return operate(rig, op, path, flags);
}

/* A put of `text`, whose end says that it was `committed` bytes; SIZE_MAX: it says nothing. */
static int put(struct rig *rig, const char *path, const char *text, uint64_t committed,
	       uint16_t flags)
{
	const struct message commit = {.type = MESSAGE_COMMIT, .n_bytes = sizeof(committed)};
	int pair[2];
	int in[2];
	int r;

	assert_int_equal(sockmsg_pair(pair, 0), 0);
	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(io_write_all(in[1], text, strlen(text)), 0);
	(void)fd_close(in[1]);
	if (committed != SIZE_MAX)
		assert_int_equal(message_send(pair[1], &commit, &committed, NULL, 0), 0);
	(void)fd_close(pair[1]);
	rig->file.path = path;
	rig->file.head.op = WIRE_FILE_PUT;
	rig->file.head.flags = flags;
	rig->file.head.mode = UINT32_MAX;
	r = operate_with(rig, pair[0], in[0]);
	(void)fd_close(pair[0]);
	return r;
}

static void check_content(const struct rig *rig, const char *name, const char *expected)
{
	int fd = openat(rig->temp.fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	char text[4096] = {0};

	assert_true(fd >= 0);
	assert_true(io_read(fd, text, sizeof(text) - 1) >= 0);
	assert_string_equal(text, expected);
	(void)fd_close(fd);
}

/* Names in the folder, a temporary one of the helper's among them or not. */
static size_t count_names(struct rig *rig)
{
	size_t n = 0;
	size_t at = 0;

	rig->file.head.size = 1000;
	assert_int_equal(operate(rig, WIRE_FILE_LIST, ".", 0), 0);
	while (at < rig->n_found) {
		struct wire_file_entry entry;

		memcpy(&entry, rig->found + at, sizeof(entry));
		at += sizeof(entry) + entry.name_bytes + entry.target_bytes;
		n++;
	}
	assert_int_equal(at, rig->n_found);
	return n;
}

static void make_tricks(const struct rig *rig)
{
	static const struct {
		const char *name;
		const char *target;
	} links[] = {
		{"in/up",    ".."           },
                {"to-in",    "in"           },
		{"to-file",  "in/file"      },
                {"absolute", "/etc"         },
		{"above",    "../.."        },
                {"circle-a", "circle-b"     },
		{"circle-b", "circle-a"     },
                {"magic",    "/proc/self/fd"},
		{"dangling", "nowhere"      },
                {"out-file", "/etc/passwd"  },
	};

	assert_int_equal(mkdirat(rig->temp.fd, "in", 0755), 0);
	test_temp_write(&rig->temp, "in/file", "inside");
	for (size_t i = 0; i < ARRAY_SIZE(links); i++)
		assert_int_equal(symlinkat(links[i].target, rig->temp.fd, links[i].name), 0);
	assert_int_equal(mkfifoat(rig->temp.fd, "fifo", 0644), 0);
	assert_int_equal(mknodat(rig->temp.fd, "socket", S_IFSOCK | 0644, 0), 0);
}

static void test_get_of_each_path_is_as_expected(void **state)
{
	static const struct {
		const char *path;
		int error;
	} rows[] = {
		{"in/file",             0      },
		{"to-in/file",          0      },
		{"to-file",             0      },
		{"in/up/in/up/in/file", 0      },
		{"in",                  EISDIR },
		{".",                   EISDIR },
		{"none",                ENOENT },
		{"dangling",            ENOENT },
		{"in/file/x",           ENOTDIR},
		{"absolute/passwd",     EXDEV  },
		{"above/etc/passwd",    EXDEV  },
		{"in/up/up/etc",        ENOENT },
		{"circle-a",            ELOOP  },
		{"circle-a/x",          ELOOP  },
		{"magic/0",             EXDEV  },
		{"out-file",            EXDEV  },
		{"fifo",                ENXIO  },
		{"socket",              ENXIO  },
	};
	static struct rig rig;

	(void)state;
	begin(&rig);
	make_tricks(&rig);
	rig.file.head.size = UINT64_MAX;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		int error = operate(&rig, WIRE_FILE_GET, rows[i].path, 0);

		if (error != rows[i].error)
			fail_msg("%s: %d instead of %d", rows[i].path, error, rows[i].error);
		if (error == 0)
			assert_memory_equal(rig.found + sizeof(struct wire_file_entry), "inside",
					    6);
		else
			assert_int_equal(rig.n_found, 0);
	}
	test_temp_done(&rig.temp);
}

static void test_change_by_each_path_stays_inside(void **state)
{
	static const struct {
		const char *path;
		int error;
	} rows[] = {
		{"to-in/new",      0      },
                {"new/er/new",     0      },
		{"to-file",        0      },
                {"out-file",       0      },
		{"in",             EISDIR },
                {".",              EISDIR },
		{"fifo",           ENXIO  },
                {"socket",         ENXIO  },
		{"absolute/new",   EXDEV  },
                {"above/new",      EXDEV  },
		{"circle-a/new",   ELOOP  },
                {"magic/new",      EXDEV  },
		{"in/file/new",    ENOTDIR},
                {"dangling/x/new", EEXIST },
	};
	static struct rig rig;

	(void)state;
	begin(&rig);
	make_tricks(&rig);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		int error = put(&rig, rows[i].path, "put", 3, 0);

		if (error != rows[i].error &&
		    !(rows[i].error == EEXIST && (error == ENOENT || error == ENOTDIR)))
			fail_msg("%s: %d instead of %d", rows[i].path, error, rows[i].error);
	}
	/* The links themselves were replaced. */
	check_content(&rig, "to-file", "put");
	check_content(&rig, "out-file", "put");
	check_content(&rig, "in/file", "inside");
	assert_int_equal(operate(&rig, WIRE_FILE_REMOVE, "absolute/passwd", 0), EXDEV);
	assert_int_equal(operate(&rig, WIRE_FILE_REMOVE, ".", WIRE_FILE_RECURSIVE), EBUSY);
	assert_int_equal(operate_to(&rig, WIRE_FILE_MOVE, "in/file", "above/x", 0), EXDEV);
	assert_int_equal(operate_to(&rig, WIRE_FILE_COPY, "in/file", "magic/x", 0), EXDEV);
	assert_int_equal(operate_to(&rig, WIRE_FILE_COPY, "out-file", "copied", 0), 0);
	assert_int_equal(operate_to(&rig, WIRE_FILE_MOVE, "in", "in/below", 0), EINVAL);
	assert_int_equal(operate(&rig, WIRE_FILE_CHMOD, "circle-a", 0), ELOOP);
	test_temp_done(&rig.temp);
}

static void test_get_gives_the_range(void **state)
{
	static const struct {
		uint64_t offset;
		uint64_t size;
		uint16_t flags;
		size_t from;
		size_t n;
	} rows[] = {
		{0,              UINT64_MAX,     0,              0,   256},
		{0,              0,              0,              0,   0  },
		{0,              1,              0,              0,   1  },
		{255,            UINT64_MAX,     0,              255, 1  },
		{256,            UINT64_MAX,     0,              0,   0  },
		{UINT64_MAX - 1, UINT64_MAX,     0,              0,   0  },
		{10,             20,             0,              10,  20 },
		{250,            20,             0,              250, 6  },
		{0,              5,              WIRE_FILE_LAST, 251, 5  },
		{0,              300,            WIRE_FILE_LAST, 0,   256},
		{0,              UINT64_MAX - 1, WIRE_FILE_LAST, 0,   256},
	};
	static struct rig rig;
	char text[257];

	(void)state;
	begin(&rig);
	for (int i = 0; i < 256; i++)
		text[i] = (char)(' ' + i % 90);
	text[256] = '\0';
	test_temp_write(&rig.temp, "f", text);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		rig.file.head.offset = rows[i].offset;
		rig.file.head.size = rows[i].size;
		assert_int_equal(operate(&rig, WIRE_FILE_GET, "f", rows[i].flags), 0);
		assert_int_equal(entry_of(&rig).size, 256);
		assert_int_equal(rig.n_found, sizeof(struct wire_file_entry) + rows[i].n);
		assert_memory_equal(rig.found + sizeof(struct wire_file_entry), text + rows[i].from,
				    rows[i].n);
	}
	test_temp_done(&rig.temp);
}

static void test_put_that_is_not_whole_changes_nothing(void **state)
{
	static struct rig rig;

	(void)state;
	begin(&rig);
	assert_int_equal(put(&rig, "f", "old", 3, 0), 0);
	assert_int_equal(put(&rig, "f", "new", SIZE_MAX, 0), ECANCELED);
	assert_int_equal(put(&rig, "f", "new", 4, 0), ECANCELED);
	assert_int_equal(put(&rig, "f", "new", 2, 0), ECANCELED);
	assert_int_equal(put(&rig, "f", "", SIZE_MAX, 0), ECANCELED);
	assert_int_equal(put(&rig, "none", "new", SIZE_MAX, 0), ECANCELED);
	assert_int_equal(put(&rig, "f", "new", 3, WIRE_FILE_KEEP), EEXIST);
	check_content(&rig, "f", "old");
	assert_int_equal(count_names(&rig), 1);
	assert_int_equal(put(&rig, "f", "new", 3, 0), 0);
	assert_int_equal(entry_of(&rig).size, 3);
	assert_int_equal(put(&rig, "g", "kept", 4, WIRE_FILE_KEEP), 0);
	check_content(&rig, "f", "new");
	assert_int_equal(count_names(&rig), 2);
	test_temp_done(&rig.temp);
}

static void test_copy_that_is_not_committed(void **state)
{
	static const uint32_t instead[] = {0, MESSAGE_CANCEL, MESSAGE_TERM};
	static struct rig rig;

	(void)state;
	begin(&rig);
	test_temp_write(&rig.temp, "f", "x");
	assert_int_equal(mkdirat(rig.temp.fd, "d", 0755), 0);
	test_temp_write(&rig.temp, "d/f", "x");
	for (size_t i = 0; i < ARRAY_SIZE(instead); i++) {
		rig.file.head = (struct wire_file){.op = WIRE_FILE_COPY, .mode = UINT32_MAX};
		rig.file.path = "f";
		rig.file.to = "copy";
		assert_int_not_equal(copy_with(&rig, instead[i]), 0);
		rig.file.path = "d";
		rig.file.head.flags = WIRE_FILE_RECURSIVE;
		assert_int_not_equal(copy_with(&rig, instead[i]), 0);
		assert_int_equal(count_names(&rig), 2);
	}
	assert_int_equal(operate_to(&rig, WIRE_FILE_COPY, "d", "copy", WIRE_FILE_RECURSIVE), 0);
	assert_int_equal(count_names(&rig), 3);
	test_temp_done(&rig.temp);
}

static void test_folders_that_are_odd(void **state)
{
	char name[16];
	static struct rig rig;
	int at;

	(void)state;
	begin(&rig);
	/* Deeper than a copy goes and a walk has descriptors. */
	at = fd_dup(rig.temp.fd, 3);
	for (int i = 0; i < 200; i++) {
		int next;

		assert_int_equal(str_format(name, sizeof(name), "d%d", i == 0 ? 0 : 1), 0);
		assert_int_equal(mkdirat(at, name, 0755), 0);
		next = openat(at, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
		(void)fd_close(at);
		at = next;
	}
	(void)fd_close(at);
	assert_int_equal(operate_to(&rig, WIRE_FILE_COPY, "d0", "copy", WIRE_FILE_RECURSIVE),
			 ENAMETOOLONG);
	assert_int_equal(count_names(&rig), 1);
	assert_int_equal(operate(&rig, WIRE_FILE_REMOVE, "d0", 0), ENOTEMPTY);
	assert_int_equal(operate(&rig, WIRE_FILE_REMOVE, "d0", WIRE_FILE_RECURSIVE), 0);
	assert_int_equal(count_names(&rig), 0);
	/* Something in it that is no file. */
	assert_int_equal(mkdirat(rig.temp.fd, "a", 0755), 0);
	test_temp_write(&rig.temp, "a/f", "x");
	assert_int_equal(operate_to(&rig, WIRE_FILE_COPY, "a", "b", 0), EISDIR);
	assert_int_equal(operate_to(&rig, WIRE_FILE_COPY, "a", "b", WIRE_FILE_RECURSIVE), 0);
	/* Into itself. */
	assert_int_equal(operate_to(&rig, WIRE_FILE_COPY, "a", "a/again", WIRE_FILE_RECURSIVE), 0);
	check_content(&rig, "a/again/f", "x");
	assert_int_equal(mkfifoat(rig.temp.fd, "a/fifo", 0644), 0);
	assert_int_equal(operate_to(&rig, WIRE_FILE_COPY, "a", "c", WIRE_FILE_RECURSIVE), ENXIO);
	assert_int_equal(count_names(&rig), 2);
	test_temp_done(&rig.temp);
}

/* A tmpfs with little of everything, in a mount namespace of the test's own. */
static bool make_small(const struct rig *rig)
{
	return geteuid() == 0 && unshare(CLONE_NEWNS) == 0 &&
	       mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
	       mount("tmpfs", rig->temp.path, "tmpfs", 0, "size=96k,nr_inodes=8") == 0;
}

static void test_full_folder_keeps_what_it_has(void **state)
{
	struct wire_file_space space[2];
	char *large = calloc(1, 60001);
	static struct rig rig;

	(void)state;
	begin(&rig);
	assert_non_null(large);
	memset(large, 'x', 60000);
	if (!make_small(&rig)) {
		test_temp_done(&rig.temp);
		free(large);
		skip();
	}
	(void)fd_close(rig.temp.fd);
	rig.temp.fd = open(rig.temp.path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(put(&rig, "f", "old", 3, 0), 0);
	assert_int_equal(put(&rig, "g", large, 60000, 0), 0);
	assert_int_equal(put(&rig, "f", large, 60000, 0), ENOSPC);
	check_content(&rig, "f", "old");
	assert_int_equal(operate_to(&rig, WIRE_FILE_COPY, "g", "h", 0), ENOSPC);
	assert_int_equal(count_names(&rig), 2);
	/* Inodes: the folder's own and those two are gone. */
	assert_int_equal(put(&rig, "1/2/3/4/f", "x", 1, 0), 0);
	assert_int_equal(operate(&rig, WIRE_FILE_MKDIR, "more", 0), ENOSPC);
	assert_int_equal(put(&rig, "f", "new", 3, 0), ENOSPC);
	check_content(&rig, "f", "old");
	assert_int_equal(operate(&rig, WIRE_FILE_SPACE, ".", 0), 0);
	assert_int_equal(rig.n_found, sizeof(space));
	memcpy(space, rig.found, sizeof(space));
	assert_memory_equal(&space[0], &space[1], sizeof(space[0]));
	assert_int_equal(space[0].size_bytes, 98304);
	assert_int_equal(space[0].max_inodes, 8);
	assert_int_equal(space[0].used_inodes, 8);
	assert_true(space[0].used_bytes >= 60000 && space[0].used_bytes <= 98304);
	assert_int_equal(operate(&rig, WIRE_FILE_REMOVE, "1", WIRE_FILE_RECURSIVE), 0);
	assert_int_equal(put(&rig, "f", "new", 3, 0), 0);
	assert_int_equal(umount2(rig.temp.path, MNT_DETACH), 0);
	test_temp_done(&rig.temp);
	free(large);
}

static void test_watch_ends_with_its_owner(void **state)
{
	static struct rig rig;
	int pair[2];

	(void)state;
	begin(&rig);
	make_tricks(&rig);
	assert_int_equal(sockmsg_pair(pair, 0), 0);
	(void)fd_close(pair[1]);
	rig.file.path = "in";
	rig.file.head.op = WIRE_FILE_WATCH;
	assert_int_equal(operate_with(&rig, pair[0], -1), ECANCELED);
	rig.file.path = "absolute";
	assert_int_equal(operate_with(&rig, pair[0], -1), EXDEV);
	rig.file.path = "to-file";
	assert_int_equal(operate_with(&rig, pair[0], -1), ENOTDIR);
	assert_int_equal(rig.n_found, 0);
	(void)fd_close(pair[0]);
	test_temp_done(&rig.temp);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_get_of_each_path_is_as_expected),
	cmocka_unit_test(test_change_by_each_path_stays_inside),
	cmocka_unit_test(test_get_gives_the_range),
	cmocka_unit_test(test_put_that_is_not_whole_changes_nothing),
	cmocka_unit_test(test_copy_that_is_not_committed),
	cmocka_unit_test(test_folders_that_are_odd),
	cmocka_unit_test(test_watch_ends_with_its_owner),
	cmocka_unit_test(test_full_folder_keeps_what_it_has),
};

TEST_MAIN(tests)
