#include "supervisor/provider/engine_json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/str.h"

#include "sandboxd/contain.h"

#define NSEC_PER_USEC 1000

static const char *const programs[] = {"sandbox-contain", "sandbox-shim",    "sandbox-loader",
				       "sandbox-git",     "sandbox-archive", "policy.img"};

static json_t *binds(const char *programs_dir)
{
	json_t *all = json_array();

	for (size_t i = 0; all && i < ARRAY_SIZE(programs); i++) {
		char bind[1024];

		if (str_format(bind, sizeof(bind), "%s/%s:" CONTAIN_DIR "/%s:ro", programs_dir,
			       programs[i], programs[i]) < 0 ||
		    json_array_append_new(all, json_string(bind)) < 0) {
			json_decref(all);
			return NULL;
		}
	}
	return all;
}

static json_t *mounts(uint64_t bytes)
{
	static const char small[] = "rw,noexec,nosuid,nodev,mode=0755,size=65536";
	char session[128];
	char tmp[128];

	if (str_format(session, sizeof(session), "rw,exec,nosuid,nodev,mode=0755,size=%llu",
		       (unsigned long long)bytes) < 0 ||
	    str_format(tmp, sizeof(tmp), "rw,exec,nosuid,nodev,mode=1777,size=%llu",
		       (unsigned long long)bytes) < 0)
		return NULL;
	/* podman gives a read-only root /run and /var/tmp for everybody, without a limit. */
	return json_pack("{s:s, s:s, s:s, s:s, s:s}", "/session", session, "/tmp", tmp, "/run",
			 small, "/var/tmp", small, CONTAIN_SOCKET_DIR,
			 "rw,noexec,nosuid,nodev,mode=0700,size=65536");
}

/*
 * The capabilities are the shim's, which gives them to no command, and CHOWN of its start. The
 * engine is asked for no network: nobody would enforce rules there.
 */
static json_t *host_config(const struct engine_container *container)
{
	const struct plan *plan = container->plan;
	json_int_t memory = (json_int_t)plan->memory_bytes;
	json_int_t files = (json_int_t)plan->max_files;
	json_int_t processes = container->max_processes;
	json_error_t error;

	return json_pack_ex(
		&error, 0,
		"{s:o, s:o, s:s, s:b, s:[s], s:[sssss], s:[s], s:I, s:I, s:I, s:I, s:s, "
		"s:[{s:s, s:I, s:I}, {s:s, s:I, s:I}]}",
		"Binds", binds(container->programs_dir), "Tmpfs", mounts(plan->tmpfs_bytes),
		"NetworkMode", "none", "ReadonlyRootfs", 1, "CapDrop", "ALL", "CapAdd", "CHOWN",
		"KILL", "SETGID", "SETUID", "SETPCAP", "SecurityOpt", "no-new-privileges", "Memory",
		memory, "MemorySwap", memory, "PidsLimit", (json_int_t)plan->max_pids, "NanoCpus",
		(json_int_t)plan->cpu_pct * 10 * 1000 * 1000, "IpcMode", "private", "Ulimits",
		"Name", "nofile", "Soft", files, "Hard", files, "Name", "nproc", "Soft", processes,
		"Hard", processes);
}

char *engine_json_container(const struct engine_container *container)
{
	char sandbox[ID_TEXT_BYTES];
	char files[16];
	struct id id;
	json_t *document;
	char *text;

	memcpy(id.bytes, container->plan->session, ID_BYTES);
	id_format(&id, sandbox);
	if (str_format(files, sizeof(files), "%u", container->plan->max_files) < 0)
		return NULL;
	/* A health check of the image's would run as uid 0. */
	document = json_pack(
		"{s:s, s:s, s:s, s:[sssss], s:[], s:[], s:{s:[s]}, s:b, s:b, s:{s:s, s:s}, s:o}",
		"Image", container->image, "User", "0:0", "WorkingDir", "/", "Entrypoint",
		CONTAIN_DIR "/sandbox-contain", "start", sandbox, container->profile, files, "Cmd",
		"Env", "Healthcheck", "Test", "NONE", "Tty", 0, "OpenStdin", 0, "Labels",
		ENGINE_LABEL_INSTANCE, container->instance, ENGINE_LABEL_SANDBOX, sandbox,
		"HostConfig", host_config(container));
	if (!document)
		return NULL;
	text = doc_format(document, 1);
	json_decref(document);
	return text;
}

