#include "ctl/git_credential.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/io.h"
#include "base/str.h"

#include "ctl/print.h"
#include "ctl/prompt.h"
#include "sandboxd/git.h"

/* The three that are used, and lines about path and protocol. */
#define FILE_MAX_BYTES ((size_t)16 * 1024)

static int failed(const char *path, const char *problem)
{
	(void)fputs("sandboxctl: the credential of ", stderr);
	print_text(stderr, path);
	(void)fprintf(stderr, ": %s\n", problem);
	return EXIT_FAILED;
}

static json_t *line_value(const char *text, const char *key)
{
	size_t length = strlen(key);

	for (const char *at = text; *at; at += strcspn(at, "\n"), at += *at == '\n')
		if (str_has_prefix(at, key) && at[length] == '=')
			return json_stringn(at + length + 1, strcspn(at + length + 1, "\n"));
	return NULL;
}

/* Lines key=value, as `git credential` reads and writes them; unknown keys are nobody's error. */
static int take_text(const char *path, const char *text, json_t **ret_credential)
{
	json_t *credential = json_pack(
		"{s:o*, s:o*, s:o*}", "username", line_value(text, "username"), "password",
		line_value(text, "password"), "host", line_value(text, "host"));

	if (!json_object_get(credential, "username") || !json_object_get(credential, "password")) {
		json_decref(credential);
		return failed(path, "it wants the lines username=... and password=..., in UTF-8");
	}
	*ret_credential = credential;
	return EXIT_OK;
}

static int read_file(const char *path, json_t **ret_credential)
{
	AUTO_CLOSE int fd = str_equal(path, "-") ? fd_dup(STDIN_FILENO, 3)
						 : open(path, O_RDONLY | O_NOCTTY | O_CLOEXEC);
	char *text = NULL;
	size_t size = 0;
	struct stat st;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return failed(path, strerrordesc_np(errno));
	if (S_ISREG(st.st_mode) && (st.st_mode & 077) != 0)
		return failed(path, "others can read it: chmod 600");
	r = io_read_file(fd, FILE_MAX_BYTES, &text, &size);
	if (r < 0)
		return failed(path, strerrordesc_np(-r));
	r = strlen(text) == size ? take_text(path, text, ret_credential)
				 : failed(path, strerrordesc_np(EINVAL));
	explicit_bzero(text, size);
	free(text);
	return r;
}

/* What of a question cannot be read is in `line`. */
static int ask_for(struct client *client, const char *question, bool is_secret, char *line,
		   size_t line_bytes)
{
	const struct client_reply none = CLIENT_REPLY_NULL;
	int r = prompt_line(client, question, is_secret, line, line_bytes);

	if (r == 0)
		return EXIT_OK;
	if (r == -ENXIO) {
		(void)fputs("sandboxctl: --ask: there is no terminal to ask on\n", stderr);
		return EXIT_USAGE;
	}
	return client_result(client, r, &none);
}

static int ask_all(struct client *client, const char *url, json_t **ret_credential)
{
	char host[GIT_URL_MAX_BYTES + 1] = "";
	char username[GIT_USERNAME_MAX_BYTES + 2];
	char password[GIT_PASSWORD_MAX_BYTES + 2];
	int r = EXIT_OK;

	if (!url)
		r = ask_for(client, "Host of the remote: ", false, host, sizeof(host));
	if (r == EXIT_OK)
		r = ask_for(client, "Username: ", false, username, sizeof(username));
	if (r == EXIT_OK)
		r = ask_for(client, "Password: ", true, password, sizeof(password));
	if (r == EXIT_OK) {
		*ret_credential = json_pack("{s:s, s:s, s:s*}", "username", username, "password",
					    password, "host", host[0] ? host : NULL);
		r = *ret_credential ? EXIT_OK : failed("the terminal", "it is not UTF-8");
	}
	explicit_bzero(password, sizeof(password));
	return r;
}

int git_credential_read(struct client *client, const struct options *options, const char *url,
			json_t **ret_credential)
{
	*ret_credential = NULL;
	if (options->ask && options->credential_file) {
		(void)fputs("sandboxctl: --ask and --credential-file exclude each other\n", stderr);
		return EXIT_USAGE;
	}
	if (!options->ask && !options->credential_file)
		return EXIT_OK;
	/* From here on no other process of this user looks into us, and no core is written. */
	(void)prctl(PR_SET_DUMPABLE, 0);
	return options->ask ? ask_all(client, url, ret_credential)
			    : read_file(options->credential_file, ret_credential);
}
