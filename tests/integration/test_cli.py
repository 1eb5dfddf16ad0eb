"""sandboxctl against the real service."""
import json
import os
import pty
import signal
import subprocess
import time
from pathlib import Path

from harness import ABSENT_ID, BIN, DATA, PATIENCE, ctl, wait_until


def test_run_prints_output_and_takes_the_status(daemon):
    result = ctl(daemon, "run", "--", "/bin/sh", "-c", "echo out; echo err >&2; exit 9")
    assert (result.returncode, result.stdout, result.stderr) == (9, b"out\n", b"err\n")
    assert ctl(daemon, "run", "--", "/bin/sh", "-c", "kill -9 $$").returncode == 137
    assert ctl(daemon, "-q", "ls").stdout == b""


def test_run_takes_environment_and_input(daemon):
    result = ctl(daemon, "run", "--env", "A=1", "--env", "B=x=y", "--stdin", "--", "/bin/sh", "-c",
                 "echo $A $B; cat", stdin=b"typed\n")
    assert result.stdout == b"1 x=y\ntyped\n", result


def test_values_can_come_from_files(daemon, tmp_path):
    value = tmp_path / "value"
    value.write_text("http://catalog.example:8181/api\n", encoding="ascii")
    made = ctl(daemon, "create", "--endpoint", f"iceberg_rest_uri=@{value}").stdout.decode().strip()
    shown = ctl(daemon, "exec", made, "--", "/bin/sh", "-c", "echo $ALPHASWARM_ICEBERG_REST_URI").stdout
    assert shown == b"http://catalog.example:8181/api\n"
    shown = ctl(daemon, "exec", "-e", f"PLACE=@{value}", made, "--", "/bin/sh", "-c", "echo $PLACE")
    assert shown.stdout == b"http://catalog.example:8181/api\n"
    missing = ctl(daemon, "exec", "-e", "PLACE=@/nonexistent", made, "--", "true")
    assert missing.returncode == 2 and b"cannot read /nonexistent" in missing.stderr
    assert ctl(daemon, "rm", made).returncode == 0
    missing = ctl(daemon, "create", "--endpoint", "iceberg_rest_uri=@/nonexistent")
    assert missing.returncode == 2 and b"cannot read /nonexistent" in missing.stderr
    for options in (("--env", b"A=\xff"), ("--env", b"\xff=A"), ("--secret", b"\xff")):
        refused = ctl(daemon, "create", *options)
        assert refused.returncode == 2 and b"not UTF-8" in refused.stderr, options
    assert ctl(daemon, "-q", "ls").stdout == b""


def test_run_of_a_missing_program_is_127(daemon):
    assert ctl(daemon, "run", "--", "/nonexistent").returncode == 127
    assert ctl(daemon, "run", "--", "/etc/passwd").returncode == 126
    assert ctl(daemon, "run", "-C", "/nonexistent", "--", "true").returncode == 126
    assert ctl(daemon, "-q", "ls").stdout == b""


