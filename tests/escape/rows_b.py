"""B: the kernel seen from inside."""
import contextlib
import hashlib
import os
import re
import socket
import subprocess
import threading
from pathlib import Path

from places import BUILD, INSIDE, PROGRAM_TEXT, harness, host_process, landlock_abi, outside
from table import row

ROOT = Path(__file__).resolve().parents[2]
LANDLOCK = landlock_abi()
POLICYC = BUILD / "bin" / "sandbox-policyc"

KINDS = ("user", "mnt", "net", "pid", "ipc", "uts", "cgroup", "time")
CLONE3 = {f"clone3 {kind}": "ENOSYS" for kind in KINDS}
NEW_MOUNT_API = ("fsopen", "fsmount", "open_tree", "move_mount", "mount_setattr")


@row("B1", "new namespaces by unshare, clone, clone3, setns", "seccomp",
     "user/max_* ceilings; no capability")
def nested_namespace(t):
    inside = t.session()
    t.refused(inside.attack("namespaces"), {"*": "EPERM", **CLONE3})
    foreign = inside.attack("foreign-abi")
    t.refused({"i386 unshare user": foreign.get("i386 unshare user")}, "SIGSYS")
    if not t.controls:
        return
    t.succeeds(outside("namespaces"))
    off = t.session("seccomp")
    user = {f"{call} user": "ENOSPC" for call in ("unshare", "clone", "clone3")}
    t.holds(off.attack("namespaces"), {"*": "EPERM", **user})
    t.holds({"i386 unshare user": off.attack("foreign-abi")["i386 unshare user"]}, "ENOSPC")
    both = t.session("seccomp,userns-ceiling")
    got = both.attack("namespaces")
    t.succeeds({step: got[step] for step in user})


@row("B2", "mount a hierarchy, set its release agent; new mount API", "seccomp",
     "no capability over the mounts; Landlock")
def release_agent(t):
    inside = t.session()
    want = {"*": "EPERM", **{step: "ENOSYS" for step in NEW_MOUNT_API}}
    t.refused(inside.attack("mounts"), want)
    t.refused(inside.attack("release-agent", "/session"),
              {"mount a new hierarchy": "EPERM", "set the release agent": "EPERM"})
    t.check(inside.shell("ls /session/marker").code != 0, "the agent ran")
    if not t.controls:
        return
    got = outside("mounts")
    # Where the v2 tree holds a controller, nobody can mount it as a hierarchy of version 1.
    t.succeeds(got, cannot={step: result for step, result in got.items()
                            if step.startswith("mount cgroup ") and result == "EBUSY"})
    # The agent runs in the host's own mount namespace: a folder that is the same there.
    folder = PROGRAM_TEXT.folder / "agent"
    folder.mkdir()
    t.succeeds(outside("release-agent", folder))
    t.worked((folder / "marker").exists(), "the release agent did not run")
    off = t.session("seccomp")
    t.holds(off.attack("mounts"), {"*": "EPERM", "fsmount": "EINVAL"})
    t.holds(off.attack("release-agent", "/session"), "EPERM")
    # Only Landlock left: a user namespace gives every capability over the mounts of its own.
    nested = {"unshare user and mnt": "ok", "*": "EPERM"}
    t.holds(t.session("seccomp,userns-ceiling").attack("nested-mounts"), nested)
    t.succeeds(t.session("seccomp,userns-ceiling,landlock").attack("nested-mounts"))


@row("B3", "io_uring: setup, enter, register", "seccomp")
def uring(t):
    t.refused(t.session().attack("uring"), "ENOSYS")
    if t.controls:
        t.succeeds(outside("uring"))
        t.succeeds(t.session("seccomp").attack("uring"))


