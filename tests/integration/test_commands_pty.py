"""Commands on a terminal, and WebSockets to commands."""
import asyncio
import json
import os
import pty
import signal
import socket
import struct
import time

import pytest

from harness import PATIENCE, RUNTIME, Result, connected, wait_until
from runtime_rig import fixture_caller, fixture_session  # noqa: F401 (fixtures)
from test_commands import begin, commands, ended, stream
from test_websocket import connect, frame, frames_of, handshake

websockets = pytest.importorskip("websockets", reason="python3-websockets is not installed")
SIZE = {"rows": 24, "cols": 80}


async def attached(caller, session, cid, talk=(), query=""):
    """Send these messages; (binary output, text events, close code)."""
    out, events = b"", []
    async with connect(caller, commands(session, cid, "/attach" + query)) as ws:
        for message in talk:
            await ws.send(message)
        try:
            while True:
                message = await asyncio.wait_for(ws.recv(), 30 * PATIENCE)
                if isinstance(message, bytes):
                    out += message
                else:
                    events.append(json.loads(message))
        except websockets.ConnectionClosed:
            pass
        return out, events, ws.close_code


def attach(*arguments, **more):
    return asyncio.run(attached(*arguments, **more))


def test_it_is_a_terminal(caller, session):
    script = ("tty; test -t 0 && test -t 1 && test -t 2 && echo all; stty size; "
              "stat -c '%U %a' $(tty); echo x >/dev/tty; echo $TERM; ps -o tty= -p $$")
    answer = caller.post(commands(session), {"cmd": script, "pty": SIZE},
                         headers={"Accept": "application/json"}, timeout=30 * PATIENCE)
    lines = answer.json["stdout"].split("\r\n")
    assert answer.json["code"] == 0 and answer.json["stderr"] == "", answer
    assert lines[0].startswith("/dev/pts/") and lines[1:3] == ["all", "24 80"], lines
    assert lines[3] == "user 620" and lines[4] == "x", lines
    assert lines[5].startswith("xterm"), lines


def test_input_resize_and_hangup(caller, session):
    script = "trap 'stty size' WINCH; echo ready; while read x; do echo got $x; done; echo end"
    cid = begin(caller, session, "bash", "-c", script, pty=SIZE)
    url = commands(session, cid, "/stdin")
    assert caller.post(url, {"text": "one\n"}).status == 200
    wait_until(lambda: b"got one" in out_of(caller, session, cid), 10, "it has read")
    assert caller.post(commands(session, cid, "/resize"), {"rows": 30, "cols": 90}).status == 200
    assert caller.post(url, {"text": "two\n"}).status == 200
    wait_until(lambda: b"got two" in out_of(caller, session, cid), 10, "it has read")
    assert b"30 90" in out_of(caller, session, cid)
    assert caller.post(url, {"eof": True}).status == 200
    assert ended(caller, session, cid)["exit"]["code"] == 0
    assert out_of(caller, session, cid).endswith(b"end\r\n")
    # Control characters are signals there.
    cid = begin(caller, session, "sleep", "300", pty=SIZE)
    assert caller.post(commands(session, cid, "/stdin"), {"text": "\x03"}).status == 200
    assert ended(caller, session, cid)["exit"]["signal"] == signal.SIGINT
    # What stays behind on it is hung up.
    cid = begin(caller, session, "bash", "-c", "sleep 299 & echo $!; sleep 0.2", pty=SIZE)
    state = ended(caller, session, cid)
    assert state["exit"]["code"] == 0
    child = int(out_of(caller, session, cid).split()[0])
    wait_until(lambda: caller.shell(session, f"kill -0 {child}").code != 0, 10, "it is gone")
    cid = begin(caller, session, "sleep", "300")
    answer = caller.post(commands(session, cid, "/resize"), SIZE)
    assert (answer.status, answer.json["code"]) == (409, "no_terminal")


