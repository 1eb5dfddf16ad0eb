"""A session over its bytes a second is slowed to about that, on every way that bytes take, and nobody else is."""
import contextlib
import socket
import threading
import time

import pytest

from egress_rig import PATHS, WORLD, rule
from test_egress_relay import fixture_worker, fixture_world, refused  # noqa: F401 (fixtures)
from harness import PATIENCE

RATE = 200_000
SPAN = 4  # seconds
NAME = "cap.example.com"


def send_for(sock, stop, chunk=b"x" * 16384):
    with contextlib.suppress(OSError):
        while not stop.is_set():
            sock.sendall(chunk)


def received(sock, until):
    n = 0
    sock.settimeout(0.2)
    while time.monotonic() < until:
        with contextlib.suppress(TimeoutError):
            n += len(sock.recv(1 << 20))
    return n


def carried(sender, receiver, span=SPAN, least=0):
    """Bytes that arrive in so many seconds, or until there are so many, while the sender sends without a pause; the
    seconds that it was."""
    stop = threading.Event()
    thread = threading.Thread(target=send_for, args=(sender, stop), daemon=True)
    thread.start()
    began = time.monotonic()
    n = received(receiver, began + span)
    while n < least and time.monotonic() < began + span * PATIENCE:  # all of the machine may have stood still
        n += received(receiver, time.monotonic() + 0.2)
    span = time.monotonic() - began
    stop.set()
    for each in (sender, receiver):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
    thread.join()
    return n, span


def at_least(span=SPAN):
    """What is not only slowed, but goes on."""
    return RATE * span * 0.4


def is_about(n, span):
    """The first second's burst, what the sockets hold, and the rate from then on."""
    return at_least() <= n < RATE * (span + 3)


def post(client):
    client.sendall(f"POST /sandbox/x HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 1000000000\r\n\r\n".encode())


def chunked(client):
    client.sendall(f"POST /sandbox/x HTTP/1.1\r\nHost: {NAME}\r\nTransfer-Encoding: chunked\r\n\r\n3b9aca00\r\n".encode())


WAYS = {
    "splice": (7201, 0, None),
    "http": (80, 0, post),
    "chunked": (80, 0, chunked),
    "paths": (7202, PATHS, post),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("direction", ["out", "in"])
def test_a_session_over_its_rate_is_slowed_to_it_and_another_is_not(world, worker, way, direction):
    port, flags, begin = WAYS[way]
    server = world.listen(f"{WORLD}.2", port)
    world.names[NAME] = [f"{WORLD}.2"]
    paths = [("", "/sandbox")] if flags & PATHS else ()
    sessions = [worker.session(port) for _ in range(2)]
    allowed = rule(NAME, port, flags=flags, paths=paths)
    assert sessions[0].policy(allowed, max_bytes_per_s=RATE) == 0
    assert sessions[1].policy(allowed) == 0
    pairs = []
    for session in sessions:
        client = session.connect(session.resolve(NAME), port)
        peer = server.accept()[0]
        if begin:
            begin(client)
            peer.settimeout(10 * PATIENCE)
            assert b"\r\n\r\n" in peer.recv(65536)
        pairs.append((client, peer) if direction == "out" else (peer, client))
    slow, fast = [], []
    threads = [threading.Thread(target=lambda got=got, pair=pair: got.extend(carried(*pair, least=at_least())))
               for got, pair in ((slow, pairs[0]), (fast, pairs[1]))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    server.close()
    assert is_about(*slow), (slow, fast)
    assert fast[0] / fast[1] > 3 * slow[0] / slow[1], (slow, fast)


def test_bytes_that_are_copied_are_bound_too(world, worker):
    server = world.listen(f"{WORLD}.2", 7203)
    session = worker.session(7203)
    allowed = rule(f"{WORLD}.2", 7203)
    session.policy(allowed)
    held = []
    # All of a session's pipes are held full, so what comes now is copied.
    for _ in range(32):
        held.append(session.connect(f"{WORLD}.2", 7203))
        held.append(server.accept()[0])
        held[-1].setblocking(False)
    for _ in range(5):
        for peer in held[1::2]:
            with contextlib.suppress(BlockingIOError):
                while True:
                    peer.send(b"z" * 65536)
        time.sleep(0.2)
    client = session.connect(f"{WORLD}.2", 7203)
    peer = server.accept()[0]
    assert session.policy(allowed, max_bytes_per_s=RATE) == 0
    assert is_about(*carried(client, peer, least=at_least()))
    for each in held:
        each.close()


def test_connections_of_a_session_share_its_rate(world, worker):
    server = world.listen(f"{WORLD}.2", 7204)
    session = worker.session(7204)
    session.policy(rule(f"{WORLD}.2", 7204), max_bytes_per_s=RATE)
    pairs = []
    for _ in range(4):
        client = session.connect(f"{WORLD}.2", 7204)
        pairs.append((server.accept()[0], client))
    got = [None] * len(pairs)
    threads = [threading.Thread(target=lambda i=i: got.__setitem__(i, carried(*pairs[i], 8, at_least(8) / len(pairs))))
               for i in range(len(pairs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bytes_, spans = zip(*got)
    assert is_about(sum(bytes_), max(spans)), got
    assert min(bytes_) > sum(bytes_) / len(bytes_) / 8, got


def test_a_rate_that_is_taken_away_lets_waiting_connections_go_on(world, worker):
    server = world.listen(f"{WORLD}.2", 7205)
    session = worker.session(7205)
    session.policy(rule(f"{WORLD}.2", 7205), max_bytes_per_s=1000)
    with session.connect(f"{WORLD}.2", 7205) as client, server.accept()[0] as peer:
        stop = threading.Event()
        thread = threading.Thread(target=send_for, args=(client, stop), daemon=True)
        thread.start()
        assert received(peer, time.monotonic() + 2) < 20000
        session.policy(rule(f"{WORLD}.2", 7205))
        n, end = 0, time.monotonic() + 5 * PATIENCE
        while n < 1000000:  # at the former rate a quarter of an hour's
            assert time.monotonic() < end, n
            n += received(peer, time.monotonic() + 0.5)
        stop.set()
        peer.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_connections_over_the_cap_are_reset_and_recorded(world, worker):
    server = world.listen(f"{WORLD}.2", 7206)
    session = worker.session(7206)
    session.policy(rule(f"{WORLD}.2", 7206), max_connections=3)
    held = [session.connect(f"{WORLD}.2", 7206) for _ in range(3)]
    for _ in held:
        server.accept()
    assert refused(session, f"{WORLD}.2", 7206)
    assert worker.expect_denial(reason="limit")["port"] == 7206
    held.pop().close()
    for each in held:
        each.close()
