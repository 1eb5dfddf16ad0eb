"""Suspending in place: what is frozen, what goes on, what a restart makes of it."""
import base64
import contextlib
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from harness import RUNTIME, RUNTIME_NOT_FOUND, SLOW, ctl, wait_until
from runtime_rig import fixture_caller, fixture_session  # noqa: F401 (fixtures)
from test_restart import kill_worker

JSON = {"Accept": "application/json"}
COUNT = "i=0; while :; do i=$((i+1)); echo $i > n; done"


def at(session, what=""):
    return f"{RUNTIME}/{session}{what}"


def suspend(caller, session, **body):
    answer = caller.post(at(session, "/suspend"), body or None)
    assert answer.status == 200, answer
    assert answer.json["status"] == "suspended", answer
    return answer.json


def resume(caller, session, how="memory"):
    answer = caller.post(at(session, "/resume"))
    assert answer.status == 200, answer
    assert (answer.json["status"], answer.json["resumed"]) == ("open", how), answer
    return answer.json


def begin(caller, session, script, **more):
    answer = caller.post(at(session, "/commands"), {"cmd": script, "background": True, **more})
    assert answer.status == 201, answer
    return answer.json["command_id"]


def run(caller, session, script):
    answer = caller.post(at(session, "/commands"), {"cmd": script}, headers=JSON)
    assert answer.status == 200, answer
    return answer.json["stdout"]


def waited(caller, session, cid, timeout_ms=20000):
    answer = caller.get(at(session, f"/commands/{cid}/wait?timeout_ms={timeout_ms}"))
    assert answer.status == 200, answer
    assert answer.json["status"] == "exited", answer
    return answer.json["exit"]


def cpu_us(caller, session):
    return caller.get(at(session, "/stats")).json["cpu_us"]


def is_suspended(answer):
    return (answer.status, answer.json["code"], answer.json["retryable"]) == (409, "suspended", True)


def test_nothing_runs_while_suspended(caller, session):
    cid = begin(caller, session, COUNT)
    before = cpu_us(caller, session)
    wait_until(lambda: cpu_us(caller, session) > before + 20000)
    said = suspend(caller, session, durable="never")  # a snapshot's shim runs
    assert (said["generation"], said["durable"]) == (1, False)
    stats = caller.get(at(session, "/stats")).json
    assert stats["frozen"] is True
    used = cpu_us(caller, session)
    time.sleep(0.5)
    assert cpu_us(caller, session) - used < 20000
    resume(caller, session)
    used = cpu_us(caller, session)
    wait_until(lambda: cpu_us(caller, session) > used + 20000)
    assert caller.get(at(session, f"/commands/{cid}")).json["status"] == "running"
    assert caller.get(at(session)).json["status"] == "open"


def test_what_needs_it_is_refused(caller, session):
    cid = begin(caller, session, "cat", stdin_open=True)
    suspend(caller, session)
    assert caller.get(at(session)).json["status"] == "suspended"
    dagster = f"/dagster/sandbox/sessions/{session}"
    assert caller.get(dagster).json["sandbox"]["tree"] == "suspended"
    for method, what, body in (
        ("POST", "/commands", {"cmd": "true"}),
        ("POST", f"/commands/{cid}/signal", {"signal": 15}),
        ("POST", f"/commands/{cid}/stdin", {"data": "eA=="}),
        ("GET", "/files?path=n", None),
        ("POST", "/files/mkdir", {"path": "d"}),
    ):
        answer = caller.request(method, at(session, what), body)
        assert is_suspended(answer), (what, answer)
    assert len(caller.get(at(session, "/commands")).json["commands"]) == 1
    resume(caller, session)
    assert caller.get(dagster).json["sandbox"]["tree"] == "live"
    caller.post(at(session, f"/commands/{cid}/stdin"), {"data": "eAo=", "eof": True})
    assert waited(caller, session, cid)["code"] == 0


def test_twice_is_the_same(caller, session):
    begin(caller, session, "sleep 1000")
    first = suspend(caller, session)
    again = suspend(caller, session)
    assert again["generation"] == first["generation"]
    resume(caller, session)
    assert caller.post(at(session, "/resume")).status == 200
    assert suspend(caller, session)["generation"] == first["generation"] + 1


def test_two_at_once(daemon, caller, session):
    begin(caller, session, COUNT)
    for word in ("suspend", "resume"):
        answers = []

        def ask(word=word, answers=answers):
            answers.append(daemon.client("ana").post(at(session, f"/{word}")))

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {(a.status, a.json["generation"]) for a in answers} == {(200, 1)}, answers


def test_a_timeout_does_not_count_it(caller, session):
    cid = begin(caller, session, "sleep 1; echo done > out; sleep 1", timeout_ms=6000 * SLOW)
    suspend(caller, session)
    time.sleep(6 * SLOW)
    resume(caller, session)
    got = waited(caller, session, cid)
    assert (got["code"], got["timed_out"]) == (0, False), got


