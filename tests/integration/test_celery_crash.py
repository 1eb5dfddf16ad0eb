"""Crashes on both sides of the broker: nothing is run twice at once, nothing is forgotten."""
import json
import os
import signal
import time
import uuid

import pytest

from celery_rig import TASK, WAIT, Broker, connected, idle, make_app, make_daemon
from harness import SESSIONS, SLOW, wait_until
from test_jobs import GO_ON, state, stopped_loader, terminal
from test_resume import kill_worker


@pytest.fixture
def broker():
    made = Broker()
    yield made
    made.done()


@pytest.fixture
def daemon(broker):
    made = make_daemon(broker, visibility_timeout="1h")
    made.deaths_expected = True
    connected(made)
    yield made
    made.done()


@pytest.fixture
def app(broker):
    return make_app(broker)


@pytest.fixture
def alice(daemon):
    return daemon.client("alice")


def send(app, session, **more):
    return app.send_task(TASK, (session,), **more)


def one_run(caller, task):
    frames = caller.frames(task.id)
    assert [f["stage"] for f in frames].count("start") == 1
    return terminal(frames)


def test_worker_killed_in_mid_run(app, daemon, alice, broker):
    """Its successor goes on with the run, has what was waiting, and acknowledges all."""
    session = alice.create()
    running = stopped_loader(alice, session, lambda: send(app, session))
    waiting = [send(app, session) for _ in range(3)]
    wait_until(lambda: broker.ask("hlen", "unacked") == "4", 10, "taken")
    for _ in range(3):
        kill_worker(daemon)
        connected(daemon)
        assert state(alice, running.id) == "running"
    assert broker.ask("hlen", "unacked") == "4"
    alice.shell(session, GO_ON)
    for task in (running, *waiting):
        assert task.get(timeout=WAIT)["ok"]
        assert one_run(alice, task)["stage"] == "done"
    idle(broker)


def test_redelivered_while_it_runs(app, daemon, alice, broker):
    """As a broker does whose worker was silent for too long."""
    session = alice.create()
    task = stopped_loader(alice, session, lambda: send(app, session))
    entry = json.loads(broker.client().hvals("unacked")[0])[0]
    entry["headers"]["redelivered"] = True
    broker.client().rpush("sandbox", json.dumps(entry))
    entry["properties"]["delivery_tag"] = str(uuid.uuid4())
    broker.client().rpush("sandbox", json.dumps(entry))
    kill_worker(daemon)
    connected(daemon)
    wait_until(lambda: broker.ask("llen", "sandbox") == "0", 10, "taken")
    time.sleep(1)
    assert state(alice, task.id) == "running"
    alice.shell(session, GO_ON)
    assert task.get(timeout=WAIT)["ok"]
    one_run(alice, task)
    idle(broker)


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGKILL])
def test_redis_restarted_in_mid_run(app, daemon, alice, broker, sig):
    session = alice.create()
    task = stopped_loader(alice, session, lambda: send(app, session))
    broker.stop(sig)
    wait_until(lambda: daemon.readiness() == 503, 15, "noticed")
    assert "celery" in daemon.root.get("/readyz").json["parts"]
    alice.shell(session, GO_ON)
    wait_until(lambda: state(alice, task.id) == "done", 15, "done without it")
    broker.start()
    connected(daemon)
    # A client of its own: the other one's connection is gone.
    again = make_app(broker)
    assert again.AsyncResult(task.id).get(timeout=WAIT)["ok"]
    one_run(alice, task)
    for _ in range(3):
        assert send(again, session).get(timeout=WAIT)["ok"]
    wait_until(lambda: again.control.ping(timeout=2), 20, "remote control")
    idle(broker)


def test_redis_flushed(app, daemon, alice, broker):
    session = alice.create()
    task = stopped_loader(alice, session, lambda: send(app, session))
    waiting = send(app, session)
    wait_until(lambda: broker.ask("hlen", "unacked") == "2", 10, "taken")
    assert broker.ask("flushall") == "OK"
    alice.shell(session, GO_ON)
    assert task.get(timeout=WAIT)["ok"] and waiting.get(timeout=WAIT)["ok"]
    assert send(app, session).get(timeout=WAIT)["ok"]
    idle(broker)


def test_connections_killed_at_random(app, daemon, alice, broker):
    session = alice.create()
    sent = []
    for i in range(12):
        sent.append(send(app, session))
        if i % 3 == 0:
            broker.ask("client", "kill", "type", "pubsub")
            broker.ask("client", "kill", "type", "normal", "skipme", "yes")
    tasks = [task.id for task in sent]
    wait_until(lambda: all(alice.get(f"/dagster/sandbox/tasks/{t}").status == 200 and state(alice, t) == "done"
                           for t in tasks), 30, "all ran")
    assert all(make_app(broker).AsyncResult(t).get(timeout=WAIT)["ok"] for t in tasks)
    idle(broker, 20)


def test_restart_of_the_worker_puts_back_what_has_not_begun(app, daemon, alice, broker):
    """And a session without a tree gets one for the task."""
    session = alice.create()
    alice.write(session, "demo", "type: a.B\n")
    later = send(app, session, countdown=25 * SLOW)
    wait_until(lambda: broker.ask("hlen", "unacked") == "1", 10, "taken")
    daemon.stop()
    told = {name: broker.ask(*name.split()) for name in ("hlen unacked", "llen sandbox")}
    assert told == {"hlen unacked": "0", "llen sandbox": "1"}, told
    assert json.loads(broker.ask("lindex", "sandbox", "0"))["headers"]["redelivered"] is True
    daemon.start()
    assert daemon.client("alice").get(f"{SESSIONS}/{session}").json["sandbox"]["tree"] in ("dormant", "rebuilding")
    result = f"celery-task-meta-{later.id}"
    wait_until(lambda: "1" in (broker.ask("hlen", "unacked"), broker.ask("exists", result)), 20, "it is taken again")
    wait_until(lambda: broker.ask("exists", result) == "1", 60, "it is due, and has run")
    assert later.get(timeout=WAIT)["asset_count"] == 1
    idle(broker)


def test_service_stopped_in_mid_run(app, daemon, alice, broker):
    session = alice.create()
    task = stopped_loader(alice, session, lambda: send(app, session))
    daemon.stop()
    with pytest.raises(Exception) as info:
        task.get(timeout=WAIT)
    assert type(info.value).__name__ == "SandboxTaskError"
    idle(broker)
    daemon.start()
    assert terminal(daemon.client("alice").frames(task.id))["code"] == "host_stopped"


def test_all_killed_in_mid_run(app, daemon, alice, broker):
    session = alice.create()
    task = stopped_loader(alice, session, lambda: send(app, session))
    for pid in daemon.shim_pids():
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(Exception) as info:
        task.get(timeout=WAIT)
    assert type(info.value).__name__ == "SandboxTaskError"
    one_run(alice, task)
    idle(broker)
