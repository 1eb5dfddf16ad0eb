/*
 * Runs as: the supervisor, with SYS_PTRACE (shims are not dumpable) and its own /proc. Nothing here
 * asks the session: every value comes from the kernel, under pids that the pidfd and the v2 group
 * keep from being reused. What cannot be read stays unproven, and strict mode then ends the
 * session.
 */
#include "supervisor/prove.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/num.h"
#include "base/str.h"

#include "supervisor/rlimits.h"
#include "supervisor/session_state.h"
#include "supervisor/sklookup.h"

#define STATUS_BYTES  4096
#define MAX_PROCESSES 16
#define PAGE_BYTES    4096u

#define PROOF_ALL                                                                                  \
	(PROOF_NS_MNT | PROOF_NS_NET | PROOF_NS_PID | PROOF_NS_IPC | PROOF_NS_UTS |                \
	 PROOF_NS_CGROUP | PROOF_NS_USER | PROOF_SECCOMP_SHIM | PROOF_SECCOMP_SPAWNER |            \
	 PROOF_NO_NEW_PRIVS | PROOF_CAPS_SHIM | PROOF_CAPS_SPAWNER | PROOF_IDS | PROOF_ID_MAP |    \
	 PROOF_USERNS_CEILING | PROOF_MEMORY | PROOF_PIDS | PROOF_CPU | PROOF_RLIMITS |            \
	 PROOF_EGRESS | PROOF_LANDLOCK)

static const uint32_t namespace_bit[HOST_NS_MAX_] = {
	[HOST_NS_MNT] = PROOF_NS_MNT,   [HOST_NS_NET] = PROOF_NS_NET,
	[HOST_NS_PID] = PROOF_NS_PID,   [HOST_NS_IPC] = PROOF_NS_IPC,
	[HOST_NS_UTS] = PROOF_NS_UTS,   [HOST_NS_CGROUP] = PROOF_NS_CGROUP,
	[HOST_NS_USER] = PROOF_NS_USER,
};

static int read_process(int pid, const char *file, char *text, size_t text_bytes)
{
	char path[64];

	int r = str_format(path, sizeof(path), "/proc/%d/%s", pid, file);
	if (r < 0)
		return r;
	ssize_t n = io_read_at(AT_FDCWD, path, text, text_bytes);
	return n < 0 ? (int)n : 0;
}

static void prove_namespace(struct session *session, enum host_namespace which)
{
	struct launch_proof *proof = &session->proof;
	char path[64];
	struct stat st;

	if (str_format(path, sizeof(path), "/proc/%d/ns/%s", session->pid,
		       host_namespace_name(which)) < 0)
		return;
	if (stat(path, &st) < 0)
		return;
	proof->ns_inode[which] = st.st_ino;
	proof->host_ns_inode[which] = session->host->ns_inode[which];
	if (proof->ns_inode[which] != proof->host_ns_inode[which])
		proof->in_force |= namespace_bit[which];
}

/* The value behind `key` in "Key:\tvalue\n" lines, cut at the end of its line. */
static bool status_value(const char *text, const char *key, char *value, size_t value_bytes)
{
	size_t length = strlen(key);

	for (const char *line = text; line; line = strchr(line, '\n')) {
		if (*line == '\n')
			line++;
		if (strncmp(line, key, length) != 0 || line[length] != ':')
			continue;
		line += length + 1;
		line += strspn(line, "\t ");
		return str_copy_n(value, value_bytes, line, strcspn(line, "\n")) == 0;
	}
	return false;
}

static bool status_is(const char *text, const char *key, const char *expected)
{
	char value[96];

	return status_value(text, key, value, sizeof(value)) && str_equal(value, expected);
}

static uint64_t status_hex(const char *text, const char *key)
{
	char value[32];
	uint64_t number = 0;

	if (!status_value(text, key, value, sizeof(value)))
		return UINT64_MAX;
	for (const char *at = value; *at; at++) {
		const char *digits = "0123456789abcdef";
		const char *digit = strchr(digits, *at);
		if (!digit)
			return UINT64_MAX;
		number = number << 4 | (uint64_t)(digit - digits);
	}
	return number;
}

