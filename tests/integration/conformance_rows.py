"""The rows of the conformance suite: what a client of the HTTP API may rely on with every provider.

A row is a function of a World. It ends, or raises NotSupported where the provider says that it cannot do this; anything
else is a failure."""
import base64
import concurrent.futures
import contextlib
import http.client
import os
import time

from harness import ABSENT_ID, RUNTIME, RUNTIME_NOT_FOUND, SLOW, Result, UnixConnection, event_bytes, wait_until
from conformance_rig import NotSupported, Sandbox, refused

ROWS = {}
MIB = 1 << 20
# Grows for as long as its process runs, wherever that has gone.
BEAT = "while :; do echo x >> beat; sleep 0.05; done"


def row(title):
    def add(function):
        assert title not in ROWS
        ROWS[title] = function
        return function
    return add


def stands_still(sandbox, path="beat", seconds=0.6):
    size = sandbox.size(path)
    time.sleep(seconds * SLOW)
    return sandbox.size(path) == size > 0


def goes_on(sandbox, path="beat"):
    size = sandbox.size(path)
    wait_until(lambda: sandbox.size(path) > size, 20, "it goes on")


# --- the life of a sandbox


@row("create, find, list")
def create(world):
    answer = world.caller.post(RUNTIME, {"metadata": {"row": "create"}})
    assert answer.status == 201, answer
    made = answer.json
    found = world.caller.get(f"{RUNTIME}/{made['sandbox_uuid']}")
    assert (found.status, found.json["status"], found.json["metadata"]) == (200, "open", {"row": "create"})
    assert found.json["organization_uuid"] == "blue"
    listed = world.caller.get(f"{RUNTIME}?metadata.row=create").json["sandboxes"]
    assert [one["sandbox_uuid"] for one in listed] == [made["sandbox_uuid"]]
    assert Sandbox(world.caller, made["sandbox_uuid"]).text("echo ready") == "ready\n"
    assert world.caller.delete(f"{RUNTIME}/{made['sandbox_uuid']}").status == 200


@row("capabilities name it")
def capabilities(world):
    said = world.caller.get("/v1/capabilities").json["providers"][world.provider.name]
    assert isinstance(said["pause_resume"], bool)


@row("one key, one sandbox")
def idempotency(world):
    body = {"idempotency_key": "conformance"}
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: world.caller.post(RUNTIME, body, timeout=90 * SLOW), range(4)))
    assert {answer.status for answer in answers} <= {200, 201}, answers
    name, = {answer.json["sandbox_uuid"] for answer in answers}
    assert world.caller.post(RUNTIME, {**body, "ttl": 601}).status == 409
    assert world.caller.delete(f"{RUNTIME}/{name}").status == 200


@row("a stranger finds nothing")
def stranger(world):
    with world.sandbox() as sandbox:
        for method, what, body in (("GET", "", None), ("DELETE", "", None), ("POST", "/commands", {"cmd": "true"}),
                                   ("POST", "/suspend", None), ("POST", "/resume", None), ("POST", "/snapshots", None),
                                   ("GET", "/files?path=x", None), ("GET", "/stats", None)):
            answer = world.stranger.request(method, sandbox.url(what), body=body)
            assert (answer.status, answer.body) == (404, RUNTIME_NOT_FOUND), (method, what, answer)
        assert sandbox.text("echo on") == "on\n"
    assert world.caller.get(f"{RUNTIME}/{ABSENT_ID}").body == RUNTIME_NOT_FOUND


@row("two sandboxes share nothing")
def apart(world):
    with world.sandbox() as one, world.sandbox() as other:
        one.text("echo mine > /session/file; echo mine > /tmp/file")
        # Control: where it was written it is.
        assert one.text("cat /session/file /tmp/file") == "mine\nmine\n"
        assert other.run("cat /session/file /tmp/file")["stdout"] == ""
        one.begin("exec sleep 7654")
        script = "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; done 2>/dev/null; :"
        wait_until(lambda: "sleep 7654" in one.run(script)["stdout"], 20, "it is seen at home")
        assert "sleep 7654" not in other.run(script)["stdout"]


