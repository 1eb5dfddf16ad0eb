-- 0005: connections of Airbyte that can be written as components. Neither configuration nor secret of
-- a connector is ever here.
CREATE TABLE airbyte_connections (
	id varchar(36) NOT NULL PRIMARY KEY,
	name varchar(1024) NOT NULL,
	airbyte_connection_id varchar(64),
	airbyte_source_id varchar(64),
	airbyte_destination_id varchar(64),
	streams json,
	owner_user_id varchar(36),
	workspace_id varchar(36),
	created_at timestamp NOT NULL,
	updated_at timestamp NOT NULL
);
CREATE INDEX ix_airbyte_connections_connection ON airbyte_connections (airbyte_connection_id);
CREATE INDEX ix_airbyte_connections_owner ON airbyte_connections (owner_user_id);
CREATE INDEX ix_airbyte_connections_workspace ON airbyte_connections (workspace_id);

-- The row of airbyte_connections that a component was written from; NULL: its body was sent.
ALTER TABLE sandbox_components ADD COLUMN origin varchar(64);

-- 1: closed, and its keys in Redis may be left there.
ALTER TABLE dagster_sandbox_sessions ADD COLUMN redis_left integer;
CREATE INDEX ix_sandbox_sessions_redis_left ON dagster_sandbox_sessions (redis_left) WHERE redis_left = 1;
