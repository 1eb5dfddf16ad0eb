"""Engines that misbehave, and what is done to sandboxes in the wrong moment. What an engine does rightly is test_docker.py's."""
import contextlib
import http.client
import os
import shutil
import signal
import struct
import threading
import time

import pytest

from engine_fake import FakeEngine
from harness import ASAN, CONFIG, PATIENCE, RUNTIME, SLOW, Daemon, status_of, wait_until

PROVIDER = "sandboxd-provider"[:15]  # as the kernel keeps it


@pytest.fixture(name="engine")
def fixture_engine():
    engine = FakeEngine()
    yield engine
    engine.stop()
    shutil.rmtree(engine.home)


@pytest.fixture(name="service")
def fixture_service(engine):
    daemon = Daemon(CONFIG + engine.config())
    yield daemon
    daemon.stop()
    daemon.done()


@pytest.fixture(name="caller")
def fixture_caller(service):
    wait_until(lambda: service.readiness() == 200, 20, "the provider is up")
    return service.client("ana")


def create(caller, answers):
    with contextlib.suppress(OSError, http.client.HTTPException):
        answers.append(caller.post(RUNTIME, {"provider": "docker"}, timeout=100 * PATIENCE))


def begin_create(caller):
    answers = []
    thread = threading.Thread(target=create, args=(caller, answers))
    thread.start()
    return thread, answers


def created(engine):
    """The sandbox that a container is being made for, or ""."""
    paths = [path for _, path in engine.asked if "/containers/create" in path]
    return paths[-1][-36:] if paths else ""


def test_a_stop_during_the_create_leaves_no_container(engine, service, caller):
    engine.slow("POST", "/containers/create", 3)
    thread, answers = begin_create(caller)
    wait_until(lambda: created(engine))
    assert service.stop() == 0
    thread.join(60 * PATIENCE)
    assert not thread.is_alive(), "who asked for it is not answered"
    wait_until(lambda: engine.made, 5, "the engine made it")
    wait_until(lambda: not engine.containers, 5, "nothing of it is left")
    assert answers == [] or answers[0].status == 503, answers


def test_a_create_without_an_answer_leaves_no_container(engine, caller):
    def act(_connection, path):
        engine.containers[path.split("name=")[1]] = {}
        engine.made.append(path)
        return False  # and the connection ends
    engine.rules.append(("POST", "/containers/create", act))
    answer = caller.post(RUNTIME, {"provider": "docker"}, timeout=60 * PATIENCE)
    assert (answer.status, answer.json["code"]) == (503, "provider_unavailable"), answer
    assert engine.made and not engine.containers


def test_an_engine_that_comes_back_is_found(engine, service, caller):
    service.deaths_expected = True
    assert caller.post(RUNTIME, {"provider": "docker"}).status == 201
    engine.stop()
    assert caller.post(RUNTIME, {"provider": "docker"}).status == 503
    assert caller.shell(caller.create_runtime(), "echo here").text == "here\n"
    engine.start()
    wait_until(lambda: service.readiness() == 200, 40, "ready again")
    answer = caller.post(RUNTIME, {"provider": "docker"})
    assert answer.status == 201, answer


def test_a_delete_while_the_engine_is_away_leaves_no_container(engine, service, caller):
    service.deaths_expected = True
    answer = caller.post(RUNTIME, {"provider": "docker"})
    assert answer.status == 201, answer
    former = service.processes()["sandboxd-api"]
    engine.stop()
    assert caller.post(RUNTIME, {"provider": "docker"}).status == 503
    wait_until(lambda: service.readiness() == 503, 20, "its handle ends with the provider")
    assert caller.delete(f"{RUNTIME}/{answer.json['sandbox_uuid']}", timeout=60 * PATIENCE).status == 200
    assert engine.containers  # the control: nobody could remove it
    engine.start()
    wait_until(lambda: not engine.containers, 40, "nothing of it is left")
    assert service.processes()["sandboxd-api"] == former


