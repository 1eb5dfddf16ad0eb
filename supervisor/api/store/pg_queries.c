#include "supervisor/api/store/pg_queries.h"

#include <stddef.h>

#include "base/auto.h"
#include "base/err.h"

/* How much one step of retention takes, so that it never holds up a batch for long. */
#define BODIES_A_STEP " LIMIT 2"
#define TASKS_A_STEP  " LIMIT 4"
#define ROWS_A_STEP   " LIMIT 4"

/* Bodies of all components up to this are repeated in components_json. */
#define PLATFORM_BYTES "1048576"

/* Set at each connection, as is the form of times. */
#define INSTANCE "current_setting('sandboxd.instance')"

/* The last frame says how a task ended, even where the write of its state was given up: it gets no
 * second end. */
#define TASK_COLUMNS                                                                               \
	"t.id, t.session_id, t.owner_text, t.workspace_text,"                                      \
	" CASE (SELECT f.stage FROM sandbox_frames f WHERE f.task_id = t.id"                       \
	" ORDER BY f.seq DESC LIMIT 1) WHEN 'done' THEN 'done' WHEN 'error' THEN 'error'"          \
	" ELSE t.status END, t.wire_job, "                                                         \
	"t.created_at"                                                                             \
	", "                                                                                       \
	"t.started_at"                                                                             \
	", "                                                                                       \
	"t.ended_at"                                                                               \
	", (SELECT max(f.seq) FROM sandbox_frames f WHERE f.task_id = t.id),"                      \
	" t.code"

#define TASKS_OF_OLD_SESSIONS                                                                      \
	"(SELECT t.id FROM sandbox_tasks t JOIN dagster_sandbox_sessions s ON s.id = t.session_id" \
	" WHERE t.frames_kept = 1 AND s.status = 'closed' AND s.closed_at < $1"                    \
	" ORDER BY s.closed_at, s.id, t.id" TASKS_A_STEP ")"

#define OLD_SESSIONS                                                                               \
	"(SELECT id FROM dagster_sandbox_sessions WHERE status = 'closed' AND closed_at < $1"      \
	" ORDER BY closed_at, id" ROWS_A_STEP ")"

/* By the server's clock alone; no other one is compared with it. */
#define LEASE_END "timezone('UTC', clock_timestamp()) + interval '" PG_LEASE_TEXT "'"

/* Nobody's, or given back, or of an instance that has not said for a lease that it is there. */
#define IS_LEFT                                                                                    \
	"(c.instance IS NULL OR (c.instance <> " INSTANCE                                          \
	" AND (c.given_back = 1 OR EXISTS (SELECT 1"                                               \
	" FROM sandbox_writers w WHERE w.id = c.instance"                                          \
	" AND w.lease_until < timezone('UTC', clock_timestamp())))))"

#define OPEN "s.status IN ('open', 'running') AND s.instance = " INSTANCE

#define NO_COMPONENT_OF_OURS                                                                       \
	" NOT EXISTS (SELECT 1 FROM sandbox_components c WHERE c.session_id = s.id AND c.file = j.file)"

/* Components as another reader of the row wants them: while they are small, and text. */
#define COMPONENTS_JSON                                                                            \
	"(SELECT CASE WHEN coalesce(sum(c.bytes), 0) <= " PLATFORM_BYTES                           \
	" AND coalesce(bool_and(position('\\x00'::bytea IN c.body) = 0), true)"                    \
	" THEN json_object_agg(c.file, convert_from(c.body, 'UTF8')) END"                          \
	" FROM sandbox_components c WHERE c.session_id = $1)"

