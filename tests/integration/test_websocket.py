"""Frames over a WebSocket: the same ones, in the same order, with the closes that browsers see."""
import asyncio
import base64
import hashlib
import json
import os
import signal
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness import ABSENT_ID, CONFIG, PATIENCE, SESSIONS, Daemon, connected, stopped_shim, wait_until

websockets = pytest.importorskip("websockets", reason="python3-websockets is not installed")

SLEEPER = "type: demo.Thing\n"


def stream_url(task):
    return f"/chat/stream/{task}"


@pytest.fixture
def finished(alice, session):
    for name in ("one", "two", "three"):
        assert alice.write(session, name, SLEEPER).status == 200
    assert alice.post(f"{SESSIONS}/{session}/load").status == 200
    task = alice.execute(session)
    return task, alice.frames(task)


def connect(caller, path, **more):
    headers = dict(caller.headers, **more.pop("headers", {}))
    return websockets.unix_connect(str(caller.path), uri=f"ws://sandboxd{path}",
                                   extra_headers=headers, **more)


async def read_all(caller, path, first=None, messages=None, **more):
    """Every message until the server closes, and the code with which it did. `messages`: where they are seen before."""
    messages = [] if messages is None else messages
    async with connect(caller, path, **more) as ws:
        if first is not None:
            await ws.send(first)
        try:
            while True:
                messages.append(json.loads(await asyncio.wait_for(ws.recv(), 30 * PATIENCE)))
        except websockets.ConnectionClosed:
            pass
        return messages, ws.close_code


def read(caller, path, **more):
    return asyncio.run(read_all(caller, path, **more))


# --- raw clients ---------------------------------------------------------------------------------


def handshake(caller, path, **changes):
    headers = {
        "Host": "sandboxd", "Upgrade": "websocket", "Connection": "Upgrade",
        "Sec-WebSocket-Key": base64.b64encode(b"0123456789abcdef").decode(),
        "Sec-WebSocket-Version": "13", **caller.headers,
    }
    headers.update({name.replace("_", "-"): value for name, value in changes.items()})
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items() if value is not None)
    return f"GET {path} HTTP/1.1\r\n{lines}\r\n".encode()


def frame(opcode, payload=b"", fin=True, mask=True, length=None):
    size = len(payload) if length is None else length
    head = bytes([(0x80 if fin else 0) | opcode])
    bit = 0x80 if mask else 0
    if size < 126:
        head += bytes([bit | size])
    elif size < 65536:
        head += bytes([bit | 126]) + struct.pack(">H", size)
    else:
        head += bytes([bit | 127]) + struct.pack(">Q", size)
    key = b"\x01\x02\x03\x04" if mask else b""
    if mask:
        payload = bytes(byte ^ key[i % 4] for i, byte in enumerate(payload))
    return head + key + payload


def frames_of(data):
    """(opcode, payload) of each complete server frame."""
    found = []
    while len(data) >= 2:
        size, at = data[1] & 0x7F, 2
        assert not data[1] & 0x80, "servers do not mask"
        if size == 126:
            size, at = struct.unpack(">H", data[2:4])[0], 4
        elif size == 127:
            size, at = struct.unpack(">Q", data[2:10])[0], 10
        if len(data) < at + size:
            break
        found.append((data[0] & 0x0F, data[at:at + size]))
        data = data[at + size:]
    return found


def talk(caller, path, *sent, until=8, head=None):
    """Handshake (or that head) and these bytes; (head, frames) until the server has sent a frame with this opcode,
    by default its last word."""
    with connected(caller.path, 20 * PATIENCE) as sock:
        sock.sendall((head or handshake(caller, path)) + b"".join(sent))
        data, frames = b"", []
        try:
            while until not in [opcode for opcode, _ in frames]:
                more = sock.recv(65536)
                if not more:
                    break
                data += more
                frames = frames_of(data.partition(b"\r\n\r\n")[2])
        except socket.timeout:
            pass
        return data.partition(b"\r\n\r\n")[0], frames


def close_code(frames):
    opcode, payload = frames[-1]
    assert opcode == 8, frames
    return struct.unpack(">H", payload[:2])[0]


