#include "supervisor/api/command.h"

#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"

#include "supervisor/api/loader_run.h"

#define HIGH_BYTES       ((size_t)1024 * 1024) /* settle at once below this */
#define LOW_BYTES        ((size_t)512 * 1024)  /* settle what was held at or below this */
#define HELD_MAX_BYTES   (2 * SHIM_LINK_WINDOW * sizeof(uint64_t))
#define COMMAND_GRACE_MS 2000u

/* What the shim keeps for the next worker, which believes none of it. */
struct command_note {
	uint8_t id[ID_BYTES];
	uint64_t created_at;
	struct wire_size size;
	uint32_t is_background;
	char text[COMMAND_TEXT_BYTES];
};
_Static_assert(sizeof(struct command_note) <= WIRE_NOTE_MAX_BYTES, "one note");

/* Life. */

static void count(struct command *command)
{
	size_t now = command->live ? command->log.bytes : 0;
	struct live *live = command->live ? command->live : command->activity.live;

	ASSERT(live);
	live->command_bytes += now - command->counted_bytes;
	live->app->command_bytes += now - command->counted_bytes;
	command->counted_bytes = now;
}

static void maybe_free(struct command *command)
{
	if (command->live || command->ending || command->state != COMMAND_STATE_ENDED ||
	    !list_empty(&command->readers))
		return;
	ASSERT(list_empty(&command->waiters));
	command_log_done(&command->log);
	buf_done(&command->held);
	free(command);
}

/* Out of the list; freed when nobody reads it. */
static void drop(struct command *command)
{
	struct live *live = command->live;

	ASSERT(live);
	list_remove(&command->link);
	command->activity.live = live;
	command->live = NULL;
	count(command);
	maybe_free(command);
}

static void forget(struct command *command)
{
	const struct live *live = command->live;

	ASSERT(live);
	if (command->keeps && live->shim && command->tree == live->tree)
		shim_link_forget(live->shim, command->wire_job);
	drop(command);
}

static struct command *command_new(struct live *live)
{
	struct command *command = calloc(1, sizeof(*command));

	if (!command)
		return NULL;
	command->live = live;
	command->tree = live->tree;
	command->held = BUF_NULL(HELD_MAX_BYTES);
	command_log_init(&command->log);
	list_init(&command->link);
	list_init(&command->readers);
	list_init(&command->waiters);
	return command;
}

void commands_leave(struct live *live)
{
	while (!list_empty(&live->commands))
		forget(LIST_ENTRY(live->commands.next, struct command, link));
}

/* The oldest that have ended make room. */
static void evict(struct live *live)
{
	struct command *oldest = NULL;
	size_t n = 0;

	LIST_FOR_EACH (entry, &live->commands) {
		struct command *command = LIST_ENTRY(entry, struct command, link);

		if (command->state != COMMAND_STATE_ENDED)
			continue;
		n++;
		if (!oldest)
			oldest = command;
	}
	if (n > SHIM_MAX_KEPT)
		forget(oldest);
}

struct command *command_find(const struct live *live, const struct id *id)
{
	LIST_FOR_EACH (entry, &live->commands) {
		struct command *command = LIST_ENTRY(entry, struct command, link);

		if (id_equal(&command->id, id))
			return command;
	}
	return NULL;
}

const struct command_event *command_end_event(const struct command *command)
{
	if (command->state != COMMAND_STATE_ENDED || list_empty(&command->log.events))
		return NULL;
	return LIST_ENTRY(command->log.events.prev, struct command_event, link);
}

const char *command_status(const struct command *command)
{
	const struct command_event *end = command_end_event(command);

	if (command->state == COMMAND_STATE_STARTING)
		return "starting";
	if (command->state == COMMAND_STATE_RUNNING)
		return "running";
	if (end && end->kind == COMMAND_EVENT_EXIT)
		return "exited";
	return end && end->kind == COMMAND_EVENT_FAILED ? "failed" : "lost";
}

/* Readers. */

static void wake_readers(struct command *command)
{
	LIST_FOR_EACH_SAFE (entry, following, &command->readers) {
		struct command_reader *reader = LIST_ENTRY(entry, struct command_reader, link);

		reader->wake(reader);
	}
}

