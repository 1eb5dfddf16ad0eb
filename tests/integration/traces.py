"""Where on this host is a text: in files, and in what processes show or hold."""
import contextlib
import os
import resource
import signal
from pathlib import Path

from harness import name_of, parent_of


def memory_holds(pid, needle):
    """Does the process have it in memory that it can read?"""
    with open(f"/proc/{pid}/maps", encoding="ascii", errors="replace") as maps, \
            open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in maps:
            span, flags = line.split()[:2]
            if not flags.startswith("r") or line.rstrip().endswith(("[vvar]", "[vsyscall]")):
                continue
            start, end = (int(text, 16) for text in span.split("-"))
            if end - start > 1 << 34:
                continue  # the shadow of a sanitizer, which holds no byte of the program
            try:
                for at in range(start, end, 1 << 24):
                    memory.seek(at)
                    if needle in memory.read(min((1 << 24) + len(needle), end - at)):
                        return True
            except OSError:
                continue  # pages without a reader, as those of devices
    return False


def files_with(needle, *folders):
    found = []
    for folder in folders:
        for place, _, names in os.walk(folder):
            for name in names:
                file = Path(place) / name
                with contextlib.suppress(FileNotFoundError):  # removed since the folder was read
                    if file.is_file() and needle in file.read_bytes():
                        found.append(str(file))
    return found


def core_of_an_unlimited_process(folder, text):
    """The control: a process of the host that holds the text and may leave a core. Its wait status."""
    pid = os.fork()
    if pid == 0:
        os.chdir(folder)
        resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        os.execve("/bin/sh", ["sh", "-c", "kill -ABRT $$"], {"HELD": text})
    status = os.waitpid(pid, 0)[1]
    assert os.WTERMSIG(status) == signal.SIGABRT
    return status


def core_limits(pid):
    line, = [line for line in Path(f"/proc/{pid}/limits").read_text().splitlines() if line.startswith("Max core")]
    return line.split()[4:6]


def is_dumpable(pid):
    """If it is not, what is in /proc/PID belongs to the root of its namespace, which pid is not to be."""
    uid = int(Path(f"/proc/{pid}/status").read_text().split("Uid:")[1].split()[0])
    return os.stat(f"/proc/{pid}/limits").st_uid == uid


def processes_with(needle, kind):
    found = {}
    mine = {os.getpid(), os.getppid(), parent_of(os.getppid())}
    for pid in [int(e) for e in os.listdir("/proc") if e.isdigit()]:
        if pid in mine:
            continue
        try:
            if kind == "memory":
                holds = memory_holds(pid, needle)
            else:
                holds = needle in Path(f"/proc/{pid}/{kind}").read_bytes()
        except OSError:
            continue  # it has ended
        if holds:
            found[pid] = name_of(pid)
    return found
