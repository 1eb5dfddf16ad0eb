"""The store on PostgreSQL: one real server, the service's role on the schema of another."""

import pytest

from harness import Daemon, SESSIONS
from postgres_rig import Postgres


@pytest.fixture(scope="module")
def postgres():
    server = Postgres()
    server.ready()
    yield server
    server.done()


@pytest.fixture(scope="module")
def daemon(postgres):
    started = Daemon(config=postgres.config())
    yield started
    started.done()


def row(postgres, session, columns):
    return postgres.sql(f"SELECT {columns} FROM dagster_sandbox_sessions WHERE id = '{session}'")


def test_session_is_a_row(postgres, alice, bob):
    answer = alice.post(SESSIONS, {"ttl_minutes": 30})
    assert answer.status == 201, answer
    assert answer.json["sandbox"]["persisted"] is True, answer.json
    session = answer.json["id"]
    assert row(postgres, session, "status, owner_user_id, workspace_id, ttl_minutes") == "open|alice|blue|30"
    assert [one["id"] for one in alice.get(SESSIONS).json] == [session]
    assert bob.get(f"{SESSIONS}/{session}").status == 404
    assert alice.remove(session).status == 200
    assert row(postgres, session, "status, closed_reason") == "closed|deleted"
