"""PostgreSQL and Redis by their names, with TLS: looked up at each connection, and nothing waits for it."""
import os
import shutil
import subprocess
import time
import types

import pytest
import redis as client

from celery_rig import TASK, make_app
from git_rig import make_authority
from harness import CONFIG, PATIENCE, SESSIONS, Daemon, free_port, wait_until
from name_server import name_server
from postgres_rig import Postgres
from redis_rig import Redis

TRUSTED = "/etc/ssl/certs/ca-certificates.crt"
NOBODY = "127.0.0.99"  # nothing listens there


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    folder = tmp_path_factory.mktemp("etc")
    folder.chmod(0o755)
    with name_server(folder) as server:
        yield server


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """Of store.example and redis.example, by an authority that this host trusts; the certificate and its key."""
    folder = tmp_path_factory.mktemp("tls")
    authority, _ = make_authority(folder, "store.example", "redis.example")
    (folder / "trusted").write_text(authority)
    (folder / "trusted").chmod(0o644)
    subprocess.run(["mount", "--bind", folder / "trusted", TRUSTED], check=True)
    yield folder / "s.pem", folder / "s.key"
    subprocess.run(["umount", TRUSTED], check=True)


@pytest.fixture(scope="module")
def postgres(certificate):
    server = Postgres()
    for path in certificate:
        shutil.copy(path, server.home)
        os.chown(server.home / path.name, server.user.pw_uid, server.user.pw_gid)
        (server.home / path.name).chmod(0o600)
    server.tls = ("ssl=on", f"ssl_cert_file={server.home}/s.pem", f"ssl_key_file={server.home}/s.key")
    server.restart(settings=server.tls)
    server.ready()
    yield server
    server.done()


@pytest.fixture(scope="module")
def redis(certificate):
    """It takes TLS at a second port."""
    port = free_port()
    server = Redis(lines=(f"tls-port {port}", f"tls-cert-file {certificate[0]}", f"tls-key-file {certificate[1]}",
                          f"tls-ca-cert-file {TRUSTED}", "tls-auth-clients no"))
    server.tls_port = port
    yield server
    server.done()


def config_of(postgres, redis, host="store.example", redis_host="redis.example"):
    dsn = postgres.dsn().replace("@127.0.0.1:", f"@{host}:")
    login = f"rediss://test:{redis.password}@{redis_host}:{redis.tls_port}"
    return (f"{CONFIG}\n[store]\ndsn = {dsn}?sslmode=verify-full\n[platform]\nredis_url = {login}/1\n"
            f"[celery]\nbroker_url = {login}/0?ssl_cert_reqs=required\ntask_name = {TASK}\n")


def parts(daemon):
    """What is not well; nothing while nothing is known to be amiss."""
    return daemon.root.get("/readyz").json.get("parts", {})


def ready(daemon):
    return daemon.root.get("/readyz").status == 200


@pytest.fixture
def daemon(names, postgres, redis):
    names.silent = False
    # Not there first: the next address is tried.
    names.names = {"store.example": [NOBODY, "127.0.0.1"], "redis.example": [NOBODY, "127.0.0.1"]}
    started = Daemon(config=config_of(postgres, redis))
    yield started
    started.done()


def test_servers_are_found_by_name_and_checked_by_it(daemon, redis):
    wait_until(lambda: ready(daemon), 30, "ready")
    alice = daemon.client("alice")
    session = alice.create()
    with client.Redis(port=redis.port, username="test", password=redis.password).pubsub() as listener:
        listener.psubscribe("alphaswarm:task:*")
        wait_until(lambda: (listener.get_message(timeout=1) or {}).get("type") == "psubscribe", 20, "it listens")
        task = alice.execute(session)
        assert alice.frames(task)[-1]["stage"] == "done"
        wait_until(lambda: '"done"' in str((listener.get_message(timeout=1) or {}).get("data")), 20, "published")
    broker = types.SimpleNamespace(url=f"redis://test:{redis.password}@127.0.0.1:{redis.port}/0")
    app = make_app(broker)
    assert app.send_task(TASK, (session,), retry=False).get(timeout=30 * PATIENCE)["ok"] is True
    alice.remove(session)


def test_a_name_that_moves_is_followed_and_holds_up_nothing(daemon, names, postgres, redis):
    wait_until(lambda: ready(daemon), 30, "ready")
    alice = daemon.client("alice")
    session = alice.create()
    names.names = {"store.example": [NOBODY], "redis.example": [NOBODY]}
    postgres.restart(settings=postgres.tls)
    redis.stop()
    redis.start()
    wait_until(lambda: parts(daemon).get("store") == "the server cannot be reached: connection refused", 30, "away")
    wait_until(lambda: parts(daemon).get("redis"), 30, "Redis is away, too")
    names.silent = True
    names.asked.clear()
    # Each is answered while a question waits, which takes seconds. A machine that stands still for a moment holds up
    # some; who waited for the question would hold up nearly all.
    n_slow = 0
    for _ in range(20):
        began = time.monotonic()
        assert alice.get(f"{SESSIONS}/{session}").status == 200
        n_slow += time.monotonic() - began > 2
        assert alice.run(session, "/bin/true").code == 0
    assert n_slow <= 10
    names.silent = False
    names.names = {}
    wait_until(lambda: parts(daemon).get("store") == "the server cannot be reached: its name has no address", 30, "no name")
    names.names = {"store.example": ["127.0.0.1"], "redis.example": ["127.0.0.1"]}
    wait_until(lambda: ready(daemon), 40, "back at another address")
    assert {"store.example", "redis.example"} <= set(names.asked)
    alice.remove(session)


def test_another_name_is_not_the_servers(names, postgres, redis):
    names.names = {name: ["127.0.0.1"] for name in ("store.example", "redis.example", "other.example")}
    with pytest.raises(AssertionError, match="certificate is not accepted"):
        Daemon(config=config_of(postgres, redis, host="other.example"))
    started = Daemon(config=config_of(postgres, redis, redis_host="other.example"))
    for part in ("redis", "celery"):
        wait_until(lambda p=part: "certificate is not accepted" in parts(started).get(p, ""), 30, f"{part} is refused")
    started.done()


def test_a_name_that_has_no_address_yet_is_asked_for_again(names, postgres, redis):
    names.names = {}
    names.asked.clear()

    class Waiting(Daemon):
        """The name has an address from when the service has said that it has none."""

        def ready(self):
            if "the server cannot be reached: its name has no address" in self.log.read_text():
                names.names["store.example"] = ["127.0.0.1"]
            return super().ready()

    started = Waiting(config=config_of(postgres, redis))
    assert names.names, "it was ready without an address"
    started.done()
