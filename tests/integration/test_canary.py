"""The session at the start in which what must be refused is tried, and readiness that waits for it."""
import json
import os
import re
import shutil
import signal

import pytest

from harness import BUILD, SESSIONS, Daemon, ctl, wait_until

SAID = "the canary was refused everything"


def readyz(daemon):
    answer = daemon.root.get("/readyz")
    return answer.status, answer.json.get("reason"), answer.json.get("text")


def doctor(daemon):
    rows = json.loads(ctl(daemon, "-o", "json", "doctor").stdout)
    return next((row["state"], row["found"]) for row in rows if row["name"] == "canary")


@pytest.fixture
def daemon():
    started = Daemon()
    yield started
    started.done()


def test_it_has_run_before_the_service_is_ready_and_is_gone(daemon):
    assert readyz(daemon)[0] == 200
    assert doctor(daemon) == ("ok", "was refused everything")
    # A line of the log takes its way through the supervisor.
    wait_until(lambda: SAID in daemon.log.read_text(), 10, "the log says so")
    assert daemon.log.read_text().count(SAID) == 1
    assert daemon.root.get(SESSIONS).json == []
    assert daemon.shim_pids() == [], "its session is left"
    assert 'sandboxd_ready{part="canary"} 1' in daemon.root.get("/metrics").body.decode()


def test_a_reload_does_not_repeat_it_and_a_new_worker_does(daemon):
    daemon.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "configuration is reloaded" in daemon.log.read_text(), 10, "the reload")
    wait_until(lambda: SAID in daemon.log.read_text(), 10, "the log says so")
    assert daemon.log.read_text().count(SAID) == 1
    daemon.deaths_expected = True
    os.kill(daemon.worker_pid("sandboxd-api"), signal.SIGKILL)
    wait_until(lambda: daemon.log.read_text().count(SAID) == 2, 20, "the next worker's canary")
    assert readyz(daemon)[0] == 200


@pytest.mark.parametrize("off, text", [
    ("seccomp", r"a user namespace: ENOSPC instead of EPERM"),
    ("hidepid", r"reading of pid 1: EACCES instead of ENOENT"),
    ("landlock", r"making a device: EPERM instead of EACCES"),
])
def test_a_layer_that_is_missing_makes_the_service_not_ready(off, text):
    weak = Daemon(env={"SANDBOX_LAYER_OFF": off})
    try:
        status, reason, said = readyz(weak)
        assert (status, reason) == (503, "canary") and re.fullmatch(text, said), said
        # The answer may be there before the line, which takes its way through the supervisor.
        wait_until(lambda: weak.log.read_text().count("the canary was not refused") == 1, 10, "the log says so")
        assert weak.root.get("/readyz").json["parts"] == {"canary": said}
        assert doctor(weak) == ("degraded", said)
        # Not refused: an operator looks with sessions of the same kind.
        caller = weak.client("alice")
        caller.remove(caller.create())
    finally:
        weak.done()


def test_a_planted_capability_turns_it_red():
    weak = Daemon(env={"SANDBOX_PLANT": "cap-kept"})
    try:
        assert readyz(weak)[:2] == (503, "canary")
    finally:
        weak.done()


def test_one_that_says_nothing_is_followed_by_another(tmp_path):
    """It proves nothing, and a host that was busy at the start must not keep the service unready."""
    programs = tmp_path / "programs"
    shutil.copytree(BUILD / "bin", programs)
    shutil.copy2("/usr/bin/true", programs / "sandbox-canary")
    silent = Daemon(programs=programs)
    try:
        wait_until(lambda: silent.log.read_text().count("the canary did not answer") >= 2, 60, "another")
        assert readyz(silent) == (503, "canary", "it gave no report")
        wait_until(lambda: silent.shim_pids() == [], 10, "the end of its session")
    finally:
        silent.done()
