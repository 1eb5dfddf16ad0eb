"""The egress worker's relay: what is allowed arrives, what is not is reset and told."""
import socket

import pytest

import egress_rig as rig
from egress_rig import WORLD, rule
from harness import PATIENCE, wait_until


@pytest.fixture(name="world", scope="module")
def fixture_world():
    world = rig.World()
    yield world
    world.close()


@pytest.fixture(name="worker")
def fixture_worker(world):
    world.names.clear()
    world.asked.clear()
    worker = rig.Worker(world)
    yield worker
    worker.close()


def is_reset(client):
    """A refusal is a reset: at the connect, or at the first use."""
    try:
        client.sendall(b"x")
        return client.recv(1) == b"" and False
    except (ConnectionResetError, BrokenPipeError):
        return True


def dial(session, address, port):
    try:
        return session.connect(address, port)
    except ConnectionError:
        return None


def refused(session, address, port):
    client = dial(session, address, port)
    if client is None:
        return True
    with client:
        return is_reset(client)


def test_a_name_is_resolved_and_bytes_go_both_ways(world, worker):
    world.names["api.example.com"] = [f"{WORLD}.2"]
    server = world.listen(f"{WORLD}.2", 7000)
    session = worker.session(7000)
    assert session.policy(rule("api.example.com", 7000)) == 0
    address = session.resolve("api.example.com")
    assert address.startswith(("198.18.", "198.19."))
    assert world.asked == []  # nothing is asked before it is dialled
    with session.connect(address, 7000) as client:
        peer, _ = server.accept()
        with peer:
            client.sendall(b"ping" * 100000)
            client.shutdown(socket.SHUT_WR)
            got = b""
            while part := peer.recv(65536):
                got += part
            assert got == b"ping" * 100000
            peer.sendall(b"pong")  # half of it is closed, the other goes on
            peer.shutdown(socket.SHUT_WR)
            assert client.recv(10) == b"pong"
            assert client.recv(10) == b""
    totals = session.counters()
    assert totals[-1]["bytes_out"] == 400000 and totals[-1]["bytes_in"] == 4
    assert totals[0]["connections"] == 1
    assert set(world.asked) == {"api.example.com"}


def test_names_that_are_not_allowed_are_refused_and_never_asked_for(world, worker):
    world.names["evil.example.org"] = [f"{WORLD}.2"]
    session = worker.session(7001)
    session.policy(rule("api.example.com", 7001))
    assert session.resolve("evil.example.org") is None
    assert worker.expect_denial(channel=rig.DNS)["name"] == "evil.example.org"
    assert world.asked == []


def test_an_address_that_no_rule_lists_is_reset(world, worker):
    server = world.listen(f"{WORLD}.2", 7002)
    server.settimeout(1)
    session = worker.session(7002)
    session.policy(rule("api.example.com", 7002))
    assert refused(session, f"{WORLD}.2", 7002)
    found = worker.expect_denial(channel=rig.TCP, reason="rule")
    assert (found["name"], found["port"]) == (f"{WORLD}.2", 7002)
    with pytest.raises(TimeoutError):
        server.accept()
    # The control: the same server, the same address, with a rule.
    session.policy(rule(f"{WORLD}.2", 7002))
    server.settimeout(10 * PATIENCE)
    with session.connect(f"{WORLD}.2", 7002):
        server.accept()[0].close()


def test_without_a_policy_nothing_is_allowed(world, worker):
    session = worker.session(7003)
    assert refused(session, f"{WORLD}.2", 7003)
    assert session.resolve("api.example.com") is None


def test_a_wrong_policy_leaves_nothing_allowed(world, worker):
    session = worker.session(7004)
    world.listen(f"{WORLD}.2", 7004)
    assert session.policy(rule(f"{WORLD}.2", 7004)) == 0
    assert session.policy(rule("Not.Canonical", 7004)) != 0
    assert refused(session, f"{WORLD}.2", 7004)


