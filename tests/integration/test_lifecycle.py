"""Ends of sessions that meet each other: deletes, kills, the end of the supervisor."""
import http.client
import json
import os
import signal
import threading
import time

import pytest

from harness import CONFIG, NOT_FOUND, PATIENCE, RUNTIME, SESSIONS, Client, Daemon, wait_until
from test_restart import kill_worker


@pytest.fixture
def private():
    started = Daemon(config=CONFIG + "[owner]\nchanges_per_second = 0\n")
    yield started
    started.done()


def in_background(call):
    """What call() gave, or the exception that it ended with, once the thread is over."""
    got = []

    def work():
        try:
            got.append(call())
        except (OSError, http.client.HTTPException) as error:
            got.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    return thread, got


def lines_in_log(daemon, text):
    return daemon.log.read_text(errors="replace").count(text)


def row_is_closed(daemon, session):
    return daemon.sql("SELECT closed_at FROM dagster_sandbox_sessions WHERE id = ?", session)[0][0]


def test_supervisor_dies_while_sessions_are_made_and_removed(private):
    """The worker that waited for its answers ends in order, not by an assertion."""
    caller = private.client("alice")
    session = caller.create()
    supervisor = private.supervisor_pid()
    os.kill(supervisor, signal.SIGSTOP)
    waiting = [in_background(lambda: caller.remove(session)),
               in_background(lambda: caller.post(SESSIONS))]
    # Both are in the worker, and with the supervisor.
    wait_until(lambda: caller.get(SESSIONS).json == [], 5, "the delete has begun")
    wait_until(lambda: b'sandboxd_sessions_by_state{state="creating"} 1\n' in private.root.get("/metrics").body, 5,
               "the create has begun")
    # And the row says so: a close that is not written yet dies with the worker, as nobody was told of it.
    wait_until(lambda: row_is_closed(private, session), 10, "the row is closed")
    os.kill(supervisor, signal.SIGKILL)
    for thread, _ in waiting:
        thread.join(20 * PATIENCE)
        assert not thread.is_alive()
    wait_until(lambda: private.supervisor_pid() not in (supervisor, private.process.pid), 10,
               "a new supervisor")
    wait_until(private.ready, 15, "answers")
    assert lines_in_log(private, "assertion failed") == 0
    for _, got in waiting:
        assert isinstance(got[0], Exception) or got[0].status in (200, 404, 503), got
    wait_until(lambda: caller.get(f"{SESSIONS}/{session}").body == NOT_FOUND, 5, "gone")
    again = caller.create()
    assert caller.run(again, "/bin/true").code == 0


@pytest.mark.slow
def test_delete_is_answered_also_when_the_supervisor_hangs(private):
    caller = private.client("alice")
    before = private.settled()
    session = caller.create()
    supervisor = private.supervisor_pid()
    os.kill(supervisor, signal.SIGSTOP)
    try:
        start = time.monotonic()
        answer = caller.delete(f"{SESSIONS}/{session}", timeout=60 * PATIENCE)
        assert answer.status == 503, answer
        assert time.monotonic() - start < 45
        assert caller.get(f"{SESSIONS}/{session}").body == NOT_FOUND
    finally:
        os.kill(supervisor, signal.SIGCONT)
    wait_until(lambda: private.snapshot() == before, 20, "it ends all the same")


def test_first_answer_knows_which_limits_are_in_force(private):
    first = private.client("alice").post(SESSIONS).json
    second = private.client("alice").post(SESSIONS).json
    assert first["sandbox"]["limits_effective"] == second["sandbox"]["limits_effective"]


def test_two_deletes_at_once_are_one_end(private):
    caller = private.client("alice")
    for _ in range(10):
        session = caller.create()
        both = [in_background(lambda s=session: caller.remove(s)) for _ in range(2)]
        for thread, _ in both:
            thread.join()
        statuses = sorted(got[0].status for _, got in both)
        assert statuses in ([200, 200], [200, 404]), statuses


def test_delete_ends_what_runs_with_its_reason(private):
    """A command, a load and a task at once: each is told, and nobody waits for what has gone."""
    caller = private.client("alice")
    session = caller.create()
    caller.write(session, "one", "type: a.B\n")
    lines = caller.lines("POST", f"/v1/sandboxes/{session}/commands", {"argv": ["/bin/sleep", "60"]})
    assert json.loads(next(lines))["type"] == "start"
    shim, = private.shim_pids()
    os.kill(shim, signal.SIGSTOP)
    task = caller.execute(session)
    load = in_background(lambda: caller.post(f"{SESSIONS}/{session}/load"))
    write = in_background(lambda: caller.write(session, "two", "type: a.B\n"))
    wait_until(lambda: sent_requests(private) >= 2, 5, "both wait in the worker")
    assert caller.remove(session).status == 200
    assert [json.loads(line) for line in lines if line] == [
        {"type": "error", "seq": 1, "code": "session_closed", "retryable": False, "detail": "session ended"}]
    for thread, got in (load, write):
        thread.join(10 * PATIENCE)
        # The load is refused while a task runs.
        assert (got[0].status, got[0].body) == (404, NOT_FOUND) or got[0].status == 409, got
    assert caller.frames(task)[-1]["code"] == "session_closed"


