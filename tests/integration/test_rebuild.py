"""The row is the promise: a session whose process tree is gone gets a new one at its next use."""
import json
import os
import signal
import threading
import time
import uuid
from datetime import datetime, timedelta

import pytest

from harness import NOT_FOUND, PATIENCE, RUNTIME, SESSIONS, UnixConnection, ctl, wait_until
from test_jobs import stopped_task

BODY = "type: a.B\n"


def tree_of(caller, session):
    return caller.get(f"{SESSIONS}/{session}").json["sandbox"]["tree"]


def restart(daemon):
    assert daemon.stop() == 0
    daemon.start()


def test_stop_and_start_keep_the_promise(private):
    caller = private.client("alice", workspace="blue", project="p1")
    session = caller.post(SESSIONS, {"ttl_minutes": 33,
                                     "env_overrides": {"kafka_bootstrap": "kafka.example:9092"}}
                          ).json["id"]
    caller.write(session, "one", BODY)
    caller.write(session, "two", BODY)
    caller.shell(session, "echo left > /session/stray; echo $PPID")
    task = caller.execute(session)
    frames = caller.frames(task)
    before = caller.get(f"{SESSIONS}/{session}").json
    restart(private)

    after = caller.get(f"{SESSIONS}/{session}").json
    assert after["sandbox"].pop("tree") == "dormant" and before["sandbox"].pop("tree") == "live"
    for name in ("id", "owner", "workspace_id", "project_id", "created_at", "expires_at",
                 "components", "last_run_id", "log_summary", "status"):
        assert after[name] == before[name], name
    assert [s["id"] for s in caller.get(SESSIONS).json] == [session]
    assert private.client("bob").get(f"{SESSIONS}/{session}").body == NOT_FOUND
    assert not private.shim_pids()

    assert caller.shell(session, "cd /session && ls *.yaml").text.split() == ["one.yaml", "two.yaml"]
    assert tree_of(caller, session) == "live"
    assert caller.shell(session, "echo $ALPHASWARM_KAFKA_BOOTSTRAP").text == "kafka.example:9092\n"
    assert caller.frames(task) == frames
    again = caller.frames(caller.execute(session))
    assert [f["stage"] for f in again] == ["start", "materialize", "materialize", "done"]
    assert caller.get(f"{SESSIONS}/{session}").json["expires_at"] == before["expires_at"]


@pytest.mark.parametrize("use", ["execute", "load", "write", "command"])
def test_each_use_makes_a_new_tree(private, use):
    caller = private.client("alice")
    session = caller.create()
    caller.write(session, "one", BODY)
    restart(private)
    if use == "execute":
        assert caller.frames(caller.execute(session))[-1]["result"]["asset_count"] == 1
    elif use == "load":
        answer = caller.post(f"{SESSIONS}/{session}/load")
        assert answer.json["asset_keys"] == [["sandbox", "one"]]
    elif use == "write":
        assert caller.write(session, "two", BODY).json["components"] == ["one.yaml", "two.yaml"]
        assert caller.shell(session, "cat /session/*").text == 2 * BODY
    else:
        assert caller.run(session, "/bin/cat", "/session/one.yaml").text == BODY
    # Output is numbered from one again, and none of it is taken for a repetition.
    assert caller.frames(caller.execute(session))[-1]["stage"] == "done"


def test_sandbox_with_environment_and_limits_comes_back(private):
    caller = private.client("alice", scopes="data:read data:write sandbox:read sandbox:write")
    sandbox = caller.create_runtime(profile="agent", envs={"COLOUR": "teal"}, ttl=7200)
    before = caller.get(f"{RUNTIME}/{sandbox}").json
    restart(private)
    after = caller.get(f"{RUNTIME}/{sandbox}").json
    assert after["expires_at"] == before["expires_at"] and after["profile"] == "agent"
    assert caller.shell(sandbox, "echo $COLOUR").text == "teal\n"
    assert caller.get(f"{RUNTIME}/{sandbox}").json["limits_effective"] == before["limits_effective"]


