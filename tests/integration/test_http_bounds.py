"""Clients that mean no good: framing, floods, slow senders and readers, ends at every moment."""
import contextlib
import os
import re
import resource
import signal
import time

import pytest

from harness import CONFIG, PATIENCE, RUNTIME, SESSIONS, Daemon, connected, status_of, stopped_shim, wait_until

IDENTITY = "X-Sandbox-User: alice\r\nX-Sandbox-Scopes: data:read data:write\r\n"
OTHER = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture(autouse=True)
def same_worker(daemon):
    """The worker of before answers at the end, and nothing of the clients is left in it."""
    worker = daemon.worker_pid("sandboxd-api")
    yield
    assert daemon.client("alice").get("/healthz").status == 200
    assert daemon.worker_pid("sandboxd-api") == worker
    wait_until(lambda: metric(daemon, "http_connections") <= 1 and metric(daemon, "http_streams") == 0, 10,
               "connections and streams are over")


def metric(daemon, name):
    for line in daemon.client().get("/metrics").body.decode().splitlines():
        if line.startswith(f"sandboxd_{name} "):
            return int(line.split()[1])
    raise AssertionError(f"no metric {name}")


def connect(path, data=b""):
    sock = connected(path, 10 * PATIENCE)
    sock.sendall(data)
    return sock


def request(method, path, headers="", body="", identity=IDENTITY):
    return (f"{method} {path} HTTP/1.1\r\nHost: x\r\n{identity}{headers}\r\n{body}").encode()


def identity_of(user):
    return IDENTITY.replace("alice", user)


def statuses(answer):
    """Of each answer in a stream of them; bodies here never hold a status line."""
    return [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]]


@pytest.mark.parametrize("method,path", [
    ("GET", SESSIONS), ("DELETE", f"{SESSIONS}/x"), ("POST", SESSIONS), ("PUT", SESSIONS),
    ("HEAD", SESSIONS), ("GET", "/nothing"), ("POST", "/nothing"), ("BREW", SESSIONS),
])
@pytest.mark.parametrize("identity", [IDENTITY, ""])
@pytest.mark.parametrize("headers", [
    f"Content-Length: {4 << 20}\r\n",
    "Content-Length: 36\r\nTransfer-Encoding: chunked\r\n",
    "Transfer-Encoding: chunked\r\nContent-Length: 36\r\n",
    "Content-Length: 36\r\nContent-Length: 0\r\n",
    "Transfer-Encoding: nonsense\r\n",
    "Transfer-Encoding: chunked, identity\r\n",
    "Transfer-Encoding: identity, chunked\r\n",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    "Transfer-Encoding : chunked\r\n",
    "Content-Length : 36\r\n",
    "Content-Length: +36\r\n",
    "Content-Length: 3 6\r\n",
    "Host: y\r\nContent-Length: 36\r\n",
    " Content-Length: 36\r\n",
])
def test_nothing_behind_a_refused_body_is_a_request(alice, method, path, identity, headers):
    """Whatever the head says of its body, what follows is never taken for requests of their own."""
    answer = alice.raw(request(method, path, headers, OTHER * 3, identity), timeout=0.2, answered=False)
    # The library sends the head of some of its own refusals twice, then closes.
    assert len(set(statuses(answer))) <= 1 and b'"ok"' not in answer, answer
    assert all(status >= 400 for status in statuses(answer)), answer
    assert b"Connection: close" in answer or not answer, answer


def test_pipelined_requests_are_answered_in_order(alice, session):
    body = '{"ttl_minutes": 0}'
    data = b"".join([
        request("GET", f"{SESSIONS}/{session}", "X-Sandbox-Workspace: blue\r\n"),
        request("POST", SESSIONS, f"Content-Length: {len(body)}\r\n", body),
        request("GET", f"{SESSIONS}/nonsense"),
        request("POST", SESSIONS, "Transfer-Encoding: chunked\r\n",
                f"{len(body):x}\r\n{body}\r\n0\r\n\r\n"),
        request("PUT", SESSIONS),
        request("GET", "/healthz", "Connection: close\r\n"),
    ])
    assert statuses(alice.raw(data)) == [200, 422, 404, 422, 405, 200]


