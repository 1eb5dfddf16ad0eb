"""A reload, a restart and a stop that were asked for: no answer ends in its middle, no frame is lost."""
import json
import os
import signal
import threading
from concurrent.futures import Future

import pytest

from harness import PATIENCE, SESSIONS, SLOW, Daemon, connected, sse_events, wait_until
from test_jobs import GO_ON, TASKS, stopped_task
from test_websocket import read as read_messages

BODY = 'type: a.B\nattributes:\n  text: "' + "y" * 500_000 + '"\n'
N_SESSIONS, N_FILES = 10, 200


@pytest.fixture
def private():
    started = Daemon("[identity]\ntrusted_peers = 0\n[owner]\nchanges_per_second = 0\n")
    yield started
    started.done()


class Raw:
    """A request that is sent, or an answer that is read, as slowly as a test wants."""

    def __init__(self, caller, method, url, body=b""):
        self.sock = connected(caller.path, 60 * SLOW)
        head = [f"{method} {url} HTTP/1.1", "Host: sandboxd", "Connection: close", f"Content-Length: {len(body)}",
                *(f"{name}: {value}" for name, value in caller.headers.items())]
        self.sock.sendall("\r\n".join([*head, "", ""]).encode())
        self.file = self.sock.makefile("rb")

    def send(self, data):
        self.sock.sendall(data)

    def answer(self):
        """Status and body; the body is as long as was said."""
        status = int(self.file.readline().split()[1])
        size = None
        while (line := self.file.readline().strip()):
            if line.lower().startswith(b"content-length:"):
                size = int(line.split(b":")[1])
        body = self.file.read()
        self.sock.close()
        assert size is None or len(body) == size, (status, size, len(body))
        return status, body


def beside(function, *args):
    """In a thread that nobody waits for where the test has failed."""
    future = Future()

    def run():
        try:
            future.set_result(function(*args))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def large_list(caller):
    """Sessions of which a list does not fit the buffers of a socket."""
    for _ in range(N_SESSIONS):
        session = caller.create()
        for number in range(N_FILES):
            assert caller.write(session, f"{'long' * 28}{number}", "type: a.B\n").status == 200
    return f"{SESSIONS}?limit=500"


class InTheMiddle:
    """An upload of which half was sent, and an answer of which nothing was read."""

    def __init__(self, caller, session, list_url):
        self.body = json.dumps({"name": "late", "body": BODY}).encode()
        self.upload = Raw(caller, "POST", f"{SESSIONS}/{session}/components", self.body)
        self.upload.send(self.body[:250_000])
        self.list = Raw(caller, "GET", list_url)
        self.list.file.peek(1)

    def finish(self):
        self.upload.send(self.body[250_000:])
        status, body = self.upload.answer()
        assert status == 200, body
        status, body = self.list.answer()
        assert status == 200 and len(body) > 250_000
        assert len(json.loads(body)) > N_SESSIONS


def frames_as_lines(caller, task, after):
    return caller.frames(task, after=after)


def frames_as_events(caller, task, after):
    lines = caller.lines("GET", f"/chat/stream/{task}", headers={"Last-Event-ID": str(after)})
    return [json.loads(data) for _, data in sse_events(lines)]


def frames_as_messages(caller, task, after):
    return read_messages(caller, f"{TASKS}/{task}/stream?after={after}")[0]


FORMS = (frames_as_lines, frames_as_events, frames_as_messages)


def test_reload_cuts_nothing(private):
    caller = private.client("alice")
    list_url = large_list(caller)
    session = caller.create()
    task = stopped_task(caller, session)
    # None of them comes again.
    readers = [beside(form, caller, task, 0) for form in FORMS]
    # In its middle until all is read again.
    command = beside(caller.shell, session, "i=0; while [ $i -lt 30 ]; do echo $i; i=$((i+1)); sleep 0.1; "
                                            "[ $i != 15 ] || until [ -e /tmp/enough ]; do sleep 0.1; done; done")
    wait_until(lambda: streams(private) >= 4, 10, "they read")
    for n in range(1, 4):
        middle = InTheMiddle(caller, session, list_url)
        os.kill(private.process.pid, signal.SIGHUP)
        wait_until(lambda n=n: reloads(private) >= n, 20, "the configuration was read again")
        middle.finish()
    caller.shell(session, f"touch /tmp/enough; {GO_ON}")
    frames = [reader.result(90 * SLOW) for reader in readers]
    assert command.result(90 * SLOW).text == "".join(f"{i}\n" for i in range(30))
    assert frames[0][-1]["stage"] == "done" and frames[0][0]["seq"] == 1
    assert frames[1] == frames[0] and frames[2] == frames[0]


def streams(daemon):
    for line in daemon.root.get("/metrics").body.decode().splitlines():
        if line.startswith("sandboxd_http_streams "):
            return int(line.split()[1])
    raise AssertionError("no such metric")


def reloads(daemon):
    return daemon.root.get("/v1/config").json["generation"]


def test_restart_ends_answers_and_streams_go_on(private):
    """USR2, as a service manager restarts it, also for the upgrade of the package."""
    caller = private.client("alice")
    list_url = large_list(caller)
    session = caller.create()
    task = stopped_task(caller, session)
    readers = [beside(form_or_part, form, caller, task) for form in FORMS]
    wait_until(lambda: streams(private) >= 3, 10, "they read")
    middle = InTheMiddle(caller, session, list_url)
    private.process.send_signal(signal.SIGUSR2)
    wait_until(lambda: 'msg="leaving"' in private.log.read_text(), 20, "it leaves")
    middle.finish()
    assert private.process.wait(30 * PATIENCE) == 0
    parts = [reader.result(90 * SLOW) for reader in readers]
    private.start()
    assert "late.yaml" in caller.get(f"{SESSIONS}/{session}").json["components"]
    caller.shell(session, GO_ON)
    reference = caller.frames(task)
    assert reference[-1]["stage"] == "done"
    for form, part in zip(FORMS, parts):
        assert part and part[-1]["stage"] not in ("done", "error")
        assert part + form(caller, task, part[-1]["seq"]) == reference, form


def form_or_part(form, caller, task):
    """The frames that came until the stream was cut."""
    if form is not frames_as_lines:
        return form(caller, task, 0)
    return list(json.loads(line) for line in
                caller.lines("GET", f"{TASKS}/{task}/stream", headers={"Accept": "application/x-ndjson"}) if line)


def test_stop_ends_answers_and_tells_every_reader(private):
    caller = private.client("alice")
    list_url = large_list(caller)
    session = caller.create()
    task = stopped_task(caller, session)
    readers = [beside(form, caller, task, 0) for form in FORMS]
    wait_until(lambda: streams(private) >= 3, 10, "they read")
    middle = Raw(caller, "GET", list_url)
    middle.file.peek(1)
    private.process.send_signal(signal.SIGTERM)
    wait_until(lambda: 'msg="stopping"' in private.log.read_text(), 20, "it stops")
    status, body = middle.answer()
    assert status == 200 and len(json.loads(body)) > N_SESSIONS
    frames = [reader.result(90 * SLOW) for reader in readers]
    assert private.process.wait(60 * PATIENCE) == 0
    for told in frames:
        assert (told[-1]["stage"], told[-1]["code"]) == ("error", "host_stopped")
        assert told == frames[0]
    private.start()
    assert caller.frames(task) == frames[0]
