/*
 * Theory. Three lists are laid side by side: the instance's control groups, the sockets and the
 * records of the runtime directory. A name under which all of them agree, with each other and with
 * what the kernel says of the process, is a live session and is taken over as it is; its proof is
 * not repeated, its record says that it held (E11). Every other name is ended and removed: groups
 * killed by one write each, drained side by side, then files. There is no third state, and nothing
 * is guessed.
 *
 * Only a contradiction ends a session. What is our own trouble (memory, descriptors) fails the
 * start instead; sessions live on and the next try finds them.
 *
 * Runs as: root with the supervisor's capabilities, in its own mount namespace, before any worker.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"

#include "sandboxd/kernel.h"
#include "supervisor/dirwalk.h"
#include "supervisor/netns.h"
#include "supervisor/probe.h"
#include "supervisor/record.h"
#include "supervisor/session_state.h"

#define NAME_BYTES    64
#define END_TIMEOUT   (10 * USEC_PER_SEC) /* of all that is ended, together */
#define END_PAUSE_NS  2000000
#define SOCKET_SUFFIX ".sock"

enum found_kind {
	FOUND_GROUP = 1,    /* in the v2 tree */
	FOUND_GROUP_V1 = 2, /* in any other */
	FOUND_SOCKET = 4,
	FOUND_RECORD = 8,
	FOUND_REST = 16, /* a record that was not finished */
};

struct found {
	char name[NAME_BYTES];
	uint32_t kinds;
	uint32_t id_base; /* as its record says; 0: unknown */
	bool is_session;  /* by its name; else the workers', or nobody's */
	bool adopted;
	bool gone;
	bool stuck; /* its group is elsewhere and does not end: the next start tries again */
	bool old;   /* of a release that we do not understand */
};

struct scan {
	struct found *found; /* sorted by name, each once */
	size_t n;
	size_t n_allocated;
};

/* --- what is there --------------------------------------------------------------------------- */

static int add(struct scan *scan, const char *name, size_t length, uint32_t kind)
{
	if (length >= NAME_BYTES)
		return 0; /* no name of ours */
	if (scan->n == scan->n_allocated) {
		size_t n = scan->n_allocated ? scan->n_allocated * 2 : 256;
		struct found *grown = reallocarray(scan->found, n, sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		scan->found = grown;
		scan->n_allocated = n;
	}
	struct found *found = &scan->found[scan->n++];
	*found = (struct found){.kinds = kind};
	memcpy(found->name, name, length);
	return 0;
}

static int on_group(void *userdata, const char *name, bool is_v2)
{
	return add(userdata, name, strlen(name), is_v2 ? FOUND_GROUP : FOUND_GROUP_V1);
}

static int on_file(void *userdata, const struct dirwalk_entry *entry)
{
	static const struct {
		const char *suffix;
		uint32_t kind;
		unsigned char type;
	} files[] = {
		{SOCKET_SUFFIX, FOUND_SOCKET, DT_SOCK},
		{RECORD_SUFFIX, FOUND_RECORD, DT_REG },
		{RECORD_REST,   FOUND_REST,   DT_REG },
	};
	size_t length = strlen(entry->name);

	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		if (entry->type == files[i].type && str_has_suffix(entry->name, files[i].suffix))
			return add(userdata, entry->name, length - strlen(files[i].suffix),
				   files[i].kind);
	}
	/* The directory is ours alone; what is no file of ours stays and harms nobody. */
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct found *)a)->name, ((const struct found *)b)->name);
}

static void merge(struct scan *scan)
{
	size_t n = 0;

	if (scan->n > 0)
		qsort(scan->found, scan->n, sizeof(scan->found[0]), by_name);
	for (size_t i = 0; i < scan->n; i++) {
		if (n > 0 && str_equal(scan->found[n - 1].name, scan->found[i].name))
			scan->found[n - 1].kinds |= scan->found[i].kinds;
		else
			scan->found[n++] = scan->found[i];
	}
	scan->n = n;
}

static int look(struct host *host, struct scan *scan)
{
	int r = cgroup_visit_all(&host->cgroup, on_group, scan);

	if (r == 0)
		r = dirwalk(host->sockets_fd, on_file, scan);
	if (r == 0)
		merge(scan);
	return r;
}

/* --- does one of them live? ------------------------------------------------------------------ */

struct candidate {
	struct host *host;
	struct found *found;
	struct record record;
	int pid_fd;
};

static int check_record(struct candidate *candidate)
{
	const struct host *host = candidate->host;
	struct record *record = &candidate->record;

	int r = record_read(host->sockets_fd, candidate->found->name, record);
	if (r < 0)
		return r;
	if (memcmp(record->instance, host->idblock.instance, sizeof(record->instance)) != 0)
		return -EXDEV;
	candidate->found->id_base = record->id_base;
	return record->state == RECORD_STATE_LIVE ? 0 : -EINPROGRESS;
}

static int check_group(struct candidate *candidate)
{
	return cgroup_check(&candidate->host->cgroup, candidate->found->name,
			    candidate->record.group_id);
}

