/*
 * Developer program: the launch engine alone, without the processes around it. Launches sessions
 * one after the other, prints the proof and the trace of the last one and the times of all, and
 * checks that nothing is left.
 *
 *   launch-probe RUNTIME_DIR LIBEXEC_DIR [COUNT [PROFILE [HOLD_SECONDS [MODE]]]]
 *
 * MODE: plain; early (killed in the turn of its start); freeze (killed while frozen, after a
 * connection and a stat); shim (its pid 1 is killed from outside).
 *
 * Run it as root, best under `unshare -mnp --fork --mount-proc`.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/num.h"
#include "base/str.h"

#include "policy/image.h"
#include "supervisor/host.h"
#include "supervisor/session.h"

#define MAX_COUNT 20000u

enum probe_mode {
	PROBE_MODE_PLAIN,
	PROBE_MODE_EARLY,
	PROBE_MODE_FREEZE,
	PROBE_MODE_SHIM,
	PROBE_MODE_MAX_,
};
static const char *const mode_names[PROBE_MODE_MAX_] = {"plain", "early", "freeze", "shim"};

struct probe {
	struct loop *loop;
	struct host *host;
	struct session *session;
	struct loop_source *timer;
	struct plan plan;
	uint32_t count;
	uint32_t n_done;
	uint32_t hold_s;
	enum probe_mode mode;
	int n_failed;
	usec_t asked_at;
	usec_t killed_at;
	uint32_t start_us[MAX_COUNT];
	uint32_t end_us[MAX_COUNT];
};

static void print_proof(const struct session *session)
{
	const struct launch_proof *proof = session_proof(session);
	const struct launch_trace *trace = session_trace(session);

	printf("pid %d id_base %u wanted 0x%x in_force 0x%x missing 0x%llx%s\n", proof->shim_pid,
	       proof->id_base, proof->wanted, proof->in_force,
	       (unsigned long long)proof->limits_missing,
	       (proof->wanted & proof->in_force) == proof->wanted ? "" : "  MISMATCH");
	printf("caps shim %llx spawner %llx memory %llu pids %u cpu %u\n",
	       (unsigned long long)proof->caps_shim, (unsigned long long)proof->caps_spawner,
	       (unsigned long long)proof->memory_bytes, proof->max_pids, proof->cpu_pct);
	for (uint32_t i = 0; i < trace->n; i++)
		printf("  %-8s %-20s %6u us\n",
		       trace->step[i].side == 0   ? "parent"
		       : trace->step[i].side == 1 ? "child"
						  : "shim",
		       trace->step[i].name, trace->step[i].us);
}

static void launch(struct probe *probe);

static void next(struct probe *probe)
{
	probe->session = NULL;
	probe->n_done++;
	if (probe->n_done < probe->count)
		/* A pause, so that the reserve of user namespaces fills up again. */
		loop_timer_set(probe->timer, clock_add(clock_boottime(), 4 * USEC_PER_MS));
	else
		loop_quit(probe->loop, 0);
}

static void check(struct probe *probe, bool holds, const char *what)
{
	if (holds)
		return;
	printf("does not hold: %s\n", what);
	probe->n_failed++;
}

/* What is allowed when, on the way to a frozen session. */
static void freeze(struct probe *probe, struct session *session)
{
	struct launch_stat stat = {0};
	int fd = -1;

	check(probe, session_connect(session, &fd) == 0, "connect");
	fd = fd_close(fd);
	check(probe, session_stat(session, &stat) == 0 && stat.n_pids == 3 && stat.memory_bytes > 0,
	      "stat");
	check(probe, session_thaw(session) == -EINVAL, "no thaw of what is not frozen");
	check(probe, session_freeze(session) == 0, "freeze");
	check(probe, session_freeze(session) == -EINVAL, "no second freeze");
	check(probe, session_connect(session, &fd) == 0, "connect while frozen");
	fd = fd_close(fd);
}

static void on_started(void *userdata, struct session *session, enum launch_error error,
		       const struct err *err)
{
	struct probe *probe = userdata;

	if (error != LAUNCH_E_NONE && probe->mode == PROBE_MODE_EARLY) {
		check(probe, err->error_number == ECANCELED, "killed early says so");
		next(probe);
		return;
	}
	if (error != LAUNCH_E_NONE) {
		printf("failed: error %d step %s errno %d (%s) %s\n", (int)error, err->step,
		       err->error_number, strerrordesc_np(err->error_number), err->text);
		probe->n_failed++;
		next(probe);
		return;
	}
	probe->start_us[probe->n_done] = (uint32_t)(clock_boottime() - probe->asked_at);
	if (probe->n_done + 1 == probe->count)
		print_proof(session);
	if (probe->hold_s > 0) {
		printf("holding pid %d for %u s\n", session_proof(session)->shim_pid,
		       probe->hold_s);
		(void)fflush(stdout);
		loop_timer_set(probe->timer,
			       clock_add(clock_boottime(), probe->hold_s * USEC_PER_SEC));
		return;
	}
	if (probe->mode == PROBE_MODE_FREEZE)
		freeze(probe, session);
	probe->killed_at = clock_boottime();
	if (probe->mode == PROBE_MODE_SHIM)
		check(probe, kill(session_proof(session)->shim_pid, SIGKILL) == 0, "kill");
	else
		session_kill(session);
}

