#include "supervisor/api/store/queries.h"

#include <stddef.h>

#include "base/auto.h"
#include "base/err.h"

/* How much one step of retention takes, so that it never holds up a loop turn for long. */
#define BODIES_A_STEP " LIMIT 2"
#define TASKS_A_STEP  " LIMIT 4"
#define ROWS_A_STEP   " LIMIT 4"

/* The last frame says how a task ended, even where the write of its state was given up: it gets no
 * second end. */
#define TASK_COLUMNS                                                                               \
	"id, session_id, owner_text, workspace_text,"                                              \
	" CASE (SELECT stage FROM sandbox_frames WHERE task_id = sandbox_tasks.id"                 \
	" ORDER BY seq DESC LIMIT 1) WHEN 'done' THEN 'done' WHEN 'error' THEN 'error'"            \
	" ELSE status END, wire_job, created_at, started_at, "                                     \
	"ended_at, (SELECT max(seq) FROM sandbox_frames WHERE task_id = sandbox_tasks.id), code"

#define TASKS_OF_OLD_SESSIONS                                                                      \
	"(SELECT t.id FROM sandbox_tasks t JOIN dagster_sandbox_sessions s ON s.id = t.session_id" \
	" WHERE t.frames_kept = 1 AND s.status = 'closed' AND s.closed_at < ?1"                    \
	" ORDER BY s.closed_at, t.id" TASKS_A_STEP ")"

#define OLD_SESSIONS                                                                               \
	"(SELECT id FROM dagster_sandbox_sessions WHERE status = 'closed' AND closed_at < ?1"      \
	" ORDER BY closed_at, id" ROWS_A_STEP ")"

/* Component bodies that another program put into the row of session s, by its convention. */
#define FOREIGN_COMPONENTS                                                                         \
	"json_each(CASE WHEN json_valid(s.components_json) AND"                                    \
	" json_type(s.components_json) = 'object' THEN s.components_json ELSE '{}' END) j"         \
	" WHERE j.type = 'text' AND j.key <> '' AND NOT EXISTS (SELECT 1 FROM sandbox_components"  \
	" c WHERE c.session_id = s.id AND c.file = j.key)"

/* ?1 everybody's, ?2 the owner's, ?3 the workspace's (NULL: none) rows. */
#define AIRBYTE_VISIBLE "(?1 OR c.owner_user_id = ?2 OR c.workspace_id = ?3)"

