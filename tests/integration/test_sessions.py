"""Routes, summaries and their forms."""
import base64
import contextlib
import json
import re
import time
from pathlib import Path

import pytest

from harness import ABSENT_ID, NOT_FOUND, PATIENCE, RUNTIME, RUNTIME_NOT_FOUND, SESSIONS, wait_until

SUMMARY_FIELDS = [
    "id",
    "owner",
    "workspace_id",
    "project_id",
    "created_at",
    "expires_at",
    "components",
    "asset_keys",
    "last_run_id",
    "log_summary",
    "status",
]
TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}$")
UUID = re.compile(r"^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")


def test_create_summary_has_the_fields_in_order(daemon):
    caller = daemon.client("alice", workspace="blue", project="moon")
    answer = caller.post(SESSIONS, {"ttl_minutes": 5})
    assert answer.status == 201
    summary = answer.json
    assert list(summary) == [*SUMMARY_FIELDS, "sandbox"]
    assert UUID.match(summary["id"])
    assert summary["owner"] == "alice"
    assert summary["workspace_id"] == "blue"
    assert summary["project_id"] == "moon"
    assert TIME.match(summary["created_at"]) and TIME.match(summary["expires_at"])
    assert summary["components"] == [] and summary["asset_keys"] == []
    assert summary["last_run_id"] is None and summary["log_summary"] == []
    assert summary["status"] == "open"
    assert summary["sandbox"]["persisted"] is True
    assert "limits_effective" in summary["sandbox"]
    sources = summary["sandbox"]["endpoint_sources"]
    assert len(sources) == 6 and set(sources.values()) == {"closed"}
    assert caller.remove(summary["id"]).status == 200


def test_create_without_body_or_with_null_takes_the_defaults(alice):
    for raw in (None, b"{}", b"null"):
        answer = alice.request("POST", SESSIONS, raw_body=raw)
        assert answer.status == 201, answer
        alice.remove(answer.json["id"])


def test_answers_carry_version_and_request_id(alice):
    answer = alice.get(SESSIONS)
    assert answer.headers["Sandbox-Api-Version"] == "1"
    assert answer.headers["Sandbox-Request-Id"]
    given = alice.get(SESSIONS, headers={"Sandbox-Request-Id": "req-0123456789"})
    assert given.headers["Sandbox-Request-Id"] == "req-0123456789"


def test_list_is_newest_first_with_limit_and_after(alice):
    made = [alice.create() for _ in range(3)]
    listed = [s["id"] for s in alice.get(SESSIONS).json]
    assert listed[:3] == made[::-1]
    assert [s["id"] for s in alice.get(f"{SESSIONS}?limit=1").json] == [made[2]]
    after = [s["id"] for s in alice.get(f"{SESSIONS}?after={made[1]}").json]
    assert after[0] == made[0] and made[2] not in after
    assert [s["id"] for s in alice.get(f"{SESSIONS}?status=open").json][:3] == made[::-1]
    assert alice.get(f"{SESSIONS}?status=running").json == []
    for one in made:
        alice.remove(one)


@pytest.mark.parametrize("query", ["status=closed", "limit=0", "limit=501", "limit=x", "after=x"])
def test_list_refuses_bad_queries(alice, query):
    assert alice.get(f"{SESSIONS}?{query}").status == 422


def test_write_load_execute_delete(alice):
    session = alice.create()
    for name in ("beta", "alpha", "gamma.yml"):
        answer = alice.write(session, name, "type: demo.Thing\n")
        assert answer.status == 200, answer
    assert sorted(answer.json["components"]) == ["alpha.yaml", "beta.yaml", "gamma.yml"]
    loaded = alice.post(f"{SESSIONS}/{session}/load")
    assert loaded.status == 200, loaded
    assert loaded.json["asset_keys"] == [["sandbox", "alpha"], ["sandbox", "beta"]]
    accepted = alice.post(f"{SESSIONS}/{session}/execute")
    assert accepted.status == 200
    task = accepted.json["task_id"]
    assert accepted.json == {
        "task_id": task,
        "status": "queued",
        "stream_url": f"/chat/stream/{task}",
    }
    frames = alice.frames(task)
    assert frames[-1]["stage"] == "done"
    summary = alice.get(f"{SESSIONS}/{session}").json
    assert summary["last_run_id"] == task
    assert summary["status"] == "open"
    assert [event["stage"] for event in summary["log_summary"]][-1] == "done"
    removed = alice.remove(session)
    assert removed.status == 200
    assert removed.json == {"session_id": session, "redis_keys_dropped": 0, "folder_removed": True}
    assert alice.get(f"{SESSIONS}/{session}").body == NOT_FOUND
    assert alice.remove(session).status == 404


