/*
 * Remote control: {method, arguments, destination, pattern, matcher, ticket, reply_to}, broadcast
 * to every worker of the broker.
 */
#include <errno.h>
#include <fnmatch.h>
#include <string.h>

#include "base/json.h"
#include "base/str.h"

#include "supervisor/api/celery/message.h"

static bool is_addressed(const json_t *body, const char *node)
{
	const json_t *destination = json_object_get(body, "destination");
	const char *pattern = celery_text(body, "pattern");
	const char *matcher = celery_text(body, "matcher");
	const json_t *value;
	size_t i;

	/* Of the patterns only globs: a regular expression of a stranger has no bound in time. */
	if (pattern && matcher)
		return str_equal(matcher, "glob") && strlen(pattern) < CELERY_NAME_BYTES &&
		       fnmatch(pattern, node, 0) == 0;
	if (!destination || json_is_null(destination))
		return true;
	json_array_foreach(destination, i, value)
	{
		if (json_is_string(value) && str_equal(json_string_value(value), node))
			return true;
	}
	return false;
}

static int take_body(struct celery_control *control, const char *node)
{
	const json_t *reply_to = json_object_get(control->body, "reply_to");
	const char *key = celery_text(reply_to, "routing_key");

	control->method = celery_text(control->body, "method");
	control->ticket = celery_text(control->body, "ticket");
	control->arguments = json_object_get(control->body, "arguments");
	if (!control->method)
		return CELERY_E_BROKEN;
	if (key && str_copy(control->reply_key, sizeof(control->reply_key), key) < 0)
		return CELERY_E_BROKEN;
	return is_addressed(control->body, node) ? 0 : CELERY_E_INVALID;
}

int celery_control_parse(const char *text, size_t size, const char *node, usec_t now,
			 struct celery_control *ret)
{
	const json_t *expires;
	const char *reason;
	json_t *envelope = NULL;
	int r;

	*ret = CELERY_CONTROL_NULL;
	if (size > CELERY_MESSAGE_MAX_BYTES || doc_parse(text, size, &envelope, &reason) < 0)
		return CELERY_E_BROKEN;
	expires = json_object_get(json_object_get(envelope, "headers"), "expires");
	if (json_number_value(expires) > 0 &&
	    json_number_value(expires) < (double)now / (double)USEC_PER_SEC)
		r = CELERY_E_INVALID;
	else
		r = celery_body_parse(envelope, &ret->body);
	json_decref(envelope);
	if (r < 0)
		return r == -ENOMEM ? r : CELERY_E_BROKEN;
	return r == 0 ? take_body(ret, node) : r;
}

void celery_control_done(struct celery_control *control)
{
	json_decref(control->body);
	*control = CELERY_CONTROL_NULL;
}

size_t celery_control_ids(const struct celery_control *control, struct id *ids)
{
	const json_t *wanted = json_object_get(control->arguments, "task_id");
	size_t n_wanted = json_is_array(wanted) ? json_array_size(wanted) : 1;
	size_t n = 0;

	for (size_t i = 0; i < n_wanted && n < CELERY_REVOKE_MAX; i++) {
		const json_t *value = json_is_array(wanted) ? json_array_get(wanted, i) : wanted;

		if (json_is_string(value) && id_parse(json_string_value(value), &ids[n]) >= 0)
			n++;
	}
	return n;
}
