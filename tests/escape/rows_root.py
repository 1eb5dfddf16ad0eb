"""The rows that a root command could make more of, once more as one: uid 0 of the session with the
seven capabilities. The name is the row's with an r behind it."""
import os
import socket

import rows_a  # noqa: F401  what is run again is registered there
from places import INSIDE, PROGRAM_TEXT, harness, host_process, landlock_abi, outside, steps
from rows_b import CLONE3, HOST_CALLS, NEW_MOUNT_API, PROC_NAMES, SHARED_MEMORY, SYSCTLS, explained
from table import again_as_root, row

# CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID
SEVEN = f"{sum(1 << bit for bit in (0, 1, 3, 4, 5, 6, 7)):016x}"
# Without KILL where Landlock has no scope of signals (before ABI 6).
HAS_KILL = landlock_abi() >= 6
GIVEN = SEVEN if HAS_KILL else f"{int(SEVEN, 16) & ~(1 << 5):016x}"
NONE = "0" * 16

for same in ("A1", "A2", "B7", "B18"):
    again_as_root(same)


@row("A9", "ask for another user by a number", "two words, no numbers", control="the word root")
def other_user(t):
    session = t.session(agent=True)
    for user in ("1", " 0", "0", "0x0", "-1", "4294967296", 0, "root:root", "user,root"):
        answer = session.client.post(f"{harness.RUNTIME}/{session.id}/commands",
                                     {"argv": ["/usr/bin/id"], "user": user})
        t.refused({f"user {user!r}": str(answer.status)}, "422")
    component = t.session()
    answer = component.client.post(f"{harness.RUNTIME}/{component.id}/commands",
                                   {"argv": ["/usr/bin/id"], "user": "root"})
    t.refused({"root of a component": str(answer.status)}, "422")
    if t.controls:
        t.worked(session.shell("id -u", user="root").text == "0\n", "the word root is not taken")


@row("A10r", "gain more than the seven, or keep them as another id", "bounding set; locked bits",
     "owner of the namespaces")
def capabilities(t):
    have = {"CapInh": NONE, "CapPrm": GIVEN, "CapEff": GIVEN, "CapBnd": GIVEN, "CapAmb": NONE,
            "setuid 0": "ok", "setresuid 0": "ok", "setgid 0": "ok", "setgroups": "ok",
            "capset KILL": "ok" if HAS_KILL else "EPERM", "chown to 0": "ok", "setresuid 65535": "EINVAL",
            "mknod a device": "EACCES"}
    t.refused(t.root().attack("identity"), {"*": "EPERM", **have})
    if not t.controls:
        return
    got = outside("identity")
    t.succeeds({step: got[step] for step in ("capset SYS_ADMIN", "mknod a device",
                                             "unlock securebits", "setresuid 65535")})
    # Nothing of it is the filter's work.
    t.holds(t.root("seccomp").attack("identity"), {"*": "EPERM", **have})
    weak = t.root("landlock").attack("identity")
    t.holds({"mknod a device": weak["mknod a device"]}, "EPERM")


@row("A12r", "trace or read the shim", "other id; not dumpable", "hidepid")
def shim(t):
    inside = t.root()
    t.refused(inside.attack("process", 1), "EPERM")
    t.refused(inside.attack("memory-of", 1), "ENOENT")
    if not t.controls:
        return
    with host_process() as victim:
        t.succeeds(outside("process", victim.pid, private=False))
    t.holds(t.root("seccomp").attack("process", 1), "EPERM")


@row("B1r", "new namespaces by unshare, clone, clone3, setns", "seccomp",
     "user/max_* ceilings; no capability")
def namespaces(t):
    t.refused(t.root().attack("namespaces"), {"*": "EPERM", **CLONE3})
    if not t.controls:
        return
    t.succeeds(outside("namespaces"))
    user = {f"{call} user": "ENOSPC" for call in ("unshare", "clone", "clone3")}
    t.holds(t.root("seccomp").attack("namespaces"), {"*": "EPERM", **user})
    got = t.root("seccomp,userns-ceiling").attack("namespaces")
    t.succeeds({step: got[step] for step in user})


@row("B2r", "mount, by the old and the new calls; a release agent", "seccomp",
     "no capability over the mounts")
def mounts(t):
    inside = t.root()
    t.refused(inside.attack("mounts"), {"*": "EPERM", **{step: "ENOSYS" for step in NEW_MOUNT_API}})
    t.refused(inside.attack("release-agent", "/session"),
              {"mount a new hierarchy": "EPERM", "set the release agent": "EPERM"})
    if not t.controls:
        return
    got = outside("mounts")
    t.succeeds(got, cannot={step: result for step, result in got.items()
                            if step.startswith("mount cgroup ") and result == "EBUSY"})
    t.holds(t.root("seccomp").attack("mounts"), {"*": "EPERM", "fsmount": "EINVAL"})