@row("B4", "userfaultfd, vmsplice, Dirty Pipe", "seccomp; fixed kernel", "sysctl (userfaultfd)")
def page_pipes(t):
    want = {"userfaultfd": "EPERM", "/dev/userfaultfd": "ENOENT", "vmsplice": "EPERM"}
    # A component has no splice; for agent the kernel is the fixed one.
    t.refused(t.session().attack("page-cache", "/usr/bin/env"), {**want, "dirty pipe": "ENOSYS"})
    t.refused(t.session(agent=True).attack("page-cache", "/usr/bin/env"),
              {**want, "dirty pipe": "unchanged"})
    if not t.controls:
        return
    t.succeeds(outside("page-cache", PROGRAM_TEXT.path), cannot={"dirty pipe": "unchanged"})
    got = t.session("seccomp").attack("page-cache", "/usr/bin/env")
    t.succeeds({"vmsplice": got["vmsplice"]})
    t.holds({"userfaultfd": got["userfaultfd"]}, "EPERM")


@row("B5", "ways into shared page cache; write to the template", "seccomp; read-only overlay",
     "Landlock")
def page_cache(t):
    files = ("/usr/bin/env", "/etc/passwd", "/usr/lib/os-release", "/etc/hosts")
    before = hashlib.sha256(Path("/usr/bin/env").read_bytes()).hexdigest()
    inside, other = t.session(), t.session()
    t.refused(inside.attack("template", *files), "EROFS")
    families = inside.attack("sockets")
    # ALG, RDS, RXRPC: the known ways in.
    t.refused({f"family {n}": families[f"family {n}"] for n in (38, 21, 33)}, "EAFNOSUPPORT")
    t.refused({"netlink 6": inside.attack("netlink")["netlink 6"]}, "EAFNOSUPPORT")
    after = other.shell("sha256sum /usr/bin/env").text.split()[0]
    t.check(before == after, "the shared file has changed")
    mounts = inside.shell("cat /proc/self/mountinfo").text.splitlines()
    writable = {fields[4] for fields in map(str.split, mounts) if "rw" in fields[5].split(",")}
    t.check(writable == {"/session", "/tmp", "/dev/shm", "/dev/pts", "/proc"},
            f"writable mounts: {sorted(writable)}")
    if not t.controls:
        return
    victim = PROGRAM_TEXT.folder / "template"
    victim.write_text("x")
    t.succeeds(outside("template", victim))
    # A writable file system in the template's place, for everybody.
    beside = {"beside /etc/hosts"}
    got = t.session("read-only").attack("template", "/etc/hosts")
    t.holds({step: got[step] for step in beside}, "EACCES")
    got = t.session("read-only,landlock").attack("template", "/etc/hosts")
    t.succeeds({step: got[step] for step in beside})
    got = outside("netlink")
    t.succeeds({"netlink 6": got["netlink 6"]})
    got = outside("sockets")
    families = {f"family {n}": got[f"family {n}"] for n in (38, 21, 33)}
    t.succeeds(families, cannot={step: result for step, result in families.items()
                                 if result == "EAFNOSUPPORT"})


@row("B6", "rare socket families, also by another ABI", "seccomp", "no capability (packet, xdp, raw)")
def families(t):
    inside = t.session()
    allowed = {f"family {n}": "ok" for n in (1, 2, 10, 16)}
    t.refused(inside.attack("sockets"), {"*": "EAFNOSUPPORT", **allowed})
    t.refused(inside.attack("foreign-abi"), "SIGSYS")
    t.refused(inside.attack("stacked"),
              {"*": "EAFNOSUPPORT", "UDP_ENCAP": "ENOPROTOOPT", "TCP_ULP": "ENOPROTOOPT",
               "MSG_OOB": "EOPNOTSUPP"})
    if not t.controls:
        return
    got = outside("stacked")
    t.succeeds({step: got[step] for step in ("UDP_ENCAP", "MSG_OOB")})
    t.succeeds({step: result for step, result in got.items() if result == "ok"})
    t.no_control("of TCP_ULP, MPTCP, SCTP, UDP-Lite this kernel lacks: "
                 + ", ".join(f"{step} ({result})" for step, result in got.items()
                             if result != "ok"))
    got = outside("sockets")
    present = [f"family {n}" for n in range(51) if got[f"family {n}"] == "ok"]
    t.worked({"family 17", "family 40"} <= set(present), f"families here: {present}")
    t.succeeds({step: got[step] for step in [*present, "raw ICMP"]})
    t.no_control(f"{51 - len(present)} families: EAFNOSUPPORT of this kernel")
    t.succeeds(outside("foreign-abi"), cannot={"x32 getpid": "ENOSYS"})
    off = t.session("seccomp")
    got = off.attack("sockets")
    t.succeeds({"family 40": got["family 40"]})
    t.holds({step: got[step] for step in ("family 17", "family 44", "raw ICMP")}, "EPERM")
    t.holds({"ping": got["ping"]}, "EACCES")


