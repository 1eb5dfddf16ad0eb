/*
 * What operators ask: capabilities, and the proof and trace of a launch.
 */
#include <errno.h>
#include <string.h>

#include "base/launch.h"
#include "base/str.h"

#include "sandboxd/api.h"
#include "sandboxd/kernel.h"
#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/features.h"
#include "supervisor/api/http/reply.h"
#include "supervisor/api/live.h"
#include "supervisor/api/provider.h"
#include "supervisor/api/stats.h"

/* Capabilities. */

static json_t *profile_list(const struct app *app)
{
	json_t *list = json_array();
	const struct policy_profile *profile;

	for (uint32_t i = 0; (profile = image_profile(&app->policy, i)); i++) {
		char name[POLICY_NAME_BYTES + 1] = {0};

		if (profile->kind != POLICY_KIND_SESSION)
			continue;
		memcpy(name, profile->name, POLICY_NAME_BYTES);
		(void)json_array_append_new(
			list, json_pack("{s:s, s:I, s:I, s:i, s:i, s:i, s:i, s:i}", "name", name,
					"memory_bytes", (json_int_t)profile->limits.memory_bytes,
					"tmpfs_bytes", (json_int_t)profile->limits.tmpfs_bytes,
					"pids", (int)profile->limits.max_pids, "open_files",
					(int)profile->limits.max_files, "cpu_pct",
					(int)profile->limits.cpu_pct, "ttl_minutes",
					(int)profile->limits.ttl_minutes, "ttl_max_minutes",
					(int)profile->limits.ttl_max_minutes));
	}
	return list;
}

void action_capabilities(struct request *request)
{
	const struct app *app = request_app(request);
	json_t *endpoints = json_array();

	for (size_t i = 0; i < ENDPOINTS_N; i++)
		(void)json_array_append_new(endpoints, json_string(endpoint_name(i)));
	reply_json(request, MHD_HTTP_OK,
		   json_pack("{s:s, s:s, s:i, s:o, s:o, s:s, s:o, s:o, s:{s:b}}", "api_version",
			     API_VERSION, "version", SANDBOXD_VERSION, "max_sessions",
			     (int)app->config->max_sessions, "profiles", profile_list(app),
			     "endpoints", endpoints, "store",
			     app->config->store_dsn[0] ? "postgresql" : "sqlite", "providers",
			     provider_describe_all(app), "features", features_list(), "templates",
			     "owners_mapped",
			     (app->facts.kernel_probes & KERNEL_STATE_IDMAP) != 0));
}

/* Proof and trace. */

static const struct {
	uint32_t bit;
	const char *name;
} proof_names[] = {
	{PROOF_NS_MNT,          "ns_mnt"         },
	{PROOF_NS_NET,          "ns_net"         },
	{PROOF_NS_PID,          "ns_pid"         },
	{PROOF_NS_IPC,          "ns_ipc"         },
	{PROOF_NS_UTS,          "ns_uts"         },
	{PROOF_NS_CGROUP,       "ns_cgroup"      },
	{PROOF_NS_USER,         "ns_user"        },
	{PROOF_SECCOMP_SHIM,    "seccomp_shim"   },
	{PROOF_SECCOMP_SPAWNER, "seccomp_spawner"},
	{PROOF_NO_NEW_PRIVS,    "no_new_privs"   },
	{PROOF_CAPS_SHIM,       "caps_shim"      },
	{PROOF_CAPS_SPAWNER,    "caps_spawner"   },
	{PROOF_IDS,             "ids"            },
	{PROOF_ID_MAP,          "id_map"         },
	{PROOF_USERNS_CEILING,  "userns_ceiling" },
	{PROOF_MEMORY,          "memory"         },
	{PROOF_PIDS,            "pids"           },
	{PROOF_CPU,             "cpu"            },
	{PROOF_RLIMITS,         "rlimits"        },
	{PROOF_LANDLOCK,        "landlock"       },
	{PROOF_EGRESS,          "egress"         },
};

static json_t *proof_list(uint64_t bits)
{
	json_t *list = json_array();

	for (size_t i = 0; i < ARRAY_SIZE(proof_names); i++)
		if (bits & proof_names[i].bit)
			(void)json_array_append_new(list, json_string(proof_names[i].name));
	return list;
}

static json_t *proof_namespaces(const struct launch_proof *proof)
{
	static const char *const names[] = {"mnt", "net", "pid", "ipc", "uts", "cgroup", "user"};
	json_t *all = json_object();

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		(void)json_object_set_new(all, names[i],
					  json_pack("{s:I, s:I}", "session",
						    (json_int_t)proof->ns_inode[i], "host",
						    (json_int_t)proof->host_ns_inode[i]));
	return all;
}

