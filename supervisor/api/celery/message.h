/*
 * Messages of Celery (task protocol 2) as kombu keeps them in Redis: reading and building. Pure.
 *
 * Whoever can write to the broker writes these: every text is bounded, and nothing in a message
 * says who is asking. Only the id, the task's name, the session's id and the labels are used;
 * further headers are passed over.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/id.h"

#define CELERY_MESSAGE_MAX_BYTES ((size_t)256 * 1024)
#define CELERY_NAME_BYTES        160 /* of a task, a tag, a queue with its NUL */
#define CELERY_PRIORITIES        4u
#define CELERY_REVOKE_MAX        256u /* ids in one request */
#define CELERY_LABELS_MAX        8u
#define CELERY_LABEL_MAX_BYTES   64u /* of a name, and of a text */

enum celery_fault {
	CELERY_E_BROKEN = 1, /* no message, or no id in it: nobody can be told */
	CELERY_E_INVALID,    /* message->id is set; message->fault says what is wrong */
};

struct celery_message {
	char *envelope; /* its text, owned: parsed it can take fifty times as much */
	size_t envelope_bytes;
	struct id id;
	char task[CELERY_NAME_BYTES];
	char tag[CELERY_NAME_BYTES]; /* "": it cannot be acknowledged later */
	struct id session;           /* null where the argument is no session id */
	usec_t eta;                  /* 0: none */
	usec_t expires;              /* 0: never */
	uint32_t priority;           /* 0..9 */
	bool ignore_result;
	const char *fault; /* static text */
};
#define CELERY_MESSAGE_NULL ((struct celery_message){0})

/* The text of a member, or NULL: there is none, or one with a NUL in it. */
const char *celery_text(const json_t *object, const char *key);
/* The body of an envelope, decoded. 0 and a new reference; -EBADMSG; -ENOMEM. */
MUST_USE int celery_body_parse(const json_t *envelope, json_t **ret_body);

/* 0, enum celery_fault, or -ENOMEM. Whatever it returns, celery_message_done may be called. */
MUST_USE int celery_message_parse(const char *text, size_t size, struct celery_message *ret);
void celery_message_done(struct celery_message *message);
/* The texts of header x-aqp-finops: the first CELERY_LABELS_MAX of them, without those that are too
 * long. A new object, or NULL: none. They are shown, and decide nothing. */
json_t *celery_message_labels(const struct celery_message *message);

/* The list of a queue for messages of that step: 0, 3, 6, 9. 0 or -ENAMETOOLONG. */
MUST_USE int celery_list_name(const char *queue, uint32_t step, char name[CELERY_NAME_BYTES]);
/* 0..9 rounded down to its step. */
uint32_t celery_priority_step(uint32_t priority);
/* Member of `_kombu.binding.<exchange>`: routing key, pattern, queue. The caller frees; NULL: no
 * memory. */
char *celery_binding(const char *routing_key, const char *queue);
/* The queue of a binding whose routing key is that one, or NULL. Points into the text. */
const char *celery_binding_queue(const char *member, size_t size, const char *routing_key);

/* What stands in `unacked` for a message that was taken: [envelope, exchange, routing key]. The
 * caller frees; NULL: no memory. */
char *celery_unacked_format(const char *envelope, const char *queue);
/* Such an entry, if it is of that queue: 0 and the message as it parses; CELERY_E_BROKEN: it is
 * not, or of another queue; -ENOMEM. *ret_fault: what celery_message_parse said of it. */
MUST_USE int celery_unacked_parse(const char *text, size_t size, const char *queue,
				  struct celery_message *ret, int *ret_fault);
/* The message as it is put back for somebody else. The caller frees; NULL: no memory. */
char *celery_message_redelivered(const struct celery_message *message);

/* A result as backends keep it. */
enum celery_state {
	CELERY_STATE_SUCCESS, /* value */
	CELERY_STATE_FAILURE, /* type, text, module */
	CELERY_STATE_REVOKED, /* as a failure */
	CELERY_STATE_MAX_,
};
struct celery_result {
	enum celery_state state;
	json_t *value; /* borrowed */
	const char *type;
	const char *text;
	const char *module;
};
#define CELERY_EXCEPTIONS "celery.exceptions"
const char *celery_state_text(enum celery_state state);
/* The caller frees; NULL: no memory. */
char *celery_result_format(const struct id *task, const struct celery_result *result, usec_t now);
/* What the terminal frame of a task means as its result: parsed frame in *ret_frame (the caller's
 * reference; the result borrows from it). is_revoked: the end was asked for through Celery. 0 or
 * -EBADMSG. */
MUST_USE int celery_result_of_frame(const char *text, size_t size, bool is_revoked,
				    json_t **ret_frame, struct celery_result *ret);

/* A task for a worker, complete: real ones die of what is missing. */
struct celery_call {
	const struct id *id;
	const struct id *tag;
	const struct id *reply_to;
	const struct id *session;
	const char *task;
	const char *queue;
};
/* The caller frees; NULL: no memory. */
char *celery_call_format(const struct celery_call *call);

/* Remote control. */
struct celery_control {
	json_t *body; /* owned */
	const char *method;
	const json_t *arguments;           /* an object, or NULL */
	const char *ticket;                /* or NULL */
	char reply_key[CELERY_NAME_BYTES]; /* "": no answer is wanted */
};
#define CELERY_CONTROL_NULL ((struct celery_control){0})
/* 0: it is for this node; CELERY_E_BROKEN: not understood; CELERY_E_INVALID: for others, or too
 * old; -ENOMEM. */
MUST_USE int celery_control_parse(const char *text, size_t size, const char *node, usec_t now,
				  struct celery_control *ret);
void celery_control_done(struct celery_control *control);
/* The ids of a revoke request, at most CELERY_REVOKE_MAX. */
size_t celery_control_ids(const struct celery_control *control, struct id *ids);
/* Steals the reply. The caller frees; NULL: no memory. */
char *celery_reply_format(const struct celery_control *control, const char *node, json_t *reply,
			  const struct id *tag);
