"""The store refuses (its disk is full): no session is lost, no request hangs, and it says so."""
import os

import pytest

from harness import RUNTIME, SESSIONS, wait_until
from small_disk import SmallDisk


@pytest.fixture
def small():
    started = SmallDisk()
    yield started
    started.done()


def refuses(caller, session, number):
    """Write until the store has no room for one more body."""
    answer = caller.write(session, f"filler{number}", "x: " + "y" * 250000)
    assert answer.status == 200, answer
    return answer.headers["Sandbox-Degraded"] == "store"


def test_outage_of_the_store(small):
    if small.database:
        pytest.skip("the disk is the embedded store's; a server that is away has tests of its own")
    caller = small.client("alice")
    before = caller.create()
    caller.write(before, "one", "type: a.B\n")
    assert caller.get(f"{SESSIONS}/{before}").json["sandbox"]["persisted"] is True
    small.fill()
    assert any(refuses(caller, before, number) for number in range(120)), "never refused"
    # The audit log is on the same disk: whether it had something to write too is not known.
    ready = caller.get("/readyz").json
    assert (ready["status"], ready["reason"]) == ("not ready", "store")
    assert ready["parts"]["store"] == "database or disk is full"
    assert caller.get(f"{SESSIONS}/{before}").json["sandbox"]["persisted"] is False

    made = caller.post(SESSIONS)
    assert made.status == 201 and made.headers["Sandbox-Degraded"] == "store"
    assert made.json["sandbox"]["persisted"] is False
    during = made.json["id"]
    caller.write(during, "one", "type: a.B\n")
    accepted = caller.post(f"{SESSIONS}/{during}/execute")
    assert accepted.status == 200 and accepted.headers["Sandbox-Degraded"] == "store"
    frames = caller.frames(accepted.json["task_id"])
    assert [frame["stage"] for frame in frames] == ["start", "materialize", "done"]

    # What the task said cannot be acknowledged now, so the shim keeps it and all that follows: at
    # some point there is no room for more, and the session goes on all the same.
    statuses = [caller.post(f"{RUNTIME}/{during}/commands", {"argv": ["/bin/true"]}).status
                for _ in range(40)]
    assert statuses[0] == 200 and set(statuses) == {200, 429}, statuses
    more = [caller.execute(during) for _ in range(20)]
    gone = caller.create()
    removed = caller.remove(gone)
    assert removed.status == 200 and removed.headers["Sandbox-Degraded"] == "store"

    small.empty()
    for session in (before, during):
        wait_until(lambda s=session: caller.get(f"{SESSIONS}/{s}").json["sandbox"]["persisted"],
                   15, "persisted by itself")
    wait_until(lambda: caller.get("/readyz").status == 200, 15, "ready again")
    for task in more:
        assert caller.frames(task)[-1]["stage"] == "done"
    assert caller.run(during, "/bin/echo", "x").out == b"x\n"
    assert caller.frames(accepted.json["task_id"]) == frames
    worker = small.worker_pid("sandboxd-api")
    small.deaths_expected = True
    os.kill(worker, 9)
    wait_until(lambda: worker not in small.processes().get("sandboxd-api", [worker]), 10, "ended")
    wait_until(small.ready, 15, "answers again")
    assert {s["id"] for s in caller.get(SESSIONS).json} == {before, during}
    assert caller.frames(accepted.json["task_id"]) == frames
