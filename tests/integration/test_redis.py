"""A session's place in Redis: a user of its own, enforced by the server itself."""
import os
import re
import shlex
import signal
import socket
import socketserver
import subprocess
import threading
import time
from urllib.parse import urlsplit

import pytest
import redis as client

from harness import CONFIG, PATIENCE, SESSIONS, Daemon, wait_until
from redis_rig import ADMIN, Redis

CACHE_KEY, CACHE_VALUE = "alphaswarm:cache:prices", "marker-of-the-cache"
OTHER_KEY, OTHER_VALUE = "alphaswarm:sandbox:0f6a2c1e-5b7d-4c8a-9e3f-1a2b3c4d5e6f:k", "marker-of-another"
CELERY_KEY, CELERY_VALUE = "celery-task-meta-1", "marker-of-celery"
CLI = 'redis-cli --no-auth-warning -u "$SANDBOX_REDIS_URL"'


@pytest.fixture(scope="module")
def server():
    redis = Redis()
    for key, value in ((CACHE_KEY, CACHE_VALUE), (OTHER_KEY, OTHER_VALUE), (CELERY_KEY, CELERY_VALUE)):
        assert redis.ask("set", key, value) == "OK"
    yield redis
    redis.done()


@pytest.fixture(scope="module")
def with_redis(server):
    daemon = Daemon(CONFIG + server.config())
    yield daemon
    daemon.done()


@pytest.fixture
def alice(with_redis):
    return with_redis.client("alice")


@pytest.fixture
def session(alice):
    made = alice.create()
    yield made
    alice.remove(made)


def prefix_of(session):
    return f"alphaswarm:sandbox:{session}:"


def test_a_session_reads_and_writes_its_own_keys(alice, session, server):
    seen = alice.shell(session, f'echo "$SANDBOX_REDIS_PREFIX"; {CLI} set "${{SANDBOX_REDIS_PREFIX}}k" v1;'
                                f' {CLI} get "${{SANDBOX_REDIS_PREFIX}}k"')
    assert seen.text == f"{prefix_of(session)}\nOK\nv1\n", seen
    assert server.ask("get", prefix_of(session) + "k") == "v1"


@pytest.mark.parametrize("key", [CACHE_KEY, OTHER_KEY, CELERY_KEY, "k"])
def test_other_keys_are_refused_by_the_server(alice, session, key):
    seen = alice.shell(session, f"{CLI} get {key}; {CLI} set {key} x; {CLI} publish {key} x")
    assert seen.text.count("NOPERM") == 3 and "marker" not in seen.text, seen


def test_another_sessions_keys_and_password(alice, session):
    other = alice.create()
    try:
        url = alice.shell(other, 'printf %s "$SANDBOX_REDIS_URL"').text
        ours = alice.shell(session, 'printf %s "$SANDBOX_REDIS_URL"').text
        assert urlsplit(url).password != urlsplit(ours).password and len(urlsplit(ours).password) == 64
        assert "NOPERM" in alice.shell(session, f"{CLI} get {prefix_of(other)}k").text
        swapped = ours.replace(urlsplit(ours).username, urlsplit(url).username)
        assert "WRONGPASS" in alice.shell(session, f"redis-cli -u {shlex.quote(swapped)} ping 2>&1").text
        # Without a password there is no user.
        host = urlsplit(ours)
        assert "NOAUTH" in alice.shell(session, f"redis-cli -h {host.hostname} -p {host.port} get x").text
    finally:
        alice.remove(other)


