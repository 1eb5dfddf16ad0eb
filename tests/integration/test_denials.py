"""What a session was refused is told to whoever may see it, and says what would allow it."""
import contextlib
import os
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness import (ABSENT_ID, NOT_FOUND, RUNTIME, RUNTIME_NOT_FOUND, SESSIONS, ctl, descendants, parent_of,
                     wait_until)
from test_jobs import GO_ON, stopped_task

FIELDS = {"time", "kind", "what", "program", "rule", "source", "advice", "count"}
HOG = "import sys\nheld = []\nwhile True: held.append(bytearray(16 << 20))\n"
FORKS = "import os, signal\nsignal.signal(signal.SIGCHLD, signal.SIG_DFL)\npids = []\n" \
        "try:\n    while True:\n        pid = os.fork()\n        if pid == 0:\n            signal.pause()\n        pids.append(pid)\n" \
        "except BlockingIOError:\n    print('EAGAIN')\nfinally:\n    [os.kill(p, 9) for p in pids]\n"


def denials(client, session):
    answer = client.get(f"{SESSIONS}/{session}/denials")
    assert answer.status == 200, answer
    assert answer.json["session_id"] == session
    for record in answer.json["denials"]:
        assert set(record) == FIELDS and record["count"] > 0, record
        assert all(record[name] for name in ("what", "rule", "source", "advice")), record
    return answer.json


def of_kind(client, session, kind):
    return [record for record in denials(client, session)["denials"] if record["kind"] == kind]


def counted(client, kind):
    return int(re.search(rf'^sandboxd_denials_total{{kind="{kind}"}} (\d+)$',
                         client.get("/metrics").body.decode(), re.M)[1])


def test_nothing_was_refused_yet(alice, session):
    assert alice.run(session, "/bin/true").code == 0
    assert denials(alice, session) == {"session_id": session, "denials": [], "counts": {}, "records_dropped": 0}
    answer = alice.get(f"{RUNTIME}/{session}/denials")
    assert (answer.status, answer.json["denials"]) == (200, [])


def test_foreign_and_absent_are_the_same_404(alice, bob, session):
    for prefix, body in ((SESSIONS, NOT_FOUND), (RUNTIME, RUNTIME_NOT_FOUND)):
        for answer in (bob.get(f"{prefix}/{session}/denials"), alice.get(f"{prefix}/{ABSENT_ID}/denials")):
            assert (answer.status, answer.body) == (404, body)


def test_memory_hog_is_told_with_the_limit(alice, root, session):
    before = counted(root, "memory")
    assert alice.run(session, "python3", "-c", HOG).exit["signal"] == 9
    [record] = of_kind(alice, session, "memory")
    assert "1024 MiB" in record["rule"] and "limit memory" in record["advice"]
    assert record["program"] is None
    assert counted(root, "memory") == before + record["count"]
    count = record["count"]
    alice.run(session, "python3", "-c", HOG)
    [record] = of_kind(alice, session, "memory")
    assert record["count"] > count
    assert alice.run(session, "/bin/true").code == 0


def test_fork_bomb_is_told_with_the_limit(daemon, alice, session):
    assert alice.run(session, "python3", "-c", FORKS).text == "EAGAIN\n"
    [record] = of_kind(alice, session, "pids")
    assert "256 processes" in record["rule"]
    # By the limit that costs nothing: the control group's comes when the copy is complete.
    group, = [path for path in daemon.cgroups() if session in path and Path(path, "pids.events").exists()]
    assert Path(group, "pids.events").read_text().split()[:2] == ["max", "0"]
    assert Path(group, "pids.max").read_text() == "256\n"
    assert denials(alice, session)["counts"] == {"pids": record["count"]}


def test_timeout_names_the_command(alice, session):
    result = alice.shell(session, "sleep 30", timeout_ms=300)
    assert result.exit["timed_out"]
    [record] = of_kind(alice, session, "time")
    assert record["program"]["pid"] > 1 and record["source"] == "shim"


def test_full_folder_is_told(alice, session):
    assert alice.shell(session, "head -c 300M /dev/zero >/session/f; true").code == 0
    assert alice.write(session, "a", "type: a.B\n# " + "x" * 100000).status == 507
    [record] = of_kind(alice, session, "disk")
    assert "256 MiB" in record["rule"]


def test_output_that_was_dropped_is_told(alice, session):
    assert alice.run(session, "head", "-c", "100000", "/dev/zero", max_output=1000).exit["truncated"]
    [record] = of_kind(alice, session, "output")
    assert record["program"]["comm"] == "head" and "dropped" in record["what"]
    assert alice.run(session, "head", "-c", "1000", "/dev/zero", max_output=1000).code == 0
    assert denials(alice, session)["counts"] == {"output": 1}


def test_output_at_its_rate_is_told_while_it_runs(root, alice, session):
    before = counted(root, "output")
    with ThreadPoolExecutor() as pool:
        flood = pool.submit(alice.run, session, "timeout", "20", "yes")
        wait_until(lambda: of_kind(alice, session, "output"), 15, "told")
        [record] = of_kind(alice, session, "output")
        assert record["program"]["comm"] == "timeout" and "10240 KiB a second" in record["rule"]
        assert "limit output-rate" in record["advice"]
        alice.shell(session, "pkill yes")
        flood.result()
    assert counted(root, "output") > before


