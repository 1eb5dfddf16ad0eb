"""The six settings as the platform reads them, through pydantic with production as their defaults, and
production written in the code; and servers that tell their client to go to production. Production's
stand-ins count 0 connections."""
import json
import socket
import struct

import pytest

from egress_rig import hosted_world
from endpoints_rig import (PRODUCTION, SANDBOX, Counting, Quiet, Server, denials, heard, needs, records,
                           web_server)
from harness import CONFIG, ENDPOINT_NAMES, PATIENCE, Daemon, ctl, wait_until
from test_jobs import GO_ON, stopped_task

HTTP, STORE, KAFKA = 8181, 9000, 9092
FETCH, METADATA = 1, 3  # of the requests of Kafka
NAMES = {f"{host}.{zone}.example": [address] for zone, address in (("sandbox", SANDBOX), ("prod", PRODUCTION))
         for host in ("lake", "polaris", "av", "gms", "s3", "b0", "b1", "auth")}
# The object store is a companion of the warehouse, and a second broker one of the first.
CONFIGURED = CONFIG + "\n".join(
    f"[endpoint:{name}]\nproduction = {' '.join(f'{host}.prod.example' for host in hosts)}\n{more}"
    for name, hosts, more in (
        ("iceberg_rest_uri", ["lake", "auth"], f"companions = auth.sandbox.example:{HTTP}\n"),
        ("iceberg_warehouse", ["s3"], f"companions = s3.sandbox.example:{STORE}\n"),
        ("polaris_base_url", ["polaris"], ""), ("alpha_vantage_base_url", ["av"], ""),
        ("datahub_gms_url", ["gms"], ""),
        ("kafka_bootstrap", ["b0", "b1"], f"companions = b1.sandbox.example:{KAFKA}\n")))
OVERRIDES = {
    "iceberg_rest_uri": f"http://lake.sandbox.example:{HTTP}/catalog", "iceberg_warehouse": "s3://sandbox/iceberg",
    "polaris_base_url": f"http://polaris.sandbox.example:{HTTP}",
    "alpha_vantage_base_url": f"http://av.sandbox.example:{HTTP}/query",
    "datahub_gms_url": f"http://gms.sandbox.example:{HTTP}", "kafka_bootstrap": f"b0.sandbox.example:{KAFKA}"}

SETTINGS = f"""
import pydantic, requests, socket, struct
class Settings(pydantic.BaseSettings):
    iceberg_rest_uri: str = "http://lake.prod.example:{HTTP}/catalog"
    iceberg_warehouse: str = "s3://prod/iceberg"
    polaris_base_url: str = "http://polaris.prod.example:{HTTP}"
    alpha_vantage_base_url: str = "http://av.prod.example:{HTTP}/query"
    datahub_gms_url: str = "http://gms.prod.example:{HTTP}"
    kafka_bootstrap: str = "b0.prod.example:{KAFKA}"
    class Config:
        env_prefix = "ALPHASWARM_"
def use(name, value):
    "Whether something answers there."
    try:
        if value.startswith("http"):
            return requests.get(value, timeout=20).status_code
        if value.startswith("s3://"):
            bucket = value.split("/")[2]
            return requests.get(f"http://s3.{{bucket}}.example:{STORE}/{{bucket}}", timeout=20).status_code
        if name == "kafka_bootstrap" and value:
            host, port = value.split(":")
            with socket.create_connection((host, int(port)), timeout=20) as broker:
                broker.sendall(struct.pack(">ihhihi", 14, 3, 0, 1, -1, 0))  # METADATA, of no topic
                return 200 if broker.recv(4) else "refused"
        return "closed"
    except OSError:
        return "refused"
"""
FROM_SETTINGS = SETTINGS + """
for name, value in Settings():
    print(name, use(name, value))
"""
FROM_CODE = SETTINGS + """
for name, field in Settings.__fields__.items():
    print(name, use(name, field.default))
"""
# As told by a catalog: where tokens are, and where the files of a table are.
TOLD = """
import os, requests, sys
lake, way = os.environ["ALPHASWARM_ICEBERG_REST_URI"], sys.argv[1]
told = requests.get(f"{lake}/v1/{way}").json()
uri = {"config": lambda: told["overrides"]["oauth2-server-uri"],
       "namespaces/n/tables/t": lambda: told["config"]["s3.endpoint"] + "/prod/iceberg/t"}[way]()
try:
    print(requests.get(uri, timeout=20).status_code)
except requests.ConnectionError:
    print("refused")
"""


