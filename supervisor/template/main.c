/*
 * sandboxd-template: import, ls and rm of `sandboxctl template`, by root with the administrator's
 * own arguments. It changes the folder of templates and starts the jail; it parses nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/str.h"
#include "base/template.h"

#include "supervisor/template/list.h"
#include "supervisor/template/store.h"

/* sandboxctl's, see sandboxctl(1). */
enum {
	STATUS_OK = 0,
	STATUS_FAILED = 1,
	STATUS_USAGE = 2,
	STATUS_NOT_FOUND = 3,
	STATUS_REFUSED = 4,
};

#define USAGE                                                                                       \
	"usage: sandboxd-template import STATE_DIR NAME SOURCE PLATFORM REF MAX_BYTES MAX_INODES\n" \
	"       sandboxd-template ls STATE_DIR table|json|name\n"                                   \
	"       sandboxd-template rm STATE_DIR NAME\n"

static const char *const image_errors[TEMPLATE_E_MAX_] = {
	[TEMPLATE_E_NONE] = "ok",
	[TEMPLATE_E_SYSTEM] = "the system refused a step",
	[TEMPLATE_E_BYTES] = "the image is larger than --max-mib allows",
	[TEMPLATE_E_INODES] = "the image has more entries than --max-files allows",
	[TEMPLATE_E_NAME] = "a name is absolute, too long, or has a component that is no name",
	[TEMPLATE_E_LINK_ON_WAY] = "a path goes through a link or a file",
	[TEMPLATE_E_HARD_LINK] = "a hard link leads to what is no file of the image",
	[TEMPLATE_E_FORMAT] = "the archive is no tar that can be read, or it is cut off",
	[TEMPLATE_E_EMPTY] = "the image is empty",
	[TEMPLATE_E_TOP] = "what a session needs as a folder is none in the image",
	[TEMPLATE_E_OCI] = "a document of the image is not as the format has it",
	[TEMPLATE_E_OCI_MEDIA] = "the image has a part of an unknown kind",
	[TEMPLATE_E_OCI_PLATFORM] = "the image is not for this --platform",
	[TEMPLATE_E_OCI_REF] = "no image has this --ref",
	[TEMPLATE_E_OCI_SEVERAL] = "there are several images: name one with --ref",
	[TEMPLATE_E_OCI_BLOB] = "a part of the image is missing",
	[TEMPLATE_E_OCI_DIGEST] = "a part of the image has other bytes than its digest says",
};

/* text, with what it is about and the system's reason where there are such. */
static int say(int status, const char *text, const char *name, const char *reason)
{
	(void)fprintf(stderr, "sandboxctl: template: %s", text);
	if (name && name[0])
		(void)fprintf(stderr, ": %s", name);
	if (reason)
		(void)fprintf(stderr, ": %s", reason);
	(void)fputs("\n", stderr);
	return status;
}

static int fail(int status, const char *text, const char *name)
{
	return say(status, text, name, NULL);
}

static int fail_err(const struct err *err)
{
	return say(STATUS_FAILED, err->text, NULL, strerrordesc_np(err->error_number));
}

static int fail_image(const struct template_report *report)
{
	return say(STATUS_FAILED, image_errors[report->error], report->name,
		   report->error_number > 0 ? strerrordesc_np(report->error_number) : NULL);
}

static bool is_name(const char *name)
{
	return template_name_is_valid(name) && !str_equal(name, TEMPLATE_BASE);
}

/* A folder, a file, or a pipe. The descriptor or -errno. */
static int open_source(const char *path)
{
	AUTO_CLOSE int fd =
		str_equal(path, "-") ? fd_dup(STDIN_FILENO, 3) : open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;

	if (fd < 0)
		return str_equal(path, "-") ? fd : -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode) && !S_ISFIFO(st.st_mode))
		return -EINVAL;
	return TAKE_FD(fd);
}

static void say_notes(const struct template_report *report)
{
	const struct {
		uint64_t n;
		const char *text;
	} rows[] = {
		{report->n_devices,  "devices, fifos and sockets were left out"             },
		{report->n_modes,    "setuid and setgid bits were taken off"                },
		{report->n_xattrs,   "extended attributes were left out"                    },
		{report->n_tops,     "links or files became the folder that a session needs"},
		{!report->has_shell, "it has no bin/sh"                                     },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		if (rows[i].n > 0 && i + 1 < ARRAY_SIZE(rows))
			(void)fprintf(stderr, "note: %" PRIu64 " %s\n", rows[i].n, rows[i].text);
		else if (rows[i].n > 0)
			(void)fprintf(stderr, "note: %s\n", rows[i].text);
	}
}

