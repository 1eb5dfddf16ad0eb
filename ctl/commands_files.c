/*
 * Files between this host and a session.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/io.h"
#include "base/json.h"
#include "base/str.h"

#include "ctl/commands.h"
#include "ctl/place.h"
#include "ctl/print.h"
#include "sandboxd/api.h"

#define CP_PATH_BYTES 4096

/* One end of a copy. */
struct cp_end {
	struct place
		place; /* the path is of the session, or of this host; "-": a standard stream */
	char url[3 * CP_PATH_BYTES + 128]; /* of the file in the session */
};

static int cp_failed(const char *path, int error)
{
	(void)fputs("sandboxctl: ", stderr);
	print_text(stderr, path);
	(void)fprintf(stderr, ": %s\n", strerrordesc_np(error));
	return EXIT_FAILED;
}

/* The URL of an end in a session, by the route of files that is `what`. */
static int cp_resolve(struct client *client, const struct options *options, struct cp_end *end,
		      const char *name, const char *what)
{
	const char *below = end->place.path;
	size_t length = strlen(below);
	bool is_folder = length == 0 || below[length - 1] == '/';
	char path[CP_PATH_BYTES];
	char *escaped;
	int r;

	r = place_resolve(client, options, &end->place);
	if (r != EXIT_OK)
		return r;
	r = str_format(path, sizeof(path), "%s%s", below, is_folder ? name : "");
	escaped = r < 0 ? NULL : curl_easy_escape(NULL, path, 0);
	if (escaped)
		r = str_format(end->url, sizeof(end->url), "%s/%s/files%s?path=%s",
			       API_PREFIX_RUNTIME, end->place.session, what, escaped);
	curl_free(escaped);
	return r < 0 || !escaped ? cp_failed(below, ENAMETOOLONG) : EXIT_OK;
}

static ssize_t cp_read(void *userdata, char *data, size_t size)
{
	return io_read(*(const int *)userdata, data, size);
}

/* Where a copy goes. */
struct cp_target {
	int fd;
	struct print_stream stream; /* a terminal, which the file's author is not to control (C6) */
};

static int cp_target_init(struct cp_target *target, bool raw)
{
	FILE *file;

	if (raw || isatty(target->fd) != 1)
		return 0;
	file = fdopen(target->fd, "w");
	if (!file)
		return -errno;
	print_stream_init(&target->stream, file, raw);
	return 0;
}

static void cp_target_done(struct cp_target *target)
{
	if (!target->stream.file) {
		target->fd = fd_close(target->fd);
		return;
	}
	print_stream_end(&target->stream);
	(void)fclose(target->stream.file);
}

static int cp_write(void *userdata, const void *data, size_t size)
{
	struct cp_target *target = userdata;

	return target->stream.file ? print_stream_write(&target->stream, data, size)
				   : io_write_all(target->fd, data, size);
}

static int cp_in(struct client *client, const struct options *options, const char *from,
		 struct cp_end *to)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	const char *slash = strrchr(from, '/');
	AUTO_CLOSE int fd = -1;
	struct client_request request = {.method = "PUT", .fill = cp_read, .userdata = &fd};
	char mode[16];
	struct stat st;
	int r;

	r = cp_resolve(client, options, to, slash ? slash + 1 : from, "");
	if (r != EXIT_OK)
		return r;
	fd = str_equal(from, "-") ? fd_dup(STDIN_FILENO, 3) : open(from, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return cp_failed(from, errno);
	if (S_ISDIR(st.st_mode))
		return cp_failed(from, EISDIR);
	if (S_ISREG(st.st_mode) && !str_equal(from, "-")) {
		request.fill_bytes = st.st_size;
		IGNORE_RESULT(str_format(mode, sizeof(mode), "&mode=%04o", st.st_mode & 0777u));
		(void)strncat(to->url, mode, sizeof(to->url) - strlen(to->url) - 1);
	} else {
		request.fill_bytes = -1;
	}
	request.path = to->url;
	return client_ask(client, &request, &reply);
}

