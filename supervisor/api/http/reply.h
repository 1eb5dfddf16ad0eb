/*
 * Answers. Error bodies have FastAPI's shape, since the clients of the platform read that.
 */
#pragma once

#include <jansson.h>

#include "supervisor/api/http/request.h"
#include "supervisor/api/http/runtime_errors.h"
#include "supervisor/api/session/quota.h"
#include "supervisor/api/session/tenant_quota.h"

/* Takes the reference; NULL (no memory): 500. */
void reply_json(struct request *request, int status, json_t *doc);
void reply_text(struct request *request, int status, const char *content_type, const char *text);
/* {"detail":"…"} */
void reply_detail(struct request *request, int status, const char *detail);
/* What a parser of session/spec.h returned: 422 {"detail":[{type, loc, msg}, …]}, or 503 without
 * memory. Takes the reference to the items. */
void reply_spec_error(struct request *request, int error, json_t *items);
void reply_invalid_query(struct request *request, const char *type, const char *name,
			 const char *message); /* 422 of one parameter */
/* The same with one item for a member of the body. */
void reply_invalid_body(struct request *request, const char *type, const char *field,
			const char *message);
/* 429 with Retry-After. */
void reply_refusal(struct request *request, const struct quota_refusal *refusal); /* 429 */
void reply_quota(struct request *request, enum quota_reason reason);
/* detail: NULL: the row's. A retryable one has Retry-After. */
void reply_runtime_error(struct request *request, enum runtime_error error, const char *detail);
/* With further members; takes the reference. NULL: none. */
void reply_runtime_error_with(struct request *request, enum runtime_error error, const char *detail,
			      json_t *more);
/* What it says, for a part of another answer. New. */
json_t *reply_error_object(enum runtime_error error, const char *detail);
/* 503 with Retry-After, and the connection ends. */
void reply_busy(struct request *request, const char *detail);
/* The one 404 for a session, under the words of the route's prefix: the same bytes whether the
 * session is missing, closed, expired, foreign, or its id is no id. */
void reply_not_found(struct request *request);
void reply_unauthenticated(struct request *request);