@pytest.fixture
def unending(daemon, alice, session):
    """A task that gets no further while the test runs."""
    alice.write(session, "slow", SLEEPER)
    with stopped_shim(daemon, alice, session):
        yield alice.execute(session)


# --- the stream ----------------------------------------------------------------------------------


def test_websocket_carries_every_frame_and_closes_normally(alice, finished):
    task, frames = finished
    assert read(alice, stream_url(task)) == (frames, 1000)
    assert read(alice, f"/dagster/sandbox/tasks/{task}/stream") == (frames, 1000)


def test_client_of_a_running_task_gets_frames_as_they_come(alice, session):
    for i in range(20):
        alice.write(session, f"part{i:02}", SLEEPER)
    assert alice.post(f"{SESSIONS}/{session}/load").status == 200
    task = alice.execute(session)
    frames, code = read(alice, stream_url(task))
    assert code == 1000
    assert frames == alice.frames(task)
    assert [f["seq"] for f in frames] == list(range(1, len(frames) + 1))


def test_position_in_query_or_header_is_resumed(alice, finished):
    task, frames = finished
    assert read(alice, f"{stream_url(task)}?after=2") == (frames[2:], 1000)
    assert read(alice, stream_url(task), headers={"Last-Event-ID": "3"}) == (frames[3:], 1000)
    assert read(alice, f"{stream_url(task)}?after={len(frames)}") == ([], 1000)


def test_first_auth_message_is_answered(alice, finished):
    task, frames = finished
    sent = json.dumps({"type": "auth", "token": "x" * 15000, "workspace_id": "red"})
    _, answers = talk(alice, stream_url(task), frame(1, sent.encode()))
    texts = [json.loads(payload) for opcode, payload in answers if opcode == 1]
    auth = [text for text in texts if text.get("type") == "auth_ok"]
    assert auth == [{"type": "auth_ok", "user_id": "alice", "tenant_id": "blue",
                     "scopes": ["data:read", "data:write", "sandbox:read", "sandbox:write"]}]
    assert [text for text in texts if "stage" in text] == frames
    assert close_code(answers) == 1000


def test_auth_in_two_fragments_is_one_message(alice, finished):
    _, answers = talk(alice, stream_url(finished[0]), frame(1, b'{"type":', fin=False),
                      frame(9, b"between"), frame(0, b'"auth"}'))
    assert (10, b"between") in answers
    assert any(b"auth_ok" in payload for _, payload in answers)


# --- refused before the upgrade ------------------------------------------------------------------


@pytest.mark.parametrize("task", [ABSENT_ID, "x", "0" * 36])
def test_unknown_task_is_404_before_the_upgrade(alice, task):
    answer = alice.raw(handshake(alice, stream_url(task), Connection="Upgrade, close"))
    assert answer.startswith(b"HTTP/1.1 404 "), answer
    assert answer.endswith(b'{"detail":"sandbox session not found"}')


def test_foreign_task_is_404_before_the_upgrade(bob, finished):
    answer = bob.raw(handshake(bob, stream_url(finished[0])), timeout=1)
    assert answer.startswith(b"HTTP/1.1 404 "), answer


def test_identity_and_scopes_come_before_the_upgrade(daemon, finished):
    url = stream_url(finished[0])
    nobody = daemon.client(None)
    assert nobody.raw(handshake(nobody, url), timeout=1).startswith(b"HTTP/1.1 401 ")
    weak = daemon.client("alice", scopes="data:write")
    answer = weak.raw(handshake(weak, url), timeout=1)
    assert answer.startswith(b"HTTP/1.1 403 ") and b"data:read" in answer


