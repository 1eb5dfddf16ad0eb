#include "supervisor/api/session/summary.h"

#include "base/id.h"

#include "sandboxd/launch.h"
#include "sandboxd/template.h"
#include "supervisor/api/jobs/progress.h"

/* A list shows hundreds of sessions, and answers wait for slow readers: what one session adds to an
 * answer is bounded, problem_count says how many there are. All are `log` frames of a task. */
#define SUMMARY_MAX_PROBLEMS 100

static json_t *text_or_null(const char *text)
{
	return text[0] != '\0' ? json_string(text) : json_null();
}

static json_t *iso_time(usec_t at)
{
	char text[CLOCK_ISO_BYTES];

	clock_format_iso(at, text);
	return json_string(text);
}

static json_t *component_names(const struct session *session)
{
	json_t *names = json_array();

	for (size_t i = 0; names && i < session->n_components; i++)
		if (json_array_append_new(names, json_string(session->component[i].name)) < 0) {
			json_decref(names);
			return NULL;
		}
	return names;
}

static json_t *asset_keys(const struct load_result *load)
{
	json_t *keys = json_array();

	for (size_t i = 0; keys && i < load->n_assets; i++) {
		const char *file = load->asset[i].file;

		if (json_array_append_new(keys, json_pack("[s, s%]", "sandbox", file,
							  load_stem_length(file))) < 0) {
			json_decref(keys);
			return NULL;
		}
	}
	return keys;
}

json_t *summary_endpoint_sources(const struct session *session,
				 const struct summary_context *context)
{
	json_t *sources = json_object();

	for (size_t i = 0; sources && i < ENDPOINTS_N; i++) {
		enum endpoint_source source;

		(void)environment_endpoint(session->spec.endpoint[i], context->operator_default[i],
					   i, &source);
		if (json_object_set_new(sources, endpoint_name(i),
					json_string(endpoint_source_text(source))) < 0) {
			json_decref(sources);
			return NULL;
		}
	}
	return sources;
}

/* What is in force. A limit that this host cannot set is null, never a number that is not true. */
json_t *summary_limits(const struct session *session)
{
	const struct plan *plan = &session->plan;
	uint64_t missing = session->limits_missing;

	return json_pack(
		"{s:I, s:I, s:o, s:o, s:I, s:o}", "tmpfs_bytes", (json_int_t)plan->tmpfs_bytes,
		"tmpfs_inodes", (json_int_t)plan->tmpfs_inodes, "memory_bytes",
		missing & PROOF_MEMORY ? json_null() : json_integer((json_int_t)plan->memory_bytes),
		"pids",
		missing & PROOF_PIDS ? json_null() : json_integer((json_int_t)plan->max_pids),
		"open_files", (json_int_t)plan->max_files, "cpu_pct",
		missing & PROOF_CPU ? json_null() : json_integer((json_int_t)plan->cpu_pct));
}

static json_t *extension(const struct session *session, const struct summary_context *context)
{
	return json_pack("{s:b, s:b, s:s, s:o, s:o, s:s, s:o, s:I, s:o}", "persisted",
			 session_persisted(session), "degraded", session->n_degraded > 0, "tree",
			 session_tree_text(session), "limits_effective", summary_limits(session),
			 "endpoint_sources", summary_endpoint_sources(session, context), "host",
			 context->host, "problems",
			 progress_problems(&session->load, SUMMARY_MAX_PROBLEMS), "problem_count",
			 (json_int_t)session->load.n_problems, "name",
			 text_or_null(session->spec.name));
}

json_t *summary_session(const struct session *session, const struct summary_context *context)
{
	char id[ID_TEXT_BYTES];

	id_format(&session->id, id);
	return json_pack(
		"{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:O, s:s, s:o}", "id", id, "owner",
		session->owner, "workspace_id", text_or_null(session->workspace), "project_id",
		text_or_null(session->project), "created_at", iso_time(session->created_at),
		"expires_at", iso_time(session->expires_at), "components", component_names(session),
		"asset_keys", asset_keys(&session->load), "last_run_id",
		text_or_null(session->last_run_id), "log_summary", session->log_summary, "status",
		session_status_text(session->state), "sandbox", extension(session, context));
}

/* Whether its commands run is the whole of it. */
static const char *sandbox_status(const struct session *session)
{
	switch (session->suspension.state) {
	case SUSPENSION_SUSPENDING:
	case SUSPENSION_SUSPENDED:
		return suspension_text(session->suspension.state);
	case SUSPENSION_RUNNING:
	case SUSPENSION_RESUMING:
	case SUSPENSION_MAX_:
		break;
	}
	return session_status_text(session->state);
}

json_t *summary_sandbox(const struct session *session, const struct summary_context *context)
{
	const struct spec_runtime *runtime = &session->spec.runtime;
	char organization[SPEC_ORGANIZATION_MAX + 1] = "";
	char id[ID_TEXT_BYTES];

	id_format(&session->id, id);
	if (!session->operator_owned || session->workspace[0] != '\0')
		session_organization(session->owner, session->workspace, organization);
	return json_pack(
		"{s:s, s:s, s:s, s:o, s:o, s:b, s:b, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:I, s:b, s:s, s:s}",
		"sandbox_uuid", id, "status", sandbox_status(session), "profile",
		session->spec.profile, "created_at", iso_time(session->created_at), "expires_at",
		iso_time(session->expires_at), "persisted", session_persisted(session), "degraded",
		session->n_degraded > 0, "limits_effective", summary_limits(session), "host",
		context->host, "name", text_or_null(session->spec.name), "organization_uuid",
		text_or_null(organization), "project_uuid", text_or_null(session->project),
		"metadata", runtime->metadata ? json_incref(runtime->metadata) : json_object(),
		"workspace", runtime->workspace ? json_incref(runtime->workspace) : json_null(),
		"generation", (json_int_t)session->suspension.generation, "durable",
		suspension_is_durable(&session->suspension), "template",
		runtime->template[0] != '\0' ? runtime->template : TEMPLATE_BASE, "provider",
		session->provider[0] != '\0' ? session->provider : "native");
}
