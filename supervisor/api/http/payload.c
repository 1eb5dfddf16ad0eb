#include "supervisor/api/http/payload.h"

#include <errno.h>

#include "supervisor/api/http/reply.h"
#include "supervisor/api/session/spec.h"

/* Where it grows nothing of it is left where it was. */
static int make_room(struct buf *body, size_t more)
{
	struct buf grown = BUF_NULL(body->max_bytes);
	int r;

	if (body->size + more < body->allocated)
		return 0;
	r = buf_reserve(&grown, body->size + more);
	if (r >= 0 && body->size > 0)
		r = buf_append(&grown, body->data, body->size);
	if (r < 0) {
		buf_wipe(&grown);
		return r;
	}
	buf_wipe(body);
	*body = grown;
	return 0;
}

int payload_add(struct request *request, const char *data, size_t size)
{
	size_t max = request->route ? request->route->body_max_bytes : 0;
	int r;

	if (size > max || request->body.size > max - size)
		return -EMSGSIZE;
	if (!request_hold(request, size))
		return -ENOBUFS;
	request->body.max_bytes = max;
	r = make_room(&request->body, size);
	return r < 0 ? r : buf_append(&request->body, data, size);
}

struct spec_options payload_options(const struct request *request)
{
	return (struct spec_options){
		.env_prefix = request_config(request)->env_prefix,
		.ignore_unknown_fields = request_config(request)->unknown_fields_ignore != 0,
		.config = request_config(request),
	};
}

bool payload_judge(struct request *request, int r)
{
	json_t *errors = request->errors;

	request->errors = NULL;
	if (r == 0)
		return true;
	reply_spec_error(request, r, errors);
	return false;
}

bool payload_finish(struct request *request)
{
	struct spec_options options = payload_options(request);

	if (request->route->body != ROUTE_BODY_NONE)
		return true;
	return payload_judge(request,
			     spec_parse_empty((const char *)request->body.data, request->body.size,
					      &options, &request->errors));
}
