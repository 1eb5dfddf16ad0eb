"""docs/limits.md is true: each row's error is provoked in a session of both profiles."""
import re

import pytest

from harness import ROOT, SLOW, wait_until

COMMON = """
import ctypes, errno, mmap, os, signal, socket
libc = ctypes.CDLL(None, use_errno=True)

def until(take, most):
    n = 0
    try:
        while n < most:
            if take(n) == -1:
                raise OSError(ctypes.get_errno(), 'call')
            n += 1
    except OSError as e:
        print(errno.errorcode[e.errno], n)
    else:
        print('nothing', n)
"""

# What is taken one by one, up to the number given; prints the error's name and how many it had by then.
PROGRAMS = {
    "bytes in the private folder": """
block = bytes(1 << 20)
fd = os.open('/session/full', os.O_CREAT | os.O_WRONLY)
until(lambda n: os.write(fd, block), 1 << 20)
os.unlink('/session/full')
""",
    "files in it": """
os.mkdir('/session/many')
until(lambda n: os.close(os.open(f'/session/many/{n}', os.O_CREAT)), 2000000)
""",
    "processes and threads": """
def start(n):
    pid = os.fork()
    if pid == 0:
        signal.pause()
    started.append(pid)
started = []
until(start, 5000)
for pid in started:
    os.kill(pid, 9)
""",
    "open files of a process": "until(lambda n: os.dup(0), 20000)",
    "terminals": "until(lambda n: os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY), 2000)",
    "inotify instances": "until(lambda n: libc.inotify_init1(0), 2000)",
    "inotify watches": """
os.mkdir('/session/watched')
fds = [libc.inotify_init1(0) for _ in range(2)]
def both(n):
    name = f'/session/watched/{n // 2}'.encode()
    if n % 2 == 0:
        os.close(os.open(name, os.O_CREAT))
    return libc.inotify_add_watch(fds[n % 2], name, 2)
until(both, 100000)
""",
    "bytes of POSIX message queues": """
class Attributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_long) for name in ('flags', 'maxmsg', 'msgsize', 'curmsgs', 'a', 'b', 'c', 'd')]
a = Attributes(0, 10, 4096, 0)
until(lambda n: libc.mq_open(b'/q%d' % n, os.O_CREAT | os.O_RDWR, 0o600, ctypes.byref(a)), 2000)
""",
    "SysV shared memory": """
libc.shmat.restype = ctypes.c_long
def take(n):
    key = libc.shmget(0, ctypes.c_size_t(64 << 20), 0o600)
    if key == -1:
        return -1
    at = libc.shmat(key, None, 0)
    ctypes.memset(at, 1, 64 << 20)
    return 0
until(take, 1000)
""",
    "locked memory": """
area = mmap.mmap(-1, 64 << 20)
at = ctypes.addressof(ctypes.c_char.from_buffer(area))
until(lambda n: libc.mlock(ctypes.c_void_p(at + (n << 16)), ctypes.c_size_t(65536)), 1000)
""",
    "queued signals": """
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
until(lambda n: libc.sigqueue(os.getpid(), int(signal.SIGRTMIN), None), 20000)
""",
    "socket buffers of a connection that nobody reads": """
a, b = socket.socketpair()
a.setblocking(False)
until(lambda n: a.send(bytes(65536)) and 0, 100000)
""",
    "huge pages": "until(lambda n: mmap.mmap(-1, 2 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000), 10)",
    "keys of the kernel's keyrings": "until(lambda n: libc.syscall(248, b'user', b'k%d' % n, b'x', 1, -3), 1000)",
    "namespaces": "until(lambda n: libc.unshare(0x10000000), 10)",
    "a higher priority than normal": "until(lambda n: libc.setpriority(0, 0, -1), 10)",
    "real-time scheduling": "until(lambda n: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)), 10)",
}
MEMORY = "held = []\nwhile True: held.append(bytearray(16 << 20))"
# In an agent's session these take half a minute and show nothing else.
LARGE = {"files in it", "bytes in the private folder"}
# Below and in test_hostile_commands; the processor's is in the proof of each launch.
NOT_BY_A_PROGRAM = {"core files", "processor time at once", "output of a command a second", "output of a command that is kept",
                    "running time of a command"}


