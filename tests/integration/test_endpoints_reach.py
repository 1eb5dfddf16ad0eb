"""From a session's program through the egress worker to a server: endpoints, production, rules, and
what is told of what was refused. The servers are in the world of egress_rig."""
import http.client
import json
import os
import signal
import socket

import pytest

import egress_rig
from endpoints_rig import OTHER, PRODUCTION, SANDBOX, Server, denials
from harness import CONFIG, RUNTIME, SESSIONS, Daemon, ctl, wait_until

PORT = 8080
NAMES = {"lake.sandbox.example": [SANDBOX], "b.kafka.sandbox.example": [SANDBOX], "gms.prod.example": [PRODUCTION]}
CONFIGURED = CONFIG + f"""
[endpoint:iceberg_rest_uri]
production = {PRODUCTION} gms.prod.example
[endpoint:datahub_gms_url]
production = {OTHER}:9999
on_production = reroute
[network]
host_services = localhost:{PORT}
"""
DIAL = """
import socket, sys
try:
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=60) as s:
        s.sendall(b"GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
        print(s.recv(100).decode() or "end")
except OSError as error:
    print(type(error).__name__)
"""


class Named(Server):
    """Says its address to whoever connects, and counts them."""

    def __init__(self, address, listener):
        self.word = f"{address}:{PORT}".encode()
        super().__init__(listener, self.answer)

    def answer(self, client):
        client.recv(1000)
        client.sendall(self.word)


@pytest.fixture(name="world", scope="module")
def fixture_world(tmp_path_factory):
    with egress_rig.hosted_world(tmp_path_factory, NAMES) as world:
        yield world


@pytest.fixture(name="servers", scope="module")
def fixture_servers(world):
    servers = {address: Named(address, world.listen(address, PORT)) for address in (SANDBOX, PRODUCTION, OTHER)}
    servers["127.0.0.1"] = Named("127.0.0.1", socket.create_server(("127.0.0.1", PORT)))
    yield servers
    for server in servers.values():
        server.close()


@pytest.fixture(name="daemon", scope="module")
def fixture_daemon(servers):
    assert servers
    daemon = Daemon(config=CONFIGURED)
    daemon.deaths_expected = True  # tests end workers
    yield daemon
    daemon.done()


@pytest.fixture(name="session")
def fixture_session(alice):
    session = alice.create(env_overrides={"iceberg_rest_uri": f"http://{SANDBOX}:{PORT}/catalog"})
    yield session
    alice.remove(session)


def dial(client, session, address, port=PORT):
    return client.run(session, "/usr/bin/python3", "-c", DIAL, address, str(port)).text.strip()


def network_denials(client, session):
    return [denial for denial in denials(client, session) if denial["kind"] == "network"]


def denied(client, session, what):
    """The record of that refusal; it may come a moment later than the refusal."""
    return wait_until(lambda: next((denial for denial in network_denials(client, session)
                                    if what in denial["what"]), None), 10, f"a record of {what}")


def test_an_endpoint_is_reached_and_nothing_else(servers, daemon, alice, session):
    assert dial(alice, session, SANDBOX) == f"{SANDBOX}:{PORT}"
    before = {address: server.n_accepted for address, server in servers.items()}
    assert dial(alice, session, OTHER) != f"{OTHER}:{PORT}"
    assert dial(alice, session, SANDBOX, PORT + 1) != ""
    assert {address: server.n_accepted for address, server in servers.items()} == before
    assert denied(alice, session, f"connection to {OTHER} port {PORT}")
    dial(alice, session, f"{egress_rig.WORLD}.9")
    record = denied(alice, session, f"connection to {egress_rig.WORLD}.9 port {PORT}")
    assert record["rule"] == "no rule of this session names it"
    assert record["source"] == "egress worker"
    assert "PUT" in record["advice"]
    counts = alice.get(f"{SESSIONS}/{session}/denials").json["counts"]
    assert counts["network"] >= 2
    assert 'sandboxd_denials_total{kind="network"}' in daemon.root.get("/metrics").body.decode()


def test_production_is_not_reached_and_the_record_names_the_endpoint(servers, alice, session):
    before = servers[PRODUCTION].n_accepted
    for _ in range(3):
        assert dial(alice, session, PRODUCTION) != f"{PRODUCTION}:{PORT}"
    record = denied(alice, session, f"connection to {PRODUCTION} port {PORT}")
    assert record["rule"] == "a production host of endpoint:iceberg_rest_uri"
    assert servers[PRODUCTION].n_accepted == before


def test_names_are_resolved_outside_and_production_by_name_is_refused(world, servers, alice):
    session = alice.create(env_overrides={"iceberg_rest_uri": f"http://lake.sandbox.example:{PORT}/catalog"})
    before = servers[PRODUCTION].n_accepted
    assert dial(alice, session, "lake.sandbox.example") == f"{SANDBOX}:{PORT}"
    assert dial(alice, session, "gms.prod.example") != f"{PRODUCTION}:{PORT}"
    record = denied(alice, session, "gms.prod.example")
    assert record["rule"] == "a production host of endpoint:iceberg_rest_uri"
    assert servers[PRODUCTION].n_accepted == before
    assert "gms.prod.example" not in world.asked
    alice.remove(session)