@pytest.mark.parametrize("program, kind", [(FORKS, "pids"), (HOG, "memory")])
def test_running_task_is_told_once(alice, session, program, kind):
    task = stopped_task(alice, session)
    for _ in range(2):
        alice.run(session, "python3", "-c", program)
        assert of_kind(alice, session, kind)
    alice.shell(session, GO_ON)
    frames = alice.frames(task)
    told = [frame for frame in frames if frame["message"].startswith("refused: ")]
    assert [frame["stage"] for frame in told] == ["log"], frames
    assert told[0]["metadata"]["code"] == "refused" and set(told[0]["metadata"]["denial"]) == FIELDS
    assert told[0]["metadata"]["denial"]["kind"] == kind


def test_client_prints_them(daemon, alice, session):
    alice.run(session, "python3", "-c", FORKS)
    shown = ctl(daemon, "denials", session)
    assert shown.returncode == 0, shown
    assert b"pids" in shown.stdout and b"limit pids" in shown.stdout
    wait_until(lambda: alice.remove(session).status == 200, 10, "gone")
    assert ctl(daemon, "denials", session).returncode == 3


REFUSED = "import ctypes, errno, sys\nlibc = ctypes.CDLL(None, use_errno=True)\n" \
          "for _ in range(int(sys.argv[1])):\n    assert libc.syscall(int(sys.argv[2]), 0, 0, 0, 0) == -1\n" \
          "    assert ctypes.get_errno() == errno.EPERM\nprint('EPERM')\n"
UNSHARE, PTRACE, CLONE3, SETNS = 272, 101, 435, 308


def refused(client, session, number, times=1, program="python3"):
    result = client.run(session, program, "-c", REFUSED, str(times), str(number), timeout_ms=280000)
    assert result.text == "EPERM\n", result


def test_refused_call_is_told_with_its_program(alice, root, session):
    before = counted(root, "syscall")
    refused(alice, session, PTRACE)
    wait_until(lambda: of_kind(alice, session, "syscall"), 10, "told")
    [record] = of_kind(alice, session, "syscall")
    assert record["what"] == "system call ptrace (EPERM)" and record["count"] == 1
    assert record["program"]["comm"] == "python3" and record["program"]["pid"] > 1
    assert "profile component" in record["rule"]
    assert counted(root, "syscall") == before + 1


def test_flood_of_refused_calls_is_counted_and_hurts_nobody(alice, session):
    refused(alice, session, UNSHARE, times=20000)
    wait_until(lambda: denials(alice, session)["counts"].get("syscall", 0) >= 20000, 20, "all counted")
    assert len(of_kind(alice, session, "syscall")) == 1
    assert alice.run(session, "/bin/echo", "alive").out == b"alive\n"


def test_program_name_is_hostile(alice, session):
    name = "/session/\x1b[2J\r\nevil"
    assert alice.run(session, "ln", "-s", "/usr/bin/python3", name).code == 0
    refused(alice, session, SETNS, program=name)
    wait_until(lambda: of_kind(alice, session, "syscall"), 10, "told")
    [record] = of_kind(alice, session, "syscall")
    assert record["program"]["comm"] == r"\x1b[2J\r\nevil"


def test_unknown_calls_are_not_told(alice, session):
    script = REFUSED.replace("EPERM", "ENOSYS")
    assert alice.run(session, "python3", "-c", script, "3", str(CLONE3)).text == "ENOSYS\n"
    refused(alice, session, PTRACE)
    wait_until(lambda: of_kind(alice, session, "syscall"), 10, "told")
    assert [record["what"] for record in of_kind(alice, session, "syscall")] == ["system call ptrace (EPERM)"]


def test_refused_calls_are_told_to_the_next_worker(daemon, alice, session):
    daemon.deaths_expected = True
    refused(alice, session, PTRACE)
    os.kill(daemon.worker_pid("sandboxd-api"), signal.SIGKILL)
    wait_until(daemon.ready, 20, "the worker is back")
    wait_until(lambda: alice.get(f"{SESSIONS}/{session}").status == 200, 20, "adopted")
    refused(alice, session, UNSHARE)
    wait_until(lambda: of_kind(alice, session, "syscall"), 10, "told")


def test_calls_below_a_new_spawner_are_answered(daemon, alice):
    """Its filter is another one, and what it refuses waits for whoever listens to that."""
    known = set(daemon.shim_pids())
    session = alice.create()
    refused(alice, session, PTRACE)
    [shim] = set(daemon.shim_pids()) - known
    [nursery] = [pid for pid in descendants(shim) if parent_of(pid) == shim]
    for _ in range(6):  # more than pid 1 has places for listeners
        killed = descendants(nursery)
        for pid in killed:
            with contextlib.suppress(ProcessLookupError):  # it ended with one of those before
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda ended=killed: not any(Path(f"/proc/{pid}").exists() for pid in ended), 10, "gone")
        refused(alice, session, UNSHARE)
    told = {f"system call {name} (EPERM)" for name in ("ptrace", "unshare")}
    wait_until(lambda: {record["what"] for record in of_kind(alice, session, "syscall")} == told, 10, "told")
    alice.remove(session)


def test_freeze_does_not_wait_for_an_answer(daemon, alice, session):
    [group] = [Path(path) for path in daemon.cgroups() if session in path and Path(path, "cgroup.freeze").exists()]
    with ThreadPoolExecutor() as pool:
        flood = pool.submit(refused, alice, session, UNSHARE, 100000)
        wait_until(lambda: of_kind(alice, session, "syscall"), 10, "it calls")
        for _ in range(10):
            (group / "cgroup.freeze").write_text("1")
            wait_until(lambda: "frozen 1" in (group / "cgroup.events").read_text(), 10, "frozen")
            (group / "cgroup.freeze").write_text("0")
            time.sleep(0.02)
        flood.result()