def test_teardown_counts_keys_ends_the_user_and_its_connections(alice, server):
    made = alice.create()
    url = urlsplit(alice.shell(made, 'printf %s "$SANDBOX_REDIS_URL"').text)
    for i in range(2500):  # more than one answer of SCAN
        if i % 500 == 0:
            alice.shell(made, f"for i in $(seq {i} {i + 499}); do echo set ${{SANDBOX_REDIS_PREFIX}}$i v; done | {CLI}")
    assert url.username in server.users()
    outside = subprocess.Popen(server.command("blpop", prefix_of(made) + "none", "0", user=url.username,
                                              password=url.password), stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: f"user={url.username}" in server.ask("client", "list"), 10, "it waits there")
        answer = alice.delete(f"{SESSIONS}/{made}")
        assert answer.status == 200 and answer.json["redis_keys_dropped"] == 2500, answer
        assert url.username not in server.users()
        assert f"user={url.username}" not in server.ask("client", "list")
    finally:
        outside.kill()
        outside.wait()
    assert server.ask("keys", prefix_of(made) + "*") == ""
    assert server.ask("get", CACHE_KEY) == CACHE_VALUE and server.ask("get", OTHER_KEY) == OTHER_VALUE


def test_users_that_the_server_lost_and_keys_that_could_not_be_dropped(alice, server):
    """As after a restart of a server that keeps keys and no users."""
    kept, gone = alice.create(), alice.create()
    write = f'{CLI} set "${{SANDBOX_REDIS_PREFIX}}k" v1'
    assert [alice.shell(made, write).text for made in (kept, gone)] == ["OK\n"] * 2
    server.ask("acl", "setuser", ADMIN, "resetpass", ">another")
    assert alice.delete(f"{SESSIONS}/{gone}").json["redis_keys_dropped"] == 0
    assert server.ask("get", prefix_of(gone) + "k") == "v1"
    for user in server.users():
        server.ask("acl", "deluser", user)
    assert alice.shell(kept, write).text != "OK\n"
    server.ask("acl", "setuser", ADMIN, "resetpass", f">{server.admin_password}")
    wait_until(lambda: server.ask("get", prefix_of(gone) + "k") == "", 90, "the keys go")
    wait_until(lambda: alice.shell(kept, write).text == "OK\n", 90, "the user is back")
    alice.remove(kept)


def test_keys_that_a_dead_worker_owed_are_dropped_by_the_next():
    """The server comes back with keys and without users: only the row knows whose they were."""
    redis = Redis()
    daemon = Daemon(CONFIG + redis.config())
    daemon.deaths_expected = True
    try:
        alice = daemon.client("alice")
        gone = alice.create()
        assert alice.shell(gone, f'{CLI} set "${{SANDBOX_REDIS_PREFIX}}k" v1').text == "OK\n"
        assert redis.ask("set", CACHE_KEY, CACHE_VALUE) == "OK" and redis.ask("save") == "OK"
        redis.stop()
        assert alice.delete(f"{SESSIONS}/{gone}").json["redis_keys_dropped"] == 0
        os.kill(daemon.worker_pid("sandboxd-api"), signal.SIGKILL)
        redis.start()
        assert redis.ask("get", CACHE_KEY) == CACHE_VALUE and redis.users() == []
        wait_until(lambda: redis.ask("exists", prefix_of(gone) + "k") == "0", 90, "the keys go")
    finally:
        daemon.done()
        redis.done()


def test_the_server_is_reached_only_through_the_rule(alice, session):
    rules = alice.get(f"/v1/sandboxes/{session}/egress").json["rules"]
    assert [rule["label"] for rule in rules] == ["redis"], rules
    seen = alice.shell(session, "redis-cli -h 127.0.0.1 -p $(echo $SANDBOX_REDIS_URL | sed 's/.*:\\([0-9]*\\).0$/\\1/')"
                                " ping 2>&1")
    assert "refused" in seen.text, seen


def test_no_part_of_the_service_shows_credentials(with_redis, alice, session, server):
    password = urlsplit(alice.shell(session, 'printf %s "$SANDBOX_REDIS_URL"').text).password
    alice.remove(alice.create())
    log = with_redis.log.read_text()
    for secret in (password, server.admin_password):
        assert secret not in log
        assert secret not in alice.get(f"{SESSIONS}/{session}").body.decode()
    for secret in (server.admin_password.encode(), password.encode()):
        for path in (with_redis.state / "api").iterdir():
            assert path.is_dir() or secret not in path.read_bytes(), path


