/*
 * sandboxd-bench: floors, the daemon over its socket, and installed peers, interleaved in one run,
 * so that a noisy moment hits all of them alike. Prints a table and writes JSON with stable keys.
 * Nothing here asserts: the bars of the design are ratios that a reader compares.
 *
 * usage: sandboxd-bench --libexec-dir DIR --programs DIR --socket PATH --control PATH [--json FILE]
 * [--rounds N]
 *
 * The daemon is started by tests/bench/run, which also makes the OCI bundle for runc in the current
 * folder.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io.h"
#include "base/num.h"
#include "base/str.h"

#include "tests/bench/client.h"
#include "tests/bench/floor.h"
#include "tests/bench/stats.h"

#define DAGSTER  "/dagster/sandbox/sessions"
#define RUNTIME  "/v1/sandboxes"
#define IDLE_N   20  /* sessions in a batch */
#define IDLE_MAX 9   /* batches */
#define CHURN_S  1.5 /* a turn */
#define CHURN_N  3   /* turns */
#define SPAWN_N  4   /* samples a round of what takes little time */
#define QUIET_US 5000
#define NOT_HERE "00000000-0000-4000-8000-000000000000"

enum line {
	LINE_FLOOR_CREATE,
	LINE_FLOOR_CREATE_BARE,
	LINE_CREATE_COLD,
	LINE_FLOOR_SPAWN,
	LINE_RUN_TRUE,
	LINE_BWRAP,
	LINE_RUNC_RUN,
	LINE_RUNC_EXEC,
	LINE_HTTP_NOOP,
	LINE_404_MISSING,
	LINE_404_CLOSED,
	LINE_404_FOREIGN,
	LINE_404_MALFORMED,
	LINE_MAX_,
};

static const char *const line_keys[LINE_MAX_] = {
	[LINE_FLOOR_CREATE] = "floor_create_us",
	[LINE_FLOOR_CREATE_BARE] = "floor_create_bare_us",
	[LINE_CREATE_COLD] = "create_cold_us",
	[LINE_FLOOR_SPAWN] = "floor_spawn_us",
	[LINE_RUN_TRUE] = "run_true_us",
	[LINE_BWRAP] = "bwrap_us",
	[LINE_RUNC_RUN] = "runc_run_us",
	[LINE_RUNC_EXEC] = "runc_exec_us",
	[LINE_HTTP_NOOP] = "http_noop_us",
	[LINE_404_MISSING] = "not_found_missing_us",
	[LINE_404_CLOSED] = "not_found_closed_us",
	[LINE_404_FOREIGN] = "not_found_foreign_us",
	[LINE_404_MALFORMED] = "not_found_malformed_us",
};

struct bench {
	struct floor *floor;
	struct client client;
	const char *socket_path;
	const char *control_path;
	const char *true_path;
	unsigned int not_found_differ; /* answers whose bytes were not those of the first */
	struct stats line[LINE_MAX_];
	double churn_per_s;
	double churn_bwrap_per_s;
	struct stats idle; /* KiB a session, one sample a batch */
	struct stats floor_idle;
};

static int fail(const char *what, int r)
{
	(void)fprintf(stderr, "bench: %s: %s\n", what, strerror(-r));
	return r;
}

/* What was destroyed is freed by kernel threads behind a grace period; whatever is measured next
 * would wait for them. */
static void quiet(void)
{
	(void)usleep(QUIET_US);
}

/* One request that must answer `status`; its duration. */
static int timed(struct bench *bench, enum line line, const char *method, const char *path,
		 const char *body, int status)
{
	double start = bench_now_us();
	int r;

	r = client_request(&bench->client, method, path, body);
	if (r < 0)
		return r;
	if (bench->client.status != status) {
		(void)fprintf(stderr, "bench: %s %s: %d %s\n", method, path, bench->client.status,
			      bench->client.answer);
		return -EPROTO;
	}
	if (line != LINE_MAX_)
		stats_add(&bench->line[line], bench_now_us() - start);
	return 0;
}

