"""What both proxies of docs/proxy must do; test_proxy_*.py bring the fixture `proxy`."""
import asyncio
import json

import pytest
import websockets

from harness import PATIENCE, SESSIONS, sse_events, stopped_shim
from proxy_rig import lines_of, proxied_daemon, token

ALICE = token("alice", "blue")
BOB = token("bob", "red")


@pytest.fixture(scope="module")
def daemon():
    started = proxied_daemon()
    yield started
    started.done()


@pytest.fixture
def made(proxy):
    status, summary = proxy.request("POST", SESSIONS, {}, bearer=ALICE)
    assert status == 201, summary
    yield summary["id"]
    proxy.request("DELETE", f"{SESSIONS}/{summary['id']}", bearer=ALICE)


def owners(proxy, bearer, headers=""):
    """Who a session made by a request with these header lines belongs to."""
    body = '{"ttl_minutes": 5}'
    answer = proxy.raw((f"POST {SESSIONS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {bearer}\r\n"
                        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
                        f"Connection: close\r\n{headers}\r\n{body}").encode())
    head, _, text = answer.partition(b"\r\n\r\n")
    assert b" 201 " in head.split(b"\r\n")[0], answer
    if b"chunked" in head.lower():
        text = b"".join(text.split(b"\r\n")[1::2])
    summary = json.loads(text)
    proxy.daemon.root.delete(f"{SESSIONS}/{summary['id']}")
    return summary["owner"], summary["workspace_id"]


def test_token_says_who_asks(proxy):
    assert owners(proxy, ALICE) == ("alice", "blue")
    assert owners(proxy, token("carol")) == ("carol", None)


@pytest.mark.parametrize("headers", [
    "X-Sandbox-User: root\r\nX-Sandbox-Workspace: red\r\n",
    "x-sandbox-user: root\r\nx-sandbox-workspace: red\r\n",
    "X_Sandbox_User: root\r\nX_Sandbox_Workspace: red\r\n",
    "x-sandbox_user: root\r\nx_sandbox-workspace: red\r\n",
    "X-Sandbox-User: root\r\nX-Sandbox-User: root\r\nX-Sandbox-Workspace: red\r\n",
    "X-Sandbox-User: alice\r\nX-Sandbox-Project: p\r\nX-Sandbox-Scopes: platform:admin\r\n",
    "Connection: X-Sandbox-User, X-Sandbox-Workspace\r\n",
])
def test_forged_identity_is_dropped(proxy, headers):
    assert owners(proxy, ALICE, headers) == ("alice", "blue")
    assert owners(proxy, token("dora"), headers) == ("dora", None)


def test_forged_scopes_are_dropped(proxy):
    status, answer = proxy.request("POST", "/dagster/sandbox/janitor", bearer=ALICE,
                                   headers={"X-Sandbox-Scopes": "data:read platform:admin"})
    assert (status, answer) == (403, {"detail": "missing scope(s): ['platform:admin']"})
    weak = token("alice", scopes="data:read")
    status, answer = proxy.request("POST", f"{SESSIONS}/x/load", bearer=weak,
                                   headers={"x-sandbox-scopes": "data:write"})
    assert (status, answer) == (403, {"detail": "missing scope(s): ['data:write']"})


def test_identity_in_a_trailer_is_nothing(proxy):
    body = '{"ttl_minutes": 5}'
    answer = proxy.raw((f"POST {SESSIONS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {BOB}\r\n"
                        "Transfer-Encoding: chunked\r\nTrailer: X-Sandbox-User\r\n"
                        "Connection: close\r\n\r\n"
                        f"{len(body):x}\r\n{body}\r\n0\r\nX-Sandbox-User: alice\r\n"
                        "X-Sandbox-Workspace: blue\r\n\r\n").encode())
    status = answer.split(b"\r\n")[0]
    assert b" 201 " in status or b" 400 " in status, answer
    if b" 201 " in status:
        assert b'"owner":"bob"' in answer and b'"workspace_id":"red"' in answer, answer


@pytest.mark.parametrize("bearer", [
    None, "nonsense", "a.b", token("alice", expires=-1), ALICE[:-4] + "beef",
    BOB.split(".")[0] + "." + ALICE.split(".")[1],
], ids=["none", "no token", "no signature", "expired", "wrong signature", "foreign signature"])
def test_without_a_valid_token_nobody_asks(proxy, bearer):
    status, answer = proxy.request("GET", SESSIONS, bearer=bearer,
                                   headers={"X-Sandbox-User": "alice",
                                            "X-Sandbox-Scopes": "data:read"})
    assert (status, answer) == (401, {"detail": "Authentication required"})


