/*
 * Results, and tasks for others: what we write.
 */
#include <errno.h>
#include <string.h>

#include "base/json.h"
#include "base/str.h"

#include "supervisor/api/celery/message.h"

#define OUR_MODULE "sandboxd"

static const char *const state_texts[CELERY_STATE_MAX_] = {
	[CELERY_STATE_SUCCESS] = "SUCCESS",
	[CELERY_STATE_FAILURE] = "FAILURE",
	[CELERY_STATE_REVOKED] = "REVOKED",
};

const char *celery_state_text(enum celery_state state)
{
	return state_texts[state];
}

/* A failure must be this object: clients die of a plain text. */
static json_t *value_of(const struct celery_result *result)
{
	if (result->state == CELERY_STATE_SUCCESS)
		return result->value ? json_incref(result->value) : json_null();
	return json_pack("{s:s, s:[s], s:s}", "exc_type", result->type, "exc_message", result->text,
			 "exc_module", result->module);
}

char *celery_result_format(const struct id *task, const struct celery_result *result, usec_t now)
{
	char date[CLOCK_ISO_BYTES + 8];
	char id[ID_TEXT_BYTES];
	json_t *object;
	char *text;

	id_format(task, id);
	clock_format_iso(now, date);
	memcpy(date + strlen(date), "+00:00", sizeof("+00:00"));
	object = json_pack("{s:s, s:o, s:n, s:[], s:s, s:s}", "status", state_texts[result->state],
			   "result", value_of(result), "traceback", "children", "date_done", date,
			   "task_id", id);
	text = object ? doc_format(object, 1) : NULL;
	json_decref(object);
	return text;
}

int celery_result_of_frame(const char *text, size_t size, bool is_revoked, json_t **ret_frame,
			   struct celery_result *ret)
{
	const char *reason;
	const char *stage;
	const char *message;
	json_t *frame = NULL;

	if (doc_parse(text, size, &frame, &reason) < 0)
		return -EBADMSG;
	stage = json_string_value(json_object_get(frame, "stage"));
	message = json_string_value(json_object_get(frame, "message"));
	if (!stage || !message) {
		json_decref(frame);
		return -EBADMSG;
	}
	*ret_frame = frame;
	if (str_equal(stage, "done"))
		*ret = (struct celery_result){.state = CELERY_STATE_SUCCESS,
					      .value = json_object_get(frame, "result")};
	else if (is_revoked)
		*ret = (struct celery_result){.state = CELERY_STATE_REVOKED,
					      .type = "TaskRevokedError",
					      .text = "terminated",
					      .module = CELERY_EXCEPTIONS};
	else
		*ret = (struct celery_result){.state = CELERY_STATE_FAILURE,
					      .type = "SandboxTaskError",
					      .text = message,
					      .module = OUR_MODULE};
	return 0;
}

/* Tasks for a worker. */

static json_t *call_headers(const struct celery_call *call, const char *id, const char *session)
{
	char args[ID_TEXT_BYTES + 8];

	IGNORE_RESULT(str_format(args, sizeof(args), "('%s',)", session));
	return json_pack("{s:s, s:s, s:s, s:n, s:n, s:n, s:n, s:n, s:i, s:[nn], s:s, s:n, s:s, s:s,"
			 " s:s, s:b, s:i, s:n, s:{}}",
			 "lang", "py", "task", call->task, "id", id, "shadow", "eta", "expires",
			 "group", "group_index", "retries", 0, "timelimit", "root_id", id,
			 "parent_id", "argsrepr", args, "kwargsrepr", "{}", "origin", OUR_MODULE,
			 "ignore_result", 0, "replaced_task_nesting", 0, "stamped_headers",
			 "stamps");
}

static json_t *properties_of(const char *correlation, const char *reply_to, const char *key,
			     const struct id *tag)
{
	char tag_text[ID_TEXT_BYTES];

	id_format(tag, tag_text);
	return json_pack("{s:s*, s:s*, s:i, s:{s:s, s:s}, s:i, s:s, s:s}", "correlation_id",
			 correlation, "reply_to", reply_to, "delivery_mode", 2, "delivery_info",
			 "exchange", "", "routing_key", key, "priority", 0, "body_encoding",
			 "base64", "delivery_tag", tag_text);
}

/* Steals all three. */
static char *format_envelope(json_t *body, json_t *headers, json_t *properties)
{
	AUTO_FREE char *plain = body ? doc_format(body, 1) : NULL;
	AUTO_FREE char *base64 = NULL;
	json_t *envelope = NULL;
	char *text;

	json_decref(body);
	if (plain)
		base64 = malloc(str_base64_bytes(strlen(plain)));
	if (base64) {
		(void)str_base64(base64, plain, strlen(plain));
		envelope =
			json_pack("{s:s, s:s, s:s, s:O, s:O}", "body", base64, "content-encoding",
				  "utf-8", "content-type", "application/json", "headers", headers,
				  "properties", properties);
	}
	json_decref(headers);
	json_decref(properties);
	text = envelope ? doc_format(envelope, 1) : NULL;
	json_decref(envelope);
	return text;
}

char *celery_call_format(const struct celery_call *call)
{
	char id[ID_TEXT_BYTES];
	char session[ID_TEXT_BYTES];
	char reply_to[ID_TEXT_BYTES];
	json_t *body;

	id_format(call->id, id);
	id_format(call->session, session);
	id_format(call->reply_to, reply_to);
	body = json_pack("[[s], {}, {s:n, s:n, s:n, s:n}]", session, "callbacks", "errbacks",
			 "chain", "chord");
	return format_envelope(body, call_headers(call, id, session),
			       properties_of(id, reply_to, call->queue, call->tag));
}

char *celery_reply_format(const struct celery_control *control, const char *node, json_t *reply,
			  const struct id *tag)
{
	json_t *body = json_pack("{s:o}", node, reply);
	json_t *headers = json_pack("{s:s?, s:i}", "ticket", control->ticket, "clock", 1);

	return format_envelope(body, headers, properties_of(NULL, NULL, control->reply_key, tag));
}
