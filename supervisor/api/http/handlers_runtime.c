#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/handlers.h"
#include "supervisor/api/http/payload.h"
#include "supervisor/api/http/reply.h"

void handle_sandbox_create(struct request *request)
{
	struct spec_options options = payload_options(request);
	struct spec_create spec = SPEC_CREATE_NULL;
	json_t *errors = NULL;
	int r;

	r = spec_parse_sandbox((const char *)request->body.data, request->body.size, &options,
			       &spec, &errors);
	if (r != 0) {
		reply_spec_error(request, r, errors);
		return;
	}
	action_create(request, &spec, false);
	spec_create_done(&spec);
}

void handle_sandbox_get(struct request *request)
{
	const struct session *session = action_find(request, false);

	if (session)
		reply_json(request, MHD_HTTP_OK, action_sandbox(request, session));
}

void handle_sandbox_delete(struct request *request)
{
	struct session *session = action_find(request, false);

	if (session)
		action_delete(request, session);
}

void handle_sandbox_proof(struct request *request)
{
	struct session *session = action_find(request, true);

	if (session)
		action_proof(request, session);
}

void handle_sandbox_trace(struct request *request)
{
	struct session *session = action_find(request, true);

	if (session)
		action_trace(request, session);
}

void handle_sandbox_stats(struct request *request)
{
	struct session *session = action_find(request, false);

	if (session)
		action_stats(request, session);
}