/* Run a program of a peer to its end; negative when it is missing or fails. */
static int timed_program(struct bench *bench, enum line line, const char *const argv[])
{
	/* execvp only reads; its type is older than const. */
	union {
		const char *const *in;
		char *const *out;
	} unconst = {.in = argv};
	double start = bench_now_us();
	int status = 0;
	pid_t pid = fork();

	if (pid < 0)
		return -errno;
	if (pid == 0) {
		int null = open("/dev/null", O_RDWR | O_CLOEXEC);

		(void)dup2(null, STDIN_FILENO);
		(void)dup2(null, STDOUT_FILENO);
		(void)dup2(null, STDERR_FILENO);
		(void)execvp(argv[0], unconst.out);
		_exit(127);
	}
	if (waitpid(pid, &status, 0) < 0)
		return -errno;
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		return -ENOENT;
	if (line != LINE_MAX_)
		stats_add(&bench->line[line], bench_now_us() - start);
	return 0;
}

static const char *const bwrap_argv[] = {
	"bwrap", "--unshare-all", "--ro-bind", "/usr",          "/usr",   "--symlink", "usr/lib",
	"/lib",  "--symlink",     "usr/lib64", "/lib64",        "--proc", "/proc",     "--dev",
	"/dev",  "--tmpfs",       "/tmp",      "/usr/bin/true", NULL};

/* Put the static program of the floor into a session, so that both run the same bytes. */
static int install_true(struct bench *bench, const char *id)
{
	char *program AUTO_FREE = NULL;
	char *text AUTO_FREE = NULL;
	char *body AUTO_FREE = NULL;
	char path[128];
	size_t size, body_bytes;
	int fd AUTO_CLOSE = open(bench->true_path, O_RDONLY | O_CLOEXEC);
	int r;

	if (fd < 0)
		return -errno;
	r = io_read_file(fd, 32768, &program, &size);
	if (r < 0)
		return r;
	text = malloc(str_base64_bytes(size));
	body_bytes = str_base64_bytes(size) + 256;
	body = malloc(body_bytes);
	if (!text || !body)
		return -ENOMEM;
	(void)str_base64(text, program, size);
	r = str_format(
		body, body_bytes,
		"{\"argv\":[\"sh\",\"-c\",\"base64 -d > /session/true && chmod 755 /session/true\"],"
		"\"stdin\":\"%s\"}",
		text);
	if (r < 0)
		return r;
	r = str_format(path, sizeof(path), RUNTIME "/%s/commands", id);
	if (r < 0)
		return r;
	r = client_request(&bench->client, "POST", path, body);
	if (r < 0)
		return r;
	return bench->client.status == 200 ? 0 : -EPROTO;
}

static int measure_create(struct bench *bench)
{
	char id[64], path[128];
	int r;

	r = timed(bench, LINE_CREATE_COLD, "POST", DAGSTER, "{}", 201);
	if (r < 0)
		return r;
	r = client_member(&bench->client, "id", id, sizeof(id));
	if (r < 0)
		return r;
	r = str_format(path, sizeof(path), DAGSTER "/%s", id);
	if (r < 0)
		return r;
	return timed(bench, LINE_MAX_, "DELETE", path, NULL, 200);
}

#define IDENTITY(user) "X-Sandbox-User: " user "\r\nX-Sandbox-Scopes: data:read data:write\r\n"
#define NOT_FOUND_N    500

static int create_id(struct bench *bench, char *id, size_t id_bytes)
{
	int r = timed(bench, LINE_MAX_, "POST", DAGSTER, "{}", 201);

	return r < 0 ? r : client_member(&bench->client, "id", id, id_bytes);
}

/* What a caller sees of a session that is not there, not there any more, somebody else's, or no id
 * at all: the same bytes, and no difference in time that tells them apart. */
