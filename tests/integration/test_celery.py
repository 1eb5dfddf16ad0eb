"""Tasks of an unmodified Celery client run here, and a real worker beside us is not disturbed."""
import base64
import json
import os
import subprocess
import time
import uuid

import pytest
from celery.exceptions import TaskRevokedError, TimeoutError as CeleryTimeout

from celery_rig import (PLATFORM_TASK, TASK, VISIBILITY, WAIT, Broker, Worker, asked, connected,  # noqa: F401 (fixtures)
                        fixture_broker, idle, make_app, make_daemon, node_of, serving, stop_taking)
from harness import ABSENT_ID, ASAN, PATIENCE, ROOT, SESSIONS, SLOW, descendants, name_of, status_of, wait_until
from test_jobs import GO_ON, state, stopped_loader, terminal


@pytest.fixture(scope="module")
def daemon(broker):
    with serving(broker) as made:
        yield made


@pytest.fixture(scope="module")
def app(broker):
    return make_app(broker)


@pytest.fixture
def alice(daemon):
    return daemon.client("alice")


@pytest.fixture
def session(alice):
    made = alice.create()
    assert alice.write(made, "demo", "type: a.B\n").status == 200
    yield made
    alice.remove(made)


def send(app, session, name=TASK, **more):
    return app.send_task(name, (session,), **more)


def failure(result):
    with pytest.raises(Exception) as info:
        result.get(timeout=WAIT)
    return type(info.value).__name__, str(info.value)


@pytest.mark.parametrize("name", [TASK, PLATFORM_TASK])
def test_delay_get_and_frames(app, alice, session, broker, name):
    result = send(app, session, name)
    value = result.get(timeout=WAIT)
    assert value["ok"] is True and value["session_id"] == session and value["asset_count"] == 1
    assert result.state == "SUCCESS"
    frames = alice.frames(result.id)
    assert [f["stage"] for f in frames] == ["start", "materialize", "done"]
    assert frames[-1]["result"] == value and {f["task_id"] for f in frames} == {result.id}
    assert alice.get(f"{SESSIONS}/{session}").json["last_run_id"] == result.id
    assert alice.get(f"/chat/stream/{result.id}", headers={"Accept": "application/x-ndjson"}).status == 200
    idle(broker)
    late = app.AsyncResult(result.id)
    assert late.get(timeout=WAIT) == value


def test_keyword_argument(app, session):
    assert app.send_task(TASK, kwargs={"session_id": session}).get(timeout=WAIT)["ok"] is True


def test_missing_and_closed_sessions_answer_as_the_platform_does(app, alice, broker):
    closed = alice.create()
    alice.remove(closed)
    for gone in (ABSENT_ID, closed, "no id", "../x"):
        assert send(app, gone).get(timeout=WAIT) == {"ok": False, "error": "session not found"}
    idle(broker)


def test_headers_never_authorise_and_never_refuse(app, session):
    rctx = {"x-aqp-rctx": {"user_id": "mallory", "role": "none"}, "x-aqp-finops": {"owner": "x"}}
    assert send(app, session, headers=rctx).get(timeout=WAIT)["ok"] is True


def test_labels_are_tags_of_each_frame(app, alice, session):
    task = send(app, session, headers={"x-aqp-finops": {"cost_center": "42", "n": 1}})
    assert task.get(timeout=WAIT)["ok"] is True
    assert [frame["tags"] for frame in alice.frames(task.id)] == 3 * [{"cost_center": "42"}]
    assert all("tags" not in frame for frame in alice.frames(alice.execute(session)))


def test_a_task_that_fails(app, alice, session):
    task = stopped_loader(alice, session, lambda: send(app, session))
    alice.remove(session)
    kind, text = failure(task)
    assert kind == "SandboxTaskError" and text == terminal(alice.frames(task.id))["message"]
    assert task.state == "FAILURE"


def test_unknown_task_and_wrong_arguments(app, broker):
    assert failure(app.send_task("other", queue="sandbox"))[0] == "NotRegistered"
    for args, kwargs in (((), {}), ((1,), {}), (("a", "b"), {}), ((), {"x": "y"}), (([],), {})):
        kind, text = failure(app.send_task(TASK, args, kwargs))
        assert kind == "TypeError" and "session_id" in text
    idle(broker)


