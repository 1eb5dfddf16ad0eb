"""The store on PostgreSQL: one real server, the service's role on the schema of another."""

import contextlib
import json
import os
import re
import signal
import subprocess
import threading
import time
import uuid
from pathlib import Path

import psycopg2
import pytest

from harness import BIN, CONFIG, PATIENCE, RUNTIME, SESSIONS, Daemon, wait_until
from postgres_rig import DATABASE, OWNER, READER, SERVICE, Postgres

BODY = "type: demo.Thing\n"


@pytest.fixture(scope="module")
def postgres():
    server = Postgres()
    # The platform's own foreign keys, as its migrations have them.
    server.sql(PLATFORM_TABLES)
    server.ready()
    yield server
    server.done()


@pytest.fixture(scope="module")
def daemon(postgres):
    started = Daemon(config=postgres.config(scheme="postgresql+psycopg2"))
    yield started
    started.done()


# Table and constraints of the platform's migration 0034, and what its 0161 adds.
PLATFORM_TABLES = """
CREATE TABLE users (id varchar(36) PRIMARY KEY);
CREATE TABLE workspaces (id varchar(36) PRIMARY KEY);
CREATE TABLE projects (id varchar(36) PRIMARY KEY);
INSERT INTO users VALUES ('alice'), ('bob');
INSERT INTO workspaces VALUES ('blue');
CREATE TABLE dagster_sandbox_sessions (
    id varchar(36) NOT NULL PRIMARY KEY, status varchar(32) NOT NULL DEFAULT 'open',
    components_json json, log_summary_json json, last_run_id varchar(64), folder varchar(512), notes text,
    expires_at timestamp, created_at timestamp NOT NULL, updated_at timestamp NOT NULL,
    owner_user_id varchar(36) REFERENCES users (id) ON DELETE SET NULL,
    workspace_id varchar(36) REFERENCES workspaces (id) ON DELETE SET NULL,
    project_id varchar(36) REFERENCES projects (id) ON DELETE SET NULL,
    env_overrides_json json, ttl_minutes integer);
ALTER TABLE users OWNER TO platform_owner; ALTER TABLE workspaces OWNER TO platform_owner;
ALTER TABLE projects OWNER TO platform_owner; ALTER TABLE dagster_sandbox_sessions OWNER TO platform_owner;
"""

# columns, types, nullability of the reference
REFERENCE_COLUMNS = """id|character varying(36)|NO
status|character varying(32)|NO
components_json|json|YES
log_summary_json|json|YES
last_run_id|character varying(64)|YES
folder|character varying(512)|YES
notes|text|YES
expires_at|timestamp without time zone|YES
created_at|timestamp without time zone|NO
updated_at|timestamp without time zone|NO
owner_user_id|character varying(36)|YES
workspace_id|character varying(36)|YES
project_id|character varying(36)|YES
env_overrides_json|json|YES
ttl_minutes|integer|YES"""


def row(postgres, session, columns):
    return postgres.sql(f"SELECT {columns} FROM dagster_sandbox_sessions WHERE id = '{session}'")


def columns_of(postgres, database):
    return postgres.sql(
        "SELECT a.attname, format_type(a.atttypid, a.atttypmod), CASE WHEN a.attnotnull THEN 'NO' ELSE 'YES' END"
        " FROM pg_attribute a WHERE a.attrelid = 'dagster_sandbox_sessions'::regclass AND a.attnum > 0"
        " AND NOT a.attisdropped ORDER BY a.attnum", database=database)


# --- the schema