def test_a_timeout_still_ends_it(caller, session):
    cid = begin(caller, session, "sleep 1000", timeout_ms=1500)
    suspend(caller, session)
    resume(caller, session)
    assert waited(caller, session, cid)["timed_out"] is True


def test_life_time_stands_still(daemon, caller):
    session = caller.create_runtime(ttl=60)
    suspend(caller, session)
    left = daemon.sql("SELECT ttl_left_us FROM sandbox_registry WHERE sandbox_uuid = ?", session)[0][0]
    assert 20_000_000 < left <= 60_000_000
    assert caller.post(at(session, "/timeout"), {"timeout_ms": 600000}).status == 200
    left = daemon.sql("SELECT ttl_left_us FROM sandbox_registry WHERE sandbox_uuid = ?", session)[0][0]
    assert left == 600_000_000, "what a next worker goes on with"
    resume(caller, session)
    assert caller.delete(at(session)).status == 200


def test_a_frozen_one_ends_at_once(daemon, caller):
    session = caller.create_runtime()
    begin(caller, session, COUNT)
    begin(caller, session, "setsid sh -c 'trap \"\" TERM; sleep 1000'")
    suspend(caller, session)
    began = time.monotonic()
    assert caller.delete(at(session)).status == 200
    assert time.monotonic() - began < 100 * SLOW  # not at the end of a command
    assert caller.get(at(session)).body == RUNTIME_NOT_FOUND
    row = daemon.sql("SELECT status FROM sandbox_registry WHERE sandbox_uuid = ?", session)
    assert row == [("destroyed",)]


def test_a_new_worker_leaves_it_frozen(private):
    caller = private.client("ana")
    session = caller.create_runtime()
    begin(caller, session, COUNT)
    cid = begin(caller, session, "sleep 2; echo end", timeout_ms=6000 * SLOW)
    suspend(caller, session, durable="never")  # a snapshot's shim runs
    kill_worker(private, "sandboxd-api")
    wait_until(lambda: caller.get(at(session)).status == 200)
    assert caller.get(at(session)).json["status"] == "suspended"
    used = cpu_us(caller, session)
    time.sleep(0.5)
    assert cpu_us(caller, session) - used < 20000
    time.sleep(6 * SLOW)
    resume(caller, session)
    assert waited(caller, session, cid)["code"] == 0
    assert run(caller, session, "echo still here") == "still here\n"


def test_the_command_before(caller, session):
    suspend(caller, session, before={"cmd": "echo saved > saved", "timeout_ms": 10000})
    resume(caller, session)
    assert run(caller, session, "cat saved") == "saved\n"
    for before, says in (({"cmd": "exit 3"}, "with 3"), ({"argv": ["sleep", "60"], "timeout_ms": 200}, "in time"),
                         ({"argv": ["/nowhere"]}, "")):
        answer = caller.post(at(session, "/suspend"), {"before": before})
        assert (answer.status, answer.json["code"]) == (422, "command_failed"), answer
        assert says in answer.json["detail"], answer
        assert caller.get(at(session)).json["status"] == "open"
    assert run(caller, session, "echo goes on") == "goes on\n"
    for before in ({}, {"cmd": "true", "background": True}, {"cmd": "true", "pty": {"rows": 2, "cols": 2}}, [], 1):
        answer = caller.post(at(session, "/suspend"), {"before": before})
        assert answer.status == 422 and answer.json["detail"][0]["loc"][:2] == ["body", "before"], answer


def test_what_the_command_before_wrote(daemon, caller, session):
    script = "seq 2000; echo why >&2; printf '\\377' >&2; exit 1"
    answer = caller.post(at(session, "/suspend"), {"before": {"cmd": script}}).json
    assert answer["code"] == "command_failed" and "stderr" not in answer, answer
    assert len(answer["stdout"]) == 4096 and answer["stdout"].endswith("\n1999\n2000\n")
    assert base64.b64decode(answer["stderr_base64"]) == b"why\n\xff"
    wide = caller.post(at(session, "/suspend"), {"before": {"cmd": "yes \u00e4\u00e4\u00e4 | head -n 2000; printf x; exit 1"}}).json
    assert wide["stdout"].endswith("\u00e4\nx") and 4090 < len(wide["stdout"].encode()) <= 4096
    nothing = caller.post(at(session, "/suspend"), {"before": {"cmd": "exit 1"}, "remove": ["x"]}).json
    assert (nothing["stdout"], nothing["stderr"]) == ("", "")
    other = caller.post(at(session, "/suspend"), {"before": {"cmd": "echo fine; ln -s /etc out"}, "remove": ["out/passwd"]}).json
    assert other["code"] == "leads_out" and "stdout" not in other, other
    said = ctl(daemon, "suspend", "--before", "echo to see; echo why >&2; exit 4", session)
    assert said.returncode != 0 and said.stdout == b"", said
    assert b"to see\n" in said.stderr and b"why\n" in said.stderr and b"ended with 4" in said.stderr
    assert caller.get(at(session)).json["status"] == "open"


