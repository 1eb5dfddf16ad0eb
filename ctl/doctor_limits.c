#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/num.h"
#include "base/str.h"

#include "ctl/doctor.h"
#include "sandboxd/limits.h"

/* Descriptors that the supervisor keeps for one session, and those it needs itself. */
#define FDS_PER_SESSION 6
#define FDS_OWN         128

#define IDBLOCK_FIRST (8ull * IDBLOCK_SIZE)
#define IDBLOCK_LAST  1878982656ull

enum controller_where {
	CONTROLLER_NOWHERE,
	CONTROLLER_V1,
	CONTROLLER_V2,
};

static int read_mountinfo(char **ret_text)
{
	AUTO_CLOSE int fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	size_t size = 0;

	if (fd < 0)
		return -errno;
	return io_read_file(fd, (size_t)4 * 1024 * 1024, ret_text, &size);
}

/* The mount point (field 5) of the first line that has `needle` behind its " - ". */
static int find_mount_point(const char *needle, const char *option, char *ret_dir, size_t dir_bytes)
{
	AUTO_FREE char *text = NULL;
	char *at;

	if (read_mountinfo(&text) < 0 || !text)
		return -ENOENT;
	at = text;
	while (*at) {
		char *line = at;
		size_t n = strcspn(line, "\n");
		const char *tail;
		const char *field = line;

		at += n + (line[n] ? 1 : 0);
		line[n] = '\0';
		tail = strstr(line, needle);
		if (!tail || (option && !strstr(tail, option)))
			continue;
		for (int i = 0; i < 4; i++)
			field += strcspn(field, " ") + 1;
		return str_copy_n(ret_dir, dir_bytes, field, strcspn(field, " "));
	}
	return -ENOENT;
}

/* A controller's name as a whole word of "a b c" or "rw,a,b". */
static bool has_word(const char *list, const char *word)
{
	size_t n = strlen(word);

	for (const char *at = strstr(list, word); at; at = strstr(at + 1, word)) {
		bool starts = at == list || at[-1] == ' ' || at[-1] == ',';

		if (starts && (at[n] == '\0' || at[n] == ' ' || at[n] == ',' || at[n] == '\n'))
			return true;
	}
	return false;
}

static enum controller_where find_controller(const char *name)
{
	char dir[1024];
	char path[1100];
	char list[512];
	char option[32];

	if (find_mount_point(" - cgroup2 ", NULL, dir, sizeof(dir)) == 0 &&
	    str_format(path, sizeof(path), "%s/cgroup.controllers", dir) == 0 &&
	    doctor_read(path, list, sizeof(list)) > 0 && has_word(list, name))
		return CONTROLLER_V2;
	(void)snprintf(option, sizeof(option), ",%s", name);
	if (find_mount_point(" - cgroup ", option, dir, sizeof(dir)) == 0)
		return CONTROLLER_V1;
	return CONTROLLER_NOWHERE;
}

static enum doctor_state check_limit(const char *name, char text[DOCTOR_TEXT_BYTES])
{
	switch (find_controller(name)) {
	case CONTROLLER_V2:
		doctor_text(text, "cgroup version 2");
		return DOCTOR_OK;
	case CONTROLLER_V1:
		doctor_text(text, "cgroup version 1 (hybrid host)");
		return DOCTOR_OK;
	case CONTROLLER_NOWHERE:
		break;
	}
	doctor_text(text, "no mounted hierarchy has the controller %s", name);
	return DOCTOR_DEGRADED;
}

enum doctor_state doctor_memory_limit(char text[DOCTOR_TEXT_BYTES])
{
	return check_limit("memory", text);
}

enum doctor_state doctor_pids_limit(char text[DOCTOR_TEXT_BYTES])
{
	return check_limit("pids", text);
}

enum doctor_state doctor_cpu_limit(char text[DOCTOR_TEXT_BYTES])
{
	return check_limit("cpu", text);
}

enum doctor_state doctor_io_limit(char text[DOCTOR_TEXT_BYTES])
{
	if (find_controller("blkio") == CONTROLLER_V1) {
		doctor_text(text, "cgroup version 1, direct I/O only");
		return DOCTOR_OK;
	}
	return check_limit("io", text);
}

enum doctor_state doctor_cgroup_tree(char text[DOCTOR_TEXT_BYTES])
{
	char dir[1024];