class Web(Quiet):
    """Each of the sandbox's services; as a catalog it sends its client to `zone`."""
    zone = "prod"

    def do_GET(self):
        self.answer(json.dumps({
            "overrides": {"oauth2-server-uri": f"http://auth.{Web.zone}.example:{HTTP}/v1/oauth/tokens"},
            "config": {"s3.endpoint": f"http://s3.{Web.zone}.example:{STORE}"}}).encode())


class Broker(Server):
    """Of Kafka's protocol as much as a client of version 0.8 needs to find the leader of a topic: it
    is the broker that is advertised."""

    def __init__(self, listener):
        self.advertised = "b1.prod.example"
        self.keys = []
        super().__init__(listener, self.answer)

    def answer(self, client):
        host = self.advertised.encode()
        metadata = struct.pack(">iih", 1, 7, len(host)) + host + struct.pack(">i", KAFKA) \
            + struct.pack(">ihh1sihiiiiii", 1, 0, 1, b"t", 1, 0, 0, 7, 1, 7, 1, 7)
        with client.makefile("rb") as stream:
            while len(head := stream.read(4)) == 4:
                request = stream.read(*struct.unpack(">i", head))
                key, _, correlation = struct.unpack_from(">hhi", request)
                self.keys.append(key)
                if key == METADATA:
                    body = struct.pack(">i", correlation) + metadata
                    client.sendall(struct.pack(">i", len(body)) + body)


@pytest.fixture(name="world", scope="module")
def fixture_world(tmp_path_factory):
    with hosted_world(tmp_path_factory, NAMES) as world:
        yield world


@pytest.fixture(name="broker", scope="module")
def fixture_broker(world):
    return Broker(world.listen(SANDBOX, KAFKA))


@pytest.fixture(name="production", scope="module")
def fixture_production(world, broker):
    servers = [web_server(world, SANDBOX, port, Web) for port in (HTTP, STORE)]
    production = [Counting(world.listen(PRODUCTION, port)) for port in (HTTP, STORE, KAFKA)]
    yield production
    for server in servers:
        server.shutdown()
    for server in (broker, *production):
        server.close()


@pytest.fixture(name="daemon", scope="module")
def fixture_daemon(production):
    assert production
    daemon = Daemon(config=CONFIGURED)
    yield daemon
    daemon.done()


@pytest.fixture(name="session")
def fixture_session(alice):
    session = alice.create(env_overrides=OVERRIDES)
    yield session
    alice.remove(session)


def use_all(client, session, program):
    needs(client, session, "from pydantic import BaseSettings; import requests")
    done = client.run(session, "/usr/bin/python3", "-c", program, timeout=200 * PATIENCE)
    assert done.code == 0, done
    return dict(line.split() for line in done.text.splitlines())


def test_settings_with_production_as_their_default_lead_to_the_sandbox(production, alice, session):
    assert use_all(alice, session, FROM_SETTINGS) == dict.fromkeys(ENDPOINT_NAMES, "200")
    assert heard(production) == [[], [], []]
    assert not [record for record in denials(alice, session) if record["kind"] == "network"]


def test_settings_of_a_session_without_endpoints_are_closed(production, alice):
    session = alice.create()
    answers = use_all(alice, session, FROM_SETTINGS)
    assert set(answers) == set(ENDPOINT_NAMES) and set(answers.values()) <= {"closed", "refused"}, answers
    assert heard(production) == [[], [], []]
    alice.remove(session)


