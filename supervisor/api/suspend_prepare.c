#include "supervisor/api/suspend_prepare.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "supervisor/api/command.h"
#include "supervisor/api/components.h"
#include "supervisor/api/file_reply.h"
#include "supervisor/api/git/parse.h"
#include "supervisor/api/loader_run.h"
#include "supervisor/api/session/fit.h"

#define SAID_BYTES    ((size_t)4096)
#define LOOK_FIRST_US (2 * USEC_PER_MS)
#define LOOK_MAX_US   (50 * USEC_PER_MS)

enum step {
	STEP_BEFORE,
	STEP_SIGNAL,
	STEP_REMOVE,
	STEP_DONE,
};

/* The end of what it wrote, which is where it says why. */
struct said {
	size_t size;
	bool is_cut;
	uint8_t bytes[SAID_BYTES];
};

struct suspend_prepare {
	struct command_reader reader; /* of the command before */
	struct said said[2];          /* standard output, standard error */
	struct activity removal;
	struct live *live;
	struct spec_suspend spec;
	suspend_prepared *prepared;
	sd_event_source *turn;  /* what follows, in a turn of its own */
	sd_event_source *timer; /* the next look at those that were told to end */
	usec_t look_us;
	usec_t deadline; /* boottime: of their grace */
	enum step step;
	size_t n_removed;
	bool is_removing; /* `removal` is active */
	enum runtime_error error;
	char detail[128];
};

/* Nothing of it is touched any more. */
static void finish(struct suspend_prepare *prepare, enum runtime_error error, const char *detail)
{
	prepare->prepared(prepare->live, error, detail);
}

static void go_on(struct suspend_prepare *prepare)
{
	(void)sd_event_source_set_enabled(prepare->turn, SD_EVENT_ONESHOT);
}

static void fail(struct suspend_prepare *prepare, enum runtime_error error)
{
	prepare->error = error;
	go_on(prepare);
}

/* The command before. */

static void take_exit(struct suspend_prepare *prepare, const struct wire_exit *status)
{
	const char *name = sigabbrev_np(status->signal);

	if (status->code == 0 && status->signal == 0) {
		prepare->step = STEP_SIGNAL;
		go_on(prepare);
		return;
	}
	if (status->flags & WIRE_EXIT_TIMED_OUT)
		fit_text(prepare->detail, sizeof(prepare->detail),
			 "the command before did not end in time");
	else if (status->signal != 0)
		fit_text(prepare->detail, sizeof(prepare->detail),
			 "the command before was ended by SIG%s", name ? name : "?");
	else
		fit_text(prepare->detail, sizeof(prepare->detail),
			 "the command before ended with %d", status->code);
	fail(prepare, RUNTIME_COMMAND_FAILED);
}

static void take_end(struct suspend_prepare *prepare, const struct command_event *end)
{
	struct wire_exit status;

	if (end->kind != COMMAND_EVENT_EXIT) {
		fail(prepare, end->kind == COMMAND_EVENT_FAILED ? RUNTIME_COMMAND_FAILED
								: RUNTIME_PROVIDER_UNAVAILABLE);
		return;
	}
	memcpy(&status, end->data, sizeof(status));
	take_exit(prepare, &status);
}

static void keep(struct said *said, const uint8_t *data, size_t size)
{
	size_t rest = said->size;

	if (size > SAID_BYTES) {
		data += size - SAID_BYTES;
		size = SAID_BYTES;
	}
	if (rest > SAID_BYTES - size) {
		said->is_cut = true;
		rest = SAID_BYTES - size;
		memmove(said->bytes, said->bytes + said->size - rest, rest);
	}
	memcpy(said->bytes + rest, data, size);
	said->size = rest + size;
}

static void on_wake(struct command_reader *reader)
{
	struct suspend_prepare *prepare = LIST_ENTRY(reader, struct suspend_prepare, reader);
	const struct command_event *event;

	while ((event = command_take(reader))) {
		if (event->kind == COMMAND_EVENT_STDOUT || event->kind == COMMAND_EVENT_STDERR)
			keep(&prepare->said[event->kind == COMMAND_EVENT_STDERR], event->data,
			     event->size);
		else
			take_end(prepare, event);
	}
}

static void set_said(json_t *doc, const char *name, const struct said *said)
{
	size_t from = 0;

	/* No half character. */
	while (said->is_cut && from < 3 && from < said->size && (said->bytes[from] & 0xc0u) == 0x80)
		from++;
	git_text_set(doc, name, (const char *)said->bytes + from, said->size - from);
}

json_t *suspend_prepare_said(const struct suspend_prepare *prepare)
{
	json_t *doc;

	if (!prepare || !prepare->spec.before.argv || prepare->step != STEP_BEFORE)
		return NULL;
	doc = json_object();
	set_said(doc, "stdout", &prepare->said[0]);
	set_said(doc, "stderr", &prepare->said[1]);
	return doc;
}

static int begin_command(struct suspend_prepare *prepare)
{
	struct spec_command *spec = &prepare->spec.before;
	struct environment environment = ENVIRONMENT_NULL;
	struct command *command;
	int r;

	r = session_environment(prepare->live, spec->env, spec->is_root, &environment);
	if (r >= 0)
		r = command_begin(prepare->live, spec, &environment, clock_boottime(), &command);
	environment_done(&environment);
	if (r < 0)
		return r;
	prepare->reader.wake = on_wake;
	command_read(command, &prepare->reader, 0, true);
	return 0;
}

/* Those that are told to end. */

static bool is_meant(const struct suspend_prepare *prepare, const struct command *command)
{
	return command->state != COMMAND_STATE_ENDED &&
	       (prepare->spec.commands == SPEC_SUSPEND_ALL || !command->background);
}

