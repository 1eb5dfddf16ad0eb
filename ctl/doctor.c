#include "doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <linux/capability.h>
#include <linux/seccomp.h>

#include "base/io.h"
#include "base/num.h"
#include "base/str.h"

#include "ctl/client.h"
#include "ctl/commands.h"
#include "ctl/print.h"

void doctor_text(char text[DOCTOR_TEXT_BYTES], const char *format, ...)
{
	va_list args;

	va_start(args, format);
	/* A text that is too long is cut: it is for reading only. */
	if (vsnprintf(text, DOCTOR_TEXT_BYTES, format, args) < 0)
		text[0] = '\0';
	va_end(args);
}

int doctor_read(const char *path, char *text, size_t text_bytes)
{
	return (int)io_read_at(AT_FDCWD, path, text, text_bytes);
}

int doctor_release(uint32_t *ret_major, uint32_t *ret_minor)
{
	struct utsname name;
	const char *at;
	char word[2][8];

	if (uname(&name) < 0)
		return -EINVAL;
	at = name.release + strspn(name.release, "0123456789");
	if (*at != '.' ||
	    str_copy_n(word[0], sizeof(word[0]), name.release, (size_t)(at - name.release)) < 0 ||
	    str_copy_n(word[1], sizeof(word[1]), at + 1, strspn(at + 1, "0123456789")) < 0 ||
	    num_parse_u32(word[0], 0, UINT32_MAX, ret_major) < 0 ||
	    num_parse_u32(word[1], 0, UINT32_MAX, ret_minor) < 0)
		return -EINVAL;
	return 0;
}

static enum doctor_state check_kernel(char text[DOCTOR_TEXT_BYTES])
{
	struct utsname name;
	uint32_t major = 0;
	uint32_t minor = 0;

	if (uname(&name) < 0)
		return DOCTOR_MISSING;
	doctor_text(text, "Linux %.64s on %.32s", name.release, name.machine);
	if (doctor_release(&major, &minor) < 0 || !str_equal(name.machine, "x86_64") || major < 6 ||
	    (major == 6 && minor < 1))
		return DOCTOR_MISSING;
	return DOCTOR_OK;
}

static enum doctor_state check_root(char text[DOCTOR_TEXT_BYTES])
{
	doctor_text(text, "effective uid %u", geteuid());
	return geteuid() == 0 ? DOCTOR_OK : DOCTOR_MISSING;
}

/* Our bounding set: what a service started from here could have. */
static bool can_have(int capability)
{
	return prctl(PR_CAPBSET_READ, capability, 0, 0, 0) == 1;
}

static enum doctor_state check_capabilities(char text[DOCTOR_TEXT_BYTES])
{
	static const struct {
		int bit;
		const char *name;
	} needed[] = {
		{CAP_SYS_ADMIN,    "sys_admin"   },
		{CAP_NET_ADMIN,    "net_admin"   },
		{CAP_BPF,          "bpf"         },
		{CAP_SETUID,       "setuid"      },
		{CAP_SETGID,       "setgid"      },
		{CAP_SETPCAP,      "setpcap"     },
		{CAP_CHOWN,        "chown"       },
		{CAP_DAC_OVERRIDE, "dac_override"},
		{CAP_KILL,         "kill"        },
		{CAP_SYS_PTRACE,   "sys_ptrace"  },
	};

	for (size_t i = 0; i < ARRAY_SIZE(needed); i++) {
		if (can_have(needed[i].bit))
			continue;
		doctor_text(text, "cap_%s is not in the bounding set", needed[i].name);
		return DOCTOR_MISSING;
	}
	doctor_text(text, "all that the supervisor needs");
	return DOCTOR_OK;
}

static enum doctor_state check_sys_resource(char text[DOCTOR_TEXT_BYTES])
{
	bool have = can_have(CAP_SYS_RESOURCE);

	doctor_text(text, have ? "present" : "not in the bounding set");
	return have ? DOCTOR_OK : DOCTOR_DEGRADED;
}

static enum doctor_state check_namespaces(char text[DOCTOR_TEXT_BYTES])
{
	static const char *const names[] = {"mnt", "net", "pid", "ipc", "uts", "cgroup", "user"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		char path[32];

		(void)snprintf(path, sizeof(path), "/proc/self/ns/%s", names[i]);
		if (access(path, F_OK) == 0)
			continue;
		doctor_text(text, "the kernel has no %s namespaces", names[i]);
		return DOCTOR_MISSING;
	}
	doctor_text(text, "mnt net pid ipc uts cgroup user");
	return DOCTOR_OK;
}