def test_production_in_the_code_is_refused_and_told(daemon, production, alice, session):
    assert use_all(alice, session, FROM_CODE) == dict.fromkeys(ENDPOINT_NAMES, "refused")
    for host, endpoint in (("lake", "iceberg_rest_uri"), ("s3", "iceberg_warehouse"), ("polaris", "polaris_base_url"),
                           ("av", "alpha_vantage_base_url"), ("gms", "datahub_gms_url"), ("b0", "kafka_bootstrap")):
        records(alice, session, endpoint, f"{host}.prod.example")
    assert heard(production) == [[], [], []]
    # The same at the command line, where an operator looks first.
    shown = ctl(daemon, "denials", session)
    assert shown.returncode == 0 and b"a production host of endpoint:kafka_bootstrap" in shown.stdout, shown
    assert b"b0.prod.example" in shown.stdout
    shown = ctl(daemon, "egress", session)
    assert shown.returncode == 0, shown
    rows = [line.split() for line in shown.stdout.decode().splitlines()]
    assert {row[1] for row in rows if row[0] == "refuse" and row[3] == "1"} == {
        f"endpoint:{name}" for name in ENDPOINT_NAMES}, shown.stdout.decode()


def test_doctor_says_that_the_kernel_does_not_know_these_names(daemon):
    shown = ctl(daemon, "doctor").stdout.decode()
    row, = [line for line in shown.splitlines() if " production names " in line]
    assert row.split()[0] == "degraded" and all(name in row for name in ENDPOINT_NAMES), row
    assert "prod.example" not in shown


def test_production_is_told_in_the_stream_once_per_host_and_port(production, alice, session):
    task = stopped_task(alice, session)
    dial = "import socket, sys\nfor host, port in zip(sys.argv[1::2], sys.argv[2::2]):\n" \
           "    try: socket.create_connection((host, int(port)), 20)\n    except OSError: pass\n"
    pairs = ("lake.prod.example", str(HTTP), "lake.prod.example", str(STORE), "gms.prod.example", str(HTTP))
    for _ in range(3):
        alice.run(session, "/usr/bin/python3", "-c", dial, *pairs)
    wait_until(lambda: len(denials(alice, session)) >= 3, 20, "the records")
    alice.shell(session, GO_ON)
    told = [frame for frame in alice.frames(task) if frame["metadata"].get("code") == "refused"]
    assert {frame["stage"] for frame in told} == {"log"}, told
    what = [frame["metadata"]["denial"]["what"] for frame in told]
    for host, port in zip(pairs[::2], pairs[1::2]):
        assert len([text for text in what if host in text and text.endswith(f"port {port}")]) == 1, what
    assert len(what) == 3
    assert heard(production) == [[], [], []]


@pytest.mark.parametrize("way, host, endpoint", [
    ("config", "auth", "iceberg_rest_uri"), ("namespaces/n/tables/t", "s3", "iceberg_warehouse")])
def test_a_catalog_tells_its_client_where_else_to_go(production, alice, session, way, host, endpoint):
    """To production it is refused by name; to the sandbox's companion it is not."""
    for zone, answer in (("prod", "refused"), ("sandbox", "200")):
        Web.zone = zone
        assert alice.run(session, "/usr/bin/python3", "-c", TOLD, way).text.split() == [answer]
    records(alice, session, endpoint, f"{host}.prod.example")
    assert heard(production) == [[], [], []]


def test_a_broker_that_advertises_production(production, broker, alice, session):
    """kcat asks the first broker for the topic's leader, and goes there."""
    if alice.shell(session, "command -v kcat").code != 0:
        pytest.skip("kcat is not installed")
    consume = "timeout 5 kcat -C -b $ALPHASWARM_KAFKA_BOOTSTRAP -t t -p 0 -o 0 -X api.version.request=false" \
              " -X broker.version.fallback=0.8.2"
    for advertised, fetched in (("b1.prod.example", False), ("b1.sandbox.example", True)):
        broker.advertised = advertised
        broker.keys.clear()

        def came():
            """Where the machine is slow it may not have come so far within its time."""
            alice.shell(session, consume)
            return (FETCH if fetched else METADATA) in broker.keys

        wait_until(came, 20, f"it is led to {advertised}")
        assert METADATA in broker.keys and (FETCH in broker.keys) == fetched, broker.keys
    records(alice, session, "kafka_bootstrap", "b1.prod.example")
    assert heard(production) == [[], [], []]


def test_the_control_reaches_production(production):
    """Without a session the same stand-ins count."""
    for port in (HTTP, STORE, KAFKA):
        with socket.create_connection((PRODUCTION, port), timeout=5) as client:
            client.sendall(b"x")
    wait_until(lambda: heard(production) == [[b"x"]] * 3, 10, "the controls")
