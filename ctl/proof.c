/*
 * proof: three witnesses for one session. Inside: a shell that prints what it sees of itself.
 * Supervisor: what it read back after the launch. Outside: this program's own look at the shim in
 * /proc and at the cgroup files, where it may. A row is ok only if every witness that can know says
 * the same and the value is the promised one.
 */
#include "proof.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/num.h"
#include "base/str.h"

#include "ctl/commands.h"
#include "ctl/print.h"
#include "sandboxd/api.h"
#include "sandboxd/limits.h"

#define INSIDE_MAX_BYTES 65536
#define PROBE_TIMEOUT_MS 60000 /* as the sleep of pids_script */

/* Reads as little as a shell can without help of ours in the session. */
static const char inside_script[] =
	"cat /proc/self/status\n"
	"for n in mnt net pid ipc uts cgroup user; do echo \"ns_$n $(readlink /proc/self/ns/$n)\"; "
	"done\n"
	"read a b c </proc/self/uid_map; echo \"map_base $b\"; echo \"map_count $c\"\n"
	"echo \"files $(ulimit -n)\"\n"
	"df -kP /session | while read a b c; do echo \"disk_kib $b\"; done | tail -n 1\n"
	"df -iP /session | while read a b c; do echo \"inodes $b\"; done | tail -n 1\n";

/* Runs into a limit; each prints what it met. */
/* All live until the last is started, however slow the host; a shell that cannot fork ends them. */
static const char pids_script[] =
	"trap 'kill 0' EXIT\n"
	"i=0; while [ $i -lt $1 ]; do sleep 60 2>/dev/null & i=$((i+1)); done 2>/dev/null\n"
	"echo all-started\n";
static const char memory_script[] = "head -c $1 /dev/zero | tail -n 1 | wc -c; echo survived\n";
static const char disk_script[] =
	"head -c $1 /dev/zero >/session/.probe 2>&1 && echo all-written; rm -f /session/.probe\n";

enum verdict {
	VERDICT_OK,
	VERDICT_WRONG,
	VERDICT_UNDECIDED, /* the host is too slow for the probe */
};

struct report {
	bool json;
	json_t *rows;
	size_t n_bad;
	size_t n_undecided;
	uint32_t probe_ms; /* time of one probe */
	const struct proof_facts *inside;
	const struct proof_facts *outside; /* NULL: we cannot look */
	const json_t *proof;
	const json_t *promised; /* limits_effective of the summary; NULL: not given */
};

struct collect {
	struct buf text;
};

static int collect_output(void *userdata, int fd, const char *data, size_t length)
{
	struct collect *collect = userdata;

	/* More than the maximum is cut: the parser then misses lines, and says so. */
	if (fd == STDOUT_FILENO)
		(void)!buf_append(&collect->text, data, length);
	return 0;
}

static int run_inside(struct client *client, const char *session, json_t *body, char **ret_text,
		      bool *ret_timed_out)
{
	struct collect collect = {.text = BUF_NULL(INSIDE_MAX_BYTES)};
	const struct command_output output = {.write = collect_output, .userdata = &collect};
	const char *text;
	int r;

	if (!body)
		return -ENOMEM;
	r = command_in_session(client, session, body, &output, ret_timed_out);
	json_decref(body);
	text = buf_text(&collect.text);
	*ret_text = text ? strdup(text) : NULL;
	buf_done(&collect.text);
	return r;
}

/* "key value" line, or "key type:[value]". */
static uint64_t line_number(const char *text, const char *key)
{
	char start[32];
	const char *at;
	char word[32];
	size_t n;
	uint64_t value = UINT64_MAX;

	(void)snprintf(start, sizeof(start), "\n%s ", key);
	at = strstr(text, start);
	if (!at)
		return UINT64_MAX;
	at += strlen(start);
	if (strcspn(at, "[") < strcspn(at, "\n"))
		at += strcspn(at, "[") + 1;
	n = strspn(at, "0123456789");
	if (str_copy_n(word, sizeof(word), at, n) < 0 ||
	    num_parse_u64(word, 0, UINT64_MAX - 1, &value) < 0)
		return UINT64_MAX;
	return value;
}