@pytest.mark.parametrize("data", [
    b"HTTP/1.1 201 X\r\nContent-Length: 4\r\n\r\n{\"Id",
    b"HTTP/1.1 201 X\r\nContent-Length: 100\r\n\r\n{\"Id",
    b"HTTP/1.1 201 X\r\nContent-Length: 16\r\n\r\n{\"Id\": \"../../x\"}",
    b"HTTP/1.1 201 X\r\nContent-Length: 12\r\n\r\n{\"Id\": \"a b\"}",
    b"HTTP/1.1 201 X\r\nContent-Length: 2\r\n\r\n[]",
    b"HTTP/1.1 201 X\r\nContent-Length: 9\r\n\r\n{\"Id\": 1}",
    b"HTTP/1.1 201 X\r\n\r\n" + b"[" * (1 << 20),
    b"HTTP/1.1 201 X\r\n\r\n" + b"a" * (40 << 20),
    b"HTTP/1.1 500 X\r\nContent-Length: 15\r\n\r\n\x1b[2Jpath=/root/x",
    b"nonsense\r\n\r\n",
    b"",
], ids=["cut", "short", "path", "space", "list", "number", "deep", "huge", "error", "nonsense", "nothing"])
def test_answers_that_are_wrong(engine, service, caller, data):
    former = service.processes()[PROVIDER]
    engine.says("POST", "/exec", data)
    answer = caller.post(RUNTIME, {"provider": "docker"}, timeout=60 * PATIENCE)
    assert (answer.status, answer.json["code"]) == (503, "provider_unavailable"), answer
    assert b"/root" not in answer.body
    wait_until(lambda: not engine.containers, 10, "nothing of it is left")
    assert service.processes()[PROVIDER] == former
    if not ASAN:  # which keeps what was freed
        assert int(status_of(former[0])["VmRSS"].split()[0]) < 60000
    engine.rules.clear()
    assert caller.post(RUNTIME, {"provider": "docker"}).status == 201


def pieces(*messages):
    """As the engine wraps what a command says."""
    return b"".join(struct.pack(">BxxxI", 1, len(message)) + message for message in messages)


@pytest.mark.parametrize("data", [
    b"\x07\0\0\0\0\0\0\1x",
    struct.pack(">BxxxI", 1, 0xFFFFFFFF) + b"\xff" * (1 << 20),
    struct.pack(">BxxxI", 2, 0xFFFFFFFF) + b"x" * (1 << 22),
    pieces(b"\0" * 64),
    pieces(b"\xff" * 64),
    pieces(struct.pack("<IHHQ", 0, 1, 0, 0)),
    pieces(struct.pack("<IHHQ", 1 << 31, 3, 0, 1)) + pieces(b"x" * 65536) * 40,
    pieces(struct.pack("<IHHQ", 8, 2, 0, 77) + b"12345678"),
], ids=["head", "endless", "errors", "zeros", "ones", "empty", "length", "early"])
def test_streams_that_are_wrong(engine, service, caller, data):
    def stream(connection):
        connection.sendall(data)
        time.sleep(1)
    former = service.processes()
    engine.stream = stream
    answer = caller.post(RUNTIME, {"provider": "docker"}, timeout=60 * PATIENCE)
    native = caller.create_runtime()
    assert caller.shell(native, "echo here").text == "here\n"
    if answer.status == 201:
        caller.delete(f"{RUNTIME}/{answer.json['sandbox_uuid']}", timeout=60 * PATIENCE)
        wait_until(lambda: not engine.containers, 20, "nothing of it is left")
    assert service.processes()[PROVIDER] == former[PROVIDER]
    assert service.processes()["sandboxd-api"] == former["sandboxd-api"]


def test_a_list_may_be_long_and_have_what_is_not_ours(engine, service, caller):
    """What has our label and no row is removed, by the name that only ours have; nothing else is touched."""
    ours, foreign = "0f6a2c1e-5b7d-4c8a-9e3f-1a2b3c4d5e6f", "1f6a2c1e-5b7d-4c8a-9e3f-1a2b3c4d5e6f"
    name = f"sandboxd-{service.instance}-{ours}"
    engine.containers = {name: {"sandboxd.instance": service.instance, "sandboxd.sandbox": ours}, "foreign": {}}
    engine.others = [{"Labels": {"sandboxd.instance": "other", "sandboxd.sandbox": foreign}, "State": "running"},
                     {"Labels": {"sandboxd.sandbox": "../../x"}, "State": "exited"}, {"Labels": 7}, [], None]
    engine.others += [{"Labels": None, "State": "running", "Mounts": ["x" * 1500]}] * 6000
    service.deaths_expected = True
    former = service.processes()
    os.kill(former["sandboxd-api"][0], signal.SIGKILL)
    wait_until(lambda: name not in engine.containers, 20, "the one without a row is removed")
    wait_until(lambda: service.readiness() == 200, 20, "ready again")
    assert "foreign" in engine.containers
    removed = {path.split("?")[0] for method, path in engine.asked if method == "DELETE"}
    assert all(path.startswith(f"/containers/sandboxd-{service.instance}-") for path in removed), removed
    assert service.processes()[PROVIDER] == former[PROVIDER]


