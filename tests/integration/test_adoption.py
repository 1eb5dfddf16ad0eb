"""The supervisor or the keeper dies, or leaves: every session is adopted, or nothing of it is left."""
import http.client
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from harness import (BIN, PATIENCE, RUNTIME, SESSIONS, Daemon, cgroup_mounts, descendants, id_blocks_at_rest,
                     id_blocks_in_use, is_zombie, name_of, parent_of, status_of, wait_until)


WAIT4 = "61"  # as /proc/PID/syscall names it on x86-64


@pytest.fixture
def private(private):
    private.deaths_expected = True
    return private


def answers(daemon):
    try:
        return daemon.ready()
    except AssertionError:
        return False


def wait_dead(pid):
    wait_until(lambda: is_zombie(pid), 10, "dead")


def records(daemon):
    return sorted(p.name for p in (daemon.runtime / "private" / "sessions").glob("*"))


def shims_of(daemon):
    """Pid 1 of each session, whoever is its parent by now: the groups say it."""
    found = []
    for path in daemon.cgroups():
        if Path(path).name.count("-") != 4 or not (Path(path) / "cgroup.kill").exists():
            continue
        try:
            pids = (Path(path) / "cgroup.procs").read_text().split()
        except OSError:
            continue  # gone meanwhile
        for pid in pids:
            try:
                if status_of(pid)["NSpid"].split()[-1] == "1":
                    found.append(int(pid))
            except (FileNotFoundError, ProcessLookupError, KeyError):
                pass
    return sorted(found)


def kill_supervisor(daemon):
    worker = daemon.worker_pid("sandboxd-api")
    os.kill(parent_of(worker), signal.SIGKILL)
    wait_dead(worker)
    wait_until(lambda: answers(daemon), 20, "answers")


def kill_keeper(daemon):
    supervisor, worker = daemon.supervisor_pid(), daemon.worker_pid("sandboxd-api")
    daemon.process.kill()
    daemon.process.wait()
    wait_dead(worker)
    daemon.start()
    wait_dead(supervisor)


def end_both(daemon):
    supervisor = parent_of(daemon.worker_pid("sandboxd-api"))
    workers = [pid for pid in descendants(supervisor) if name_of(pid).startswith("sandboxd-")]
    daemon.process.send_signal(signal.SIGSTOP)  # it would start another one
    os.kill(supervisor, signal.SIGKILL)
    daemon.process.kill()
    daemon.process.wait()
    for pid in workers:  # they answer until they are dead
        wait_dead(pid)


def kill_both(daemon):
    end_both(daemon)
    daemon.start()


def leave(daemon):
    assert daemon.stop(signal.SIGUSR2) == 0
    daemon.start()


WAYS = [kill_supervisor, kill_keeper, kill_both, leave]


@pytest.mark.parametrize("way", WAYS)
def test_sessions_and_their_processes_live_on(private, way):
    caller = private.client("alice")
    sessions = [caller.create() for _ in range(3)]
    for session in sessions:
        assert caller.shell(session, f"echo {session} > /session/mark").code == 0
        caller.shell(session, "setsid sleep 1000 > /dev/null 2>&1 &")
    shims, files = shims_of(private), records(private)
    assert len(shims) == 3 and len(files) == 6
    blocks = id_blocks_at_rest(private.instance)
    for _ in range(2):
        way(private)
        assert shims_of(private) == shims and records(private) == files
        for session in sessions:
            assert caller.get(f"{SESSIONS}/{session}").status == 200
            assert caller.shell(session, "cat /session/mark").text.strip() == session
            assert caller.shell(session, "pgrep -c sleep").text.strip() == "1"
    wait_until(lambda: id_blocks_in_use(private.instance) == blocks, 10, "as many blocks are in use")
    # What is adopted ends as what was launched.
    assert caller.remove(sessions.pop()).status == 200
    os.kill(shims_of(private)[0], signal.SIGKILL)
    wait_until(lambda: len(records(private)) == 2, 5, "its end is noticed")
    assert caller.run(caller.create(), "/bin/true").code == 0