/* As rows_read_session takes them. */
#define SESSION_COLUMNS                                                                            \
	"s.id, coalesce(s.owner_user_id, s.owner_text, ''),"                                       \
	" (s.owner_user_id IS NULL AND s.tenant IS NOT TRUE)::int,"                                \
	" coalesce(s.workspace_id, s.workspace_text, ''),"                                         \
	" coalesce(s.project_id, s.project_text, ''), coalesce(s.profile, ''),"                    \
	" coalesce(s.last_run_id, ''), (coalesce(s.kind, 'dagster') = 'dagster')::int, "           \
	"s.created_at"                                                                             \
	", "                                                                                       \
	"s.expires_at"                                                                             \
	", coalesce(s.ttl_minutes, 60),"                                                           \
	" coalesce(s.acked, 0), s.env_overrides_json, s.envs_json,"                                \
	" (SELECT coalesce(json_object_agg(u.file, u.bytes), '{}') FROM"                           \
	"  (SELECT c.file, c.bytes FROM sandbox_components c WHERE c.session_id = s.id"            \
	"   UNION ALL SELECT j.file, octet_length(j.body)::bigint"                                 \
	"   FROM sandbox_foreign_components(s.components_json) j"                                  \
	"   WHERE" NO_COMPONENT_OF_OURS ") u),"                                                    \
	" s.log_summary_json, s.limits_json, coalesce(s.restoring, 0), s.secrets_json,"            \
	" coalesce(s.name, ''), s.egress_allow_json, coalesce(s.lease_fence, 0), s.runtime_json,"  \
	" (SELECT json_build_object('status', r.status, 'generation', r.generation,"               \
	"  'durable_generation', r.durable_generation, 'durable', r.durable,"                      \
	"  'snapshot_ref', r.snapshot_ref::text,"                                                  \
	"  'since_us', r.since_us, 'ttl_left_us', r.ttl_left_us, 'provider', r.provider)"          \
	"  FROM sandbox_registry r WHERE r.sandbox_uuid = s.id)"

/* $1 everybody's, $2 the owner's, $3 the workspace's (NULL: none) rows. */
#define VISIBLE_ROW                                                                                \
	"($1::integer = 1 OR c.owner_user_id::text = $2::text OR c.workspace_id::text = $3::text)"

/* The same of a session, as rows_read_session understands it. */
#define VISIBLE_SESSION                                                                            \
	"($1::integer = 1 OR c.owner_user_id::text = $2::text"                                     \
	" OR (c.tenant AND c.owner_text = $2::text)"                                               \
	" OR coalesce(c.workspace_id::text, c.workspace_text) = $3::text)"