def test_remote_control(app, alice, session, broker):
    node = node_of(app)
    assert app.control.ping(timeout=WAIT, destination=[node]) == [{node: {"ok": "pong"}}]
    inspect = app.control.inspect(timeout=WAIT, destination=[node])  # which does not wait for others
    assert inspect.registered() == {node: [TASK, PLATFORM_TASK]}
    assert inspect.active() == {node: []} and inspect.reserved() == {node: []}
    assert [q["name"] for q in inspect.active_queues()[node]] == ["sandbox"]
    assert inspect.stats()[node]["broker"]["transport"] == "redis"
    assert app.control.ping(destination=["real@elsewhere"], timeout=1) == []
    task = stopped_loader(alice, session, lambda: send(app, session))
    waiting = send(app, session)
    active = wait_until(lambda: inspect.active()[node], 10, "active")
    assert [(a["id"], a["name"], a["args"]) for a in active] == [(task.id, TASK, [session])]
    assert [r["id"] for r in inspect.reserved()[node]] == [waiting.id]
    alice.shell(session, GO_ON)
    assert task.get(timeout=WAIT)["ok"] and waiting.get(timeout=WAIT)["ok"]
    # Nobody reads what a client that left has asked for.
    app.control.broadcast("ping", reply=False)
    idle(broker)


def test_one_run_at_a_time_and_priorities(app, alice, session, broker):
    """The session is busy, so what was sent meanwhile is taken in the order of priority."""
    other = alice.create()
    stop_taking(app, broker)
    sent = [(p, send(app, other, priority=p)) for p in (9, 6, 3, 0, 9)]
    asked(app, "add_consumer", "sandbox")
    for _, result in sent:
        assert result.get(timeout=WAIT)["ok"]
    starts = sorted((alice.frames(result.id)[0]["timestamp"], p) for p, result in sent)
    assert [p for _, p in starts] == [0, 3, 6, 9, 9]
    alice.remove(other)


def test_revoke_before_and_while_running(app, alice, session, broker):
    running = stopped_loader(alice, session, lambda: send(app, session))
    waiting = send(app, session)
    wait_until(lambda: app.control.inspect(timeout=1).reserved(), 10, "taken")
    app.control.revoke(waiting.id)
    with pytest.raises(TaskRevokedError):
        waiting.get(timeout=WAIT)
    asked(app, "revoke", running.id)  # without terminate it goes on
    assert state(alice, running.id) == "running"
    app.control.revoke(running.id, terminate=True)
    with pytest.raises(TaskRevokedError):
        running.get(timeout=WAIT)
    assert terminal(alice.frames(running.id))["code"] == "cancelled"
    later = uuid.uuid4()
    asked(app, "revoke", str(later))
    with pytest.raises(TaskRevokedError):
        send(app, session, task_id=str(later)).get(timeout=WAIT)
    idle(broker)


def test_expires_and_eta(app, alice, session, broker):
    stop_taking(app, broker)
    gone = send(app, session, expires=0.5)
    time.sleep(1)
    asked(app, "add_consumer", "sandbox")
    with pytest.raises(TaskRevokedError):
        gone.get(timeout=WAIT)
    node = node_of(app)
    inspect = app.control.inspect(timeout=WAIT, destination=[node])
    begin, countdown = time.time(), 8 * SLOW
    later = send(app, session, countdown=countdown)
    scheduled = wait_until(lambda: inspect.scheduled()[node], 10, "scheduled")
    assert scheduled[0]["request"]["id"] == later.id
    assert send(app, session).get(timeout=WAIT)["ok"]  # nobody waits behind it
    assert later.get(timeout=WAIT)["ok"]
    assert alice.frames(later.id)[0]["timestamp"] >= begin + countdown
    idle(broker)


def envelope(app, broker, session):
    """What a client would have written, as text."""
    app.send_task(TASK, (session,), queue="aside")
    text = broker.ask("rpop", "aside")
    return text, json.loads(text)["headers"]["id"]


def test_same_message_twice_is_run_once(app, alice, session, broker):
    text, task = envelope(app, broker, session)
    copy = json.loads(text)
    copy["properties"]["delivery_tag"] = str(uuid.uuid4())
    broker.ask("lpush", "sandbox", text, text, json.dumps(copy))
    value = app.AsyncResult(task).get(timeout=WAIT)
    idle(broker)
    broker.ask("lpush", "sandbox", text)  # and when it has ended
    idle(broker)
    assert app.AsyncResult(task).get(timeout=WAIT) == value
    frames = alice.frames(task)
    assert [f["stage"] for f in frames] == ["start", "materialize", "done"]