def test_proof_and_limits_are_kept(private):
    caller = private.client("alice")
    session = caller.create()
    url = f"/v1/sandboxes/{session}/proof"
    before = private.root.get(url)
    assert before.status == 200, before
    kill_supervisor(private)
    assert private.root.get(url).json == before.json
    assert caller.get(f"{SESSIONS}/{session}").json["sandbox"]["limits_effective"]


def group_of(daemon, session):
    return next(Path(p) for p in daemon.cgroups() if p.endswith(session) and (Path(p) / "cgroup.freeze").exists())


def test_frozen_session_stays_frozen_over_many_workers(private):
    """Nobody accepts in it: the connections of dead workers wait in its socket."""
    caller = private.client("alice")
    session = caller.create()
    group = group_of(private, session)
    assert caller.post(f"{RUNTIME}/{session}/suspend").json["status"] == "suspended"
    shims = shims_of(private)
    for _ in range(6):
        kill_supervisor(private)
    assert (group / "cgroup.freeze").read_text().strip() == "1" and shims_of(private) == shims
    assert caller.get(f"{RUNTIME}/{session}").json["status"] == "suspended"
    assert caller.post(f"{RUNTIME}/{session}/resume").json["resumed"] == "memory"
    assert caller.run(session, "/bin/true").code == 0 and shims_of(private) == shims


def test_frozen_session_that_is_to_run_is_thawed(private):
    """A resume whose worker died before its thaw."""
    caller = private.client("alice")
    session = caller.create()
    group = group_of(private, session)
    (group / "cgroup.freeze").write_text("1")
    kill_supervisor(private)
    assert caller.run(session, "/bin/true").code == 0
    assert (group / "cgroup.freeze").read_text().strip() == "0"


def test_without_pidfd_info():
    """As on Linux 6.1: the group's list of processes is read instead."""
    daemon = Daemon(env={"SANDBOX_KERNEL": "6.1"})
    daemon.deaths_expected = True
    try:
        caller = daemon.client("alice")
        session = caller.create()
        shims = shims_of(daemon)
        kill_both(daemon)
        assert shims_of(daemon) == shims and caller.run(session, "/bin/true").code == 0
    finally:
        daemon.done()


def test_without_a_keeper():
    """As under a service manager: the supervisor is the main process, orphans are another's."""
    daemon = Daemon(arguments=("--supervisor",))
    daemon.deaths_expected = True
    try:
        caller = daemon.client("alice")
        session = caller.create()
        shims = shims_of(daemon)
        for sig in (signal.SIGKILL, signal.SIGUSR2, signal.SIGKILL):
            worker = daemon.worker_pid("sandboxd-api")
            daemon.process.send_signal(sig)
            assert daemon.process.wait(30 * PATIENCE) == (0 if sig == signal.SIGUSR2 else -sig)
            wait_dead(worker)
            daemon.start()
            assert shims_of(daemon) == shims and caller.run(session, "/bin/true").code == 0
        assert daemon.stop() == 0
        wait_until(lambda: not daemon.leftovers(), 5, "nothing is left")
    finally:
        daemon.done()


def spoil_remove_record(folder, session):
    (folder / f"{session}.record").unlink()


def spoil_remove_socket(folder, session):
    (folder / f"{session}.sock").unlink()


def spoil_cut(folder, session):
    path = folder / f"{session}.record"
    path.write_bytes(path.read_bytes()[:-8])


def spoil_version(folder, session):
    path = folder / f"{session}.record"
    data = bytearray(path.read_bytes())
    data[4] += 1
    path.write_bytes(data)


def spoil_mode(folder, session):
    (folder / f"{session}.record").chmod(0o644)


