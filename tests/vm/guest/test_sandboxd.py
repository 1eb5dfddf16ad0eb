"""An installed sandboxd under systemd: its units, what it limits, what a session may use up."""
import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from harness import RUNTIME, SESSIONS, name_of, status_of, wait_until
from installed import *

def test_units_verify(service):
    result = call("systemd-analyze", "verify", *UNITS, check=False)
    # The guest has no man(1) to look the pages up with.
    wrong = [line for line in result.stderr.splitlines() if "Command 'man " not in line]
    assert wrong == []


def test_systemd_stays_where_it_was(service):
    assert read("/proc/1/cgroup") == "0::/init.scope"
    assert read("/proc/self/cgroup") == "0::/system.slice/vm-checks.service"


def test_groups_are_below_the_unit_that_stays(session):
    assert read(f"/proc/{main_pid()}/cgroup") == "0::/sandboxd.slice/sandboxd.service"
    unit = TOP / "sandboxd.slice/sandboxd-sessions.service"
    assert read(unit / "cgroup.procs") == ""
    assert [name_of(int(pid)) for pid in read(unit / "holder/cgroup.procs").split()] == ["sleep"]
    assert {"cpu", "memory", "pids"} <= set(read(unit / "cgroup.subtree_control").split())
    assert instance_group().parent == unit
    assert group_of(session)


def test_host_files_are_read_only_for_the_supervisor(service):
    mounts = read(f"/proc/{main_pid()}/mountinfo").splitlines()
    usr = [line.split() for line in mounts if line.split()[4].endswith("/u")]
    assert usr and all("ro" in line[5].split(",") for line in usr), mounts
    assert status_of(main_pid())["NoNewPrivs"] == "1"
    assert status_of(main_pid())["Seccomp"] == "0"


def test_sessions_have_one_filter_and_no_program_of_the_unit(session):
    for pid in shims():
        assert status_of(pid)["Seccomp_filters"] == "1"


def test_exposure_is_not_above_what_was_reached(service):
    print(call("systemd-analyze", "--no-pager", "security", "--threshold=78",
               "sandboxd.service").stdout.splitlines()[-1])


def test_fallbacks_of_6_1_are_in_use(service):
    """What newer kernels have is not there, so the ways around it are what runs here."""
    status = call("python3", "-c", "import ctypes, os\n"
                  "libc = ctypes.CDLL(None, use_errno=True)\n"
                  "print(libc.syscall(319, b'x', 8), libc.syscall(444, None, 0, 1))")
    memfd_noexec, landlock_abi = map(int, status.stdout.split())
    assert memfd_noexec == -1 and 0 < landlock_abi < 6


def test_doctor(service):
    result = ctl("doctor", check=False)
    assert result.returncode == 0, result.stdout
    assert "missing  " not in result.stdout
    for controller in ("memory", "pids", "cpu"):
        line = [text for text in result.stdout.splitlines() if f"limit {controller}" in text]
        assert line[0].startswith("ok") and line[0].endswith("cgroup version 2"), line


# --- sessions ------------------------------------------------------------------------------------


def test_run_gives_the_status(service):
    assert ctl("run", "--", "true").returncode == 0
    assert ctl("run", "--", "sh", "-c", "exit 7", check=False).returncode == 7
    assert ctl("run", "--", "sh", "-c", "kill -9 $$", check=False).returncode == 137
    assert ctl("run", "--", "/nonexistent", check=False).returncode == 127
    result = ctl("run", "-p", "agent", "--", "sh", "-c", "id -u; echo problem >&2")
    assert (result.stdout, result.stderr) == ("1000\n", "problem\n")


def test_quickstart_with_the_installed_service(service):
    shown = call(DISK / "quickstart", "--installed", timeout=300).stdout
    assert shown.splitlines()[-1].startswith("quickstart: ok: "), shown
    assert "isolation: as promised" in shown and "nothing is left" in shown
    assert is_active("sandboxd.service") and ctl("-q", "ls").stdout == ""


def test_proof_shows_every_limit(session):
    proof = json.loads(ctl("-o", "json", "proof", session).stdout)
    text = json.dumps(proof)
    assert '"missing": []' in text or "missing" not in text, text
    # Not --deep: its probes have 20 s, too few for an emulated processor. The tests below run into
    # the limits themselves.
    assert "isolation: as promised" in ctl("proof", session).stdout


def test_limits_are_in_force(session):
    group = group_of(session)
    assert read(group / "memory.max") == str(1024 * MIB)
    assert read(group / "pids.max") == "256"
    assert read(group / "cpu.max") == "100000 100000"
    swap = group / "memory.swap.max"
    assert not swap.exists() or read(swap) == "0"
    members = [line for path in group.rglob("cgroup.procs") for line in read(path).split()]
    assert members


