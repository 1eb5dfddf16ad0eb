"""Six planted endpoint values, a full run with failures, then a search of the whole host."""
import json
import os
import re
import signal
from pathlib import Path

import pytest

from harness import ASAN, CONFIG, RUNTIME, SESSIONS, Daemon, ctl, descendants, name_of, wait_until
from traces import (core_limits, core_of_an_unlimited_process, files_with, is_dumpable,
                    processes_with)

MARK = "zq93mark"
SHOWN = "zq94shown"  # the control: of what may be shown, found by the same searches
DIAL = """
import socket, sys
host, port = sys.argv[1].split()
try:
    socket.create_connection((host, int(port)), timeout=20).recv(1)
except OSError:
    pass
"""
VALUES = {
    "iceberg_rest_uri": f"https://{MARK}a.example/catalog",
    "iceberg_warehouse": f"s3://{MARK}b/warehouse",
    "polaris_base_url": f"https://{MARK}c.example/api",
    "alpha_vantage_base_url": f"https://{MARK}d.example/query",
    "datahub_gms_url": f"https://{MARK}e.example/gms",
    "kafka_bootstrap": f"{MARK}f.example:9092",
}


@pytest.fixture
def private():
    started = Daemon(config=CONFIG + "[api]\njanitor_interval = 1s\n")
    started.deaths_expected = True
    yield started
    started.done()


def everything_told(daemon, caller, session, task):
    """What every reading route and every reading word of the client says."""
    root = daemon.root
    paths = [SESSIONS, RUNTIME, "/metrics", "/openapi.json", "/readyz", "/v1/capabilities",
             "/dagster/sandbox/quota", f"/dagster/sandbox/tasks/{task}",
             f"/dagster/sandbox/tasks/{task}/stream"]
    for place in (f"{SESSIONS}/{session}", f"{RUNTIME}/{session}"):
        paths += [place, *(f"{place}/{part}" for part in
                           ("tasks", "stats", "trace", "proof", "denials", "egress"))]
    told = [caller_.get(path).body for caller_ in (caller, root) for path in paths]
    for words in (("ls",), ("ls", "-o", "json"), ("show", session), ("tasks", session),
                  ("logs", task), ("top", "--once"), ("trace", session), ("proof", session),
                  ("doctor",), ("quota",), ("denials", session), ("egress", session), ("gc", "--dry-run"),
                  ("execute", session)):
        done = ctl(daemon, *words)
        told += [done.stdout, done.stderr]
    return told


def answers(caller, session):
    try:
        return caller.get(f"{SESSIONS}/{session}", timeout=5).status == 200
    except OSError:
        return False


