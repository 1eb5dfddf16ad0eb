-- 0002: connections of Airbyte that can be written as components. The table is the platform's own
-- where there is one, and only read; the service reads the five columns that are looked for here.
CREATE TABLE IF NOT EXISTS airbyte_connections (
	id varchar(36) NOT NULL PRIMARY KEY,
	name varchar(1024) NOT NULL,
	airbyte_connection_id varchar(64),
	owner_user_id varchar(36),
	workspace_id varchar(36)
);
DO $body$
DECLARE
	missing text;
BEGIN
	SELECT string_agg(w.wanted, ', ') INTO missing
		FROM unnest(ARRAY['id', 'name', 'airbyte_connection_id', 'owner_user_id', 'workspace_id']) w (wanted)
		WHERE NOT EXISTS (SELECT 1 FROM pg_attribute a
			WHERE a.attrelid = to_regclass('airbyte_connections') AND a.attname = w.wanted
			AND NOT a.attisdropped);
	IF missing IS NOT NULL THEN
		RAISE EXCEPTION 'the table airbyte_connections lacks %', missing;
	END IF;
	-- Nobody but its owner may make an index on it; small as such tables are, none is needed.
	IF pg_has_role((SELECT relowner FROM pg_class WHERE oid = to_regclass('airbyte_connections')), 'USAGE') THEN
		CREATE INDEX IF NOT EXISTS ix_sandbox_airbyte_connection
			ON airbyte_connections (airbyte_connection_id);
	END IF;
END
$body$;

-- The row of airbyte_connections that a component was written from; NULL: its body was sent.
ALTER TABLE sandbox_components ADD COLUMN origin varchar(64);

-- 1: closed, and its keys in Redis may be left there.
ALTER TABLE dagster_sandbox_sessions ADD COLUMN IF NOT EXISTS redis_left integer;
CREATE INDEX IF NOT EXISTS ix_sandbox_sessions_redis_left ON dagster_sandbox_sessions (instance)
	WHERE redis_left = 1;
