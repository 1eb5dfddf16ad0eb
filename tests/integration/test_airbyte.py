"""Connections of Airbyte as components: whose they are, what is written, what never is."""
import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest
import yaml

from harness import PATIENCE, SESSIONS, Daemon, ctl
from traces import files_with

CONNECTIONS = "/dagster/sandbox/airbyte-connections"
NOT_FOUND = {"detail": "airbyte connection not found"}
BAD_NAME = {"detail": "invalid component name"}
TYPE = "dagster_airbyte.AirbyteWorkspaceComponent"
SECRET = "hunter2-of-the-connector"
# Of the public API; a catalog as hostile as its names.
EXPORT = {"data": [
    {"connectionId": "6f1c2d4e-77aa-4c0e-9a51-0d2f6a6f7b10", "name": "Postgres → Iceberg (prod)",
     "sourceId": "0e1d2c3b-0000-4000-8000-00000000000a", "destinationId": "0e1d2c3b-0000-4000-8000-00000000000b",
     "workspaceId": "x", "status": "active", "schedule": {"scheduleType": "manual"},
     "configurations": {"streams": [{"name": "orders", "syncMode": "full_refresh_overwrite"},
                                    {"name": "a\"\ntype: evil"}, {"name": 7}, "x", None]},
     "sourceConfiguration": {"password": SECRET}, "tags": []},
    {"connectionId": "7f1c2d4e-77aa-4c0e-9a51-0d2f6a6f7b11", "name": "a\"\ntype: evil",
     "syncCatalog": {"streams": [{"stream": {"name": "x", "jsonSchema": {"secret": SECRET}},
                                  "config": {"selected": False}}]}},
    {"connectionId": "8f1c2d4e-77aa-4c0e-9a51-0d2f6a6f7b12", "name": "a/b", "configurations": {"streams": SECRET}},
]}


def use(caller, session, connection):
    return caller.post(f"{SESSIONS}/{session}/airbyte", {"airbyte_connection_id": connection})


def airbyte(daemon, *words, **more):
    """As alice of workspace blue."""
    done = ctl(daemon, "airbyte", *words, "-u", "alice", "--workspace", "blue", "--scopes",
               "data:read data:write", socket_path=daemon.control, **more)
    done.stdout = done.stdout.decode()
    return done


def text_of(caller, session, file):
    return caller.run(session, "/bin/cat", f"/session/{file}").text


def keep(daemon, caller, name, connection=None):
    """As its owner's; the table of PostgreSQL is the platform's, which fills it."""
    connection = connection or str(uuid.uuid4())
    if daemon.database:
        row(daemon, name, caller.headers["X-Sandbox-User"], connection, caller.headers.get("X-Sandbox-Workspace"))
        return connection
    answer = caller.request("PUT", f"{CONNECTIONS}/{connection}", {"name": name})
    assert answer.status == 200, answer
    return connection


def forget(daemon, caller, connection):
    if daemon.database:
        daemon.sql("DELETE FROM airbyte_connections WHERE airbyte_connection_id = ? AND owner_user_id = ?",
                   connection, caller.headers["X-Sandbox-User"])
    else:
        assert caller.delete(f"{CONNECTIONS}/{connection}").status == 200


def only_embedded(daemon):
    if daemon.database:
        pytest.skip("the platform keeps the table in PostgreSQL")


def row(daemon, name, owner="alice", connection=None, workspace=None):
    """As another program writes it."""
    made = str(uuid.uuid4())
    times = {} if daemon.database else {"created_at": "2026-01-01 00:00:00", "updated_at": "2026-01-01 00:00:00"}
    values = {"id": made, "name": name, "airbyte_connection_id": connection, "owner_user_id": owner,
              "workspace_id": workspace, **times}
    places = ", ".join("CAST(? AS TEXT)" if column == "name" else "?" for column in values)
    daemon.sql(f"INSERT INTO airbyte_connections ({', '.join(values)}) VALUES ({places})", *values.values())
    return made


