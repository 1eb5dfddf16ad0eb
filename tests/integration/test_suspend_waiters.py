"""Who is in the middle of something when a sandbox is suspended is told so, and what goes on goes on."""
import contextlib
import http.client
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness import PATIENCE, UnixConnection, descendants, stopped, wait_until
from runtime_rig import fixture_caller, fixture_session  # noqa: F401 (fixtures)
from test_commands_pty import attach
from test_files import MIB, Upload, files, get, names, put, temporaries
from test_suspend import JSON, at, begin, is_suspended, resume, run, suspend

# Ends when there is a file.
UNTIL_GO = "echo one; while ! test -e go; do sleep 0.05; done; echo two"
LINES = {"Accept": "application/x-ndjson"}


def types(events):
    return [event["type"] for event in events]


def collect(events, lines):
    for line in lines:
        if line:
            events.append(json.loads(line))


def said(events, stream="stdout"):
    return "".join(event["text"] for event in events if event["type"] == stream)


@pytest.mark.parametrize("way", ["foreground", "background"])
def test_a_stream_says_it(caller, session, way):
    events = []
    with ThreadPoolExecutor() as pool:
        if way == "foreground":
            lines = caller.lines("POST", at(session, "/commands"), {"cmd": UNTIL_GO}, headers=LINES)
        else:
            cid = begin(caller, session, UNTIL_GO)
            lines = caller.lines("GET", at(session, f"/commands/{cid}/stream"), headers=LINES)
        done = pool.submit(collect, events, lines)
        wait_until(lambda: "stdout" in types(events))
        suspend(caller, session)
        wait_until(lambda: types(events)[-1] == "suspended")
        time.sleep(0.3)
        assert types(events) == ["start", "stdout", "suspended"] and not done.done()
        resume(caller, session)
        wait_until(lambda: types(events)[-1] == "resumed")
        run(caller, session, "touch go")
        done.result()
    assert types(events) == ["start", "stdout", "suspended", "resumed", "stdout", "exit"]
    assert said(events) == "one\ntwo\n" and events[-1]["code"] == 0


def test_a_stream_that_comes_later_says_it_too(caller, session):
    cid = begin(caller, session, UNTIL_GO)
    ended = begin(caller, session, "echo end")
    wait_until(lambda: caller.get(at(session, f"/commands/{ended}")).json["status"] == "exited")
    suspend(caller, session)
    events = []
    with ThreadPoolExecutor() as pool:
        done = pool.submit(collect, events, caller.lines("GET", at(session, f"/commands/{cid}/stream"), headers=LINES))
        wait_until(lambda: types(events) == ["start", "stdout", "suspended"])
        # What has ended stands for itself.
        over = []
        collect(over, caller.lines("GET", at(session, f"/commands/{ended}/stream"), headers=LINES))
        assert types(over) == ["start", "stdout", "exit"]
        resume(caller, session)
        run(caller, session, "touch go")
        done.result()
    assert types(events)[2:] == ["suspended", "resumed", "stdout", "exit"]


def test_an_attachment_says_it(caller, session):
    cid = begin(caller, session, UNTIL_GO)
    with ThreadPoolExecutor() as pool:
        attached = pool.submit(attach, caller, session, cid)
        wait_until(lambda: b"sandboxd_http_streams 1\n" in caller.get("/metrics").body, 10, "it is attached")
        time.sleep(0.5)
        suspend(caller, session)
        time.sleep(0.5)
        resume(caller, session)
        run(caller, session, "touch go")
        out, events, _ = attached.result()
    assert out == b"one\ntwo\n"
    assert types(events) == ["start", "suspended", "resumed", "exit"]


def test_who_waits_for_a_command(caller, session):
    """What can be asked for again is; a command that ends with its request keeps it."""
    kept_body = {"cmd": f"{UNTIL_GO} > kept", "on_disconnect": "keep"}
    with ThreadPoolExecutor() as pool:
        cid = begin(caller, session, UNTIL_GO)
        waits = pool.submit(caller.get, at(session, f"/commands/{cid}/wait?timeout_ms=60000"))
        kept = pool.submit(caller.post, at(session, "/commands"), kept_body, headers=JSON, timeout=90 * PATIENCE)
        own = pool.submit(caller.post, at(session, "/commands"), {"cmd": UNTIL_GO}, headers=JSON, timeout=90 * PATIENCE)
        wait_until(lambda: [c["status"] for c in caller.get(at(session, "/commands")).json["commands"]] == ["running"] * 3)
        time.sleep(0.3)
        suspend(caller, session)
        assert is_suspended(waits.result(10 * PATIENCE)) and waits.result().json["command_id"] == cid
        assert is_suspended(kept.result(10 * PATIENCE)), kept.result()
        again = caller.get(at(session, f"/commands/{cid}/wait?timeout_ms=60000"))
        assert is_suspended(again), again
        time.sleep(0.3)
        assert not own.done()
        resume(caller, session)
        run(caller, session, "touch go")
        answer = own.result()
        assert (answer.status, answer.json["stdout"], answer.json["code"]) == (200, "one\ntwo\n", 0)
        for name in (cid, kept.result().json["command_id"]):
            answer = caller.get(at(session, f"/commands/{name}/wait?timeout_ms=20000"))
            assert answer.status == 200 and answer.json["exit"]["code"] == 0, answer
    assert run(caller, session, "cat kept") == "two\n"


