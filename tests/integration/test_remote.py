"""Sandboxes of a service elsewhere, by sandboxd-provider: what holds of the worker and what it has. The service is
remote_standin.py's."""
import os
import subprocess

import pytest

from conformance_rig import PROVIDERS, Sandbox
from engine_fake import FakeEngine
from harness import ASAN, BIN, CONFIG, RUNTIME, Daemon, status_of, wait_until
from remote_standin import Service
from s3_rig import certificate
from traces import memory_holds

PROVIDER = "sandboxd-provider"[:15]  # as the kernel keeps it
TRUSTED = "/etc/ssl/certs/ca-certificates.crt"


@pytest.fixture(name="service", scope="module")
def fixture_service():
    service = Service()
    yield service
    service.done()


@pytest.fixture(name="daemon", scope="module")
def fixture_daemon(service):
    daemon = Daemon(CONFIG + service.config())
    wait_until(lambda: daemon.readiness() == 200, 20, "the provider is up")
    yield daemon
    daemon.stop()
    daemon.done()


@pytest.fixture(name="caller")
def fixture_caller(daemon, service):
    service.calm()
    return daemon.client("ana")


@pytest.fixture(name="sandbox")
def fixture_sandbox(caller):
    made = Sandbox(caller, caller.create_runtime(provider="remote"))
    yield made
    assert made.delete().status == 200


def test_what_is_asked_for(service, sandbox, caller):
    """Its row, its plan, and nothing of this host."""
    asked = service.asked[-1]
    assert (asked["id"], asked["network"], asked["read_only"]) == (sandbox.name, "none", True)
    profile = next(one for one in caller.get("/v1/capabilities").json["profiles"] if one["name"] == "agent")
    assert asked["limits"]["memory_bytes"] == profile["memory_bytes"]
    assert asked["limits"]["processes"] == profile["pids"]
    assert set(asked) == {"instance", "id", "template", "command", "stream_command", "capabilities", "network", "read_only",
                          "limits", "scratch"}


def test_the_worker_is_confined(daemon):
    """It alone has the network; control: an engine's worker has none."""
    def network_of(pid):
        return os.readlink(f"/proc/{pid}/ns/net")

    pid = daemon.worker_pid(PROVIDER)
    status = status_of(pid)
    assert int(status["Uid"].split()[0]) != 0
    for name in ("CapPrm", "CapEff", "CapBnd", "CapInh", "CapAmb"):
        assert int(status[name], 16) == 0, name
    assert status["NoNewPrivs"] == "1"
    if not ASAN:  # whose workers have no filter
        assert status["Seccomp"] == "2"
    assert network_of(pid) == network_of(daemon.supervisor_pid())
    engine = FakeEngine()
    other = Daemon(CONFIG + engine.config())
    try:
        wait_until(lambda: other.readiness() == 200, 20, "the provider is up")
        assert network_of(other.worker_pid(PROVIDER)) != network_of(other.supervisor_pid())
        assert other.stop() == 0
    finally:
        other.done()
        engine.stop()


def test_the_credential_and_the_place_are_nowhere(daemon, service, sandbox):
    """Not where the service itself repeats them. Control: the worker has them, and the refusal had them."""
    service.refuse = [["POST .*/pause", 500, 1], ["GET .*/usage", 500, 1]]
    answers = [sandbox.caller.post(sandbox.url("/suspend")), sandbox.caller.get(sandbox.url("/stats"))]
    assert [fault[2] for fault in service.refuse] == [0, 0], "the fault was met"
    answers += [sandbox.caller.get(path) for path in ("/v1/capabilities", "/v1/config", "/readyz", sandbox.url())]
    answers += [daemon.root.get(path) for path in ("/v1/capabilities", "/v1/config", "/readyz", sandbox.url())]
    log = wait_until(lambda: (text := daemon.log.read_text()).count("the remote service refuses") >= 2 and text, 10, "it is logged")
    shown = subprocess.run([BIN / "sandboxctl", "--socket", daemon.operator, "config", "show"], capture_output=True, text=True,
                           check=False)
    assert "remote.url" in shown.stdout, shown
    secrets = [service.credential, *service.tokens, f"127.0.0.1:{service.port}"]
    for secret in secrets:
        assert secret not in log + shown.stdout + shown.stderr
        assert not any(secret.encode() in answer.body for answer in answers)
    processes = daemon.processes()
    assert memory_holds(processes[PROVIDER][0], service.credential.encode())
    for name in processes:
        if name != PROVIDER:
            assert not any(memory_holds(pid, service.credential.encode()) for pid in processes[name]), name


@pytest.mark.parametrize("mode, owner, text, said", [
    (0o640, 0, "{}\n", "no file of root's alone"), (0o600, 1, "{}\n", "no file of root's alone"),
    (0o600, 0, "{}" + 2000 * "x", "the credential file has no credential"), (0o600, 0, "\n{}", "the credential file has no credential"),
    (0o600, 0, "{}", None)])
def test_the_credential_is_a_file_of_roots_alone(service, tmp_path, mode, owner, text, said):
    file = tmp_path / "credential"
    file.write_text(text.format(service.credential), encoding="ascii")
    os.chown(file, owner, owner)
    file.chmod(mode)
    daemon = Daemon(CONFIG + service.config(credential_file=file))
    daemon.deaths_expected = True
    try:
        if said:
            wait_until(lambda: said in daemon.log.read_text(), 20, "it is said")
            assert daemon.readiness() == 503
            file.write_text(service.credential + "\n", encoding="ascii")
            os.chown(file, 0, 0)
            file.chmod(0o600)
        wait_until(lambda: daemon.readiness() == 200, 40, "the provider is up")
        assert daemon.stop() == 0
    finally:
        daemon.done()


