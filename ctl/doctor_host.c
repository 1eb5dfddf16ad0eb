/*
 * Checks of what all sessions of a host share: counts, memory for filters, and what runs beside us.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/bpf.h>

#include "base/num.h"
#include "base/str.h"

#include "ctl/doctor.h"

/* Two filters a session, 10 KiB each after compiling (seen on Linux 6.18). */
#define FILTER_BYTES_PER_SESSION 24576
/* The ceiling that each session's user namespace has (supervisor/userns.c). */
#define INOTIFY_PER_SESSION      128
#define PIDS_PER_SESSION         256
/* What a host for sandboxes should bear at least. */
#define SESSIONS_WANTED          UINT64_C(500)

static int read_number(const char *path, uint64_t *ret_value)
{
	char number[32];
	int n = doctor_read(path, number, sizeof(number));

	if (n < 0)
		return n;
	number[strcspn(number, "\n")] = '\0';
	return num_parse_u64(number, 0, UINT64_MAX - 1, ret_value);
}

enum doctor_state doctor_namespace_counts(char text[DOCTOR_TEXT_BYTES])
{
	static const char *const names[] = {"mnt", "net", "pid", "ipc", "uts", "cgroup"};
	uint64_t least = UINT64_MAX;
	const char *which = "";

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		char path[64];
		uint64_t value = 0;

		(void)snprintf(path, sizeof(path), "/proc/sys/user/max_%s_namespaces", names[i]);
		if (read_number(path, &value) < 0) {
			doctor_text(text, "user.max_%s_namespaces cannot be read", names[i]);
			return DOCTOR_DEGRADED;
		}
		if (value < least) {
			least = value;
			which = names[i];
		}
	}
	doctor_text(text, "the least is user.max_%s_namespaces = %llu", which,
		    (unsigned long long)least);
	return least >= SESSIONS_WANTED * 2 ? DOCTOR_OK
	       : least >= 16                ? DOCTOR_DEGRADED
					    : DOCTOR_MISSING;
}

/* Does the kernel take the smallest program of this kind? 1, 0, or -EPERM: it is not ours to ask.
 */
static int takes_program(uint32_t type, uint32_t attach)
{
	static const char license[] = "GPL";
	const struct bpf_insn pass[] = {
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = 1},
		{.code = BPF_JMP | BPF_EXIT                          },
	};
	union bpf_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.prog_type = type;
	attr.expected_attach_type = attach;
	attr.insns = (uint64_t)(uintptr_t)pass;
	attr.insn_cnt = ARRAY_SIZE(pass);
	attr.license = (uint64_t)(uintptr_t)license;
	int fd = (int)syscall(SYS_bpf, BPF_PROG_LOAD, &attr, sizeof(attr));
	if (fd >= 0)
		(void)close(fd);
	return fd >= 0 ? 1 : errno == EPERM ? -EPERM : 0;
}

enum doctor_state doctor_egress_programs(char text[DOCTOR_TEXT_BYTES])
{
	int listener = takes_program(BPF_PROG_TYPE_SK_LOOKUP, BPF_SK_LOOKUP);
	int guard = takes_program(BPF_PROG_TYPE_CGROUP_SOCK_ADDR, BPF_CGROUP_INET4_CONNECT);

	if (listener == -EPERM || guard == -EPERM) {
		doctor_text(text, "for root with CAP_BPF to see");
		return DOCTOR_DEGRADED;
	}
	doctor_text(text, "%s, %s", listener ? "sessions have a listener" : "no sk_lookup programs",
		    guard ? "egress workers are bound by the kernel" : "no cgroup programs");
	if (!listener)
		return DOCTOR_MISSING;
	return guard ? DOCTOR_OK : DOCTOR_DEGRADED;
}

enum doctor_state doctor_bpf_jit(char text[DOCTOR_TEXT_BYTES])
{
	uint64_t enabled = 0;
	uint64_t limit = 0;
	uint64_t sessions;