void commands_unlink(struct live *live)
{
	LIST_FOR_EACH_SAFE (entry, following, &live->commands) {
		struct command *command = LIST_ENTRY(entry, struct command, link);

		if (!command->keeps)
			continue;
		if (command->state != COMMAND_STATE_ENDED) {
			list_remove(&command->activity.link);
			command->state = COMMAND_STATE_ENDED;
			command->is_cut = true;
		}
		buf_reset(&command->held);
		command->ending = true;
		command_refuse_waiters(command, RUNTIME_PROVIDER_UNAVAILABLE);
		wake_readers(command);
		command->ending = false;
		drop(command);
	}
}

void commands_wake(struct live *live)
{
	LIST_FOR_EACH_SAFE (entry, following, &live->commands)
		wake_readers(LIST_ENTRY(entry, struct command, link));
}

bool command_stands_still(const struct command *command)
{
	const struct session *session = command->live ? command->live->session : NULL;

	return session && command->state != COMMAND_STATE_ENDED &&
	       (session->suspension.state == SUSPENSION_SUSPENDED ||
		session->suspension.state == SUSPENSION_RESUMING);
}

/* What is not taken is not settled. */
static bool is_paced(const struct command *command)
{
	return command->pacer || command->holds;
}

static void settle_held(struct command *command)
{
	for (size_t at = 0; at < command->held.size; at += sizeof(uint64_t)) {
		uint64_t number;

		memcpy(&number, command->held.data + at, sizeof(number));
		live_settle(command->activity.live, number);
	}
	buf_reset(&command->held);
}

static void drop_first(struct command *command)
{
	const struct command_event *event = command_log_first(&command->log);

	LIST_FOR_EACH (entry, &command->readers) {
		struct command_reader *reader = LIST_ENTRY(entry, struct command_reader, link);

		if (reader->next != event)
			continue;
		reader->next = command_log_next(&command->log, event);
		reader->lost = true;
	}
	command_log_drop_first(&command->log);
}

/* What is kept of all sessions of its owner. The operator is no one's rival. */
static size_t bytes_of_owner(const struct session *session)
{
	const struct tenant *owner = session->place[QUOTA_SCOPE_OWNER].tenant;
	size_t bytes = 0;

	if (!owner)
		return 0;
	LIST_FOR_EACH (link, &owner->sessions)
		bytes += live_of(LIST_ENTRY(link, struct tenant_place, link)->session)
				 ->command_bytes;
	return bytes;
}

static bool is_over(const struct command *command)
{
	const struct live *live = command->live;
	size_t all = live->app->command_bytes;
	size_t bytes = command->log.bytes;

	if (bytes > COMMAND_KEPT_MAX_BYTES)
		return true;
	if (bytes <= COMMAND_KEPT_FLOOR_BYTES)
		return false;
	if (live->command_bytes > COMMAND_SESSION_KEPT_MAX_BYTES)
		return true;
	return share_is_scarce(all, COMMAND_ALL_KEPT_MAX_BYTES) &&
	       share_exceeds(bytes_of_owner(live->session), all, COMMAND_ALL_KEPT_MAX_BYTES);
}

/* The end stays, and what the pacer has not taken. */
static void trim(struct command *command)
{
	const struct command_reader *pacer = command->pacer;

	count(command);
	while (command->live && !command->holds && is_over(command)) {
		const struct command_event *first = command_log_first(&command->log);

		if (!command_log_next(&command->log, first) || (pacer && pacer->next == first))
			break;
		drop_first(command);
		count(command);
	}
}

/* A first reader has what was held for it: from now on nobody waits for it. */
static void caught_up(struct command *command)
{
	if (!command->catches_up)
		return;
	command->catches_up = false;
	command->pacer = NULL;
	settle_held(command);
}