static const struct pg_query_text queries[PG_QUERY_MAX_] = {
	[QUERY_SESSION_INSERT] =
		{"session_insert",
					"INSERT INTO dagster_sandbox_sessions (id, status, log_summary_json, expires_at,"
		 " created_at, updated_at, owner_user_id, workspace_id, project_id,"
		 " env_overrides_json, ttl_minutes, owner_text, kind, profile, envs_json,"
		 " limits_json, host, secrets_json, name, egress_allow_json, runtime_json, workspace_text,"
		 " project_text, tenant,"
		 " restoring, acked, instance)"
		 " VALUES ($1, $2, '[]', $3, $4, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14,"
		 " $15, $16, $17, $18, $19, $20, $21, $22, 0, 0, " INSTANCE ")",
					0,													false},
 /* Locked, so that nobody takes the session before this write is done. A division by zero
  * where it is another's by now: the whole write is void. */
	[QUERY_SESSION_HOLD] =
		{"session_hold",
					"WITH held AS MATERIALIZED (SELECT instance, lease_fence"
		 " FROM dagster_sandbox_sessions WHERE id = $1 FOR NO KEY UPDATE)"
		 " SELECT 1 / (1 - count(*)) FROM held WHERE instance IS DISTINCT FROM " INSTANCE
		 " OR coalesce(lease_fence, 0) > $2::bigint",									    0,       false},
	[QUERY_SESSION_RAISE] = {"session_raise",
					"UPDATE dagster_sandbox_sessions SET lease_fence = $2::bigint"
				 " WHERE id = $1 AND coalesce(lease_fence, 0) < $2::bigint",					     0,       false},
	[QUERY_SESSION_STATUS] =
		{"session_status",
					"UPDATE dagster_sandbox_sessions SET status = $2, last_run_id = $3,"
		 " expires_at = $4, updated_at = $5, ttl_minutes = $6"
		 " WHERE id = $1 AND status <> 'closed'",										0,       false},
	[QUERY_SESSION_COMPONENT] =
		{"session_component",
					"INSERT INTO sandbox_components (session_id, file, body, bytes, origin, generation)"
		 " SELECT id, $2::varchar, $3::bytea, $4::bigint, $5::varchar, $6::bigint"
		 " FROM dagster_sandbox_sessions"
		 " WHERE id = $1 ON CONFLICT (session_id, file) DO UPDATE SET body = excluded.body,"
		 " bytes = excluded.bytes, origin = excluded.origin,"
		 " generation = excluded.generation",										    1u << 2, false},
	[QUERY_SESSION_TOUCH] = {"session_touch",
					"UPDATE dagster_sandbox_sessions SET updated_at = $2,"
				 " components_json = " COMPONENTS_JSON " WHERE id = $1",
					0,													false},
	[QUERY_SESSION_TREE] =
		{"session_tree",
					"UPDATE dagster_sandbox_sessions SET restoring = $2::integer,"
		 " acked = CASE $2::integer WHEN 0 THEN acked ELSE 0 END WHERE id = $1",						 0,       false},
	[QUERY_SESSION_LOG] =
		{"session_log",
					"UPDATE dagster_sandbox_sessions SET log_summary_json = $2, updated_at = $3"
		 " WHERE id = $1",												       0,       false},
	[QUERY_SESSION_CLOSE] =
		{"session_close",
					"UPDATE dagster_sandbox_sessions SET status = 'closed', closed_reason = $2,"
		 " closed_at = $3, updated_at = $3, env_overrides_json = NULL, envs_json = NULL"
		 " WHERE id = $1 AND status <> 'closed'",										0,       false},
	[QUERY_SESSION_EGRESS] =
		{"session_egress",
					"UPDATE dagster_sandbox_sessions SET egress_allow_json = $2, envs_json = $4,"
		 " updated_at = $3 WHERE id = $1",										       0,       false},
	[QUERY_SESSION_RUNTIME] =
		{"session_runtime",
					"UPDATE dagster_sandbox_sessions SET runtime_json = $2, updated_at = $3"
		 " WHERE id = $1",												       0,       false},
	[QUERY_SESSION_REDIS] =
		{"session_redis",
					"UPDATE dagster_sandbox_sessions SET redis_left = $2 WHERE id = $1",                             0,       false},
	[QUERY_REDIS_LEFT] = {"redis_left",
					"SELECT id FROM dagster_sandbox_sessions WHERE redis_left = 1"
			      " AND status = 'closed' AND instance = " INSTANCE
			      " LIMIT $1::integer",										      0,       false},
 /* A division by zero where no row changed: the whole write is void. */
	[QUERY_SESSION_ACKED] = {"session_acked",
					"WITH changed AS (UPDATE dagster_sandbox_sessions SET acked = $2"
				 " WHERE id = $1 AND coalesce(acked, 0) < $2 RETURNING 1)"
				 " SELECT 1 / count(*) FROM changed",								    0,       false},
	[QUERY_REGISTRY_PUT] =
		{"registry_put",
					"INSERT INTO sandbox_registry (sandbox_uuid, organization_uuid, project_uuid, status,"
		 " generation, durable_generation, snapshot_ref, since_us, ttl_left_us, created_at,"
		 " updated_at, durable, provider)"
		 " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)"
		 " ON CONFLICT (sandbox_uuid) DO UPDATE SET status = excluded.status,"
		 " generation = excluded.generation, durable_generation = excluded.durable_generation,"
		 " durable = excluded.durable,"
		 " snapshot_ref = excluded.snapshot_ref, since_us = excluded.since_us,"
		 " ttl_left_us = excluded.ttl_left_us, updated_at = excluded.updated_at"
		 " WHERE sandbox_registry.status NOT IN ('destroyed', 'expired')",						       0,       false},
	[QUERY_REGISTRY_CLOSE] =
		{"registry_close",
					"UPDATE sandbox_registry SET status = CASE $2::varchar WHEN 'expired' THEN 'expired'"
		 " ELSE 'destroyed' END, updated_at = $3"
		 " WHERE sandbox_uuid = $1 AND status NOT IN ('destroyed', 'expired')",						  0,       false},
	[QUERY_SESSIONS_OPEN] = {"sessions_open",
					"SELECT " SESSION_COLUMNS
				 " FROM dagster_sandbox_sessions s WHERE " OPEN
				 " ORDER BY s.created_at, s.id",									 0,       false},
	[QUERY_TASK_INSERT] =
		{"task_insert",
					"INSERT INTO sandbox_tasks (id, session_id, owner_text, workspace_text, status,"
		 " request_id, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7)",							 0,       false},
	[QUERY_TASK_STATE] =
		{"task_state",
					"UPDATE sandbox_tasks SET status = $2, wire_job = $3, started_at = $4,"
		 " ended_at = $5, code = $6, resumable = 1 WHERE id = $1",							       0,       false},
	[QUERY_TASK_SHOWN] = {"task_shown",
					"UPDATE sandbox_tasks SET assets_shown = $2, problems_shown = $3,"
			      " frames_dropped = $4 WHERE id = $1",								      0,       false},
	[QUERY_TASK_PROGRESS] = {"task_progress",
					"SELECT resumable, assets_shown, problems_shown, frames_dropped,"
				 " (SELECT coalesce(sum(octet_length(body)), 0) FROM sandbox_frames"
				 "  WHERE task_id = $1) FROM sandbox_tasks WHERE id = $1",					       0,       false},
	[QUERY_OUTPUT_INSERT] = {"output_insert",
					"INSERT INTO sandbox_task_output (task_id, wire_number, body)"
				 " VALUES ($1, $2, $3)",										 1u << 2, false},
	[QUERY_OUTPUT_GET] =
		{"output_get",
					"SELECT body FROM sandbox_task_output WHERE task_id = $1 ORDER BY wire_number",                  0,
					true													   },
	[QUERY_OUTPUT_DROP] = {"output_drop",            "DELETE FROM sandbox_task_output WHERE task_id = $1",
					0,													false},
	[QUERY_TASK_GET] = {"task_get",
					"SELECT " TASK_COLUMNS " FROM sandbox_tasks t WHERE t.id = $1",                                  0,
					false													  },
	[QUERY_TASKS_OPEN] = {"tasks_open",
					"SELECT " TASK_COLUMNS " FROM sandbox_tasks t"
			      " WHERE t.status IN ('queued', 'running') AND EXISTS (SELECT 1"
			      " FROM dagster_sandbox_sessions s WHERE s.id = t.session_id"
			      " AND s.instance = " INSTANCE ") ORDER BY t.created_at, t.id",
					0,													false},
	[QUERY_TASKS_OF_SESSION] = {"tasks_of_session",
					"SELECT " TASK_COLUMNS
				    " FROM sandbox_tasks t WHERE t.session_id = $1"
				    " ORDER BY t.created_at DESC, t.id LIMIT $2::integer",					       0,       false},
	[QUERY_FRAME_INSERT] =
		{"frame_insert",
					"INSERT INTO sandbox_frames (task_id, seq, wire_number, stage, body)"
		 " VALUES ($1, $2, $3, $4, $5)",											 0,       false},
 /* No more than a reader takes, and one row to know that there are more. */
	[QUERY_FRAMES_GET] =
		{"frames_get",
					"SELECT seq, stage, body FROM (SELECT seq, stage, body, sum(octet_length(body))"
		 " OVER (ORDER BY seq) - octet_length(body) AS before FROM sandbox_frames"
		 " WHERE task_id = $1 AND seq > $2 ORDER BY seq LIMIT $4::integer) f"
		 " WHERE before <= $3::bigint ORDER BY seq",									     0,       false},
	[QUERY_FRAMES_CHARGE] =
		{"frames_charge",
					"UPDATE sandbox_tasks SET frames_bytes = frames_bytes + $2 WHERE id = $1",                       0,
					false													  },
	[QUERY_FRAMES_USE] =
		{"frames_use",
					"SELECT owner_text, workspace_text, sum(frames_bytes)::bigint FROM sandbox_tasks"
		 " WHERE frames_bytes > 0 GROUP BY 1, 2",										0,       false},
	[QUERY_COMPONENT_GET] =
		{"component_get",
					"SELECT u.file, u.body FROM (SELECT c.file, c.body FROM sandbox_components c"
		 " WHERE c.session_id = $1 AND c.file > $2 AND c.generation >= $3::bigint UNION ALL"
		 " SELECT j.file, convert_to(j.body, 'UTF8') FROM dagster_sandbox_sessions s,"
		 " sandbox_foreign_components(s.components_json) j WHERE s.id = $1 AND $3::bigint = 0"
		 " AND j.file COLLATE \"C\" > $2 AND" NO_COMPONENT_OF_OURS ") u"
		 " ORDER BY u.file COLLATE \"C\" LIMIT 1",									       0,       true },
	[QUERY_AIRBYTE_GET] =
		{"airbyte_get",
					"SELECT c.id, c.name, coalesce(c.airbyte_connection_id::text, ''),"
		 " (SELECT coalesce(json_agg(k.file), '[]') FROM sandbox_components k"
		 "  WHERE k.session_id = $5 AND k.origin = c.id::text) FROM airbyte_connections c"
		 " WHERE (c.id = $4 OR c.airbyte_connection_id = $4) AND " VISIBLE_ROW
		 " ORDER BY c.id <> $4, c.owner_user_id::text IS DISTINCT FROM $2, c.id LIMIT 1",					0,       false},
	[QUERY_AIRBYTE_LIST] =
		{"airbyte_list",
					"SELECT c.id, c.name, coalesce(c.airbyte_connection_id::text, ''), '[]'"
		 " FROM airbyte_connections c WHERE " VISIBLE_ROW
		 " ORDER BY c.name, c.id LIMIT $4::integer",									     0,       false},
	[QUERY_RETAIN_BODIES] =
		{"retain_bodies",
					"WITH old AS MATERIALIZED (SELECT s.id FROM dagster_sandbox_sessions s"
		 " WHERE s.status = 'closed' AND s.closed_at < $1 AND EXISTS (SELECT 1"
		 " FROM sandbox_components c WHERE c.session_id = s.id)"
		 " ORDER BY s.closed_at, s.id" BODIES_A_STEP "), gone AS (DELETE"
		 " FROM sandbox_components WHERE session_id IN (SELECT id FROM old))"
		 " UPDATE dagster_sandbox_sessions SET components_json = NULL"
		 " WHERE id IN (SELECT id FROM old)",										    0,       false},
	[QUERY_RETAIN_FRAMES] =
		{"retain_frames",
					"DELETE FROM sandbox_frames WHERE task_id IN " TASKS_OF_OLD_SESSIONS,                            0,       false},
	[QUERY_RETAIN_FRAMES_MARK] =
		{"retain_frames_mark",
					"UPDATE sandbox_tasks SET frames_kept = 0, frames_bytes = 0 WHERE id IN " TASKS_OF_OLD_SESSIONS,
					0,													false},
	[QUERY_RETAIN_ROWS_COMPONENTS] =
		{"retain_rows_components",
					"DELETE FROM sandbox_components WHERE session_id IN " OLD_SESSIONS,                              0,       false},
	[QUERY_RETAIN_ROWS_FRAMES] =
		{"retain_rows_frames",
					"DELETE FROM sandbox_frames WHERE task_id IN"
		 " (SELECT id FROM sandbox_tasks WHERE session_id IN " OLD_SESSIONS ")",
					0,													false},
	[QUERY_RETAIN_ROWS_TASKS] = {"retain_rows_tasks",
					"DELETE FROM sandbox_tasks WHERE session_id IN " OLD_SESSIONS,
					0,													false},
	[QUERY_RETAIN_REGISTRY] =
		{"retain_registry",
					"DELETE FROM sandbox_registry WHERE sandbox_uuid IN " OLD_SESSIONS,                              0,       false},
	[QUERY_RETAIN_ROWS] = {"retain_rows",
					"DELETE FROM dagster_sandbox_sessions WHERE id IN " OLD_SESSIONS,                                0,
					false													  },
	[QUERY_USAGE_PUT] = {"usage_put",
					"INSERT INTO sandbox_usage (instance, day, scope, name, cpu_us)"
			     " VALUES (" INSTANCE
			     ", $1, $2, $3, $4) ON CONFLICT (instance, day, scope, name)"
			     " DO UPDATE SET cpu_us = excluded.cpu_us",								  0,       false},
	[QUERY_USAGE_FORGET] = {"usage_forget",
					"DELETE FROM sandbox_usage WHERE instance = " INSTANCE
				" AND day < $1",											 0,       false},
	[QUERY_USAGES] = {"usages",
					"SELECT scope, name, cpu_us FROM sandbox_usage WHERE instance = " INSTANCE
			  " AND day = $1",											       0,       false},
	[PG_QUERY_FENCE] = {"fence",
					"WITH changed AS (UPDATE sandbox_writers SET batch = $2,"
			    " seen_at = timezone('UTC', now()), lease_until = " LEASE_END
			    " WHERE id = " INSTANCE " AND generation = $1"
			    " RETURNING 1) SELECT 1 / count(*) FROM changed",							    0,       false},
	[PG_QUERY_TAKE] =
		{"take",
					"WITH s AS (UPDATE dagster_sandbox_sessions c SET instance = " INSTANCE
		 ", host = $5, given_back = NULL, lease_fence = coalesce(c.lease_fence, 0) + 1"
		 " WHERE c.id = $4 AND (" IS_LEFT " OR ($6::integer = 1 AND c.instance = " INSTANCE
		 ")) AND c.status IN ('open', 'running')"
		 " AND (c.expires_at IS NULL OR c.expires_at > timezone('UTC', now()))"
		 " AND " VISIBLE_SESSION " RETURNING c.*) SELECT " SESSION_COLUMNS " FROM s",
					0,													false},
 /* How many others are on this store, or were of late; and minutes ago: they may restart. */
	[PG_QUERY_RENEW] =
		{"renew",
					"WITH own AS (UPDATE sandbox_writers SET seen_at = timezone('UTC', now()),"
		 " lease_until = " LEASE_END " WHERE id = " INSTANCE
		 " AND generation = $1 RETURNING 1) SELECT (SELECT count(*) FROM own),"
		 " count(*), count(*) FILTER (WHERE lease_until >"
		 " timezone('UTC', clock_timestamp()) - interval '10 minutes')"
		 " FROM sandbox_writers WHERE id <> " INSTANCE
		 " AND lease_until > timezone('UTC', clock_timestamp()) - interval '1 day'",					     0,       false},
 /* The row of the writer is locked, so that a newer connection of this instance reads what
  * this one gave, or this one gives nothing. */
	[PG_QUERY_GIVE_BACK] =
		{"give_back",
					"WITH own AS (UPDATE sandbox_writers SET seen_at = timezone('UTC', now())"
		 " WHERE id = " INSTANCE
		 " AND generation = $1 RETURNING 1) UPDATE dagster_sandbox_sessions SET given_back = 1"
		 " WHERE id = ANY ($2::text[]) AND instance = " INSTANCE
		 " AND status IN ('open', 'running') AND EXISTS (SELECT 1 FROM own)",						    0,       false},
 /* What has no row at all may be another database's, from before this one was ours. */
	[PG_QUERY_GONE] =
		{"gone",
					"SELECT k.id, CASE WHEN s.id IS NULL"
		 " THEN (extract(epoch FROM w.since) * 1000000)::bigint ELSE 0 END"
		 " FROM unnest($1::text[]) k (id) LEFT JOIN dagster_sandbox_sessions s ON s.id = k.id,"
		 " sandbox_writers w WHERE w.id = " INSTANCE
		 " AND w.since IS NOT NULL AND (s.id IS NULL OR s.status = 'closed')",						   0,       false},
	[PG_QUERY_CLAIM] = {"claim",
					"UPDATE dagster_sandbox_sessions SET instance = " INSTANCE
			    ", host = $1, given_back = NULL"
			    " WHERE (instance IS NULL OR (instance = " INSTANCE
			    " AND given_back = 1))"
			    " AND status IN ('open', 'running')",									0,       false},
};

const struct pg_query_text *pg_query(unsigned int query)
{
	ASSERT(query < PG_QUERY_MAX_);
	return &queries[query];
}