def test_a_connection_becomes_a_component(daemon, alice, session):
    connection = keep(daemon, alice, "Postgres → Iceberg (prod)")
    answer = use(alice, session, connection)
    assert answer.status == 200, answer
    assert answer.json["components"] == ["postgres_iceberg_prod.yaml"]
    document = yaml.safe_load(text_of(alice, session, "postgres_iceberg_prod.yaml"))
    assert document["type"] == TYPE
    assert document["attributes"]["connection_selector"] == {"by_id": [connection]}
    workspace = document["attributes"]["workspace"]
    assert all(value.startswith("{{ env.AIRBYTE_") for value in workspace.values())
    assert [f"{{{{ env.{name} }}}}" for name in document["requirements"]["env"]] == list(workspace.values())
    # Again, and it is the same file; the loader inside takes it.
    assert use(alice, session, connection).json["components"] == ["postgres_iceberg_prod.yaml"]
    loaded = alice.post(f"{SESSIONS}/{session}/load")
    assert loaded.json["asset_keys"] == [["sandbox", "postgres_iceberg_prod"]]
    assert not loaded.json["sandbox"].get("problems"), loaded.json


def test_whose_it_is(daemon, alice, bob, carol, root):
    """Missing and foreign are the same bytes, and no id stands in them."""
    connection = keep(daemon, alice, "mine")
    sessions = {caller: caller.create() for caller in (alice, bob, carol, root)}
    assert use(alice, sessions[alice], connection).status == 200
    assert use(carol, sessions[carol], connection).status == 200, "of her workspace"
    assert use(root, sessions[root], connection).status == 200, "the operator sees all"
    foreign = use(bob, sessions[bob], connection)
    missing = use(bob, sessions[bob], str(uuid.uuid4()))
    assert foreign.status == missing.status == 404 and foreign.body == missing.body
    assert foreign.json == NOT_FOUND and connection not in str(foreign.body)
    assert bob.get(CONNECTIONS).json == [] or connection not in str(bob.get(CONNECTIONS).json)
    assert connection in str(carol.get(CONNECTIONS).json)
    assert bob.delete(f"{CONNECTIONS}/{connection}").status == 404
    # Another tenant keeps the same connection without meeting the first one's.
    keep(daemon, bob, "his", connection)
    assert use(bob, sessions[bob], connection).json["components"] == ["his.yaml"]
    assert use(alice, sessions[alice], connection).json["components"] == ["mine.yaml"]
    forget(daemon, alice, connection)
    assert use(alice, sessions[alice], connection).status == 404
    assert use(bob, sessions[bob], connection).status == 200
    # The session comes before the connection.
    assert use(bob, sessions[alice], connection).json["detail"] == "sandbox session not found"
    for caller, made in sessions.items():
        caller.remove(made)


@pytest.mark.parametrize("body", [{}, {"airbyte_connection_id": 7}, {"airbyte_connection_id": None},
                                  {"airbyte_connection_id": ""}, {"airbyte_connection_id": "a\0b"},
                                  {"airbyte_connection_id": "x" * 65}, {"other": "x"}, []])
def test_bodies(alice, session, body):
    assert alice.post(f"{SESSIONS}/{session}/airbyte", body).status == 422


def test_names_that_collide(daemon, alice, session):
    first, second = keep(daemon, alice, "orders"), keep(daemon, alice, "Orders!")
    assert alice.write(session, "own", "type: a.B\n").status == 200
    third = keep(daemon, alice, "own")
    assert use(alice, session, first).status == 200
    for _ in range(2):  # the second time it overwrites itself
        names = use(alice, session, second).json["components"]
        assert len(names) == 3 and any(name.startswith("orders_") and len(name) == 20 for name in names), names
    assert len(use(alice, session, third).json["components"]) == 4, "what was sent is not overwritten"
    assert text_of(alice, session, "own.yaml") == "type: a.B\n"
    assert len(use(alice, session, first).json["components"]) == 4


