#include "supervisor/provider/remote_json.h"

#include <errno.h>
#include <string.h>

#include "base/json.h"
#include "base/str.h"

#include "sandboxd/contain.h"

#define SECONDS_MAX 86400

char *remote_json_sandbox(const struct engine_container *container)
{
	const struct plan *plan = container->plan;
	char sandbox[ID_TEXT_BYTES];
	char files[16];
	struct id id;
	json_t *document;
	char *text;

	memcpy(id.bytes, plan->session, ID_BYTES);
	id_format(&id, sandbox);
	if (str_format(files, sizeof(files), "%u", plan->max_files) < 0)
		return NULL;
	document = json_pack(
		"{s:s, s:s, s:s, s:[sssss], s:[ss], s:[sssss], s:s, s:b, s:{s:I, s:I, s:I, s:I}, "
		"s:{s:I, s:I, s:I}}",
		"instance", container->instance, "id", sandbox, "template", container->image,
		"command", CONTAIN_DIR "/sandbox-contain", "start", sandbox, container->profile,
		files, "stream_command", CONTAIN_DIR "/sandbox-contain", "connect", "capabilities",
		"CHOWN", "KILL", "SETGID", "SETUID", "SETPCAP", "network", "none", "read_only", 1,
		"limits", "memory_bytes", (json_int_t)plan->memory_bytes, "processes",
		(json_int_t)plan->max_pids, "cpu_percent", (json_int_t)plan->cpu_pct, "open_files",
		(json_int_t)plan->max_files, "scratch", "/session", (json_int_t)plan->tmpfs_bytes,
		"/tmp", (json_int_t)plan->tmpfs_bytes, CONTAIN_SOCKET_DIR, (json_int_t)65536);
	if (!document)
		return NULL;
	text = doc_format(document, 1);
	json_decref(document);
	return text;
}

/* NULL: none, or one with a NUL in it. */
static const char *text_of(const json_t *object, const char *key)
{
	const json_t *text = json_object_get(object, key);
	const char *value = json_string_value(text);

	return value && strlen(value) == json_string_length(text) ? value : NULL;
}

/* Printable, and no space: it is part of a header. */
static bool is_token(const char *text)
{
	size_t length = text ? strlen(text) : 0;

	for (size_t i = 0; i < length; i++)
		if (text[i] <= 0x20 || text[i] >= 0x7f)
			return false;
	return length > 0;
}

int remote_json_token(const char *body, size_t size, char ret_token[REMOTE_TOKEN_BYTES],
		      uint32_t *ret_seconds)
{
	const char *reason;
	const char *token;
	json_int_t seconds;
	json_t *document;
	int r;

	r = doc_parse(body, size, &document, &reason);
	if (r < 0)
		return r;
	token = text_of(document, "token");
	seconds = json_integer_value(json_object_get(document, "expires_in"));
	r = is_token(token) && seconds > 0 && str_copy(ret_token, REMOTE_TOKEN_BYTES, token) == 0
		    ? 0
		    : -EBADMSG;
	if (r == 0)
		*ret_seconds = (uint32_t)(seconds > SECONDS_MAX ? SECONDS_MAX : seconds);
	json_decref(document);
	return r;
}

static int state_of(const json_t *sandbox)
{
	static const char *const names[] = {
		[REMOTE_STARTING] = "starting",
		[REMOTE_RUNNING] = "running",
		[REMOTE_PAUSED] = "paused",
	};
	const char *text = text_of(sandbox, "state");

	if (!text)
		return -EBADMSG;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (str_equal(text, names[i]))
			return (int)i;
	return REMOTE_ENDED;
}

int remote_json_state(const char *body, size_t size)
{
	const char *reason;
	json_t *document;
	int r;

	r = doc_parse(body, size, &document, &reason);
	if (r < 0)
		return r;
	r = state_of(document);
	json_decref(document);
	return r;
}

/* One that is not ours, or has no state, is none. */
static void tell(const json_t *sandbox, engine_json_each each, void *userdata)
{
	const char *text = text_of(sandbox, "id");
	int state = state_of(sandbox);
	struct id id;

	if (!text || id_parse(text, &id) < 0 || state < 0)
		return;
	each(userdata, &id, state == REMOTE_PAUSED,
	     state == REMOTE_RUNNING || state == REMOTE_PAUSED);
}

int remote_json_list(const char *body, size_t size, engine_json_each each, void *userdata,
		     char ret_next[REMOTE_PAGE_BYTES])
{
	const json_t *sandboxes;
	const json_t *sandbox;
	const char *reason;
	const char *next;
	json_t *document;
	size_t i;
	int r;

	ret_next[0] = '\0';
	r = doc_parse(body, size, &document, &reason);
	if (r < 0)
		return r;
	sandboxes = json_object_get(document, "sandboxes");
	next = text_of(document, "next");
	if (!json_is_array(sandboxes) ||
	    (next && (!str_only(next, strlen(next), "._-") ||
		      str_copy(ret_next, REMOTE_PAGE_BYTES, next) < 0)))
		r = -EBADMSG;
	if (r == 0)
		json_array_foreach(sandboxes, i, sandbox) tell(sandbox, each, userdata);
	json_decref(document);
	return r;
}

static uint64_t number_of(const json_t *object, const char *key)
{
	json_int_t value = json_integer_value(json_object_get(object, key));

	return value > 0 ? (uint64_t)value : 0;
}

int remote_json_stat(const char *body, size_t size, struct launch_stat *ret_stat)
{
	const char *reason;
	json_t *document;
	uint64_t n_pids;
	int r;

	*ret_stat = (struct launch_stat){0};
	r = doc_parse(body, size, &document, &reason);
	if (r < 0)
		return r;
	ret_stat->memory_bytes = number_of(document, "memory_bytes");
	ret_stat->memory_peak_bytes = number_of(document, "memory_peak_bytes");
	ret_stat->cpu_us = number_of(document, "cpu_us");
	n_pids = number_of(document, "processes");
	ret_stat->n_pids = n_pids > INT32_MAX ? INT32_MAX : (uint32_t)n_pids;
	json_decref(document);
	return 0;
}
