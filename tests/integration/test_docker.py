"""Sandboxes of a foreign engine, by sandboxd-provider; the engine is podman's Docker-compatible one."""
import http.client
import json
import os
import signal
import subprocess
import time

import pytest

from docker_rig import Engine
from harness import ASAN, BIN, CONFIG, RUNTIME, SLOW, Daemon, ctl, status_of, stopped, wait_until

PROVIDER = "sandboxd-provider"[:15]  # as the kernel keeps it


@pytest.fixture(name="engine", scope="module")
def fixture_engine():
    engine = Engine()
    yield engine
    engine.done()


@pytest.fixture(name="service", scope="module")
def fixture_service(engine):
    daemon = Daemon(CONFIG + engine.config())
    yield daemon
    daemon.stop()
    daemon.done()


@pytest.fixture(name="caller")
def fixture_caller(service):
    wait_until(lambda: service.readiness() == 200, 20, "the provider is up")
    return service.client("ana")


@pytest.fixture(name="sandbox")
def fixture_sandbox(caller):
    session = caller.create_runtime(provider="docker")
    yield session
    caller.delete(f"{RUNTIME}/{session}")


def at(session, path=""):
    return f"{RUNTIME}/{session}{path}"


def test_a_sandbox_is_a_container_until_it_is_deleted(caller, engine):
    session = caller.create_runtime(provider="docker")
    assert engine.containers().get(session) == "running"
    done = caller.shell(session, "id -u; pwd; cat; exit 3", stdin="typed\n")
    assert (done.code, done.text) == (3, "1000\n/session\ntyped\n"), done
    assert caller.delete(at(session)).status == 200
    wait_until(lambda: session not in engine.containers(), 20, "the container is gone")


def engine_row(service):
    row, = [row for row in json.loads(ctl(service, "-o", "json", "doctor").stdout) if row["name"] == "provider"]
    return row


def test_the_client_says_which_provider(service, engine):
    made = ctl(service, "create", "--provider", "docker")
    assert made.returncode == 0, made
    session = made.stdout.decode().strip()
    assert engine.containers().get(session) == "running"
    assert json.loads(ctl(service, "-o", "json", "show", session).stdout)["provider"] == "docker"
    assert ctl(service, "rm", session).returncode == 0
    ran = ctl(service, "run", "--provider", "native", "--", "sh", "-c", "id -u")
    assert (ran.returncode, ran.stdout) == (0, b"1000\n"), ran
    other = ctl(service, "create", "--provider", "elsewhere")
    assert other.returncode == 4 and b"Unknown provider" in other.stderr, other


def test_a_socket_that_admits_nobody(engine):
    """As podman makes its own: the log says that it is the mode, and it is enough to change that."""
    engine.socket.chmod(0o600)
    daemon = Daemon(CONFIG + engine.config())
    daemon.deaths_expected = True
    try:
        wait_until(lambda: "error=EACCES" in daemon.log.read_text(), 30, "the reason")
        assert engine_row(daemon)["state"] == "degraded"
        engine.socket.chmod(0o666)
        wait_until(lambda: daemon.readiness() == 200, 30, "the provider is up")
        assert daemon.stop() == 0
    finally:
        engine.socket.chmod(0o666)
        daemon.done()


def test_an_image_that_the_engine_has_not_got(engine):
    """The answer names the step, the log the reason; nothing is left."""
    daemon = Daemon(CONFIG + engine.config(image="localhost/none:1"))
    try:
        wait_until(lambda: daemon.readiness() == 200, 20, "the provider is up")
        answer = daemon.client("ana").post(RUNTIME, {"provider": "docker"})
        assert (answer.status, answer.json["detail"]) == (503, "launch failed at step start: ENOENT"), answer
        wait_until(lambda: "the engine has not got the image" in daemon.log.read_text(), 10, "the log says why")
        assert daemon.client("ana").get(RUNTIME).json["sandboxes"] == []
        assert daemon.stop() == 0
    finally:
        daemon.done()


def test_what_the_container_is(sandbox, engine):
    inside = engine.inspect(sandbox)
    host = inside["HostConfig"]
    assert host["NetworkMode"] == "none"
    assert host["ReadonlyRootfs"] is True
    assert "no-new-privileges" in host["SecurityOpt"]
    assert host["Privileged"] is False
    assert inside["Config"]["Labels"]["sandboxd.sandbox"] == sandbox