def test_dormant_sessions_keep_their_keys(server):
    daemon = Daemon(CONFIG + server.config())
    try:
        alice = daemon.client("alice")
        made = alice.create()
        before = alice.shell(made, f'{CLI} set "${{SANDBOX_REDIS_PREFIX}}k" v1 >/dev/null; echo "$SANDBOX_REDIS_URL"').text
        assert daemon.stop() == 0
        daemon.start()
        after = alice.shell(made, f'echo "$SANDBOX_REDIS_URL"; {CLI} get "${{SANDBOX_REDIS_PREFIX}}k"')
        assert after.text == f"{before}v1\n", after
        assert alice.delete(f"{SESSIONS}/{made}").json["redis_keys_dropped"] == 1
    finally:
        daemon.done()


@pytest.mark.parametrize("rig,says", [
    ({"default": "on"}, "clients that give no password"),
    ({"admin_may": "+scan"}, "lets us make none"),
    ({"password": "wrong"}, "configured password"),
    ({"stopped": True}, "does not answer"),
])
def test_without_rights_there_is_no_redis_and_the_session_says_so(rig, says):
    rig = dict(rig)
    stopped, password = rig.pop("stopped", False), rig.pop("password", None)
    redis = Redis(**rig)
    daemon = None
    try:
        if stopped:
            redis.stop()
        daemon = Daemon(CONFIG + redis.config(**({"password": password} if password else {})))
        alice = daemon.client("alice")
        made = alice.create()
        seen = alice.shell(made, f'echo "<$SANDBOX_REDIS_URL$SANDBOX_REDIS_PREFIX>"; redis-cli -h'
                                 f' host.sandbox.internal -p {redis.port} ping 2>&1')
        assert seen.text.startswith("<>\n") and "PONG" not in seen.text and "NOAUTH" not in seen.text, seen
        notes = [note for note in alice.get(f"{SESSIONS}/{made}").json["log_summary"]
                 if note["metadata"].get("code") == "redis_unavailable"]
        assert len(notes) == 1 and says in notes[0]["message"], notes
        answer = alice.delete(f"{SESSIONS}/{made}")
        assert answer.status == 200 and answer.json["redis_keys_dropped"] == 0
    finally:
        if daemon:
            daemon.done()
        redis.done()


class BeforeUsers(socketserver.BaseRequestHandler):
    """Redis 5, which Debian has no more, with `requirepass`: AUTH takes a password alone."""

    def handle(self):
        while words := self.request.recv(4096).split(b"\r\n")[2::2]:
            self.request.sendall(b"-ERR wrong number of arguments for 'auth' command\r\n"
                                 if words[0].upper() == b"AUTH" and len(words) != 2
                                 else b"-NOAUTH Authentication required.\r\n")


def test_a_server_from_before_users_is_told_from_a_wrong_password():
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), BeforeUsers) as server:
        threading.Thread(target=server.serve_forever).start()
        daemon = None
        try:
            daemon = Daemon(CONFIG + f"\n[redis]\nurl = redis://127.0.0.1:{server.server_address[1]}\n"
                                     f"user = {ADMIN}\npassword = word\n")
            alice = daemon.client("alice")
            made = alice.create()
            notes = wait_until(lambda: [note for note in alice.get(f"{SESSIONS}/{made}").json["log_summary"]
                                        if note["metadata"].get("code") == "redis_unavailable"], 10, "a note")
            assert "has no users" in notes[0]["message"], notes
            alice.remove(made)
        finally:
            if daemon:
                daemon.done()
            server.shutdown()


