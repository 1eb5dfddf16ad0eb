"""A service elsewhere that makes sandboxes, as docs/providers.md says what sandboxd asks of one; it stands in for one far
away. Its sandboxes are real: containers of an engine of the test's own, whose image has our programs in it.

It refuses, is slow, cuts and goes away as it is told to."""
import contextlib
import hashlib
import http.client
import http.server
import io
import json
import os
import re
import resource
import secrets
import socket
import ssl
import struct
import tarfile
import threading
import time
import urllib.parse

from docker_rig import Engine, rootfs
from harness import BIN, UnixConnection, wait_until

TEMPLATE = "localhost/remote-template:1"
PROGRAMS = ("sandbox-contain", "sandbox-shim", "sandbox-loader", "sandbox-git", "sandbox-archive", "policy.img")
NAME = r"sandboxd-[0-9A-Za-z_.-]+"


def template():
    """The root of every sandbox: what the engine's tests have, and our programs."""
    data = io.BytesIO(rootfs())
    with tarfile.open(fileobj=data, mode="a") as tar:
        for folder in (".sandboxd", ".sandboxd-socket"):
            info = tarfile.TarInfo(folder)
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(info)
        for name in PROGRAMS:
            tar.add(os.path.realpath(BIN / name), f".sandboxd/{name}")
    return data.getvalue()


class Refusal(Exception):
    def __init__(self, status):
        super().__init__(status)
        self.status = status


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def setup(self):
        super().setup()
        self.server.service.connections.add(self.connection)

    def finish(self):
        with contextlib.suppress(OSError):
            super().finish()
        self.server.service.connections.discard(self.connection)

    def say(self, status, value=None):
        body = b"" if value is None or status == 204 else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def any(self):
        service = self.server.service
        request = f"{self.command} {self.path}"
        service.seen.append(request)
        service.gate.wait()
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size)
        raw = service.due(service.raw, request)
        if raw:
            self.close_connection = True
            raw(self)
            return
        try:
            service.judge(request)
            if request == "POST /v1/token":
                self.say(200, service.new_token(self.headers["Authorization"]))
                return
            service.check_token(self.headers["Authorization"])
            path = urllib.parse.urlsplit(self.path)
            if self.command == "POST" and path.path.endswith("/stream"):
                self.stream(path.path.split("/")[-2])
                return
            said = service.act(self.command, path, body)
            lost = service.due(service.lose, request)
            if lost:
                raise Refusal(lost)
            self.say(*said)
        except Refusal as refusal:
            # Such an answer may say anything.
            self.close_connection = True
            self.say(refusal.status, {"error": f"refused: {self.headers['Authorization']} at {service.url()}"})

    do_GET = do_PUT = do_POST = do_DELETE = any

    # The stream: what comes is the stream command's input, and its output goes back, both in chunks.

    def chunks(self):
        while (size := int(self.rfile.readline().split(b";")[0] or b"0", 16)) > 0:
            data = self.rfile.read(size)
            self.rfile.readline()
            yield data

    def take(self, command):
        with contextlib.suppress(OSError, ValueError):
            for data in self.chunks():
                command.sendall(data)
        with contextlib.suppress(OSError):
            command.shutdown(socket.SHUT_RDWR)

    def stream(self, name):
        service = self.server.service
        self.close_connection = True
        with service.command(name) as command:
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            taking = threading.Thread(target=self.take, args=(command,), daemon=True)
            taking.start()
            with contextlib.suppress(OSError):
                for data in service.pieces(command):
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            service.n_streams_ended += 1
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
            taking.join(30)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, *_):
        pass  # connections end as they like


