"""Tokens, a service that checks them, and the two proxies of docs/proxy, started for a test."""
import base64
import hashlib
import hmac
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from harness import CONFIG, PATIENCE, ROOT, Daemon, free_port, wait_until

DOCS = ROOT / "docs" / "proxy"
KEY = "a key of this test"
UID = 33  # www-data
NGINX = next((path for path in (Path("/usr/sbin/nginx"), ROOT / "build/nginx/usr/sbin/nginx")
              if path.exists()), None)

# The tests themselves, as root, set things up directly.
PROXY_CONFIG = CONFIG.replace("trusted_peers = 0", f"trusted_peers = 0 {UID}") + f"""
[supervisor]
control_gid = {UID}
"""


def token(user, workspace=None, scopes="data:read data:write", expires=3600, **more):
    claims = {"user": user, "workspace": workspace, "scopes": scopes,
              "exp": time.time() + expires, **more}
    text = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode()
    return f"{text}.{signature(text)}"


def signature(text):
    return hmac.new(KEY.encode(), text.encode(), hashlib.sha256).hexdigest()


def claims_of(given):
    text, _, sign = given.partition(".")
    if not hmac.compare_digest(sign.encode(), signature(text).encode()):
        return None
    claims = json.loads(base64.urlsafe_b64decode(text))
    return claims if claims["exp"] >= time.time() else None


class AuthService(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        scheme, _, given = self.headers.get("Authorization", "").partition(" ")
        if scheme != "Bearer":
            cookies = dict(part.strip().partition("=")[::2]
                           for part in self.headers.get("Cookie", "").split(";"))
            given = cookies.get("session", "")
        claims = claims_of(given)
        self.server.asked.append((self.headers.get("X-Original-URI"), claims and claims["user"]))
        self.send_response(401 if claims is None else 204)
        for name in ("user", "workspace", "project", "scopes"):
            if claims and claims.get(name):
                self.send_header(f"X-Sandbox-{name.title()}", claims[name])
        self.end_headers()

    def log_message(self, *_):
        pass


def proxied_daemon():
    daemon = Daemon(PROXY_CONFIG)
    daemon.home.chmod(0o711)
    daemon.runtime.chmod(0o711)
    return daemon


class Proxy:
    """A proxy on a port of its own, as a user that the daemon trusts."""

    end_within = 30 * PATIENCE  # seconds

    def __init__(self, daemon):
        self.daemon = daemon
        self.home = Path(tempfile.mkdtemp(prefix="proxy-", dir="/tmp"))
        self.home.chmod(0o755)
        self.port = free_port()
        self.process = None

    def start(self):
        with open(self.home / "log", "ab") as log:
            self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, cwd=self.home, **self.options())
        try:
            wait_until(self.listens, 20, "the proxy listens")
        except AssertionError:
            print((self.home / "log").read_text()[-4000:])
            self.done()
            raise

    def options(self):
        return {}

    def listens(self):
        assert self.process.poll() is None, (self.home / "log").read_text()[-2000:]
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
            return True
        except OSError:
            return False

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(self.end_within)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def done(self):
        self.stop()
        print((self.home / "log").read_text()[-4000:])
        shutil.rmtree(self.home, ignore_errors=True)

    def connection(self, timeout=30 * PATIENCE):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def request(self, method, url, body=None, headers=None, bearer=None):
        connection = self.connection()
        headers = dict(headers or {})
        if bearer:
            headers["Authorization"] = f"Bearer {bearer}"
        if body is not None:
            body = json.dumps(body)
            headers["Content-Type"] = "application/json"
        try:
            connection.request(method, url, body=body, headers=headers)
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text else None
        finally:
            connection.close()

    def raw(self, data, timeout=30 * PATIENCE):
        """Bytes as they are; everything until the proxy ends the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout) as sock:
            sock.sendall(data)
            got = b""
            while more := sock.recv(65536):
                got += more
            return got

    def refusal(self, status):
        """How a WebSocket that is refused with this status looks behind the proxy."""
        return status


class Platform(BaseHTTPRequestHandler):
    """Knows every task."""

    def do_GET(self):
        text = json.dumps({"platform": self.path, "as": self.headers.get("Authorization")}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


def serve(handler):
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


class Nginx(Proxy):
    def __init__(self, daemon, leave_out=(), platform=None):
        super().__init__(daemon)
        self.auth = serve(AuthService)
        self.auth.asked = []
        text = (DOCS / "nginx.conf").read_text()
        for old, new in (("unix:/run/sandboxd/control.sock", f"unix:{daemon.control}"),
                         ("127.0.0.1:9000", f"127.0.0.1:{self.auth.server_address[1]}"),
                         ("127.0.0.1:8080", f"127.0.0.1:{self.port}")):
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        if platform:
            old = "location /chat/stream/     { include sandboxd_proxy.conf; }"
            assert text.count(old) == 1
            text = text.replace(old, "include chat_stream.conf;")
            text += f"upstream platform {{ server 127.0.0.1:{platform.server_address[1]}; }}\n"
            shutil.copy(DOCS / "chat_stream.conf", self.home)
        (self.home / "server.conf").write_text(text)
        lines = (DOCS / "sandboxd_proxy.conf").read_text().splitlines()
        assert all(any(word in line for line in lines) for word in leave_out)
        (self.home / "sandboxd_proxy.conf").write_text("\n".join(
            line for line in lines if not any(word in line for word in leave_out)) + "\n")
        (self.home / "nginx.conf").write_text(f"""\
user www-data;
daemon off;
worker_processes 1;
pid {self.home}/pid;
error_log stderr;
events {{ worker_connections 256; }}
http {{
	access_log off;
	client_body_temp_path {self.home}/body;
	proxy_temp_path {self.home}/proxy;
	fastcgi_temp_path {self.home}/f;
	uwsgi_temp_path {self.home}/u;
	scgi_temp_path {self.home}/s;
	include server.conf;
}}
""")
        self.start()

    def command(self):
        return [str(NGINX), "-e", "stderr", "-p", str(self.home), "-c", str(self.home / "nginx.conf")]

    def done(self):
        super().done()
        self.auth.shutdown()
        self.auth.server_close()


class FastApi(Proxy):
    end_within = 3  # it would wait for the streams of its clients, which go on

    def __init__(self, daemon):
        super().__init__(daemon)
        shutil.copy(DOCS / "fastapi_proxy.py", self.home)
        self.start()

    def command(self):
        return [sys.executable, "-m", "uvicorn", "--host", "127.0.0.1", "--port", str(self.port),
                "--log-level", "warning", "fastapi_proxy:app"]

    def refusal(self, status):
        return 403  # the one thing that can be said before accept()

    def options(self):
        return {"user": UID, "group": UID, "extra_groups": [],
                "env": {"PATH": "/usr/bin:/bin", "TOKEN_KEY": KEY, "PYTHONDONTWRITEBYTECODE": "1",
                        "SANDBOXD_SOCKET": str(self.daemon.control), "HOME": str(self.home)}}


def lines_of(proxy, url, bearer, headers=None, timeout=20 * PATIENCE):
    """The lines of a stream as they come, until its end or its cut."""
    connection = proxy.connection(timeout)
    try:
        connection.request("GET", url, headers={"Authorization": f"Bearer {bearer}",
                                                **(headers or {})})
        answer = connection.getresponse()
        assert answer.status == 200, (answer.status, answer.read())
        try:
            while line := answer.readline():
                yield line.rstrip(b"\r\n")
        except (http.client.IncompleteRead, ConnectionResetError):
            return
    finally:
        connection.close()
