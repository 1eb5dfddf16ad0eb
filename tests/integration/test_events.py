"""The stream of what happens to a sandbox."""
import contextlib
import json
import os
import signal
import threading

from harness import PATIENCE, RUNTIME, sse_events, wait_until
from runtime_rig import fixture_caller, fixture_session  # noqa: F401  pylint: disable=unused-import


def events(caller, session, after=None, **more):
    query = f"?after={after}" if after is not None else ""
    return (json.loads(line) for line in caller.lines("GET", f"{RUNTIME}/{session}/events{query}", **more) if line)


class Reader(threading.Thread):
    """Reads until the stream's end."""

    def __init__(self, caller, session, after=None):
        super().__init__(daemon=True)
        self.arguments = (caller, session, after)
        self.seen = []
        self.start()

    def run(self):
        for event in events(*self.arguments, timeout=180 * PATIENCE):
            self.seen.append(event)

    def types(self):
        return [event["type"] for event in self.seen]


def kill_shims(daemon):
    for pid in daemon.shim_pids():
        with contextlib.suppress(ProcessLookupError):  # of an earlier session, which was just ending
            os.kill(pid, signal.SIGKILL)


def test_a_whole_life(daemon, caller):
    session = caller.create_runtime()
    reader = Reader(caller, session)
    wait_until(lambda: len(reader.seen) == 2, 10, "what was before")
    # Its first process dies, and the next use makes others.
    kill_shims(daemon)
    wait_until(lambda: "stopped" in reader.types(), 10, "it stops")
    assert caller.shell(session, "true").code == 0
    wait_until(lambda: len(reader.seen) == 4, 10, "it starts again")
    late = Reader(caller, session, after=reader.seen[1]["seq"])
    wait_until(lambda: len(late.seen) == 2, 10, "what was after that number")
    assert caller.delete(f"{RUNTIME}/{session}").status == 200
    for one in (reader, late):
        one.join(10 * PATIENCE)
        assert not one.is_alive(), "the stream ends with the sandbox"
    assert reader.types() == ["created", "started", "stopped", "started", "destroyed"]
    assert reader.seen[-1]["reason"] == "deleted" and "reason" not in reader.seen[0]
    numbers = [event["seq"] for event in reader.seen]
    assert numbers == sorted(set(numbers))
    assert late.seen == reader.seen[2:]


def test_expiry(caller):
    session = caller.create_runtime()
    reader = Reader(caller, session)
    wait_until(lambda: reader.seen, 10, "it was created")
    # What is at work then is told so.
    assert caller.shell(session, "git init -q w && cd w && printf '#!/bin/sh\n: >/session/at-work\nsleep 600\n' "
                                 ">.git/hooks/pre-commit && chmod 755 .git/hooks/pre-commit").code == 0
    body = {"path": "w", "message": "x", "allow_empty": True, "author_name": "a", "author_email": "a@b"}
    answers = []
    commit = threading.Thread(daemon=True, target=lambda: answers.append(
        caller.post(f"{RUNTIME}/{session}/git/commit", body, timeout=180 * PATIENCE)))
    commit.start()
    wait_until(lambda: caller.get(f"{RUNTIME}/{session}/files/stat?path=at-work").status == 200, 20, "it is at work")
    assert caller.post(f"{RUNTIME}/{session}/timeout", {"timeout_ms": 60000}).status == 200
    reader.join(90 * PATIENCE)
    assert reader.types()[-2:] == ["expired", "destroyed"] and reader.seen[-1]["reason"] == "expired"
    commit.join(30 * PATIENCE)
    assert (answers[0].status, answers[0].json["code"], answers[0].json["retryable"]) == (410, "expired", False), answers
    assert caller.get(f"{RUNTIME}/{session}").status == 404


def test_oom(caller, session):
    seen = Reader(caller, session)
    hog = "import mmap\nhold = []\nwhile True: m = mmap.mmap(-1, 1 << 26); m.write(b'x' * (1 << 26)); hold.append(m)"
    caller.run(session, "/usr/bin/python3", "-c", hog)
    caller.get(f"{RUNTIME}/{session}/stats")
    wait_until(lambda: "oom" in seen.types(), 10, "oom")


def test_forms(daemon, caller, session):
    stream = caller.lines("GET", f"{RUNTIME}/{session}/events", headers={"Accept": "text/event-stream"})
    number, data = next(sse_events(stream))
    assert json.loads(data)["type"] == "created" and json.loads(data)["seq"] == int(number)
    stream.close()
    assert caller.get(f"{RUNTIME}/{session}/events?after=x").status == 422
    # The next worker's numbers are above those of this one.
    stream = events(caller, session)
    last = [next(stream) for _ in range(2)][-1]["seq"]
    stream.close()
    daemon.deaths_expected = True
    os.kill(daemon.worker_pid("sandboxd-api"), signal.SIGKILL)
    wait_until(daemon.ready, 20, "the worker is back")
    wait_until(lambda: caller.get(f"{RUNTIME}/{session}").status == 200, 20, "adopted")
    reader = Reader(caller, session, after=last)
    kill_shims(daemon)
    wait_until(lambda: reader.types() == ["stopped"], 10, "it is heard of")
    assert reader.seen[0]["seq"] > last
