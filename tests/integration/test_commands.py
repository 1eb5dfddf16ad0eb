"""Commands of the runtime API: answers, background, standard input, signals, bounds."""
import base64
import json
import os
import signal
import threading
import time

from harness import (PATIENCE, RUNTIME, RUNTIME_NOT_FOUND, SLOW, Result, UnixConnection, event_bytes, sse_events,
                     stopped_shim, wait_until)
from runtime_rig import fixture_caller, fixture_session  # noqa: F401 (fixtures)

JSON = {"Accept": "application/json"}
LINES = {"Accept": "application/x-ndjson"}


def commands(session, cid=None, what=""):
    return f"{RUNTIME}/{session}/commands" + (f"/{cid}" if cid else "") + what


def begin(client, session, *argv, **more):
    answer = client.post(commands(session), {"argv": list(argv), "background": True, **more})
    assert answer.status == 201, answer
    return answer.json["command_id"]


def ended(client, session, cid, timeout_ms=20000):
    answer = client.get(commands(session, cid, f"/wait?timeout_ms={timeout_ms}"))
    assert answer.status == 200, answer
    return answer.json


def stream(client, session, cid, after=None):
    where = "/stream" if after is None else f"/stream?after={after}"
    return [json.loads(line)
            for line in client.lines("GET", commands(session, cid, where), headers=LINES) if line]


def test_json_answer(caller, session):
    answer = caller.post(commands(session), {"cmd": "echo out; echo err >&2; exit 3"}, headers=JSON)
    assert answer.status == 200, answer
    got = answer.json
    assert (got["code"], got["signal"], got["timed_out"], got["truncated"]) == (3, None, False, False)
    assert (got["stdout"], got["stderr"]) == ("out\n", "err\n")
    assert got["usage"]["max_rss_kib"] > 0
    answer = caller.post(commands(session), {"cmd": "kill -9 $$"}, headers=JSON)
    assert (answer.json["code"], answer.json["signal"]) == (None, 9)
    answer = caller.post(commands(session), {"argv": ["/no/such"]}, headers=JSON)
    assert answer.status == 422
    assert (answer.json["code"], answer.json["retryable"]) == ("command_failed", False)
    assert answer.json["errno"] == "ENOENT"
    answer = caller.post(commands(session), {"cmd": "printf '\\377x'"}, headers=JSON)
    assert answer.json["stdout"] is None
    assert base64.b64decode(answer.json["stdout_base64"]) == b"\xffx"


def test_bodies(caller, session):
    for body, field in (
        ({}, "argv"),
        ({"argv": ["true"], "cmd": "true"}, "cmd"),
        ({"cmd": ""}, "cmd"),
        ({"cmd": "true", "pty": {"rows": 0, "cols": 5}}, "pty"),
        ({"cmd": "true", "pty": 1}, "pty"),
        ({"cmd": "true", "background": 1}, "background"),
        ({"cmd": "true", "on_disconnect": "x"}, "on_disconnect"),
        ({"cmd": "true", "max_output": 0}, "max_output"),
    ):
        answer = caller.post(commands(session), body)
        assert answer.status == 422, (body, answer)
        assert answer.json["detail"][0]["loc"][1] == field, answer


def test_sse(caller, session):
    events = list(sse_events(caller.lines("POST", commands(session), {"cmd": "echo hello"},
                                          headers={"Accept": "text/event-stream"})))
    kinds = [json.loads(data)["type"] for _, data in events]
    assert kinds == ["start", "stdout", "exit"]
    assert events[0][0] is None and int(events[2][0]) > int(events[1][0])


