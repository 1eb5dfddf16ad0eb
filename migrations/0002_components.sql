-- 0002: component bodies in rows of their own. As members of components_json each write parsed and
-- wrote the bodies of the whole session, up to 32 MiB, which held up every other session meanwhile.
-- components_json stays for rows that another writer filled; this store leaves it NULL.
CREATE TABLE sandbox_components (
	session_id varchar(36) NOT NULL,
	file varchar(1036) NOT NULL,
	bytes bigint NOT NULL,
	body text NOT NULL,
	PRIMARY KEY (session_id, file)
);
INSERT INTO sandbox_components (session_id, file, bytes, body)
	SELECT s.id, j.key, length(CAST(j.value AS BLOB)), j.value
	FROM dagster_sandbox_sessions s, json_each(s.components_json) j;
UPDATE dagster_sandbox_sessions SET components_json = NULL;
