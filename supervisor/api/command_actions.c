/*
 * Commands: begin one, and everything that is asked about one or told to it.
 */
#include "supervisor/api/command_actions.h"

#include <errno.h>
#include <string.h>

#include "base/str.h"

#include "supervisor/api/command_attach.h"
#include "supervisor/api/command_reply.h"
#include "supervisor/api/command_stream.h"
#include "supervisor/api/components.h"
#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/reply.h"
#include "supervisor/api/idle.h"
#include "supervisor/api/loader_run.h"
#include "supervisor/api/provider.h"
#include "supervisor/api/rebuild.h"
#include "supervisor/api/suspend.h"

#define NOTED_PROGRAM_MAX 256
#define START_TIMEOUT     (30 * USEC_PER_SEC)

bool command_may_be_root(struct request *request, const struct live *live,
			 const struct spec_command *spec)
{
	if (spec->is_root && !live->provider->can.root) {
		reply_runtime_error(request, RUNTIME_NOT_SUPPORTED, NULL);
		return false;
	}
	if (!spec->is_root || session_profile(live)->root == POLICY_ROOT_ALLOWED)
		return true;
	reply_invalid_body(request, "value_error", "user",
			   "Value error, the profile of this sandbox has no root commands");
	return false;
}

/* The program alone: arguments are values. */
static void note_program(struct request *request, const struct spec_command *spec)
{
	size_t length = strnlen(spec->argv[0], NOTED_PROGRAM_MAX);

	length -= str_utf8_partial(spec->argv[0], length);
	request_note(request, "program", json_stringn(spec->argv[0], length));
	if (spec->is_root)
		request_note(request, "run_as", json_string("root"));
}

static bool is_waited_for(const struct command_start *start, const struct spec_command *spec)
{
	return spec->background || start->form == COMMAND_FORM_ANSWER;
}

static int show_begun(struct request *request, struct command *command,
		      const struct command_start *start)
{
	const struct command_stream_options options = {
		.as_lines = start->form == COMMAND_FORM_LINES,
		.pacing = true,
	};

	if (command->background)
		return command_wait(request, command, COMMAND_WAIT_START, START_TIMEOUT);
	if (start->form == COMMAND_FORM_ANSWER)
		return command_wait(request, command, COMMAND_WAIT_OUTPUT, USEC_NEVER);
	return command_stream_start(request, command, &options);
}

static void begin(struct request *request, struct live *live, const struct spec_command *spec,
		  const struct command_start *start)
{
	struct environment environment = ENVIRONMENT_NULL;
	struct command *command = NULL;
	int r;

	r = session_environment(live, spec->env, spec->is_root, &environment);
	if (r >= 0)
		r = command_begin(live, spec, &environment, request->began, &command);
	environment_done(&environment);
	if (r < 0) {
		reply_link_error(request, live->session, r);
		return;
	}
	request_note_id(request, "command", &command->id);
	if (show_begun(request, command, start) < 0) {
		command_cancel(command);
		reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
	}
}

void action_command(struct request *request, struct session *session, struct spec_command *spec,
		    const struct command_start *start)
{
	struct live *live = live_of(session);

	note_program(request, spec);
	if (!command_may_be_root(request, live, spec) || !command_may_work(request, session))
		return;
	if (!is_waited_for(start, spec) && !request_may_stream(request))
		return;
	if (start->form == COMMAND_FORM_ANSWER && !spec->background) {
		if (spec->max_output == 0)
			spec->max_output = (uint32_t)COMMAND_ANSWER_BYTES;
		if (spec->max_output > COMMAND_ANSWER_MAX_BYTES)
			spec->max_output = (uint32_t)COMMAND_ANSWER_MAX_BYTES;
	}
	begin(request, live, spec, start);
}

/* What is there. */

/* One that was adopted has yet to say what it has, and frozen it cannot. False: it was answered, or
 * is done again when it has. */
static bool is_known(struct request *request, struct session *session)
{
	if (session->state != SESSION_STATE_REBUILDING || !live_of(session)->adopted)
		return true;
	if (session->suspension.state == SUSPENSION_SUSPENDED)
		reply_runtime_error(request, RUNTIME_SUSPENDED, NULL);
	else
		rebuild_wait(request, session);
	return false;
}

static struct command *find(struct request *request, struct session *session)
{
	struct live *live = live_of(session);
	struct command *command = NULL;
	struct id id;

	if (!is_known(request, session))
		return NULL;
	if (live && id_parse(request->path_cid, &id) >= 0)
		command = command_find(live, &id);
	if (!command)
		reply_runtime_error(request, RUNTIME_NO_COMMAND, NULL);
	return command;
}