@pytest.mark.parametrize("changes,status", [
    ({"Sec_WebSocket_Version": "8"}, 426),
    ({"Sec_WebSocket_Version": None}, 426),
    ({"Sec_WebSocket_Version": "130"}, 426),
    ({"Sec_WebSocket_Key": None}, 400),
    ({"Sec_WebSocket_Key": "short"}, 400),
    ({"Sec_WebSocket_Key": "!" * 24}, 400),
    ({"Sec_WebSocket_Key": base64.b64encode(b"x" * 17).decode()}, 400),
    ({"Connection": "keep-alive"}, 400),
    ({"Origin": "https://evil.example"}, 403),
    ({"Origin": "null"}, 403),
    ({"Origin": ""}, 403),
    ({"Origin": "https://sandboxd.evil.example"}, 403),
    ({"Origin": "https://sandboxd"}, 101),
    ({"Origin": "http://SANDBOXD"}, 101),
    ({"Upgrade": "WebSocket", "Connection": "keep-alive, upgrade"}, 101),
])
def test_handshake(alice, finished, changes, status):
    answer = alice.raw(handshake(alice, stream_url(finished[0]), **changes), timeout=1)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer
    if status == 426:
        assert b"Upgrade: websocket\r\n" in answer and b"Sec-WebSocket-Version: 13\r\n" in answer
    if status == 101:
        guid = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        key = base64.b64encode(b"0123456789abcdef")
        wanted = base64.b64encode(hashlib.sha1(key + guid).digest())
        assert b"Sec-WebSocket-Accept: " + wanted + b"\r\n" in answer


def test_upgrade_elsewhere_is_an_ordinary_request(alice):
    answer = alice.raw(handshake(alice, SESSIONS), timeout=1)
    assert answer.startswith(b"HTTP/1.1 200 "), answer


@pytest.mark.parametrize("headers,body", [
    ("Content-Length: 2\r\n", b"{}"),
    ("Transfer-Encoding: chunked\r\n", b"2\r\n{}\r\n0\r\n\r\n"),
])
def test_body_before_the_upgrade_is_no_frame(alice, finished, headers, body):
    task, frames = finished
    head = handshake(alice, stream_url(task)).replace(b"\r\n", f"\r\n{headers}".encode(), 1)
    answer, got = talk(alice, stream_url(task), body + frame(9, b"ping"), head=head)
    assert answer.startswith(b"HTTP/1.1 101 "), answer
    assert got[0] == (10, b"ping")
    assert [json.loads(text) for opcode, text in got if opcode == 1] == frames


def test_http_1_0_is_an_ordinary_request(alice, finished):
    request = handshake(alice, stream_url(finished[0])).replace(b"HTTP/1.1", b"HTTP/1.0", 1)
    answer = alice.raw(request, timeout=2)
    assert b" 200 " in answer.split(b"\r\n")[0] and b"text/event-stream" in answer


def test_configured_origins_and_their_reload():
    origin = {"Origin": "https://app.example"}
    own = Daemon(CONFIG + "\n[api]\nwebsocket_origins = https://other.example https://app.example\n")
    try:
        caller = own.client("alice")
        made = caller.create()
        url = stream_url(caller.execute(made))
        assert caller.raw(handshake(caller, url, **origin), timeout=0.5).startswith(
            b"HTTP/1.1 101 ")
        own.configure(CONFIG)
        own.process.send_signal(signal.SIGHUP)
        wait_until(lambda: caller.raw(handshake(caller, url, **origin), timeout=0.2).startswith(
            b"HTTP/1.1 403 "), 10, "the origin is refused")
    finally:
        own.done()


def read_in_background(pool, caller, task, messages=None):
    reading = pool.submit(read, caller, stream_url(task), messages=messages)
    wait_until(lambda: b"sandboxd_http_streams 1" in caller.get("/metrics").body, 10, "it reads")
    return reading


def test_end_of_the_service_is_an_error_frame_and_a_normal_close():
    own = Daemon()
    try:
        caller = own.client("alice")
        made = caller.create()
        with ThreadPoolExecutor() as pool, stopped_shim(own, caller, made):
            reading = read_in_background(pool, caller, caller.execute(made))
            own.stop()
            frames, code = reading.result(30 * PATIENCE)
        assert [frame["stage"] for frame in frames] == ["start", "error"]
        assert frames[-1]["code"] == "host_stopped" and code == 1000
    finally:
        own.done()


