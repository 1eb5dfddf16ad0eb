"""An object store that sandboxes and production share, with shared_host = path: what a session that
holds keys for both asks for never arrives for production's bucket."""
import os
import signal

import pytest

import egress_rig
from endpoints_rig import SANDBOX, Quiet, denials, web_server
from harness import CONFIG, SESSIONS, Daemon, wait_until

HOST, PORT = "minio.example", 9000
CONFIGURED = CONFIG + f"""
[endpoint:iceberg_warehouse]
production = {HOST} *.{HOST}
production_buckets = prod
companions = {HOST}:{PORT} *.{HOST}:{PORT}
shared_host = path
shared_paths = {HOST}/sandbox sandbox.{HOST}/
"""
# Bytes as they are, on one connection: status codes of the answers, or what ended it.
ASK = r"""
import socket, sys
words = []
try:
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=60) as s:
        for head in sys.argv[3:]:
            s.sendall(head.encode().decode("unicode_escape").encode("latin-1"))
            got = b""
            while b"\r\n\r\n" not in got:
                part = s.recv(4096)
                if not part:
                    break
                got += part
            words.append(got.split(b" ")[1].decode() if got else "end")
            if not got:
                break
except OSError as error:
    words.append(type(error).__name__)
print(" ".join(words))
"""


def head(path, host=f"{HOST}:{PORT}", method="GET"):
    return f"{method} {path} HTTP/1.1\\r\\nHost: {host}\\r\\n\\r\\n"


class Store(Quiet):
    """Answers 200 to all, and remembers the bucket as such stores read it: by host, else by path."""
    protocol_version = "HTTP/1.1"
    asked = []

    def do_GET(self):
        Store.asked.append((self.headers["Host"].split(":")[0], self.path))
        self.answer()

    do_PUT = do_DELETE = do_POST = do_HEAD = do_GET


@pytest.fixture(name="world", scope="module")
def fixture_world(tmp_path_factory):
    names = {name: [SANDBOX] for name in (HOST, f"sandbox.{HOST}", f"prod.{HOST}")}
    with egress_rig.hosted_world(tmp_path_factory, names) as world:
        server = web_server(world, SANDBOX, PORT, Store)
        yield world
        server.shutdown()


@pytest.fixture(name="daemon", scope="module")
def fixture_daemon(world):
    assert world
    daemon = Daemon(config=CONFIGURED)
    yield daemon
    daemon.done()


@pytest.fixture(name="session")
def fixture_session(alice):
    Store.asked.clear()
    session = alice.create(env_overrides={"iceberg_warehouse": "s3://sandbox/iceberg"})
    yield session
    alice.remove(session)


def ask(client, session, host, *heads):
    return client.run(session, "/usr/bin/python3", "-c", ASK, host, str(PORT), *heads).text.split()


def test_the_sandbox_bucket_is_served(alice, session):
    assert ask(alice, session, HOST, head("/sandbox/a?x=/prod/"), head("/sandbox/b", method="PUT")) == ["200", "200"]
    assert ask(alice, session, f"sandbox.{HOST}", head("/a", f"sandbox.{HOST}:{PORT}")) == ["200"]
    assert Store.asked == [(HOST, "/sandbox/a?x=/prod/"), (HOST, "/sandbox/b"), (f"sandbox.{HOST}", "/a")]


@pytest.mark.parametrize("path, host", [
    ("/prod/a", f"{HOST}:{PORT}"),                        # path style
    ("/prod", f"{HOST}:{PORT}"),
    ("/", f"{HOST}:{PORT}"),                              # the list of buckets
    ("/sandboxprod/a", f"{HOST}:{PORT}"),
    ("/sandbox/../prod/a", f"{HOST}:{PORT}"),
    ("/sandbox/%2e%2e/prod/a", f"{HOST}:{PORT}"),
    ("/sandbox/%252e%252e/prod/a", f"{HOST}:{PORT}"),
    ("/sandbox/..%2fprod/a", f"{HOST}:{PORT}"),
    ("//prod/a", f"{HOST}:{PORT}"),
    ("/%70rod/a", f"{HOST}:{PORT}"),
    (f"http://{HOST}:{PORT}/prod/a", f"{HOST}:{PORT}"),   # absolute form
    (f"http://prod.{HOST}:{PORT}/sandbox/a", f"{HOST}:{PORT}"),
    ("/a", f"prod.{HOST}:{PORT}"),                        # virtual-host style
    ("/sandbox/a", f"prod.{HOST}:{PORT}"),
    ("/sandbox/a", f"{HOST}:{PORT}\\r\\nHost: prod.{HOST}"),
])
def test_production_gets_no_request(alice, session, path, host):
    said = ask(alice, session, HOST, head(path, host))
    assert said and said[0] != "200", said
    # As second request on a connection that was good.
    said = ask(alice, session, HOST, head("/sandbox/first"), head(path, host))
    assert said[0] == "200" and said[1:2] != ["200"], said
    assert Store.asked == [(HOST, "/sandbox/first")]


def test_a_refused_path_is_403_with_a_record(alice, session):
    assert ask(alice, session, HOST, head("/prod/zq98key")) == ["403"]

    def record():
        return next((denial for denial in denials(alice, session) if "HTTP request" in denial["what"]), None)
    found = wait_until(record, 10, "a record")
    assert found["rule"] == "production shares the host, and this path is not the sandbox's"
    assert "companion:iceberg_warehouse" in found["what"] and "zq98key" not in str(found)


def test_a_name_of_productions_bucket_serves_only_what_is_listed(alice, session):
    said = ask(alice, session, f"prod.{HOST}", head("/a", f"prod.{HOST}:{PORT}"))
    assert "200" not in said
    assert Store.asked == []


def test_the_bucket_is_refused_when_it_is_asked_for(alice):
    answer = alice.post(SESSIONS, {"env_overrides": {"iceberg_warehouse": "s3://prod/x"}})
    assert answer.status == 422 and "production's bucket" in answer.body.decode()


def test_a_reload_binds_sessions_that_run(daemon, alice, session):
    """The operator takes a path back: the next request is refused."""
    assert ask(alice, session, HOST, head("/sandbox/a")) == ["200"]
    daemon.configure(CONFIGURED.replace(f"{HOST}/sandbox sandbox.{HOST}/", f"{HOST}/other"))
    os.kill(daemon.process.pid, signal.SIGHUP)
    wait_until(lambda: ask(alice, session, HOST, head("/sandbox/a")) != ["200"], 10, "the new configuration")
    assert ask(alice, session, HOST, head("/other/a")) == ["200"]
