/*
 * Answers that wait for a command: for its end, or that it started. The client's own time is bound
 * by a timer; a client that leaves takes its wait with it.
 */
#include <errno.h>
#include <string.h>

#include "supervisor/api/command_output.h"
#include "supervisor/api/command_reply.h"
#include "supervisor/api/http/reply.h"

struct command_waiter {
	struct list link; /* command->waiters */
	struct command *command;
	struct answer_to to;
	sd_event_source *timer;
	enum command_wait_for what;
	struct command_reader reader; /* COMMAND_WAIT_OUTPUT */
	struct command_output output;
};

static void waiter_free(struct command_waiter *waiter)
{
	waiter->timer = sd_event_source_disable_unref(waiter->timer);
	list_remove(&waiter->link);
	command_read_end(&waiter->reader);
	command_output_done(&waiter->output);
	free(waiter);
}

static void answer(struct command_waiter *waiter)
{
	struct request *request = answer_get(&waiter->to);
	struct command *command = waiter->command;

	if (!request)
		return;
	if (waiter->what == COMMAND_WAIT_OUTPUT)
		command_output_take(&waiter->output, &waiter->reader);
	if (waiter->output.broken)
		reply_runtime_error(request, RUNTIME_BUSY, waiter->output.broken);
	else if (waiter->what == COMMAND_WAIT_OUTPUT)
		reply_command_output(request, command, waiter->output.text);
	else if (waiter->what == COMMAND_WAIT_START)
		reply_command_begun(request, command);
	else
		reply_json(request, MHD_HTTP_OK, command_describe(command));
}

static bool is_met(const struct command_waiter *waiter)
{
	if (waiter->command->state == COMMAND_STATE_ENDED)
		return true;
	return waiter->what == COMMAND_WAIT_START &&
	       waiter->command->state == COMMAND_STATE_RUNNING;
}

void command_tell_waiters(struct command *command)
{
	LIST_FOR_EACH_SAFE (entry, following, &command->waiters) {
		struct command_waiter *waiter = LIST_ENTRY(entry, struct command_waiter, link);

		if (!is_met(waiter))
			continue;
		answer(waiter);
		waiter_free(waiter);
	}
}

static bool may_ask_again(const struct command_waiter *waiter)
{
	return waiter->what == COMMAND_WAIT_END ||
	       (waiter->what == COMMAND_WAIT_OUTPUT && waiter->command->keeps);
}

static void refuse(struct command_waiter *waiter, enum runtime_error error)
{
	struct request *request = answer_get(&waiter->to);
	char id[ID_TEXT_BYTES];

	if (!request)
		return;
	id_format(&waiter->command->id, id);
	reply_runtime_error_with(request, error, NULL, json_pack("{s:s}", "command_id", id));
}

void command_refuse_waiters(struct command *command, enum runtime_error error)
{
	LIST_FOR_EACH_SAFE (entry, following, &command->waiters) {
		struct command_waiter *waiter = LIST_ENTRY(entry, struct command_waiter, link);

		refuse(waiter, error);
		waiter_free(waiter);
	}
}

void commands_tell_suspended(struct live *live)
{
	LIST_FOR_EACH (link, &live->commands) {
		struct command *command = LIST_ENTRY(link, struct command, link);

		LIST_FOR_EACH_SAFE (entry, following, &command->waiters) {
			struct command_waiter *waiter =
				LIST_ENTRY(entry, struct command_waiter, link);

			if (!may_ask_again(waiter))
				continue;
			refuse(waiter, RUNTIME_SUSPENDED);
			waiter_free(waiter);
		}
	}
}

static int on_time(sd_event_source *source, uint64_t now, void *userdata)
{
	struct command_waiter *waiter = userdata;

	(void)source;
	(void)now;
	answer(waiter);
	waiter_free(waiter);
	return 0;
}

static void on_left(void *userdata)
{
	waiter_free(userdata);
}

static void on_wake(struct command_reader *reader)
{
	struct command_waiter *waiter = LIST_ENTRY(reader, struct command_waiter, reader);

	command_output_take(&waiter->output, reader);
}

int command_wait(struct request *request, struct command *command, enum command_wait_for what,
		 usec_t timeout)
{
	struct command_waiter *waiter = calloc(1, sizeof(*waiter));
	int r = 0;

	if (!waiter)
		return -ENOMEM;
	waiter->command = command;
	waiter->to = answer_to(request);
	waiter->what = what;
	waiter->reader.wake = on_wake;
	command_output_init(&waiter->output, request_app(request), request->share,
			    COMMAND_ANSWER_MAX_BYTES);
	list_append(&command->waiters, &waiter->link);
	if (timeout != USEC_NEVER)
		r = sd_event_add_time(request_app(request)->event, &waiter->timer, CLOCK_BOOTTIME,
				      clock_add(clock_boottime(), timeout), USEC_PER_MS, on_time,
				      waiter);
	if (r < 0) {
		waiter_free(waiter);
		return r;
	}
	if (what == COMMAND_WAIT_OUTPUT)
		command_read(command, &waiter->reader, 0, true);
	request_on_left(request, on_left, waiter);
	if (is_met(waiter) || timeout == 0) {
		answer(waiter);
		waiter_free(waiter);
	}
	return 0;
}