def test_background_outlives_its_client(caller, session):
    cid = begin(caller, session, "sh", "-c", "echo one; sleep 0.3; echo two")
    listed = caller.get(commands(session)).json["commands"]
    assert [c["command_id"] for c in listed] == [cid]
    assert listed[0]["background"] and listed[0]["cmd"].startswith("sh -c echo one")
    state = ended(caller, session, cid)
    assert state["status"] == "exited" and state["exit"]["code"] == 0
    events = stream(caller, session, cid)
    assert [e["type"] for e in events][0] == "start" and events[-1]["type"] == "exit"
    assert Result(events).text == "one\ntwo\n"
    first = next(e for e in events if e["type"] == "stdout")
    again = stream(caller, session, cid, after=first["seq"])
    assert again == [e for e in events if e.get("seq", 0) > first["seq"]]
    # The same while it runs, to two readers.
    cid = begin(caller, session, "sh", "-c", "echo one; read x; echo $x", stdin_open=True)
    reader = caller.lines("GET", commands(session, cid, "/stream"), headers=LINES)
    assert json.loads(next(reader))["type"] == "start"
    assert json.loads(next(reader))["text"] == "one\n"
    assert caller.post(commands(session, cid, "/stdin"), {"text": "two\n"}).status == 200
    assert json.loads(next(reader))["text"] == "two\n"
    assert json.loads(next(reader))["type"] == "exit"


def test_wait_has_a_time(caller, session):
    cid = begin(caller, session, "sleep", "60")
    before = time.monotonic()
    assert ended(caller, session, cid, 200)["status"] == "running"
    assert time.monotonic() - before < 20 * SLOW
    assert caller.post(commands(session, cid, "/signal"), {"signal": "KILL"}).status == 200
    state = ended(caller, session, cid)
    assert state["exit"]["signal"] == signal.SIGKILL and not state["exit"]["timed_out"]


def test_foreground_ends_with_its_client(caller, session):
    lines = caller.lines("POST", commands(session), {"cmd": "echo up; sleep 100"}, headers=LINES)
    cid = json.loads(next(lines))["command_id"]
    lines.close()
    wait_until(lambda: caller.get(commands(session, cid)).status == 404, 15, "it is gone")
    lines = caller.lines("POST", commands(session),
                         {"cmd": "echo up; sleep 0.5; echo later", "on_disconnect": "keep"},
                         headers=LINES)
    cid = json.loads(next(lines))["command_id"]
    lines.close()
    assert ended(caller, session, cid)["exit"]["code"] == 0
    assert Result(stream(caller, session, cid)).text == "up\nlater\n"


def test_json_answer_ends_with_its_client(caller, session):
    connection = UnixConnection(caller.path, 30)
    body = json.dumps({"cmd": "sleep 100"}).encode()
    connection.request("POST", commands(session), body=body, headers={**caller.headers, **JSON})
    listed = wait_until(lambda: caller.get(commands(session)).json["commands"], 10, "it runs")
    assert listed[0]["status"] in ("starting", "running")
    connection.close()
    wait_until(lambda: caller.get(commands(session)).json["commands"] == [], 15, "it is gone")


def test_timeout_kills_the_whole_tree(caller, session):
    script = "setsid sh -c 'setsid sleep 300 & setsid sleep 301' & sleep 302"
    answer = caller.post(commands(session), {"cmd": script, "timeout_ms": 500}, headers=JSON,
                         timeout=60 * SLOW)
    assert answer.json["timed_out"], answer
    # What was killed is gone a moment later.
    wait_until(lambda: b"sleep 30" not in caller.shell(session, "cat /proc/[0-9]*/cmdline").out.replace(b"\0", b" "), 10,
               "all are gone")


def test_text_is_whole_characters(caller, session):
    script = ("import os,time\nfor c in 'aä€😀'.encode() * 3:\n"
              " os.write(1, bytes([c])); time.sleep(0.005)\nos.write(1, b'\\xf0\\x9f')")
    events = [json.loads(line) for line in caller.lines(
        "POST", commands(session), {"argv": ["python3", "-c", script]}, headers=LINES) if line]
    outs = [e for e in events if e["type"] == "stdout"]
    assert all("text" in e for e in outs[:-1]), outs
    assert "".join(e["text"] for e in outs[:-1]) == "aä€😀" * 3
    assert event_bytes(outs[-1]) == b"\xf0\x9f" and "data" in outs[-1]
    assert sorted(e["seq"] for e in events[1:]) == [e["seq"] for e in events[1:]]


