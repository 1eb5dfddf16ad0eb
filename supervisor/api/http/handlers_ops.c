#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/handlers.h"
#include "supervisor/api/http/openapi.h"
#include "supervisor/api/http/reply.h"

/* The process answers: that is all this says. */
void handle_healthz(struct request *request)
{
	reply_json(request, MHD_HTTP_OK, json_pack("{s:s}", "status", "ok"));
}

void handle_readyz(struct request *request)
{
	const char *reason = action_not_ready(request);

	if (reason)
		reply_json(request, MHD_HTTP_SERVICE_UNAVAILABLE,
			   json_pack("{s:s, s:s}", "status", "not ready", "reason", reason));
	else
		reply_json(request, MHD_HTTP_OK, json_pack("{s:s}", "status", "ready"));
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
