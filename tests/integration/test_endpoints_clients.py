"""Real client libraries in a session: settings with production as their default, production written in
the code, and a catalog that sends its client elsewhere. Production's stand-in counts 0 connections."""
import json
import os
import shutil
import socket
import subprocess

import pytest

import egress_rig
from endpoints_rig import (PRODUCTION, SANDBOX, Counting, Quiet, carry, carry_wheels, heard, needs, records,
                           web_server)
from harness import CONFIG, PATIENCE, ROOT, SLOW, Daemon, wait_until

NAMES = {"lake.sandbox.example": [SANDBOX], "gms.sandbox.example": [SANDBOX], "b0.sandbox.example": [SANDBOX],
         "lake.prod.example": [PRODUCTION], "gms.prod.example": [PRODUCTION], "b0.prod.example": [PRODUCTION]}
CONFIGURED = CONFIG + """
[endpoint:iceberg_rest_uri]
production = lake.prod.example
[endpoint:datahub_gms_url]
production = gms.prod.example
[endpoint:kafka_bootstrap]
production = b0.prod.example
"""
OVERRIDES = {"iceberg_rest_uri": "http://lake.sandbox.example:8181/catalog",
             "datahub_gms_url": "http://gms.sandbox.example:8181/gms",
             "kafka_bootstrap": "b0.sandbox.example:9092"}

# As the platform's settings do: the environment wins, production is what the code falls back to.
SETTINGS = """
import os
def setting(name, fallback):
    return os.environ.get("ALPHASWARM_" + name, fallback)
lake = setting("ICEBERG_REST_URI", "http://lake.prod.example:8181/catalog")
gms = setting("DATAHUB_GMS_URL", "http://gms.prod.example:8181/gms")
kafka = setting("KAFKA_BOOTSTRAP", "b0.prod.example:9092")
"""
HTTPX = SETTINGS + """
import httpx
print(httpx.get(lake + "/v1/config").status_code)
for url in ("http://lake.prod.example:8181/catalog/v1/config", "http://%(production)s:8181/"):
    try:
        print(httpx.get(url, timeout=20).status_code)
    except httpx.TransportError:
        print("refused")
"""
REQUESTS = SETTINGS + """
import requests
print(requests.post(gms + "/aspects", json={}).status_code)
for url in ("http://gms.prod.example:8181/gms/config", "http://%(production)s:8181/"):
    try:
        print(requests.get(url, timeout=20).status_code)
    except requests.ConnectionError:
        print("refused")
"""
# PyIceberg's first step: the answer's overrides win over what the client was given.
MOVED = SETTINGS + """
import requests
config = requests.get(lake + "/v1/config").json()
uri = config["overrides"]["uri"]
try:
    print(requests.get(uri + "/v1/namespaces", timeout=20).status_code)
except requests.ConnectionError:
    print("refused")
"""
KAFKA = SETTINGS + """
from confluent_kafka.admin import AdminClient
for servers in (kafka, "b0.prod.example:9092", "%(production)s:9092"):
    try:
        AdminClient({"bootstrap.servers": servers, "log_level": 0}).list_topics(timeout=3 * %(slow)s)
    except Exception as error:
        print(error.args[0].name())
"""
# PyIceberg finds the sandbox's catalog by its own variables, asks for its configuration, and is moved.
PYICEBERG = """
import sys
sys.path.insert(0, "/session/wheels")
from pyiceberg.catalog import load_catalog
try:
    load_catalog("default").list_namespaces()
    print("answered")
except Exception:
    print("refused")
"""
# The emitter asks a server for its configuration, then sends it one aspect of a data set.
DATAHUB = SETTINGS + """
import sys
sys.path.insert(0, "/session/wheels")
from datahub.emitter.mcp import MetadataChangeProposalWrapper
from datahub.emitter.rest_emitter import DatahubRestEmitter
from datahub.metadata.schema_classes import StatusClass
for server in (gms, "http://gms.prod.example:8181/gms", "http://%(production)s:8181/gms"):
    try:
        emitter = DatahubRestEmitter(server, retry_max_times=1)
        emitter.test_connection()
        emitter.emit(MetadataChangeProposalWrapper(
            entityUrn="urn:li:dataset:(urn:li:dataPlatform:file,t,PROD)", aspect=StatusClass(removed=False)))
        print("answered")
    except Exception as error:
        print("refused")
        print(repr(error)[:600], file=sys.stderr)
"""
# And its client that reads: one aspect of that data set.
DATAHUB_READS = SETTINGS + """
import sys
sys.path.insert(0, "/session/wheels")
from datahub.ingestion.graph.client import DataHubGraph
from datahub.ingestion.graph.config import DatahubClientConfig
from datahub.metadata.schema_classes import StatusClass
for server in (gms, "http://gms.prod.example:8181/gms", "http://%(production)s:8181/gms"):
    try:
        graph = DataHubGraph(DatahubClientConfig(server=server, retry_max_times=1, timeout_sec=10))
        print(graph.get_aspect("urn:li:dataset:(urn:li:dataPlatform:file,t,PROD)", StatusClass).removed)
    except Exception as error:
        print("refused")
        print(repr(error)[:600], file=sys.stderr)
"""
AIOKAFKA = SETTINGS + """
import asyncio, sys
sys.path.insert(0, "/session/wheels")
from aiokafka import AIOKafkaProducer
async def main():
    for servers in (kafka, "b0.prod.example:9092", "%(production)s:9092"):
        producer = AIOKafkaProducer(bootstrap_servers=servers, request_timeout_ms=3000 * %(slow)s)
        try:
            await asyncio.wait_for(producer.start(), 15 * %(slow)s)
        except Exception as error:
            print(type(error).__name__)
        finally:
            await producer.stop()
asyncio.run(main())
"""

