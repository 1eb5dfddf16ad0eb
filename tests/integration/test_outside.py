"""Our own processes as the host sees them."""
import contextlib
import fcntl
import os
import re
import signal
import struct
import subprocess
from pathlib import Path

import pytest

from harness import (ASAN, CONFIG, DATA, Daemon, SESSIONS, all_pids, cgroup_mounts, descendants, name_of,
                     namespace_of, parent_of, status_of, wait_until)

NS_GET_OWNER_UID = 0xb704

PARSERS = ("jansson", "yaml", "microhttpd", "sqlite", "curl", "inih", "hiredis", "libpq",
           "libseccomp", "systemd", "ssl", "crypto")
WORKERS = ["sandboxd-api", "sandboxd-egress"]


def caps(pid):
    fields = status_of(pid)
    return {name: int(fields[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")}


def test_only_keeper_and_supervisor_hold_capabilities(daemon, alice, session):
    host = namespace_of("self", "user")
    keeper, supervisor = daemon.process.pid, daemon.supervisor_pid()
    assert keeper != supervisor

    def others():
        found = []
        for pid in descendants(keeper):
            try:
                if pid != supervisor and namespace_of(pid, "user") == host:
                    if any(caps(pid).values()) or "0" in status_of(pid)["Uid"].split():
                        found.append((pid, name_of(pid), caps(pid)))
            except (FileNotFoundError, ProcessLookupError):
                continue
        return found

    # Copies of the supervisor that prepare a user namespace live for less than a millisecond.
    wait_until(lambda: not others(), what=f"nobody else with capabilities: {others()}")


def test_supervisor_keeps_only_what_it_needs(daemon):
    """Exactly the table of SECURITY.md; the same in the bounding set, so no exec gives more."""
    numbers = dict(re.findall(r"^#define (CAP_\w+)\s+(\d+)$",
                              Path("/usr/include/linux/capability.h").read_text(), re.M))
    text = (DATA.parents[1] / "SECURITY.md").read_text()
    rows = re.findall(r"^\| `(CAP_\w+)` \| .{10,} \|$", text, re.M)
    documented = sum(1 << int(numbers[name]) for name in rows)
    assert len(rows) == len(set(rows)) > 5
    fields = status_of(daemon.supervisor_pid())
    sets = {name: int(fields[name], 16) for name in ("CapBnd", "CapPrm", "CapEff")}
    assert sets == dict.fromkeys(sets, documented), {k: hex(v ^ documented) for k, v in sets.items()}
    assert int(fields["CapInh"], 16) == int(fields["CapAmb"], 16) == 0


def test_workers_memory_has_a_limit(daemon):
    """Whoever took one over gets no more than that, and the group's largest process ends."""
    api = daemon.worker_pid("sandboxd-api")
    line, = [line for line in Path(f"/proc/{api}/cgroup").read_text().splitlines() if ":memory:" in line] or \
        [line for line in Path(f"/proc/{api}/cgroup").read_text().splitlines() if line.startswith("0::")]
    name = line.split(":")[2].rsplit("/", 1)[1]
    assert name.endswith("workers"), line
    group, = {path for mount in cgroup_mounts() for path in mount.glob(f"**/{name}") if daemon.instance in str(path)
              and any((path / file).exists() for file in ("memory.max", "memory.limit_in_bytes"))}
    limit = next(path for path in (group / "memory.limit_in_bytes", group / "memory.max") if path.exists())
    assert int(limit.read_text()) == 3 << 29
    for file, swap in (("memory.memsw.limit_in_bytes", 3 << 29), ("memory.swap.max", 0)):
        assert not (group / file).exists() or int((group / file).read_text()) == swap, file
    script = f"open('{group}/cgroup.procs', 'w').write('0'); held = bytearray(3 << 30); print(len(held))"
    greedy = subprocess.run(["python3", "-c", script], capture_output=True, check=False)
    assert greedy.returncode == -signal.SIGKILL and greedy.stdout == b"", greedy
    assert daemon.worker_pid("sandboxd-api") == api
    outside = subprocess.run(["python3", "-c", "print(len(bytearray(3 << 30)))"], capture_output=True, check=False)
    assert outside.stdout == b"3221225472\n", outside


@pytest.mark.parametrize("name, most", [("sandboxd-api", 56), ("sandboxd-egress", 40)])
def test_workers_processes_have_a_limit(daemon, name, most):
    lines = Path(f"/proc/{daemon.worker_pid(name)}/cgroup").read_text().splitlines()
    line, = [line for line in lines if ":pids:" in line] or [line for line in lines if line.startswith("0::")]
    group, = {path for mount in cgroup_mounts() for path in mount.glob(f"**/{line.rsplit('/', 1)[1]}")
              if daemon.instance in str(path) and (path / "pids.max").exists()}
    assert (group / "pids.max").read_text() == f"{most}\n"


@pytest.mark.skipif(ASAN, reason="the sanitizer watches the gaps between variables")
def test_supervisor_shares_no_mapped_file_with_sessions(daemon):
    """A fork waits for the lock of each mapped file; sessions can keep that of theirs taken."""
    def files(pid):
        return [line for line in Path(f"/proc/{pid}/maps").read_text().splitlines()
                if "/" in line and not line.endswith(" (deleted)")]  # those are memory

    assert files(daemon.supervisor_pid()) == []
    assert any("libc" in name for name in files(daemon.process.pid))


def test_supervisor_and_keeper_map_no_parser(daemon):
    for pid in (daemon.process.pid, daemon.supervisor_pid()):
        maps = Path(f"/proc/{pid}/maps").read_text()
        assert "libc" in maps
        for name in PARSERS:
            assert name not in maps, name


@pytest.mark.parametrize("name", WORKERS)
def test_workers_are_confined(daemon, name):
    pid = daemon.worker_pid(name)
    fields = status_of(pid)
    assert "0" not in fields["Uid"].split() + fields["Gid"].split()
    assert fields["Groups"] == ""
    assert not any(caps(pid).values()) and int(fields["CapBnd"], 16) == 0
    assert fields["NoNewPrivs"] == "1"
    if not ASAN:
        assert fields["Seccomp"] == "2"
    for ns in ("mnt", "pid", "ipc", "uts"):
        assert namespace_of(pid, ns) != namespace_of("self", ns), ns
    top = {p.name for p in Path(f"/proc/{pid}/root").iterdir()}
    assert not top & {"home", "root", "var", "boot", "sys"}, top
    # At most a procfs of its own PID namespace, with nothing but its own processes.
    proc = Path(f"/proc/{pid}/root/proc")
    own = {"1", "2"} if name == "sandboxd-egress" else {"1"}  # the inspector
    assert not proc.is_dir() or {p.name for p in proc.iterdir()} <= own | {"self", "thread-self"}


def test_workers_have_different_ids(daemon):
    uids = {status_of(daemon.worker_pid(name))["Uid"].split()[0] for name in WORKERS}
    assert len(uids) == len(WORKERS)


def test_shim_and_nursery_hold_only_the_listed_capabilities(daemon, alice, session):
    listed = 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8  # kill setgid setuid setpcap
    shims = daemon.shim_pids()
    assert shims
    n_looked = 0
    for pid in [p for shim in shims for p in (shim, *descendants(shim))]:
        try:
            fields, namespace = status_of(pid), namespace_of(pid, "user")
        except (FileNotFoundError, ProcessLookupError):
            continue  # of a command that has ended, or an earlier session
        n_looked += 1
        assert namespace != namespace_of("self", "user")
        assert int(fields["CapPrm"], 16) & ~listed == 0, fields
        assert int(fields["CapBnd"], 16) & ~listed == 0, fields
        uids = {int(uid) for uid in fields["Uid"].split()}
        assert len(uids) == 1 and uids.pop() % 65536 == 65535
        assert fields["NoNewPrivs"] == "1"
    assert n_looked >= 2


def test_shim_is_not_dumpable(daemon, session):
    n_looked = 0
    for pid in daemon.shim_pids():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # of an earlier session
            # A dumpable process' files belong to its own id, the others to uid 0 of its namespace.
            assert Path(f"/proc/{pid}/mem").stat().st_uid % 65536 == 0
            n_looked += 1
    assert n_looked > 0


def test_user_namespace_counts_for_an_id_of_its_session_alone(alice, daemon):
    """The kernel adds what is used in a namespace to the counts of the id that made it (B20)."""
    sessions = [alice.create() for _ in range(2)]
    owners = set()
    # Those of earlier tests may be on their way out.
    wait_until(lambda: len(daemon.shim_pids()) == len(daemon.root.get(SESSIONS).json), 10, "each is of a session")
    shims = daemon.shim_pids()
    for pid in shims:
        fd = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY)
        answer = bytearray(4)
        fcntl.ioctl(fd, NS_GET_OWNER_UID, answer)
        os.close(fd)
        owner = struct.unpack("I", answer)[0]
        base, n = map(int, Path(f"/proc/{pid}/uid_map").read_text().split()[1:])
        assert owner == base + n, "the id of the block that is not mapped"
        assert str(owner) == status_of(pid)["Uid"].split()[0]
        owners.add(owner)
    assert len(owners) == len(shims) >= 2
    for session in sessions:
        alice.remove(session)


def test_session_processes_are_children_of_the_instance(daemon, alice, session):
    import threading

    worker = threading.Thread(target=lambda: alice.run(session, "/bin/sleep", "300"))
    worker.start()
    pid, = wait_until(lambda: [pid for pid in descendants(daemon.process.pid) if name_of(pid) == "sleep"], 10, "it runs")
    assert f"sandboxd-{daemon.instance}" in Path(f"/proc/{pid}/cgroup").read_text()
    assert parent_of(pid) != 0
    os.kill(pid, signal.SIGKILL)
    worker.join()


def test_nothing_is_mounted_in_our_namespace(daemon, alice, session):
    text = Path("/proc/self/mountinfo").read_text()
    assert daemon.instance not in text
    assert f"{daemon.runtime}" not in text


def test_logs_hold_no_endpoint_value_and_no_component_name(daemon, alice):
    session = alice.create(env_overrides={"datahub_gms_url": "https://datahub.secret.example/gms"})
    alice.write(session, "../very-secret-name", "type: a.B\n")
    alice.run(session, "/bin/true")
    alice.remove(session)
    text = daemon.log.read_text()
    assert "datahub.secret.example" not in text
    assert "very-secret-name" not in text
    for pid in descendants(daemon.process.pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            assert "datahub.secret" not in Path(f"/proc/{pid}/cmdline").read_text()


def test_runtime_directory_modes(daemon):
    private = daemon.runtime / "private"
    assert private.stat().st_mode & 0o777 == 0o700
    assert daemon.operator.stat().st_mode & 0o777 == 0o600
    assert daemon.control.stat().st_mode & 0o777 == 0o660


def test_state_files_are_not_readable_by_others(daemon):
    n_files = 0
    for path in (daemon.state / "api").rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # one of the database's, for a moment
            assert path.stat().st_mode & 0o077 == 0, path
            n_files += 1
    assert n_files > 0


def shims_of(daemon, session):
    found = []
    for pid in daemon.shim_pids():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if session in Path(f"/proc/{pid}/cgroup").read_text():
                found.append(pid)
    return found


def test_limits_are_set_in_the_cgroups(daemon, alice, session):
    limits = alice.get(f"{SESSIONS}/{session}").json["sandbox"]["limits_effective"]
    assert limits
    # Its own, beside those of earlier sessions.
    shim, = shims_of(daemon, session)
    assert f"sandboxd-{daemon.instance}" in Path(f"/proc/{shim}/cgroup").read_text()


def total_of(daemon, *names):
    """The limit that the kernel keeps over all sessions together."""
    for group in daemon.cgroups():
        # The instance's own group, of v2 or of the controller's hierarchy.
        for name in names:
            path = Path(group) / name
            if path.exists() and path.read_text().strip() != "max":
                return int(path.read_text())
    return None


def test_all_sessions_together_are_limited_by_the_kernel():
    config = CONFIG + "[limits]\nmemory = 6GiB\npids = 3000\n"
    started = Daemon(config)
    try:
        # On v2 the workers are in the same group, with an allowance of theirs.
        memory = total_of(started, "memory.limit_in_bytes", "memory.max")
        assert 6 << 30 <= memory <= 8 << 30
        assert 3000 <= total_of(started, "pids.max") <= 3096
    finally:
        started.done()


def test_all_sessions_together_leave_the_host_processes(daemon):
    host = min(int(Path(f"/proc/sys/kernel/{name}").read_text())
               for name in ("pid_max", "threads-max"))
    assert total_of(daemon, "pids.max") <= host * 4 // 5 + 96
