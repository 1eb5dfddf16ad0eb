-- 0003: who may write about a session.
-- lease_fence: raised with each run, each new tree, and whenever another instance takes the session;
-- a writer that knows a lower one, or is not `instance`, writes nothing.
-- given_back: 1: its instance has stopped, and any other one may take it at once.
ALTER TABLE dagster_sandbox_sessions ADD COLUMN IF NOT EXISTS lease_fence bigint;
ALTER TABLE dagster_sandbox_sessions ADD COLUMN IF NOT EXISTS given_back integer;

-- Until when the instance holds its sessions, by this server's clock, unless it says so again; NULL:
-- an earlier release, which never says it, and holds them for good.
ALTER TABLE sandbox_writers ADD COLUMN lease_until timestamp without time zone;

-- When the instance came to this database: what it has in the object store from before, and no row
-- here speaks of, may be another database's.
ALTER TABLE sandbox_writers ADD COLUMN since timestamp without time zone;

-- What a caller of the runtime API said of a sandbox: metadata, workspace, the key of its create.
ALTER TABLE dagster_sandbox_sessions ADD COLUMN IF NOT EXISTS runtime_json json;

-- One row per session. status: creating, running, suspending, suspended, destroyed, expired; written
-- before it is acted on. generation counts suspends; snapshot_ref (JSON) is that of durable_generation.
-- durable: 0: nobody wants one of this generation. since_us: when it was suspended; ttl_left_us: what
-- is left of its life time meanwhile.
CREATE TABLE sandbox_registry (
	sandbox_uuid varchar(36) NOT NULL PRIMARY KEY,
	organization_uuid varchar(72),
	project_uuid varchar(64),
	provider varchar(32) NOT NULL DEFAULT 'native',
	provider_sandbox_id varchar(128),
	status varchar(16) NOT NULL,
	generation bigint NOT NULL DEFAULT 0,
	durable_generation bigint NOT NULL DEFAULT 0,
	durable integer NOT NULL DEFAULT 1,
	snapshot_ref json,
	workspace json,
	since_us bigint NOT NULL DEFAULT 0,
	ttl_left_us bigint NOT NULL DEFAULT 0,
	created_at timestamp NOT NULL,
	updated_at timestamp NOT NULL
);

-- How many suspends of its session there were when it was written.
ALTER TABLE sandbox_components ADD COLUMN generation bigint NOT NULL DEFAULT 0;
