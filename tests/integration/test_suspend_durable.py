"""Suspended sandboxes whose workspace is in the store: what a resume finds when the processes are gone, and who may
take them away."""
import contextlib
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness import CONFIG, RUNTIME, SLOW, ctl, is_zombie, name_of, parent_of, serving, status_of, stopped, wait_until
from test_events import Reader
from test_restart import kill_worker
from test_suspend import COUNT, at, begin, resume, run, suspend

WITHOUT_FIRST_THREAD = """
import ctypes, threading, time
def tick():
    while True:
        with open("tick", "w") as file:
            file.write(str(time.time()))
        time.sleep(0.02)
threading.Thread(target=tick).start()
ctypes.CDLL(None).syscall(60, 0)  # exit, of the thread alone
"""


def row(daemon, session):
    return daemon.sql("SELECT status, generation, durable_generation, snapshot_ref FROM sandbox_registry"
                      " WHERE sandbox_uuid = ?", session)[0]


def is_durable(daemon, session):
    found = row(daemon, session)
    return found[1] == found[2] > 0


def group_of(daemon, session):
    return next(Path(p) for p in daemon.cgroups() if p.endswith(session) and (Path(p) / "cgroup.freeze").exists())


def files_of(daemon, session):
    return [p for p in Path(daemon.state).rglob(f"*{session}*") if p.is_file() and "snapshot" in str(p)]


class Bound:
    """Of a loop that looks without a pause: what it looks for may never come."""

    def __init__(self, seconds=60):
        self.end = time.monotonic() + seconds * SLOW

    def holds(self):
        assert time.monotonic() < self.end, "it is neither parted nor durable"
        return True


def restart(daemon):
    daemon.stop()
    daemon.start()


@pytest.fixture(name="busy")
def fixture_busy(private):
    caller = private.client("ana")
    session = caller.create_runtime()
    run(caller, session, "mkdir -p d && echo kept > d/file && chmod 640 d/file && ln -s file d/link && echo gone > temp")
    return caller, session


def test_it_is_durable_behind_the_answer(private, busy):
    caller, session = busy
    begin(caller, session, COUNT)
    assert suspend(caller, session)["durable"] is False
    wait_until(lambda: is_durable(private, session), 60)
    group = group_of(private, session)
    wait_until(lambda: not (group / "work").exists())
    assert (group / "cgroup.freeze").read_text().strip() == "1"
    assert "frozen 1" in (group / "cgroup.events").read_text()
    assert suspend(caller, session)["durable"] is True
    resume(caller, session)  # from memory all the same
    assert run(caller, session, "cat d/link") == "kept\n"


def test_a_stop_of_the_host_between(private, busy):
    caller, session = busy
    begin(caller, session, "sleep 1000")
    assert suspend(caller, session, durable="wait", remove=["temp"])["durable"] is True
    restart(private)
    caller = private.client("ana")
    assert caller.get(at(session)).json["status"] == "suspended"
    resume(caller, session, "snapshot")
    assert run(caller, session, "cat d/link; stat -c %a d/file; ls temp 2>/dev/null || echo none; pgrep sleep || echo none") \
        == "kept\n640\nnone\nnone\n"
    reader = Reader(caller, session)
    wait_until(lambda: {"restored", "resumed"} <= set(reader.types()))


def test_a_stop_of_the_service_waits_for_it(private, busy):
    """For a moment: where the machine is slow that may be too short, so one of some is enough."""
    caller, session = busy
    for size in (20, 20, 10, 5, 1, 0):
        run(caller, session, f"head -c {size}000000 /dev/urandom > big")
        suspend(caller, session)
        restart(private)
        if is_durable(private, session):
            break
        caller = private.client("ana")
        resume(caller, session, "snapshot")
    assert is_durable(private, session)


def test_it_is_durable_when_the_store_knows(postgres):
    with serving(postgres.config()) as daemon:
        caller = daemon.client("ana")
        session = caller.create_runtime()
        run(caller, session, "head -c 60000000 /dev/urandom > big")
        for i in range(1, 20):
            suspend(caller, session)
            with postgres.paused():
                wait_until(lambda i=i: daemon.log.read_text().count("suspended session is durable") == i, 60)
                before = suspend(caller, session, durable="wait")["durable"]
            wait_until(lambda: suspend(caller, session)["durable"], 60)
            if not before:
                break
            resume(caller, session)
        assert before is False
        assert len(files_of(daemon, session)) == 1


