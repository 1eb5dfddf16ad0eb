"""An object store of the test's own, which checks signatures, and what may go wrong on the way to it."""
import contextlib
import datetime
import hashlib
import hmac
import http.client
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import threading
import urllib.parse
import xml.etree.ElementTree
from pathlib import Path

import pytest

from harness import PATIENCE, ROOT, SLOW, free_port, wait_until

SERVER = ROOT / "build" / "versitygw" / "versitygw"
BUCKET = "snapshots"
REGION = "eu-test-1"


class Store:
    """A server with one bucket. `tls`: a certificate and its key."""

    def __init__(self, tls=(), domain=None):
        if not SERVER.exists():
            pytest.skip("there is no versitygw: tests/run builds it where there is a new Go")
        self.home = Path(tempfile.mkdtemp(prefix="sbx-s3-", dir="/tmp"))
        (self.home / "data" / BUCKET).mkdir(parents=True)
        self.port = free_port()
        self.access, self.secret = "AK" + secrets.token_hex(8), secrets.token_hex(20)
        self.tls, self.domain = tls, domain
        self.process = None
        self.start()

    def start(self):
        command = [str(SERVER), "--access", self.access, "--secret", self.secret, "--region", REGION,
                   "--port", f"127.0.0.1:{self.port}"]
        if self.domain:
            command += ["--virtual-domain", f"{self.domain}:{self.port}"]
        if self.tls:
            command += ["--cert", str(self.tls[0]), "--key", str(self.tls[1])]
        self.process = subprocess.Popen([*command, "posix", str(self.home / "data")], stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, env={"HOME": "/", "PATH": "/usr/bin"})
        wait_until(self.answers, 20, "the object store answers")

    def answers(self):
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), 1).close()
            return True
        return False

    def stop(self):
        if self.process:
            self.process.terminate()
            self.process.wait(20 * PATIENCE)
        self.process = None

    def done(self):
        self.stop()
        shutil.rmtree(self.home, ignore_errors=True)

    def config(self, port=None, store="s3", **more):
        values = {"store": store, "s3_endpoint": f"{'https' if self.tls else 'http'}://127.0.0.1:{port or self.port}",
                  "s3_region": REGION, "s3_bucket": BUCKET, "s3_credentials": f"{self.access}:{self.secret}", **more}
        return "\n[snapshots]\n" + "".join(f"{key} = {value}\n" for key, value in values.items())

    def ask(self, method, key="", query=(), body=b""):
        """One signed request: status and body."""
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        path = "/" + BUCKET + ("/" + key if key else "")
        text = "&".join(f"{name}={urllib.parse.quote(value, safe='')}" for name, value in sorted(query))
        hash_of = hashlib.sha256(body).hexdigest()
        host = f"127.0.0.1:{self.port}"
        names = "host;x-amz-content-sha256;x-amz-date"
        canonical = f"{method}\n{path}\n{text}\nhost:{host}\nx-amz-content-sha256:{hash_of}\nx-amz-date:{now}\n\n{names}\n{hash_of}"
        scope = f"{now[:8]}/{REGION}/s3/aws4_request"
        key_of = ("AWS4" + self.secret).encode()
        for word in scope.split("/"):
            key_of = hmac.new(key_of, word.encode(), hashlib.sha256).digest()
        signed = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        signature = hmac.new(key_of, signed.encode(), hashlib.sha256).hexdigest()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60 * SLOW)
        connection.request(method, path + ("?" + text if text else ""), body, {
            "Host": host, "x-amz-date": now, "x-amz-content-sha256": hash_of,
            "Authorization": f"AWS4-HMAC-SHA256 Credential={self.access}/{scope}, SignedHeaders={names}, Signature={signature}"})
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        return answer.status, data

    def put(self, key, body):
        status, text = self.ask("PUT", key, body=body)
        assert status == 200, text

    def get(self, key):
        status, body = self.ask("GET", key)
        return body if status == 200 else None

    def texts(self, name, **query):
        status, body = self.ask("GET", query=tuple(query.items()))
        assert status == 200, body
        return [at.text for at in xml.etree.ElementTree.fromstring(body).iter() if at.tag.rsplit("}", 1)[-1] == name]

    def keys(self):
        return sorted(self.texts("Key", **{"list-type": "2"}))

    def uploads(self):
        return sorted(self.texts("Key", uploads=""))


