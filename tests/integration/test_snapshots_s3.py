"""Snapshots in an object store: what goes there, what comes back, and what happens while it is away."""
import contextlib
import json
import os
import signal
import subprocess
import threading
import time
import uuid
from pathlib import Path

import pytest

from harness import CONFIG, PATIENCE, ROOT, RUNTIME, Daemon, ctl, wait_until
from s3_rig import Store, certificate, fixture_store, fixture_way  # noqa: F401 (fixtures)
from test_snapshots import done, make, restore, snapshots
from test_suspend import at, resume, run, suspend
from test_suspend_durable import files_of, is_durable, restart
from traces import memory_holds

MIB = 1 << 20


class Service(Daemon):
    """Its configuration has a credential."""

    def configure(self, config):
        super().configure(config)
        os.chmod(self.config, 0o600)


@pytest.fixture(name="service")
def fixture_service(store, way):
    service = Service(CONFIG + store.config(way.port))
    yield service
    service.done()


@contextlib.contextmanager
def running(config):
    service = Service(config)
    try:
        yield service
    finally:
        service.done()


def reference(daemon, session):
    text = daemon.sql("SELECT snapshot_ref FROM sandbox_registry WHERE sandbox_uuid = ?", session)[0][0]
    return json.loads(text) if isinstance(text, str) else text


def keys_of(store, session):
    return [key for key in store.keys() if session in key]


def test_a_snapshot_goes_there_and_comes_back(service, store):
    caller = service.client("ana")
    session = caller.create_runtime()
    done(caller, session, "mkdir d && echo kept >d/file && head -c 20000000 /dev/urandom >big && sha256sum big >sum")
    made = make(caller, session)
    keys = keys_of(store, session)
    assert len(keys) == 1 and made["snapshot_id"] in keys[0] and keys[0].startswith("sandboxes/")
    assert len(store.get(keys[0])) == made["bytes"]
    assert not files_of(service, session)
    done(caller, session, "rm -r d big")
    restore(caller, session, made["snapshot_id"], replace=True)
    assert done(caller, session, "cat d/file; sha256sum -c sum") == "kept\nbig: OK\n"
    assert not files_of(service, session)
    assert caller.delete(snapshots(session, f"/{made['snapshot_id']}")).status == 200
    wait_until(lambda: not keys_of(store, session), 20)


def test_a_damaged_object_is_refused(service, store):
    caller = service.client("ana")
    session = caller.create_runtime()
    done(caller, session, "echo kept >file")
    made = make(caller, session)
    key = keys_of(store, session)[0]
    content = store.get(key)
    store.put(key, content[:-1] + bytes([content[-1] ^ 1]))
    answer = caller.post(f"{RUNTIME}/{session}/restore", {"snapshot_id": made["snapshot_id"], "replace": True})
    assert (answer.status, answer.json["code"]) == (500, "snapshot_damaged"), answer
    store.put(key, content + b"x")
    answer = caller.post(f"{RUNTIME}/{session}/restore", {"snapshot_id": made["snapshot_id"], "replace": True})
    assert (answer.status, answer.json["code"]) == (500, "snapshot_damaged"), answer
    store.put(key, content)
    restore(caller, session, made["snapshot_id"], replace=True)


def test_a_suspended_one_is_durable_when_its_object_is_complete(service, store, way):
    caller = service.client("ana")
    session = caller.create_runtime()
    run(caller, session, "mkdir d && echo one >d/file && head -c 20000000 /dev/urandom >big")
    assert suspend(caller, session, durable="wait")["durable"] is True
    first = keys_of(store, session)
    assert reference(service, session)["kind"] == "s3-tar"
    assert [reference(service, session)["key"]] == first
    assert not files_of(service, session)
    resume(caller, session)
    run(caller, session, "echo two >d/file")
    seen = []
    way.rule = lambda method, target: seen.append((is_durable(service, session), len(keys_of(store, session)))) \
        if "partNumber=2" in target else None
    assert suspend(caller, session, durable="wait")["durable"] is True
    assert seen == [(False, 1)]
    wait_until(lambda: len(keys_of(store, session)) == 1, 20)
    assert keys_of(store, session) != first
    restart(service)
    caller = service.client("ana")
    resume(caller, session, "snapshot")
    assert run(caller, session, "cat d/file") == "two\n"
    caller.delete(at(session))
    wait_until(lambda: not keys_of(store, session), 20)