@row("delete at once, and again")
def delete(world):
    sandbox = world.create()
    sandbox.begin(BEAT)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda _: world.caller.delete(sandbox.url(), timeout=90 * SLOW), range(2)))
    # One that comes when all is over finds nothing.
    assert {200} <= {answer.status for answer in both} <= {200, 404}, both
    for answer in (world.caller.delete(sandbox.url()), world.caller.get(sandbox.url()),
                   world.caller.post(sandbox.url("/commands"), {"cmd": "true"})):
        assert (answer.status, answer.body) == (404, RUNTIME_NOT_FOUND), answer


@row("life time is set anew")
def life_time(world):
    with world.sandbox(ttl=3600) as sandbox:
        first = sandbox.get().json["expires_at"]
        sandbox.done("/timeout", {"ttl": 7200})
        assert sandbox.get().json["expires_at"] > first
        for body in ({}, {"timeout_ms": 0}, {"ttl": "1"}):
            assert sandbox.post("/timeout", body).status == 422, body


@row("rules of egress are taken or refused")
def egress(world):
    with world.sandbox(egress={"allow": ["example.com:443"]}) as sandbox:
        said = sandbox.get("/egress")
        assert said.status == 200 and b"example.com" in said.body, said


@row("no rule, no way out")
def no_way_out(world):
    with world.sandbox() as sandbox:
        # Loopback and nothing else; a sandbox without the file has no interface at all.
        seen = sandbox.text("cat /proc/net/dev 2>/dev/null | tail -n +3 | cut -d: -f1; :").split()
        assert set(seen) <= {"lo"}, seen


# --- commands


@row("output, error output, exit code")
def command(world):
    with world.sandbox() as sandbox:
        said = sandbox.run("echo out; echo err >&2; exit 3")
        assert (said["stdout"], said["stderr"], said["code"], said["signal"]) == ("out\n", "err\n", 3, None)
        assert (said["timed_out"], said["truncated"]) == (False, False)
        events = sandbox.events("echo out; echo err >&2; exit 3")
        got = Result(events)
        assert (got.out, got.err, got.code) == (b"out\n", b"err\n", 3), events
        assert (events[0]["type"], events[-1]["type"]) == ("start", "exit")
        numbers = [event["seq"] for event in events[1:]]
        assert numbers == sorted(set(numbers))


@row("an exit code is only an exit code")
def exit_codes(world):
    with world.sandbox() as sandbox:
        for number in (1, 124, 126, 127, 129, 137, 143, 255):
            said = sandbox.run(f"exit {number}")
            assert (said["code"], said["signal"], said["timed_out"]) == (number, None, False), said


@row("death by a signal")
def death(world):
    with world.sandbox() as sandbox:
        for number in (9, 15, 11):
            said = sandbox.run(f"kill -{number} $$")
            assert (said["code"], said["signal"], said["timed_out"]) == (None, number, False), said


@row("a program that is not there")
def no_program(world):
    with world.sandbox() as sandbox:
        answer = sandbox.post("/commands", {"argv": ["/no/such/program"]}, headers={"Accept": "application/json"})
        refused(answer, 422, "command_failed")
        assert answer.json["errno"] == "ENOENT"
        refused(sandbox.post("/commands", {"cmd": "true", "cwd": "/no/such"}, headers={"Accept": "application/json"}),
                422, "command_failed")
        assert sandbox.text("echo on") == "on\n"


