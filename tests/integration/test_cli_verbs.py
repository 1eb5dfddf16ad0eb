"""The verbs of sandboxctl for operators: lists, short ids, cleaning up, and what ends them."""
import json
import os
import pty
import re
import signal
import socket
import subprocess
import threading
import time

import pytest

from harness import BIN, PATIENCE, Daemon, ctl, descendants, wait_until


def lines(result):
    assert result.returncode == 0, result
    return result.stdout.decode().splitlines()


def make(daemon):
    return lines(ctl(daemon, "create"))[0]


@pytest.fixture
def made(daemon):
    session = make(daemon)
    yield session
    ctl(daemon, "rm", session)


def start(daemon, *words, **more):
    return subprocess.Popen([str(BIN / "sandboxctl"), "--socket", str(daemon.operator), *words],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)


def shim_of(daemon, session):
    proof = daemon.root.get(f"/v1/sandboxes/{session}/proof").json
    return proof["shim_pid"]


def test_short_ids_stand_for_the_one_session(daemon, made):
    assert json.loads(ctl(daemon, "-o", "json", "show", made[:8]).stdout)["id"] == made
    assert ctl(daemon, "exec", made[:5], "--", "/bin/true").returncode == 0
    missing = ctl(daemon, "show", "ffff0000ffff")
    assert missing.returncode == 3 and b"no session whose id begins with ffff0000ffff" in missing.stderr
    short = ctl(daemon, "show", made[:3])
    assert short.returncode == 2 and b"at least 4 characters" in short.stderr


def test_tasks_are_listed_and_have_short_ids(daemon, made):
    assert ctl(daemon, "write", "--name", "a", made, "-", stdin=b"type: a.B\n").returncode == 0
    detached = lines(ctl(daemon, "execute", "--detach", made))
    task = detached[0]
    logs = ctl(daemon, "logs", "-f", task[:8])
    assert logs.returncode == 0 and b"result: ok, 1 asset," in logs.stdout
    rows = lines(ctl(daemon, "tasks", made))
    assert rows[0].split() == ["ID", "STATUS", "CREATED", "(UTC)", "FRAMES", "CODE"]
    assert rows[1].split()[:2] == [task, "done"]
    assert lines(ctl(daemon, "-o", "name", "tasks", made)) == [task]
    assert json.loads(ctl(daemon, "-o", "json", "tasks", made).stdout)[0]["task_id"] == task


def test_names_are_one_a_line(daemon, made):
    for words in (["ls"], ["show", made], ["top", "--once"]):
        assert lines(ctl(daemon, "-o", "name", *words)) == [made], words
    assert lines(ctl(daemon, "-q", "ls"))[0].startswith(made)


def test_top_shows_who_works(daemon, made):
    idle = make(daemon)
    with start(daemon, "exec", made, "--", "/bin/sh", "-c", "while :; do :; done") as busy:
        def busy_ones():
            rows = json.loads(ctl(daemon, "-o", "json", "top", "--once").stdout)
            found = [row for row in rows if row["cpu_pct"] and row["cpu_pct"] > 5]
            # What the other one did to start may be of the first looks.
            return found if [row["id"] for row in found] == [made] else None

        rows = wait_until(busy_ones, 20, "the busy one")
        busy.send_signal(signal.SIGTERM)
        assert busy.wait(20 * PATIENCE) == 128 + signal.SIGTERM
    assert rows[0]["memory_bytes"] > 0 and rows[0]["memory_limit_bytes"] > rows[0]["memory_bytes"]
    table = lines(ctl(daemon, "top", "--once"))
    assert table[0].split() == ["ID", "OWNER", "CPU%", "CPU", "(s)", "MEM(MiB)", "MEM%", "PIDS"]
    assert {row.split()[0] for row in table[1:]} == {made, idle}
    ctl(daemon, "rm", idle)


@pytest.mark.parametrize("verb", ["watch", "top"])
def test_watching_repeats_until_interrupted(daemon, made, verb):
    with start(daemon, "-o", "json", verb, "--interval", "1") as process:
        looks = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.send_signal(signal.SIGINT)
        assert process.wait(10 * PATIENCE) == 0
    assert all(look[0]["id"] == made for look in looks)
    with start(daemon, verb, "--interval", "1") as process:
        assert process.stdout.readline().startswith(b"ID")
        process.send_signal(signal.SIGTERM)
        assert process.wait(10 * PATIENCE) == 128 + signal.SIGTERM


def test_watch_on_a_terminal_redraws_and_takes_its_size(daemon, made):
    master, slave = pty.openpty()
    with subprocess.Popen([str(BIN / "sandboxctl"), "--socket", str(daemon.operator), "watch",
                           "--interval", "600"], stdout=slave, stderr=slave, stdin=slave) as process:
        os.close(slave)
        got = b""
        while made.encode() not in got:
            got += os.read(master, 65536)
        assert b"\x1b[H\x1b[2J" in got
        process.send_signal(signal.SIGWINCH)
        got = b""
        while made.encode() not in got:
            got += os.read(master, 65536)
        process.send_signal(signal.SIGINT)
        assert process.wait(10 * PATIENCE) == 0
    os.close(master)