static int check_socket(struct candidate *candidate)
{
	return candidate->found->kinds & FOUND_SOCKET ? 0 : -ENOENT;
}

static int check_ids(struct candidate *candidate)
{
	int r = idblock_holds(&candidate->host->idblock, candidate->record.id_base);

	return r < 0 ? r : r == 1 ? 0 : -ESTALE;
}

static bool has_ended(int pid_fd)
{
	struct pollfd ended = {.fd = pid_fd, .events = POLLIN};

	return poll(&ended, 1, 0) != 0;
}

/*
 * The pid may be another process by now. It is the shim if the process that the descriptor holds is
 * in the session's own group and has the PID namespace that was proven: nothing outside gets there,
 * and nothing inside outlives pid 1.
 */
static int check_process(struct candidate *candidate)
{
	const struct host *host = candidate->host;
	const struct record *record = &candidate->record;
	char path[64];
	struct stat st;
	uint64_t group_id = 0;
	int r;

	candidate->pid_fd = kernel_pidfd_open(record->pid, 0);
	if (candidate->pid_fd < 0)
		return -errno;
	if (host->probes & KERNEL_PIDFD_INFO) {
		r = probe_pidfd_group(candidate->pid_fd, &group_id);
		if (r == 0 && group_id != record->group_id)
			r = -ESTALE;
	} else {
		r = cgroup_holds(&host->cgroup, candidate->found->name, record->pid);
		r = r < 0 ? r : r == 1 ? 0 : -ESTALE;
	}
	if (r < 0)
		return r;
	r = str_format(path, sizeof(path), "/proc/%d/ns/pid", record->pid);
	if (r < 0)
		return r;
	if (stat(path, &st) < 0)
		return -errno;
	if (st.st_ino != record->proof.ns_inode[HOST_NS_PID])
		return -ESTALE;
	/* Alive to the end of these looks, so that the number named no other meanwhile. */
	return has_ended(candidate->pid_fd) ? -ESRCH : 0;
}

static const struct check {
	const char *name;
	int (*run)(struct candidate *candidate);
} checks[] = {
	{"record",  check_record },
        {"group",   check_group  },
        {"socket",  check_socket },
	{"ids",     check_ids    },
        {"process", check_process},
};

static int take_over(struct candidate *candidate)
{
	struct host *host = candidate->host;
	const struct record *record = &candidate->record;
	struct session *session = session_alloc(host, &record->plan);

	if (!session)
		return -ENOMEM;
	session->is_parted = cgroup_is_parted(&host->cgroup, session->name);
	session->state = session->is_parted || cgroup_is_frozen(&host->cgroup, session->name)
				 ? SESSION_STATE_FROZEN
				 : SESSION_STATE_LIVE;
	session->userns.base = record->id_base;
	session->group_id = record->group_id;
	session->has_group = session->has_socket = session->has_record = true;
	session->pid = record->pid;
	session->pid_fd = TAKE_FD(candidate->pid_fd);
	session->is_adopted = session->announced = true;
	session->begun_at = record->born_at_us;
	session->proof = record->proof;
	list_append(&host->adopted, &session->link);
	candidate->found->adopted = true;
	return 0;
}

/* Not the session's fault. */
static bool is_ours(int r)
{
	return r == -ENOMEM || r == -EMFILE || r == -ENFILE || r == -ETIMEDOUT;
}

/* A release without records, or one with other records, left something that runs. */
static bool is_old(const struct host *host, const struct found *found, int record_error)
{
	const uint32_t both = FOUND_GROUP | FOUND_SOCKET;

	if (record_error == -EPROTO)
		return true;
	if ((found->kinds & both) != both || (found->kinds & (FOUND_RECORD | FOUND_REST)) != 0)
		return false;
	AUTO_CLOSE int events_fd = cgroup_open_events(&host->cgroup, found->name);
	return events_fd >= 0 && cgroup_populated(events_fd) > 0;
}

/* Its record names a group that is not where we look: the service was started in another control
 * group than before, or on another state directory. Nobody would ever look there again. */
static void end_elsewhere(const struct candidate *candidate)
{
	const struct record *record = &candidate->record;
	struct found *found = candidate->found;
	struct id id;

	if (record->group_id == 0)
		return; /* nor does any record */
	int r = cgroup_end_by_id(&candidate->host->cgroup, record->group_id, found->name);
	if (r == 0)
		return;
	/* Who is in it has the ids of its block, and only the record leads there. */
	found->stuck = true;
	found->id_base = record->id_base;
	memcpy(id.bytes, record->plan.session, ID_BYTES);
	log_line(LOG_LEVEL_ERROR, &(struct log_context){.session = &id},
		 "a group elsewhere cannot be ended", "errno=%d", -r);
}

