#include "supervisor/template/list.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/str.h"
#include "base/template.h"

#define MIB          (UINT64_C(1024) * 1024)
#define DIGEST_SHOWN 6 /* bytes of it in a table */
#define NAMES_FIRST  16

struct names {
	size_t n;
	size_t allocated;
	char (*name)[TEMPLATE_NAME_BYTES];
};

static int add_name(struct names *names, const char *name)
{
	if (names->n == names->allocated) {
		size_t allocated = names->allocated > 0 ? 2 * names->allocated : NAMES_FIRST;
		char(*grown)[TEMPLATE_NAME_BYTES] =
			reallocarray(names->name, allocated, sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		names->name = grown;
		names->allocated = allocated;
	}
	return str_copy(names->name[names->n++], TEMPLATE_NAME_BYTES, name);
}

static int read_names(int dir_fd, struct names *names)
{
	AUTO_CLOSE int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;
	int r = 0;

	if (!dir)
		return -errno;
	(void)TAKE_FD(fd);
	errno = 0;
	/* One thread. */
	while (r >= 0 && (entry = readdir(dir))) { /* NOLINT(concurrency-mt-unsafe) */
		if (template_name_is_valid(entry->d_name) &&
		    !str_equal(entry->d_name, TEMPLATE_BASE))
			r = add_name(names, entry->d_name);
	}
	if (r >= 0 && errno != 0)
		r = -errno;
	(void)closedir(dir);
	return r;
}

static int compare(const void *a, const void *b)
{
	return strcmp(a, b);
}

static void format_time(uint64_t seconds, char text[32])
{
	time_t created = (time_t)seconds;
	struct tm tm;

	if (!gmtime_r(&created, &tm) || strftime(text, 32, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
		text[0] = '\0';
}

static void format_digest(const uint8_t *digest, size_t n, char text[2 * TEMPLATE_DIGEST_BYTES + 1])
{
	static const uint8_t none[TEMPLATE_DIGEST_BYTES];

	text[0] = '\0';
	for (size_t i = 0; i < n && memcmp(digest, none, sizeof(none)) != 0; i++)
		(void)snprintf(text + 2 * i, 3, "%02x", digest[i]);
}

static void print_row(const char *name, const struct template_record *record, uint32_t n_users)
{
	char digest[2 * TEMPLATE_DIGEST_BYTES + 1];
	char created[32];

	format_time(record->created_s, created);
	format_digest(record->source_sha256, DIGEST_SHOWN, digest);
	(void)printf("%-24s %8" PRIu64 " %8" PRIu64 "  %-20s  %-12s  %" PRIu32 "\n", name,
		     (record->n_bytes + MIB - 1) / MIB, record->n_inodes, created,
		     digest[0] ? digest : "-", n_users);
}

static void print_object(const char *name, const struct template_record *record, uint32_t n_users)
{
	char digest[2 * TEMPLATE_DIGEST_BYTES + 1];
	char created[32];

	format_time(record->created_s, created);
	format_digest(record->source_sha256, TEMPLATE_DIGEST_BYTES, digest);
	(void)printf(",{\"name\":\"%s\",\"bytes\":%" PRIu64 ",\"inodes\":%" PRIu64
		     ",\"created\":\"%s\",\"sha256\":%s%s%s,\"sessions\":%" PRIu32 "}",
		     name, record->n_bytes, record->n_inodes, created, digest[0] ? "\"" : "",
		     digest[0] ? digest : "null", digest[0] ? "\"" : "", n_users);
}

static void print_one(const struct store *store, const char *form, const char *name)
{
	struct template_record record;
	uint32_t n_users = 0;
	int r = store_read(store, name, &record, &n_users);

	/* It was removed meanwhile. */
	if (r == STORE_E_UNKNOWN)
		return;
	if (r < 0)
		(void)fprintf(stderr, "sandboxctl: template: %s cannot be used: %s\n", name,
			      strerrordesc_np(-r));
	else if (str_equal(form, "json"))
		print_object(name, &record, n_users);
	else if (str_equal(form, "name"))
		(void)printf("%s\n", name);
	else
		print_row(name, &record, n_users);
}

int list_print(const struct store *store, const char *form, struct err *err)
{
	struct names names = {.n = 0};
	int r = store->dir_fd >= 0 ? read_names(store->dir_fd, &names) : 0;

	if (r < 0) {
		free(names.name);
		return err_fail(err, r, "template", "cannot list the templates");
	}
	if (names.n > 1)
		qsort(names.name, names.n, sizeof(*names.name), compare);
	if (str_equal(form, "table"))
		(void)printf("%-24s %8s %8s  %-20s  %-12s  %s\n%-24s %8s %8s  %-20s  %-12s  %s\n",
			     "NAME", "MIB", "FILES", "CREATED", "SOURCE", "SESSIONS", TEMPLATE_BASE,
			     "-", "-", "-", "/usr", "-");
	else if (str_equal(form, "json"))
		(void)printf("[{\"name\":\"" TEMPLATE_BASE "\"}");
	else
		(void)printf(TEMPLATE_BASE "\n");
	for (size_t i = 0; i < names.n; i++)
		print_one(store, form, names.name[i]);
	if (str_equal(form, "json"))
		(void)printf("]\n");
	free(names.name);
	return 0;
}
