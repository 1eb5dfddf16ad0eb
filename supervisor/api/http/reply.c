#include "supervisor/api/http/reply.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/str.h"

#include "sandboxd/api.h"

static const char too_much_held[] = "{\"detail\":\"too much is held for requests: memory\"}";
static const char too_much_held_v1[] = "{\"detail\":\"too much is held for requests: memory\","
				       "\"code\":\"busy\",\"retryable\":true}";
static const char out_of_memory[] = "{\"detail\":\"out of memory\"}";

static bool is_v1(const struct request *request)
{
	return request->route && (request->route->flags & ROUTE_V1);
}

/* Takes the text, which may be NULL: no memory. */
static void answer_text(struct request *request, int status, const char *content_type, char *text)
{
	struct MHD_Response *response = NULL;

	/* Clients that read slowly: what waits for all of them is bounded. */
	if (text && !request_hold(request, strlen(text))) {
		free(text);
		text = strdup(is_v1(request) ? too_much_held_v1 : too_much_held);
		status = MHD_HTTP_SERVICE_UNAVAILABLE;
	}
	if (text && request->upload && !request->upload_ended) {
		free(request->refusal);
		request->refusal = strdup(text);
	}
	if (text)
		response =
			MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
	if (response)
		(void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, content_type);
	else
		free(text);
	request_answer(request, status, response);
}

void reply_text(struct request *request, int status, const char *content_type, const char *text)
{
	answer_text(request, status, content_type, strdup(text));
}

void reply_json(struct request *request, int status, json_t *doc)
{
	char *text = doc ? doc_format(doc, 0) : NULL;

	json_decref(doc);
	if (!text) {
		reply_text(request, MHD_HTTP_INTERNAL_SERVER_ERROR, "application/json",
			   out_of_memory);
		return;
	}
	answer_text(request, status, "application/json", text);
}

static json_t *error_object(const struct runtime_error_row *row, const char *detail)
{
	return json_pack("{s:s, s:s, s:b}", "detail", detail ? detail : row->detail, "code",
			 row->code, "retryable", row->retryable);
}

json_t *reply_error_object(enum runtime_error error, const char *detail)
{
	return error_object(runtime_error_row(error), detail);
}

void reply_detail(struct request *request, int status, const char *detail)
{
	const struct runtime_error_row *row =
		is_v1(request) ? runtime_error_of_status(status) : NULL;

	reply_json(request, status,
		   row ? error_object(row, detail) : json_pack("{s:s}", "detail", detail));
}

void reply_spec_error(struct request *request, int error, json_t *items)
{
	if (error < 0) {
		json_decref(items);
		reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
		return;
	}
	reply_json(request, MHD_HTTP_UNPROCESSABLE_CONTENT, json_pack("{s:o}", "detail", items));
}

static void reply_invalid(struct request *request, const char *type, const char *part,
			  const char *field, const char *message)
{
	json_t *errors = NULL;
	int r = spec_error_add(&errors, type, part, field, message);

	reply_spec_error(request, r < 0 ? r : SPEC_E_INVALID, errors);
}

void reply_invalid_body(struct request *request, const char *type, const char *field,
			const char *message)
{
	reply_invalid(request, type, "body", field, message);
}

void reply_invalid_query(struct request *request, const char *type, const char *name,
			 const char *message)
{
	reply_invalid(request, type, "query", name, message);
}

static void reply_later(struct request *request, const char *detail, uint32_t retry_after_s)
{
	char seconds[16];

	IGNORE_RESULT(str_format(seconds, sizeof(seconds), "%u", retry_after_s));
	request_add_header(request, MHD_HTTP_HEADER_RETRY_AFTER, seconds);
	reply_detail(request, MHD_HTTP_TOO_MANY_REQUESTS, detail);
}

void reply_refusal(struct request *request, const struct quota_refusal *refusal)
{
	reply_later(request, refusal->detail, refusal->retry_after_s);
}

void reply_quota(struct request *request, enum quota_reason reason)
{
	reply_later(request, quota_text(reason), quota_retry_after_s(reason));
}

void reply_runtime_error(struct request *request, enum runtime_error error, const char *detail)
{
	reply_runtime_error_with(request, error, detail, NULL);
}

void reply_runtime_error_with(struct request *request, enum runtime_error error, const char *detail,
			      json_t *more)
{
	const struct runtime_error_row *row = runtime_error_row(error);
	json_t *doc = error_object(row, detail);

	if (doc && more)
		(void)json_object_update_missing(doc, more);
	json_decref(more);
	if (row->retryable)
		request_add_header(request, MHD_HTTP_HEADER_RETRY_AFTER, "1");
	reply_json(request, row->status, doc);
}

void reply_busy(struct request *request, const char *detail)
{
	request_add_header(request, MHD_HTTP_HEADER_RETRY_AFTER, "1");
	request_add_header(request, MHD_HTTP_HEADER_CONNECTION, "close");
	if (is_v1(request))
		reply_json(request, MHD_HTTP_SERVICE_UNAVAILABLE,
			   error_object(runtime_error_row(RUNTIME_BUSY), detail));
	else
		reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE, detail);
}

void reply_not_found(struct request *request)
{
	reply_detail(request, MHD_HTTP_NOT_FOUND,
		     is_v1(request) ? API_DETAIL_SANDBOX_NOT_FOUND : API_DETAIL_SESSION_NOT_FOUND);
}

void reply_unauthenticated(struct request *request)
{
	request_add_header(request, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
	reply_detail(request, MHD_HTTP_UNAUTHORIZED, API_DETAIL_AUTHENTICATION);
}
