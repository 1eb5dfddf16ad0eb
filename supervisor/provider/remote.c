/*
 * Theory. A sandbox is a resource, named sandboxd-INSTANCE-ID, that is put, asked for until it is
 * as it should be, and deleted. What the service says is read for its state alone: it may say what
 * nobody may read, so no text of it is logged. Each request below is a chain of HTTP requests, held
 * together by a struct op.
 */
#include "supervisor/provider/remote.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"

#include "supervisor/provider/remote_json.h"

#define SHORT_TIMEOUT (10 * USEC_PER_SEC)
#define LONG_TIMEOUT  (25 * USEC_PER_SEC) /* below what the api worker waits for a launch */
#define ASK_EVERY     (250 * USEC_PER_MS)
#define SOON_TIMEOUT  (8 * USEC_PER_SEC) /* below what it waits for anything else */
#define PATH_BYTES    512

#define SMALL_BYTES   ((size_t)64 * 1024) /* of answers about one sandbox */
#define PAGE_BYTES    ((size_t)1024 * 1024)
#define MAX_SANDBOXES 4000u /* of a list: below what waits for an api worker that does not read */

#define HTTP_OK              200
#define HTTP_ACCEPTED        202
#define HTTP_NOT_FOUND       404
#define HTTP_CONFLICT        409
#define HTTP_INTERNAL_ERROR  500
#define HTTP_GATEWAY_TIMEOUT 504

struct remote {
	struct engine engine;
	struct remote_options options;
};

struct op {
	struct remote *remote;
	struct id id;
	char *body;     /* of the create */
	usec_t give_up; /* nothing is asked later */
	struct loop_source *timer;
	bool is_second_try;
	bool may_come; /* the create was not answered: what it makes may be there later */
	int wanted;    /* it is asked for until it is in this state; REMOTE_ENDED: is not there */
	int result;
	void (*waited)(struct op *op, int result);
	engine_done done;
	engine_stream stream;
	engine_stat_done stat;
	void *userdata;
};

static struct remote *remote_of(struct engine *engine)
{
	return (struct remote *)engine; /* its first member */
}

static struct op *op_free(struct op *op)
{
	op->timer = loop_remove(op->timer);
	free(op->body);
	free(op);
	return NULL;
}

static int on_timer(void *userdata, uint32_t events);

static struct op *op_new(struct remote *remote, const struct id *id, void *userdata)
{
	struct op *op = calloc(1, sizeof(*op));

	if (!op)
		return NULL;
	*op = (struct op){.remote = remote, .id = *id, .userdata = userdata};
	op->give_up = clock_add(clock_boottime(), LONG_TIMEOUT);
	if (loop_add_timer(remote->options.loop, USEC_NEVER, on_timer, op, &op->timer) < 0)
		return op_free(op);
	return op;
}

static void op_finish(struct op *op, int result)
{
	op->done(op->userdata, result);
	(void)op_free(op);
}

/* after the sandbox's name. */
static int path_of(const struct op *op, const char *after, char path[static PATH_BYTES])
{
	char id[ID_TEXT_BYTES];

	id_format(&op->id, id);
	return str_format(path, PATH_BYTES, "/sandboxes/sandboxd-%s-%s%s",
			  op->remote->options.instance, id, after);
}

static int send_about(struct op *op, const char *method, const char *after, const char *body,
		      http_done done)
{
	char path[PATH_BYTES];
	int r = path_of(op, after, path);

	if (r < 0)
		return r;
	return remote_client_send(op->remote->options.client,
				  &(struct http_request){
					  .method = method,
					  .path = path,
					  .body = body,
					  .timeout = SHORT_TIMEOUT,
					  .max_bytes = SMALL_BYTES,
				  },
				  done, op);
}

static int result_of(const struct op *op, const char *what, int status)
{
	struct log_context context = {.session = &op->id};

	if (status == HTTP_NOT_FOUND)
		return -ENOENT;
	if (status >= HTTP_OK && status < 300)
		return 0;
	log_line(LOG_LEVEL_ERROR, &context, "the remote service refuses", "what=%s status=%d", what,
		 status);
	return status < 0 ? status : -EIO;
}

/* --- until it is as it should be ------------------------------------------------------------- */

static void ask_later(struct op *op)
{
	if (clock_boottime() >= op->give_up)
		op->waited(op, -ETIMEDOUT);
	else
		loop_timer_set(op->timer, clock_add(clock_boottime(), ASK_EVERY));
}

