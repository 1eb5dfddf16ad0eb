-- 0001: the store on PostgreSQL. The table of sessions is the platform's own: it is made here where
-- its migrations have not made it, and adopted where they have; then only nullable columns are added.
-- Times are naive UTC.
CREATE TABLE IF NOT EXISTS dagster_sandbox_sessions (
	id varchar(36) NOT NULL PRIMARY KEY,
	status varchar(32) NOT NULL DEFAULT 'open',
	components_json json,
	log_summary_json json,
	last_run_id varchar(64),
	folder varchar(512),
	notes text,
	expires_at timestamp without time zone,
	created_at timestamp without time zone NOT NULL,
	updated_at timestamp without time zone NOT NULL,
	owner_user_id varchar(36),
	workspace_id varchar(36),
	project_id varchar(36),
	env_overrides_json json,
	ttl_minutes integer
);
CREATE INDEX IF NOT EXISTS ix_dagster_sandbox_sessions_status ON dagster_sandbox_sessions (status);
CREATE INDEX IF NOT EXISTS ix_dagster_sandbox_sessions_expires_at
	ON dagster_sandbox_sessions (expires_at);
CREATE INDEX IF NOT EXISTS ix_dagster_sandbox_sessions_last_run_id
	ON dagster_sandbox_sessions (last_run_id);
CREATE INDEX IF NOT EXISTS ix_dagster_sandbox_sessions_workspace_status
	ON dagster_sandbox_sessions (workspace_id, status);

-- instance: who runs the session, a row of sandbox_writers. owner_text, workspace_text and
-- project_text hold what a foreign key of the platform's refuses; tenant is true where the owner is
-- then a tenant and not the operator.
ALTER TABLE dagster_sandbox_sessions
	ADD COLUMN IF NOT EXISTS env_overrides_json json,
	ADD COLUMN IF NOT EXISTS ttl_minutes integer,
	ADD COLUMN IF NOT EXISTS instance varchar(36),
	ADD COLUMN IF NOT EXISTS host varchar(255),
	ADD COLUMN IF NOT EXISTS owner_text varchar(64),
	ADD COLUMN IF NOT EXISTS tenant boolean,
	ADD COLUMN IF NOT EXISTS workspace_text varchar(64),
	ADD COLUMN IF NOT EXISTS project_text varchar(64),
	ADD COLUMN IF NOT EXISTS kind varchar(16),
	ADD COLUMN IF NOT EXISTS name varchar(63),
	ADD COLUMN IF NOT EXISTS profile varchar(24),
	ADD COLUMN IF NOT EXISTS envs_json json,
	ADD COLUMN IF NOT EXISTS limits_json json,
	ADD COLUMN IF NOT EXISTS secrets_json json,
	ADD COLUMN IF NOT EXISTS egress_allow_json json,
	ADD COLUMN IF NOT EXISTS restoring integer,
	ADD COLUMN IF NOT EXISTS acked bigint,
	ADD COLUMN IF NOT EXISTS closed_at timestamp without time zone,
	ADD COLUMN IF NOT EXISTS closed_reason varchar(32);
CREATE INDEX IF NOT EXISTS ix_sandbox_sessions_open ON dagster_sandbox_sessions (instance)
	WHERE status IN ('open', 'running');
CREATE INDEX IF NOT EXISTS ix_sandbox_sessions_closed ON dagster_sandbox_sessions (closed_at, id)
	WHERE status = 'closed';

-- Component bodies. components_json repeats them for the platform as long as they are small.
CREATE TABLE sandbox_components (
	session_id varchar(36) NOT NULL,
	file varchar(1036) COLLATE "C" NOT NULL,
	bytes bigint NOT NULL,
	body bytea NOT NULL,
	PRIMARY KEY (session_id, file)
);

-- A task outlives its session, so it says itself who may see it.
CREATE TABLE sandbox_tasks (
	id varchar(36) NOT NULL PRIMARY KEY,
	session_id varchar(36) NOT NULL,
	owner_text varchar(64) NOT NULL,
	workspace_text varchar(64) NOT NULL,
	status varchar(16) NOT NULL,
	code varchar(32),
	request_id varchar(64),
	wire_job bigint NOT NULL DEFAULT 0,
	created_at timestamp without time zone NOT NULL,
	started_at timestamp without time zone,
	ended_at timestamp without time zone,
	frames_kept integer NOT NULL DEFAULT 1,
	resumable integer NOT NULL DEFAULT 0,
	assets_shown bigint NOT NULL DEFAULT 0,
	problems_shown bigint NOT NULL DEFAULT 0,
	frames_dropped bigint NOT NULL DEFAULT 0,
	frames_bytes bigint NOT NULL DEFAULT 0
);
CREATE INDEX ix_sandbox_tasks_session ON sandbox_tasks (session_id, created_at);
CREATE INDEX ix_sandbox_tasks_open ON sandbox_tasks (session_id)
	WHERE status IN ('queued', 'running');
CREATE INDEX ix_sandbox_tasks_frames ON sandbox_tasks (owner_text, workspace_text, frames_bytes)
	WHERE frames_bytes > 0;

-- wire_number: the shim's number whose commit this frame belongs to, 0 where none does. One number
-- may bring several frames; they and dagster_sandbox_sessions.acked are written together.
CREATE TABLE sandbox_frames (
	task_id varchar(36) NOT NULL,
	seq bigint NOT NULL,
	wire_number bigint NOT NULL DEFAULT 0,
	stage varchar(16) NOT NULL,
	body text NOT NULL,
	PRIMARY KEY (task_id, seq)
);

-- The acknowledged output of a running task's loader; deleted when the task ends.
CREATE TABLE sandbox_task_output (
	task_id varchar(36) NOT NULL,
	wire_number bigint NOT NULL,
	body bytea NOT NULL,
	PRIMARY KEY (task_id, wire_number)
);

-- Processor time that an instance counted for owners (0), workspaces (1) and itself (2) by day (UTC,
-- since 1970).
CREATE TABLE sandbox_usage (
	instance varchar(36) NOT NULL,
	day integer NOT NULL,
	scope integer NOT NULL,
	name varchar(64) NOT NULL,
	cpu_us bigint NOT NULL,
	PRIMARY KEY (instance, day, scope, name)
);

-- One row an instance. generation: of its connections; an older one writes nothing any more. batch:
-- number of the last one that was committed, which tells after a lost connection what was.
CREATE TABLE sandbox_writers (
	id varchar(36) NOT NULL PRIMARY KEY,
	host varchar(255),
	generation bigint NOT NULL,
	batch bigint NOT NULL,
	seen_at timestamp without time zone NOT NULL
);

-- Component bodies that another program put into the row, by its convention. What is no object of
-- texts has none; escapes that PostgreSQL cannot hold (NUL) are no reason to fail for others.
CREATE FUNCTION sandbox_foreign_components(document json)
RETURNS TABLE (file text, body text) LANGUAGE plpgsql IMMUTABLE AS $body$
BEGIN
	IF document IS NULL OR json_typeof(document) <> 'object' THEN
		RETURN;
	END IF;
	RETURN QUERY SELECT DISTINCT ON (j.key) j.key, j.value #>> '{}' FROM json_each(document) j
		WHERE json_typeof(j.value) = 'string' AND j.key <> '';
EXCEPTION WHEN data_exception THEN
	RETURN;
END
$body$;
