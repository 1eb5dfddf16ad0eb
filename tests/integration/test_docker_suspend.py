"""What a suspend of a container promises, and snapshots that go from one provider to another."""
import contextlib
import json
import os
import signal
import threading
from pathlib import Path

import pytest

from conformance_rig import LINES, Sandbox, refused
from docker_rig import Engine
from faulty_engine import Front
from harness import CONFIG, SLOW, Daemon, event_bytes, wait_until

BUSY = "i=0; while :; do i=$((i+1)); echo $i >> beat; done"
BEAT = "while :; do echo x >> %s; sleep 0.05; done"


@pytest.fixture(name="engine", scope="module")
def fixture_engine():
    engine = Engine()
    yield engine
    engine.done()


@pytest.fixture(name="front", scope="module")
def fixture_front(engine):
    front = Front(engine.home / "front.sock", engine.socket)
    yield front
    front.done()


@pytest.fixture(name="daemon", scope="module")
def fixture_daemon(engine, front):
    daemon = Daemon(CONFIG + "[api]\nprovider = docker\n" + engine.config(socket=front.path))
    daemon.deaths_expected = True
    wait_until(lambda: daemon.readiness() == 200, 20, "the provider is up")
    yield daemon
    daemon.done()


@pytest.fixture(name="caller")
def fixture_caller(daemon, front):
    front.calm()
    yield daemon.client("ana")
    front.calm()


@pytest.fixture(name="sandbox")
def fixture_sandbox(caller):
    made = Sandbox(caller, caller.create_runtime())
    yield made
    assert made.delete().status == 200


def size_of(engine, sandbox, name):
    """Of a file in a container, as the host sees it: also of one that is paused."""
    path = Path(f"/proc/{engine.inspect(sandbox.name)['State']['Pid']}/root/session/{name}")
    return path.stat().st_size


def began(sandbox, script, name="beat", **more):
    command = sandbox.begin(script, **more)
    wait_until(lambda: sandbox.size(name) > 0, 20)
    return command


def remove(engine, sandbox):
    engine.podman("rm", "--force", "--time=0", engine.inspect(sandbox.name)["Name"].lstrip("/"))


def test_its_snapshot_is_what_was_there(engine, sandbox):
    """Of what writes as fast as it can there is as much in the snapshot as in the container that went on standing still."""
    began(sandbox, BUSY)
    first = size_of(engine, sandbox, "beat")
    wait_until(lambda: size_of(engine, sandbox, "beat") > first, 20, "the control: it writes")
    said = sandbox.done("/suspend", {"durable": "wait"})
    assert (said["status"], said["durable"]) == ("suspended", True), said
    assert engine.containers()[sandbox.name] == "paused"
    size = size_of(engine, sandbox, "beat")
    remove(engine, sandbox)
    said = sandbox.done("/resume")
    assert (said["status"], said["resumed"]) == ("open", "snapshot"), said
    assert sandbox.size("beat") == size
    assert engine.containers()[sandbox.name] == "running"


def test_all_of_it_goes_on_in_memory(sandbox):
    """A shell at its terminal with what it waits for, what left its shell, and what had been stopped before."""
    shell = sandbox.begin("exec sh -i", pty={"rows": 24, "cols": 80}, stdin_open=True)
    sandbox.done(f"/commands/{shell}/stdin", {"text": "echo at-$((40+2)); cat; echo then-$((40+3))\n"})
    assert heard(sandbox, shell, b"at-42")
    began(sandbox, f"setsid sh -c '{BEAT % 'left'}' & wait", "left")
    held = began(sandbox, BEAT % "held", "held")
    sandbox.done(f"/commands/{held}/signal", {"signal": "STOP", "scope": "tree"})
    wait_until(lambda: stands(sandbox, "held", "left"), 20, "it is stopped")
    for _ in range(4):
        said = sandbox.done("/suspend", {"durable": "wait"})
        assert said["durable"] is True, said
        assert sandbox.done("/resume")["resumed"] == "memory"
        assert stands(sandbox, "held", "left"), "who was stopped before stays so"
    sandbox.done(f"/commands/{shell}/stdin", {"text": "line\n\x04"})
    # It waited for what it had begun, and was not told that this had stopped.
    assert b"topped" not in heard(sandbox, shell, b"then-43")
    size = sandbox.size("held")
    sandbox.done(f"/commands/{held}/signal", {"signal": "CONT", "scope": "tree"})
    wait_until(lambda: sandbox.size("held") > size, 20, "and goes on when it is told")


