"""The audit: who did what, without a value; what it does when it cannot write."""
import contextlib
import hashlib
import json
import os
import signal
import socket
import stat
import subprocess

import pytest

from harness import ABSENT_ID, BIN, SESSIONS, Daemon, UnixConnection, wait_until
from test_commands_pty import attach

SECRET = "s3cr3t-value"


@pytest.fixture(scope="module")
def daemon():
    started = Daemon(config="[identity]\ntrusted_peers = 0\n[audit]\nfile_size = 64KiB\n")
    started.deaths_expected = True
    yield started
    started.done()


def path_of(daemon):
    return daemon.state / "api" / "audit.jsonl"


def lines(daemon):
    """Every line of every file, the oldest first."""
    files = [path_of(daemon).with_name(f"audit.jsonl.{n}") for n in range(7, 0, -1)]
    text = ""
    for file in [*files, path_of(daemon)]:
        with contextlib.suppress(FileNotFoundError):  # also one that has just got the next number
            text += file.read_text()
    return [json.loads(line) for line in text.splitlines()]


def of(daemon, **wanted):
    return [line for line in lines(daemon)
            if all(line.get(key) == value for key, value in wanted.items())]


def audit(daemon, *words):
    return subprocess.run(
        [str(BIN / "sandboxctl"), "audit", "--state-dir", str(daemon.state), *words],
        capture_output=True, check=False, env={"PATH": "/usr/bin:/bin"})


def test_a_life_is_told(daemon, alice):
    body = f"type: x\nattributes: {{key: {SECRET}}}\n"
    session = alice.create(env_overrides={"kafka_bootstrap": f"{SECRET}.example:9092"})
    alice.write(session, "thing", body)
    alice.post(f"{SESSIONS}/{session}/load")
    task = alice.execute(session)
    alice.frames(task)
    alice.run(session, "/bin/echo", SECRET)
    answer = alice.remove(session)
    # Of a stream that has ended the line may come a moment later.
    wait_until(lambda: of(daemon, session=session, action="command.run"), 10, "the command is told")
    told = of(daemon, session=session)
    assert [line["action"] for line in told] == [
        "session.create", "component.write", "session.load", "session.execute", "command.run",
        "session.end", "session.delete"]
    for line in told:
        assert (line["user"], line["workspace"]) == ("alice", "blue")
        assert line["time"].endswith("Z")
        if line["action"] != "session.end":
            assert line["peer_uid"] == 0 and line["status"] in (200, 201)
    create, write, _, execute, run, end, delete = told
    assert create["endpoints"] == ["kafka_bootstrap"] and create["profile"] == "component"
    assert write["component"] == "thing.yaml" and write["bytes"] == len(body)
    assert write["sha256"] == hashlib.sha256(body.encode()).hexdigest()
    assert execute["task"] == task
    assert run["program"] == "/bin/echo"
    assert end["reason"] == "deleted"
    assert delete["request"] == answer.headers["Sandbox-Request-Id"]
    assert SECRET not in path_of(daemon).read_text()


def test_refusals_are_told(daemon, alice, bob):
    session = alice.create()
    nobody = daemon.client(None)
    reader = daemon.client("rita", scopes="data:read")
    cases = [
        (nobody.post(SESSIONS), 401, None, "session.create"),
        (reader.delete(f"{SESSIONS}/{session}"), 403, session, "session.delete"),
        (bob.get(f"{SESSIONS}/{session}"), 404, session, "read"),
        (bob.get(f"{SESSIONS}/{ABSENT_ID}"), 404, ABSENT_ID, "read"),
        (alice.get("/no/such/page"), 404, None, "unknown"),
        (alice.get(SESSIONS, headers={"X_Sandbox_User": "root"}), 400, None, "read"),
        (alice.post(SESSIONS, {"ttl_minutes": 0}), 422, None, "session.create"),
    ]
    for answer, status, about, action in cases:
        assert answer.status == status, answer
        line, = of(daemon, request=answer.headers["Sandbox-Request-Id"])
        assert (line["status"], line.get("session"), line["action"]) == (status, about, action)
    assert alice.get(f"{SESSIONS}/{session}").status == 200
    assert "/no/such" not in path_of(daemon).read_text()
    alice.remove(session)


def test_a_client_that_leaves_is_told(daemon):
    """What it asked for is done all the same."""
    connection = UnixConnection(str(daemon.control))
    connection.connect()
    os.kill(daemon.supervisor_pid(), signal.SIGSTOP)  # no launch is answered
    try:
        connection.sock.sendall(
            b"POST " + SESSIONS.encode() + b" HTTP/1.1\r\nHost: x\r\nX-Sandbox-User: leaver\r\n"
            b"X-Sandbox-Scopes: data:read data:write\r\nContent-Length: 2\r\n\r\n{}")
        leaver = daemon.client("leaver")
        wait_until(lambda: b"sandboxd_sessions 1\n" in leaver.get("/metrics").body, 10, "begun")
        connection.close()
        line, = wait_until(lambda: of(daemon, user="leaver"), 10, "a line")
    finally:
        os.kill(daemon.supervisor_pid(), signal.SIGCONT)
    assert (line["action"], line["status"]) == ("session.create", 0)
    wait_until(lambda: leaver.get(f"{SESSIONS}/{line['session']}").status == 200, 10, "it is there")
    leaver.remove(line["session"])


