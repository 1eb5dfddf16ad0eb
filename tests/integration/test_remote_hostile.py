"""A service elsewhere that is hostile, or whoever sits on the way to it: what it says costs its own sandboxes alone. After
each answer the supervisor and the api worker are the same, sandboxd-provider is as small as before, a session of `native`
works, and nothing of the credential, a token or the URL was said."""
import collections
import contextlib
import json
import os
import struct
import threading
import time
import urllib.request
import uuid
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from conformance_rig import Sandbox, kill_provider
from harness import ASAN, CONFIG, RUNTIME, SLOW, Daemon, status_of, wait_until
from remote_standin import Service

PROVIDER = "sandboxd-provider"[:15]  # as the kernel keeps it
QUOTA = "/dagster/sandbox/quota"
MAX_ON_THE_WAY = 32  # requests whose answers end: remote_client.c
MEMORY_KIB = 400 * 1024  # of 1.5 GiB that all workers share
STEPS = {"token": "POST .*/token$", "create": "PUT ", "state": "GET .*/sandboxd-[^/]*$", "stream": "POST .*/stream$"}
DEEP, HUGE, WIDE = b"[" * 60000, b'{"state":"' + b"x" * (3 << 20) + b'"}', b'{"sandboxes":[' + b"{}," * 300000 + b"{}]}"


def answer(body, status="200 OK", head=b""):
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n%s\r\n%s" % (status.encode(), len(body), head, body)


def said(value):
    return answer(json.dumps(value).encode())


ANSWERS = {
    "nothing": b"",
    "garbage": bytes(range(256)) * 64,
    "no_head": b'{"state":"running","token":"a","expires_in":9}',
    "half_a_head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "half_a_body": b'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"state":"runn',
    "two_lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 20\r\n\r\n{}",
    "bad_chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFFF\r\n{}",
    "long_line": b"HTTP/1.1 200 OK\r\nX: " + b"x" * (4 << 20) + b"\r\n\r\n",
    "many_lines": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 500000 + b"\r\n",
    "many_heads": b"HTTP/1.1 100 Continue\r\n\r\n" * 20000,
    "other_protocol": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n" + b"x" * 9000,
    "packed": answer(b"\x1f\x8b\x08" + b"\0" * 999, head=b"Content-Encoding: gzip\r\n"),
    "no_json": answer(b'\xff\xfe{"state'),
    "no_object": answer(b"[]"),
    "other_types": said({"state": {}, "token": ["a"], "expires_in": "9", "sandboxes": {}, "next": 7, "cpu_us": []}),
    "with_nul": said({"state": "running\0", "token": "a\0b", "expires_in": 9}),
    "token_is_a_head": said({"state": "\r\n", "token": "a\r\nX-Y: z", "expires_in": 9}),
    "negative": said({"state": "", "token": "a", "expires_in": -1}),
    "deep": answer(DEEP), "huge": answer(HUGE), "wide": answer(WIDE),
}


@pytest.fixture(name="service", scope="module")
def fixture_service():
    service = Service()
    yield service
    service.done()


@pytest.fixture(name="daemon", scope="module")
def fixture_daemon(service):
    daemon = Daemon(CONFIG + "[api]\nprovider = native\n" + service.config())
    daemon.deaths_expected = True  # a worker that is told nothing ends, and is started again
    wait_until(lambda: daemon.readiness() == 200, 40, "the provider is up")
    yield daemon
    daemon.done()


@pytest.fixture(name="native", scope="module")
def fixture_native(daemon):
    caller = daemon.client("ana")
    yield Sandbox(caller, caller.create_runtime())


def provider_of(daemon):
    return wait_until(lambda: daemon.processes().get(PROVIDER), 60, "the provider runs")[0]


def descriptors(daemon):
    """How many of each kind the provider has; None while it is started again."""
    with contextlib.suppress(OSError):
        found = collections.Counter()
        folder = f"/proc/{provider_of(daemon)}/fd"
        for name in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError):  # it was closed since
                found[os.readlink(f"{folder}/{name}").split(":")[0]] += 1
        return found
    return None


def gets_small(daemon):
    """But for connections that it may keep for the next requests, as many as there may be at once, it has few."""
    seen = []

    def is_small():
        seen.append(descriptors(daemon))
        return seen[-1] and seen[-1].total() < MAX_ON_THE_WAY + 32

    try:
        wait_until(is_small, 60, "its descriptors are few")
    except AssertionError:
        print("descriptors of the provider, first and last:", seen[0], seen[-1])
        raise


