/*
 * Theory. A message is an envelope of JSON with a body that is JSON again, in base64 as a rule:
 *
 *   {"body": "...", "content-type": "application/json", "content-encoding": "utf-8",
 *    "headers": {"task", "id", "eta", "expires", ...},
 *    "properties": {"delivery_tag", "delivery_info": {"exchange", "routing_key"}, "priority",
 *                   "body_encoding": "base64"}}
 *
 * and the body [args, kwargs, {...}]. Of what is not understood only one thing matters: whether
 * there is an id whose owner can be told.
 */
#include "supervisor/api/celery/message.h"

#include <errno.h>
#include <string.h>

#include "base/json.h"
#include "base/str.h"

#define SEPARATOR    "\x06\x16"
#define BODY_BASE64  "base64"
#define CONTENT_TYPE "application/json"

/* Names. */

uint32_t celery_priority_step(uint32_t priority)
{
	return priority >= 9 ? 9 : priority / 3 * 3;
}

int celery_list_name(const char *queue, uint32_t step, char name[CELERY_NAME_BYTES])
{
	if (step == 0)
		return str_copy(name, CELERY_NAME_BYTES, queue);
	return str_format(name, CELERY_NAME_BYTES, "%s" SEPARATOR "%u", queue, step);
}

char *celery_binding(const char *routing_key, const char *queue)
{
	char *text = NULL;

	if (asprintf(&text, "%s" SEPARATOR SEPARATOR "%s", routing_key, queue) < 0)
		return NULL;
	return text;
}

const char *celery_binding_queue(const char *member, size_t size, const char *routing_key)
{
	size_t length = strlen(routing_key);
	const char *pattern;
	const char *queue;

	if (memchr(member, '\0', size) || length >= size ||
	    memcmp(member, routing_key, length) != 0 || !str_has_prefix(member + length, SEPARATOR))
		return NULL;
	pattern = member + length + strlen(SEPARATOR);
	queue = strstr(pattern, SEPARATOR);
	return queue ? queue + strlen(SEPARATOR) : NULL;
}

/* Reading. */

const char *celery_text(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);
	const char *text = json_string_value(value);

	return text && strlen(text) == json_string_length(value) ? text : NULL;
}

/* With a zone (+00:00, Z) or naive UTC. */
static int parse_time(const char *text, usec_t *ret_time)
{
	char naive[40];
	unsigned int hours = 0;
	unsigned int minutes = 0;
	size_t length = strlen(text);
	const char *zone = length > 10 ? strpbrk(text + 10, "Z+-") : NULL;
	usec_t offset;
	usec_t at;
	int r;

	r = str_copy_n(naive, sizeof(naive), text, zone ? (size_t)(zone - text) : length);
	if (r >= 0)
		r = clock_parse_iso(naive, &at);
	if (r < 0)
		return r;
	if (zone && *zone != 'Z') {
		if (strlen(zone) != 6 || zone[3] != ':' || strspn(zone + 1, "0123456789") != 2 ||
		    strspn(zone + 4, "0123456789") != 2)
			return -EINVAL;
		hours = (unsigned int)(zone[1] - '0') * 10 + (unsigned int)(zone[2] - '0');
		minutes = (unsigned int)(zone[4] - '0') * 10 + (unsigned int)(zone[5] - '0');
	} else if (zone && zone[1] != '\0') {
		return -EINVAL;
	}
	offset = (hours * 60ull + minutes) * USEC_PER_MINUTE;
	if (zone && *zone == '-')
		*ret_time = clock_add(at, offset);
	else
		*ret_time = at > offset ? at - offset : 0;
	return 0;
}

/* eta or expires: null and absent are 0. */
static bool take_time(const json_t *headers, const char *key, usec_t *ret_time)
{
	const json_t *value = json_object_get(headers, key);

	if (!value || json_is_null(value))
		return true;
	return celery_text(headers, key) && parse_time(celery_text(headers, key), ret_time) >= 0;
}

