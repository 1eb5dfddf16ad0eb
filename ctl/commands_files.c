/*
 * Files between this host and a session.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/io.h"
#include "base/str.h"

#include "client.h"
#include "commands.h"
#include "options.h"
#include "print.h"
#include "resolve.h"
#include "sandboxd/api.h"

#define CP_PATH_BYTES 4096

/* One end of a copy. */
struct cp_end {
	const char *path;  /* in the session, or of this host; "-": a standard stream */
	char session[128]; /* "": this host */
	char url[3 * CP_PATH_BYTES + 128]; /* of the file in the session */
};

static int cp_failed(const char *path, int error)
{
	(void)fputs("sandboxctl: ", stderr);
	print_text(stderr, path);
	(void)fprintf(stderr, ": %s\n", strerrordesc_np(error));
	return EXIT_FAILED;
}

/* SESSION:PATH, or a path of this host: one with a slash before the colon is that. */
static void cp_split(const char *word, struct cp_end *end)
{
	size_t length = strcspn(word, ":/");

	*end = (struct cp_end){.path = word};
	if (word[length] != ':' || length == 0 ||
	    str_copy_n(end->session, sizeof(end->session), word, length) < 0)
		return;
	end->path = word + length + 1;
}

/* The URL of an end in a session, whose id may be short or a name. */
static int cp_resolve(struct client *client, const struct options *options, struct cp_end *end,
		      const char *name)
{
	static const struct command one = {
		.verb = "cp", .min_words = 1, .max_words = 1, .words = {WORD_SESSION}};
	size_t length = strlen(end->path);
	bool is_folder = length == 0 || end->path[length - 1] == '/';
	char path[CP_PATH_BYTES];
	char *args[] = {end->session, NULL};
	struct options only = *options;
	struct resolved resolved = {0};
	char *escaped;
	int r;

	only.args = args;
	only.n_args = 1;
	r = resolve_words(client, &one, &only, &resolved);
	if (r != EXIT_OK) {
		resolved_done(&resolved);
		return r;
	}
	r = str_format(path, sizeof(path), "%s%s", end->path, is_folder ? name : "");
	escaped = r < 0 ? NULL : curl_easy_escape(NULL, path, 0);
	if (escaped)
		r = str_format(end->url, sizeof(end->url), "%s/%s/files?path=%s",
			       API_PREFIX_RUNTIME, only.args[0], escaped);
	curl_free(escaped);
	resolved_done(&resolved);
	return r < 0 || !escaped ? cp_failed(end->path, ENAMETOOLONG) : EXIT_OK;
}

static ssize_t cp_read(void *userdata, char *data, size_t size)
{
	return io_read(*(const int *)userdata, data, size);
}

static int cp_write(void *userdata, const void *data, size_t size)
{
	return io_write_all(*(const int *)userdata, data, size);
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

	r = cp_resolve(client, options, to, slash ? slash + 1 : from);
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

/* Whole under its own name, or not there. */
static int cp_out(struct client *client, const struct options *options, struct cp_end *from,
		  const char *to)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	bool is_stream = str_equal(to, "-");
	char temporary[CP_PATH_BYTES];
	AUTO_CLOSE int fd = -1;
	const struct client_request request = {.method = "GET",
					       .path = from->url,
					       .accept = "application/octet-stream",
					       .bytes = cp_write,
					       .userdata = &fd};
	int r;

	r = cp_resolve(client, options, from, "");
	if (r != EXIT_OK)
		return r;
	if (str_format(temporary, sizeof(temporary), "%s.part-%d", to, (int)getpid()) < 0)
		return cp_failed(to, ENAMETOOLONG);
	fd = is_stream ? fd_dup(STDOUT_FILENO, 3)
		       : open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0)
		return cp_failed(to, is_stream ? EBADF : errno);
	r = client_ask(client, &request, &reply);
	if (is_stream)
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

	cp_split(options->args[0], &from);
	cp_split(options->args[1], &to);
	if ((from.session[0] != '\0') == (to.session[0] != '\0')) {
		(void)fputs("sandboxctl: one of the two is SESSION:PATH\n", stderr);
		return EXIT_USAGE;
	}
	return to.session[0] != '\0' ? cp_in(client, options, from.path, &to)
				     : cp_out(client, options, &from, to.path);
}
