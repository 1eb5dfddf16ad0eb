"""What a command in a session sees of itself, and what it cannot do.

Each attack has a control run: the same program outside a session, as root in the suite's own
namespaces, must succeed there, or the attack would prove nothing.
"""
import os
import re
import subprocess

import pytest

from harness import namespace_of, status_of

NAMESPACES = ["mnt", "net", "pid", "ipc", "uts", "cgroup", "user"]


def status_inside(alice, session):
    fields = {}
    for line in alice.run(session, "/bin/cat", "/proc/self/status").text.splitlines():
        key, _, value = line.partition(":")
        fields[key] = value.strip()
    return fields


def test_no_capability_seccomp_and_no_new_privs(alice, session):
    fields = status_inside(alice, session)
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(fields[name], 16) == 0, name
    assert fields["Seccomp"] == "2"
    assert fields["Seccomp_filters"] == "1"
    assert fields["NoNewPrivs"] == "1"
    assert fields["Uid"].split() == ["1000"] * 4
    assert fields["Gid"].split() == ["1000"] * 4
    assert fields["Groups"] == ""
    control = status_of("self")
    assert int(control["CapEff"], 16) != 0


def test_own_namespaces_of_every_kind(alice):
    first, second = alice.create(), alice.create()
    seen = []
    for session in (first, second):
        text = alice.shell(
            session, "for n in mnt net pid ipc uts cgroup user; do readlink /proc/self/ns/$n; done"
        ).text.split()
        assert len(text) == len(NAMESPACES)
        seen.append(text)
    for i, name in enumerate(NAMESPACES):
        ours = namespace_of("self", name)
        assert len({seen[0][i], seen[1][i], ours}) == 3, name
    for session in (first, second):
        alice.remove(session)


def test_uid_blocks_of_two_sessions_do_not_overlap(alice):
    sessions = [alice.create() for _ in range(2)]
    bases = []
    for session in sessions:
        words = alice.run(session, "/bin/cat", "/proc/self/uid_map").text.split()
        assert words[0] == "0" and int(words[2]) == 65535
        assert words == alice.run(session, "/bin/cat", "/proc/self/gid_map").text.split()
        bases.append(int(words[1]))
    assert abs(bases[0] - bases[1]) >= 65536
    assert min(bases) >= 65536
    for session in sessions:
        alice.remove(session)


def test_descriptors_at_start_are_0_1_2(alice, session):
    result = alice.shell(session, "ls -l /proc/self/fd | tail -n +2 | wc -l")
    # ls has one more open: the directory that it lists.
    assert int(result.text) == 4
    for fd in range(3, 40):
        assert alice.run(session, "/bin/true", cwd=f"/proc/self/fd/{fd}").code != 0
        if fd > 8:
            break


def test_mountinfo_names_no_host_path(alice, session, daemon):
    text = alice.run(session, "/bin/cat", "/proc/self/mountinfo").text
    assert text
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split()
        assert fields[3] in ("/", "/session", "/tmp", "/shm") or fields[3].startswith(
            ("/null", "/zero", "/full", "/random", "/urandom", "/tty", "/dev/", "/sys", "/")
        )
        options = fields[5].split(",")
        if fields[4] != "/proc" or True:
            assert "nosuid" in options, line
        assert "shared:" not in left and "master:" not in left, line
    for needle in (str(daemon.home), "/var", "/home", "/run/", "upperdir=/", "lowerdir=/usr"):
        assert needle not in text, needle


def test_only_expected_top_level_directories(alice, session):
    names = set(alice.run(session, "/bin/ls", "-A", "/").text.split())
    assert names <= {"bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "sbin",
                     "session", "tmp", "usr"}, names
    assert alice.run(session, "/bin/ls", "/usr/local").text == ""
    passwd = alice.run(session, "/bin/cat", "/etc/passwd").text
    assert len(passwd.splitlines()) <= 5 and "1000" in passwd


def test_dev_is_minimal(alice, session):
    names = set(alice.run(session, "/bin/ls", "-A", "/dev").text.split())
    assert names <= {"null", "zero", "full", "random", "urandom", "tty", "fd", "stdin", "stdout",
                     "stderr", "ptmx", "pts", "shm"}, names