# What a command needs to be more than a wrong number of arguments.
ARGUMENTS = {
    "*": [[], [CACHE_KEY], [OTHER_KEY], [CELERY_KEY], [CACHE_KEY, "0"], ["0"], ["*"], [CACHE_KEY, CACHE_KEY],
          ["{own}", CACHE_KEY], [CACHE_KEY, "{own}"], ["1", CACHE_KEY], [CACHE_KEY, "0", "x"],
          ["{own}", "{own}", CACHE_KEY], ["{own}", "1", CACHE_KEY]],
    "scan": [["0"], ["0", "match", "*"]],
    "keys": [["*"]],
    "sort": [["{own}", "by", "nosort", "get", CACHE_KEY]],
    "sort_ro": [["{own}", "by", "nosort", "get", CACHE_KEY]],
    "eval": [["return redis.call('get', KEYS[1])", "1", CACHE_KEY], ["return redis.call('scan', 0)", "0"]],
    "eval_ro": [["return redis.call('get', KEYS[1])", "1", CACHE_KEY]],
    "copy": [[CACHE_KEY, "{own}"]],
    "rename": [[CACHE_KEY, "{own}"]],
    "bitop": [["or", "{own}", CACHE_KEY]],
    "mget": [["{own}", CACHE_KEY]],
    "lcs": [["{own}", CACHE_KEY]],
    "sunionstore": [["{own}", CACHE_KEY]],
    "zunionstore": [["{own}", "1", CACHE_KEY]],
    "pfmerge": [["{own}", CACHE_KEY]],
    "geosearchstore": [["{own}", CACHE_KEY, "frommember", "m", "byradius", "1", "m"]],
    "xread": [["streams", CACHE_KEY, "0"]],
    "pubsub": [["channels"], ["channels", "*"], ["numsub", CACHE_KEY], ["numpat"]],
    "object": [["encoding", CACHE_KEY], ["help"]],
    "memory": [["usage", CACHE_KEY], ["stats"]],
    "client": [["list"], ["info"], ["kill", "type", "normal"], ["tracking", "on", "bcast"]],
    "config": [["get", "*"]],
    "acl": [["list"], ["users"], ["whoami"], ["log"]],
    "info": [[], ["all"]],
    "debug": [["object", CACHE_KEY]],
    "command": [["getkeys", "get", CACHE_KEY], ["list"]],
    "select": [["1"]],
    "subscribe": [["marker-channel"]],
    "psubscribe": [["*"], ["__key*"]],
    "migrate": [["127.0.0.1", "1", CACHE_KEY, "0", "10"]],
    "object|freq": [[CACHE_KEY]],
}
NAMES_NO_KEY = {"ping", "echo", "multi", "discard", "unwatch", "unsubscribe", "punsubscribe",
                "sunsubscribe", "hello", "quit", "reset", "xgroup|help", "xinfo|help"}