def sent_requests(daemon):
    """Connections but for the one that asks, and for the streamed command."""
    for line in daemon.root.get("/metrics").body.decode().splitlines():
        if line.startswith("sandboxd_http_connections "):
            return int(line.split()[1]) - 1
    return 0


def test_delete_in_every_moment_of_a_session(private):
    """Create, write, load, execute and run by one caller while another removes what it sees."""
    one, two = private.client("alice", workspace="w"), private.client("bob", workspace="w")
    worker = private.worker_pid("sandboxd-api")
    stop = threading.Event()
    odd = []

    def make():
        while not stop.is_set():
            made = one.post(SESSIONS)
            if made.status == 429:
                continue
            if made.status not in (201, 503):
                odd.append(made)
                continue
            if made.status == 503:
                continue
            session = made.json["id"]
            for path, body in (("components", {"name": "a", "body": "type: a.B\n"}), ("load", None),
                               ("execute", None)):
                answer = one.post(f"{SESSIONS}/{session}/{path}", body)
                if answer.status not in (200, 404):
                    odd.append((path, answer))
            command = one.post(f"/v1/sandboxes/{session}/commands", {"argv": ["/bin/sleep", "0.2"]})
            if command.status not in (200, 404):
                odd.append(command)

    def remove():
        while not stop.is_set():
            for summary in two.get(SESSIONS).json:
                answer = two.remove(summary["id"])
                if answer.status not in (200, 404):
                    odd.append(answer)

    threads = [threading.Thread(target=work) for work in (make, make, make, remove, remove)]
    for thread in threads:
        thread.start()
    time.sleep(4)
    stop.set()
    for thread in threads:
        thread.join()
    assert not odd, odd[:5]
    assert private.worker_pid("sandboxd-api") == worker
    assert lines_in_log(private, "event is not possible") == 0
    for summary in one.get(SESSIONS).json:
        one.remove(summary["id"])
    wait_until(lambda: not private.shim_pids() and Client(private.operator).get(SESSIONS).json == [], 10, "nothing lives")
    assert Client(private.operator).get(SESSIONS).json == []


def test_nothing_is_begun_in_a_session_that_is_closed(private):
    """A look at its disk follows the supervisor's word about it, at any moment of the end."""
    caller = private.client("alice")
    worker = private.worker_pid("sandboxd-api")
    for i in range(25):
        session = caller.create_runtime()
        asking = [in_background(lambda name=session: caller.get(f"{RUNTIME}/{name}/stats")) for _ in range(6)]
        time.sleep(i * 0.001)
        assert caller.delete(f"{RUNTIME}/{session}").status == 200
        for thread, answers in asking:
            thread.join(30 * PATIENCE)
            assert answers and answers[0].status in (200, 404, 409), answers
    assert private.worker_pid("sandboxd-api") == worker


def test_what_an_earlier_worker_left_is_heard_of_while_the_session_is_closed(private):
    private.deaths_expected = True
    caller = private.client("alice")
    session = caller.create_runtime()
    assert caller.post(f"{RUNTIME}/{session}/commands", {"cmd": "sleep 1000", "background": True}).status == 201
    shim, supervisor = private.root.get(f"{RUNTIME}/{session}/proof").json["shim_pid"], private.supervisor_pid()
    os.kill(shim, signal.SIGSTOP)
    kill_worker(private, "sandboxd-api")
    worker = private.worker_pid("sandboxd-api")
    wait_until(lambda: caller.get(f"{RUNTIME}/{session}").status == 200, 20, "adopted")
    os.kill(supervisor, signal.SIGSTOP)
    try:
        deleting, deleted = in_background(lambda: caller.delete(f"{RUNTIME}/{session}"))
        time.sleep(0.5)
        os.kill(shim, signal.SIGCONT)
        time.sleep(0.5)
    finally:
        os.kill(supervisor, signal.SIGCONT)
    deleting.join(30 * PATIENCE)
    assert [answer.status for answer in deleted] == [200], deleted
    time.sleep(0.2)
    assert private.worker_pid("sandboxd-api") == worker