def out_of(caller, session, cid):
    lines = caller.lines("GET", commands(session, cid, "/stream"),
                         headers={"Accept": "application/x-ndjson"})
    seq = caller.get(commands(session, cid)).json["seq"]
    events = []
    for line in lines:
        events.append(json.loads(line))
        if events[-1].get("seq", 0) >= seq or (seq == 0 and events[-1]["type"] == "start"):
            break
    lines.close()
    return Result(events).out


def test_root_has_a_terminal_of_its_own(caller):
    session = caller.create_runtime(profile="agent")
    answer = caller.post(commands(session), {"cmd": "stat -c %u $(tty)", "pty": SIZE, "user": "root"},
                         headers={"Accept": "application/json"}, timeout=30 * PATIENCE)
    assert answer.json["stdout"] == "0\r\n", answer
    caller.delete(f"{RUNTIME}/{session}")


def test_attach(caller, session):
    cid = begin(caller, session, "sh", "-c", "cat; echo err >&2; exit 4", stdin_open=True)
    out, events, code = attach(caller, session, cid, [b"a\xff\x00", b"b", '{"type":"eof"}'])
    assert out == b"a\xff\x00b" and code == 1000
    assert [e["type"] for e in events] == ["start", "stderr", "exit"] and events[-1]["code"] == 4
    # Again, from what is kept.
    again = attach(caller, session, cid)
    assert again[0] == out and again[1][-1]["code"] == 4
    cid = begin(caller, session, "bash", pty=SIZE)
    talk = [b"stty -echo; PS1=\n", '{"type":"resize","rows":40,"cols":100}', b"stty size\n", b"exit 3\n"]
    out, events, _ = attach(caller, session, cid, talk)
    assert b"40 100" in out and events[-1]["code"] == 3
    cid = begin(caller, session, "sleep", "300")
    _, events, _ = attach(caller, session, cid, ['{"type":"signal","signal":"TERM"}'])
    assert events[-1]["signal"] == signal.SIGTERM
    cid = begin(caller, session, "sleep", "300")
    for bad in ("x", "{}", '{"type":"resize","rows":0,"cols":1}', '{"type":"signal","signal":"X"}'):
        assert attach(caller, session, cid, [bad])[2] == 4001, bad
    assert caller.get(commands(session, cid)).json["status"] == "running"
    assert caller.get(commands(session, cid, "/attach")).status == 426
    assert caller.get(commands(session, cid, "/attach?on_disconnect=Kill")).status == 422


def test_attach_that_kills(caller, session):
    cid = begin(caller, session, "sleep", "300")

    async def leave():
        async with connect(caller, commands(session, cid, "/attach?on_disconnect=kill")) as ws:
            assert json.loads(await ws.recv())["type"] == "start"
    asyncio.run(leave())
    assert ended(caller, session, cid)["exit"]["cancelled"]


def test_large_input_waits_for_its_reader(caller, session):
    cid = begin(caller, session, "sh", "-c", "sleep 0.5; wc -c", stdin_open=True)
    blocks = [b"x" * 16000] * 200
    out, events, _ = attach(caller, session, cid, [*blocks, '{"type":"eof"}'])
    assert int(out) == 3200000 and events[-1]["code"] == 0


def held_command(caller, session, room):
    """A command that reads nothing before there is a file `go`, with room for so much more input."""
    cid = begin(caller, session, "sh", "-c", "while ! [ -e go ]; do sleep 0.1; done; wc -c", stdin_open=True)
    pending = []

    def give(size):
        answer = caller.request("POST", commands(session, cid, "/stdin"), raw_body=bytes(size),
                                headers={"Content-Type": "application/octet-stream"})
        assert answer.status == 200, answer
        return answer.json["pending_bytes"]

    def settled():
        pending.append(give(0))
        return len(pending) > 3 and len(set(pending[-3:])) == 1
    size = 128 << 10
    give(size)
    wait_until(settled, 20, "its pipe is full")
    more = (768 << 10) - room - pending[-1]
    give(more)
    return cid, size + more


