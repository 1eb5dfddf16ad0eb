"""A sandbox as a client of the HTTP API has it, whoever its provider is: what rows of the conformance suite ask with.

Nothing here, and no row, knows more of a provider than the class of it below. Scripts are for any POSIX shell."""
import contextlib
import http.client
import json
import os
import re
import signal
import urllib.parse

from docker_rig import Engine
from harness import CONFIG, ROOT, RUNTIME, SLOW, Answer, Daemon, Result, UnixConnection, event_bytes, stopped, wait_until
from remote_standin import Service

JSON = {"Accept": "application/json"}
LINES = {"Accept": "application/x-ndjson"}
TABLE = re.compile(r"^\| row \| (.*?) \|\n\|[-|]+\|\n((?:\|.*\|\n)+)", re.M)


class NotSupported(Exception):
    """The provider says that it cannot do this, by its typed error."""


class Native:
    """The supervisor's own sessions."""

    name = "native"

    @contextlib.contextmanager
    def serving(self):
        daemon = Daemon(CONFIG)
        daemon.deaths_expected = True
        try:
            yield daemon
        finally:
            daemon.done()

    def silent(self, daemon):
        """Whoever makes sandboxes answers nothing meanwhile."""
        return stopped(daemon.supervisor_pid())

    def dies(self, daemon):
        """Whoever makes sandboxes is killed; given back when another one has its place."""
        former = daemon.supervisor_pid()
        os.kill(former, signal.SIGKILL)
        wait_until(lambda: daemon.supervisor_pid() not in (former, daemon.process.pid), 30, "another supervisor")
        wait_until(daemon.ready, 30, "it answers")


def kill_provider(daemon):
    name = "sandboxd-provider"[:15]  # as the kernel keeps it
    former = daemon.worker_pid(name)
    os.kill(former, signal.SIGKILL)
    wait_until(lambda: [pid for pid in daemon.processes().get(name, []) if pid != former], 30, "another one")
    wait_until(daemon.ready, 30, "it answers")


class Elsewhere:
    """Sandboxes that sandboxd-provider has of somebody else, which a test starts."""

    def __init__(self):
        self.other = None

    @contextlib.contextmanager
    def serving(self):
        self.other = self.begin()
        try:
            daemon = Daemon(CONFIG + f"[api]\nprovider = {self.name}\n" + self.other.config())
            daemon.deaths_expected = True
            try:
                wait_until(lambda: daemon.readiness() == 200, 20, "the provider is up")
                yield daemon
            finally:
                daemon.done()
        finally:
            self.other.done()

    def dies(self, daemon):
        kill_provider(daemon)


class Docker(Elsewhere):
    """Containers of podman's Docker-compatible engine."""

    name = "docker"
    begin = Engine

    def silent(self, _daemon):
        return stopped(self.other.process.pid)


class Remote(Elsewhere):
    """Sandboxes of the stand-in for a service elsewhere."""

    name = "remote"
    begin = Service

    def silent(self, _daemon):
        return self.other.silent()


PROVIDERS = (Native(), Docker(), Remote())


def documented():
    """provider -> row -> result, as docs/providers.md has them."""
    head, body = TABLE.search((ROOT / "docs" / "providers.md").read_text(encoding="utf-8")).groups()
    rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in body.splitlines()]
    return {name: {row[0]: row[at].strip("`") for row in rows} for at, name in enumerate(head.split(" | "), 1)}


def supported(answer):
    """The same answer, unless it says that the provider cannot do this."""
    if answer.status >= 400:
        with contextlib.suppress(ValueError, AttributeError):
            said = answer.json
            if said.get("code") == "not_supported":
                assert (answer.status, said["retryable"]) == (501, False), answer
                assert said["detail"], answer
                raise NotSupported(said["code"])
    return answer


def refused(answer, status, code, retryable=False):
    assert (answer.status, answer.json.get("code"), answer.json.get("retryable")) == (status, code, retryable), answer


def refused_by(caller, faults, again=lambda: None):
    """A create that meets them. One before it may have failed for another reason, as slow as the host is; and where
    a request for a sandbox that has just ended met them, the create did not: then they are put up again, and `again`
    does what else they need."""
    put_up = [list(fault) for fault in faults]

    def meets():
        answer = caller.post(RUNTIME, {}, timeout=90 * SLOW)
        are_met = all(left == 0 for _, _, left in faults)
        if answer.status == 201 and are_met:
            assert Sandbox(caller, answer.json["sandbox_uuid"]).delete().status == 200
            faults[:] = [list(fault) for fault in put_up]
            again()
            return False
        refused(answer, 503, "provider_unavailable", True)
        return are_met

    wait_until(meets, 60, "the fault was met")


