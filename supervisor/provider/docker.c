/*
 * Theory. A container has the name sandboxd-INSTANCE-ID, so that nothing has to be remembered to
 * find it again, and two sandboxes of one id cannot be. Each request below is a chain of one to
 * four HTTP requests, held together by a struct op.
 */
#include "supervisor/provider/docker.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"

#include "supervisor/provider/attach.h"
#include "supervisor/provider/engine_json.h"
#include "supervisor/provider/http.h"

#define SHORT_TIMEOUT (10 * USEC_PER_SEC)
#define LONG_TIMEOUT  (25 * USEC_PER_SEC) /* below what the api worker waits for a launch */
#define PATH_BYTES    512

#define HTTP_OK             200
#define HTTP_CREATED        201
#define HTTP_NO_CONTENT     204
#define HTTP_NOT_CHANGED    304
#define HTTP_NOT_FOUND      404
#define HTTP_CONFLICT       409
#define HTTP_INTERNAL_ERROR 500

struct docker {
	struct engine engine;
	struct docker_options options;
	struct http *http;
	int64_t max_processes;
};

struct op {
	struct docker *docker;
	struct id id;
	char *body; /* of the create */
	bool is_second_try;
	bool pauses; /* or lets go on */
	int result;
	engine_done done;
	engine_stream stream;
	engine_stat_done stat;
	void *userdata;
};

static struct docker *docker_of(struct engine *engine)
{
	return (struct docker *)engine; /* its first member */
}

static struct op *op_new(struct docker *docker, const struct id *id, void *userdata)
{
	struct op *op = calloc(1, sizeof(*op));

	if (op)
		*op = (struct op){.docker = docker, .id = *id, .userdata = userdata};
	return op;
}

static struct op *op_free(struct op *op)
{
	free(op->body);
	free(op);
	return NULL;
}

static void op_finish(struct op *op, int result)
{
	op->done(op->userdata, result);
	(void)op_free(op);
}

/* before and after the container's name. */
static int send_about(struct op *op, const char *method, const char *before, const char *after,
		      const char *body, http_done done)
{
	char path[PATH_BYTES];
	char id[ID_TEXT_BYTES];
	int r;

	id_format(&op->id, id);
	r = str_format(path, sizeof(path), "%ssandboxd-%s-%s%s", before,
		       op->docker->options.instance, id, after);
	if (r < 0)
		return r;
	return http_send(
		op->docker->http,
		&(struct http_request){
			.method = method, .path = path, .body = body, .timeout = LONG_TIMEOUT},
		done, op);
}

/* The engine's word, escaped and cut: it may name paths of the host, so it is for the log alone. */
static int result_of(const struct op *op, const char *what, int status, const char *body,
		     size_t size)
{
	struct log_context context = {.session = &op->id};
	char text[256];

	if (status == HTTP_NOT_FOUND)
		return -ENOENT;
	if (status >= HTTP_OK && status < 300)
		return 0;
	if (status == HTTP_NOT_CHANGED)
		return 0;
	(void)str_escape(text, sizeof(text), body ? body : "", size, false);
	log_line(LOG_LEVEL_ERROR, &context, "the engine refuses", "what=%s status=%d answer='%s'",
		 what, status, text);
	return status < 0 ? status : -EIO;
}

/* --- start ----------------------------------------------------------------------------------- */

static void on_undone(void *userdata, int status, const char *body, size_t size)
{
	struct op *op = userdata;

	(void)result_of(op, "remove", status, body, size);
	op_finish(op, op->result);
}

/* What was made goes first. */
static void undo(struct op *op, int result)
{
	op->result = result;
	if (send_about(op, "DELETE", "/containers/", "?force=true&v=true", NULL, on_undone) < 0)
		op_finish(op, result);
}

static void on_started(void *userdata, int status, const char *body, size_t size)
{
	struct op *op = userdata;
	int r = result_of(op, "start", status, body, size);

	if (r < 0)
		undo(op, r);
	else
		op_finish(op, 0);
}

static void on_cleared(void *userdata, int status, const char *body, size_t size);