def spoil_state(folder, session):
    """As a launch that was under way: STARTING, no pid."""
    path = folder / f"{session}.record"
    data = bytearray(path.read_bytes())
    data[36:44] = b"\1\0\0\0\0\0\0\0"
    path.write_bytes(data)


def spoil_swap(folder, session):
    """The record of another session."""
    other = next(p for p in folder.glob("*.record") if p.name != f"{session}.record")
    (folder / f"{session}.record").write_bytes(other.read_bytes())


def spoil_pid(folder, session):
    """A live process of the host."""
    path = folder / f"{session}.record"
    data = bytearray(path.read_bytes())
    pid = os.getpid().to_bytes(4, "little")
    old = bytes(data[40:44])
    data[40:44] = pid
    at = data.index(old, 44)
    data[at:at + 4] = pid
    path.write_bytes(data)


def spoil_group(folder, session):
    path = folder / f"{session}.record"
    data = bytearray(path.read_bytes())
    data[16] ^= 1
    path.write_bytes(data)


def spoil_kill(folder, session):
    """It dies while nobody looks."""
    data = (folder / f"{session}.record").read_bytes()
    pid = int.from_bytes(data[40:44], "little")
    os.kill(pid, signal.SIGKILL)
    wait_dead(pid)


SPOILS = [spoil_remove_record, spoil_remove_socket, spoil_cut, spoil_version, spoil_mode,
          spoil_state, spoil_swap, spoil_pid, spoil_group, spoil_kill]


@pytest.mark.parametrize("spoil", SPOILS)
def test_contradiction_ends_that_session_alone(private, spoil):
    caller = private.client("alice")
    good, bad = caller.create(), caller.create()
    end_both(private)
    spoil(private.runtime / "private" / "sessions", bad)
    private.start()
    assert caller.run(good, "/bin/true").code == 0
    wait_until(lambda: len(shims_of(private)) == 1, 10, "the other one has ended")
    assert records(private) == [f"{good}.record", f"{good}.sock"]
    assert not [path for path in private.cgroups() if path.endswith(bad)]
    assert id_blocks_in_use(private.instance) >= 2
    wait_until(lambda: "and is ended" in private.log.read_text(), 10, "the log says so")


@pytest.mark.parametrize("spoil", [spoil_version, spoil_remove_record])
def test_tree_of_another_release_ends_its_tasks_with_a_code(private, spoil):
    """A record of another version, and a tree without one as 0.1.0 left it."""
    caller = private.client("alice")
    session = caller.create()
    caller.write(session, "slow", "type: a.B\nattributes: [" + "1, " * 300000 + "1]\n")
    group = next(Path(p) for p in private.cgroups()
                 if p.endswith(session) and (Path(p) / "cgroup.freeze").exists())
    (group / "cgroup.freeze").write_text("1")  # so that the task cannot end before
    task = caller.execute(session)
    end_both(private)
    spoil(private.runtime / "private" / "sessions", session)
    private.start()
    frames = caller.frames(task)
    assert frames[-1]["stage"] == "error" and frames[-1]["code"] == "incompatible_upgrade", frames
    assert len([f for f in frames if f["stage"] in ("done", "error")]) == 1
    assert not shims_of(private)
    # The row is the promise: its next use makes another tree.
    assert caller.get(f"{SESSIONS}/{session}").status == 200
    assert caller.run(session, "/bin/ls", "/session/slow.yaml").code == 0


def test_launches_under_way_are_not_half_done(private):
    """Killed again and again in the middle of creates: what was answered 201 lives."""
    made, stop = [], threading.Event()

    def work(number):
        caller = private.client(f"user{number}")
        while not stop.is_set():
            try:
                answer = caller.post(SESSIONS, {}, timeout=20 * PATIENCE)
                if answer.status == 201:
                    made.append(answer.json["id"])
                time.sleep(0.05)  # not so many that there is no room for more
            except (OSError, http.client.HTTPException):
                time.sleep(0.05)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(3):
            time.sleep(0.3)
            kill_supervisor(private)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    # Of others, whose answer was cut, the end may be under way.
    wait_until(lambda: whole(private), 30, "adopted or gone")
    listed = {row["id"] for row in private.root.get(SESSIONS).json}
    assert set(made) <= listed
    names, = whole(private)
    assert set(made) <= names