static void on_ended(void *userdata, struct session *session, enum launch_gone_reason reason,
		     int wait_status)
{
	struct probe *probe = userdata;

	(void)session;
	if (reason !=
	    (probe->mode == PROBE_MODE_SHIM ? LAUNCH_GONE_SHIM_EXITED : LAUNCH_GONE_KILLED)) {
		printf("ended by itself: reason %d status %d\n", (int)reason, wait_status);
		probe->n_failed++;
	}
	probe->end_us[probe->n_done] = (uint32_t)(clock_boottime() - probe->killed_at);
	next(probe);
}

static int on_timer(void *userdata, uint32_t events)
{
	struct probe *probe = userdata;

	(void)events;
	if (probe->session) {
		probe->killed_at = clock_boottime();
		session_kill(probe->session);
	} else {
		launch(probe);
	}
	return 0;
}

static void launch(struct probe *probe)
{
	static const struct session_events events = {on_started, on_ended};
	enum launch_error error = LAUNCH_E_NONE;
	const struct session_launch wish = {.plan = &probe->plan, .secrets_fd = -1};
	struct err err = ERR_NULL;
	struct id id;

	if (id_random(&id) < 0)
		abort();
	memcpy(probe->plan.session, id.bytes, ID_BYTES);
	probe->asked_at = clock_boottime();
	int r = session_start(probe->host, &wish, &events, probe, &probe->session, &error, &err);
	if (r < 0) {
		printf("refused: error %d step %s errno %d %s\n", (int)error, err.step,
		       err.error_number, err.text);
		probe->n_failed++;
		next(probe);
		return;
	}
	if (probe->mode == PROBE_MODE_EARLY)
		session_kill(probe->session);
}

static int compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a;
	uint32_t y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static void print_times(const char *what, uint32_t *us, uint32_t n)
{
	qsort(us, n, sizeof(*us), compare);
	printf("%-6s n %u min %u p50 %u p95 %u max %u us\n", what, n, us[0], us[n / 2],
	       us[n * 95 / 100], us[n - 1]);
}

static void fill_plan(struct plan *plan, const struct policy_image_header *policy, uint32_t profile)
{
	const struct policy_limits *limits = &policy->profile[profile].limits;

	*plan = (struct plan){
		.magic = PLAN_MAGIC,
		.version = PLAN_VERSION,
		.size = sizeof(*plan),
		.profile = profile,
		.tmpfs_bytes = limits->tmpfs_bytes,
		.tmpfs_inodes = limits->tmpfs_inodes,
		.memory_bytes = limits->memory_bytes,
		.max_pids = limits->max_pids,
		.max_files = limits->max_files,
		.cpu_pct = limits->cpu_pct,
		.cpu_weight = limits->cpu_weight,
		.max_ptys = limits->max_ptys,
	};
	memcpy(plan->profile_hash, policy->profile[profile].hash, sizeof(plan->profile_hash));
}

static int run(struct probe *probe, const struct host_options *options, uint32_t profile)
{
	const struct host_configuration configuration = {.userns_reserve = 8};
	struct err err = ERR_NULL;

	int r = loop_new(&probe->loop);
	if (r < 0)
		return r;
	int n_fds = fd_count();
	usec_t begun_at = clock_boottime();
	r = host_open(probe->loop, options, &probe->host, &err);
	if (r == 0)
		r = host_adopt(probe->host, &err);
	if (r == 0)
		r = host_configure(probe->host, &configuration, &err);
	if (r < 0) {
		printf("host: step %s errno %d %s\n", err.step, err.error_number, err.text);
		return r;
	}
	printf("host open in %llu us, probes 0x%x\n",
	       (unsigned long long)(clock_boottime() - begun_at), host_probes(probe->host));
	fill_plan(&probe->plan, host_policy(probe->host), profile);
	r = loop_add_timer(probe->loop, clock_add(clock_boottime(), 50 * USEC_PER_MS), on_timer,
			   probe, &probe->timer);
	if (r == 0)
		r = loop_run(probe->loop);
	probe->timer = loop_remove(probe->timer);
	probe->host = host_close(probe->host);
	loop_free(probe->loop);
	int n_left = fd_count() - (n_fds - 1);
	if (n_left != 0)
		printf("descriptors left: %d\n", n_left);
	return r < 0 || n_left != 0 ? -EIO : 0;
}

int main(int argc, char **argv)
{
	struct probe *probe = calloc(1, sizeof(*probe));
	struct host_options options = {.instance = "0badcafe"};
	uint32_t profile = 0;

	if (!probe || argc < 3)
		return 2;
	probe->count = 1;
	options.runtime_dir = argv[1];
	options.libexec_dir = argv[2];
	/* NOLINTNEXTLINE(concurrency-mt-unsafe): one thread */
	const char *kernel = getenv("SANDBOX_KERNEL");
	options.kernel_6_1 = kernel && str_equal(kernel, "6.1");
	if ((argc > 3 && num_parse_u32(argv[3], 1, MAX_COUNT, &probe->count) < 0) ||
	    (argc > 4 && num_parse_u32(argv[4], 0, 1, &profile) < 0) ||
	    (argc > 5 && num_parse_u32(argv[5], 0, 3600, &probe->hold_s) < 0))
		return 2;
	for (int i = 0; argc > 6 && i < PROBE_MODE_MAX_; i++) {
		if (str_equal(argv[6], mode_names[i]))
			probe->mode = (enum probe_mode)i;
	}
	log_init("launch-probe", LOG_LEVEL_INFO);
	int r = run(probe, &options, profile);
	if (r == 0 && probe->n_failed == 0) {
		print_times("start", probe->start_us, probe->count);
		print_times("end", probe->end_us, probe->count);
	}
	r = r < 0 || probe->n_failed > 0;
	free(probe);
	return r;
}
