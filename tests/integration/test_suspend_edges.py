"""Suspended sandboxes where two things meet: a snapshot under way, a row without time, a store that is away."""
import contextlib
import http.client
import os
import signal
import threading
import time

import pytest

from harness import CONFIG, PATIENCE, RUNTIME, descendants, name_of, serving, status_of, stopped, wait_until
from test_suspend import JSON, at, begin, resume, run, suspend
from test_suspend_durable import files_of, group_of, is_durable

TRIES = 20
FILL = "head -c 40000000 /dev/urandom > big"
MANY_GROUPS = "exec python3 -c 'import os, time; os.setgroups([0] * 65536); open(\"/session/ready\", \"w\"); time.sleep(1000)'"


@pytest.fixture(name="resuming", scope="module")
def fixture_resuming():
    """Its sandboxes go on with their next use."""
    with serving(CONFIG + "[api]\nidle_timeout = 1h\n") as daemon:
        yield daemon


def archives(daemon):
    return [pid for pid in descendants(daemon.process.pid) if name_of(pid) in ("sandbox-archive", "memfd:sandbox-a")]


def stands_still(pid):
    """False: it is gone. The signal may take a moment."""
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGSTOP)
        while (state := status_of(pid).get("State", "Z")[0]) not in "TZX":
            time.sleep(0.001)
        return state == "T"
    return False


@contextlib.contextmanager
def slow_archive(daemon, ask):
    """`ask` makes a snapshot, and the program that reads the workspace stands still. It may be over
    before it is found: then once more."""
    for _ in range(TRIES):
        asking = threading.Thread(target=ask)
        asking.start()
        found = []
        while asking.is_alive() and not found:
            found = archives(daemon)
        try:
            if found and stands_still(found[0]):
                yield
                return
        finally:
            with contextlib.suppress(ProcessLookupError):
                for pid in found:
                    os.kill(pid, signal.SIGCONT)
            asking.join(120 * PATIENCE)
    pytest.fail("no snapshot was found at work")


def test_no_suspend_beside_a_snapshot(private):
    """Half of it may be put back: that must not be what is kept."""
    caller = private.client("ana")
    session = caller.create_runtime()
    run(caller, session, FILL)
    with slow_archive(private, lambda: caller.post(at(session, "/snapshots"), timeout=120 * PATIENCE)):
        answer = caller.post(at(session, "/suspend"))
        assert (answer.status, answer.json["code"]) == (503, "busy"), answer
        assert caller.get(at(session)).json["status"] == "open"
    suspend(caller, session)


def test_a_parted_one_that_could_not_be_made_whole(private):
    """Nothing of it goes on, and the next suspend makes it whole before it makes the snapshot."""
    caller = private.client("ana")
    session = caller.create_runtime()
    run(caller, session, FILL)
    group = group_of(private, session)
    inside = group / "work" / "inside"

    def begin_snapshot():
        suspend(caller, session)
        wait_until(lambda: archives(private) or is_durable(private, session), 60)

    with slow_archive(private, begin_snapshot):
        inside.mkdir()  # so that `work` cannot be removed
    wait_until(lambda: "cannot be made whole" in private.log.read_text(), 60)
    assert not is_durable(private, session) and (group / "work").exists()
    inside.rmdir()
    assert suspend(caller, session, durable="wait")["durable"] is True
    assert not (group / "work").exists()
    resume(caller, session)
    assert run(caller, session, "echo on") == "on\n"


def test_a_process_of_very_many_groups(private):
    """What /proc says of it is longer than of any other."""
    caller = private.client("ana")
    session = caller.create_runtime(profile="agent")
    begin(caller, session, MANY_GROUPS, user="root")
    wait_until(lambda: run(caller, session, "test -e /session/ready && echo yes || true"))
    assert suspend(caller, session, durable="wait")["durable"] is True
    resume(caller, session)