class Service:
    """Faults: `refuse`, `delay`: [[pattern of "METHOD path", status or seconds, how often], ...]; `lose`: as `refuse`, of
    what was done; `raw`: the same with a function of the handler, which writes what it likes; `slow_start`, `slow_pause`: seconds; `is_endless`: a list has always another page; `kept`: names that are said to be deleted and are not, until a create meets one; `lose_after`: bytes of the next stream from us after which it is cut; `cut_after`: seconds that each stream lives."""

    def __init__(self, certificate=None):
        self.engine = Engine()
        (self.engine.home / "template.tar").write_bytes(template())
        self.engine.podman("import", str(self.engine.home / "template.tar"), TEMPLATE)
        self.credential = secrets.token_hex(20)
        self.credential_file = self.engine.home / "credential"
        self.write_credential(self.credential)
        self.certificate = certificate
        self.lock = threading.Lock()
        self.gate = threading.Event()
        self.gate.set()
        self.tokens = {}
        self.expires_in = 300
        self.under_way = {}  # name: starting, ending or failed
        self.seen, self.asked = [], []
        self.connections = set()
        self.n_tokens = self.n_unauthorized = self.n_conflicts = self.n_failed = self.n_cut = self.n_streams_ended = 0
        self.page_size = 2
        self.server = None
        self.port = 0
        self.calm()
        self.come_back()

    def calm(self):
        self.refuse, self.delay, self.lose, self.raw = [], [], [], []
        self.slow_start = self.slow_pause = 0
        self.kept = set()
        self.is_endless = False
        self.cut_after = self.lose_after = None
        self.expires_in = 300

    def write_credential(self, text):
        self.credential_file.unlink(missing_ok=True)
        with open(os.open(self.credential_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(text + "\n")

    def url(self):
        return f"{'https' if self.certificate else 'http'}://127.0.0.1:{self.port}/v1"

    def config(self, **more):
        values = {"url": self.url(), "credential_file": self.credential_file, "template": TEMPLATE, **more}
        return ("\n[supervisor]\nenvironment = development\n[remote]\n" +
                "".join(f"{key} = {value}\n" for key, value in values.items()))

    # Whether it is there

    def come_back(self):
        self.server = Server(("127.0.0.1", self.port), Handler)
        self.port = self.server.server_address[1]
        self.server.service = self
        if self.certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self.certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def cut_all(self):
        for connection in list(self.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def go_away(self):
        self.server.shutdown()
        self.server.server_close()
        self.cut_all()

    @contextlib.contextmanager
    def silent(self):
        self.gate.clear()
        try:
            yield
        finally:
            self.gate.set()

    def done(self):
        self.gate.set()
        self.go_away()
        self.engine.done()

    # Faults

    @staticmethod
    def due(faults, request):
        for fault in faults:
            if fault[2] > 0 and re.search(fault[0], request):
                fault[2] -= 1
                return fault[1]
        return None

    def judge(self, request):
        time.sleep(self.due(self.delay, request) or 0)
        status = self.due(self.refuse, request)
        if status:
            raise Refusal(status)

    # Tokens

    def new_token(self, authorization):
        if authorization != f"Bearer {self.credential}":
            raise Refusal(401)
        token = secrets.token_urlsafe(40)
        # Good for longer than is said: a request may take its time on the way.
        self.tokens[token] = time.monotonic() + self.expires_in + 120
        self.n_tokens += 1
        return {"token": token, "expires_in": self.expires_in}

    def check_token(self, authorization):
        token = (authorization or "").removeprefix("Bearer ")
        if self.tokens.get(token, 0) < time.monotonic():
            self.n_unauthorized += 1
            raise Refusal(401)

    def expire(self):
        self.tokens.clear()

    # Sandboxes: containers of the engine

    def ask(self, method, path, body=None):
        status, answer = self.engine.ask(method, path, body)
        return status, json.loads(answer) if answer and status < 300 and answer[:1] in b"{[" else None

    def state(self, name):
        if name in self.under_way:
            return self.under_way[name]
        status, answer = self.ask("GET", f"/containers/{name}/json")
        if status != 200:
            raise Refusal(404)
        return {"running": "running", "paused": "paused"}.get(answer["State"]["Status"], "ended")

    def body_of(self, wanted):
        limits, no_file = wanted["limits"], wanted["limits"]["open_files"]
        processes = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        assert (wanted["network"], wanted["read_only"], wanted["template"]) == ("none", True, TEMPLATE), wanted
        return {
            "Image": TEMPLATE, "User": "0:0", "WorkingDir": "/", "Entrypoint": wanted["command"], "Cmd": [], "Env": [],
            "Tty": False, "OpenStdin": False,
            "Labels": {"sandboxd.sandbox": wanted["id"], "remote.instance": wanted["instance"],
                       "remote.stream": json.dumps(wanted["stream_command"])},
            "HostConfig": {
                "Tmpfs": {path: f"rw,exec,nosuid,nodev,mode={'1777' if path == '/tmp' else '0755'},size={size}"
                          for path, size in {"/run": 65536, "/var/tmp": 65536, **wanted["scratch"]}.items()},
                "NetworkMode": "none", "ReadonlyRootfs": True, "CapDrop": ["ALL"], "CapAdd": wanted["capabilities"],
                "SecurityOpt": ["no-new-privileges"], "Memory": limits["memory_bytes"], "MemorySwap": limits["memory_bytes"],
                "PidsLimit": limits["processes"], "NanoCpus": limits["cpu_percent"] * 10_000_000, "IpcMode": "private",
                "Ulimits": [{"Name": "nofile", "Soft": no_file, "Hard": no_file},
                            {"Name": "nproc", "Soft": processes, "Hard": processes}]}}

    def make(self, name, wanted, slow):
        time.sleep(slow)
        status, _ = self.ask("POST", f"/containers/create?name={name}", self.body_of(wanted))
        if status == 201:
            status, _ = self.ask("POST", f"/containers/{name}/start")
        with self.lock:
            if status in (201, 204):
                del self.under_way[name]
            else:
                self.under_way[name] = "failed"
                self.n_failed += 1

    def remove(self, name):
        wait_until(lambda: self.under_way.get(name) != "starting", 120, "it has started")
        self.ask("DELETE", f"/containers/{name}?force=true&v=true")
        with self.lock:
            self.under_way.pop(name, None)

    def put(self, name, body):
        with self.lock:
            with contextlib.suppress(Refusal):
                self.state(name)
                self.n_conflicts += 1
                self.kept.discard(name)
                return 409, {"error": "it is there"}
            self.under_way[name] = "starting"
        self.asked.append(json.loads(body))
        threading.Thread(target=self.make, args=(name, json.loads(body), self.slow_start), daemon=True).start()
        return 202, {"state": "starting"}

    def delete(self, name):
        self.state(name)
        if name in self.kept:
            return 204, None
        threading.Thread(target=self.remove, args=(name,), daemon=True).start()
        return 202, {"state": "ending"}

    def stop_or_go(self, name, what, slow):
        time.sleep(slow)
        return self.ask("POST", f"/containers/{name}/{'pause' if what == 'pause' else 'unpause'}")[0]

    def pause(self, name, what):
        if self.state(name) != ("running" if what == "pause" else "paused"):
            return 409, {"error": "it is so"}
        if self.slow_pause:
            threading.Thread(target=self.stop_or_go, args=(name, what, self.slow_pause), daemon=True).start()
            return 202, {"state": "changing"}
        status = self.stop_or_go(name, what, 0)
        return (200, {}) if status == 204 else (500, {})

    def usage(self, name):
        status, answer = self.ask("GET", f"/containers/{name}/stats?stream=false&one-shot=true")
        if status != 200:
            return status, {}
        return 200, {"memory_bytes": answer["memory_stats"].get("usage", 0),
                     "memory_peak_bytes": answer["memory_stats"].get("max_usage", 0),
                     "cpu_us": answer["cpu_stats"]["cpu_usage"]["total_usage"] // 1000,
                     "processes": answer["pids_stats"].get("current", 0)}

    def page(self, query):
        """In parts, with a word for the next one that says nothing to anybody else."""
        _, listed = self.ask("GET", "/containers/json?all=true")
        found = sorted((one["Labels"]["sandboxd.sandbox"], {"running": "running", "paused": "paused"}.get(one["State"], "ended"))
                       for one in listed if one["Labels"].get("remote.instance") == query["instance"][0])
        marks = [hashlib.sha256(name.encode()).hexdigest() for name, _ in found]
        start = marks.index(query["after"][0]) if query.get("after", [""])[0] in marks else 0
        part = found[start:start + self.page_size]
        more = found[start + self.page_size:]
        if self.is_endless:
            return 200, {"sandboxes": [], "next": secrets.token_hex(8)}
        return 200, {"sandboxes": [{"id": name, "state": state} for name, state in part],
                     **({"next": marks[start + self.page_size]} if more else {})}

    def act(self, method, path, body):
        if (method, path.path) == ("GET", "/v1/sandboxes"):
            return self.page(urllib.parse.parse_qs(path.query))
        found = re.fullmatch(rf"/v1/sandboxes/({NAME})(?:/(\w+))?", path.path)
        if not found:
            return 404, {}
        name, what = found.groups()
        if what in ("pause", "resume") and method == "POST":
            return self.pause(name, what)
        if what == "usage" and method == "GET":
            return self.usage(name)
        if method == "PUT":
            return self.put(name, body)
        if method == "DELETE":
            return self.delete(name)
        return 200, {"state": self.state(name)}

    # Streams

    @contextlib.contextmanager
    def command(self, name):
        """The connection to the stream command, run in the sandbox."""
        if self.state(name) != "running":
            raise Refusal(409)
        words = json.loads(self.ask("GET", f"/containers/{name}/json")[1]["Config"]["Labels"]["remote.stream"])
        status, answer = self.ask("POST", f"/containers/{name}/exec", {
            "AttachStdin": True, "AttachStdout": True, "AttachStderr": False, "Tty": False, "User": "0:0", "WorkingDir": "/",
            "Cmd": words})
        if status != 201:
            raise Refusal(500)
        connection = UnixConnection(str(self.engine.socket), 30)
        try:
            connection.request("POST", f"/exec/{answer['Id']}/start", body='{"Detach":false,"Tty":false}', headers={
                "Content-Type": "application/json", "Connection": "Upgrade", "Upgrade": "tcp"})
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += connection.sock.recv(1)
            connection.sock.settimeout(None)
            yield connection.sock
        except http.client.HTTPException as error:
            raise Refusal(500) from error
        finally:
            connection.close()

    @staticmethod
    def exactly(command, size):
        data = b""
        while len(data) < size:
            part = command.recv(size - len(data))
            if not part:
                raise OSError
            data += part
        return data

    def pieces(self, command):
        """The engine's pieces of the command's first output, until a fault is due. A stream lives from the first one on."""
        n, began = 0, None
        while True:
            if not self.wait(command, began):
                return
            which, size = struct.unpack(">BxxxI", self.exactly(command, 8))
            data = self.exactly(command, size)
            if which != 1:
                continue
            n += len(data)
            began = began or time.monotonic()
            if self.lose_after is not None and n > self.lose_after:
                self.lose_after = None
                self.n_cut += 1
                yield data[:max(len(data) // 2, 1)]
                return
            yield data

    def wait(self, command, began):
        """False: it has lived for as long as streams do here."""
        command.setblocking(True)
        while True:
            self.gate.wait()
            if began and self.cut_after is not None and time.monotonic() - began > self.cut_after:
                self.n_cut += 1
                return False
            try:
                command.settimeout(0.05)
                if not command.recv(1, socket.MSG_PEEK):
                    return False
                return True
            except TimeoutError:
                continue
            finally:
                command.settimeout(None)
