"""Which of a name's addresses are tried and when, and names that lead to production."""
import contextlib
import os
import resource
import socket
import struct
import subprocess
import time
from pathlib import Path

import pytest

from egress_rig import PRODUCTION, WORLD, rule
from test_egress_relay import fixture_worker, fixture_world, refused  # noqa: F401 (fixtures)
from harness import PATIENCE, wait_until

NAME = "many.example.com"
NOBODY = "02:00:00:00:00:01"


@contextlib.contextmanager
def black_holes(*addresses):
    """Packets to them leave this host and reach nobody, and nothing answers that."""
    for address in addresses:
        subprocess.run(["ip", "neigh", "replace", address, "lladdr", NOBODY, "nud", "permanent", "dev", "out0"],
                       check=True)
    try:
        yield
    finally:
        for address in addresses:
            subprocess.run(["ip", "neigh", "del", address, "dev", "out0"], check=False)


def add_address(world, address):
    assert world.namespace.run("ip", "addr", "add", f"{address}/24", "dev", "in0").returncode == 0


def sockets_of(worker):
    done = subprocess.run(["ss", "-Htnp", "state", "syn-sent"], capture_output=True, text=True, check=True)
    return sum(f"pid={worker.process.pid}," in line for line in done.stdout.splitlines())


def test_addresses_that_say_nothing_delay_only_by_the_stagger(world, worker):
    dead = [f"{WORLD}.{n}" for n in range(71, 78)]
    server = world.listen(f"{WORLD}.2", 7301)
    world.names[NAME] = [*dead, f"{WORLD}.2"]
    session = worker.session(7301)
    session.policy(rule(NAME, 7301))
    with black_holes(*dead):
        for tries_left in (2, 1, 0):
            began = time.monotonic()
            client = session.connect(session.resolve(NAME), 7301)
            peer = server.accept()[0]
            # Seven times a quarter of a second; one after the other it would be seven seconds, each time.
            if time.monotonic() - began < 6:
                break
            assert tries_left, "it took too long each time"
            client.close()
            peer.close()
        client.sendall(b"ping")
        assert peer.recv(4) == b"ping"
        peer.sendall(b"pong")
        assert client.recv(4) == b"pong"
        wait_until(lambda: sockets_of(worker) == 0, 10, "the others are closed")
    client.close()
    peer.close()
    server.close()


def test_one_that_answers_late_is_taken_though_others_were_tried_since(world, worker):
    late, dead = f"{WORLD}.81", f"{WORLD}.82"
    add_address(world, late)
    server = world.listen(late, 7302)
    world.names["late.example.com"] = [late, dead]
    session = worker.session(7302)
    session.policy(rule("late.example.com", 7302), connect_timeout_ms=60000)
    with black_holes(late, dead):
        client = session.connect(session.resolve("late.example.com"), 7302)
        wait_until(lambda: sockets_of(worker) == 2, 10, "both are tried")
        subprocess.run(["ip", "neigh", "del", late, "dev", "out0"], check=True)
        peer = server.accept()[0]
        peer.sendall(b"hello")
        assert client.recv(5) == b"hello"
        wait_until(lambda: sockets_of(worker) == 0, 10, "the other one is closed")
    client.close()
    peer.close()


def test_when_nobody_answers_the_whole_takes_the_time_of_one(world, worker):
    dead = [f"{WORLD}.{n}" for n in range(71, 78)]
    world.names["dead.example.com"] = dead
    session = worker.session(7303)
    session.policy(rule("dead.example.com", 7303), connect_timeout_ms=3000)
    with black_holes(*dead):
        began = time.monotonic()
        assert refused(session, session.resolve("dead.example.com"), 7303)
        assert 2.5 < time.monotonic() - began < 15, "one after the other it would be 21 seconds"
        assert worker.expect_denial(reason="connect")["name"] == "dead.example.com"
        wait_until(lambda: sockets_of(worker) == 0, 10, "all are closed")


class Aliases:
    """A name server that answers with the whole chain: name, its alias, that one's alias, the address."""

    def __init__(self, world, chains):
        self.chains = chains
        self.world = world
        self.answer_one, world.answer_one = world.answer_one, self.answer

    def answer(self, packet, peer):
        at, labels = 12, []
        while packet[at]:
            labels.append(packet[at + 1:at + 1 + packet[at]].decode())
            at += packet[at] + 1
        name, kind = ".".join(labels).lower(), packet[at + 2]
        if name not in self.chains:
            self.answer_one(packet, peer)
            return
        *names, address = [name, *self.chains[name]]
        records = b""
        for owner, target in zip(names, names[1:]):
            data = encoded(target)
            records += encoded(owner) + struct.pack(">HHIH", 5, 1, 1, len(data)) + data
        n = len(names) - 1
        if kind == 1:
            records += encoded(names[-1]) + struct.pack(">HHIH", 1, 1, 1, 4) + socket.inet_aton(address)
            n += 1
        head = packet[:2] + struct.pack(">BBHHHH", 0x81, 0x80, 1, n, 0, 0)
        self.world.name_server.sendto(head + packet[12:at + 5] + records, peer)

    def close(self):
        self.world.answer_one = self.answer_one


