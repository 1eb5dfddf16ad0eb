"""Every launch step made to fail in turn: a clear error with its name, and nothing is left."""
import threading

import pytest

from harness import CONFIG, SESSIONS, Daemon, wait_until


def launch_steps():
    """The names of the steps, from the trace of one session that was launched."""
    daemon = Daemon()
    try:
        session = daemon.root.create()
        trace = daemon.root.get(f"/v1/sandboxes/{session}/trace")
        assert trace.status == 200, trace
        steps = [(step["name"], step["side"]) for step in trace.json["steps"]]
        daemon.root.remove(session)
        return steps
    finally:
        daemon.done()


def assert_same(daemon, before, name):
    try:
        wait_until(lambda: daemon.snapshot() == before, 5)
    except AssertionError:
        assert daemon.snapshot() == before, f"after step {name}"


def test_trace_is_ordered_and_covers_both_sides():
    steps = launch_steps()
    assert len(steps) >= 15
    assert {"parent", "child"} <= {side for _, side in steps}


@pytest.mark.parametrize("reserve", [0, 1, 8])
def test_launches_that_overtake_the_user_namespaces_prepared_ahead(reserve):
    daemon = Daemon(config=CONFIG + f"[supervisor]\nuserns_reserve = {reserve}\n")
    try:
        supervisor = daemon.supervisor_pid()
        made = []

        def launches():
            client = daemon.client("alice")
            for _ in range(8):
                session = client.create()
                client.remove(session)
                made.append(session)

        threads = [threading.Thread(target=launches) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(made) == 32
        assert daemon.supervisor_pid() == supervisor
    finally:
        daemon.done()


@pytest.mark.slow
def test_each_failing_step_is_named_and_leaves_nothing():
    failed_silently = []
    for name, side in launch_steps():
        if side == "shim":
            continue
        daemon = Daemon(env={"SANDBOX_FAIL_STEP": name})
        try:
            before = daemon.settled()
            answer = daemon.root.post(SESSIONS)
            if answer.status == 201:
                failed_silently.append(name)
                continue
            assert answer.status in (500, 503), (name, answer)
            assert name in answer.json["detail"] and "EIO" in answer.json["detail"], answer
            assert_same(daemon, before, name)
            assert daemon.root.get(SESSIONS).json == []
        finally:
            daemon.done()
    # The one mark in the trace that is no step: the proof is read back after the answer.
    assert set(failed_silently) <= {"proved"}, failed_silently