@row("arguments, folder, variables")
def arguments(world):
    with world.sandbox(envs={"BOTH": "create", "ONE": "a b'c\"$x"}) as sandbox:
        sandbox.done("/files/mkdir", {"path": "d"})
        assert sandbox.text("pwd") == "/session\n"
        assert sandbox.text("pwd; echo \"$BOTH-$ONE-$TWO\"", cwd="/session/d", envs={"BOTH": "run", "TWO": "2"}) == \
            "/session/d\nrun-a b'c\"$x-2\n"
        assert sandbox.text("echo \"$BOTH-$TWO\"") == "create-\n"
        words = ["sh", "-c", 'for w; do echo "<$w>"; done', "x", "", "a b", "-n", "*", "$HOME", "ä\t'\"\\", "--"]
        answer = sandbox.post("/commands", {"argv": words}, headers={"Accept": "application/json"})
        assert answer.json["stdout"] == "".join(f"<{word}>\n" for word in words[4:]), answer


@row("standard input")
def stdin(world):
    with world.sandbox() as sandbox:
        assert sandbox.text("cat; echo end", stdin="one\ntwo") == "one\ntwoend\n"
        assert sandbox.text("cat; echo end") == "end\n"
        large = "0123456789abcde\n" * 8192
        assert sandbox.text("cat", stdin=large) == large
        command = sandbox.begin("cat; exit 5", stdin_open=True)
        assert sandbox.done(f"/commands/{command}/stdin", {"data": base64.b64encode(b"\xff\0a").decode()})["accepted_bytes"] == 3
        assert sandbox.said(command, 3) == b"\xff\0a"
        sandbox.done(f"/commands/{command}/stdin", {"text": "b", "eof": True})
        assert sandbox.ended(command)["code"] == 5
        assert sandbox.output(command) == b"\xff\0ab"
        refused(sandbox.post(f"/commands/{command}/stdin", {"text": "x"}), 409, "not_running")


@row("a timeout ends the whole tree")
def timeout(world):
    with world.sandbox() as sandbox:
        script = f"echo said; setsid sh -c '{BEAT}' & (sh -c '{BEAT}' &) ; sleep 300"
        began = time.monotonic()
        said = sandbox.run(script, timeout_ms=3000 * SLOW)
        assert said["timed_out"] is True and said["stdout"] == "said\n", said
        assert time.monotonic() - began < 30 * SLOW
        assert stands_still(sandbox)
        assert sandbox.text("echo on") == "on\n"
        # Control: without a timeout such processes go on.
        sandbox.run(f"rm -f beat; (setsid sh -c '{BEAT}' > /dev/null 2>&1 &)")
        goes_on(sandbox)


@row("output is bounded")
def bound(world):
    with world.sandbox() as sandbox:
        said = sandbox.run("head -c 300000 /dev/zero | tr '\\0' x", max_output=1000)
        assert said["stdout"] == "x" * 1000 and said["truncated"] is True and said["code"] == 0, said
        assert said["dropped_bytes"] == 299000
        said = sandbox.run("echo short", max_output=1000)
        assert (said["stdout"], said["truncated"], said["dropped_bytes"]) == ("short\n", False, 0)


@row("every byte once, in order")
def every_byte(world):
    with world.sandbox() as sandbox:
        expected = "".join(f"{n}\n" for n in range(1, 400001)).encode()
        got = Result(sandbox.events("seq 1 400000; echo err >&2"))
        assert (got.code, got.err, len(got.out)) == (0, b"err\n", len(expected))
        assert got.out == expected


@row("whole characters")
def characters(world):
    with world.sandbox() as sandbox:
        events = sandbox.events("for c in '\\303' '\\244' '\\342' '\\202' '\\254' '\\360' '\\237'; do printf $c; sleep 0.05; done")
        outs = [event for event in events if event["type"] == "stdout"]
        assert "".join(event["text"] for event in outs if "text" in event) == "ä€", events
        assert b"".join(event_bytes(event) for event in outs) == b"\xc3\xa4\xe2\x82\xac\xf0\x9f"


