-- What 0001 made, removed by hand after the service was stopped and a backup taken: sessions, tasks
-- and frames are lost. The table of sessions and its rows stay, for they may be the platform's.
BEGIN;
DROP FUNCTION IF EXISTS sandbox_foreign_components(json);
DROP TABLE IF EXISTS sandbox_writers, sandbox_usage, sandbox_task_output, sandbox_frames,
	sandbox_tasks, sandbox_components;
DROP INDEX IF EXISTS ix_sandbox_sessions_open, ix_sandbox_sessions_closed;
ALTER TABLE dagster_sandbox_sessions
	DROP COLUMN IF EXISTS instance, DROP COLUMN IF EXISTS host,
	DROP COLUMN IF EXISTS owner_text, DROP COLUMN IF EXISTS tenant,
	DROP COLUMN IF EXISTS workspace_text, DROP COLUMN IF EXISTS project_text,
	DROP COLUMN IF EXISTS kind, DROP COLUMN IF EXISTS name, DROP COLUMN IF EXISTS profile,
	DROP COLUMN IF EXISTS envs_json, DROP COLUMN IF EXISTS limits_json,
	DROP COLUMN IF EXISTS secrets_json, DROP COLUMN IF EXISTS egress_allow_json,
	DROP COLUMN IF EXISTS restoring,
	DROP COLUMN IF EXISTS acked, DROP COLUMN IF EXISTS closed_at,
	DROP COLUMN IF EXISTS closed_reason;
DELETE FROM schema_migrations WHERE version = 1;
COMMIT;