JVM = """
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
public class Topics {
    public static void main(String[] also) {
        String[] all = {System.getenv("ALPHASWARM_KAFKA_BOOTSTRAP"), "b0.prod.example:9092", "%(production)s:9092"};
        for (String servers : all) {
            Properties settings = new Properties();
            settings.put("bootstrap.servers", servers);
            settings.put("default.api.timeout.ms", "" + 6000 * %(slow)s);
            settings.put("request.timeout.ms", "" + 3000 * %(slow)s);
            try (Admin admin = Admin.create(settings)) {
                System.out.println(admin.listTopics().names().get());
            } catch (Exception error) {
                System.out.println("refused");
            }
        }
    }
}
"""


class Catalog(Quiet):
    """Of PyIceberg's catalog and DataHub's server as much as their clients ask for first."""
    asked = []

    def do_GET(self):
        Catalog.asked.append(self.path)
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.answer(json.dumps({"overrides": {"uri": "http://lake.prod.example:8181/catalog"}, "defaults": {},
                                "noCode": "true", "aspect": {"com.linkedin.common.Status": {"removed": True}}}).encode())

    do_POST = do_GET


@pytest.fixture(name="world", scope="module")
def fixture_world(tmp_path_factory):
    with egress_rig.hosted_world(tmp_path_factory, NAMES) as world:
        yield world


@pytest.fixture(name="servers", scope="module")
def fixture_servers(world):
    catalog = web_server(world, SANDBOX, 8181, Catalog)
    broker = Counting(world.listen(SANDBOX, 9092))
    production = [Counting(world.listen(PRODUCTION, port)) for port in (8181, 9092)]
    yield broker, production
    catalog.shutdown()
    for server in (broker, *production):
        server.close()


@pytest.fixture(name="ann", scope="module")
def fixture_ann(servers):
    assert servers
    daemon = Daemon(config=CONFIGURED)
    yield daemon.client("ann", workspace="blue")
    daemon.done()


@pytest.fixture(name="session")
def fixture_session(ann):
    session = ann.create(env_overrides=OVERRIDES)
    yield session
    ann.remove(session)


def python(client, session, program, library):
    needs(client, session, f"import {library}")
    done = client.run(session, "/usr/bin/python3", "-c", program.replace("%(production)s", PRODUCTION).replace("%(slow)s", str(SLOW)), timeout=90 * PATIENCE)
    return done.text.split()


def test_httpx(servers, ann, session):
    assert python(ann, session, HTTPX, "httpx") == ["200", "refused", "refused"]
    assert any("lake.prod.example" in record["what"] for record in records(ann, session, "iceberg_rest_uri"))
    assert heard(servers[1]) == [[], []]


def test_requests(servers, ann, session):
    assert python(ann, session, REQUESTS, "requests") == ["200", "refused", "refused"]
    assert any("gms.prod.example" in record["what"] for record in records(ann, session, "datahub_gms_url"))
    assert heard(servers[1]) == [[], []]


def test_a_catalog_that_moves_its_client_is_refused_by_name(servers, ann, session):
    Catalog.asked.clear()
    assert python(ann, session, MOVED, "requests") == ["refused"]
    assert Catalog.asked == ["/catalog/v1/config"]
    records(ann, session, "iceberg_rest_uri")
    assert heard(servers[1]) == [[], []]


