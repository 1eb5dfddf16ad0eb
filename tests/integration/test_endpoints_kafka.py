"""A real Kafka broker, whose advertised name is a companion's pattern: each client library produces and
consumes through it from a session."""
import os
import shutil
import subprocess

import pytest

import egress_rig
from endpoints_rig import PRODUCTION, SANDBOX, Counting, carry, carry_wheels, needs, records
from harness import CONFIG, PATIENCE, ROOT, Daemon, wait_until

PORT = 9092
BOOTSTRAP, ADVERTISED = "boot.kafka.sandbox.internal", "b1.kafka.sandbox.internal"
NAMES = {BOOTSTRAP: [SANDBOX], ADVERTISED: [SANDBOX], "b1.kafka.prod.example": [PRODUCTION]}
CONFIGURED = CONFIG + f"""
[endpoint:kafka_bootstrap]
production = *.kafka.prod.example
companions = *.kafka.sandbox.internal:{PORT}
"""
JARS = ROOT / "build" / "broker"
BROKER = f"""
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:9093
controller.listener.names=CONTROLLER
listeners=CLIENTS://{SANDBOX}:{PORT},CONTROLLER://127.0.0.1:9093
advertised.listeners=CLIENTS://{ADVERTISED}:{PORT}
inter.broker.listener.name=CLIENTS
listener.security.protocol.map=CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""
LOG4J = """<Configuration><Appenders><Console name="C"><PatternLayout pattern="%m%n"/></Console></Appenders>
<Loggers><Root level="warn"><AppenderRef ref="C"/></Root></Loggers></Configuration>
"""

KCAT = """
echo said-by-kcat | timeout 60 kcat -P -b "$ALPHASWARM_KAFKA_BOOTSTRAP" -t kcat
timeout 60 kcat -C -b "$ALPHASWARM_KAFKA_BOOTSTRAP" -t kcat -o beginning -c 1 -q
"""
LIBRDKAFKA = """
import os
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
servers = os.environ["ALPHASWARM_KAFKA_BOOTSTRAP"]
admin = AdminClient({"bootstrap.servers": servers})
admin.create_topics([NewTopic("librdkafka", 1, 1)])["librdkafka"].result(60)
producer = Producer({"bootstrap.servers": servers})
producer.produce("librdkafka", b"said-by-librdkafka")
assert producer.flush(60) == 0
consumer = Consumer({"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest"})
consumer.subscribe(["librdkafka"])
message = None
for _ in range(60):
    message = consumer.poll(1)
    if message and not message.error():
        break
print(message.value().decode())
consumer.close()
"""
AIOKAFKA = """
import asyncio, os, sys
sys.path.insert(0, "/session/wheels")
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
servers = os.environ["ALPHASWARM_KAFKA_BOOTSTRAP"]
async def main():
    producer = AIOKafkaProducer(bootstrap_servers=servers)
    await producer.start()
    await producer.send_and_wait("aiokafka", b"said-by-aiokafka")
    await producer.stop()
    consumer = AIOKafkaConsumer("aiokafka", bootstrap_servers=servers, auto_offset_reset="earliest")
    await consumer.start()
    print((await asyncio.wait_for(consumer.getone(), 60)).value.decode())
    await consumer.stop()