	if (read_number("/proc/sys/net/core/bpf_jit_enable", &enabled) < 0 || enabled == 0) {
		doctor_text(text, "filters are interpreted");
		return DOCTOR_DEGRADED;
	}
	if (read_number("/proc/sys/net/core/bpf_jit_limit", &limit) < 0) {
		doctor_text(text, "net.core.bpf_jit_limit is for root to read");
		return DOCTOR_OK;
	}
	sessions = limit / FILTER_BYTES_PER_SESSION;
	doctor_text(text, "net.core.bpf_jit_limit is %llu MiB, about %llu sessions",
		    (unsigned long long)limit >> 20, (unsigned long long)sessions);
	return sessions >= SESSIONS_WANTED * 2 ? DOCTOR_OK : DOCTOR_DEGRADED;
}

enum doctor_state doctor_pid_count(char text[DOCTOR_TEXT_BYTES])
{
	uint64_t pids = 0;
	uint64_t threads = 0;

	if (read_number("/proc/sys/kernel/pid_max", &pids) < 0 ||
	    read_number("/proc/sys/kernel/threads-max", &threads) < 0) {
		doctor_text(text, "kernel.pid_max cannot be read");
		return DOCTOR_DEGRADED;
	}
	doctor_text(text, "kernel.pid_max %llu, threads-max %llu: %llu sessions with %d each",
		    (unsigned long long)pids, (unsigned long long)threads,
		    (unsigned long long)(pids < threads ? pids : threads) / PIDS_PER_SESSION,
		    PIDS_PER_SESSION);
	return (pids < threads ? pids : threads) >= SESSIONS_WANTED * PIDS_PER_SESSION
		       ? DOCTOR_OK
		       : DOCTOR_DEGRADED;
}

/* What a session has counts for the id that owns its user namespace, under the host's limit too. */
enum doctor_state doctor_inotify(char text[DOCTOR_TEXT_BYTES])
{
	uint64_t instances = 0;

	if (read_number("/proc/sys/fs/inotify/max_user_instances", &instances) < 0) {
		doctor_text(text, "the kernel has no inotify: nothing to share");
		return DOCTOR_OK;
	}
	doctor_text(text, "fs.inotify.max_user_instances is %llu, a session may have %d",
		    (unsigned long long)instances, INOTIFY_PER_SESSION);
	return instances >= INOTIFY_PER_SESSION ? DOCTOR_OK : DOCTOR_DEGRADED;
}

/* Linux 6.16 lets a socket refuse descriptors that come with a message. */
enum doctor_state doctor_passrights(char text[DOCTOR_TEXT_BYTES])
{
	uint32_t major = 0;
	uint32_t minor = 0;

	if (doctor_release(&major, &minor) < 0)
		return DOCTOR_DEGRADED;
	if (major > 6 || (major == 6 && minor >= 16)) {
		doctor_text(text, "sockets can refuse descriptors (SO_PASSRIGHTS)");
		return DOCTOR_OK;
	}
	doctor_text(text, "before Linux 6.16: no SO_PASSRIGHTS");
	return DOCTOR_DEGRADED;
}

enum doctor_state doctor_swap(char text[DOCTOR_TEXT_BYTES])
{
	char list[2048];
	int n = doctor_read("/proc/swaps", list, sizeof(list));
	const char *first = n > 0 ? strchr(list, '\n') : NULL;
	bool none = !first || first[1] == '\0';

	doctor_text(text, none ? "none"
			       : "present; sessions are kept out of it where the kernel "
				 "accounts for swap");
	return DOCTOR_OK;
}

enum doctor_state doctor_systemd(char text[DOCTOR_TEXT_BYTES])
{
	bool runs = access("/run/systemd/system", F_OK) == 0;
	bool journal = access("/run/systemd/journal/socket", F_OK) == 0;

	doctor_text(text, runs ? journal ? "runs, with a journal" : "runs, without a journal"
			       : "does not run here");
	return runs && journal ? DOCTOR_OK : DOCTOR_DEGRADED;
}