def test_a_finished_task_has_its_stored_result_again(app, session, broker):
    text, task = envelope(app, broker, session)
    broker.ask("lpush", "sandbox", text)
    value = app.AsyncResult(task).get(timeout=WAIT)
    broker.ask("del", f"celery-task-meta-{task}")
    broker.ask("lpush", "sandbox", text)
    assert make_app(broker).AsyncResult(task).get(timeout=WAIT) == value


def test_an_id_of_another_sessions_task_tells_nothing(app, daemon, alice, session):
    """Whoever writes to the queue names a session; what ran in another one is not told for an id."""
    mine = alice.create()
    known = alice.execute(mine)
    assert alice.frames(known)[-1]["stage"] == "done"
    alice.write(mine, "demo", "type: a.B\n")
    running = stopped_loader(alice, mine, lambda: alice.execute(mine))
    for task in (known, running):
        kind, text = failure(send(app, session, task_id=task))
        assert (kind, text) == ("SandboxTaskError", "another session has a task of this id")
    alice.shell(mine, GO_ON)
    assert alice.frames(running)[-1]["stage"] == "done"
    alice.remove(mine)


def audited(daemon, task):
    text = (daemon.state / "api" / "audit.jsonl").read_text(encoding="utf-8")
    return [line for line in map(json.loads, text.splitlines()) if line.get("task") == task]


def test_tasks_of_the_queue_are_audited(app, daemon, alice, session):
    """With the queue in place of a user: nobody knows who put them there."""
    task = stopped_loader(alice, session, lambda: send(app, session))
    app.control.revoke(task.id, terminate=True)
    with pytest.raises(TaskRevokedError):
        task.get(timeout=WAIT)
    # Those who looked before it was there are told as well.
    lines = wait_until(lambda: (told := [line for line in audited(daemon, task.id) if line["action"] != "read"])[1:] and told,
                       10, "both are told")
    assert [line["action"] for line in lines] == ["session.execute", "task.cancel"]
    for line in lines:
        assert line["queue"] == "sandbox" and line["session"] == session
        assert not line.keys() & {"user", "workspace", "request", "peer_uid"}


def test_a_server_that_refuses_is_not_asked_without_a_pause(app, broker, session):
    assert broker.ask("acl", "setuser", "default", "-hdel") == "OK"
    def calls():
        return broker.client().info("commandstats")["cmdstat_multi"]["calls"]

    before, begin = calls(), time.monotonic()
    assert send(app, session).get(timeout=WAIT)["ok"] is True
    wait_until(lambda: calls() - before > 2, 20, "it is tried again")
    time.sleep(max(0, begin + 3 - time.monotonic()))
    n, span = calls() - before, time.monotonic() - begin
    assert broker.ask("acl", "setuser", "default", "+hdel") == "OK"
    assert n < 40 * span / 3, (n, span)
    idle(broker)


def push(broker, message):
    """Longer than an argument may be."""
    broker.client().lpush("sandbox", message)


def broken(daemon):
    text = daemon.root.get("/metrics").body.decode()
    return int(text.split('sandboxd_celery_tasks_total{result="broken"} ')[1].split()[0])


def test_bad_messages_are_counted_and_gone(app, daemon, session, broker):
    text, _ = envelope(app, broker, session)
    good = json.loads(text)
    bad = ["", "x", "[]", "null", "{", "[" * 100000, "{}", '{"headers": {}}', '{"headers": {"id": 5, "task": []}}',
           json.dumps({**good, "headers": {"task": TASK}}), json.dumps({**good, "headers": {"task": TASK, "id": "x"}}),
           json.dumps({**good, "body": "x" * 300000}), '{"a":' * 5000 + "1" + "}" * 5000]
    before = broken(daemon)
    for message in bad:
        push(broker, message)
    told = []
    for change in ({"body": "%%%"}, {"body": 5}, {"body": None}, {"content-type": "application/x-python-serialize"},
                   {"body": base64.b64encode(b"[" * 5000).decode()}):
        task = str(uuid.uuid4())
        message = {**good, **change, "headers": {**good["headers"], "id": task},
                   "properties": {**good["properties"], "delivery_tag": task}}
        broker.ask("lpush", "sandbox", json.dumps(message))
        told.append(app.AsyncResult(task))
    assert {failure(result)[0] for result in told} == {"TypeError"}
    assert send(app, session).get(timeout=WAIT)["ok"]
    assert broken(daemon) == before + len(bad)
    idle(broker)
    # The remote control as well.
    for message in (*bad, json.dumps({"body": "x", "headers": {}, "properties": {}})):
        broker.client().publish("/0.celery.pidbox", message)
    assert node_of(app)