def test_a_store_that_is_away_loses_nothing(service, store, way):
    caller = service.client("ana")
    session = caller.create_runtime()
    run(caller, session, "echo one >file")
    assert suspend(caller, session, durable="wait")["durable"] is True
    resume(caller, session)
    run(caller, session, "echo two >file")
    way.rule = lambda method, target: 503
    answer = suspend(caller, session, durable="wait")
    assert answer["durable"] is False
    assert answer["durable_error"]["code"] == "snapshot_store", answer
    told = {"store": "s3", "failure": "it answers with an error"}
    assert service.root.get("/v1/config").json["snapshot_store"] == told
    assert "it answers with an error" in ctl(service, "doctor").stdout.decode()
    assert len(keys_of(store, session)) == 1
    # What it had is what a fresh tree would get.
    restart(service)
    caller = service.client("ana")
    answer = caller.post(at(session, "/resume"), timeout=120 * PATIENCE)
    assert (answer.status, answer.json["code"], answer.json["retryable"]) == (503, "snapshot_store", True), answer
    way.rule = lambda method, target: None
    resume(caller, session, "snapshot")
    assert service.root.get("/v1/config").json["snapshot_store"] == {"store": "s3", "failure": None}
    assert run(caller, session, "cat file") == "one\n"


def test_it_is_sent_when_the_store_is_back(service, store, way):
    """Without anybody who asks, and without another snapshot."""
    caller = service.client("ana")
    session = caller.create_runtime()
    run(caller, session, "echo kept >file")
    way.rule = lambda method, target: 500
    assert suspend(caller, session, durable="wait")["durable"] is False
    staged = files_of(service, session)
    assert len(staged) == 1
    way.rule = lambda method, target: None
    wait_until(lambda: is_durable(service, session), 60)
    wait_until(lambda: not files_of(service, session))
    assert staged[0].name in keys_of(store, session)[0]
    assert service.log.read_text().count("snapshot of a suspended session") == 1


def test_what_waits_for_the_store_is_not_swept(store, way):
    """However long it is away. The control: a file of nobody's, as old."""
    with running(CONFIG + "[api]\njanitor_interval = 1s\n" + store.config(way.port)) as service:
        caller = service.client("ana")
        session = caller.create_runtime()
        run(caller, session, "echo kept >file")
        way.rule = lambda method, target: 403
        assert suspend(caller, session, durable="wait")["durable"] is False
        staged = files_of(service, session)[0]
        nobodys = staged.with_name(f"{uuid.uuid4()}-{uuid.uuid4()}.tar.zst")
        nobodys.write_bytes(b"x")
        for file in (staged, nobodys):
            os.utime(file, (1, 1))
        wait_until(lambda: not nobodys.exists(), 20)
        time.sleep(2)
        assert staged.exists()
        way.rule = lambda method, target: None
        wait_until(lambda: is_durable(service, session), 60)


def test_a_resume_does_not_wait_for_the_store(service, store, way):
    caller = service.client("ana")
    session = caller.create_runtime()
    run(caller, session, "echo kept >file")
    way.rule = lambda method, target: "stall"
    suspend(caller, session)
    wait_until(lambda: way.requests, 20)
    begin = time.monotonic()
    resume(caller, session)
    assert time.monotonic() - begin < 5 * PATIENCE
    assert run(caller, session, "cat file") == "kept\n"
    wait_until(lambda: not service.processes().get("sandboxd-s3"), 20)
    assert not keys_of(store, session)


def test_a_snapshot_that_cannot_go_is_none(service, store, way):
    caller = service.client("ana")
    session = caller.create_runtime()
    done(caller, session, "echo kept >file")
    way.rule = lambda method, target: 403
    answer = caller.post(snapshots(session), timeout=120 * PATIENCE)
    assert (answer.status, answer.json["code"], answer.json["retryable"]) == (503, "snapshot_store", True), answer
    assert caller.get(snapshots(session)).json["snapshots"] == []
    wait_until(lambda: not files_of(service, session))