/* A device or a FIFO is written to: a file in its place would be no copy. A folder is neither. */
static bool cp_replaces(const char *to)
{
	struct stat st;

	return stat(to, &st) < 0 || S_ISREG(st.st_mode);
}

/* Whole under its own name, or not there. */
static int cp_out(struct client *client, const struct options *options, struct cp_end *from,
		  const char *to)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	bool is_stream = str_equal(to, "-");
	bool replaces = !is_stream && cp_replaces(to);
	char temporary[CP_PATH_BYTES];
	struct cp_target target = {.fd = -1};
	const struct client_request request = {.method = "GET",
					       .path = from->url,
					       .accept = "application/octet-stream",
					       .bytes = cp_write,
					       .userdata = &target};
	int r;

	r = cp_resolve(client, options, from, "", "");
	if (r != EXIT_OK)
		return r;
	if (str_format(temporary, sizeof(temporary), "%s.part-%d", to, (int)getpid()) < 0)
		return cp_failed(to, ENAMETOOLONG);
	if (is_stream)
		target.fd = fd_dup(STDOUT_FILENO, 3);
	else if (replaces)
		target.fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	else
		target.fd = open(to, O_WRONLY | O_NOCTTY | O_CLOEXEC);
	if (target.fd < 0)
		return cp_failed(to, is_stream ? EBADF : errno);
	r = cp_target_init(&target, options->raw);
	r = r < 0 ? cp_failed(to, -r) : client_ask(client, &request, &reply);
	cp_target_done(&target);
	if (!replaces)
		return r;
	if (r == EXIT_OK && rename(temporary, to) < 0)
		r = cp_failed(to, errno);
	if (r != EXIT_OK)
		(void)unlink(temporary);
	return r;
}

int command_cp(struct client *client, const struct options *options)
{
	static struct cp_end from; /* too large for a stack */
	static struct cp_end to;
	bool is_out = place_split(options->args[0], &from.place);
	bool is_in = place_split(options->args[1], &to.place);

	if (is_in == is_out) {
		(void)fputs("sandboxctl: one of the two is SESSION:PATH\n", stderr);
		return EXIT_USAGE;
	}
	return is_in ? cp_in(client, options, from.place.path, &to)
		     : cp_out(client, options, &from, to.place.path);
}

/* One event a line; the answer's last, where the session ended, is an error. */
static int print_change(void *userdata, const char *text, size_t length)
{
	const struct options *options = userdata;
	json_t *line = NULL;
	const char *reason;
	const char *type;

	if (doc_parse(text, length, &line, &reason) < 0)
		return -EBADMSG;
	type = print_member(line, "type");
	if (options->output == OUTPUT_JSON) {
		print_json_line(line);
	} else if (str_equal(type, "error")) {
		(void)fputs("sandboxctl: ", stderr);
		print_text(stderr, print_member(line, "detail"));
		(void)fputc('\n', stderr);
	} else if (!str_equal(type, "ready")) {
		print_cell(type, 8);
		if (str_equal(type, "moved")) {
			print_cell(print_member(line, "from"), 0);
			(void)fputs(" -> ", stdout);
		}
		print_name(print_member(line, "path"));
	}
	json_decref(line);
	return print_flush(stdout);
}

/* Until the folder or the session is gone; an interrupt is how it is ended. */
int command_changes(struct client *client, const struct options *options)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	static struct cp_end end; /* too large for a stack */
	struct options own = *options;
	const struct client_request request = {.method = "GET",
					       .path = end.url,
					       .accept = "application/x-ndjson",
					       .line = print_change,
					       .userdata = &own};
	int r;

	if (!place_split(options->args[0], &end.place)) {
		(void)fputs("sandboxctl: the folder is SESSION:PATH\n", stderr);
		return EXIT_USAGE;
	}
	if (end.place.path[0] == '\0')
		end.place.path = ".";
	r = cp_resolve(client, options, &end, "", "/watch");
	if (r != EXIT_OK)
		return r;
	if (options->recursive)
		(void)strncat(end.url, "&recursive=true", sizeof(end.url) - strlen(end.url) - 1);
	r = client_ask(client, &request, &reply);
	return client->signal == SIGINT ? EXIT_OK : r;
}