int celery_body_parse(const json_t *envelope, json_t **ret_body)
{
	const json_t *body = json_object_get(envelope, "body");
	const char *encoding =
		celery_text(json_object_get(envelope, "properties"), "body_encoding");
	size_t size = json_string_length(body);
	AUTO_FREE char *text = NULL;
	const char *reason;

	if (!json_is_string(body))
		return -EBADMSG;
	text = malloc(size + 1);
	if (!text)
		return -ENOMEM;
	if (!encoding)
		memcpy(text, json_string_value(body), size);
	else if (!str_equal(encoding, BODY_BASE64) ||
		 str_base64_decode(text, size, json_string_value(body), size, &size) < 0)
		return -EBADMSG;
	return doc_parse(text, size, ret_body, &reason);
}

/* execute_sandbox_session(session_id) */
static const char *take_arguments(const json_t *body, struct celery_message *message)
{
	const json_t *args = json_array_get(body, 0);
	const json_t *kwargs = json_array_get(body, 1);
	const json_t *session = json_array_get(args, 0);
	size_t n_args = json_array_size(args);
	size_t n_kwargs = json_object_size(kwargs);

	if (json_array_size(body) < 2 || !json_is_array(args) || !json_is_object(kwargs))
		return "the body of the message is not [args, kwargs, ...]";
	if (n_args + n_kwargs != 1)
		return "the task takes one argument, session_id";
	if (n_kwargs == 1)
		session = json_object_get(kwargs, "session_id");
	if (!json_is_string(session))
		return "the task takes one argument, session_id, a text";
	/* No session has another one, so that one is not found. */
	if (strlen(json_string_value(session)) != json_string_length(session) ||
	    id_parse(json_string_value(session), &message->session) < 0)
		message->session = (struct id){0};
	return NULL;
}

static int take_body(const json_t *envelope, struct celery_message *message)
{
	json_t *body = NULL;
	int r = celery_body_parse(envelope, &body);

	message->fault = "the body of the message cannot be decoded";
	if (r < 0)
		return r == -ENOMEM ? r : CELERY_E_INVALID;
	message->fault = take_arguments(body, message);
	json_decref(body);
	return message->fault ? CELERY_E_INVALID : 0;
}

static void take_properties(const json_t *envelope, struct celery_message *message)
{
	const json_t *properties = json_object_get(envelope, "properties");
	const json_t *priority = json_object_get(properties, "priority");
	const char *tag = celery_text(properties, "delivery_tag");

	if (tag)
		IGNORE_RESULT(str_copy(message->tag, sizeof(message->tag), tag));
	if (json_is_integer(priority) && json_integer_value(priority) > 0)
		message->priority = json_integer_value(priority) > 9
					    ? 9
					    : (uint32_t)json_integer_value(priority);
}

static const char *take_headers(const json_t *envelope, struct celery_message *message)
{
	const json_t *headers = json_object_get(envelope, "headers");
	const char *task = celery_text(headers, "task");
	const char *content_type = celery_text(envelope, "content-type");

	message->ignore_result = json_is_true(json_object_get(headers, "ignore_result"));
	if (!task || !task[0] || str_copy(message->task, sizeof(message->task), task) < 0)
		return "the message names no task";
	if (!take_time(headers, "eta", &message->eta) ||
	    !take_time(headers, "expires", &message->expires))
		return "eta or expires is no time";
	if (!content_type || !str_equal(content_type, CONTENT_TYPE))
		return "the message is not JSON";
	return NULL;
}

static int parse_envelope(const json_t *envelope, struct celery_message *message)
{
	const char *id = celery_text(json_object_get(envelope, "headers"), "id");

	message->envelope = doc_format(envelope, 0);
	if (!message->envelope)
		return -ENOMEM;
	message->envelope_bytes = strlen(message->envelope);
	take_properties(envelope, message);
	if (!id || id_parse(id, &message->id) < 0)
		return CELERY_E_BROKEN;
	message->fault = take_headers(envelope, message);
	if (message->fault)
		return CELERY_E_INVALID;
	return take_body(envelope, message);
}