def test_commands_have_no_power(caller, sandbox):
    """The control: uid 0 and the shim's capabilities are there, in the container, and commands cannot have them."""
    text = caller.shell(sandbox, "cat /proc/self/status; cat /proc/1/status").text
    own, first = text.split("Name:")[1:3]
    fields = [dict(line.split(":", 1) for line in part.splitlines()[1:]) for part in (own, first)]
    assert fields[0]["Uid"].split() == ["1000"] * 4
    for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb", "CapInh"):
        assert int(fields[0][name], 16) == 0, name
    assert int(fields[1]["CapPrm"], 16) != 0
    assert fields[0]["NoNewPrivs"].strip() == "1"
    assert fields[0]["Seccomp"].strip() == "2"
    assert caller.shell(sandbox, "kill -9 1; kill -9 $(pidof sandbox-shim)").code != 0
    assert caller.shell(sandbox, "ls /.sandboxd-socket").code != 0
    assert caller.shell(sandbox, "echo x > /.sandboxd/x").code != 0
    assert caller.shell(sandbox, "echo x > /bin/x").code != 0
    places = caller.shell(sandbox, "for f in / /*/ /*/*/; do echo x > $f.try && echo $f; done 2>/dev/null; :").text.split()
    assert sorted(places) == ["/dev/shm/", "/session/", "/tmp/"], places
    assert caller.shell(sandbox, "ip link | grep -v lo: | grep -c '^[0-9]'").text == "0\n"


def test_files_and_links(caller, sandbox):
    body = os.urandom(3 << 20)
    assert caller.shell(sandbox, "echo t > /tmp/t; cat /tmp/t").text == "t\n"
    put = caller.request("PUT", at(sandbox, "/files?path=/session/a/b"), raw_body=body,
                         headers={"Content-Type": "application/octet-stream"})
    assert put.status in (200, 201), put
    assert caller.get(at(sandbox, "/files?path=/session/a/b")).body == body
    caller.shell(sandbox, "ln -s /etc/passwd link; ln -s ../../etc/passwd up")
    for name in ("link", "up"):
        assert caller.get(at(sandbox, f"/files?path=/session/{name}")).status in (403, 404, 409, 422)


def test_a_timeout_leaves_nothing(caller, sandbox):
    done = caller.shell(sandbox, "sleep 1000 & setsid sleep 1000 & (trap '' TERM; sleep 1000) ", timeout_ms=500)
    assert done.exit["timed_out"] is True, done
    assert caller.shell(sandbox, "ps | grep -c '[s]leep 1000'").text == "0\n"


def begin(caller, session, script, **more):
    answer = caller.post(at(session, "/commands"), {"cmd": script, "background": True, **more})
    assert answer.status == 201, answer
    return answer.json["command_id"]


def waited(caller, session, cid):
    answer = caller.get(at(session, f"/commands/{cid}/wait?timeout_ms={20000 * SLOW}"))
    assert answer.status == 200, answer
    return answer.json


def size_of(caller, session, path):
    answer = caller.get(at(session, f"/files/stat?path={path}"))
    return answer.json["size"] if answer.status == 200 else 0


def test_signals_and_terminals(caller, sandbox):
    cid = begin(caller, sandbox, "trap 'exit 7' USR1; echo up > up; while :; do sleep 0.1; done")
    wait_until(lambda: size_of(caller, sandbox, "up"), 10, "it has set its trap")
    assert caller.post(at(sandbox, f"/commands/{cid}/signal"), {"signal": "USR1"}).status in (200, 202, 204)
    assert waited(caller, sandbox, cid)["exit"]["code"] == 7
    done = caller.shell(sandbox, "tty; stty size", pty={"rows": 20, "cols": 70})
    assert "/dev/pts/" in done.text and "20 70" in done.text, done


def test_what_it_cannot(caller, service, sandbox):
    for body in ({"egress": {"allow": ["a.example:443"]}}, {"template": "base2"}):
        answer = caller.post(RUNTIME, {"provider": "docker", **body})
        assert (answer.status, answer.json["code"], answer.json["retryable"]) == (501, "not_supported", False), answer
    answer = caller.request("PUT", at(sandbox, "/egress"), {"allow": ["a.example:443"]})
    assert (answer.status, answer.json["code"]) == (501, "not_supported"), answer
    answer = caller.post(at(sandbox, "/commands"), {"cmd": "id", "user": "root"})
    assert (answer.status, answer.json["code"]) == (501, "not_supported"), answer
    for what in ("proof", "trace"):
        answer = service.root.get(at(sandbox, f"/{what}"))
        assert (answer.status, answer.json["code"]) == (501, "not_supported"), answer
    answer = caller.post(RUNTIME, {"provider": "elsewhere"})
    assert answer.status == 422, answer