static const char *const sql[] = {
	[QUERY_SESSION_INSERT] =
		"INSERT INTO dagster_sandbox_sessions (id, status, log_summary_json, expires_at,"
		" created_at, updated_at, owner_user_id,"
		" workspace_id, project_id, env_overrides_json, ttl_minutes, owner_text, kind,"
		" profile, envs_json, limits_json, host, secrets_json, name,"
		" egress_allow_json, runtime_json)"
		" VALUES (?1, ?2, '[]', ?3, ?4, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13,"
		" ?14, ?15, ?16, ?17, ?18, ?19)",
	/* A row: its writer is one of before, and none of the write is done. */
	[QUERY_SESSION_HOLD] = "SELECT 1 FROM dagster_sandbox_sessions"
			       " WHERE id = ?1 AND coalesce(lease_fence, 0) > ?2",
	[QUERY_SESSION_RAISE] = "UPDATE dagster_sandbox_sessions SET lease_fence = ?2"
				" WHERE id = ?1 AND coalesce(lease_fence, 0) < ?2",
	[QUERY_SESSION_STATUS] =
		"UPDATE dagster_sandbox_sessions SET status = ?2, last_run_id = ?3,"
		" expires_at = ?4, updated_at = ?5, ttl_minutes = ?6"
		" WHERE id = ?1 AND status <> 'closed'",
	[QUERY_SESSION_COMPONENT] =
		"INSERT INTO sandbox_components (session_id, file, body, bytes, origin, generation)"
		" SELECT id, ?2, ?3, ?4, ?5, ?6 FROM dagster_sandbox_sessions WHERE id = ?1"
		" ON CONFLICT (session_id, file) DO UPDATE SET body = excluded.body,"
		" bytes = excluded.bytes, origin = excluded.origin,"
		" generation = excluded.generation",
	[QUERY_SESSION_TOUCH] = "UPDATE dagster_sandbox_sessions SET updated_at = ?2 WHERE id = ?1",
	[QUERY_SESSION_TREE] = "UPDATE dagster_sandbox_sessions SET restoring = ?2,"
			       " acked = CASE ?2 WHEN 0 THEN acked ELSE 0 END WHERE id = ?1",
	[QUERY_SESSION_EGRESS] = "UPDATE dagster_sandbox_sessions SET egress_allow_json = ?2,"
				 " envs_json = ?4, updated_at = ?3 WHERE id = ?1",
	[QUERY_SESSION_RUNTIME] = "UPDATE dagster_sandbox_sessions SET runtime_json = ?2,"
				  " updated_at = ?3 WHERE id = ?1",
	[QUERY_SESSION_LOG] = "UPDATE dagster_sandbox_sessions SET log_summary_json = ?2,"
			      " updated_at = ?3 WHERE id = ?1",
	/* The values of a session that is gone are of no use to anybody honest. */
	[QUERY_SESSION_CLOSE] =
		"UPDATE dagster_sandbox_sessions SET status = 'closed', closed_reason = ?2,"
		" closed_at = ?3, updated_at = ?3, env_overrides_json = NULL, envs_json = NULL"
		" WHERE id = ?1 AND status <> 'closed'",
	[QUERY_SESSION_REDIS] = "UPDATE dagster_sandbox_sessions SET redis_left = ?2 WHERE id = ?1",
	[QUERY_SESSION_ACKED] =
		"UPDATE dagster_sandbox_sessions SET acked = ?2 WHERE id = ?1 AND acked < ?2",
	[QUERY_REGISTRY_PUT] =
		"INSERT INTO sandbox_registry (sandbox_uuid, organization_uuid, project_uuid,"
		" status, generation, durable_generation, snapshot_ref, since_us, ttl_left_us,"
		" created_at, updated_at, durable, provider)"
		" VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)"
		" ON CONFLICT (sandbox_uuid) DO UPDATE SET status = excluded.status,"
		" generation = excluded.generation,"
		" durable_generation = excluded.durable_generation, durable = excluded.durable,"
		" snapshot_ref = excluded.snapshot_ref, since_us = excluded.since_us,"
		" ttl_left_us = excluded.ttl_left_us, updated_at = excluded.updated_at"
		" WHERE sandbox_registry.status NOT IN ('destroyed', 'expired')",
	[QUERY_REGISTRY_CLOSE] =
		"UPDATE sandbox_registry SET status = CASE ?2 WHEN 'expired' THEN 'expired'"
		" ELSE 'destroyed' END, updated_at = ?3"
		" WHERE sandbox_uuid = ?1 AND status NOT IN ('destroyed', 'expired')",
	[QUERY_SESSIONS_OPEN] =
		"SELECT id, coalesce(owner_user_id, owner_text, ''), owner_user_id IS NULL,"
		" coalesce(workspace_id, ''), coalesce(project_id, ''), coalesce(profile, ''),"
		" coalesce(last_run_id, ''), coalesce(kind, 'dagster') = 'dagster', created_at,"
		" expires_at, coalesce(ttl_minutes, 60), acked, env_overrides_json, envs_json,"
		" (SELECT json_group_object(file, bytes) FROM (SELECT file, bytes"
		"  FROM sandbox_components WHERE session_id = s.id UNION ALL"
		"  SELECT j.key, length(CAST(j.value AS BLOB)) FROM " FOREIGN_COMPONENTS ")),"
		" log_summary_json, limits_json, restoring, secrets_json,"
		" coalesce(name, ''), egress_allow_json, coalesce(lease_fence, 0), runtime_json,"
		" (SELECT json_object('status', r.status, 'generation', r.generation,"
		"  'durable_generation', r.durable_generation, 'durable', r.durable,"
		"  'snapshot_ref', r.snapshot_ref, 'since_us', r.since_us, 'ttl_left_us', r.ttl_left_us,"
		"  'provider', r.provider)"
		"  FROM sandbox_registry r WHERE r.sandbox_uuid = s.id)"
		" FROM dagster_sandbox_sessions s WHERE status IN ('open', 'running')"
		" ORDER BY created_at, id",
	[QUERY_REDIS_LEFT] = "SELECT id FROM dagster_sandbox_sessions WHERE redis_left = 1"
			     " AND status = 'closed' LIMIT ?1",
	[QUERY_TASK_INSERT] =
		"INSERT INTO sandbox_tasks (id, session_id, owner_text, workspace_text, status,"
		" request_id, created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
	[QUERY_TASK_STATE] = "UPDATE sandbox_tasks SET status = ?2, wire_job = ?3, started_at = ?4,"
			     " ended_at = ?5, code = ?6, resumable = 1 WHERE id = ?1",
	[QUERY_TASK_SHOWN] = "UPDATE sandbox_tasks SET assets_shown = ?2, problems_shown = ?3,"
			     " frames_dropped = ?4 WHERE id = ?1",
	[QUERY_TASK_PROGRESS] =
		"SELECT resumable, assets_shown, problems_shown, frames_dropped,"
		" (SELECT coalesce(sum(length(CAST(body AS BLOB))), 0) FROM sandbox_frames"
		"  WHERE task_id = ?1) FROM sandbox_tasks WHERE id = ?1",
	[QUERY_OUTPUT_INSERT] =
		"INSERT INTO sandbox_task_output (task_id, wire_number, body) VALUES (?1, ?2, ?3)",
	[QUERY_OUTPUT_GET] = "SELECT body FROM sandbox_task_output WHERE task_id = ?1"
			     " ORDER BY wire_number",
	[QUERY_OUTPUT_DROP] = "DELETE FROM sandbox_task_output WHERE task_id = ?1",
	[QUERY_TASK_GET] = "SELECT " TASK_COLUMNS " FROM sandbox_tasks WHERE id = ?1",
	[QUERY_TASKS_OPEN] = "SELECT " TASK_COLUMNS " FROM sandbox_tasks"
			     " WHERE status IN ('queued', 'running') ORDER BY created_at, id",
	[QUERY_TASKS_OF_SESSION] = "SELECT " TASK_COLUMNS " FROM sandbox_tasks"
				   " WHERE session_id = ?1 ORDER BY created_at DESC, id LIMIT ?2",
	[QUERY_FRAME_INSERT] = "INSERT INTO sandbox_frames (task_id, seq, wire_number, stage, body)"
			       " VALUES (?1, ?2, ?3, ?4, ?5)",
	[QUERY_FRAMES_GET] = "SELECT seq, stage, body FROM sandbox_frames"
			     " WHERE task_id = ?1 AND seq > ?2 ORDER BY seq",
	[QUERY_FRAMES_CHARGE] =
		"UPDATE sandbox_tasks SET frames_bytes = frames_bytes + ?2 WHERE id = ?1",
	[QUERY_FRAMES_USE] = "SELECT owner_text, workspace_text, sum(frames_bytes)"
			     " FROM sandbox_tasks WHERE frames_bytes > 0 GROUP BY 1, 2",
	[QUERY_COMPONENT_GET] = "SELECT file, body FROM (SELECT file, body FROM sandbox_components"
				" WHERE session_id = ?1 AND file > ?2 AND generation >= ?3"
				" UNION ALL SELECT j.key, j.value FROM (SELECT id, components_json"
				"  FROM dagster_sandbox_sessions WHERE id = ?1 AND ?3 = 0) s,"
				" " FOREIGN_COMPONENTS " AND j.key > ?2) ORDER BY file LIMIT 1",
	[QUERY_AIRBYTE_GET] =
		"SELECT c.id, c.name, coalesce(c.airbyte_connection_id, ''),"
		" (SELECT json_group_array(k.file) FROM sandbox_components k"
		"  WHERE k.session_id = ?5 AND k.origin = c.id) FROM airbyte_connections c"
		" WHERE (c.id = ?4 OR c.airbyte_connection_id = ?4) AND " AIRBYTE_VISIBLE
		" ORDER BY c.id <> ?4, c.owner_user_id IS NOT ?2, c.id LIMIT 1",
	[QUERY_AIRBYTE_LIST] = "SELECT c.id, c.name, coalesce(c.airbyte_connection_id, ''), '[]'"
			       " FROM airbyte_connections c WHERE " AIRBYTE_VISIBLE
			       " ORDER BY c.name, c.id LIMIT ?4",
	[QUERY_AIRBYTE_CHANGE] =
		"UPDATE airbyte_connections SET name = ?2, airbyte_source_id = ?4,"
		" airbyte_destination_id = ?5, streams = ?6, updated_at = ?9"
		" WHERE airbyte_connection_id = ?3 AND owner_user_id IS ?7 AND workspace_id IS ?8",
	[QUERY_AIRBYTE_INSERT] =
		"INSERT INTO airbyte_connections (id, name, airbyte_connection_id,"
		" airbyte_source_id, airbyte_destination_id, streams, owner_user_id, workspace_id,"
		" created_at, updated_at) SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9"
		" WHERE NOT EXISTS (SELECT 1 FROM airbyte_connections"
		" WHERE airbyte_connection_id = ?3 AND owner_user_id IS ?7 AND workspace_id IS ?8)",
	[QUERY_AIRBYTE_DROP] = "DELETE FROM airbyte_connections WHERE id = ?1",
	[QUERY_RETAIN_BODIES] =
		"DELETE FROM sandbox_components WHERE session_id IN"
		" (SELECT s.id FROM dagster_sandbox_sessions s WHERE s.status = 'closed'"
		"  AND s.closed_at < ?1 AND EXISTS (SELECT 1 FROM sandbox_components c"
		"  WHERE c.session_id = s.id) ORDER BY s.closed_at, s.id" BODIES_A_STEP ")",
	[QUERY_RETAIN_FRAMES] =
		"DELETE FROM sandbox_frames WHERE task_id IN " TASKS_OF_OLD_SESSIONS,
	[QUERY_RETAIN_FRAMES_MARK] =
		"UPDATE sandbox_tasks SET frames_kept = 0, frames_bytes = 0 WHERE id IN " TASKS_OF_OLD_SESSIONS,
	[QUERY_RETAIN_ROWS_COMPONENTS] =
		"DELETE FROM sandbox_components WHERE session_id IN " OLD_SESSIONS,
	[QUERY_RETAIN_ROWS_FRAMES] =
		"DELETE FROM sandbox_frames WHERE task_id IN"
		" (SELECT id FROM sandbox_tasks WHERE session_id IN " OLD_SESSIONS ")",
	[QUERY_RETAIN_ROWS_TASKS] = "DELETE FROM sandbox_tasks WHERE session_id IN " OLD_SESSIONS,
	[QUERY_RETAIN_REGISTRY] =
		"DELETE FROM sandbox_registry WHERE sandbox_uuid IN " OLD_SESSIONS,
	[QUERY_RETAIN_ROWS] = "DELETE FROM dagster_sandbox_sessions WHERE id IN " OLD_SESSIONS,
	[QUERY_USAGE_PUT] = "INSERT INTO sandbox_usage (day, scope, name, cpu_us)"
			    " VALUES (?1, ?2, ?3, ?4) ON CONFLICT (day, scope, name)"
			    " DO UPDATE SET cpu_us = excluded.cpu_us",
	[QUERY_USAGE_FORGET] = "DELETE FROM sandbox_usage WHERE day < ?1",
	[QUERY_USAGES] = "SELECT scope, name, cpu_us FROM sandbox_usage WHERE day = ?1",
	[QUERY_BEGIN] = "BEGIN IMMEDIATE",
	[QUERY_COMMIT] = "COMMIT",
	[QUERY_ROLLBACK] = "ROLLBACK",
	[QUERY_SAVEPOINT] = "SAVEPOINT one_write",
	[QUERY_RELEASE] = "RELEASE one_write",
	[QUERY_UNDO] = "ROLLBACK TO one_write",
};
_Static_assert(ARRAY_SIZE(sql) == QUERY_MAX_, "one text per query");

const char *query_sql(enum query query)
{
	ASSERT((unsigned int)query < QUERY_MAX_);
	return sql[query];
}