def test_rows_of_the_platform_resume(service, store, tmp_path):
    """Their objects are what GNU tar and gzip made, and their references have a kind and a key."""
    caller = service.client("ana")
    session = caller.create_runtime(workspace={"include": ["/session/repo", "/session/none"], "exclude": ["node_modules"]})
    run(caller, session, "mkdir repo && echo ours >repo/file")
    assert suspend(caller, session, durable="wait")["durable"] is True
    service.stop()
    repo = tmp_path / "session" / "repo"
    (repo / "node_modules").mkdir(parents=True)
    (repo / "node_modules" / "x").write_text("not in it\n")
    (repo / "theirs").write_text("of the platform\n")
    (repo / "run").write_text("#!/bin/sh\ncat theirs\n")
    (repo / "run").chmod(0o750)
    (repo / "link").symlink_to("theirs")
    (repo / ("long" * 50)).write_text("")
    subprocess.run(["tar", "-czf", tmp_path / "snapshot.tar.gz", "--ignore-failed-read", "--exclude=node_modules", "--owner=1000",
                    "--group=1000", "-C", tmp_path, "session/repo", "session/none"], check=True, capture_output=True)
    key = f"sandboxes/{uuid.uuid4()}/snapshot.tar.gz"
    store.put(key, (tmp_path / "snapshot.tar.gz").read_bytes())
    service.sql("UPDATE sandbox_registry SET snapshot_ref = ? WHERE sandbox_uuid = ?",
                json.dumps({"kind": "s3-tar", "key": key}), session)
    service.start()
    caller = service.client("ana")
    resume(caller, session, "snapshot")
    assert run(caller, session, "cd repo && ls && ./run && cat link && stat -c %u:%a run") == \
        f"link\n{'long' * 50}\nrun\ntheirs\nof the platform\nof the platform\n1000:750\n"
    assert suspend(caller, session, durable="wait")["durable"] is True
    wait_until(lambda: store.get(key) is None, 20)


@pytest.mark.parametrize("key", ["other/x.tar.gz", "sandboxes/../other/x.tar.gz", "sandboxes/x"])
def test_a_row_leads_to_nothing_beside_the_prefix(service, store, key):
    store.put("other/x.tar.gz", b"not ours")
    caller = service.client("ana")
    session = caller.create_runtime()
    assert suspend(caller, session, durable="wait")["durable"] is True
    service.stop()
    service.sql("UPDATE sandbox_registry SET snapshot_ref = ? WHERE sandbox_uuid = ?",
                json.dumps({"kind": "s3-tar", "key": key}), session)
    service.start()
    caller = service.client("ana")
    answer = caller.post(at(session, "/resume"), timeout=60 * PATIENCE)
    assert answer.status == 503, answer
    caller.delete(at(session))
    time.sleep(1)
    assert store.get("other/x.tar.gz") == b"not ours"


def test_another_sandboxes_object_is_refused(service, store):
    """By its name, whatever the row says."""
    caller = service.client("ana")
    one, other = caller.create_runtime(), caller.create_runtime()
    for session in (one, other):
        run(caller, session, f"echo {session} >file")
        assert suspend(caller, session, durable="wait")["durable"] is True
    theirs = service.sql("SELECT snapshot_ref FROM sandbox_registry WHERE sandbox_uuid = ?", other)[0][0]
    service.stop()
    service.sql("UPDATE sandbox_registry SET snapshot_ref = ? WHERE sandbox_uuid = ?",
                theirs if isinstance(theirs, str) else json.dumps(theirs), one)
    service.start()
    caller = service.client("ana")
    assert caller.post(at(one, "/resume"), timeout=60 * PATIENCE).status == 503
    resume(caller, other, "snapshot")
    assert run(caller, other, "cat file") == f"{other}\n"


def test_encrypted_ones_go_and_come(store, way):
    keys = "keys = *=one:" + "5a" * 32 + "\n"
    with running(CONFIG + store.config(way.port) + keys) as service:
        caller = service.client("ana")
        session = caller.create_runtime()
        done(caller, session, "echo plain-words >file")
        made = make(caller, session)
        assert made["encrypted"] is True
        key = keys_of(store, session)[0]
        assert key.endswith(".tar.zst.enc") and b"plain-words" not in store.get(key)
        done(caller, session, "rm file")
        restore(caller, session, made["snapshot_id"], replace=True)
        assert done(caller, session, "cat file") == "plain-words\n"
        assert suspend(caller, session, durable="wait")["durable"] is True
        assert reference(service, session)["encryption_key"] == "one"
        restart(service)
        resume(service.client("ana"), session, "snapshot")