@row("in the background")
def background(world):
    with world.sandbox() as sandbox:
        command = sandbox.begin("echo one; sleep 0.5; echo two; exit 4")
        listed, = sandbox.get("/commands").json["commands"]
        assert listed["command_id"] == command and listed["background"]
        answer = sandbox.get(f"/commands/{command}/wait", timeout_ms=1)
        assert answer.status == 200 and answer.json["status"] in ("running", "exited")
        assert sandbox.ended(command)["code"] == 4
        events = sandbox.stream(command)
        assert Result(events).out == b"one\ntwo\n" and events[-1]["type"] == "exit"
        first = next(event for event in events if event["type"] == "stdout")
        assert sandbox.stream(command, first["seq"]) == [e for e in events if e.get("seq", 0) > first["seq"]]
        refused(sandbox.get(f"/commands/{ABSENT_ID}"), 404, "not_found")


@row("signals to a command")
def signals(world):
    with world.sandbox() as sandbox:
        command = sandbox.begin("trap 'echo hup; exit 6' HUP; echo ready; while :; do sleep 0.1; done")
        assert sandbox.said(command, 6) == b"ready\n"
        sandbox.done(f"/commands/{command}/signal", {"signal": "HUP"})
        assert sandbox.ended(command)["code"] == 6
        assert sandbox.output(command) == b"ready\nhup\n"
        refused(sandbox.post(f"/commands/{command}/signal", {"signal": "HUP"}), 409, "not_running")
        command = sandbox.begin(f"setsid sh -c '{BEAT}' & echo up; wait")
        assert sandbox.said(command, 3) == b"up\n"
        wait_until(lambda: sandbox.size("beat") > 0, 20)
        sandbox.done(f"/commands/{command}/signal", {"signal": "KILL", "scope": "tree"})
        sandbox.ended(command)
        wait_until(lambda: stands_still(sandbox), 10, "all of it is gone")


@row("a client that leaves ends its command")
def client_leaves(world):
    with world.sandbox() as sandbox:
        lines = world.caller.lines("POST", sandbox.url("/commands"), {"cmd": BEAT}, headers={"Accept": "application/x-ndjson"})
        next(lines)
        wait_until(lambda: sandbox.size("beat") > 0, 20)
        goes_on(sandbox)
        lines.close()
        wait_until(lambda: sandbox.get("/commands").json["commands"] == [], 20, "it is gone")
        assert stands_still(sandbox)


@row("many at once")
def many(world):
    with world.sandbox() as sandbox:
        def one(number):
            return sandbox.run(f"for i in 1 2 3 4 5; do echo {number}; sleep 0.05; done; exit {number}")
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for number, said in enumerate(pool.map(one, range(8))):
                assert (said["stdout"], said["code"]) == (f"{number}\n" * 5, number), said
        held = [sandbox.begin("sleep 300") for _ in range(16)]
        refused(sandbox.post("/commands", {"cmd": "true", "background": True}), 429, "quota", True)
        for command in held:
            sandbox.done(f"/commands/{command}/signal", {"signal": "KILL"})
        assert {sandbox.ended(command)["signal"] for command in held} == {9}


@row("a terminal")
def terminal(world):
    with world.sandbox() as sandbox:
        said = sandbox.run("test -t 0 && test -t 1 && test -t 2 && stty size", pty={"rows": 24, "cols": 80})
        assert (said["code"], said["stdout"], said["stderr"]) == (0, "24 80\r\n", ""), said
        command = sandbox.begin("echo up; exec sleep 300", pty={"rows": 24, "cols": 80})
        assert sandbox.said(command, 4) == b"up\r\n"
        sandbox.done(f"/commands/{command}/stdin", {"text": "\x03"})
        assert sandbox.ended(command)["signal"] == 2


@row("commands as root")
def root(world):
    with world.sandbox() as sandbox:
        assert sandbox.text("id -u") != "0\n"
        assert sandbox.text("id -u; touch /session/roots; chmod 600 /session/roots", user="root") == "0\n"
        assert sandbox.run("cat /session/roots")["code"] != 0


