"""No query reads a large table from end to end: the server explains what the service really asks.

SANDBOX_TEST_ROWS: rows of each table (default 100 000; 1 000 000 takes some minutes)."""

import os
import re
import uuid

import pytest

from harness import Daemon, SESSIONS, wait_until
from postgres_rig import Postgres

ROWS = int(os.environ.get("SANDBOX_TEST_ROWS", "100000"))
LARGE = ("dagster_sandbox_sessions", "sandbox_tasks", "sandbox_frames", "sandbox_components")
BODY = "type: demo.Thing\n"
EXPLAIN = ("shared_preload_libraries=auto_explain", "auto_explain.log_min_duration=0",
           "auto_explain.log_nested_statements=on", "autovacuum=off", "fsync=off")

FILL = f"""
INSERT INTO dagster_sandbox_sessions (id, status, created_at, updated_at, expires_at, closed_at, closed_reason,
    owner_user_id, instance)
  SELECT 'old-' || i, CASE WHEN i % 1000 = 0 THEN 'open' ELSE 'closed' END, at, at, at,
    CASE WHEN i % 1000 <> 0 THEN at END, 'deleted', 'owner' || i % 500, 'another'
  FROM (SELECT i, timezone('UTC', now()) - i % 86400 * interval '1 minute' AS at FROM generate_series(1, {ROWS}) i) s;
INSERT INTO sandbox_tasks (id, session_id, owner_text, workspace_text, status, created_at, frames_bytes)
  SELECT 'task-' || i, 'old-' || i, 'owner' || i % 500, '', 'done', timezone('UTC', now()),
    CASE WHEN i % 20 = 0 THEN 100 ELSE 0 END FROM generate_series(1, {ROWS}) i;
INSERT INTO sandbox_frames (task_id, seq, stage, body)
  SELECT 'task-' || i, 1, 'done', '{{}}' FROM generate_series(1, {ROWS}) i;
INSERT INTO sandbox_components (session_id, file, bytes, body)
  SELECT 'old-' || i, 'a.yaml', 3, 'a: ' FROM generate_series(1, {ROWS}) i;
"""


@pytest.fixture(scope="module")
def plans():
    """Query text → plan, of everything that the service asked in a life with all it does."""
    server = Postgres()
    try:
        server.ready()
        server.restart(settings=EXPLAIN)
        server.sql(FILL)
        for table in LARGE:
            server.sql(f"VACUUM ANALYZE {table}")
        (server.home / "log").write_text("")
        own = Daemon(config=server.config("[api]\njanitor_interval = 1s\nframes_keep = 24h\n"))
        try:
            alice = own.client("alice", workspace="blue")
            session = alice.create()
            alice.write(session, "one", BODY)
            assert alice.get(f"{SESSIONS}/{uuid.uuid4()}").status == 404
            assert alice.post(f"{SESSIONS}/{session}/airbyte", {"airbyte_connection_id": "x"}).status == 404
            assert alice.get("/dagster/sandbox/airbyte-connections").json == []
            task = alice.execute(session)
            assert alice.frames(task)[-1]["stage"] == "done"
            assert alice.get(f"{SESSIONS}/{session}/tasks").status == 200
            own.stop()
            own.start()
            assert alice.frames(task)[-1]["stage"] == "done"
            assert alice.shell(session, "ls").code == 0
            alice.remove(session)
            wait_until(lambda: "DELETE FROM dagster_sandbox_sessions" in (server.home / "log").read_text(), 30,
                       "rows are deleted by age")
        finally:
            own.done()
        text = (server.home / "log").read_text(errors="replace")
        entries = re.findall(r"plan:\n\tQuery Text: (.*?)\n((?:\t.*\n)+)", text)
        yield {query: plan for query, plan in entries}
    finally:
        server.done()


def test_plans_of_all_queries_are_there(plans):
    """The control: without it nothing would be looked at."""
    seen = "\n".join(plans)
    for part in ("INSERT INTO dagster_sandbox_sessions", "SELECT s.id, coalesce(s.owner_user_id",
                 "UPDATE dagster_sandbox_sessions SET status = $2", "INSERT INTO sandbox_components",
                 "INSERT INTO sandbox_frames", "SELECT seq, stage, body", "SELECT u.file, u.body",
                 "WITH old AS MATERIALIZED", "DELETE FROM sandbox_frames", "UPDATE sandbox_tasks SET frames_kept",
                 "SELECT owner_text, workspace_text", "SELECT scope, name", "UPDATE sandbox_writers",
                 "WHERE t.session_id = $1", "WHERE t.status IN ('queued', 'running')", "instance IS NULL", "WITH s AS (UPDATE", "c.airbyte_connection_id = $4", "ORDER BY c.name"):
        assert part in seen, part


def test_no_query_reads_a_large_table_from_end_to_end(plans):
    bad = [(query, plan) for query, plan in plans.items()
           if any(re.search(rf"Seq Scan on {table}\b", plan) for table in LARGE)]
    assert bad == [], "\n\n".join(f"{query}\n{plan}" for query, plan in bad)