def host_session_key():
    """A key in the caller's session keyring; its serial number."""
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall(250, 1, None)  # KEYCTL_JOIN_SESSION_KEYRING: not the operator's own
    serial = libc.syscall(248, b"user", b"escape-probe", b"secret", 6, -3)
    libc.syscall(250, 5, serial, 0x3f3f0000)  # KEYCTL_SETPERM: everything for possessor and user
    return serial


@row("B7", "add_key, request_key, every keyctl; a key of the host", "seccomp",
     "fresh session keyring")
def keyring(t):
    inside = t.attacker()
    t.refused(inside.attack("keyring"), "EPERM")
    t.refused(inside.attack("read-files", "/proc/keys", "/proc/key-users"),
              "ENOENT|empty|EACCES" if t.as_root else "ENOENT")
    serial = host_session_key()
    t.refused(inside.attack("host-key", serial), "EPERM")
    if not t.controls:
        return
    got = outside("keyring")
    t.succeeds({step: got[step] for step in ("add_key", "keyctl get id", "keyctl join")})
    t.succeeds(outside("read-files", "/proc/keys", "/proc/key-users"))
    t.succeeds(outside("host-key", serial))
    off = t.attacker("seccomp")
    t.holds(off.attack("host-key", serial),
            {"read by serial number": "EACCES", "find in the session keyring": "ENOKEY"})


@row("B8", "TIOCSTI, with high bits, TIOCLINUX; ioctl on devices", "seccomp; Landlock (devices)",
     "own terminal instance")
def terminal(t):
    t.refused(t.session().attack("terminal"), "EPERM")
    if LANDLOCK >= 5:
        t.refused(t.session().attack("devices"), "EACCES")
    if t.controls:
        t.succeeds(outside("devices"), cannot={"TCGETS of zero": "ENOTTY"})
        got = t.session("landlock").attack("devices")
        t.succeeds(got, cannot={"TCGETS of zero": "ENOTTY"})
        t.succeeds(outside("terminal"), cannot={"TIOCLINUX": "ENOTTY"})
        t.succeeds(t.session("seccomp").attack("terminal"), cannot={"TIOCLINUX": "ENOTTY"})


def explained(profile="component"):
    """number → verdict, of the calls that are refused whatever their arguments."""
    text = subprocess.run(
        [POLICYC, "explain", "--sets", ROOT / "policy" / "syscalls",
         ROOT / "policy" / "profiles" / f"{profile}.profile"],
        capture_output=True, text=True, check=True).stdout
    text = text.split("\n\n")[0]
    found = {}
    for line in text.splitlines()[1:]:
        match = re.match(r"\s*(\d+) (\S+)\s+(\S+)(.*)", line)
        if not match:
            break
        number, verdict, rest = int(match[1]), match[3], match[4].strip()
        if number in found or rest or verdict == "allow":
            found[number] = None  # decided by argument, or allowed
        else:
            found[number] = verdict
    return {str(n): found.get(n, "ENOSYS") for n in range(0, 601)
            if found.get(n, "ENOSYS") is not None}


@row("B9", "every refused number of 0 to 600", "seccomp: allowlist", control="layer off")
def numbers(t):
    table = explained()
    t.check(len(table) > 250, f"only {len(table)} refused numbers")
    table = {number: "ok" if verdict == "0" else verdict for number, verdict in table.items()}
    # uretprobe and uprobe: the kernel calls them itself and shows them to no filter; who is not on
    # its trampoline gets the second answer.
    passed_by = {"335": "ENOSYS|SIGILL", "336": "ENOSYS|ENXIO|SIGILL"}
    t.refused(t.session().attack("numbers", *table), {**table, **passed_by})
    if not t.controls:
        return
    off = t.session("seccomp").attack("numbers", *table)
    other = {step: "ok" for step, result in off.items() if result != table[step]}
    t.worked(len(other) >= 15, f"without the filter only {len(other)} numbers differ")
    t.control_steps += len(other) - 1