def test_client_that_shut_its_sending_side_gets_its_answer(alice, session):
    for path, extra in ((SESSIONS, ""), (f"{SESSIONS}/{session}", "X-Sandbox-Workspace: blue\r\n")):
        answer = alice.raw(request("GET", path, extra), close_write=True)
        assert statuses(answer) == [200], answer
    body = '{"argv":["/bin/sh","-c","sleep 0.5; echo late"]}'
    answer = alice.raw(request("POST", f"{RUNTIME}/{session}/commands",
                               f"X-Sandbox-Workspace: blue\r\nContent-Length: {len(body)}\r\n",
                               body), close_write=True)
    assert statuses(answer) == [200] and b'"exit"' in answer, answer


def usable(caller, session):
    """Commands whose clients left are being ended; until then there may be no room for one more."""
    answer = caller.post(f"{RUNTIME}/{session}/commands", {"argv": ["/bin/echo", "x"]})
    assert answer.status in (200, 429), answer
    return answer.status == 200 and b'"exit"' in answer.body


def test_client_that_leaves_at_every_byte(alice, session):
    body = '{"argv":["/bin/echo","x"]}'
    data = request("POST", f"{RUNTIME}/{session}/commands",
                   f"X-Sandbox-Workspace: blue\r\nContent-Length: {len(body)}\r\n", body)
    for end in range(0, len(data) + 1, 3):
        connect(alice.path, data[:end]).close()
    for _ in range(30):
        sock = connect(alice.path, data)
        sock.recv(20)
        sock.close()
    wait_until(lambda: usable(alice, session), 10, "usable")


def test_clients_that_leave_while_they_wait(alice, session):
    """Create, load, execute, stream and delete, and after a while nobody there for the answer."""
    blue = "X-Sandbox-Workspace: blue\r\n"
    alice.write(session, "one", "type: a.B\n")
    task = alice.execute(session)
    for delay_ms in (0, 0.2, 0.5, 1, 2, 5, 10):
        made = alice.create()
        for method, path in (("POST", f"{SESSIONS}/{session}/load"),
                             ("POST", f"{SESSIONS}/{session}/execute"),
                             ("GET", f"/dagster/sandbox/tasks/{task}/stream"),
                             ("GET", f"/dagster/sandbox/tasks/{session}"),
                             ("POST", SESSIONS),
                             ("DELETE", f"{SESSIONS}/{made}")):
            sock = connect(alice.path, request(method, path, blue))
            time.sleep(delay_ms / 1000)
            sock.close()
    wait_until(lambda: usable(alice, session), 10, "usable")

    # Which of them the service read before the end is not known, nor when the last session that it
    # makes for nobody is there; whatever it made can be removed.
    def only_ours():
        others = {summary["id"] for summary in alice.get(SESSIONS).json} - {session}
        for other in others:
            assert alice.remove(other).status in (200, 404)
        return not others

    wait_until(only_ours, 20, "all removed")
    assert alice.get(f"{SESSIONS}/{session}").status == 200


def test_flood_of_headers_is_refused(alice):
    many = "".join(f"X-{i}: y\r\n" for i in range(20000))
    for headers in (many, f"X-Long: {'y' * 200000}\r\n"):
        answer = alice.raw(request("GET", SESSIONS, headers), timeout=5, answered=False)
        assert all(status >= 400 for status in statuses(answer)), answer[:100]
    long_path = alice.raw(request("GET", "/" + "x" * 100000), timeout=5, answered=False)
    assert all(status >= 400 for status in statuses(long_path)), long_path[:100]


def test_flood_of_connections_is_told_so(alice):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    held = []
    try:
        for _ in range(1024):
            held.append(connect(alice.path))
        answer = alice.get(SESSIONS)
        assert answer.status == 503 and answer.headers["Retry-After"], answer
        assert answer.json == {"detail": "too many connections"}
        held.pop().close()
        wait_until(lambda: alice.get(SESSIONS).status == 200, 5, "room again")
    finally:
        for sock in held:
            sock.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def many_descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow
@pytest.mark.parametrize("begun", [
    b"", b"GET /dagster/sandbox/sessions HTTP/1.1\r\nX-Slow: ",
    request("POST", SESSIONS, "Content-Length: 100\r\n", "{"),
], ids=["nothing", "half a head", "half a body"])
def test_slow_senders_make_room_for_others(daemon, alice, begun):
    """More of them than there may be connections never keep others away for long."""
    held = []
    bob = daemon.client("bob", scopes="data:read")
    with many_descriptors():
        try:
            for _ in range(1100):
                held.append(connect(alice.path, begun))
            wait_until(lambda: bob.get(SESSIONS).status == 200, 40, "others are served again")
            # And from now on each new connection takes the place of an old one.
            for _ in range(20):
                held.append(connect(alice.path, begun))
                assert bob.get(SESSIONS).status == 200
        finally:
            for sock in held:
                sock.close()


