#include "supervisor/api/canary.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/launch.h"
#include "base/log.h"
#include "base/str.h"

#include "sandboxd/canary.h"
#include "sandboxd/kernel.h"
#include "supervisor/api/app.h"
#include "supervisor/api/link/shim_link.h"
#include "supervisor/api/session/spec.h"

#define PROFILE        "component"
#define TIMEOUT_MS     10000u
#define GRACE_MS       1000u
#define OUTPUT_MAX     4096u
#define ANSWERS_WITHIN (15 * USEC_PER_SEC)
#define AGAIN_AFTER    (5 * USEC_PER_SEC)

enum canary_state {
	CANARY_WAITING, /* to be launched */
	CANARY_LAUNCHING,
	CANARY_RUNNING,
	CANARY_LEFT, /* to be ended */
	CANARY_ENDING,
	CANARY_DONE,
};

struct canary {
	enum canary_state state;
	struct id id;
	usec_t since;     /* it runs; boottime */
	usec_t not_until; /* the next one; boottime */
	struct flow flow;
	struct shim_link *shim;
	struct canary_report report;
	size_t n_bytes; /* of the report, or more */
	bool is_judged;
	char text[READINESS_TEXT_BYTES]; /* what is wrong; empty: nothing */
};

/* By the first layer that is in the way: another errno is another layer, and one is missing. */
static const struct expected {
	const char *name;
	int error;
} expected[] = {
	[CANARY_USER_NAMESPACE] = {"a user namespace",           EPERM       },
	[CANARY_MOUNT] = {"a mount",                    EPERM       },
	[CANARY_KEYRING] = {"keyrings",                   EPERM       },
	[CANARY_BPF] = {"bpf",                        EPERM       },
	[CANARY_IO_URING] = {"io_uring",                   ENOSYS      },
	[CANARY_VSOCK] = {"a socket of another family", EAFNOSUPPORT},
	[CANARY_ROOT_ID] = {"the id 0",                   EPERM       },
	[CANARY_SIGNAL_INIT] = {"a signal to pid 1",          EPERM       },
	[CANARY_TRACE_INIT] = {"tracing pid 1",              EPERM       },
	[CANARY_READ_INIT] = {"reading of pid 1",           ENOENT      },
	[CANARY_WRITE_TEMPLATE] = {"writing to the template",    EROFS       },
	[CANARY_DESCRIPTORS] = {"a descriptor that was left", EBADF       },
	[CANARY_DEVICE] = {"making a device",            EACCES      },
};
_Static_assert(ARRAY_SIZE(expected) == CANARY_MAX_, "one answer per check");

static const char *error_name(int error)
{
	const char *name = strerrorname_np(error);

	return error == 0 ? "not refused" : name ? name : "?";
}

/* Without Landlock in the kernel, which doctor tells of, the second line is what is left. */
static int expected_error(size_t check, uint32_t probes)
{
	return check == CANARY_DEVICE && !(probes & KERNEL_LANDLOCK) ? EPERM
								     : expected[check].error;
}

static void judge(struct canary *canary, uint32_t probes)
{
	const struct canary_report *report = &canary->report;

	if (canary->n_bytes != sizeof(*report) || report->magic != CANARY_MAGIC ||
	    report->n != CANARY_MAX_) {
		IGNORE_RESULT(str_copy(canary->text, sizeof(canary->text), "it gave no report"));
		return;
	}
	canary->is_judged = true;
	for (size_t i = 0; i < CANARY_MAX_; i++) {
		int wanted = expected_error(i, probes);
		if (report->error[i] == wanted)
			continue;
		IGNORE_RESULT(str_format(canary->text, sizeof(canary->text), "%s: %s instead of %s",
					 expected[i].name, error_name(report->error[i]),
					 error_name(wanted)));
		return;
	}
}

/* Its session has ended. One that said nothing proves nothing, and a host that is busy can be the
 * reason: another one is asked. */
