"""Servers of Redis before Debian's: what they cannot keep apart is not given, and the session says so."""
import subprocess
import tempfile
from pathlib import Path

import pytest
import redis as client

from harness import CONFIG, PATIENCE, ROOT, SESSIONS, Daemon, free_port, wait_until
from redis_rig import ADMIN, Redis
# The same tests, with the server of this file.
from test_redis import (CACHE_KEY, CACHE_VALUE, CELERY_KEY, CELERY_VALUE, CLI, OTHER_KEY, OTHER_VALUE, alice, prefix_of,
                        session, test_a_session_reads_and_writes_its_own_keys,
                        test_every_command_of_the_server_shows_nothing_of_others,
                        test_other_keys_are_refused_by_the_server,
                        test_teardown_counts_keys_ends_the_user_and_its_connections,
                        with_redis)

__all__ = ["alice", "session", "with_redis", "test_a_session_reads_and_writes_its_own_keys",
           "test_every_command_of_the_server_shows_nothing_of_others", "test_other_keys_are_refused_by_the_server",
           "test_teardown_counts_keys_ends_the_user_and_its_connections"]


def program_of(version):
    program = ROOT / "build" / "redis" / version / "redis-server"
    if not program.exists():
        pytest.skip(f"tests/run has fetched no Redis {version}")
    seen = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    assert f"v={version}." in seen, seen
    return program


@pytest.fixture(scope="module", params=["6.0", "6.2"])
def server(request):
    redis = Redis(program=program_of(request.param), binds_channels=request.param != "6.0")
    redis.version = request.param
    for key, value in ((CACHE_KEY, CACHE_VALUE), (OTHER_KEY, OTHER_VALUE), (CELERY_KEY, CELERY_VALUE)):
        assert redis.ask("set", key, value) == "OK"
    yield redis
    redis.done()


def test_channels_are_the_sessions_own_or_there_are_none(alice, session, server):
    """Release 6.0 binds no channels: a session could listen to all of them."""
    own = alice.shell(session, f'{CLI} publish "${{SANDBOX_REDIS_PREFIX}}c" x').text
    other = alice.shell(session, f"{CLI} publish alphaswarm:task:1 x; timeout 20 {CLI} psubscribe '*'").text
    assert own == "0\n" if server.version != "6.0" else "NOPERM" in own, own
    assert other.count("NOPERM") == 2, other


# --- before users

class BeforeUsers:
    """One password for all."""

    def __init__(self):
        self.port, self.password = free_port(), "a-word"
        self.home = tempfile.TemporaryDirectory(prefix="sbx-redis-")
        file = Path(self.home.name) / "redis.conf"
        file.write_text(f"port {self.port}\nbind 127.0.0.1\ndir {self.home.name}\nsave \"\"\n"
                        f"requirepass {self.password}\n")
        self.process = subprocess.Popen([program_of("5.0"), file], stdout=subprocess.DEVNULL)
        wait_until(self.answers, 10, "redis answers")

    def client(self):
        return client.Redis(port=self.port, password=self.password, socket_timeout=10 * PATIENCE)

    def answers(self):
        try:
            return self.client().ping()
        except client.exceptions.RedisError:
            return False

    def done(self):
        self.process.terminate()
        self.process.wait(10 * PATIENCE)
        self.home.cleanup()


@pytest.fixture(scope="module")
def old():
    made = BeforeUsers()
    yield made
    made.done()


@pytest.fixture(scope="module")
def on_old(old):
    place = f"127.0.0.1:{old.port}"
    daemon = Daemon(f"{CONFIG}\n[redis]\nurl = redis://{place}\nuser = {ADMIN}\npassword = {old.password}\n"
                    f"[platform]\nredis_url = redis://:{old.password}@{place}/1\n"
                    f"[celery]\nbroker_url = redis://:{old.password}@{place}/0\n")
    yield daemon
    daemon.done()


def test_a_server_without_users_gives_a_session_none_of_it(old, on_old):
    person = on_old.client("alice")
    made = person.create()
    notes = wait_until(lambda: [note for note in person.get(f"{SESSIONS}/{made}").json["log_summary"]
                                if note["metadata"].get("code") == "redis_unavailable"], 20, "a note")
    assert "has no users" in notes[0]["message"], notes
    seen = person.shell(made, f'echo "<$SANDBOX_REDIS_URL>"; redis-cli -h host.sandbox.internal -p {old.port} ping 2>&1')
    assert seen.text.startswith("<>\n") and "NOAUTH" not in seen.text and "PONG" not in seen.text, seen
    assert not old.client().keys(f"{prefix_of(made)}*")
    person.remove(made)


def test_the_platform_and_the_queue_need_no_users(old, on_old):
    wait_until(lambda: on_old.root.get("/readyz").status == 200, 30, "ready")
    person = on_old.client("alice")
    made = person.create()
    with old.client().pubsub() as listener:
        listener.psubscribe("alphaswarm:task:*")
        task = person.execute(made)
        assert person.frames(task)[-1]["stage"] == "done"
        wait_until(lambda: '"done"' in str((listener.get_message(timeout=1) or {}).get("data")), 20, "published")
    person.remove(made)