def test_session_folder_is_private_and_writable(alice, session):
    result = alice.shell(session, "stat -c '%a %u %g' /session; touch /session/x /tmp/x /dev/shm/x "
                                  "&& echo written; touch /x /usr/x /etc/x /dev/x /proc/x; true")
    assert result.text.splitlines() == ["700 1000 1000", "written"]


def test_other_processes_are_not_visible(alice, session):
    pids = [n for n in alice.run(session, "/bin/ls", "/proc").text.split() if n.isdigit()]
    assert "1" not in pids and len(pids) <= 3, pids


@pytest.mark.parametrize(
    "path",
    ["kcore", "keys", "key-users", "kmsg", "kallsyms", "timer_list", "sched_debug", "interrupts",
     "sysrq-trigger", "latency_stats", "acpi", "scsi", "bus", "irq", "modules", "config.gz",
     "iomem", "vmallocinfo", "slabinfo", "diskstats", "partitions", "locks", "swaps"],
)
def test_proc_top_level_is_covered(alice, session, path):
    result = alice.shell(session, f"cat /proc/{path} 2>/dev/null | head -c 100; "
                                  f"ls -A /proc/{path} 2>/dev/null | grep -v '^/proc/{path}$'")
    assert result.out == b"", path


def test_no_sys(alice, session):
    assert alice.run(session, "/bin/ls", "/sys").code != 0


# mount(8) is setuid and therefore not in a session: the call itself.
MOUNT = ("import ctypes as c; l = c.CDLL(None, use_errno=True);"
         "raise SystemExit(l.mount({}, None) != 0)")
ATTACKS = {
    "nested user namespace": ["unshare", "-U", "/bin/true"],
    "nested namespaces": ["unshare", "-Urm", "/bin/true"],
    "mount namespace": ["unshare", "-m", "/bin/true"],
    "network namespace": ["unshare", "-n", "/bin/true"],
    "mount tmpfs": ["python3", "-c", MOUNT.format("b'none', b'/tmp', b'tmpfs', 0")],
    "mount proc": ["python3", "-c", MOUNT.format("b'none', b'/tmp', b'proc', 0")],
    "bind mount": ["python3", "-c", MOUNT.format("b'/usr', b'/tmp', None, 4096")],
    "remount": ["python3", "-c", MOUNT.format("b'none', b'/', None, 32 | 4096")],
    "add a link": ["ip", "link", "add", "probe0", "type", "veth"],
    "set lo down and up": ["ip", "link", "set", "lo", "mtu", "1400"],
    "write a network sysctl": ["sh", "-c", "echo 65 > /proc/sys/net/ipv4/ip_default_ttl"],
    "set the host name": ["hostname", "pwned"],
    "make a device": ["mknod", "/tmp/probe-device", "c", "1", "3"],
    "change owner": ["sh", "-c", "touch /tmp/owned && chown 0 /tmp/owned"],
    "chroot": ["/usr/sbin/chroot", "/", "/bin/true"],
    "raw socket": ["python3", "-c", "import socket as s; s.socket(s.AF_INET, s.SOCK_RAW, 1)"],
    "packet socket": ["python3", "-c", "import socket as s; s.socket(s.AF_PACKET, s.SOCK_RAW)"],
    "vsock socket": ["python3", "-c", "import socket as s; s.socket(40, s.SOCK_STREAM)"],
    "netlink xfrm": ["python3", "-c", "import socket as s; s.socket(s.AF_NETLINK, s.SOCK_RAW, 6)"],
    "keyring": ["python3", "-c",
                "import ctypes as c; l=c.CDLL(None,use_errno=True);"
                "raise SystemExit(l.syscall(248,b'user',b'k',b'v',1,-2) < 0)"],
    "io_uring": ["python3", "-c",
                 "import ctypes as c; l=c.CDLL(None);"
                 "raise SystemExit(l.syscall(425,4,c.create_string_buffer(256)) < 0)"],
    "userfaultfd": ["python3", "-c",
                    "import ctypes as c; l=c.CDLL(None); raise SystemExit(l.syscall(323,1) < 0)"],
    "new mount API": ["python3", "-c",
                      "import ctypes as c; l=c.CDLL(None);"
                      "raise SystemExit(l.syscall(430,b'tmpfs',0) < 0)"],
    "raise priority": ["nice", "-n", "-40", "/bin/sh", "-c", "test $(ps -o ni= -p $$) -lt 0"],
    "setuid": ["python3", "-c", "import os; os.setuid(0); os.setgroups([])"],
}


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_is_refused(alice, session, name):
    argv = ATTACKS[name]
    control = subprocess.run(
        ["unshare", "-mnpu", "--fork", "--mount-proc", *argv], capture_output=True, check=False)
    if os.path.exists("/tmp/probe-device"):
        os.unlink("/tmp/probe-device")
    assert control.returncode == 0, f"the control run must succeed: {control.stderr}"
    result = alice.run(session, *argv)
    assert result.code is None or result.code != 0, result
    assert b"not found" not in result.err and not result.error, result