# --- files


@row("files: put, get, stat, delete")
def files(world):
    with world.sandbox() as sandbox:
        data = bytes(range(256)) * 40
        answer = sandbox.put("deep/er/a b+c&d-ä", data)
        assert answer.status == 200, answer
        assert (answer.json["type"], answer.json["size"], answer.json["mode"]) == ("file", len(data), "0644")
        assert sandbox.bytes("/session/deep//er/./a b+c&d-ä") == data
        assert sandbox.put("empty", b"").json["size"] == 0 and sandbox.bytes("empty") == b""
        assert sandbox.put("run", b"#!/bin/sh\necho ran\n", mode="0755").json["mode"] == "0755"
        assert sandbox.text("./run; id -u > me; ls -ln run | awk '{print $3}' | diff - me") == "ran\n"
        assert sandbox.put("run", b"x").json["mode"] == "0755"
        refused(sandbox.put("run", b"y", replace="false"), 409, "exists")
        assert sandbox.bytes("run") == b"x"
        refused(sandbox.read("deep"), 409, "is_folder")
        refused(sandbox.read("none"), 404, "file_not_found")
        refused(sandbox.read("run/x"), 409, "not_folder")
        refused(sandbox.delete("/files", path="deep"), 409, "not_empty")
        assert sandbox.delete("/files", path="deep", recursive="true").json["removed"] is True
        refused(sandbox.delete("/files", path="deep"), 404, "file_not_found")
        assert sandbox.put("/tmp/t", b"t").status == 200 and sandbox.text("cat /tmp/t") == "t"


@row("files: large, both ways")
def large_files(world):
    with world.sandbox() as sandbox:
        data = os.urandom(MIB) * 12
        assert sandbox.put("big", data).json["size"] == len(data)
        assert sandbox.bytes("big") == data
        assert sandbox.text("wc -c < big").strip() == str(len(data))


@row("files: ranges")
def ranges(world):
    with world.sandbox() as sandbox:
        data = bytes(range(256)) * 1000
        sandbox.put("r", data)
        for text, begin, end in (("bytes=0-0", 0, 1), ("bytes=10-19", 10, 20), ("bytes=255990-", 255990, 256000),
                                 ("bytes=-7", 255993, 256000), ("bytes=100-999999999", 100, 256000)):
            answer = sandbox.read("r", Range=text)
            assert (answer.status, answer.body) == (206, data[begin:end]), text
            assert answer.headers["Content-Range"] == f"bytes {begin}-{end - 1}/256000"
        answer = sandbox.read("r", Range="bytes=256000-")
        assert (answer.status, answer.headers["Content-Range"]) == (416, "bytes */256000")


@row("files: folders, move, copy, mode")
def folders(world):
    with world.sandbox() as sandbox:
        for _ in range(2):
            assert sandbox.done("/files/mkdir", {"path": "d/e"})["type"] == "folder"
        sandbox.put("d/f", b"text")
        assert sandbox.names("d") == ["e", "f"]
        assert sandbox.done("/files/move", {"from": "d/f", "to": "d/e/g"})["path"] == "/session/d/e/g"
        assert (sandbox.names("d"), sandbox.names("d/e")) == (["e"], ["g"])
        sandbox.done("/files/copy", {"from": "d/e/g", "to": "d/h"})
        sandbox.done("/files/copy", {"from": "d/e", "to": "d/i", "recursive": True})
        assert sandbox.bytes("d/h") == sandbox.bytes("d/i/g") == sandbox.bytes("d/e/g") == b"text"
        refused(sandbox.post("/files/move", {"from": "d/h", "to": "d/e/g", "replace": False}), 409, "exists")
        refused(sandbox.post("/files/move", {"from": "d/none", "to": "x"}), 404, "file_not_found")
        assert sandbox.done("/files/chmod", {"path": "d/h", "mode": "0400"})["mode"] == "0400"
        assert sandbox.text("ls -l d/h | cut -c1-10") == "-r--------\n"