def test_never_is_never(private, busy):
    caller, session = busy
    assert suspend(caller, session, durable="never")["durable"] is False
    time.sleep(1)
    assert not is_durable(private, session) and not files_of(private, session)
    assert suspend(caller, session, durable="wait")["durable"] is True
    assert files_of(private, session)
    caller.delete(at(session))
    wait_until(lambda: not files_of(private, session))


def test_a_later_one_takes_its_place(private, busy):
    caller, session = busy
    suspend(caller, session, durable="wait")
    first = files_of(private, session)
    resume(caller, session)
    run(caller, session, "echo later > d/file")
    suspend(caller, session, durable="wait")
    wait_until(lambda: len(files_of(private, session)) == 1)
    assert files_of(private, session) != first
    restart(private)
    caller = private.client("ana")
    resume(caller, session, "snapshot")
    assert run(caller, session, "cat d/file") == "later\n"


def test_a_resume_in_the_middle(private, busy):
    """Any moment of the way: what is made is given up, and all of it runs as before."""
    caller, session = busy
    run(caller, session, "head -c 60000000 /dev/urandom > big")
    for i in range(12):
        cid = begin(caller, session, "while :; do date +%s%N > tick; sleep 0.02; done")
        suspend(caller, session)
        time.sleep(i * 0.03)
        resume(caller, session)
        assert not (group_of(private, session) / "work").exists()
        seen = run(caller, session, "cat tick")
        wait_until(lambda: run(caller, session, "cat tick") != seen)
        caller.post(at(session, f"/commands/{cid}/signal"), {"signal": "KILL"})


def test_the_worker_dies_in_the_middle(private, busy):
    caller, session = busy
    run(caller, session, "head -c 60000000 /dev/urandom > big")
    begin(caller, session, "while :; do date +%s%N > tick; sleep 0.02; done")
    for i in range(4):
        suspend(caller, session)
        time.sleep(i * 0.05)
        kill_worker(private, "sandboxd-api")
        wait_until(lambda: caller.get(at(session)).status == 200)
        assert caller.get(at(session)).json["status"] == "suspended"
        resume(caller, session)
        assert not (group_of(private, session) / "work").exists()
        seen = run(caller, session, "cat tick")
        wait_until(lambda: run(caller, session, "cat tick") != seen)


def test_only_the_shim_goes_on_meanwhile(private, busy):
    """Spawners and runners have its id as well: a command that one of them is about to begin stands still."""
    caller, session = busy
    run(caller, session, "head -c 60000000 /dev/urandom > big")
    begin(caller, session, COUNT)
    group = group_of(private, session)
    for _ in range(20):
        before = set((group / "cgroup.procs").read_text().split())
        suspend(caller, session)
        stay = None
        bound = Bound()
        while stay is None and not is_durable(private, session) and bound.holds():
            try:
                parted = (group / "cgroup.freeze").read_text().strip() == "0"
                work = set((group / "work" / "cgroup.procs").read_text().split())
                if parted and (group / "cgroup.freeze").read_text().strip() == "0":  # and was all the while
                    stay = before - work
            except OSError:
                pass
        resume(caller, session)
        if stay:
            break
    assert len(stay) == 2 and len(before) > 4, (stay, before)


def test_a_process_without_its_first_thread(private, busy):
    """The kernel lists it in the group that its first thread ended in, wherever the others are."""
    caller, session = busy
    begin(caller, session, f"exec python3 -c '{WITHOUT_FIRST_THREAD}'")
    wait_until(lambda: run(caller, session, "grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null || true"))
    assert suspend(caller, session, durable="wait")["durable"] is True
    resume(caller, session)
    seen = run(caller, session, "cat tick")
    wait_until(lambda: run(caller, session, "cat tick") not in ("", seen))


def parted(caller, daemon, session, group):
    """Suspended, and its snapshot is being made."""
    for _ in range(20):
        suspend(caller, session)
        bound = Bound()
        while not (group / "work").exists() and not is_durable(daemon, session) and bound.holds():
            pass
        if not is_durable(daemon, session):
            return
        resume(caller, session)
        run(caller, session, "date +%N > d/changed")
    raise AssertionError("it was never seen parted")


def eventually(condition, timeout):
    try:
        return wait_until(condition, timeout)
    except AssertionError:
        return False


def is_stopped(pid):
    try:
        return status_of(pid)["State"].startswith("T")
    except (FileNotFoundError, ProcessLookupError):
        return False