const char *engine_json_exec(void)
{
	return "{\"AttachStdin\":true,\"AttachStdout\":true,\"AttachStderr\":true,\"Tty\":false,"
	       "\"User\":\"0:0\",\"WorkingDir\":\"/\",\"Privileged\":false,"
	       "\"Cmd\":[\"" CONTAIN_DIR "/sandbox-contain\",\"connect\"]}";
}

int engine_json_id(const char *body, size_t size, char ret_id[ENGINE_EXEC_BYTES])
{
	const char *reason;
	const char *text;
	json_t *document;
	int r;

	r = doc_parse(body, size, &document, &reason);
	if (r < 0)
		return r;
	text = json_string_value(json_object_get(document, "Id"));
	r = text && text[0] != '\0' && str_only(text, strlen(text), "") &&
			    str_copy(ret_id, ENGINE_EXEC_BYTES, text) == 0
		    ? 0
		    : -EBADMSG;
	json_decref(document);
	return r;
}

static void tell(const json_t *container, engine_json_each each, void *userdata)
{
	const char *text = json_string_value(
		json_object_get(json_object_get(container, "Labels"), ENGINE_LABEL_SANDBOX));
	const char *state = json_string_value(json_object_get(container, "State"));
	struct id id;
	bool is_paused = state && str_equal(state, "paused");

	/* Another one's, or of another time: it has our label, but it is none that we made. */
	if (!text || id_parse(text, &id) < 0)
		return;
	each(userdata, &id, is_paused, is_paused || (state && str_equal(state, "running")));
}

int engine_json_list(const char *body, size_t size, engine_json_each each, void *userdata)
{
	const json_t *container;
	const char *reason;
	json_t *document;
	size_t i;
	int r;

	r = doc_parse(body, size, &document, &reason);
	if (r < 0)
		return r;
	if (!json_is_array(document))
		r = -EBADMSG;
	json_array_foreach(document, i, container) tell(container, each, userdata);
	json_decref(document);
	return r;
}

/* 0 or -EBADMSG. */
static int state_of(const char *body, size_t size, bool *ret_runs, bool *ret_is_paused)
{
	const char *reason;
	const json_t *state;
	json_t *document;
	int r;

	r = doc_parse(body, size, &document, &reason);
	if (r < 0)
		return r;
	state = json_object_get(document, "State");
	r = json_is_boolean(json_object_get(state, "Running")) ? 0 : -EBADMSG;
	*ret_is_paused = json_is_true(json_object_get(state, "Paused"));
	*ret_runs = json_is_true(json_object_get(state, "Running"));
	json_decref(document);
	return r;
}

int engine_json_runs(const char *body, size_t size)
{
	bool runs, is_paused;
	int r = state_of(body, size, &runs, &is_paused);

	return r < 0 ? r : runs || is_paused;
}

int engine_json_is_paused(const char *body, size_t size)
{
	bool runs, is_paused;
	int r = state_of(body, size, &runs, &is_paused);

	if (r == 0 && !runs && !is_paused)
		r = -EBADMSG;
	return r < 0 ? r : is_paused;
}

static uint64_t number_of(const json_t *object, const char *key)
{
	json_int_t value = json_integer_value(json_object_get(object, key));

	return value > 0 ? (uint64_t)value : 0;
}

int engine_json_stat(const char *body, size_t size, struct launch_stat *ret_stat)
{
	const char *reason;
	const json_t *memory;
	const json_t *cpu;
	json_t *document;
	int r;

	*ret_stat = (struct launch_stat){0};
	r = doc_parse(body, size, &document, &reason);
	if (r < 0)
		return r;
	memory = json_object_get(document, "memory_stats");
	cpu = json_object_get(json_object_get(document, "cpu_stats"), "cpu_usage");
	ret_stat->memory_bytes = number_of(memory, "usage");
	ret_stat->memory_peak_bytes = number_of(memory, "max_usage");
	ret_stat->cpu_us = number_of(cpu, "total_usage") / NSEC_PER_USEC;
	ret_stat->n_pids = (uint32_t)number_of(json_object_get(document, "pids_stats"), "current");
	json_decref(document);
	return 0;
}