static enum doctor_state check_max_userns(char text[DOCTOR_TEXT_BYTES])
{
	char number[24];
	uint64_t value = 0;

	if (doctor_read("/proc/sys/user/max_user_namespaces", number, sizeof(number)) < 0 ||
	    num_parse_u64(number, 0, UINT64_MAX - 1, &value) < 0) {
		doctor_text(text, "user.max_user_namespaces cannot be read");
		return DOCTOR_MISSING;
	}
	doctor_text(text, "user.max_user_namespaces is %llu", (unsigned long long)value);
	return value >= 1024 ? DOCTOR_OK : value >= 16 ? DOCTOR_DEGRADED : DOCTOR_MISSING;
}

static enum doctor_state check_seccomp(char text[DOCTOR_TEXT_BYTES])
{
	uint32_t action = SECCOMP_RET_KILL_PROCESS;

	if (syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) < 0) {
		doctor_text(text, "seccomp filters: %s", strerrorname_np(errno));
		return DOCTOR_MISSING;
	}
	doctor_text(text, "filters with kill_process");
	return DOCTOR_OK;
}

static enum doctor_state check_landlock(char text[DOCTOR_TEXT_BYTES])
{
	/* 444 is landlock_create_ruleset; flag 1 asks for the ABI's version. */
	long abi = syscall(444, NULL, 0, 1);

	if (abi < 0) {
		doctor_text(text, "not available: %s", strerrorname_np(errno));
		return DOCTOR_DEGRADED;
	}
	doctor_text(text, "ABI %ld", abi);
	return abi >= 6 ? DOCTOR_OK : DOCTOR_DEGRADED;
}

/* Asking for a file system by name makes the kernel load its module, as the first session would. */
static bool loads_filesystem(const char *name)
{
	int fd = (int)syscall(SYS_fsopen, name, 0);

	if (fd < 0)
		return false;
	(void)close(fd);
	return true;
}

static enum doctor_state check_filesystems(char text[DOCTOR_TEXT_BYTES])
{
	static const char *const names[] = {"\toverlay", "\ttmpfs", "\tdevpts"};
	char list[4096];

	if (doctor_read("/proc/filesystems", list, sizeof(list)) < 0)
		return DOCTOR_MISSING;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (strstr(list, names[i]) || loads_filesystem(names[i] + 1))
			continue;
		doctor_text(text, "the kernel has no %s", names[i] + 1);
		return DOCTOR_MISSING;
	}
	doctor_text(text, "overlay tmpfs devpts");
	return DOCTOR_OK;
}

static enum doctor_state check_keys(char text[DOCTOR_TEXT_BYTES])
{
	/* 0 and -3: KEYCTL_GET_KEYRING_ID of the session keyring; only asks. */
	long r = syscall(SYS_keyctl, 0, -3, 0, 0, 0);

	if (r < 0 && errno == ENOSYS) {
		doctor_text(text, "the kernel has no keyrings: nothing to separate");
		return DOCTOR_OK;
	}
	doctor_text(text, "each session joins a fresh session keyring");
	return DOCTOR_OK;
}

static enum doctor_state check_run(char text[DOCTOR_TEXT_BYTES])
{
	if (access("/run", W_OK) < 0) {
		doctor_text(text, "/run is not writable: %s", strerrorname_np(errno));
		return DOCTOR_DEGRADED;
	}
	doctor_text(text, "/run is writable");
	return DOCTOR_OK;
}

