"""What one session does to the relay costs the others nothing, and what it could outwit."""
import contextlib
import os
import socket
import subprocess
import threading
import time

import egress_rig as rig
from egress_rig import WORLD, rule
from harness import PATIENCE, wait_until
from test_egress_relay import fixture_worker, fixture_world, refused  # noqa: F401 (fixtures)


def fill(peer):
    """Until neither we nor the worker nor the client have room for more."""
    peer.setblocking(False)
    try:
        while True:
            peer.send(b"z" * 65536)
    except BlockingIOError:
        pass


def pipes_of(worker):
    folder = f"/proc/{worker.process.pid}/fd"
    n = 0
    for fd in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):
            n += os.readlink(f"{folder}/{fd}").startswith("pipe:")
    return n


def test_slow_readers_of_many_sessions_hold_up_nobody_else(world, worker):
    server = world.listen(f"{WORLD}.2", 7100)
    sessions = [worker.session(7100) for _ in range(6)]
    opened, peers = [], []
    for session in sessions:
        session.policy(rule(f"{WORLD}.2", 7100))
    # All of the worker's pipes are held full.
    for session in sessions[:-1]:
        for _ in range(32):
            opened.append(session.connect(f"{WORLD}.2", 7100))
            peers.append(server.accept()[0])
    def all_are_held():
        for peer in peers:
            fill(peer)
        time.sleep(0.2)
        return pipes_of(worker) >= 2 * rig.PIPES_MAX

    wait_until(all_are_held, 20, "all pipes are held")
    with sessions[-1].connect(f"{WORLD}.2", 7100) as client, server.accept()[0] as peer:
        payload = bytes(range(256)) * 4000
        threading.Thread(target=client.sendall, args=(payload,)).start()
        peer.settimeout(20 * PATIENCE)
        got = b""
        while len(got) < len(payload):
            got += peer.recv(65536)
        assert got == payload
        peer.sendall(b"pong")
        peer.shutdown(socket.SHUT_WR)
        assert client.recv(4) == b"pong" and client.recv(4) == b""
    for each in opened + peers:
        each.close()


def test_tiny_chunks_of_one_session_hold_up_nobody_else(world, worker):
    sink = world.listen(f"{WORLD}.2", 80)
    echo = world.listen(f"{WORLD}.2", 7101)
    world.names["web.example.com"] = [f"{WORLD}.2"]
    busy, other = worker.session(80), worker.session(7101)
    busy.policy(rule("web.example.com", 80))
    other.policy(rule(f"{WORLD}.2", 7101))
    address = busy.resolve("web.example.com")
    stop = threading.Event()
    threads, sockets = [], []

    def read(peer):
        try:
            while peer.recv(1 << 20):
                pass
        except OSError:
            pass

    def write(client):
        head = b"POST / HTTP/1.1\r\nHost: web.example.com\r\nTransfer-Encoding: chunked\r\n\r\n"
        try:
            client.sendall(head)
            while not stop.is_set():
                client.sendall(b"1\r\nx\r\n" * 20000)
        except OSError:
            pass

    with other.connect(f"{WORLD}.2", 7101) as client, echo.accept()[0] as peer:
        for _ in range(16):
            sockets.append(busy.connect(address, 80))
            threads.append(threading.Thread(target=write, args=(sockets[-1],)))
            threads[-1].start()
            sockets.append(sink.accept()[0])
            threads.append(threading.Thread(target=read, args=(sockets[-1],)))
            threads[-1].start()
        time.sleep(1)
        begin = time.monotonic()
        for _ in range(10):
            client.sendall(b"a")
            assert peer.recv(1) == b"a"
        took = time.monotonic() - begin
        stop.set()
        for each in sockets:
            each.shutdown(socket.SHUT_RDWR)
    for thread in threads:
        thread.join()
    for each in sockets:
        each.close()
    sink.close()
    assert took < 5 * PATIENCE, took


def test_a_connection_ends_when_its_address_becomes_production(world, worker):
    world.names["alias.example.com"] = [f"{WORLD}.3"]
    server = world.listen(f"{WORLD}.3", 7102)
    session = worker.session(7102)
    alias = rule("alias.example.com", 7102)
    session.policy(alias)
    with session.connect(session.resolve("alias.example.com"), 7102) as client:
        peer, _ = server.accept()
        peer.settimeout(10 * PATIENCE)
        with peer:
            client.sendall(b"a")
            assert peer.recv(1) == b"a"
            other = rule(f"{WORLD}.4", (1, 65535), flags=rig.PRODUCTION, label="endpoint:other")
            session.policy(alias, other)  # the control: of another address
            client.sendall(b"b")
            assert peer.recv(1) == b"b"
            session.policy(alias, rule(f"{WORLD}.3", (1, 65535), flags=rig.PRODUCTION,
                                       label="endpoint:x"))
            try:
                assert peer.recv(1) != b""
                raise AssertionError("it goes on")
            except ConnectionResetError:
                pass
    assert worker.expect_denial(reason="removed")["label"] == "endpoint:x"