def test_rows_50_and_51_hostile_names(daemon, alice, session):
    """As another program wrote them: without Airbyte's id the name is in the document."""
    name = "a\"\ntype: evil"
    answer = use(alice, session, row(daemon, name))
    assert answer.json["components"] == ["a_type_evil.yaml"]
    text = text_of(alice, session, "a_type_evil.yaml")
    document = yaml.safe_load(text)
    assert document["type"] == TYPE and document["attributes"]["connection_selector"] == {"by_name": [name]}
    assert text.count("\ntype:") == 0
    for bad in ("../../x", "/x", "", "..", "..\\x", "C:\\x", "a/../../b"):
        assert use(alice, session, row(daemon, bad)).json == BAD_NAME, bad
    for name in ("a/b", "’; DROP TABLE x; --", "{{ env.HOME }}", "- x: &a *a", "# no", "\u202etxt", "\u2028",
                 "%s%n", "'", "|\n  x", "!!python/object/apply:os.system ['id']", "é" * 40, "\x01\x1b[31m", "CON"):
        answer = use(alice, session, row(daemon, name))
        assert answer.status == 200, (name, answer)
    listed = alice.get(f"{SESSIONS}/{session}").json["components"]
    assert "a_b.yaml" in listed and "con.yaml" not in listed
    wanted = set()
    for file in listed:
        document = yaml.safe_load(text_of(alice, session, file))
        assert set(document) == {"type", "attributes", "requirements"} and document["type"] == TYPE
        wanted.update(document["attributes"]["connection_selector"]["by_name"])
    assert {"{{ env.HOME }}", "- x: &a *a", "\u2028", "|\n  x", "\x01\x1b[31m"} <= wanted
    only_embedded(daemon)  # PostgreSQL has none of what follows
    assert use(alice, session, row(daemon, "a\0b")).json == BAD_NAME
    # A megabyte: no name, but an id is enough.
    assert use(alice, session, row(daemon, "x" * (1 << 20))).json == BAD_NAME
    made = row(daemon, "x" * (1 << 20), connection=str(uuid.uuid4()))
    assert "x" * 64 + ".yaml" in use(alice, session, made).json["components"]
    # Not UTF-8 at all.
    assert use(alice, session, row(daemon, b"\xff\xfe")).json == BAD_NAME


def test_table_of_the_platform_is_only_read(daemon, alice):
    if not daemon.database:
        pytest.skip("the embedded store is written")
    connection = keep(daemon, alice, "the platform's")
    for answer in (alice.delete(f"{CONNECTIONS}/{connection}"),
                   alice.request("PUT", f"{CONNECTIONS}/{connection}", {"name": "x"})):
        assert answer.status == 409 and "kept by the platform" in answer.json["detail"]
    assert "the platform's" in [each["name"] for each in alice.get(CONNECTIONS).json]


def test_import_ls_rm(daemon, alice, session, tmp_path):
    only_embedded(daemon)
    file = tmp_path / "connections.json"
    file.write_text(json.dumps(EXPORT))
    done = airbyte(daemon, "import", str(file))
    assert done.returncode == 0, done
    ids = [one["connectionId"] for one in EXPORT["data"]]
    assert done.stdout.split() == ids
    listed = airbyte(daemon, "ls", "-o", "json")
    rows = json.loads(listed.stdout)
    names = {one["airbyte_connection_id"]: one["name"] for one in rows}
    assert {one["connectionId"]: one["name"] for one in EXPORT["data"]}.items() <= names.items()
    assert len(airbyte(daemon, "ls", "-q").stdout.splitlines()) == len(rows), "a name is one line"
    # Twice is once.
    assert airbyte(daemon, "import", "-", stdin=json.dumps(EXPORT["data"]).encode()).returncode == 0
    assert len(json.loads(airbyte(daemon, "ls", "-o", "json").stdout)) == len(rows)
    done = airbyte(daemon, "write", session, ids[0])
    assert done.returncode == 0, done
    # What is configured is nowhere.
    assert files_with(SECRET.encode(), daemon.state) == [] and files_with(ids[0].encode(), daemon.state), "the control"
    assert SECRET not in text_of(alice, session, "postgres_iceberg_prod.yaml")
    done = airbyte(daemon, "rm", *ids)
    assert done.returncode == 0 and done.stdout.split() == ids
    assert airbyte(daemon, "rm", ids[0]).returncode == 3
    assert airbyte(daemon, "write", session, ids[0]).returncode == 3
    broken = tmp_path / "broken.json"
    for text, status in (("{", 4), ('{"data": [{"name": "x"}]}', 1), ('[{"connectionId": "x", "name": "y"}]', 3)):
        broken.write_text(text)
        assert airbyte(daemon, "import", str(broken)).returncode == status, text
    assert airbyte(daemon, "import", str(tmp_path / "none")).returncode == 1