def test_the_credential_is_nowhere(service, store, way):
    """The control: the helper has it while it runs."""
    caller = service.client("ana")
    session = caller.create_runtime()
    run(caller, session, "head -c 20000000 /dev/urandom >big")
    way.rule = lambda method, target: "stall" if "partNumber=2" in target else None
    suspend(caller, session)
    wait_until(lambda: any("partNumber=2" in target for _, target in way.requests), 30)
    secret = store.secret.encode()

    processes = service.processes()
    assert memory_holds(processes["sandboxd-s3"][0], secret)
    for name in ("sandboxd-api", "sandboxd-egress"):
        assert not any(memory_holds(pid, secret) for pid in processes[name]), name
    assert store.secret not in service.log.read_text()
    for file in Path(service.state).rglob("*"):
        if file.is_file():
            assert secret not in file.read_bytes(), file
    for answer in (service.root.get("/v1/config"), service.root.get("/metrics")):
        assert store.secret not in str(answer)


@contextlib.contextmanager
def mounted(file, over):
    """Of this test's mount namespace."""
    subprocess.run(["mount", "--bind", str(file), over], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", over], check=True)


def test_by_a_name_and_tls(tmp_path):
    """As the service's own root has names and certificates. The control: a certificate that nobody trusts."""
    trusted = "/etc/ssl/certs/ca-certificates.crt"
    files = certificate(tmp_path, "s3.example")
    hosts, both = tmp_path / "hosts", tmp_path / "both"
    hosts.write_text("127.0.0.1 s3.example\n")
    both.write_bytes(Path(trusted).read_bytes() + files[0].read_bytes())
    store = Store(tls=files)
    config = CONFIG + store.config(s3_endpoint=f"https://s3.example:{store.port}")

    def durable():
        with running(config) as service:
            caller = service.client("ana")
            session = caller.create_runtime()
            run(caller, session, "echo kept >file")
            answer = suspend(caller, session, durable="wait")["durable"]
            return answer, service.root.get("/v1/config").json["snapshot_store"]["failure"]

    try:
        with mounted(hosts, "/etc/hosts"):
            assert durable() == (False, "its certificate is not good")
            with mounted(both, trusted):
                assert durable() == (True, None)
    finally:
        store.done()


def test_orphans_are_collected(store, way):
    """Young ones stay, and what is no snapshot of this instance's."""
    with running(CONFIG + "[api]\njanitor_interval = 1s\n" + store.config(way.port)) as service:
        caller = service.client("ana")
        session = caller.create_runtime()
        done(caller, session, "echo kept >file")
        made = make(caller, session)
        key = keys_of(store, session)[0]
        folder = key.rsplit("/", 1)[0]
        orphan = f"{folder}/{uuid.uuid4()}-{uuid.uuid4()}.tar.zst"
        former = f"{folder}/{session}-{uuid.uuid4()}.tar.zst"
        foreign = f"{folder}/notes.txt"
        other = f"sandboxes/ffffffff/{uuid.uuid4()}-{uuid.uuid4()}.tar.zst"
        young = f"{folder}/{uuid.uuid4()}-{uuid.uuid4()}.tar.zst"
        old = time.time() - 7200
        for name in (orphan, former, foreign, other, key):
            if name != key:
                store.put(name, b"x")
            os.utime(store.home / "data" / "snapshots" / name, (old, old))
        store.put(young, b"x")
        restart(service)
        wait_until(lambda: store.get(orphan) is None and store.get(former) is None, 60)
        for name in (foreign, other, key, young):
            assert store.get(name) is not None, name
        caller = service.client("ana")
        restore(caller, session, made["snapshot_id"], replace=True)


def make_old(store, *keys):
    """As the server sees it."""
    at = time.time() - 9 * 86400
    for key in keys:
        os.utime(store.home / "data" / "snapshots" / key, (at, at))


def leave(store, folder, session=None):
    """An object that no row speaks of, which is old."""
    key = f"{folder}/{session or uuid.uuid4()}-{uuid.uuid4()}.tar.zst"
    store.put(key, b"x")
    make_old(store, key)
    return key


def make_durable(caller):
    session = caller.create_runtime()
    run(caller, session, "echo kept >file")
    assert suspend(caller, session, durable="wait")["durable"] is True
    return session


def test_orphans_are_collected_where_uploads_cannot_be_listed(store, way):
    """Some servers do not know how."""
    with running(CONFIG + "[api]\njanitor_interval = 1s\n" + store.config(way.port)) as service:
        session = make_durable(service.client("ana"))
        key, = keys_of(store, session)
        orphan = leave(store, key.rsplit("/", 1)[0])
        way.rule = lambda method, target: 501 if "uploads=" in target else None
        restart(service)
        wait_until(lambda: store.get(orphan) is None, 60)
        assert store.get(key) is not None


def test_what_is_on_its_way_is_not_collected(store, way):
    """A server says of a large object when its upload began, which may be long ago once it is complete. Here it is complete,
    and listed, before the one who sent it has heard of it. The control: an orphan beside it."""
    complete = threading.Event()
    orphans = []

    def removed():
        return [line for line in service.log.read_text().split("\n") if "objects of snapshots removed" in line]

    def late():
        yield b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
        while not complete.wait(0.2):
            yield b" " * 4096
        yield store.ask("GET", query=(("list-type", "2"),))[1].partition(b"?>")[2]

    def rule(method, target):
        if "list-type=2" in target:
            return late()
        if method == "HEAD" and not orphans:
            key = target.partition("/snapshots/")[2]
            make_old(store, key)
            orphans.append(leave(store, key.rsplit("/", 1)[0]))
            complete.set()
            wait_until(removed, 60)
        return None

    way.rule = rule
    with running(CONFIG + "[api]\njanitor_interval = 1s\n" + store.config(way.port)) as service:
        caller = service.client("ana")
        session = caller.create_runtime()
        run(caller, session, "echo kept >file")
        suspend(caller, session)
        wait_until(lambda: is_durable(service, session), 120)
        wait_until(lambda: store.get(orphans[0]) is None, 60)
        assert " n=1 " in removed()[0] and len(keys_of(store, session)) == 1


def test_what_sessions_left_that_are_gone_is_collected(postgres, store):
    """Closed by another host, or without any row. The controls: a session that lives there, and what is young."""
    config = postgres.config("[api]\njanitor_interval = 1s\n") + store.config()
    with running(config) as one:
        gone, lives = (make_durable(one.client("ana")) for _ in range(2))
        key, = keys_of(store, lives)
        folder = key.rsplit("/", 1)[0]
        one.stop()
        with running(config) as two:
            caller = two.client("ana")
            for session in (gone, lives):
                wait_until(lambda session=session: caller.post(at(session, "/resume"), timeout=60).status == 200, 90)
            assert caller.delete(at(gone)).status == 200
            wait_until(lambda: not keys_of(store, gone), 60)
            left = [leave(store, folder, gone), leave(store, folder)]
            kept = leave(store, folder, lives)
            young = f"{folder}/{gone}-{uuid.uuid4()}.tar.zst"
            store.put(young, b"x")
            make_old(store, key)
            postgres.sql("UPDATE sandbox_writers SET since = since - interval '30 days'")
            one.start()
            wait_until(lambda: not [name for name in left if store.get(name) is not None], 120)
            wait_until(lambda: 'msg="objects of snapshots removed" n=2 ' in one.log.read_text(), 60)
            for name in (key, kept, young):
                assert store.get(name) is not None, name


def test_what_another_database_may_speak_of_is_kept(postgres, store):
    """A service that comes to an empty one has no rows there. The controls: a session that was closed there; and one that
    was in that database when they were made."""
    postgres.new_database("empty")
    postgres.ready("empty")
    more = "[api]\njanitor_interval = 1s\n"
    with running(postgres.config(more) + store.config()) as service:
        session = make_durable(service.client("ana"))
        key, = keys_of(store, session)
        make_old(store, key)
        service.stop()
        service.configure(postgres.config(more, database="empty") + store.config())
        service.start()
        caller = service.client("ana")
        closed = make_durable(caller)
        assert caller.delete(at(closed)).status == 200
        left = leave(store, key.rsplit("/", 1)[0], closed)
        restart(service)
        wait_until(lambda: store.get(left) is None, 60)
        assert keys_of(store, session) == [key]
        postgres.sql("UPDATE sandbox_writers SET since = since - interval '30 days'", database="empty")
        restart(service)
        wait_until(lambda: not keys_of(store, session), 60)


def test_a_fresh_service_takes_what_is_there(postgres, store):
    """Another host, another state directory: the row and the object are all that it has."""
    config = postgres.config() + store.config()
    with running(config) as one:
        caller = one.client("ana")
        session = caller.create_runtime()
        run(caller, session, "echo kept >file")
        assert suspend(caller, session, durable="wait")["durable"] is True
    with running(config) as two:
        caller = two.client("ana")
        wait_until(lambda: caller.post(at(session, "/resume"), timeout=60).status == 200, 90)
        assert run(caller, session, "cat file") == "kept\n"


def test_a_host_that_stops_gives_back_what_is_durable(postgres, store):
    """Another one goes on with it at once; what it did not touch is there again when the host is. The controls: one that
    runs, one whose snapshot is a file of the host, and one of a provider that the other may not have."""
    def given(session):
        return postgres.sql(f"SELECT given_back FROM dagster_sandbox_sessions WHERE id = '{session}'")

    config = postgres.config() + store.config()
    with running(postgres.config() + store.config(store="local")) as one, running(config) as two:
        local = make_durable(one.client("ana"))
        one.configure(config)
        restart(one)
        caller = one.client("ana")
        taken, kept, docker = make_durable(caller), make_durable(caller), make_durable(caller)
        postgres.sql(f"UPDATE sandbox_registry SET provider = 'docker' WHERE sandbox_uuid = '{docker}'")
        restart(one)
        caller = one.client("ana")
        runs = caller.create_runtime()
        run(caller, runs, "true")
        # One that has to hurry, because trees or the server take long, gives nothing; none has a tree at the next.
        for _ in range(5):
            one.stop()
            if given(taken) == given(kept) == "1":
                break
            one.start()
        assert [given(session) for session in (taken, kept, runs, local, docker)] == ["1", "1", "", "", ""]
        other = two.client("ana")
        # Not after a lease.
        resume(other, taken, "snapshot")
        assert run(other, taken, "cat file") == "kept\n"
        one.start()
        assert [given(session) for session in (taken, kept)] == ["", ""]
        caller = one.client("ana")
        assert caller.get(at(taken)).status == 404
        assert other.get(at(kept)).status == 404
        resume(caller, kept, "snapshot")
        resume(caller, local, "snapshot")
        # One that is started again keeps what it has.
        assert suspend(caller, kept, durable="wait")["durable"] is True
        assert one.stop(signal.SIGUSR2) == 0
        assert given(kept) == ""
        one.start()
        resume(one.client("ana"), kept)


def test_without_a_store_its_snapshots_are_not_there_now(store, way):
    with running(CONFIG + store.config(way.port)) as service:
        caller = service.client("ana")
        session = caller.create_runtime()
        done(caller, session, "echo kept >file")
        made = make(caller, session)
        service.stop()
        service.configure(CONFIG)
        service.start()
        caller = service.client("ana")
        answer = caller.post(f"{RUNTIME}/{session}/restore", {"snapshot_id": made["snapshot_id"], "replace": True})
        assert (answer.status, answer.json["code"]) == (503, "snapshot_store"), answer
        service.stop()
        service.configure(CONFIG + store.config(way.port, store="local"))
        service.start()
        caller = service.client("ana")
        restore(caller, session, made["snapshot_id"], replace=True)
        made = make(caller, session)
        assert len(keys_of(store, session)) == 1 and len(files_of(service, session)) == 1


def cells():
    """{feature: {column: word}} of docs/stores.md."""
    text = (ROOT / "docs" / "stores.md").read_text()
    part = next(part for part in text.split("\n## ") if part.startswith("The object store"))
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if line.startswith("|")]
    return {row[0]: dict(zip(rows[0][1:], row[1:])) for row in rows[2:]}