def test_migrate_makes_the_table_of_the_reference(postgres):
    postgres.new_database("fresh")
    done = postgres.migrate("--dry-run", database="fresh")
    assert done.returncode == 0 and "would apply 0001_store.sql" in done.stdout, done
    assert postgres.sql("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'", database="fresh") == "0"
    assert "not applied" in postgres.migrate("--status", database="fresh").stdout
    assert "applied 0001_store.sql" in postgres.migrate(database="fresh").stdout
    assert "nothing to do" in postgres.migrate(database="fresh").stdout
    assert "not applied" not in postgres.migrate("--status", database="fresh").stdout
    columns = columns_of(postgres, "fresh").splitlines()
    assert "\n".join(columns[:15]) == REFERENCE_COLUMNS
    assert all(line.endswith("|YES") for line in columns[15:]), columns
    indexes = postgres.sql("SELECT indexdef FROM pg_indexes WHERE tablename = 'dagster_sandbox_sessions'",
                           database="fresh")
    for name, on in (("status", "status"), ("expires_at", "expires_at"), ("last_run_id", "last_run_id"),
                     ("workspace_status", "workspace_id, status")):
        assert f"ix_dagster_sandbox_sessions_{name} ON public.dagster_sandbox_sessions USING btree ({on})" in indexes


def test_migrate_adopts_the_table_of_the_platform(postgres):
    columns = columns_of(postgres, "platform").splitlines()
    assert "\n".join(columns[:15]) == REFERENCE_COLUMNS
    assert all(line.endswith("|YES") for line in columns[15:]), columns


