"""Processes of ours that die: no session is lost, nothing is left."""
import os
import signal
import threading
import time
from pathlib import Path

from harness import NOT_FOUND, PATIENCE, SESSIONS, Daemon, name_of, wait_until
from test_adoption import kill_both


def answers(daemon):
    try:
        return daemon.root.get(SESSIONS, timeout=5).status == 200
    except OSError:
        return False


def kill_worker(daemon, name):
    daemon.deaths_expected = True
    pid = daemon.worker_pid(name)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: name_of(pid) == "" or pid not in daemon.processes().get(name, []), 5, "dead")
    wait_until(lambda: [p for p in daemon.processes().get(name, []) if p != pid], 15,
               f"{name} again")
    wait_until(lambda: answers(daemon), 15, "answers")


def test_api_worker_killed_and_the_session_is_still_usable(private):
    caller = private.client("alice")
    session = caller.create()
    caller.write(session, "one", "type: a.B\n")
    task = caller.execute(session)
    frames = caller.frames(task)
    for _ in range(2):
        kill_worker(private, "sandboxd-api")
        wait_until(lambda: caller.get(f"{SESSIONS}/{session}").status == 200, 10, "adopted")
        assert caller.run(session, "/bin/cat", "/session/one.yaml").out == b"type: a.B\n"
        assert caller.frames(task) == frames
        assert caller.get(f"{SESSIONS}/{session}").json["components"] == ["one.yaml"]
    task = caller.execute(session)
    assert caller.frames(task)[-1]["stage"] == "done"
    assert caller.remove(session).status == 200


def test_job_interrupted_by_the_worker_ends_with_a_frame(private):
    caller = private.client("alice")
    session = caller.create()
    caller.write(session, "slow", "type: a.B\nattributes: [" + "1, " * 300000 + "1]\n")
    task = caller.execute(session)
    kill_worker(private, "sandboxd-api")
    frames = caller.frames(task, timeout=60 * PATIENCE)
    assert frames[-1]["stage"] in ("done", "error")
    assert [f["seq"] for f in frames] == sorted({f["seq"] for f in frames})
    assert caller.get(f"{SESSIONS}/{session}").json["status"] == "open"


def test_egress_worker_is_restarted(private):
    caller = private.client("alice")
    session = caller.create()
    kill_worker(private, "sandboxd-egress")
    assert caller.run(session, "/bin/true").code == 0


def test_shim_killed_leaves_nothing_but_the_row(private):
    caller = private.client("alice")
    before = private.settled()
    session = caller.create()
    os.kill(private.shim_pids()[0], signal.SIGKILL)
    wait_until(lambda: private.snapshot() == before, 10, "nothing is left")
    wait_until(lambda: caller.get(f"{SESSIONS}/{session}").json["sandbox"]["tree"] == "dormant", 10, "it has heard of it")
    assert caller.run(session, "/bin/true").code == 0
    assert caller.remove(session).status == 200
    assert caller.get(f"{SESSIONS}/{session}").body == NOT_FOUND
    wait_until(lambda: private.snapshot() == before, 10, "nothing is left")


def test_service_killed_and_started_again_leaves_no_third_state(private):
    caller = private.client("alice")
    session = caller.create()
    kill_both(private)
    wait_until(lambda: answers(private), 10, "answers")
    assert [s["id"] for s in caller.get(SESSIONS).json] == [session]
    assert caller.run(session, "/bin/true").code == 0


def test_stop_ends_every_session_and_leaves_nothing(private):
    caller = private.client("alice")
    for _ in range(5):
        caller.create()
    start = time.monotonic()
    assert private.stop() == 0
    assert time.monotonic() - start < 10 * PATIENCE
    wait_until(lambda: not private.leftovers(), 5, "nothing is left")


def test_two_instances_share_a_host(private):
    second = Daemon()
    try:
        first_session = private.client("alice").create()
        second_session = second.client("alice").create()
        maps = {
            daemon.client("alice").run(s, "/bin/cat", "/proc/self/uid_map").text.split()[1]
            for daemon, s in ((private, first_session), (second, second_session))
        }
        assert len(maps) == 2
        assert second.client("alice").get(f"{SESSIONS}/{first_session}").status == 404
    finally:
        second.done()
    assert private.client("alice").run(first_session, "/bin/true").code == 0


def test_a_group_that_cannot_be_removed_holds_up_nobody(private):
    """Its removal is tried on beside everything else, and the answer comes when it is done."""
    caller = private.client("alice")
    stuck = caller.create()
    other = caller.create()
    folder = next(Path(path) for path in private.cgroups() if path.endswith(stuck))
    inner = folder / "inner"
    inner.mkdir()
    statuses = []
    remover = threading.Thread(target=lambda: statuses.append(caller.remove(stuck).status))
    try:
        remover.start()
        wait_until(lambda: len(private.shim_pids()) == 1, 5, "its processes are gone")
        assert caller.run(other, "/bin/true").code == 0
        assert caller.run(caller.create(), "/bin/true").code == 0
        assert not statuses and folder.exists()
    finally:
        inner.rmdir()
    remover.join(timeout=5 * PATIENCE)
    assert statuses == [200] and not folder.exists()
