"""What one session does at its worst, as commands that go on until their session is removed."""
import contextlib
import json
import subprocess
from dataclasses import dataclass

HELD = "import errno, os, signal, socket, threading, time\n"

FORK_BOMB = """
while True:
    try:
        os.fork()
    except OSError:
        pass
"""

# All want the one lock that the kernel has for the mappings of a file.
LIBRARY_MAPS = """
import mmap
for _ in range(199):
    if os.fork() == 0:
        break
fd = os.open('/usr/lib/x86_64-linux-gnu/libc.so.6', os.O_RDONLY)
while True:
    mmap.mmap(fd, 4096, mmap.MAP_PRIVATE, mmap.PROT_READ).close()
"""

# The command itself stays small, so that the one that grows is the one that is killed.
MEMORY_HOG = """
while True:
    pid = os.fork()
    if pid == 0:
        held = []
        while True:
            held.append(bytearray(16 << 20))
    os.waitpid(pid, 0)
"""

DISK = """
block = bytes(1 << 20)
while True:
    fd = os.open('/session/full', os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    try:
        while True:
            os.write(fd, block)
    except OSError:
        pass
    os.close(fd)
"""

INODES = """
n = 0
while True:
    try:
        os.close(os.open(f'/session/i{n}', os.O_CREAT | os.O_WRONLY))
        n += 1
    except OSError:
        for i in range(n):
            os.unlink(f'/session/i{i}')
        n = 0
"""

CONNECTIONS = """
server = socket.create_server(('127.0.0.1', 0), backlog=65535)
for _ in range(15):
    if os.fork() == 0:
        break
while True:
    held = []
    try:
        while True:
            s = socket.socket()
            s.setblocking(False)
            s.connect_ex(server.getsockname())
            held.append(s)
    except OSError:
        pass
    for s in held:
        s.close()
"""

# To an address outside, where nothing is allowed.
DIALS = """
for _ in range(15):
    if os.fork() == 0:
        break
while True:
    try:
        with socket.create_connection(('192.0.2.1', 443), timeout=1) as s:
            s.recv(1)
    except OSError:
        pass
"""

# To the session's resolver, faster than it answers.
QUESTIONS = """
for _ in range(15):
    if os.fork() == 0:
        break
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(('127.0.0.53', 53))
question = bytes.fromhex('000101000001000000000000') + b'\\x04name\\x07example\\x00\\x00\\x01\\x00\\x01'
while True:
    try:
        s.send(question)
    except OSError:
        pass
"""

# All that has a count, by many processes; then let go and again.
EXHAUSTION = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for _ in range(15):
    if os.fork() == 0:
        break
takers = [lambda: libc.inotify_init1(0), lambda: os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY),
          lambda: socket.socketpair()[0].detach(), lambda: os.pipe()[0], lambda: libc.eventfd(0, 0),
          lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).detach(), lambda: libc.epoll_create1(0)]
while True:
    for take in takers:
        try:
            for _ in range(600):
                if take() < 0:
                    break
        except OSError:
            pass
    os.closerange(3, 8192)
"""

CPU = """
for _ in range(4 * os.cpu_count()):
    if os.fork() == 0:
        while True:
            pass
signal.pause()
"""

FSYNC = """
for _ in range(7):
    if os.fork() == 0:
        break
fd = os.open(f'/session/f{os.getpid()}', os.O_CREAT | os.O_RDWR)
while True:
    os.pwrite(fd, bytes(65536), 0)
    os.fsync(fd)
    os.sync()
"""


@dataclass
class Culprit:
    name: str
    argv: list
    commands: int = 1
    denial: str = ""  # kind of the record that it must leave; "": nothing is refused, or the kernel tells nobody

    @contextlib.contextmanager
    def started(self, owner, session):
        """Its output is read as fast as it comes, by a program of its own."""
        body = json.dumps({"argv": self.argv, "timeout_ms": 600000})
        headers = [word for name, value in owner.headers.items() for word in ("-H", f"{name}: {value}")]
        with subprocess.Popen(
            ["curl", "-sN", "--unix-socket", owner.path, "-H", "Content-Type: application/json",
             "-H", "Accept: application/x-ndjson", *headers, "--data-binary", body,
             f"http://localhost/v1/sandboxes/{session}/commands"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
        ) as reader:
            try:
                yield
            finally:
                reader.terminate()


def python(name, script, denial=""):
    return Culprit(name, ["python3", "-c", HELD + script], denial=denial)


def flood(name, commands):
    return Culprit(name, ["/bin/sh", "-c", "while :; do /usr/bin/yes; done"], commands, "output")


CULPRITS = [
    Culprit("nothing", ["/bin/sleep", "3600"]),
    python("fork bomb", FORK_BOMB, "pids"),
    python("library maps", LIBRARY_MAPS),
    python("memory hog", MEMORY_HOG, "memory"),
    python("disk filler", DISK),
    python("inode filler", INODES),
    flood("output flood", 1),
    flood("output flood×12", 12),
    python("connections", CONNECTIONS),
    python("dials", DIALS, "network"),
    python("questions", QUESTIONS, "network"),
    python("exhaustion", EXHAUSTION),
    python("cpu spin", CPU),
    python("fsync storm", FSYNC),
]
