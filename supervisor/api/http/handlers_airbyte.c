
#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/handlers.h"
#include "supervisor/api/http/payload.h"
#include "supervisor/api/http/reply.h"

void handle_session_airbyte(struct request *request)
{
	AUTO_FREE char *connection = NULL;
	struct session *session;

	if (!payload_parse(request, spec_parse_airbyte, &connection))
		return;
	session = action_find_tree(request);
	if (session)
		action_airbyte(request, session, connection);
}

void handle_airbyte_list(struct request *request)
{
	action_airbyte_list(request);
}

void handle_airbyte_put(struct request *request)
{
	struct spec_airbyte spec = SPEC_AIRBYTE_NULL;

	if (!payload_parse(request, spec_parse_airbyte_put, &spec))
		return;
	action_airbyte_put(request, &spec);
	spec_airbyte_done(&spec);
}

void handle_airbyte_drop(struct request *request)
{
	action_airbyte_drop(request);
}