static void on_asked(void *userdata, int status, const char *body, size_t size)
{
	struct op *op = userdata;
	int state = status == HTTP_OK ? remote_json_state(body, size) : -EIO;

	if (status == HTTP_NOT_FOUND)
		op->waited(op, op->wanted == REMOTE_ENDED ? 0 : -ENOENT);
	else if (op->wanted != REMOTE_ENDED && state == op->wanted)
		op->waited(op, 0);
	else if (op->wanted != REMOTE_ENDED && state == REMOTE_ENDED)
		op->waited(op, -ENOENT);
	else
		ask_later(op); /* one answer that fails is no end of it */
}

static void ask(struct op *op)
{
	int r = send_about(op, "GET", "", NULL, on_asked);

	if (r < 0)
		op->waited(op, r);
}

static void undo(struct op *op, int result);

static int on_timer(void *userdata, uint32_t events)
{
	struct op *op = userdata;

	(void)events;
	if (op->may_come)
		undo(op, op->result);
	else
		ask(op);
	return 0;
}

static void wait_for(struct op *op, enum remote_state wanted,
		     void (*waited)(struct op *op, int result))
{
	op->wanted = (int)wanted;
	op->waited = waited;
	ask(op);
}

/* --- start ----------------------------------------------------------------------------------- */

static void on_undone(void *userdata, int status, const char *body, size_t size)
{
	struct op *op = userdata;

	(void)body;
	(void)size;
	if ((status == HTTP_NOT_FOUND || status < 0) && op->may_come &&
	    clock_boottime() < op->give_up) {
		loop_timer_set(op->timer, clock_add(clock_boottime(), ASK_EVERY));
		return;
	}
	IGNORE_RESULT(result_of(op, "delete", status));
	op_finish(op, op->result);
}

/* What was made goes first; a create that was slower than we were goes as long as we may wait. */
static void undo(struct op *op, int result)
{
	op->result = result;
	if (send_about(op, "DELETE", "", NULL, on_undone) < 0)
		op_finish(op, result);
}

static void on_running(struct op *op, int result)
{
	if (result < 0)
		undo(op, result);
	else
		op_finish(op, 0);
}

static int create(struct op *op);

static void on_cleared(struct op *op, int result)
{
	if (result == 0)
		result = create(op);
	if (result < 0)
		op_finish(op, result);
}

static void on_clearing(void *userdata, int status, const char *body, size_t size)
{
	struct op *op = userdata;
	int r = result_of(op, "delete", status);

	(void)body;
	(void)size;
	if (r == 0)
		wait_for(op, REMOTE_ENDED, on_cleared);
	else
		on_cleared(op, r == -ENOENT ? 0 : r);
}

static void on_created(void *userdata, int status, const char *body, size_t size)
{
	struct op *op = userdata;
	const struct log_context context = {.session = &op->id};
	int r;

	(void)body;
	(void)size;
	/* An earlier try left one of that name. */
	if (status == HTTP_CONFLICT && !op->is_second_try) {
		op->is_second_try = true;
		r = send_about(op, "DELETE", "", NULL, on_clearing);
		if (r < 0)
			op_finish(op, r);
		return;
	}
	if (status == HTTP_NOT_FOUND)
		log_line(LOG_LEVEL_ERROR, &context, "the remote service has not got the template",
			 NULL);
	r = result_of(op, "create", status);
	op->may_come = status == -ETIMEDOUT || status == HTTP_GATEWAY_TIMEOUT;
	if (r == 0)
		wait_for(op, REMOTE_RUNNING, on_running);
	else if (status < 0 || status >= HTTP_INTERNAL_ERROR)
		undo(op, r); /* without an answer of its own it may be there */
	else
		op_finish(op, r);
}

static int create(struct op *op)
{
	return send_about(op, "PUT", "", op->body, on_created);
}

static int remote_start(struct engine *engine, const struct plan *plan, const char *profile,
			engine_done done, void *userdata)
{
	struct remote *remote = remote_of(engine);
	const struct engine_container container = {
		.instance = remote->options.instance,
		.image = remote->options.config->image,
		.profile = profile,
		.plan = plan,
	};
	struct id id;
	struct op *op;
	int r = -ENOMEM;

	memcpy(id.bytes, plan->session, ID_BYTES);
	op = op_new(remote, &id, userdata);
	if (!op)
		return -ENOMEM;
	op->done = done;
	op->body = remote_json_sandbox(&container);
	if (op->body)
		r = create(op);
	if (r < 0)
		(void)op_free(op);
	return r;
}

