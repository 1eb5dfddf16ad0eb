/*
 * The audit, read from its files by root. They lie in a directory of the api worker, so no name in
 * it is followed anywhere, and their lines are checked and escaped like any answer.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/num.h"
#include "base/str.h"

#include "ctl/commands.h"
#include "ctl/print.h"
#include "sandboxd/limits.h"

#define DEFAULT_STATE_DIR "/var/lib/sandboxd"
#define LINE_MAX_BYTES    8192
#define SINCE_MAX_S       (10ull * 366 * 24 * 3600)

struct query {
	const struct options *options;
	char since[CLOCK_ISO_BYTES]; /* "" : from the first line on */
	unsigned long n_shown;
	unsigned long n_bad;
};

/* "90s", "15min", "24h", "7d" ago, or a time in UTC. */
static int parse_since(const char *text, char since[CLOCK_ISO_BYTES])
{
	char copy[CLOCK_ISO_BYTES + 1];
	uint64_t seconds;
	usec_t now = clock_realtime();
	usec_t at;
	size_t length = strlen(text);

	if (num_parse_seconds(text, SINCE_MAX_S, &seconds) == 0) {
		at = seconds * USEC_PER_SEC;
		clock_format_iso(at < now ? now - at : 0, since);
		return 0;
	}
	if (length > 0 && text[length - 1] == 'Z')
		length--;
	if (str_copy_n(copy, sizeof(copy), text, length) < 0 || clock_parse_iso(copy, &at) < 0)
		return -EINVAL;
	clock_format_iso(at, since);
	return 0;
}

static bool matches(const struct query *query, const json_t *line)
{
	const struct options *options = query->options;
	const char *session = json_string_value(json_object_get(line, "session"));
	const char *user = json_string_value(json_object_get(line, "user"));
	const char *time = json_string_value(json_object_get(line, "time"));

	if (options->session && !(session && str_has_prefix(session, options->session)))
		return false;
	if (options->user && !(user && str_equal(user, options->user)))
		return false;
	/* Both in the one form whose order is that of its bytes. */
	return !query->since[0] || (time && strcmp(time, query->since) >= 0);
}

/* What a line is about beside who and when: the first of these that it has. */
static const char *subject(const json_t *line)
{
	static const char *const keys[] = {"program", "component", "reason", "task", "profile"};

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		const char *text = json_string_value(json_object_get(line, keys[i]));

		if (text)
			return text;
	}
	return "";
}

static void print_row(const json_t *line)
{
	json_int_t status = json_integer_value(json_object_get(line, "status"));
	char number[24] = "-";

	if (status > 0)
		(void)snprintf(number, sizeof(number), "%lld", (long long)status);
	print_cell(print_member(line, "time"), 27);
	print_cell(number, 6);
	print_cell(print_member(line, "action"), 15);
	print_cell(print_member(line, "user"), 16);
	print_cell(print_member(line, "workspace"), 12);
	print_cell(print_member(line, "session"), 36);
	print_text(stdout, subject(line));
	(void)putchar('\n');
}

static void show(struct query *query, const json_t *line)
{
	if (query->n_shown++ == 0 && query->options->output == OUTPUT_TABLE &&
	    !query->options->quiet)
		(void)printf("%-27s  %-6s  %-15s  %-16s  %-12s  %-36s  %s\n", "TIME", "STATUS",
			     "ACTION", "USER", "WORKSPACE", "SESSION", "SUBJECT");
	if (query->options->output == OUTPUT_JSON) {
		print_json_line(line);
	} else if (query->options->output == OUTPUT_NAME) {
		print_text(stdout, print_member(line, "request"));
		(void)putchar('\n');
	} else {
		print_row(line);
	}
}

static void take_line(struct query *query, const char *text, size_t length)
{
	const char *reason;
	json_t *line = NULL;

	if (doc_parse(text, length, &line, &reason) < 0 || !json_is_object(line))
		query->n_bad++;
	else if (matches(query, line))
		show(query, line);
	json_decref(line);
}

static void read_lines(struct query *query, FILE *file)
{
	char text[LINE_MAX_BYTES];
	bool whole = true;

	while (fgets(text, sizeof(text), file)) {
		size_t length = strlen(text);
		bool began_whole = whole;

		whole = length > 0 && text[length - 1] == '\n';
		if (began_whole && whole)
			take_line(query, text, length - 1);
		else if (began_whole)
			query->n_bad++; /* longer than any of ours, or not ended yet */
	}
}

/* 1: read; 0: there is none. */
static int read_file(struct query *query, int dir_fd, const char *name)
{
	AUTO_CLOSE int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;
	FILE *file;

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EBADF;
	file = fdopen(fd, "r");
	if (!file)
		return -errno;
	(void)TAKE_FD(fd);
	read_lines(query, file);
	(void)fclose(file);
	return 1;
}

/* The oldest first. A file that takes the next name meanwhile is read twice or not at all; the one
 * being written is opened last, so nothing recent is missed. */
static int read_files(struct query *query, int dir_fd)
{
	char name[32];
	int n_files = 0;

	for (unsigned int i = AUDIT_OLD_FILES + 1; i > 0; i--) {
		int r;

		if (i > 1)
			(void)snprintf(name, sizeof(name), AUDIT_FILE_NAME ".%u", i - 1);
		r = read_file(query, dir_fd, i > 1 ? name : AUDIT_FILE_NAME);
		if (r < 0)
			return r;
		n_files += r;
	}
	return n_files > 0 ? 0 : -ENOENT;
}

static int open_dir(const char *state_dir)
{
	AUTO_CLOSE int state_fd = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int fd;

	if (state_fd < 0)
		return -errno;
	fd = openat(state_fd, "api", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int command_audit(struct client *client, const struct options *options)
{
	const char *state_dir = options->state_dir ? options->state_dir : DEFAULT_STATE_DIR;
	AUTO_CLOSE int dir_fd = open_dir(state_dir);
	struct query query = {.options = options};
	int r = dir_fd;

	(void)client;
	if (options->since && parse_since(options->since, query.since) < 0) {
		(void)fputs("sandboxctl: --since wants a time such as 15min, 24h or "
			    "2026-11-29T13:00:00\n",
			    stderr);
		return EXIT_USAGE;
	}
	if (r >= 0)
		r = read_files(&query, dir_fd);
	if (query.n_bad > 0)
		(void)fprintf(stderr, "sandboxctl: %lu lines of the audit cannot be read\n",
			      query.n_bad);
	if (r == 0)
		return query.n_bad > 0 ? EXIT_FAILED : EXIT_OK;
	(void)fputs("sandboxctl: no audit can be read in ", stderr);
	print_text(stderr, state_dir);
	(void)fprintf(stderr, ": %s\n", strerrordesc_np(-r));
	return r == -ENOENT ? EXIT_NOT_FOUND : r == -EACCES ? EXIT_REFUSED : EXIT_FAILED;
}