def test_a_reader_that_goes_away_ends_the_command_and_its_session(daemon):
    with start(daemon, "run", "--", "/usr/bin/yes") as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(20 * PATIENCE) == 128 + signal.SIGPIPE
        assert process.stderr.read() == b""
    wait_until(lambda: ctl(daemon, "-q", "ls").stdout == b"", 10, "the session is gone")


def test_execute_interrupted_cancels_the_task(daemon, made):
    ctl(daemon, "write", "--name", "a", made, "-", stdin=b"type: a.B\n")
    shim = shim_of(daemon, made)
    os.kill(shim, signal.SIGSTOP)  # the task cannot end by itself
    process = start(daemon, "execute", made)
    try:
        task = process.stdout.readline().split()[1].decode()
        process.send_signal(signal.SIGINT)
        wait_until(lambda: any("task is cancelled" in line and task in line
                               for line in daemon.log.read_text().splitlines()), 20, "the cancel was asked for")
    finally:
        os.kill(shim, signal.SIGCONT)
    assert process.wait(20 * PATIENCE) == 128 + signal.SIGINT
    assert b"the task was cancelled" in process.communicate()[1]
    frames = [json.loads(line) for line in ctl(daemon, "-o", "json", "logs", "-f", task).stdout.splitlines()]
    assert (frames[-1]["stage"], frames[-1]["code"]) == ("error", "cancelled")


def test_cancel_and_ttl(daemon, made):
    ctl(daemon, "write", "--name", "a", made, "-", stdin=b"type: a.B\n")
    shim = shim_of(daemon, made)
    os.kill(shim, signal.SIGSTOP)
    try:
        tasks = [lines(ctl(daemon, "execute", "-d", made))[0] for _ in range(2)]
        assert lines(ctl(daemon, "cancel", tasks[1][:10])) == ["error"]  # it waited
    finally:
        os.kill(shim, signal.SIGCONT)
    assert ctl(daemon, "logs", "-f", tasks[0]).returncode == 0
    assert lines(ctl(daemon, "cancel", tasks[0])) == ["done"]  # over already
    rows = lines(ctl(daemon, "-q", "tasks", made))
    assert [row.split()[-1] for row in rows if row.split()[1] == "error"] == ["cancelled"]
    followed = ctl(daemon, "logs", "-f", tasks[1])
    assert followed.returncode == 1 and b"(cancelled)" in followed.stdout
    before = json.loads(ctl(daemon, "-o", "json", "show", made).stdout)["expires_at"]
    assert lines(ctl(daemon, "ttl", made, "600"))[0] > f"expires {before}"
    for wrong in ("soon", "0"):
        refused = ctl(daemon, "ttl", made, wrong)
        assert refused.returncode == 2 and b"1 to 720" in refused.stderr
    assert ctl(daemon, "ttl", made, "100000").returncode == 4


def test_what_is_wrong_is_said(daemon, made):
    refused = ctl(daemon, "ls", "--status", "foo")
    assert refused.returncode == 2 and b"open, running or suspended" in refused.stderr
    nameless = ctl(daemon, "write", made, "-", stdin=b"type: a.B\n")
    assert nameless.returncode == 2 and b"standard input has no name" in nameless.stderr
    refused = ctl(daemon, "write", "-n", "x", made, "-", stdin=b"#" * (1024 * 1024 + 1))
    assert refused.returncode == 1 and b"larger than 1 MiB" in refused.stderr
    refused = ctl(daemon, "secret", "ls", "--state-dir", "/nowhere/state")
    assert refused.returncode == 1 and b"the state directory /nowhere/state" in refused.stderr


def test_purge_asks_and_removes_all(daemon):
    sessions = {make(daemon) for _ in range(3)}
    refused = ctl(daemon, "purge", stdin=b"")
    assert refused.returncode == 2 and b"wants --yes" in refused.stderr
    assert set(lines(ctl(daemon, "-o", "name", "ls"))) == sessions
    assert set(lines(ctl(daemon, "purge", "--yes"))) == sessions
    assert lines(ctl(daemon, "-q", "ls")) == []
    assert lines(ctl(daemon, "purge")) == []


