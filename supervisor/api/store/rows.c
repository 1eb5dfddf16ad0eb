#include "supervisor/api/store/rows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/num.h"
#include "base/plant.h"
#include "base/str.h"

#include "supervisor/api/session/endpoint.h"

/* Limits of a plan that the row keeps, in one table for both directions. */
static const struct {
	const char *name;
	size_t offset;
	size_t size;
} limits[] = {
	{"tmpfs_bytes",  offsetof(struct plan, tmpfs_bytes),  sizeof(uint64_t)},
	{"tmpfs_inodes", offsetof(struct plan, tmpfs_inodes), sizeof(uint64_t)},
	{"memory_bytes", offsetof(struct plan, memory_bytes), sizeof(uint64_t)},
	{"pids",         offsetof(struct plan, max_pids),     sizeof(uint32_t)},
	{"open_files",   offsetof(struct plan, max_files),    sizeof(uint32_t)},
	{"cpu_pct",      offsetof(struct plan, cpu_pct),      sizeof(uint32_t)},
	{"cpu_weight",   offsetof(struct plan, cpu_weight),   sizeof(uint32_t)},
	{"ptys",         offsetof(struct plan, max_ptys),     sizeof(uint32_t)},
};

static uint64_t limit_get(const struct plan *plan, size_t index)
{
	uint64_t wide;
	uint32_t narrow;

	if (limits[index].size == sizeof(wide)) {
		memcpy(&wide, (const char *)plan + limits[index].offset, sizeof(wide));
		return wide;
	}
	memcpy(&narrow, (const char *)plan + limits[index].offset, sizeof(narrow));
	return narrow;
}

static void limit_set(struct plan *plan, size_t index, uint64_t wide)
{
	uint32_t narrow = (uint32_t)wide;

	if (limits[index].size == sizeof(wide))
		memcpy((char *)plan + limits[index].offset, &wide, sizeof(wide));
	else
		memcpy((char *)plan + limits[index].offset, &narrow, sizeof(narrow));
}

static char *take_text(json_t *doc)
{
	char *text = doc ? doc_format(doc, 0) : NULL;

	json_decref(doc);
	return text;
}

static char *format_limits(const struct plan *plan)
{
	json_t *doc = json_object();

	for (size_t i = 0; i < ARRAY_SIZE(limits); i++)
		(void)json_object_set_new(doc, limits[i].name,
					  json_integer((json_int_t)limit_get(plan, i)));
	return take_text(doc);
}

static char *format_overrides(const struct session *session)
{
	json_t *doc = json_object();

	for (size_t i = 0; i < ENDPOINTS_N; i++)
		if (session->spec.endpoint[i])
			(void)json_object_set_new(doc, endpoint_name(i),
						  json_string(session->spec.endpoint[i]));
	return take_text(doc);
}

static char *format_envs(const struct session *session)
{
	json_t *doc = json_array();

	for (size_t i = 0; i < session->spec.n_env; i++)
		(void)json_array_append_new(doc, json_string(session->spec.env[i]));
	return take_text(doc);
}

static char *format_secrets(const struct session *session)
{
	json_t *doc = json_array();

	for (size_t i = 0; i < session->spec.n_secrets; i++)
		(void)json_array_append_new(doc, json_string(session->spec.secret[i]));
	return take_text(doc);
}

static char *format_allow(const struct session *session)
{
	json_t *doc = json_array();

	for (size_t i = 0; i < session->spec.egress.n_allow; i++)
		(void)json_array_append_new(doc, json_string(session->spec.egress.allow[i]));
	return take_text(doc);
}

void rows_session_insert(struct write *write, const struct session *session, const char *host)
{
	AUTO_FREE char *overrides = format_overrides(session);
	AUTO_FREE char *envs = format_envs(session);
	AUTO_FREE char *limits_text = format_limits(&session->plan);
	AUTO_FREE char *secrets = format_secrets(session);
	AUTO_FREE char *allow = format_allow(session);
	AUTO_FREE char *runtime = spec_runtime_format(&session->spec.runtime);
	char id[ID_TEXT_BYTES];
	char expires[CLOCK_ISO_BYTES];
	char created[CLOCK_ISO_BYTES];
	const struct value values[] = {
		value_id(&session->id, id),
		value_text(session_status_text(session->state)),
		value_time(session->expires_at, expires),
		value_time(session->created_at, created),
		session->operator_owned ? VALUE_NOTHING : value_text(session->owner),
		value_text_or_null(session->workspace),
		value_text_or_null(session->project),
		value_text(overrides),
		value_integer(session->spec.ttl_minutes),
		session->operator_owned ? value_text(session->owner) : VALUE_NOTHING,
		value_text(session->dagster ? "dagster" : "runtime"),
		value_text(session->spec.profile),
		value_text(envs),
		value_text(limits_text),
		value_text(host),
		value_text(secrets),
		value_text_or_null(session->spec.name),
		value_text(allow),
		value_text(runtime),
	};

	if (write && (!overrides || !envs || !limits_text || !secrets || !allow || !runtime))
		write->failed = true;
	write_add(write, QUERY_SESSION_INSERT, values, ARRAY_SIZE(values));
	rows_registry(write, session, session->created_at);
}

