"""A session ends whatever its processes do: also while frozen, also during a storm of forks (E2)."""
from pathlib import Path

import pytest

from harness import RUNTIME, wait_until

# Every process forks all the time; CHURN: and the children end, so that no limit is ever reached.
BOMB = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n"
CHURN = "import os, signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nfor _ in range(64):\n    if os.fork() == 0: break\n" \
        "while True:\n    try:\n        if os.fork() == 0: os._exit(0)\n    except OSError: pass\n"
DEAF = "import os, signal\nfor n in range(1, 32):\n    try: signal.signal(n, signal.SIG_IGN)\n    except OSError: pass\n" \
       "for _ in range(100):\n    if os.fork() == 0: break\nos.setsid() if os.getpgrp() != os.getpid() else None\n" \
       "while True: signal.pause()\n"


def group_of(daemon, session):
    found, = [Path(path) for path in daemon.cgroups() if path.endswith(session) and Path(path, "cgroup.freeze").exists()]
    return found


def busy(daemon, alice, session, script):
    """Started; its client leaves it alone. Its processes are there."""
    stream = alice.lines("POST", f"{RUNTIME}/{session}/commands",
                         {"argv": ["python3", "-c", script], "timeout_ms": 120000})
    next(stream)
    group = group_of(daemon, session)
    wait_until(lambda: len((group / "cgroup.procs").read_text().split()) > 50, 20, "it forks")
    return stream, group


@pytest.mark.parametrize("frozen", [False, True], ids=["running", "frozen"])
@pytest.mark.parametrize("script", [BOMB, CHURN, DEAF], ids=["bomb", "churn", "deaf"])
def test_session_ends(daemon, alice, script, frozen):
    session = alice.create()
    stream, group = busy(daemon, alice, session, script)
    if frozen:
        (group / "cgroup.freeze").write_text("1")
        wait_until(lambda: "frozen 1" in (group / "cgroup.events").read_text(), 20, "frozen")
    assert alice.remove(session).status == 200
    wait_until(lambda: not any(session in path for path in daemon.cgroups()), 20, "nothing is left of its groups")
    stream.close()


@pytest.mark.parametrize("script", [BOMB, CHURN], ids=["bomb", "churn"])
def test_storm_freezes_and_thaws(daemon, alice, script):
    session = alice.create()
    stream, group = busy(daemon, alice, session, script)
    for _ in range(5):
        (group / "cgroup.freeze").write_text("1")
        wait_until(lambda: "frozen 1" in (group / "cgroup.events").read_text(), 20, "frozen")
        (group / "cgroup.freeze").write_text("0")
        wait_until(lambda: "frozen 0" in (group / "cgroup.events").read_text(), 20, "thawed")
    assert alice.remove(session).status == 200
    wait_until(lambda: not group.exists(), 20, "gone")
    stream.close()


def test_command_of_a_frozen_session_is_cancelled(daemon, alice, session):
    """Its client leaves while nothing of it can run: it ends at the thaw, and the session goes on."""
    stream, group = busy(daemon, alice, session, DEAF)
    (group / "cgroup.freeze").write_text("1")
    wait_until(lambda: "frozen 1" in (group / "cgroup.events").read_text(), 20, "frozen")
    stream.close()
    (group / "cgroup.freeze").write_text("0")
    wait_until(lambda: len((group / "cgroup.procs").read_text().split()) < 50, 20, "ended")
    assert alice.run(session, "/bin/echo", "alive").out == b"alive\n"