static void conclude(struct app *app)
{
	struct canary *canary = app->canary;
	bool ok = canary->text[0] == '\0';

	canary->shim = shim_link_free(canary->shim);
	flow_done(&canary->flow);
	readiness_set(&app->readiness, READINESS_CANARY, ok, canary->text);
	if (!canary->is_judged) {
		log_line(LOG_LEVEL_ERROR, NULL, "the canary did not answer", "reason=\"%s\"",
			 canary->text);
		canary->not_until = clock_add(clock_boottime(), AGAIN_AFTER);
		canary->state = CANARY_WAITING;
		return;
	}
	canary->state = CANARY_DONE;
	if (ok)
		log_line(LOG_LEVEL_INFO, NULL, "the canary was refused everything", "checks=%d",
			 CANARY_MAX_);
	else
		log_line(LOG_LEVEL_ERROR, NULL, "the canary was not refused", "check=\"%s\"",
			 canary->text);
}

static void on_killed(void *userdata, const struct launch_msg *answer, int fd)
{
	struct app *app = userdata;
	struct canary *canary = app->canary;

	(void)fd_close(fd);
	if (canary->state != CANARY_ENDING)
		return;
	if (answer && (answer->error == LAUNCH_E_NONE || answer->error == LAUNCH_E_NOT_FOUND))
		conclude(app);
	else
		canary->state = CANARY_LEFT;
}

static void end(struct app *app)
{
	struct canary *canary = app->canary;

	canary->state = CANARY_ENDING;
	if (supervisor_client_request(app->supervisor,
				      &(struct supervisor_request){.type = LAUNCH_KILL,
								   .session = &canary->id,
								   .timeout = APP_KILL_TIMEOUT},
				      on_killed, app) < 0)
		canary->state = CANARY_LEFT;
}

/* text: what went wrong; NULL: it has said everything. */
static void finish(struct app *app, const char *text)
{
	struct canary *canary = app->canary;

	if (canary->state != CANARY_RUNNING)
		return;
	if (text)
		IGNORE_RESULT(str_copy(canary->text, sizeof(canary->text), text));
	else
		judge(canary, app->facts.kernel_probes);
	end(app);
}

static void on_started(void *userdata, uint32_t job, int32_t pid)
{
	(void)userdata;
	(void)job;
	(void)pid;
}

static void on_output(void *userdata, uint32_t job, uint64_t number, bool is_stderr,
		      const uint8_t *data, size_t size)
{
	struct canary *canary = ((struct app *)userdata)->canary;

	(void)job;
	shim_link_settle(canary->shim, number);
	if (is_stderr)
		return;
	/* Too much is no report either. */
	if (canary->n_bytes <= sizeof(canary->report) &&
	    size <= sizeof(canary->report) - canary->n_bytes)
		memcpy((uint8_t *)&canary->report + canary->n_bytes, data, size);
	canary->n_bytes += size;
}

static void on_exited(void *userdata, uint32_t job, uint64_t number, const struct wire_exit *status)
{
	(void)job;
	(void)number;
	(void)status;
	finish(userdata, NULL);
}

static void on_failed(void *userdata, uint32_t job, uint64_t number,
		      const struct wire_failed *failed)
{
	(void)job;
	(void)number;
	(void)failed;
	finish(userdata, "its program could not be run");
}

static void on_put_done(void *userdata, uint32_t job, uint64_t number)
{
	(void)userdata;
	(void)job;
	(void)number;
}

static void on_lost(void *userdata, int error)
{
	(void)error;
	finish(userdata, "its session was lost");
}

static const struct shim_link_events events = {
	.started = on_started,
	.output = on_output,
	.exited = on_exited,
	.failed = on_failed,
	.put_done = on_put_done,
	.lost = on_lost,
};