TROUBLE = {
    "down": lambda method, target: "drop",
    "slow": lambda method, target: "stall",
    "read-only": lambda method, target: 403 if method in ("PUT", "POST", "DELETE") else None,
}


def word_of(answer, status=200):
    if answer.status == 503:
        assert (answer.json["code"], answer.json["retryable"]) == ("snapshot_store", True), answer
        return "503"
    assert answer.status == status, answer
    return "works"


@pytest.mark.parametrize("column", TROUBLE)
def test_a_store_that_is_away_is_as_documented(service, way, column):
    caller = service.client("ana")
    live, gone, other = (caller.create_runtime() for _ in range(3))
    run(caller, live, "echo kept >file")
    made = [make(caller, live)["snapshot_id"] for _ in range(2)]
    assert suspend(caller, gone, durable="wait")["durable"] is True
    restart(service)
    caller = service.client("ana")
    assert run(caller, live, "cat file; true") is not None
    restore(caller, live, made[0], replace=True)
    way.rule = TROUBLE[column]
    found = {}
    back = {"snapshot_id": made[0], "replace": True}
    found["make a snapshot"] = word_of(caller.post(snapshots(live), timeout=200 * PATIENCE), 201)
    found["put a snapshot back"] = word_of(caller.post(f"{RUNTIME}/{live}/restore", back, timeout=200 * PATIENCE))
    begin = time.monotonic()
    answer = caller.post(at(live, "/suspend"), timeout=60 * PATIENCE)
    found["suspend"] = word_of(answer)
    assert time.monotonic() - begin < 5 * PATIENCE
    wait_until(lambda: "durable_error" in suspend(caller, live), 60)
    assert suspend(caller, live)["durable_error"]["code"] == "snapshot_store"
    found["`durable` of a suspend"] = "waits"
    found["resume of what is not"] = word_of(caller.post(at(gone, "/resume"), timeout=200 * PATIENCE))
    found["delete a snapshot"] = word_of(caller.delete(snapshots(live, f"/{made[1]}")))
    found["commands"] = "works" if run(caller, other, "echo x") == "x\n" else "none"
    found["delete a session"] = word_of(caller.delete(at(other)))
    found["`/readyz`"] = "works" if service.root.get("/readyz").status == 200 else "none"
    answer = caller.post(at(live, "/resume"), timeout=60 * PATIENCE)
    found["resume of what is in memory"] = word_of(answer)
    assert answer.json["resumed"] == "memory"
    assert found == {feature: words[column] for feature, words in cells().items()}
    way.rule = lambda method, target: None
    assert suspend(caller, live, durable="wait")["durable"] is True