static int look_inside(struct client *client, const char *session, struct proof_facts *facts)
{
	AUTO_FREE char *text = NULL;
	int r;

	proof_facts_init(facts);
	r = run_inside(client, session,
		       json_pack("{s:[s,s,s]}", "argv", "/bin/sh", "-c", inside_script), &text,
		       NULL);
	if (!text)
		return EXIT_FAILED;
	proof_take_status(facts, text, true);
	for (size_t i = 0; i < PROOF_AT_MAX_; i++) {
		char key[16];

		(void)snprintf(key, sizeof(key), "ns_%s", proof_ns_names[i]);
		facts->ns[i] = line_number(text, key);
	}
	facts->map_base = line_number(text, "map_base");
	facts->map_count = line_number(text, "map_count");
	facts->files = line_number(text, "files");
	facts->disk_kib = line_number(text, "disk_kib");
	facts->inodes = line_number(text, "inodes");
	return r;
}

static uint64_t member_number(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	return json_is_integer(value) && json_integer_value(value) >= 0
		       ? (uint64_t)json_integer_value(value)
		       : UINT64_MAX;
}

static bool list_contains(const json_t *list, const char *name)
{
	size_t i;
	json_t *entry;

	json_array_foreach(list, i, entry)
	{
		const char *text = json_string_value(entry);

		if (text && str_equal(text, name))
			return true;
	}
	return false;
}

static void row_number(char *text, size_t text_bytes, uint64_t value)
{
	if (value == UINT64_MAX)
		(void)snprintf(text, text_bytes, "-");
	else
		(void)snprintf(text, text_bytes, "%llu", (unsigned long long)value);
}

static void print_row(struct report *report, const char *what, const char *inside,
		      const char *outside, const char *note, enum verdict verdict)
{
	static const char *const words[] = {
		[VERDICT_OK] = "ok", [VERDICT_WRONG] = "WRONG", [VERDICT_UNDECIDED] = "?"};
	static const enum print_color colors[] = {[VERDICT_OK] = PRINT_GREEN,
						  [VERDICT_WRONG] = PRINT_RED,
						  [VERDICT_UNDECIDED] = PRINT_YELLOW};

	report->n_bad += verdict == VERDICT_WRONG ? 1 : 0;
	report->n_undecided += verdict == VERDICT_UNDECIDED ? 1 : 0;
	if (!report->json) {
		(void)fputs("  ", stdout);
		print_cell(what, 19);
		print_cell(inside, 13);
		print_cell(outside, 17);
		print_verdict(words[verdict], 6, colors[verdict]);
		(void)putchar(' ');
		print_name(note);
		return;
	}
	(void)json_array_append_new(report->rows,
				    json_pack("{s:s,s:s,s:s,s:s,s:o}", "what", what, "inside",
					      inside, "outside", outside, "note", note, "ok",
					      verdict == VERDICT_UNDECIDED
						      ? json_null()
						      : json_boolean(verdict == VERDICT_OK)));
}

static void add_row(struct report *report, const char *what, const char *inside,
		    const char *outside, const char *note, bool ok)
{
	print_row(report, what, inside, outside, note, ok ? VERDICT_OK : VERDICT_WRONG);
}

static void report_namespaces(struct report *report)
{
	const json_t *all = json_object_get(report->proof, "namespaces");

	for (size_t i = 0; i < PROOF_AT_MAX_; i++) {
		const json_t *entry = json_object_get(all, proof_ns_names[i]);
		uint64_t session = member_number(entry, "session");
		uint64_t host = member_number(entry, "host");
		uint64_t inside = report->inside->ns[i];
		char what[32];
		char text[2][24];
		char note[48];
		bool ok = session != UINT64_MAX && session != host && inside == session;

		if (report->outside)
			ok = ok && report->outside->ns[i] == session;
		(void)snprintf(what, sizeof(what), "namespace %s", proof_ns_names[i]);
		row_number(text[0], sizeof(text[0]), inside);
		row_number(text[1], sizeof(text[1]), session);
		(void)snprintf(note, sizeof(note), "host %llu", (unsigned long long)host);
		add_row(report, what, text[0], text[1], note, ok);
	}
}

static void report_ids(struct report *report)
{
	uint64_t base = member_number(report->proof, "id_base");
	bool ok = base != UINT64_MAX && base >= IDBLOCK_SIZE && report->inside->map_base == base &&
		  report->inside->map_count == IDBLOCK_MAPPED &&
		  report->inside->uid == SESSION_USER_ID;
	char inside[48];
	char outside[48];

	/* The shim's id is the block's last, which no command can take. */
	if (report->outside)
		ok = ok && report->outside->map_base == base &&
		     report->outside->uid == base + SESSION_SHIM_OFFSET;
	(void)snprintf(inside, sizeof(inside), "uid %llu", (unsigned long long)report->inside->uid);
	(void)snprintf(outside, sizeof(outside), "%llu + %d", (unsigned long long)base,
		       IDBLOCK_SIZE);
	add_row(report, "uid block", inside, outside, "", ok);
}