	if (find_mount_point(" - cgroup2 ", NULL, dir, sizeof(dir)) < 0) {
		doctor_text(text, "no cgroup2 file system is mounted");
		return DOCTOR_MISSING;
	}
	if (access(dir, W_OK) < 0) {
		doctor_text(text, "%.100s is not writable: %s", dir, strerrorname_np(errno));
		return DOCTOR_MISSING;
	}
	doctor_text(text, "%.120s", dir);
	return DOCTOR_OK;
}

enum doctor_state doctor_descriptors(char text[DOCTOR_TEXT_BYTES])
{
	struct rlimit files;
	unsigned long long sessions;

	if (getrlimit(RLIMIT_NOFILE, &files) < 0) {
		doctor_text(text, "getrlimit: %s", strerrorname_np(errno));
		return DOCTOR_MISSING;
	}
	sessions = files.rlim_max > FDS_OWN ? (files.rlim_max - FDS_OWN) / FDS_PER_SESSION : 0;
	doctor_text(text, "hard limit %llu, about %llu sessions",
		    (unsigned long long)files.rlim_max, sessions);
	return sessions >= 1000 ? DOCTOR_OK : sessions >= 10 ? DOCTOR_DEGRADED : DOCTOR_MISSING;
}

/* Blocks of the range that a line "name:first:count" of /etc/subuid takes. */
static uint64_t blocks_taken(const char *line)
{
	char word[24];
	uint64_t first = 0;
	uint64_t count = 0;
	const char *at = strchr(line, ':');
	size_t n;

	if (!at)
		return 0;
	n = strcspn(at + 1, ":");
	if (str_copy_n(word, sizeof(word), at + 1, n) < 0 ||
	    num_parse_u64(word, 0, UINT32_MAX, &first) < 0 || at[1 + n] != ':')
		return 0;
	at += n + 2;
	if (str_copy_n(word, sizeof(word), at, strcspn(at, "\n")) < 0 ||
	    num_parse_u64(word, 1, UINT32_MAX, &count) < 0)
		return 0;
	if (first + count <= IDBLOCK_FIRST || first >= IDBLOCK_LAST)
		return 0;
	return (first + count - 1) / IDBLOCK_SIZE - first / IDBLOCK_SIZE + 1;
}

enum doctor_state doctor_id_blocks(char text[DOCTOR_TEXT_BYTES])
{
	char subids[4096];
	uint64_t n = (IDBLOCK_LAST - IDBLOCK_FIRST) / IDBLOCK_SIZE;
	uint64_t taken = 0;

	if (doctor_read("/etc/subuid", subids, sizeof(subids)) > 0)
		for (const char *at = subids; at;
		     at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL)
			taken += blocks_taken(at);
	n = n > taken ? n - taken : 0;
	doctor_text(text, "%llu blocks of 65536 ids free of /etc/subuid (%llu skipped)",
		    (unsigned long long)n, (unsigned long long)taken);
	return n >= 1000 ? DOCTOR_OK : n >= 16 ? DOCTOR_DEGRADED : DOCTOR_MISSING;
}

static bool is_hidden_anyway(const FTSENT *entry)
{
	static const char *const names[] = {"/usr/local", "/usr/src", "/usr/lib/modules",
					    "/usr/lib/debug"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (str_equal(entry->fts_path, names[i]))
			return true;
	return false;
}

/* Covered in every session: what is no plain file, would change identity, or is not for everybody.
 */
static bool is_covered(const FTSENT *entry)
{
	mode_t mode = entry->fts_statp->st_mode;

	if (S_ISLNK(mode))
		return false;
	if (S_ISDIR(mode))
		return (mode & 05) != 05;
	return !S_ISREG(mode) || (mode & (S_ISUID | S_ISGID)) || !(mode & 04);
}

enum doctor_state doctor_template(char text[DOCTOR_TEXT_BYTES])
{
	char root[] = "/usr";
	char *const roots[] = {root, NULL};
	FTS *fts = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, NULL);
	FTSENT *entry;
	char first[80] = "none";
	unsigned int n = 0;

	if (!fts) {
		doctor_text(text, "/usr cannot be read: %s", strerrorname_np(errno));
		return DOCTOR_MISSING;
	}
	while ((entry = fts_read(fts))) {
		if (entry->fts_info == FTS_DP || !entry->fts_statp)
			continue;
		if (is_hidden_anyway(entry)) {
			(void)fts_set(fts, entry, FTS_SKIP);
			continue;
		}
		if (entry->fts_info != FTS_NS && is_covered(entry) && n++ == 0)
			(void)snprintf(first, sizeof(first), "%.79s", entry->fts_path);
	}
	(void)fts_close(fts);
	doctor_text(text, "/usr; %u special files are covered, the first: %s", n, first);
	return DOCTOR_OK;
}