@row("B5r", "write to the template", "read-only overlay", "–")
def template(t):
    files = ("/usr/bin/env", "/etc/passwd", "/usr/lib/os-release", "/etc/hosts")
    inside = t.root()
    t.refused(inside.attack("template", *files), "EROFS")
    for script in ("chown 1000 /usr/bin/env", "chmod 4755 /usr/bin/env", "rm /usr/bin/env",
                   "ln /usr/bin/env /usr/bin/env2", "touch /dev/x", "mv /etc/hosts /etc/h"):
        result = inside.shell(script)
        t.check(result.code != 0 and b"Read-only file system" in result.err, f"{script}: {result}")
    if t.controls:
        victim = PROGRAM_TEXT.folder / "root-template"
        victim.write_text("x")
        t.succeeds(outside("template", victim))


@row("B6r", "rare socket families, raw sockets", "seccomp", "no capability (packet, raw)")
def families(t):
    allowed = {f"family {n}": "ok" for n in (1, 2, 10, 16)}
    t.refused(t.root().attack("sockets"), {"*": "EAFNOSUPPORT", **allowed})
    if not t.controls:
        return
    got = outside("sockets")
    t.succeeds({step: got[step] for step in ("family 17", "raw ICMP")})
    got = t.root("seccomp").attack("sockets")
    t.holds({step: got[step] for step in ("family 17", "family 44", "raw ICMP")}, "EPERM")


@row("B9r", "every refused number of 0 to 600", "seccomp: allowlist", control="layer off")
def numbers(t):
    table = explained("agent")
    table = {number: "ok" if verdict == "0" else verdict for number, verdict in table.items()}
    passed_by = {"335": "ENOSYS|SIGILL", "336": "ENOSYS|ENXIO|SIGILL"}
    t.refused(t.root().attack("numbers", *table), {**table, **passed_by})
    if t.controls:
        off = t.root("seccomp").attack("numbers", *table)
        other = [step for step, result in off.items() if result != table[step]]
        t.worked(len(other) >= 15, f"without the filter only {len(other)} numbers differ")


@row("B10r", "trace, read, copy from pid 1, its children, `user`, a sibling", "seccomp",
     "other id, not dumpable, Landlock")
def trace(t):
    def of_user(session):
        """A root command against a command of `user`, which it may not even see as traceable."""
        result = {}
        lines = session.client.lines(
            "POST", f"{harness.RUNTIME}/{session.id}/commands",
            {"argv": ["/bin/sh", "-c", "echo $$ > /tmp/victim; exec sleep 30"]})
        next(lines)
        harness.wait_until(lambda: session.shell("test -s /tmp/victim").code == 0, 20, "a victim")
        pid = session.shell("cat /tmp/victim").text.strip()
        result.update({step.replace(pid, "user"): value
                       for step, value in session.attack("process", pid).items()})
        lines.close()
        return result

    inside = t.root()
    t.refused(inside.attack("process", 1, "parent"), "EPERM")
    t.refused(inside.attack("memory-of", 1, "parent"), "ENOENT")
    sibling = f"sleep 30 & {INSIDE} process $!; kill $!"
    t.refused(steps(inside.shell(sibling).text), "EPERM")
    t.refused(of_user(inside), "EPERM")
    if not t.controls:
        return
    off = t.root("seccomp")
    t.holds(off.attack("process", 1, "parent"), "EPERM")
    t.holds(of_user(off), "EPERM")
    t.succeeds(steps(off.shell(sibling).text))


@row("B11r", "bpf, perf, modules, kexec, handles, acct, swap, syslog", "seccomp", "no capability")
def host_surface(t):
    calls = [str(n) for n in HOST_CALLS.values()]
    t.refused(t.root().attack("numbers", *calls), "EPERM")
    if not t.controls:
        return
    got = outside("numbers", *calls)
    t.succeeds({n: "ok" for n, result in got.items() if result not in ("ENOSYS", "EPERM")})
    off = t.root("seccomp").attack("numbers", *calls)
    t.holds({n: off[n] for n in map(str, (298, 163, 167, 168))}, "EPERM|EFAULT")


@row("B12r", "setuid copy of a program, owned by root", "no_new_privs; nosuid")
def setuid_copy(t):
    t.refused(t.root().attack("setuid-copy", "/session/tmp/copy", 0, 1000),
              {"chown the copy": "ok", "chmod 4755": "ok", "effective id": "1000"})
    inside = t.root()
    inside.shell(f"cp {INSIDE} /session/tmp/copy; chmod 6755 /session/tmp/copy; chmod 755 /session")
    t.refused(steps(inside.shell("/session/tmp/copy effective-id", user="user").text),
              {"effective id": "1000"})
    if t.controls:
        copy = PROGRAM_TEXT.folder / "root-copy"
        t.succeeds(outside("setuid-copy", copy, 0, 65534),
                   {"chown the copy": "ok", "chmod 4755": "ok", "effective id": "0"})