def test_written_component_is_in_the_session_folder(alice, session):
    body = "type: demo.Thing\nattributes:\n  text: größe ✓\n"
    assert alice.write(session, "demo", body).status == 200
    result = alice.run(session, "/bin/cat", "/session/demo.yaml")
    assert result.code == 0 and result.out.decode() == body
    assert alice.write(session, "demo", "type: other.Thing\n").status == 200
    assert alice.run(session, "/bin/cat", "/session/demo.yaml").out == b"type: other.Thing\n"


def test_missing_closed_foreign_and_malformed_ids_give_the_same_bytes(alice, bob):
    open_one = alice.create()
    closed = bob.create()
    bob.remove(closed)
    routes = [
        ("GET", ""),
        ("DELETE", ""),
        ("POST", "/load"),
        ("POST", "/execute"),
    ]
    for method, suffix in routes:
        bodies = set()
        for one in (ABSENT_ID, closed, open_one, "nonsense", open_one.upper(), "%00"):
            answer = bob.request(method, f"{SESSIONS}/{one}{suffix}")
            assert answer.status == 404, (method, suffix, one, answer)
            bodies.add(answer.body)
        assert bodies == {NOT_FOUND}
    written = bob.write(open_one, "x", "type: a.B\n")
    assert (written.status, written.body) == (404, NOT_FOUND)
    task = alice.execute(open_one)
    for path in (f"/dagster/sandbox/tasks/{task}", f"/dagster/sandbox/tasks/{task}/stream",
                 f"/chat/stream/{task}", f"/dagster/sandbox/tasks/{ABSENT_ID}"):
        answer = bob.get(path)
        assert (answer.status, answer.body) == (404, NOT_FOUND), path
    for method, suffix in (("GET", ""), ("DELETE", ""), ("POST", "/commands")):
        body = {"argv": ["/bin/true"]} if suffix else None
        for one in (ABSENT_ID, closed, open_one, "nonsense"):
            answer = bob.request(method, f"{RUNTIME}/{one}{suffix}", body)
            assert (answer.status, answer.body) == (404, RUNTIME_NOT_FOUND), (method, suffix, one)
    alice.remove(open_one)


def test_foreign_sessions_are_in_no_list(alice, bob, admin, root):
    session = alice.create()

    def shown(caller):
        return session in [summary["id"] for summary in caller.get(SESSIONS).json]

    assert shown(alice) and shown(root)
    # An admin ends what has expired and reads proofs; other people's sessions are not his to see.
    assert not shown(bob) and not shown(admin)
    assert admin.get(f"{SESSIONS}/{session}").body == NOT_FOUND
    assert bob.get(f"{SESSIONS}?after={session}").body == NOT_FOUND
    alice.remove(session)


def test_proof_and_trace_are_the_operators(alice, admin, root, session):
    for what in ("proof", "trace"):
        url = f"{RUNTIME}/{session}/{what}"
        refused = alice.get(url)
        assert refused.status == 403, refused
        assert refused.json["detail"] == "missing scope(s): ['platform:admin']", refused
        assert admin.get(url).status == 200 and root.get(url).status == 200
        assert admin.get(f"{RUNTIME}/{ABSENT_ID}/{what}").body == RUNTIME_NOT_FOUND


def test_same_workspace_sees_the_session(alice, carol):
    session = alice.create()
    assert carol.get(f"{SESSIONS}/{session}").status == 200
    assert session in [s["id"] for s in carol.get(SESSIONS).json]
    assert carol.remove(session).status == 200


def test_no_workspace_is_not_a_shared_workspace(daemon):
    first, second = daemon.client("dora"), daemon.client("emil")
    session = first.create()
    assert second.get(f"{SESSIONS}/{session}").status == 404
    first.remove(session)


def test_runtime_session_under_both_prefixes(alice):
    session = alice.create_runtime(profile="component", envs={"GREETING": "hello"})
    assert alice.get(f"{RUNTIME}/{session}").status == 200
    assert alice.run(session, "/bin/sh", "-c", "echo $GREETING").out == b"hello\n"
    assert alice.delete(f"{RUNTIME}/{session}").status == 200
    assert alice.delete(f"{RUNTIME}/{session}").body == RUNTIME_NOT_FOUND


def test_dagster_session_runs_commands_under_the_same_id(alice, session):
    assert alice.run(session, "/bin/echo", "hi").out == b"hi\n"


def test_environment_holds_the_six_endpoints_and_nothing_of_ours(alice):
    session = alice.create(env_overrides={"kafka_bootstrap": "broker.example:9092"})
    env = dict(
        line.split("=", 1) for line in alice.run(session, "/usr/bin/env").text.splitlines()
    )
    assert env["ALPHASWARM_KAFKA_BOOTSTRAP"] == "broker.example:9092"
    assert env["ALPHASWARM_ICEBERG_WAREHOUSE"] == "/session/iceberg"
    assert env["ALPHASWARM_ICEBERG_REST_URI"] == ""
    assert env["ALPHASWARM_POLARIS_BASE_URL"] == ""
    assert env["ALPHASWARM_DATAHUB_GMS_URL"] == ""
    assert env["ALPHASWARM_ALPHA_VANTAGE_BASE_URL"].startswith("https://example.invalid/")
    assert env["HOME"] == "/session/home" and env["TMPDIR"] == "/session/tmp"
    assert env["PATH"] == "/usr/bin:/bin"
    assert not [name for name in env if name.startswith(("LD_", "SSH_", "SUDO_", "NOTIFY_"))]
    text = alice.get(f"{SESSIONS}/{session}").body
    assert b"broker.example" not in text
    summary = alice.get(f"{SESSIONS}/{session}").json
    assert summary["sandbox"]["endpoint_sources"]["kafka_bootstrap"] == "caller"
    alice.remove(session)