def test_commands_are_told(caller, session):
    def listens(name):
        """A running command may not have set its trap yet."""
        wait_until(lambda: run(caller, session, f"ls {name} 2>/dev/null || true") == f"{name}\n")

    told = begin(caller, session, "trap 'echo told > told; exit 7' TERM; touch first; while :; do sleep 0.05; done")
    listens("first")
    suspend(caller, session, signal_commands="foreground")
    resume(caller, session)
    assert caller.get(at(session, f"/commands/{told}")).json["status"] == "running"
    deaf = begin(caller, session, "trap '' TERM; touch second; while :; do sleep 0.05; done")
    listens("second")
    suspend(caller, session, signal_commands="all", grace_ms=5000)
    assert caller.get(at(session, f"/commands/{told}")).json["exit"]["code"] == 7
    resume(caller, session)
    assert run(caller, session, "cat told") == "told\n"
    assert caller.get(at(session, f"/commands/{deaf}")).json["status"] == "running"


def test_paths_are_removed(caller, session):
    run(caller, session, "mkdir -p cache/deep && touch cache/deep/a keep && ln -s /etc out && mkdir /tmp/gone")
    suspend(caller, session, remove=["cache", "/tmp/gone", "nowhere/at/all"])
    resume(caller, session)
    assert run(caller, session, "ls -d cache /tmp/gone keep out 2>/dev/null || true").split() == ["keep", "out"]
    answer = caller.post(at(session, "/suspend"), {"remove": ["out/passwd"]})
    assert (answer.status, answer.json["code"]) == (403, "leads_out"), answer
    assert caller.get(at(session)).json["status"] == "open"
    for remove in (["/session"], ["/etc/passwd"], ["../x"], "x", [1]):
        assert caller.post(at(session, "/suspend"), {"remove": remove}).status == 422, remove


def test_a_resume_with_other_rules_and_variables(daemon, caller):
    session = caller.create_runtime(envs={"OLD": "1"}, egress={"allow": ["old.example.com:443"]})
    suspend(caller, session)
    answer = caller.post(at(session, "/resume"), {"egress": {"allow": ["new.example.com:443"]}, "envs": {"NEW": "2"}})
    assert answer.status == 200 and answer.json["resumed"] == "memory", answer
    assert run(caller, session, "echo $OLD-$NEW") == "-2\n"
    rules = str(caller.get(at(session, "/egress")).json)
    assert "new.example.com" in rules and "old.example.com" not in rules
    row = daemon.sql("SELECT egress_allow_json, envs_json FROM dagster_sandbox_sessions WHERE id = ?", session)[0]
    assert row == ('["new.example.com:443"]', '["NEW=2"]')
    for body in ({"egress": {"allow": ["*"]}}, {"envs": {"a b": "c"}}, {"limits": {}}):
        assert caller.post(at(session, "/resume"), body).status == 422, body


@contextlib.contextmanager
def stopped(pid):
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def test_who_waits_for_a_resume_hears_of_the_end(daemon, caller):
    """None waits for ever for what is closed before it goes on, and none is told that it goes on."""
    session = caller.create_runtime()
    begin(caller, session, "sleep 1000")
    suspend(caller, session)
    with ThreadPoolExecutor() as pool:
        with stopped(daemon.supervisor_pid()):
            asked = [pool.submit(caller.post, at(session, "/resume"))]
            wait_until(lambda: caller.get(at(session)).json["status"] != "suspended", 10, "it is asked for")
            asked += [pool.submit(caller.post, at(session, "/commands"), {"cmd": "true"}),
                      pool.submit(caller.get, at(session, "/files?path=n"))]
            time.sleep(0.5)
            deleted = pool.submit(caller.delete, at(session))
            wait_until(lambda: caller.get(at(session)).status == 404, 10, "its end is asked for")
        assert deleted.result().status == 200
        assert [(a.result().status, a.result().body) for a in asked] == [(404, RUNTIME_NOT_FOUND)] * 3


def test_who_waits_for_a_suspend_hears_of_the_end(caller):
    session = caller.create_runtime()
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(caller.post, at(session, "/suspend"), {"before": {"cmd": "touch begun; sleep 1000"}})
        wait_until(lambda: caller.get(at(session)).json["status"] == "suspending" or asked.done())
        time.sleep(0.5)
        assert caller.delete(at(session)).status == 200
        assert (asked.result().status, asked.result().body) == (404, RUNTIME_NOT_FOUND)
