#include <errno.h>

#include "base/json.h"

#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/handlers.h"
#include "supervisor/api/http/openapi.h"
#include "supervisor/api/http/reply.h"

void handle_healthz(struct request *request)
{
	action_healthz(request);
}

void handle_readyz(struct request *request)
{
	action_readyz(request);
}

void handle_log_level_get(struct request *request)
{
	action_log_level(request);
}

/* {"level": one of four}, and nothing else. */
static int parse_level(const struct request *request)
{
	const char *reason;
	json_t *doc = NULL;
	int level = -EINVAL;

	if (doc_parse((const char *)request->body.data, request->body.size, &doc, &reason) == 0 &&
	    json_is_object(doc) && json_object_size(doc) == 1)
		level = log_level_parse(json_string_value(json_object_get(doc, "level")));
	json_decref(doc);
	return level;
}

void handle_log_level_set(struct request *request)
{
	int level;

	/* It changes what every tenant's requests leave behind. */
	if (!request->identity.is_operator) {
		reply_detail(request, MHD_HTTP_FORBIDDEN, "only on the operator's socket");
		return;
	}
	level = parse_level(request);
	if (level < 0)
		reply_invalid_body(request, "enum", "level",
				   "Input should be 'error', 'warning', 'info' or 'debug'");
	else
		action_log_level_set(request, (enum log_level)level);
}

void handle_metrics(struct request *request)
{
	action_metrics(request);
}

void handle_openapi(struct request *request)
{
	reply_json(request, MHD_HTTP_OK, openapi_document(request_config(request)));
}

void handle_capabilities(struct request *request)
{
	action_capabilities(request);
}

void handle_config(struct request *request)
{
	action_config(request);
}

void handle_quota(struct request *request)
{
	action_quota(request);
}
