"""What the host holds of a service: processes, groups, mounts, namespaces, id blocks."""
import os
import re
from pathlib import Path

ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
ID_BLOCKS = Path("/run/sandboxd-idblocks")
NAMESPACES = ("mnt", "net", "pid", "ipc", "uts", "user", "cgroup")


def pids():
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def text(path):
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def stat_of(pid):
    """(name, state, parent), or None where there is none."""
    line = text(f"/proc/{pid}/stat")
    if not line:
        return None
    name, rest = line[line.index("(") + 1:].rsplit(")", 1)
    fields = rest.split()
    return name, fields[0], int(fields[1])


def below(top):
    """Every process below one: pid → name; zombies are none."""
    children, found, todo = {}, {}, [top]
    names = {}
    for pid in pids():
        known = stat_of(pid)
        if known and known[1] != "Z":
            names[pid] = known[0]
            children.setdefault(known[2], []).append(pid)
    while todo:
        for child in children.get(todo.pop(), []):
            found[child] = names[child]
            todo.append(child)
    return found


def first_of_namespaces(top):
    """Processes below `top` that are pid 1 of a user namespace which is not the host's: shims."""
    host = os.readlink("/proc/self/ns/user")
    found = []
    for pid in below(top):
        for line in text(f"/proc/{pid}/status").splitlines():
            if line.startswith("NSpid:") and line.split()[-1] == "1":
                try:
                    if os.readlink(f"/proc/{pid}/ns/user") != host:
                        found.append(pid)
                except OSError:
                    pass
    return sorted(found)


def cgroup_mounts():
    for line in text("/proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        if right.split()[0] in ("cgroup", "cgroup2"):
            yield left.split()[4]


def groups(instance):
    """Directories of the instance in every hierarchy."""
    found = set()
    for mount in cgroup_mounts():
        for top, folders, _ in os.walk(mount):
            if f"sandboxd-{instance}" in folders:
                found |= {path for path, _, _ in os.walk(os.path.join(top, f"sandboxd-{instance}"))}
    return sorted(found)


def members(instance):
    """Processes that are in a group of the instance."""
    needle = f"sandboxd-{instance}"
    return {pid: stat_of(pid) for pid in pids() if needle in text(f"/proc/{pid}/cgroup")}


def id_blocks(instance):
    try:
        data = ID_BLOCKS.read_bytes()[64:]
    except OSError:
        return 0
    records = (data[at:at + 32] for at in range(0, len(data), 32))
    return sum(record[:4] == b"\1\0\0\0" and record[8:16] == instance.encode() for record in records)


def namespaces():
    """Those that a process is in or holds open, by kind. Only of this PID namespace."""
    found = {kind: set() for kind in NAMESPACES}
    for pid in pids():
        for folder in ("ns", "fd"):
            try:
                entries = os.listdir(f"/proc/{pid}/{folder}")
            except OSError:
                continue
            for entry in entries:
                try:
                    kind, _, inode = os.readlink(f"/proc/{pid}/{folder}/{entry}").partition(":")
                except OSError:
                    continue
                if kind in found:
                    found[kind].add(inode)
    return {kind: len(inodes) for kind, inodes in found.items()}


def descriptors(pid):
    n = 0
    try:
        for entry in os.listdir(f"/proc/{pid}/fd"):
            # The reserve of prepared user namespaces grows and shrinks by itself.
            n += not os.readlink(f"/proc/{pid}/fd/{entry}").startswith("user:")
    except OSError:
        pass
    return n


def mounts(pid):
    return len(text(f"/proc/{pid}/mountinfo").splitlines())