def test_output_is_bounded(caller, session):
    answer = caller.post(commands(session), {"cmd": "head -c 300000 /dev/zero | tr '\\0' x",
                                             "max_output": 1000}, headers=JSON)
    assert answer.json["truncated"] and len(answer.json["stdout"]) == 1000
    assert answer.json["dropped_bytes"] == 299000
    # What is kept of one in the background: the newest.
    cid = begin(caller, session, "sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x; echo end")
    state = ended(caller, session, cid, 60000)
    assert state["output_dropped"] and state["kept_bytes"] <= 1 << 20
    events = stream(caller, session, cid)
    assert [e["type"] for e in events[:2]] == ["start", "dropped"]
    assert Result(events).out.endswith(b"xend\n")


def test_ten_gigabytes_against_max_output(caller, session):
    """What is beyond is neither sent nor kept, and costs no more than the pipe."""
    answer = caller.post(commands(session), {"cmd": "head -c 10G /dev/zero", "max_output": 1000, "timeout_ms": 300000 * SLOW},
                         headers=JSON, timeout=320 * SLOW)
    assert answer.status == 200 and answer.json["code"] == 0, answer
    assert answer.json["truncated"] and answer.json["stdout"] is None  # NUL bytes are no text
    assert base64.b64decode(answer.json["stdout_base64"]) == bytes(1000)
    assert answer.json["dropped_bytes"] == 10 * 1024 ** 3 - 1000
    assert caller.shell(session, "echo on").text == "on\n"


def test_answers_that_wait_are_bounded_together(caller, session):
    """16 x 8 MiB is all; whoever streams, and other requests, are not concerned."""
    body = json.dumps({"cmd": "head -c 8M /dev/zero; sleep 300", "max_output": 8 << 20}).encode()
    waiting = [UnixConnection(caller.path, 60 * SLOW) for _ in range(16)]
    other = caller.create_runtime()

    def echo(form):
        return caller.post(commands(other), {"cmd": "echo on"}, headers=form, timeout=60 * SLOW)
    assert echo(JSON).status == 200
    for connection in waiting:
        connection.request("POST", commands(session), body=body, headers={**caller.headers, **JSON})
    wait_until(lambda: echo(JSON).status != 200, 60 * SLOW, "they hold what there is")
    refused = echo(JSON)
    assert (refused.status, refused.json["code"]) == (503, "busy"), refused
    assert "answers of commands" in refused.json["detail"]
    assert echo(LINES).status == 200 and b"on" in echo(LINES).body
    for connection in waiting:
        connection.close()
    wait_until(lambda: echo(JSON).status == 200, 30 * SLOW, "there is room again")
    caller.delete(f"{RUNTIME}/{other}")


def test_stdin(caller, session):
    cid = begin(caller, session, "cat", stdin_open=True)
    url = commands(session, cid, "/stdin")
    raw = {"Content-Type": "application/octet-stream"}
    assert caller.post(url, raw_body=b"\xff\x00raw", headers=raw).json["accepted_bytes"] == 5
    data = base64.b64encode(b"-json").decode()
    assert caller.post(url, {"data": data, "eof": True}).json["stdin_open"] is False
    assert ended(caller, session, cid)["exit"]["code"] == 0
    assert Result(stream(caller, session, cid)).out == b"\xff\x00raw-json"
    answer = caller.post(url, {"text": "x"})
    assert (answer.status, answer.json["code"]) == (409, "not_running")
    cid = begin(caller, session, "cat", stdin_open=True)
    assert caller.post(commands(session, cid, "/stdin?eof=1"), {"text": "x"}).json["stdin_open"] is False
    cid = begin(caller, session, "sleep", "60")
    answer = caller.post(commands(session, cid, "/stdin"), {"text": "x"})
    assert (answer.status, answer.json["code"]) == (409, "stdin_closed")
    # Never read: bounded, and said so.
    cid = begin(caller, session, "sleep", "60", stdin_open=True)
    url = commands(session, cid, "/stdin")
    sent = 0
    while True:
        answer = caller.post(url, raw_body=b"x" * 100000, headers=raw)
        if answer.status != 200:
            break
        sent += 100000
        assert sent < 4 << 20
    assert (answer.status, answer.json["code"], answer.json["retryable"]) == (429, "stdin_full", True)
    assert caller.post(commands(session, cid, "/signal"), {"signal": 15}).status == 200
    assert ended(caller, session, cid)["exit"]["signal"] == 15
    # A reader that goes away is no error of the command.
    cid = begin(caller, session, "sh", "-c", "exec <&-; sleep 60", stdin_open=True)
    url = commands(session, cid, "/stdin")

    def closed():
        answer = caller.post(url, raw_body=b"x", headers=raw)
        return answer.status == 409 and answer.json["code"] == "stdin_closed"
    wait_until(closed, 15, "it is known to be closed")