def test_many_first_uses_share_one_tree(private):
    caller = private.client("alice")
    session = caller.create()
    for i in range(20):
        caller.write(session, f"c{i:02}", BODY)
    restart(private)
    results = []

    def use():
        results.append(caller.shell(session, "readlink /proc/self/ns/pid; ls /session/*.yaml | wc -l").text)

    threads = [threading.Thread(target=use) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 12 and len(set(results)) == 1, results
    assert results[0].split()[1] == "20"
    assert len(private.shim_pids()) == 1


def test_closed_and_expired_rows_stay_closed(private):
    caller = private.client("alice")
    closed, expired, kept = caller.create(), caller.create(), caller.create()
    caller.remove(closed)
    private.stop()
    past = (datetime.utcnow() - timedelta(minutes=1)).isoformat(timespec="microseconds")
    private.sql("UPDATE dagster_sandbox_sessions SET expires_at = ? WHERE id = ?", past, expired)
    private.start()
    for session in (closed, expired):
        assert caller.get(f"{SESSIONS}/{session}").body == NOT_FOUND
        assert caller.post(f"{SESSIONS}/{session}/execute").body == NOT_FOUND
    assert [s["id"] for s in caller.get(SESSIONS).json] == [kept]
    reason = "SELECT closed_reason FROM dagster_sandbox_sessions WHERE id = ?"
    wait_until(lambda: private.sql(reason, expired) == [("expired",)], 5, "closed")


def test_dormant_session_is_deleted_without_a_tree(private):
    caller = private.client("alice")
    session = caller.create()
    restart(private)
    assert caller.remove(session).status == 200
    assert caller.get(f"{SESSIONS}/{session}").body == NOT_FOUND
    restart(private)
    assert caller.get(SESSIONS).json == []


def test_row_of_the_platform_is_rebuilt(private):
    """Written by the ORM of the platform: our columns are empty, times have a space."""
    caller = private.client("alice", workspace="blue")
    caller.create()
    private.stop()
    session = str(uuid.uuid4())
    now = datetime.utcnow()
    private.sql(
        "INSERT INTO dagster_sandbox_sessions (id, status, components_json, log_summary_json,"
        " expires_at, created_at, updated_at, owner_user_id, workspace_id)"
        " VALUES (?, 'running', ?, NULL, ?, ?, ?, 'alice', 'blue')",
        session, '{"demo.yaml": "type: a.B\\n", "../evil.yaml": "x", "con.yaml": "y", "n": 7,'
        ' "plain": "type: c.D\\n"}',
        str(now + timedelta(minutes=30)), str(now), str(now))
    broken = str(uuid.uuid4())
    private.sql(
        "INSERT INTO dagster_sandbox_sessions (id, status, components_json, expires_at,"
        " created_at, updated_at, owner_user_id) VALUES (?, 'open', ?, ?, ?, ?, 'alice')",
        broken, "[7]" if private.database else "{not json",  # which PostgreSQL refuses itself
        str(now + timedelta(minutes=30)), str(now), str(now))
    private.start()
    assert caller.get(f"{SESSIONS}/{session}").json["status"] == "open"
    assert sorted(caller.shell(session, "cd /session && ls -A --ignore=home --ignore=tmp").text.split()) == ["demo.yaml", "plain.yaml"]
    summary = caller.get(f"{SESSIONS}/{session}").json
    assert summary["components"] == ["demo.yaml", "plain.yaml"]
    assert "2 components were left out" in summary["log_summary"][-1]["message"]
    assert "evil" not in str(summary["log_summary"])
    assert caller.frames(caller.execute(session))[-1]["result"]["asset_count"] == 2
    assert caller.shell(broken, "ls -A /session --ignore=home --ignore=tmp").text == ""
    # And once more: what was left out stays out, nothing is lost.
    restart(private)
    assert sorted(caller.shell(session, "cd /session && ls -A --ignore=home --ignore=tmp").text.split()) == ["demo.yaml", "plain.yaml"]


def test_launch_that_fails_leaves_the_row_open(private):
    caller = private.client("alice")
    session = caller.create()
    private.stop()
    limits = json.loads(private.sql("SELECT CAST(limits_json AS TEXT) FROM dagster_sandbox_sessions")[0][0])
    set_limits = "UPDATE dagster_sandbox_sessions SET limits_json = ?"
    private.sql(set_limits, json.dumps({**limits, "pids": 10**8}))
    private.start()
    answer = caller.post(f"{SESSIONS}/{session}/execute")
    assert answer.status in (429, 500, 503), answer
    assert caller.get(f"{SESSIONS}/{session}").json["sandbox"]["tree"] == "dormant"
    private.stop()
    private.sql(set_limits, json.dumps({**limits, "pids": 64}))
    private.start()
    assert caller.frames(caller.execute(session))[-1]["stage"] == "done"


def test_tree_that_ends_by_itself_comes_back(private):
    """pid 1 of a session dies: its task and its command hear it, the row stays open."""
    caller = private.client("alice")
    session = caller.create()
    events = []
    runner = threading.Thread(
        target=lambda: events.extend(caller.run(session, "/bin/sleep", "60").events))
    runner.start()
    wait_until(lambda: caller.shell(session, "pgrep sleep").code == 0, 5, "it runs")
    task = stopped_task(caller, session)
    waiting = caller.execute(session)
    os.kill(private.shim_pids()[0], signal.SIGKILL)
    for each in (task, waiting):
        stages = [f["stage"] for f in caller.frames(each)]
        assert sum(s in ("done", "error") for s in stages) == 1, stages
    assert caller.frames(waiting)[-1]["code"] == "session_lost"
    runner.join(10 * PATIENCE)
    assert events[-1]["code"] == "session_lost"
    wait_until(lambda: tree_of(caller, session) == "dormant", 5, "dormant")
    for what in ("stats", "proof", "trace"):
        answer = private.root.get(f"/v1/sandboxes/{session}/{what}")
        assert (answer.status, answer.json["detail"]) == (409, "the session has no process tree now")
    assert tree_of(caller, session) == "dormant"
    wait_until(lambda: caller.get(f"{SESSIONS}/{session}").json["log_summary"][-1]["metadata"] == {"code": "session_lost"}, 5, "why")
    assert caller.get(f"{SESSIONS}/{session}").json["status"] == "open"
    assert caller.shell(session, "cd /session && ls *.yaml").text == "slow.yaml\n"


def test_half_filled_folder_is_never_adopted(private):
    """A worker that died while it filled a new folder leaves a tree that its successor ends."""
    caller = private.client("alice")
    session = caller.create()
    caller.write(session, "one", BODY)
    mark = "UPDATE dagster_sandbox_sessions SET restoring = 1 WHERE id = ?"
    caller.shell(session, "rm /session/one.yaml")
    private.sql(mark, session)
    private.deaths_expected = True
    worker, shim = private.worker_pid("sandboxd-api"), private.shim_pids()
    os.kill(worker, signal.SIGKILL)
    wait_until(private.ready, 15, "answers")
    assert caller.run(session, "/bin/cat", "/session/one.yaml").text == BODY
    wait_until(lambda: private.shim_pids() != shim and len(private.shim_pids()) == 1, 10, "the other one has ended")


def test_worker_killed_at_any_moment_of_a_rebuild(private):
    caller = private.client("alice")
    session = caller.create()
    names = [f"c{i:03}" for i in range(60)]
    for name in names:
        caller.write(session, name, BODY)
    private.deaths_expected = True
    for attempt in range(6):
        os.kill(private.shim_pids()[0], signal.SIGKILL)
        wait_until(lambda: tree_of(caller, session) == "dormant", 10, "dormant")

        def use():
            try:
                caller.run(session, "/bin/true", timeout=5)
            except (OSError, AssertionError, Exception):  # the worker dies under it
                pass

        user = threading.Thread(target=use)
        user.start()
        time.sleep(0.004 * attempt)
        os.kill(private.worker_pid("sandboxd-api"), signal.SIGKILL)
        user.join()
        wait_until(private.ready, 15, "answers")
        listed = wait_until(lambda: caller.shell(session, "cd /session && ls *.yaml"), 5, "listed")
        assert listed.text.split() == [f"{name}.yaml" for name in names], (attempt, listed)
        wait_until(lambda: len(private.shim_pids()) == 1, 10, "there is one tree")


def test_secrets_are_looked_up_again(private):
    """By name: the row has no value. One that is gone refuses the tree, not the session."""
    for name, value in (("db", "Kp7-horse=battery"), ("token", "ghp-0123456789")):
        done = ctl(private, "secret", "put", "--state-dir", str(private.state), "--workspace",
                   "blue", name, stdin=value.encode())
        assert done.returncode == 0, done
    caller = private.client("alice", workspace="blue")
    session = caller.post(SESSIONS, {"secrets": ["db", "token"], "env": {"PLAIN": "text"}}).json["id"]
    show = 'printf %s "$DB" | rev; echo; echo $PLAIN $TOKEN'
    before = caller.shell(session, show).text
    assert before == "yrettab=esroh-7pK\ntext ***token***\n"
    restart(private)
    assert caller.shell(session, show).text == before
    restart(private)
    assert ctl(private, "secret", "rm", "--state-dir", str(private.state), "db").returncode == 0
    answer = caller.post(f"{SESSIONS}/{session}/execute")
    assert answer.status == 503 and answer.json["detail"].startswith("secret db "), answer
    assert caller.get(f"{SESSIONS}/{session}").json["sandbox"]["tree"] == "dormant"
    done = ctl(private, "secret", "put", "--state-dir", str(private.state), "--workspace", "blue",
               "db", stdin=b"another-value")
    assert done.returncode == 0
    assert caller.shell(session, show).text.startswith("eulav-rehtona\n")


def test_rules_that_change_during_a_rebuild_are_those_in_force(private):
    """The supervisor stands still while the tree is made, and the rules are replaced meanwhile."""
    caller = private.client("alice", workspace="blue")
    session = caller.create(egress={"allow": ["one.example:443"]})
    restart(private)
    supervisor = private.supervisor_pid()
    os.kill(supervisor, signal.SIGSTOP)
    try:
        use = threading.Thread(target=caller.shell, args=(session, "true"))
        use.start()
        wait_until(lambda: tree_of(caller, session) == "rebuilding", 10, "it is rebuilt")
        answer = caller.request("PUT", f"{SESSIONS}/{session}/egress", {"allow": ["two.example", "three.example"]})
        assert answer.status == 200, answer
    finally:
        os.kill(supervisor, signal.SIGCONT)
        use.join(30 * PATIENCE)
    told = caller.get(f"{SESSIONS}/{session}/egress").json
    # The egress worker counts by rule, and last all of them: of a policy of other rules these are none of its.
    assert told["in_force"] and all("counters" in rule for rule in told["rules"]), told


@pytest.mark.parametrize("url,body", [
    (RUNTIME + "/{}/commands", {"argv": ["/bin/true"]}),
    (SESSIONS + "/{}/components", {"name": "late", "body": BODY}),
    (SESSIONS + "/{}/load", None),
])
def test_a_request_that_meets_a_dead_tree_does_not_say_that_the_session_is_gone(private, url, body):
    """The worker finds both at once, the request and the end of the processes."""
    caller = private.client("alice")
    session = caller.create()
    worker = private.worker_pid("sandboxd-api")
    connection = UnixConnection(str(private.control), 30 * PATIENCE)
    connection.request("GET", f"{SESSIONS}/{session}", headers=caller.headers)
    assert connection.getresponse().read()
    (shim,) = private.shim_pids()
    os.kill(worker, signal.SIGSTOP)
    try:
        connection.request("POST", url.format(session), body=json.dumps(body) if body else None,
                           headers={**caller.headers, "Content-Type": "application/json"})
        os.kill(shim, signal.SIGKILL)
        wait_until(lambda: not private.shim_pids(), 10, "the shim has ended")
    finally:
        os.kill(worker, signal.SIGCONT)
    response = connection.getresponse()
    text = response.read()
    connection.close()
    assert response.status in (200, 503), text
    assert caller.shell(session, "echo here").text == "here\n"
