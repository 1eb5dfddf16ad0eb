#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/io.h"
#include "base/num.h"
#include "base/str.h"

#include "ctl/proof.h"

#define SMALL_FILE_BYTES ((size_t)1024 * 1024)

const char *const proof_ns_names[PROOF_AT_MAX_] = {"mnt", "net",    "pid", "ipc",
						   "uts", "cgroup", "user"};

void proof_facts_init(struct proof_facts *facts)
{
	memset(facts, 0xff, sizeof(*facts));
}

static uint64_t status_number(const char *text, const char *key, bool hexadecimal)
{
	const char *at = strstr(text, key);
	char word[32] = "";
	size_t n = 0;
	uint64_t value = UINT64_MAX;

	if (!at)
		return UINT64_MAX;
	at += strlen(key);
	while (*at == '\t' || *at == ' ')
		at++;
	while (n < sizeof(word) - 1 && at[n] > ' ') {
		word[n] = at[n];
		n++;
	}
	word[n] = '\0';
	if (!hexadecimal)
		return num_parse_u64(word, 0, UINT64_MAX - 1, &value) < 0 ? UINT64_MAX : value;
	value = 0;
	for (size_t i = 0; i < n; i++) {
		const char *digits = "0123456789abcdef";
		const char *digit = strchr(digits, word[i]);

		if (!digit)
			return UINT64_MAX;
		value = value << 4 | (uint64_t)(digit - digits);
	}
	return n ? value : UINT64_MAX;
}

void proof_take_status(struct proof_facts *facts, const char *text, bool all_caps)
{
	static const char *const sets[] = {
		"\nCapPrm:", "\nCapInh:", "\nCapEff:", "\nCapBnd:", "\nCapAmb:"};

	facts->uid = status_number(text, "\nUid:", false);
	facts->seccomp = status_number(text, "\nSeccomp:", false);
	facts->no_new_privs = status_number(text, "\nNoNewPrivs:", false);
	facts->caps = status_number(text, sets[0], true);
	for (size_t i = 1; all_caps && i < ARRAY_SIZE(sets); i++)
		facts->caps |= status_number(text, sets[i], true);
}

static int read_text(const char *path, char **ret_text)
{
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t size = 0;

	if (fd < 0)
		return -errno;
	return io_read_file(fd, SMALL_FILE_BYTES, ret_text, &size);
}

static uint64_t read_number(const char *path)
{
	AUTO_FREE char *text = NULL;
	uint64_t value = UINT64_MAX;

	if (read_text(path, &text) < 0 || !text)
		return UINT64_MAX;
	text[strcspn(text, " \n")] = '\0';
	return num_parse_u64(text, 0, UINT64_MAX - 1, &value) < 0 ? UINT64_MAX : value;
}

static uint64_t ns_inode(int pid, const char *name)
{
	char path[64];
	char target[64];
	uint64_t value = UINT64_MAX;
	ssize_t n;

	(void)snprintf(path, sizeof(path), "/proc/%d/ns/%s", pid, name);
	n = readlink(path, target, sizeof(target) - 1);
	if (n < 0)
		return UINT64_MAX;
	target[n] = '\0';
	target[strcspn(target, "]")] = '\0';
	n = (ssize_t)strcspn(target, "[");
	return num_parse_u64(target + n + 1, 1, UINT64_MAX - 1, &value) < 0 ? UINT64_MAX : value;
}

/* Split off the next word that ends at one of `ends`. */
static char *next_word(char **at, const char *ends)
{
	char *word = *at;
	size_t n = strcspn(word, ends);

	*at = word[n] ? word + n + 1 : word + n;
	word[n] = '\0';
	return word;
}

/* "a,b,c" holds `name`. */
static bool list_has(const char *list, const char *word)
{
	size_t n = strlen(word);

	for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
		if (strncmp(at, word, n) == 0 && (at[n] == '\0' || at[n] == ','))
			return true;
	return false;
}

/*
 * Where the hierarchy of `controller` is mounted; NULL stands for the version 2 tree. mountinfo:
 * id parent major:minor root mountpoint options... - fstype source superoptions
 */