static void on_created(void *userdata, int status, const char *body, size_t size)
{
	struct op *op = userdata;
	const struct log_context context = {.session = &op->id};
	int r;

	if (status == HTTP_CONFLICT && !op->is_second_try) {
		op->is_second_try = true;
		r = send_about(op, "DELETE", "/containers/", "?force=true&v=true", NULL,
			       on_cleared);
		if (r < 0)
			op_finish(op, r);
		return;
	}
	if (status == HTTP_NOT_FOUND)
		log_line(LOG_LEVEL_ERROR, &context, "the engine has not got the image", NULL);
	r = result_of(op, "create", status, body, size);
	if (r == 0)
		r = send_about(op, "POST", "/containers/", "/start", NULL, on_started);
	/* Without an answer it may be there, and so it is where only the rest failed. */
	if (r < 0 && (status < 0 || status == HTTP_CREATED))
		undo(op, r);
	else if (r < 0)
		op_finish(op, r);
}

static int create(struct op *op)
{
	return send_about(op, "POST", "/containers/create?name=", "", op->body, on_created);
}

static void on_cleared(void *userdata, int status, const char *body, size_t size)
{
	struct op *op = userdata;
	int r = result_of(op, "remove", status, body, size);

	if (r == 0 || r == -ENOENT)
		r = create(op);
	if (r < 0)
		op_finish(op, r);
}

static int docker_start(struct engine *engine, const struct plan *plan, const char *profile,
			engine_done done, void *userdata)
{
	struct docker *docker = docker_of(engine);
	const struct engine_container container = {
		.instance = docker->options.instance,
		.image = docker->options.config->image,
		.programs_dir = docker->options.config->programs_dir,
		.profile = profile,
		.plan = plan,
		.max_processes = docker->max_processes,
	};
	struct id id;
	struct op *op;
	int r = -ENOMEM;

	memcpy(id.bytes, plan->session, ID_BYTES);
	op = op_new(docker, &id, userdata);
	if (!op)
		return -ENOMEM;
	op->done = done;
	op->body = engine_json_container(&container);
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
	int r = result_of(op, "remove", status, body, size);

	op_finish(op, r == -ENOENT ? 0 : r);
}

static int send_simple(struct op *op, const char *method, const char *after, engine_done done,
		       http_done answered)
{
	int r;

	if (!op)
		return -ENOMEM;
	op->done = done;
	r = send_about(op, method, "/containers/", after, NULL, answered);
	if (r < 0)
		(void)op_free(op);
	return r;
}

static int docker_remove(struct engine *engine, const struct id *id, engine_done done,
			 void *userdata)
{
	return send_simple(op_new(docker_of(engine), id, userdata), "DELETE", "?force=true&v=true",
			   done, on_removed);
}

static void on_pause_looked(void *userdata, int status, const char *body, size_t size)
{
	struct op *op = userdata;
	bool is_so = status == HTTP_OK && engine_json_is_paused(body, size) == (int)op->pauses;

	op_finish(op, is_so ? 0 : op->result);
}

/* What is so already is refused, in words of each engine's own. */
static void on_paused(void *userdata, int status, const char *body, size_t size)
{
	struct op *op = userdata;

	op->result = result_of(op, "pause", status, body, size);
	if (op->result == -EIO &&
	    send_about(op, "GET", "/containers/", "/json", NULL, on_pause_looked) == 0)
		return;
	op_finish(op, op->result);
}

static int docker_pause(struct engine *engine, const struct id *id, bool pause, engine_done done,
			void *userdata)
{
	struct op *op = op_new(docker_of(engine), id, userdata);

	if (op)
		op->pauses = pause;
	return send_simple(op, "POST", pause ? "/pause" : "/unpause", done, on_paused);
}

static void on_stat(void *userdata, int status, const char *body, size_t size)
{
	struct op *op = userdata;
	struct launch_stat stat = {0};
	int r = result_of(op, "stats", status, body, size);

	if (r == 0)
		r = engine_json_stat(body, size, &stat);
	op->stat(op->userdata, r, &stat);
	(void)op_free(op);
}

static int docker_stat(struct engine *engine, const struct id *id, engine_stat_done done,
		       void *userdata)
{
	struct op *op = op_new(docker_of(engine), id, userdata);

	if (op)
		op->stat = done;
	return send_simple(op, "GET", "/stats?stream=false&one-shot=true", NULL, on_stat);
}