def test_put_refuses(alice):
    url = f"{CONNECTIONS}/{uuid.uuid4()}"
    for body in ({}, {"name": ""}, {"name": "a\0"}, {"name": "x" * 1025}, {"name": "x", "streams": [7]},
                 {"name": "x", "configuration": {}}, {"name": "x", "streams": ["y"] * 2001}):
        assert alice.request("PUT", url, body).status == 422, str(body)[:60]
    assert alice.request("PUT", f"{CONNECTIONS}/not-an-id", {"name": "x"}).json == NOT_FOUND


def test_what_waits_for_the_store_at_the_end_is_dropped():
    """The file is another program's until the service has ended; the sanitizers look for what is left."""
    daemon = Daemon()
    try:
        only_embedded(daemon)
        alice = daemon.client("alice")
        waiting = [threading.Thread(target=lambda: alice.request("PUT", f"{CONNECTIONS}/{uuid.uuid4()}", {"name": "x"}))
                   for _ in range(3)]
        with contextlib.closing(sqlite3.connect(daemon.state / "api" / "api.db", isolation_level=None)) as store:
            store.execute("BEGIN IMMEDIATE")
            for thread in waiting:
                thread.start()
            time.sleep(2)
            daemon.stop()
            store.execute("ROLLBACK")
        for thread in waiting:
            thread.join(30 * PATIENCE)
    finally:
        daemon.done()


def test_it_survives_and_is_rebuilt():
    """Which connection a component came from is known after a stop of the service."""
    daemon = Daemon()
    try:
        alice = daemon.client("alice")
        session = alice.create()
        connection = keep(daemon, alice, "orders")
        assert use(alice, session, connection).status == 200
        daemon.stop()
        daemon.start()
        assert use(alice, session, connection).json["components"] == ["orders.yaml"]
        audit = ctl(daemon, "audit", "--state-dir", str(daemon.state)).stdout.decode()
        assert "component.airbyte" in audit and (daemon.database or "airbyte.put" in audit)
    finally:
        daemon.done()


LOAD = """
import sys
from pathlib import Path
from unittest import mock
import dagster as dg
from dagster.components.testing import create_defs_folder_sandbox
import dagster_airbyte
body = Path(sys.argv[1]).read_text()
with create_defs_folder_sandbox() as sandbox:
    folder = sandbox.defs_folder_path / "orders"
    folder.mkdir(parents=True)
    (folder / "defs.yaml").write_text(body)
    with sandbox.load_component_and_build_defs(defs_path=folder) as (component, defs):
        assert isinstance(component, dagster_airbyte.AirbyteWorkspaceComponent), component
        print(type(component.workspace).__name__, component.connection_selector is not None)
"""


@pytest.fixture(scope="session")
def dagster(tmp_path_factory):
    """Dagster with its Airbyte library, from the Python index."""
    folder = os.environ.get("SANDBOX_TEST_DAGSTER")
    if not folder:
        folder = str(tmp_path_factory.mktemp("dagster"))
        done = subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-compile", "--target", folder,
                               "--root-user-action=ignore", "dagster", "dagster-airbyte"],
                              capture_output=True, text=True, timeout=900 * PATIENCE, check=False)
        if done.returncode != 0:
            pytest.skip("dagster and dagster-airbyte cannot be fetched")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("workspace, fields", [("client", "AirbyteWorkspace"), ("password", "AirbyteWorkspace"),
                                               ("open", "AirbyteWorkspace"), ("cloud", "AirbyteCloudWorkspace")])
def test_real_dagster_loads_it(dagster, tmp_path, workspace, fields):
    daemon = Daemon(config=f"[identity]\ntrusted_peers = 0\n[airbyte]\nworkspace = {workspace}\n")
    try:
        alice = daemon.client("alice")
        session = alice.create()
        assert use(alice, session, keep(daemon, alice, "orders")).status == 200
        file = tmp_path / "defs.yaml"
        file.write_text(text_of(alice, session, "orders.yaml"))
    finally:
        daemon.done()
    env = {name: "1-x" for name in yaml.safe_load(file.read_text())["requirements"]["env"]}
    done = subprocess.run([sys.executable, "-c", LOAD, str(file)], capture_output=True, text=True, timeout=300 * PATIENCE,
                          cwd=tmp_path, check=False,
                          env={**env, "PATH": "/usr/bin:/bin", "PYTHONPATH": dagster, "HOME": str(tmp_path),
                               "DAGSTER_HOME": str(tmp_path), "DAGSTER_DISABLE_TELEMETRY": "1"})
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == [fields, "True"]