/* clang-format off */
static const struct doctor_row doctor_table[] = {
	{"kernel", check_kernel, "sandboxd refuses to start", "use Linux 6.1 or later on x86-64"},
	{"root", check_root, "namespaces and cgroups cannot be made", "run as root"},
	{"capabilities", check_capabilities, "sandboxd refuses to start", "start it outside the container that took the capability"},
	{"cap_sys_resource", check_sys_resource, "hard limits can only be lowered: sessions are bounded by the inherited descriptor limit", "grant CAP_SYS_RESOURCE to the service, or raise its LimitNOFILE"},
	{"namespaces", check_namespaces, "sessions cannot be separated", "use a kernel with all namespace types"},
	{"user namespaces", check_max_userns, "each session needs one: fewer sessions", "sysctl user.max_user_namespaces=65536"},
	{"seccomp", check_seccomp, "sandboxd refuses to start", "use a kernel with CONFIG_SECCOMP_FILTER"},
	{"landlock", check_landlock, "second line missing: no signal and abstract-socket scope (needs ABI 6); root commands have no CAP_KILL", "use Linux 6.12 or later with landlock in the lsm= list"},
	{"file systems", check_filesystems, "a session's root cannot be built", "modprobe overlay"},
	{"keyrings", check_keys, "", ""},
	{"cgroup tree", doctor_cgroup_tree, "sessions cannot be started, frozen or killed as a whole", "mount -t cgroup2 none /sys/fs/cgroup/unified"},
	{"limit memory", doctor_memory_limit, "a session can take all memory; strict mode refuses to start", "enable the memory controller"},
	{"limit pids", doctor_pids_limit, "a session can take all process ids; strict mode refuses to start", "enable the pids controller"},
	{"limit cpu", doctor_cpu_limit, "a session can take every core; strict mode refuses to start", "enable the cpu controller"},
	{"limit io", doctor_io_limit, "no limit on block I/O (sessions write to memory only)", "enable the io controller"},
	{"descriptors", doctor_descriptors, "fewer sessions; further ones get 429", "raise the hard limit of open files (ulimit -Hn, LimitNOFILE=)"},
	{"id blocks", doctor_id_blocks, "fewer sessions at once", "free ranges in /etc/subuid"},
	{"template", doctor_template, "", ""},
	{"runtime directory", check_run, "a directory in /tmp is used instead", "make /run writable"},
	{"namespace counts", doctor_namespace_counts, "each session needs one of each: fewer sessions", "sysctl -w the limit that is named here, at least 65536"},
	{"egress programs", doctor_egress_programs, "without sk_lookup no session starts; without cgroup programs the egress workers' own rules are the only line", "use a kernel with CONFIG_BPF_SYSCALL, CONFIG_INET and CONFIG_CGROUP_BPF"},
	{"production names", doctor_production_names, "the kernel's second line knows addresses only: the egress workers' rules alone keep sessions from these endpoints' production", "list addresses beside the names in `production` of [endpoint:NAME]"},
	{"shared hosts", doctor_shared_hosts, "production of these endpoints is reachable: only the session's credentials keep it from that", "use another host for the sandbox, or shared_host = path"},
	{"snapshot store", doctor_snapshot_store, "suspended sandboxes are not durable, and what is in the store does not come back", "look at the log (the object store of snapshots); [snapshots] s3_endpoint and the options behind it"},
	{"filter memory", doctor_bpf_jit, "filters of further sessions are interpreted, or refused by kernels without an interpreter", "sysctl net.core.bpf_jit_enable=1 net.core.bpf_jit_limit=536870912"},
	{"process ids", doctor_pid_count, "busy sessions can use up the ids of the host before their own limits stop them", "sysctl kernel.pid_max=4194304 kernel.threads-max=1048576"},
	{"inotify", doctor_inotify, "sessions have fewer instances than docs/limits.md says", "sysctl fs.inotify.max_user_instances=128"},
	{"passed descriptors", doctor_passrights, "a client of the control socket can send descriptors along whose closing makes the api worker wait (a lingering TCP socket)", "use Linux 6.16 or later; give the control socket to trusted proxies only"},
	{"swap", doctor_swap, "", ""},
	{"systemd", doctor_systemd, "no start at boot and no journal; sandboxd keeps itself running and logs to standard error", "install systemd and boot with it, or start sandboxd from your init"},
};
/* clang-format on */

static const char *const state_names[DOCTOR_STATE_MAX_] = {"ok", "degraded", "missing"};

static void print_row(const struct doctor_row *row, enum doctor_state state, const char *text)
{
	static const enum print_color colors[] = {[DOCTOR_OK] = PRINT_GREEN,
						  [DOCTOR_DEGRADED] = PRINT_YELLOW,
						  [DOCTOR_MISSING] = PRINT_RED};

	print_verdict(state_names[state], 9, colors[state]);
	(void)printf(" %-18s ", row->name);
	print_text(stdout, text);
	(void)putchar('\n');
	if (state == DOCTOR_OK)
		return;
	(void)printf("          %-18s cost: %s\n", "", row->cost);
	(void)printf("          %-18s mend: %s\n", "", row->mend);
}

/* What the service says of a part of its readiness; fine: what it means where it says nothing. */
static enum doctor_state check_part(struct client *client, const char *part, const char *fine,
				    char text[DOCTOR_TEXT_BYTES])
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	const struct client_request request = {
		.method = "GET", .path = "/readyz", .idle_ms = DOCTOR_ANSWER_MS};
	const char *wrong;
	int r = client_perform(client, &request, &reply);

	if (r == -ECONNREFUSED) {
		doctor_text(text, "no service runs here");
		return DOCTOR_OK;
	}
	if (r < 0 || !reply.doc) {
		doctor_text(text, "the service does not say: %s",
			    r < 0 ? strerrorname_np(-r) : "another answer");
		return DOCTOR_DEGRADED;
	}
	wrong = json_string_value(json_object_get(json_object_get(reply.doc, "parts"), part));
	doctor_text(text, "%s", wrong ? wrong : fine);
	return wrong ? DOCTOR_DEGRADED : DOCTOR_OK;
}

