"""A hundred sandboxes that live at once, driven by 16 clients: acquire, command, file, suspend, resume, destroy; nothing
of them is left."""
import concurrent.futures
import os

import pytest

from harness import PATIENCE, RUNTIME, Daemon, wait_until

CONFIG = ("[identity]\ntrusted_peers = 0\n[limits]\nsessions = 200\nmemory = 1024GiB\n"
          "[owner]\nsessions = 200\nmemory = 1024GiB\n[supervisor]\nlaunches_per_second = 1000\n")
N = 100


def drive(caller, number, made):
    """A command that reads what was put, a file that it wrote, the words that the sandbox was made with; and a suspend."""
    url = f"{RUNTIME}/{made['sandbox_uuid']}"
    body = os.urandom(1000 + number * 97)
    assert caller.request("PUT", f"{url}/files?path=in/{number}", raw_body=body).status == 200
    result = caller.shell(made["sandbox_uuid"], f"cat in/{number} >out; wc -c <out; echo $NUMBER", timeout_ms=60000)
    assert result.text.split() == [str(len(body)), str(number)], result
    assert caller.get(f"{url}/files?path=out").body == body
    assert caller.get(url).json["metadata"] == {"n": str(number)}
    # Every eighth is resumed when its snapshot is in the store, the others in the middle of that.
    durable = "wait" if number % 8 == 0 else "background"
    answer = caller.post(f"{url}/suspend", {"durable": durable}, timeout=300 * PATIENCE)
    assert answer.status == 200 and answer.json["status"] == "suspended", answer
    assert answer.json["durable"] or durable == "background", answer
    answer = caller.post(f"{url}/resume", timeout=300 * PATIENCE)
    assert answer.status == 200 and answer.json["resumed"] == "memory", answer
    assert caller.get(f"{url}/files?path=out").body == body


def snapshots(daemon):
    return [path for path in (daemon.state / "api" / "snapshots").rglob("*") if path.is_file()]


@pytest.mark.slow
def test_a_hundred_at_once_leave_nothing():
    daemon = Daemon(config=CONFIG)
    try:
        callers = [daemon.client(f"user{i}", workspace=f"team{i % 4}") for i in range(16)]
        warm = callers[0].create_runtime()
        assert callers[0].shell(warm, "true").code == 0
        assert callers[0].delete(f"{RUNTIME}/{warm}").status == 200
        wait_until(lambda: not daemon.shim_pids(), 5, "the first one is gone")
        before = daemon.settled()

        def acquire(number):
            body = {"envs": {"NUMBER": str(number)}, "metadata": {"n": str(number)}, "idempotency_key": f"k{number}"}
            answer = callers[number % 16].post(RUNTIME, body)
            assert answer.status == 201, answer
            return answer.json

        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            made = list(pool.map(acquire, range(N)))
            assert len({one["sandbox_uuid"] for one in made}) == N
            assert len(daemon.shim_pids()) == N
            assert len(daemon.root.get(f"{RUNTIME}?limit=500").json["sandboxes"]) == N
            list(pool.map(lambda i: drive(callers[i % 16], i, made[i]), range(N)))
            ends = list(pool.map(lambda i: callers[i % 16].delete(f"{RUNTIME}/{made[i]['sandbox_uuid']}"), range(N)))
        assert {answer.status for answer in ends} == {200}
        assert daemon.root.get(RUNTIME).json == {"sandboxes": [], "next": None}
        try:
            wait_until(lambda: daemon.snapshot() == before and not snapshots(daemon), 30, "before = after")
        except AssertionError:
            assert (daemon.snapshot(), snapshots(daemon)) == (before, [])
    finally:
        daemon.done()
