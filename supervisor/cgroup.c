#include "supervisor/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/num.h"
#include "base/plant.h"
#include "base/str.h"

#include "supervisor/cgroup_delegate.h"
#include "supervisor/cgroup_find.h"

#define CPU_PERIOD_US 100000u
#define OWN_PIDS      3u /* pid 1, nursery and spawner */
/* Version 1 leaves the buffers of internet sockets out of the memory limit, and the system's own
 * bound on them is shared by all: a session could fill it (B20). They get this part of the limit
 * on top; in version 2 they are in it. */
#define SOCKETS_FILE  "memory.kmem.tcp.limit_in_bytes"
#define SOCKETS_PART  8u

/* Wide enough for "<id>/<file>" and for every number we write. */
#define PATH_BYTES 96
#define TEXT_BYTES 64

static const char *const controller_name[CGROUP_CONTROLLER_MAX_] = {
	[CGROUP_MEMORY] = "memory",
	[CGROUP_PIDS] = "pids",
	[CGROUP_CPU] = "cpu",
};
static const uint64_t controller_proof[CGROUP_CONTROLLER_MAX_] = {
	[CGROUP_MEMORY] = PROOF_MEMORY,
	[CGROUP_PIDS] = PROOF_PIDS,
	[CGROUP_CPU] = PROOF_CPU,
};

static int write_file(int dir_fd, const char *name, const char *file, const char *text)
{
	char path[PATH_BYTES];

	int r = str_format(path, sizeof(path), "%s/%s", name, file);
	if (r < 0)
		return r;
	return io_write_at(dir_fd, path, text);
}

static int write_u64(int dir_fd, const char *name, const char *file, uint64_t value)
{
	char text[TEXT_BYTES];

	int r = str_format(text, sizeof(text), "%llu", (unsigned long long)value);
	if (r < 0)
		return r;
	return write_file(dir_fd, name, file, text);
}

static int read_file(int dir_fd, const char *name, const char *file, char *text, size_t text_bytes)
{
	char path[PATH_BYTES];

	int r = str_format(path, sizeof(path), "%s/%s", name, file);
	if (r < 0)
		return r;
	ssize_t n = io_read_at(dir_fd, path, text, text_bytes);
	return n < 0 ? (int)n : 0;
}

static uint64_t read_u64(int dir_fd, const char *name, const char *file)
{
	char text[TEXT_BYTES];
	uint64_t value = 0;

	if (dir_fd < 0 || read_file(dir_fd, name, file, text, sizeof(text)) < 0)
		return 0;
	/* "max" and anything else that is no number reads as 0: not limited. */
	if (num_parse_u64(text, 0, UINT64_MAX, &value) < 0)
		return 0;
	return value;
}

/* The number behind `key` in a file of "key value" lines; 0 when it is not there. */
static uint64_t read_key(int dir_fd, const char *name, const char *file, const char *key)
{
	char text[1024];
	uint64_t value = 0;

	if (dir_fd < 0 || read_file(dir_fd, name, file, text, sizeof(text)) < 0)
		return 0;
	size_t length = strlen(key);
	for (char *line = text; line;) {
		char *next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		if (strncmp(line, key, length) == 0 && line[length] == ' ') {
			if (num_parse_u64(line + length + 1, 0, UINT64_MAX, &value) < 0)
				return 0;
			return value;
		}
		line = next;
	}
	return 0;
}

static int open_controller(struct cgroup *cgroup, enum cgroup_controller which, const char *parent,
			   struct err *err)
{
	const char *name = controller_name[which];
	int r;

	if (cgroup_delegate_offers(cgroup, name)) {
		r = cgroup_delegate(cgroup, name);
		if (r < 0)
			return err_fail(err, r, "cgroup", "hand down v2 controller %s", name);
		cgroup->in_v2[which] = true;
		return 0;
	}
	r = parent ? cgroup_find_at(name, parent, err) : cgroup_find_own(name, err);
	if (r == -ENOENT && parent)
		r = cgroup_find_own(name, err); /* whoever made the parent leaves v1 alone */
	if (r == -ENOENT)
		return 0; /* neither here nor there: cgroup_missing() says so */
	if (r < 0)
		return err_fail(err, r, "cgroup", "find v1 controller %s", name);
	cgroup->v1_parent_fd[which] = r;
	r = cgroup_find_below(cgroup->v1_parent_fd[which], cgroup->name, &cgroup->v1_fd[which]);
	if (r < 0)
		return err_fail(err, r, "cgroup", "make v1 %s/%s", name, cgroup->name);
	return 0;
}