static int import_locked(struct store *store, const struct store_import *import)
{
	struct template_record record;
	struct err err = ERR_NULL;
	int r = store_import(store, import, &record, &err);

	if (r == STORE_E_EXISTS)
		return fail(STATUS_REFUSED, "there is one of this name", import->name);
	if (r == STORE_E_IMAGE)
		return fail_image(&store->report);
	if (r == -EINTR)
		return fail(STATUS_FAILED, "interrupted; nothing was imported", NULL);
	if (r < 0)
		return fail_err(&err);
	(void)printf("%s\n", import->name);
	say_notes(&store->report);
	return STATUS_OK;
}

/* 0, or an exit status with a message printed. */
static int lock(struct store *store, const char *state_dir)
{
	struct err err = ERR_NULL;
	int r = store_lock(store, state_dir, &err);

	if (r == STORE_E_BUSY)
		return fail(STATUS_REFUSED, "another import or removal is under way", NULL);
	if (r == STORE_E_IN_USE)
		return fail(STATUS_REFUSED, "sessions use it",
			    "what a removal left that was ended");
	return r < 0 ? fail_err(&err) : STATUS_OK;
}

static int run_import(char *const argv[])
{
	struct store_import import = {
		.name = argv[1],
		.platform = argv[3],
		.ref = argv[4],
		.max_bytes = argv[5],
		.max_inodes = argv[6],
	};
	AUTO_CLOSE int source_fd = -1;
	struct store store = STORE_NULL;
	int status;

	if (!is_name(import.name))
		return fail(STATUS_USAGE,
			    "a name is [a-z0-9][a-z0-9._-]*, at most 63 bytes, and not base", NULL);
	source_fd = open_source(argv[2]);
	if (source_fd == -EINVAL)
		return fail(STATUS_USAGE, "it is no file, folder or pipe", argv[2]);
	if (source_fd < 0)
		return fail(STATUS_FAILED, strerrordesc_np(-source_fd), argv[2]);
	import.source_fd = source_fd;
	status = lock(&store, argv[0]);
	if (status == STATUS_OK)
		status = import_locked(&store, &import);
	store_done(&store);
	return status;
}

static int remove_locked(struct store *store, const char *name)
{
	struct err err = ERR_NULL;
	int r = store_remove(store, name, &err);

	if (r == STORE_E_UNKNOWN)
		return fail(STATUS_NOT_FOUND, "there is none of this name", name);
	if (r == STORE_E_IN_USE)
		return fail(STATUS_REFUSED, "sessions use it", name);
	return r < 0 ? fail_err(&err) : STATUS_OK;
}

static int run_rm(char *const argv[])
{
	struct store store = STORE_NULL;
	int status;

	if (str_equal(argv[1], TEMPLATE_BASE))
		return fail(STATUS_REFUSED, "it is always there", argv[1]);
	if (!is_name(argv[1]))
		return fail(STATUS_NOT_FOUND, "there is none of this name", NULL);
	status = lock(&store, argv[0]);
	if (status == STATUS_OK)
		status = remove_locked(&store, argv[1]);
	store_done(&store);
	return status;
}

static int run_ls(char *const argv[])
{
	struct store store = STORE_NULL;
	struct err err = ERR_NULL;
	int r = store_open(&store, argv[0], &err);

	if (r >= 0)
		r = list_print(&store, argv[1], &err);
	store_done(&store);
	return r < 0 ? fail_err(&err) : STATUS_OK;
}

static const struct verb {
	const char *name;
	int n_words;
	int (*run)(char *const argv[]);
} verbs[] = {
	{"import", 7, run_import},
	{"ls",     2, run_ls    },
	{"rm",     2, run_rm    },
};

int main(int argc, char *argv[])
{
	for (size_t i = 0; argc > 1 && i < ARRAY_SIZE(verbs); i++) {
		if (str_equal(argv[1], verbs[i].name) && argc == 2 + verbs[i].n_words)
			return verbs[i].run(argv + 2);
	}
	(void)fputs(USAGE, stderr);
	return STATUS_USAGE;
}