def test_pause_and_resume(caller, sandbox, engine):
    begin(caller, sandbox, "while :; do echo x >> t; sleep 0.05; done")
    wait_until(lambda: size_of(caller, sandbox, "t"), 10, "it runs")
    answer = caller.post(at(sandbox, "/suspend"), {"durable": "wait"})
    assert answer.status == 200, answer
    assert engine.containers()[sandbox] == "paused"
    answer = caller.post(at(sandbox, "/resume"))
    assert (answer.status, answer.json["resumed"]) == (200, "memory"), answer
    size = size_of(caller, sandbox, "t")
    wait_until(lambda: size_of(caller, sandbox, "t") > size, 10, "it goes on")


def test_a_snapshot_goes_to_another_sandbox(caller, sandbox):
    caller.shell(sandbox, "mkdir d; echo kept > d/f")
    answer = caller.post(at(sandbox, "/snapshots"))
    assert answer.status in (200, 201, 202), answer


def test_stats(caller, sandbox):
    caller.shell(sandbox, "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done")
    stats = caller.get(at(sandbox, "/stats"))
    assert stats.status == 200, stats
    assert stats.json["cpu_us"] > 0 and stats.json["memory_bytes"] > 0, stats.json


def test_a_container_that_is_killed_is_replaced(caller, engine):
    """What podman says of it is any error; who waits hears of it before another stream would have been given up."""
    session = caller.create_runtime(provider="docker")
    cid = begin(caller, session, "sleep 1000")
    answer = engine.ask("POST", f"/containers/{engine.inspect(session)['Id']}/kill?signal=KILL")
    assert answer[0] == 204, answer
    began = time.monotonic()
    wait_until(lambda: caller.get(at(session, f"/commands/{cid}")).json["status"] != "running", 25, "its end is told")
    assert time.monotonic() - began < 12 * SLOW
    assert caller.shell(session, "echo again").text == "again\n"
    assert engine.containers()[session] == "running"
    caller.delete(at(session))


def test_limits(caller, engine):
    """What the profile says holds inside; the controls are below it."""
    session = caller.create_runtime(provider="docker", profile="component")
    limits = next(one for one in caller.get("/v1/capabilities").json["profiles"] if one["name"] == "component")
    host = engine.inspect(session)["HostConfig"]
    assert (host["Memory"], host["PidsLimit"]) == (limits["memory_bytes"], limits["pids"])
    assert caller.shell(session, "sleep 1 & sleep 1 & wait; echo ok").text == "ok\n"
    done = caller.shell(session, "i=0; while [ $i -lt 1000 ]; do sleep 5 & i=$((i+1)); done 2>/dev/null", timeout_ms=20000)
    assert b"fork" in done.err or done.code != 0, done
    count = "ls /proc | grep -c '^[0-9]'"
    assert int(caller.shell(session, count).text or 0) <= limits["pids"]
    caller.delete(at(session))
    session = caller.create_runtime(provider="docker", profile="component")
    assert caller.shell(session, "dd if=/dev/zero of=/dev/null bs=200M count=1").code == 0
    assert caller.shell(session, "dd if=/dev/zero of=/dev/null bs=1500M count=1").code != 0
    assert caller.shell(session, "ulimit -n").text == f"{limits['open_files']}\n"
    full = caller.shell(session, "dd if=/dev/zero of=/session/f bs=1M count=400")
    assert full.code != 0 and b"No space" in full.err, full
    caller.delete(at(session))


@pytest.mark.parametrize("victim", ["sandboxd-api", PROVIDER])
def test_a_worker_that_dies_takes_nothing_along(caller, service, sandbox, victim):
    service.deaths_expected = True
    caller.shell(sandbox, "echo kept > file")
    cid = begin(caller, sandbox, "sleep 4; cat file; exit 5")
    former = service.processes()
    os.kill(former[victim][0], signal.SIGKILL)
    wait_until(lambda: service.processes().get(victim, former[victim]) != former[victim], 20, "another one")
    wait_until(lambda: service.readiness() == 200, 30, "ready again")
    assert caller.shell(sandbox, "cat file").text == "kept\n"
    assert waited(caller, sandbox, cid)["exit"]["code"] == 5


def serves(service):
    try:
        return service.root.get("/healthz").status == 200
    except (OSError, http.client.HTTPException):
        return False


def test_an_engine_that_stands_still_at_a_start_loses_nothing(caller, service, sandbox, engine):
    """The control: a sandbox of native is made meanwhile."""
    service.deaths_expected = True
    caller.shell(sandbox, "echo kept > file")
    former, = service.processes()["sandboxd-api"]
    with stopped(engine.process.pid):
        os.kill(former, signal.SIGKILL)
        wait_until(lambda: service.processes().get("sandboxd-api", [former]) != [former], 20, "another one")
        wait_until(lambda: serves(service), 20, "it serves")
        assert caller.shell(caller.create_runtime(), "echo here").text == "here\n"
        assert caller.post(at(sandbox, "/commands"), {"cmd": "true"}).status == 503
    wait_until(lambda: service.readiness() == 200, 40, "ready again")
    assert caller.shell(sandbox, "cat file").text == "kept\n"


