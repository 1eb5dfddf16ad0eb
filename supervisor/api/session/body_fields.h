/*
 * Reading the members of one JSON request body by a table of fields. Types and messages of the
 * items are those that FastAPI clients know; ours differ in one way: a number must be a JSON
 * integer. No message quotes the input; only names of members stand in `loc`.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"

#include "supervisor/api/session/spec.h"

#define BODY_MSG_STRING   "Input should be a valid string"
#define BODY_MSG_NUL      "Value error, must not contain NUL"
#define BODY_MSG_IDENTITY "Value error, holds a character outside A-Za-z0-9._:@-, or is too long"

struct body {
	const struct spec_options *options;
	json_t *errors; /* owned until body_finish gives it away; NULL: nothing is wrong so far */
	void *dest;     /* of the readers */
	int fatal;      /* -ENOMEM */
};

struct body_field {
	const char *name; /* NULL ends the table */
	bool required;
	void (*read)(struct body *body, const char *field, json_t *value);
};

/* Append one item to *errors, made where it is NULL; loc ends with NULL or after three. What is
 * beyond a bound of items is left out. 0 or -ENOMEM. */
MUST_USE int body_item_add(json_t **errors, const char *type, const char *const loc[],
			   const char *msg);
/* Add an item for body.field, or body.field.member. */
void body_wrong(struct body *body, const char *type, const char *field, const char *msg);
void body_wrong_in(struct body *body, const char *type, const char *field, const char *member,
		   const char *msg);

/* False: null, which is as if it were not there, or an item was added. */
bool body_is_object(struct body *body, const char *field, const json_t *value);
bool body_has_nul(const json_t *value);
/* A copy of a string with a NUL behind it; NULL and body->fatal without memory. */
char *body_take_string(struct body *body, const json_t *value, size_t *ret_length);
/* A name of somebody or something, at most `max` of A-Za-z0-9._:@-; null is none. problem: what an
 * item says where it is not. */
void body_read_identity(struct body *body, const char *field, const json_t *value,
			const char *problem, char *dest, size_t max);
/* An integer in min..max. False: an item was added. */
bool body_read_integer(struct body *body, const char *field, const json_t *value, uint32_t min,
		       uint32_t max, uint32_t *ret_number);
/* An object NAME -> text of at most `max` members as NAME=VALUE entries behind those that *env has.
 * On an error it may hold some of them. */
void body_read_envs(struct body *body, const char *field, json_t *value, size_t max, char ***env,
		    size_t *n_env);
/* {rows, cols} of a terminal. */
void body_read_size(struct body *body, const char *field, json_t *value, struct wire_size *size);
/* Of struct spec_create, body->dest: what /v1 keeps (spec_runtime.c). */
void body_read_project(struct body *body, const char *field, json_t *value);
void body_read_provider(struct body *body, const char *field, json_t *value);
void body_read_idempotency_key(struct body *body, const char *field, json_t *value);
void body_read_template(struct body *body, const char *field, json_t *value);
void body_read_metadata(struct body *body, const char *field, json_t *value);
void body_read_workspace(struct body *body, const char *field, json_t *value);
/* Names of secrets, each once, at most SECRETS_SESSION_MAX. */
void body_read_secrets(struct body *body, const char *field, json_t *value, char ***ret_names,
		       size_t *ret_n);

/* {allow: [rule]}: the rules of a session. */
void body_read_egress(struct body *body, const char *field, json_t *value,
		      struct spec_egress *egress);

/* The common course: text -> document -> fields. What the readers made stays in body->dest; the
 * caller drops it unless 0 is returned. 0, SPEC_E_INVALID or -ENOMEM. */
MUST_USE int body_parse(struct body *body, const char *text, size_t size,
			const struct body_field *fields, bool may_be_empty);
/* Hand the items to the caller, or drop them. Returns r. */
int body_finish(struct body *body, int r, json_t **ret_errors);

void body_strings_free(char **strings, size_t n);
