/*
 * Theory. One action, on one connection; then the report. Each subject has a file: users, dropping
 * one, measuring, and the connection that they share.
 */
#include "supervisor/helper/redis.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/id.h"
#include "base/io.h"
#include "base/str.h"

#include "sandboxd/secret.h"
#include "supervisor/helper/redis_state.h"

void redis_note_session(struct redis_report *report, const struct id *id, const uint8_t *after)
{
	uint32_t at = report->n_sessions;

	if (memcmp(id->bytes, after, ID_BYTES) <= 0)
		return;
	while (at > 0 && memcmp(report->session[at - 1], id->bytes, ID_BYTES) > 0)
		at--;
	if (at == REDIS_LIST_MAX)
		return;
	if (report->n_sessions < REDIS_LIST_MAX)
		report->n_sessions++;
	memmove(report->session[at + 1], report->session[at],
		(size_t)(report->n_sessions - 1 - at) * ID_BYTES);
	memcpy(report->session[at], id->bytes, ID_BYTES);
}

static enum redis_status (*const actions[REDIS_ACTION_MAX_])(struct redis *redis) = {
	[REDIS_MAKE] = redis_make,       [REDIS_DROP] = redis_drop,   [REDIS_LIST] = redis_list,
	[REDIS_MEASURE] = redis_measure, [REDIS_LEAVE] = redis_leave,
};

static enum redis_status work(struct redis *redis)
{
	enum redis_status status = redis_open(redis);

	return status == REDIS_DONE ? actions[redis->request->action](redis) : status;
}

/* Names from the root and the id alone. */
static int form_names(struct redis *redis)
{
	char text[ID_TEXT_BYTES];
	struct id id;
	int r;

	memcpy(id.bytes, redis->request->session, ID_BYTES);
	id_format(&id, text);
	r = str_format(redis->prefix, sizeof(redis->prefix), "%s:%s:", redis->request->root, text);
	if (r >= 0)
		r = str_format(redis->user, sizeof(redis->user), "%s-%s-%s", redis->request->root,
			       redis->request->instance, text);
	for (char *at = redis->user; r >= 0 && *at; at++)
		if (*at == ':')
			*at = '-'; /* it is written into URLs */
	return r;
}

int redis_run(void)
{
	struct redis_request request;
	struct redis redis = {.request = &request};
	int r;

	r = io_read_exact(STDIN_FILENO, &request, sizeof(request));
	if (r < 0 || request.magic != REDIS_MAGIC || request.version != REDIS_VERSION ||
	    request.action == 0 || request.action >= REDIS_ACTION_MAX_ || form_names(&redis) < 0)
		return EXIT_FAILURE;
	redis.report.status = (uint16_t)work(&redis);
	redis.report.magic = REDIS_MAGIC;
	redis.report.version = REDIS_VERSION;
	r = io_write_all(HELPER_FD_REPORT, &redis.report, sizeof(redis.report));
	if (redis.context)
		redisFree(redis.context);
	explicit_bzero(&request, sizeof(request));
	return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