void command_read(struct command *command, struct command_reader *reader, uint64_t after,
		  bool pacing)
{
	bool is_first;

	reader->command = command;
	reader->after = after;
	reader->next = command_log_after(&command->log, after);
	reader->lost = after < command->log.dropped;
	list_append(&command->readers, &reader->link);
	is_first = command->holds && command->state != COMMAND_STATE_ENDED;
	command->holds = false;
	if (!pacing && !is_first)
		return;
	command->pacer = reader;
	command->catches_up = !pacing;
	command->unread_bytes = 0;
	for (const struct command_event *event = reader->next; event;
	     event = command_log_next(&command->log, event))
		command->unread_bytes += command_event_cost(event);
	if (!reader->next)
		caught_up(command);
}

const struct command_event *command_take(struct command_reader *reader)
{
	struct command *command = reader->command;
	struct command_event *event = reader->next;

	if (!command || !event)
		return NULL;
	/* What nobody asks for again goes when it was taken. */
	while (command->pacer == reader && !command->keeps &&
	       command->readers.next == command->readers.prev &&
	       command_log_first(&command->log) != event)
		command_log_drop_first(&command->log);
	reader->after = event->seq;
	reader->next = command_log_next(&command->log, event);
	if (command->pacer == reader) {
		command->unread_bytes -= command_event_cost(event);
		if (command->unread_bytes <= LOW_BYTES && command->state != COMMAND_STATE_ENDED)
			settle_held(command);
		if (!reader->next)
			caught_up(command);
	}
	if (command->live)
		count(command);
	return event;
}

bool command_read_all(const struct command_reader *reader)
{
	return !reader->command || (reader->command->state == COMMAND_STATE_ENDED && !reader->next);
}

void command_read_end(struct command_reader *reader)
{
	struct command *command = reader->command;
	bool ended;

	if (!command)
		return;
	ended = command->state == COMMAND_STATE_ENDED;
	list_remove(&reader->link);
	reader->command = NULL;
	if (command->pacer == reader) {
		command->pacer = NULL;
		command->catches_up = false;
		if (!ended)
			settle_held(command);
		if (!ended && !command->keeps)
			command_cancel(command);
	}
	if (ended && !command->keeps && !command->ending && command->live &&
	    list_empty(&command->readers))
		forget(command);
	else
		maybe_free(command);
}

void command_cancel(struct command *command)
{
	if (command->state != COMMAND_STATE_ENDED && command->activity.live->shim)
		shim_link_cancel(command->activity.live->shim, command->wire_job);
}

/* What the shim says. */

static void on_started(struct activity *activity, int32_t pid)
{
	struct command *command = LIST_ENTRY(activity, struct command, activity);

	command->pid = pid;
	command->state = COMMAND_STATE_RUNNING;
	command->started = clock_boottime();
	if (command->began > 0)
		histogram_add(&activity->live->app->metrics.exec[METRICS_EXEC_SPAWN],
			      command->started - command->began);
	command_tell_waiters(command);
	wake_readers(command);
}

static void show(struct command *command, struct command_event *event)
{
	LIST_FOR_EACH (entry, &command->readers) {
		struct command_reader *reader = LIST_ENTRY(entry, struct command_reader, link);

		/* After an adoption a position may lie ahead of what is told again. */
		if (!reader->next && event->seq > reader->after)
			reader->next = event;
	}
	if (is_paced(command))
		command->unread_bytes += command_event_cost(event);
}

static void on_output(struct activity *activity, uint64_t number, bool is_stderr,
		      const uint8_t *data, size_t size)
{
	struct command *command = LIST_ENTRY(activity, struct command, activity);
	struct command_event *event;

	if (command_log_output(&command->log, number, is_stderr, data, size, &event) < 0) {
		/* No memory: this command cannot be shown further. */
		live_settle(activity->live, number);
		command_cancel(command);
		return;
	}
	if (event)
		show(command, event);
	if (!is_paced(command) || command->unread_bytes < HIGH_BYTES ||
	    buf_append(&command->held, &number, sizeof(number)) < 0)
		live_settle(activity->live, number);
	trim(command);
	wake_readers(command);
}