def test_two_users_on_one_connection(proxy, made):
    connection = proxy.connection()
    try:
        connection.connect()
        sock = connection.sock
        for turn in range(20):
            bearer = (ALICE, BOB)[turn % 2]
            connection.request("GET", f"{SESSIONS}/{made}",
                               headers={"Authorization": f"Bearer {bearer}"})
            answer = connection.getresponse()
            text = answer.read()
            assert answer.status == (200, 404)[turn % 2], text
            assert connection.sock is sock, "the connection was not kept"
    finally:
        connection.close()


def test_upload_of_one_mib(proxy, made):
    body = "type: demo.Thing\n# " + "x" * ((1 << 20) - 19)
    assert len(body) == 1 << 20
    status, summary = proxy.request("POST", f"{SESSIONS}/{made}/components",
                                    {"name": "big", "body": body}, bearer=ALICE)
    assert status == 200 and summary["components"] == ["big.yaml"], summary
    status, answer = proxy.request("POST", f"{SESSIONS}/{made}/components",
                                   {"name": "big", "body": "x" * (3 << 20)}, bearer=ALICE)
    assert (status, answer) == (413, {"detail": "request body too large"})


@pytest.fixture
def stopped(proxy, made):
    """(task, go on): the task has begun and gets no further until told."""
    direct = proxy.daemon.client("alice", workspace="blue")
    for i in range(3):
        assert direct.write(made, f"part{i}", "type: demo.Thing\n").status == 200
    holder = stopped_shim(proxy.daemon, direct, made)
    holder.__enter__()
    try:
        yield direct.execute(made), lambda: holder.__exit__(None, None, None)
    finally:
        holder.gen.close()


def test_events_come_when_they_happen(proxy, stopped):
    task, go_on = stopped
    events = sse_events(lines_of(proxy, f"/chat/stream/{task}", ALICE))
    first = next(events)
    assert json.loads(first[1])["stage"] == "start"  # and nothing else has happened yet
    go_on()
    stages = [json.loads(data)["stage"] for _, data in events]
    assert stages[-1] == "done" and "materialize" in stages


def test_proxy_that_restarts_costs_no_frame(proxy, stopped):
    task, go_on = stopped
    events = sse_events(lines_of(proxy, f"/chat/stream/{task}", ALICE))
    seen = [next(events)]
    proxy.stop()
    seen += list(events)
    proxy.start()
    go_on()
    last = {"Last-Event-ID": seen[-1][0]}
    seen += sse_events(lines_of(proxy, f"/chat/stream/{task}", ALICE, headers=last))
    frames = [json.loads(data) for _, data in seen]
    assert frames == proxy.daemon.client("alice").frames(task)


async def socket_frames(proxy, task, cookie, origin=None, after=0):
    async with websockets.connect(
            f"ws://127.0.0.1:{proxy.port}/chat/stream/{task}?after={after}", origin=origin,
            extra_headers={"Cookie": f"theme=dark; session={cookie}",
                           "X-Sandbox-User": "root"}) as ws:
        frames = []
        try:
            while True:
                frames.append(json.loads(await asyncio.wait_for(ws.recv(), 20 * PATIENCE)))
        except websockets.ConnectionClosed:
            return frames, ws.close_code


def test_websocket_with_a_cookie(proxy, stopped):
    task, go_on = stopped
    go_on()
    frames = proxy.daemon.client("alice").frames(task)
    own = f"http://127.0.0.1:{proxy.port}"
    for origin in (None, own):
        assert asyncio.run(socket_frames(proxy, task, ALICE, origin)) == (frames, 1000)
    assert asyncio.run(socket_frames(proxy, task, ALICE, after=2)) == (frames[2:], 1000)


@pytest.mark.parametrize("cookie,origin,status", [
    (BOB, None, 404), ("nonsense", None, 401), (token("alice", expires=-1), None, 401),
    (token("alice", scopes="data:write"), None, 403), (ALICE, "https://evil.example", 403),
], ids=["foreign task", "no token", "expired", "scopes", "origin"])
def test_websocket_that_is_refused(proxy, stopped, cookie, origin, status):
    with pytest.raises(websockets.InvalidStatusCode) as refused:
        asyncio.run(socket_frames(proxy, stopped[0], cookie, origin))
    assert refused.value.status_code == proxy.refusal(status), refused.value