/* --- remove, pause, stat --------------------------------------------------------------------- */

static void on_removed(void *userdata, int status, const char *body, size_t size)
{
	struct op *op = userdata;
	int r = result_of(op, "delete", status);

	(void)body;
	(void)size;
	if (status == HTTP_ACCEPTED)
		wait_for(op, REMOTE_ENDED, op_finish);
	else
		op_finish(op, r == -ENOENT ? 0 : r);
}

static int send_simple(struct op *op, const char *method, const char *after, engine_done done,
		       http_done answered)
{
	int r;

	if (!op)
		return -ENOMEM;
	op->done = done;
	r = send_about(op, method, after, NULL, answered);
	if (r < 0)
		(void)op_free(op);
	return r;
}

static int remote_remove(struct engine *engine, const struct id *id, engine_done done,
			 void *userdata)
{
	return send_simple(op_new(remote_of(engine), id, userdata), "DELETE", "", done, on_removed);
}

static void on_pause_looked(void *userdata, int status, const char *body, size_t size)
{
	struct op *op = userdata;
	int state = status == HTTP_OK ? remote_json_state(body, size) : -EIO;

	if (status == HTTP_NOT_FOUND || state == REMOTE_ENDED)
		op->result = -ENOENT;
	else if (state == op->wanted)
		op->result = 0;
	op_finish(op, op->result);
}

/* 409: it is so already, or there is nothing left of it that could be. */
static void on_paused(void *userdata, int status, const char *body, size_t size)
{
	struct op *op = userdata;

	(void)body;
	(void)size;
	if (status == HTTP_ACCEPTED) {
		wait_for(op, (enum remote_state)op->wanted, op_finish);
		return;
	}
	op->result = result_of(op, "pause", status);
	if (status == HTTP_CONFLICT && send_about(op, "GET", "", NULL, on_pause_looked) == 0)
		return;
	op_finish(op, op->result);
}

static int remote_pause(struct engine *engine, const struct id *id, bool pause, engine_done done,
			void *userdata)
{
	struct op *op = op_new(remote_of(engine), id, userdata);

	if (op) {
		op->wanted = pause ? REMOTE_PAUSED : REMOTE_RUNNING;
		op->give_up = clock_add(clock_boottime(), SOON_TIMEOUT);
	}
	return send_simple(op, "POST", pause ? "/pause" : "/resume", done, on_paused);
}

static void on_stat(void *userdata, int status, const char *body, size_t size)
{
	struct op *op = userdata;
	struct launch_stat stat = {0};
	int r = result_of(op, "usage", status);

	if (r == 0)
		r = remote_json_stat(body, size, &stat);
	op->stat(op->userdata, r, &stat);
	(void)op_free(op);
}

static int remote_stat(struct engine *engine, const struct id *id, engine_stat_done done,
		       void *userdata)
{
	struct op *op = op_new(remote_of(engine), id, userdata);

	if (op)
		op->stat = done;
	return send_simple(op, "GET", "/usage", NULL, on_stat);
}

/* --- connect --------------------------------------------------------------------------------- */

static void op_stream(struct op *op, int fd)
{
	op->stream(op->userdata, fd);
	(void)op_free(op);
}

static void on_looked(void *userdata, int status, const char *body, size_t size)
{
	struct op *op = userdata;
	bool is_gone = status == HTTP_NOT_FOUND ||
		       (status == HTTP_OK && remote_json_state(body, size) == REMOTE_ENDED);

	op_stream(op, is_gone ? -ENOENT : op->result);
}

/* Who knows that it ended need not try again. */
static void on_stream(void *userdata, int status, int fd)
{
	struct op *op = userdata;
	const struct log_context context = {.session = &op->id};

	if (fd >= 0 || status == HTTP_NOT_FOUND) {
		op_stream(op, fd >= 0 ? fd : -ENOENT);
		return;
	}
	/* It is tried again and again: whoever gives up says so. */
	log_line(LOG_LEVEL_DEBUG, &context, "the remote service gives no stream", "status=%d",
		 status);
	op->result = status < 0 ? status : -EIO;
	if (status < 0 || send_about(op, "GET", "", NULL, on_looked) < 0)
		op_stream(op, op->result);
}