HOST_CALLS = {
    "bpf": 321, "perf_event_open": 298, "kexec_load": 246, "kexec_file_load": 320,
    "init_module": 175, "finit_module": 313, "delete_module": 176, "open_by_handle_at": 304,
    "name_to_handle_at": 303, "fanotify_init": 300, "fanotify_mark": 301, "lookup_dcookie": 212,
    "quotactl": 179, "acct": 163, "swapon": 167, "swapoff": 168, "syslog": 103, "iopl": 172,
    "ioperm": 173,
}


@row("B11", "bpf, perf, modules, kexec, handles, acct, swap, syslog", "seccomp", "no capability")
def host_surface(t):
    calls = [str(n) for n in HOST_CALLS.values()]
    t.refused(t.session().attack("numbers", *calls), "EPERM")
    if not t.controls:
        return
    got = outside("numbers", *calls)
    # With arguments of zero the kernel says what is wrong with them: the call was reached.
    reached = {n: "ok" for n, result in got.items() if result not in ("ENOSYS", "EPERM")}
    t.succeeds(reached)
    names = [name for name, n in HOST_CALLS.items() if str(n) not in reached]
    t.no_control(f"{' '.join(names)}: ENOSYS of this kernel")
    off = t.session("seccomp").attack("numbers", *calls)
    t.holds({n: off[n] for n in map(str, (298, 163, 167, 168, 300))}, "EPERM|EFAULT")


@row("B10", "trace, read, copy from pid 1, its children, a sibling", "seccomp",
     "other id, not dumpable")
def trace(t):
    inside = t.session()
    t.refused(inside.attack("process", 1, "parent"), "EPERM")
    t.refused(inside.attack("memory-of", 1, "parent"), "ENOENT")
    sibling = f"sleep 30 & {INSIDE} process $!; kill $!"
    got = harness_steps(inside.shell(sibling))
    t.refused(got, "EPERM")
    if not t.controls:
        return
    with host_process() as victim:
        t.succeeds(outside("process", victim.pid, private=False))
        t.succeeds(outside("memory-of", victim.pid, private=False),
                   cannot={f"fd/3 of {victim.pid}": "ENOENT"})
    off = t.session("seccomp")
    t.holds(off.attack("process", 1, "parent"), "EPERM")
    t.succeeds(harness_steps(off.shell(sibling)))
    seen = t.session("hidepid").attack("memory-of", 1, "parent")
    t.succeeds({step: seen[step] for step in ("status of 1", "status of parent")})
    t.holds({step: result for step, result in seen.items() if not step.startswith("status")},
            "EACCES")


def harness_steps(result):
    from places import steps
    return steps(result.text)


@row("B12", "setuid copy of a program", "no_new_privs; nosuid; ids")
def setuid_copy(t):
    t.refused(t.session().attack("setuid-copy", "/session/copy", 0, 1000),
              {"chown the copy": "EPERM", "chmod 4755": "ok", "effective id": "1000"})
    found = t.session().attack("socket-files", "/")
    t.refused({"setuid files": found["setuid files"]}, "0")
    if t.controls:
        copy = PROGRAM_TEXT.folder / "copy"
        t.succeeds(outside("setuid-copy", copy, 0, 65534),
                   {"chown the copy": "ok", "chmod 4755": "ok", "effective id": "0"})


@row("B13", "wrong code of the filter compiler", "simulator at build time", control=None)
def compiler(t):
    for name in ("test_bpfsim", "test_filters"):
        program = BUILD / "tests" / "unit" / name
        done = subprocess.run([program], capture_output=True, check=False, timeout=120 * harness.PATIENCE)
        t.check(done.returncode == 0, f"{name}: {done.stdout[-300:]!r}")
    t.no_control("host unit tests over every number (test_bpfsim, test_filters)")


def notifications(data):
    """Instructions that would ask a listener."""
    return sum(data[i:i + 8] == b"\x06\0\0\0\0\0\xc0\x7f" for i in range(0, len(data) - 7, 8))


