"""The examples of the documents are run as they stand."""
import ast
import json
import pathlib
import re
import shlex
import subprocess

import pytest

from celery_rig import Broker, make_app
from harness import BIN, CONFIG, PATIENCE, SLOW, Daemon, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]


def literal_after(text, heading):
    """The first literal block behind a heading of an mdoc page, as a reader sees it."""
    block = re.search(r"\.Sh %s\n.*?\.Bd -literal[^\n]*\n(.*?)\n\.Ed" % heading, text, re.S).group(1)
    return block.replace("\\e", "\\")


def run(script, socket):
    return subprocess.run(
        ["bash", "-euc", f"sock={socket}\n{script}"], capture_output=True, text=True, timeout=60 * PATIENCE, check=False
    )


def test_examples_of_the_api_manual_work(daemon):
    script = literal_after((ROOT / "docs/man/sandboxd-api.7").read_text(encoding="utf-8"), "EXAMPLES")
    result = run(script, daemon.control)
    assert result.returncode == 0, result.stderr
    # Answers end without a newline; every one is JSON, a frame of the stream, or an event line.
    assert '"components":["daily.yaml"]' in result.stdout
    assert '"asset_keys":[["sandbox","daily"]]' in result.stdout
    frames = [json.loads(line[6:]) for line in result.stdout.splitlines() if line.startswith("data: ")]
    assert [frame["stage"] for frame in frames] == ["start", "materialize", "done"]
    assert '"folder_removed":true' in result.stdout
    assert '"detail"' not in result.stdout


def test_curl_of_the_readme_works(daemon):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    command = re.search(r"^(curl --unix-socket.*?)\n```", readme, re.S | re.M).group(1)
    result = run(command, daemon.control)
    assert result.returncode == 0, result.stderr
    made = json.loads(result.stdout)
    assert made["status"] == "open"
    daemon.root.delete(f"/dagster/sandbox/sessions/{made['id']}")


def test_agent_of_the_readme_works(daemon):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    script = re.search(r"^(ctl\(\) .*?)\n```", readme, re.S | re.M).group(1)
    assert "build/release/bin/" in script
    result = subprocess.run(["bash", "-euc", f"sock={daemon.operator}\n" + script.replace("build/release/bin/", shlex.quote(f"{BIN}/"))],
                            cwd=ROOT, capture_output=True, text=True, timeout=120 * PATIENCE, check=False)
    assert (result.returncode, result.stderr) == (0, ""), result
    assert str(len((ROOT / "README.md").read_text(encoding="utf-8").splitlines())) in result.stdout


def test_every_route_is_in_the_api_manual(daemon):
    page = (ROOT / "docs/man/sandboxd-api.7").read_text(encoding="utf-8").replace("\\", "")
    missing = []
    for path in daemon.root.get("/openapi.json").json["paths"]:
        tail = re.sub(r"\{[^}]*\}", "ID", path)
        for prefix in ("/dagster/sandbox", "/v1/sandboxes"):
            tail = tail[len(prefix):] or "/" if tail.startswith(prefix) else tail
        if tail not in page:
            missing.append(path)
    # Only sandboxctl uses these; sandboxctl(1) describes what it shows of them.
    assert missing == ["/v1/sandboxes/{id}/proof", "/v1/sandboxes/{id}/trace"]


def examples_of_sandboxctl():
    """The lines that sandboxctl(1) shows, in its order."""
    page = (ROOT / "docs/man/sandboxctl.1").read_text(encoding="utf-8")
    return [line[4:].replace("\\-", "-").replace("\\(dq", '"') for line in page.splitlines() if line.startswith(".Dl ")]


# What these need besides the session of the others.
NOT_HERE = ("--runtime-dir /run/sandboxd-qs-", "https://git.example.com/")


@pytest.mark.parametrize("identity", [{}, {"SANDBOXCTL_USER": "dora",
                                           "SANDBOXCTL_SCOPES": "data:read data:write platform:admin"}],
                         ids=["operator", "control"])
def test_examples_of_sandboxctl_work(daemon, tmp_path, identity):
    """As one script: each line may use what the lines before it set."""
    (tmp_path / "demo.yaml").write_text("type: demo.Thing\n")
    env = {"PATH": f"{BIN}:/usr/bin:/bin", "SANDBOXCTL_RUNTIME_DIR": str(daemon.runtime),
           "HOME": str(tmp_path), **identity}
    # The level of the log is for the operator socket alone.
    not_here = NOT_HERE + (("sandboxctl log-level",) if identity else ())
    examples = [line for line in examples_of_sandboxctl() if not any(word in line for word in not_here)]
    script = "\n".join(
        f"{line}\nstatus=$?; [ $status = 0 ] || echo \"$status from: \"{shlex.quote(line)} >>failed"
        for line in examples)
    result = subprocess.run(["bash", "-c", script + "\necho all-ran"], env=env, cwd=tmp_path, capture_output=True,
                            text=True, timeout=120 * PATIENCE, check=False)
    failed = tmp_path / "failed"
    assert not failed.exists(), failed.read_text() + result.stderr
    assert result.stdout.endswith("all-ran\n"), result.stderr


