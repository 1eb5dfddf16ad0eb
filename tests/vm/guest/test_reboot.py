"""The guest was turned off with an open session, and is up again."""
import json

import pytest

from harness import RUNTIME, SESSIONS
from installed import *


@pytest.fixture(scope="module", autouse=True)
def left_open():
    if not LEFT_OPEN.exists():
        pytest.skip("nothing was left open")
    return LEFT_OPEN.read_text()


def test_service_is_up_again(alice):
    assert is_active("sandboxd.service") and is_active("sandboxd-sessions.service")
    assert ctl("run", "--", "true").returncode == 0


def test_open_session_is_rebuilt_on_first_use(alice, left_open):
    assert shims() == []
    answer = alice.get(f"{SESSIONS}/{left_open}")
    assert answer.status == 200 and answer.json["components"] == ["one.yaml"]
    task = alice.execute(left_open)
    assert alice.frames(task, timeout=120)[-1]["stage"] == "done"
    assert len(shims()) == 1
    assert alice.run(left_open, "/bin/cat", "/session/one.yaml").out == b"type: a.B\n"


def test_suspended_sandboxes_have_every_byte(alice):
    if not LEFT_SUSPENDED.exists():
        pytest.skip("nothing was left suspended")
    left = json.loads(LEFT_SUSPENDED.read_text())
    assert len(left) == 20
    for sandbox, contents in left.items():
        assert alice.get(f"{RUNTIME}/{sandbox}").json["status"] == "suspended"
        answer = alice.post(f"{RUNTIME}/{sandbox}/resume", timeout=300)
        assert answer.status == 200 and answer.json["resumed"] == "snapshot", answer
        assert alice.shell(sandbox, CONTENTS).text == contents
        assert alice.delete(f"{RUNTIME}/{sandbox}").status == 200