static void report_privileges(struct report *report)
{
	const json_t *in_force = json_object_get(report->proof, "in_force");
	const json_t *caps = json_object_get(report->proof, "capabilities");
	const struct proof_facts *in = report->inside;
	const struct proof_facts *out = report->outside;
	char text[2][32];

	row_number(text[0], sizeof(text[0]), in->seccomp);
	add_row(report, "seccomp mode", text[0], out ? "2 (shim)" : "as launched", "2 = filter",
		in->seccomp == 2 && (!out || out->seccomp == 2) &&
			list_contains(in_force, "seccomp_shim") &&
			list_contains(in_force, "seccomp_spawner"));
	row_number(text[0], sizeof(text[0]), in->no_new_privs);
	add_row(report, "no_new_privs", text[0], out ? "1 (shim)" : "as launched", "",
		in->no_new_privs == 1 && (!out || out->no_new_privs == 1) &&
			list_contains(in_force, "no_new_privs"));
	(void)snprintf(text[0], sizeof(text[0]), "%llx", (unsigned long long)in->caps);
	(void)snprintf(text[1], sizeof(text[1]), "%.16s (shim)", print_member(caps, "shim"));
	add_row(report, "capabilities", text[0], text[1], "shim's count inside only",
		in->caps == 0 && list_contains(in_force, "caps_shim") &&
			list_contains(in_force, "caps_spawner"));
}

static void report_limit(struct report *report, const char *what, const char *bit, uint64_t inside,
			 uint64_t set, uint64_t outside)
{
	const json_t *missing = json_object_get(report->proof, "limits_missing");
	char text[2][32];
	bool cannot = bit && list_contains(missing, bit);
	bool ok = set != UINT64_MAX && (inside == UINT64_MAX || inside == set) &&
		  (outside == UINT64_MAX || outside == set);

	row_number(text[0], sizeof(text[0]), inside);
	row_number(text[1], sizeof(text[1]), outside != UINT64_MAX ? outside : set);
	add_row(report, what, text[0], cannot ? "not settable" : text[1],
		cannot ? "this host has no such controller" : "", ok || cannot);
}

static void report_limits(struct report *report)
{
	const json_t *limits = json_object_get(report->proof, "limits");
	const struct proof_facts *out = report->outside;

	report_limit(report, "memory bytes", "memory", UINT64_MAX,
		     member_number(limits, "memory_bytes"), out ? out->memory_bytes : UINT64_MAX);
	report_limit(report, "processes", "pids", UINT64_MAX, member_number(limits, "pids"),
		     out ? out->pids : UINT64_MAX);
	report_limit(report, "cpu percent", "cpu", UINT64_MAX, member_number(limits, "cpu_pct"),
		     out ? out->cpu_pct : UINT64_MAX);
	/* These three are seen inside only; what the service promised is the other witness. */
	report_limit(report, "open files", NULL, report->inside->files,
		     member_number(report->promised, "open_files"), UINT64_MAX);
	report_limit(report, "disk bytes", NULL,
		     report->inside->disk_kib == UINT64_MAX ? UINT64_MAX
							    : report->inside->disk_kib * 1024,
		     member_number(report->promised, "tmpfs_bytes"), UINT64_MAX);
	report_limit(report, "disk inodes", NULL, report->inside->inodes,
		     member_number(report->promised, "tmpfs_inodes"), UINT64_MAX);
}

enum taken {
	TAKEN_ALL,
	TAKEN_REFUSED,
	TAKEN_UNKNOWN, /* its time was up before it met anything */
};

/* Whether the script could take that much. */
static enum taken take(const struct report *report, struct client *client, const char *session,
		       const char *script, uint64_t amount)
{
	AUTO_FREE char *text = NULL;
	char number[24];
	bool timed_out = false;
	int r;

	row_number(number, sizeof(number), amount);
	r = run_inside(client, session,
		       json_pack("{s:[s,s,s,s,s],s:i}", "argv", "/bin/sh", "-c", script, "sh",
				 number, "timeout_ms", (int)report->probe_ms),
		       &text, &timed_out);
	(void)r; /* a limit may end the shell itself: what it printed before is the answer */
	if (text && (strstr(text, "all-started") || strstr(text, "all-written") ||
		     (strstr(text, "survived") && !str_has_prefix(text, "0\n"))))
		return TAKEN_ALL;
	return timed_out ? TAKEN_UNKNOWN : TAKEN_REFUSED;
}