static int examine(struct host *host, struct found *found)
{
	struct candidate candidate = {.host = host, .found = found, .pid_fd = -1};
	struct id id = {{0}};
	int r = 0;
	size_t i = 0;

	found->is_session = id_parse(found->name, &id) == 0;
	if (!found->is_session)
		return 0;
	while (r == 0 && i < ARRAY_SIZE(checks))
		r = checks[i++].run(&candidate);
	if (r == 0)
		r = take_over(&candidate);
	candidate.pid_fd = fd_close(candidate.pid_fd);
	if (r == 0 || is_ours(r))
		return r;
	if (!(found->kinds & FOUND_GROUP))
		end_elsewhere(&candidate);
	found->old = i == 1 && is_old(host, found, r);
	log_line(LOG_LEVEL_WARNING, &(struct log_context){.session = &id},
		 found->old ? "session was made by another release and is ended"
			    : "session cannot be adopted and is ended",
		 "check=%s errno=%d", checks[i - 1].name, -r);
	return found->old ? buf_append(&host->incompatible, &id, sizeof(id)) : 0;
}

/* --- the end of the others ------------------------------------------------------------------- */

static bool try_to_remove(const struct host *host, const struct found *found)
{
	char socket_name[NAME_BYTES + sizeof(SOCKET_SUFFIX)];

	if (cgroup_remove(&host->cgroup, found->name) < 0)
		return false;
	if (str_format(socket_name, sizeof(socket_name), "%s" SOCKET_SUFFIX, found->name) == 0)
		(void)unlinkat(host->sockets_fd, socket_name, 0);
	record_remove(host->sockets_fd, found->name);
	return true;
}

/* How many are left at the end of the time. */
static size_t end_others(const struct host *host, struct scan *scan)
{
	const struct timespec pause = {.tv_nsec = END_PAUSE_NS};
	usec_t deadline = clock_add(clock_boottime(), END_TIMEOUT);
	size_t n_left = 0;

	/* All are killed before the first is waited for: they end side by side. */
	for (size_t i = 0; i < scan->n; i++) {
		if (!scan->found[i].adopted && (scan->found[i].kinds & FOUND_GROUP))
			(void)!cgroup_kill(&host->cgroup, scan->found[i].name);
	}
	for (;;) {
		n_left = 0;
		for (size_t i = 0; i < scan->n; i++) {
			struct found *found = &scan->found[i];

			if (found->adopted || found->stuck)
				continue;
			if (!found->gone)
				found->gone = try_to_remove(host, found);
			n_left += !found->gone;
		}
		if (n_left == 0 || clock_boottime() >= deadline)
			return n_left;
		(void)nanosleep(&pause, NULL);
	}
}

/* Blocks go back only when it is known that nobody has their ids any more. */
static int release_blocks(struct host *host, const struct scan *scan, struct err *err)
{
	struct idblock_set keep = {{0}};

	idblock_set_add(&keep, host->worker_ids);
	for (size_t i = 0; i < scan->n; i++) {
		const struct found *found = &scan->found[i];

		if (found->gone)
			continue;
		if (found->id_base == 0)
			return 0;
		idblock_set_add(&keep, found->id_base);
	}
	int r = idblock_release_all(&host->idblock, &keep, clock_boottime());
	return r < 0 ? err_fail(err, r, "adopt", "release former id blocks") : 0;
}

static int settle_others(struct host *host, struct scan *scan, struct err *err)
{
	size_t n_left = end_others(host, scan);

	/* Stuck in the kernel, or somebody made a group inside. It holds up nobody but itself. */
	if (n_left > 0)
		log_line(LOG_LEVEL_ERROR, NULL, "groups of a former run do not drain and are left",
			 "groups=%zu", n_left);
	return release_blocks(host, scan, err);
}

int host_adopt(struct host *host, struct err *err)
{
	struct scan scan = {0};
	size_t n_adopted = 0;
	size_t n_ended = 0;
	int r = look(host, &scan);

	if (r < 0)
		(void)err_fail(err, r, "adopt", "look for sessions");
	for (size_t i = 0; r == 0 && i < scan.n; i++) {
		r = examine(host, &scan.found[i]);
		if (r < 0)
			(void)err_fail(err, r, "adopt", "examine a session");
		n_adopted += scan.found[i].adopted;
		n_ended += scan.found[i].is_session && !scan.found[i].adopted;
	}
	if (r == 0)
		r = settle_others(host, &scan, err);
	if (r == 0 && n_adopted + n_ended > 0)
		log_line(LOG_LEVEL_INFO, NULL, "former run", "adopted=%zu ended=%zu", n_adopted,
			 n_ended);
	free(scan.found);
	if (r == 0)
		netns_restore(host);
	return r < 0 ? r : host_make_workers_group(host, err);
}

/* --- into the loop --------------------------------------------------------------------------- */

int host_take_adopted(struct host *host, const struct session_events *events, void *userdata,
		      struct session **ret_session)
{
	if (list_empty(&host->adopted))
		return -ENOENT;
	struct session *session = LIST_ENTRY(host->adopted.next, struct session, link);
	int r = loop_add(host->loop, session->pid_fd, EPOLLIN, session_on_pid, session,
			 &session->pid_source);
	if (r < 0)
		return r;
	session->events = *events;
	session->userdata = userdata;
	list_remove(&session->link);
	list_append(&host->sessions, &session->link);
	*ret_session = session;
	return 0;
}
