"""The seven behaviours that fix what the platform's sandbox is, seen through the API.

The fourth is a namespace in Redis: the production cache cannot be reached from a session, neither on
a server that it has no place on nor on the one where it has its own.
"""
import os
import socket
import subprocess
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from harness import CONFIG, NOT_FOUND, PATIENCE, SESSIONS, Daemon, free_port, wait_until
from redis_rig import Redis

COMPONENT = "type: a.B\n"
# What the platform falls back to where nothing is injected.
PRODUCTION_ALPHA_VANTAGE = "https://www.alphavantage.co/query"
CACHE_KEY, CACHE_VALUE = "alphaswarm:cache:prices", "production-prices"


def is_there(path):
    try:
        return path.exists()
    except OSError:  # of a process that is on its way out
        return False


def test_folder_exists_after_create_and_is_gone_after_teardown(daemon, alice):
    made = alice.create()
    seen = alice.shell(made, "stat -c '%F %a' /session; pwd")
    assert seen.text == "directory 700\n/session\n"
    shim = daemon.shim_pids()[-1]
    inside = Path(f"/proc/{shim}/root/session")
    assert inside.is_dir()
    answer = alice.delete(f"{SESSIONS}/{made}")
    assert answer.status == 200 and answer.json["folder_removed"] is True
    # The folder is a tmpfs of the session's own mount namespace and goes with its last process.
    wait_until(lambda: not is_there(inside), 5, "the folder is gone")


def test_component_demo_is_demo_yaml(alice, session):
    assert alice.write(session, "demo", COMPONENT).json["components"] == ["demo.yaml"]
    assert alice.shell(session, "cat /session/demo.yaml").text == COMPONENT


def test_load_gives_a_key_for_each_component(alice, session):
    for name in ("alpha", "beta"):
        assert alice.write(session, name, COMPONENT).status == 200
    loaded = alice.post(f"{SESSIONS}/{session}/load")
    assert loaded.status == 200
    assert loaded.json["asset_keys"] == [["sandbox", "alpha"], ["sandbox", "beta"]]
    assert loaded.json["sandbox"]["problems"] == []


@pytest.fixture
def production_cache(tmp_path):
    port = free_port()
    # The server is in the package of the client; it goes by the name under which it is called.
    server = subprocess.Popen(
        ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(tmp_path),
         "--save", "", "--appendonly", "no"], executable="/usr/bin/redis-check-rdb", stdout=subprocess.DEVNULL)

    def ask(*words):
        return subprocess.run(["redis-cli", "-p", str(port), *words], capture_output=True,
                              text=True, check=False).stdout.strip()

    wait_until(lambda: ask("ping") == "PONG", 10, "redis answers")
    assert ask("set", CACHE_KEY, CACHE_VALUE) == "OK"
    yield port, ask
    server.terminate()
    server.wait(10 * PATIENCE)


def test_production_cache_key_reads_as_none(alice, session, production_cache):
    port, ask = production_cache
    script = f"redis-cli -h 127.0.0.1 -p {port} get {CACHE_KEY} 2>&1; echo status $?"
    outside = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=True)
    assert CACHE_VALUE in outside.stdout  # the control: the same words work outside
    accepted = ask("info", "stats").split("total_connections_received:")[1].split()[0]
    inside = alice.shell(session, script).text
    assert CACHE_VALUE not in inside and "Connection refused" in inside, inside
    later = ask("info", "stats").split("total_connections_received:")[1].split()[0]
    assert int(later) == int(accepted) + 1  # the question itself
    answer = alice.delete(f"{SESSIONS}/{session}").json
    assert answer["redis_keys_dropped"] == 0 and ask("get", CACHE_KEY) == CACHE_VALUE


def test_a_namespaced_key_can_be_read_and_is_gone_after_teardown():
    redis = Redis()
    daemon = None
    cli = 'redis-cli --no-auth-warning -u "$SANDBOX_REDIS_URL"'
    try:
        assert redis.ask("set", CACHE_KEY, CACHE_VALUE) == "OK"
        daemon = Daemon(CONFIG + redis.config())
        alice = daemon.client("alice")
        made = alice.create()
        seen = alice.shell(made, f'{cli} set "${{SANDBOX_REDIS_PREFIX}}prices" mine >/dev/null;'
                                 f' {cli} get "${{SANDBOX_REDIS_PREFIX}}prices"; {cli} get {CACHE_KEY}')
        assert seen.text.startswith("mine\n") and "NOPERM" in seen.text and CACHE_VALUE not in seen.text, seen
        assert redis.ask("get", f"alphaswarm:sandbox:{made}:prices") == "mine"
        assert alice.delete(f"{SESSIONS}/{made}").json["redis_keys_dropped"] == 1
        assert redis.ask("keys", "*") == CACHE_KEY and redis.users() == []
    finally:
        if daemon:
            daemon.done()
        redis.done()


def test_endpoints_are_swapped_inside_and_nowhere_else(daemon, alice, session):
    name = "ALPHASWARM_ALPHA_VANTAGE_BASE_URL"
    assert name not in os.environ
    inside = alice.shell(session, f'printf %s "${name}"').text
    assert inside and inside != PRODUCTION_ALPHA_VANTAGE
    for pids in daemon.processes().values():
        for pid in pids:
            try:
                environ = Path(f"/proc/{pid}/environ").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has one job, and is done
            assert name.encode() not in environ
    alice.delete(f"{SESSIONS}/{session}")
    assert name not in os.environ


def test_stages_begin_with_start_and_end_with_done(alice, session):
    assert alice.write(session, "alpha", COMPONENT).status == 200
    stages = [frame["stage"] for frame in alice.frames(alice.execute(session))]
    assert stages[0] == "start" and stages[-1] == "done" and "materialize" in stages


def test_expired_session_is_the_janitors():
    """That its list names it is a unit test (test_janitor.c); here it and its row are closed."""
    daemon = Daemon()
    try:
        alice = daemon.client("alice")
        kept, expired = alice.create(), alice.create()
        assert daemon.stop() == 0
        past = (datetime.utcnow() - timedelta(seconds=1)).isoformat(timespec="microseconds")
        daemon.sql("UPDATE dagster_sandbox_sessions SET expires_at = ? WHERE id = ?", past, expired)
        daemon.start()
        assert daemon.root.post("/dagster/sandbox/janitor").json["count"] <= 1
        assert [each["id"] for each in alice.get(SESSIONS).json] == [kept]
        assert alice.get(f"{SESSIONS}/{expired}").body == NOT_FOUND
    finally:
        daemon.done()
