"""C: channels. E: life of sessions and processes."""
import contextlib
import json
import os
import pty
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

from places import BUILD, INSIDE, evil_daemon, PROGRAM_TEXT, executables, harness, host_process, landlock_abi, outside, steps
from table import row

import test_adoption as adoption  # places.py has set where it is found


LANDLOCK = landlock_abi()


@row("C1", "connect to abstract sockets of the host", "network namespace", "–")
def abstract(t):
    name = f"escape-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("\0" + name)
        listener.listen()
        listener.settimeout(0.5)
        names = {line.split()[-1][1:] for line in Path("/proc/net/unix").read_text().splitlines()
                 if line.split()[-1].startswith("@")}
        names |= {name, "/containerd-shim/x.sock"}
        t.refused(t.session().attack("abstract", *sorted(names)), "ECONNREFUSED")
        try:
            listener.accept()
            t.wrong("the listener was reached")
        except socket.timeout:
            pass
        if t.controls:
            t.succeeds(outside("abstract", name, private=False))
            listener.accept()


@row("C2", "connect to a socket file below a read-only tree", "such files are covered")
def socket_files(t):
    inside = t.session()
    found = inside.attack("socket-files", "/", t.daemon.control, "/run/docker.sock",
                          "/run/dbus/system_bus_socket")
    t.refused(found, {"*": "ENOENT", "socket files": "0", "devices": "0", "setuid files": "0"})
    # A tree that has some: our own mount namespace gets another /usr for a moment.
    folder = PROGRAM_TEXT.folder / "usr"
    for name in ("fs", ):
        (folder / name).mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", folder / "fs"], check=True)
    for name in ("upper", "work"):
        (folder / "fs" / name).mkdir()
    place = folder / "fs" / "upper" / "share" / "escape-probe"
    place.mkdir(parents=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(place / "socket"))
    listener.listen()
    os.chmod(place / "socket", 0o777)
    os.mknod(place / "device", 0o20666, os.makedev(1, 3))
    os.mknod(place / "fifo", 0o10666)
    (place / "setuid").write_bytes(PROGRAM_TEXT.path.read_bytes())
    os.chmod(place / "setuid", 0o4755)
    (place / "private").write_text("secret")
    os.chmod(place / "private", 0o600)
    (place / "public").write_text("public")
    subprocess.run(["mount", "-t", "overlay", "none", "/usr", "-o",
                    f"lowerdir=/usr,upperdir={folder}/fs/upper,workdir={folder}/fs/work"],
                   check=True)
    try:
        daemon = t.daemons.get(env={"ESCAPE_USR": "1"})
    finally:
        subprocess.run(["umount", "-l", "/usr"], check=True)
    client = daemon.client("alice")
    made = client.create()
    client.shell(made, f"base64 -d | gzip -d > {INSIDE} && chmod 755 {INSIDE}",
                 stdin=PROGRAM_TEXT.text)
    below = "/usr/share/escape-probe"
    got = steps(client.run(made, INSIDE, "socket-files", below, f"{below}/socket").text)
    t.refused(got, {"socket files": "0", "devices": "0", "setuid files": "0",
                    f"{below}/socket": "ENOENT|ENOTSOCK|ECONNREFUSED|EACCES"})
    t.check(client.run(made, "/bin/cat", f"{below}/public").text == "public", "the tree is there")
    t.check("secret" not in client.run(made, "/bin/cat", f"{below}/private").text, "a private file")
    client.remove(made)
    if t.controls:
        got = outside("socket-files", place, place / "socket", private=False)
        t.succeeds(got, {"socket files": "1", "devices": "1", "setuid files": "1",
                         str(place / "socket"): "ok"})
    listener.close()
    subprocess.run(["umount", "-l", folder / "fs"], check=True)