static int measure_not_found(struct bench *bench)
{
	static const enum line lines[] = {LINE_404_MISSING, LINE_404_CLOSED, LINE_404_FOREIGN,
					  LINE_404_MALFORMED};
	char path[ARRAY_SIZE(lines)][128];
	char own[64], foreign[64], body[256] = "";
	int r;

	client_done(&bench->client);
	r = client_connect(&bench->client, bench->control_path);
	if (r < 0)
		return r;
	bench->client.identity = IDENTITY("bench-b");
	r = create_id(bench, foreign, sizeof(foreign));
	if (r < 0)
		return r;
	bench->client.identity = IDENTITY("bench-a");
	r = create_id(bench, own, sizeof(own));
	if (r == 0)
		r = str_format(path[1], sizeof(path[1]), DAGSTER "/%s", own);
	if (r == 0)
		r = timed(bench, LINE_MAX_, "DELETE", path[1], NULL, 200);
	if (r == 0)
		r = str_format(path[0], sizeof(path[0]), DAGSTER "/" NOT_HERE);
	if (r == 0)
		r = str_format(path[2], sizeof(path[2]), DAGSTER "/%s", foreign);
	if (r == 0)
		r = str_format(path[3], sizeof(path[3]), DAGSTER "/not-an-id");
	for (size_t i = 0; r == 0 && i < NOT_FOUND_N * ARRAY_SIZE(lines); i++) {
		size_t kind = i % ARRAY_SIZE(lines);

		r = timed(bench, lines[kind], "GET", path[kind], NULL, 404);
		if (r == 0 && i == 0)
			r = str_copy(body, sizeof(body), bench->client.answer);
		if (r == 0 && !str_equal(body, bench->client.answer))
			bench->not_found_differ++;
	}
	bench->client.identity = IDENTITY("bench-b");
	if (r == 0)
		r = timed(bench, LINE_MAX_, "DELETE", path[2], NULL, 200);
	client_done(&bench->client);
	bench->client.identity = NULL;
	return r < 0 ? r : client_connect(&bench->client, bench->socket_path);
}

/* The host's spawn and the session's, in turns. */
static int round_spawn(struct bench *bench, const char *commands_path)
{
	double us;
	int r;

	for (int i = 0; i < SPAWN_N; i++) {
		r = floor_spawn(bench->floor, &us);
		if (r < 0)
			return fail("spawn", r);
		stats_add(&bench->line[LINE_FLOOR_SPAWN], us);
		r = timed(bench, LINE_RUN_TRUE, "POST", commands_path,
			  "{\"argv\":[\"/session/true\"]}", 200);
		if (r < 0)
			return fail("run", r);
		if (!strstr(bench->client.answer, "\"code\":0"))
			return fail("run true in a session", -EPROTO);
		r = timed(bench, LINE_HTTP_NOOP, "GET", "/healthz", NULL, 200);
		if (r < 0)
			return fail("healthz", r);
	}
	return 0;
}

static int round_once(struct bench *bench, const char *commands_path)
{
	double us;
	int r;

	quiet();
	r = floor_create(bench->floor, 0, &us);
	if (r < 0)
		return fail("floor", r);
	stats_add(&bench->line[LINE_FLOOR_CREATE], us);
	quiet();
	r = measure_create(bench);
	if (r < 0)
		return fail("create", r);
	quiet();
	r = floor_create_bare(bench->floor, &us);
	if (r < 0)
		return fail("bare floor", r);
	stats_add(&bench->line[LINE_FLOOR_CREATE_BARE], us);
	quiet();
	return round_spawn(bench, commands_path);
}

/* The bundle's directory is the current one; a peer that is missing or cannot run here has no
 * samples. */
static void round_peers(struct bench *bench)
{
	static const char *const runc_run[] = {"runc", "run", "sandboxd-bench-run", NULL};
	static const char *const runc_exec[] = {"runc", "exec", "sandboxd-bench-exec", "/true",
						NULL};

	(void)timed_program(bench, LINE_BWRAP, bwrap_argv);
	(void)timed_program(bench, LINE_RUNC_RUN, runc_run);
	(void)timed_program(bench, LINE_RUNC_EXEC, runc_exec);
}

