#include "supervisor/api/command_reply.h"

#include <errno.h>
#include <string.h>

#include "base/json.h"
#include "base/str.h"

#include "supervisor/api/http/reply.h"

#define ANSWER_MAX_BYTES ((size_t)64 * 1024 * 1024)

/* An event as an object without its type and number. */
static json_t *event_object(const struct command_event *event)
{
	struct buf text = BUF_NULL(4096);
	const char *reason;
	json_t *doc = NULL;

	if (command_event_format(&text, event) < 0 ||
	    doc_parse((const char *)text.data, text.size, &doc, &reason) < 0)
		doc = NULL;
	buf_done(&text);
	(void)json_object_del(doc, "type");
	(void)json_object_del(doc, "seq");
	return doc;
}

static json_t *size_object(const struct wire_size *size)
{
	return size->rows ? json_pack("{s:i, s:i}", "rows", size->rows, "cols", size->cols)
			  : json_null();
}

static json_t *time_text(usec_t time)
{
	char text[CLOCK_ISO_BYTES];

	if (time == 0)
		return json_null();
	clock_format_iso(time, text);
	return json_string(text);
}

json_t *command_describe(const struct command *command)
{
	const struct command_event *end = command_end_event(command);
	const char *kind = end && end->kind == COMMAND_EVENT_EXIT ? "exit" : "error";
	char id[ID_TEXT_BYTES];
	json_t *doc;

	id_format(&command->id, id);
	doc = json_pack("{s:s, s:s, s:o?, s:s, s:b, s:b, s:o?, s:o?, s:o?, s:I, s:I, s:b}",
			"command_id", id, "status", command_status(command), "pid",
			command->pid ? json_integer(command->pid) : json_null(), "cmd",
			command->text, "background", command->background, "stdin_open",
			command->stdin_open && !command->stdin_closed, "pty",
			size_object(&command->size), "created_at", time_text(command->created_at),
			"ended_at", time_text(command->ended_at), "seq",
			(json_int_t)command->log.seq, "kept_bytes", (json_int_t)command->log.bytes,
			"output_dropped", command->log.dropped > 0);
	if (doc && end)
		(void)json_object_set_new(doc, kind, event_object(end));
	return doc;
}

void reply_command_begun(struct request *request, struct command *command)
{
	const struct command_event *end = command_end_event(command);
	json_t *error = NULL;

	if (!end || end->kind == COMMAND_EVENT_EXIT) {
		reply_json(request, MHD_HTTP_CREATED, command_describe(command));
		return;
	}
	error = event_object(end);
	reply_json(request,
		   runtime_error_row(end->kind == COMMAND_EVENT_FAILED ? RUNTIME_COMMAND_FAILED
								       : RUNTIME_NOT_RUNNING)
			   ->status,
		   error);
}

static int append_stream(struct buf *out, const struct buf *bytes, const char *name)
{
	int r = buf_printf(out, ",\"%s\":", name);

	if (r >= 0)
		r = command_text_format(out, bytes->size ? bytes->data : (const uint8_t *)"",
					bytes->size);
	if (r != 0)
		return r < 0 ? r : 0;
	r = buf_printf(out, "null,\"%s_base64\":", name);
	return r < 0 ? r : command_base64_format(out, bytes->data, bytes->size);
}

void reply_command_output(struct request *request, struct command *command,
			  const struct buf output[2])
{
	const struct command_event *end = command_end_event(command);
	struct buf out = BUF_NULL(ANSWER_MAX_BYTES);
	struct wire_exit exit_info;
	char id[ID_TEXT_BYTES];
	const char *text;
	int r;

	if (!end || end->kind != COMMAND_EVENT_EXIT) {
		reply_command_begun(request, command);
		return;
	}
	memcpy(&exit_info, end->data, sizeof(exit_info));
	id_format(&command->id, id);
	r = buf_printf(&out, "{\"command_id\":\"%s\",\"pid\":%d,", id, command->pid);
	if (r >= 0)
		r = command_exit_format(&out, &exit_info);
	if (r >= 0)
		r = append_stream(&out, &output[0], "stdout");
	if (r >= 0)
		r = append_stream(&out, &output[1], "stderr");
	if (r >= 0)
		r = buf_append_str(&out, "}");
	text = r >= 0 ? buf_text(&out) : NULL;
	if (text)
		reply_text(request, MHD_HTTP_OK, "application/json", text);
	else
		reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
	buf_done(&out);
}
