"""Who is asking, and what they may."""
import os

import pytest

from harness import ABSENT_ID, Client, NOT_FOUND, RUNTIME, RUNTIME_NOT_FOUND, SESSIONS
from test_foreign import CALLS


def raw_request(path, extra, method="GET", body=b""):
    lines = [f"{method} {path} HTTP/1.1", "Host: sandboxd", "Connection: close", *extra]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body


def status_of(answer):
    assert answer.startswith(b"HTTP/1.1 "), answer[:80]
    return int(answer.split()[1])


GOOD = ["X-Sandbox-User: alice", "X-Sandbox-Scopes: data:read data:write"]


def test_no_user_is_401_also_for_root(daemon):
    answer = Client(daemon.control).get(SESSIONS)
    assert answer.status == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert answer.json == {"detail": "Authentication required"}


@pytest.mark.parametrize(
    "headers",
    [
        ["X-Sandbox-User: alice", "X-Sandbox-User: bob"],
        ["X-Sandbox-User: alice", "x-sandbox-user: alice"],
        ["X-Sandbox-User:"],
        ["X-Sandbox-User: " + "u" * 37],
        ["X-Sandbox-User: al ice"],
        ["X-Sandbox-User: al\tice"],
        ["X-Sandbox-User: ali\xe9ce"],
        ["X-Sandbox-User: alice;admin"],
        ["X-Sandbox-User: ../alice"],
        ["X-Sandbox-User: alice", "X_Sandbox_User: alice"],
        ["X_Sandbox_User: alice"],
        ["X-Sandbox-User: alice", "X-Sandbox_Scopes: data:read"],
        ["X-Sandbox-User: alice", "X-Sandbox-Workspace: " + "w" * 37],
        ["X-Sandbox-User: alice", "X-Sandbox-Project: a/b"],
        ["X-Sandbox-User: alice", "X-Sandbox-Scopes: " + "s" * 1025],
        ["X-Sandbox-User: alice", "X-Sandbox-Scopes: data:read", "X-Sandbox-Scopes: data:write"],
        ["X-Sandbox-User: alice", "X-Sandbox-Scopes: data:read,data:write"],
    ],
)
def test_malformed_identity_headers_are_400(daemon, headers):
    answer = Client(daemon.control).raw(raw_request(SESSIONS, headers))
    assert status_of(answer) == 400, answer[:200]


def test_identity_headers_on_the_operator_socket_are_400(daemon):
    answer = Client(daemon.operator, user="alice").get(SESSIONS)
    assert answer.status == 400


def as_uid(uid, path, headers):
    """Status of a request that a process with that uid makes; 0: it could not even connect."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresuid(uid, uid, uid)
            answer = Client(path).raw(raw_request(SESSIONS, headers))
            os.write(theirs, answer.split()[1])
        finally:
            os._exit(0)
    os.close(theirs)
    os.waitpid(child, 0)
    with os.fdopen(ours, "rb") as pipe:
        return int(pipe.read() or 0)


def test_peer_that_is_not_trusted_is_nobody(daemon):
    """Whatever its headers say, and whoever may connect; the operator's socket is for root alone."""
    modes = {path: path.stat().st_mode & 0o7777
             for path in (daemon.home, daemon.control, daemon.operator)}
    for path in modes:
        path.chmod(0o777)
    try:
        assert as_uid(0, daemon.control, GOOD) == 200
        assert as_uid(12345, daemon.control, GOOD) == 401
        assert as_uid(12345, daemon.control, []) == 401
        assert as_uid(12345, daemon.operator, []) == 401
        assert as_uid(12345, daemon.operator, GOOD) == 400
        assert as_uid(0, daemon.operator, []) == 200
    finally:
        for path, mode in modes.items():
            path.chmod(mode)


def test_operator_sees_every_session(daemon, alice):
    session = alice.create()
    assert session in [s["id"] for s in daemon.root.get(SESSIONS).json]
    assert daemon.root.remove(session).status == 200


