"""A Redis server of the test's own without users, a service on its queue, and a Celery app that knows
nothing of it."""
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile

import pytest
import redis
from celery import Celery

from harness import CONFIG, Daemon, wait_until

TASK = "execute_sandbox_session"
PLATFORM_TASK = "aqp.tasks.dagster_sandbox_tasks.execute_sandbox_session"
WAIT = 20


class Broker:
    def __init__(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
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
        return subprocess.run(["redis-cli", "-p", str(self.port), *words], capture_output=True, text=True,
                              check=False).stdout.strip()

    def client(self):
        return redis.Redis(port=self.port)

    def stop(self, sig=signal.SIGTERM):
        if self.process:
            self.process.send_signal(sig)
            self.process.wait(10)
        self.process = None

    def done(self):
        self.stop()
        self.home.cleanup()


def make_app(broker, timeout=None):
    app = Celery("platform", broker=broker.url, backend=broker.url)
    app.conf.update(task_serializer="json", accept_content=["json"], task_acks_late=True,
                    task_default_queue="default", task_routes={TASK: {"queue": "sandbox"},
                                                               PLATFORM_TASK: {"queue": "sandbox"}},
                    # A result that is forgotten after its server must not be asked for again and again.
                    result_backend_transport_options={"retry_policy": {
                        "max_retries": 1, "interval_start": 0, "interval_step": 0, "interval_max": 0}})
    if timeout:
        app.conf.broker_transport_options = {"visibility_timeout": timeout}
    return app


def make_daemon(broker, **more):
    values = {"broker_url": broker.url, "visibility_timeout": "2s", "task_name": f"{TASK} {PLATFORM_TASK}", **more}
    return Daemon(CONFIG + "\n[celery]\n" + "".join(f"{k} = {v}\n" for k, v in values.items()))


def connected(daemon):
    """On the queue, and on the remote control."""
    wait_until(lambda: daemon.root.get("/readyz").status == 200, 15, "ready")


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
                broker_transport_options={"visibility_timeout": 2})
@app.task(name="add")
def add(a, b):
    return a + b
app.worker_main(["worker", "-Q", "default", "-P", "solo", "-n", "real@here", "-l", "WARNING"])
"""

    def __init__(self, broker, python=sys.executable):
        self.log = tempfile.NamedTemporaryFile(prefix="sbx-celery-log-")
        self.process = subprocess.Popen([python, "-c", self.SOURCE, broker.url], stdout=self.log, stderr=self.log,
                                        cwd="/", env={**os.environ, "C_FORCE_ROOT": "1"})

    def text(self):
        with open(self.log.name, encoding="utf-8", errors="replace") as log:
            return log.read()

    def done(self):
        self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


def idle(broker, seconds=10):
    """Nothing waits and nothing is unacknowledged."""
    wait_until(lambda: broker.ask("hlen", "unacked") == "0" and broker.ask("zcard", "unacked_index") == "0"
               and broker.ask("llen", "sandbox") == "0", seconds, "all acknowledged")