def test_a_long_run_is_not_delivered_twice(app, alice, session, broker):
    """A real worker beside us puts back what is older than that, and so do we."""
    worker = Worker(broker)
    try:
        task = stopped_loader(alice, session, lambda: send(app, session))
        adder = make_app(broker)
        assert adder.send_task("add", (2, 3), queue="default").get(timeout=WAIT) == 5
        end = time.monotonic() + 3 * VISIBILITY
        while time.monotonic() < end:
            assert broker.ask("llen", "sandbox") == "0" and broker.ask("hlen", "unacked") == "1"
            time.sleep(0.1)
        alice.shell(session, GO_ON)
        assert task.get(timeout=WAIT)["ok"]
        frames = alice.frames(task.id)
        assert [f["stage"] for f in frames].count("start") == 1
        # It is undisturbed: it has its queue, its own tasks, and the same remote control.
        assert adder.send_task("add", (4, 5), queue="default").get(timeout=WAIT) == 9
        nodes = wait_until(lambda: (found := {name for answer in adder.control.ping(timeout=3) for name in answer})
                           and len(found) > 1 and found, 30, "both answer")
        assert "real@here" in nodes and len(nodes) == 2
        assert "Traceback" not in worker.text(), worker.text()
    finally:
        worker.done()


def test_what_a_dead_worker_of_our_queue_held_is_restored(app, broker, session):
    text, task = envelope(app, broker, session)
    message = json.loads(text)
    tag, foreign = message["properties"]["delivery_tag"], str(uuid.uuid4())
    other = json.dumps([message, "", "default"])
    long_ago = str(time.time() - 60)
    broker.ask("hset", "unacked", tag, json.dumps([message, "", "sandbox"]), foreign, other)
    broker.ask("zadd", "unacked_index", long_ago, tag, long_ago, foreign)
    assert app.AsyncResult(task).get(timeout=WAIT)["ok"]
    assert broker.ask("hget", "unacked", foreign) == other  # another queue's is not ours to touch
    broker.ask("hdel", "unacked", foreign)
    broker.ask("zrem", "unacked_index", foreign)
    idle(broker)


def held_mutex(client):
    """A round that takes a while, and who holds the mutex in it."""
    message = json.dumps([{"body": "x" * 200_000}, "", "default"])
    tags = [str(uuid.uuid4()) for _ in range(100)]
    client.hset("unacked", mapping={tag: message for tag in tags})
    client.zadd("unacked_index", {tag: time.time() - 60 for tag in tags})
    end = time.monotonic() + WAIT
    while time.monotonic() < end:
        holder = client.get("unacked_mutex")
        if holder:
            return holder
    raise AssertionError("nobody looks for what is left")


def test_the_mutex_of_a_round_is_given_back_by_its_holder_alone(daemon, broker):
    client = broker.client()
    try:
        held_mutex(client)
        client.set("unacked_mutex", "theirs")  # as after 300 s
        time.sleep(2 * VISIBILITY)
        assert client.get("unacked_mutex") == b"theirs"
        client.delete("unacked_mutex")
        # The connection is lost in mid-round.
        held_mutex(client)
        client.execute_command("CLIENT", "KILL", "TYPE", "normal")
        client.delete("unacked", "unacked_index")
        wait_until(lambda: client.get("unacked_mutex") is None, WAIT, "given back")
    finally:
        client.delete("unacked", "unacked_index", "unacked_mutex")
    connected(daemon)


def test_ignore_result(app, alice, session, broker):
    result = send(app, session, ignore_result=True)
    wait_until(lambda: alice.get(f"/dagster/sandbox/tasks/{result.id}").json.get("status") == "done", 10, "done")
    idle(broker)
    assert broker.ask("exists", f"celery-task-meta-{result.id}") == "0"


def test_a_client_that_waits_for_nothing_times_out(app):
    with pytest.raises(CeleryTimeout):
        app.AsyncResult(str(uuid.uuid4())).get(timeout=0.5)