def tried(ask, status):
    """The answer, or None while a worker is just ending, or it has another status."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        answer = ask()
        return answer if answer.status == status else None
    return None


def runs(sandbox):
    """Whether it runs commands, where another one may have to be made first."""
    answer = tried(lambda: sandbox.post("/commands", {"cmd": "true"}, headers=JSON), 200)
    return answer and answer.json.get("code") == 0


class Sandbox:
    def __init__(self, caller, name):
        self.caller = caller
        self.name = name

    def url(self, what="", **query):
        return f"{RUNTIME}/{self.name}{what}" + ("?" + urllib.parse.urlencode(query) if query else "")

    def get(self, what="", headers=None, **query):
        return supported(self.caller.get(self.url(what, **query), headers=headers, timeout=90 * SLOW))

    def post(self, what, body=None, headers=None, timeout=90 * SLOW):
        return supported(self.caller.post(self.url(what), body, headers=headers, timeout=timeout))

    def done(self, what, body=None, status=200):
        answer = self.post(what, body)
        assert answer.status == status, (what, answer)
        return answer.json

    def delete(self, what="", **query):
        return supported(self.caller.delete(self.url(what, **query), timeout=90 * SLOW))

    # Commands

    def run(self, script, **more):
        """How a command ended, as one answer."""
        answer = self.post("/commands", {"cmd": script, **more}, headers=JSON)
        assert answer.status == 200, answer
        return answer.json

    def text(self, script, **more):
        said = self.run(script, **more)
        assert (said["code"], said["stderr"]) == (0, ""), said
        return said["stdout"]

    def events(self, script, **more):
        """The same as a stream, whole."""
        lines = self.caller.lines("POST", self.url("/commands"), {"cmd": script, **more}, headers=LINES)
        return [json.loads(line) for line in lines if line]

    def begin(self, script, **more):
        return self.done("/commands", {"cmd": script, "background": True, **more}, 201)["command_id"]

    def state(self, command):
        answer = self.get(f"/commands/{command}")
        assert answer.status == 200, answer
        return answer.json

    def ended(self, command):
        answer = self.get(f"/commands/{command}/wait", timeout_ms=60000)
        assert answer.status == 200 and answer.json["status"] == "exited", answer
        return answer.json["exit"]

    def stream(self, command, after=None):
        what = f"/commands/{command}/stream" + (f"?after={after}" if after is not None else "")
        return [json.loads(line) for line in self.caller.lines("GET", self.url(what), headers=LINES) if line]

    def output(self, command):
        return Result(self.stream(command)).out

    def said(self, command, n):
        """Its first n bytes of output, once they are there."""
        got = b""
        with contextlib.closing(self.caller.lines("GET", self.url(f"/commands/{command}/stream"), headers=LINES)) as lines:
            for line in lines:
                event = json.loads(line) if line else {}
                got += event_bytes(event) if event.get("type") == "stdout" else b""
                if len(got) >= n:
                    break
        assert len(got) >= n, got
        return got[:n]

    # Files

    def put(self, path, data, **query):
        return supported(self.caller.request("PUT", self.url("/files", path=path, **query), raw_body=data, timeout=90 * SLOW))

    def read(self, path, **headers):
        return self.get("/files", headers=headers or None, path=path)

    def bytes(self, path):
        answer = self.read(path)
        assert answer.status == 200, answer
        return answer.body

    def names(self, path):
        answer = self.get("/files/list", path=path)
        assert answer.status == 200 and answer.json["truncated"] is False, answer
        return sorted(entry["name"] for entry in answer.json["entries"])

    def size(self, path):
        answer = self.get("/files/stat", path=path)
        return answer.json["size"] if answer.status == 200 else 0

    def watched(self, path):
        """What changes in a folder, as it happens."""
        connection = UnixConnection(self.caller.path, 30 * SLOW)
        try:
            connection.request("GET", self.url("/files/watch", path=path), headers=self.caller.headers)
            answer = connection.getresponse()
            if answer.status != 200:
                supported(Answer(answer.status, answer.headers, answer.read()))
            assert answer.status == 200
            yield from (json.loads(line) for line in answer if line.strip())
        finally:
            connection.close()


class World:
    """A service whose sandboxes are of one provider, and a caller."""

    def __init__(self, provider, daemon):
        self.provider = provider
        self.daemon = daemon
        self.caller = daemon.client("ana", workspace="blue")
        self.stranger = daemon.client("eve", workspace="red")
        self.results = {}
        self.mortal = self.create(ttl=60)  # of the last row, as it takes so long

    def create(self, **body):
        answer = supported(self.caller.post(RUNTIME, body, timeout=90 * SLOW))
        assert answer.status == 201, answer
        return Sandbox(self.caller, answer.json["sandbox_uuid"])

    @contextlib.contextmanager
    def sandbox(self, **body):
        made = self.create(**body)
        try:
            yield made
        finally:
            with contextlib.suppress(NotSupported):
                made.delete()

    def worker_dies(self):
        """The api worker, which has all connections; back when another one answers."""
        former = self.daemon.worker_pid("sandboxd-api")
        os.kill(former, signal.SIGKILL)
        wait_until(lambda: [pid for pid in self.daemon.processes().get("sandboxd-api", []) if pid != former], 30, "another worker")
        wait_until(self.daemon.ready, 30, "it answers")

    def table(self):
        width = max(map(len, self.results), default=0)
        return "\n".join(f"{row:<{width}}  {self.provider.name}: {result}" for row, result in self.results.items())