def test_held_output_waits_for_its_first_reader(caller, session):
    """More of it than is kept otherwise, and the reader is slow: it misses nothing all the same."""
    cid = begin(caller, session, "/bin/sh", "-c", "seq 260000; touch said; read x; echo $x", stdin_open=True, hold_output=True)
    wait_until(lambda: caller.shell(session, "test -e said").code == 0, 20, "it has said all of it")
    lines = caller.lines("GET", commands(session, cid, "/stream"))
    events = [json.loads(next(lines))]
    assert caller.post(commands(session, cid, "/stdin"), {"text": "on\n", "eof": True}).status == 200
    time.sleep(1)  # what comes now would push out what was not taken
    events += [json.loads(line) for line in lines if line]
    assert "dropped" not in [event["type"] for event in events]
    assert Result(events).out == "".join(f"{n}\n" for n in [*range(1, 260001), "on"]).encode()


def test_signals(caller, session):
    cid = begin(caller, session, "sh", "-c",
                "trap 'echo hup; exit 5' HUP; echo ready; while :; do sleep 0.1; done")
    wait_until(lambda: caller.get(commands(session, cid)).json["seq"] > 0, 10, "it is ready")
    for body in ({"signal": "NONE"}, {"signal": 0}, {"signal": 65}, {"signal": "HUP", "scope": "x"}):
        assert caller.post(commands(session, cid, "/signal"), body).status == 422, body
    assert caller.post(commands(session, cid, "/signal"), {"signal": "SIGHUP"}).status == 200
    state = ended(caller, session, cid)
    assert state["exit"]["code"] == 5
    answer = caller.post(commands(session, cid, "/signal"), {"signal": "TERM"})
    assert (answer.status, answer.json["code"]) == (409, "not_running")
    absent = "0f6a2c1e-5b7d-4c8a-9e3f-1a2b3c4d5e6f"
    for cid in (absent, "x", "x" * 100):
        answer = caller.post(commands(session, cid, "/signal"), {"signal": "TERM"})
        assert (answer.status, answer.json["code"]) == (404, "not_found"), answer
    cid = begin(caller, session, "sh", "-c", "setsid sleep 300 & echo $!; wait")
    wait_until(lambda: caller.get(commands(session, cid)).json["seq"] > 0, 10, "it is ready")
    child = int(Result(stream_now(caller, session, cid)).text)
    body = {"signal": "KILL", "scope": "tree"}
    assert caller.post(commands(session, cid, "/signal"), body).status == 200
    ended(caller, session, cid)
    # What ended is reaped a moment later.
    wait_until(lambda: caller.shell(session, f"kill -0 {child}").code != 0, 10, "it is gone")


def stream_now(client, session, cid):
    """What is there before its end."""
    lines = client.lines("GET", commands(session, cid, "/stream"), headers=LINES)
    events = [json.loads(next(lines)), json.loads(next(lines))]
    lines.close()
    return events


def test_many_are_refused(caller, session):
    for _ in range(16):
        begin(caller, session, "sleep", "300")
    for _ in range(50):
        answer = caller.post(commands(session), {"argv": ["true"], "background": True})
        assert (answer.status, answer.json["code"], answer.json["retryable"]) == (429, "quota", True)
    running = caller.get(commands(session)).json["commands"]
    assert len(running) == 16
    for command in running:
        body = {"signal": "KILL"}
        assert caller.post(commands(session, command["command_id"], "/signal"), body).status == 200
    for command in running:
        ended(caller, session, command["command_id"])
    # Of those that ended the newest are kept, and none is in the way of another.
    for _ in range(40):
        last = begin(caller, session, "true")
        ended(caller, session, last)
    kept = caller.get(commands(session)).json["commands"]
    assert 1 <= len(kept) <= 17 and kept[-1]["command_id"] == last