def test_endpoint_values_and_refused_names_are_nowhere_else(daemon, alice, root):
    """Not in an answer, a frame, the log, a metric, or what our processes show of themselves."""
    value, name = "zq81endpoint.example", "zq81name"
    url = f"https://{value}/catalog"
    session = alice.create(env_overrides={"iceberg_rest_uri": url, "kafka_bootstrap": f"{value}:9092"})
    told = [alice.post(SESSIONS, {"env_overrides": {"iceberg_rest_uri": "user:x@" + url}}).body,
            alice.post(SESSIONS, {"env_overrides": {"kafka_bootstrap": [value]}}).body,
            alice.write(session, f"../{name}", "type: a.B\n").body,
            alice.write(session, f"{name}\x01", "type: a.B\n").body]
    assert alice.write(session, "one", "type: a.B\n").status == 200
    told.append(alice.post(f"{SESSIONS}/{session}/load").body)
    task = alice.execute(session)
    told.append(repr(alice.frames(task)).encode())
    for caller, path in ((alice, f"{SESSIONS}/{session}"), (alice, SESSIONS), (alice, "/metrics"),
                         (alice, f"/dagster/sandbox/tasks/{task}"), (alice, "/openapi.json"),
                         (alice, f"{RUNTIME}/{session}"), (root, f"{RUNTIME}/{session}/proof"),
                         (root, f"{RUNTIME}/{session}/trace")):
        told.append(caller.get(path).body)
    lines = alice.lines("POST", f"{RUNTIME}/{session}/commands", {
        "argv": ["/bin/sh", "-c", "echo $ALPHASWARM_KAFKA_BOOTSTRAP; sleep 60"]})
    # It runs now, and shows that the value is in the session.
    shown = next(line for line in lines if b'"stdout"' in line)
    assert value in json.loads(shown)["text"]
    service = [pid for pids in daemon.processes().values() for pid in pids]
    for pid in [*service, *daemon.shim_pids()]:
        for file in ("cmdline", "environ", "comm", "cgroup"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has one job, and is done
                told.append(Path(f"/proc/{pid}/{file}").read_bytes())
    lines.close()
    told.append(daemon.log.read_bytes())
    for text in told:
        assert value.encode() not in text and name.encode() not in text, text[:2000]
    alice.remove(session)


def test_janitor_needs_admin_and_answers_its_shape(alice, admin):
    assert alice.post("/dagster/sandbox/janitor").status == 403
    answer = admin.post("/dagster/sandbox/janitor")
    assert answer.status == 200
    assert answer.json == {"dropped": [], "count": 0}


@pytest.mark.slow
def test_session_expires_by_itself(daemon):
    caller = daemon.client("frida")
    session = caller.create(ttl_minutes=1)
    # The default time-out of a command is a minute as well, and not what is looked at here.
    command = {"argv": ["/bin/sleep", "300"], "timeout_ms": 300_000}
    lines = caller.lines("POST", f"{RUNTIME}/{session}/commands", command, timeout=120 * PATIENCE)
    next(lines)
    deadline = time.monotonic() + 75 * PATIENCE
    while caller.get(f"{SESSIONS}/{session}").status == 200:
        assert time.monotonic() < deadline, "the session outlived its minute"
        time.sleep(1)
    assert caller.get(f"{SESSIONS}/{session}").body == NOT_FOUND
    last = [json.loads(line) for line in lines if line][-1]
    assert (last["type"], last["code"]) == ("error", "session_expired"), last


def test_operations_routes(alice, daemon):
    nobody = daemon.client(None, scopes=None)
    assert nobody.get("/healthz").status == 200
    wait_until(lambda: nobody.get("/readyz").json == {"status": "ready"}, 10, "ready")
    document = nobody.get("/openapi.json")
    assert document.status == 200
    paths = document.json["paths"]
    assert "/dagster/sandbox/sessions" in paths and "/v1/sandboxes" in paths
    assert nobody.get("/metrics").status == 200
    assert nobody.get("/v1/capabilities").status == 200


def test_unknown_routes_and_methods(alice):
    answer = alice.get("/nothing/here")
    assert (answer.status, answer.json) == (404, {"detail": "Not Found"})
    answer = alice.request("PUT", SESSIONS)
    assert answer.status == 405 and "GET" in answer.headers["Allow"]
