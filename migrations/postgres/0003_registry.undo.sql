-- What 0003 made.
BEGIN;
ALTER TABLE sandbox_components DROP COLUMN IF EXISTS generation;
ALTER TABLE sandbox_writers DROP COLUMN IF EXISTS lease_until;
ALTER TABLE sandbox_writers DROP COLUMN IF EXISTS since;
ALTER TABLE dagster_sandbox_sessions DROP COLUMN IF EXISTS given_back;
ALTER TABLE dagster_sandbox_sessions DROP COLUMN IF EXISTS lease_fence;
ALTER TABLE dagster_sandbox_sessions DROP COLUMN IF EXISTS runtime_json;
DROP TABLE IF EXISTS sandbox_registry;
DELETE FROM schema_migrations WHERE version = 3;
COMMIT;
