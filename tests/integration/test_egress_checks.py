"""What the relay reads of a connection: the TLS server name, the HTTP Host, the path."""
import contextlib
import socket
import ssl
import subprocess
import threading
import time
from pathlib import Path

import pytest

import egress_rig as rig
from egress_rig import WORLD, rule
from test_egress_relay import fixture_worker, fixture_world  # noqa: F401 (fixtures)
from harness import PATIENCE, wait_until

CURL_SECONDS = str(15 * PATIENCE)


class Server:
    """Reads requests, whole heads and bodies of a given length, and answers each."""

    def __init__(self, world, address, port):
        self.listener = world.listen(address, port)
        self.listener.settimeout(None)
        self.heads = []
        self.bodies = b""
        self.accepts = 0
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                peer, _ = self.listener.accept()
            except OSError:
                return
            self.accepts += 1
            threading.Thread(target=self.serve, args=(peer,), daemon=True).start()

    @staticmethod
    def more(peer):
        part = peer.recv(65536)
        if not part:
            raise ConnectionResetError("in the middle of a body")
        return part

    def serve(self, peer):
        with contextlib.suppress(ConnectionResetError):
            self.answer_all(peer)

    def answer_all(self, peer):
        data = b""
        with peer:
            while True:
                while b"\r\n\r\n" not in data:
                    try:
                        part = peer.recv(65536)
                    except OSError:
                        return
                    if not part:
                        return
                    data += part
                head, _, data = data.partition(b"\r\n\r\n")
                self.heads.append(head.decode("latin-1"))
                if b"websocket" in head.lower():
                    peer.sendall(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
                    while part := peer.recv(65536):
                        peer.sendall(part)
                    return
                if b"chunked" in head.lower():
                    while b"0\r\n\r\n" not in data:
                        data += self.more(peer)
                    body, _, data = data.partition(b"0\r\n\r\n")
                    self.bodies += body
                for line in head.split(b"\r\n"):
                    if line.lower().startswith(b"content-length:"):
                        size = int(line.split(b":")[1])
                        while len(data) < size:
                            data += self.more(peer)
                        self.bodies += data[:size]
                        data = data[size:]
                peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


@pytest.fixture(name="web")
def fixture_web(world, worker):
    """A session whose port 80 reaches web.example.com, and nothing else."""
    world.names["web.example.com"] = [f"{WORLD}.2"]
    server = Server(world, f"{WORLD}.2", 80)
    session = worker.session(80)
    session.policy(rule("web.example.com", 80))
    session.server = server
    session.address = session.resolve("web.example.com")
    yield session
    server.listener.shutdown(socket.SHUT_RDWR)  # the thread lets go of it
    server.listener.close()


def ask(session, *requests, port=80, timeout=10 * PATIENCE):
    """All bytes of the answers."""
    got = b""
    with session.connect(session.address, port) as client:
        client.settimeout(timeout)
        for request in requests:
            client.sendall(request if isinstance(request, bytes) else request.encode())
        client.shutdown(socket.SHUT_WR)
        try:
            while part := client.recv(65536):
                got += part
        except ConnectionResetError:
            got += b"<reset>"
    return got.decode("latin-1")


def get(host, path="/", more=""):
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n"


def test_requests_with_the_dialled_host_arrive(web):
    answer = ask(web, get("web.example.com"), get("WEB.example.com:80", "/b?c=d"))
    assert answer.count("200 OK") == 2
    assert [head.split()[1] for head in web.server.heads] == ["/", "/b?c=d"]


def test_curl_and_a_large_body(web):
    done = web.run("curl", "-sS", "-m", CURL_SECONDS, "-d", "x" * 100000, "http://web.example.com/p")
    assert done.stdout == "ok", done.stderr
    assert web.server.bodies == b"x" * 100000
    done = web.run("curl", "-sS", "-m", CURL_SECONDS, "-H", "Transfer-Encoding: chunked", "-d",
                   "y" * 50000, "http://web.example.com/p")
    assert done.stdout == "ok", done.stderr
    assert web.server.bodies.count(b"y") == 50000
    done = web.run("curl", "-sS", "-m", CURL_SECONDS, "--http2", "http://web.example.com/h2")
    assert done.stdout == "ok", done.stderr  # stays with HTTP/1.1
    assert "upgrade:" not in web.server.heads[-1].lower().replace("http2-settings", "")


@pytest.mark.parametrize("first", [True, False])
def test_another_host_never_arrives(web, worker, first):
    before = [] if first else [get("web.example.com")]
    answer = ask(web, *before, get("other.example.com"))
    assert "421 Misdirected" in answer
    assert answer.count("200 OK") == len(before)
    assert not any("other" in head for head in web.server.heads)
    found = worker.expect_denial(channel=rig.HTTP, reason="host")
    assert (found["name"], found["port"]) == ("web.example.com", 80)


@pytest.mark.parametrize("request_", [
    "GET / HTTP/1.1\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: web.example.com\r\nHost: other.example.com\r\n\r\n",
    "GET / HTTP/1.1\r\nHost : web.example.com\r\n\r\n",
    "GET / HTTP/1.1\nHost: web.example.com\n\n",
    "GET http://other.example.com/ HTTP/1.1\r\nHost: web.example.com\r\n\r\n",
    "CONNECT other.example.com:443 HTTP/1.1\r\nHost: web.example.com\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: web.example.com\r\nContent-Length: 5\r\n"
    "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: web.example.com\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "POST / HTTP/1.1\r\nHost: web.example.com\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: web.example.com\r\n folded: x\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: web.example.com\0.other.com\r\n\r\n",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "\x16\x03\x01\x02\x00",
    "GET / HTTP/1.1\r\nHost: web.example.com\r\nX: " + "a" * 20000,
], ids=range(14))
def test_what_has_two_readings_is_refused(web, worker, request_):
    answer = ask(web, request_.encode("latin-1"))
    assert "400 Bad Request" in answer or "421" in answer, answer
    worker.expect_denial(channel=rig.HTTP)
    assert web.server.heads == []


def test_a_request_behind_a_chunked_body_is_checked(web, worker):
    smuggled = ("POST / HTTP/1.1\r\nHost: web.example.com\r\nTransfer-Encoding: chunked\r\n\r\n"
                "3\r\nabc\r\n0\r\n\r\n" + get("other.example.com", "/x"))
    assert "421" in ask(web, smuggled)
    assert len(web.server.heads) == 1
    worker.expect_denial(channel=rig.HTTP, reason="host")


def waits_of_the_inspector(worker):
    """How often it went to sleep: once for each question that comes alone."""
    pid = worker.process.pid
    inspector = wait_until(lambda: Path(f"/proc/{pid}/task/{pid}/children").read_text().split(), 10, "an inspector")[0]
    status = Path(f"/proc/{inspector}/status").read_text()
    return int(status.split("\nvoluntary_ctxt_switches:")[1].split()[0])


def test_a_head_that_is_said_again_is_not_read_again(web, worker):
    """One at a time, each head equal to the last; the framing of its body is remembered with it."""
    same = "POST /s HTTP/1.1\r\nHost: web.example.com\r\nContent-Length: 5\r\n\r\n"
    with web.connect(web.address, 80) as client:
        for n in range(100):
            client.sendall(f"{same}{n:05}".encode())
            assert client.recv(4096).endswith(b"ok")
            if n == 0:
                before = waits_of_the_inspector(worker)
        assert waits_of_the_inspector(worker) - before < 20
    assert len(web.server.heads) == 100 and web.server.bodies == b"".join(b"%05d" % n for n in range(100))


@pytest.mark.parametrize("other, what", [
    (get("other.example.com", "/s"), "421"),
    (get("web.example.com", "/s", "Host: other.example.com\r\n"), "400"),
    (get("web.example.com", "/s", "Content-Length: 0\r\nContent-Length: 1\r\n"), "400"),
], ids=["host", "two hosts", "two lengths"])
def test_a_head_that_differs_from_the_one_before_is_read(web, worker, other, what):
    same = get("web.example.com", "/s")
    answer = ask(web, same * 200, other)
    assert answer.count("200 OK") == 200 and what in answer.rpartition("200 OK")[2], answer[-400:]
    assert not any("other" in head for head in web.server.heads)
    worker.expect_denial(channel=rig.HTTP)


def test_a_websocket_is_passed_on_once_the_server_agrees(web):
    with web.connect(web.address, 80) as client:
        client.sendall(get("web.example.com", "/", "Connection: Upgrade\r\nUpgrade: websocket\r\n")
                       .encode())
        assert b"101" in client.recv(4096)
        client.sendall(b"\x00\x01frames")
        assert client.recv(4096) == b"\x00\x01frames"


def test_slow_heads_hold_up_nobody_else(web):
    slow = [web.connect(web.address, 80) for _ in range(50)]
    for client in slow:
        client.sendall(b"GET / HT")
    assert "200 OK" in ask(web, get("web.example.com"))
    for client in slow:
        client.close()


def test_the_check_can_be_switched_off(web):
    web.policy(rule("web.example.com", 80, flags=rig.NO_HOST))
    assert "200 OK" in ask(web, get("other.example.com"))


def test_paths_of_a_shared_host(world, worker):
    """The bucket `prod` is on the same server: nothing for it arrives, in no spelling."""
    world.names["s3.example.com"] = world.names["sandbox.s3.example.com"] = [f"{WORLD}.3"]
    server = Server(world, f"{WORLD}.3", 9000)
    session = worker.session(9000)
    session.policy(rule("s3.example.com", 9000, flags=rig.PATHS,
                        paths=[("", "/sandbox/"), ("sandbox.s3.example.com", "/")]))
    session.address = session.resolve("s3.example.com")
    host = "s3.example.com:9000"
    good = [get(host, "/sandbox/a%20b?x=1"), get("sandbox.s3.example.com:9000", "/key"),
            get(host, "http://s3.example.com:9000/sandbox/z")]
    assert ask(session, *good, port=9000).count("200 OK") == 3
    arrived = len(server.heads)
    bad = [get(host, path) for path in (
        "/prod/x", "/sandbox/../prod/x", "/sandbox/%2e%2e/prod/x", "/sandbox/%2E./prod",
        "/sandbox/..%2fprod", "/sandbox//../prod", "/%70rod/x", "/sandbox/..;/prod",
        "/sandbox/%252e%252e/prod", "//prod/x", "/sandboxes/x", "/", "/sandbox\\..\\prod",
        "http://s3.example.com:9000/prod/x", "*")]
    bad += [get("prod.s3.example.com:9000", "/x"), get("prod.s3.example.com", "/sandbox/x"),
            get(host, "/sandbox/x", "x-amz-copy-source: /prod/secret\r\n"),
            get(host, "/sandbox/x", "X-Original-URL: /prod\r\n")]
    for request in bad:
        answer = ask(session, request, port=9000)
        assert "403 Forbidden" in answer or "400 Bad" in answer, (request, answer)
        answer = ask(session, get(host, "/sandbox/ok"), request, port=9000)  # kept connection
        assert answer.count("200 OK") == 1, request
        arrived += 1
    assert len(server.heads) == arrived
    assert not any("prod" in head.lower() for head in server.heads)
    worker.expect_denial(channel=rig.HTTP, reason="path")


@pytest.fixture(name="tls", scope="module")
def fixture_tls(world, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                    "-keyout", folder / "key", "-out", folder / "cert",
                    "-subj", "/CN=web.example.com",
                    "-addext", "subjectAltName=DNS:web.example.com"],
                   check=True, capture_output=True)
    server = world.start("openssl", "s_server", "-accept", f"{WORLD}.4:443", "-www",
                         "-key", str(folder / "key"), "-cert", str(folder / "cert"),
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: ":443 " in world.namespace.run("ss", "-ltnH").stdout, 10, "the server listens")
    yield folder
    server.kill()