def processor_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def test_a_frozen_engine_stops_nobody_else(engine, service, caller):
    late = 60 * SLOW
    engine.slow("POST", "/containers/", late)
    engine.slow("DELETE", "/containers/", late)
    thread, answers = begin_create(caller)
    begin = time.monotonic()
    wait_until(lambda: created(engine))
    for _ in range(3):
        assert caller.shell(caller.create_runtime(), "echo here").text == "here\n"
    assert time.monotonic() - begin < late, "they did not wait for the engine"
    pid = service.processes()[PROVIDER][0]
    before = processor_seconds(pid)
    thread.join(late)
    assert time.monotonic() - begin < late
    assert processor_seconds(pid) - before < 1 * SLOW
    assert answers[0].status == 503, answers
    engine.rules.clear()
    wait_until(lambda: not engine.containers, 2 * late, "nothing of it is left")


def hold(connection):
    while connection.recv(65536):
        pass


def test_a_start_asks_for_a_few_streams_at_once(engine, service, caller):
    """Each is a process that the engine makes; all are found again."""
    service.deaths_expected = True
    lock = threading.Lock()
    seen = {"now": 0, "most": 0, "all": set()}

    def act(connection, path):
        body = engine.bodies[-1]
        with lock:
            seen["now"] += 1
            seen["most"] = max(seen["most"], seen["now"])
        time.sleep(0.3)
        with lock:
            seen["now"] -= 1
            seen["all"].add(path)
        return engine.answer(connection, "POST", path, body)

    engine.stream = hold
    for one in [caller] * 15 + [service.client("bea")] * 15:
        assert one.post(RUNTIME, {"provider": "docker"}, timeout=60).status == 201
    engine.rules.append(("POST", "/exec", lambda connection, path: act(connection, path)
                         if path.endswith("/exec") else engine.answer(connection, "POST", path)))
    former = service.worker_pid("sandboxd-api")
    os.kill(former, signal.SIGKILL)
    wait_until(lambda: len(seen["all"]) == 30, 60, "all are asked for")
    assert seen["most"] <= 4, seen
    wait_until(lambda: service.readiness() == 200, 20, "ready again")
    assert len(engine.containers) == 30


def test_a_start_beside_an_engine_that_stands_still(engine, service, caller):
    """What needs no engine is served; what does is refused until that has said what lives, and then found without another
    start, the container that it was. One that was deleted meanwhile is removed, and one that a restore had left half filled."""
    service.deaths_expected = True
    engine.stream = hold
    kept, deleted, half = (caller.post(RUNTIME, {"provider": "docker"}, timeout=60).json["sandbox_uuid"] for _ in range(3))
    assert service.sql("UPDATE dagster_sandbox_sessions SET restoring = 1 WHERE id = ? RETURNING 1", half)
    made = list(engine.made)
    native = caller.create_runtime()
    caller.shell(native, "echo kept > file")
    goes_on = threading.Event()

    def stand_still(connection, path):
        goes_on.wait(100)
        return engine.answer(connection, "GET", path)
    engine.rules.append(("GET", "/containers/json", stand_still))
    former = service.worker_pid("sandboxd-api")
    os.kill(former, signal.SIGKILL)
    now = wait_until(lambda: [pid for pid in service.processes().get("sandboxd-api", []) if pid != former], 20, "another one")
    wait_until(service.ready, 20, "it serves")
    assert caller.shell(native, "cat file").text == "kept\n"
    answer = caller.post(f"{RUNTIME}/{kept}/commands", {"cmd": "true"})
    assert (answer.status, answer.json["code"]) == (503, "provider_unavailable"), answer
    assert caller.delete(f"{RUNTIME}/{deleted}", timeout=60).status == 200
    goes_on.set()
    wait_until(lambda: service.readiness() == 200, 40, "the engine has said what lives")
    wait_until(lambda: len(engine.containers) == 1, 40, "the others are removed")
    assert kept in list(engine.containers)[0]
    assert caller.get(f"{RUNTIME}/{half}").status == 200
    assert caller.get(f"{RUNTIME}/{kept}").json["status"] == "open"
    wait_until(lambda: len([path for _, path in engine.asked if path.endswith("/exec")]) >= 4, 20, "the other has another stream")
    assert engine.made == made, "and is the container that it was"
    assert service.processes()["sandboxd-api"] == now
