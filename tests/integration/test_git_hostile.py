"""A git server that means no good: whatever it says, the call ends, and the credential goes to nobody else."""
import base64
import socket
import ssl
import threading

import pytest

from egress_rig import WORLD
from git_rig import make_authority
from harness import PATIENCE, RUNTIME, SLOW, wait_until
from world_rig import fixture_daemon, fixture_world  # noqa: F401  pylint: disable=unused-import

TOKEN = "ghs_planted0123456789TOKEN"
BASIC = base64.b64encode(f"x-access-token:{TOKEN}".encode()).decode()
URL = "https://git.example.com/r.git"
TYPE = b"Content-Type: application/x-git-upload-pack-advertisement\r\n"
GOOD = b"001e# service=git-upload-pack\n0000000eversion 2\n0000"


class Server:
    """TLS, then what `say` makes of a connection; the first bytes of each are in `seen`."""

    def __init__(self, listener, pem):
        self.say = None
        self.seen = []
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(pem)
        listener.listen(64)
        listener.settimeout(None)
        self.listener = listener
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.talk, args=(sock,), daemon=True).start()

    def talk(self, sock):
        try:
            sock.settimeout(60 * PATIENCE)
            with self.context.wrap_socket(sock, server_side=True) as tls:
                self.seen.append(tls.recv(65536))
                for piece in self.say(self.seen[-1]):
                    tls.sendall(piece)
        except (OSError, ssl.SSLError):
            pass

    def stop(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


@pytest.fixture(name="servers", scope="module")
def fixture_servers(world, tmp_path_factory):
    ca, pem = make_authority(tmp_path_factory.mktemp("authority"), "git.example.com", "evil.example.com")
    world.names["git.example.com"] = [f"{WORLD}.2"]
    world.names["evil.example.com"] = [f"{WORLD}.3"]
    good, evil = Server(world.listen(f"{WORLD}.2", 443), pem), Server(world.listen(f"{WORLD}.3", 443), pem)
    other_port = Server(world.listen(f"{WORLD}.2", 444), pem)
    plain = Server(world.listen(f"{WORLD}.2", 80), pem)
    yield ca, good, (evil, other_port, plain)
    for server in (good, evil, other_port, plain):
        server.stop()


@pytest.fixture(name="clone")
def fixture_clone(alice, servers):
    made = alice.create_runtime(egress={"allow": ["git.example.com:80,443,444", "evil.example.com"]})
    worker = {}

    def call(say, **more):
        servers[1].say = say
        servers[1].seen.clear()
        for other in servers[2]:
            other.seen.clear()
            other.say = lambda request: [ok(TYPE, GOOD)]
        answer = alice.post(f"{RUNTIME}/{made}/git/clone", {
            "path": "w", "url": URL, "ca_certificates": servers[0], "timeout_ms": 20000,
            "credentials": {"username": "x-access-token", "password": TOKEN}, **more}, timeout=120 * PATIENCE)
        worker["answer"] = answer
        assert TOKEN.encode() not in answer.body and BASIC.encode() not in answer.body, answer
        return answer
    yield call
    # Nothing of git is left, and the session goes on.
    wait_until(lambda: "git" not in alice.run(made, "sh", "-c", "cat /proc/[0-9]*/comm").text, 20, "no git is left")
    assert alice.delete(f"{RUNTIME}/{made}").status == 200


def ok(headers, body):
    return b"HTTP/1.1 200 OK\r\n" + headers + b"Content-Length: %d\r\n\r\n" % len(body) + body


def endless(head, piece):
    def say(_request):
        yield head
        while True:
            yield piece
    return say


def redirect(place):
    return lambda request: [b"HTTP/1.1 302 Found\r\nLocation: " + place + b"\r\nContent-Length: 0\r\n\r\n"]


CHUNK = b"10000\r\n" + b"x" * 65536 + b"\r\n"
ADVERTISED = "/r.git/info/refs?service=git-upload-pack"


@pytest.mark.parametrize("say", [
    endless(b"HTTP/1.1 200 OK\r\n" + TYPE + b"Transfer-Encoding: chunked\r\n\r\n", CHUNK),
    endless(b"HTTP/1.1 200 OK\r\n" + TYPE + b"Content-Length: 99999999999999\r\n\r\n", b"0004" * 16384),
    endless(b"HTTP/1.1 200 OK\r\n", b"X-A: " + b"a" * 60000 + b"\r\n"),
    endless(b"", b"HTTP/1.1 100 Continue\r\nX: y\r\n\r\n" * 100),
    endless(b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n", CHUNK),
    endless(b"", b"\0" * 65536),
    lambda request: [b"HTTP/1.1 200 OK\r\n" + TYPE + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff1\r\n" + GOOD],
    lambda request: [b"HTTP/1.1 200 OK\r\n" + TYPE + b"Content-Encoding: gzip\r\nContent-Length: 9\r\n\r\nnot a zip"],
    lambda request: [b"HTTP/9.9 999 \xff\r\n\r\n"],
    lambda request: [ok(b"Content-Type: text/html\r\n", b"<html>" + request)],
    lambda request: [ok(TYPE, b"001e# service=git-receive-pack\n0000")],
    lambda request: [ok(TYPE, b"fff4" + b"x" * 100)],
    lambda request: [ok(TYPE, b"")],
    lambda request: [b"HTTP/1.1 200 OK\r\n" + TYPE + b"Content-Length: 500\r\n\r\n" + GOOD],
    lambda request: [b"HTTP/1.1 401 No\r\nWWW-Authenticate: Negotiate\r\nWWW-Authenticate: Digest realm=\"" + b"x" * 9000 + b"\"\r\n\r\n"],
    lambda request: [],
], ids=["endless chunks", "endless body", "endless header", "endless interim answers", "endless error", "endless zeros",
        "chunk size wraps", "encoded", "no HTTP", "echo", "other service", "short line", "empty", "cut", "other schemes",
        "closed"])
def test_every_answer_has_an_end(clone, servers, say):
    answer = clone(say)
    assert answer.status >= 400 and answer.json["code"] in (
        "git_failed", "git_unreachable", "git_auth", "timeout"), answer
    assert all(BASIC.encode() in request for request in servers[1].seen), "the control: it has the credential"


def test_an_answer_behind_the_advertisement_has_an_end(clone):
    """The server is one of git's until it is asked for objects."""
    result = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-git-upload-pack-result\r\nTransfer-Encoding: chunked\r\n\r\n"

    def say(request):
        if request.startswith(b"GET"):
            yield ok(TYPE + b"Connection: close\r\n", GOOD.replace(b"0000000e", b"0000000e"))
            return
        yield result
        while True:
            yield CHUNK
    answer = clone(say)
    assert answer.status >= 400 and answer.json["code"] in ("git_failed", "timeout"), answer


@pytest.mark.parametrize("place", [
    b"https://evil.example.com" + ADVERTISED.encode(),
    b"//evil.example.com" + ADVERTISED.encode(),
    b"https://git.example.com@evil.example.com" + ADVERTISED.encode(),
    b"https://git.example.com:443@evil.example.com" + ADVERTISED.encode(),
    b"https://git.example.com:x@evil.example.com/" + ADVERTISED.encode(),
    b"https://git.example.com\\@evil.example.com" + ADVERTISED.encode(),
    b"https://git.example.com%2f@evil.example.com" + ADVERTISED.encode(),
    b"https://git.example.com.evil.example.com" + ADVERTISED.encode(),
    b"https://git.example.com:444" + ADVERTISED.encode(),
    b"http://git.example.com" + ADVERTISED.encode(),
    b"HTTP://git.example.com" + ADVERTISED.encode(),
    b"https:evil.example.com" + ADVERTISED.encode(),
    b"https:///evil.example.com" + ADVERTISED.encode(),
    b"https://git.example.com\t.evil.example.com" + ADVERTISED.encode(),
    b"https://evil.example.com#https://git.example.com" + ADVERTISED.encode(),
    b"file:///etc/passwd?service=git-upload-pack",
    b"ftp://git.example.com" + ADVERTISED.encode(),
])
def test_no_redirect_leads_elsewhere(clone, servers, place):
    answer = clone(redirect(place), timeout_ms=60000 * SLOW)
    assert answer.status >= 400 and answer.json["code"] in ("denied", "git_failed", "git_unreachable"), answer
    for other in servers[2]:
        assert not other.seen, (place, other.seen)
    assert servers[1].seen