@row("files: nothing leads out")
def links(world):
    with world.sandbox() as sandbox:
        sandbox.text("mkdir in; echo inside > in/f; ln -s in rel; ln -s in/f link; ln -s /etc out; ln -s /etc/passwd pass;"
                     "ln -s ../../../../../etc climb; ln -s /proc/self/root root; ln -s loop loop")
        # Control: a link that stays inside counts.
        assert sandbox.bytes("rel/f") == sandbox.bytes("link") == b"inside\n"
        for path in ("out/passwd", "pass", "climb/passwd", "root/etc/passwd", "loop"):
            refused(sandbox.read(path), 403, "leads_out")
        for path in ("out/x", "climb/x", "root/tmp/x"):
            refused(sandbox.put(path, b"x"), 403, "leads_out")
            refused(sandbox.post("/files/mkdir", {"path": path}), 403, "leads_out")
            refused(sandbox.post("/files/move", {"from": "in/f", "to": path}), 403, "leads_out")
        for path in ("..", "a/../b", "/etc/passwd", "/", "/sessions/x", "a\0b", "x" * 256):
            assert sandbox.read(path).status == 422, path
            assert sandbox.put(path, b"x").status == 422, path
        assert sandbox.get("/files/stat", path="pass").json["target"] == "/etc/passwd"
        assert sandbox.put("link", b"mine").status == 200  # the link itself is replaced
        assert sandbox.bytes("in/f") == b"inside\n"


@row("files: whole or not at all")
def whole(world):
    with world.sandbox() as sandbox:
        sandbox.put("kept", b"old")
        connection = UnixConnection(world.caller.path, 30 * SLOW)
        connection.putrequest("PUT", sandbox.url("/files", path="kept"))
        for name, value in {**world.caller.headers, "Content-Length": str(4 * MIB)}.items():
            connection.putheader(name, value)
        connection.endheaders()
        connection.send(b"n" * MIB)
        time.sleep(0.3 * SLOW)
        assert sandbox.bytes("kept") == b"old"
        connection.close()
        time.sleep(0.3 * SLOW)
        assert sandbox.bytes("kept") == b"old"
        assert sandbox.names("/session") == sorted({"kept", *sandbox.text("ls -a | grep -v '^[.]*$'").split()})


@row("files: watch")
def watch(world):
    with world.sandbox() as sandbox:
        sandbox.done("/files/mkdir", {"path": "w"})
        with contextlib.closing(sandbox.watched("w")) as events:
            assert next(events)["type"] == "ready"
            sandbox.text("echo x > w/new")
            assert ("created", "/session/w/new") in ((event["type"], event["path"]) for event in events)


# --- git


@row("git")
def git(world):
    with world.sandbox() as sandbox:
        if sandbox.run("command -v git")["code"] != 0:  # the image has none
            refused(sandbox.post("/git/clone", {"path": "r", "url": "https://git.example.com/r"}), 422, "command_failed")
            raise NotSupported("command_failed")
        sandbox.text("mkdir r && cd r && git init -q -b main && echo a > a")
        sandbox.done("/git/add", {"path": "r", "paths": ["a"]})
        made = sandbox.done("/git/commit", {"path": "r", "message": "one", "author_name": "Ana", "author_email": "a@example.com"})
        said = sandbox.get("/git/status", path="r").json
        assert (said["current_branch"], said["has_changes"]) == ("main", False), said
        assert made["author"]["name"] == "Ana"
        assert sandbox.text("cd r && git log --format=%s") == "one\n"


# --- snapshots