def test_migrate_twice_at_once_does_it_once(postgres):
    postgres.new_database("twice")
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(postgres.migrate(database="twice"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one.returncode for one in answers] == [0] * 4, answers
    assert sum("applied 0001" in one.stdout for one in answers) == 1


def test_migrate_refuses_a_step_that_was_changed(postgres):
    postgres.new_database("changed")
    postgres.ready("changed")
    postgres.sql("UPDATE schema_migrations SET checksum = repeat('0', 64)", database="changed")
    done = postgres.migrate(database="changed")
    assert done.returncode == 1 and "differs" in done.stderr
    with pytest.raises(AssertionError, match="differs from the one applied"):
        Daemon(config=postgres.config(database="changed"))


def test_migrate_failure_leaves_nothing(postgres):
    """The second statement of the step that fails: what is before it is undone."""
    postgres.new_database("half")
    postgres.sql(f"CREATE TABLE sandbox_frames (x int); ALTER TABLE sandbox_frames OWNER TO {OWNER}", database="half")
    assert postgres.migrate(database="half").returncode == 1
    assert postgres.sql("SELECT to_regclass('dagster_sandbox_sessions') IS NULL", database="half") == "t"


def test_migrate_names_who_reads_all_columns(postgres):
    """The service is none of them, nor who reads some columns by name."""
    postgres.new_database("readers")
    postgres.ready("readers")
    grant = "GRANT SELECT {} ON dagster_sandbox_sessions TO {}"
    postgres.sql(grant.format("(id, status)", READER), database="readers")
    assert "warning" not in postgres.migrate(database="readers").stderr
    postgres.sql(grant.format("", READER), database="readers")
    done = postgres.migrate(database="readers")
    assert done.returncode == 0 and f"warning: these roles read all columns of dagster_sandbox_sessions, " \
        f"env_overrides_json too: {READER}\n" in done.stderr, done
    postgres.sql(grant.format("", "PUBLIC"), database="readers")
    assert f": PUBLIC, {READER}\n" in postgres.migrate(database="readers").stderr


def test_migrate_print_undo_undoes(postgres):
    postgres.new_database("undone")
    assert postgres.migrate(database="undone").returncode == 0
    undo = postgres.migrate("--print-undo", database="undone").stdout
    postgres.sql(undo, database="undone")
    assert columns_of(postgres, "undone") == REFERENCE_COLUMNS
    assert postgres.migrate(database="undone").returncode == 0


def test_migrate_takes_no_file_that_others_read(postgres):
    path = postgres.home / "open.dsn"
    path.write_text(postgres.dsn(OWNER))
    path.chmod(0o644)
    done = subprocess.run([str(BIN / "sandboxctl"), "migrate", "--status", "--dsn-file", str(path)],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "others can read" in done.stderr
    assert postgres.passwords[OWNER] not in done.stderr


def test_service_without_a_schema_says_what_to_do(postgres):
    postgres.new_database("empty")
    with pytest.raises(AssertionError, match="run sandboxctl migrate"):
        Daemon(config=postgres.config(database="empty"))


# --- rows

@pytest.mark.parametrize("part, passed", [("sessions", 6), ("tasks", 6), ("outage", 2), ("lease", 6)])
def test_store_passes_the_suite_of_the_embedded_one(postgres, part, passed):
    suite = BIN.parent / f"tests/unit/test_store_{part}"
    if not suite.exists():
        pytest.skip("a build without unit tests")
    postgres.new_database("suite")
    postgres.ready("suite")
    done = subprocess.run([str(suite)], env={"SANDBOX_TEST_DSN": postgres.dsn(database="suite")},
                          capture_output=True, text=True, timeout=120 * PATIENCE, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert int(re.search(r"PASSED  \] (\d+) test", done.stderr).group(1)) >= passed


def test_session_is_a_row(postgres, alice, bob):
    answer = alice.post(SESSIONS, {"ttl_minutes": 30})
    assert answer.status == 201, answer
    assert answer.json["sandbox"]["persisted"] is True, answer.json
    session = answer.json["id"]
    assert row(postgres, session, "status, owner_user_id, workspace_id, ttl_minutes") == "open|alice|blue|30"
    assert row(postgres, session, "to_char(created_at, 'YYYY-MM-DD\"T\"HH24:MI:SS.US')") == answer.json["created_at"]
    assert [one["id"] for one in alice.get(SESSIONS).json] == [session]
    assert bob.get(f"{SESSIONS}/{session}").status == 404
    assert alice.remove(session).status == 200
    assert row(postgres, session, "status, closed_reason") == "closed|deleted"


def test_owner_that_the_platform_does_not_know_is_a_text(postgres, daemon):
    stranger = daemon.client("stranger", workspace="nowhere", project="none")
    session = stranger.create()
    assert row(postgres, session, "owner_user_id, owner_text, workspace_id, workspace_text, project_text, tenant") \
        == "|stranger||nowhere|none|t"
    assert stranger.get(f"{SESSIONS}/{session}").json["sandbox"]["persisted"] is True
    known = daemon.client("alice", workspace="nowhere")
    other = known.create()
    assert row(postgres, other, "owner_user_id, workspace_id, workspace_text") == "alice||nowhere"
    for caller, one in ((stranger, session), (known, other)):
        caller.remove(one)


def test_components_are_there_for_the_platform(postgres, alice, session):
    alice.write(session, "one", BODY)
    alice.write(session, "two", "a: \"\u00e9\"\n")
    assert json.loads(row(postgres, session, "components_json")) == {"one.yaml": BODY, "two.yaml": "a: \"\u00e9\"\n"}
    for name in ("big", "bigger"):
        assert alice.write(session, name, "x: " + "y" * 600000 + "\n").status == 200
    assert row(postgres, session, "components_json IS NULL") == "t"


def test_values_are_for_the_service_alone(postgres, alice):
    """The grants of docs/postgresql.md."""
    secret = f"kafka-{uuid.uuid4().hex}.example"
    made = alice.post(RUNTIME, {"endpoints": {"kafka_bootstrap": f"{secret}:9092"}})
    if made.status != 201:
        made = alice.post(SESSIONS, {"env_overrides": {"kafka_bootstrap": f"{secret}:9092"}})
    postgres.sql(f"GRANT SELECT (id, status, components_json, owner_user_id) ON dagster_sandbox_sessions TO {READER}")
    assert postgres.sql("SELECT count(id) > 0 FROM dagster_sandbox_sessions", role=READER) == "t"
    for column in ("env_overrides_json", "envs_json", "*"):
        with pytest.raises(subprocess.CalledProcessError) as refused:
            postgres.sql(f"SELECT {column} FROM dagster_sandbox_sessions", role=READER)
        assert "permission denied" in refused.value.stderr
    assert postgres.sql("SELECT count(env_overrides_json) > 0 FROM dagster_sandbox_sessions", role=SERVICE) == "t"


def test_rows_of_the_platform_are_taken_over(postgres):
    """Written as its Python code does: some columns, naive UTC, components in the row."""
    sessions = [str(uuid.uuid4()) for _ in range(3)]
    components = [json.dumps({"daily.yaml": BODY, "odd.yaml": "a: \u00e9\n"}), '{"nul.yaml": "a\\u0000b"}', "[1]"]
    for session, document in zip(sessions, components):
        postgres.sql(
            "INSERT INTO dagster_sandbox_sessions (id, status, components_json, expires_at, created_at, updated_at,"
            f" owner_user_id, workspace_id) VALUES ('{session}', 'running', '{document}',"
            " timezone('UTC', now()) + interval '1 hour', timezone('UTC', now()), timezone('UTC', now()),"
            " 'alice', 'blue')")
    own = Daemon(config=postgres.config())
    try:
        alice = own.client("alice", workspace="blue")
        seen = {one["id"]: one for one in alice.get(SESSIONS).json}
        assert set(sessions) <= set(seen)
        assert sorted(seen[sessions[0]]["components"]) == ["daily.yaml", "odd.yaml"]
        assert seen[sessions[1]]["components"] == [] and seen[sessions[2]]["components"] == []
        assert alice.execute(sessions[0])
        for session in sessions:
            assert alice.remove(session).status == 200
            assert row(postgres, session, "status") == "closed"
    finally:
        own.done()


def platform_row(postgres, owner="alice", workspace="NULL", expires="1 hour", status="open"):
    """As the platform's code writes one while we run."""
    session = str(uuid.uuid4())
    postgres.sql(
        "INSERT INTO dagster_sandbox_sessions (id, status, components_json, expires_at, created_at, updated_at,"
        f" owner_user_id, workspace_id) VALUES ('{session}', '{status}', '{json.dumps({'daily.yaml': BODY})}',"
        f" timezone('UTC', now()) + interval '{expires}', timezone('UTC', now()), timezone('UTC', now()),"
        f" '{owner}', {workspace})")
    return session


def test_rows_that_come_later_are_found(postgres, daemon, alice, bob, carol):
    """One that is only in the table is found at its first use, and its tree is made from it."""
    session = platform_row(postgres)
    url = f"{SESSIONS}/{session}"
    foreign, missing = bob.get(url), bob.get(f"{SESSIONS}/{uuid.uuid4()}")
    assert foreign.status == missing.status == 404 and foreign.body == missing.body
    assert row(postgres, session, "instance") in ("", None), "who may not see it takes nothing"
    assert alice.get(url).json["components"] == ["daily.yaml"]
    assert row(postgres, session, "instance") and session in str(alice.get(SESSIONS).json)
    frames = alice.frames(alice.execute(session))
    assert frames[-1]["stage"] == "done" and ["sandbox", "daily"] in [f.get("asset_key") for f in frames]
    assert alice.remove(session).status == 200 and row(postgres, session, "status") == "closed"
    assert alice.get(url).status == 404
    # The first use is a write; many come at once; the row says running; the workspace is enough.
    other = platform_row(postgres, status="running", workspace="'blue'", owner="bob")
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(carol.write(other, f"c{len(answers)}", BODY).status))
               for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [200] * 8
    assert carol.remove(other).status == 200
    assert alice.get(f"{SESSIONS}/{platform_row(postgres, expires='-1 minute')}").status == 404
    assert alice.get(f"{SESSIONS}/{platform_row(postgres, status='closed')}").status == 404


def test_instances_do_not_see_each_other(postgres, daemon, alice, session):
    own = Daemon(config=postgres.config())
    try:
        assert own.client("alice", workspace="blue").get(f"{SESSIONS}/{session}").status == 404
        assert own.root.get(SESSIONS).json == []
    finally:
        own.done()
    assert alice.get(f"{SESSIONS}/{session}").status == 200


def test_a_copied_state_directory_is_told_apart(postgres, own):
    """Two services that write as one instance: both would take each other's place without end."""
    alice = own.client("alice")
    session = alice.create()
    assert "another service writes as this one" not in own.log.read_text()
    copy = Daemon(config=postgres.config())
    try:
        assert copy.stop() == 0
        name = next(own.state.rglob("store-instance")).relative_to(own.state)
        mine = (copy.state / name).read_bytes()
        (copy.state / name).write_bytes((own.state / name).read_bytes())
        copy.start()
        alice.write(session, "one", BODY)
        wait_until(lambda: "another service writes as this one" in own.log.read_text(), 10, "it is said")
        assert "remove store-instance" in own.log.read_text()
        # As it says.
        copy.stop()
        (copy.state / name).write_bytes(mine)
        copy.start()
        wait_until(lambda: ready(own) == 200, 20, "its place is its own again")
        assert alice.write(session, "two", BODY).status == 200
    finally:
        copy.done()


def test_password_is_in_no_log_and_no_argument(postgres, daemon):
    password = postgres.passwords[SERVICE]
    assert password in daemon.config.read_text()  # the control
    assert password not in daemon.log.read_text()
    for pids in daemon.processes().values():
        for pid in pids:
            for name in ("cmdline", "environ"):
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has one job, and is done
                    assert password.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()


def test_password_of_its_own_option(postgres):
    own = Daemon(config=postgres.config(password=False, extra=f"password = {postgres.passwords[SERVICE]}"))
    own.client("alice").create()
    own.done()
    with pytest.raises(AssertionError, match="refuses the login") as refused:
        Daemon(config=postgres.config(password=False, extra="password = wr0ng-passw0rd"))
    assert "wr0ng-passw0rd" not in str(refused.value)
    with pytest.raises(AssertionError, match="wants a password") as refused:
        Daemon(config=postgres.config(password=False))
    assert "WARNING" not in str(refused.value)


@pytest.fixture
def certified(postgres, tmp_path):
    """The server has a certificate for store.example, of an authority that this host trusts."""
    authority = tmp_path / "authority.pem"
    key = postgres.home / "server.key"
    for argv in (["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=authority",
                  "-keyout", tmp_path / "authority.key", "-out", authority],
                 ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=store.example",
                  "-addext", "subjectAltName=DNS:store.example", "-addext", "basicConstraints=CA:FALSE",
                  "-CA", authority, "-CAkey", tmp_path / "authority.key", "-keyout", key,
                  "-out", postgres.home / "server.pem"]):
        subprocess.run(["openssl", *argv], check=True, capture_output=True)
    os.chown(key, postgres.user.pw_uid, postgres.user.pw_gid)
    os.chmod(postgres.home / "server.pem", 0o644)
    authority.chmod(0o644)
    trusted = "/etc/ssl/certs/ca-certificates.crt"  # of this test's mount namespace
    subprocess.run(["mount", "--bind", authority, trusted], check=True)
    postgres.restart(settings=("ssl=on", f"ssl_cert_file={postgres.home}/server.pem", f"ssl_key_file={key}"))
    yield
    postgres.restart()
    subprocess.run(["umount", trusted], check=True)


def test_the_certificate_of_the_server_is_checked(postgres, certified):
    dsn = postgres.dsn().replace("@127.0.0.1:", "@{}:") + "?hostaddr=127.0.0.1&sslmode=verify-full"
    own = Daemon(config=f"{CONFIG}\n[store]\ndsn = {dsn.format('store.example')}\n")
    own.client("alice").create()
    own.done()
    # The control: the same authority, another name; and an authority that the host does not know.
    wrong = [dsn.format("other.example"), dsn.format("store.example") + "&sslrootcert=/etc/ssl/certs/none.pem"]
    for text in wrong:
        with pytest.raises(AssertionError, match="certificate is not accepted"):
            Daemon(config=f"{CONFIG}\n[store]\ndsn = {text}\n")


# --- the server is away

def ready(daemon):
    return daemon.root.get("/readyz").status


def why_not_ready(daemon):
    return daemon.root.get("/readyz").json.get("parts", {}).get("store")


@pytest.fixture
def own(postgres):
    """Others were on the database before, and sessions go on in an outage all the same."""
    started = Daemon(config=postgres.config("freeze_without_lease = no"))
    yield started
    started.done()


def test_server_that_stops_loses_nothing(postgres, own):
    alice = own.client("alice", workspace="blue")
    before = alice.create()
    postgres.stop(signal.SIGQUIT)
    began = time.monotonic()
    answer = alice.post(SESSIONS, {})
    assert answer.status == 201 and answer.json["sandbox"]["persisted"] is False, answer
    assert answer.headers["Sandbox-Degraded"] == "store"
    assert time.monotonic() - began < 10 * PATIENCE
    session = answer.json["id"]
    assert alice.write(session, "one", BODY).status == 200
    assert alice.run(before, "/bin/true").code == 0
    task = alice.execute(session)
    assert alice.frames(task)[-1]["stage"] == "done"
    wait_until(lambda: ready(own) == 503, 10, "not ready")
    wait_until(lambda: why_not_ready(own) == "the server cannot be reached: connection refused", 10, "it says why")
    postgres.start()
    wait_until(lambda: alice.get(f"{SESSIONS}/{session}").json["sandbox"]["persisted"], 20, "the row is written")
    wait_until(lambda: ready(own) == 200, 20, "ready again")
    assert row(postgres, session, "status, owner_user_id") == "open|alice"
    wait_until(lambda: postgres.sql(f"SELECT status FROM sandbox_tasks WHERE id = '{task}'") == "done", 20, "the task")
    frames = postgres.sql(f"SELECT string_agg(stage, ' ' ORDER BY seq) FROM sandbox_frames WHERE task_id = '{task}'")
    assert frames.split()[0] == "start" and frames.split()[-1] == "done"


def test_server_that_is_away_and_what_only_it_knows(postgres, own):
    """The rows of the table in docs/postgresql.md about what is not in memory."""
    alice = own.client("alice", workspace="blue")
    session = alice.create()
    alice.write(session, "one", BODY)
    task = alice.execute(session)
    assert alice.frames(task)[-1]["stage"] == "done"
    own.stop()
    own.start()
    postgres.stop()
    try:
        wait_until(lambda: ready(own) == 503, 10, "not ready")
        assert alice.get(f"{SESSIONS}/{session}").json["components"] == ["one.yaml"]
        for answer in (alice.get(f"{SESSIONS}/{session}/tasks"), alice.get(f"/dagster/sandbox/tasks/{task}"),
                       alice.get(f"/dagster/sandbox/tasks/{task}/stream"),
                       alice.post(f"{SESSIONS}/{session}/load"),
                       alice.post(f"{RUNTIME}/{session}/commands", {"argv": ["/bin/true"]})):
            assert answer.status == 503 and "store unavailable" in answer.json["detail"], answer
    finally:
        postgres.start()
    wait_until(lambda: ready(own) == 200, 20, "ready again")
    assert alice.frames(task)[-1]["stage"] == "done"
    assert alice.run(session, "/bin/true").code == 0


def test_server_that_stands_still_holds_up_nobody(postgres, own):
    alice = own.client("alice", workspace="blue")
    with postgres.paused():
        answer = alice.post(SESSIONS, {}, timeout=20 * PATIENCE)
        assert answer.status == 201 and answer.json["sandbox"]["persisted"] is False
        assert alice.shell(answer.json["id"], "echo here").text == "here\n"
    session = answer.json["id"]
    wait_until(lambda: alice.get(f"{SESSIONS}/{session}").json["sandbox"]["persisted"], 30, "the row is written")
    assert postgres.sql(f"SELECT count(*) FROM dagster_sandbox_sessions WHERE id = '{session}'") == "1"


def test_what_a_trigger_says_is_in_no_log(postgres, own):
    """The platform's own, which may repeat the row."""
    postgres.sql("CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN"
                 " RAISE WARNING 'row %', NEW.env_overrides_json; RETURN NEW; END$$;"
                 "CREATE TRIGGER tell BEFORE INSERT ON dagster_sandbox_sessions FOR EACH ROW EXECUTE FUNCTION tell()")
    try:
        alice = own.client("alice", workspace="blue")
        alice.create(env_overrides={"polaris_base_url": "http://marked.example:8181"})
    finally:
        postgres.sql("DROP TRIGGER tell ON dagster_sandbox_sessions; DROP FUNCTION tell()")
    assert "marked" not in own.log.read_text()


def test_read_that_was_slow_is_over_with_its_answer(postgres, own):
    """No write comes after it that would say so."""
    alice = own.client("alice", workspace="blue")
    session = alice.create()
    alice.write(session, "one", BODY)
    task = alice.execute(session)
    alice.frames(task)
    own.stop()
    own.start()
    with contextlib.closing(psycopg2.connect(host=str(postgres.home), port=postgres.port, user="postgres",
                                             dbname=DATABASE)) as other, other.cursor() as cursor:
        cursor.execute("LOCK TABLE sandbox_tasks IN ACCESS EXCLUSIVE MODE")
        wait_until(lambda: alice.get(f"/dagster/sandbox/tasks/{task}").status == 503, 2, "it is slow")
    wait_until(lambda: ready(own) == 200, 5, "ready again")
    assert alice.get(f"/dagster/sandbox/tasks/{task}").status == 200


def test_server_that_is_read_only(postgres, own):
    alice = own.client("alice", workspace="blue")
    old = alice.create()
    postgres.restart(settings=("default_transaction_read_only=on",))
    answer = alice.post(SESSIONS, {})
    assert answer.status == 201 and answer.json["sandbox"]["persisted"] is False
    assert alice.get(f"{SESSIONS}/{old}").status == 200
    wait_until(lambda: why_not_ready(own) == "the server is read-only", 20, "it says why")
    postgres.restart()
    wait_until(lambda: alice.get(f"{SESSIONS}/{answer.json['id']}").json["sandbox"]["persisted"], 30, "it is written")


def test_worker_that_dies_while_the_server_is_away_comes_back_with_it(postgres, own):
    alice = own.client("alice", workspace="blue")
    session = alice.create()
    own.deaths_expected = True
    postgres.stop()
    own_worker = own.worker_pid("sandboxd-api")
    os.kill(own_worker, signal.SIGKILL)
    time.sleep(1)
    postgres.start()
    wait_until(lambda: own.ready(), 30, "the worker is back")
    assert alice.get(f"{SESSIONS}/{session}").json["sandbox"]["tree"] == "live"


def test_restarts_of_the_server_under_load_lose_and_double_nothing(postgres, own):
    """Whoever was told `persisted: true` has one row; the others have one as well, later."""
    told, stop = [], threading.Event()

    def load(number):
        caller = own.client(f"u{number}", workspace=f"w{number}")
        while not stop.is_set():
            answer = caller.post(SESSIONS, {}, timeout=60 * PATIENCE)
            if answer.status != 201:
                time.sleep(0.1)
                continue
            session = answer.json["id"]
            task = caller.execute(session)
            caller.frames(task)
            caller.remove(session)
            told.append((session, task))

    threads = [threading.Thread(target=load, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for sig in (signal.SIGQUIT, signal.SIGINT, signal.SIGQUIT):
        time.sleep(1.5)
        postgres.restart(sig)
    try:
        wait_until(lambda: len(told) > 10, 60, "some were told")
    finally:
        stop.set()
    for thread in threads:
        thread.join()
    wait_until(lambda: ready(own) == 200, 20, "ready again")
    wait_until(lambda: own.root.get("/metrics").body.find(b"sandboxd_store_waiting 0") >= 0, 60, "all is written")
    rows = dict(line.split("|") for line in postgres.sql(
        "SELECT id, status FROM dagster_sandbox_sessions WHERE owner_text LIKE 'u_'").splitlines())
    states = dict(line.split("|") for line in postgres.sql("SELECT id, status FROM sandbox_tasks").splitlines())
    assert {session for session, _ in told} <= set(rows)
    assert {rows[session] for session, _ in told} == {"closed"}
    assert {states[task] for _, task in told} <= {"done"}
    holes = postgres.sql("SELECT task_id FROM sandbox_frames GROUP BY 1 HAVING count(*) <> max(seq)"
                         " OR count(*) FILTER (WHERE stage IN ('done', 'error')) <> 1")
    assert [task for _, task in told if task in holes] == []