def test_values_are_in_the_session_and_its_row_and_nowhere_else(private):
    alice = private.client("alice", workspace="blue")
    session = alice.create(env_overrides=VALUES)
    told = []
    # What is refused holds a value as well.
    for name, value in VALUES.items():
        with_user = value.replace("://", "://u:x@") if "://" in value else f"u:x@{value}"
        for wrong in (with_user, value + "\n", [value], value + " " * 4000):
            refused = alice.post(SESSIONS, {"env_overrides": {name: wrong}})
            assert refused.status == 422, (name, wrong)
            told.append(refused.body)
    told += [alice.write(session, MARK + "/../x", "type: a.B\n").body,
             alice.post(RUNTIME, {"env": {"X-Y": MARK}}).body]
    assert alice.write(session, "good", "type: a.B\n").status == 200
    assert alice.write(session, "bad", "a: [\n").status == 200
    told.append(alice.post(f"{SESSIONS}/{session}/load").body)
    task = alice.execute(session)
    told.append(json.dumps(alice.frames(task)).encode())
    for script in ("exit 3", "kill -SEGV $$", "no-such-program", "cat /proc/self/environ >&2"):
        alice.shell(session, script)
    # One worker of the service dies in the middle, and the session is found again.
    os.kill(private.worker_pid("sandboxd-api"), signal.SIGKILL)
    wait_until(lambda: answers(alice, session), 15, "the next worker answers")
    alice.shell(session, f"sh -c 'sleep 900; :' {SHOWN} >/dev/null 2>&1 &")
    # What it dials is refused, at its endpoints' hosts as well: none has an address.
    for place in ("a.example 443", "c.example 80", "f.example 9092", "f.example 1"):
        alice.run(session, "/usr/bin/python3", "-c", DIAL, MARK + place)
    wait_until(lambda: alice.get(f"{SESSIONS}/{session}/denials").json["counts"].get("network", 0) >= 4, 20,
               "the refusals")
    told += [alice.request("PUT", f"{SESSIONS}/{session}/egress", {"allow": rules}).body
             for rules in ([MARK + ":x"], [SHOWN + ".example:443"])]
    told += everything_told(private, alice, session, task)
    for text in told:
        assert MARK.encode() not in text, text[:2000]
    shown = SHOWN.encode()
    assert len([text for text in told if shown in text]) >= 4  # answers of both prefixes, the client's table
    assert processes_with(shown, "cmdline")
    assert private.database or files_with(shown, private.home)  # the control of what follows

    inside = set().union(*(descendants(shim) for shim in private.shim_pids()))
    needle = MARK.encode()
    assert processes_with(needle, "cmdline") == {}
    # The control: the commands of the session do hold them.
    holders = processes_with(needle, "environ")
    assert holders and set(holders) <= inside, holders
    log = private.log.read_bytes()
    assert needle not in log and session.encode() in log
    # In files: the protected column of the open session, and that is gone with the session.
    database = private.state / "api"
    for file in files_with(needle, private.home):
        assert Path(file).parent == database and re.match(r"api\.db(-wal)?$", Path(file).name), file
    for table in private.tables():
        for column in private.columns(table):
            # PostgreSQL shows bytes as digits.
            n, = private.sql(f"SELECT count(*) FROM {table} WHERE CAST({column} AS TEXT) LIKE ?"
                             f" OR CAST({column} AS TEXT) LIKE ?", f"%{MARK}%", f"%{needle.hex()}%")[0]
            assert n == (column == "env_overrides_json"), (table, column, n)
    alice.remove(session)
    wait_until(lambda: files_with(needle, private.home) == [], 10, "the column is empty")


CRASHES = """
import os, resource, signal
try:
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
except (ValueError, OSError):
    print("not raised")
for sig in (signal.SIGSEGV, signal.SIGABRT):
    pid = os.fork()
    if pid == 0:
        os.kill(os.getpid(), sig)
    status = os.waitpid(pid, 0)[1]
    print(os.WTERMSIG(status), os.WCOREDUMP(status))
"""


def test_a_crash_leaves_no_core(private, tmp_path):
    """Of a command; pid 1 of it and the workers, each pid 1 of its own, take no such signal from outside, and have the
    same limit. What becomes of a core is for the host's core_pattern, which no test may set: where that is a pipe, the
    kernel's word is all there is to look at, and only a limit of 1 keeps it from starting the handler."""
    needle = MARK.encode()
    assert os.WCOREDUMP(core_of_an_unlimited_process(tmp_path, MARK))
    if Path("/proc/sys/kernel/core_pattern").read_text()[0] not in "|@/":
        assert files_with(needle, tmp_path) != []
    places = [Path("/"), private.home, Path(os.readlink(f"/proc/{private.process.pid}/cwd"))]
    before = {file for place in places for file in place.glob("core*")}
    alice = private.client("alice", workspace="blue")
    session = alice.create(env_overrides=VALUES)
    assert alice.run(session, "python3", "-c", CRASHES).text == "not raised\n11 False\n6 False\n"
    for sig in ("SEGV", "ABRT"):
        assert alice.shell(session, f"kill -{sig} $$").exit["signal"] == getattr(signal, f"SIG{sig}")
    assert alice.shell(session, "ls -A /session /tmp | grep core").text == ""
    alice.shell(session, f"sh -c 'sleep 900; :' {SHOWN} >/dev/null 2>&1 &")
    [shim] = private.shim_pids()
    workers = [pid for name, pids in private.processes().items() if name != "sandboxd" for pid in pids]
    assert len(workers) >= 2 and not any(map(is_dumpable, workers))
    # The runtime of a sanitizer lowers the limit in force to 0 in each program that has it.
    allowed = [["1", "1"], ["0", "1"]] if ASAN else [["1", "1"]]
    for pid in (*workers, shim, *descendants(shim)):
        assert core_limits(pid) in allowed, name_of(pid)
    assert {file for place in places for file in place.glob("core*")} == before
    for file in files_with(needle, private.home):
        assert Path(file).parent == private.state / "api", file
