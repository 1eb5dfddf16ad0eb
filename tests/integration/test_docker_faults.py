"""An engine that refuses, is slow, and loses its streams: what is answered, what goes on, and that nothing is left."""
import os
import signal
import threading
import time

import pytest

from conformance_rig import JSON, Sandbox, refused, refused_by, runs
from docker_rig import Engine
from faulty_engine import Front
from harness import CONFIG, RUNTIME, SLOW, Daemon, Result, wait_until

# Less than is kept of a command (COMMAND_KEPT_MAX_BYTES): a reader that has caught up may fall behind by all of it.
COUNTED = "".join(f"{n}\n" for n in range(1, 120001)).encode()


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
    daemon.deaths_expected = True  # a provider that cannot list what there is ends, and is started again
    wait_until(lambda: daemon.readiness() == 200, 20, "the provider is up")
    yield daemon
    daemon.done()


@pytest.fixture(name="caller")
def fixture_caller(daemon, front):
    front.calm()
    yield daemon.client("ana")
    front.calm()


@pytest.fixture(name="sandbox")
def fixture_sandbox(caller, front):
    made = Sandbox(caller, caller.create_runtime())
    yield made
    front.calm()
    assert made.delete().status == 200


def created(caller):
    return caller.post(RUNTIME, {}, timeout=90 * SLOW)


def nothing_is_left(engine):
    wait_until(lambda: engine.containers() == {}, 20, "no container is left")


@pytest.mark.parametrize("status", [401, 500, 503])
@pytest.mark.parametrize("request_line", ["POST .*/containers/create", "POST .*/containers/.*/start", "POST .*/exec$",
                                          "POST /.*exec/.*/start"])
def test_a_refusal_is_a_typed_error_and_leaves_nothing(caller, front, engine, request_line, status):
    front.refuse = [[request_line, status, 1]]
    refused_by(caller, front.refuse)
    nothing_is_left(engine)
    answer = created(caller)
    assert answer.status == 201, answer
    assert Sandbox(caller, answer.json["sandbox_uuid"]).delete().status == 200


def test_a_conflict_is_what_an_earlier_try_left(caller, front, engine):
    front.refuse = [["POST .*/containers/create", 409, 1]]
    answer = created(caller)
    assert answer.status == 201, answer
    sandbox = Sandbox(caller, answer.json["sandbox_uuid"])
    assert sandbox.text("echo on") == "on\n"
    wait_until(lambda: len(engine.containers()) == 1, 20, "it is the only one")
    assert sandbox.delete().status == 200
    front.refuse = [["POST .*/containers/create", 409, 2]]
    refused_by(caller, front.refuse)
    nothing_is_left(engine)


def test_a_slow_start(caller, front, engine):
    front.delay = [["POST .*/containers/.*/start", 4, 1]]
    began = time.monotonic()
    answer = created(caller)
    assert answer.status == 201 and time.monotonic() - began >= 4, answer
    assert Sandbox(caller, answer.json["sandbox_uuid"]).delete().status == 200
    front.delay = [["POST .*/containers/.*/start", 28, 1]]
    refused_by(caller, front.delay)
    front.calm()
    wait_until(lambda: engine.containers() == {}, 60, "no container is left")


@pytest.mark.parametrize("n_bytes", [1, 9, 1000, 100000, 500000])
def test_a_stream_is_lost_in_the_middle(front, sandbox, n_bytes):
    """No byte is lost, and none comes twice."""
    n_cut = front.n_cut
    command = sandbox.begin("read x; seq 1 120000; cat", stdin_open=True, hold_output=True)
    front.lose_after = n_bytes
    sandbox.done(f"/commands/{command}/stdin", {"text": "go\n"})
    got = []
    reader = threading.Thread(target=lambda: got.append(Result(sandbox.stream(command))))
    reader.start()
    wait_until(lambda: front.n_cut > n_cut, 20, "it was lost")
    sandbox.done(f"/commands/{command}/stdin", {"text": "and this\n", "eof": True})
    reader.join(120 * SLOW)
    assert got and got[0].code == 0, got
    assert got[0].out == COUNTED + b"and this\n"