def test_input_of_one_turn_fits(caller, session):
    """The rest of a message that was begun in an earlier turn comes on top of what a turn reads."""
    cid, size = held_command(caller, session, 33 << 10)
    message = b"x" * 16384
    first = frame(2, message)
    with connected(caller.path, 20 * PATIENCE) as sock:
        sock.sendall(handshake(caller, commands(session, cid, "/attach")) + first[:-1])
        time.sleep(0.5)
        sock.sendall(first[-1:] + frame(2, message) + frame(2, b"x" * 3500) + frame(1, b'{"type":"eof"}'))
        time.sleep(0.5)
        assert caller.shell(session, "touch go").code == 0
        data = b""
        while not (got := frames_of(data.partition(b"\r\n\r\n")[2])) or got[-1][0] != 8:
            data += sock.recv(65536)
    size += 2 * len(message) + 3500
    assert (2, f"{size}\n".encode()) in got, got
    assert struct.unpack(">H", got[-1][1][:2]) == (1000,)


def test_who_waits_for_a_command_that_does_not_read_is_not_cut(caller, session):
    """Its answers to pings lie behind input that is not read: 20 s to a ping, 55 s of patience."""
    cid, size = held_command(caller, session, 1000)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.connect(caller.path)
        sock.sendall(handshake(caller, commands(session, cid, "/attach")) + frame(2, b"x" * 2000))
        sock.settimeout(100 * PATIENCE)
        data, pings, begun = b"", 0, time.monotonic()
        while time.monotonic() < begun + 85 or pings < 3:
            more = sock.recv(65536)
            assert more, f"cut after {time.monotonic() - begun} s"
            data += more
            got = frames_of(data.partition(b"\r\n\r\n")[2])
            if sum(opcode == 9 for opcode, _ in got) > pings:
                pings += 1
                sock.sendall(frame(10))
        sock.sendall(frame(1, b'{"type":"eof"}'))
        assert caller.shell(session, "touch go").code == 0
        sock.settimeout(20 * PATIENCE)
        while not (got := frames_of(data.partition(b"\r\n\r\n")[2])) or got[-1][0] != 8:
            data += sock.recv(65536)
    assert (2, f"{size + 2000}\n".encode()) in got, got


# Input of our own making, with high bits that a careless filter does not see; another line discipline.
PUSH = """import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
for call, value in ((0x5412, b"x"), (0x100005412, b"x"), (0x5423, bytes(4))):
    r = libc.syscall(16, 0, ctypes.c_ulong(call), value)
    print("allowed" if r == 0 else errno.errorcode[ctypes.get_errno()])
"""


def test_terminals_outside_can_be_pushed_into():
    """The control of the next one."""
    with open("/proc/sys/dev/tty/legacy_tiocsti", encoding="ascii") as file:
        pushes = "allowed" if file.read().strip() == "1" else "EIO"
    pid, master = pty.fork()
    if pid == 0:
        os.execvp("python3", ["python3", "-c", PUSH])
    out = b""
    try:
        while data := os.read(master, 4096):
            out += data
    except OSError:
        pass  # hung up
    os.waitpid(pid, 0)
    os.close(master)
    # As root it is allowed whatever that file says.
    said = out.replace(b"x", b"").decode().split()
    assert said in ([pushes] * 2 + ["allowed"], ["allowed"] * 3), out


def test_terminals_are_bounded_and_cannot_be_pushed_into(caller, session):
    cid = begin(caller, session, "python3", "-c", PUSH, pty=SIZE)
    ended(caller, session, cid)
    assert Result(stream(caller, session, cid)).text.split() == ["EPERM", "EPERM", "EPERM"]
    script = ("import os\nn = 0\ntry:\n  while True: os.openpty(); n += 1\n"
              "except OSError as error: print(n, error.errno)\n")
    cid = begin(caller, session, "python3", "-c", script + "input()", stdin_open=True)
    wait_until(lambda: caller.get(commands(session, cid)).json["seq"] > 0, 20, "all are taken")
    answer = caller.post(commands(session), {"cmd": "true", "pty": SIZE},
                         headers={"Accept": "application/json"}, timeout=30 * PATIENCE)
    assert answer.status == 422 and answer.json["step"] == "pty", answer
    assert caller.post(commands(session, cid, "/stdin"), {"eof": True}).status == 200
