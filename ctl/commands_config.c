/*
 * config check and config show: the files are collected as the supervisor collects them, then the
 * same reader looks at them that reads them for the service.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/config_bundle.h"
#include "base/fd.h"
#include "base/str.h"

#include "ctl/commands.h"
#include "ctl/print.h"
#include "ctl/program.h"

#define READER         "sandboxd-config"
#define DEFAULT_CONFIG "/etc/sandboxd/sandboxd.conf"

static int report_error(const struct err *err, int r)
{
	(void)fputs("sandboxctl: ", stderr);
	print_text(stderr, err->text[0] ? err->text : strerrordesc_np(-r));
	if (err->text[0])
		(void)fprintf(stderr, ": %s", strerrordesc_np(-r));
	(void)fputc('\n', stderr);
	return r == -ENOENT ? EXIT_NOT_FOUND : r == -EACCES ? EXIT_REFUSED : EXIT_FAILED;
}

/* The files of the service, as a descriptor for the reader. provider: as it has its variable. */
static int open_bundle(const struct options *options, const char *provider, usec_t *ret_changed_at,
		       int *ret_status)
{
	AUTO_CLOSE int dir_fd = -1;
	struct err err = ERR_NULL;
	bool is_default = !options->config;
	const char *path = is_default ? DEFAULT_CONFIG : options->config;
	int fd;

	dir_fd = config_bundle_open_dir(path, is_default, &err);
	if (dir_fd < 0 && !(dir_fd == -ENOENT && is_default)) {
		*ret_status = report_error(&err, dir_fd);
		return -1;
	}
	fd = config_bundle_make(dir_fd, path, is_default, provider, ret_changed_at, &err);
	if (fd < 0)
		*ret_status = report_error(&err, fd);
	return fd;
}

static int open_file(const char *path, int *ret_status)
{
	struct err err = ERR_NULL;
	int fd;

	if (str_equal(path, "-"))
		return fd_dup(STDIN_FILENO, STDERR_FILENO + 1);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0) {
		int r = err_fail(&err, -errno, "config", "%s cannot be opened", path);

		*ret_status = report_error(&err, r);
	}
	return fd;
}

int command_config_check(struct client *client, const struct options *options)
{
	static char program[] = READER;
	static char check[] = "--check";
	char *const argv[] = {program, check, NULL};
	int status = EXIT_FAILED;
	AUTO_CLOSE int fd = options->n_args > 0 ? open_file(options->args[0], &status)
						: open_bundle(options, NULL, NULL, &status);

	(void)client;
	return fd < 0 ? status : program_become(READER, fd, argv);
}

static void append_waiting(struct buf *names, const json_t *state)
{
	size_t i;
	json_t *name;

	json_array_foreach(json_object_get(state, "needs_restart"), i, name)
	{
		if (json_is_string(name) && buf_printf(names, "%s ", json_string_value(name)) < 0)
			return;
	}
}

/* A variable of the service's environment; ours says nothing of it. */
static void take_provider(char provider[static CONFIG_FILE_NAME_BYTES], const json_t *state)
{
	const json_t *said = json_object_get(state, "provider");
	const char *name = json_string_value(json_object_get(said, "name"));
	const char *from = json_string_value(json_object_get(said, "from"));

	if (name && from && str_equal(from, CONFIG_PROVIDER_VARIABLE))
		IGNORE_RESULT(str_copy(provider, CONFIG_FILE_NAME_BYTES, name));
}

/* What the service says of its last reload. It need not run: then the files are what it would take.
 */
static void ask_service(struct client *client, const struct options *options, usec_t changed_at,
			struct buf *names, char provider[static CONFIG_FILE_NAME_BYTES])
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	const struct client_request request = {.method = "GET", .path = "/v1/config"};
	char changed[CLOCK_ISO_BYTES];
	const char *text;
	const char *at;

	if (client_perform(client, &request, &reply) < 0) {
		if (!options->quiet)
			(void)fputs("sandboxctl: the service does not answer; this is what it "
				    "would start with\n",
				    stderr);
		return;
	}
	if (reply.status != 200) {
		(void)client_result(client, 0, &reply);
		return;
	}
	append_waiting(names, reply.doc);
	take_provider(provider, reply.doc);
	text = json_string_value(json_object_get(reply.doc, "text"));
	if (json_is_true(json_object_get(reply.doc, "refused"))) {
		(void)fputs("sandboxctl: the last reload was refused: ", stderr);
		print_text(stderr, text);
		(void)fputc('\n', stderr);
	}
	/* Both in the one form whose order is that of its bytes. */
	clock_format_iso(changed_at, changed);
	at = json_string_value(json_object_get(reply.doc, "at"));
	if (at && strcmp(changed, at) > 0)
		(void)fputs("sandboxctl: files have changed since the service read them: reload it "
			    "for what follows to be in force\n",
			    stderr);
}

int command_config_show(struct client *client, const struct options *options)
{
	static char program[] = READER;
	static char show[] = "--show";
	static char forms[][8] = {
		[OUTPUT_TABLE] = "table", [OUTPUT_JSON] = "json", [OUTPUT_NAME] = "name"};
	struct buf names = BUF_NULL(4096);
	char *argv[] = {program, show, forms[options->output], NULL, NULL};
	int status = EXIT_FAILED;
	char provider[CONFIG_FILE_NAME_BYTES] = "";
	usec_t changed_at = 0;
	AUTO_CLOSE int files_fd = open_bundle(options, NULL, &changed_at, &status);
	AUTO_CLOSE int fd = -1;

	if (files_fd < 0)
		return status;
	ask_service(client, options, changed_at, &names, provider);
	fd = provider[0] == '\0' ? TAKE_FD(files_fd)
				 : open_bundle(options, provider, &changed_at, &status);
	if (fd < 0) {
		buf_done(&names);
		return status;
	}
	if (buf_append(&names, "", 1) == 0)
		argv[3] = (char *)names.data;
	status = program_become(READER, fd, argv);
	buf_done(&names);
	return status;
}