asyncio.run(main())
"""
JVM = """
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
public class Both {
    public static void main(String[] also) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", System.getenv("ALPHASWARM_KAFKA_BOOTSTRAP"));
        settings.put("group.id", "jvm");
        settings.put("auto.offset.reset", "earliest");
        try (KafkaProducer<String, String> producer =
                 new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>("jvm", "said-by-jvm")).get();
        }
        try (KafkaConsumer<String, String> consumer =
                 new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of("jvm"));
            for (int i = 0; i < 60; i++)
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                    System.out.println(record.value());
                    return;
                }
        }
    }
}
"""


def java(folder, *words):
    return ["/usr/bin/java", "-Xmx256m", "-XX:+UseSerialGC", f"-Dlog4j2.configurationFile={folder}/log4j2.xml",
            "-cp", f"{JARS}/*", *map(str, words)]


@pytest.fixture(name="world", scope="module")
def fixture_world(tmp_path_factory):
    with egress_rig.hosted_world(tmp_path_factory, NAMES) as world:
        yield world


@pytest.fixture(name="production", scope="module")
def fixture_production(world):
    server = Counting(world.listen(PRODUCTION, PORT))
    yield server
    server.close()


@pytest.fixture(name="broker", scope="module")
def fixture_broker(world, tmp_path_factory):
    if not JARS.is_dir() or not os.access("/usr/bin/java", os.X_OK):
        pytest.skip("tests/run has fetched no broker, or there is no java")
    folder = tmp_path_factory.mktemp("broker")
    properties = folder / "server.properties"
    properties.write_text(BROKER + f"log.dirs={folder}/logs\n")
    (folder / "log4j2.xml").write_text(LOG4J)
    subprocess.run(java(folder, "kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c", properties),
                   check=True, capture_output=True, timeout=300 * PATIENCE)
    with open(folder / "log", "wb") as log:
        process = world.start(*java(folder, "kafka.Kafka", properties), stdout=log, stderr=log)

    def ready():
        assert process.poll() is None, (folder / "log").read_text()
        return world.namespace.run("kcat", "-b", f"{SANDBOX}:{PORT}", "-L", "-m", "2").returncode == 0
    wait_until(ready, 120, "the broker answers")
    yield process
    process.terminate()
    process.wait(60 * PATIENCE)


@pytest.fixture(name="ann", scope="module")
def fixture_ann(broker, production):
    assert broker and production
    daemon = Daemon(config=CONFIGURED)
    yield daemon.client("ann", workspace="blue")
    daemon.done()


@pytest.fixture(name="session")
def fixture_session(ann):
    session = ann.create(env_overrides={"kafka_bootstrap": f"{BOOTSTRAP}:{PORT}"})
    yield session
    ann.remove(session)


def python(client, session, program):
    return client.run(session, "/usr/bin/python3", "-c", program, timeout=200 * PATIENCE, timeout_ms=190000)


def advertised_was_reached(client, session):
    """Another host than the bootstrap's: it is the pattern's rule that let it through."""
    rules = client.get(f"/v1/sandboxes/{session}/egress").json["rules"]
    return [rule for rule in rules if rule["label"] == "companion:kafka_bootstrap" and rule["counters"]["connections"] > 0]


def test_kcat_by_a_real_broker(ann, session, production):
    done = ann.shell(session, KCAT, timeout=150 * PATIENCE, timeout_ms=140000)
    assert done.text == "said-by-kcat\n", done
    assert advertised_was_reached(ann, session) and production.heard == []


def test_librdkafka_by_a_real_broker(ann, session, production):
    needs(ann, session, "import confluent_kafka")
    done = python(ann, session, LIBRDKAFKA)
    assert done.text == "said-by-librdkafka\n", done
    assert advertised_was_reached(ann, session) and production.heard == []


def test_aiokafka_by_a_real_broker(ann, session, production):
    carry_wheels(ann, session)
    done = python(ann, session, AIOKAFKA)
    assert done.text == "said-by-aiokafka\n", done
    assert advertised_was_reached(ann, session) and production.heard == []


def test_jvm_client_by_a_real_broker(ann, session, production, tmp_path):
    if not os.access("/usr/bin/javac", os.X_OK):
        pytest.skip("there is no javac")
    source, classes = tmp_path / "Both.java", tmp_path / "jvm"
    source.write_text(JVM)
    subprocess.run(["/usr/bin/javac", "-cp", f"{JARS}/*", "-d", classes, source], check=True)
    for jar in (*JARS.glob("kafka-clients-*.jar"), *JARS.glob("slf4j-api-*.jar")):
        shutil.copy(jar, classes)
    carry(ann, session, classes)
    done = ann.run(session, "/usr/bin/java", "-Xmx128m", "-XX:+UseSerialGC", "-cp", "/session/jvm:/session/jvm/*", "Both",
                   timeout=200 * PATIENCE, timeout_ms=190000)
    assert done.text == "said-by-jvm\n", done
    assert advertised_was_reached(ann, session) and production.heard == []


def test_a_name_of_the_pattern_of_production_is_refused(ann, session, production):
    """The control: the broker that answers is the sandbox's; production's pattern is refused, and told."""
    done = ann.shell(session, "timeout 20 kcat -L -b b1.kafka.prod.example:9092 -m 5", timeout=60 * PATIENCE, timeout_ms=50000)
    assert done.code != 0
    records(ann, session, "kafka_bootstrap", "b1.kafka.prod.example")
    assert production.heard == []