def test_a_private_name_server_is_the_worker_s_alone(world, worker):
    """The kernel's second line lets port 53 of it through, wherever it is."""
    world.names["dns.example.com"] = [rig.PRIVATE_NAME_SERVER]
    server = world.listen(rig.PRIVATE_NAME_SERVER, 53)
    session = worker.session(53)
    session.policy(rule("dns.example.com", 53, flags=rig.ALLOW_PRIVATE))
    assert refused(session, session.resolve("dns.example.com"), 53)
    assert worker.expect_denial(channel=rig.TCP)["reason"] == "private"
    server.close()
    # The control: another port of the same host.
    server = world.listen(rig.PRIVATE_NAME_SERVER, 7103)
    session = worker.session(7103)
    session.policy(rule("dns.example.com", 7103, flags=rig.ALLOW_PRIVATE))
    with session.connect(session.resolve("dns.example.com"), 7103):
        server.accept()[0].close()


DIALS = f"""
import socket, time
end, refused = time.monotonic() + 3, 0
while time.monotonic() < end or refused < 160:
    try:
        with socket.create_connection(("{WORLD}.2", 7104), timeout=20) as s:
            s.recv(1)
    except ConnectionResetError:
        refused += 1
print(refused)
"""


def test_refusals_beyond_a_rate_wait_for_their_turn(world, worker):
    server = world.listen(f"{WORLD}.2", 7104)
    busy, other = worker.session(7104), worker.session(7104)
    busy.policy()
    other.policy(rule(f"{WORLD}.2", 7104))
    begin = time.monotonic()
    programs = [busy.namespace.start("python3", "-c", DIALS, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    for _ in range(20):
        with other.connect(f"{WORLD}.2", 7104), server.accept()[0]:
            pass
    refused_there = sum(int(program.communicate(timeout=60 * PATIENCE)[0]) for program in programs)
    took = time.monotonic() - begin
    # As many at once, and a second; each of them has had its reset, and is counted.
    assert 500 < refused_there <= 500 + 500 * took
    assert busy.counters()[-1]["denials"] == refused_there
    assert refused(busy, f"{WORLD}.2", 7104)
    busy.policy(rule(f"{WORLD}.2", 7104))
    with busy.connect(f"{WORLD}.2", 7104), server.accept()[0]:
        pass


def test_a_session_goes_while_its_sockets_rest(world, worker):
    server = world.listen(f"{WORLD}.2", 7106)
    busy, other = worker.session(7104), worker.session(7106)  # as DIALS does
    busy.policy()
    other.policy(rule(f"{WORLD}.2", 7106))
    programs = [busy.namespace.start("python3", "-c", DIALS, stdout=subprocess.DEVNULL) for _ in range(4)]
    wait_until(lambda: busy.counters()[-1]["denials"] > 500, 60, "it has used up what it may at once")
    for kind, fds in ((109, [busy.listener.fileno(), busy.resolver.fileno()]), (111, ())):
        worker.tell_supervisor(kind, busy.id, fds)
        time.sleep(0.2)  # their turn would have come
        with other.connect(f"{WORLD}.2", 7106), server.accept()[0]:
            pass
    for program in programs:
        program.kill()
        program.wait()


QUESTIONS = f"""
import socket
import subprocess
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(("{rig.RESOLVER}", 53))
s.settimeout(20)
question = bytes.fromhex("000101000001000000000000") + b"\\4name\\7example\\0\\0\\1\\0\\1"
for n in range(1500):
    s.send(question)
    if n >= 100:
        s.recv(512)
for n in range(100):
    s.recv(512)
"""


def test_questions_beyond_a_rate_wait_for_their_turn(world, worker):
    session = worker.session(7105)
    session.policy()
    begin = time.monotonic()
    done = session.run("python3", "-c", QUESTIONS)
    took = time.monotonic() - begin
    assert done.returncode == 0, done.stderr
    assert session.counters()[-1]["denials"] == 1500 <= 1000 + 500 * took