def test_every_verb_of_sandboxctl_is_in_its_page():
    shown = subprocess.run([str(BIN / "sandboxctl"), "--help"], capture_output=True, text=True, check=True)
    verbs = re.findall(r"^  ([a-z][a-z -]*?)  +\S", shown.stdout.split("Options of")[0], re.M)
    page = (ROOT / "docs/man/sandboxctl.1").read_text(encoding="utf-8")
    assert len(verbs) > 20
    assert [verb for verb in verbs if f".It Cm {verb}" not in page] == []


def blocks_of(document, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / "docs" / document).read_text(), re.M | re.S)


def configurations():
    """Every block of a document that begins with a section, as a reader copies it."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs/man").glob("*.[0-9]"))]
    for page in pages:
        blocks = re.findall(r"^(?:```\w*|\.Bd -literal[^\n]*)\n(.*?)^(?:```|\.Ed)$", page.read_text(encoding="utf-8"), re.M | re.S)
        for number, block in enumerate(blocks):
            if re.match(r"\[[a-z]+(:[\w.@-]+)?\]$", block, re.M):
                yield pytest.param(block.replace("\\e", "\\"), id=f"{page.name}-{number}")


@pytest.mark.parametrize("block", configurations())
def test_configurations_of_the_documents_are_taken(tmp_path, block):
    file = tmp_path / "example.conf"
    file.write_text(block, encoding="utf-8")
    file.chmod(0o600)
    result = subprocess.run([str(BIN / "sandboxctl"), "config", "check", str(file)], capture_output=True, text=True,
                            timeout=60 * SLOW, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_examples_of_celery_work(capsys):
    """Its configuration with the server's own address, then both pieces of Python as one program."""
    configuration, = blocks_of("celery.md", "ini")
    program = "".join(blocks_of("celery.md", "python"))
    address = "redis://sandboxd:password@127.0.0.1:6379/0"
    broker = Broker()
    daemon = None
    try:
        assert address in configuration
        daemon = Daemon(CONFIG + "\n" + configuration.replace(address, broker.url))
        wait_until(lambda: daemon.root.get("/readyz").status == 200, 15, "ready")
        session = daemon.root.create()
        assert daemon.root.write(session, "demo", "type: a.B\n").status == 200
        app = make_app(broker)
        app.conf.task_routes = {}
        exec(program, {"app": app, "session_id": session})  # pylint: disable=exec-used
        page = (ROOT / "docs/celery.md").read_text(encoding="utf-8")
        shown = re.search(r"^gives `(\{.*?\})`", page, re.M | re.S).group(1)
        assert sorted(ast.literal_eval(capsys.readouterr().out)) == sorted(re.findall(r"'(\w+)':", shown))
    finally:
        if daemon:
            daemon.done()
        broker.done()


# Modules of the platform that read settings directly, and what their library is imported by.
NOT_ISOLATED = {
    "iceberg_catalog": "pyiceberg", "service_manager": "httpx", "polaris_client": "httpx", "visualization_tasks": "datahub",
    "datahub/client": "datahub", "aspect_puller": "datahub", "alpha_vantage/datahub": "datahub", "kafka_feed": "aiokafka",
    "kafka_producer": "confluent_kafka", "clusters": "confluent_kafka", "kafka_admin": "confluent_kafka",
    "hudi_streamer": "org.apache.kafka", "kafka_fetcher": "confluent_kafka", "kafka_sink": "confluent_kafka",
}


def test_every_module_that_was_not_isolated_has_a_row_and_a_test():
    """A row names endpoint and test; the test is there, and what it runs imports the module's library."""
    rows = re.findall(r"^\| `([\w/]+)\.py` \|(.*)\|$", (ROOT / "docs/endpoints.md").read_text(), re.M)
    file = (ROOT / "tests/integration/test_endpoints_clients.py").read_text()
    bodies = dict(re.findall(r"^def (test_\w+)\(.*?:\n(.*?)(?=^def |\Z|^@)", file, re.M | re.S))
    programs = dict(re.findall(r'^([A-Z_]+) = (?:SETTINGS \+ )?"""\n(.*?)^"""', file, re.M | re.S))
    found = {}
    for module, cells in rows:
        _, endpoint, _, tests = re.split(r" *\| *", cells.strip())
        assert endpoint.startswith("`") and tests, module
        for test in re.findall(r"`(\w+)`", tests):
            used = " ".join(text for name, text in programs.items() if re.search(rf"\b{name}\b", bodies[test]))
            found.setdefault(module, "")
            found[module] += " ".join(line for line in used.splitlines() if "import " in line)
    for module, library in NOT_ISOLATED.items():
        row, = [name for name in found if name.endswith(module)]
        assert library in found[row], (row, library)
    assert len(found) == len(NOT_ISOLATED)