def encoded(name):
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"


@pytest.fixture(name="aliases")
def fixture_aliases(world):
    aliases = Aliases(world, {
        "a.sandbox.example": ["GMS.prod.example", f"{WORLD}.2"],
        "b.sandbox.example": ["edge.example", "x.lake.prod.example", "lb.example", f"{WORLD}.2"],
        "c.sandbox.example": ["edge.example", "lb.example", f"{WORLD}.2"],
        "long.sandbox.example": [*(f"{'x' * 60}.{n:02}.{'y' * 60}.{'z' * 60}.example" for n in range(12)),
                                 f"{WORLD}.2"],
    })
    yield aliases
    aliases.close()


def test_a_name_that_is_an_alias_of_production_is_refused(world, worker, aliases):
    assert aliases
    server = world.listen(f"{WORLD}.2", 7304)
    session = worker.session(7304)
    rules = [rule("gms.prod.example", 7304, flags=PRODUCTION, label="endpoint:datahub_gms_url"),
             rule("*.lake.prod.example", 7304, flags=PRODUCTION, label="endpoint:iceberg_rest_uri")]
    allowed = [rule("*.sandbox.example", 7304)]
    session.policy(*rules, *allowed)
    for name, label in (("a", "endpoint:datahub_gms_url"), ("b", "endpoint:iceberg_rest_uri")):
        address = session.resolve(f"{name}.sandbox.example")
        for _ in range(2):  # asked, and from the cache
            assert refused(session, address, 7304)
        # Of two of one name the second may be told as well, where it is ten seconds later.
        assert worker.expect_denial(reason="production", name=f"{name}.sandbox.example")["label"] == label
    server.settimeout(0.5)
    with pytest.raises(TimeoutError):
        server.accept()
    # The control: an alias of something else is reached, and so is the first one where nothing is production.
    server.settimeout(10 * PATIENCE)
    with session.connect(session.resolve("c.sandbox.example"), 7304) as client, server.accept()[0] as peer:
        peer.sendall(b"x")
        assert client.recv(1) == b"x"
    session.policy(*allowed)
    client = session.connect(session.resolve("a.sandbox.example"), 7304)
    with server.accept()[0] as peer:
        peer.sendall(b"x")
        assert client.recv(1) == b"x"
        # And one that exists ends when its alias becomes production.
        session.policy(*rules, *allowed)
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    client.close()


def test_a_chain_that_is_too_long_to_look_at_leads_nowhere(worker, aliases):
    assert aliases
    session = worker.session(7305)
    session.policy(rule("*.sandbox.example", 7305))
    assert refused(session, session.resolve("long.sandbox.example"), 7305)
    assert worker.expect_denial(reason="resolve")["name"] == "long.sandbox.example"


@pytest.fixture(name="nonlocal_bind")
def fixture_nonlocal_bind():
    """Every address can be bound on this host then, so that this says nothing of whose it is."""
    paths = [Path(f"/proc/sys/net/{family}/ip_nonlocal_bind") for family in ("ipv4", "ipv6")]
    for path in paths:
        path.write_text("1")
    yield
    for path in paths:
        path.write_text("0")


def test_own_addresses_are_known_where_every_address_can_be_bound(world, worker, nonlocal_bind):
    _ = nonlocal_bind
    own = [f"{WORLD}.1", f"{WORLD}.9"]
    servers = [socket.create_server((address, 7306)) for address in own]
    far = world.listen(f"{WORLD}.2", 7306)
    world.names["own.example.com"] = own
    session = worker.session(7306)
    session.policy(rule("own.example.com", 7306), *(rule(address, 7306) for address in [*own, f"{WORLD}.2"]))
    for address in (session.resolve("own.example.com"), *own):
        assert refused(session, address, 7306)
        assert worker.expect_denial(reason="loopback")
    for server in servers:
        server.settimeout(0.3)
        with pytest.raises(TimeoutError):
            server.accept()
        server.close()
    # The control.
    with session.connect(f"{WORLD}.2", 7306) as client, far.accept()[0] as peer:
        peer.sendall(b"x")
        assert client.recv(1) == b"x"


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_without_a_descriptor_connections_wait_and_nothing_spins(world, worker):
    server = world.listen(f"{WORLD}.2", 7307)
    session = worker.session(7307)
    session.policy(rule(f"{WORLD}.2", 7307))
    pid = worker.process.pid
    n_open = len(os.listdir(f"/proc/{pid}/fd"))
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (n_open, before[1]))
    try:
        clients = [session.connect(f"{WORLD}.2", 7307) for _ in range(3)]
        began = cpu_seconds(pid)
        time.sleep(3)
        assert cpu_seconds(pid) - began < 1
        server.settimeout(0.2)
        with pytest.raises(TimeoutError):
            server.accept()
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    server.settimeout(20 * PATIENCE)
    for client in clients:
        with client, server.accept()[0]:
            pass
