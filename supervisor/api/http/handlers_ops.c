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