def test_pid_1_cannot_be_signalled_or_read(alice, session):
    for signal in ("9", "15", "19", "0"):
        assert alice.run(session, "/bin/kill", f"-{signal}", "1").code != 0
    assert alice.shell(session, "kill -9 -1; true").error == {}
    for name in ("mem", "environ", "maps", "fd", "root", "exe", "cwd"):
        assert alice.shell(session, f"cat /proc/1/{name} || ls /proc/1/{name}").code != 0
    assert alice.run(session, "/bin/echo", "alive").out == b"alive\n"
    control = subprocess.run(
        ["unshare", "-pf", "--mount-proc", "sh", "-c", "sleep 5 & kill -9 $!"], check=False)
    assert control.returncode == 0


@pytest.mark.parametrize("path", ["kernel/hostname", "kernel/core_pattern", "vm/overcommit_memory",
                                  "net/ipv4/ip_forward", "fs/file-max", "user/max_user_namespaces",
                                  "kernel/ns_last_pid", "net/core/somaxconn"])
def test_sysctls_cannot_be_written(alice, session, path):
    result = alice.shell(session, f"cat /proc/sys/{path} > /session/v 2>/dev/null; "
                                  f"echo 1 > /proc/sys/{path}")
    assert result.code != 0


def test_every_sysctl_is_read_only(alice, session):
    result = alice.shell(session, "find /proc/sys -type f -writable 2>/dev/null | head -n 5")
    # Mode bits say writable to the owner; what counts is that no open for writing succeeds.
    for path in result.text.split():
        assert alice.shell(session, f": > {path}").code != 0, path


def test_another_sessions_folder_cannot_be_reached(alice):
    first, second = alice.create(), alice.create()
    alice.shell(first, "echo secret > /session/secret; echo secret > /tmp/secret; "
                       "echo secret > /dev/shm/secret")
    result = alice.shell(
        second, "cat /session/secret /tmp/secret /dev/shm/secret /proc/1/root/session/secret "
                "/proc/[0-9]*/root/session/secret 2>/dev/null")
    assert b"secret" not in result.out
    assert alice.shell(first, "cat /session/secret").out == b"secret\n"
    alice.remove(first)
    third = alice.create()
    result = alice.shell(third, "find /session /tmp /dev/shm -name secret; ipcs -m | grep -c 0x0; true")
    assert b"secret" not in result.out
    for session in (second, third):
        alice.remove(session)


def test_only_lo_and_no_way_out(alice, session):
    script = ("import socket\n"
              "print([n for _, n in socket.if_nameindex()])\n"
              "for address in ('1.1.1.1', '10.0.0.1', '169.254.169.254'):\n"
              "    s = socket.socket(); s.settimeout(60)\n"
              "    try:\n"
              "        s.connect((address, 443)); print(s.recv(1))\n"
              "    except OSError as e:\n"
              "        print(type(e).__name__)\n")
    result = alice.run(session, "python3", "-c", script)
    assert result.code == 0, result
    lines = result.text.splitlines()
    assert lines[0] == "['lo']"
    # The connection is the egress worker's, which ends it at once.
    assert lines[1:] == ["ConnectionResetError"] * 3, lines