def test_ceilings_count_what_was_adopted():
    config = "[identity]\ntrusted_peers = 0\n[limits]\nsessions = 2\n"
    daemon = Daemon(config=config)
    daemon.deaths_expected = True
    try:
        caller = daemon.client("alice")
        sessions = [caller.create(), caller.create()]
        kill_supervisor(daemon)
        assert caller.post(SESSIONS, {}).status == 429
        # A smaller number at the next start ends nobody.
        daemon.configure(config.replace("sessions = 2", "sessions = 1"))
        leave(daemon)
        assert all(caller.run(s, "/bin/true").code == 0 for s in sessions)
        assert caller.post(SESSIONS, {}).status == 429
        caller.remove(sessions[0])
        assert caller.post(SESSIONS, {}).status == 429
        caller.remove(sessions[1])
        caller.create()
    finally:
        daemon.done()


def test_a_configuration_that_is_wrong_ends_no_session(private):
    caller = private.client("alice")
    session = caller.create()
    shims = shims_of(private)
    good = private.config.read_text()
    assert private.stop(signal.SIGUSR2) == 0
    private.configure("[nonsense]\nx = 1\n")
    refused = start_by_hand(private, private.runtime, private.state)
    assert refused.returncode == 1 and shims_of(private) == shims
    private.configure(good)
    private.start()
    assert shims_of(private) == shims and caller.run(session, "/bin/true").code == 0


def start_by_hand(daemon, runtime, state, *more):
    return subprocess.run(
        [str(BIN / "sandboxd"), "--runtime-dir", str(runtime), "--state-dir", str(state),
         "--libexec-dir", str(BIN), "--config", str(daemon.config), *more],
        capture_output=True, timeout=30 * PATIENCE, check=False)


def test_two_on_one_directory_are_refused(private):
    caller = private.client("alice")
    other = private.home / "other"
    other.mkdir()
    for runtime, state, more in (
        (private.runtime, other, ()),
        (private.runtime, other, ("--supervisor",)),
        (private.runtime, private.state, ("--supervisor",)),
        (other, private.state, ()),
    ):
        refused = start_by_hand(private, runtime, state, *more)
        assert refused.returncode == 1, refused
        # And nothing of the first one's was touched.
        session = caller.create()
        assert caller.run(session, "/bin/true").code == 0
        caller.remove(session)


@pytest.mark.parametrize("is_parted", [False, True])
def test_started_in_another_place_ends_what_is_elsewhere(private, is_parted):
    """Its groups are not below the supervisor's own any more: the record says which they are. A suspended one may
    have a group below its own."""
    caller = private.client("alice")
    session = caller.create()
    if is_parted:
        (group_of(private, session) / "work").mkdir()
    shims = shims_of(private)
    tree = next(mount for mount in cgroup_mounts() if (mount / "cgroup.procs").exists()
                and not (mount / "tasks").exists())
    place = tree / f"sandboxd-test-{private.instance}"
    place.mkdir()
    try:
        end_both(private)
        private.arguments = ("--cgroup-parent", f"/{place.name}")
        private.start()
        assert all(is_zombie(pid) for pid in shims)
        wait_until(lambda: not [p for p in private.cgroups() if p.endswith(session) and place.name not in p], 10, "its groups go")
        assert caller.run(session, "/bin/true").code == 0  # in a new tree
        assert len(shims_of(private)) == 1
        private.stop()
    finally:
        for path in sorted(place.glob("**/"), key=lambda p: -len(p.parts)):
            path.rmdir()
        for group in private.cgroups():  # where the first one was
            for path in (Path(group) / "workers", Path(group) / "egress", Path(group)):
                if path.exists():
                    path.rmdir()