def test_one_waits_for_a_slow_store_at_a_time(service, store, way):
    """Each is a file of the host until it is there."""
    caller, other = service.client("ana"), service.client("ana")
    session = caller.create_runtime()
    done(caller, session, "echo kept >file")
    free = threading.Event()
    way.rule = lambda method, target: free.wait(60) and None
    answers = []
    first = threading.Thread(target=lambda: answers.append(caller.post(snapshots(session), timeout=120 * PATIENCE)))
    first.start()
    wait_until(lambda: way.requests, 20)
    answer = other.post(snapshots(session), timeout=60 * PATIENCE)
    assert (answer.status, answer.json["code"], answer.json["retryable"]) == (503, "busy", True), answer
    assert len(files_of(service, session)) == 1
    free.set()
    first.join(120 * PATIENCE)
    assert answers[0].status == 201
    make(other, session)
    assert len(keys_of(store, session)) == 2


def test_what_waits_for_the_store_is_of_the_quota(store, way):
    """A suspend's file and a snapshot's, which are on this host meanwhile. The control: there is room when they have gone."""
    with running(CONFIG + store.config(way.port, max_bytes="20MiB", organization_bytes="30MiB")) as service:
        caller = service.client("ana")
        first, second, third = (caller.create_runtime() for _ in range(3))
        for session in (first, second, third):
            done(caller, session, "head -c 18000000 /dev/urandom >noise")
        way.rule = lambda method, target: 503 if method != "GET" else None
        assert suspend(caller, first, durable="wait")["durable_error"]["code"] == "snapshot_store"
        answer = caller.post(snapshots(second), timeout=200)
        assert (answer.status, answer.json["code"]) == (429, "quota"), answer
        caller.delete(at(first))
        free, begun = threading.Event(), threading.Event()

        def slowly(target):
            yield b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
            begun.set()
            while not free.wait(0.5):
                yield b" " * 2048
            key = target.partition("/snapshots/")[2].partition("?")[0]
            yield store.ask("POST", key, (("uploads", ""),))[1].partition(b"?>")[2]

        way.rule = lambda method, target: slowly(target) if "uploads=" in target and not begun.is_set() else None
        answers = []
        sent = threading.Thread(target=lambda: answers.append(service.client("ana").post(snapshots(second), timeout=600)))
        sent.start()
        assert begun.wait(300)
        answer = caller.post(snapshots(third), timeout=200)
        free.set()
        assert (answer.status, answer.json["code"]) == (429, "quota"), answer
        sent.join(600)
        assert answers[0].status == 201, answers
        assert caller.delete(snapshots(second, "/" + answers[0].json["snapshot_id"])).status == 200
        make(caller, third)