def test_403_lists_exactly_the_missing_scopes(daemon, session):
    for scopes, path, missing in [
        ("data:read", f"/{session}/load", "['data:write']"),
        ("data:write", f"/{session}/load", "['data:read']"),
        ("platform:admin", f"/{session}/load", "['data:read', 'data:write']"),
    ]:
        answer = daemon.client("alice", scopes=scopes, workspace="blue").post(SESSIONS + path)
        assert answer.status == 403, answer
        assert answer.json == {"detail": f"missing scope(s): {missing}"}
    answer = daemon.client("alice", scopes="data:read data:write").post("/dagster/sandbox/janitor")
    assert answer.json == {"detail": "missing scope(s): ['platform:admin']"}


def test_get_needs_data_read(daemon, session):
    answer = daemon.client("alice", scopes="data:write", workspace="blue").get(
        f"{SESSIONS}/{session}")
    assert answer.status == 403


def test_create_needs_a_user_only_beside_data_read(daemon):
    caller = daemon.client("alice", scopes="data:read")
    session = caller.create()
    assert caller.remove(session).status == 403
    assert daemon.client("alice").remove(session).status == 200


def test_order_of_checks(daemon):
    """identity 400, then 401, 403, what is wrong with the body, 404."""
    control = Client(daemon.control)
    url = f"{SESSIONS}/{ABSENT_ID}/components"
    bad = b"{nonsense"

    def status(headers):
        return status_of(control.raw(raw_request(url, headers, "POST", bad)))

    assert status(["X-Sandbox-User:", "X-Sandbox-Scopes: x"]) == 400
    assert status(["X-Sandbox-Scopes: data:read"]) == 401
    assert status(["X-Sandbox-User: alice", "X-Sandbox-Scopes: data:read"]) == 403
    assert status(GOOD) == 422
    alice = daemon.client("alice")
    answer = alice.write(ABSENT_ID, "x", "type: a.B\n")
    assert (answer.status, answer.body) == (404, NOT_FOUND)
    # The component's name depends on the session: 404 comes first.
    assert alice.write(ABSENT_ID, "../x", "type: a.B\n").status == 404


def test_forged_looking_headers_change_nothing(daemon, alice, bob):
    session = alice.create()
    for name in ("X-AQP-User", "X-Forwarded-User", "Authorization", "X-Sandbox-Owner"):
        assert bob.get(f"{SESSIONS}/{session}", headers={name: "alice"}).status == 404
    alice.remove(session)


def test_scopes_are_words_not_prefixes(daemon):
    caller = daemon.client("alice", scopes="data:readx data")
    assert caller.get(SESSIONS).status == 403


def test_a_user_called_operator_is_not_the_operator(daemon):
    session = daemon.root.create()
    task = daemon.root.execute(session)
    impostor = daemon.client("operator")
    assert impostor.get(f"{SESSIONS}/{session}").status == 404
    assert session not in [row["id"] for row in impostor.get(SESSIONS).json]
    assert impostor.get(f"/dagster/sandbox/tasks/{task}").status == 404
    assert impostor.delete(f"{SESSIONS}/{session}").status == 404
    assert daemon.root.frames(task)[-1]["stage"] == "done"
    daemon.root.remove(session)


def test_every_route_for_a_foreign_identity(daemon, session):
    """Walks the route table: what names a session or a task of somebody else is not there."""
    owner = daemon.client("alice", workspace="blue")
    task = owner.execute(session)
    owner.frames(task)
    command = owner.post(f"{RUNTIME}/{session}/commands",
                         {"argv": ["sleep", "100"], "background": True}).json["command_id"]
    stranger = daemon.client("mallory", workspace="black", scopes="data:read data:write")
    paths = daemon.root.get("/openapi.json").json["paths"]
    walked = 0
    for path, methods in paths.items():
        names = [part for part in path.split("/") if part.startswith("{")]
        if not names or "airbyte-connections" in path:  # those are the caller's workspace's
            continue
        url = path.replace(names[0], task if "task" in path or "chat" in path else session)
        url = url.replace("{cid}", command)
        for method in methods:
            row = dict(CALLS.get(f"{method.upper()} {path}", {}))
            answer = stranger.request(method.upper(), url + row.pop("query", ""), **row)
            walked += 1
            if answer.status == 403:
                assert "platform:admin" in answer.json["detail"], (method, path)
                continue
            expected = RUNTIME_NOT_FOUND if path.startswith("/v1") else NOT_FOUND
            assert (answer.status, answer.body) == (404, expected), (method, path, answer)
    assert walked >= 13, walked
    assert owner.get(f"{SESSIONS}/{session}").status == 200
