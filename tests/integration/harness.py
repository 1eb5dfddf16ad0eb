"""A private daemon, clients of its sockets, and looks at it from outside."""
import base64
import contextlib
import http.client
import json
import os
import random
import re
import shutil
import signal
import socket
import sqlite3
import struct
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("SANDBOX_BUILD", ROOT / "build" / "debug"))
BIN = BUILD / "bin"
DATA = ROOT / "tests" / "data"
ASAN = "asan" in BUILD.name

SESSIONS = "/dagster/sandbox/sessions"
RUNTIME = "/v1/sandboxes"
NOT_FOUND = b'{"detail":"sandbox session not found"}'
RUNTIME_NOT_FOUND = b'{"detail":"sandbox not found"}'
ENDPOINT_NAMES = [
    "iceberg_rest_uri",
    "iceberg_warehouse",
    "polaris_base_url",
    "alpha_vantage_base_url",
    "datahub_gms_url",
    "kafka_bootstrap",
]
ABSENT_ID = "0f6a2c1e-5b7d-4c8a-9e3f-1a2b3c4d5e6f"

# How much longer than on a processor of today everything takes: an emulated one sets it, and so does a sanitizer.
SLOW = int(os.environ.get("SANDBOX_SLOW", "3" if ASAN else "1"))
# Bounds of what is waited for are those of a machine that has nothing else to do. Beyond so many times as much it is lost.
PATIENCE = 4 * SLOW
# Of one wait, below what conftest.py gives a test.
WAIT_SECONDS = 240
# Below what conftest.py gives a test.
STREAM_SECONDS = 240 * SLOW
LEAKS = re.compile(r"[^\n]*ERROR: LeakSanitizer.*?SUMMARY: AddressSanitizer: \d+ byte\(s\) leaked[^\n]*", re.DOTALL)

CONFIG = """\
[identity]
trusted_peers = 0
"""


def wait_until(condition, timeout=10.0, what="condition"):
    """Poll until condition() is true and give its value back. What is waited for comes within `timeout` seconds on a
    machine that has nothing else to do; how fast it is, is no test's here."""
    bound = max(timeout * SLOW, min(timeout * PATIENCE, WAIT_SECONDS))
    end = time.monotonic() + bound
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= end:
            raise AssertionError(f"not within {bound:.0f} s: {what}")
        time.sleep(0.02)


def free_port():
    """Of 127.0.0.1, outside of what the kernel gives to connections: nobody has it before its server, nor while that is
    started again. A client that tries meanwhile would be connected with itself."""
    while True:
        port = random.SystemRandom().randrange(20000, 32000)
        if port in GIVEN_PORTS:
            continue
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            GIVEN_PORTS.add(port)
            return port


GIVEN_PORTS = set()


def is_whole(answer):
    """A whole answer of HTTP begins what came, or the head of an upgrade."""
    head, end, body = answer.partition(b"\r\n\r\n")
    fields = head.lower()
    if not end:
        return False
    if b"\r\ntransfer-encoding: chunked" in fields:
        return body.endswith(b"0\r\n\r\n")
    size = re.search(rb"\r\ncontent-length: *(\d+)", fields)
    return head[9:12] == b"101" or size is not None and len(body) >= int(size.group(1))