static size_t n_meant(const struct suspend_prepare *prepare)
{
	size_t n = 0;

	LIST_FOR_EACH (entry, &prepare->live->commands)
		n += is_meant(prepare, LIST_ENTRY(entry, struct command, link));
	return n;
}

static int on_look(sd_event_source *source, uint64_t at, void *userdata)
{
	struct suspend_prepare *prepare = userdata;

	(void)source;
	(void)at;
	if (n_meant(prepare) == 0 || clock_boottime() >= prepare->deadline) {
		prepare->step = STEP_REMOVE;
		go_on(prepare);
		return 0;
	}
	prepare->timer = sd_event_source_disable_unref(prepare->timer);
	if (sd_event_add_time_relative(prepare->live->app->event, &prepare->timer, CLOCK_BOOTTIME,
				       prepare->look_us, USEC_PER_MS, on_look, prepare) < 0)
		fail(prepare, RUNTIME_BUSY);
	if (prepare->look_us < LOOK_MAX_US)
		prepare->look_us *= 2;
	return 0;
}

static void tell_commands(struct suspend_prepare *prepare)
{
	static const struct wire_signal term = {.number = SIGTERM, .scope = WIRE_SIGNAL_TREE};

	LIST_FOR_EACH (entry, &prepare->live->commands) {
		struct command *command = LIST_ENTRY(entry, struct command, link);

		/* One that is about to start is not told: it has the grace all the same. */
		if (is_meant(prepare, command))
			IGNORE_RESULT(command_signal(command, &term));
	}
	prepare->deadline =
		clock_add(clock_boottime(), prepare->spec.grace_ms * (usec_t)USEC_PER_MS);
	prepare->look_us = LOOK_FIRST_US;
	(void)on_look(NULL, 0, prepare);
}

/* What is removed. */

static void removal_ended(struct activity *activity, const struct activity_result *result)
{
	struct suspend_prepare *prepare = LIST_ENTRY(activity, struct suspend_prepare, removal);

	live_settle(activity->live, result->number);
	prepare->is_removing = false;
	if (result->end == ACTIVITY_PUT_DONE ||
	    (result->end == ACTIVITY_FAILED && result->failed->error_number == ENOENT)) {
		prepare->n_removed++;
		go_on(prepare);
	} else if (result->end == ACTIVITY_FAILED) {
		fail(prepare, file_error(result->failed));
	} else {
		fail(prepare, RUNTIME_PROVIDER_UNAVAILABLE);
	}
}

static const struct activity_ops removal_ops = {
	.output = activity_ignore_output,
	.ended = removal_ended,
};

static int remove_next(struct suspend_prepare *prepare)
{
	const struct spec_file_path *path = &prepare->spec.remove[prepare->n_removed];
	const struct wire_file head = {
		.op = WIRE_FILE_REMOVE, .flags = WIRE_FILE_RECURSIVE, .root = path->root};
	struct live *live = prepare->live;
	uint32_t wire_job;
	int r = live->shim ? shim_link_file(live->shim, &head, path->text, NULL, &wire_job)
			   : -EPIPE;

	if (r < 0)
		return r;
	prepare->is_removing = true;
	live_add(live, &prepare->removal, &removal_ops, wire_job);
	return 0;
}

/* The steps. */

static int on_turn(sd_event_source *source, void *userdata)
{
	struct suspend_prepare *prepare = userdata;
	int r = 0;

	(void)source;
	if (prepare->error != RUNTIME_ERROR_MAX_) {
		finish(prepare, prepare->error, prepare->detail[0] ? prepare->detail : NULL);
		return 0;
	}
	if (prepare->step == STEP_BEFORE && prepare->spec.before.argv)
		r = begin_command(prepare);
	else if (prepare->step <= STEP_SIGNAL && prepare->spec.commands != SPEC_SUSPEND_NONE)
		tell_commands(prepare);
	else if (prepare->n_removed < prepare->spec.n_remove)
		r = remove_next(prepare);
	else
		finish(prepare, RUNTIME_ERROR_MAX_, NULL);
	if (r < 0)
		fail(prepare, r == -EAGAIN || r == -EBUSY || r == -ENOBUFS || r == -ENOMEM
				      ? RUNTIME_BUSY
				      : RUNTIME_PROVIDER_UNAVAILABLE);
	return 0;
}

void suspend_prepare_start(struct suspend_prepare *prepare)
{
	go_on(prepare);
}

int suspend_prepare_new(struct live *live, struct spec_suspend *spec, suspend_prepared *prepared,
			struct suspend_prepare **ret)
{
	struct suspend_prepare *prepare = calloc(1, sizeof(*prepare));

	if (!prepare ||
	    sd_event_add_defer(live->app->event, &prepare->turn, on_turn, prepare) < 0) {
		free(prepare);
		return -ENOMEM;
	}
	(void)sd_event_source_set_enabled(prepare->turn, SD_EVENT_OFF);
	prepare->live = live;
	prepare->spec = *spec;
	prepare->prepared = prepared;
	prepare->error = RUNTIME_ERROR_MAX_;
	*spec = SPEC_SUSPEND_NULL;
	*ret = prepare;
	return 0;
}

struct suspend_prepare *suspend_prepare_free(struct suspend_prepare *prepare)
{
	if (!prepare)
		return NULL;
	prepare->turn = sd_event_source_disable_unref(prepare->turn);
	prepare->timer = sd_event_source_disable_unref(prepare->timer);
	command_read_end(&prepare->reader);
	if (prepare->is_removing)
		live_give_up(&prepare->removal);
	spec_suspend_done(&prepare->spec);
	free(prepare);
	return NULL;
}