class Talk:
    """A client of the server, as bytes: what it answers is looked at as it comes."""

    def __init__(self, port, user, password):
        self.socket = socket.create_connection(("127.0.0.1", port), 30 * PATIENCE)
        assert self.say("auth", user, password) == b"+OK\r\n"

    def say(self, *words):
        """The answer, and what comes with it: an unknown command behind it says where it ends."""
        end = b"end-of-this"
        data = b"*%d\r\n" % len(words)
        for word in words:
            data += b"$%d\r\n%s\r\n" % (len(word.encode()), word.encode())
        self.socket.sendall(data + b"*1\r\n$%d\r\n%s\r\n" % (len(end), end))
        got = b""
        while end not in got:
            more = self.socket.recv(1 << 20)
            if not more:
                break
            got += more
        return re.split(b"-ERR unknown command ['`]" + end, got)[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()


def commands_of(server):
    names = server.ask("command", "list").splitlines()
    if len(names) > 1:
        return names
    # Before release 7.
    with client.Redis(port=server.port, username="test", password=server.password) as talk:
        return sorted(talk.command())


def test_every_command_of_the_server_shows_nothing_of_others(alice, session, server):
    names = commands_of(server)
    assert len(names) > 190
    url = urlsplit(alice.shell(session, 'printf %s "$SANDBOX_REDIS_URL"').text)
    own = prefix_of(session) + "own"
    server.ask("set", own, "1")
    before = sorted(server.ask("keys", "*").splitlines())
    asked, answered = set(), {}
    for name in names:
        for arguments in ARGUMENTS["*"] + ARGUMENTS.get(name, []):
            words = [word.format(own=own) for word in arguments]
            # Each on a connection of its own: some change what follows.
            with Talk(server.port, url.username, url.password) as talk:
                text = talk.say(*name.split("|"), *words).decode(errors="replace")
            asked.add(name)
            for marker in (CACHE_VALUE, OTHER_VALUE, CELERY_VALUE):
                assert marker not in text, (name, words, text)
            # A key that we did not name ourselves shows somebody's.
            for key in (CACHE_KEY, OTHER_KEY, CELERY_KEY, "sandboxd-admin"):
                assert key in words or key not in text, (name, words, text)
            if own not in words and not text.startswith("-"):
                answered.setdefault(name, []).append((words, text))
    assert asked == set(names)
    # What answers at all is what names no key or channel.
    assert set(answered) <= NAMES_NO_KEY, {name: answered[name] for name in set(answered) - NAMES_NO_KEY}
    assert sorted(set(server.ask("keys", "*").splitlines()) | {own}) == before
    # The control: the same words show all of it to a user who may.
    with Talk(server.port, "test", server.password) as talk:
        assert CACHE_KEY.encode() in talk.say("keys", "*")
        assert CACHE_VALUE.encode() in talk.say("mget", own, CACHE_KEY)
        assert OTHER_KEY.encode() in talk.say("scan", "0")
    assert server.ask("get", CACHE_KEY) == CACHE_VALUE


def test_users_of_sessions_that_exist_nowhere_are_dropped(server):
    gone = "0f6a2c1e-5b7d-4c8a-9e3f-1a2b3c4d5e77"
    daemon = Daemon(CONFIG + server.config())
    try:
        assert daemon.stop() == 0
        instance = (daemon.state / "instance").read_text().strip()
        for of in (instance, "0badcafe"):
            server.ask("acl", "setuser", f"alphaswarm-sandbox-{of}-{gone}", "on", ">x")
        server.ask("set", prefix_of(gone) + "k", "v")
        daemon.start()
        made = daemon.client("alice").create()
        wait_until(lambda: not any(instance + "-" + gone in user for user in server.users()), 20,
                   "the user is dropped")
        assert server.ask("exists", prefix_of(gone) + "k") == "0"
        assert any(made in user for user in server.users())
        # Another service's is its own affair.
        assert f"alphaswarm-sandbox-0badcafe-{gone}" in server.users()
    finally:
        daemon.done()


class SlowScan:
    """A way to the server on which every SCAN takes time, as in a database of millions of keys."""

    def __init__(self, server, seconds):
        self.target, self.seconds = ("127.0.0.1", server.port), seconds
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            other = socket.create_connection(self.target)
            threading.Thread(target=self.copy, args=(client, other, True), daemon=True).start()
            threading.Thread(target=self.copy, args=(other, client, False), daemon=True).start()

    def copy(self, source, target, is_slow):
        try:
            while data := source.recv(65536):
                if is_slow and b"SCAN" in data:
                    time.sleep(self.seconds)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def done(self):
        self.listener.close()


def test_slow_drops_do_not_keep_a_new_session_from_its_user(server):
    assert server.ask("eval", "for i = 1, 6000 do redis.call('set', 'filler:' .. i, '') end return 1", "0") == "1"
    slow = SlowScan(server, 1.5)
    daemon = Daemon(CONFIG + server.config(url=f"redis://127.0.0.1:{slow.port}"))
    removers = []
    try:
        alice = daemon.client("alice")
        for made in [alice.create() for _ in range(9)]:
            removers.append(threading.Thread(target=alice.remove, args=(made,)))
            removers[-1].start()
        time.sleep(1)  # all drops have begun, and each takes more than a session waits for its user
        made = alice.create()
        assert alice.shell(made, 'echo "${SANDBOX_REDIS_URL:-none}"').text != "none\n"
    finally:
        for remover in removers:
            remover.join()
        daemon.done()
        slow.done()
        server.ask("eval", "for i = 1, 6000 do redis.call('del', 'filler:' .. i) end return 1", "0")