@row("C3", "pass descriptors to whoever reads the output", "pipes, no socket")
def pass_descriptors(t):
    t.refused(t.session().attack("pass-descriptor"), "ENOTSOCK")
    if t.controls:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with ours, theirs:
            subprocess.run([PROGRAM_TEXT.path, "pass-descriptor"], stdin=theirs,
                           stdout=subprocess.DEVNULL, check=False)
            got = socket.recv_fds(ours, 16, 4)
            t.worked(len(got[1]) == 1, "no descriptor came over a socket")
            for fd in got[1]:
                os.close(fd)


@row("C4", "forge frames on the control channel", "held by the shim alone", "hidepid; other id")
def forge_frames(t):
    inside = t.session()
    t.refused(inside.attack("forge-frames"), "0")
    t.refused({"fd/3 of 1": inside.attack("memory-of", 1)["fd/3 of 1"]}, "ENOENT")
    t.check(inside.shell("echo alive").text == "alive\n", "the session is hurt")
    if not t.controls:
        return
    read_end, write_end = os.pipe()
    try:
        t.succeeds(outside("forge-frames", private=False, pass_fds=(write_end,)), "1")
        t.worked(len(os.read(read_end, 64)) == 24, "no frame came")
    finally:
        os.close(read_end)
        os.close(write_end)
    seen = t.session("hidepid").attack("memory-of", 1)
    t.holds({"fd/3 of 1": seen["fd/3 of 1"]}, "EACCES")


@row("C5", "look around by netlink", "seccomp; network namespace", "network namespace (names)")
def netlink(t):
    inside = t.session()
    t.refused(inside.attack("netlink"), {"*": "EAFNOSUPPORT", "netlink 0": "ok"})
    names = "import socket; print(*[n for _, n in socket.if_nameindex()])"
    t.refused({"interfaces": inside.client.run(inside.id, "python3", "-c", names).text.strip()},
              "lo")
    if not t.controls:
        return
    got = outside("netlink")
    present = {step: result for step, result in got.items() if result == "ok"}
    t.succeeds(present)
    t.no_control(f"{len(got) - len(present)} protocols: EPROTONOSUPPORT of this kernel")
    seen = subprocess.run(["unshare", "-n", "sh", "-c", "ip link add escape0 type veth; "
                           f"python3 -c '{names}'"], capture_output=True, text=True, check=False)
    t.worked("escape0" in seen.stdout, f"interfaces of another namespace: {seen}")
    off = t.session("seccomp")
    t.holds({"interfaces": off.client.run(off.id, "python3", "-c", names).text.strip()}, "lo")


def ctl_on_terminal(daemon, *words):
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [str(BUILD / "bin" / "sandboxctl"), "--socket", str(daemon.operator), *words],
        stdin=subprocess.DEVNULL, stdout=follower, stderr=follower)
    os.close(follower)
    got = b""
    while True:
        try:
            more = os.read(leader, 4096)
        except OSError:
            break
        if not more:
            break
        got += more
    process.wait(30 * harness.PATIENCE)
    os.close(leader)
    return got


@row("C6", "control an operator's terminal by output", "sandboxctl escapes", control="a pipe: raw")
def terminal_output(t):
    evil = "printf '\\033]0;owned\\007\\033[31m\\302\\233x\\r\\n'"
    shown = ctl_on_terminal(t.daemon, "run", "--", "/bin/sh", "-c", evil)
    dangerous = sum(shown.count(byte) for byte in (b"\x1b", b"\x07", b"\xc2\x9b"))
    t.refused({"control bytes on the terminal": str(dangerous)}, "0")
    t.check(b"owned" in shown, f"the text itself is missing: {shown!r}")
    if t.controls:
        plain = harness.ctl(t.daemon, "run", "--", "/bin/sh", "-c", evil).stdout
        t.worked(b"\x1b]0;owned\x07" in plain, f"{plain!r}")


@row("C7", "forge log lines by names", "values escaped, one record a line",
     control="the same text to a plain writer")