/* Sum of what the kernel and private pages hold, in KiB. */
static double memory_kib(void)
{
	static const char *const names[] = {
		"Slab:", "Percpu:", "KernelStack:", "PageTables:", "AnonPages:", "Shmem:"};
	char *text AUTO_FREE = NULL;
	char *save = NULL;
	double sum = 0.0;
	size_t size;
	int fd AUTO_CLOSE = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);

	if (fd < 0 || io_read_file(fd, 65536, &text, &size) < 0)
		return 0.0;
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		for (size_t i = 0; i < ARRAY_SIZE(names); i++)
			if (str_has_prefix(line, names[i])) {
				char *digits = line + strlen(names[i]);
				uint64_t value = 0;

				digits += strspn(digits, " ");
				*strchrnul(digits, ' ') = '\0';
				if (num_parse_u64(digits, 0, UINT64_MAX / 2, &value) == 0)
					sum += (double)value;
			}
	return sum;
}

static int idle_floor(struct bench *bench, double *ret_kib)
{
	double before = memory_kib();
	double us;

	for (size_t i = 0; i < IDLE_N; i++) {
		int r = floor_create(bench->floor, 1, &us);

		if (r < 0)
			return r;
	}
	*ret_kib = (memory_kib() - before) / IDLE_N;
	floor_drop_kept(bench->floor);
	return 0;
}

static int idle_product(struct bench *bench, double *ret_kib)
{
	char id[IDLE_N][64];
	char path[128];
	double before = memory_kib();
	int r;

	for (size_t i = 0; i < IDLE_N; i++) {
		r = create_id(bench, id[i], sizeof(id[i]));
		if (r < 0)
			return r;
	}
	*ret_kib = (memory_kib() - before) / IDLE_N;
	for (size_t i = 0; i < IDLE_N; i++) {
		r = str_format(path, sizeof(path), DAGSTER "/%s", id[i]);
		if (r < 0)
			return r;
		r = timed(bench, LINE_MAX_, "DELETE", path, NULL, 200);
		if (r < 0)
			return r;
	}
	return 0;
}

/* The host's own counters, so whatever else runs on it is in them: the median of batches. */
static int measure_idle(struct bench *bench)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < IDLE_MAX; i++) {
		double kib = 0.0;

		(void)sleep(1); /* what was destroyed before is freed behind a grace period */
		r = idle_floor(bench, &kib);
		stats_add(&bench->floor_idle, kib);
		(void)sleep(1);
		if (r == 0)
			r = idle_product(bench, &kib);
		stats_add(&bench->idle, kib);
	}
	return r;
}

/* Create, run, destroy until the time is up; number of rounds, or a negative errno. */
static int churn_worker(struct bench *bench, int product)
{
	double end = bench_now_us() + CHURN_S * 1e6;
	char id[64], path[128];
	int n = 0;
	int r;

	if (product) {
		r = client_connect(&bench->client, bench->socket_path);
		if (r < 0)
			return r;
	}
	while (bench_now_us() < end) {
		if (!product) {
			r = timed_program(bench, LINE_MAX_, bwrap_argv);
			if (r < 0)
				return r;
			n++;
			continue;
		}
		r = timed(bench, LINE_MAX_, "POST", DAGSTER, "{}", 201);
		if (r == 0)
			r = client_member(&bench->client, "id", id, sizeof(id));
		if (r == 0)
			r = str_format(path, sizeof(path), RUNTIME "/%s/commands", id);
		if (r == 0)
			r = timed(bench, LINE_MAX_, "POST", path, "{\"argv\":[\"/usr/bin/true\"]}",
				  200);
		if (r == 0)
			r = str_format(path, sizeof(path), DAGSTER "/%s", id);
		if (r == 0)
			r = timed(bench, LINE_MAX_, "DELETE", path, NULL, 200);
		if (r < 0)
			return r;
		n++;
	}
	return n;
}

