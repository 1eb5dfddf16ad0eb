/*
 * Order of the opening: everything that has a name on the host first, then the supervisor's own
 * root, after which no name of the host leads anywhere. One table, each row with the reason for its
 * place.
 */
#include "supervisor/host.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/io.h"
#include "base/log.h"
#include "base/num.h"
#include "base/path.h"
#include "base/str.h"

#include "sandboxd/kernel.h"
#include "supervisor/egress_guard.h"
#include "supervisor/host_state.h"
#include "supervisor/idmap.h"
#include "supervisor/mountns.h"
#include "supervisor/netns.h"
#include "supervisor/probe.h"
#include "supervisor/weaken.h"

#define PROGRAM_MAX_BYTES ((size_t)64 * 1024 * 1024)
#define INCOMPATIBLE_MAX  65536u
#define KERNEL_MAX_PIDS   4194304u /* PID_MAX_LIMIT */
#define OWED_PAUSE        (100 * USEC_PER_MS)
#define SHORTEST_SLICE_NS 100000 /* what the kernel grants */

static const char *const program_names[HOST_PROGRAMS] = {"sandboxd-api",      "sandboxd-egress",
							 "sandboxd-config",   "sandboxd-helper",
							 "sandboxd-provider", "sandboxd-s3"};
static const char *const namespace_names[HOST_NS_MAX_] = {"mnt", "net",    "pid", "ipc",
							  "uts", "cgroup", "user"};

const char *host_namespace_name(enum host_namespace which)
{
	return namespace_names[which];
}

static int stage_minimum(struct host *host, const struct host_options *options, struct err *err)
{
	int r = probe_minimum(err);

	if (r < 0)
		return r;
	host->probes = probe_features(options->kernel_6_1);
	host->ipv6 = netns_has_ipv6();
	host->landlock_abi = probe_landlock(options->kernel_6_1);
	if (host->landlock_abi > 0)
		host->probes |= KERNEL_LANDLOCK;
	/* A launch or a command is a chain of wake-ups, most of them ours. Beside sessions that
	 * compute, each would wait for the rest of somebody's slice. All that we start inherits it;
	 * a command gives it back (shim/exec.c). */
	if (!options->kernel_6_1 && kernel_set_slice(SHORTEST_SLICE_NS) == 0)
		host->probes |= KERNEL_SLICE;
	if (weakened(WEAKEN_LANDLOCK))
		host->landlock_abi = 0;
	return 0;
}

static int stage_groups(struct host *host, const struct host_options *options, struct err *err)
{
	int r = cgroup_open(&host->cgroup, options->instance, options->cgroup_parent, err);

	return r < 0 ? r : host_make_workers_group(host, err);
}

static int make_group(const struct host *host, enum cgroup_workers which, int *ret_fd,
		      struct err *err)
{
	const char *name = cgroup_workers_name(which);

