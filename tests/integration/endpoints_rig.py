"""What the tests of endpoints share: servers of the world that count or answer, libraries carried into a
session, and the record of a refusal."""
import base64
import http.server
import socket
import subprocess
import threading

import pytest

import egress_rig
from harness import PATIENCE, ROOT, SESSIONS, wait_until

SANDBOX, PRODUCTION, OTHER = (f"{egress_rig.WORLD}.{n}" for n in (2, 3, 4))
WHEELS = ROOT / "build" / "wheels"


class Server:
    """Calls `serve` with each connection that it takes, in a thread of its own."""

    def __init__(self, listener, serve):
        self.listener = listener
        self.take = serve
        self.n_accepted = 0
        listener.settimeout(None)
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.n_accepted += 1
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        with client:
            try:
                self.take(client)
            except OSError:
                pass  # it has gone

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)  # the thread lets go of it
        self.listener.close()


class Counting(Server):
    """Takes connections, keeps what is said first, answers nothing."""

    def __init__(self, listener):
        self.heard = []
        super().__init__(listener, self.listen)

    def listen(self, client):
        client.settimeout(5 * PATIENCE)
        try:
            self.heard.append(client.recv(4096))
        except OSError:
            self.heard.append(b"")


class Quiet(http.server.BaseHTTPRequestHandler):
    """The base of handlers: says nothing of its own."""

    def answer(self, body=b"", status=200):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def web_server(world, address, port, handler):
    """An HTTP server of the world, in a thread of ours; the caller ends it with shutdown()."""
    listener = world.listen(address, port)
    listener.settimeout(None)
    server = http.server.ThreadingHTTPServer((address, port), handler, bind_and_activate=False)
    server.socket.close()
    server.socket = listener
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def heard(servers):
    return [server.heard for server in servers]


def carry(client, session, folder):
    """A folder of the host into the session, by a command's input alone."""
    archive = subprocess.run(["tar", "-cJf", "-", "--exclude=__pycache__", "-C", folder.parent, folder.name],
                             check=True, capture_output=True, env={"PATH": "/usr/bin:/bin", "XZ_OPT": "-1"}).stdout
    size = 700 * 1024
    for at in range(0, len(archive), size):
        text = base64.b64encode(archive[at:at + size]).decode()
        assert client.run(session, "/bin/sh", "-c", "base64 -d >>/session/carried.tar.xz", stdin=text).code == 0
    assert client.shell(session, "tar -xJf carried.tar.xz && rm carried.tar.xz", timeout_ms=120000).code == 0


def carry_wheels(client, session):
    """The libraries that Debian does not have, as /session/wheels."""
    if not WHEELS.is_dir():
        pytest.skip("tests/run has fetched no wheels")
    carry(client, session, WHEELS)


def needs(client, session, statement):
    """Skips where Python has not what the statement imports."""
    if client.run(session, "/usr/bin/python3", "-c", statement).code != 0:
        pytest.skip(f"not installed: {statement}")


def denials(client, session):
    return client.get(f"{SESSIONS}/{session}/denials").json["denials"]


def records(client, session, endpoint, host=""):
    """The refusals that name the endpoint whose production it was; they may come a moment later."""
    rule = f"a production host of endpoint:{endpoint}"

    def found():
        return [record for record in denials(client, session) if record["rule"] == rule and host in record["what"]]
    return wait_until(found, 10, f"a record of {host} that names {endpoint}")
