"""Every route of openapi.json for somebody else: the same bytes as for what is not there."""
import re

import pytest

from harness import ABSENT_ID, NOT_FOUND, RUNTIME, RUNTIME_NOT_FOUND, SESSIONS

HANDSHAKE = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
             "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}

# What a route is to be sent so that nothing is wrong with the request itself: a query, a body, headers, raw bytes.
# Routes without a row take none of these.
CALLS = {
    "POST /v1/sandboxes/{id}/timeout": {"body": {"timeout_ms": 60000}},
    "POST /v1/sandboxes/{id}/suspend": {"body": {"durable": "never"}},
    "POST /v1/sandboxes/{id}/resume": {"body": {"envs": {"A": "b"}}},
    "PUT /v1/sandboxes/{id}/egress": {"body": {"allow": []}},
    "POST /v1/sandboxes/{id}/commands": {"body": {"argv": ["true"]}},
    "GET /v1/sandboxes/{id}/commands/{cid}/attach": {"headers": HANDSHAKE},
    "POST /v1/sandboxes/{id}/commands/{cid}/stdin": {"body": {"text": "x"}},
    "POST /v1/sandboxes/{id}/commands/{cid}/signal": {"body": {"signal": "TERM"}},
    "POST /v1/sandboxes/{id}/commands/{cid}/resize": {"body": {"rows": 2, "cols": 2}},
    "GET /v1/sandboxes/{id}/files": {"query": "?path=there"},
    "PUT /v1/sandboxes/{id}/files": {"query": "?path=made", "raw_body": b"x"},
    "DELETE /v1/sandboxes/{id}/files": {"query": "?path=there"},
    "GET /v1/sandboxes/{id}/files/list": {"query": "?path=/session"},
    "GET /v1/sandboxes/{id}/files/stat": {"query": "?path=there"},
    "GET /v1/sandboxes/{id}/files/watch": {"query": "?path=/session"},
    "POST /v1/sandboxes/{id}/git/clone": {"body": {"path": "made", "url": "https://git.example.com/r.git"}},
    "POST /v1/sandboxes/{id}/git/fetch": {"body": {"path": "there"}},
    "POST /v1/sandboxes/{id}/git/pull": {"body": {"path": "there"}},
    "POST /v1/sandboxes/{id}/git/push": {"body": {"path": "there", "branch": "main"}},
    "POST /v1/sandboxes/{id}/git/branch": {"body": {"path": "there", "branch": "b"}},
    "POST /v1/sandboxes/{id}/git/checkout": {"body": {"path": "there", "ref": "b"}},
    "POST /v1/sandboxes/{id}/git/add": {"body": {"path": "there", "all": True}},
    "POST /v1/sandboxes/{id}/git/commit": {"body": {"path": "there", "message": "m", "author_name": "a", "author_email": "a@b"}},
    "GET /v1/sandboxes/{id}/git/status": {"query": "?path=there"},
    "GET /v1/sandboxes/{id}/git/diff": {"query": "?path=there"},
    "GET /v1/sandboxes/{id}/git/log": {"query": "?path=there"},
    "POST /v1/sandboxes/{id}/restore": {"body": {"snapshot_id": "x"}},
    "POST /v1/sandboxes/{id}/files/mkdir": {"body": {"path": "made"}},
    "POST /v1/sandboxes/{id}/files/move": {"body": {"from": "there", "to": "made"}},
    "POST /v1/sandboxes/{id}/files/copy": {"body": {"from": "there", "to": "made"}},
    "POST /v1/sandboxes/{id}/files/chmod": {"body": {"path": "there", "mode": "700"}},
    "POST /dagster/sandbox/sessions/{id}/components": {"body": {"name": "a", "body": "type: a.B\n"}},
    "POST /dagster/sandbox/sessions/{id}/airbyte": {"body": {"airbyte_connection_id": "x"}},
    "PATCH /dagster/sandbox/sessions/{id}": {"body": {"ttl_minutes": 5}},
    "PUT /dagster/sandbox/sessions/{id}/egress": {"body": {"allow": []}},
}
# Routes that need more than a caller of sessions has: they are asked with it.
ADMIN = "data:read data:write sandbox:read sandbox:write platform:admin"
# Administrators see everybody's there.
FOR_ADMINISTRATORS = {"GET /v1/sandboxes/{id}/proof", "GET /v1/sandboxes/{id}/trace"}
# Nothing of a session is behind the id.
NOT_OF_SESSIONS = {"PUT /dagster/sandbox/airbyte-connections/{id}", "DELETE /dagster/sandbox/airbyte-connections/{id}"}


def routes_with_ids(daemon):
    paths = daemon.root.get("/openapi.json").json["paths"]
    return [(method.upper(), path, operation) for path, methods in paths.items()
            for method, operation in methods.items() if "{id}" in path]


