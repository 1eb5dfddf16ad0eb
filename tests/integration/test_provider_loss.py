"""sandboxd-provider ends, by itself or by the will of a service elsewhere. Sessions of native notice nothing: the api worker
stays, with their streams and the commands that a request waits for. Those of the other provider are found again."""
import asyncio
import contextlib
import http.client
import json
import os
import signal
import threading

import pytest

from conformance_rig import LINES, PROVIDERS, Sandbox, kill_provider, refused
from harness import SLOW, Result, event_bytes, wait_until
from test_commands_pty import attached
from test_remote_faults import reached, tried

DOCKER, REMOTE = PROVIDERS[1:]
UNTIL = "while [ ! -e go ]; do echo x; sleep 0.05; done; "


class Running(threading.Thread):
    """Something that a client waits for, meanwhile."""

    def __init__(self, work):
        super().__init__(daemon=True)
        self.work, self.result = work, None
        self.start()

    def run(self):
        try:
            self.result = self.work()
        except Exception as error:  # pylint: disable=broad-except
            self.result = error

    def done(self):
        self.join(120 * SLOW)
        assert not self.is_alive(), "it still waits"
        return self.result


@contextlib.contextmanager
def undisturbed(daemon):
    """Of native: what runs goes on to its end, and the api worker is the same one."""
    former = daemon.worker_pid("sandboxd-api")
    caller = daemon.client("ana", workspace="blue")
    sandbox = Sandbox(caller, caller.create_runtime(provider="native"))
    terminal = sandbox.begin(UNTIL + "echo terminal", pty={"rows": 24, "cols": 80})
    behind = sandbox.begin(UNTIL + "exit 4")
    foreground = Running(lambda: sandbox.run(UNTIL + "echo whole; exit 3"))
    streamed = Running(lambda: Result(sandbox.events(UNTIL + "exit 5")))
    followed = Running(lambda: Result(sandbox.stream(behind)))
    socket = Running(lambda: asyncio.run(attached(caller, sandbox.name, terminal)))
    every = (foreground, streamed, followed, socket)
    assert sandbox.said(behind, 2) == b"x\n"
    yield
    assert all(one.is_alive() for one in every), [one.result for one in every]
    sandbox.put("go", b"")
    answer = foreground.done()
    assert (answer["code"], answer["stdout"].endswith("x\nwhole\n")) == (3, True), answer
    assert (streamed.done().code, followed.done().code) == (5, 4)
    out, events, close = socket.done()
    assert out.endswith(b"terminal\r\n") and events[-1]["type"] == "exit" and close == 1000, (out[-20:], events, close)
    assert daemon.worker_pid("sandboxd-api") == former
    assert sandbox.delete().status == 200


@pytest.fixture(name="docker", scope="module")
def fixture_docker():
    with DOCKER.serving() as daemon:
        yield daemon


@pytest.fixture(name="remote", scope="module")
def fixture_remote():
    with REMOTE.serving() as daemon:
        yield daemon