def test_worker_that_dies_costs_no_frame():
    own = Daemon()
    own.deaths_expected = True
    try:
        caller = own.client("alice")
        made = caller.create()
        caller.write(made, "one", SLEEPER)
        with ThreadPoolExecutor() as pool, stopped_shim(own, caller, made):
            task = caller.execute(made)
            messages = []
            reading = read_in_background(pool, caller, task, messages)
            wait_until(lambda: messages, 20, "the first frame")
            os.kill(own.worker_pid("sandboxd-api"), signal.SIGKILL)
            seen, code = reading.result(30 * PATIENCE)
        assert [frame["stage"] for frame in seen] == ["start"] and code == 1006
        wait_until(lambda: answers(caller, task), 20, "the next worker")
        more, code = read(caller, f"{stream_url(task)}?after={seen[-1]['seq']}")
        assert seen + more == caller.frames(task) and code == 1000
        assert more[-1]["stage"] in ("done", "error")
    finally:
        own.done()


def answers(caller, task):
    try:
        return caller.get(f"/dagster/sandbox/tasks/{task}").status == 200
    except OSError:
        return False


# --- clients that say too much -------------------------------------------------------------------


@pytest.mark.parametrize("sent,code", [
    (frame(1, b"hello"), 4001),
    (frame(1, b'{"type":"other"}'), 4001),
    (frame(1, b"[]"), 4001),
    (frame(2, b'{"type":"auth"}'), 4001),
    (frame(1, b'{"type":"auth"}') * 2, 4001),
    (frame(1, b'{"type":"auth"', fin=True), 4001),
    (frame(1, b"x", mask=False), 1002),
    (frame(1, b"\xff\xfe"), 1007),
    (frame(1, b"x" * 16385), 1009),
    (frame(1, b"x", length=1 << 62), 1009),
    (frame(1, b"x", fin=False) + frame(0, b"x", fin=False) * 64, 1009),
    (frame(1, b"", fin=False) + frame(0, b"", fin=False) * 64, 1009),
    (frame(3, b""), 1002),
    (frame(0, b"x"), 1002),
])
def test_what_a_client_may_not_say_closes(alice, unending, sent, code):
    head, frames = talk(alice, stream_url(unending), sent)
    assert head.startswith(b"HTTP/1.1 101 "), head
    assert close_code(frames) == code, frames


def test_close_of_the_client_is_answered(alice, unending):
    _, frames = talk(alice, stream_url(unending), frame(8, struct.pack(">H", 1000)))
    assert close_code(frames) == 1000


def test_ping_is_answered(alice, unending):
    _, frames = talk(alice, stream_url(unending), frame(9, b"abc"), until=10)
    assert (10, b"abc") in frames


def test_flood_of_pings_is_not_queued(alice, daemon, unending):
    """A client that pings and never reads costs a bounded amount of memory."""
    pid = daemon.worker_pid("sandboxd-api")
    with connected(alice.path, 20 * PATIENCE) as sock:
        sock.sendall(handshake(alice, stream_url(unending)))
        assert sock.recv(4000).startswith(b"HTTP/1.1 101 ")
        sock.settimeout(1)
        before = resident_kib(pid)
        sent = 0
        burst = frame(9, b"x" * 100) * 500
        end = time.monotonic() + 5
        try:
            while sent < 64 << 20 and time.monotonic() < end:
                sent += sock.send(burst)
        except socket.timeout:
            pass
        assert sent < 64 << 20
        assert resident_kib(pid) - before < 4096
        assert alice.get(SESSIONS).status == 200


def test_message_in_fragments_without_end_is_not_kept(alice, daemon, unending):
    """16 KiB of payload, one byte a frame, cost the library a hundred times that."""
    pid = daemon.worker_pid("sandboxd-api")
    message = frame(1, b"x", fin=False) + frame(0, b"x", fin=False) * 16000
    before = resident_kib(pid)
    socks = []
    try:
        for _ in range(20):
            sock = connected(alice.path, 20 * PATIENCE)
            socks.append(sock)
            sock.sendall(handshake(alice, stream_url(unending)))
            assert sock.recv(4000).startswith(b"HTTP/1.1 101 ")
            sock.settimeout(1)
            try:
                sock.sendall(message)
            except OSError:
                pass  # cut, or not read any more
        assert alice.get(SESSIONS).status == 200
        assert resident_kib(pid) - before < 8192
    finally:
        for sock in socks:
            sock.close()


def resident_kib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))