def call(client, method, path, ids):
    row = dict(CALLS.get(f"{method} {path}", {}))
    url = re.sub(r"\{(\w+)\}", lambda match: ids["cid" if match.group(1) == "snapshot_id" else match.group(1)], path) + row.pop("query", "")
    return client.request(method, url, **row)


@pytest.fixture(name="made", scope="module")
def fixture_made(daemon):
    """A sandbox with a file, a command and a task, of one organisation and project."""
    owner = daemon.client("ana", workspace="blue", project="p1")
    session = owner.create_runtime()
    assert owner.request("PUT", f"{RUNTIME}/{session}/files?path=there", raw_body=b"x").status == 200
    command = owner.post(f"{RUNTIME}/{session}/commands", {"argv": ["sleep", "600"], "background": True, "stdin_open": True})
    assert command.status == 201, command
    dagster = owner.create()
    task = owner.execute(dagster)
    owner.frames(task)
    yield {"id": session, "cid": command.json["command_id"], "dagster": dagster, "task": task}
    assert owner.request("GET", f"{RUNTIME}/{session}/files?path=there").body == b"x", "nobody else has changed it"
    assert owner.get(f"{RUNTIME}/{session}/commands/{command.json['command_id']}").json["status"] == "running"
    assert owner.get(f"{RUNTIME}/{session}/files/stat?path=made").status == 404
    assert owner.delete(f"{RUNTIME}/{session}").status == 200
    assert owner.remove(dagster).status == 200


STRANGERS = {
    "organisation": {"user": "bob", "workspace": "green", "project": "p1"},
    "none": {"user": "bob"},
    "user as organisation": {"user": "bob", "workspace": "user:ana"},
    "project": {"user": "bob", "workspace": "blue", "project": "p2"},
    "project of the same user": {"user": "ana", "workspace": "blue", "project": "p2"},
}


def without_dates(answer):
    return answer.status, answer.body, sorted(
        (name, value) for name, value in answer.headers.items() if name not in ("Date", "Sandbox-Request-Id"))


@pytest.mark.parametrize("who", STRANGERS)
def test_every_route_is_the_same_404(daemon, made, who):
    stranger = daemon.client(scopes=ADMIN, **STRANGERS[who])
    seen = 0
    for method, path, operation in routes_with_ids(daemon):
        name = f"{method} {path}"
        has_body = "requestBody" in operation
        assert not has_body or name in CALLS or name in NOT_OF_SESSIONS, f"{name}: how is it called?"
        if name in FOR_ADMINISTRATORS or name in NOT_OF_SESSIONS:
            continue
        if not path.startswith(RUNTIME) and "project" in who:
            continue  # sessions of Dagster are seen by the whole workspace
        mine = "task" if "/tasks/" in path or path.startswith("/chat/") else "id" if path.startswith(RUNTIME) else "dagster"
        foreign = call(stranger, method, path, {"id": made[mine], "cid": made["cid"]})
        missing = call(stranger, method, path, {"id": ABSENT_ID, "cid": made["cid"]})
        assert foreign.status == 404, (name, foreign)
        assert without_dates(foreign) == without_dates(missing), name
        if mine != "task":
            assert foreign.body == (RUNTIME_NOT_FOUND if mine == "id" else NOT_FOUND), name
        seen += 1
    assert seen >= 20


def test_the_same_calls_are_no_404_for_the_owner(daemon, made):
    """The control: what the strangers were refused is there. Only what changes nothing is asked."""
    owner = daemon.client("ana", workspace="blue", project="p1")
    for method, path, _ in routes_with_ids(daemon):
        if method != "GET" or not path.startswith(RUNTIME) or f"GET {path}" in FOR_ADMINISTRATORS:
            continue
        if path.endswith(("/stream", "/attach", "/wait", "/events", "/watch")):
            continue  # these do not end
        answer = call(owner, method, path, {"id": made["id"], "cid": made["cid"]})
        assert answer.body != RUNTIME_NOT_FOUND, (path, answer)


def test_lists_show_nothing_of_it(daemon, made):
    for who in STRANGERS.values():
        stranger = daemon.client(**who)
        shown = stranger.get(RUNTIME).json["sandboxes"]
        assert made["id"] not in [one["sandbox_uuid"] for one in shown]
    for seen_by in ({"user": "ana", "workspace": "blue", "project": "p1"}, {"user": "bob", "workspace": "blue"}):
        shown = daemon.client(**seen_by).get(RUNTIME).json["sandboxes"]
        assert made["id"] in [one["sandbox_uuid"] for one in shown]
    shown = daemon.client("eve", workspace="red", scopes=ADMIN).get(RUNTIME).json["sandboxes"]
    assert made["id"] in [one["sandbox_uuid"] for one in shown], "an administrator sees all"
    assert made["dagster"] in [one["id"] for one in daemon.client("ana", workspace="blue").get(SESSIONS).json]