@pytest.mark.parametrize("address, reason", [
    ("10.9.0.2", "private"), ("127.0.0.1", "loopback"), ("169.254.169.254", "metadata"),
    ("169.254.7.7", "link_local"), ("0.0.0.0", "loopback"), ("224.0.0.1", "reserved"),
    ("::1", "loopback"), ("::ffff:93.184.10.2", "reserved"), ("64:ff9b::5db8:a02", "reserved"),
    ("fd00:ec2::254", "metadata"), ("93.184.10.1", "loopback"), ("93.184.10.9", "loopback"),
])
def test_a_name_that_leads_inward_is_refused(world, worker, address, reason):
    world.names["rebind.example.com"] = [address]
    session = worker.session(7005)
    session.policy(rule("rebind.example.com", 7005))
    assert refused(session, session.resolve("rebind.example.com"), 7005)
    assert worker.expect_denial(channel=rig.TCP, name="rebind.example.com")["reason"] == reason


def test_private_is_reached_where_the_rule_opts_in(world, worker):
    world.names["db.internal.example.com"] = ["10.9.0.2"]
    server = world.listen("10.9.0.2", 7006)
    session = worker.session(7006)
    session.policy(rule("db.internal.example.com", 7006, flags=rig.ALLOW_PRIVATE))
    with session.connect(session.resolve("db.internal.example.com"), 7006):
        server.accept()[0].close()


def test_the_address_that_was_checked_is_the_one_that_is_dialled(world, worker):
    """A name server that alternates: each connection is judged by its own answer (D6)."""
    answers = iter([[f"{WORLD}.2"], [f"{WORLD}.2"]] + [["10.9.0.2"]] * 100)
    world.names["rebind.example.com"] = lambda: next(answers)
    public = world.listen(f"{WORLD}.2", 7007)
    private = world.listen("10.9.0.2", 7007)
    private.settimeout(1)
    session = worker.session(7007)
    session.policy(rule("rebind.example.com", 7007))
    address = session.resolve("rebind.example.com")
    with session.connect(address, 7007):
        public.accept()[0].close()
    for _ in range(40):
        client = dial(session, address, 7007)
        if client:
            client.settimeout(0.1)
            try:
                client.recv(1)
            except OSError:
                pass
            client.close()
    with pytest.raises(TimeoutError):
        private.accept()


def test_production_is_refused_with_the_endpoints_name_or_goes_elsewhere(world, worker):
    world.names["gms.prod.example.com"] = [f"{WORLD}.3"]
    production = world.listen(f"{WORLD}.3", 7008)
    production.settimeout(1)
    override = world.listen(f"{WORLD}.2", 7009)
    session = worker.session(7008)
    guard = rule("gms.prod.example.com", (1, 65535), flags=rig.PRODUCTION,
                 label="endpoint:datahub_gms_url")
    session.policy(rule("*.prod.example.com", 7008), guard)
    address = session.resolve("gms.prod.example.com")
    assert refused(session, address, 7008)
    found = worker.expect_denial(reason="production")
    assert found["label"] == "endpoint:datahub_gms_url"
    # By another name, or by its address, it is the same host.
    by_address = rule(f"{WORLD}.3", (1, 65535), flags=rig.PRODUCTION, label="endpoint:x")
    world.names["alias.example.com"] = [f"{WORLD}.3"]
    session.policy(rule("alias.example.com", 7008), rule(f"{WORLD}.0/24", 7008), by_address)
    assert refused(session, session.resolve("alias.example.com"), 7008)
    assert worker.expect_denial(reason="production")["label"] == "endpoint:x"
    assert refused(session, f"{WORLD}.3", 7008)
    guard = rule("gms.prod.example.com", (1, 65535), flags=rig.PRODUCTION,
                 reroute=("", f"{WORLD}.2", 7009))
    session.policy(guard)
    with session.connect(address, 7008):
        override.accept()[0].close()
    with pytest.raises(TimeoutError):
        production.accept()


