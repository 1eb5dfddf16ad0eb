"""The rows as they lie in the store, read by the store's own programs and none of ours."""
import hashlib
import json
import sqlite3

QUERIES = {
    "sessions": "SELECT id, status, name, expires_at, restoring, closed_at, closed_reason FROM dagster_sandbox_sessions",
    "components": "SELECT session_id, file, body FROM sandbox_components",
    "tasks": "SELECT id, session_id, status, code, started_at, ended_at FROM sandbox_tasks",
    "frames": "SELECT task_id, seq, stage, body FROM sandbox_frames ORDER BY task_id, seq",
    "output": "SELECT task_id FROM sandbox_task_output",
}


def rows_of_sqlite(path):
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)
    connection.row_factory = sqlite3.Row
    try:
        connection.execute("BEGIN")
        return {name: [dict(row) for row in connection.execute(query)] for name, query in QUERIES.items()}
    finally:
        connection.close()


def rows_of_postgres(server):
    found = {}
    for name, query in QUERIES.items():
        text = server.sql(f"SELECT coalesce(json_agg(r), '[]') FROM ({query}) r")
        found[name] = json.loads(text)
    for row in found["components"]:
        row["body"] = bytes.fromhex(row["body"].removeprefix("\\x"))
    return found


def rows(service):
    found = rows_of_postgres(service.postgres) if service.postgres else \
        rows_of_sqlite(service.state / "api" / "api.db")
    for row in found["components"]:
        body = row.pop("body")
        row["sha"] = hashlib.sha256(body.encode() if isinstance(body, str) else body).hexdigest()
    return found