# unshare(CLONE_FILES) needs no privilege; its result, by name, for each of many calls.
NOTIFIED = """
import ctypes, errno, threading
libc = ctypes.CDLL(None, use_errno=True)
memory = ctypes.create_string_buffer(64)
threading.Thread(target=lambda: [ctypes.memset(memory, i % 256, 64) for i in range(200000)], daemon=True).start()
seen = set()
for _ in range(2000):
    done = libc.syscall(272, ctypes.c_long(0x400), memory, memory, memory) == 0
    seen.add("0" if done else errno.errorcode[ctypes.get_errno()])
print(" ".join(sorted(seen)))
"""


@row("B14", "change arguments behind a user notification", "answered by number alone: EPERM",
     control="layer off")
def notification(t):
    def results(session):
        return session.client.run(session.id, "/usr/bin/python3", "-c", NOTIFIED).text.strip()

    # The policy asks nobody: only what it has refused is told.
    image = (BUILD / "bin" / "policy.img").read_bytes()
    t.check(notifications(image) == 0, "the policy leaves verdicts to a listener")
    t.refused({"2000 calls": results(t.session())}, "EPERM")
    if t.controls:
        t.worked(results(t.session("seccomp")) == "0", "the same with the filter off")


HELD = "/tmp/escape-held"
LONG_MS = 600000  # the file is removed long before


def wait_for_file(session, path):
    harness.wait_until(lambda: session.shell(f"test -e {path}").code == 0, 30, path)


@row("B15", "locks and leases on a file that two sessions see", "own overlay; seccomp",
     "ids (lease)", "layer off")
def locks(t):
    def both(first, second):
        result = {}
        holder = threading.Thread(
            target=lambda: result.update(first.attack("lock", "/usr/bin/env", HELD, timeout_ms=LONG_MS)))
        holder.start()
        wait_for_file(first, HELD)
        got = second.attack("lock", "/usr/bin/env")
        first.shell(f"rm {HELD}")
        holder.join()
        return result, got

    first, second = t.session(), t.session()
    held, got = both(first, second)
    t.refused(held, "ok")
    t.refused(got, "ok")
    t.refused(first.attack("lease", "/usr/bin/env"), "EPERM")
    if not t.controls:
        return
    held, got = both(t.session("overlay"), t.session("overlay"))
    t.worked(held.get("flock") == "ok" and got.get("flock") == "EAGAIN",
             f"without the overlay the lock does not cross: {held} {got}")
    t.succeeds(outside("lease", PROGRAM_TEXT.path))
    off = t.session("seccomp").attack("lease", "/usr/bin/env")
    t.holds({step: off[step] for step in ("lease", "lease with high bits")}, "EACCES")


@row("B16", "use up another session's processes", "own pids group; own ids")
def processes(t):
    first, second = t.session(), t.session()
    bases = []
    for made in (first, second):
        words = made.shell("cat /proc/self/uid_map").text.split()
        bases.append(int(words[1]))
    t.check(abs(bases[0] - bases[1]) >= 65536, f"the sessions share ids: {bases}")
    bomb = threading.Thread(target=lambda: first.client.run(
        first.id, "/bin/sh", "-c", f"{INSIDE} exhaust processes 100000 >/session/out; "
        "b() { b | b & }; b; sleep 1", timeout_ms=4000))
    bomb.start()
    ran = sum(second.client.run(second.id, "/bin/true").code == 0 for _ in range(100))
    bomb.join()
    t.check(ran == 100, f"only {ran} of 100 commands of the other session ran")
    t.refused(t.session().attack("exhaust", "processes", 300), "EAGAIN")
    if t.controls:
        t.succeeds(outside("exhaust", "processes", 300))


PROC_NAMES = ("acpi", "kcore", "keys", "key-users", "kmsg", "kallsyms", "timer_list",
              "sched_debug", "interrupts", "sysrq-trigger", "bus", "irq", "modules", "iomem",
              "vmallocinfo", "slabinfo", "diskstats", "partitions", "locks", "swaps", "asound",
              "latency_stats", "scsi", "softirqs", "consoles", "devices", "buddyinfo", "zoneinfo",
              "schedstat", "driver", "fs", "mtrr", "cmdline", "crypto", "misc", "ioports",
              "pagetypeinfo", "execdomains")