def test_loopback_works_and_low_ports_can_be_bound(alice, session):
    script = ("import socket\n"
              "a = socket.socket(); a.bind(('127.0.0.1', 80)); a.listen()\n"
              "b = socket.create_connection(('127.0.0.1', 80)); print('ok')\n")
    assert alice.run(session, "python3", "-c", script).out == b"ok\n"


def test_what_python_programs_need_works(alice, session):
    script = ("import multiprocessing as m, sqlite3, tempfile, threading, ssl\n"
              "if __name__ == '__main__':\n"
              "    with m.get_context('spawn').Pool(2) as p: print(p.map(abs, [-1, -2]))\n"
              "    c = sqlite3.connect('/session/x.db'); c.execute('create table t(a)'); c.commit()\n"
              "    t = threading.Thread(target=print, args=('thread',)); t.start(); t.join()\n"
              "    m.Lock()\n")
    alice.shell(session, f"cat > /session/p.py <<'EOF'\n{script}EOF\n")
    result = alice.run(session, "python3", "/session/p.py", timeout_ms=120000)
    assert result.out == b"[1, 2]\nthread\n", result


def test_core_dumps_are_off(alice, session):
    result = alice.shell(session, "ulimit -Hc; ulimit -c unlimited 2>/dev/null; "
                                  "sh -c 'kill -SEGV $$'; ls /session/core* 2>/dev/null")
    assert result.text.splitlines()[0] == "0"
    assert b"/session/core" not in result.out


def test_abstract_sockets_of_the_host_are_out_of_reach(alice, session):
    import socket

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("\0sandboxd-probe")
        listener.listen()
        listener.settimeout(0.5)
        script = "import socket as s; s.socket(s.AF_UNIX).connect('\\0sandboxd-probe')"
        control = subprocess.run(["python3", "-c", script], check=False)
        assert control.returncode == 0
        listener.accept()
        assert alice.run(session, "python3", "-c", script).code != 0
        with pytest.raises(socket.timeout):
            listener.accept()


def test_setuid_copy_gains_nothing(alice, session):
    result = alice.shell(session, "cp /usr/bin/id /session/id && chmod 6755 /session/id && "
                                  "/session/id -u; find / -xdev -perm /6000 -type f 2>/dev/null "
                                  "| grep -v ^/session")
    assert result.text.splitlines() == ["1000"], result


def test_two_sessions_map_other_copies_of_libc(alice):
    """One session's mappings of a file make those of another wait for the file's one lock in the kernel."""
    libc = "/usr/lib/x86_64-linux-gnu/libc.so.6"
    made = [alice.create() for _ in range(4)]
    try:
        layers = [re.search(r"lowerdir=(m:h/\d:u)\b", alice.run(s, "/bin/cat", "/proc/self/mountinfo").text)[1]
                  for s in made]
        assert len(set(layers)) > 1, layers
        files = f"{libc} /usr/bin/python3 /usr/bin/dash"
        same = subprocess.run(f"sha256sum {files}", shell=True, capture_output=True, text=True, check=True).stdout
        for session in made:
            assert alice.shell(session, f"sha256sum {files}").text == same
            assert alice.shell(session, f"stat -c '%a %s %Y' {libc}").text == subprocess.run(
                ["stat", "-c", "%a %s %Y", libc], capture_output=True, text=True, check=True).stdout
            assert "Read-only" in alice.shell(session, f"exec 2>&1; echo x >> {libc}").text
    finally:
        for session in made:
            alice.remove(session)


def test_locks_on_the_template_do_not_cross(alice):
    first, second = alice.create(), alice.create()
    hold = "import fcntl,time; f=open('/usr/bin/env'); fcntl.flock(f, fcntl.LOCK_EX|fcntl.LOCK_NB)"
    import threading

    holder = threading.Thread(
        target=lambda: alice.run(first, "python3", "-c", hold + "; time.sleep(3)"))
    holder.start()
    import time

    time.sleep(0.5)
    result = alice.run(second, "python3", "-c", hold)
    holder.join()
    assert result.code == 0, result
    for session in (first, second):
        alice.remove(session)