def test_a_command_that_lost_its_session_is_1(daemon):
    made = ctl(daemon, "create").stdout.decode().strip()
    with subprocess.Popen([str(BIN / "sandboxctl"), "--socket", str(daemon.operator), "exec", made, "--", "/bin/sh",
                           "-c", "echo started; sleep 60"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"started\n"
        assert ctl(daemon, "rm", made).returncode == 0
        assert process.wait(15 * PATIENCE) == 1 and process.stderr.read() == b"sandboxctl: session ended\n"


def test_run_interrupted_removes_its_session(daemon):
    with subprocess.Popen(
        [str(BIN / "sandboxctl"), "--socket", str(daemon.operator), "run", "--", "/bin/sleep", "60"]
    ) as process:
        wait_until(lambda: ctl(daemon, "-q", "ls").stdout, 10, "the session exists")
        process.send_signal(signal.SIGINT)
        assert process.wait(15 * PATIENCE) == 128 + signal.SIGINT
    wait_until(lambda: ctl(daemon, "-q", "ls").stdout == b"", 5, "the session is gone")


def test_run_interrupted_while_its_session_is_made_removes_it(daemon):
    supervisor = daemon.supervisor_pid()
    os.kill(supervisor, signal.SIGSTOP)
    try:
        process = subprocess.Popen([str(BIN / "sandboxctl"), "--socket", str(daemon.operator),
                                    "run", "--", "/bin/sleep", "60"])
        # It has asked for the session once the worker has read the request.
        wait_until(lambda: b'sandboxd_sessions_by_state{state="creating"} 1\n' in daemon.root.get("/metrics").body, 10,
                   "the session is being made")
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
    finally:
        os.kill(supervisor, signal.SIGCONT)
    assert process.wait(15 * PATIENCE) == 128 + signal.SIGINT
    wait_until(lambda: ctl(daemon, "-q", "ls").stdout == b"", 5, "the session is gone")


def test_load_prints_problems_and_fails_where_nothing_was_loaded(daemon, tmp_path):
    session = ctl(daemon, "create").stdout.decode().strip()
    document = tmp_path / "broken.yaml"
    document.write_text("type: [\n")
    assert ctl(daemon, "write", session, str(document)).returncode == 0
    result = ctl(daemon, "load", session)
    assert (result.returncode, result.stdout) == (0, b"sandbox/broken\n")
    assert result.stderr.startswith(b"sandboxctl: broken.yaml:"), result
    assert ctl(daemon, "exec", session, "--", "/bin/chmod", "000", "/session").returncode == 0
    result = ctl(daemon, "load", session)
    assert (result.returncode, result.stdout) == (1, b"")
    assert b"components: the loader failed at step cwd: EACCES" in result.stderr
    assert ctl(daemon, "rm", session).returncode == 0


def test_component_commands(daemon, tmp_path):
    session = ctl(daemon, "create", "--ttl", "5").stdout.decode().strip()
    document = tmp_path / "demo.yaml"
    document.write_text("type: demo.Thing\n")
    assert ctl(daemon, "write", session, str(document)).returncode == 0
    assert ctl(daemon, "write", "--name", "other", session, "-", stdin=b"type: a.B\n").returncode == 0
    broken = DATA / "components"
    assert broken.is_dir()
    assert ctl(daemon, "load", session).stdout == b"sandbox/demo\nsandbox/other\n"
    result = ctl(daemon, "execute", session)
    assert result.returncode == 0, result
    text = result.stdout.decode()
    assert "[2/2] materialising sandbox/other" in text
    assert "result: ok, 2 assets, 0 documents with problems; manifest only: nothing was materialised" in text
    task = text.splitlines()[0].split()[1]
    logs = ctl(daemon, "logs", "-f", task)
    assert logs.returncode == 0 and b"materialising sandbox/demo" in logs.stdout
    frames = [json.loads(line) for line in ctl(daemon, "-o", "json", "logs", task).stdout.splitlines()]
    assert frames[-1]["stage"] == "done"
    assert b"result: ok, 2 assets" in ctl(daemon, "logs", task).stdout
    shown = json.loads(ctl(daemon, "-o", "json", "show", session).stdout)
    assert shown["id"] == session
    lines = ctl(daemon, "show", session).stdout.decode().splitlines()
    assert "asset_keys        sandbox/demo, sandbox/other" in lines and "workspace_id      -" in lines
    assert session in ctl(daemon, "ls").stdout.decode()
    assert ctl(daemon, "exec", session, "--", "/bin/ls", "/session").stdout.decode().split()[:1]
    assert ctl(daemon, "rm", session).returncode == 0
    assert ctl(daemon, "rm", session).returncode == 3


def test_refused_name_is_4_and_echoes_nothing(daemon, tmp_path):
    session = ctl(daemon, "create").stdout.decode().strip()
    document = tmp_path / "a b.yaml"
    document.write_text("type: a.B\n")
    result = ctl(daemon, "write", session, str(document))
    assert result.returncode == 4
    assert result.stderr == b"sandboxctl: invalid component name (HTTP 400)\n"
    ctl(daemon, "rm", session)


def test_exit_statuses(daemon, tmp_path):
    assert ctl(daemon, "show", ABSENT_ID).returncode == 3
    assert ctl(daemon, "show", "../../healthz").returncode == 3
    assert ctl(daemon, "nonsense").returncode == 2
    assert ctl(daemon, "show").returncode == 2
    assert ctl(daemon, "ls", "--nonsense").returncode == 2
    assert ctl(daemon, "ls", socket_path=tmp_path / "none.sock").returncode == 5
    assert ctl(daemon, "ls", "--user", "alice").returncode == 4
    assert ctl(daemon, "--user", "alice", "--scopes", "data:read", "janitor",
               socket_path=daemon.control).returncode == 4
    assert ctl(daemon, "--user", "alice", "--scopes", "data:read", "ls",
               socket_path=daemon.control).returncode == 0
    assert ctl(daemon, "janitor").returncode == 0
    assert ctl(daemon, "version").returncode == 0


def test_trace_and_proof(daemon):
    session = ctl(daemon, "create").stdout.decode().strip()
    trace = ctl(daemon, "trace", session)
    assert trace.returncode == 0 and len(trace.stdout.splitlines()) > 10
    proof = ctl(daemon, "proof", session)
    assert proof.returncode == 0, proof.stdout.decode()
    assert b"isolation: as promised" in proof.stdout and b"WRONG" not in proof.stdout
    rows = json.loads(ctl(daemon, "-o", "json", "proof", session).stdout)
    assert rows["ok"] is True and len(rows["rows"]) >= 15
    ctl(daemon, "rm", session)


def on_terminal(daemon, *words, stderr=False, **env):
    """Standard output of sandboxctl on a terminal, and standard error if wanted."""
    master, slave = pty.openpty()
    with subprocess.Popen([str(BIN / "sandboxctl"), "--socket", str(daemon.operator), *words],
                          stdout=slave, stderr=slave if stderr else subprocess.DEVNULL,
                          stdin=subprocess.DEVNULL, env={**os.environ, **env}) as run:
        os.close(slave)
        got = b""
        try:
            while True:
                more = os.read(master, 65536)
                if not more:
                    break
                got += more
        except OSError:
            pass
        run.wait(20 * PATIENCE)
    os.close(master)
    return got


def test_output_is_escaped_on_a_terminal_unless_raw(daemon):
    hostile = ["run", "--", "/usr/bin/printf", r"\033]0;pwned\007\033[2J\302\233größe\n"]
    shown = on_terminal(daemon, *hostile)
    assert b"\x1b" not in shown and b"\x07" not in shown and b"\xc2\x9b" not in shown
    assert "größe".encode() in shown and b"pwned" in shown
    assert b"\x1b[2J" in on_terminal(daemon, "--raw", *hostile)
    session = ctl(daemon, "create").stdout.decode().strip()
    ctl(daemon, "cp", "-", f"{session}:/session/x", stdin="\033]0;pwned\007\033[2J\u009bgröße\n".encode())
    copy = ("cp", f"{session}:/session/x", "-")
    shown = on_terminal(daemon, *copy)
    assert b"\x1b" not in shown and b"\x07" not in shown and b"\xc2\x9b" not in shown
    assert "größe".encode() in shown and b"pwned" in shown
    assert b"\x1b[2J" in on_terminal(daemon, "--raw", *copy) and b"\x1b[2J" in ctl(daemon, *copy).stdout
    ctl(daemon, "rm", session)


def test_execute_has_a_bar_on_a_terminal_only(daemon):
    session = ctl(daemon, "create").stdout.decode().strip()
    for name in "ab":
        ctl(daemon, "write", "--name", name, session, "-", stdin=b"type: a.B\n")
    ctl(daemon, "load", session)
    shown = on_terminal(daemon, "execute", session, stderr=True)
    assert b"[############            ] 1 of 2" in shown and b"\r\x1b[K" in shown
    assert b"[2/2]" in shown and b"result: ok, 2 assets" in shown
    assert b"#" not in on_terminal(daemon, "-q", "execute", session, stderr=True)
    piped = ctl(daemon, "execute", session)
    assert b"\x1b" not in piped.stdout and piped.stderr == b""
    ctl(daemon, "rm", session)


def test_colour_is_for_terminals_without_no_color(daemon):
    assert b"\x1b[32mok" in on_terminal(daemon, "doctor", TERM="xterm", NO_COLOR="")
    for env in ({"TERM": "xterm", "NO_COLOR": "1"}, {"TERM": "dumb"}):
        shown = on_terminal(daemon, "doctor", **env)
        assert b"ok" in shown and b"\x1b" not in shown
    assert b"\x1b" not in subprocess.run([str(BIN / "sandboxctl"), "doctor"], capture_output=True, check=False,
                                         env={**os.environ, "TERM": "xterm"}).stdout


def test_output_is_not_changed_in_a_pipe(daemon):
    result = ctl(daemon, "run", "--", "/usr/bin/printf", r"\033\000\377")
    assert result.stdout == b"\x1b\x00\xff"


def test_doctor_needs_no_service():
    result = subprocess.run([str(BIN / "sandboxctl"), "-o", "json", "doctor"], capture_output=True,
                            check=False, timeout=10 * PATIENCE)
    rows = json.loads(result.stdout)
    assert {row["state"] for row in rows} <= {"ok", "degraded", "missing"}
    assert {"kernel", "landlock", "namespace counts", "filter memory", "process ids", "inotify", "descriptors",
            "passed descriptors", "egress programs", "swap", "systemd", "canary"} <= {row["name"] for row in rows}
    for row in rows:
        assert row["state"] == "ok" or (row["cost"] and row["mend"]), row
    # What sessions have counts for their own ids: the kernel's default is enough for any number of them.
    enough = int(Path("/proc/sys/fs/inotify/max_user_instances").read_text(encoding="ascii")) >= 128
    assert [row["state"] for row in rows if row["name"] == "inotify"] == ["ok" if enough else "degraded"]
    assert result.returncode == int(any(row["state"] == "missing" for row in rows))