def test_a_connection_ends_with_its_rule(world, worker):
    server = world.listen(f"{WORLD}.2", 7010)
    session = worker.session(7010)
    kept = rule(f"{WORLD}.2", 7010)
    session.policy(kept)
    with session.connect(f"{WORLD}.2", 7010) as client:
        peer, _ = server.accept()
        client.sendall(b"a")
        assert peer.recv(1) == b"a"
        session.policy(rule("other.example.com", 7010), kept)  # goes on under the new one
        client.sendall(b"b")
        assert peer.recv(1) == b"b"
        session.policy(rule("other.example.com", 7010))
        with pytest.raises(ConnectionResetError):
            client.recv(1)
        with pytest.raises(ConnectionResetError):
            peer.recv(1)
        peer.close()
    assert worker.expect_denial(reason="removed")["port"] == 7010


def test_after_a_restart_the_same_address_is_the_same_name(world, worker):
    world.names["api.example.com"] = [f"{WORLD}.2"]
    server = world.listen(f"{WORLD}.2", 7011)
    session = worker.session(7011)
    rules = [rule(f"n{n}.example.com", 7011) for n in range(50)] + [rule("api.example.com", 7011)]
    session.policy(*rules)
    address = session.resolve("api.example.com")
    worker.stop()
    worker.start()
    session.hand_over()
    assert refused(session, address, 7011)  # no policy yet
    session.policy(*rules)
    with session.connect(address, 7011):
        server.accept()[0].close()


def test_connections_are_bounded_and_come_back(world, worker):
    server = world.listen(f"{WORLD}.2", 7012)
    session = worker.session(7012)
    session.policy(rule(f"{WORLD}.2", 7012), max_connections=3)
    clients = [session.connect(f"{WORLD}.2", 7012) for _ in range(3)]
    peers = [server.accept()[0] for _ in range(3)]
    assert refused(session, f"{WORLD}.2", 7012)
    worker.expect_denial(reason="limit")
    for opened in clients[:1] + peers[:1]:
        opened.close()
    wait_until(lambda: session.counters()[-1]["open"] < 3, 10, "one is over")
    with session.connect(f"{WORLD}.2", 7012):
        server.accept()[0].close()
    for opened in clients[1:] + peers[1:]:
        opened.close()


def test_labels_below_a_wildcard_are_bounded(world, worker):
    session = worker.session(7013)
    session.policy(rule("*.example.com", 7013))
    assert session.resolve("bucket-7.example.com") is not None
    assert session.resolve("x" * 60 + ".example.com") is None
    worker.expect_denial(channel=rig.DNS, reason="labels")
    answered = [session.resolve(f"{n:040x}.example.com") for n in range(60)]
    assert None in answered[20:]
    worker.expect_denial(channel=rig.DNS, reason="limit")
    assert world.asked == []


def test_denials_of_a_flood_are_counted_not_told(world, worker):
    session = worker.session(7014)
    session.policy()
    # Ten a second are told, after forty at once: where the machine is slow it takes more to be too many.
    for n in range(2000):
        refused(session, f"93.185.{n // 200}.{n % 200}", 7014)
        if n >= 149 and (told := session.counters()[-1])["untold"] > 0:
            break
    assert told["denials"] == n + 1

    def all_told():
        while worker.take(0.5):
            pass
        return told["untold"] + len(worker.denials) >= n

    wait_until(all_told, 10, "each is told or counted")
    assert len(worker.denials) <= n


def test_a_slow_reader_holds_up_nobody_else(world, worker):
    server = world.listen(f"{WORLD}.2", 7015)
    session = worker.session(7015)
    session.policy(rule(f"{WORLD}.2", 7015))
    with session.connect(f"{WORLD}.2", 7015) as slow, session.connect(f"{WORLD}.2", 7015) as fast:
        first, second = server.accept()[0], server.accept()[0]
        first.setblocking(False)
        try:
            while True:
                first.send(b"z" * 65536)
        except BlockingIOError:
            pass
        second.sendall(b"here")
        assert fast.recv(4) == b"here"
        slow.settimeout(10 * PATIENCE)
        assert slow.recv(1) == b"z"
        first.close()
        second.close()