SYSCTLS = ("kernel/hostname", "kernel/core_pattern", "vm/overcommit_memory",
           "net/ipv4/ip_forward", "fs/file-max", "user/max_user_namespaces")


@row("B17", "read the host from /proc and /sys", "own procfs, subset or covered", "modes of files")
def proc(t):
    inside = t.session()
    names = [f"/proc/{name}" for name in PROC_NAMES]
    t.refused(inside.attack("read-files", *names, "/sys", "/sys/kernel", "/sys/firmware"), "ENOENT")
    t.refused(inside.attack("write-files", *[f"/proc/sys/{name}" for name in SYSCTLS]), "ENOENT")
    agent = t.session(agent=True)
    t.refused(agent.attack("read-files", *names), "ENOENT|empty|EACCES")
    t.refused(agent.attack("write-files", *[f"/proc/sys/{name}" for name in SYSCTLS]),
              "EROFS|EACCES")
    text = agent.shell("cat /proc/self/mountinfo").text
    for needle in (str(t.daemon.home), "/var", "/home", "lowerdir=/", "/root"):
        t.check(needle not in text, f"mountinfo names {needle}")
    pids = [int(n) for n in agent.shell("ls /proc").text.split() if n.isdigit()]
    t.check(1 not in pids and len(pids) <= 3, f"processes of others: {pids}")
    if not t.controls:
        return
    got = outside("read-files", *names)
    readable = {step: result for step, result in got.items() if result == "ok"}
    t.succeeds(readable)
    # Root of this host may lack SYS_RESOURCE, which that one asks for.
    got = outside("write-files", *[f"/proc/sys/{name}" for name in SYSCTLS])
    t.succeeds({step: result for step, result in got.items() if "/user/" not in step})
    off = t.session("proc-mask", agent=True).attack("read-files", *names)
    uncovered = {step: result for step, result in off.items() if result == "ok"}
    t.worked(len(uncovered) >= 5, f"without the covers only {sorted(uncovered)} can be read")
    t.holds({step: off[step] for step in ("/proc/kcore", "/proc/iomem", "/proc/slabinfo")
             if off[step] not in ("ok", "ENOENT", "empty")}, "EACCES|EPERM")


@row("B18", "dump core into the host's handler", "RLIMIT_CORE 1, hard")
def core(t):
    inside = t.attacker()
    t.refused(inside.attack("core"), {"raise the limit": "EPERM", "core dumped": "no"})
    t.check(inside.shell("ls /session/core*").code != 0, "a core file was left")
    if t.controls:
        t.succeeds(outside("core"), {"raise the limit": "ok", "core dumped": "yes"})


@row("B19", "have a stranger killed by a number that came again", "pidfd, cgroup.kill, ancestry")
def reused_pid(t):
    inside = t.session()
    done = {}
    bystander = threading.Thread(target=lambda: done.update(
        result=inside.shell("sleep 4; echo alive")))
    bystander.start()
    storm = threading.Thread(target=lambda: inside.attack("reuse-pid", 40000))
    storm.start()
    for _ in range(10):
        result = inside.client.run(inside.id, "/bin/sleep", "30", timeout_ms=100)
        t.check(result.exit.get("timed_out"), f"{result}")
    bystander.join()
    storm.join()
    t.refused({"bystander": done["result"].text.strip()}, "alive")
    if t.controls:
        with few_numbers() as few:
            t.succeeds(outside(shell=f"{few}{PROGRAM_TEXT.path} reuse-pid 40000"), "yes")


@contextlib.contextmanager
def few_numbers():
    """What a shell does first so that process numbers come again soon."""
    # Since Linux 6.14 the size of the number space is the PID namespace's own.
    release = tuple(map(int, os.uname().release.split(".")[:2]))
    if release >= (6, 14):
        yield "echo 2000 > /proc/sys/kernel/pid_max; "
        return
    size = Path("/proc/sys/kernel/pid_max")
    before = int(size.read_text())
    # systemd makes it 4194304; the kernel's own default is enough for everybody for a minute.
    size.write_text(str(min(before, 32768)))
    try:
        yield ""
    finally:
        size.write_text(str(before))


