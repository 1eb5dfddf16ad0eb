-- 0004: what a session may reach beside its endpoints, as a JSON array of rules.
ALTER TABLE dagster_sandbox_sessions ADD COLUMN egress_allow_json json;