def connected(path, timeout):
    """A client of the socket. With a time-out of Python's a connect does not wait where the backlog is full (EAGAIN at
    once), so it has one of the kernel's."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", int(timeout) + 1, 0))
        sock.connect(str(path))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", 0, 0))
        sock.settimeout(timeout)
    except BaseException:
        sock.close()
        raise
    return sock


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout=30):
        super().__init__("sandboxd", timeout=timeout)
        self.unix_path = path

    def connect(self):
        self.sock = connected(self.unix_path, self.timeout)


class Answer:
    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"<{self.status} {self.body[:300]!r}>"


def event_bytes(event):
    """What a `stdout` or `stderr` event carries."""
    return event["text"].encode() if "text" in event else base64.b64decode(event["data"])


class Result:
    """What a command in a session did."""

    def __init__(self, events):
        self.events = events
        self.out = b"".join(self._data("stdout"))
        self.err = b"".join(self._data("stderr"))
        last = events[-1] if events else {}
        self.exit = last if last.get("type") == "exit" else {}
        self.error = last if last.get("type") == "error" else {}
        self.code = self.exit.get("code")
        self.signal = self.exit.get("signal")

    def _data(self, kind):
        return [event_bytes(e) for e in self.events if e.get("type") == kind]

    @property
    def text(self):
        return self.out.decode("utf-8", "replace")

    def __repr__(self):
        return f"<exit {self.exit or self.error} out {self.out[:300]!r} err {self.err[:300]!r}>"


class Client:
    """One caller: a socket and the identity headers that go with each request."""

    def __init__(self, path, user=None, scopes=None, workspace=None, project=None):
        self.path = str(path)
        self.headers = {}
        for name, value in (
            ("X-Sandbox-User", user),
            ("X-Sandbox-Scopes", scopes),
            ("X-Sandbox-Workspace", workspace),
            ("X-Sandbox-Project", project),
        ):
            if value is not None:
                self.headers[name] = value

    def request(self, method, url, body=None, headers=None, timeout=30 * PATIENCE, raw_body=None):
        connection = UnixConnection(self.path, timeout)
        merged = dict(self.headers)
        merged.update(headers or {})
        data = raw_body
        if body is not None:
            data = json.dumps(body).encode()
        if data is not None:
            merged.setdefault("Content-Type", "application/json")
        try:
            try:
                connection.request(method, url, body=data, headers=merged)
            except (BrokenPipeError, ConnectionResetError):
                pass  # the service has answered and ended the connection before our last byte
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())
        finally:
            connection.close()

    def get(self, url, **kwargs):
        return self.request("GET", url, **kwargs)

    def post(self, url, body=None, **kwargs):
        return self.request("POST", url, body=body, **kwargs)

    def delete(self, url, **kwargs):
        return self.request("DELETE", url, **kwargs)

    def raw(self, data, timeout=10, limit=1 << 20, close_write=False, answered=True):
        """Send bytes as they are; everything that comes back until the end, or until an answer is there and nothing
        follows it for `timeout` seconds. Where no answer may come, `answered` is False: there is no wait for one."""
        with connected(self.path, 30 * PATIENCE if answered else timeout) as sock:
            got = b""
            try:
                sock.sendall(data)
                if close_write:
                    sock.shutdown(socket.SHUT_WR)
            except (socket.timeout, BrokenPipeError, ConnectionResetError):
                pass
            try:
                while len(got) < limit:
                    if answered and is_whole(got):
                        sock.settimeout(timeout)
                    more = sock.recv(65536)
                    if not more:
                        break
                    got += more
            except (socket.timeout, ConnectionResetError):
                pass
            return got

    def lines(self, method, url, body=None, headers=None, timeout=60 * PATIENCE):
        """The lines of a streamed answer as they come. A status other than 200 is an error, and so is
        one that does not end: its heartbeats come however long it lasts."""
        end = time.monotonic() + STREAM_SECONDS
        connection = UnixConnection(self.path, timeout)
        merged = dict(self.headers)
        merged.update(headers or {})
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            merged.setdefault("Content-Type", "application/json")
        try:
            connection.request(method, url, body=data, headers=merged)
            response = connection.getresponse()
            assert response.status == 200, (response.status, response.read())
            while True:
                line = response.readline()
                if not line:
                    return
                yield line.rstrip(b"\r\n")
                assert time.monotonic() < end, f"{method} {url} does not end"
        finally:
            connection.close()

    # --- shorthands of the API

    def create(self, **body):
        answer = self.post(SESSIONS, body)
        assert answer.status == 201, answer
        return answer.json["id"]

    def create_runtime(self, **body):
        answer = self.post(RUNTIME, body)
        assert answer.status == 201, answer
        return answer.json["sandbox_uuid"]

    def write(self, session, name, body):
        return self.post(f"{SESSIONS}/{session}/components", {"name": name, "body": body})

    def remove(self, session):
        return self.delete(f"{SESSIONS}/{session}")

    def run(self, session, *argv, timeout=60 * PATIENCE, **more):
        events = [
            json.loads(line)
            for line in self.lines(
                "POST",
                f"{RUNTIME}/{session}/commands",
                {"argv": list(argv), **more},
                headers={"Accept": "application/x-ndjson"},
                timeout=timeout,
            )
            if line
        ]
        return Result(events)

    def shell(self, session, script, **more):
        return self.run(session, "/bin/sh", "-c", script, **more)

    def execute(self, session):
        answer = self.post(f"{SESSIONS}/{session}/execute")
        assert answer.status == 200, answer
        return answer.json["task_id"]

    def frames(self, task, after=None, timeout=60 * PATIENCE):
        url = f"/dagster/sandbox/tasks/{task}/stream"
        if after is not None:
            url += f"?after={after}"
        accept = {"Accept": "application/x-ndjson"}
        return [
            json.loads(line)
            for line in self.lines("GET", url, headers=accept, timeout=timeout)
            if line and b'"stage"' in line
        ]


def sse_events(lines):
    """(id, data) of each event; comments are heartbeats."""
    event_id, data = None, []
    for line in lines:
        text = line.decode()
        if text == "":
            if data:
                yield event_id, "\n".join(data)
            data = []
        elif text.startswith("id:"):
            event_id = text[3:].strip()
        elif text.startswith("data:"):
            data.append(text[5:].strip())


# --- looks at processes -----------------------------------------------------------------------


def status_of(pid):
    fields = {}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        key, _, value = line.partition(":")
        fields[key] = value.strip()
    return fields


def namespace_of(pid, name):
    return os.readlink(f"/proc/{pid}/ns/{name}")


def all_pids():
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def parent_of(pid):
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def name_of(pid):
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def is_zombie(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def descendants(pid):
    parents = {}
    for other in all_pids():
        parents.setdefault(parent_of(other), []).append(other)
    found, todo = [], [pid]
    while todo:
        for child in parents.get(todo.pop(), []):
            found.append(child)
            todo.append(child)
    return found


def cgroup_mounts():
    mounts = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        if right.split()[0] in ("cgroup", "cgroup2"):
            mounts.append(Path(left.split()[4]))
    return mounts


def mount_lines():
    return sorted(
        " ".join(line.split()[2:])
        for line in Path("/proc/self/mountinfo").read_text().splitlines()
    )


def id_blocks_in_use(instance):
    """Records of the host-wide file that the instance holds; resting ones are nobody's."""
    path = Path("/run/sandboxd-idblocks")
    if not path.exists():
        return 0
    data = path.read_bytes()[64:]
    records = (data[i:i + 32] for i in range(0, len(data), 32))
    return sum(record[:4] == b"\1\0\0\0" and record[8:16] == instance.encode()
               for record in records)


