/*
 * What anybody who can write to the broker may put there: a task's message, an entry of `unacked`,
 * a request of the remote control. What is taken is written out again and read once more.
 */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

#include "supervisor/api/celery/message.h"
#include "tests/fuzz/fuzz.h"

#define QUEUE "sandbox"

static void check_again(const struct celery_message *message)
{
	struct celery_message again;
	char *text = celery_unacked_format(message->envelope, QUEUE);
	int fault = 0;

	ASSERT(text);
	/* Escapes may have made it longer than an entry may be. */
	if (celery_unacked_parse(text, strlen(text), QUEUE, &again, &fault) == 0 && fault == 0)
		ASSERT(id_equal(&message->id, &again.id) && message->eta == again.eta &&
		       strcmp(message->task, again.task) == 0);
	celery_message_done(&again);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct id id = {{1}};
	struct id ids[CELERY_REVOKE_MAX];
	struct celery_control control;
	struct celery_message message;
	int fault = 0;
	int r;

	r = celery_message_parse((const char *)data, size, &message);
	if (r == 0)
		check_again(&message);
	else
		ASSERT(r == CELERY_E_BROKEN || message.fault);
	celery_message_done(&message);

	r = celery_unacked_parse((const char *)data, size, QUEUE, &message, &fault);
	if (r == 0)
		free(celery_message_redelivered(&message));
	celery_message_done(&message);

	r = celery_control_parse((const char *)data, size, "sandboxd@h", 1, &control);
	if (r == 0) {
		ASSERT(control.method);
		ASSERT(celery_control_ids(&control, ids) <= CELERY_REVOKE_MAX);
		free(celery_reply_format(&control, "sandboxd@h", json_null(), &id));
	}
	celery_control_done(&control);
	return 0;
}