def test_purge_asks_on_a_terminal(daemon):
    session = make(daemon)
    for answer, left in ((b"n\n", [session]), (b"y\n", [])):
        master, slave = pty.openpty()
        with subprocess.Popen([str(BIN / "sandboxctl"), "--socket", str(daemon.operator), "purge"],
                              stdin=slave, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
            os.write(master, answer)
            assert process.wait(20 * PATIENCE) == (0 if not left else 2)
            assert b"Tear down 1 sessions? [y/N]" in process.stderr.read()
        os.close(slave)
        os.close(master)
        assert lines(ctl(daemon, "-o", "name", "ls")) == left


def test_gc_removes_nothing_of_a_running_instance(daemon, made, monkeypatch):
    monkeypatch.setenv("SANDBOX_GC_ONLY", daemon.instance)  # and not for its age
    plan = json.loads(ctl(daemon, "-o", "json", "gc", "--dry-run").stdout)
    assert plan["dry_run"] is True and plan["sessions"] == []
    assert not any(daemon.instance in group for group in plan["groups"])
    before = daemon.cgroups()
    assert ctl(daemon, "gc").returncode == 0
    assert daemon.cgroups() == before
    assert ctl(daemon, "exec", made, "--", "/bin/true").returncode == 0


def test_what_an_older_service_does_not_have_is_said(daemon, tmp_path):
    older = socket.socket(socket.AF_UNIX)
    older.bind(str(tmp_path / "older.sock"))
    older.listen()

    def answer():
        client, _ = older.accept()
        with client:
            client.recv(65536)
            body = b'{"detail":"Not Found"}'
            client.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\n"
                           b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    service = threading.Thread(target=answer)
    service.start()
    try:
        result = ctl(daemon, "quota", socket_path=tmp_path / "older.sock")
    finally:
        service.join(10 * PATIENCE)
        older.close()
    assert result.returncode == 1 and b"not available" in result.stderr, result


def test_identity_comes_from_the_environment(daemon):
    env = {**os.environ, "SANDBOXCTL_USER": "alice", "SANDBOXCTL_SCOPES": "data:read data:write",
           "SANDBOXCTL_RUNTIME_DIR": str(daemon.runtime)}

    def run(*words):
        return subprocess.run([str(BIN / "sandboxctl"), *words], env=env, capture_output=True,
                              timeout=60 * PATIENCE, check=False)

    session = lines(run("create"))[0]
    assert json.loads(run("-o", "json", "show", session[:8]).stdout)["owner"] == "alice"
    assert run("--user", "bob", "show", session).returncode == 3
    assert run("gc").returncode == 4
    assert run("exec", session, "--", "/bin/sh", "-c", "exit 7").returncode == 7
    assert lines(run("-o", "name", "top", "-1")) == [session]
    assert lines(run("purge", "-y")) == [session]


def test_nobody_there_is_5_and_says_how_to_start_it(tmp_path):
    result = subprocess.run([str(BIN / "sandboxctl"), "--runtime-dir", str(tmp_path), "ls"],
                            capture_output=True, timeout=60 * PATIENCE, check=False)
    assert result.returncode == 5 and re.search(rb"start it (as root )?with: ", result.stderr)
    if b"as root" in result.stderr:
        assert result.stderr.endswith(b" sandboxd --runtime-dir %s\n" % str(tmp_path).encode())


def test_a_followed_task_survives_the_worker_of_its_stream(daemon, made):
    daemon.deaths_expected = True
    for name in range(40):
        ctl(daemon, "write", "--name", f"b{name}", made, "-", stdin=b"type: a.B\n")
    task = lines(ctl(daemon, "execute", "--detach", made))[0]
    os.kill(daemon.worker_pid("sandboxd-api"), signal.SIGKILL)
    time.sleep(0.05)
    result = ctl(daemon, "-o", "json", "logs", "-f", task)
    frames = [json.loads(line) for line in result.stdout.splitlines()]
    assert [frame["seq"] for frame in frames] == list(range(1, len(frames) + 1)), result.stderr
    assert frames[-1]["stage"] in ("done", "error")


def test_gc_removes_the_groups_of_a_dead_instance(daemon):
    dead = Daemon()
    assert ctl(dead, "create").returncode == 0
    pids = [dead.process.pid, *descendants(dead.process.pid)]
    for pid in pids:  # the keeper first, so that nothing is started again
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it ended with one of those before
    dead.process.wait()
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), 10, "all are gone")
    groups = dead.cgroups()
    assert groups

    def gc(*options):
        return json.loads(subprocess.run(
            [str(BIN / "sandboxctl"), "--socket", str(daemon.operator), "-o", "json", "gc", *options],
            env={**os.environ, "SANDBOX_GC_ONLY": dead.instance}, capture_output=True, timeout=60 * PATIENCE, check=True).stdout)

    def mine(plan):
        return {group for group in plan["groups"] if dead.instance in group}

    tops = {group for group in groups if dead.instance in os.path.basename(group)}
    assert mine(gc("--dry-run")) == tops and dead.cgroups() == groups
    assert mine(gc()) == tops and dead.cgroups() == []
    assert daemon.cgroups()
    # The instance itself comes up again and ends as ever.
    dead.start()
    dead.done()