	*ret_fd = fd_close(*ret_fd);
	if (mkdirat(host->cgroup.v2_fd, name, 0755) < 0 && errno != EEXIST)
		return err_fail(err, -errno, "host", "make the group %s", name);
	/* Not O_PATH: bpf(2) wants an open directory. */
	*ret_fd = openat(host->cgroup.v2_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (*ret_fd < 0)
		return err_fail(err, -errno, "host", "open the group %s", name);
	int r = cgroup_limit_workers(&host->cgroup, which);
	return r < 0 ? err_fail(err, r, "host", "limit the group %s", name) : 0;
}

int host_make_workers_group(struct host *host, struct err *err)
{
	int r = make_group(host, CGROUP_WORKERS, &host->workers_group_fd, err);

	return r < 0 ? r : make_group(host, CGROUP_EGRESS, &host->egress_group_fd, err);
}

static int stage_ids(struct host *host, const struct host_options *options, struct err *err)
{
	const struct idblock_options ids = {
		.file = IDBLOCK_FILE,
		.etc = "/etc",
		.instance = options->instance,
		.group_id = host->cgroup.id,
		.group_fd = host->cgroup.v2_fd,
	};

	int r = idblock_open(&host->idblock, &ids, err);
	if (r < 0)
		return r;
	r = idblock_take(&host->idblock, clock_boottime(), &host->worker_ids);
	if (r < 0)
		return err_fail(err, r, "host", "take the workers' id block");
	return 0;
}

/* <runtime>/private/sessions: root's alone, so nobody outside reaches a shim's socket (A13, A14).
 */
static int open_private(int dir_fd, const char *name, struct err *err)
{
	struct stat st;

	if (mkdirat(dir_fd, name, 0700) < 0 && errno != EEXIST)
		return err_fail(err, -errno, "host", "make %s in the runtime directory", name);
	AUTO_CLOSE int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_fail(err, -errno, "host", "open %s in the runtime directory", name);
	if (st.st_uid != geteuid() || (st.st_mode & 077) != 0)
		return err_fail(err, -EPERM, "host",
				"%s in the runtime directory is not ours alone", name);
	return TAKE_FD(fd);
}

static int stage_runtime(struct host *host, const struct host_options *options, struct err *err)
{
	AUTO_CLOSE int runtime_fd = open(options->runtime_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (runtime_fd < 0)
		return err_fail(err, -errno, "host", "open the runtime directory");
	AUTO_CLOSE int private_fd = open_private(runtime_fd, "private", err);
	if (private_fd < 0)
		return private_fd;
	host->sockets_fd = open_private(private_fd, "sessions", err);
	return host->sockets_fd < 0 ? host->sockets_fd : 0;
}

static int seal_file(int dir_fd, const char *name, int is_program, int *ret_fd, struct err *err)
{
	AUTO_FREE char *data = NULL;
	size_t size = 0;
	AUTO_CLOSE int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return err_fail(err, -errno, "host", "open %s", name);
	int r = io_read_file(fd, PROGRAM_MAX_BYTES, &data, &size);
	if (r < 0)
		return err_fail(err, r, "host", "read %s", name);
	r = fd_memfd_sealed(name, data, size, is_program);
	if (r < 0)
		return err_fail(err, r, "host", "seal %s", name);
	*ret_fd = r;
	return 0;
}

/* Programs that run inside sessions are copied into sealed memfds: nothing that a session can see
 * of them is a file of the host (A1). Workers' programs run outside and are opened only. */
static int stage_programs(struct host *host, const struct host_options *options, struct err *err)
{
	AUTO_CLOSE int dir_fd = open(options->libexec_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (dir_fd < 0)
		return err_fail(err, -errno, "host", "programs, --libexec-dir %s",
				options->libexec_dir);
	int r = seal_file(dir_fd, "sandbox-shim", 1, &host->shim_fd, err);
	if (r == 0)
		r = seal_file(dir_fd, "sandbox-loader", 1, &host->loader_fd, err);
	if (r == 0)
		r = seal_file(dir_fd, "sandbox-archive", 1, &host->archive_fd, err);
	if (r == 0)
		r = seal_file(dir_fd, "sandbox-git", 1, &host->git_fd, err);
	/* Whoever runs what it cannot read is not dumpable from the first instruction on. */
	if (r == 0 && fchmod(host->git_fd, S_IXUSR | S_IXGRP | S_IXOTH) < 0)
		r = err_fail(err, -errno, "host", "mode of sandbox-git");
	if (r == 0)
		r = seal_file(dir_fd, "sandbox-canary", 1, &host->canary_fd, err);
	for (size_t i = 0; r == 0 && i < HOST_PROGRAMS; i++) {
		/* Not there: host_program() says so to whoever needs it. */
		host->program_fd[i] = openat(dir_fd, program_names[i], O_RDONLY | O_CLOEXEC);
	}
	/* Mapped here, so a copy as well: see own_pages.c. */
	return r < 0 ? r : seal_file(dir_fd, "policy.img", 0, &host->policy_fd, err);
}

static int stage_policy(struct host *host, const struct host_options *options, struct err *err)
{
	(void)options;
	int r = image_open(host->policy_fd, &host->image, err);

	if (r < 0)
		return r;
	for (uint32_t i = 0; i < host->image.header->n_profiles; i++) {
		AUTO_FREE void *data = NULL;
		size_t size = 0;
		r = image_session(&host->image, i, &data, &size);
		if (r == -ENOENT)
			continue; /* a worker's profile */
		if (r == 0)
			r = weaken_policy(&data, &size);
		if (r == 0)
			r = fd_memfd_sealed("session-policy", data, size, 0);
		if (r < 0)
			return err_fail(err, r, "host", "cut the policy of profile %u", i);
		host->session_policy_fd[i] = r;
	}
	return 0;
}

static int stage_clocks(struct host *host, const struct host_options *options, struct err *err)
{
	(void)options;
	void *memory = mmap(NULL, (HOST_CLOCKS + 1) * sizeof(struct steps_clock),
			    PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return err_fail(err, -errno, "host", "map the launch clocks");
	host->clocks = memory;
	return 0;
}

static int stage_root(struct host *host, const struct host_options *options, struct err *err)
{
	int state_fd = options->state_dir_fd > 2 ? options->state_dir_fd : -1;

	host->mounts_fd = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
	if (host->mounts_fd < 0)
		return err_fail(err, -errno, "host", "open the mount namespace");
	int r = rootfs_enter(state_fd, &host->mask_job, err);
	if (r < 0)
		return r;
	if (!options->kernel_6_1)
		host->probes |= idmap_probe();
	if (!(host->probes & KERNEL_USR_IDMAP) || !(host->probes & KERNEL_TMPFS_IDMAP) ||
	    !(host->probes & KERNEL_STATE_IDMAP))
		log_line(LOG_LEVEL_INFO, NULL, "layers cannot all be idmapped",
			 "usr=%s own=%s templates=%s",
			 host->probes & KERNEL_USR_IDMAP ? "yes" : "no",
			 host->probes & KERNEL_TMPFS_IDMAP ? "yes" : "no",
			 host->probes & KERNEL_STATE_IDMAP ? "yes" : "no");
	return rootfs_proc_mask(&host->proc_mask, err);
}

int host_settle(struct host *host, struct err *err)
{
	struct usr_mask_job *job = &host->mask_job;
	const struct usr_mask *mask = &host->usr_mask;

	if (job->pid_fd < 0)
		return host->mask_error == 0
			       ? 0
			       : err_fail(err, host->mask_error, "usr-mask", "look through /usr");
	host->mask_source = loop_remove(host->mask_source);
	host->mask_error = usr_mask_end(job, &host->usr_mask, err);
	if (host->mask_error == 0 && host->turn)
		host->mask_error = rootfs_seal(err);
	if (host->mask_error == 0)
		log_line(LOG_LEVEL_INFO, NULL, "looked through /usr",
			 "entries=%u sockets=%u devices=%u setuid=%u private=%u copied=%u ms=%llu",
			 mask->n_entries, mask->n_sockets, mask->n_devices, mask->n_setuid,
			 mask->n_private, mask->copies.n,
			 (unsigned long long)((clock_boottime() - job->begun_at) / USEC_PER_MS));
	return host->mask_error;
}

static int on_mask_end(void *userdata, uint32_t events)
{
	struct err err = ERR_NULL;

	(void)events;
	/* Each launch is then refused with the same reason. */
	if (host_settle(userdata, &err) < 0)
		log_err(LOG_LEVEL_ERROR, NULL, "no session can be launched", &err);
	return 0;
}

static int stage_namespaces(struct host *host, const struct host_options *options, struct err *err)
{
	char path[64];
	struct stat st;

	(void)options;
	for (unsigned int i = 0; i < HOST_NS_MAX_; i++) {
		if (str_format(path, sizeof(path), "/proc/self/ns/%s", namespace_names[i]) < 0 ||
		    stat(path, &st) < 0)
			return err_fail(err, -ENOSYS, "host", "no %s namespaces",
					namespace_names[i]);
		host->ns_inode[i] = st.st_ino;
	}
	return 0;
}

static int on_turn(void *userdata, uint32_t events)
{
	struct host *host = userdata;

	(void)events;
	loop_deferred_set(host->turn, 0);
	session_free_dead(host);
	userns_reserve_refill(&host->reserve);
	lookup_reserve_refill(&host->lookups);
	if (idblock_settle(&host->idblock, clock_boottime()) < 0)
		loop_timer_set(host->idblock_timer, clock_add(clock_boottime(), OWED_PAUSE));
	return 0;
}

static int on_idblock_timer(void *userdata, uint32_t events)
{
	(void)events;
	host_wake(userdata);
	return 0;
}

void host_wake(struct host *host)
{
	loop_deferred_set(host->turn, 1);
}

static int stage_loop(struct host *host, const struct host_options *options, struct err *err)
{
	(void)options;
	int r = userns_reserve_init(&host->reserve, host->loop, &host->idblock);
	if (r == 0)
		r = lookup_reserve_init(&host->lookups, host->loop);
	if (r == 0)
		r = loop_add_timer(host->loop, USEC_NEVER, on_idblock_timer, host,
				   &host->idblock_timer);
	if (r == 0)
		r = loop_add_deferred(host->loop, on_turn, host, &host->turn);
	if (r == 0)
		r = loop_add(host->loop, host->mask_job.pid_fd, EPOLLIN, on_mask_end, host,
			     &host->mask_source);
	if (r < 0)
		return err_fail(err, r, "host", "add to the loop");
	return 0;
}

static const struct stage {
	int (*run)(struct host *host, const struct host_options *options, struct err *err);
} stages[] = {
	{stage_minimum},    /* refuse before anything is made */
	{stage_groups},     /* host paths: control group trees */
	{stage_ids},        /* host paths: id-block file, /etc; knows the instance by its group */
	{stage_runtime},    /* host path */
	{stage_programs},   /* host path */
	{stage_policy},     /* the image is open */
	{stage_clocks},     /* before the first clone */
	{stage_root},       /* leaves the host's mount namespace */
	{stage_namespaces}, /* of the supervisor as it now is */
	{stage_loop},
};

int host_open(struct loop *loop, const struct host_options *options, struct host **ret_host,
	      struct err *err)
{
	struct host *host = calloc(1, sizeof(*host));

	if (!host)
		return err_fail(err, -ENOMEM, "host", "memory");
	host->loop = loop;
	host->cgroup = CGROUP_NULL;
	host->idblock = IDBLOCK_NULL;
	host->reserve = USERNS_RESERVE_NULL;
	host->mask_job = USR_MASK_JOB_NULL;
	host->egress_group_fd = -1;
	host->workers_group_fd = host->sockets_fd = host->policy_fd = host->mounts_fd = -1;
	egress_guard_programs_init(&host->guard_programs);
	host->shim_fd = host->loader_fd = host->git_fd = host->archive_fd = host->canary_fd = -1;
	for (size_t i = 0; i < HOST_PROGRAMS; i++)
		host->program_fd[i] = -1;
	for (size_t i = 0; i < POLICY_MAX_PROFILES; i++)
		host->session_policy_fd[i] = -1;
	list_init(&host->sessions);
	list_init(&host->adopted);
	list_init(&host->dead);
	host->incompatible = BUF_NULL(INCOMPATIBLE_MAX * sizeof(struct id));
#ifdef SANDBOXD_TEST_HOOKS
	/* One thread and nobody calls setenv. NOLINTNEXTLINE(concurrency-mt-unsafe) */
	host->fail_step = getenv("SANDBOX_FAIL_STEP");
	host->crash_step = getenv("SANDBOX_CRASH_STEP"); /* NOLINT(concurrency-mt-unsafe) */
#endif
	int r = 0;
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(stages); i++)
		r = stages[i].run(host, options, err);
	if (r < 0) {
		(void)host_close(host);
		return r;
	}
	*ret_host = host;
	return 0;
}

const struct id *host_incompatible(const struct host *host, size_t *ret_n)
{
	*ret_n = host->incompatible.size / sizeof(struct id);
	return (const struct id *)(const void *)host->incompatible.data;
}

bool host_has_sessions(const struct host *host)
{
	return !list_empty(&host->sessions) || !list_empty(&host->adopted);
}

static int check_strict(const struct host *host, struct err *err)
{
	uint64_t missing = cgroup_missing(&host->cgroup);

	if (!host->strict || missing == 0)
		return 0;
	return err_fail(err, -ENOTSUP, "host", "strict: no %s controller on this host",
			missing & PROOF_MEMORY ? "memory"
			: missing & PROOF_PIDS ? "pids"
					       : "cpu");
}

/* Processes that this host can have. */
static uint64_t host_max_pids(void)
{
	static const char *const files[] = {"/proc/sys/kernel/pid_max",
					    "/proc/sys/kernel/threads-max"};
	uint64_t least = KERNEL_MAX_PIDS;

	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		char text[32];
		uint64_t value = 0;
		if (io_read_at(AT_FDCWD, files[i], text, sizeof(text)) >= 0 &&
		    num_parse_u64(text, 1, UINT64_MAX, &value) == 0 && value < least)
			least = value;
	}
	return least;
}

/* A kernel without these programs has the workers' own rules alone: strict refuses that. */
static int apply_guard(struct host *host, const struct egress_guard *guard, struct err *err)
{
	struct err why = ERR_NULL;

	int r = egress_guard_apply(guard, host->egress_group_fd, &host->guard_programs, &why);
	if (r == 0) {
		host->guarded = true;
		return 0;
	}
	/* What was in force is, and a configuration that cannot be put in force changes nothing. */
	if (host->strict || host->guarded) {
		*err = why;
		return r;
	}
	log_err(LOG_LEVEL_ERROR, NULL, "egress workers have no second line", &why);
	return 0;
}

int host_configure(struct host *host, const struct host_configuration *configuration,
		   struct err *err)
{
	uint64_t max_pids = host_max_pids() / 5 * 4;

	host->strict = configuration->strict;
	int r = check_strict(host, err);
	if (r == 0 && configuration->guard)
		r = apply_guard(host, configuration->guard, err);
	if (r < 0)
		return r;
	/* Limits of sessions may add up to more than the host has, a start of ours must not fail.
	 */
	if (configuration->max_pids != 0 && configuration->max_pids < max_pids)
		max_pids = configuration->max_pids;
	r = cgroup_set_totals(&host->cgroup, configuration->max_memory_bytes, max_pids);
	/* Lower than what adopted sessions use by now: their own limits hold, and this one at the
	 * next start. */
	if (r == -EBUSY && host_has_sessions(host))
		log_line(LOG_LEVEL_WARNING, NULL, "the limits of all sessions together stay", "");
	else if (r < 0)
		return err_fail(err, r, "host", "set the limits of all sessions together");
	host->reserve.want = configuration->userns_reserve > USERNS_RESERVE_MAX
				     ? USERNS_RESERVE_MAX
				     : configuration->userns_reserve;
	host_wake(host);
	return 0;
}

struct host *host_close(struct host *host)
{
	if (!host)
		return NULL;
	ASSERT(!host_has_sessions(host));
	session_free_dead(host);
	/* A start that was refused does not wait for it. */
	host->mask_source = loop_remove(host->mask_source);
	usr_mask_cancel(&host->mask_job);
	host->turn = loop_remove(host->turn);
	host->idblock_timer = loop_remove(host->idblock_timer);
	if (host->reserve.idblock)
		userns_reserve_done(&host->reserve);
	lookup_reserve_done(&host->lookups);
	if (host->worker_ids != 0)
		idblock_release(&host->idblock, host->worker_ids, clock_boottime());
	idblock_done(&host->idblock);
	host->workers_group_fd = fd_close(host->workers_group_fd);
	host->egress_group_fd = fd_close(host->egress_group_fd);
	for (unsigned int i = 0; i < CGROUP_WORKERS_MAX_; i++)
		cgroup_remove_workers(&host->cgroup, (enum cgroup_workers)i);
	cgroup_done(&host->cgroup);
	buf_done(&host->incompatible);
	host->sockets_fd = fd_close(host->sockets_fd);
	image_close(&host->image);
	host->policy_fd = fd_close(host->policy_fd);
	host->mounts_fd = fd_close(host->mounts_fd);
	egress_guard_programs_done(&host->guard_programs);
	for (size_t i = 0; i < POLICY_MAX_PROFILES; i++)
		host->session_policy_fd[i] = fd_close(host->session_policy_fd[i]);
	host->shim_fd = fd_close(host->shim_fd);
	host->loader_fd = fd_close(host->loader_fd);
	host->git_fd = fd_close(host->git_fd);
	host->archive_fd = fd_close(host->archive_fd);
	host->canary_fd = fd_close(host->canary_fd);
	for (size_t i = 0; i < HOST_PROGRAMS; i++)
		host->program_fd[i] = fd_close(host->program_fd[i]);
	if (host->clocks)
		(void)munmap(host->clocks, (HOST_CLOCKS + 1) * sizeof(struct steps_clock));
	free(host);
	return NULL;
}

uint64_t host_limits_missing(const struct host *host)
{
	return cgroup_missing(&host->cgroup);
}

uint32_t host_probes(const struct host *host)
{
	return host->probes;
}

const struct policy_image_header *host_policy(const struct host *host)
{
	return host->image.header;
}

int host_mounts_fd(const struct host *host)
{
	return host->mounts_fd;
}

int host_policy_fd(const struct host *host)
{
	return host->policy_fd;
}

uint32_t host_worker_ids(const struct host *host)
{
	return host->worker_ids;
}

int host_worker_group(const struct host *host)
{
	return host->workers_group_fd;
}

int host_join_workers(const struct host *host, bool is_egress)
{
	return cgroup_join_workers(&host->cgroup, is_egress ? CGROUP_EGRESS : CGROUP_WORKERS);
}

int host_egress_group(const struct host *host)
{
	return host->egress_group_fd;
}

bool host_egress_guarded(const struct host *host)
{
	return host->guarded;
}

int host_enter_worker_root(const struct host *host, int state_fd, struct err *err)
{
	(void)host;
	return mountns_worker(state_fd, err);
}

int host_program(const struct host *host, const char *name)
{
	for (size_t i = 0; i < HOST_PROGRAMS; i++) {
		if (str_equal(name, program_names[i]))
			return host->program_fd[i];
	}
	return -1;
}