NEWEST = """
import sys, uuid
from celery import Celery, __version__
from celery.exceptions import TaskRevokedError
broker, name, session, missing = sys.argv[1:]
app = Celery("platform", broker=broker, backend=broker)
app.conf.task_routes = {name: {"queue": "sandbox"}}
send = lambda who, **more: app.send_task(name, (who,), **more)
assert send(session).get(timeout=20)["session_id"] == session
assert send(missing).get(timeout=20) == {"ok": False, "error": "session not found"}
try:
    app.send_task("other", queue="sandbox").get(timeout=20)
    raise SystemExit("no failure")
except Exception as error:
    assert type(error).__name__ == "NotRegistered", repr(error)
nodes = [node for answer in app.control.ping(timeout=2) for node in answer]
assert len(nodes) == 1 and nodes[0].startswith("sandboxd@"), nodes
assert name in app.control.inspect(destination=nodes).registered()[nodes[0]]
later = send(session, countdown=600)
app.control.revoke(later.id)
try:
    later.get(timeout=20)
    raise SystemExit("not revoked")
except TaskRevokedError:
    pass
for priority in (0, 5, 9):
    assert send(session, priority=priority).get(timeout=20)["ok"]
print(__version__)
"""


def test_the_newest_celery(daemon, session, broker):
    newest = ROOT / "build" / "celery"
    if not (newest / "celery").is_dir():
        pytest.skip("tests/run has fetched no newer Celery")
    done = subprocess.run(["/usr/bin/python3", "-c", NEWEST, broker.url, TASK, session, ABSENT_ID], text=True, cwd="/",
                          env={**os.environ, "PYTHONPATH": str(newest)}, capture_output=True, timeout=120 * PATIENCE, check=False)
    assert done.returncode == 0 and done.stdout.startswith("5."), (done.stdout, done.stderr[-3000:])
    assert done.stdout.strip() != "5.2.6"
    idle(broker)


def scheduled(task, **headers):
    return {"body": base64.b64encode(json.dumps([[ABSENT_ID], {}, {}]).encode()).decode(),
            "content-type": "application/json", "content-encoding": "utf-8",
            "headers": {"task": TASK, "id": task, "eta": "2099-01-01T00:00:00", **headers},
            "properties": {"delivery_tag": task, "delivery_info": {"exchange": "", "routing_key": "sandbox"},
                           "priority": 0, "body_encoding": "base64"}}


@pytest.mark.skipif(ASAN, reason="a sanitizer keeps memory that was freed")
def test_messages_that_wait_take_no_more_memory_than_their_text(broker, daemon, app):
    """Parsed, empty lists take fifty times as much, and a thousand messages may wait for their eta."""
    api = next(pid for pid in descendants(daemon.process.pid) if name_of(pid) == "sandboxd-api")
    client, ids = broker.client(), [str(uuid.uuid4()) for _ in range(24)]
    before = int(status_of(api)["VmRSS"].split()[0])
    for task in ids:
        client.lpush("sandbox", json.dumps(scheduled(task, x=[[]] * 80000), separators=(",", ":")))
    wait_until(lambda: client.hlen("unacked") == len(ids), 30, "all are held")
    assert int(status_of(api)["VmRSS"].split()[0]) - before < 100 * 1024
    app.control.revoke(ids)
    idle(broker, 30)


def held_by(service):
    return next(int(line.split()[1]) for line in service.root.get("/metrics").body.decode().splitlines()
                if line.startswith("sandboxd_celery_tasks_held "))


def test_what_is_adopted_is_bounded_as_what_is_taken():
    """The set of what was ours is only what the server says."""
    server = Broker()
    service = make_daemon(server, visibility_timeout="1h")
    try:
        connected(service)
        client, ids = server.client(), [str(uuid.uuid4()) for _ in range(1100)]
        client.lpush("sandbox", json.dumps(scheduled(str(uuid.uuid4()))))
        held = wait_until(lambda: client.keys("sandboxd.held.*"), 10, "one is held")[0]
        client.hset("unacked", mapping={task: json.dumps([scheduled(task), "", "sandbox"]) for task in ids})
        client.sadd(held, *ids)
        client.execute_command("CLIENT", "KILL", "TYPE", "normal")
        wait_until(lambda: held_by(service) >= 1000, 20, "adopted")
        time.sleep(2)
        # What is too much is put back, or is left to the visibility timeout.
        assert held_by(service) == 1000
        wait_until(lambda: server.client().hlen("unacked") + server.client().llen("sandbox") == 1101, 10, "none is lost")
    finally:
        service.done()
        server.done()