def holds(daemon, service, native):
    """What has to be so whatever was said."""
    assert native.text("echo here") == "here\n"
    with contextlib.suppress(OSError, KeyError):  # it may have ended, and the next one is small
        pid = provider_of(daemon)
        if not ASAN:
            assert int(status_of(pid)["VmHWM"].split()[0]) < MEMORY_KIB
    log = daemon.log.read_text()
    for secret in (service.credential, *service.tokens, service.url(), f"127.0.0.1:{service.port}"):
        assert secret not in log


@pytest.fixture(autouse=True)
def fixture_holds(daemon, service, native):
    service.calm()
    wait_until(lambda: daemon.readiness() == 200, 60, "the provider is up")
    pids = daemon.supervisor_pid(), daemon.worker_pid("sandboxd-api")
    yield
    service.calm()
    holds(daemon, service, native)
    assert (daemon.supervisor_pid(), daemon.worker_pid("sandboxd-api")) == pids
    wait_until(lambda: daemon.readiness() == 200, 60, "the provider is up")
    wait_until(lambda: service.engine.containers() == {} and service.under_way == {}, 60 * SLOW, "no sandbox is left")
    gets_small(daemon)


@pytest.fixture(name="sandbox")
def fixture_sandbox(daemon, service):
    caller = daemon.client("ana")
    made = Sandbox(caller, caller.create_runtime(provider="remote"))
    yield made
    service.calm()
    wait_until(lambda: daemon.readiness() == 200, 60, "the provider is up")
    assert made.delete().status in (200, 404)


def created(daemon, service):
    """Made, and deleted again; or refused by a typed error that says nothing. True once the fault was met: as slow as the
    host is, one may fail before."""
    caller = daemon.client("ana")
    got = caller.post(RUNTIME, {"provider": "remote"}, timeout=90 * SLOW)
    assert got.status == 201 or (got.status, got.json["code"]) == (503, "provider_unavailable"), got
    for secret in (service.credential, *service.tokens, f"127.0.0.1:{service.port}"):
        assert secret not in json.dumps(got.json)
    if got.status == 201:
        wait_until(lambda: Sandbox(caller, got.json["sandbox_uuid"]).delete().status in (200, 404), 60, "it is deleted")
    return service.raw[0][2] == 0


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("step", STEPS)
def test_an_answer_of_any_kind(daemon, service, step, name):
    service.raw = [[STEPS[step], lambda handler: handler.wfile.write(ANSWERS[name]), 1]]
    if step == "token":
        service.expire()
    wait_until(lambda: created(daemon, service), 60, "the fault was met")


# --- credentials