def test_what_is_fetched_does_not_wait_for_what_is_under_way(service, way):
    """More deletions than there are helpers, none of which ends."""
    caller = service.client("ana")
    session = caller.create_runtime()
    done(caller, session, "echo kept >file")
    made = [make(caller, session)["snapshot_id"] for _ in range(6)]
    free = threading.Event()

    def slowly():
        yield b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
        while not free.wait(0.5):
            yield b" " * 2048
        yield b"<a/>"

    def deletions():
        return sum(method == "DELETE" for method, _ in way.requests)

    way.rule = lambda method, target: slowly() if method == "DELETE" else None
    for snapshot in made[1:]:
        assert caller.delete(snapshots(session, "/" + snapshot)).status == 200
    wait_until(lambda: deletions() >= 3, 60)
    restore(caller, session, made[0], replace=True)
    assert deletions() == 3
    free.set()
    wait_until(lambda: deletions() == 5, 60)


def test_deletions_wait_for_those_that_somebody_waits_for(service, way):
    caller = service.client("ana")
    session = caller.create_runtime()
    done(caller, session, "echo kept >file")
    made = [make(caller, session)["snapshot_id"] for _ in range(14)]
    way.rule = lambda method, target: time.sleep(1) if method == "DELETE" else None
    for snapshot in made[1:]:
        assert caller.delete(snapshots(session, "/" + snapshot)).status == 200
    asked = len(way.requests)
    restore(caller, session, made[0], replace=True)
    order = [method for method, _ in way.requests]
    # Those under way when it was asked for are not cut off; and some may have begun while it was on its way here.
    assert order[asked:order.index("GET", asked)].count("DELETE") <= 8, order
    wait_until(lambda: sum(method == "DELETE" for method, _ in way.requests) == 13, 30)