@pytest.fixture(name="daemon", params=["docker", "remote"])
def fixture_daemon(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(name="sandbox")
def fixture_sandbox(daemon):
    wait_until(lambda: daemon.readiness() == 200, 60, "the provider is up")
    caller = daemon.client("ana", workspace="blue")
    made = Sandbox(caller, caller.create_runtime())
    yield made
    wait_until(lambda: daemon.readiness() == 200, 60, "the provider is up")
    assert made.delete().status in (200, 404)


def read_until_cut(sandbox, command):
    """The events of a stream, which ends without the end of the command."""
    events = []
    with contextlib.suppress(OSError, http.client.HTTPException):
        for line in sandbox.caller.lines("GET", sandbox.url(f"/commands/{command}/stream"), headers=LINES):
            if line:
                events.append(json.loads(line))
    return events


def test_it_is_killed_and_what_runs_is_found_again(daemon, sandbox):
    sandbox.put("file", b"kept")
    ended = sandbox.begin("echo all of it; exit 7")
    assert sandbox.ended(ended)["code"] == 7
    command = sandbox.begin("i=0; while [ ! -e go ]; do i=$((i+1)); echo $i; sleep 0.05; done; exit 6")
    assert sandbox.said(command, 2) == b"1\n"
    with undisturbed(daemon):
        foreground = Running(lambda: sandbox.post("/commands", {"cmd": "sleep 1000"}, headers={"Accept": "application/json"}))
        waiting = Running(lambda: sandbox.get(f"/commands/{command}/wait", timeout_ms=60000 * SLOW))
        stream = Running(lambda: read_until_cut(sandbox, command))
        wait_until(lambda: "sleep 1000" in sandbox.text("ps -o args 2>/dev/null || ps"), 20, "it runs")
        kill_provider(daemon)
        refused(foreground.done(), 409, "host_restarted")
        refused(waiting.done(), 503, "provider_unavailable", True)
        before = stream.done()
        wait_until(lambda: reached(sandbox, "file") == b"kept", 60, "what it has")
    assert all(event["type"] in ("start", "stdout") for event in before), before
    sandbox.put("go", b"")
    last = max([event["seq"] for event in before if event["type"] == "stdout"], default=0)
    after = sandbox.stream(command, last)
    said = b"".join(event_bytes(event) for event in before + after if event["type"] == "stdout")
    assert Result(after).code == 6
    assert said == "".join(f"{n}\n" for n in range(1, said.count(b"\n") + 1)).encode()
    assert (sandbox.output(ended), sandbox.ended(ended)["code"]) == (b"all of it\n", 7)
    assert "sleep 1000" not in sandbox.text("ps -o args 2>/dev/null || ps"), "what nobody waits for has ended"


def test_it_is_killed_again_and_again(daemon, sandbox):
    """Also before it has said what lives."""
    sandbox.put("file", b"kept")
    command = sandbox.begin(UNTIL + "exit 6")
    with undisturbed(daemon):
        for _ in range(3):
            kill_provider(daemon)
        wait_until(lambda: reached(sandbox, "file") == b"kept", 90, "what it has")
    sandbox.put("go", b"")
    assert sandbox.ended(command)["code"] == 6


def test_one_that_stands_still_stands_still(daemon, sandbox):
    command = sandbox.begin(UNTIL + "exit 6")
    sandbox.done("/suspend", {"durable": "never"})
    kill_provider(daemon)
    assert sandbox.get().json["status"] == "suspended"
    answer = wait_until(lambda: tried(lambda: sandbox.post("/resume"), 200), 60, "it is found")
    assert answer.json["resumed"] == "memory", answer
    sandbox.put("go", b"")
    assert sandbox.ended(command)["code"] == 6


def test_the_api_worker_dies_as_well(daemon, sandbox):
    """The one after it finds the same."""
    sandbox.put("file", b"kept")
    command = sandbox.begin(UNTIL + "exit 6")
    former = daemon.worker_pid("sandboxd-api")
    kill_provider(daemon)
    os.kill(former, signal.SIGKILL)
    wait_until(lambda: [pid for pid in daemon.processes().get("sandboxd-api", []) if pid != former], 30, "another worker")
    wait_until(lambda: reached(sandbox, "file") == b"kept", 90, "what it has")
    sandbox.put("go", b"")
    assert sandbox.ended(command)["code"] == 6


def away(daemon, sandbox):
    """While nothing can be asked there."""
    wait_until(lambda: daemon.readiness() == 503, 90, "it is away")
    refused(wait_until(lambda: tried(lambda: sandbox.read("file"), 503), 30), 503, "provider_unavailable", True)
    assert sandbox.get().json["status"] == "open"


def found(daemon, sandbox, command):
    wait_until(lambda: daemon.readiness() == 200, 120, "it is back")
    wait_until(lambda: reached(sandbox, "file") == b"kept", 60, "what it has")
    sandbox.put("go", b"")
    assert sandbox.ended(command)["code"] == 6


def ends(daemon):
    return daemon.log.read_text().count("provider ends")


@pytest.mark.parametrize("daemon", ["remote"], indirect=True)
def test_a_service_that_does_not_take_the_credential(daemon, sandbox):
    """As often as it likes."""
    service, n_ends = REMOTE.other, ends(daemon)
    sandbox.put("file", b"kept")
    command = sandbox.begin(UNTIL + "exit 6")
    former = service.credential
    with undisturbed(daemon):
        service.credential = "another-one"
        try:
            service.expire()
            service.cut_all()
            away(daemon, sandbox)
            wait_until(lambda: ends(daemon) > n_ends + 1, 90, "more than one has ended")
            away(daemon, sandbox)
        finally:
            service.credential = former
        found(daemon, sandbox, command)


@pytest.mark.parametrize("daemon", ["remote"], indirect=True)
def test_a_service_that_is_silent(daemon, sandbox):
    service, n_ends = REMOTE.other, ends(daemon)
    sandbox.put("file", b"kept")
    command = sandbox.begin(UNTIL + "exit 6")
    with undisturbed(daemon):
        with service.silent():
            wait_until(lambda: ends(daemon) > n_ends, 120, "it has ended")
            away(daemon, sandbox)
        found(daemon, sandbox, command)


def test_one_that_is_deleted_meanwhile(docker):
    """It is removed where it is when that can be asked again; one that was removed there is made again from its row."""
    wait_until(lambda: docker.readiness() == 200, 60, "the provider is up")
    caller = docker.client("ana", workspace="blue")
    engine = DOCKER.other
    gone, kept = (Sandbox(caller, caller.create_runtime()) for _ in range(2))
    kept.put("file", b"kept")
    with undisturbed(docker):
        engine.stop()
        try:
            wait_until(lambda: docker.readiness() == 503, 90, "it is away")
            assert gone.delete().status == 200
            assert gone.get().status == 404
        finally:
            engine.start()
        wait_until(lambda: docker.readiness() == 200, 90, "it is back")
        wait_until(lambda: gone.name not in engine.containers(), 60, "it is removed")
    assert kept.delete().status == 200