def stopped_mover(caller, daemon, session):
    """Suspended; what moves its processes apart is stopped in the middle."""
    supervisor = daemon.supervisor_pid()
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children")
    before = children.read_text().split()

    over = threading.Event()

    def catch():
        while not over.is_set():
            for pid in children.read_text().split():
                if pid not in before and name_of(pid) == "sandboxd":
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGSTOP)
                        return int(pid)
        return None

    for _ in range(10):
        with ThreadPoolExecutor(1) as pool:
            over.clear()
            caught = pool.submit(catch)
            try:
                suspend(caller, session)
                wait_until(lambda: caught.done() or is_durable(daemon, session), 60, "it is caught, or all is over")
            finally:
                over.set()
            mover = caught.result()
        if mover and eventually(lambda pid=mover: is_stopped(pid), 1):
            return mover
        wait_until(lambda: is_durable(daemon, session), 60)
        resume(caller, session)
    raise AssertionError("it was never caught")


def test_the_worker_dies_while_processes_are_moved(private, busy):
    """What it asked for goes on under the next one, which has all of it put together afterwards."""
    caller, session = busy
    begin(caller, session, "for i in $(seq 150); do sleep 1000 & done; wait")
    wait_until(lambda: run(caller, session, "pgrep -c sleep || true") == "150\n")
    mover = stopped_mover(caller, private, session)
    kill_worker(private, "sandboxd-api")
    wait_until(lambda: caller.get(at(session)).status == 200)
    with ThreadPoolExecutor(1) as pool:
        resumed = pool.submit(resume, caller, session)
        time.sleep(1)
        os.kill(mover, signal.SIGCONT)
        resumed.result()
    assert run(caller, session, "pgrep -c sleep") == "150\n"
    assert not (group_of(private, session) / "work").exists()
    assert suspend(caller, session, durable="wait")["durable"] is True


@pytest.mark.slow
def test_a_slow_resume_after_a_restart(private, busy):
    """The shim of one that stands still says nothing to the next worker: that is no sign of its end."""
    caller, session = busy
    begin(caller, session, "sleep 1000")
    suspend(caller, session, durable="never")
    kill_worker(private, "sandboxd-api")
    wait_until(lambda: caller.get(at(session)).status == 200)
    time.sleep(62)  # what a shim may take to answer
    supervisor = private.supervisor_pid()
    os.kill(supervisor, signal.SIGSTOP)
    try:
        with ThreadPoolExecutor(1) as pool:
            resumed = pool.submit(resume, caller, session)
            time.sleep(6)  # the worker looks every 5 s
            os.kill(supervisor, signal.SIGCONT)
            resumed.result()
    finally:
        os.kill(supervisor, signal.SIGCONT)
    assert run(caller, session, "pgrep -c sleep") == "1\n"


def test_the_next_worker_makes_it(private, busy):
    """Whatever the last one had come to: that it is wanted stands in the row before anything is frozen."""
    caller, session = busy
    run(caller, session, "head -c 60000000 /dev/urandom > big")
    group = group_of(private, session)
    for _ in range(3):
        parted(caller, private, session, group)
        kill_worker(private, "sandboxd-api")
        wait_until(lambda: is_durable(private, session), 60, "the next one made it")
        wait_until(lambda: not (group / "work").exists())
        assert (group / "cgroup.freeze").read_text().strip() == "1"
        caller = private.client("ana")
        resume(caller, session)
        assert run(caller, session, "cat d/link; date +%N > d/changed") == "kept\n"

def archives(group):
    """What makes its snapshot: pids."""
    found = []
    with contextlib.suppress(OSError):
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sandbox-archive\0"):
                    found.append(int(pid))
    return found


def is_parted_from(group, pid):
    with contextlib.suppress(OSError):
        return (str(pid) in (group / "work" / "cgroup.procs").read_text().split()
                and (group / "cgroup.freeze").read_text().strip() == "0")
    return False


def test_what_is_left_of_a_snapshot_ends_while_the_next_one_begins(private, busy):
    """The next worker's snapshot has processes of its own, which wait here for the nursery to make them."""
    caller, session = busy
    run(caller, session, "head -c 60000000 /dev/urandom > big")
    group = group_of(private, session)
    shim, = [pid for pid in private.shim_pids() if str(pid) in (group / "cgroup.procs").read_text().split()]
    nursery = int(Path(f"/proc/{shim}/task/{shim}/children").read_text().split()[0])
    for _ in range(20):
        suspend(caller, session)
        bound = Bound()
        while not (former := archives(group)) and not is_durable(private, session) and bound.holds():
            pass
        with stopped(*former):
            if former and eventually(lambda: is_stopped(former[0]), 1):
                runner = parent_of(former[0])
                with stopped(nursery):
                    kill_worker(private, "sandboxd-api")
                    # All of it was put together, and parted again.
                    wait_until(lambda: is_parted_from(group, former[0]), 60, "parted again")
                    time.sleep(0.5)
                    os.kill(runner, signal.SIGKILL)
                    wait_until(lambda: is_zombie(runner), 60, "its runner ends")
                    time.sleep(0.5)
                break
        wait_until(lambda: is_durable(private, session), 60)
        resume(caller, session)
    assert former, "it was never caught"
    wait_until(lambda: is_durable(private, session), 60, "the next one is made")
    resume(private.client("ana"), session)