def test_every_connection_is_cut_after_a_while(front, sandbox):
    """As services do that end each after ten minutes: here after half a second."""
    n_cut = front.n_cut
    front.cut_after = 0.5
    said = sandbox.events("i=0; while [ $i -lt 100 ]; do i=$((i+1)); echo $i; sleep 0.05; done; echo err >&2; exit 7")
    got = Result(said)
    assert (got.out, got.err, got.code) == ("".join(f"{n}\n" for n in range(1, 101)).encode(), b"err\n", 7)
    data = bytes(range(256)) * 20000
    for _ in range(3):
        assert sandbox.put("file", data).json["size"] == len(data)
        assert sandbox.bytes("file") == data
    wait_until(lambda: front.n_cut - n_cut >= 5, 20, "the fault was met")
    front.calm()


def worker_dies(daemon):
    former = daemon.worker_pid("sandboxd-api")
    os.kill(former, signal.SIGKILL)
    wait_until(lambda: [pid for pid in daemon.processes().get("sandboxd-api", []) if pid != former], 30, "another worker")
    wait_until(daemon.ready, 30, "it answers")


@pytest.mark.parametrize("is_paused", [False, True], ids=["running", "paused"])
def test_a_stream_that_is_refused_after_a_start(daemon, front, sandbox, is_paused):
    """What lives is found again although the engine does not give its stream at once."""
    sandbox.put("file", b"kept")
    if is_paused:
        sandbox.done("/suspend", {"durable": "never"})
    front.refuse = [["POST .*/exec$", 500, 3]]
    worker_dies(daemon)
    if is_paused:
        sandbox.done("/resume")
    wait_until(lambda: front.refuse[0][2] == 0, 30, "the fault was met")
    wait_until(lambda: sandbox.read("file").status == 200, 40, "it is reached again")
    assert sandbox.bytes("file") == b"kept"


@pytest.mark.slow
def test_an_engine_that_takes_long_to_refuse(daemon, front, sandbox):
    """Half a minute is over after a few tries, and it is not given up."""
    sandbox.put("file", b"kept")
    front.delay, front.refuse = [["POST .*/exec$", 4, 10]], [["POST .*/exec$", 500, 10]]
    worker_dies(daemon)
    wait_until(lambda: front.refuse[0][2] == 0, 120, "the fault was met")
    wait_until(lambda: sandbox.read("file").status == 200, 40, "it is reached again")
    assert sandbox.bytes("file") == b"kept"


def test_a_container_at_its_limit_of_processes(daemon, caller):
    """Its own commands can start nothing; the process of a new stream is put into it by the engine, if not at the first try."""
    sandbox = Sandbox(caller, caller.create_runtime(profile="component"))
    limit = next(one["pids"] for one in caller.get("/v1/capabilities").json["profiles"] if one["name"] == "component")
    sandbox.put("file", b"kept")
    sandbox.put("fill", b"sleep 1000 &\n" * (limit + 50) + b"echo over > filled\nread x < fifo\n")
    sandbox.begin("mkfifo fifo; exec sh -i < fill > /dev/null 2>&1")
    # Nothing of it may take the place that the process of the former stream leaves.
    wait_until(lambda: sandbox.size("filled") > 0, 60, "it has filled it")
    assert sandbox.get("/stats").json["pids"] == limit
    refused(sandbox.post("/commands", {"cmd": "true"}, headers=JSON), 422, "command_failed")
    worker_dies(daemon)
    wait_until(lambda: sandbox.read("file").status == 200, 40, "it is reached again")
    assert sandbox.bytes("file") == b"kept"
    assert sandbox.get("/stats").json["pids"] >= limit
    assert sandbox.delete().status == 200


def test_an_engine_that_is_started_again(engine, front, sandbox):
    command = sandbox.begin("while :; do echo x >> beat; sleep 0.05; done")
    sandbox.put("file", b"kept")
    engine.stop()
    time.sleep(1)
    engine.start()
    wait_until(lambda: sandbox.read("file").status == 200, 40, "it is reached again")
    assert sandbox.bytes("file") == b"kept"
    assert sandbox.state(command)["status"] == "running"
    size = sandbox.size("beat")
    wait_until(lambda: sandbox.size("beat") > size, 10, "it goes on")


def test_a_container_that_is_gone_is_made_again(engine, front, sandbox):
    """Its stream is not looked for in vain: the handle ends, and the next use has another one."""
    sandbox.put("file", b"lost")
    name = engine.inspect(sandbox.name)["Name"].lstrip("/")
    engine.podman("rm", "--force", "--time=0", name)
    n_seen = len(front.seen)
    wait_until(lambda: runs(sandbox), 30, "another one")
    assert len([line for line in front.seen[n_seen:] if line.endswith("/exec")]) < 10
    refused(sandbox.read("file"), 404, "file_not_found")
