/*
 * The YAML checks of sandbox-loader, on the documents of tests/data/components and tests/data/yaml.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/io.h"
#include "base/str.h"

#include "jail/loader/document.h"
#include "jail/loader/folder.h"
#include "jail/loader/report.h"
#include "sandboxd/limits.h"
#include "tests/lib/test.h"

struct found {
	struct report report;
	uint32_t n_documents;
};

static void check(struct found *found, const void *text, size_t size)
{
	*found = (struct found){
		.report = {.records = BUF_NULL(1024 * 1024), .name = "x.yaml"}
        };
	assert_int_equal(document_check(&found->report, text, size, &found->n_documents), 0);
}

static const struct loader_record *problem(const struct found *found, size_t index)
{
	assert_true(index < found->report.n_problems);
	return (const struct loader_record *)(const void *)found->report.records.data + index;
}

static void done(struct found *found)
{
	buf_done(&found->report.records);
}

static void expect_problem(const char *text, size_t size, uint32_t line, const char *part)
{
	struct found found;

	check(&found, text, size);
	assert_true(found.report.n_problems > 0);
	assert_int_equal(problem(&found, 0)->line, line);
	if (!strstr(problem(&found, 0)->text, part))
		fail_msg("\"%s\" is not in \"%s\"", part, problem(&found, 0)->text);
	done(&found);
}

static void expect_file(const char *name, uint32_t line, const char *part)
{
	AUTO_CLOSE int dir_fd = open(TEST_DATA_DIR "/yaml", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	AUTO_CLOSE int fd = -1;
	AUTO_FREE char *text = NULL;
	struct found found;
	size_t size;

	assert_true(dir_fd >= 0);
	fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(io_read_file(fd, COMPONENT_BODY_MAX_BYTES, &text, &size), 0);
	if (part) {
		expect_problem(text, size, line, part);
		return;
	}
	check(&found, text, size);
	if (found.report.n_problems > 0)
		fail_msg("%s: %s", name, problem(&found, 0)->text);
	done(&found);
}

static void test_check_hostile_files_name_line_and_reason(void **state)
{
	static const struct {
		const char *name;
		uint32_t line;
		const char *part; /* NULL: no problem */
	} rows[] = {
		{"alias_bomb.yaml",         9,  "too many nodes"        },
		{"alias_many.yaml",         4,  "too many aliases"      },
		{"alias_recursive.yaml",    3,  "inside its own node"   },
		{"alias_undefined.yaml",    2,  "unknown anchor"        },
		{"block_deep.yaml",         66, "nested too deeply"     },
		{"bom.yaml",                0,  NULL                    },
		{"comment_only.yaml",       0,  "no component found"    },
		{"complex_key.yaml",        2,  "no text"               },
		{"control.yaml",            2,  "control characters"    },
		{"crlf.yaml",               0,  NULL                    },
		{"duplicate_keys.yaml",     5,  "in the mapping already"},
		{"empty.yaml",              0,  "no component found"    },
		{"flow_deep.yaml",          2,  "nested too deeply"     },
		{"latin1.yaml",             2,  "not UTF-8"             },
		{"list.yaml",               1,  "no mapping"            },
		{"markers_only.yaml",       2,  "no mapping"            },
		{"merge_type.yaml",         0,  NULL                    },
		{"no_type.yaml",            1,  "no type"               },
		{"nul.yaml",                3,  "NUL"                   },
		{"scalar.yaml",             1,  "no mapping"            },
		{"second_bad.yaml",         5,  "flow"                  },
		{"surrogate.yaml",          2,  "not UTF-8"             },
		{"tabs.yaml",               3,  "cannot start any token"},
		{"tag_object.yaml",         2,  "unknown tag"           },
		{"type_list.yaml",          1,  "no text"               },
		{"type_null.yaml",          1,  "no text"               },
		{"type_number.yaml",        1,  "no text"               },
		{"type_quoted_number.yaml", 0,  NULL                    },
		{"unclosed.yaml",           3,  "did not find"          },
		{"unknown_key.yaml",        2,  "unknown key"           },
		{"utf16be.yaml",            1,  "UTF-16"                },
		{"utf16le.yaml",            1,  "UTF-16"                },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		print_message("%s\n", rows[i].name);
		expect_file(rows[i].name, rows[i].line, rows[i].part);
	}
}