/* Whether a layer can be idmapped the service has tried on its own state directory. */
static enum doctor_state check_templates(struct client *client, char text[DOCTOR_TEXT_BYTES])
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	const struct client_request request = {
		.method = "GET", .path = "/v1/capabilities", .idle_ms = DOCTOR_ANSWER_MS};
	const json_t *mapped;
	int r = client_perform(client, &request, &reply);

	if (r == -ECONNREFUSED) {
		doctor_text(text, "no service runs here");
		return DOCTOR_OK;
	}
	mapped = json_object_get(json_object_get(reply.doc, "templates"), "owners_mapped");
	if (r < 0 || !json_is_boolean(mapped)) {
		doctor_text(text, "the service does not say: %s",
			    r < 0 ? strerrorname_np(-r) : "another answer");
		return DOCTOR_DEGRADED;
	}
	doctor_text(text, json_is_true(mapped) ? "files have the owners of their image"
					       : "files belong to nobody");
	return json_is_true(mapped) ? DOCTOR_OK : DOCTOR_DEGRADED;
}

static const struct doctor_row templates_row = {
	.name = "templates",
	.cost = "the state directory's file system cannot be idmapped: root of a sandbox with a template changes only what it made",
	.mend = "have /var/lib/sandboxd on ext4, xfs or btrfs",
};

static const struct doctor_row canary_row = {
	.name = "canary",
	.cost = "the service is not ready: something that must be refused was not, or not yet tried",
	.mend = "docs/troubleshooting.md, Readiness; sandboxctl proof",
};

static const struct doctor_row celery_row = {
	.name = "celery",
	.cost = "tasks of the queue are not taken, and their results wait; with execution = celery an execute is refused",
	.mend = "start the broker of section [celery], or look at its users and rights",
};

static const struct doctor_row provider_row = {
	.name = "provider",
	.cost = "sandboxes of [docker] or [remote] cannot be made or used, those of the host can",
	.mend = "start what it names, give an engine's socket mode 0660 and a group (docs/providers.md); the log says why",
};

struct findings {
	const struct options *options;
	json_t *rows;
	unsigned int n[DOCTOR_STATE_MAX_];
};

static void tell(struct findings *findings, const struct doctor_row *row, enum doctor_state state,
		 const char *text)
{
	findings->n[state]++;
	if (findings->options->output == OUTPUT_JSON)
		(void)json_array_append_new(findings->rows,
					    json_pack("{s:s,s:s,s:s,s:s,s:s}", "name", row->name,
						      "state", state_names[state], "found", text,
						      "cost", state == DOCTOR_OK ? "" : row->cost,
						      "mend", state == DOCTOR_OK ? "" : row->mend));
	else if (!findings->options->quiet || state != DOCTOR_OK)
		print_row(row, state, text);
}

int command_doctor(struct client *client, const struct options *options)
{
	struct findings findings = {.options = options, .rows = json_array()};
	char text[DOCTOR_TEXT_BYTES];
	enum doctor_state state;

	doctor_ask_service(client);
	for (size_t i = 0; i < ARRAY_SIZE(doctor_table); i++) {
		text[0] = '\0';
		state = doctor_table[i].check(text);
		tell(&findings, &doctor_table[i], state, text);
	}
	/* The service's throw-away session at its start, and what it is a client of. */
	state = check_part(client, "canary", "was refused everything", text);
	tell(&findings, &canary_row, state, text);
	state = check_part(client, "celery", "the broker answers, where there is one", text);
	tell(&findings, &celery_row, state, text);
	state = check_part(client, "provider", "what sandboxes are made by answers", text);
	tell(&findings, &provider_row, state, text);
	state = check_templates(client, text);
	tell(&findings, &templates_row, state, text);
	if (options->output == OUTPUT_JSON)
		print_json(findings.rows);
	else
		(void)printf("doctor: %u ok, %u degraded, %u missing\n", findings.n[DOCTOR_OK],
			     findings.n[DOCTOR_DEGRADED], findings.n[DOCTOR_MISSING]);
	json_decref(findings.rows);
	doctor_forget_service();
	return findings.n[DOCTOR_MISSING] ? EXIT_FAILED : EXIT_OK;
}
