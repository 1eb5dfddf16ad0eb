"""Adoption in numbers: many sessions, running work, and deaths in a loop under load."""
import os
import random
import signal
import threading
import time

import pytest

from harness import PATIENCE, SESSIONS, Daemon, id_blocks_in_use, parent_of, wait_until
from test_adoption import answers, kill_both, kill_supervisor, leave, records, shims_of

ROOMY = ("[identity]\ntrusted_peers = 0\n[supervisor]\nlaunches_per_second = 1000\n"
         "[limits]\nmemory = 1024GiB\nsessions = 600\n[owner]\nsessions = 100\n[workspace]\nsessions = 200\n"
         "memory = 1024GiB\n[host]\nsessions = 600\n")


@pytest.fixture
def roomy():
    started = Daemon(config=ROOMY)
    started.deaths_expected = True
    yield started
    started.done()


def in_parallel(n_threads, items, work):
    """work(item) for each; the errors."""
    todo, errors, lock = list(items), [], threading.Lock()

    def run():
        while True:
            with lock:
                if not todo:
                    return
                item = todo.pop()
            try:
                work(item)
            except Exception as error:  # pylint: disable=broad-except
                errors.append(repr(error))

    threads = [threading.Thread(target=run) for _ in range(n_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


@pytest.mark.slow
@pytest.mark.parametrize("way", [kill_supervisor, kill_both])
def test_200_sessions_are_adopted(roomy, way):
    made, lock = {}, threading.Lock()

    def make(number):
        caller = roomy.client(f"user{number % 16}", workspace=f"team{number % 4}")
        session = caller.create()
        assert caller.write(session, "mark", f"type: a.B\n# {session}\n").status == 200
        with lock:
            made[session] = caller

    def check(session):
        caller = made[session]
        assert caller.get(f"{SESSIONS}/{session}").json["components"] == ["mark.yaml"]
        found = caller.run(session, "/bin/cat", "/session/mark.yaml").text
        assert session in found, found

    assert not in_parallel(8, range(200), make)
    shims, files = shims_of(roomy), records(roomy)
    assert len(shims) == 200 and len(files) == 400
    start = time.monotonic()
    way(roomy)
    print(f"200 sessions served again after {time.monotonic() - start:.2f} s")
    assert shims_of(roomy) == shims and records(roomy) == files
    assert not in_parallel(8, list(made), check)
    assert not in_parallel(8, list(made), lambda s: made[s].remove(s))
    wait_until(lambda: not records(roomy) and not shims_of(roomy), 20, "all are removed")


N_MANY = 500
N_BUSY = 20


@pytest.mark.slow
def test_500_sessions_are_adopted_by_the_next_worker(roomy):
    """The worker dies with 500 sessions, some of them in the middle of a task: how long until it answers for
    all, and is every frame there once."""
    made, lock, slow, late = {}, threading.Lock(), [], []

    def make(number):
        caller = roomy.client(f"user{number % 16}", workspace=f"team{number % 4}")
        session = caller.create()
        with lock:
            made[session] = caller

    def begin(session):
        caller = made[session]
        for name in range(10):
            body = "type: a.B\nattributes: [" + "1, " * 100000 + "1]\n"
            assert caller.write(session, f"c{name}", body).status == 200
        with lock:
            slow.append((session, caller.execute(session)))

    def check(session):
        if made[session].get(f"{SESSIONS}/{session}").status != 200:
            late.append(session)

    def read(task):
        frames = made[task[0]].frames(task[1], timeout=300 * PATIENCE)
        assert [f["seq"] for f in frames] == list(range(1, len(frames) + 1)), frames
        assert [f["stage"] for f in frames if f["stage"] in ("done", "error")] == ["done"], frames[-1]
        assert keys(frames) == [("sandbox", f"c{i}") for i in range(10)]
        assert made[task[0]].frames(task[1]) == frames

    assert not in_parallel(8, range(N_MANY), make)
    assert not in_parallel(4, list(made)[:N_BUSY], begin)
    shims = shims_of(roomy)
    assert len(shims) == N_MANY
    start = time.monotonic()
    os.kill(roomy.worker_pid("sandboxd-api"), signal.SIGKILL)
    wait_until(lambda: answers(roomy), 60, "answers")
    served = time.monotonic() - start
    errors = in_parallel(4, list(made), check)
    print(f"{N_MANY} sessions, {N_BUSY} tasks: the next worker answers after {served:.2f} s, "
          f"for each of them after {time.monotonic() - start:.2f} s")
    assert not errors and not late, (errors[:3], late[:3])
    assert shims_of(roomy) == shims
    assert not in_parallel(4, slow, read)
    assert not in_parallel(8, list(made), lambda s: made[s].remove(s))
    wait_until(lambda: not records(roomy) and not shims_of(roomy), 60, "all are removed")


def keys(frames):
    return [tuple(f["asset_key"]) for f in frames if f["stage"] == "materialize"]


@pytest.mark.slow
@pytest.mark.parametrize("way", [kill_supervisor, kill_both, leave])
def test_running_task_goes_on_without_hole_or_double(roomy, way):
    caller = roomy.client("alice")
    session = caller.create()
    body = "type: a.B\nattributes: [" + "1, " * 150000 + "1]\n"
    names = [f"c{i:03}" for i in range(60)]
    for name in names:
        assert caller.write(session, name, body).status == 200
    task = caller.execute(session)
    state = f"/dagster/sandbox/tasks/{task}"
    wait_until(lambda: caller.get(state).json["status"] == "running", 10, "it runs")
    for _ in range(2):
        time.sleep(0.3)
        assert caller.get(state).json["status"] == "running"
        way(roomy)
    frames = caller.frames(task, timeout=120 * PATIENCE)
    assert [f["seq"] for f in frames] == list(range(1, len(frames) + 1))
    assert [f["stage"] for f in frames].count("done") == 1, frames[-1]
    assert frames[-1]["stage"] == "done"
    assert keys(frames) == [("sandbox", name) for name in names]
    # After a restart of the reader the same frames are there.
    assert caller.frames(task) == frames


def kill_worker(name):
    def way(daemon):
        os.kill(daemon.worker_pid(name), signal.SIGKILL)
        wait_until(lambda: answers(daemon), 30, "answers")
    way.__name__ = f"kill_{name}"
    return way


def kill_twice(daemon):
    """The next supervisor dies as well, in the middle of its adoption if it so happens."""
    old = parent_of(daemon.worker_pid("sandboxd-api"))
    os.kill(old, signal.SIGKILL)
    pause = random.random() * 0.2
    for _ in range(5):
        # What was seen, and no later look: in between the keeper is all there is.
        following = wait_until(lambda: {daemon.supervisor_pid()} - {old, daemon.process.pid}, 20, "the next").pop()
        time.sleep(pause)
        try:
            os.kill(following, signal.SIGKILL)
            break
        except ProcessLookupError:
            pause = 0.05  # an orphan of the first one, on its way out, looks like a supervisor
    time.sleep(0.1)
    wait_until(lambda: answers(daemon), 30, "answers")


@pytest.mark.slow
def test_deaths_in_a_loop_under_load_leave_nothing(roomy):
    """Whoever dies, whenever: what was answered holds, and the end is as the beginning."""
    ways = [kill_supervisor, kill_both, kill_twice, leave, kill_worker("sandboxd-api"),
            kill_worker("sandboxd-egress")] * 3
    random.Random(20261129).shuffle(ways)
    keeper = roomy.client("keeper")
    kept = [keeper.create() for _ in range(5)]
    for session in kept:
        assert keeper.shell(session, f"echo {session} > /session/mark").code == 0
    before = roomy.settled()
    blocks = id_blocks_in_use(roomy.instance)
    shims = shims_of(roomy)
    stop, surprises = threading.Event(), []

    def work(number):
        caller = roomy.client(f"user{number}")
        mine = []
        while not stop.is_set() or (mine and roomy.process.poll() is None):
            try:
                if not stop.is_set():
                    made = caller.post(SESSIONS, {}, timeout=20 * PATIENCE)
                    if made.status == 201:
                        mine.append(made.json["id"])
                    elif made.status not in (429, 500, 503):
                        surprises.append(made)
                if mine and caller.remove(mine[0]).status in (200, 404):
                    mine.pop(0)
            except Exception:  # pylint: disable=broad-except
                time.sleep(0.02)  # cut by a death

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    try:
        for way in ways:
            way(roomy)
            assert set(shims) <= set(shims_of(roomy)), way.__name__
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not surprises, surprises[:3]
    for session in kept:
        assert keeper.shell(session, "cat /session/mark").text.strip() == session
    # Creates whose answer was cut left sessions that nobody knows but the rows.
    for row in roomy.root.get(SESSIONS).json:
        if row["id"] not in kept:
            roomy.root.remove(row["id"])
    try:
        wait_until(lambda: comparable(roomy.snapshot()) == comparable(before), 20, "as before")
    except AssertionError:
        assert comparable(roomy.snapshot()) == comparable(before)
    assert shims_of(roomy) == shims
    assert abs(id_blocks_in_use(roomy.instance) - blocks) <= 8  # the reserve refills in its time
    for session in kept:
        keeper.remove(session)
    wait_until(lambda: not shims_of(roomy) and not records(roomy), 10, "nothing is left")


def comparable(snapshot):
    """The supervisor is another one: its reserve, and the pidfds of its sessions, are as many."""
    return {name: value for name, value in snapshot.items() if name != "shims"}
