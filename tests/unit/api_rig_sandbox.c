/*
 * What a test does with a sandbox of the rig, whoever's it is.
 */
#include <string.h>

#include "base/fd.h"
#include "base/str.h"

#include "tests/unit/api_rig.h"

/* --- its provider ---------------------------------------------------------------------------- */

struct launch_msg api_hear_of(struct api_rig *rig, const struct api_sandbox *sandbox,
			      enum launch_type type)
{
	struct launch_msg ask = api_hear(rig, sandbox->far, type);

	assert_memory_equal(ask.session, sandbox->id.bytes, ID_BYTES);
	return ask;
}

void api_answer_of(struct api_rig *rig, const struct api_sandbox *sandbox, enum launch_type type,
		   enum launch_error error)
{
	struct launch_msg ask = api_hear_of(rig, sandbox, type);

	api_answer(rig, sandbox->far, &ask, error);
}

void api_answer_stat(struct api_rig *rig, const struct api_sandbox *sandbox, enum launch_type type,
		     bool is_frozen)
{
	struct launch_msg ask = api_hear_of(rig, sandbox, type);
	struct launch_msg stat = api_answer_to(&ask, LAUNCH_E_NONE);

	stat.u.stat.frozen = is_frozen;
	stat.u.stat.memory_bytes = 4096;
	api_say(rig, sandbox->far, &stat, -1);
}

int api_give(struct api_rig *rig, enum api_far from, const struct launch_msg *answer)
{
	int fd;
	int shim = api_shim(rig, &fd);

	api_say(rig, from, answer, fd);
	(void)fd_close(fd);
	return shim;
}

int api_give_adopted(struct api_rig *rig, enum api_far from, const struct launch_msg *adopt,
		     const uint8_t session[ID_BYTES], bool is_frozen)
{
	struct launch_msg answer = api_answer_to(adopt, LAUNCH_E_NONE);

	answer.more = 1;
	answer.u.adopted.is_frozen = is_frozen;
	memcpy(answer.session, session, ID_BYTES);
	return api_give(rig, from, &answer);
}

int api_launch(struct api_rig *rig, enum api_far from, const struct launch_msg *start)
{
	const struct launch_msg answer = api_answer_to(start, LAUNCH_E_NONE);
	int shim = api_give(rig, from, &answer);

	api_shim_greet(rig, shim, start->session, 0);
	return shim;
}

/* --- its requests ---------------------------------------------------------------------------- */

int api_begin_create(struct api_rig *rig, enum api_far far, struct api_sandbox *ret_sandbox,
		     struct launch_msg *ret_start)
{
	static const char *const bodies[API_FAR_MAX_] = {
		[API_FAR_FAKE] = "{\"provider\": \"fake\"}",
		[API_FAR_DOCKER] = "{\"provider\": \"docker\"}",
	};
	char id[ID_TEXT_BYTES];
	int call = api_send(rig, "POST", "/v1/sandboxes", bodies[far]);

	*ret_start = api_hear(rig, far, LAUNCH_START);
	ret_sandbox->far = far;
	memcpy(ret_sandbox->id.bytes, ret_start->session, ID_BYTES);
	id_format(&ret_sandbox->id, id);
	assert_int_equal(
		str_format(ret_sandbox->path, sizeof(ret_sandbox->path), "/v1/sandboxes/%s", id),
		0);
	return call;
}

void api_create(struct api_rig *rig, enum api_far far, struct api_sandbox *ret_sandbox)
{
	char id[ID_TEXT_BYTES];
	struct launch_msg start;
	json_t *doc = NULL;
	int call = api_begin_create(rig, far, ret_sandbox, &start);

	ret_sandbox->shim = api_launch(rig, far, &start);
	assert_int_equal(api_status(rig, call, &doc), 201);
	id_format(&ret_sandbox->id, id);
	assert_string_equal(json_string_value(json_object_get(doc, "sandbox_uuid")), id);
	json_decref(doc);
}

int api_post(struct api_rig *rig, const struct api_sandbox *sandbox, const char *what,
	     const char *body)
{
	char path[96];

	assert_int_equal(str_format(path, sizeof(path), "%s/%s", sandbox->path, what), 0);
	return api_send(rig, "POST", path, body);
}

int api_use(struct api_rig *rig, const struct api_sandbox *sandbox)
{
	return api_post(rig, sandbox, "commands", "{\"argv\": [\"hello\"]}");
}

int api_suspend(struct api_rig *rig, const struct api_sandbox *sandbox)
{
	return api_post(rig, sandbox, "suspend", "{\"durable\": \"never\"}");
}

void api_expect_state(struct api_rig *rig, const struct api_sandbox *sandbox, const char *status)
{
	json_t *doc = NULL;

	assert_int_equal(api_call(rig, "GET", sandbox->path, NULL, &doc), 200);
	assert_string_equal(json_string_value(json_object_get(doc, "status")), status);
	json_decref(doc);
}

void api_works(struct api_rig *rig, const struct api_sandbox *sandbox)
{
	json_t *doc = NULL;
	int call = api_use(rig, sandbox);

	api_shim_run(rig, sandbox->shim, "hello");
	assert_int_equal(api_status(rig, call, &doc), 200);
	assert_string_equal(json_string_value(json_object_get(doc, "stdout")), "hello");
	json_decref(doc);
}