class Way:
    """What lies between a client and the server: `rule` gets method and target of each request and says what becomes of
    it: None: it passes; a number: that status instead; pieces of bytes: these are the answer; "cut": its body or answer ends in the middle; "drop": no
    answer comes; "stall": nothing comes any more."""

    def __init__(self, store):
        self.store = store
        self.rule = lambda method, target: None
        self.cuts_answers = False  # also where the request has a body
        self.requests = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def done(self):
        self.listener.close()

    def serve(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.relay, args=(client,), daemon=True).start()

    def relay(self, client):
        with client, contextlib.suppress(OSError, ValueError):
            with socket.create_connection(("127.0.0.1", self.store.port)) as server:
                reader, answers = client.makefile("rb"), server.makefile("rb")
                while self.relay_one(client, server, reader, answers):
                    pass

    @staticmethod
    def read_head(stream):
        lines = []
        while True:
            line = stream.readline()
            if not line:
                return None, {}
            lines.append(line)
            if line == b"\r\n":
                break
        fields = {name.strip().lower(): value.strip() for name, _, value in
                  (line.decode("latin1").partition(":") for line in lines[1:-1])}
        return lines, fields

    @staticmethod
    def copy(source, sink, size, ends=None):
        while size > 0 and ends != 0:
            data = source.read(min(size, 65536))
            if not data:
                break
            sink.sendall(data)
            size -= len(data)
            ends = None if ends is None else max(0, ends - len(data))

    def relay_one(self, client, server, reader, answers):
        lines, fields = self.read_head(reader)
        if not lines:
            return False
        method, target = lines[0].decode().split(" ")[:2]
        size = int(fields.get("content-length", 0))
        self.requests.append((method, target))
        what = self.rule(method, target)
        if what == "drop":
            return False
        if what == "stall":
            while reader.read(65536):
                pass
            return False
        if what is not None and not isinstance(what, (int, str)):
            reader.read(size)
            for piece in what:
                client.sendall(piece)
            return False
        if isinstance(what, int):
            reader.read(size)
            client.sendall(f"HTTP/1.1 {what} No\r\nContent-Length: 0\r\n\r\n".encode())
            return True
        server.sendall(b"".join(lines))
        if what == "cut" and size > 0 and not self.cuts_answers:
            self.copy(reader, server, size, size // 2)
            return False
        self.copy(reader, server, size)
        lines, fields = self.read_head(answers)
        if not lines:
            return False
        client.sendall(b"".join(lines))
        size = 0 if method == "HEAD" else int(fields.get("content-length", 0))
        self.copy(answers, client, size, size // 2 if what == "cut" else None)
        return what != "cut" and fields.get("connection") != "close"


@pytest.fixture(name="store", scope="module")
def fixture_store():
    store = Store()
    yield store
    store.done()


@pytest.fixture(name="way")
def fixture_way(store):
    way = Way(store)
    yield way
    way.done()


def certificate(folder, name):
    """A self-signed certificate for that name and 127.0.0.1."""
    files = (Path(folder) / "cert.pem", Path(folder) / "key.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                    "-addext", f"subjectAltName=DNS:{name},IP:127.0.0.1", "-out", str(files[0]), "-keyout", str(files[1])],
                   check=True, capture_output=True)
    os.chmod(files[1], 0o600)
    return files


class Liar:
    """A server that answers each request with what `answer` makes of its method and target: pieces of bytes, sent until
    the client leaves or they end."""

    def __init__(self, answer):
        self.answer = answer
        self.requests = []
        self.tls, self.access, self.secret = (), "AK", "secret"
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def done(self):
        self.listener.close()

    def serve(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.talk, args=(client,), daemon=True).start()

    def talk(self, client):
        with client, contextlib.suppress(OSError, ValueError):
            reader = client.makefile("rb")
            lines, fields = Way.read_head(reader)
            if not lines:
                return
            method, target = lines[0].decode().split(" ")[:2]
            reader.read(int(fields.get("content-length", 0)))
            self.requests.append((method, target))
            for piece in self.answer(method, target):
                client.sendall(piece)


def whole(body, status="200 OK", more=""):
    """An answer of that body; its connection ends with it."""
    body = body.encode() if isinstance(body, str) else body
    return [f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n{more}\r\n".encode(), body]