static int churn_turn(struct bench *bench, int product, double *ret_per_s)
{
	long n_workers = sysconf(_SC_NPROCESSORS_ONLN) * 2;
	int total = 0;
	int pipes[2];

	if (pipe2(pipes, O_CLOEXEC) < 0)
		return -errno;
	for (long i = 0; i < n_workers; i++) {
		pid_t pid = fork();

		if (pid < 0)
			return -errno;
		if (pid == 0) {
			int n = churn_worker(bench, product);

			_exit(io_write_all(pipes[1], &n, sizeof(n)) < 0);
		}
	}
	(void)fd_close(pipes[1]);
	for (long i = 0; i < n_workers; i++) {
		int n;
		int r;

		r = io_read_exact(pipes[0], &n, sizeof(n));
		(void)wait(NULL);
		if (r < 0)
			return r;
		if (n > 0)
			total += n;
	}
	(void)fd_close(pipes[0]);
	*ret_per_s += (double)total / CHURN_S / CHURN_N;
	return 0;
}

/* Both in turns: a busy moment of the host hits both. */
static int measure_churn(struct bench *bench)
{
	int r = 0;

	for (int i = 0; r == 0 && i < CHURN_N; i++) {
		r = churn_turn(bench, 1, &bench->churn_per_s);
		if (r == 0)
			r = churn_turn(bench, 0, &bench->churn_bwrap_per_s);
	}
	return r;
}

struct options {
	const char *libexec_dir;
	const char *programs_dir;
	const char *socket_path;
	const char *control_path;
	const char *json_path;
	uint32_t n_rounds;
};

static int parse(int argc, char **argv, struct options *options)
{
	static const struct option rows[] = {
		{"libexec-dir", required_argument, NULL, 'l'},
		{"programs",    required_argument, NULL, 'p'},
		{"socket",      required_argument, NULL, 's'},
		{"control",     required_argument, NULL, 'c'},
		{"json",        required_argument, NULL, 'j'},
		{"rounds",      required_argument, NULL, 'r'},
		{NULL,          0,                 NULL, 0  },
	};
	int option;

	*options = (struct options){.n_rounds = 200};
	while ((option = getopt_long(argc, argv, "", rows, NULL)) != -1) {
		switch (option) {
		case 'l':
			options->libexec_dir = optarg;
			break;
		case 'p':
			options->programs_dir = optarg;
			break;
		case 's':
			options->socket_path = optarg;
			break;
		case 'c':
			options->control_path = optarg;
			break;
		case 'j':
			options->json_path = optarg;
			break;
		case 'r':
			if (num_parse_u32(optarg, 1, 100000, &options->n_rounds) < 0)
				return -EINVAL;
			break;
		default:
			return -EINVAL;
		}
	}
	return options->libexec_dir && options->programs_dir && options->socket_path &&
			       options->control_path
		       ? 0
		       : -EINVAL;
}

static double ratio(struct bench *bench, enum line value, enum line floor, double quantile)
{
	double base = stats_quantile(&bench->line[floor], quantile);

	return base > 0.0 ? stats_quantile(&bench->line[value], quantile) / base : 0.0;
}