@row("snapshot and restore")
def snapshot(world):
    with world.sandbox(workspace={"include": ["/session/w"], "exclude": ["*.tmp"]}) as sandbox:
        sandbox.text("mkdir -p w/d; echo kept > w/d/f; chmod 640 w/d/f; ln -s d/f w/link; echo x > w/x.tmp; echo out > out")
        made = sandbox.done("/snapshots", status=201)
        assert made["bytes"] > 0 and made["entries"] >= 3, made
        assert [one["snapshot_id"] for one in sandbox.get("/snapshots").json["snapshots"]] == [made["snapshot_id"]]
        body = {"snapshot_id": made["snapshot_id"]}
        sandbox.text("echo changed > w/d/f; echo new > w/new; echo later > out")
        refused(sandbox.post("/restore", body), 409, "exists")
        assert sandbox.text("cat w/d/f") == "changed\n"
        sandbox.done("/restore", {**body, "replace": True})
        assert sandbox.text("cat w/link; ls -l w/d/f | cut -c1-10; ls w; cat out") == "kept\n-rw-r-----\nd\nlink\nx.tmp\nlater\n"
        with world.sandbox() as other:
            other.done("/restore", {**body, "sandbox_uuid": sandbox.name})
            assert other.text("cat w/link; ls w") == "kept\nd\nlink\n"
        assert sandbox.delete(f"/snapshots/{made['snapshot_id']}").status == 200
        refused(sandbox.post("/restore", body), 404, "snapshot_not_found")


# --- suspend and resume


@row("suspend: nothing runs, all goes on")
def suspend(world):
    with world.sandbox() as sandbox:
        command = sandbox.begin(BEAT)
        wait_until(lambda: sandbox.size("beat") > 0, 20)
        said = sandbox.done("/suspend", {"durable": "never"})
        assert (said["status"], said["generation"], said["durable"]) == ("suspended", 1, False), said
        assert sandbox.done("/suspend", {"durable": "never"})["generation"] == 1
        for what, body in (("/commands", {"cmd": "true"}), (f"/commands/{command}/signal", {"signal": 15}),
                           ("/files/mkdir", {"path": "d"})):
            refused(sandbox.post(what, body), 409, "suspended", True)
        refused(sandbox.get("/files", path="beat"), 409, "suspended", True)
        time.sleep(1 * SLOW)
        said = sandbox.done("/resume")
        assert (said["status"], said["resumed"]) == ("open", "memory"), said
        assert sandbox.state(command)["status"] == "running"
        goes_on(sandbox)
        assert sandbox.done("/resume")["status"] == "open"


@row("suspend: it is no part of a timeout")
def suspend_clock(world):
    with world.sandbox() as sandbox:
        command = sandbox.begin("sleep 1; echo done; sleep 1", timeout_ms=6000 * SLOW)
        endless = sandbox.begin("sleep 300", timeout_ms=3000)
        sandbox.done("/suspend", {"durable": "never"})
        time.sleep(7 * SLOW)
        sandbox.done("/resume")
        assert sandbox.ended(endless)["timed_out"] is True
        said = sandbox.ended(command)
        assert (said["code"], said["timed_out"]) == (0, False), said


@row("suspend: a command before, files removed")
def suspend_before(world):
    with world.sandbox() as sandbox:
        sandbox.put("secret", b"s")
        sandbox.put("kept", b"k")
        answer = sandbox.post("/suspend", {"before": {"cmd": "exit 3"}, "durable": "never"})
        refused(answer, 422, "command_failed")
        assert sandbox.get().json["status"] == "open"
        sandbox.done("/suspend", {"before": {"cmd": "echo before > before"}, "remove": ["secret", "none"], "durable": "never"})
        sandbox.done("/resume")
        assert sandbox.bytes("before") == b"before\n" and sandbox.bytes("kept") == b"k"
        refused(sandbox.read("secret"), 404, "file_not_found")