/* --- connect --------------------------------------------------------------------------------- */

static void on_stream(void *userdata, int fd)
{
	struct op *op = userdata;

	op->stream(op->userdata, fd);
	(void)op_free(op);
}

static void on_looked(void *userdata, int status, const char *body, size_t size)
{
	struct op *op = userdata;
	bool is_gone = status == HTTP_NOT_FOUND ||
		       (status == HTTP_OK && engine_json_runs(body, size) == 0);

	on_stream(op, is_gone ? -ENOENT : op->result);
}

/* podman refuses a command in a container that has ended as it does any other, so it is looked at:
 * who knows that it ended need not try again. */
static void look(struct op *op, int result)
{
	op->result = result;
	if (send_about(op, "GET", "/containers/", "/json", NULL, on_looked) < 0)
		on_stream(op, result);
}

static void on_exec(void *userdata, int status, const char *body, size_t size)
{
	struct op *op = userdata;
	char exec[ENGINE_EXEC_BYTES];
	struct attach *attach;
	/* 409: it does not run. */
	int r = status == HTTP_CONFLICT ? -ENOENT : result_of(op, "exec", status, body, size);

	if (r == 0)
		r = engine_json_id(body, size, exec);
	if (r == 0)
		r = attach_start(op->docker->options.loop, PROVIDER_ENGINE_PATH, exec, on_stream,
				 op, &attach);
	if (r < 0 && status >= HTTP_INTERNAL_ERROR)
		look(op, r);
	else if (r < 0)
		on_stream(op, r);
}

static int docker_connect(struct engine *engine, const struct id *id, engine_stream done,
			  void *userdata)
{
	struct op *op = op_new(docker_of(engine), id, userdata);
	int r;

	if (!op)
		return -ENOMEM;
	op->stream = done;
	r = send_about(op, "POST", "/containers/", "/exec", engine_json_exec(), on_exec);
	if (r < 0)
		(void)op_free(op);
	return r;
}

/* --- list ------------------------------------------------------------------------------------ */

struct list_op {
	struct engine_list list;
};

static void on_list(void *userdata, int status, const char *body, size_t size)
{
	struct list_op *op = userdata;
	int r = status == HTTP_OK ? engine_json_list(body, size, op->list.each, op->list.userdata)
				  : -EIO;

	op->list.done(op->list.userdata, r);
	free(op);
}

static int docker_list(struct engine *engine, const struct engine_list *list)
{
	struct docker *docker = docker_of(engine);
	struct list_op *op = calloc(1, sizeof(*op));
	char path[PATH_BYTES];
	int r;

	if (!op)
		return -ENOMEM;
	op->list = *list;
	/* {"label":["sandboxd.instance=..."]}; an instance's name needs no escape. */
	r = str_format(path, sizeof(path),
		       "/containers/json?all=true&filters=%%7B%%22label%%22%%3A%%5B%%22"
		       "%s%%3D%s%%22%%5D%%7D",
		       ENGINE_LABEL_INSTANCE, docker->options.instance);
	if (r == 0)
		r = http_send(docker->http,
			      &(struct http_request){
				      .method = "GET", .path = path, .timeout = SHORT_TIMEOUT},
			      on_list, op);
	if (r < 0)
		free(op);
	return r;
}

static const struct engine_calls docker_calls = {
	.wraps_streams = true,
	.start = docker_start,
	.remove = docker_remove,
	.pause = docker_pause,
	.connect = docker_connect,
	.stat = docker_stat,
	.list = docker_list,
};

int docker_new(const struct docker_options *options, struct engine **ret_engine)
{
	struct docker *docker = calloc(1, sizeof(*docker));
	struct rlimit limit;
	int r;

	if (!docker)
		return -ENOMEM;
	docker->engine.calls = &docker_calls;
	docker->options = *options;
	docker->max_processes =
		getrlimit(RLIMIT_NPROC, &limit) < 0 || limit.rlim_max == RLIM_INFINITY
			? -1
			: (int64_t)limit.rlim_max;
	r = http_new(
		&(struct http_options){.loop = options->loop, .socket_path = PROVIDER_ENGINE_PATH},
		&docker->http);
	if (r < 0) {
		free(docker);
		return r;
	}
	*ret_engine = &docker->engine;
	return 0;
}
