"""What a session may keep in Redis, and users that the server has lost."""
import threading
import time
import uuid
from urllib.parse import urlsplit

import pytest

from harness import ASAN, CONFIG, PATIENCE, ROOT, RUNTIME, SESSIONS, Daemon, wait_until
from redis_rig import ADMIN_MAY, Redis

CLI = 'redis-cli --no-auth-warning -u "$SANDBOX_REDIS_URL"'
LOOK = 60  # the service looks every 20 s


@pytest.fixture(scope="module")
def server():
    redis = Redis(lines=['rename-command GETEX ""', 'rename-command LCS ""', 'rename-command XADD other'])
    yield redis
    redis.done()


@pytest.fixture(scope="module")
def daemon(server):
    started = Daemon(CONFIG + server.config(session_keys=50, session_bytes="200KiB"))
    yield started
    started.done()


@pytest.fixture
def session(daemon):
    alice = daemon.client("alice")
    made = alice.create()
    yield made
    alice.remove(made)


def url_of(alice, session):
    return alice.shell(session, 'printf %s "$SANDBOX_REDIS_URL"').text


def tries(alice, session, words):
    return alice.shell(session, f'P=$SANDBOX_REDIS_PREFIX; {CLI} {words}').text


def denials(alice, session):
    return [record for record in alice.get(f"{RUNTIME}/{session}/denials").json["denials"]
            if record["what"] == "writing to Redis"]


def test_a_server_without_some_commands_gives_the_others(daemon, session):
    """As an older or a newer one, or one that renames them."""
    alice = daemon.client("alice")
    assert tries(alice, session, "set ${P}a 1") == "OK\n"
    assert tries(alice, session, "append ${P}a 2") == "2\n"
    assert "ERR unknown command" in tries(alice, session, "getex ${P}a")


@pytest.mark.parametrize("fill,heal", [
    ("for i in $(seq 60); do echo set ${P}$i v; done | " + CLI, "eval-free"),
    ("head -c 300000 /dev/zero | tr '\\0' x | " + CLI + " -x set ${P}big", "one"),
])
def test_over_its_bound_a_session_may_only_read_and_delete(daemon, session, fill, heal):
    alice = daemon.client("alice")
    other = alice.create()
    assert denials(alice, session) == []
    alice.shell(session, f"P=$SANDBOX_REDIS_PREFIX; {fill}")
    wait_until(lambda: "NOPERM" in tries(alice, session, "set ${P}x 1"), LOOK, "writes are refused")
    assert "NOPERM" in tries(alice, session, "rpush ${P}l 1")
    assert "NOPERM" not in tries(alice, session, "get ${P}1") + tries(alice, session, "ttl ${P}1")
    wait_until(lambda: len(denials(alice, session)) == 1, LOOK, "and recorded")
    assert "session_keys" in denials(alice, session)[0]["rule"]
    assert tries(alice, other, "set ${P}x 1") == "OK\n"
    alice.remove(other)
    keys = "${P}big" if heal == "one" else " ".join(f"${{P}}{i}" for i in range(1, 40))
    assert int(tries(alice, session, f"del {keys}")) > 0
    wait_until(lambda: tries(alice, session, "set ${P}x 1") == "OK\n", LOOK, "writes are back")
    # Redis lets them write before the worker has its answer.
    wait_until(lambda: "redis_writable" in [note["metadata"].get("code") for note in
                                            alice.get(f"{SESSIONS}/{session}").json["log_summary"]], 10, "that is told")


def test_users_that_nobody_has_go_however_many_there_are(daemon, session, server):
    alice = daemon.client("alice")
    user = urlsplit(url_of(alice, session)).username
    orphans = [user[:-36] + first + str(uuid.uuid4())[2:] for first in ("00", "01", "03", "7f", "ff") for _ in range(30)]
    for orphan in orphans:
        assert server.ask("acl", "setuser", orphan) == "OK"
    wait_until(lambda: not set(orphans) & set(server.users()), 4 * LOOK, "dropped")
    assert user in server.users() and tries(alice, session, "set ${P}a 1") == "OK\n"


