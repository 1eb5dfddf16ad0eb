"""Readers that do not take what they asked for: cut, and continued where they were."""
import json
import socket
import threading
import time

import pytest

from harness import PATIENCE, stopped_shim, wait_until
from test_http_bounds import connect, metric, request
from test_websocket import frames_of, handshake, resident_kib

pytestmark = pytest.mark.slow

LINES = "Accept: application/x-ndjson\r\n"


@pytest.fixture(scope="module")
def big(daemon):
    """A finished task with 2 MB of frames, far more than the kernel holds for a socket."""
    caller = daemon.client("alice", workspace="blue")
    session = caller.create()
    documents = "for d in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18; do echo 'a: 1'; echo ---; done"
    script = ("cd /session; i=0;"
              f" while [ $i -lt 200 ]; do cp n.txt {'n' * 110}$i.yaml; i=$((i+1)); done")
    assert caller.shell(session, f"({documents}) >n.txt; {script}").code == 0
    task = caller.execute(session)
    frames = caller.frames(task)
    assert sum(len(json.dumps(frame)) for frame in frames) > 1 << 20
    yield task, frames
    caller.remove(session)


def read_websocket(sock, data=b""):
    """(frames, close code) up to the end of the connection."""
    while more := sock.recv(1 << 20):
        data += more
        if data.endswith((b"\x88\x02\x03\xe8", b"\x88\x0a\x03\xf5too slow")):
            break
    messages, text, code = [], b"", None
    for opcode, payload in frames_of(data.partition(b"\r\n\r\n")[2]):
        if opcode == 8:
            code = int.from_bytes(payload[:2], "big")
        elif opcode in (0, 1):
            text += payload
            try:
                messages.append(json.loads(text))
                text = b""
            except ValueError:
                pass  # its rest follows
    return messages, code


def read_chunked(sock, data=b""):
    """(frames, whether the end is the end) of a chunked answer of lines."""
    try:
        while more := sock.recv(1 << 20):
            data += more
    except ConnectionResetError:
        pass
    body, rest = b"", data.partition(b"\r\n\r\n")[2]
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size, 16)
        if length == 0:
            return [json.loads(line) for line in body.splitlines()], True
        body += rest[:length]
        rest = rest[length + 2:]
    return [json.loads(line) for line in body.split(b"\n")[:-1]], False


def test_readers_that_stop_are_cut_and_can_continue(daemon, alice, session, big):
    task, frames = big
    with stopped_shim(daemon, alice, session):
        # It takes every byte, and answers no ping.
        silent = connect(alice.path, handshake(alice, f"/chat/stream/{alice.execute(session)}"))
        cut_and_continue(daemon, alice, task, frames)
    opcodes = [opcode for opcode, _ in frames_of(silent.recv(65536).partition(b"\r\n\r\n")[2])]
    assert opcodes == [1, 9] and silent.recv(1) == b"", opcodes
    silent.close()


def cut_and_continue(daemon, alice, task, frames):
    blue = "X-Sandbox-Workspace: blue\r\n"
    pid = daemon.worker_pid("sandboxd-api")
    before = resident_kib(pid)
    sleeping = {
        "websocket": connect(alice.path, handshake(alice, f"/chat/stream/{task}")),
        "lines": connect(alice.path, request("GET", f"/chat/stream/{task}", LINES + blue)),
    }
    dripping = connect(alice.path, request("GET", f"/chat/stream/{task}", LINES + blue))
    drops = []

    def drip():
        try:
            while drop := dripping.recv(100):
                drops.append(drop)
                time.sleep(1)
        except OSError:
            pass

    reader = threading.Thread(target=drip, daemon=True)
    reader.start()
    time.sleep(1)
    assert resident_kib(pid) - before < 16384
    # Others are not hurt meanwhile.
    assert alice.frames(task) == frames
    wait_until(lambda: metric(daemon, "http_streams") == 0, 110, "they are cut")

    seen, code = read_websocket(sleeping["websocket"])
    assert code == 1013 and 0 < len(seen) < len(frames), (code, len(seen))
    assert seen == frames[:len(seen)]
    rest = connect(alice.path, handshake(alice, f"/chat/stream/{task}?after={seen[-1]['seq']}"))
    more, code = read_websocket(rest)
    assert seen + more == frames and code == 1000

    seen, whole = read_chunked(sleeping["lines"])
    assert not whole and seen == frames[:len(seen)] and 0 < len(seen) < len(frames)
    assert seen + alice.frames(task, after=seen[-1]["seq"]) == frames
    for sock in (*sleeping.values(), rest):
        sock.close()
    dripping.shutdown(socket.SHUT_RDWR)
    reader.join(10 * PATIENCE)
    dripping.close()
    assert b"".join(drops).startswith(b"HTTP/1.1 200 ")


def test_messages_longer_than_a_frame(alice, big):
    task, frames = big
    sock = connect(alice.path, handshake(alice, f"/chat/stream/{task}"))
    assert read_websocket(sock) == (frames, 1000)
    sock.close()