def test_the_provider_is_confined(service):
    pid, = service.processes()[PROVIDER]
    status = status_of(pid)
    assert int(status["Uid"].split()[0]) != 0
    for name in ("CapPrm", "CapEff", "CapBnd", "CapInh", "CapAmb"):
        assert int(status[name], 16) == 0, name
    assert status["NoNewPrivs"] == "1"
    if not ASAN:  # whose workers have no filter
        assert status["Seccomp"] == "2"


@pytest.mark.parametrize("more, said", [
    ("[docker]\nsocket = /run/x.sock\nimage = a\n", "environment = development"),
    ("[docker]\nsocket = /run/x.sock\n[supervisor]\nenvironment = development\n", "socket needs image"),
    ("[docker]\nsocket = run/x.sock\nimage = a\n", "absolute path"),
    ("[docker]\nsocket = /run/../x.sock\nimage = a\n", "absolute path"),
    ("[docker]\nimage = -a\n", "a name such as"),
    ("[api]\nprovider = docker\n", "needs socket"),
    ("[docker]\nsocket = /run/x.sock\nimage = a\nallow_in_production = yes\n", None),
    ("[docker]\nsocket = /run/x.sock\nimage = a:1\n[supervisor]\nenvironment = development\n[api]\nprovider = docker\n", None),
])
def test_configurations(tmp_path, more, said):
    file = tmp_path / "sandboxd.conf"
    file.write_text(more)
    done = subprocess.run([BIN / "sandboxctl", "config", "check", file], capture_output=True, text=True, check=False)
    if said:
        assert done.returncode != 0 and said in done.stderr + done.stdout, done
    else:
        assert done.returncode == 0, done


def said(caller, session, script):
    """None: it cannot be reached now, or the worker was just ending."""
    try:
        answer = caller.post(at(session, "/commands"), {"cmd": script}, headers={"Accept": "application/json"})
        return answer.json.get("stdout")
    except (OSError, http.client.HTTPException):
        return None


def test_containers_wait_for_their_engine(engine):
    """The service starts while the engine is away; what lived then is found when it comes, and not made anew."""
    daemon = Daemon(CONFIG + engine.config())
    daemon.deaths_expected = True
    try:
        wait_until(lambda: daemon.readiness() == 200, 20, "the provider is up")
        caller = daemon.client("ana")
        session = caller.create_runtime(provider="docker")
        caller.shell(session, "echo kept > file")
        os.kill(daemon.supervisor_pid(), signal.SIGKILL)
        engine.stop()
        wait_until(lambda: daemon.readiness() == 503, 30, "the service without its engine")
        answer = caller.post(at(session, "/commands"), {"cmd": "true"})
        assert (answer.status, answer.json["code"]) == (503, "provider_unavailable"), answer
        engine.start()
        wait_until(lambda: daemon.readiness() == 200, 30, "the engine is found")
        wait_until(lambda: said(caller, session, "cat file") == "kept\n", 20, "what the container has")
        assert daemon.stop() == 0
        assert session not in engine.containers()
    finally:
        daemon.done()
        if engine.process is None:
            engine.start()


def test_an_engine_that_is_away_is_no_reason_not_to_serve(engine):
    """What needs none works; readyz names the part; and it comes by itself."""
    engine.stop()
    daemon = Daemon(CONFIG + engine.config())
    daemon.deaths_expected = True
    try:
        caller = daemon.client("ana")
        assert daemon.root.get("/readyz").status == 503
        assert "provider" in daemon.root.get("/readyz").json["parts"], daemon.root.get("/readyz")
        assert engine_row(daemon)["state"] == "degraded"
        assert caller.shell(caller.create_runtime(), "echo here").text == "here\n"
        answer = caller.post(RUNTIME, {"provider": "docker"})
        assert (answer.status, answer.json["code"], answer.json["detail"]) == \
            (503, "provider_unavailable", "its provider cannot be asked"), answer
        engine.start()
        wait_until(lambda: daemon.readiness() == 200, 30, "the engine is found")
        session = caller.create_runtime(provider="docker")
        assert caller.shell(session, "echo there").text == "there\n"
        assert engine_row(daemon)["state"] == "ok"
        assert daemon.stop() == 0
        assert session not in engine.containers()
    finally:
        daemon.done()
        if engine.process is None:
            engine.start()
