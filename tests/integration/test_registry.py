"""What a row of sandbox_registry says, and what the next worker or the next tree makes of it."""
import time

import pytest

from harness import RUNTIME, SESSIONS, wait_until
from test_restart import kill_worker
from test_suspend import at, begin, resume, run, suspend
from test_suspend_durable import files_of, is_durable, restart


def want_of(daemon, session):
    return daemon.sql("SELECT durable FROM sandbox_registry WHERE sandbox_uuid = ?", session)[0][0]


def next_worker(daemon):
    kill_worker(daemon, "sandboxd-api")
    caller = daemon.client("ana")
    wait_until(lambda: daemon.root.get("/readyz").status == 200, 60)
    return caller


@pytest.fixture(name="dagster")
def fixture_dagster(private):
    caller = private.client("ana")
    return caller, caller.create()


@pytest.mark.parametrize("status", ("suspended", "suspending"))
def test_the_next_worker_makes_what_was_wanted(private, status):
    """What a worker leaves that dies in front of the first step of a snapshot; the rows are as it had written them."""
    caller = private.client("ana")
    wanted, never = (caller.create_runtime() for _ in range(2))
    for session in (wanted, never):
        begin(caller, session, "sleep 1000")
        run(caller, session, "echo kept > file")
        suspend(caller, session, durable="never")
        assert want_of(private, session) == 0
    private.sql("UPDATE sandbox_registry SET durable = 1, status = ? WHERE sandbox_uuid = ?", status, wanted)
    caller = next_worker(private)
    wait_until(lambda: is_durable(private, wanted), 60)
    assert files_of(private, wanted)
    time.sleep(1)
    assert not is_durable(private, never) and not files_of(private, never)
    for session in (wanted, never):
        assert caller.get(at(session)).json["status"] == "suspended"
        resume(caller, session)
        assert run(caller, session, "cat file; pgrep -c sleep") == "kept\n1\n"


def test_who_wants_it_later(private):
    caller = private.client("ana")
    session = caller.create_runtime()
    suspend(caller, session, durable="never")
    suspend(caller, session)
    wait_until(lambda: is_durable(private, session), 60)
    assert want_of(private, session) == 1
    resume(caller, session)
    suspend(caller, session, durable="never")
    assert want_of(private, session) == 0 and not is_durable(private, session)


def test_a_component_is_newer_than_the_snapshot(private, dagster):
    """Written after the suspend that the snapshot is of: it is what the new tree has."""
    caller, session = dagster
    caller.write(session, "old", "type: old.A\n")
    suspend(caller, session, durable="wait")
    resume(caller, session)
    caller.write(session, "old", "type: new.A\n")
    caller.write(session, "added", "type: new.B\n")
    restart(private)
    caller = private.client("ana")
    assert caller.run(session, "/bin/cat", "/session/old.yaml", "/session/added.yaml").out == b"type: new.A\ntype: new.B\n"


def test_a_component_is_older_than_the_snapshot(private, dagster):
    """What programs did to it since counts, also that it is gone."""
    caller, session = dagster
    for name in ("changed", "removed", "kept"):
        caller.write(session, name, f"type: {name}.A\n")
    assert caller.run(session, "/bin/sh", "-c",
                      "cd /session && echo 'type: program.A' > changed.yaml && rm removed.yaml").code == 0
    suspend(caller, session, durable="wait")
    restart(private)
    caller = private.client("ana")
    resume(caller, session, "snapshot")
    assert caller.run(session, "/bin/sh", "-c", "cd /session && cat *.yaml").out == b"type: program.A\ntype: kept.A\n"
    # And again, with a snapshot of a later suspend beside components of each age.
    caller.write(session, "kept", "type: later.A\n")
    assert caller.run(session, "/bin/sh", "-c", "echo 'type: again.A' > /session/changed.yaml").code == 0
    suspend(caller, session, durable="wait")
    resume(caller, session)
    caller.write(session, "removed", "type: back.A\n")
    restart(private)
    caller = private.client("ana")
    assert caller.run(session, "/bin/sh", "-c", "cd /session && cat *.yaml").out == \
        b"type: again.A\ntype: later.A\ntype: back.A\n"


def test_text_that_no_answer_can_hold(private, dagster):
    """Of another program, or a broken disk: SQLite takes any bytes as text."""
    if private.database:
        pytest.skip("PostgreSQL takes none")
    caller, session = dagster
    run_of = caller.create_runtime()
    private.stop()
    for name in (session, run_of):
        private.sql("UPDATE dagster_sandbox_sessions SET project_id = CAST(x'70ff71' AS TEXT),"
                    " last_run_id = CAST(x'fe' AS TEXT), workspace_id = CAST(x'c328' AS TEXT) WHERE id = ?", name)
    private.start()
    caller = private.client("ana")
    answer = caller.get(f"{SESSIONS}/{session}")
    assert answer.status == 200 and answer.json["id"] == session, answer
    assert caller.get(at(run_of)).json["sandbox_uuid"] == run_of
    assert private.client("ana", project="p1").get(at(run_of)).status == 404  # whose project it is nobody knows
    assert {one["sandbox_uuid"] for one in private.root.get(f"{RUNTIME}?limit=500").json["sandboxes"]} >= {run_of}