def test_librdkafka(servers, ann, session):
    """The stand-in is no broker: that the client's first request arrives there, and nowhere else, is the test."""
    broker, production = servers
    assert len(python(ann, session, KAFKA, "confluent_kafka")) == 3
    wait_until(lambda: any(b"rdkafka" in heard for heard in broker.heard), 10, "its first request")
    records(ann, session, "kafka_bootstrap")
    assert heard(production) == [[], []]


@pytest.fixture(name="with_wheels", scope="module")
def fixture_with_wheels(ann):
    """A session that has the libraries which Debian does not have."""
    session = ann.create(env_overrides=OVERRIDES)
    carry_wheels(ann, session)
    yield session
    ann.remove(session)


def test_pyiceberg(servers, ann, with_wheels):
    Catalog.asked.clear()
    done = ann.run(with_wheels, "/usr/bin/python3", "-c", PYICEBERG, timeout=120 * PATIENCE)
    assert done.text == "refused\n", done
    assert Catalog.asked and all(path.startswith("/catalog/v1/config") for path in Catalog.asked)
    records(ann, with_wheels, "iceberg_rest_uri")
    assert heard(servers[1]) == [[], []]


def test_datahub(servers, ann, with_wheels):
    Catalog.asked.clear()
    program = DATAHUB.replace("%(production)s", PRODUCTION).replace("%(slow)s", str(SLOW))
    done = ann.run(with_wheels, "/usr/bin/python3", "-c", program, timeout=150 * PATIENCE, timeout_ms=140000)
    assert done.text.split() == ["answered", "refused", "refused"], done
    assert "/gms/config" in Catalog.asked and any("/aspects" in path for path in Catalog.asked), Catalog.asked
    records(ann, with_wheels, "datahub_gms_url")
    assert heard(servers[1]) == [[], []]


def test_datahub_reads(servers, ann, with_wheels):
    Catalog.asked.clear()
    program = DATAHUB_READS.replace("%(production)s", PRODUCTION).replace("%(slow)s", str(SLOW))
    done = ann.run(with_wheels, "/usr/bin/python3", "-c", program, timeout=150 * PATIENCE, timeout_ms=140000)
    assert done.text.split() == ["True", "refused", "refused"], done
    assert any(path.startswith("/gms/aspects/urn") for path in Catalog.asked), Catalog.asked
    records(ann, with_wheels, "datahub_gms_url")
    assert heard(servers[1]) == [[], []]


def test_aiokafka(servers, ann, with_wheels):
    broker, production = servers
    before = len(broker.heard)
    program = AIOKAFKA.replace("%(production)s", PRODUCTION).replace("%(slow)s", str(SLOW))
    assert len(ann.run(with_wheels, "/usr/bin/python3", "-c", program, timeout=120 * PATIENCE).text.split()) == 3
    wait_until(lambda: any(b"aiokafka" in heard for heard in broker.heard[before:]), 10, "its first request")
    records(ann, with_wheels, "kafka_bootstrap")
    assert heard(production) == [[], []]


def test_jvm_kafka_client(servers, ann, session, tmp_path):
    """Hudi's streamer has this one."""
    jars = ROOT / "build" / "jars"
    if not jars.is_dir() or not os.access("/usr/bin/javac", os.X_OK):
        pytest.skip("tests/run has fetched no jars, or there is no javac")
    broker, production = servers
    before = len(broker.heard)
    source, classes = tmp_path / "Topics.java", tmp_path / "jvm"
    source.write_text(JVM.replace("%(production)s", PRODUCTION).replace("%(slow)s", str(SLOW)))
    subprocess.run(["/usr/bin/javac", "-cp", f"{jars}/*", "-d", classes, source], check=True)
    shutil.copytree(jars, classes, dirs_exist_ok=True)
    carry(ann, session, classes)
    done = ann.run(session, "/usr/bin/java", "-Xmx128m", "-XX:+UseSerialGC", "-cp", "/session/jvm:/session/jvm/*",
                   "Topics", timeout=120 * PATIENCE, timeout_ms=110000)
    assert done.text.split() == ["refused"] * 3, done
    wait_until(lambda: any(b"apache-kafka-java" in heard for heard in broker.heard[before:]), 10, "its first request")
    records(ann, session, "kafka_bootstrap")
    assert heard(production) == [[], []]


def test_the_control_reaches_production(world, servers):
    """Without a session the same stand-in counts: its zeros above mean something."""
    assert world
    with socket.create_connection((PRODUCTION, 8181), timeout=5) as client:
        client.sendall(b"x")
    wait_until(lambda: servers[1][0].heard == [b"x"], 10, "the control")