/*
 * The v2 group below which the instance's group is made: the one we were told; else our own, but
 * where controllers are to be handed down and somebody else's processes are in it (a login shell's
 * scope, say), the top of the tree, as container runtimes do, instead of moving strangers about.
 */
static int open_v2_parent(struct cgroup *cgroup, const char *parent, struct err *err)
{
	int r;

	if (parent) {
		r = cgroup_find_at(NULL, parent, err);
		if (r < 0)
			return err_fail(err, r, "cgroup", "open --cgroup-parent %s", parent);
		cgroup->v2_parent_fd = r;
		cgroup->parent_is_told = true;
		return 0;
	}
	r = cgroup_find_own(NULL, err);
	if (r < 0)
		return err_fail(err, r, "cgroup", "no cgroup2 tree is mounted");
	cgroup->v2_parent_fd = r;
	if (!cgroup_delegate_offers(cgroup, controller_name[CGROUP_MEMORY]) ||
	    !cgroup_delegate_has_strangers(cgroup))
		return 0;
	r = cgroup_find_top(err);
	if (r < 0)
		return err_fail(err, r, "cgroup", "open the top of the cgroup2 tree");
	cgroup->v2_parent_fd = fd_close(cgroup->v2_parent_fd);
	cgroup->v2_parent_fd = r;
	return 0;
}

/* In the group of the instance, which in v2 holds the workers as well: theirs comes on top. */
static int set_total(const struct cgroup *cgroup, enum cgroup_controller which, uint64_t value)
{
	static const struct {
		const char *v2_file;
		const char *v1_file;
	} totals[] = {
		[CGROUP_MEMORY] = {"memory.max", "memory.limit_in_bytes"},
		[CGROUP_PIDS] = {"pids.max",   "pids.max"             },
	};

	if (value == 0)
		return 0;
	if (cgroup->in_v2[which])
		return write_u64(cgroup->v2_fd, ".", totals[which].v2_file,
				 value + cgroup_workers_total(which));
	if (cgroup->v1_fd[which] < 0)
		return 0; /* cgroup_missing() says so */
	int r = write_u64(cgroup->v1_fd[which], ".", totals[which].v1_file, value);
	if (r < 0 || which != CGROUP_MEMORY)
		return r;
	/* Also what keeps the accounting of sockets switched on between two sessions: the kernel
	 * patches its code for the first group and after the last. */
	r = write_u64(cgroup->v1_fd[which], ".", SOCKETS_FILE, value / SOCKETS_PART);
	return r == -ENOENT ? 0 : r;
}

int cgroup_set_totals(const struct cgroup *cgroup, uint64_t max_memory_bytes, uint64_t max_pids)
{
	int r = set_total(cgroup, CGROUP_MEMORY, max_memory_bytes);

	return r < 0 ? r : set_total(cgroup, CGROUP_PIDS, max_pids);
}

int cgroup_open(struct cgroup *cgroup, const char *instance, const char *parent, struct err *err)
{
	struct stat st;

	*cgroup = CGROUP_NULL;
	int r = str_format(cgroup->name, sizeof(cgroup->name), "sandboxd-%s", instance);
	if (r < 0)
		return err_fail(err, r, "cgroup", "instance name");
	r = open_v2_parent(cgroup, parent, err);
	if (r < 0)
		return r;
	r = cgroup_find_below(cgroup->v2_parent_fd, cgroup->name, &cgroup->v2_fd);
	if (r < 0)
		return err_fail(err, r, "cgroup", "make v2 %s", cgroup->name);
	if (fstat(cgroup->v2_fd, &st) < 0)
		return err_fail(err, -errno, "cgroup", "stat v2 %s", cgroup->name);
	cgroup->id = st.st_ino;
	if (faccessat(cgroup->v2_fd, "cgroup.kill", W_OK, 0) < 0)
		return err_fail(err, -errno, "cgroup", "cgroup.kill is not there");
	for (unsigned int i = 0; i < CGROUP_CONTROLLER_MAX_; i++) {
		r = open_controller(cgroup, (enum cgroup_controller)i, parent, err);
		if (r < 0)
			return r;
	}
	cgroup->has_memsw = cgroup->v1_fd[CGROUP_MEMORY] >= 0 &&
			    faccessat(cgroup->v1_fd[CGROUP_MEMORY], "memory.memsw.limit_in_bytes",
				      W_OK, 0) == 0;
	return 0;
}