def test_what_could_not_go_stays_here_once_that_is_where_they_are_kept(service, store, way):
    caller = service.client("ana")
    session = caller.create_runtime()
    run(caller, session, "echo kept >file")
    way.rule = lambda method, target: 500
    assert suspend(caller, session, durable="wait")["durable"] is False
    service.configure(CONFIG)
    os.kill(service.process.pid, signal.SIGHUP)
    wait_until(lambda: is_durable(service, session), 60)
    assert reference(service, session)["kind"] == "dir-tar" and not keys_of(store, session)
    restart(service)
    caller = service.client("ana")
    resume(caller, session, "snapshot")
    assert run(caller, session, "cat file") == "kept\n"


def test_objects_of_a_session_that_another_host_took_stay(postgres, store):
    """Its row speaks of what this host sent; nobody here knows that."""
    config = postgres.config() + store.config()
    with running(config) as one:
        caller = one.client("ana")
        session = caller.create_runtime()
        run(caller, session, "echo kept >file")
        assert suspend(caller, session, durable="wait")["durable"] is True
        key = keys_of(store, session)[0]
        own = caller.create_runtime()
        one.stop()
        with running(config) as two:
            caller = two.client("ana")
            wait_until(lambda: caller.post(at(session, "/resume"), timeout=60).status == 200, 90)
            former = key.rsplit("/", 1)[0] + f"/{own}-{uuid.uuid4()}.tar.zst"
            store.put(former, b"x")
            old = time.time() - 9 * 86400
            for name in (key, former):
                os.utime(store.home / "data" / "snapshots" / name, (old, old))
            one.start()
            wait_until(lambda: store.get(former) is None, 60)
            assert keys_of(store, session) == [key]