int celery_message_parse(const char *text, size_t size, struct celery_message *ret)
{
	const char *reason;
	json_t *envelope;
	int r;

	*ret = CELERY_MESSAGE_NULL;
	if (size > CELERY_MESSAGE_MAX_BYTES || doc_parse(text, size, &envelope, &reason) < 0)
		return CELERY_E_BROKEN;
	r = parse_envelope(envelope, ret);
	json_decref(envelope);
	return r;
}

void celery_message_done(struct celery_message *message)
{
	free(message->envelope);
	*message = CELERY_MESSAGE_NULL;
}

/* As parse_envelope wrote it. NULL: no memory. */
static json_t *parse_again(const char *envelope)
{
	const char *reason;
	json_t *doc;

	return doc_parse(envelope, strlen(envelope), &doc, &reason) < 0 ? NULL : doc;
}

json_t *celery_message_labels(const struct celery_message *message)
{
	json_t *envelope = parse_again(message->envelope);
	json_t *given = json_object_get(json_object_get(envelope, "headers"), "x-aqp-finops");
	json_t *labels = json_object();
	const char *name;
	json_t *value;

	json_object_foreach(given, name, value)
	{
		const char *text = celery_text(given, name);

		if (text && strlen(name) <= CELERY_LABEL_MAX_BYTES &&
		    strlen(text) <= CELERY_LABEL_MAX_BYTES &&
		    json_object_size(labels) < CELERY_LABELS_MAX)
			(void)json_object_set(labels, name, value);
	}
	json_decref(envelope);
	if (json_object_size(labels) > 0)
		return labels;
	json_decref(labels);
	return NULL;
}

/* What is unacknowledged. */

static const char *exchange_of(const json_t *envelope)
{
	const json_t *properties = json_object_get(envelope, "properties");
	const char *exchange =
		celery_text(json_object_get(properties, "delivery_info"), "exchange");

	return exchange ? exchange : "";
}

char *celery_unacked_format(const char *envelope, const char *queue)
{
	json_t *doc = parse_again(envelope);
	json_t *entry = doc ? json_pack("[O, s, s]", doc, exchange_of(doc), queue) : NULL;
	char *text = entry ? doc_format(entry, 1) : NULL;

	json_decref(entry);
	json_decref(doc);
	return text;
}

int celery_unacked_parse(const char *text, size_t size, const char *queue,
			 struct celery_message *ret, int *ret_fault)
{
	const char *reason;
	const char *key;
	json_t *entry = NULL;

	*ret = CELERY_MESSAGE_NULL;
	if (size > 2 * CELERY_MESSAGE_MAX_BYTES || doc_parse(text, size, &entry, &reason) < 0)
		return CELERY_E_BROKEN;
	key = json_string_value(json_array_get(entry, 2));
	if (json_array_size(entry) != 3 || !key || !str_equal(key, queue)) {
		json_decref(entry);
		return CELERY_E_BROKEN;
	}
	*ret_fault = parse_envelope(json_array_get(entry, 0), ret);
	json_decref(entry);
	return *ret_fault < 0 ? *ret_fault : 0;
}

char *celery_message_redelivered(const struct celery_message *message)
{
	json_t *envelope = parse_again(message->envelope);
	json_t *properties = json_object_get(envelope, "properties");
	json_t *info = json_object_get(properties, "delivery_info");
	json_t *headers = json_object_get(envelope, "headers");
	char *text;

	(void)json_object_set_new(headers, "redelivered", json_true());
	(void)json_object_set_new(info, "redelivered", json_true());
	text = envelope ? doc_format(envelope, 1) : NULL;
	json_decref(envelope);
	return text;
}
