"""`execution = celery`: an execute over HTTP goes into the queue; and what the configuration refuses."""
import json
import subprocess

import pytest

from celery_rig import (TASK, WAIT, asked, connected, fixture_broker, idle, make_app, make_daemon,  # noqa: F401 (fixtures)
                        serving, stop_taking)
from harness import BIN, CONFIG, SESSIONS, wait_until
from test_jobs import state, terminal


@pytest.fixture(scope="module")
def daemon(broker):
    with serving(broker, execution="celery") as made:
        yield made


@pytest.fixture
def alice(daemon):
    return daemon.client("alice")


def test_execute_goes_through_the_queue(daemon, alice, broker):
    app = make_app(broker)
    session = alice.create()
    alice.write(session, "demo", "type: a.B\n")
    stop_taking(app, broker)
    answer = alice.post(f"{SESSIONS}/{session}/execute")
    assert answer.status == 200 and answer.json["status"] == "queued"
    task = answer.json["task_id"]
    assert answer.json["stream_url"] == f"/chat/stream/{task}"
    assert alice.get(f"/dagster/sandbox/tasks/{task}").status == 404  # nobody has taken it
    message = json.loads(broker.ask("lindex", "sandbox", "0"))
    assert message["headers"]["task"] == TASK and message["headers"]["id"] == task
    assert message["properties"]["delivery_info"] == {"exchange": "", "routing_key": "sandbox"}
    asked(app, "add_consumer", "sandbox")
    assert app.AsyncResult(task).get(timeout=WAIT)["asset_count"] == 1
    assert terminal(alice.frames(task))["stage"] == "done"
    idle(broker)


def test_a_real_worker_understands_our_message(daemon, alice, broker):
    """The whole of it: a real worker dies of a message without delivery_info."""
    app = make_app(broker)
    session = alice.create()
    stop_taking(app, broker)
    task = alice.post(f"{SESSIONS}/{session}/execute").json["task_id"]
    seen = []
    with app.connection_for_read() as connection:
        consumer = app.amqp.TaskConsumer(connection.channel(), queues=[app.amqp.queues.new_missing("sandbox")])
        from celery.worker.request import Request
        from celery.app.task import Task

        class Standin(Task):
            name = TASK

        def on_message(message):
            request = Request(message, app=app, task=app.register_task(Standin()), decoded=False)
            seen.append((request.id, request.args, request.delivery_info["routing_key"], request.reply_to is not None))
            message.ack()

        consumer.callbacks = None
        consumer.on_message = on_message
        with consumer:
            wait_until(lambda: connection.drain_events(timeout=WAIT) or seen, 10, "taken")
    assert [(s[0], list(s[1]), s[2], s[3]) for s in seen] == [(task, [session], "sandbox", True)]
    asked(app, "add_consumer", "sandbox")
    idle(broker)


def test_foreign_and_missing_sessions_are_not_queued(daemon, alice, broker):
    session = alice.create()
    assert daemon.client("bob").post(f"{SESSIONS}/{session}/execute").status == 404
    assert broker.ask("llen", "sandbox") == "0"


def test_execute_without_the_broker_is_503_and_leaves_nothing(daemon, alice, broker):
    session = alice.create()
    before = alice.get(f"{SESSIONS}/{session}").json
    broker.stop()
    wait_until(lambda: daemon.readiness() == 503, 15, "noticed")
    answer = alice.post(f"{SESSIONS}/{session}/execute")
    assert answer.status == 503 and answer.json == {"detail": "the task queue cannot be reached"}
    assert alice.get(f"{SESSIONS}/{session}").json == before
    assert alice.get(f"{SESSIONS}/{session}/tasks").json == []
    broker.start()
    connected(daemon)
    task = alice.execute(session)
    wait_until(lambda: alice.get(f"/dagster/sandbox/tasks/{task}").status == 200, 10, "taken")
    wait_until(lambda: state(alice, task) == "done", 10, "done")


@pytest.mark.parametrize("line,text", [
    ("queue = default", "!default"),
    ("queue = celery", "!default"),
    ("execution = remote", "local or celery"),
    ("broker_url = amqp://x", "redis://"),
    ("prefetch = 0", "prefetch"),
    ("task_name = a;b", "task_name"),
])
def test_configuration_refuses(line, text, tmp_path):
    file = tmp_path / "sandboxd.conf"
    file.write_text(CONFIG + f"\n[celery]\n{line}\n")
    file.chmod(0o600)
    done = subprocess.run([str(BIN / "sandboxctl"), "config", "check", str(file)], capture_output=True, text=True,
                          check=False)
    assert done.returncode != 0 and text in done.stdout + done.stderr, done


def test_the_broker_s_password_is_not_shown(broker):
    made = make_daemon(broker, result_url=f"redis://:s3cret-word@127.0.0.1:{broker.port}/1")
    try:
        done = subprocess.run([str(BIN / "sandboxctl"), "--socket", str(made.operator), "config", "show"],
                              capture_output=True, text=True, check=False)
        assert "result_url" in done.stdout and "s3cret" not in done.stdout + done.stderr, done
        wait_until(lambda: made.root.get("/readyz").status == 503, 10, "the password is refused")
        doctor = subprocess.run([str(BIN / "sandboxctl"), "--socket", str(made.operator), "doctor", "-o", "json"],
                                capture_output=True, text=True, check=False)
        row = next(row for row in json.loads(doctor.stdout) if row["name"] == "celery")
        assert row["state"] == "degraded" and "s3cret" not in doctor.stdout, row
        assert b"s3cret" not in made.root.get("/readyz").body + made.root.get("/metrics").body
        assert "s3cret" not in made.log.read_text()
    finally:
        made.done()
