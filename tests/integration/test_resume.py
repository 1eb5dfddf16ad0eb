"""A task goes on under the next worker: no frame is missing, none comes twice, one ends it."""
import os
import random
import signal
import threading
import time

import pytest

from harness import PATIENCE, SESSIONS, name_of, wait_until
from test_adoption import kill_supervisor
from test_jobs import BODY, GO_ON, TASKS, cancel, state, stopped_task, terminal


@pytest.fixture
def private(private):
    private.deaths_expected = True
    return private


def kill_worker(daemon):
    pid = daemon.worker_pid("sandboxd-api")
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: name_of(pid) == "" or pid not in daemon.processes().get("sandboxd-api", []),
               5, "dead")
    wait_until(daemon.ready, 15, "answers")


def told(frames):
    """What frames say, without when. Behind the hold of 512 KiB an asset may come before or after
    the problems of another one, as the pieces fall."""
    return sorted((f["stage"], f["message"], f.get("asset_key", [])) for f in frames)


def test_running_and_waiting_tasks_outlive_the_worker(private):
    caller = private.client("alice")
    session = caller.create()
    first = stopped_task(caller, session)
    waiting = [caller.execute(session) for _ in range(3)]
    shim = private.shim_pids()
    for _ in range(3):
        kill_worker(private)
        wait_until(lambda: state(caller, first) == "running", 5, "it goes on")
        assert [state(caller, t) for t in waiting] == ["queued"] * 3
    wait_until(lambda: caller.get(f"{SESSIONS}/{session}").json["status"] == "running", 5, "runs")
    assert private.shim_pids() == shim
    caller.shell(session, GO_ON)
    reference = None
    for task in [first] + waiting:
        frames = caller.frames(task)
        assert terminal(frames)["stage"] == "done", frames[-1]
        reference = reference or told(frames)
        assert told(frames) == reference
    assert caller.get(f"{SESSIONS}/{session}").json["status"] == "open"


def test_running_task_outlives_the_supervisor(private):
    caller = private.client("alice")
    session = caller.create()
    task = stopped_task(caller, session)
    kill_supervisor(private)  # and its worker is gone: none of the old answers
    wait_until(lambda: state(caller, task) == "running", 5, "it goes on")
    caller.shell(session, GO_ON)
    assert terminal(caller.frames(task))["stage"] == "done"


def test_resumed_task_can_be_cancelled_and_ends_with_its_session(private):
    caller = private.client("alice")
    session, other = caller.create(), caller.create()
    task, third = stopped_task(caller, session), stopped_task(caller, other)
    kill_worker(private)
    assert cancel(caller, task).json["status"] == "error"
    assert terminal(caller.frames(task))["code"] == "cancelled"
    caller.remove(other)
    assert terminal(caller.frames(third))["code"] == "session_closed"


def test_worker_killed_at_any_moment_of_a_task(private):
    """The output passes the hold, the ring and the store in pieces that no record fits."""
    random.seed(4)
    caller = private.client("alice")
    session = caller.create()
    for i in range(200):
        caller.write(session, f"c{i:03}", "type: a.B\n" + "---\nno: type\n" * 20)
    begin = time.monotonic()
    reference = told(caller.frames(caller.execute(session)))
    span = time.monotonic() - begin
    assert sum(stage == "log" for stage, *_ in reference) > 3000
    n_unended = 0
    for attempt in range(6):
        task = caller.execute(session)
        time.sleep(random.uniform(0, span))
        n_unended += state(caller, task) != "done"
        kill_worker(private)
        frames = caller.frames(task, timeout=60 * PATIENCE)
        assert terminal(frames)["stage"] == "done", (attempt, frames[-1])
        assert told(frames) == reference, attempt
    assert n_unended > 0
    kill_worker(private)
    assert told(caller.frames(task)) == reference


def test_sixteen_commands_left_by_a_worker_are_ended(private):
    """They sleep without a word; the next worker hears of them and of their end all the same."""
    caller = private.client("alice")
    session = caller.create()

    def leave():
        try:
            caller.run(session, "/bin/sleep", "300")
        except Exception:  # its worker dies
            pass

    shim = private.shim_pids()
    for _ in range(3):
        threads = [threading.Thread(target=leave) for _ in range(15)]
        for thread in threads:
            thread.start()
        wait_until(lambda: caller.shell(session, "pgrep -c sleep").text == "15\n", 15, "all run")
        kill_worker(private)
        for thread in threads:
            thread.join(10 * PATIENCE)
        wait_until(lambda: caller.get(f"{SESSIONS}/{session}").status == 200, 5, "adopted")
        wait_until(lambda: caller.shell(session, "pgrep -c sleep").text == "0\n", 15, "ended")
    assert private.shim_pids() == shim
    caller.write(session, "one", BODY)
    assert terminal(caller.frames(caller.execute(session)))["stage"] == "done"
    assert caller.get(f"{TASKS}/{caller.execute(session)}").status == 200


def test_running_task_outlives_a_restart_of_the_service(private):
    """USR2 to the keeper, as a service manager restarts it; nothing of ours but the session is up."""
    caller = private.client("alice")
    session = caller.create()
    task = stopped_task(caller, session)
    waiting = caller.execute(session)
    assert private.stop(signal.SIGUSR2) == 0
    private.start()
    wait_until(lambda: (state(caller, task), state(caller, waiting)) == ("running", "queued"), 10, "they go on")
    caller.shell(session, GO_ON)
    assert [terminal(caller.frames(t))["stage"] for t in (task, waiting)] == ["done"] * 2


@pytest.mark.slow
def test_shim_that_does_not_answer_is_ended(private):
    """Requests wait for an adopted session's shim, but not for ever; then there is a new tree."""
    caller = private.client("alice")
    session = caller.create()
    caller.write(session, "one", BODY)
    task = stopped_task(caller, session)
    shim = private.shim_pids()[0]
    os.kill(shim, signal.SIGSTOP)
    kill_worker(private)
    answer = caller.post(f"{SESSIONS}/{session}/load", timeout=100 * PATIENCE)
    assert answer.status == 200 and "one.yaml" in answer.json["components"], answer
    assert terminal(caller.frames(task))["code"] == "session_lost"
    assert private.shim_pids() != [shim]
