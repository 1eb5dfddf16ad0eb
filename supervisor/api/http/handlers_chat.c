#include <string.h>

#include "base/num.h"
#include "base/str.h"

#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/handlers.h"
#include "supervisor/api/http/reply.h"
#include "supervisor/api/http/websocket.h"

#define LINES_TYPE "application/x-ndjson"

void handle_task_get(struct request *request)
{
	action_task(request);
}

void handle_task_cancel(struct request *request)
{
	action_task_cancel(request);
}

/* Events unless lines are asked for; a WebSocket's messages are lines. */
static bool wants_lines(const struct request *request)
{
	return strcasestr(request->accept, LINES_TYPE) != NULL;
}

void handle_task_stream(struct request *request)
{
	const char *text = request_query(request, "after");
	uint32_t after = 0;

	/* The parameter is a client's own wish and is judged; the header is repeated by browsers
	 * without being asked, and what is no number of ours means from the start. */
	if (text && num_parse_u32(text, 0, UINT32_MAX, &after) < 0) {
		reply_invalid_query(request, "int_parsing", "after",
				    "Input should be a valid integer");
		return;
	}
	if (!text && request->last_event_id[0] &&
	    num_parse_u32(request->last_event_id, 0, UINT32_MAX, &after) < 0)
		after = 0;
	if (websocket_judge(request))
		action_task_stream(request, request->websocket || wants_lines(request), after,
				   str_has_prefix(request->route->pattern, "/chat/"));
}