def test_pending_output_comes_after_the_exit(caller, session):
    def both():
        """What is late is waited for, for a moment: a busy machine may need more than one try."""
        answer = caller.post(commands(session), {"cmd": "(sleep 0.05; echo late) & echo now"}, headers=JSON)
        assert answer.json["stdout"] in ("now\nlate\n", "now\n"), answer
        return answer.json["stdout"] == "now\nlate\n"

    wait_until(both, 5, "what comes behind the exit")
    answer = caller.post(commands(session), {"cmd": "(setsid sleep 60 &) ; echo now"}, headers=JSON,
                         timeout=30 * SLOW)
    assert answer.json["stdout"] == "now\n" and answer.json["code"] == 0


def test_kept_over_a_restart_of_the_worker(daemon, caller, session):
    running = begin(caller, session, "sh", "-c", "echo before; read x; echo $x", stdin_open=True)
    done = begin(caller, session, "sh", "-c", "echo all of it; exit 7")
    before = stream(caller, session, done)
    wait_until(lambda: caller.get(commands(session, running)).json["seq"] > 0, 10, "it has spoken")
    daemon.deaths_expected = True
    os.kill(daemon.worker_pid("sandboxd-api"), signal.SIGKILL)
    wait_until(daemon.ready, 20, "the next worker answers")
    state = wait_until(lambda: answer_of(caller, session, running), 20, "it is known")
    assert state["status"] == "running" and state["stdin_open"]
    assert stream(caller, session, done) == before
    assert ended(caller, session, done)["exit"]["code"] == 7
    assert caller.post(commands(session, running, "/stdin"), {"text": "after\n"}).status == 200
    assert ended(caller, session, running)["exit"]["code"] == 0
    assert Result(stream(caller, session, running)).text == "before\nafter\n"


def test_a_shim_that_has_not_said_what_it_has(daemon, caller, session):
    """To the next worker it is not yet known: no command of it is lost for that."""
    running = begin(caller, session, "sleep", "1000")
    daemon.deaths_expected = True
    answers = []
    with stopped_shim(daemon, caller, session):
        os.kill(daemon.worker_pid("sandboxd-api"), signal.SIGKILL)
        wait_until(daemon.ready, 20, "the next worker answers")
        asking = [threading.Thread(target=lambda url=url: answers.append(caller.get(url, timeout=60 * PATIENCE)))
                  for url in (commands(session, running), commands(session))]
        for thread in asking:
            thread.start()
        time.sleep(1)
        assert not answers, answers
    for thread in asking:
        thread.join(60 * PATIENCE)
    assert [answer.status for answer in answers] == [200, 200], answers
    assert caller.get(commands(session, running)).json["status"] == "running"


def answer_of(caller, session, cid):
    try:
        answer = caller.get(commands(session, cid))
    except OSError:
        return None
    return answer.json if answer.status == 200 else None


def test_nobody_else_sees_them(daemon, caller, session):
    cid = begin(caller, session, "sleep", "100")
    other = daemon.client("eve")
    for method, what, body in (
        ("GET", "", None), ("GET", "/stream", None), ("GET", "/wait", None),
        ("POST", "/stdin", {"text": "x"}), ("POST", "/signal", {"signal": "TERM"}),
        ("POST", "/resize", {"rows": 1, "cols": 1}), ("GET", "/attach", None),
    ):
        answer = other.request(method, commands(session, cid, what), body=body)
        assert (answer.status, answer.body) == (404, RUNTIME_NOT_FOUND), (method, what, answer)
    assert other.get(commands(session)).body == RUNTIME_NOT_FOUND
    reader = daemon.client("ana", scopes="sandbox:read")
    assert reader.get(commands(session, cid)).status == 200
    assert reader.post(commands(session, cid, "/signal"), {"signal": "TERM"}).status == 403
    assert reader.get(commands(session, cid, "/attach")).status == 403