def block_state(base):
    """Of the host's table: 1 in use, 2 resting."""
    at = 64 + 32 * (base // 65536 - 8)
    return int.from_bytes(Path("/run/sandboxd-idblocks").read_bytes()[at:at + 4], "little")


def test_ids_of_a_group_elsewhere_that_does_not_end_stay_in_use(private):
    """Something is in it still, for all that anybody knows: a group inside cannot be removed."""
    caller = private.client("alice")
    session = caller.create()
    base = int(Path(f"/proc/{shims_of(private)[0]}/uid_map").read_text().split()[1])
    old = next(Path(p) for p in private.cgroups()
               if p.endswith(session) and (Path(p) / "cgroup.kill").exists())
    files = records(private)
    place = old.parent.parent / f"sandboxd-test-{private.instance}"
    place.mkdir()
    (old / "inside").mkdir()
    try:
        end_both(private)
        private.arguments = ("--cgroup-parent", f"/{place.name}")
        private.start()
        assert block_state(base) == 1 and records(private) == files
        (old / "inside").rmdir()
        leave(private)
        assert block_state(base) == 2 and not records(private) and not old.exists()
        private.stop()
    finally:
        for path in sorted(place.glob("**/"), key=lambda p: -len(p.parts)):
            path.rmdir()
        for path in (old.parent / "workers", old.parent / "egress", old.parent):
            if path.exists():
                path.rmdir()
        for group in private.cgroups():  # of version 1
            Path(group).rmdir()


def test_lost_state_directory_ends_the_sessions_of_the_lost_instance(private):
    caller = private.client("alice")
    caller.create()
    shims = shims_of(private)
    groups = private.cgroups()
    end_both(private)
    (private.state / "instance").unlink()
    private.start()
    assert all(is_zombie(pid) for pid in shims) and not records(private)
    for path in sorted(groups, key=lambda p: -len(p)):  # of an instance that never comes again
        if Path(path).exists():
            Path(path).rmdir()


def test_stop_after_a_crash_ends_what_the_crash_left(private):
    caller = private.client("alice")
    for _ in range(3):
        caller.create()
    kill_both(private)
    assert private.stop() == 0
    wait_until(lambda: not private.leftovers(), 5, "nothing is left")
    assert not shims_of(private)


def test_stop_between_two_lives_of_the_supervisor(private):
    caller = private.client("alice")
    caller.create()
    for _ in range(4):  # the pause before the next one grows
        kill_supervisor(private)
    os.kill(private.supervisor_pid(), signal.SIGKILL)
    assert private.stop() == 0, private.log.read_text()[-3000:]
    wait_until(lambda: not private.leftovers(), 5, "nothing is left")


def pending(pid, sig):
    return int(status_of(pid)["ShdPnd"], 16) >> (sig - 1) & 1


def test_stop_that_comes_when_the_supervisor_has_left(private):
    """Both words reach the keeper before it hears that the supervisor left."""
    caller = private.client("alice")
    caller.create()
    keeper, supervisor = private.process, private.supervisor_pid()
    os.kill(supervisor, signal.SIGSTOP)
    keeper.send_signal(signal.SIGUSR2)
    wait_until(lambda: pending(supervisor, signal.SIGUSR2), 10, "it is passed on")
    keeper.send_signal(signal.SIGSTOP)
    os.kill(supervisor, signal.SIGCONT)
    wait_dead(supervisor)
    assert len(shims_of(private)) == 1
    keeper.send_signal(signal.SIGTERM)
    keeper.send_signal(signal.SIGCONT)
    assert keeper.wait(30 * PATIENCE) == 0, private.log.read_text()[-3000:]
    wait_until(lambda: not private.leftovers(), 5, "nothing is left")


@pytest.mark.parametrize("word", (signal.SIGTERM, signal.SIGINT))
@pytest.mark.parametrize("told", ("keeper", "supervisor"))
def test_stop_that_the_keeper_reads_after_the_end(private, told, word):
    """Held between hearing that a child changed and asking which one, while both come."""
    private.client("alice").create()
    keeper, supervisor = private.process, private.supervisor_pid()
    tracer = subprocess.Popen(["strace", "-qq", "-p", str(keeper.pid), "-o", "/dev/null", "-e", "trace=wait4", "-e",
                               "inject=wait4:delay_enter=3600s"], stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: int(status_of(keeper.pid)["TracerPid"]) != 0, 20, "it is traced")
        os.kill(keeper.pid if told == "keeper" else supervisor, signal.SIGUSR2)
        wait_dead(supervisor)
        wait_until(lambda: Path(f"/proc/{keeper.pid}/syscall").read_text().split()[0] == WAIT4, 20, "it is held")
        keeper.send_signal(word)
    finally:
        tracer.kill()
        tracer.wait()
    assert keeper.wait(30 * PATIENCE) == 0, private.log.read_text()[-3000:]
    wait_until(lambda: not private.leftovers(), 5, "nothing is left")


def test_stop_while_the_supervisor_leaves(private):
    """It is past the sessions and waits for an egress worker, which is stopped."""
    private.arguments = ("--supervisor",)
    assert private.stop() == 0
    private.start()
    caller = private.client("alice")
    caller.create()
    api, egress = (private.worker_pid(f"sandboxd-{name}") for name in ("api", "egress"))
    os.kill(egress, signal.SIGSTOP)
    private.process.send_signal(signal.SIGUSR2)
    wait_dead(api)
    private.process.send_signal(signal.SIGTERM)
    assert private.process.wait(30 * PATIENCE) == 0
    wait_until(lambda: not private.leftovers(), 5, "nothing is left")


def test_orphans_are_reaped(private):
    """A shim whose supervisor died is the keeper's to reap."""
    caller = private.client("alice")
    caller.create()
    kill_supervisor(private)
    shim = shims_of(private)[0]
    os.kill(shim, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{shim}").exists(), 5, "it is gone, not a zombie")


CRASHES = ["user-ids", "listener", "group", "limits", "record", "send-plan", "clone", "limits-v1", "watch",
           "prove-early", "proved", "live", "end", "drained", "removed"]


def whole(daemon):
    """The names, in a tuple, where each has both its files, a row and a process; else None."""
    listed = {row["id"] for row in daemon.root.get(SESSIONS).json}
    files = records(daemon)
    names = {name.split(".")[0] for name in files}
    return (names,) if len(files) == 2 * len(names) == 2 * len(shims_of(daemon)) and names <= listed else None


@pytest.mark.slow
@pytest.mark.parametrize("step", CRASHES)
def test_supervisor_that_dies_after_a_step(step):
    """Of a launch up to `live`, then of an end: each name is adopted whole or gone whole."""
    daemon = Daemon(env={"SANDBOX_CRASH_STEP": step})
    daemon.deaths_expected = True
    try:
        caller, told, made = daemon.client("alice"), False, set()
        try:
            answer = caller.post(SESSIONS, {})
            if CRASHES.index(step) >= CRASHES.index("end"):
                assert answer.status == 201
                made = {answer.json["id"]}
                told = caller.remove(answer.json["id"]).status == 200
        except (OSError, http.client.HTTPException):
            pass
        wait_until(lambda: "supervisor died" in daemon.log.read_text(), 10, "the crash")
        wait_until(lambda: answers(daemon), 20, "answers")
        # What is known to no row is killed. Of one whose row was not written yet the end has only
        # begun when the worker answers; and the new worker's canary comes and goes as well.
        names = wait_until(lambda: whole(daemon), 30, "adopted or gone")[0]
        for session in names:
            assert caller.run(session, "/bin/true").code == 0
        if step == "end" and not told:
            # The row is closed beside the kill: where the worker died first, it lives on.
            assert names <= made
        elif step != "live":
            assert not names
    finally:
        daemon.done()