static int run(struct app *app, int fd)
{
	static const char *const argv[] = {"sandbox-canary", NULL};
	static const char *const env[] = {NULL};
	struct canary *canary = app->canary;
	const struct shim_link_options options = {
		.session = &canary->id,
		.flow = &canary->flow,
		.first_job = 1,
		.scratch = app->scratch,
	};
	/* In the loader's place: see PLAN_CANARY. */
	const struct shim_link_command command = {
		.head = {.program = WIRE_PROGRAM_LOADER,
			 .timeout_ms = TIMEOUT_MS,
			 .grace_ms = GRACE_MS,
			 .output_max_bytes = OUTPUT_MAX},
		.cwd = "/session",
		.argv = argv,
		.env = env,
	};
	uint32_t job;
	int r;

	r = shim_link_new(app->event, fd, &options, &events, app, &canary->shim);
	if (r < 0) {
		(void)fd_close(fd);
		return r;
	}
	return shim_link_exec(canary->shim, &command, &job);
}

static void on_launched(void *userdata, const struct launch_msg *answer, int fd)
{
	struct app *app = userdata;
	struct canary *canary = app->canary;

	if (canary->state != CANARY_LAUNCHING) {
		(void)fd_close(fd);
		return;
	}
	if (answer && answer->error != LAUNCH_E_NONE) {
		/* A ceiling, perhaps, of sessions that were adopted. */
		canary->state = CANARY_WAITING;
		readiness_set(&app->readiness, READINESS_CANARY, false,
			      launch_error_text(answer->error));
		return;
	}
	canary->state = CANARY_RUNNING;
	canary->since = clock_boottime();
	if (!answer || fd < 0)
		finish(app, "its session was not made");
	else if (run(app, fd) < 0)
		finish(app, "its session cannot be reached");
}

static int launch(struct app *app)
{
	struct canary *canary = app->canary;
	struct plan plan;
	uint32_t index = 0;
	const struct policy_profile *profile = image_find(&app->policy, PROFILE, &index);

	if (!profile)
		return -ENOENT;
	int r = id_random(&canary->id);
	if (r < 0)
		return r;
	flow_init(&canary->flow, 0);
	canary->n_bytes = 0;
	canary->text[0] = '\0';
	plan = spec_plan(&canary->id, index, profile);
	plan.flags = PLAN_CANARY;
	canary->state = CANARY_LAUNCHING;
	r = supervisor_client_request(app->supervisor,
				      &(struct supervisor_request){.type = LAUNCH_START,
								   .session = &canary->id,
								   .plan = &plan,
								   .timeout = APP_LAUNCH_TIMEOUT},
				      on_launched, app);
	if (r < 0)
		canary->state = CANARY_WAITING;
	return r;
}

void canary_tick(struct app *app)
{
	struct canary *canary = app->canary;

	if (!canary)
		return;
	if (canary->state == CANARY_WAITING && clock_boottime() >= canary->not_until &&
	    launch(app) < 0)
		readiness_set(&app->readiness, READINESS_CANARY, false, "it cannot be launched");
	/* The shim ends it before that; if it is not itself, it does not. */
	if (canary->state == CANARY_RUNNING &&
	    clock_boottime() >= clock_add(canary->since, ANSWERS_WITHIN))
		finish(app, "it does not end");
	if (canary->state == CANARY_LEFT)
		end(app);
}

void canary_start(struct app *app)
{
	app->canary = calloc(1, sizeof(*app->canary));
	readiness_set(&app->readiness, READINESS_CANARY, false,
		      app->canary ? "it runs" : "out of memory");
	if (!app->canary)
		return;
	canary_tick(app);
}

void canary_stop(struct app *app)
{
	struct canary *canary = app->canary;

	if (!canary || canary->state == CANARY_DONE)
		return;
	canary->state = CANARY_DONE;
	canary->shim = shim_link_free(canary->shim);
	flow_done(&canary->flow);
}

void canary_free(struct app *app)
{
	free(app->canary);
	app->canary = NULL;
}