static void print_json(struct bench *bench, FILE *out)
{
	(void)fprintf(out, "{\n");
	for (size_t i = 0; i < LINE_MAX_; i++) {
		stats_print(out, line_keys[i], &bench->line[i]);
		(void)fprintf(out, ",\n");
	}
	(void)fprintf(
		out,
		"  \"not_found_differ\": %u,\n  \"ratio_create_cold\": %.3f,\n  \"ratio_run\": %.3f,\n"
		"  \"ratio_create_cold_min\": %.3f,\n  \"ratio_run_min\": %.3f,\n"
		"  \"churn_per_s\": %.1f,\n  \"churn_bwrap_per_s\": %.1f,\n"
		"  \"idle_kib\": %.1f,\n  \"floor_idle_kib\": %.1f\n}\n",
		bench->not_found_differ, ratio(bench, LINE_CREATE_COLD, LINE_FLOOR_CREATE, 0.5),
		ratio(bench, LINE_RUN_TRUE, LINE_FLOOR_SPAWN, 0.5),
		ratio(bench, LINE_CREATE_COLD, LINE_FLOOR_CREATE, 0.0),
		ratio(bench, LINE_RUN_TRUE, LINE_FLOOR_SPAWN, 0.0), bench->churn_per_s,
		bench->churn_bwrap_per_s, stats_quantile(&bench->idle, 0.5),
		stats_quantile(&bench->floor_idle, 0.5));
}

static int measure(struct bench *bench, const struct options *options)
{
	char id[64], path[128];
	int r;

	r = timed(bench, LINE_MAX_, "POST", DAGSTER, "{}", 201);
	if (r == 0)
		r = client_member(&bench->client, "id", id, sizeof(id));
	if (r == 0)
		r = install_true(bench, id);
	if (r == 0)
		r = str_format(path, sizeof(path), RUNTIME "/%s/commands", id);
	if (r < 0)
		return fail("session for run", r);
	for (uint32_t i = 0; i < options->n_rounds; i++) {
		r = round_once(bench, path);
		if (r < 0)
			return r;
		if (i % 10 == 0)
			round_peers(bench);
	}
	r = measure_not_found(bench);
	if (r < 0)
		return fail("404s", r);
	r = measure_idle(bench);
	if (r < 0)
		return fail("idle", r);
	r = measure_churn(bench);
	return r < 0 ? fail("churn", r) : 0;
}

static int report(struct bench *bench, const char *json_path)
{
	FILE *out;

	print_json(bench, stdout);
	if (!json_path)
		return 0;
	out = fopen(json_path, "we");
	if (!out)
		return fail(json_path, -errno);
	print_json(bench, out);
	return fclose(out) == 0 ? 0 : fail(json_path, -errno);
}

int main(int argc, char **argv)
{
	static struct bench bench; /* the client's buffer is too large for the stack */
	struct options options;
	char sleep_path[512], true_path[512];
	int r;

	if (parse(argc, argv, &options) < 0 ||
	    str_format(sleep_path, sizeof(sleep_path), "%s/bench-sleeper", options.programs_dir) <
		    0 ||
	    str_format(true_path, sizeof(true_path), "%s/bench-true", options.programs_dir) < 0) {
		(void)fprintf(stderr, "usage: sandboxd-bench --libexec-dir DIR --programs DIR "
				      "--socket PATH --control PATH [--json FILE] [--rounds N]\n");
		return 2;
	}
	bench.socket_path = options.socket_path;
	bench.control_path = options.control_path;
	bench.true_path = true_path;
	for (size_t i = 0; i < LINE_MAX_; i++) {
		r = stats_init(&bench.line[i], SPAWN_N * options.n_rounds + NOT_FOUND_N);
		if (r < 0)
			return 1;
	}
	if (stats_init(&bench.idle, IDLE_MAX) < 0 || stats_init(&bench.floor_idle, IDLE_MAX) < 0)
		return 1;
	r = floor_open(&(struct floor_options){.libexec_dir = options.libexec_dir,
					       .true_path = true_path,
					       .sleep_path = sleep_path},
		       &bench.floor);
	if (r == 0)
		r = client_connect(&bench.client, options.socket_path);
	if (r == 0)
		r = measure(&bench, &options);
	if (r == 0)
		r = report(&bench, options.json_path);
	else
		(void)fail("run", r);
	client_done(&bench.client);
	floor_close(bench.floor);
	for (size_t i = 0; i < LINE_MAX_; i++)
		stats_done(&bench.line[i]);
	stats_done(&bench.idle);
	stats_done(&bench.floor_idle);
	return r < 0 ? 1 : 0;
}