def test_file_is_private(daemon):
    mode = path_of(daemon).stat()
    assert stat.S_IMODE(mode.st_mode) == 0o600
    assert stat.S_IMODE(path_of(daemon).parent.stat().st_mode) == 0o700


def test_hostile_words_are_escaped(daemon, alice):
    session = alice.create()
    alice.run(session, "\x1b]0;owned\x07\u202e/bin/x")
    raw = path_of(daemon).read_bytes()
    assert b"\x1b" not in raw and b"\x07" not in raw and raw.isascii()
    shown = audit(daemon, "--session", session)
    assert b"\x1b" not in shown.stdout and b"\\x1b" in shown.stdout
    alice.remove(session)


def test_the_next_worker_goes_on(daemon, alice):
    session = alice.create()
    before = len(lines(daemon))
    os.kill(daemon.worker_pid("sandboxd-api"), 9)
    wait_until(daemon.ready, 20, "the next worker serves")
    assert len(lines(daemon)) >= before
    alice.remove(session)
    assert of(daemon, session=session, action="session.delete")


def test_files_change_hands_with_the_worker(daemon):
    """The worker's ids come from a block and may be others after a start."""
    nobody = daemon.client(None)
    for _ in range(600):
        nobody.get(SESSIONS)
    daemon.stop()
    files = sorted(path_of(daemon).parent.glob("audit.jsonl*"))
    assert len(files) > 1
    for file in files:
        os.chown(file, 12345, 12345)
    daemon.start()
    before = len(lines(daemon))
    nobody.get(SESSIONS)
    assert len(lines(daemon)) == before + 1
    assert not {file.stat().st_uid for file in files} & {0, 12345}


def test_files_are_bounded(daemon):
    nobody = daemon.client(None)
    for _ in range(1000):
        nobody.get(SESSIONS)
    old = path_of(daemon).with_name("audit.jsonl.1")
    assert old.exists()
    for file in (old, path_of(daemon)):
        assert file.stat().st_size <= 64 * 1024
        assert file.read_text().endswith("\n")
    assert len(list(path_of(daemon).parent.glob("audit.jsonl*"))) <= 8


def test_a_flood_of_refusals_is_counted(daemon, alice):
    """Beyond a rate there is one line for many, so that they do not turn out what was done."""
    session = alice.create()
    # Many in one piece: however slow the machine is, they come faster than lines are allowed.
    some = 100 * f"GET {SESSIONS} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(daemon.control))
        for _ in range(80):
            connection.sendall(some)
            answers = b""
            while answers.count(b"HTTP/1.1 401 ") < 100:
                answers += connection.recv(65536)
    wait_until(lambda: sum(line["count"] for line in of(daemon, action="audit.skipped")) > 500, 20, "they are counted")
    # What succeeds is told all the same.
    alice.remove(session)
    assert of(daemon, session=session, action="session.delete")


def test_sandboxctl_audit(daemon, alice, bob):
    mine, other = alice.create(), bob.create()
    table = audit(daemon, "--session", mine[:13]).stdout.decode()
    assert mine in table and other not in table and "session.create" in table
    found = audit(daemon, "--user", "bob", "--since", "1h", "-o", "json")
    assert found.returncode == 0, found
    told = [json.loads(line) for line in found.stdout.splitlines()]
    assert {line["user"] for line in told} == {"bob"}
    assert other in {line.get("session") for line in told}
    assert audit(daemon, "--since", "2999-01-01T00:00:00").stdout == b""
    assert audit(daemon, "--since", "yesterday").returncode == 2
    assert subprocess.run([str(BIN / "sandboxctl"), "audit", "--state-dir", "/nowhere"],
                          capture_output=True, check=False).returncode == 3
    alice.remove(mine)
    bob.remove(other)


def test_a_link_is_not_followed(daemon, tmp_path):
    """The directory is the worker's: a name in it could lead anywhere."""
    api = tmp_path / "api"
    api.mkdir()
    (tmp_path / "target").write_text('{"time": "x", "user": "planted"}\n')
    (api / "audit.jsonl").write_text('{"time": "x", "user": "control"}\n')
    run = [str(BIN / "sandboxctl"), "audit", "--state-dir", str(tmp_path)]
    assert b"control" in subprocess.run(run, capture_output=True, check=False).stdout
    (api / "audit.jsonl").unlink()
    (api / "audit.jsonl").symlink_to(tmp_path / "target")
    done = subprocess.run(run, capture_output=True, check=False)
    assert done.returncode == 1 and b"planted" not in done.stdout


