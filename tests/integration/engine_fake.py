"""An engine that misbehaves: as much of the Docker Engine API as sandboxd-provider asks for, in this process."""
import contextlib
import json
import re
import socket
import tempfile
import threading
import time
from pathlib import Path

PING = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
UPGRADED = b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"


class FakeEngine:
    """`containers` is what it has; `rules` are (method, part of the path, what to do instead with the connection)."""

    def __init__(self):
        self.home = Path(tempfile.mkdtemp(prefix="sbx-fake-", dir="/tmp"))
        self.home.chmod(0o755)
        self.socket = self.home / "engine.sock"
        self.containers = {}
        self.others = []  # that a list has, too
        self.made = []
        self.asked = []
        self.rules = []
        self.bodies = []
        self.stream = lambda connection: time.sleep(0.5)
        self.listener = None
        self.connections = []
        self.start()

    def start(self):
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.socket))
        self.socket.chmod(0o666)
        self.listener.listen(64)
        threading.Thread(target=self.accept, args=(self.listener,), daemon=True).start()

    def stop(self):
        """As an engine that is ended: its socket is gone, and the next start makes another one."""
        if self.listener is None:
            return
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.listener = None
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.connections = []
        self.socket.unlink()

    def accept(self, listener):
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        try:
            with connection, connection.makefile("rb") as reader:
                while self.one(connection, reader):
                    pass
        except OSError:
            pass

    def one(self, connection, reader):
        line = reader.readline().decode()
        if not line:
            return False
        method, path, _ = line.split(" ")
        size = 0
        while (head := reader.readline().strip().lower()):
            if head.startswith(b"content-length:"):
                size = int(head.split(b":")[1])
        body = reader.read(size)
        self.asked.append((method, path))
        self.bodies.append(body)
        for wanted, part, act in list(self.rules):
            if wanted == method and part in path:
                return act(connection, path)
        return self.answer(connection, method, path, body)

    def answer(self, connection, method, path, body=b""):
        name = re.search(r"sandboxd-[0-9a-zA-Z_.-]+", path.split("?filters")[0])
        name = name and name.group(0)
        status, value = 200, {}
        if "/containers/create" in path:
            status, value = 201, {"Id": "abc"}
            self.containers[name] = json.loads(body)["Labels"]
            self.made.append(name)
        elif path.startswith("/containers/json"):
            value = [{"Labels": labels, "State": "running"} for labels in self.containers.values()] + self.others
        elif path.startswith("/exec/"):
            connection.sendall(UPGRADED)
            self.stream(connection)
            return False
        elif name and name not in self.containers:
            status = 404
        elif path.endswith("/exec"):
            status, value = 201, {"Id": "e1"}
        elif method == "DELETE":
            del self.containers[name]
            status = 204
        elif path.endswith(("/start", "/pause", "/unpause")):
            status = 204
        text = b"" if status == 204 or method == "HEAD" else json.dumps(value).encode()
        connection.sendall(f"HTTP/1.1 {status} X\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text)
        return True

    def slow(self, method, part, seconds):
        """The request is acted upon, late."""
        def act(connection, path):
            body = self.bodies[-1]
            time.sleep(seconds)
            return self.answer(connection, method, path, body)
        self.rules.append((method, part, act))

    def says(self, method, part, data, then=0):
        def act(connection, _path):
            connection.sendall(data)
            time.sleep(then)
            return False
        self.rules.append((method, part, act))

    def config(self):
        return f"\n[supervisor]\nenvironment = development\n[docker]\nsocket = {self.socket}\nimage = a:1\n"
