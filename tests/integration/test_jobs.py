"""Tasks: cancelled, in order, and ended with exactly one frame whatever ends their session."""
import os
import signal
import threading
from datetime import datetime

import pytest

from harness import ABSENT_ID, NOT_FOUND, PATIENCE, SESSIONS, wait_until

TASKS = "/dagster/sandbox/tasks"
BODY = "type: a.B\n"
SLOW = "type: a.B\nattributes: [" + "1, " * 300000 + "1]\n"
# Stops the loader as soon as it runs, which makes its task run for as long as a test wants.
STOPPER = """
import os, signal
open('/tmp/looking', 'w').close()
while True:
    for name in os.listdir('/proc'):
        try:
            if name.isdigit() and open(f'/proc/{name}/cmdline').read(15) == 'sandbox-loader\\0':
                os.kill(int(name), signal.SIGSTOP)
                raise SystemExit
        except OSError:
            pass
"""
GO_ON = "kill -CONT $(pgrep -f ^sandbox-loader)"


def stopped_loader(caller, session, begin):
    """What begin() gave, a task that runs and whose loader is stopped."""
    caller.write(session, "slow", SLOW)

    def has(task, *states):
        answer = caller.get(f"{TASKS}/{getattr(task, 'id', task)}")
        return answer.status == 200 and answer.json["status"] in states

    # On a busy machine one may end unseen, or be stopped when it has said all; the next one is seen.
    for _ in range(20):
        stopper = threading.Thread(
            target=lambda: caller.run(session, "/usr/bin/python3", "-c", STOPPER, timeout_ms=280000))
        stopper.start()
        wait_until(lambda: caller.run(session, "/bin/rm", "/tmp/looking").code == 0, 10, "it looks")
        while stopper.is_alive():
            task = begin()
            wait_until(lambda: not stopper.is_alive() or has(task, "done"), 20, "it is stopped")
        wait_until(lambda: has(task, "running", "done"), 20, "it runs")
        if has(task, "running"):
            return task
    raise AssertionError("none was stopped before its end")


def stopped_task(caller, session):
    return stopped_loader(caller, session, lambda: caller.execute(session))


def state(caller, task):
    return caller.get(f"{TASKS}/{task}").json["status"]


def cancel(caller, task):
    return caller.delete(f"{TASKS}/{task}")


def terminal(frames):
    ends = [f for f in frames if f["stage"] in ("done", "error")]
    assert len(ends) == 1 and ends[0] is frames[-1], frames
    assert [f["seq"] for f in frames] == list(range(1, len(frames) + 1))
    return ends[0]


def test_cancel_of_a_running_task(private):
    caller = private.client("alice")
    session = caller.create()
    task = stopped_task(caller, session)
    answer = cancel(caller, task)
    assert answer.status == 200 and answer.json["status"] == "error"
    end = terminal(caller.frames(task))
    assert end["code"] == "cancelled"
    assert cancel(caller, task).json == caller.get(f"{TASKS}/{task}").json
    # Its process is gone, the session lives.
    wait_until(lambda: caller.shell(session, "pgrep -f ^sandbox-loader").code == 1, 10, "its process is gone")
    assert caller.get(f"{SESSIONS}/{session}").json["status"] == "open"
    caller.write(session, "slow", BODY)
    assert terminal(caller.frames(caller.execute(session)))["stage"] == "done"


def test_cancel_of_a_waiting_task_leaves_the_others_in_order(private):
    caller = private.client("alice")
    session = caller.create()
    first = stopped_task(caller, session)
    waiting = [caller.execute(session) for _ in range(4)]
    ended = cancel(caller, waiting[1]).json
    assert (ended["status"], ended["code"]) == ("error", "cancelled")
    assert terminal(caller.frames(waiting[1]))["code"] == "cancelled"
    assert state(caller, first) == "running" and state(caller, waiting[2]) == "queued"
    caller.shell(session, GO_ON)
    started = []
    for task in (first, waiting[0], waiting[2], waiting[3]):
        assert terminal(caller.frames(task))["stage"] == "done"
        started.append(caller.get(f"{TASKS}/{task}").json["started_at"])
    assert started == sorted(started)
    private.deaths_expected = True
    os.kill(private.worker_pid("sandboxd-api"), signal.SIGKILL)
    wait_until(private.ready, 20, "the next worker serves")
    assert caller.get(f"{TASKS}/{waiting[1]}").json["code"] == "cancelled"


def test_queue_is_bounded(private):
    caller = private.client("alice")
    session = caller.create()
    first = stopped_task(caller, session)
    answers = [caller.post(f"{SESSIONS}/{session}/execute") for _ in range(40)]
    refused = [a for a in answers if a.status == 429]
    assert refused and all(a.headers["Retry-After"] for a in refused)
    waiting = [a.json["task_id"] for a in answers if a.status == 200]
    assert caller.remove(session).status == 200
    for task in [first] + waiting:
        assert terminal(caller.frames(task))["code"] == "session_closed"