static int remote_connect(struct engine *engine, const struct id *id, engine_stream done,
			  void *userdata)
{
	struct remote *remote = remote_of(engine);
	struct op *op = op_new(remote, id, userdata);
	char path[PATH_BYTES];
	int r;

	if (!op)
		return -ENOMEM;
	op->stream = done;
	r = path_of(op, "/stream", path);
	if (r == 0)
		r = remote_client_stream(remote->options.client,
					 &(struct http_request){.method = "POST",
								.path = path,
								.timeout = SHORT_TIMEOUT},
					 on_stream, op);
	if (r < 0)
		(void)op_free(op);
	return r;
}

/* --- list ------------------------------------------------------------------------------------ */

struct list_op {
	struct remote *remote;
	struct engine_list list;
	usec_t give_up;
	uint32_t n; /* more than there is room for: too many */
	char after[REMOTE_PAGE_BYTES];
	struct found {
		struct id id;
		bool is_paused;
		bool lives;
	} found[MAX_SANDBOXES];
};

static bool was_found(const struct list_op *op, const struct id *id)
{
	for (uint32_t i = 0; i < op->n; i++)
		if (id_equal(&op->found[i].id, id))
			return true;
	return false;
}

static void on_each(void *userdata, const struct id *id, bool is_paused, bool lives)
{
	struct list_op *op = userdata;

	if (op->n > MAX_SANDBOXES)
		return;
	if (op->n == MAX_SANDBOXES) {
		op->n++;
		return;
	}
	/* A second handle would end the first one. */
	if (!was_found(op, id))
		op->found[op->n++] =
			(struct found){.id = *id, .is_paused = is_paused, .lives = lives};
}

/* Of one that is no list nothing is told: what it says lives would be ended again, and each try
 * would say others. */
static void tell_all(const struct list_op *op)
{
	for (uint32_t i = 0; i < op->n; i++)
		op->list.each(op->list.userdata, &op->found[i].id, op->found[i].is_paused,
			      op->found[i].lives);
}

static int ask_page(struct list_op *op);

/* A list that does not end is none: who asked for it does not wait for ever. */
static int take_page(struct list_op *op, int status, const char *body, size_t size)
{
	char next[REMOTE_PAGE_BYTES];
	int r;

	if (clock_boottime() >= op->give_up)
		return -ETIMEDOUT;
	if (status != HTTP_OK)
		return status < 0 ? status : -EIO;
	r = remote_json_list(body, size, on_each, op, next);
	if (r < 0)
		return r;
	if (op->n > MAX_SANDBOXES || (next[0] != '\0' && str_equal(next, op->after)))
		return -EBADMSG;
	memcpy(op->after, next, sizeof(op->after));
	return next[0] != '\0' ? ask_page(op) : 0;
}

static void on_page(void *userdata, int status, const char *body, size_t size)
{
	struct list_op *op = userdata;
	int r = take_page(op, status, body, size);

	if (r == 0 && op->after[0] != '\0')
		return;
	if (r == 0)
		tell_all(op);
	op->list.done(op->list.userdata, r);
	free(op);
}

static int ask_page(struct list_op *op)
{
	usec_t now = clock_boottime();
	char path[PATH_BYTES];
	int r;

	/* An instance's name needs no escape. */
	r = str_format(path, sizeof(path), "/sandboxes?instance=%s%s%s",
		       op->remote->options.instance, op->after[0] != '\0' ? "&after=" : "",
		       op->after);
	if (r < 0)
		return r;
	return remote_client_send(op->remote->options.client,
				  &(struct http_request){
					  .method = "GET",
					  .path = path,
					  .timeout = (op->give_up > now ? op->give_up - now : 0) +
						     USEC_PER_MS, /* none is no bound */
					  .max_bytes = PAGE_BYTES,
				  },
				  on_page, op);
}

static int remote_list(struct engine *engine, const struct engine_list *list)
{
	struct list_op *op = calloc(1, sizeof(*op));
	int r;

	if (!op)
		return -ENOMEM;
	op->remote = remote_of(engine);
	op->list = *list;
	op->give_up = clock_add(clock_boottime(), SOON_TIMEOUT);
	r = ask_page(op);
	if (r < 0)
		free(op);
	return r;
}

static const struct engine_calls remote_calls = {
	.start = remote_start,
	.remove = remote_remove,
	.pause = remote_pause,
	.connect = remote_connect,
	.stat = remote_stat,
	.list = remote_list,
};

int remote_new(const struct remote_options *options, struct engine **ret_engine)
{
	struct remote *remote = calloc(1, sizeof(*remote));

	if (!remote)
		return -ENOMEM;
	remote->engine.calls = &remote_calls;
	remote->options = *options;
	*ret_engine = &remote->engine;
	return 0;
}