void cgroup_done(struct cgroup *cgroup)
{
	for (unsigned int i = 0; i < CGROUP_CONTROLLER_MAX_; i++) {
		/* EBUSY: somebody else's child is in it; the next start cleans up. */
		if (cgroup->v1_fd[i] >= 0)
			(void)unlinkat(cgroup->v1_parent_fd[i], cgroup->name, AT_REMOVEDIR);
		cgroup->v1_fd[i] = fd_close(cgroup->v1_fd[i]);
		cgroup->v1_parent_fd[i] = fd_close(cgroup->v1_parent_fd[i]);
	}
	if (cgroup->v2_fd >= 0)
		(void)unlinkat(cgroup->v2_parent_fd, cgroup->name, AT_REMOVEDIR);
	cgroup->v2_fd = fd_close(cgroup->v2_fd);
	cgroup->v2_parent_fd = fd_close(cgroup->v2_parent_fd);
}

uint64_t cgroup_missing(const struct cgroup *cgroup)
{
	uint64_t missing = 0;

	for (unsigned int i = 0; i < CGROUP_CONTROLLER_MAX_; i++) {
		if (!cgroup->in_v2[i] && cgroup->v1_fd[i] < 0)
			missing |= controller_proof[i];
	}
	return missing;
}

int cgroup_make(const struct cgroup *cgroup, const char *name, int *ret_fd)
{
	/* EEXIST is an error here: a group of that name may hold somebody's processes. */
	if (mkdirat(cgroup->v2_fd, name, 0755) < 0)
		return -errno;
	int fd = openat(cgroup->v2_fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

/* One row per limit: which controller, which file in v2, which in v1. */
enum cgroup_value {
	VALUE_MEMORY,
	VALUE_SWAP,
	VALUE_SOCKETS, /* buffers of TCP and UDP: v1 counts them apart, and only when asked to */
	VALUE_PIDS,
	VALUE_CPU_MAX,
	VALUE_CPU_WEIGHT,
};
static const struct limit_row {
	enum cgroup_controller controller;
	enum cgroup_value value;
	const char *v2_file;
	const char *v1_file;
} limit_rows[] = {
	{CGROUP_MEMORY, VALUE_MEMORY,     "memory.max",      "memory.limit_in_bytes"      },
	{CGROUP_MEMORY, VALUE_SWAP,       "memory.swap.max", "memory.memsw.limit_in_bytes"},
	{CGROUP_MEMORY, VALUE_SOCKETS,    NULL,              SOCKETS_FILE                 },
	{CGROUP_PIDS,   VALUE_PIDS,       "pids.max",        "pids.max"                   },
	{CGROUP_CPU,    VALUE_CPU_MAX,    "cpu.max",         "cpu.cfs_quota_us"           },
	{CGROUP_CPU,    VALUE_CPU_WEIGHT, "cpu.weight",      "cpu.shares"                 },
};

static int limit_text(const struct plan *plan, enum cgroup_value value, bool is_v2, char *text)
{
	uint64_t quota_us = (uint64_t)plan->cpu_pct * (CPU_PERIOD_US / 100);
	uint64_t number = 0;

	switch (value) {
	case VALUE_MEMORY:
		number = plan->memory_bytes;
		break;
	case VALUE_SWAP:
		/* v1 counts memory and swap together, v2 swap alone: no swap in both. */
		number = is_v2 ? 0 : plan->memory_bytes;
		break;
	case VALUE_SOCKETS:
		number = plan->memory_bytes / SOCKETS_PART;
		break;
	case VALUE_PIDS:
		number = plan->max_pids;
		break;
	case VALUE_CPU_MAX:
		if (is_v2)
			return str_format(text, TEXT_BYTES, "%llu %u", (unsigned long long)quota_us,
					  CPU_PERIOD_US);
		number = quota_us;
		break;
	case VALUE_CPU_WEIGHT:
		/* weight 100 is the default of v2, shares 1024 that of v1; v1 takes 2 at least. */
		number = is_v2 ? plan->cpu_weight : (uint64_t)plan->cpu_weight * 1024 / 100;
		if (!is_v2 && number < 2)
			number = 2;
		break;
	}
	return str_format(text, TEXT_BYTES, "%llu", (unsigned long long)number);
}

static int set_limit(const struct cgroup *cgroup, const char *name, const struct plan *plan,
		     const struct limit_row *row)
{
	char text[TEXT_BYTES];
	bool is_v2 = cgroup->in_v2[row->controller];
	int dir_fd = is_v2 ? cgroup->v2_fd : cgroup->v1_fd[row->controller];

	if (dir_fd < 0 || (row->value == VALUE_SWAP && !is_v2 && !cgroup->has_memsw))
		return 0;
	if (is_v2 && !row->v2_file)
		return 0;
	int r = limit_text(plan, row->value, is_v2, text);
	if (r < 0)
		return r;
	r = write_file(dir_fd, name, is_v2 ? row->v2_file : row->v1_file, text);
	/* A kernel without swap accounting has no such file, and no swap to limit either; one
	 * without IPv4 has no sockets. */
	if (r == -ENOENT && (row->value == VALUE_SWAP || row->value == VALUE_SOCKETS))
		return 0;
	return r;
}

int cgroup_limit(const struct cgroup *cgroup, bool is_v2, const char *name, const struct plan *plan,
		 struct err *err)
{
	for (unsigned int i = 0; !is_v2 && i < CGROUP_CONTROLLER_MAX_; i++) {
		if (cgroup->v1_fd[i] >= 0 && mkdirat(cgroup->v1_fd[i], name, 0755) < 0)
			return err_fail(err, -errno, "limits", "make v1 %s group",
					controller_name[i]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(limit_rows); i++) {
		int r = cgroup->in_v2[limit_rows[i].controller] == is_v2
				? set_limit(cgroup, name, plan, &limit_rows[i])
				: 0;
		if (r < 0)
			return err_fail(err, r, "limits", "set %s",
					limit_rows[i].v2_file ? limit_rows[i].v2_file
							      : limit_rows[i].v1_file);
	}
	return 0;
}

int cgroup_join_self(const struct cgroup *cgroup, const char *tasks)
{
	for (unsigned int i = 0; i < CGROUP_CONTROLLER_MAX_; i++) {
		if (cgroup->v1_fd[i] < 0)
			continue;
		int r = io_write_at(cgroup->v1_fd[i], tasks, "0");
		if (r < 0)
			return r;
	}
	return 0;
}

uint64_t cgroup_joined(const struct cgroup *cgroup, const char *name, char *text)
{
	char suffix[PATH_BYTES];
	uint64_t joined = 0;

	if (str_format(suffix, sizeof(suffix), "/%s/%s", cgroup->name, name) < 0)
		return 0;
	for (char *line = text; line;) {
		char *next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		bool is_v2 = str_has_prefix(line, "0::");
		for (unsigned int i = 0; i < CGROUP_CONTROLLER_MAX_; i++) {
			if (cgroup->in_v2[i] == is_v2 && str_has_suffix(line, suffix) &&
			    (is_v2 || cgroup_find_lists(line, controller_name[i])))
				joined |= controller_proof[i];
		}
		line = next;
	}
	return joined;
}

int cgroup_kill(const struct cgroup *cgroup, const char *name)
{
	return write_file(cgroup->v2_fd, name, "cgroup.kill", "1");
}

int cgroup_freeze(const struct cgroup *cgroup, const char *name, bool frozen)
{
	return write_file(cgroup->v2_fd, name, "cgroup.freeze", frozen ? "1" : "0");
}

bool cgroup_is_frozen(const struct cgroup *cgroup, const char *name)
{
	return read_u64(cgroup->v2_fd, name, "cgroup.freeze") == 1;
}

int cgroup_open_events(const struct cgroup *cgroup, const char *name)
{
	char path[PATH_BYTES];

	int r = str_format(path, sizeof(path), "%s/cgroup.events", name);
	if (r < 0)
		return r;
	int fd = openat(cgroup->v2_fd, path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int cgroup_populated(int events_fd)
{
	char text[128];

	ssize_t n = pread(events_fd, text, sizeof(text) - 1, 0);
	if (n < 0)
		return errno == ENODEV ? 0 : -errno; /* ENODEV: the group was removed */
	text[n] = '\0';
	return strstr(text, "populated 0") ? 0 : 1;
}

int cgroup_remove(const struct cgroup *cgroup, const char *name)
{
	int result = 0;

	if (planted_nth("leave-group", 5))
		return 0;
	cgroup_remove_work(cgroup, name);
	/* v2 last: as long as it stands, a later start finds the session's name there. */
	for (unsigned int i = 0; i <= CGROUP_CONTROLLER_MAX_; i++) {
		int dir_fd = i < CGROUP_CONTROLLER_MAX_ ? cgroup->v1_fd[i] : cgroup->v2_fd;
		if (dir_fd < 0 || (i == CGROUP_CONTROLLER_MAX_ && result < 0))
			continue;
		if (unlinkat(dir_fd, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
			result = -errno;
	}
	return result;
}

uint64_t cgroup_cpu_us(const struct cgroup *cgroup, const char *name)
{
	/* cpu.stat of v2 counts time in every group, with or without the controller. */
	return read_key(cgroup->v2_fd, name, "cpu.stat", "usage_usec");
}

int cgroup_stat(const struct cgroup *cgroup, const char *name, struct launch_stat *ret_stat)
{
	struct launch_stat stat = {0};
	int memory = cgroup->v1_fd[CGROUP_MEMORY];
	int pids = cgroup->in_v2[CGROUP_PIDS] ? cgroup->v2_fd : cgroup->v1_fd[CGROUP_PIDS];

	if (cgroup->in_v2[CGROUP_MEMORY]) {
		stat.memory_bytes = read_u64(cgroup->v2_fd, name, "memory.current");
		stat.memory_peak_bytes = read_u64(cgroup->v2_fd, name, "memory.peak");
	} else {
		stat.memory_bytes = read_u64(memory, name, "memory.usage_in_bytes");
		stat.memory_peak_bytes = read_u64(memory, name, "memory.max_usage_in_bytes");
	}
	stat.n_pids = (uint32_t)read_u64(pids, name, "pids.current");
	stat.cpu_us = cgroup_cpu_us(cgroup, name);
	stat.frozen = (uint32_t)read_key(cgroup->v2_fd, name, "cgroup.events", "frozen");
	stat.oom_kills = cgroup_oom_kills(cgroup, name);
	stat.forks_refused = cgroup_forks_refused(cgroup, name);
	*ret_stat = stat;
	return 0;
}

void cgroup_read_limits(const struct cgroup *cgroup, const char *name, uint64_t *ret_memory_bytes,
			uint32_t *ret_max_pids, uint32_t *ret_cpu_pct)
{
	char text[TEXT_BYTES];
	uint64_t quota_us = 0;

	*ret_memory_bytes =
		cgroup->in_v2[CGROUP_MEMORY]
			? read_u64(cgroup->v2_fd, name, "memory.max")
			: read_u64(cgroup->v1_fd[CGROUP_MEMORY], name, "memory.limit_in_bytes");
	*ret_max_pids = (uint32_t)read_u64(cgroup->in_v2[CGROUP_PIDS] ? cgroup->v2_fd
								      : cgroup->v1_fd[CGROUP_PIDS],
					   name, "pids.max");
	if (!cgroup->in_v2[CGROUP_CPU]) {
		quota_us = read_u64(cgroup->v1_fd[CGROUP_CPU], name, "cpu.cfs_quota_us");
	} else if (read_file(cgroup->v2_fd, name, "cpu.max", text, sizeof(text)) == 0) {
		text[strcspn(text, " ")] = '\0';
		if (num_parse_u64(text, 0, UINT64_MAX, &quota_us) < 0)
			quota_us = 0;
	}
	*ret_cpu_pct = (uint32_t)(quota_us / (CPU_PERIOD_US / 100));
}

uint32_t cgroup_oom_kills(const struct cgroup *cgroup, const char *name)
{
	if (cgroup->in_v2[CGROUP_MEMORY])
		return (uint32_t)read_key(cgroup->v2_fd, name, "memory.events", "oom_kill");
	return (uint32_t)read_key(cgroup->v1_fd[CGROUP_MEMORY], name, "memory.oom_control",
				  "oom_kill");
}

uint32_t cgroup_forks_refused(const struct cgroup *cgroup, const char *name)
{
	int pids = cgroup->in_v2[CGROUP_PIDS] ? cgroup->v2_fd : cgroup->v1_fd[CGROUP_PIDS];

	uint32_t refused = (uint32_t)read_key(pids, name, "pids.events", "max");
	uint64_t max = read_u64(pids, name, "pids.max");
	/* Before 6.6 there is no peak: then what is there now. */
	uint64_t peak = read_u64(pids, name, "pids.peak");
	if (peak == 0)
		peak = read_u64(pids, name, "pids.current");
	/* RLIMIT_NPROC comes first and counts for nobody. Our own processes are not in it. */
	bool is_full = max > 0 && peak >= plan_user_pids((uint32_t)max) + OWN_PIDS;
	return refused == 0 && is_full ? 1 : refused;
}