def test_cancel_is_for_those_who_see_the_task(private):
    caller = private.client("alice")
    session = caller.create()
    task = stopped_task(caller, session)
    bob = private.client("bob")
    absent = bob.delete(f"{TASKS}/{ABSENT_ID}")
    for answer in (cancel(bob, task), bob.delete(f"{TASKS}/none"), absent):
        assert (answer.status, answer.body) == (404, NOT_FOUND)
    reader = private.client("alice", scopes="data:read")
    assert cancel(reader, task).status == 403
    assert state(caller, task) == "running"
    assert cancel(caller, task).status == 200


def test_many_cancels_of_one_task_and_a_client_that_leaves(private):
    caller = private.client("alice")
    session = caller.create()
    task = stopped_task(caller, session)
    caller.raw(f"DELETE {TASKS}/{task} HTTP/1.1\r\nHost: x\r\nX-Sandbox-User: alice\r\n"
               "X-Sandbox-Scopes: data:read data:write\r\n\r\n".encode(), timeout=0.1, answered=False)
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(cancel(caller, task)))
               for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20 * PATIENCE)
    assert [a.json["status"] for a in answers] == ["error"] * 5
    terminal(caller.frames(task))


def test_deleted_session_ends_its_tasks(private):
    caller = private.client("alice")
    session = caller.create()
    tasks = [stopped_task(caller, session), caller.execute(session)]
    caller.remove(session)
    assert [terminal(caller.frames(t))["code"] for t in tasks] == ["session_closed"] * 2


def test_stop_of_the_service_ends_tasks_and_keeps_the_session(private):
    caller = private.client("alice")
    session = caller.create()
    tasks = [stopped_task(caller, session), caller.execute(session)]
    assert private.stop() == 0
    private.start()
    assert [terminal(caller.frames(t))["code"] for t in tasks] == ["host_stopped"] * 2
    assert caller.get(f"{SESSIONS}/{session}").json["components"] == ["slow.yaml"]
    assert terminal(caller.frames(caller.execute(session)))["stage"] == "done"


def test_ttl_is_changed_from_now_on_and_kept(private):
    caller = private.client("alice")
    session = caller.post(SESSIONS, {"ttl_minutes": 5}).json["id"]
    url = f"{SESSIONS}/{session}"

    def patch(body):
        return caller.request("PATCH", url, body=body)

    before = datetime.utcnow()
    answer = patch({"ttl_minutes": 90})
    assert answer.status == 200 and answer.json["id"] == session
    left = (datetime.fromisoformat(answer.json["expires_at"]) - before).total_seconds()
    assert 89 * 60 < left < 91 * 60
    private.stop()
    private.start()
    assert caller.get(url).json["expires_at"] == answer.json["expires_at"]
    assert patch({"ttl_minutes": 1}).json["expires_at"] < answer.json["expires_at"]
    for body in ({}, {"ttl_minutes": 0}, {"ttl_minutes": 721}, {"ttl_minutes": "x"}, {"ttl": 5}):
        assert patch(body).status == 422, body
    bob = private.client("bob")
    assert bob.request("PATCH", url, body={"ttl_minutes": 9}).body == NOT_FOUND
    reader = private.client("alice", scopes="data:read")
    assert reader.request("PATCH", url, body={"ttl_minutes": 9}).status == 403


@pytest.mark.slow
def test_expiry_that_was_moved_is_the_one_that_counts(private):
    caller = private.client("alice")
    session = caller.create()
    task = stopped_task(caller, session)
    row = "SELECT ttl_minutes FROM dagster_sandbox_sessions WHERE id = ?"
    assert private.sql(row, session) == [(60,)]
    caller.request("PATCH", f"{SESSIONS}/{session}", body={"ttl_minutes": 1})
    assert private.sql(row, session) == [(1,)]
    assert state(caller, task) == "running"
    frames = caller.frames(task, timeout=90 * PATIENCE)
    assert terminal(frames)["code"] == "session_expired"
    warnings = [f for f in frames if "minutes" in f["metadata"]]
    assert [(f["stage"], f["metadata"]["minutes"]) for f in warnings] == [("log", 1)]
    assert warnings[0]["message"] == "the session expires in less than 1 minute"
    assert caller.get(f"{SESSIONS}/{session}").body == NOT_FOUND


def test_session_ended_for_its_memory_says_so(private):
    """The kernel took something of it for memory, then its first process died."""
    caller = private.client("alice")
    session = caller.create()
    hog = "x = []\nwhile True: x.append(b'y' * (16 << 20))"
    assert caller.run(session, "/usr/bin/python3", "-c", hog).signal == signal.SIGKILL
    tasks = [stopped_task(caller, session), caller.execute(session)]
    os.kill(private.shim_pids()[0], signal.SIGKILL)
    assert [terminal(caller.frames(t))["code"] for t in tasks] == ["memory"] * 2
    wait_until(lambda: caller.get(f"{SESSIONS}/{session}").json["sandbox"]["tree"] == "dormant", 5)
    wait_until(lambda: caller.get(f"{SESSIONS}/{session}").json["log_summary"][-1]["metadata"] == {"code": "memory"}, 5, "why")
    assert caller.run(session, "/bin/true").code == 0
