"""Tasks of a session, what a sandbox uses, and what the janitor would end."""
import os
import signal
import uuid

from harness import ABSENT_ID, NOT_FOUND, RUNTIME, RUNTIME_NOT_FOUND, SESSIONS, wait_until


def tasks_of(client, session):
    answer = client.get(f"{SESSIONS}/{session}/tasks")
    assert answer.status == 200, answer
    return answer.json


def test_tasks_are_listed_newest_first(alice, session):
    assert tasks_of(alice, session) == []
    alice.write(session, "a", "type: a.B\n")
    made = []
    for _ in range(3):
        made.append(alice.execute(session))
        alice.frames(made[-1])
    listed = tasks_of(alice, session)
    assert [task["task_id"] for task in listed] == made[::-1]
    assert listed[0] == alice.get(f"/dagster/sandbox/tasks/{made[-1]}").json
    assert {task["status"] for task in listed} == {"done"}


def test_tasks_outlive_the_worker_that_ran_them(daemon, alice, session):
    alice.write(session, "a", "type: a.B\n")
    task = alice.execute(session)
    alice.frames(task)
    before = tasks_of(alice, session)
    daemon.deaths_expected = True
    os.kill(daemon.worker_pid("sandboxd-api"), signal.SIGKILL)
    wait_until(daemon.ready, 20, "the worker is back")
    wait_until(lambda: alice.get(f"{SESSIONS}/{session}").status == 200, 20, "adopted")
    assert tasks_of(alice, session) == before


def insert_tasks(daemon, like, states):
    """Rows of tasks that no worker holds, newer than the one they are made from. Their ids."""
    made = [str(uuid.uuid4()) for _ in states]
    for task, state in zip(made, states):
        daemon.copy_rows("sandbox_tasks", "id", like, id=task, status=state, created_at="2999-01-01T00:00:00.000000")
    return made


def test_list_ends_at_the_200_newest(daemon, alice, session):
    """Also where older ones are still in memory."""
    old = alice.execute(session)
    alice.frames(old)
    newer = insert_tasks(daemon, old, ["done"] * 200)
    listed = [task["task_id"] for task in tasks_of(alice, session)]
    assert set(listed) == set(newer) and len(listed) == 200


def test_task_whose_end_the_store_lost_has_ended(daemon, alice, session):
    """The row says queued or running, and nothing runs: it is an error, and nobody waits for it."""
    task = alice.execute(session)
    alice.frames(task)
    for lost in insert_tasks(daemon, task, ["queued", "running"]):
        path = f"/dagster/sandbox/tasks/{lost}"
        assert alice.request("DELETE", path).json["status"] == "error"
        assert alice.get(path).json["status"] == "error"
    assert [t["status"] for t in tasks_of(alice, session)] == ["error", "error", "done"]


def test_foreign_lists_are_the_same_404(alice, bob, session):
    for answer in (bob.get(f"{SESSIONS}/{session}/tasks"), alice.get(f"{SESSIONS}/{ABSENT_ID}/tasks")):
        assert (answer.status, answer.body) == (404, NOT_FOUND)
    for answer in (bob.get(f"{RUNTIME}/{session}/stats"), alice.get(f"{RUNTIME}/{ABSENT_ID}/stats")):
        assert (answer.status, answer.body) == (404, RUNTIME_NOT_FOUND)


def test_stats_show_what_the_session_does(alice, session):
    before = alice.get(f"{RUNTIME}/{session}/stats").json
    assert before["session_id"] == session and before["pids"] >= 2 and not before["frozen"]
    alice.shell(session, "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; head -c 8000000 /dev/zero >/session/f")
    after = alice.get(f"{RUNTIME}/{session}/stats").json
    assert after["cpu_us"] > before["cpu_us"]
    assert after["memory_bytes"] > before["memory_bytes"] + 4_000_000


def test_janitor_says_what_it_would_end(admin, alice, session):
    assert admin.get("/dagster/sandbox/janitor").json == {"dropped": [], "count": 0}
    assert alice.get("/dagster/sandbox/janitor").status == 403
    assert alice.get(f"{SESSIONS}/{session}").status == 200