def test_files_on_their_way(caller, session):
    put(caller, session, "big", b"x" * 8 * MIB)
    put(caller, session, "f", b"old")
    upload = Upload(caller, session, "f", 10 * MIB)
    upload.send(b"x" * MIB)
    wait_until(lambda: temporaries(caller, session), what="a file on its way")
    connection = UnixConnection(caller.path)
    connection.request("GET", files(session, path="big"), headers=caller.headers)
    response = connection.getresponse()
    assert response.read(1000) == b"x" * 1000
    assert suspend(caller, session, durable="wait")["durable"] is True
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        upload.send(b"x" * 9 * MIB)
    answer = upload.answer()
    assert b" 409 " in answer and b'"suspended"' in answer, answer
    with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
        response.read()
    connection.close()
    upload.close()
    resume(caller, session)
    wait_until(lambda: not temporaries(caller, session))
    assert get(caller, session, "f").body == b"old"
    assert put(caller, session, "f", b"new").status == 200
    assert get(caller, session, "big").body == b"x" * 8 * MIB
    assert set(names(caller, session)) == {"big", "f"}


def test_nothing_of_an_upload_is_in_the_snapshot(private):
    caller = private.client("ana")
    session = caller.create_runtime()
    upload = Upload(caller, session, "f", 10 * MIB)
    upload.send(b"x" * MIB)
    wait_until(lambda: temporaries(caller, session), what="a file on its way")
    assert suspend(caller, session, durable="wait")["durable"] is True
    upload.close()
    private.stop()
    private.start()
    caller = private.client("ana")
    resume(caller, session, "snapshot")
    assert names(caller, session) == []


def copying(pids):
    """Those of them that have something open of which a copy is made in /tmp."""
    found = []
    for pid in pids:
        with contextlib.suppress(OSError):
            if any(os.readlink(fd).startswith("/tmp/.put-") for fd in Path(f"/proc/{pid}/fd").iterdir()):
                found.append(pid)
    return found


@pytest.mark.parametrize("recursive", [False, True])
def test_a_copy_on_its_way(private, recursive):
    """Its helper is stopped in the middle of it: when that goes on, nothing is there, now or later."""
    caller = private.client("ana")
    session = caller.create_runtime()
    run(caller, session, "mkdir -p from && head -c 150000000 /dev/zero > from/big")
    what = {"from": "from", "recursive": True} if recursive else {"from": "from/big"}
    put(caller, session, "f", b"")  # there is a helper
    pids = descendants(private.supervisor_pid())
    with ThreadPoolExecutor() as pool:
        for i in range(20):
            copy = pool.submit(caller.post, at(session, "/files/copy"), {**what, "to": f"/tmp/copy{i}"}, timeout=60 * PATIENCE)
            caught = []
            while not copy.done() and not caught:
                caught = copying(pids)
            with stopped(*caught):
                if caught and not copy.done():
                    suspend(caller, session, durable="never")
                    answer = copy.result()
                    break
            assert copy.result().status == 200
            caller.delete(files(session, path=f"/tmp/copy{i}", recursive="true"))
    assert caught, "it was never in the middle"
    assert is_suspended(answer), answer
    resume(caller, session)
    wait_until(lambda: not copying(pids), 60, "the helper ends it")
    assert run(caller, session, "ls -A /tmp") == ""
    assert caller.post(at(session, "/files/copy"), {**what, "to": "/tmp/copy"}).status == 200


def test_a_copy_at_any_moment(caller, session):
    """Whole, or answered as suspended and not there, now or later."""
    run(caller, session, "head -c 150000000 /dev/zero > big")
    with ThreadPoolExecutor() as pool:
        for i in range(8):
            copy = pool.submit(caller.post, at(session, "/files/copy"), {"from": "big", "to": f"/tmp/copy{i}"}, timeout=60 * PATIENCE)
            time.sleep(0.02 * i)
            suspend(caller, session, durable="never")
            answer = copy.result()
            resume(caller, session)
            assert answer.status == 200 or is_suspended(answer), answer
            # Whoever copies another one has what is left of the first behind it.
            assert caller.post(at(session, "/files/copy"), {"from": "big", "to": "/tmp/next"}).status == 200
            assert run(caller, session, "ls -A /tmp") == ("copy%d\nnext\n" % i if answer.status == 200 else "next\n")
            run(caller, session, "rm /tmp/*")