void action_command_list(struct request *request, struct session *session)
{
	struct live *live = live_of(session);
	json_t *commands;

	if (!is_known(request, session))
		return;
	commands = json_array();
	if (live)
		LIST_FOR_EACH (entry, &live->commands)
			(void)json_array_append_new(
				commands,
				command_describe(LIST_ENTRY(entry, struct command, link)));
	reply_json(request, MHD_HTTP_OK, json_pack("{s:o?}", "commands", commands));
}

void action_command_get(struct request *request, struct session *session)
{
	const struct command *command = find(request, session);

	if (command)
		reply_json(request, MHD_HTTP_OK, command_describe(command));
}

/* Nothing is to be heard of it, or told to it, before it goes on. False: it was answered, or is
 * done again then. */
static bool goes_on(struct request *request, struct session *session, const struct command *command)
{
	if (command->state == COMMAND_STATE_ENDED ||
	    session->suspension.state == SUSPENSION_RUNNING)
		return true;
	if (suspend_may_wait(request, session))
		rebuild_wait(request, session);
	return false;
}

void action_command_wait(struct request *request, struct session *session, uint32_t timeout_ms)
{
	struct command *command = find(request, session);

	if (!command || !goes_on(request, session, command))
		return;
	idle_touch(live_of(session));
	if (command_wait(request, command, COMMAND_WAIT_END, timeout_ms * (usec_t)USEC_PER_MS) < 0)
		reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
}

void action_command_stream(struct request *request, struct session *session, bool as_lines,
			   uint64_t after)
{
	const struct command_stream_options options = {.as_lines = as_lines, .after = after};
	struct command *command = find(request, session);

	if (command && command_stream_start(request, command, &options) < 0)
		reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
}

void action_command_attach(struct request *request, struct session *session, uint64_t after,
			   bool kills)
{
	struct command *command = find(request, session);

	/* What is refused ends no command. */
	if (command && request_may_stream(request) &&
	    command_attach(request, command, after, kills) < 0)
		reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
}

/* What is told to it. */

static void reply_told(struct request *request, const struct command *command, int r)
{
	static const struct {
		int error;
		enum runtime_error reply;
	} rows[] = {
		{-ESRCH,   RUNTIME_NOT_RUNNING },
                {-EPIPE,   RUNTIME_STDIN_CLOSED},
		{-EAGAIN,  RUNTIME_STDIN_FULL  },
                {-ENOTTY,  RUNTIME_NO_TERMINAL },
		{-ENOBUFS, RUNTIME_BUSY        },
	};

	if (r >= 0) {
		reply_json(request, MHD_HTTP_OK, command_describe(command));
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		if (rows[i].error != r)
			continue;
		reply_runtime_error(request, rows[i].reply, NULL);
		return;
	}
	reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
}

/* Of one that has ended nothing else is worth saying. */
static struct command *find_running(struct request *request, struct session *session)
{
	struct command *command = find(request, session);

	if (!command || !goes_on(request, session, command))
		return NULL;
	idle_touch(live_of(session));
	if (command->state != COMMAND_STATE_ENDED)
		return command;
	reply_runtime_error(request, RUNTIME_NOT_RUNNING, NULL);
	return NULL;
}

void action_command_stdin(struct request *request, struct session *session, const void *data,
			  size_t size, bool eof)
{
	struct command *command = find_running(request, session);
	int r = 0;

	if (!command)
		return;
	request_note(request, "bytes", json_integer((json_int_t)size));
	if (size > 0)
		r = command_stdin(command, data, size);
	if (r >= 0 && eof)
		r = command_stdin_end(command);
	if (r < 0) {
		reply_told(request, command, r);
		return;
	}
	reply_json(request, MHD_HTTP_OK,
		   json_pack("{s:I, s:I, s:b}", "accepted_bytes", (json_int_t)size, "pending_bytes",
			     (json_int_t)(command->stdin_sent - command->stdin_taken), "stdin_open",
			     command->stdin_open && !command->stdin_closed));
}

void action_command_signal(struct request *request, struct session *session,
			   const struct wire_signal *signal)
{
	struct command *command = find_running(request, session);

	if (!command)
		return;
	request_note(request, "signal", json_integer(signal->number));
	reply_told(request, command, command_signal(command, signal));
}

void action_command_resize(struct request *request, struct session *session,
			   const struct wire_size *size)
{
	struct command *command = find_running(request, session);

	if (command)
		reply_told(request, command, command_resize(command, size));
}