def test_processor_quota_holds(alice, session):
    start = time.monotonic()
    alice.shell(session, "for i in 1 2 3 4; do (while :; do :; done) & done; sleep 6; kill 0",
                timeout_ms=20000)
    used_s = events(group_of(session) / "cpu.stat")["usage_usec"] / 1e6
    assert events(group_of(session) / "cpu.stat")["nr_throttled"] > 0
    assert used_s < 1.3 * (time.monotonic() - start)


def test_fork_bomb_is_bounded(alice, session):
    other = alice.create()
    result = alice.shell(session, "f() { f | f & }; f; sleep 30", timeout_ms=5000)
    assert result.exit.get("timed_out") or result.code is not None, result
    # The session's limit refuses before the group's, which counts: see plan_user_pids.
    assert b"fork" in result.err, result
    assert int(read(group_of(session) / "pids.current")) <= 256
    assert alice.run(other, "/bin/echo", "fine").out == b"fine\n"
    wait_until(lambda: alice.run(session, "/bin/echo", "again").out == b"again\n", 60, "usable")
    alice.remove(other)


def test_frozen_session_is_removed(alice):
    made = alice.create()
    group = group_of(made)
    (group / "cgroup.freeze").write_text("1")
    wait_until(lambda: events(group / "cgroup.events")["frozen"] == 1, 10, "frozen")
    seconds, answer = timed(lambda: alice.remove(made))
    assert answer.status == 200 and seconds < 10
    wait_until(lambda: not group.exists(), 10, "the group is gone")


def test_fork_storm_is_ended(alice):
    made = alice.create()
    group = group_of(made)
    lines = alice.lines("POST", f"/v1/sandboxes/{made}/commands",
                        {"argv": ["/bin/sh", "-c", "echo go; while :; do (: &); done"]})
    next(lines)
    seconds, answer = timed(lambda: alice.remove(made))
    assert answer.status == 200 and seconds < 20
    wait_until(lambda: not group.exists(), 10, "the group is gone")
    lines.close()


# --- a session of 64 MiB -------------------------------------------------------------------------

DROP_IN = Path("/run/systemd/system/sandboxd.service.d/small.conf")
SMALL = Path("/opt/small")


@pytest.fixture
def small(service):
    """The same service with the policy of 64 MiB sessions."""
    command = (f"/usr/sbin/sandboxd --libexec-dir {SMALL} "
               "--cgroup-parent /sandboxd.slice/sandboxd-sessions.service")
    try:
        shutil.copytree("/usr/libexec/sandboxd", SMALL)
        shutil.copy(DISK / "small/policy.img", SMALL / "policy.img")
        DROP_IN.parent.mkdir(parents=True)
        DROP_IN.write_text(f"[Service]\nExecStart=\nExecStart={command}\n")
        call("systemctl", "daemon-reload")
        call("systemctl", "restart", "sandboxd.service")
        yield
    finally:
        shutil.rmtree(DROP_IN.parent, ignore_errors=True)
        shutil.rmtree(SMALL, ignore_errors=True)
        call("systemctl", "daemon-reload")
        call("systemctl", "restart", "sandboxd.service")


def oom_kills():
    return [line for line in call("dmesg").stdout.splitlines() if "oom-kill:constraint=" in line]


def test_memory_hog_dies_alone(small, alice):
    earlier = oom_kills()  # the quickstart has a session that runs out of memory, too
    other, hog = alice.create(), alice.create()
    group, pid = group_of(hog), main_pid()
    assert read(group / "memory.max") == str(64 * MIB)
    result = alice.run(hog, "python3", "-c", "x = bytearray(1 << 30); print(len(x))",
                       timeout_ms=60000)
    assert result.signal == signal.SIGKILL and result.out == b"", result
    assert events(group / "memory.events")["oom_kill"] >= 1
    assert alice.get(f"{RUNTIME}/{hog}/stats").json["oom_kills"] >= 1
    assert int(read(group / "memory.peak") if (group / "memory.peak").exists() else 0) <= 64 * MIB
    kinds = {made: {record["kind"]: record for record in
                    alice.get(f"{SESSIONS}/{made}/denials").json["denials"]} for made in (hog, other)}
    assert list(kinds[hog]) == ["memory"] and kinds[other] == {}, kinds
    assert "64 MiB" in kinds[hog]["memory"]["rule"]
    assert "64 MiB" in ctl("denials", hog).stdout
    assert events(group_of(other) / "memory.events")["oom_kill"] == 0
    assert alice.run(other, "/bin/echo", "alive").out == b"alive\n"
    assert alice.run(hog, "/bin/echo", "alive").out == b"alive\n"
    assert main_pid() == pid and state("sandboxd.service", "NRestarts")["NRestarts"] == "0"
    victims = [line for line in oom_kills() if line not in earlier]
    assert victims and all("CONSTRAINT_MEMCG" in line and hog in line for line in victims), victims
    alice.remove(other)
    alice.remove(hog)