def log_lines(t):
    forged = 'x\n{"level":"error","message":"forged"}\x1b[2J'
    inside = t.session()
    for name in (forged, forged + ".yaml", "\r\nforged"):
        inside.client.post(f"{harness.SESSIONS}/{inside.id}/components", {"name": name, "body": "a: b"})
    inside.client.run(inside.id, forged)
    inside.client.run(inside.id, "/bin/true", cwd="/" + forged)
    inside.client.get(harness.SESSIONS, headers={"Sandbox-Request-Id": "x;forged=1"})
    inside.client.get("/%0a%7bforged")
    log = t.daemon.log.read_bytes()
    lines = [line for line in log.split(b"\n") if b"forged" in line and line.startswith(b"{")
             or b"\x1b" in line or line.startswith(b"forged")]
    t.refused({"forged lines": str(len(lines))}, "0")
    if t.controls:
        t.worked(len([line for line in ("name=" + forged).split("\n") if line.startswith("{")]) == 1,
                 "the text makes no line")


@row("C8", "signal pid 1, its children, everything", "other id; PID namespace", "Landlock scope")
def signals(t):
    inside = t.session()
    t.refused(inside.attack("signal", 1, "parent"), "EPERM")
    inside.shell("kill -9 -1; kill -STOP -1; true")
    t.refused({"after kill -1": inside.shell("echo alive").text.strip()}, "alive")
    if not t.controls:
        return
    with host_process() as victim:
        t.succeeds(outside("signal", victim.pid, private=False))
        # TERM is sent first; which of the two ends it depends on when it is asked to stop.
        t.worked(victim.wait(60) in (-signal.SIGKILL, -signal.SIGTERM), "the victim lives")
    weak = t.session("landlock")
    t.holds(weak.attack("signal", 1, "parent"), "EPERM")
    # Only Landlock left: a command with KILL over the ids of its session, the shim's too.
    ask = "import os; os.kill(1, 0); print('ok')"
    for off, want in (("caps", "EPERM"), ("caps,landlock", "ok")):
        weak = t.session(off)
        result = weak.client.run(weak.id, "/usr/bin/python3", "-c", ask)
        got = {"signal 0 to 1": "EPERM" if "PermissionError" in result.err.decode()
               else result.text.strip()}
        if want == "ok":
            t.succeeds(got)
        elif LANDLOCK >= 6:
            t.holds(got, want)


# --- E


def accounted(daemon, client, known):
    """Every session is either answered and alive, or gone with all it had."""
    groups = {Path(path).name for path in daemon.cgroups()}
    for session in known:
        status = client.get(f"{harness.SESSIONS}/{session}").status
        alive = False
        if status == 200:
            try:
                alive = client.run(session, "/bin/true", timeout=10).code == 0
            except (OSError, AssertionError):
                alive = False
        if alive != (session in groups):
            yield f"session {session}: status {status}, alive {alive}, group {session in groups}"


@row("E1", "kill -9 of each process of ours, under load", "adopt or clean up",
     control="a session before and after")
def killed(t):
    daemon = harness.Daemon()
    daemon.deaths_expected = True
    try:
        client = daemon.client("alice")
        for victim in ("sandboxd-egress", "sandboxd-api", "supervisor"):
            known = [client.create() for _ in range(4)]
            t.worked(client.run(known[0], "/bin/true").code == 0, "it does not run")
            load = threading.Thread(target=lambda: quietly(
                lambda: client.shell(known[1], "while :; do echo x; done", timeout_ms=1000)))
            load.start()
            time.sleep(0.2)
            pid = daemon.supervisor_pid() if victim == "supervisor" else daemon.worker_pid(victim)
            os.kill(pid, signal.SIGKILL)
            load.join()
            harness.wait_until(daemon.ready, 20, f"it answers after the end of {victim}")
            problems = list(accounted(daemon, client, known))
            end = time.monotonic() + 30 * harness.PATIENCE
            while problems and time.monotonic() < end:
                time.sleep(0.1)
                problems = list(accounted(daemon, client, known))
            t.refused({f"third states after {victim}": str(len(problems))}, "0")
            for problem in problems:
                t.wrong(problem)
            for session in known:
                client.remove(session)
    finally:
        try:
            daemon.done()
        except AssertionError as error:
            t.wrong(f"left after the end: {error}")


def quietly(function):
    try:
        function()
    except Exception:  # noqa: BLE001  the service is being killed
        pass