def test_streams_are_counted_apart_and_bounded(daemon, alice, session):
    """1 024 readers, and the service still takes requests; one reader more is told so."""
    alice.write(session, "one", "type: a.B\n")
    held = []
    with many_descriptors(), stopped_shim(daemon, alice, session):
        task = alice.execute(session)

        def stream(user, in_frames=False):
            headers = ("Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                       "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n") if in_frames else ""
            sock = connect(alice.path, request("GET", f"/chat/stream/{task}", f"X-Sandbox-Workspace: blue\r\n{headers}",
                                               identity=identity_of(user)))
            held.append(sock)
            return statuses(sock.recv(1000))

        try:
            for number in range(1024):
                assert stream(f"u{number % 16}", number % 2) == [(200, 101)[number % 2]]
            for in_frames in (False, True):
                assert stream("v", in_frames) == [429]
            assert alice.get(SESSIONS).status == 200
            held.pop(0).close()
            held.pop(0).close()
            wait_until(lambda: metric(daemon, "http_streams") == 1022, 10, "two have left")
            assert stream("v", True) == [101]
        finally:
            for sock in held:
                sock.close()
    wait_until(lambda: metric(daemon, "http_streams") == 0, 20, "all have left")


@pytest.mark.parametrize("target,status", [
    (f"http://sandboxd{SESSIONS}", 200), (f"HTTPS://other:1{SESSIONS}?limit=1", 200),
    ("http://sandboxd", 404), ("http://sandboxd/", 404), (f"ftp://sandboxd{SESSIONS}", 404),
    (f"http:{SESSIONS}", 404), (f"//sandboxd{SESSIONS}", 404),
])
def test_target_in_absolute_form(alice, target, status):
    answer = alice.raw(request("GET", target, "Connection: close\r\n"))
    assert statuses(answer) == [status], answer


def test_bodies_in_flight_are_bounded_in_all(alice):
    """As much as the service holds for all requests together, and then a refusal."""
    size = 2 * 1024 * 1024 - 8
    held = []
    refused = 0
    try:
        for number in range(150):
            head = request("POST", f"{SESSIONS}/x/components", f"Content-Length: {size}\r\n",
                           identity=identity_of(f"u{number % 16}"))
            sock = connect(alice.path)
            held.append(sock)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                sock.sendall(head + b"x" * (size - 1))
            sock.setblocking(False)
        waiting = list(held)

        def hear():
            """Of those that are refused; the others wait for the last byte."""
            nonlocal refused
            for sock in list(waiting):
                answer = b""
                try:
                    answer = sock.recv(1000)
                except BlockingIOError:
                    continue
                except ConnectionResetError:
                    pass
                waiting.remove(sock)
                refused += statuses(answer) == [503]
            return refused

        wait_until(lambda: hear() >= 15, 20, "those beyond are refused")
        time.sleep(0.5)
        hear()
        assert 15 <= refused <= 30, refused
        assert alice.get("/healthz").status == 200
    finally:
        for sock in held:
            sock.close()
    wait_until(lambda: alice.request("POST", SESSIONS, raw_body=b" " * 100000 + b"1").status == 422,
               5, "room again")


def opened(path, data, held, limit=1100):
    """How many such requests are taken in, and the first other status."""
    for number in range(limit):
        sock = connect(path, data)
        held.append(sock)
        status = statuses(sock.recv(1000))
        if status != [200]:
            return number, status[0]
    return limit, None


def test_one_user_keeps_nobody_from_streams(daemon, alice, session):
    events = f"{RUNTIME}/{session}/events"
    scopes = "X-Sandbox-User: {}\r\nX-Sandbox-Workspace: blue\r\nX-Sandbox-Scopes: sandbox:read\r\n"
    held = []
    with many_descriptors():
        try:
            assert opened(alice.path, request("GET", events, identity=scopes.format("mallory")), held) == (512, 429)
            assert opened(alice.path, request("GET", events, identity=scopes.format("bob")), held) == (128, 429)
            assert opened(alice.path, request("GET", events, identity=scopes.format("carol")), held) == (128, 429)
            assert opened(alice.path, request("GET", events, identity=scopes.format("mallory")), held) == (0, 429)
            assert daemon.client("alice").get("/healthz").status == 200
        finally:
            for sock in held:
                sock.close()


def test_one_user_keeps_nobody_from_asking(alice, session):
    """Requests that wait, as many as there may be."""
    command = alice.post(f"{RUNTIME}/{session}/commands", {"argv": ["sleep", "600"], "background": True})
    assert command.status == 201, command
    wait = f"{RUNTIME}/{session}/commands/{command.json['command_id']}/wait?timeout_ms=100000"
    scopes = "X-Sandbox-User: {}\r\nX-Sandbox-Workspace: blue\r\nX-Sandbox-Scopes: sandbox:read data:read data:write\r\n"
    held = []

    def ask(user):
        return alice.raw(request("GET", SESSIONS, "Connection: close\r\n", identity=scopes.format(user)))

    with many_descriptors():
        try:
            for _ in range(500):
                held.append(connect(alice.path, request("GET", wait, identity=scopes.format("mallory"))))
            while statuses(answer := ask("mallory")) == [200] and len(held) < 600:
                held.append(connect(alice.path, request("GET", wait, identity=scopes.format("mallory"))))
            assert statuses(answer) == [503] and b"too many requests of this user at once" in answer, answer
            assert statuses(ask("bob")) == statuses(ask("alice")) == [200]
            for _ in range(20):
                held.pop().close()
            wait_until(lambda: statuses(ask("mallory")) == [200], 20, "room again")
        finally:
            for sock in held:
                sock.close()
    alice.post(f"{RUNTIME}/{session}/commands/{command.json['command_id']}/signal", {"signal": "KILL"})


@pytest.fixture(name="crowded")
def fixture_crowded():
    started = Daemon(config=f"{CONFIG}[limits]\nmemory = 1024GiB\n[owner]\nsessions = 100\nmemory = 1024GiB\n")
    yield started
    started.done()


def test_one_user_keeps_nobody_waiting(crowded):
    """Who asks for much at once is served in turn with the others: 60 long answers, and one of somebody else's."""
    mallory = crowded.client("mallory", scopes="sandbox:read sandbox:write")
    for _ in range(30):
        mallory.create_runtime(metadata={f"{key}{'k' * 60}": "v" * 256 for key in range(16)})
    scopes = "X-Sandbox-User: {}\r\nX-Sandbox-Scopes: sandbox:read\r\n"
    worker = crowded.worker_pid("sandboxd-api")
    held = []
    try:
        for _ in range(61):
            held.append(connect(mallory.path, request("GET", f"{RUNTIME}?limit=1", identity=scopes.format("nobody"))))
            assert statuses(held[-1].recv(10000)) == [200]
        wait_until(lambda: crowded.log.read_text().count("user=nobody ") >= 61, 30, "what was before is logged")
        before = len(crowded.log.read_bytes())
        os.kill(worker, signal.SIGSTOP)
        try:
            wait_until(lambda: status_of(worker)["State"].startswith("T"), 10, "it stands still")
            for sock in held:
                user = "bob" if sock is held[-1] else "mallory"
                sock.sendall(request("GET", f"{RUNTIME}?limit=500", identity=scopes.format(user)))
        finally:
            os.kill(worker, signal.SIGCONT)
        for sock in held:
            assert sock.recv(1000).startswith(b"HTTP/1.1 200")
            sock.close()  # the rest of it is not needed

        def order():
            text = crowded.log.read_bytes()[before:].decode()
            users = re.findall(r"user=(mallory|bob) ", text)
            return users if len(users) >= 61 else None
        users = wait_until(order, 30, "all are logged")
        assert users.index("bob") < 30, users
    finally:
        for sock in held:
            sock.close()


@pytest.mark.slow
def test_clients_slower_than_patience_are_cut(alice, daemon):
    """A byte every few seconds keeps no connection: heads and bodies have an end."""
    slow = {
        "head": connect(alice.path, b"GET / HTTP/1.1\r\nX: "),
        "body": connect(alice.path, request("POST", SESSIONS, "Content-Length: 100\r\n", "{")),
        "refused": connect(alice.path, request("POST", SESSIONS, "Content-Length: 100\r\n", "{",
                                               identity="")),
    }
    start = time.monotonic()
    while slow and time.monotonic() - start < 320:
        for name, sock in list(slow.items()):
            try:
                sock.sendall(b" ")
            except (BrokenPipeError, ConnectionResetError):
                assert time.monotonic() - start > 60, name
                sock.close()
                del slow[name]
        if set(slow) <= {"refused"} and time.monotonic() - start < 90:
            slow.pop("refused").close()  # it has longer than a test
        if time.monotonic() - start > 90:
            break
        time.sleep(2)
    assert not slow, slow
    wait_until(lambda: metric(daemon, "http_connections") == 1, 10, "nobody else is there")
