#include "supervisor/api/command_output.h"

void command_output_init(struct command_output *output, struct app *app, struct share *share,
			 size_t max_bytes)
{
	*output = (struct command_output){
		.app = app,
		.share = share_ref(share),
		.text = {BUF_NULL(max_bytes), BUF_NULL(max_bytes)},
	};
}

static void drop(struct command_output *output)
{
	buf_done(&output->text[0]);
	buf_done(&output->text[1]);
	share_give(output->share, SHARE_OUTPUT, &output->app->command_answer_bytes,
		   output->counted_bytes);
	output->counted_bytes = 0;
}

void command_output_done(struct command_output *output)
{
	drop(output);
	output->share = share_put(output->share);
}

static void give_up(struct command_output *output, const char *why, struct command *command)
{
	drop(output);
	output->broken = why;
	command_cancel(command);
}

static void keep(struct command_output *output, struct command *command,
		 const struct command_event *event)
{
	struct buf *text = &output->text[event->kind == COMMAND_EVENT_STDERR];

	if (!share_take(output->share, SHARE_OUTPUT, &output->app->command_answer_bytes,
			COMMAND_ALL_ANSWERS_MAX_BYTES, event->size)) {
		give_up(output, "too much is held for answers of commands: memory", command);
		return;
	}
	output->counted_bytes += event->size;
	if (buf_append(text, event->data, event->size) < 0)
		give_up(output, "out of memory", command);
}

void command_output_take(struct command_output *output, struct command_reader *reader)
{
	const struct command_event *event;

	while ((event = command_take(reader)))
		if (!output->broken &&
		    (event->kind == COMMAND_EVENT_STDOUT || event->kind == COMMAND_EVENT_STDERR))
			keep(output, reader->command, event);
}