def test_the_end_in_the_middle(private):
    """E2: a kill reaches what is frozen below as well."""
    caller = private.client("ana")
    for i in range(4):
        session = caller.create_runtime()
        run(caller, session, "head -c 60000000 /dev/urandom > big")
        begin(caller, session, COUNT)
        group = group_of(private, session)
        suspend(caller, session)
        time.sleep(i * 0.05)
        assert caller.delete(at(session)).status == 200
        wait_until(lambda: not group.exists())


def test_memory_is_given_back():
    with serving(CONFIG + "[api]\nfrozen_max = 6s\n") as daemon:
        caller = daemon.client("ana")
        session = caller.create_runtime()
        run(caller, session, "echo kept > file")
        begin(caller, session, "sleep 1000")
        suspend(caller, session, durable="never")
        group = group_of(daemon, session)
        wait_until(lambda: not group.exists(), 60)
        assert is_durable(daemon, session) and caller.get(at(session)).json["status"] == "suspended"
        resume(caller, session, "snapshot")
        assert run(caller, session, "cat file") == "kept\n"


def test_what_cannot_be_durable_is_left_alone():
    """Each try takes the session's processes from one group to another and back."""
    with serving(CONFIG + "[api]\nfrozen_max = 1s\n[snapshots]\nmax_bytes = 1MiB\n") as daemon:
        caller = daemon.client("ana")
        session = caller.create_runtime()
        run(caller, session, "head -c 3000000 /dev/urandom > file")
        suspend(caller, session, durable="never")
        wait_until(lambda: "is not durable" in daemon.log.read_text(), 60)
        time.sleep(6)
        assert daemon.log.read_text().count("is not durable") == 1
        assert not is_durable(daemon, session) and caller.get(at(session)).json["status"] == "suspended"
        resume(caller, session, "memory")


def test_a_snapshot_that_fails_behind_the_answer_is_told():
    with serving(CONFIG + "[snapshots]\nmax_bytes = 1MiB\n") as daemon:
        caller = daemon.client("ana")
        session = caller.create_runtime()
        reader = Reader(caller, session)
        run(caller, session, "head -c 3000000 /dev/urandom > file")
        assert "durable_error" not in suspend(caller, session)
        wait_until(lambda: "snapshot_failed" in reader.types(), 60)
        error = {"code": "snapshot_too_large", "retryable": False, "generation": 1,
                 "detail": "the workspace is larger than a snapshot may be"}
        event = next(e for e in reader.seen if e["type"] == "snapshot_failed")
        assert {key: event[key] for key in error} == error

        def told():
            shown = [s for s in caller.get(RUNTIME).json["sandboxes"] if s["sandbox_uuid"] == session]
            assert shown[0].get("durable_error") == caller.get(at(session)).json.get("durable_error")
            return shown[0].get("durable_error")

        assert told() == error
        resume(caller, session)
        assert told() == error
        # That of another suspend is none of this one, and what succeeds ends it.
        said = ctl(daemon, "suspend", "--durable", "never", session)
        assert (said.returncode, said.stderr) == (0, b""), said
        assert told() == error
        resume(caller, session)
        run(caller, session, "rm file")
        suspend(caller, session, durable="wait")
        assert told() is None


def test_nobody_uses_it():
    with serving(CONFIG + f"[api]\nidle_timeout = {4 * SLOW}s\n") as daemon:
        caller = daemon.client("ana")
        session = caller.create_runtime()
        run(caller, session, "echo kept > file")
        cid = begin(caller, session, "sleep 1000")
        assert run(caller, session, f"sleep {4 * SLOW + 7}; echo used") == "used\n", "a command that is waited for is a use"
        wait_until(lambda: caller.get(at(session)).json["status"] == "suspended", 60)
        assert run(caller, session, "cat file; pgrep -c sleep") == "kept\n1\n"
        assert caller.get(at(session)).json["status"] == "open"
        answer = caller.get(at(session, f"/commands/{cid}/wait?timeout_ms=10000"))
        assert (answer.status, answer.json["status"]) == (200, "running"), "one in the background, too"