/* 200 KB of one opening character: refused at the depth limit, long before libyaml gets slow. */
static void test_check_many_openings_stop_early(void **state)
{
	static const char openings[] = "[{?-";
	char *text = malloc(200000);

	(void)state;
	assert_non_null(text);
	for (const char *at = openings; *at; at++) {
		for (size_t i = 0; i < 200000; i++)
			text[i] = i % 2 == 0 || *at == '[' || *at == '{' ? *at : ' ';
		if (*at == '[' || *at == '-')
			expect_problem(text, 200000, 1, "no mapping");
		else
			expect_problem(text, 200000, 1, "no text");
	}
	free(text);
}

static void test_check_largest_scalar_is_fine(void **state)
{
	static const char head[] = "type: x.Y\nattributes:\n  a: \"";
	struct found found;
	char *text = malloc(COMPONENT_BODY_MAX_BYTES);

	(void)state;
	assert_non_null(text);
	memset(text, 'x', COMPONENT_BODY_MAX_BYTES);
	memcpy(text, head, sizeof(head) - 1);
	text[COMPONENT_BODY_MAX_BYTES - 2] = '"';
	text[COMPONENT_BODY_MAX_BYTES - 1] = '\n';
	check(&found, text, COMPONENT_BODY_MAX_BYTES);
	assert_int_equal(found.report.n_problems, 0);
	assert_int_equal(found.n_documents, 1);
	done(&found);
	free(text);
}

static void test_check_problems_of_a_file_are_bounded(void **state)
{
	struct found found;
	char *text = malloc(40000);

	(void)state;
	assert_non_null(text);
	for (size_t i = 0; i < 10000; i++)
		memcpy(text + 4 * i, "k: \n", 4);
	check(&found, text, 40000);
	assert_int_equal(found.report.n_problems, REPORT_FILE_MAX_PROBLEMS);
	done(&found);
	free(text);
}

/* Every cut and every flipped byte of a document is handled; sanitizers look on. */
static void test_check_damaged_documents_are_handled(void **state)
{
	static const char text[] =
		"type: x.Y\nattributes: &a\n  k: [1, {b: \"\\u00e9\", c: *a}]\n"
		"  l: |\n    text\n---\n!!map {type: z, post_processing: ~}\n...\n";
	char copy[sizeof(text)];
	struct found found;

	(void)state;
	for (size_t i = 0; i < sizeof(text) - 1; i++) {
		check(&found, text, i);
		done(&found);
		for (unsigned int bit = 0; bit < 8; bit++) {
			memcpy(copy, text, sizeof(text));
			copy[i] = (char)(copy[i] ^ (1 << bit));
			check(&found, copy, sizeof(text) - 1);
			done(&found);
		}
	}
}

