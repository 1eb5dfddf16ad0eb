-- 0003: sessions whose process tree is made again from the row.
-- restoring: a tree was asked for and its folder is not complete yet. A worker that starts and finds
-- such a tree ends it.
ALTER TABLE dagster_sandbox_sessions ADD COLUMN restoring integer NOT NULL DEFAULT 0;

-- Names of the secrets that the session has, as a JSON array; values are never in a row.
ALTER TABLE dagster_sandbox_sessions ADD COLUMN secrets_json json;

-- What its owner calls the session, once among the open ones; or NULL.
ALTER TABLE dagster_sandbox_sessions ADD COLUMN name varchar(63);

-- What a task that goes on under another worker has shown already, and the acknowledged output of
-- its loader, which the session no longer keeps. The output is deleted when the task ends. Where
-- resumable is 0 an earlier release started the task and kept none of it.
ALTER TABLE sandbox_tasks ADD COLUMN resumable integer NOT NULL DEFAULT 0;
ALTER TABLE sandbox_tasks ADD COLUMN assets_shown integer NOT NULL DEFAULT 0;
ALTER TABLE sandbox_tasks ADD COLUMN problems_shown integer NOT NULL DEFAULT 0;
ALTER TABLE sandbox_tasks ADD COLUMN frames_dropped integer NOT NULL DEFAULT 0;
CREATE TABLE sandbox_task_output (
	task_id varchar(36) NOT NULL,
	wire_number bigint NOT NULL,
	body blob NOT NULL,
	PRIMARY KEY (task_id, wire_number)
);

-- The code of the terminal frame of a task that ended as an error.
ALTER TABLE sandbox_tasks ADD COLUMN code varchar(32);

-- Processor time of owners (0), workspaces (1) and the host (2) by day (UTC, since 1970).
CREATE TABLE sandbox_usage (
	day integer NOT NULL,
	scope integer NOT NULL,
	name varchar(64) NOT NULL,
	cpu_us bigint NOT NULL,
	PRIMARY KEY (day, scope, name)
);

-- What the frames of a task take, with 128 bytes for each row: the quota of stored bytes counts it.
ALTER TABLE sandbox_tasks ADD COLUMN frames_bytes bigint NOT NULL DEFAULT 0;
UPDATE sandbox_tasks SET frames_bytes = (SELECT coalesce(sum(length(CAST(f.body AS BLOB)) + 128), 0)
	FROM sandbox_frames f WHERE f.task_id = sandbox_tasks.id);
CREATE INDEX ix_sandbox_tasks_frames ON sandbox_tasks (owner_text, workspace_text, frames_bytes)
	WHERE frames_bytes > 0;
