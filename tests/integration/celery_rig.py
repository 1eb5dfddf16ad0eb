"""A Redis server of the test's own without users, a service on its queue, and a Celery app that knows
nothing of it."""
import contextlib
import os
import signal
import subprocess
import sys
import tempfile

import pytest
import redis
from celery import Celery

from harness import CONFIG, PATIENCE, SLOW, Daemon, free_port, wait_until

TASK = "execute_sandbox_session"
PLATFORM_TASK = "aqp.tasks.dagster_sandbox_tasks.execute_sandbox_session"
WAIT = 20 * PATIENCE
# Seconds after which a worker's message is another's, who says nothing: no machine may stand still for so long.
VISIBILITY = 3 * SLOW


class Broker:
    def __init__(self):
        self.port = free_port()
        self.home = tempfile.TemporaryDirectory(prefix="sbx-celery-")
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.process = None
        self.start()

    def start(self):
        # The server is in the package of the client; it goes by the name under which it is called.
        self.process = subprocess.Popen(
            ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self.home.name,
             "--save", "", "--appendonly", "yes"],
            executable="/usr/bin/redis-check-rdb", stdout=subprocess.DEVNULL)
        wait_until(lambda: self.ask("ping") == "PONG", 10, "redis answers")

    def ask(self, *words):
        """What it answers; "" where it does not."""
        try:
            return subprocess.run(["redis-cli", "-p", str(self.port), *words], capture_output=True, text=True,
                                  check=False, timeout=10 * PATIENCE).stdout.strip()
        except subprocess.TimeoutExpired:
            return ""

    def client(self):
        return redis.Redis(port=self.port, socket_timeout=WAIT, socket_connect_timeout=WAIT)

    def stop(self, sig=signal.SIGTERM):
        if self.process:
            self.process.send_signal(sig)
            self.process.wait(10 * PATIENCE)
        self.process = None

    def done(self):
        self.stop()
        self.home.cleanup()


def make_app(broker, timeout=None):
    app = Celery("platform", broker=broker.url, backend=broker.url)
    # Nothing waits for ever, whatever has become of the server.
    bounds = {"socket_timeout": WAIT, "socket_connect_timeout": WAIT}
    app.conf.update(task_serializer="json", accept_content=["json"], task_acks_late=True,
                    redis_socket_timeout=WAIT, redis_socket_connect_timeout=WAIT, broker_transport_options=bounds,
                    task_default_queue="default", task_routes={TASK: {"queue": "sandbox"},
                                                               PLATFORM_TASK: {"queue": "sandbox"}},
                    # A result that is forgotten after its server must not be asked for again and again.
                    result_backend_transport_options={"retry_policy": {
                        "max_retries": 1, "interval_start": 0, "interval_step": 0, "interval_max": 0}})
    if timeout:
        app.conf.broker_transport_options = {**bounds, "visibility_timeout": timeout}
    return app


def make_daemon(broker, **more):
    values = {"broker_url": broker.url, "visibility_timeout": f"{VISIBILITY}s", "task_name": f"{TASK} {PLATFORM_TASK}", **more}
    return Daemon(CONFIG + "\n[celery]\n" + "".join(f"{k} = {v}\n" for k, v in values.items()))


def node_of(app):
    """Whose remote control answers; there is one."""
    answers = wait_until(lambda: app.control.ping(timeout=2), 20, "remote control")
    assert len(answers) == 1, answers
    return next(iter(answers[0]))


def asked(app, command, *arguments, **more):
    """A word to the remote control that has been taken when this is over."""
    node = node_of(app)
    answers = getattr(app.control, command)(*arguments, destination=[node], reply=True, timeout=WAIT, **more)
    assert [list(answer) for answer in answers] == [[node]], answers


def stop_taking(app, broker):
    """Nothing is taken from the queue any more: what is asked for already may still bring one message."""
    asked(app, "cancel_consumer", "sandbox")
    wait_until(lambda: broker.client().info("clients")["blocked_clients"] == 0, 10, "nobody waits for a message")


def connected(daemon):
    """On the queue, and on the remote control."""
    wait_until(lambda: daemon.readiness() == 200, 15, "ready")


@contextlib.contextmanager
def serving(broker, **more):
    daemon = make_daemon(broker, **more)
    connected(daemon)
    yield daemon
    daemon.done()


@pytest.fixture(name="broker", scope="module")
def fixture_broker():
    made = Broker()
    yield made
    made.done()


class Worker:
    """A real worker of the platform, with its own task on the queue `default`."""

    SOURCE = """
import sys, time
from celery import Celery
app = Celery("platform", broker=sys.argv[1], backend=sys.argv[1])
app.conf.update(task_acks_late=True, task_default_queue="default", worker_hijack_root_logger=False,
                broker_transport_options={"visibility_timeout": int(sys.argv[2])})
@app.task(name="add")
def add(a, b):
    return a + b
app.worker_main(["worker", "-Q", "default", "-P", "solo", "-n", "real@here", "-l", "WARNING"])
"""

    def __init__(self, broker, python=sys.executable):
        self.log = tempfile.NamedTemporaryFile(prefix="sbx-celery-log-")
        self.process = subprocess.Popen([python, "-c", self.SOURCE, broker.url, str(VISIBILITY)], stdout=self.log,
                                        stderr=self.log, cwd="/", env={**os.environ, "C_FORCE_ROOT": "1"})

    def text(self):
        with open(self.log.name, encoding="utf-8", errors="replace") as log:
            return log.read()

    def done(self):
        self.process.terminate()
        try:
            self.process.wait(15 * PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


def idle(broker, seconds=10):
    """Nothing waits and nothing is unacknowledged."""
    wait_until(lambda: broker.ask("hlen", "unacked") == "0" and broker.ask("zcard", "unacked_index") == "0"
               and broker.ask("llen", "sandbox") == "0", seconds, "all acknowledged")
