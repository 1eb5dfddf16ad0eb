"""HTTP on the control socket, as little of it as the load needs."""
import base64
import http.client
import json
import os
import socket
import struct

TIMEOUT = 150  # an answer that takes longer is none


class Connection(http.client.HTTPConnection):
    def __init__(self, path, timeout=TIMEOUT):
        super().__init__("chaos", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # With a time-out a connect would not wait where the backlog is full.
        self.sock.connect(self.path)
        self.sock.settimeout(self.timeout)


Broken = (OSError, http.client.HTTPException)


class Caller:
    """One user at one socket. Without a user: the operator."""

    def __init__(self, path, user=None):
        self.path = str(path)
        self.headers = {}
        if user:
            self.headers = {"X-Sandbox-User": user, "X-Sandbox-Scopes": "data:read data:write"}

    def open(self, method, url, body=None, headers=None, timeout=TIMEOUT):
        """The connection and its answer, of which nothing has been read."""
        connection = Connection(self.path, timeout)
        data = None if body is None else json.dumps(body).encode()
        sent = {**self.headers, **(headers or {})}
        if data is not None:
            sent["Content-Type"] = "application/json"
        try:
            connection.request(method, url, body=data, headers=sent)
            return connection, connection.getresponse()
        except BaseException:
            connection.close()
            raise

    def ask(self, method, url, body=None, timeout=TIMEOUT):
        """(status, JSON or text, headers)."""
        connection, response = self.open(method, url, body, timeout=timeout)
        try:
            text = response.read()
            try:
                return response.status, json.loads(text), response.headers
            except ValueError:
                return response.status, text.decode("utf-8", "replace"), response.headers
        finally:
            connection.close()


def pieces_of(response):
    """The body as it comes. An end that is none is an error: http.client takes it for the end."""
    if not response.chunked:
        yield response.read()
        return
    while size := int(response.fp.readline().split(b";")[0] or b"x", 16):
        piece = response.fp.read(size + 2)
        if len(piece) < size + 2:
            raise http.client.IncompleteRead(piece)
        yield piece[:-2]
    response.fp.readline()


def lines_of(response):
    rest = b""
    try:
        for piece in pieces_of(response):
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                yield line.rstrip(b"\r")
    except ValueError as error:  # no size of a piece
        raise http.client.IncompleteRead(b"") from error
    if rest:
        yield rest


def frames_as_lines(caller, task, after):
    connection, response = caller.open("GET", f"/dagster/sandbox/tasks/{task}/stream?after={after}",
                                       headers={"Accept": "application/x-ndjson"})
    try:
        if response.status != 200:
            yield response.status, response.read()
            return
        for line in lines_of(response):
            if line:
                yield 200, line
    finally:
        connection.close()


def frames_as_events(caller, task, after):
    connection, response = caller.open("GET", f"/chat/stream/{task}", headers={"Last-Event-ID": str(after)})
    try:
        if response.status != 200:
            yield response.status, response.read()
            return
        for line in lines_of(response):
            if line.startswith(b"data: "):
                yield 200, line[6:]
    finally:
        connection.close()


def frames_as_messages(caller, task, after):
    """Over a WebSocket; text messages are frames."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.connect(caller.path)
        sock.settimeout(TIMEOUT)
        head = [f"GET /dagster/sandbox/tasks/{task}/stream?after={after} HTTP/1.1", "Host: chaos",
                "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13",
                "Sec-WebSocket-Key: " + base64.b64encode(os.urandom(16)).decode(),
                *(f"{name}: {value}" for name, value in caller.headers.items())]
        sock.sendall("\r\n".join([*head, "", ""]).encode())
        file = sock.makefile("rb")
        status = int((file.readline().split() + [b"0", b"0"])[1])
        while file.readline() not in (b"\r\n", b""):
            pass
        if status != 101:
            yield status, b""
            return
        while True:
            first = file.read(2)
            if len(first) < 2:
                return
            opcode, size = first[0] & 15, first[1] & 127
            if size == 126:
                size = struct.unpack(">H", file.read(2))[0]
            elif size == 127:
                size = struct.unpack(">Q", file.read(8))[0]
            data = file.read(size)
            if len(data) < size:
                return
            if opcode == 1:
                yield 200, data
            elif opcode == 8:
                yield int.from_bytes(data[:2], "big"), b""
                return
            elif opcode == 9:
                sock.sendall(bytes([0x8A, 0x80 | len(data), 0, 0, 0, 0]) + data)


READERS = (frames_as_lines, frames_as_events, frames_as_messages)