static json_t *proof_document(const char *session, const struct launch_proof *proof)
{
	char shim[24];
	char spawner[24];

	if (str_format(shim, sizeof(shim), "%016llx", (unsigned long long)proof->caps_shim) < 0 ||
	    str_format(spawner, sizeof(spawner), "%016llx",
		       (unsigned long long)proof->caps_spawner) < 0)
		return NULL;
	return json_pack("{s:s, s:I, s:i, s:o, s:o, s:o, s:o, s:{s:s, s:s}, s:{s:I, s:I, s:I}}",
			 "session_id", session, "id_base", (json_int_t)proof->id_base, "shim_pid",
			 proof->shim_pid, "wanted", proof_list(proof->wanted), "in_force",
			 proof_list(proof->in_force), "limits_missing",
			 proof_list(proof->limits_missing), "namespaces", proof_namespaces(proof),
			 "capabilities", "shim", shim, "spawner", spawner, "limits", "memory_bytes",
			 (json_int_t)proof->memory_bytes, "pids", (json_int_t)proof->max_pids,
			 "cpu_pct", (json_int_t)proof->cpu_pct);
}

static json_t *trace_document(const char *session, const struct launch_trace *trace)
{
	static const char *const sides[] = {"parent", "child", "shim"};
	json_t *steps = json_array();

	for (uint32_t i = 0; i < trace->n && i < LAUNCH_TRACE_MAX; i++) {
		const struct launch_trace_step *step = &trace->step[i];
		char name[LAUNCH_TRACE_NAME + 1] = {0};

		memcpy(name, step->name, LAUNCH_TRACE_NAME);
		str_printable(name);
		(void)json_array_append_new(
			steps, json_pack("{s:s, s:I, s:s}", "name", name, "us",
					 (json_int_t)step->us, "side",
					 step->side < ARRAY_SIZE(sides) ? sides[step->side] : "?"));
	}
	return json_pack("{s:s, s:o}", "session_id", session, "steps", steps);
}

struct inspect {
	struct app *app;
	struct answer_to to;
	struct id session;
};

/* The supervisor knows trees alone: whether there is a session is ours to say. */
static void reply_no_tree(struct request *request, const struct session *session)
{
	if (session && session_is_visible(session, clock_realtime()))
		reply_detail(request, MHD_HTTP_CONFLICT, "the session has no process tree now");
	else
		reply_not_found(request);
}

static void on_inspected(void *userdata, const struct launch_msg *answer, int fd)
{
	struct inspect *inspect = userdata;
	struct request *request = answer_get(&inspect->to);
	struct session *known = registry_find(&inspect->app->registry, &inspect->session);
	char session[ID_TEXT_BYTES];

	(void)fd_close(fd);
	id_format(&inspect->session, session);
	free(inspect);
	if (!request)
		return;
	if (!answer)
		reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE,
			     "the supervisor did not answer");
	else if (answer->error == LAUNCH_E_NOT_FOUND)
		reply_no_tree(request, known);
	else if (answer->error != LAUNCH_E_NONE)
		reply_detail(request, MHD_HTTP_CONFLICT, launch_error_text(answer->error));
	else if (answer->type == LAUNCH_PROOF + 1)
		reply_json(request, MHD_HTTP_OK, proof_document(session, &answer->u.proof));
	else if (answer->type == LAUNCH_STAT + 1)
		stats_reply(request, known, session, &answer->u.stat);
	else
		reply_json(request, MHD_HTTP_OK, trace_document(session, &answer->u.trace));
}

static void inspect(struct request *request, const struct session *session, provider_ask *what)
{
	struct app *app = request_app(request);
	struct inspect *op = calloc(1, sizeof(*op));
	int r = -ENOMEM;

	if (op) {
		op->app = app;
		op->to = answer_to(request);
		op->session = session->id;
		r = what(app, &session->id, on_inspected, op);
		if (r >= 0)
			return;
		free(op);
	}
	if (r == -EOPNOTSUPP)
		reply_runtime_error(request, RUNTIME_NOT_SUPPORTED, NULL);
	else
		reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE, "its provider cannot be asked");
}

void action_proof(struct request *request, struct session *session)
{
	inspect(request, session, live_of(session)->provider->proof);
}

void action_trace(struct request *request, struct session *session)
{
	inspect(request, session, live_of(session)->provider->trace);
}

void action_stats(struct request *request, struct session *session)
{
	inspect(request, session, live_of(session)->provider->stat);
}