static uint32_t status_pid(const char *text, const char *key)
{
	char value[16];
	uint32_t pid = 0;

	if (!status_value(text, key, value, sizeof(value)) ||
	    num_parse_u32(value, 0, INT32_MAX, &pid) < 0)
		return 0;
	return pid;
}

static bool caps_are(const char *status, uint64_t permitted, uint64_t bounding)
{
	return status_hex(status, "CapPrm") == permitted &&
	       status_hex(status, "CapEff") == permitted && status_hex(status, "CapInh") == 0 &&
	       status_hex(status, "CapAmb") == 0 && status_hex(status, "CapBnd") == bounding;
}

/* All four ids are the block's last, in both sets, and there are no groups. */
static bool ids_are(const char *status, uint32_t id)
{
	char expected[64];

	if (str_format(expected, sizeof(expected), "%u\t%u\t%u\t%u", id, id, id, id) < 0)
		return false;
	return status_is(status, "Uid", expected) && status_is(status, "Gid", expected) &&
	       status_is(status, "Groups", "");
}

static bool filters_are(const char *status)
{
	return status_is(status, "Seccomp", "2") && status_is(status, "Seccomp_filters", "1");
}

static bool map_is(int pid, const char *file, uint32_t base)
{
	char text[256];
	uint32_t numbers[3] = {0};

	if (read_process(pid, file, text, sizeof(text)) < 0)
		return false;
	const char *at = text;
	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
		char word[16];
		at += strspn(at, " ");
		size_t length = strcspn(at, " \n");
		if (str_copy_n(word, sizeof(word), at, length) < 0 ||
		    num_parse_u32(word, 0, UINT32_MAX, &numbers[i]) < 0)
			return false;
		at += length;
	}
	/* Exactly one line. */
	return at[strspn(at, " \n")] == '\0' && numbers[0] == 0 && numbers[1] == base &&
	       numbers[2] == IDBLOCK_MAPPED;
}

/* "Max core file size        1                    1                    bytes"; 0 where the service
 * was started with that. */
static bool rlimits_are(int pid)
{
	char text[STATUS_BYTES];
	static const char core[] = "Max core file size";

	if (read_process(pid, "limits", text, sizeof(text)) < 0)
		return false;
	const char *line = strstr(text, core);
	if (!line)
		return false;
	line += strlen(core);
	for (int i = 0; i < 2; i++) {
		line += strspn(line, " ");
		if ((line[0] != '0' && line[0] != '0' + RLIMITS_NO_CORE) || line[1] != ' ')
			return false;
		line++;
	}
	return true;
}

static void prove_limits(struct session *session)
{
	struct launch_proof *proof = &session->proof;
	const struct plan *plan = &session->plan;

	cgroup_read_limits(&session->host->cgroup, session->name, &proof->memory_bytes,
			   &proof->max_pids, &proof->cpu_pct);
	/* The kernel keeps whole pages. */
	if (proof->memory_bytes / PAGE_BYTES == plan->memory_bytes / PAGE_BYTES)
		proof->in_force |= PROOF_MEMORY;
	if (proof->max_pids == plan->max_pids)
		proof->in_force |= PROOF_PIDS;
	if (proof->cpu_pct == plan->cpu_pct)
		proof->in_force |= PROOF_CPU;
}

void prove_early(struct session *session)
{
	struct launch_proof *proof = &session->proof;
	uint64_t missing = cgroup_missing(&session->host->cgroup);
	uint32_t wanted = PROOF_ALL;

	if (session->host->landlock_abi == 0)
		wanted &= ~(uint32_t)PROOF_LANDLOCK;
	*proof = (struct launch_proof){
		.wanted = wanted & ~(uint32_t)missing,
		.id_base = session->userns.base,
		.shim_pid = session->pid,
		.limits_missing = missing,
		/* Its helper reported success, else there would be no such namespace to launch in.
		 */
		.in_force = PROOF_USERNS_CEILING,
	};
	prove_limits(session);
}

/* Limits hold only for who is in the groups. */
static void prove_membership(struct session *session)
{
	char text[STATUS_BYTES];
	uint64_t joined = 0;

	if (read_process(session->pid, "cgroup", text, sizeof(text)) == 0)
		joined = cgroup_joined(&session->host->cgroup, session->name, text);
	session->proof.in_force &=
		(uint32_t)joined | ~(uint32_t)(PROOF_MEMORY | PROOF_PIDS | PROOF_CPU);
}