def processes_of(base):
    found = []
    for pid in harness.all_pids():
        try:
            uid = int(harness.status_of(pid)["Uid"].split()[0])
        except (FileNotFoundError, ProcessLookupError, KeyError):
            continue
        if base <= uid < base + 65536 and not harness.is_zombie(pid):
            found.append(pid)
    return found


@row("E3", "descendants that left the process group", "PID namespace; cgroup.kill",
     control="kill of a process group")
def leave_group(t):
    inside = t.session()
    base = int(inside.shell("cat /proc/self/uid_map").text.split()[1])
    inside.attack("leave-group")
    inside.attack("leave-group")
    harness.wait_until(lambda: len(processes_of(base)) >= 3, 10, "the daemons run")
    inside.remove()
    t.sessions.remove(inside)
    end = time.monotonic() + 30 * harness.PATIENCE
    while processes_of(base) and time.monotonic() < end:
        time.sleep(0.05)
    t.refused({"processes of the ids": str(len(processes_of(base)))}, "0")
    t.check(not any(inside.id in path for path in t.daemon.cgroups()), "a group is left")
    if t.controls:
        process = subprocess.Popen([PROGRAM_TEXT.path, "leave-group"], start_new_session=True)
        process.wait()

        def has_left(pid):
            try:
                return os.getpgid(pid) != process.pid
            except ProcessLookupError:
                return False

        def daemons():
            return [pid for pid in harness.all_pids() if harness.name_of(pid) == "escape"
                    and harness.parent_of(pid) <= os.getpid() and has_left(pid)]

        harness.wait_until(daemons, 10, "the daemon of the control runs")
        quietly(lambda: os.killpg(process.pid, signal.SIGKILL))
        time.sleep(0.2)
        left = daemons()
        t.worked(bool(left), "the daemon did not survive the kill of its group")
        for pid in left:
            quietly(lambda pid=pid: os.kill(pid, signal.SIGKILL))


@row("E4", "leftovers of an earlier tenant", "used sessions are destroyed", control="the same tenant")
def leftovers(t):
    first = t.session(agent=True)
    made = first.attack("marks", "make")
    if t.controls:
        t.succeeds(made)
        t.succeeds(first.attack("marks", "find"))
    first.remove()
    t.sessions.remove(first)
    for _ in range(3):
        later = t.session(agent=True)
        t.refused(later.attack("marks", "find"), "ENOENT")
        later.remove()
        t.sessions.remove(later)


@row("E5", "guess or take over an id", "owner checked, one answer", control="the owner")
def foreign_id(t):
    alice, bob = t.session(), t.daemon.client("bob", workspace="red")
    s, r, other = harness.SESSIONS, harness.RUNTIME, harness.ABSENT_ID
    routes = [
        ("GET", "{s}/{id}", None), ("DELETE", "{s}/{id}", None),
        ("POST", "{s}/{id}/components", {"name": "a", "body": "a: b"}),
        ("POST", "{s}/{id}/load", None), ("POST", "{s}/{id}/execute", None),
        ("POST", "{r}/{id}/commands", {"argv": ["/bin/true"]}), ("DELETE", "{r}/{id}", None),
        ("GET", "{r}/{id}", None), ("GET", "{r}/{id}/proof", None), ("GET", "{r}/{id}/trace", None),
        ("GET", "{s}/{id}/denials", None), ("GET", "{s}/{id}/egress", None),
        ("POST", "{s}/{id}/extend", {"minutes": 5}),
    ]
    task = alice.client.execute(alice.id)
    for method, url, body in routes:
        mine = bob.request(method, url.format(s=s, r=r, id=alice.id), body=body)
        none = bob.request(method, url.format(s=s, r=r, id=other), body=body)
        same = (mine.status, mine.body) == (none.status, none.body)
        t.refused({f"{method} {url}": str(mine.status)}, "404|403|405")
        t.check(same, f"{method} {url} tells them apart: {mine} {none}")
    mine = bob.get(f"/dagster/sandbox/tasks/{task}/stream")
    none = bob.get(f"/dagster/sandbox/tasks/{other}/stream")
    t.check((mine.status, mine.body) == (none.status, none.body), f"tasks: {mine} {none}")
    t.check(alice.id.encode() not in bob.get(s).body, "bob's list shows it")
    if t.controls:
        t.worked(alice.client.get(f"{s}/{alice.id}").status == 200, "alice's own session")
        t.worked(alice.client.run(alice.id, "/bin/true").code == 0, "alice's own command")