@row("B17r", "read the host from /proc, write to it", "own procfs, covered", "modes of files")
def proc(t):
    inside = t.root()
    t.refused(inside.attack("read-files", *[f"/proc/{name}" for name in PROC_NAMES]),
              "ENOENT|empty|EACCES")
    t.refused(inside.attack("write-files", *[f"/proc/sys/{name}" for name in SYSCTLS]),
              "EROFS|EACCES")
    pids = [int(n) for n in inside.shell("ls /proc").text.split() if n.isdigit()]
    t.check(1 not in pids and len(pids) <= 3, f"processes of others: {pids}")
    if not t.controls:
        return
    got = outside("read-files", *[f"/proc/{name}" for name in PROC_NAMES])
    t.succeeds({step: result for step, result in got.items() if result == "ok"})
    off = t.root("proc-mask").attack("read-files", *[f"/proc/{name}" for name in PROC_NAMES])
    t.holds({step: off[step] for step in ("/proc/kcore", "/proc/iomem", "/proc/slabinfo")
             if off[step] not in ("ok", "ENOENT", "empty")}, "EACCES|EPERM")


@row("B20r", "use up descriptors, watches, terminals, queues, locked memory", "limits of each kind")
def exhaustion(t):
    counts = {"files": 5000, "sockets": 5000, "inotify": 300, "terminals": 80, "signals": 5000,
              "locked": 16, "queues": 300, "pipes": 200}
    want = {"files": "EMFILE", "sockets": "EMFILE", "inotify": "EMFILE", "terminals": "ENOSPC",
            "signals": "EAGAIN", "locked": "ENOMEM", "queues": "EMFILE", "pipes": "EPERM"}
    words = [word for pair in counts.items() for word in pair]
    inside, other = t.root(), t.session(agent=True)
    t.refused(inside.attack("exhaust", *words), want)
    one = [word for kind in ("inotify", "signals", "locked", "queues") for word in (kind, "1")]
    t.check(set(other.attack("exhaust", *one).values()) == {"ok"}, "the other session is hurt")
    if t.controls:
        got = outside("exhaust", *words)
        t.succeeds({step: got[step] for step in ("files", "sockets", "terminals", "signals",
                                                 "locked", "pipes")})


@row("B22r", "listen to a neighbour by the page cache, as an owner of the shared layer", "seccomp",
     control="layer off")
def neighbour(t):
    t.refused(t.root().attack("shared-memory"), SHARED_MEMORY)
    if not t.controls:
        return
    got = t.root("seccomp").attack("shared-memory")
    t.succeeds({step: got[step] for step in SHARED_MEMORY if got[step] not in ("EOPNOTSUPP", "ENOSYS")})


@row("B24r", "limit, schedule or signal pid 1 and its children", "unmapped id; Landlock scope",
     "no CAP_KILL without the scope")
def shim_as_equal(t):
    inside = t.root()
    t.refused(inside.attack("limits-of", 1, "parent"), "EPERM")
    t.refused(inside.attack("signal", 1), "EPERM")
    for pid in range(2, 6):  # nursery, spawners, runners of `user`
        inside.shell(f"kill -9 {pid}")
    t.refused({"user": inside.shell("echo alive", user="user").text.strip()}, "alive")
    # What it can end is its own spawner, which comes again.
    inside.shell("kill -9 -1")
    harness.wait_until(lambda: inside.shell("echo alive").text == "alive\n", 20, "another spawner")
    if not t.controls:
        return
    with host_process() as victim:
        t.succeeds(outside("limits-of", victim.pid, private=False))
    weak = t.root("landlock")
    t.holds(weak.attack("limits-of", 1, "parent"), "EPERM")
    t.holds(weak.attack("signal", 1, "parent"), "EPERM")


@row("C1r", "connect to abstract sockets of the host and of `user`", "network namespace",
     "Landlock scope")
def abstract(t):
    name = f"escape-root-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("\0" + name)
        listener.listen()
        t.refused(t.root().attack("abstract", name, "/containerd-shim/x.sock"), "ECONNREFUSED")
        if t.controls:
            t.succeeds(outside("abstract", name, private=False))


@row("C8r", "signal everything", "other id; Landlock scope", "no CAP_KILL without the scope")
def signals(t):
    inside = t.root()
    t.refused(inside.attack("signal", 1), "EPERM")
    inside.shell("kill -STOP -1; kill -9 -1; true")
    t.refused({"user after kill -1": inside.shell("echo alive", user="user").text.strip()}, "alive")
    if not t.controls:
        return
    with host_process() as victim:
        t.succeeds(outside("signal", victim.pid, private=False))
        victim.wait(60)
    weak = t.root("landlock")
    weak.shell("kill -9 -1; true")
    t.check(weak.shell("echo alive", user="user").text == "alive\n", "the session is hurt")
    t.holds(weak.attack("signal", 1, "parent"), "EPERM")
