#include "supervisor/api/command_attach.h"

#include <errno.h>
#include <string.h>

#include "base/json.h"
#include "base/str.h"

#include "supervisor/api/http/payload.h"
#include "supervisor/api/http/websocket.h"

struct attachment {
	struct command_reader reader;
	struct answer_to to;
	struct spec_options options;
	bool start_shown;
	bool stands_still; /* as it was shown */
	bool ended;
	bool kills;
};

static void on_wake(struct command_reader *reader)
{
	struct attachment *attachment = LIST_ENTRY(reader, struct attachment, reader);
	struct request *request = answer_get(&attachment->to);

	if (request)
		request_wake(request);
}

static int show_start(struct attachment *attachment, struct buf *out)
{
	char id[ID_TEXT_BYTES];
	int r;

	attachment->start_shown = true;
	id_format(&attachment->reader.command->id, id);
	r = buf_printf(out, "{\"type\":\"start\",\"pid\":%d,\"command_id\":\"%s\"}",
		       attachment->reader.command->pid, id);
	return r < 0 ? r : 1;
}

static int show_lost(struct attachment *attachment, struct buf *out)
{
	int r;

	attachment->reader.lost = false;
	r = buf_append_str(out, "{\"type\":\"dropped\",\"detail\":\"older output was not kept\"}");
	return r < 0 ? r : 1;
}

static int show_standing(struct attachment *attachment, struct buf *out)
{
	int r;

	attachment->stands_still = !attachment->stands_still;
	r = buf_printf(out, "{\"type\":\"%s\"}",
		       attachment->stands_still ? "suspended" : "resumed");
	return r < 0 ? r : 1;
}

static int attach_next(void *userdata, struct buf *out, bool *ret_binary)
{
	struct attachment *attachment = userdata;
	const struct command *command = attachment->reader.command;
	const struct command_event *event;
	bool stands_still;
	int r;

	*ret_binary = false;
	if (!command || attachment->ended)
		return -ENODATA;
	stands_still = command_stands_still(command);
	if (!attachment->start_shown && command->pid != 0)
		return show_start(attachment, out);
	if (attachment->stands_still && !stands_still)
		return show_standing(attachment, out);
	if (attachment->reader.lost)
		return show_lost(attachment, out);
	event = command_take(&attachment->reader);
	if (!event && stands_still && !attachment->stands_still)
		return show_standing(attachment, out);
	if (!event && command_is_cut(&attachment->reader))
		return -EPIPE;
	if (!event)
		return command_read_all(&attachment->reader) ? -ENODATA : 0;
	if (event->kind == COMMAND_EVENT_STDOUT) {
		*ret_binary = true;
		r = buf_append(out, event->data, event->size);
	} else {
		attachment->ended = event->kind >= COMMAND_EVENT_EXIT;
		r = command_event_format(out, event);
	}
	return r < 0 ? r : 1;
}

static bool attach_may_take(void *userdata)
{
	const struct attachment *attachment = userdata;
	const struct command *command = attachment->reader.command;

	return !command || command->stdin_closed || command->state == COMMAND_STATE_ENDED ||
	       command_stdin_room(command) >= WEBSOCKET_TURN_MAX_BYTES;
}

static int take_resize(struct attachment *attachment, const char *text, size_t size)
{
	struct wire_size window;
	json_t *errors = NULL;
	int r = spec_parse_size(text, size, &attachment->options, &window, &errors);

	json_decref(errors);
	if (r != 0)
		return -EBADMSG;
	r = command_resize(attachment->reader.command, &window);
	return r == -ENOMEM ? r : 0;
}

static int take_signal(struct attachment *attachment, const char *text, size_t size)
{
	struct wire_signal signal;
	json_t *errors = NULL;
	int r = spec_parse_signal(text, size, &attachment->options, &signal, &errors);

	json_decref(errors);
	if (r != 0)
		return -EBADMSG;
	r = command_signal(attachment->reader.command, &signal);
	return r == -ENOMEM ? r : 0;
}

static int take_control(struct attachment *attachment, const char *text, size_t size)
{
	const char *reason;
	const char *type;
	json_t *doc;
	int r = -EBADMSG;

	if (doc_parse(text, size, &doc, &reason) < 0)
		return -EBADMSG;
	type = json_string_value(json_object_get(doc, "type"));
	if (type && str_equal(type, "eof")) {
		r = command_stdin_end(attachment->reader.command);
		r = r == -ENOMEM ? r : 0;
	} else if (type && str_equal(type, "resize")) {
		r = take_resize(attachment, text, size);
	} else if (type && str_equal(type, "signal")) {
		r = take_signal(attachment, text, size);
	}
	json_decref(doc);
	return r;
}

static int attach_message(void *userdata, bool is_binary, const uint8_t *data, size_t size)
{
	struct attachment *attachment = userdata;
	struct command *command = attachment->reader.command;
	int r;

	/* What crosses the command's end, or comes to one that reads nothing, is dropped. */
	if (!command || command->state == COMMAND_STATE_ENDED)
		return 0;
	if (!is_binary)
		return take_control(attachment, (const char *)data, size);
	r = size > 0 ? command_stdin(command, data, size) : 0;
	return r == -EPIPE ? 0 : r;
}

static void attach_closed(void *userdata)
{
	struct attachment *attachment = userdata;

	if (attachment->kills && attachment->reader.command)
		command_cancel(attachment->reader.command);
	command_read_end(&attachment->reader);
	free(attachment);
}

static const struct request_stream attach_ops = {
	.closed = attach_closed,
	.next = attach_next,
	.message = attach_message,
	.may_take = attach_may_take,
};

int command_attach(struct request *request, struct command *command, uint64_t after, bool kills)
{
	struct attachment *attachment = calloc(1, sizeof(*attachment));

	if (!attachment)
		return -ENOMEM;
	attachment->reader.wake = on_wake;
	attachment->to = answer_to(request);
	attachment->options = payload_options(request);
	attachment->options.ignore_unknown_fields = true; /* `type` */
	attachment->kills = kills;
	attachment->start_shown = after > 0;
	command_read(command, &attachment->reader, after, kills && !command->pacer);
	request_start_stream(request, "", &attach_ops, attachment);
	return 0;
}