static bool find_mount(char *mountinfo, const char *controller, char *ret_dir, size_t dir_bytes,
		       char *ret_root, size_t root_bytes)
{
	char *at = mountinfo;

	while (*at) {
		char *line = next_word(&at, "\n");
		char *tail = strstr(line, " - ");
		const char *root;
		const char *dir;
		const char *type;

		if (!tail)
			continue;
		tail += 3;
		for (int i = 0; i < 3; i++)
			(void)next_word(&line, " ");
		root = next_word(&line, " ");
		dir = next_word(&line, " ");
		type = next_word(&tail, " ");
		(void)next_word(&tail, " ");
		if (controller ? !str_equal(type, "cgroup") || !list_has(tail, controller)
			       : !str_equal(type, "cgroup2"))
			continue;
		return str_copy(ret_dir, dir_bytes, dir) == 0 &&
		       str_copy(ret_root, root_bytes, root) == 0;
	}
	return false;
}

/* The directory of pid's group in that hierarchy. 0 or -ENOENT. */
static int group_dir(int pid, const char *controller, char *ret_path, size_t path_bytes)
{
	AUTO_FREE char *groups = NULL;
	AUTO_FREE char *mountinfo = NULL;
	char file[64];
	char dir[1024];
	char root[1024];
	char *at;

	(void)snprintf(file, sizeof(file), "/proc/%d/cgroup", pid);
	if (read_text(file, &groups) < 0 || read_text("/proc/self/mountinfo", &mountinfo) < 0 ||
	    !groups || !mountinfo ||
	    !find_mount(mountinfo, controller, dir, sizeof(dir), root, sizeof(root)))
		return -ENOENT;
	at = groups;
	while (*at) {
		char *line = next_word(&at, "\n");
		const char *path;
		const char *names;

		(void)next_word(&line, ":");
		names = next_word(&line, ":");
		path = line;
		if (controller ? !list_has(names, controller) : names[0] != '\0')
			continue;
		if (!str_equal(root, "/") && str_has_prefix(path, root))
			path += strlen(root);
		return str_format(ret_path, path_bytes, "%s%s", dir, path) == 0 ? 0 : -ENOENT;
	}
	return -ENOENT;
}

static uint64_t limit(int pid, const char *controller, const char *v1_file, const char *v2_file)
{
	char dir[2048];
	char path[2176];
	uint64_t value = UINT64_MAX;

	if (group_dir(pid, controller, dir, sizeof(dir)) == 0 &&
	    str_format(path, sizeof(path), "%s/%s", dir, v1_file) == 0)
		value = read_number(path);
	if (value == UINT64_MAX && group_dir(pid, NULL, dir, sizeof(dir)) == 0 &&
	    str_format(path, sizeof(path), "%s/%s", dir, v2_file) == 0)
		value = read_number(path);
	return value;
}

static void look_at_limits(int pid, struct proof_facts *facts)
{
	/* cpu.max begins with the quota; the period is 100 ms in both versions unless changed. */
	uint64_t quota = limit(pid, "cpu", "cpu.cfs_quota_us", "cpu.max");
	uint64_t period = limit(pid, "cpu", "cpu.cfs_period_us", "cpu.none");

	facts->memory_bytes = limit(pid, "memory", "memory.limit_in_bytes", "memory.max");
	facts->pids = limit(pid, "pids", "pids.max", "pids.max");
	if (period == UINT64_MAX || period == 0)
		period = 100000;
	if (quota != UINT64_MAX)
		facts->cpu_pct = quota * 100 / period;
}

int proof_look_outside(int pid, uint64_t mnt_inode, struct proof_facts *facts)
{
	AUTO_FREE char *status = NULL;
	AUTO_FREE char *map = NULL;
	char path[64];
	int r;

	proof_facts_init(facts);
	for (size_t i = 0; i < PROOF_AT_MAX_; i++)
		facts->ns[i] = ns_inode(pid, proof_ns_names[i]);
	/* The number could mean somebody else in our PID namespace. */
	if (facts->ns[PROOF_AT_MNT] != mnt_inode)
		return -ENOENT;
	(void)snprintf(path, sizeof(path), "/proc/%d/status", pid);
	r = read_text(path, &status);
	if (r < 0 || !status)
		return r < 0 ? r : -ENODATA;
	proof_take_status(facts, status, false);
	(void)snprintf(path, sizeof(path), "/proc/%d/uid_map", pid);
	r = read_text(path, &map);
	if (r < 0 || !map)
		return r < 0 ? r : -ENODATA;
	for (int i = 0; i < 3; i++) {
		char *at = map + strspn(map, " ");
		char *rest = at;
		const char *word = next_word(&rest, " \n");
		uint64_t *const slots[] = {NULL, &facts->map_base, &facts->map_count};

		if (slots[i] && num_parse_u64(word, 0, UINT32_MAX, slots[i]) < 0)
			return -EBADMSG;
		memmove(map, rest, strlen(rest) + 1);
	}
	look_at_limits(pid, facts);
	return 0;
}