class Elsewhere(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def any(self):
        self.server.seen.append(self.headers["Authorization"])
        self.wfile.write(said({"state": "running", "token": "other", "expires_in": 300, "sandboxes": []}))
        self.close_connection = True

    do_GET = do_PUT = do_POST = do_DELETE = any

    def log_message(self, *_):
        pass


@pytest.fixture(name="elsewhere")
def fixture_elsewhere():
    server = HTTPServer(("127.0.0.1", 0), Elsewhere)
    server.seen = []
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("status", ["301 X", "302 X", "303 X", "307 X", "308 X"])
def test_a_redirection_is_not_followed(daemon, service, elsewhere, status):
    place = b"Location: http://127.0.0.1:%d/v1/token\r\n" % elsewhere.server_address[1]
    service.raw = [["GET .*/control$", lambda handler: handler.wfile.write(answer(b"", "302 X", place)), 1]]
    asked = urllib.request.Request(service.url() + "/control", headers={"Authorization": "Bearer control"})
    with urllib.request.urlopen(asked, timeout=30 * SLOW) as got:
        assert got.status == 200
    assert elsewhere.seen == ["Bearer control"], "control: who follows gives it away"
    for step, pattern in STEPS.items():
        service.raw = [[pattern, lambda handler: handler.wfile.write(answer(b"", status, place)), 1]]
        if step == "token":
            service.expire()
        wait_until(lambda: created(daemon, service), 60, "the fault was met")
    assert elsewhere.seen == ["Bearer control"]


# --- lists


def listed(*ids, state="running", **more):
    return said({"sandboxes": [{"id": name, "state": state} for name in ids], **more})


@pytest.mark.parametrize("state", ["running", "ended"])
def test_a_list_of_very_many(daemon, service, native, state):
    """Too many for anybody to have: none of them; and the worker asks again."""
    n_ends = daemon.log.read_text().count("provider ends")
    service.raw = [["GET .*/sandboxes[?]", lambda handler: handler.wfile.write(
        listed(*[str(uuid.uuid4()) for _ in range(1500)], state=state, next=uuid.uuid4().hex)), 1 << 30]]
    kill_provider(daemon)
    wait_until(lambda: daemon.log.read_text().count("provider ends") > n_ends, 120, "it gives up")
    assert native.text("echo meanwhile") == "meanwhile\n"


@pytest.mark.parametrize("state", ["running", "ended"])
def test_a_list_of_many_that_are_not_there(daemon, service, native, state):
    """Each is ended, as many at once as there may be connections; then these are few again."""
    names = [str(uuid.uuid4()) for _ in range(1500)]
    lock, enough = threading.Lock(), threading.Event()
    held, most, asked = set(), [0], set()

    def delete(handler):
        with lock:
            held.add(handler)
            asked.add(handler.path[-36:])
            most[0] = max(most[0], len(held))
        enough.wait()
        with lock:
            held.discard(handler)
        handler.wfile.write(answer(b"", "404 X"))

    service.raw = [["DELETE ", delete, 1 << 30],
                   ["GET .*/sandboxes[?]", lambda handler: handler.wfile.write(listed(*names, state=state)), 1]]
    kill_provider(daemon)
    try:
        wait_until(lambda: len(held) >= MAX_ON_THE_WAY, 60, "they are asked for at once")
        time.sleep(2)  # in which others would come
    finally:
        enough.set()
    wait_until(lambda: asked >= set(names), 60, "each was asked for")
    assert MAX_ON_THE_WAY <= most[0] < 4 * MAX_ON_THE_WAY  # some were given up here, where this is slow
    assert native.text("echo meanwhile") == "meanwhile\n"


# --- streams


def header(size, kind, number):
    return struct.pack("<IIQ", size, kind, number)


HELLO, DATA, ACK = 1, 2, 3
STREAMS = {
    "ends": b"",
    "garbage": os.urandom(1 << 20),
    "too_long": header(0xFFFFFFFF, DATA, 1) + b"x" * 70000,
    "too_long_hello": header(1 << 20, HELLO, 0) + b"x" * 70000,
    "no_hello": header(4, DATA, 1) + b"abcd",
    "hello_of_another": header(8, HELLO, 0) + struct.pack("<Q", 4711) + header(16, DATA, 1) + b"\0" * 16,
    "ack_of_nothing": header(0, ACK, 1 << 60),
    "half": header(8, HELLO, 0)[:7],
}


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_that_says_anything(service, sandbox, name):
    """It is replaced, and no byte of what it says is taken."""
    sandbox.put("file", b"kept")

    def speak(handler):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        if STREAMS[name]:
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(STREAMS[name]), STREAMS[name]))

    service.raw = [[STEPS["stream"], speak, 3]]
    service.cut_all()
    wait_until(lambda: service.raw[0][2] == 0, 60, "the fault was met")
    assert sandbox.bytes("file") == b"kept"
    assert sandbox.text("echo here") == "here\n"


# --- what is used


def test_what_it_says_is_used_is_not_believed(daemon, service, native, sandbox):
    """One lie would use up the day of its tenant, its organisation and the host, and with it all of native."""
    n_met = []

    def lie(handler):
        n_met.append(handler.path)
        handler.wfile.write(said({"cpu_us": (1 << 62) if len(n_met) % 2 else 0, "memory_bytes": 1 << 62,
                                  "memory_peak_bytes": 1 << 62, "processes": 1 << 62}))

    service.raw = [[".*/usage$", lie, 1 << 30]]
    wait_until(lambda: len(n_met) >= 3, 120, "the fault was met")
    assert sandbox.get("/stats").status == 200
    assert sandbox.caller.get(QUOTA).json["owner"]["cpu_seconds_today"]["used"] < 24 * 3600
    other = native.caller.create_runtime(provider="native")
    assert Sandbox(native.caller, other).delete().status == 200