def heard(sandbox, command, text):
    """All that it said until this."""
    got = b""
    with contextlib.closing(sandbox.caller.lines("GET", sandbox.url(f"/commands/{command}/stream"), headers=LINES)) as lines:
        for line in lines:
            event = json.loads(line) if line else {}
            got += event_bytes(event) if event.get("type") == "stdout" else b""
            if text in got:
                return got
    raise AssertionError(got)


def stands(sandbox, still, moving):
    """The one has not grown while the other has, by some."""
    size, other = sandbox.size(still), sandbox.size(moving)
    wait_until(lambda: sandbox.size(moving) > other + 8, 30, "the control")
    return sandbox.size(still) == size


def test_a_worker_that_dies_while_it_is_made(engine, daemon, front, sandbox):
    """The container goes on for its snapshot, and nobody is left to pause it again: it stays as it was all the same."""
    began(sandbox, BUSY)
    sandbox.done("/suspend", {"durable": "never"})
    size = size_of(engine, sandbox, "beat")
    seen = len(front.seen)
    front.delay = [["POST .*/containers/.*/pause", 4 * SLOW, 1]]
    asker = threading.Thread(target=ask_to_suspend, args=(sandbox,))
    asker.start()
    wait_until(lambda: any("/pause" in one for one in front.seen[seen:]), 30, "its snapshot is made")
    assert any("/unpause" in one for one in front.seen[seen:])
    former = daemon.worker_pid("sandboxd-api")
    os.kill(former, signal.SIGKILL)
    wait_until(lambda: [pid for pid in daemon.processes().get("sandboxd-api", []) if pid != former], 30, "another worker")
    asker.join()
    wait_until(daemon.ready, 30, "it answers")
    wait_until(lambda: sandbox.get().json["durable"], 60, "it is durable")
    assert sandbox.get().json["status"] == "suspended"
    wait_until(lambda: engine.containers()[sandbox.name] == "paused", 20, "and paused")
    assert size_of(engine, sandbox, "beat") == size
    assert sandbox.done("/resume")["resumed"] == "memory"
    wait_until(lambda: sandbox.size("beat") > size, 20, "all goes on")


def ask_to_suspend(sandbox):
    try:
        sandbox.post("/suspend", {"durable": "wait"})
    except OSError:
        pass  # the worker dies


def test_one_that_is_gone_and_has_no_snapshot(engine, sandbox):
    sandbox.put("file", b"lost")
    sandbox.done("/suspend", {"durable": "never"})
    remove(engine, sandbox)
    sandbox.done("/resume")
    refused(sandbox.read("file"), 404, "file_not_found")
    assert sandbox.text("echo on") == "on\n"


@pytest.mark.parametrize("way", [("native", "docker"), ("docker", "native")], ids="-".join)
def test_a_snapshot_goes_to_another_provider(caller, way):
    """What a session's root owns is the user's where there is no root."""
    here, there = (Sandbox(caller, caller.create_runtime(provider=name)) for name in way)
    here.text("mkdir -p d/e; echo kept > d/f; chmod 640 d/f; ln -s d/f link; ln d/f hard; echo '#!/bin/sh\necho ran' > run;"
              " chmod 750 run; mkdir closed; chmod 700 closed; echo inner > closed/f")
    here.put("large", os.urandom(5 << 20))
    if way[0] == "native":
        here.text("echo of-root > d/root; chmod 600 d/root", user="root")
    made = here.done("/snapshots", status=201)
    there.put("d/f", b"other")
    body = {"snapshot_id": made["snapshot_id"], "sandbox_uuid": here.name}
    refused(there.post("/restore", body), 409, "exists")
    said = there.done("/restore", {**body, "replace": True})
    assert said["entries"] == made["entries"], said
    assert there.text("cat link hard closed/f; ls -ln d/f run | awk '{print $1, $3}'; ls -d closed; ./run") == (
        "kept\nkept\ninner\n-rw-r----- 1000\n-rwxr-x--- 1000\nclosed\nran\n")
    assert there.bytes("large") == here.bytes("large")
    if way[0] == "native":
        assert there.text("cat d/root; ls -ln d/root | awk '{print $1, $3}'") == "of-root\n-rw------- 1000\n"
    for one in (here, there):
        assert one.delete().status == 200