@pytest.fixture(name="secure")
def fixture_secure(world, worker, tls):
    world.names["web.example.com"] = [f"{WORLD}.4"]
    session = worker.session(443)
    session.policy(rule("web.example.com", 443))
    session.address = session.resolve("web.example.com")
    session.cert = tls / "cert"
    return session


def hello(name):
    """The bytes of a real ClientHello."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    wrapped = context.wrap_bio(incoming, outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        wrapped.do_handshake()
    return outgoing.read()


def server_answers(session, *parts):
    with session.connect(session.address, 443) as client:
        client.settimeout(10 * PATIENCE)
        try:
            for part in parts:
                client.sendall(part)
                if len(parts) > 1:
                    time.sleep(0.002)
            return client.recv(1) == b"\x16"
        except ConnectionError:
            return False


def test_https_by_curl(secure):
    done = secure.run("curl", "-sS", "-m", CURL_SECONDS, "--cacert", str(secure.cert),
                      "https://web.example.com/")
    assert "s_server" in done.stdout, done.stderr


def test_the_server_name_must_be_the_dialled_one_or_absent(secure, worker):
    assert server_answers(secure, hello("web.example.com"))
    assert server_answers(secure, hello(None))
    assert not server_answers(secure, hello("other.example.com"))
    found = worker.expect_denial(channel=rig.TLS, reason="sni")
    assert found["name"] == "web.example.com"
    secure.policy(rule("web.example.com", 443, flags=rig.NO_SNI))
    assert server_answers(secure, hello("other.example.com"))  # the control


def test_a_hello_in_pieces_is_read_whole(secure):
    good, bad = hello("web.example.com"), hello("other.example.com")
    pieces = [bytes([byte]) for byte in good]
    assert server_answers(secure, *pieces)
    assert not server_answers(secure, *[bytes([byte]) for byte in bad])

    def records(whole, size):
        body = whole[5:]
        return b"".join(whole[:3] + len(body[n:n + size]).to_bytes(2, "big") + body[n:n + size]
                        for n in range(0, len(body), size))

    assert server_answers(secure, records(good, 60))
    assert not server_answers(secure, records(bad, 60))
    assert not server_answers(secure, records(bad, 3))


@pytest.mark.parametrize("first", [b"SSH-2.0-x\r\n", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\0\0",
                                   b"\x15\x03\x01\0\x02\x01\0", b"\x16\x03\x01\0\x04\x02\0\0\0"])
def test_what_is_no_hello_does_not_pass(secure, worker, first):
    assert not server_answers(secure, first)
    worker.expect_denial(channel=rig.TLS, reason="protocol")
