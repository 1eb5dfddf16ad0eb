-- 0001: sessions, tasks and their frames.
-- The first fifteen columns of dagster_sandbox_sessions are those that the platform reads; what is
-- behind them is ours and may be NULL, so that rows of either side are valid for the other. Times
-- are ISO 8601 of naive UTC with microseconds.
CREATE TABLE dagster_sandbox_sessions (
	id varchar(36) NOT NULL PRIMARY KEY,
	status varchar(32) NOT NULL DEFAULT 'open',
	components_json json,
	log_summary_json json,
	last_run_id varchar(64),
	folder varchar(512),
	notes text,
	expires_at timestamp,
	created_at timestamp NOT NULL,
	updated_at timestamp NOT NULL,
	owner_user_id varchar(36),
	workspace_id varchar(36),
	project_id varchar(36),
	env_overrides_json json,
	ttl_minutes integer,
	owner_text varchar(64),
	kind varchar(16),
	profile varchar(24),
	envs_json json,
	limits_json json,
	host varchar(255),
	closed_at timestamp,
	closed_reason varchar(32),
	acked bigint NOT NULL DEFAULT 0
);
CREATE INDEX ix_dagster_sandbox_sessions_status ON dagster_sandbox_sessions (status);
CREATE INDEX ix_dagster_sandbox_sessions_expires_at ON dagster_sandbox_sessions (expires_at);
CREATE INDEX ix_dagster_sandbox_sessions_last_run_id ON dagster_sandbox_sessions (last_run_id);
CREATE INDEX ix_dagster_sandbox_sessions_workspace_status
	ON dagster_sandbox_sessions (workspace_id, status);
CREATE INDEX ix_dagster_sandbox_sessions_closed_at ON dagster_sandbox_sessions (closed_at);

-- A task outlives its session, so it says itself who may see it.
CREATE TABLE sandbox_tasks (
	id varchar(36) NOT NULL PRIMARY KEY,
	session_id varchar(36) NOT NULL,
	owner_text varchar(64) NOT NULL,
	workspace_text varchar(64) NOT NULL,
	status varchar(16) NOT NULL,
	request_id varchar(64),
	wire_job bigint NOT NULL DEFAULT 0,
	created_at timestamp NOT NULL,
	started_at timestamp,
	ended_at timestamp,
	frames_kept integer NOT NULL DEFAULT 1
);
CREATE INDEX ix_sandbox_tasks_session ON sandbox_tasks (session_id);
CREATE INDEX ix_sandbox_tasks_status ON sandbox_tasks (status);

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