void rows_session_status(struct write *write, const struct session *session, usec_t now)
{
	char id[ID_TEXT_BYTES];
	char expires[CLOCK_ISO_BYTES];
	char updated[CLOCK_ISO_BYTES];
	const struct value values[] = {
		value_id(&session->id, id),
		value_text(session_status_text(session->state)),
		value_text_or_null(session->last_run_id),
		value_time(session->expires_at, expires),
		value_time(now, updated),
		value_integer(session->spec.ttl_minutes),
	};

	write_add(write, QUERY_SESSION_STATUS, values, ARRAY_SIZE(values));
}

void rows_session_component(struct write *write, const struct id *session,
			    const struct store_component *component, usec_t now)
{
	char id[ID_TEXT_BYTES];
	char updated[CLOCK_ISO_BYTES];
	const struct value values[] = {
		value_id(session, id),
		value_text(component->file),
		value_bytes(component->body, component->body_length),
		value_integer((int64_t)component->body_length),
		value_text(component->origin),
		value_integer((int64_t)component->generation),
	};
	const struct value touch[] = {values[0], value_time(now, updated)};

	write_add(write, QUERY_SESSION_COMPONENT, values, ARRAY_SIZE(values));
	write_add(write, QUERY_SESSION_TOUCH, touch, ARRAY_SIZE(touch));
}

void rows_session_egress(struct write *write, const struct session *session, usec_t now)
{
	AUTO_FREE char *allow = format_allow(session);
	AUTO_FREE char *envs = format_envs(session);
	char id[ID_TEXT_BYTES];
	char updated[CLOCK_ISO_BYTES];
	const struct value values[] = {
		value_id(&session->id, id),
		value_text(allow),
		value_time(now, updated),
		value_text(envs),
	};

	if (write && (!allow || !envs))
		write->failed = true;
	write_add(write, QUERY_SESSION_EGRESS, values, ARRAY_SIZE(values));
}

void rows_registry(struct write *write, const struct session *session, usec_t now)
{
	const struct suspension *suspension = &session->suspension;
	AUTO_FREE char *snapshot =
		suspension->snapshot ? doc_format(suspension->snapshot, 0) : NULL;
	char organization[SPEC_ORGANIZATION_MAX + 1] = "";
	char id[ID_TEXT_BYTES];
	char created[CLOCK_ISO_BYTES];
	char updated[CLOCK_ISO_BYTES];

	session_organization(session->owner, session->workspace, organization);
	const struct value values[] = {
		value_id(&session->id, id),
		value_text_or_null(organization),
		value_text_or_null(session->project),
		value_text(suspension_text(suspension->state)),
		value_integer((int64_t)suspension->generation),
		value_integer((int64_t)suspension->durable_generation),
		value_text(snapshot),
		value_integer((int64_t)suspension->since),
		value_integer((int64_t)suspension->ttl_left),
		value_time(session->created_at, created),
		value_time(now, updated),
		value_integer(suspension->is_wanted),
		value_text(session->provider[0] ? session->provider : "native"),
	};

	if (write && suspension->snapshot && !snapshot)
		write->failed = true;
	write_add(write, QUERY_REGISTRY_PUT, values, ARRAY_SIZE(values));
}

void rows_session_runtime(struct write *write, const struct session *session, usec_t now)
{
	AUTO_FREE char *runtime = spec_runtime_format(&session->spec.runtime);
	char id[ID_TEXT_BYTES];
	char updated[CLOCK_ISO_BYTES];
	const struct value values[] = {
		value_id(&session->id, id),
		value_text(runtime),
		value_time(now, updated),
	};

	if (write && !runtime)
		write->failed = true;
	write_add(write, QUERY_SESSION_RUNTIME, values, ARRAY_SIZE(values));
}

