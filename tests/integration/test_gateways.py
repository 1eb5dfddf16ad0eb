"""Variables with URLs that every agent's session has, and the way to their hosts."""
import subprocess

import pytest

from egress_rig import WORLD, hosted_world
from harness import BIN, CONFIG, RUNTIME, Daemon, wait_until

GATEWAYS = """
[network]
agent_gateways = ANTHROPIC_BASE_URL=http://llm.example.com/v1
agent_gateways = BEDROCK_BASE_URL=https://bedrock.example.com:8443
"""


@pytest.fixture(name="world", scope="module")
def fixture_world(tmp_path_factory):
    with hosted_world(tmp_path_factory) as world:
        folder = tmp_path_factory.mktemp("llm")
        (folder / "v1").write_text("hello from the gateway\n")
        world.names["llm.example.com"] = world.names["other.example.com"] = [f"{WORLD}.2"]
        world.start("python3", "-m", "http.server", "--bind", f"{WORLD}.2", "--directory", str(folder), "80",
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(lambda: ":80 " in world.namespace.run("ss", "-ltnH").stdout, 20, "the server")
        yield world


@pytest.fixture(name="daemon", scope="module")
def fixture_daemon(world):  # pylint: disable=unused-argument
    started = Daemon(config=CONFIG + GATEWAYS)
    yield started
    started.done()


def test_an_agent_reaches_its_gateway_by_name(alice):
    session = alice.create_runtime()
    done = alice.shell(session, "echo $ANTHROPIC_BASE_URL $BEDROCK_BASE_URL; curl -sS -m 20 $ANTHROPIC_BASE_URL")
    assert done.text == ("http://llm.example.com/v1 https://bedrock.example.com:8443\nhello from the gateway\n"), done
    assert alice.shell(session, "curl -sS -m 20 http://other.example.com/v1").code != 0, "nothing else"
    rules = alice.get(f"{RUNTIME}/{session}/egress").json["rules"]
    labels = {rule["label"]: (rule["host"], rule["ports"]) for rule in rules}
    assert labels["gateway:ANTHROPIC_BASE_URL"] == ("llm.example.com", "80")
    assert labels["gateway:BEDROCK_BASE_URL"] == ("bedrock.example.com", "8443")
    assert alice.delete(f"{RUNTIME}/{session}").status == 200


def test_a_session_may_have_its_own(alice):
    session = alice.create_runtime(envs={"ANTHROPIC_BASE_URL": "http://mine.example.com"})
    assert alice.shell(session, "echo $ANTHROPIC_BASE_URL").text == "http://mine.example.com\n"
    assert alice.run(session, "sh", "-c", "echo $ANTHROPIC_BASE_URL", envs={"ANTHROPIC_BASE_URL": "x"}).text == "x\n"
    assert alice.delete(f"{RUNTIME}/{session}").status == 200


def test_a_component_has_none(alice):
    session = alice.create()
    assert alice.shell(session, "env | grep -e ANTHROPIC -e BEDROCK").text == ""
    assert alice.shell(session, "curl -sS -m 20 http://llm.example.com/v1").code != 0
    alice.remove(session)


@pytest.mark.parametrize("value", ["PATH=https://a.example", "a=https://a.example", "X=ftp://a.example", "X=https://u:p@a.example",
                                   "X=http://127.0.0.1:80", "X=http://localhost", "X", "https://a.example"])
def test_what_is_no_gateway_is_refused(value, tmp_path):
    file = tmp_path / "sandboxd.conf"
    file.write_text(CONFIG + f"\n[network]\nagent_gateways = {value}\n")
    file.chmod(0o600)
    done = subprocess.run([str(BIN / "sandboxctl"), "config", "check", str(file)], capture_output=True, text=True,
                          check=False)
    assert done.returncode != 0 and "agent_gateways" in done.stdout + done.stderr, done