static int log_end(struct command *command, const struct activity_result *result)
{
	const char *code;

	switch (result->end) {
	case ACTIVITY_EXITED:
		return command_log_end(&command->log, result->number, COMMAND_EVENT_EXIT,
				       result->exit_info, sizeof(*result->exit_info));
	case ACTIVITY_FAILED:
		return command_log_end(&command->log, result->number, COMMAND_EVENT_FAILED,
				       result->failed, sizeof(*result->failed));
	case ACTIVITY_LOST:
	case ACTIVITY_PUT_DONE:
	case ACTIVITY_END_MAX_:
		break;
	}
	code = session_reason_code(command->activity.live->session->reason);
	return command_log_end(&command->log, 0, COMMAND_EVENT_LOST, code, strlen(code) + 1);
}

/* What the end added, for the readers. */
static void show_end(struct command *command, uint64_t seq)
{
	struct command_event *event = command_log_after(&command->log, seq);

	for (; event; event = command_log_next(&command->log, event))
		show(command, event);
}

static void on_ended(struct activity *activity, const struct activity_result *result)
{
	struct command *command = LIST_ENTRY(activity, struct command, activity);
	struct live *live = activity->live;
	uint64_t seq = command->log.seq;

	settle_held(command);
	live_settle(live, result->number);
	if (command->started > 0)
		histogram_add(&live->app->metrics.exec[METRICS_EXEC_RUN],
			      clock_boottime() - command->started);
	command->state = COMMAND_STATE_ENDED;
	command->ended_at = clock_realtime();
	command->stdin_open = false;
	/* Without memory a reader finds the end of the log and no end of the command: a cut. */
	if (log_end(command, result) >= 0)
		show_end(command, seq);
	trim(command);
	command->ending = true;
	command_tell_waiters(command);
	wake_readers(command);
	command->ending = false;
	if (!command->keeps && command->live && list_empty(&command->readers))
		forget(command);
	else
		maybe_free(command);
	evict(live);
	tasks_next(live->app, live->session);
}

static void on_taken(struct activity *activity, const struct wire_taken *taken)
{
	struct command *command = LIST_ENTRY(activity, struct command, activity);

	/* A shim that says more than there was says nothing worse than that there is room. */
	command->stdin_taken =
		taken->taken < command->stdin_sent ? taken->taken : command->stdin_sent;
	command->stdin_closed = taken->is_closed != 0;
	wake_readers(command);
}

static const struct activity_ops command_ops = {
	.started = on_started,
	.output = on_output,
	.taken = on_taken,
	.ended = on_ended,
};

/* Begin. */

/* The words between spaces, cut between characters. */
static void describe(struct command *command, const struct spec_command *spec)
{
	size_t at = 0;
	size_t max = sizeof(command->text) - 1;

	for (size_t i = 0; i < spec->n_argv && at < max; i++) {
		size_t n = strnlen(spec->argv[i], max - at);

		if (i > 0)
			command->text[at++] = ' ';
		if (n > max - at)
			n = max - at;
		memcpy(command->text + at, spec->argv[i], n);
		at += n;
	}
	at -= str_utf8_partial(command->text, at);
	command->text[at] = '\0';
}

static struct command_note note_of(const struct command *command)
{
	struct command_note note = {
		.created_at = command->created_at,
		.size = command->size,
		.is_background = command->background,
	};

	memcpy(note.id, command->id.bytes, ID_BYTES);
	memcpy(note.text, command->text, sizeof(note.text));
	return note;
}

static struct wire_exec head_of(const struct live *live, const struct spec_command *spec,
				bool keeps)
{
	const struct policy_limits *limits = session_limits(live);
	uint64_t output_max = limits->output_max_bytes;
	uint32_t timeout_ms = spec->timeout_ms;

	/* One in the background is over when its session is. */
	if (timeout_ms == 0 && !spec->background)
		timeout_ms = limits->command_timeout_s * 1000;
	if (spec->max_output > 0 && (output_max == 0 || spec->max_output < output_max))
		output_max = spec->max_output;
	return (struct wire_exec){
		.program = spec->program,
		.flags = (spec->is_root ? WIRE_EXEC_ROOT : 0u) | (keeps ? WIRE_EXEC_KEEP : 0u) |
			 (spec->size.rows ? WIRE_EXEC_PTY : 0u),
		.timeout_ms = timeout_ms,
		.grace_ms = COMMAND_GRACE_MS,
		.output_rate_bytes = limits->output_rate_bytes,
		.output_max_bytes = output_max,
		.size = spec->size,
	};
}