def test_production_is_rerouted_where_the_operator_says_so(servers, alice):
    session = alice.create(env_overrides={"datahub_gms_url": f"http://{SANDBOX}:{PORT}"})
    before = servers[OTHER].n_accepted
    assert dial(alice, session, OTHER, 9999) == f"{SANDBOX}:{PORT}"
    assert servers[OTHER].n_accepted == before
    alice.remove(session)


def test_a_rule_is_in_force_when_put_answers_and_gone_as_well(alice, session):
    path = f"{SESSIONS}/{session}/egress"
    assert dial(alice, session, OTHER) != f"{OTHER}:{PORT}"
    answer = alice.request("PUT", path, {"allow": [f"{OTHER}:{PORT}"]})
    assert answer.status == 200 and answer.json["in_force"], answer.body
    assert dial(alice, session, OTHER) == f"{OTHER}:{PORT}"
    told = alice.get(path).json
    (rule,) = [rule for rule in told["rules"] if rule["label"] == "allow"]
    assert rule["host"] == f"{OTHER}/32" and rule["counters"]["connections"] == 1
    assert alice.request("PUT", path, {"allow": []}).status == 200
    assert dial(alice, session, OTHER) != f"{OTHER}:{PORT}"


def test_a_service_of_the_host_is_reached_by_its_name_inside(alice):
    session = alice.create(env_overrides={"iceberg_rest_uri": f"http://localhost:{PORT}/catalog"})
    assert dial(alice, session, "host.sandbox.internal") == f"127.0.0.1:{PORT}"
    assert dial(alice, session, "host.sandbox.internal", PORT + 1) != ""
    # The control: inside, localhost is the session.
    assert dial(alice, session, "127.0.0.1") == "ConnectionRefusedError"
    alice.remove(session)


@pytest.mark.parametrize("worker", ["sandboxd-egress", "sandboxd-api"])
def test_rules_are_sent_again_to_and_by_the_next_worker(daemon, alice, session, worker):
    os.kill(daemon.worker_pid(worker), signal.SIGKILL)

    def reached():
        try:
            return dial(alice, session, SANDBOX) == f"{SANDBOX}:{PORT}"
        except (OSError, AssertionError, ValueError, http.client.HTTPException):
            return False
    wait_until(reached, 20, f"the endpoint after the end of {worker}")
    assert dial(alice, session, PRODUCTION) != f"{PRODUCTION}:{PORT}"
    # A new one is created with its rules in force.
    other = alice.create(env_overrides={"iceberg_rest_uri": f"http://{SANDBOX}:{PORT}/catalog"})
    assert dial(alice, other, SANDBOX) == f"{SANDBOX}:{PORT}"
    alice.remove(other)


def test_a_create_whose_rules_are_not_in_force_fails(daemon, alice):
    """The worker does not answer; nothing is left, and the next create is as ever."""
    worker = daemon.worker_pid("sandboxd-egress")
    before = {row["id"] for row in alice.get(SESSIONS).json}
    os.kill(worker, signal.SIGSTOP)
    try:
        answer = alice.post(SESSIONS, {})
    finally:
        os.kill(worker, signal.SIGCONT)
    assert (answer.status, answer.json["detail"]) == (503, "launch failed: its network policy is not in force")
    assert {row["id"] for row in alice.get(SESSIONS).json} == before
    session = alice.create(env_overrides={"iceberg_rest_uri": f"http://{SANDBOX}:{PORT}/catalog"})
    assert dial(alice, session, SANDBOX) == f"{SANDBOX}:{PORT}"
    alice.remove(session)


def test_hosts_of_endpoints_are_in_no_record(daemon, alice):
    """Nothing listens on that port: the refusal is told, the host is not."""
    session = alice.create(env_overrides={"iceberg_rest_uri": f"http://{SANDBOX}:{PORT + 7}/catalog",
                                        "polaris_base_url": "http://zq97mark.example:8181"})
    dial(alice, session, SANDBOX, PORT + 7)
    dial(alice, session, "zq97mark.example", 8181)
    dial(alice, session, "zq97mark.example", 8182)
    denied(alice, session, "endpoint:iceberg_rest_uri")
    denied(alice, session, "endpoint:polaris_base_url")
    told = json.dumps(network_denials(alice, session)) + alice.get(f"{RUNTIME}/{session}/egress").body.decode()
    for words in (("denials", session), ("egress", session), ("show", session)):
        done = ctl(daemon, *words)
        told += (done.stdout + done.stderr).decode()
    assert "zq97mark" not in told and SANDBOX not in told
    assert "zq97mark" not in daemon.log.read_text()
    alice.remove(session)
