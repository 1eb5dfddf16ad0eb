"""What the checks of an installed sandboxd share."""
import json
import os
import re
import subprocess
import time
from pathlib import Path

from harness import all_pids, mount_lines, name_of, status_of, wait_until

DISK = Path("/mnt")
PACKAGE = DISK / "sandboxd.deb"
CONTROL = "/run/sandboxd/control.sock"
OPERATOR = "/run/sandboxd/operator.sock"
SOCKETS = ["sandboxd-control.socket", "sandboxd-operator.socket"]
UNITS = ["sandboxd.service", *SOCKETS, "sandboxd-sessions.service"]
# Its id, for what comes after the reboot.
LEFT_OPEN = Path("/var/lib/vm-left-open")
# Sandboxes by id, each with what CONTENTS said in it.
LEFT_SUSPENDED = Path("/var/lib/vm-left-suspended")
CONTENTS = ("cd /session && find . -mindepth 1 -printf '%P %y %m %U %G %s %T@ %n %l\\n' | sort &&"
            " find . -type f -print0 | sort -z | xargs -0 sha256sum")
TOP = Path("/sys/fs/cgroup")
MIB = 1 << 20

# What systemd itself writes while the checks run, and backups that user tools leave.
VOLATILE = ("/run/systemd/", "/run/log/", "/run/credentials", "/run/utmp", "/var/log/journal",
            "/var/lib/systemd/", "/var/lib/vm-", "/run/udev/", "/run/initctl", "/var/lib/dpkg", "/var/log/dpkg.log", "/etc/.pwd.lock",
            "/etc/passwd-", "/etc/group-", "/etc/shadow-", "/etc/gshadow-")


def call(*words, check=True, timeout=120, **more):
    result = subprocess.run([str(w) for w in words], capture_output=True, text=True,
                            timeout=timeout, check=False, **more)
    if check and result.returncode != 0:
        raise AssertionError(f"{words}: {result.returncode}\n{result.stdout}{result.stderr}")
    return result


def ctl(*words, **more):
    return call("sandboxctl", *words, **more)


def state(unit, *names):
    text = call("systemctl", "show", unit, *[f"-p{name}" for name in names]).stdout
    return dict(line.split("=", 1) for line in text.splitlines())


def main_pid():
    return int(state("sandboxd.service", "MainPID")["MainPID"])


def instance():
    return Path("/var/lib/sandboxd/instance").read_text().strip()


def instance_groups():
    return list(TOP.rglob(f"sandboxd-{instance()}"))


def instance_group():
    groups = instance_groups()
    assert len(groups) == 1, groups
    return groups[0]


def group_of(session):
    found = [path for path in instance_group().iterdir() if session in path.name]
    assert len(found) == 1, list(instance_group().iterdir())
    return found[0]


def read(path):
    return Path(path).read_text().strip()


def events(path):
    return {key: int(value) for key, value in
            (line.split() for line in Path(path).read_text().splitlines())}


def timed(work):
    start = time.monotonic()
    value = work()
    return time.monotonic() - start, value


def is_active(unit):
    return state(unit, "ActiveState")["ActiveState"] == "active"


def wait_active():
    wait_until(lambda: is_active("sandboxd.service"), 90, "the service is active")


def shims():
    """Pid 1 of each session."""
    host = os.readlink("/proc/self/ns/user")
    found = []
    for pid in all_pids():
        try:
            foreign = os.readlink(f"/proc/{pid}/ns/user") != host
            if foreign and status_of(pid)["NSpid"].split()[-1] == "1":
                found.append(pid)
        except (OSError, KeyError):
            pass
    return sorted(found)


def left_of_sessions():
    return [str(p) for p in TOP.rglob("*") if p.is_dir() and p.name != "workers"
            and re.fullmatch("sandboxd-[0-9a-f]{8}", p.parent.name)]


# --- the host, before and after ------------------------------------------------------------------

# Survives the reboot; made by the first check that installs anything.
BEFORE = Path("/var/lib/vm-before.json")


def host_files():
    """Everything below the directories that an installation touches, with what it is."""
    found = {}
    for top in ("/etc", "/usr", "/var", "/run", "/opt", "/srv"):
        for folder, folders, files in os.walk(top):
            for name in folders + files:
                path = os.path.join(folder, name)
                if path.startswith(VOLATILE) or "__pycache__" in path:
                    continue
                info = os.lstat(path)
                size = info.st_size if os.path.isfile(path) else 0
                found[path] = [info.st_mode, info.st_uid, info.st_gid, size]
    return found


def host_state():
    return {
        "files": host_files(),
        "groups": sorted(str(p) for p in TOP.rglob("*") if p.is_dir() and "sandboxd" in str(p)),
        "units": call("systemctl", "list-units", "--all", "--no-legend", "--plain", "sandboxd*",
                      check=False).stdout +
        call("systemctl", "list-unit-files", "--no-legend", "sandboxd*", check=False).stdout,
        "users": [read(f"/etc/{name}") for name in ("passwd", "group")],
        "processes": sorted(name_of(pid) for pid in all_pids() if "sandbox" in name_of(pid)),
        "mounts": sorted({" ".join(line.split()[2:3]) for line in mount_lines()}),
    }


def remember_host():
    if not BEFORE.exists():
        BEFORE.write_text(json.dumps(host_state()))