void rows_session_log(struct write *write, const struct session *session, usec_t now)
{
	AUTO_FREE char *log = doc_format(session->log_summary, 0);
	char id[ID_TEXT_BYTES];
	char updated[CLOCK_ISO_BYTES];
	const struct value values[] = {
		value_id(&session->id, id),
		value_text(log),
		value_time(now, updated),
	};

	if (write && !log)
		write->failed = true;
	write_add(write, QUERY_SESSION_LOG, values, ARRAY_SIZE(values));
}

void rows_task_insert(struct write *write, const struct job *job)
{
	char id[ID_TEXT_BYTES];
	char session[ID_TEXT_BYTES];
	char created[CLOCK_ISO_BYTES];
	const struct value values[] = {
		value_id(&job->id, id),
		value_id(&job->session, session),
		value_text(job->owner),
		value_text(job->workspace),
		value_text(job_state_text(job->state)),
		value_text_or_null(job->request),
		value_time(job->created_at, created),
	};

	write_add(write, QUERY_TASK_INSERT, values, ARRAY_SIZE(values));
}

void rows_task_state(struct write *write, const struct job *job)
{
	char id[ID_TEXT_BYTES];
	char started[CLOCK_ISO_BYTES];
	char ended[CLOCK_ISO_BYTES];
	const struct value values[] = {
		value_id(&job->id, id),           value_text(job_state_text(job->state)),
		value_integer(job->wire_job),     value_time(job->started_at, started),
		value_time(job->ended_at, ended), value_text_or_null(job->code),
	};

	write_add(write, QUERY_TASK_STATE, values, ARRAY_SIZE(values));
	if (job_state_ended(job->state))
		write_add(write, QUERY_OUTPUT_DROP, values, 1);
}

/* What another worker needs to go on behind wire_number. */
static void add_output(struct write *write, const struct job *job, const char *id,
		       const struct store_batch *batch)
{
	const struct store_output *output = batch->output;
	const struct value shown[] = {
		value_text(id),
		value_integer(job->n_assets_shown),
		value_integer(job->n_problems_shown),
		value_integer(job->frames.n_dropped),
	};
	const struct value values[] = {
		value_text(id),
		value_integer((int64_t)batch->wire_number),
		value_blob(output->data, output->size),
	};

	write_add(write, QUERY_TASK_SHOWN, shown, ARRAY_SIZE(shown));
	if (output->size > 0)
		write_add(write, QUERY_OUTPUT_INSERT, values, ARRAY_SIZE(values));
}

void rows_frames(struct write *write, const struct job *job, const struct store_batch *batch)
{
	char id[ID_TEXT_BYTES];
	char session[ID_TEXT_BYTES];
	const struct frames_line *line;
	uint64_t bytes;

	id_format(&job->id, id);
	if (batch->wire_number != 0) {
		const struct value acked[] = {
			value_id(&job->session, session),
			value_integer((int64_t)batch->wire_number),
		};

		write_add_must_change(write, QUERY_SESSION_ACKED, acked, ARRAY_SIZE(acked));
	}
	if (batch->output)
		add_output(write, job, id, batch);
	bytes = frames_stored_bytes(&job->frames, batch->first_seq);
	if (bytes > 0) {
		const struct value charge[] = {value_text(id), value_integer((int64_t)bytes)};

		write_add(write, QUERY_FRAMES_CHARGE, charge, ARRAY_SIZE(charge));
	}
	for (uint32_t seq = batch->first_seq > 0 ? batch->first_seq - 1 : 0;
	     (line = frames_after(&job->frames, seq)); seq = line->seq) {
		const struct value values[] = {
			value_text(id),
			value_integer(line->seq),
			value_integer((int64_t)batch->wire_number),
			value_text(frames_stage_text(line->stage)),
			value_bytes(line->text, line->size),
		};

		if (!planted_nth("drop-frame", 50))
			write_add(write, QUERY_FRAME_INSERT, values, ARRAY_SIZE(values));
	}
}