/* A little must be possible, or the refusal of too much would prove nothing. */
static void probe_limit(struct report *report, struct client *client, const char *session,
			const char *what, const char *script, uint64_t amount)
{
	char number[24];
	enum taken little = take(report, client, session, script, 4);
	enum taken much = TAKEN_UNKNOWN;

	if (little == TAKEN_ALL)
		much = take(report, client, session, script, amount);
	row_number(number, sizeof(number), amount);
	if (little == TAKEN_REFUSED)
		add_row(report, what, "never started", number, "one more than allowed", false);
	else if (much == TAKEN_UNKNOWN)
		print_row(report, what, "undecided", number, "the time was up before the limit",
			  VERDICT_UNDECIDED);
	else
		add_row(report, what, much == TAKEN_ALL ? "passed" : "stopped", number,
			"one more than allowed", much == TAKEN_REFUSED);
}

static void probe_limits(struct report *report, struct client *client, const char *session)
{
	const json_t *limits = json_object_get(report->proof, "limits");
	uint64_t pids = member_number(limits, "pids");
	uint64_t memory = member_number(limits, "memory_bytes");

	if (report->inside->disk_kib != UINT64_MAX)
		probe_limit(report, client, session, "fill the disk", disk_script,
			    report->inside->disk_kib * 1024 + 1);
	if (memory != UINT64_MAX)
		probe_limit(report, client, session, "take memory", memory_script, memory);
	if (pids != UINT64_MAX)
		probe_limit(report, client, session, "start processes", pids_script, pids);
}

static int report_print(struct report *report, const char *session)
{
	if (!report->json) {
		(void)printf("isolation: %s", report->n_bad ? "NOT as promised" : "as promised");
		if (report->n_undecided)
			(void)printf(", %zu undecided", report->n_undecided);
		(void)putchar('\n');
		return report->n_bad ? EXIT_FAILED : EXIT_OK;
	}
	report->rows =
		json_pack("{s:s,s:b,s:I,s:o}", "session_id", session, "ok", !report->n_bad,
			  "undecided", (json_int_t)report->n_undecided, "rows", report->rows);
	if (!report->rows)
		return EXIT_FAILED;
	print_json(report->rows);
	json_decref(report->rows);
	return report->n_bad ? EXIT_FAILED : EXIT_OK;
}

/* Our own look at the shim, where its number means the same to us as to the supervisor. */
static bool look_outside(const json_t *proof, struct proof_facts *facts)
{
	const json_t *mnt = json_object_get(json_object_get(proof, "namespaces"), "mnt");
	uint64_t pid = member_number(proof, "shim_pid");

	return pid <= INT32_MAX &&
	       proof_look_outside((int)pid, member_number(mnt, "session"), facts) == 0;
}

static int get_below(struct client *client, const char *session, const char *suffix,
		     struct client_reply *reply)
{
	const struct client_object object = {API_PREFIX_RUNTIME, session, suffix};

	return client_ask_about(client, "GET", &object, NULL, reply);
}

int command_proof(struct client *client, const struct options *options)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	AUTO_REPLY struct client_reply summary = CLIENT_REPLY_NULL;
	const char *session = options->args[0];
	struct proof_facts inside;
	struct proof_facts outside;
	struct report report = {.json = options->output == OUTPUT_JSON,
				.inside = &inside,
				.probe_ms = options->timeout_ms ? options->timeout_ms
								: PROBE_TIMEOUT_MS};
	int r;

	r = get_below(client, session, "/proof", &reply);
	if (r == EXIT_OK)
		r = get_below(client, session, "", &summary);
	if (r == EXIT_OK)
		r = look_inside(client, session, &inside);
	if (r != EXIT_OK)
		return r;
	report.proof = reply.doc;
	report.promised = json_object_get(summary.doc, "limits_effective");
	if (look_outside(reply.doc, &outside))
		report.outside = &outside;
	if (report.json)
		report.rows = json_array();
	else
		(void)printf("isolation of session %s%s\n  %-20s %-14s %-18s\n", session,
			     report.outside ? "" : " (outside as the supervisor read it back)", "",
			     "inside", "outside");
	report_namespaces(&report);
	report_ids(&report);
	report_privileges(&report);
	report_limits(&report);
	if (options->deep)
		probe_limits(&report, client, session);
	return report_print(&report, session);
}