/* The spawner is the process of the group whose parent is not the shim but the nursery. */
static bool find_spawner(const struct session *session, char *status, size_t status_bytes)
{
	char path[ID_TEXT_BYTES + 16];
	char pids[256];

	if (str_format(path, sizeof(path), "%s/cgroup.procs", session->name) < 0 ||
	    io_read_at(session->host->cgroup.v2_fd, path, pids, sizeof(pids)) < 0)
		return false;
	char *line = pids;
	for (int i = 0; line && i < MAX_PROCESSES; i++) {
		uint32_t pid = 0;
		char *next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		if (num_parse_u32(line, 1, INT32_MAX, &pid) == 0 && (int)pid != session->pid &&
		    read_process((int)pid, "status", status, status_bytes) == 0) {
			uint32_t parent = status_pid(status, "PPid");
			if (parent != 0 && (int)parent != session->pid)
				return true;
		}
		line = next;
	}
	return false;
}

static void prove_shim(struct session *session)
{
	struct launch_proof *proof = &session->proof;
	char status[STATUS_BYTES];
	uint32_t shim_id = session->userns.base + SESSION_SHIM_OFFSET;
	const struct policy_profile *profile =
		image_profile(&session->host->image, session->plan.profile);
	uint64_t bounding =
		shim_caps(profile->root == POLICY_ROOT_ALLOWED ? SHIM_PARAMS_ROOT_COMMANDS : 0);

	if (read_process(session->pid, "status", status, sizeof(status)) < 0)
		return;
	proof->caps_shim = status_hex(status, "CapPrm");
	if (caps_are(status, SHIM_CAPS_PID1, status_hex(status, "CapBnd")) &&
	    (status_hex(status, "CapBnd") & ~bounding) == 0)
		proof->in_force |= PROOF_CAPS_SHIM;
	if (filters_are(status))
		proof->in_force |= PROOF_SECCOMP_SHIM;
	if (status_is(status, "NoNewPrivs", "1"))
		proof->in_force |= PROOF_NO_NEW_PRIVS;
	if (ids_are(status, shim_id))
		proof->in_force |= PROOF_IDS;
}

static void prove_spawner(struct session *session)
{
	struct launch_proof *proof = &session->proof;
	char status[STATUS_BYTES];

	if (!find_spawner(session, status, sizeof(status)))
		return;
	proof->caps_spawner = status_hex(status, "CapPrm");
	if (caps_are(status, SHIM_CAPS_SPAWNER, 0))
		proof->in_force |= PROOF_CAPS_SPAWNER;
	if (filters_are(status))
		proof->in_force |= PROOF_SECCOMP_SPAWNER;
	/* Both must hold what is inherited by commands. */
	if (!status_is(status, "NoNewPrivs", "1"))
		proof->in_force &= ~(uint32_t)PROOF_NO_NEW_PRIVS;
	if (!ids_are(status, session->userns.base + SESSION_SHIM_OFFSET))
		proof->in_force &= ~(uint32_t)PROOF_IDS;
}

void prove_late(struct session *session)
{
	struct launch_proof *proof = &session->proof;

	for (unsigned int i = 0; i < HOST_NS_MAX_; i++)
		prove_namespace(session, (enum host_namespace)i);
	prove_membership(session);
	prove_shim(session);
	prove_spawner(session);
	if (map_is(session->pid, "uid_map", session->userns.base) &&
	    map_is(session->pid, "gid_map", session->userns.base))
		proof->in_force |= PROOF_ID_MAP;
	if (rlimits_are(session->pid))
		proof->in_force |= PROOF_RLIMITS;
	if (sklookup_holds(session->net_fd[NETNS_LINK], proof->ns_inode[HOST_NS_NET]))
		proof->in_force |= PROOF_EGRESS;
	/* The kernel shows nobody a domain. The spawner has tried one thing that only Landlock
	 * refuses (shim/domain.c); else the shim would not be ready. */
	if (session->host->landlock_abi > 0)
		proof->in_force |= PROOF_LANDLOCK;
}

bool prove_holds(const struct session *session)
{
	const struct launch_proof *proof = &session->proof;

	return (proof->in_force & proof->wanted) == proof->wanted;
}