def id_blocks_at_rest(instance):
    """Those in use once the reserve of prepared namespaces, which fills by itself, is full."""
    last, since = None, time.monotonic()
    while time.monotonic() - since < 1 * SLOW:
        now = id_blocks_in_use(instance)
        if now != last:
            last, since = now, time.monotonic()
        time.sleep(0.05)
    return last


def has_dsn(config):
    return re.search(r"^dsn\b", config, re.M)


def own_database(config):
    """SANDBOX_TEST_STORE=postgres: every service of the tests has a database of its own."""
    if os.environ.get("SANDBOX_TEST_STORE") != "postgres" or has_dsn(config):
        return None
    from postgres_rig import shared_database

    return shared_database()


class Daemon:
    """A private sandboxd in a folder of its own."""

    leaks_expected = False

    def __init__(self, config=CONFIG, env=None, arguments=(), programs=BIN):
        self.home = Path(tempfile.mkdtemp(prefix="sbx-", dir="/tmp"))
        self.runtime = self.home / "run"
        self.state = self.home / "state"
        self.config = self.home / "sandboxd.conf"
        self.log = self.home / "log"
        self.env = env or {}
        self.arguments = arguments
        self.programs = programs
        self.database = own_database(config)
        self.configure(config)
        self.process = None
        self.deaths_expected = False
        try:
            self.start()
        except AssertionError:
            shutil.rmtree(self.home, ignore_errors=True)
            raise

    def configure(self, config):
        """Its configuration from the next start or reload on; the store remains."""
        if self.database and not has_dsn(config):
            dsn = f"[store]\ndsn = {self.database.dsn}\n"
            config = config.replace("[store]\n", dsn) if "[store]\n" in config else f"{config}\n{dsn}"
        self.config.write_text(config)

    def sql(self, statement, *values):
        """The rows of one statement on its store, as another program has them; `?` is a value."""
        if self.database:
            return self.database.rows(statement, values)
        path = self.state / "api" / "api.db"
        with contextlib.closing(sqlite3.connect(path, timeout=10)) as store, store:
            return store.execute(statement, values).fetchall()

    def tables(self):
        if self.database:
            return self.database.tables()
        return [row[0] for row in self.sql("SELECT name FROM sqlite_master WHERE type = 'table'")]

    def columns(self, table):
        """Their names, in order."""
        if self.database:
            return self.database.columns(table)
        return [row[1] for row in self.sql(f"PRAGMA table_info({table})")]

    def copy_rows(self, table, key, value, **changes):
        """Rows as those that have this value in the column `key`, but for the changes."""
        names = self.columns(table)
        values = ", ".join("?" if name in changes else name for name in names)
        self.sql(f"INSERT INTO {table} ({', '.join(names)}) SELECT {values} FROM {table} WHERE {key} = ?",
                 *(changes[name] for name in names if name in changes), value)

    @property
    def control(self):
        return self.runtime / "control.sock"

    @property
    def operator(self):
        return self.runtime / "operator.sock"

    def start(self):
        for folder in (self.runtime, self.state):
            folder.mkdir(mode=0o755, exist_ok=True)
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/", **self.env}
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS"):
            if name in os.environ:
                env[name] = os.environ[name]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [
                    str(self.programs / "sandboxd"),
                    "--runtime-dir", str(self.runtime),
                    "--state-dir", str(self.state),
                    "--libexec-dir", str(self.programs),
                    "--config", str(self.config),
                    *self.arguments,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=env,
                cwd="/",
                start_new_session=True,
            )
        try:
            wait_until(self.ready, 20, "the daemon answers")
        except AssertionError:
            print(self.log.read_text()[-4000:])
            self.stop()
            raise

    def ready(self):
        if self.process.poll() is not None:
            raise AssertionError(f"sandboxd ended with {self.process.returncode}: "
                                 + self.log.read_text()[-2000:])
        try:
            if Client(self.operator).get(SESSIONS, timeout=5).status != 200:
                return False
            if self.programs != BUILD / "bin":
                return True  # a program of the test's, with which it may never end
            # The canary's session is none that a test may count. One without a report is followed by another; one
            # that was not launched, as on a host that is full, is none.
            canary = Client(self.operator).get("/readyz", timeout=5).json.get("parts", {}).get("canary", "")
            return not canary.startswith(("it ", "its "))
        except (OSError, http.client.HTTPException):
            return False

    def readiness(self):
        """The status of /readyz, or None while a worker is started again."""
        try:
            return Client(self.operator).get("/readyz", timeout=5).status
        except (OSError, http.client.HTTPException):
            return None

    @property
    def instance(self):
        return (self.state / "instance").read_text().strip()

    def client(self, user=None, scopes="data:read data:write", **more):
        return Client(self.control, user=user, scopes=scopes, **more)

    @property
    def root(self):
        return Client(self.operator)

    def processes(self):
        """name → pids of the service's own programs (sessions are not among them)."""
        named = {}
        for pid in [self.process.pid, *descendants(self.process.pid)]:
            name = name_of(pid)
            if name.startswith("sandboxd") and not is_zombie(pid):
                named.setdefault(name, []).append(pid)
        return named

    def supervisor_pid(self):
        """Of the one that lives, or of the next: between two lives the keeper is all there is."""
        if "--supervisor" in self.arguments:
            return self.process.pid

        def children():
            return [pid for pid in descendants(self.process.pid)
                    if parent_of(pid) == self.process.pid and name_of(pid) == "sandboxd" and not is_zombie(pid)]

        return wait_until(children, 20, "a supervisor")[0]

    def worker_pid(self, name):
        return wait_until(lambda: self.processes().get(name), 10, f"{name} runs")[0]

    def shim_pids(self):
        """Pid 1 of each session."""
        host = namespace_of("self", "user")
        found = []
        for pid in descendants(self.process.pid):
            try:
                if status_of(pid)["NSpid"].split()[-1] == "1" and namespace_of(pid, "user") != host:
                    found.append(pid)
            except (OSError, KeyError):
                pass  # it has ended
        return found

    def cgroups(self):
        found, own = [], f"sandboxd-{self.instance}"
        for mount in cgroup_mounts():
            for folder, folders, _ in os.walk(mount):
                for name in folders:
                    # With version 1 those of the workers stand beside it.
                    if name in (own, f"{own}-workers", f"{own}-egress"):
                        # os.walk does not mind groups that go away meanwhile.
                        found += [path for path, _, _ in os.walk(Path(folder) / name)]
        return sorted(set(map(str, found)))

    def descriptors(self, pid):
        """How many it has open; the reserve of user namespaces grows and shrinks by itself."""
        n = 0
        for entry in os.listdir(f"/proc/{pid}/fd"):
            try:
                n += not os.readlink(f"/proc/{pid}/fd/{entry}").startswith("user:")
            except OSError:
                pass  # it is closed
        return n

    def snapshot(self):
        """What must be the same before and after work."""
        supervisor = self.supervisor_pid()
        return {
            "shims": len(self.shim_pids()),
            "mounts": mount_lines(),
            "cgroups": self.cgroups(),
            "sockets": sorted(p.name for p in (self.runtime / "private" / "sessions").glob("*")),
            "supervisor descriptors": self.descriptors(supervisor),
            "api descriptors": self.descriptors(self.worker_pid("sandboxd-api")),
        }

    def settled(self):
        """A snapshot that stayed the same for a while: connections of requests are gone."""
        last, since, n_looks = None, time.monotonic(), 0
        while time.monotonic() - since < 0.5 * SLOW or n_looks < 8:
            now, n_looks = self.snapshot(), n_looks + 1
            if now != last:
                last, since, n_looks = now, time.monotonic(), 0
            time.sleep(0.05)
        return last

    def stop(self, sig=signal.SIGTERM, timeout=30 * PATIENCE):
        if self.process and self.process.poll() is None:
            self.process.send_signal(sig)
            try:
                self.process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise AssertionError("sandboxd did not end on SIGTERM")
        return self.process.returncode if self.process else None

    def leftovers(self):
        """Everything of the instance that is left once it has ended."""
        left = []
        needle = f"sandboxd-{self.instance}"
        for pid in all_pids():
            try:
                if needle in Path(f"/proc/{pid}/cgroup").read_text():
                    left.append(f"process {pid} {name_of(pid)}")
            except (FileNotFoundError, ProcessLookupError):
                pass
        left += [f"cgroup {path}" for path in self.cgroups()]
        left += [f"mount {line}" for line in mount_lines() if str(self.home) in line]
        left += [f"socket {p}" for p in (self.runtime / "private" / "sessions").glob("*")]
        left += ["id block"] * id_blocks_in_use(self.instance)
        return left

    def done(self):
        try:
            self.stop()
            if (self.state / "instance").exists():
                try:
                    wait_until(lambda: not self.leftovers(), 5, "nothing is left")
                except AssertionError:
                    left = self.leftovers()
                    assert left == [], left
            text = self.log.read_text(errors="replace")
            if self.leaks_expected:
                text = LEAKS.sub("", text)
            assert "AddressSanitizer" not in text, text[-6000:]
            assert not re.search(r"runtime error:", text), text[-6000:]
            assert "assertion failed" not in text.lower(), text[-6000:]
            assert self.deaths_expected or "worker died" not in text, text[-6000:]
        finally:
            shutil.rmtree(self.home, ignore_errors=True)


