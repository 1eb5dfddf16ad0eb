-- What 0002 made. The table of connections stays, for it may be the platform's.
BEGIN;
ALTER TABLE sandbox_components DROP COLUMN IF EXISTS origin;
DROP INDEX IF EXISTS ix_sandbox_sessions_redis_left;
ALTER TABLE dagster_sandbox_sessions DROP COLUMN IF EXISTS redis_left;
DROP INDEX IF EXISTS ix_sandbox_airbyte_connection;
DELETE FROM schema_migrations WHERE version = 2;
COMMIT;