def test_nothing_is_left_of_its_life_time(resuming):
    """Who uses it waits for a sandbox that ends with its resume."""
    caller = resuming.client("ana")
    session = caller.create_runtime()
    assert suspend(caller, session, durable="wait")["durable"] is True
    resuming.stop()
    resuming.sql("UPDATE sandbox_registry SET ttl_left_us = 0 WHERE sandbox_uuid = ?", session)
    resuming.start()
    caller = resuming.client("ana")
    assert caller.get(at(session)).json["status"] == "suspended"
    answer = caller.post(at(session, "/commands"), {"cmd": "true"})
    assert answer.status == 404, answer
    assert caller.get(at(session)).status == 404
    assert caller.get(RUNTIME).status == 200


def test_variables_of_a_second_resume(private):
    """Both are answered with the same resume, and what each of them brought counts."""
    caller = private.client("ana")
    session = caller.create_runtime(envs={"OLD": "1"})
    answers = []

    def ask(body):
        thread = threading.Thread(target=lambda: answers.append(caller.post(at(session, "/resume"), body, timeout=60 * PATIENCE)))
        thread.start()
        return thread

    suspend(caller, session)
    with stopped(private.supervisor_pid()):
        threads = [ask(None)]
        wait_until(lambda: caller.get(at(session)).json["status"] != "suspended")
        threads.append(ask({"envs": {"NEW": "2"}}))
        time.sleep(1)
    for thread in threads:
        thread.join(60 * PATIENCE)
    assert [answer.status for answer in answers] == [200, 200], answers
    assert run(caller, session, "echo $OLD $NEW") == "2\n"


def test_the_worker_leaves_in_a_snapshot(private):
    """As where the service is started again. Who waits for it is cut off; the next worker has the sandbox."""
    caller = private.client("ana")
    session = caller.create_runtime()
    run(caller, session, FILL)
    ends = []

    def make():
        try:
            ends.append(caller.post(at(session, "/snapshots"), timeout=120 * PATIENCE).status)
        except (OSError, http.client.HTTPException):
            ends.append(None)

    private.deaths_expected = True
    with slow_archive(private, make):
        before = len(ends)
        os.kill(private.worker_pid("sandboxd-api"), signal.SIGUSR2)
        wait_until(lambda: len(ends) > before, 60)
    assert ends[-1] is None, ends
    wait_until(lambda: caller.get(at(session)).json["status"] == "open", 60)
    assert caller.post(at(session, "/snapshots"), timeout=120 * PATIENCE).status == 201
    assert run(caller, session, "echo on") == "on\n"


def test_a_resume_is_a_use():
    """Who is idle for long is suspended: not at once where it was resumed a moment ago."""
    with serving(CONFIG + "[api]\nidle_timeout = 15s\n") as daemon:
        caller = daemon.client("ana")
        session = caller.create_runtime()
        suspend(caller, session)
        time.sleep(16)
        resume(caller, session)
        began = time.monotonic()
        while time.monotonic() < began + 11:  # two ticks
            status = caller.get(at(session)).json["status"]
            assert status == "open" or time.monotonic() > began + 14, status
            time.sleep(0.5)


def test_who_uses_one_while_the_store_is_away(postgres):
    """It cannot be resumed: nobody waits for ever, and nothing is tried in each turn."""
    with serving(postgres.config("[api]\nidle_timeout = 1h")) as daemon:
        caller = daemon.client("ana")
        session = caller.create_runtime()
        suspend(caller, session, durable="wait")
        postgres.stop()
        try:
            answer = caller.post(at(session, "/commands"), {"cmd": "true"}, timeout=60 * PATIENCE)
            assert (answer.status, answer.json["code"]) == (503, "provider_unavailable"), answer
            assert caller.get(at(session)).json["status"] == "suspended"
        finally:
            postgres.start()
        wait_until(lambda: caller.post(at(session, "/commands"), {"cmd": "true"}, headers=JSON, timeout=60).status == 200, 90)


def test_snapshots_of_a_closed_one_go_with_its_row(postgres):
    """Not before: a row that is open may need them, and be another host's."""
    with serving(postgres.config()) as daemon:
        caller = daemon.client("ana")
        session = caller.create_runtime()
        run(caller, session, "echo kept > file")
        assert suspend(caller, session, durable="wait")["durable"] is True
        postgres.stop()
        try:
            assert caller.delete(at(session)).status == 200
            time.sleep(1)
            assert files_of(daemon, session)
        finally:
            postgres.start()
        wait_until(lambda: not files_of(daemon, session), 60)