@contextlib.contextmanager
def serving(config=CONFIG):
    """A service for as long as the block."""
    daemon = Daemon(config)
    try:
        yield daemon
    finally:
        daemon.done()


def stands_still(pid):
    """Or has ended. After the signal it ends the call that it is in, and may answer by that."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "TtZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


@contextlib.contextmanager
def stopped(*pids):
    """They stand still: they are there and answer nothing."""
    try:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # one that ended since it was looked for
                os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: all(map(stands_still, pids)), 20, "they stand still")
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def stopped_shim(daemon, caller, session):
    """Nothing of the session goes on meanwhile."""
    block = caller.run(session, "/bin/cat", "/proc/self/uid_map").text.split()[1]

    def is_of_block(pid):
        with contextlib.suppress(OSError):  # another session's, which ends
            return Path(f"/proc/{pid}/uid_map").read_text().split()[1:2] == [block]
        return False

    shim, = [pid for pid in daemon.shim_pids() if is_of_block(pid)]
    handle = os.pidfd_open(shim)
    signal.pidfd_send_signal(handle, signal.SIGSTOP)
    try:
        wait_until(lambda: stands_still(shim), 20, "it stands still")
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGCONT)
        os.close(handle)


def ctl(daemon, *words, stdin=None, socket_path=None, timeout=60 * PATIENCE):
    return subprocess.run(
        [str(BIN / "sandboxctl"), "--socket", str(socket_path or daemon.operator), *words],
        input=stdin,
        capture_output=True,
        timeout=timeout,
        check=False,
    )
