"""Frames of tasks on the platform's Redis server, for a relay that knows nothing of ours."""
import json
import os
import signal
import threading
import time

import pytest
import redis

from harness import CONFIG, PATIENCE, Daemon, wait_until
from redis_rig import PLATFORM, Redis
from test_jobs import stopped_task

BODY = "type: demo.Thing\n"


@pytest.fixture
def server():
    started = Redis()
    yield started
    started.done()


@pytest.fixture
def daemon(server):
    started = Daemon(CONFIG + server.platform(frames_hold="60s") + "[owner]\njobs = 100\nchanges_per_second = 0\n")
    wait_until(lambda: is_up(started), 10, "connected")
    yield started
    started.done()


def metric(daemon, name):
    text = daemon.client("alice").get("/metrics").body.decode()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith(f"sandboxd_{name} "))


def is_up(daemon):
    return 'sandboxd_ready{part="redis"} 1' in daemon.client("alice").get("/metrics").body.decode()


class Relay(threading.Thread):
    """As the platform's: subscribes to one task, passes frames on, stops at the first terminal one."""

    def __init__(self, server, task, delay=0.0):
        super().__init__(daemon=True)
        self.server, self.task, self.delay = server, task, delay
        self.frames, self.texts = [], []
        self.start()

    def run(self):
        time.sleep(self.delay)
        while True:
            client = redis.Redis(port=self.server.port, username="test", password=self.server.password)
            try:
                with client.pubsub(ignore_subscribe_messages=True) as listener:
                    listener.subscribe(f"alphaswarm:task:{self.task}")
                    for message in listener.listen():
                        self.texts.append(message["data"])
                        self.frames.append(json.loads(message["data"]))
                        if self.frames[-1]["stage"] in ("done", "error"):
                            return
            except redis.exceptions.ConnectionError:
                time.sleep(0.02)
            finally:
                client.close()

    def all(self, timeout=60 * PATIENCE):
        self.join(timeout)
        assert not self.is_alive(), self.frames
        return self.frames


def three(caller):
    session = caller.create()
    for name in ("one", "two", "three"):
        assert caller.write(session, name, BODY).status == 200
    return session


def test_a_relay_that_comes_five_seconds_late_misses_nothing(server, daemon):
    alice = daemon.client("alice")
    session = three(alice)
    task = alice.execute(session)
    relay = Relay(server, task, delay=5)
    own = alice.frames(task)
    assert own[-1]["stage"] == "done" and not relay.frames  # our own stream does not wait
    frames = relay.all()
    assert frames == own and [f["stage"] for f in frames] == ["start"] + ["materialize"] * 3 + ["done"]
    for text in relay.texts:
        assert text.isascii() and isinstance(json.loads(text)["timestamp"], float)
    wait_until(lambda: metric(daemon, "frames_published_total") == len(own), 10, "each is counted")
    assert metric(daemon, "frames_unheard_total") == 0
    alice.remove(session)


def test_many_tasks_at_once_each_in_order(server, daemon):
    alice = daemon.client("alice")
    session = three(alice)
    tasks = [alice.execute(session) for _ in range(30)]
    relays = [Relay(server, task, delay=(i % 5) / 4) for i, task in enumerate(tasks)]
    for task, relay in zip(tasks, relays):
        frames = relay.all(60)
        assert [f["seq"] for f in frames] == list(range(1, len(frames) + 1))
        assert frames == alice.frames(task)
    alice.remove(session)


def test_nobody_comes(server):
    daemon = Daemon(CONFIG + server.platform(frames_hold="1s"))
    try:
        alice = daemon.client("alice")
        wait_until(lambda: is_up(daemon), 10, "connected")
        session = three(alice)
        n = len(alice.frames(alice.execute(session)))
        wait_until(lambda: metric(daemon, "frames_unheard_total") == n, 10, "published all the same")
    finally:
        daemon.done()


def test_the_server_goes_and_comes_back(server, daemon):
    alice = daemon.client("alice")
    session = three(alice)
    task = alice.execute(session)
    relay = Relay(server, task)
    relay.all()
    # Where the machine stands still it may stay away for so long that frames are given up.
    for _ in range(5):
        before = metric(daemon, "frames_unpublished_total")
        server.stop()
        wait_until(lambda: not is_up(daemon), 10, "noticed")
        assert alice.get("/readyz").json["reason"] == "redis"
        # Neither a job nor its stream needs it.
        task = alice.execute(session)
        own = alice.frames(task)
        assert own[-1]["stage"] == "done"
        server.start()
        wait_until(lambda: is_up(daemon), 20, "connected again")
        if metric(daemon, "frames_unpublished_total") == before:
            break
    assert Relay(server, task, delay=1).all() == own
    wait_until(lambda: is_up(daemon) and alice.get("/readyz").status == 200, 10, "ready again")
    alice.remove(session)


def test_a_server_that_stays_away_is_not_waited_for(server, daemon):
    alice = daemon.client("alice")
    session = three(alice)
    server.stop()
    n = len(alice.frames(alice.execute(session)))
    wait_until(lambda: metric(daemon, "frames_unpublished_total") == n, 30, "given up")
    alice.remove(session)


def test_a_slow_server_slows_nobody(server, daemon):
    alice = daemon.client("alice")
    session = three(alice)
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        task = alice.execute(session)
        own = alice.frames(task)
        assert own[-1]["stage"] == "done"
        wait_until(lambda: not is_up(daemon), 60, "its silence is noticed")
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
    # It may have taken a frame that it could not say so: then that one comes twice.
    frames = Relay(server, task).all()
    assert frames[-1] == own[-1] and [f for f in own if f in frames] == own
    alice.remove(session)


def test_a_server_that_refuses_is_said_once(server):
    refusing = Redis(platform_may="+select")
    daemon = Daemon(CONFIG + refusing.platform(frames_hold="0s"))
    try:
        wait_until(lambda: is_up(daemon), 10, "connected")
        alice = daemon.client("alice")
        session = three(alice)
        n = sum(len(alice.frames(alice.execute(session))) for _ in range(2))
        wait_until(lambda: metric(daemon, "frames_unpublished_total") == n, 10, "counted")
        wait_until(lambda: "frames are not published" in daemon.log.read_text(), 10, "the log says so")
        assert daemon.log.read_text().count("frames are not published") == 1
    finally:
        daemon.done()
        refusing.done()


def test_a_wrong_password_is_no_connection_and_shown_nowhere(server):
    daemon = Daemon(CONFIG + server.platform(redis_url=f"redis://{PLATFORM}:wrongpw77@127.0.0.1:{server.port}"))
    try:
        alice = daemon.client("alice")
        wait_until(lambda: alice.get("/readyz").json.get("text") == "the server refuses the login", 10, "refused")
        assert "wrongpw77" not in daemon.log.read_text()
    finally:
        daemon.done()


def test_the_end_of_the_service_is_published_too(server, daemon):
    """Of a run that goes on until then, to a relay that the server knows."""
    alice = daemon.client("alice")
    session = alice.create()
    task = stopped_task(alice, session)
    relay = Relay(server, task)
    wait_until(lambda: server.ask("pubsub", "numsub", f"alphaswarm:task:{task}").split()[-1:] == ["1"], 10, "it listens")
    assert daemon.stop() == 0
    assert (relay.all()[-1]["stage"], relay.all()[-1]["code"]) == ("error", "host_stopped")