def rows():
    text = (ROOT / "docs" / "limits.md").read_text()
    found = {}
    for line in re.findall(r"^\| (?!resource)(.+) \|$", text, re.M):
        what, set_by, component, agent, sees = [cell.strip() for cell in line.split(" | ")]
        found[re.split(r"[,;(]", what)[0].strip()] = (set_by, component, agent, sees)
    return found


def number(cell):
    amount, unit = re.fullmatch(r"(\d+)(?: (MiB|GiB))?", cell).groups()
    return int(amount) * {None: 1, "MiB": 1 << 20, "GiB": 1 << 30}[unit]


UNIT_BYTES = {"bytes in the private folder": 1 << 20, "locked memory": 65536, "bytes of POSIX message queues": 10 * 4096}


@pytest.fixture(params=["component", "agent"])
def profile(request):
    return request.param


@pytest.fixture
def fresh(alice, profile):
    answer = alice.post("/v1/sandboxes", {"profile": profile})
    assert answer.status == 201, answer
    yield answer.json["sandbox_uuid"]
    wait_until(lambda: alice.delete(f"/v1/sandboxes/{answer.json['sandbox_uuid']}").status in (200, 204, 404), 20, "gone")


def test_every_row_is_tested():
    assert set(rows()) == set(PROGRAMS) | NOT_BY_A_PROGRAM | {"memory"}


@pytest.mark.parametrize("profile, what", [(profile, what) for what in PROGRAMS for profile in ("component", "agent")
                                           if profile == "component" or what not in LARGE])
def test_program_sees_the_error_of_its_row(alice, fresh, profile, what):
    _, component, agent, sees = rows()[what]
    limit = component if profile == "component" else agent
    expected = limit if limit.startswith("`E") else sees
    result = alice.run(fresh, "python3", "-c", COMMON + PROGRAMS[what], timeout_ms=60000 * SLOW)
    if expected == "`SIGKILL`":
        assert result.signal == 9, result
        return
    assert result.text.split()[:1] == [expected.strip("`")], result
    had = int(result.text.split()[1]) * UNIT_BYTES.get(what, 1)
    if limit == expected or limit == "0":
        assert had == 0, result
    elif limit != "-":
        # Some are ours or the interpreter's, and a queue has its own overhead.
        assert 0.8 * number(limit) <= had <= number(limit), result


def test_memory_row(alice, fresh, profile):
    assert rows()["memory"][3] == "`SIGKILL`"
    result = alice.run(fresh, "python3", "-c", MEMORY, timeout_ms=60000 * SLOW)
    assert result.signal == 9, result
    assert alice.run(fresh, "/bin/true").code == 0


def test_numbers_are_those_of_the_profiles():
    table = rows()
    names = {"bytes in the private folder": "tmpfs", "files in it": "inodes", "memory": "memory", "processes and threads": "pids",
             "open files of a process": "files", "terminals": "ptys", "output of a command a second": "output-rate",
             "output of a command that is kept": "output-max"}
    for column, profile in ((1, "component"), (2, "agent")):
        text = (ROOT / "policy" / "profiles" / f"{profile}.profile").read_text()
        for what, name in names.items():
            value = re.search(rf"^limit {name} +(\S+)$", text, re.M)[1]
            assert table[what][0] == f"`limit {name}`"
            assert value == table[what][column].replace(" ", ""), what


def test_command_runs_out_of_time(alice, fresh):
    for seconds in (2, 20, 120):  # one that is over before the trap is set ends by it
        result = alice.shell(fresh, "trap 'echo TERM' TERM; while :; do sleep 0.1; done", timeout_ms=1000 * seconds)
        if b"TERM" in result.out:
            break
    assert result.exit["timed_out"] and result.signal == 9 and b"TERM" in result.out, result


def test_no_core_is_written(alice, fresh):
    result = alice.shell(fresh, "cd /session; ulimit -c; python3 -c 'import os; os.abort()'; ls -A /session")
    assert result.text.split()[0] == "0" and "core" not in result.text, result