void rows_retain(struct write *write, const struct janitor_retention *retention)
{
	char text[CLOCK_ISO_BYTES];
	struct value before;

	before = value_time(retention->bodies_before, text);
	write_add(write, QUERY_RETAIN_BODIES, &before, 1);
	before = value_time(retention->frames_before, text);
	write_add(write, QUERY_RETAIN_FRAMES, &before, 1);
	write_add(write, QUERY_RETAIN_FRAMES_MARK, &before, 1);
	/* Children before parents: each statement finds the same oldest sessions. */
	before = value_time(retention->rows_before, text);
	write_add(write, QUERY_RETAIN_ROWS_COMPONENTS, &before, 1);
	write_add(write, QUERY_RETAIN_ROWS_FRAMES, &before, 1);
	write_add(write, QUERY_RETAIN_ROWS_TASKS, &before, 1);
	write_add(write, QUERY_RETAIN_REGISTRY, &before, 1);
	write_add(write, QUERY_RETAIN_ROWS, &before, 1);
}

static const char *column_or_empty(const struct columns *columns, size_t at)
{
	return columns->text[at] ? columns->text[at] : "";
}

uint64_t columns_number(const struct columns *columns, size_t at)
{
	uint64_t number;

	return num_parse_u64(column_or_empty(columns, at), 0, UINT64_MAX, &number) < 0 ? 0 : number;
}

static usec_t column_time(const struct columns *columns, size_t at)
{
	const char *text = columns->text[at];
	usec_t time;

	if (!text || clock_parse_iso(text, &time) < 0)
		return 0;
	return time;
}

static bool read_limits(const char *text, struct plan *plan)
{
	const char *reason;
	json_t *doc;
	bool complete = true;

	*plan = (struct plan){.magic = PLAN_MAGIC, .version = PLAN_VERSION, .size = sizeof(*plan)};
	if (!text || doc_parse(text, strlen(text), &doc, &reason) < 0)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
		const json_t *value = json_object_get(doc, limits[i].name);

		if (json_is_integer(value) && json_integer_value(value) >= 0)
			limit_set(plan, i, (uint64_t)json_integer_value(value));
		else
			complete = false;
	}
	json_decref(doc);
	return complete;
}

int rows_read_session(const struct columns *columns, struct store_session *ret_row)
{
	struct store_session row = {
		.owner = column_or_empty(columns, 1),
		.operator_owned = columns_number(columns, 2) != 0,
		.workspace = column_or_empty(columns, 3),
		.project = column_or_empty(columns, 4),
		.profile = column_or_empty(columns, 5),
		.last_run_id = column_or_empty(columns, 6),
		.dagster = columns_number(columns, 7) != 0,
		.created_at = column_time(columns, 8),
		.expires_at = column_time(columns, 9),
		.ttl_minutes = (uint32_t)columns_number(columns, 10),
		.acked = (uint64_t)columns_number(columns, 11),
		.overrides_json = columns->text[12],
		.envs_json = columns->text[13],
		.components_json = columns->text[14],
		.log_summary_json = columns->text[15],
		.secrets_json = columns->text[18],
		.name = column_or_empty(columns, 19),
		.egress_allow_json = columns->text[20],
		.fence = (int64_t)columns_number(columns, 21),
		.runtime_json = columns->text[22],
		.registry_json = columns->text[23],
	};

	if (id_parse(column_or_empty(columns, 0), &row.id) < 0)
		return -EINVAL;
	/* Columns of ours that another program left empty. */
	if (row.profile[0] == '\0')
		row.profile = "component";
	if (row.expires_at == 0)
		row.expires_at = clock_add(row.created_at, row.ttl_minutes * USEC_PER_MINUTE);
	row.restoring = columns_number(columns, 17) != 0;
	row.has_plan = read_limits(columns->text[16], &row.plan);
	*ret_row = row;
	return 0;
}

int rows_read_task(const struct columns *columns, struct store_task *ret_task)
{
	int state = job_state_from_text(column_or_empty(columns, 4));
	struct store_task task = {
		.owner = column_or_empty(columns, 2),
		.workspace = column_or_empty(columns, 3),
		.wire_job = (uint32_t)columns_number(columns, 5),
		.created_at = column_time(columns, 6),
		.started_at = column_time(columns, 7),
		.ended_at = column_time(columns, 8),
		.last_seq = (uint32_t)columns_number(columns, 9),
		.code = column_or_empty(columns, 10),
	};

	if (state < 0 || id_parse(column_or_empty(columns, 0), &task.id) < 0 ||
	    id_parse(column_or_empty(columns, 1), &task.session) < 0)
		return -EINVAL;
	task.state = (enum job_state)state;
	*ret_task = task;
	return 0;
}