# Counted by user; each as much as a session gets, and one more.
KEPT = {"inotify": 300, "queues": 300, "signals": 5000, "terminals": 80, "pipes": 200}


def beside_greed(t, greedy, other):
    """What root of the host and another session get while a session holds all it can."""
    result = {}
    words = [word for pair in KEPT.items() for word in pair]
    holding = threading.Thread(target=lambda: result.update(greedy.attack("hold", *words, timeout_ms=LONG_MS)))
    holding.start()
    wait_for_file(greedy, HELD)
    one = " ".join(f"{kind} 1" for kind in KEPT)
    # Root's own limit of queued signals is far above a session's.
    root = outside(shell=f"prlimit --sigpending=1000 {PROGRAM_TEXT.path} exhaust {one}")
    neighbour = other.attack("exhaust", *one.split())
    greedy.shell(f"rm {HELD}")
    holding.join()
    return result, root, neighbour


@row("B20", "use up descriptors, watches, terminals, queues, inodes, bytes", "limits of each kind")
def exhaustion(t):
    counts = {"processes": 300, "files": 5000, "sockets": 5000, "inotify": 300, "terminals": 40,
              "signals": 5000, "inodes": 70000, "tmpfs": 300}
    # What a component has no calls for.
    tools = {"locked": 16, "queues": 300}
    want = {"processes": "EAGAIN", "files": "EMFILE", "sockets": "EMFILE", "inotify": "EMFILE",
            "terminals": "ENOSPC", "signals": "EAGAIN", "inodes": "ENOSPC", "tmpfs": "ENOSPC"}
    inside, agent, other = t.session(), t.session(agent=True), t.session(agent=True)
    words, tool_words = ([word for pair in some.items() for word in pair] for some in (counts, tools))
    t.refused(inside.attack("exhaust", *words), want)
    t.refused(inside.attack("exhaust", *tool_words), "ENOSYS")
    t.refused(agent.attack("exhaust", *tool_words), {"locked": "ENOMEM", "queues": "EMFILE"})
    t.refused(inside.attack("exhaust", "memory", 2000), "SIGKILL")
    # Code of filters: one room for the whole host.
    for session, answer in ((inside, "ENOSYS"), (agent, "EINVAL")):
        t.refused(session.attack("filters"),
                  {"*": "ENOPROTOOPT", "seccomp": answer, "prctl seccomp": "EINVAL"})
    # The buffers of sockets: memory like other memory in cgroup version 2, of the whole system in
    # version 1 if nobody gives them a limit.
    apart = Path("/sys/fs/cgroup/memory").exists()
    mebibytes = 200 if apart else 1100
    t.refused(inside.attack("exhaust", "tcp", mebibytes), "ENOBUFS" if apart else "SIGKILL")
    taken, root, neighbour = beside_greed(t, agent, other)
    t.refused(taken, {"inotify": "EMFILE", "queues": "EMFILE", "signals": "EAGAIN",
                      "terminals": "ENOSPC", "pipes": "EPERM"})
    for who, got in (("root", root), ("the other session", neighbour)):
        t.check(got == dict.fromkeys(KEPT, "ok"), f"{who} is hurt: {got}")
    t.check(other.client.run(other.id, "/bin/true").code == 0, "the other session is hurt")
    t.check(inside.client.run(inside.id, "/bin/true").code == 0, "the session does not recover")
    if t.controls:
        t.succeeds(outside("exhaust", *words, *tool_words), cannot={"inotify": "EMFILE", "queues": "EMFILE"})
        # User namespaces made by root: what sessions use counts as root's.
        _, root, neighbour = beside_greed(t, t.session("userns-owner", agent=True), other)
        shared = Path("/proc/sys/fs/inotify/max_user_instances").read_text(encoding="ascii")
        hurt = {"queues": "EMFILE", "signals": "EAGAIN", "terminals": "ok", "pipes": "ok",
                "inotify": "EMFILE" if int(shared) <= 128 else "ok"}
        t.worked(root == hurt, f"root beside a session that counts as root: {root}")
        t.succeeds(outside("exhaust", "memory", 1200))
        t.succeeds(outside("filters"))
        t.succeeds(t.session("seccomp").attack("filters"))
        t.succeeds(outside(shell=f"ip link set lo up; {PROGRAM_TEXT.path} exhaust tcp {mebibytes}"))


