"""Services of this host that are Unix sockets: reached by the name that the operator gave them, by
nobody else, and with no power of root."""
import http.server
import os
import socket
import socketserver
import struct
import threading

import pytest

from harness import CONFIG, SESSIONS, Daemon, wait_until
from test_endpoints_reach import denied

GROUP = 4321  # of nobody


class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        peer = self.request.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        self.server.peers.append(struct.unpack("3i", peer)[1:])
        self.answer(b"catalog " + self.path.encode() + b"y" * self.server.size)

    def do_POST(self):
        self.answer(str(len(self.rfile.read(int(self.headers["Content-Length"])))).encode())

    def address_string(self):
        return "unix"

    def log_message(self, *_):
        pass


class Catalog(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """A real HTTP server on a Unix socket of the host."""

    daemon_threads = True
    server_name, server_port = "catalog", 0
    request_queue_size = 256

    def __init__(self, path, mode=0o660, group=GROUP):
        super().__init__(str(path), Handler)
        os.chown(path, 0, group)
        os.chmod(path, mode)
        self.peers = []
        self.size = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def close(self):
        self.shutdown()
        self.server_close()


@pytest.fixture(name="folder", scope="module")
def fixture_folder(tmp_path_factory):
    # Its parents are only root's: whoever connects by path as another user gets nowhere.
    folder = tmp_path_factory.mktemp("services")
    (folder / "link.sock").symlink_to(folder / "catalog.sock")
    return folder


@pytest.fixture(name="catalog", scope="module")
def fixture_catalog(folder):
    catalog = Catalog(folder / "catalog.sock")
    yield catalog
    catalog.close()


@pytest.fixture(name="own", scope="module")
def fixture_own(folder, catalog):
    assert catalog
    services = "".join(f"host_services = {name}=unix:{folder}/{path}\n" for name, path in (
        ("catalog.host:8181", "catalog.sock"), ("localhost:8182", "catalog.sock"),
        ("web.host:80", "catalog.sock"), ("again.host:8181", "again.sock"), ("link.host:8181", "link.sock"),
        ("file.host:8181", "file"), ("gone.host:8181", "gone.sock"), ("closed.host:8181", "closed.sock")))
    daemon = Daemon(config=CONFIG + "[network]\n" + services)
    yield daemon
    daemon.done()


@pytest.fixture(name="ann")
def fixture_ann(own):
    return own.client("ann", workspace="blue")


def session_of(client, place):
    return client.create(env_overrides={"iceberg_rest_uri": f"http://{place}/catalog"})


def curl(client, session, url, *more):
    return client.run(session, "/usr/bin/curl", "-sS", "--max-time", "20", *more, url)


@pytest.mark.parametrize("place,url", [
    ("catalog.host:8181", "http://catalog.host:8181/v1/config"),
    ("web.host:80", "http://web.host/v1/config"),
    ("localhost:8182", "http://host.sandbox.internal:8182/v1/config"),
])
def test_a_unix_socket_is_reached_by_its_name(own, ann, catalog, place, url):
    session = session_of(ann, place)
    result = curl(ann, session, url)
    assert result.text == "catalog /v1/config", (result, own.log.read_text()[-2000:])
    # The service sees the egress worker's user, and the group that its own socket has.
    uid, gid = catalog.peers[-1]
    assert uid == os.stat(f"/proc/{own.worker_pid('sandboxd-egress')}").st_uid != 0
    assert gid == GROUP
    ann.remove(session)


def test_much_goes_both_ways(ann, catalog):
    session = session_of(ann, "catalog.host:8181")
    catalog.size = 3 << 20
    try:
        script = ("head -c 3000000 /dev/zero > /tmp/body; for i in 1 2 3; do "
                  "curl -sS http://catalog.host:8181/x | wc -c; "
                  "curl -sS --data-binary @/tmp/body http://catalog.host:8181/y; echo; done")
        result = ann.shell(session, script)
    finally:
        catalog.size = 0
    assert result.text.split() == [str((3 << 20) + len("catalog /x")), "3000000"] * 3, result
    ann.remove(session)


BURST = """
import select, socket
clients = []
for _ in range(96):
    clients.append(socket.socket())
    clients[-1].setblocking(False)
host = socket.gethostbyname("catalog.host")
for client in clients:
    client.connect_ex((host, 8181))
n = 0
for client in clients:
    client.setblocking(True)
    try:
        client.sendall(b"GET /x HTTP/1.0\\r\\nHost: catalog.host:8181\\r\\n\\r\\n")
        n += client.makefile("rb").read().endswith(b"catalog /x")
    except OSError as error:
        print(error)
print(n)
"""


def test_many_at_once_are_all_connected(own, ann, catalog):
    assert catalog
    session = session_of(ann, "catalog.host:8181")
    # Where it and who connects for it have one processor, the second waits for the first.
    processors = os.sched_getaffinity(own.supervisor_pid())
    os.sched_setaffinity(own.supervisor_pid(), {min(processors)})
    try:
        result = ann.run(session, "/usr/bin/python3", "-c", BURST)
    finally:
        os.sched_setaffinity(own.supervisor_pid(), processors)
    assert result.text.split() == ["96"], result
    ann.remove(session)


def test_who_has_no_rule_for_it_does_not_reach_it(ann, catalog):
    before = len(catalog.peers)
    session = ann.create()
    assert "catalog" not in curl(ann, session, "http://catalog.host:8181/x").text
    # Neither does one whose endpoint names another port, nor one that asks for the name in a rule.
    other = ann.create(env_overrides={"iceberg_rest_uri": "http://catalog.host:9999/"},
                       egress={"allow": ["catalog.host:8181"]})
    assert "catalog /x" not in curl(ann, other, "http://catalog.host:8181/x").text
    assert denied(ann, session, "catalog.host")
    assert len(catalog.peers) == before
    for each in (session, other):
        ann.remove(each)


def test_a_socket_that_its_service_makes_again_is_reached(ann, folder):
    session = session_of(ann, "again.host:8181")
    assert "catalog" not in curl(ann, session, "http://again.host:8181/x").text
    assert denied(ann, session, "port 8181")["rule"] == "allowed, but nothing answers there"
    for n in range(3):
        server = Catalog(folder / "again.sock", mode=0o666, group=0)
        assert curl(ann, session, f"http://again.host:8181/{n}").text == f"catalog /{n}"
        assert 0 not in server.peers[-1]
        server.close()
        (folder / "again.sock").unlink()
    ann.remove(session)


@pytest.mark.parametrize("name", ["link", "file", "gone", "closed"])
def test_what_is_no_socket_or_not_open_to_it_is_an_error_at_once(own, ann, folder, name):
    (folder / "file").touch()
    server = Catalog(folder / "closed.sock", mode=0o600) if name == "closed" else None
    session = session_of(ann, f"{name}.host:8181")
    result = curl(ann, session, f"http://{name}.host:8181/x")
    assert "catalog" not in result.text
    assert denied(ann, session, "port 8181")["rule"] == "allowed, but nothing answers there"
    if server:
        assert not server.peers
        server.close()
    assert str(folder) not in own.log.read_text()
    ann.remove(session)


@pytest.mark.parametrize("value", ["http://localhost:8181", "http://127.0.0.1:8182", "http://[::1]:8182",
                                   "http://host.sandbox.internal:8181", "http://a.localhost"])
def test_a_place_on_this_host_that_is_not_listed_is_refused_at_create(ann, value):
    answer = ann.post(SESSIONS, {"env_overrides": {"iceberg_rest_uri": value}})
    assert answer.status == 422
    assert "names a service of this host that its host_services do not list" in answer.body.decode()
    assert value not in answer.body.decode()


def test_a_rule_for_this_host_is_refused(ann):
    for rule in ("localhost:8182", "host.sandbox.internal:8182"):
        answer = ann.post(SESSIONS, {"egress": {"allow": [rule]}})
        assert answer.status == 422 and "names this host" in answer.body.decode()


def test_a_service_that_is_taken_from_the_list_is_not_reached_any_more(own, ann, catalog):
    session = session_of(ann, "catalog.host:8181")
    assert curl(ann, session, "http://catalog.host:8181/x").text == "catalog /x"
    before = own.config.read_text()
    own.configure(before.replace("catalog.host:8181=", "other.host:8181="))
    os.kill(own.process.pid, 1)
    wait_until(lambda: "catalog" not in curl(ann, session, "http://catalog.host:8181/x").text, 20, "the reload")
    n = len(catalog.peers)
    curl(ann, session, "http://catalog.host:8181/x")
    assert len(catalog.peers) == n
    own.configure(before)
    os.kill(own.process.pid, 1)
    wait_until(lambda: curl(ann, session, "http://catalog.host:8181/x").text == "catalog /x", 20, "the reload back")
    ann.remove(session)