@row("suspend: it outlives the service")
def suspend_durable(world):
    with world.sandbox() as sandbox:
        sandbox.text("mkdir d; echo kept > d/file; chmod 640 d/file")
        said = sandbox.done("/suspend", {"durable": "wait"})
        if said["durable"] is False and said["durable_error"]["code"] == "not_supported":
            assert said["durable_error"]["retryable"] is False, said
            sandbox.done("/resume")
            raise NotSupported("not_supported")
        assert said["durable"] is True, said
        world.daemon.stop()
        world.daemon.start()
        assert sandbox.get().json["status"] == "suspended"
        said = sandbox.done("/resume")
        assert said["status"] == "open" and said["resumed"] in ("memory", "snapshot"), said
        assert sandbox.text("cat d/file; ls -l d/file | cut -c1-10") == "kept\n-rw-r-----\n"
        # A later one takes its place.
        sandbox.text("echo later > d/file")
        sandbox.done("/suspend", {"durable": "wait"})
        world.daemon.stop()
        world.daemon.start()
        sandbox.done("/resume")
        assert sandbox.text("cat d/file") == "later\n"


# --- what dies


@row("the api worker dies: nothing is lost")
def adoption(world):
    with world.sandbox() as sandbox:
        sandbox.put("file", b"kept")
        done = sandbox.begin("echo all of it; exit 7")
        assert sandbox.ended(done)["code"] == 7
        command = sandbox.begin("i=0; while [ $i -lt 60 ]; do i=$((i+1)); echo $i; sleep 0.05; done; read x; echo $x", stdin_open=True)
        assert sandbox.said(command, 2) == b"1\n"
        world.worker_dies()
        wait_until(lambda: world.caller.get(sandbox.url()).status == 200, 20, "adopted")
        assert sandbox.state(command)["status"] == "running"
        assert (sandbox.output(done), sandbox.ended(done)["code"]) == (b"all of it\n", 7)
        sandbox.done(f"/commands/{command}/stdin", {"text": "after\n"})
        assert sandbox.ended(command)["code"] == 0
        assert sandbox.output(command) == "".join(f"{n}\n" for n in range(1, 61)).encode() + b"after\n"
        assert sandbox.bytes("file") == b"kept"


@row("the api worker dies while suspended")
def adoption_suspended(world):
    with world.sandbox() as sandbox:
        command = sandbox.begin(BEAT)
        sandbox.done("/suspend", {"durable": "never"})
        world.worker_dies()
        assert sandbox.get().json["status"] == "suspended"
        assert sandbox.done("/resume")["resumed"] == "memory"
        assert sandbox.state(command)["status"] == "running"
        goes_on(sandbox)


def answered(sandbox):
    """Not while it is looked for; and then there is nothing but 503."""
    try:
        answer = sandbox.read("file")
    except (OSError, http.client.HTTPException):
        return False
    if answer.status != 200:
        refused(answer, 503, "provider_unavailable", True)
    return answer.status == 200


@row("the provider dies: its sandboxes do not")
def provider_dies(world):
    with world.sandbox() as sandbox:
        sandbox.put("file", b"kept")
        command = sandbox.begin(BEAT)
        world.provider.dies(world.daemon)
        wait_until(lambda: answered(sandbox), 30, "found again")
        assert sandbox.bytes("file") == b"kept"
        assert sandbox.state(command)["status"] == "running"
        goes_on(sandbox)


@row("the provider does not answer")
def provider_silent(world):
    with world.sandbox() as sandbox:
        sandbox.put("file", b"kept")
        with world.provider.silent(world.daemon):
            refused(world.caller.post(RUNTIME, {}, timeout=90 * SLOW), 503, "provider_unavailable", True)
            answer = world.caller.get(sandbox.url())
            assert (answer.status, answer.json["status"]) == (200, "open"), answer
        assert sandbox.bytes("file") == b"kept"
        assert sandbox.text("echo on") == "on\n"
        with world.sandbox() as other:
            assert other.text("echo on") == "on\n"


@row("the end of the life time")
def end_of_life(world):
    wait_until(lambda: world.caller.get(world.mortal.url()).body == RUNTIME_NOT_FOUND, 100, "it has expired")