@row("B21", "many small sessions that are too much together", "ceilings of the supervisor",
     "totals of the parent group")
def together(t):
    few = t.daemons.get(config=harness.CONFIG + "[limits]\nsessions = 2\n")
    client = few.client("alice")
    made = [client.create(), client.create()]
    answer = client.post(harness.SESSIONS, {})
    t.refused({"third session": str(answer.status)}, "429")
    for session in made:
        client.remove(session)
    little = t.daemons.get(config=harness.CONFIG + "[limits]\nmemory = 2GiB\n")
    client = little.client("alice")
    made = [client.create(), client.create()]
    answer = client.post(harness.SESSIONS, {})
    t.refused({"sum of memory": str(answer.status)}, "429")
    for session in made:
        client.remove(session)
    made = [t.session() for _ in range(3)]
    t.worked(len(made) == 3, "three sessions without the ceiling")


SHARED_MEMORY = {"merge pages": "EINVAL", "ask the page cache": "EOPNOTSUPP", "cachestat": "ENOSYS",
                 "mincore": "ENOSYS", "deactivate its pages": "EINVAL", "throw its pages out": "EINVAL"}


@row("B22", "listen to a neighbour by shared memory or core", "seccomp",
     "overlay; not the owner")
def neighbour(t):
    inside = t.session()
    t.refused(inside.attack("core-cookie"), "EINVAL")
    t.refused(inside.attack("shared-memory"), SHARED_MEMORY)
    if not t.controls:
        return
    got = outside("shared-memory")
    # cachestat is of Linux 6.5.
    older = got["cachestat"] == "ENOSYS"
    t.succeeds(got, cannot={"cachestat": "ENOSYS"} if older else None)
    off = t.session("seccomp").attack("shared-memory")
    t.succeeds({"merge pages": off["merge pages"]})
    t.holds(off, {"*": "ok", "ask the page cache": "EOPNOTSUPP",
                  "cachestat": "ENOSYS" if older else "EPERM"})
    t.no_control(f"core scheduling: {outside('core-cookie')['core scheduling']} of this kernel")


@row("B23", "watch a shared file being opened elsewhere", "own overlay", control="layer off")
def watch(t):
    def events(watcher, opener, milliseconds):
        """It is opened again and again, here and by the other one, for as long as the watcher lives,
        however slow the machine is."""
        over = threading.Event()

        def open_here():
            while not over.wait(0.05):
                Path("/usr/bin/env").read_bytes()

        opener.shell("rm -f over")
        opening = [threading.Thread(target=open_here), threading.Thread(target=opener.shell, args=(
            "while [ ! -e over ]; do cat /usr/bin/env >/dev/null; sleep 0.05; done",))]
        for one in opening:
            one.start()
        try:
            return watcher.attack("watch", "/usr/bin/env", milliseconds)
        finally:
            over.set()
            opener.shell("touch over")
            for one in opening:
                one.join()

    t.refused(events(t.session(), t.session(), 1200), {"watch": "ok", "events": "none"})
    if t.controls:
        got = events(t.session("overlay"), t.session("overlay"), 30000)  # ends with the first
        t.succeeds(got, {"watch": "ok", "events": "some"})


@row("B24", "limit, schedule or signal pid 1 and its children", "unmapped id", "Landlock scope")
def shim_as_equal(t):
    inside = t.session()
    t.refused(inside.attack("limits-of", 1, "parent"), "EPERM")
    t.refused(inside.attack("signal", 1, "parent"), "EPERM")
    t.check(inside.shell("echo alive").text == "alive\n", "the session is hurt")
    if not t.controls:
        return
    with host_process() as victim:
        t.succeeds(outside("limits-of", victim.pid, private=False))
    for off in ("landlock", "seccomp"):
        weak = t.session(off)
        t.holds(weak.attack("limits-of", 1, "parent"), "EPERM")
        t.holds(weak.attack("signal", 1, "parent"), "EPERM")
