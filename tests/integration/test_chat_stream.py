"""The platform's own client, in node: it gets every frame, whenever it comes."""
import json
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness import ABSENT_ID, DATA, PATIENCE, stopped_shim

MODULES = "/usr/share/nodejs"
NODE = shutil.which("node")
if not NODE or not Path(MODULES, "ws").exists():
    pytest.skip("node or node-ws is not installed", allow_module_level=True)


def chat_stream(caller, task, auth=False, delay=0, timeout=120 * PATIENCE):
    time.sleep(delay)
    ran = subprocess.run(
        [NODE, str(DATA / "chat_stream.js"), caller.path, f"/chat/stream/{task}",
         json.dumps(caller.headers), *(["auth"] if auth else [])],
        env={"PATH": "/usr/bin:/bin", "NODE_PATH": MODULES}, capture_output=True, timeout=timeout,
        check=True)
    return json.loads(ran.stdout)


@pytest.fixture
def loaded(alice, session):
    for i in range(5):
        assert alice.write(session, f"part{i}", "type: demo.Thing\n").status == 200
    return session


def check(alice, task, seen):
    frames = alice.frames(task)
    assert [frame["stage"] for frame in frames] == ["start"] + ["materialize"] * 5 + ["done"]
    assert seen["error"] is None, seen
    assert seen["frames"] == frames
    assert seen["code"] == 1000 or seen["code"] == 1005, seen  # 1005: its own close came first


@pytest.mark.parametrize("auth", [False, True], ids=["silent", "auth"])
@pytest.mark.parametrize("late", [0, 1, pytest.param(10, marks=pytest.mark.slow)])
def test_short_run_is_seen_whole(alice, loaded, late, auth):
    task = alice.execute(loaded)
    seen = chat_stream(alice, task, auth, late)
    check(alice, task, seen)
    assert [other["type"] for other in seen["others"]] in ([[], ["auth_ok"]] if auth else [[]])


def long_run(daemon, alice, loaded, seconds):
    """Clients at 0, 1 and 10 s of a task that pauses for so long behind its first frame."""
    with ThreadPoolExecutor() as pool, stopped_shim(daemon, alice, loaded):
        task = alice.execute(loaded)
        clients = [pool.submit(chat_stream, alice, task, auth, late)
                   for late in (0, 1, 10) for auth in (False, True)]
        time.sleep(seconds)
        assert not any(client.done() for client in clients)
    for number, client in enumerate(clients):
        seen = client.result()
        check(alice, task, seen)
        others = [other["type"] for other in seen["others"]]
        assert others == (["auth_ok"] if number % 2 else [])


def test_long_run_is_seen_whole(daemon, alice, loaded):
    long_run(daemon, alice, loaded, 21)  # a ping goes out meanwhile


@pytest.mark.slow
def test_longer_run_is_seen_whole(daemon, alice, loaded):
    long_run(daemon, alice, loaded, 60)


def test_refusal_reaches_the_client_before_the_upgrade(alice, bob, loaded):
    task = alice.execute(loaded)
    for caller, other in ((bob, task), (alice, ABSENT_ID)):
        seen = chat_stream(caller, other)
        assert seen["frames"] == [] and "404" in seen["error"], seen