def test_a_server_that_forgot_its_users_gets_them_again(daemon, session, server):
    alice = daemon.client("alice")
    before = url_of(alice, session)
    other = alice.create()
    server.stop()
    server.start()
    assert server.users() == []
    wait_until(lambda: len(server.users()) >= 2, LOOK, "made again")
    for each in (session, other):
        assert tries(alice, each, "set ${P}a 1") == "OK\n"
    assert url_of(alice, session) == before
    alice.remove(other)


@pytest.mark.skipif(ASAN, reason="a sanitizer reserves more than the bound")
def test_names_of_keys_take_no_more_memory_than_the_helpers_own():
    """A server's answer has all of them; the api worker is in the same group."""
    redis = Redis()
    started = Daemon(CONFIG + redis.config())
    try:
        alice = started.client("alice")
        made, other = alice.create(), alice.create()
        api = started.worker_pid("sandboxd-api")
        fill = "for i = 1, 3 do redis.call('set', ARGV[1] .. i .. string.rep('x', 1e8), '') end return 1"
        assert redis.ask("eval", fill, "0", f"alphaswarm:sandbox:{made}:") == "1"
        assert alice.delete(f"{SESSIONS}/{made}").json["redis_keys_dropped"] == 0
        assert redis.ask("dbsize") == "3"
        assert started.worker_pid("sandboxd-api") == api
        assert tries(alice, other, "set ${P}a 1") == "OK\n"
        # What is owed is done as soon as it can be.
        redis.ask("flushall")
        user = urlsplit(url_of(alice, other)).username
        wait_until(lambda: redis.users() == [user], LOOK, "dropped")
        alice.remove(other)
    finally:
        started.done()
        redis.done()


@pytest.mark.skipif(ASAN, reason="its helper may not answer in time on a server that is kept busy")
def test_a_drop_that_takes_long_is_done_once():
    """Who deletes does not wait for it, and it is not begun again beside or after itself."""
    redis = Redis()
    started = Daemon(CONFIG + redis.config())
    busy = threading.Event()

    def keep_busy():
        while not busy.is_set():
            redis.ask("eval", "local t = redis.call('time') local n = t[1] * 1e6 + t[2] repeat "
                      "local u = redis.call('time') until u[1] * 1e6 + u[2] - n > 400000", "0")

    thread = threading.Thread(target=keep_busy)
    try:
        alice = started.client("alice")
        made = alice.create()
        fill = "for i = 1, 50000 do redis.call('set', ARGV[1] .. i, '') end return 1"
        assert redis.ask("eval", fill, "0", f"alphaswarm:sandbox:{made}:") == "1"
        thread.start()
        # All of them where other programs leave the server idle in between.
        assert alice.delete(f"{SESSIONS}/{made}", timeout=60 * PATIENCE).json["redis_keys_dropped"] in (0, 50000)
        wait_until(lambda: redis.ask("dbsize") == "0", 2 * LOOK, "dropped")
        wait_until(lambda: redis.users() == [], LOOK, "the user, too")
        time.sleep(LOOK / 2)
        assert "are left in Redis" not in started.log.read_text()
        resets = [line for line in redis.ask("info", "commandstats").splitlines() if "acl|deluser" in line]
        assert "calls=1," in resets[0], resets
    finally:
        busy.set()
        if thread.ident:
            thread.join()
        started.done()
        redis.done()


def test_the_manual_names_the_rights_that_are_enough():
    page = (ROOT / "docs/man/sandboxd.conf.5").read_text(encoding="utf-8")
    assert ADMIN_MAY in page


def test_without_the_right_to_measure_that_is_said_once(server):
    redis = Redis(admin_may="+acl +scan +unlink")
    started = Daemon(CONFIG + redis.config())
    try:
        alice = started.client("alice")
        made = alice.create()
        assert tries(alice, made, "set ${P}a 1") == "OK\n"
        wait_until(lambda: "are not measured" in started.log.read_text(), LOOK, "said")
        alice.remove(made)
    finally:
        started.done()
        redis.done()
