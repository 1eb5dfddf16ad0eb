"""nginx in front, with the configuration of docs/proxy."""
import json
import signal

import pytest

pytest.importorskip("websockets", reason="python3-websockets is not installed")
from harness import ABSENT_ID, SESSIONS, descendants, sse_events, wait_until  # noqa: E402
from proxy_cases import *  # noqa: E402,F401,F403
from proxy_cases import ALICE, BOB, owners  # noqa: E402
from proxy_rig import NGINX, Nginx, Platform, lines_of, serve, token  # noqa: E402

if not NGINX:
    pytest.skip("nginx is not here; tests/run fetches it", allow_module_level=True)


@pytest.fixture(scope="module")
def proxy(daemon):
    started = Nginx(daemon)
    yield started
    started.done()


def test_each_request_is_judged(proxy):
    before = len(proxy.auth.asked)
    for user in ("alice", "bob", "alice"):
        assert proxy.request("GET", SESSIONS, bearer=token(user))[0] == 200
    assert proxy.auth.asked[before:] == [(SESSIONS, user) for user in ("alice", "bob", "alice")]


def test_control_without_the_lines_that_drop_them_headers_are_obeyed(daemon):
    """What test_forged_identity_is_dropped relies on: these lines of the configuration."""
    open_door = Nginx(daemon, leave_out=["proxy_set_header X-Sandbox-Workspace"])
    try:
        forged = "x-sandbox-workspace: red\r\n"
        assert owners(open_door, token("dora"), forged) == ("dora", "red")
    finally:
        open_door.done()


def test_reload_leaves_streams_alone(proxy, stopped):
    task, go_on = stopped
    events = sse_events(lines_of(proxy, f"/chat/stream/{task}", ALICE))
    assert json.loads(next(events)[1])["stage"] == "start"
    workers = descendants(proxy.process.pid)
    proxy.process.send_signal(signal.SIGHUP)
    wait_until(lambda: set(descendants(proxy.process.pid)) - set(workers), 10, "a new worker")
    assert proxy.request("GET", SESSIONS, bearer=ALICE)[0] == 200
    go_on()
    assert [json.loads(data)["stage"] for _, data in events][-1] == "done"


def test_what_is_not_ours_is_not_passed_on(proxy):
    for path in ("/metrics", "/readyz", "/sandboxd-auth", "/openapi.json"):
        connection = proxy.connection()
        connection.request("GET", path, headers={"Authorization": f"Bearer {ALICE}"})
        assert connection.getresponse().status == 404, path
        connection.close()


def test_tasks_of_others_are_the_platforms(daemon, made, proxy):
    """The stream path is shared: what sandboxd does not answer for this caller goes on."""
    task = daemon.client("alice", workspace="blue").execute(made)
    platform = serve(Platform)
    shared = Nginx(daemon, platform=platform)
    try:
        lines = [line for line in lines_of(shared, f"/chat/stream/{task}", ALICE) if line]
        assert json.loads(lines[-1].removeprefix(b"data: "))["stage"] == "done"
        for path, bearer in (("other-task?after=3", ALICE), (ABSENT_ID, ALICE), (task, BOB),
                             (task, token("alice", scopes="agent:view")), (task, "nonsense")):
            assert shared.request("GET", f"/chat/stream/{path}", bearer=bearer) == (
                200, {"platform": f"/chat/stream/{path}", "as": f"Bearer {bearer}"})
        assert shared.request("GET", SESSIONS, bearer="nonsense")[0] == 401
    finally:
        shared.done()
        platform.shutdown()
        platform.server_close()


def test_service_that_is_down_is_503(daemon):
    aside = daemon.control.with_name("aside")
    daemon.control.rename(aside)
    before_it = Nginx(daemon)
    try:
        assert before_it.request("GET", SESSIONS, bearer=ALICE) == (
            503, {"detail": "service unavailable"})
        before_it.auth.server_close()
        before_it.auth.shutdown()
        assert before_it.request("GET", SESSIONS, bearer=ALICE)[0] == 503
    finally:
        before_it.done()
        aside.rename(daemon.control)