def test_what_cannot_be_written_shows(daemon, alice):
    """A folder in place of the file: nothing is lost in silence, and it heals by itself."""
    api = path_of(daemon).parent
    kept = api / "kept"
    path_of(daemon).rename(kept)
    kept.unlink()
    path_of(daemon).mkdir()
    wait_until(lambda: "audit" in daemon.root.get("/readyz").json.get("parts", {}), 20, "not ready")
    for _ in range(20):
        assert daemon.root.get("/readyz").status == 503
    # A line of the log takes its way through the supervisor.
    wait_until(lambda: "the audit cannot be written" in daemon.log.read_text(), 10, "the log says so")
    assert daemon.log.read_text().count("the audit cannot be written") == 1
    session = alice.create()
    text = daemon.root.get("/metrics").body.decode()
    lost = int(next(line.split()[1] for line in text.splitlines()
                    if line.startswith("sandboxd_audit_lost_total ")))
    assert lost > 0
    path_of(daemon).rmdir()
    wait_until(lambda: daemon.root.get("/readyz").status == 200, 20, "ready again")
    alice.remove(session)
    gap, = of(daemon, action="audit.gap")
    assert gap["lost"] >= lost
    assert of(daemon, action="session.delete", session=session)


def test_a_tree_that_falls_is_told(daemon, alice):
    """The session stays; what became of its processes is known."""
    session = alice.create()
    alice.run(session, "true")
    before = set(daemon.shim_pids())
    other = alice.create()
    shim, = set(daemon.shim_pids()) - before
    os.kill(shim, signal.SIGKILL)
    wait_until(lambda: of(daemon, session=other, action="session.fall"), 10, "a line")
    assert alice.run(other, "true").code == 0
    assert [line["reason"] for line in of(daemon, session=other, action="session.fall")] == ["lost"]
    alice.remove(session)
    alice.remove(other)


def test_a_tree_that_ended_for_its_memory_says_so(daemon, alice):
    """Its socket ends first; why is known when the supervisor has looked at its group."""
    before = set(daemon.shim_pids())
    session = alice.create()
    shim, = set(daemon.shim_pids()) - before
    hog = "x = []\nwhile True: x.append(b'y' * (16 << 20))"
    assert alice.run(session, "/usr/bin/python3", "-c", hog).signal == signal.SIGKILL
    os.kill(shim, signal.SIGKILL)
    wait_until(lambda: of(daemon, session=session, action="session.fall"), 10, "a line")
    assert [line["reason"] for line in of(daemon, session=session, action="session.fall")] == ["memory"]
    alice.remove(session)


@pytest.fixture
def roomy():
    """Its files do not fill up in a test."""
    started = Daemon()
    yield started
    started.done()


def test_a_torn_line_costs_itself_alone(roomy):
    """What a loss of power left of the last line does not take the next one with it."""
    alice = roomy.client("alice")
    alice.remove(alice.create())
    path = wait_until(lambda: path_of(roomy).exists() and path_of(roomy), 10, "the file")
    owner = path.stat()
    torn = path.with_name("torn")
    torn.write_text('{"time": "torn')
    torn.chmod(0o600)
    os.chown(torn, owner.st_uid, owner.st_gid)
    torn.replace(path)

    def told():
        alice.remove(alice.create())
        return path.read_text().splitlines()[1:]

    found = wait_until(told, 20, "the file is opened anew")
    assert path.read_text().startswith('{"time": "torn\n')
    assert json.loads(found[0])["action"] in ("session.create", "session.end", "session.delete")
    path.unlink()
    wait_until(path.exists, 20, "another file")


def test_what_is_told_to_a_command_names_the_command(daemon, alice):
    """Also who attaches, who reads and writes it; what only reads is not told."""
    session = alice.create_runtime()
    path = f"/v1/sandboxes/{session}/commands"
    made = alice.post(path, {"cmd": "sleep 300", "background": True})
    assert made.status == 201, made
    command = made.json["command_id"]
    assert alice.get(f"{path}/{command}").status == 200
    attach(alice, session, command, ['{"type":"signal","signal":"KILL"}'])
    assert alice.post(f"{path}/{command}/signal", {"signal": "KILL"}).status == 409
    told = wait_until(lambda: of(daemon, session=session, action="command.signal")
                      and of(daemon, session=session, command=command), 10, "told")
    assert [(line["action"], line["status"]) for line in told] == [
        ("command.run", 201), ("command.attach", 101), ("command.signal", 409)]
    alice.delete(f"/v1/sandboxes/{session}")


def test_a_connection_of_airbyte_is_no_task(daemon, alice):
    connection = "0f9a4a6e-6a4c-4a4e-9f5e-1a2b3c4d5e6f"
    path = f"/dagster/sandbox/airbyte-connections/{connection}"
    assert alice.request("PUT", path, {"name": "Shop"}).status == 200
    assert alice.delete(path).status == 200
    told = of(daemon, connection=connection)
    assert [line["action"] for line in told] == ["airbyte.put", "airbyte.delete"]
    assert all("task" not in line for line in told)