/* What a template's root may write to, a program with a credential is running from. */
static bool must_wait(const struct live *live, const struct spec_command *spec)
{
	if (!spec->is_root || spec->program != WIRE_PROGRAM_ARGV ||
	    live->session->spec.runtime.template[0] == '\0')
		return false;
	LIST_FOR_EACH (entry, &live->commands) {
		const struct command *command = LIST_ENTRY(entry, struct command, link);

		if (command->has_credential && command->state != COMMAND_STATE_ENDED)
			return true;
	}
	return false;
}

int command_begin(struct live *live, const struct spec_command *spec,
		  const struct environment *environment, usec_t began, struct command **ret_command)
{
	struct command *command;
	bool has_terminal = spec->size.rows > 0;
	struct command_note note;
	struct shim_link_command link = {
		.cwd = spec->cwd ? spec->cwd : "/session",
		.argv = (const char *const *)spec->argv,
		.env = (const char *const *)environment->entry,
		.stdin_data = spec->stdin_text,
		.stdin_bytes = spec->stdin_length,
		.stdin_open = spec->stdin_open || has_terminal,
		.note = &note,
		.note_bytes = sizeof(note),
	};
	int r;

	if (must_wait(live, spec))
		return -EAGAIN;
	command = command_new(live);
	r = command ? id_random(&command->id) : -ENOMEM;
	if (r >= 0) {
		command->has_credential = spec->has_credential;
		command->background = spec->background;
		command->holds = spec->background && spec->hold_output;
		command->keeps = spec->background || spec->on_disconnect_keep;
		command->size = spec->size;
		command->created_at = clock_realtime();
		command->began = began;
		command->stdin_open = link.stdin_open;
		command->stdin_sent = spec->stdin_length;
		describe(command, spec);
		note = note_of(command);
		link.head = head_of(live, spec, command->keeps);
		r = live->shim ? shim_link_exec(live->shim, &link, &command->wire_job) : -EPIPE;
	}
	if (r < 0) {
		free(command);
		return r;
	}
	live->app->counters.n_commands++;
	list_append(&live->commands, &command->link);
	live_add(live, &command->activity, &command_ops, command->wire_job);
	live_name(live, command->wire_job, spec->argv[0]);
	*ret_command = command;
	return 0;
}

int commands_adopt(struct live *live, uint32_t wire_job, const struct wire_kept *kept,
		   const uint8_t *note_data, size_t note_bytes)
{
	struct command *command;
	struct command_note note;
	struct id id;

	if (note_bytes != sizeof(note))
		return -EPROTO;
	memcpy(&note, note_data, sizeof(note));
	memcpy(id.bytes, note.id, ID_BYTES);
	if (note.text[sizeof(note.text) - 1] != '\0' ||
	    !str_utf8_valid(note.text, strlen(note.text)) || command_find(live, &id))
		return -EPROTO;
	command = command_new(live);
	if (!command)
		return -ENOMEM;
	command->id = id;
	command->keeps = true;
	command->background = note.is_background != 0;
	command->size = note.size;
	command->created_at = note.created_at;
	memcpy(command->text, note.text, sizeof(note.text));
	command->wire_job = wire_job;
	command->pid = kept->pid;
	command->state = kept->pid > 0 ? COMMAND_STATE_RUNNING : COMMAND_STATE_STARTING;
	command->stdin_open = (kept->flags & WIRE_KEPT_STDIN) != 0;
	command->stdin_sent = kept->stdin_sent;
	command->stdin_taken = kept->stdin_taken;
	command_log_dropped(&command->log, kept->dropped);
	list_append(&live->commands, &command->link);
	live_add(live, &command->activity, &command_ops, wire_job);
	command->activity.pid = kept->pid;
	return 0;
}