/* Type, name, line of each record. */
static void load(const struct test_temp *temp, struct buf *ret_records)
{
	struct report report = {.records = BUF_NULL(64 * sizeof(struct loader_record))};
	int fd = openat(temp->fd, "records", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	char *data = NULL;
	size_t size;

	assert_true(fd >= 0);
	assert_int_equal(folder_load(temp->fd, &report, fd), 0);
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	assert_int_equal(io_read_file(fd, 1024 * 1024, &data, &size), 0);
	*ret_records = BUF_NULL(1024 * 1024);
	assert_int_equal(buf_append(ret_records, data, size), 0);
	free(data);
	(void)fd_close(fd);
	buf_done(&report.records);
}

static void test_load_takes_regular_files_of_the_top_level(void **state)
{
	static const struct {
		uint32_t type;
		const char *name;
	} rows[] = {
		{LOADER_ASSET,   "B.yaml"  },
                {LOADER_ASSET,   "a.yaml"  },
		{LOADER_STORED,  "a.yml"   },
                {LOADER_PROBLEM, "b.yaml"  },
		{LOADER_ASSET,   "b.yaml"  },
                {LOADER_PROBLEM, "big.yaml"},
		{LOADER_ASSET,   "big.yaml"},
                {LOADER_ASSET,   "z.z.yaml"},
		{LOADER_END,     ""        },
	};
	const struct loader_record *record;
	struct test_temp temp;
	struct buf records;
	int fd;

	(void)state;
	test_temp_init(&temp);
	test_temp_write(&temp, "a.yaml", "type: x.Y\n---\ntype: x.Z\n");
	test_temp_write(&temp, "B.yaml", "type: x.Y\n");
	test_temp_write(&temp, "a.yml", "type: x.Y\n");
	test_temp_write(&temp, "b.yaml", "type: x.Y\nattributes: [\n");
	test_temp_write(&temp, "z.z.yaml", "type: x.Y\n");
	test_temp_write(&temp, "notes.txt", "x");
	test_temp_write(&temp, "a.YAML", "x");
	fd = openat(temp.fd, "big.yaml", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(ftruncate(fd, COMPONENT_BODY_MAX_BYTES + 1), 0);
	(void)fd_close(fd);
	assert_int_equal(mkdirat(temp.fd, "dir.yaml", 0700), 0);
	assert_int_equal(symlinkat("/etc/passwd", temp.fd, "link.yaml"), 0);
	assert_int_equal(mkfifoat(temp.fd, "fifo.yaml", 0600), 0);
	load(&temp, &records);
	assert_int_equal(records.size, ARRAY_SIZE(rows) * sizeof(*record));
	record = (const struct loader_record *)(const void *)records.data;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_int_equal(record[i].magic, LOADER_MAGIC);
		assert_int_equal(record[i].type, rows[i].type);
		assert_string_equal(record[i].name, rows[i].name);
	}
	assert_int_equal(record[1].n_documents, 2);
	assert_int_equal(record[8].n_documents, 5);
	buf_done(&records);
	test_temp_done(&temp);
}

static void test_load_own_components_have_one_broken_file(void **state)
{
	struct report report = {.records = BUF_NULL(64 * sizeof(struct loader_record))};
	AUTO_CLOSE int dir_fd =
		open(TEST_DATA_DIR "/components", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int pipe_fds[2];
	AUTO_FREE char *data = NULL;
	const struct loader_record *record;
	size_t size;
	size_t n_problems = 0;

	(void)state;
	assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
	assert_int_equal(folder_load(dir_fd, &report, pipe_fds[1]), 0);
	(void)fd_close(pipe_fds[1]);
	assert_int_equal(io_read_file(pipe_fds[0], 1024 * 1024, &data, &size), 0);
	(void)fd_close(pipe_fds[0]);
	record = (const struct loader_record *)(const void *)data;
	for (size_t i = 0; i < size / sizeof(*record); i++) {
		if (record[i].type != LOADER_PROBLEM)
			continue;
		n_problems++;
		assert_string_equal(record[i].name, "wrong_indent.yaml");
		assert_int_equal(record[i].line, 7);
	}
	assert_int_equal(n_problems, 1);
	buf_done(&report.records);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_check_hostile_files_name_line_and_reason),
	cmocka_unit_test(test_check_many_openings_stop_early),
	cmocka_unit_test(test_check_largest_scalar_is_fine),
	cmocka_unit_test(test_check_problems_of_a_file_are_bounded),
	cmocka_unit_test(test_check_damaged_documents_are_handled),
	cmocka_unit_test(test_load_takes_regular_files_of_the_top_level),
	cmocka_unit_test(test_load_own_components_have_one_broken_file),
};
TEST_MAIN(tests)