def test_a_certificate_is_checked(tmp_path):
    """The control: the same service, trusted; by a stream, too."""
    files = certificate(tmp_path, "remote.example")
    service = Service(files)
    try:
        daemon = Daemon(CONFIG + service.config())
        daemon.deaths_expected = True
        try:
            wait_until(lambda: "the remote service does not answer" in daemon.log.read_text(), 20, "it is not believed")
            assert daemon.readiness() == 503
            assert service.seen == []
        finally:
            daemon.done()
        both = tmp_path / "both"
        with open(TRUSTED, "rb") as now:
            both.write_bytes(now.read() + files[0].read_bytes())
        subprocess.run(["mount", "--bind", str(both), TRUSTED], check=True)
        try:
            daemon = Daemon(CONFIG + service.config())
            try:
                wait_until(lambda: daemon.readiness() == 200, 20, "the provider is up")
                caller = daemon.client("ana")
                sandbox = Sandbox(caller, caller.create_runtime(provider="remote"))
                data = bytes(range(256)) * 4096
                assert sandbox.put("file", data).json["size"] == len(data)
                assert sandbox.bytes("file") == data
                service.cut_all()
                assert sandbox.bytes("file") == data
                assert sandbox.delete().status == 200
                assert daemon.stop() == 0
            finally:
                daemon.done()
        finally:
            subprocess.run(["umount", TRUSTED], check=True)
    finally:
        service.done()


def test_a_row_of_another_provider_is_not_asked_of_this_one(service):
    """A downgrade from one to the other: the row waits, and nothing there is touched."""
    engine = FakeEngine()
    daemon = Daemon(CONFIG + service.config())
    daemon.deaths_expected = True
    try:
        wait_until(lambda: daemon.readiness() == 200, 20, "the provider is up")
        sandbox = Sandbox(daemon.client("ana"), daemon.client("ana").create_runtime(provider="remote"))
        daemon.configure(CONFIG + engine.config())
        PROVIDERS[0].dies(daemon)
        wait_until(lambda: engine.asked and daemon.readiness() == 200, 40, "the other provider is up")
        answer = sandbox.caller.post(sandbox.url("/commands"), {"cmd": "true"})
        assert (answer.status, answer.json["code"]) == (503, "provider_unavailable"), answer
        assert not any(sandbox.name in path for _, path in engine.asked), engine.asked
        assert service.engine.containers()[sandbox.name] == "running"
    finally:
        daemon.done()
        engine.stop()
        for name in service.engine.containers():
            service.remove(service.engine.inspect(name)["Name"].lstrip("/"))


DEVELOPMENT = "[supervisor]\nenvironment = development\n"
SECTION = "[remote]\nurl = {url}\ncredential_file = /etc/c\ntemplate = t:1\n"


@pytest.mark.parametrize("more, said", [
    (SECTION.format(url="https://a.example"), None),
    (SECTION.format(url="https://a.example:8443/v1/"), None),
    (SECTION.format(url="https://[::1]:8443/v1"), None),
    (SECTION.format(url="http://127.0.0.1:80/v1"), "url needs https, or environment = development"),
    (SECTION.format(url="http://127.0.0.1:80/v1") + DEVELOPMENT, None),
    (SECTION.format(url="http://localhost/v1") + DEVELOPMENT, None),
    (SECTION.format(url="http://a.example") + DEVELOPMENT, "https://host:port/path"),
    (SECTION.format(url="https://a.example/../b"), "https://host:port/path"),
    (SECTION.format(url="https://user@a.example"), "https://host:port/path"),
    (SECTION.format(url="https://a.example/v1?x=y"), "https://host:port/path"),
    (SECTION.format(url="ftp://a.example"), "https://host:port/path"),
    (SECTION.format(url="https://a.example//v1"), "https://host:port/path"),
    (SECTION.format(url="https://a.example:0/v1"), "https://host:port/path"),
    (SECTION.format(url="https://a.example").replace("credential_file = /etc/c\n", ""), "url needs credential_file"),
    (SECTION.format(url="https://a.example").replace("template = t:1\n", ""), "url needs template"),
    (SECTION.format(url="https://a.example").replace("/etc/c", "etc/c"), "absolute path"),
    (SECTION.format(url="https://a.example") + "[api]\nprovider = remote\n", None),
    ("[api]\nprovider = remote\n", "provider = remote needs url"),
    (SECTION.format(url="https://a.example") + "[api]\nprovider = docker\n", "provider = docker needs socket"),
    (SECTION.format(url="https://a.example") + DEVELOPMENT + "[docker]\nsocket = /run/x.sock\nimage = a\n",
     "url cannot be used together with socket in [docker]"),
])
def test_configurations(tmp_path, more, said):
    file = tmp_path / "sandboxd.conf"
    file.write_text(more)
    done = subprocess.run([BIN / "sandboxctl", "config", "check", file], capture_output=True, text=True, check=False)
    if said:
        assert done.returncode != 0 and said in done.stderr + done.stdout, done
        assert "a.example" not in done.stderr + done.stdout, "no value is in a complaint"
    else:
        assert done.returncode == 0, done


def test_what_it_cannot(caller, daemon, sandbox):
    for body in ({"egress": {"allow": ["a.example:443"]}}, {"template": "base2"}):
        answer = caller.post(RUNTIME, {"provider": "remote", **body})
        assert (answer.status, answer.json["code"], answer.json["retryable"]) == (501, "not_supported", False), answer
    for what in ("proof", "trace"):
        answer = daemon.root.get(sandbox.url(f"/{what}"))
        assert (answer.status, answer.json["code"]) == (501, "not_supported"), answer
    answer = caller.post(RUNTIME, {"provider": "docker"})
    assert answer.status == 422, answer