@row("E8", "create and destroy one session from 64 threads", "one state machine", control=None)
def races(t):
    client = t.daemon.root  # the rate of an owner's changes would answer most of them
    before = t.daemon.cgroups()
    counts = {}
    lock = threading.Lock()

    def work(target):
        for _ in range(3):
            try:
                status = client.remove(target).status
            except OSError:
                status = 0
            with lock:
                counts[status] = counts.get(status, 0) + 1

    for _ in range(3):
        target = client.create()
        threads = [threading.Thread(target=work, args=(target,)) for _ in range(64)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    t.check(counts.get(200, 0) >= 3 and set(counts) <= {200, 404}, f"answers: {counts}")
    t.refused({"still there": str(client.get(f"{harness.SESSIONS}/{target}").status)}, "404")
    end = time.monotonic() + 30 * harness.PATIENCE
    while t.daemon.cgroups() != before and time.monotonic() < end:
        time.sleep(0.05)
    t.check(t.daemon.cgroups() == before, "groups are left")
    t.no_control("there is no layer to take away: 576 requests, counted")


def resident_kib(pid):
    return int(harness.status_of(pid)["VmRSS"].split()[0])


def taken_over_shims(t):
    """Forty sessions whose shim says what it likes: the worker answers on, bounded."""
    daemon = evil_daemon("sandbox-shim", "evil_shim")
    try:
        client = daemon.client("alice")
        worker = daemon.worker_pid("sandboxd-api")
        supervisor = daemon.supervisor_pid()
        made, slow, answers, lock = [], [], {}, threading.Lock()

        def work():
            made_one = client.post(harness.SESSIONS, {})
            with lock:
                answers[made_one.status] = answers.get(made_one.status, 0) + 1
            if made_one.status != 201:
                return
            session = made_one.json["id"]
            made.append(session)
            quietly(lambda: client.run(session, "/bin/true", timeout=3))
            for route, body in (("components", {"name": "a", "body": "b: c"}), ("load", None),
                                ("execute", None)):
                quietly(lambda route=route, body=body: client.post(
                    f"{harness.SESSIONS}/{session}/{route}", body, timeout=2))

        workers = [threading.Thread(target=work) for _ in range(48)]
        for thread in workers:
            thread.start()
        while any(thread.is_alive() for thread in workers):
            started = time.monotonic()
            daemon.root.get(harness.SESSIONS)
            slow.append(time.monotonic() - started)
            time.sleep(0.05)
        t.check(set(answers) <= {201, 503, 500} and answers.get(201, 0) > 20, f"creates: {answers}")
        # A worker that waits for a shim is late again and again; one that the host stalls, once.
        tenth = sorted(slow)[len(slow) * 9 // 10]
        t.refused({"nine of ten answers meanwhile": "below 1 s" if tenth < harness.SLOW else f"{tenth:.1f}"},
                  "below 1 s")
        t.check(resident_kib(worker) < 200 * 1024, f"the worker grew: {resident_kib(worker)} KiB")
        t.check(daemon.worker_pid("sandboxd-api") == worker, "the api worker died")
        t.check(daemon.supervisor_pid() == supervisor, "the supervisor died")
        for session in made:
            client.remove(session)
        # The canary's, which is one of these too, is ended for its silence.
        end = time.monotonic() + 30 * harness.PATIENCE
        while (left := daemon.shim_pids()) and time.monotonic() < end:
            time.sleep(0.1)
        t.check(not left, f"shims are left: {left}")
    finally:
        try:
            daemon.done()
        except AssertionError as error:
            t.wrong(f"taken over shims: {str(error)[-600:]}")


def taken_over_worker(t):
    """An api worker that asks for what it must not: the supervisor goes on, nothing is left."""
    ready = harness.Daemon.ready
    harness.Daemon.ready = lambda self: bool(self.processes().get("sandboxd-egress"))
    try:
        daemon = evil_daemon("sandboxd-api", "evil_api")
    finally:
        harness.Daemon.ready = ready
    daemon.deaths_expected = True
    try:
        supervisor = daemon.supervisor_pid()
        started = daemon.descriptors(supervisor)
        time.sleep(8 * harness.SLOW)
        t.check(daemon.supervisor_pid() == supervisor, "the supervisor died")
        def lived():
            return daemon.log.read_text().count("worker died")

        end = time.monotonic() + 60 * harness.SLOW
        while lived() < 3 and time.monotonic() < end:
            time.sleep(0.1)
        lives = lived()
        t.check(lives >= 3, f"the worker lived only {lives} times")
        t.check(resident_kib(supervisor) < 100 * 1024, "the supervisor grew")
        t.check(daemon.descriptors(supervisor) < started + 700, "descriptors are left")
    finally:
        try:
            daemon.done()
        except AssertionError as error:
            t.wrong(f"taken over worker: {str(error)[-600:]}")


@row("E9", "bugs of parsers; a shim and a worker that were taken over",
     "unprivileged workers; fuzzing", control=None)
def parsers(t):
    taken_over_shims(t)
    taken_over_worker(t)
    targets = sorted(path.stem for path in (Path(__file__).resolve().parents[1] / "fuzz").glob("fuzz_*.c"))
    t.refused({"fuzz targets": "some" if len(targets) >= 6 else "few"}, "some")
    for worker in ("sandboxd-api", "sandboxd-egress"):
        status = harness.status_of(t.daemon.worker_pid(worker))
        t.refused({f"{worker} capabilities": status["CapEff"]}, "0" * 16)
        t.refused({f"{worker} seccomp": status["Seccomp"]}, "2")
    t.no_control("see tests/run fuzz: " + " ".join(name[5:] for name in targets))


@row("E10", "fork in a process with threads", "no threads", control="a process with threads")
def threads(t):
    t.session()
    counts = {}
    named = [*t.daemon.processes().items(), ("shim", t.daemon.shim_pids())]
    for name, pid in [(name, pid) for name, pids in named for pid in pids]:
        # One that does a job for us, as the copies that prepare user namespaces, may have ended.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            counts[f"{name} {pid}"] = len(executables(pid))
    t.check(len(counts) >= 5, f"processes: {counts}")
    t.refused({"threads at most": str(max(counts.values()))}, "1")
    waiting = threading.Thread(target=time.sleep, args=(0.2,))
    waiting.start()
    t.worked(len(executables(os.getpid())) > 1, "a thread is not counted")
    waiting.join()


@row("E11", "a start finds a record that lies", "record, group, ids, process agree",
     control="records as they were")
def former_run(t):
    """One names another session's process, one a process of the host; the third says the truth."""
    daemon = harness.Daemon()
    daemon.deaths_expected = True
    try:
        client = daemon.client("alice")
        made = [client.create() for _ in range(3)]
        folder = daemon.runtime / "private" / "sessions"
        adoption.end_both(daemon)
        if t.controls:
            daemon.start()
            t.worked(len(adoption.shims_of(daemon)) == 3, "three records that are true")
            adoption.end_both(daemon)
        adoption.spoil_swap(folder, made[0])
        adoption.spoil_pid(folder, made[1])
        daemon.start()
        harness.wait_until(lambda: len(adoption.shims_of(daemon)) == 1, 10, "a tree that lied lives on")
        t.check(adoption.records(daemon) == [f"{made[2]}.record", f"{made[2]}.sock"], "records")
        t.check(client.run(made[2], "/bin/true").code == 0, "the third session")
        t.refused({"this process": "alive" if harness.status_of(os.getpid()) else "dead"}, "alive")
    finally:
        daemon.done()
