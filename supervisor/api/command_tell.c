/* What is told to a command that runs: input, signals, the size of its terminal. */
#include <errno.h>

#include "supervisor/api/command.h"

size_t command_stdin_room(const struct command *command)
{
	uint64_t waits = command->stdin_sent - command->stdin_taken;

	return waits < COMMAND_STDIN_WINDOW_BYTES ? COMMAND_STDIN_WINDOW_BYTES - (size_t)waits : 0;
}

int command_stdin(struct command *command, const void *data, size_t size)
{
	int r;

	if (command->state == COMMAND_STATE_ENDED || !command->stdin_open || command->stdin_closed)
		return -EPIPE;
	if (size > command_stdin_room(command))
		return -EAGAIN;
	r = shim_link_stdin(command->activity.live->shim, command->wire_job, data, size);
	if (r >= 0)
		command->stdin_sent += size;
	return r;
}

int command_stdin_end(struct command *command)
{
	int r;

	if (command->state == COMMAND_STATE_ENDED || !command->stdin_open)
		return -EPIPE;
	r = shim_link_stdin_end(command->activity.live->shim, command->wire_job);
	if (r >= 0 && command->size.rows == 0)
		command->stdin_open = false;
	return r;
}

int command_signal(struct command *command, const struct wire_signal *signal)
{
	if (command->state == COMMAND_STATE_ENDED)
		return -ESRCH;
	return shim_link_signal(command->activity.live->shim, command->wire_job, signal);
}

int command_resize(struct command *command, const struct wire_size *size)
{
	int r;

	if (command->state == COMMAND_STATE_ENDED)
		return -ESRCH;
	if (command->size.rows == 0)
		return -ENOTTY;
	r = shim_link_resize(command->activity.live->shim, command->wire_job, size);
	if (r >= 0)
		command->size = *size;
	return r;
}
