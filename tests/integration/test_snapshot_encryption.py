"""Snapshots that are encrypted with the operator's keys, and a store of snapshots that cannot be written."""
import contextlib
import json
import os
import re
import signal
import subprocess

import pytest

from harness import ASAN, CONFIG, PATIENCE, RUNTIME, Daemon, ctl, status_of, wait_until
from small_disk import SmallDisk
from test_snapshots import done, files_of, folder_of, make, restore, snapshots
from test_suspend import at, resume, suspend

MISSING = 'msg="snapshots need a key that is not configured"'
WORD = "a word that only this file has"
KEYS = {name: (f"{number:02x}" * 32) for number, name in enumerate(("one", "two", "other"), 0xa1)}


class Keyed(Daemon):
    """With a drop-in for keys, which only root may read."""

    def keys(self, *entries, encryption=None, mode=0o600):
        """From the next start or reload on. ORGANISATION=ID, the key is the id's."""
        folder = self.home / "conf.d"
        folder.mkdir(exist_ok=True)
        path = folder / "50-keys.conf"
        path.unlink(missing_ok=True)
        if entries or encryption:
            lines = [f"keys = {entry}:{KEYS[entry.split('=')[1]]}" for entry in entries]
            lines += [f"encryption = {encryption}"] if encryption else []
            path.touch(mode=0o600)
            path.write_text("\n".join(["[snapshots]", *lines, ""]))
            path.chmod(mode)

    def reload(self):
        before = self.root.get("/v1/config").json["generation"]
        os.kill(self.process.pid, signal.SIGHUP)
        wait_until(lambda: self.root.get("/v1/config").json["generation"] > before, 30, "reloaded")

    def refuses(self, why):
        os.kill(self.process.pid, signal.SIGHUP)
        wait_until(lambda: why in self.root.get("/v1/config").json["text"], 30, why)
        wait_until(lambda: self.root.get("/v1/config").json["refused"], 30, "the reload is refused")


@pytest.fixture(name="keyed")  # and its keys are where they were put and nowhere else
def fixture_keyed():
    started = Keyed(CONFIG)
    try:
        yield started
        told = started.log.read_text()
        answers = [started.root.get(path).body.decode() for path in ("/metrics", "/v1/config")]
        kept = [path.read_bytes() for path in started.state.rglob("*") if path.is_file() and not path.is_symlink()]
    finally:
        started.done()
    for key in KEYS.values():
        assert all(key not in text for text in (told, *answers))
        assert all(key.encode() not in data and bytes.fromhex(key) not in data for data in kept)


def sandbox(caller):
    """One with compressible text, so that what is plain can be seen to be."""
    session = caller.post(RUNTIME, {"profile": "agent", "workspace": {"include": ["w"]}}).json["sandbox_uuid"]
    done(caller, session, f"mkdir w; echo '{WORD}' >w/file; head -c 300000 /dev/urandom >w/noise")
    return session


def content(daemon, name):
    """What zstd makes of the file; b"": nothing."""
    path = folder_of(daemon) / name
    return subprocess.run(["zstd", "-dc", path], capture_output=True, check=False, timeout=60 * PATIENCE).stdout


def counts(daemon):
    text = daemon.root.get("/metrics").body.decode()
    return {f"{name}{labels}": int(value) for name, labels, value in
            re.findall(r"^sandboxd_((?:snapshot|frozen|sessions_frozen|resumes|demotions)\w*)(\{[^}]*\})? (\d+)$", text, re.M)}


def held(pid):
    """What its descriptors are of."""
    found = []
    for number in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/{pid}/fd/{number}"))
    return found


def restart(daemon):
    daemon.stop()
    daemon.start()
    return daemon.client("ana")


def test_what_is_in_the_file(keyed):
    caller = keyed.client("ana")
    session = sandbox(caller)
    plain = make(caller, session)
    assert plain["encrypted"] is False
    assert WORD.encode() in content(keyed, files_of(keyed, session)[0])  # the control
    keyed.keys("*=one")
    keyed.reload()
    worker = keyed.worker_pid("sandboxd-api")
    assert ASAN or int(status_of(worker)["VmLck"].split()[0]) > 0  # the keys
    assert [name for name in held(worker) if "memfd:" in name]  # the control
    assert not [name for name in held(worker) if "memfd:api-config" in name]
    secret = make(caller, session)
    assert secret["encrypted"] is True
    name = f"{session}-{secret['snapshot_id']}.tar.zst.enc"
    assert name in files_of(keyed, session)
    data = (folder_of(keyed) / name).read_bytes()
    assert WORD.encode() not in data and b"\x28\xb5\x2f\xfd" not in data[:4096] and content(keyed, name) == b""
    assert counts(keyed)['snapshots{encrypted="yes"}'] == counts(keyed)['snapshots{encrypted="no"}'] == 1
    assert counts(keyed)['snapshot_bytes{encrypted="yes"}'] == secret["bytes"] == len(data)
    for one in (plain, secret):  # what was there before stays readable
        done(caller, session, "rm -r w")
        restore(caller, session, one["snapshot_id"])
        assert done(caller, session, "cat w/file") == WORD + "\n"
    keyed.keys("*=one", encryption="off")
    keyed.reload()
    assert make(caller, session)["encrypted"] is False
    restore(caller, session, secret["snapshot_id"], replace=True)
    assert caller.delete(f"{RUNTIME}/{session}").status == 200


def test_over_a_stop_of_the_service(keyed):
    keyed.keys("*=one", encryption="required")
    keyed.reload()
    caller = keyed.client("ana")
    session = sandbox(caller)
    assert suspend(caller, session, durable="wait")["durable"] is True
    assert [name.endswith(".enc") for name in files_of(keyed, session)] == [True]
    caller = restart(keyed)
    resume(caller, session, "snapshot")
    assert done(caller, session, "cat w/file") == WORD + "\n"
    assert counts(keyed)['snapshots{encrypted="yes"}'] == 1
    # A tree that is lost later begins with it, too.
    caller = restart(keyed)
    assert done(caller, session, "cat w/file") == WORD + "\n"
    assert caller.delete(f"{RUNTIME}/{session}").status == 200


def test_rotation(keyed):
    keyed.keys("*=one")
    keyed.reload()
    caller = keyed.client("ana")
    session = sandbox(caller)
    first = make(caller, session)["snapshot_id"]
    keyed.keys("*=one", "*=two")
    keyed.reload()
    second = make(caller, session)["snapshot_id"]
    told = {"one": {"configured": True, "snapshots": 1}, "two": {"configured": True, "snapshots": 1}}
    assert keyed.root.get("/v1/config").json["snapshot_keys"] == told
    assert [s["key"] for s in keyed.root.get(snapshots(session)).json["snapshots"]] == ["one", "two"]
    assert all(s["encrypted"] and "key" not in s for s in caller.get(snapshots(session)).json["snapshots"])
    listed = ctl(keyed, "snapshot", "ls", session).stdout.decode().splitlines()
    assert [line.split()[-1] for line in listed] == ["KEY", "one", "two"]
    for one in (first, second):
        restore(caller, session, one, replace=True)
    assert MISSING not in keyed.log.read_text()
    keyed.keys("*=two")
    keyed.reload()
    wait_until(lambda: f'{MISSING} key="one" snapshots=1' in keyed.log.read_text(), 30, "a line of the log")
    answer = restore(caller, session, first, 409, replace=True)
    assert (answer["code"], answer["retryable"]) == ("snapshot_key_missing", False)
    assert answer["detail"] == "the key one that the snapshot is encrypted with is not configured"
    assert done(caller, session, "cat w/file") == WORD + "\n"  # nothing was touched
    told["one"]["configured"] = False
    assert keyed.root.get("/v1/config").json["snapshot_keys"] == told
    listed = ctl(keyed, "snapshot", "keys").stdout.decode().splitlines()
    assert sorted(line.split() for line in listed) == [["KEY", "CONFIGURED", "SNAPSHOTS"], ["one", "no", "1"], ["two", "yes", "1"]]
    assert caller.delete(f"{snapshots(session)}/{first}").status == 200
    assert ctl(keyed, "-o", "name", "snapshot", "keys").stdout == b"two\n"
    restore(caller, session, second, replace=True)
    assert caller.delete(f"{RUNTIME}/{session}").status == 200


def test_a_key_that_is_missing_when_it_is_needed(keyed):
    """It stays suspended, and goes on when the key is back."""
    keyed.keys("*=one")
    keyed.reload()
    caller = keyed.client("ana")
    session = sandbox(caller)
    assert suspend(caller, session, durable="wait")["durable"] is True
    keyed.keys("*=two")
    caller = restart(keyed)
    wait_until(lambda: f'{MISSING} key="one" snapshots=1' in keyed.log.read_text(), 30, "a line of the log")
    for what, body in (("/resume", None), ("/resume", {})):
        answer = caller.post(at(session, what), body)
        assert (answer.status, answer.json["code"]) == (409, "snapshot_key_missing"), answer
        assert "one" in answer.json["detail"] and KEYS["one"] not in answer.body.decode()
    assert caller.get(at(session)).json["status"] == "suspended"
    assert len(files_of(keyed, session)) == 1
    keyed.keys("*=one", "*=two")
    keyed.reload()
    resume(caller, session, "snapshot")
    assert done(caller, session, "cat w/file") == WORD + "\n"
    assert caller.delete(f"{RUNTIME}/{session}").status == 200


def test_the_same_by_itself(keyed):
    """A command resumes what is suspended, or is told why not."""
    keyed.configure(CONFIG + "[api]\nidle_timeout = 1h\n")
    keyed.keys("*=one")
    caller = restart(keyed)
    session = sandbox(caller)
    assert suspend(caller, session, durable="wait")["durable"] is True
    keyed.keys()
    caller = restart(keyed)
    answer = caller.post(f"{RUNTIME}/{session}/commands", {"cmd": "true"}, headers={"Accept": "application/json"})
    assert (answer.status, answer.json["code"]) == (409, "snapshot_key_missing"), answer
    assert caller.get(at(session)).json["status"] == "suspended"
    keyed.keys("*=one")
    keyed.reload()
    assert done(caller, session, "cat w/file") == WORD + "\n"
    assert caller.delete(f"{RUNTIME}/{session}").status == 200


def test_a_wrong_key_of_the_right_name(keyed):
    keyed.keys("*=one")
    keyed.reload()
    caller = keyed.client("ana")
    session = sandbox(caller)
    one = make(caller, session)["snapshot_id"]
    path = keyed.home / "conf.d" / "50-keys.conf"
    path.write_text(path.read_text().replace(KEYS["one"], KEYS["two"]))
    keyed.reload()
    assert restore(caller, session, one, 500, replace=True)["code"] == "snapshot_damaged"
    assert done(caller, session, "cat w/file") == WORD + "\n"
    assert caller.delete(f"{RUNTIME}/{session}").status == 200


def test_required(keyed):
    keyed.keys("workspace:blue=one", encryption="required")
    keyed.reload()
    ana, eve = keyed.client("ana", workspace="blue"), keyed.client("eve", workspace="green")
    ours, theirs = sandbox(ana), sandbox(eve)
    assert make(ana, ours)["encrypted"] is True
    answer = make(eve, theirs, 409)
    assert (answer["code"], answer["retryable"]) == ("snapshot_key_missing", False)
    answer = suspend(eve, theirs, durable="wait")  # it is suspended, and not durable
    assert answer["durable"] is False and answer["durable_error"]["code"] == "snapshot_key_missing", answer
    assert files_of(keyed, theirs) == []
    resume(eve, theirs)
    assert done(eve, theirs, "cat w/file") == WORD + "\n"
    assert counts(keyed)['snapshot_failures_total{what="make"}'] == 2
    told = ctl(keyed, "suspend", "--durable", "wait", theirs)
    assert (told.returncode, told.stdout) == (1, b"suspended\n"), told
    assert b"it is suspended, without a snapshot: snapshots have to be encrypted" in told.stderr
    for caller, session in ((ana, ours), (eve, theirs)):
        assert caller.delete(f"{RUNTIME}/{session}").status == 200


def test_a_file_of_another_organisation(keyed):
    """Who may write to the store and the folder still cannot have it read: the same key, another organisation."""
    keyed.keys("*=one")
    keyed.reload()
    ana, eve = keyed.client("ana", workspace="blue"), keyed.client("eve", workspace="green")
    ours, theirs = sandbox(ana), sandbox(eve)
    one, two = make(ana, ours)["snapshot_id"], make(eve, theirs)["snapshot_id"]
    source = folder_of(keyed) / f"{ours}-{one}.tar.zst.enc"
    target = folder_of(keyed) / f"{theirs}-{two}.tar.zst.enc"
    digest = ana.get(snapshots(ours)).json["snapshots"][0]["digest"]
    own = eve.get(snapshots(theirs)).json["snapshots"][0]
    keyed.stop()
    target.write_bytes(source.read_bytes())
    row = keyed.sql("SELECT runtime_json FROM dagster_sandbox_sessions WHERE id = ?", theirs)[0][0]
    text = row if isinstance(row, str) else json.dumps(row)
    forged = text.replace(own["digest"], digest).replace(f'"bytes":{own["bytes"]}', f'"bytes":{source.stat().st_size}') \
        .replace(f'"bytes": {own["bytes"]}', f'"bytes": {source.stat().st_size}')
    assert forged != text
    keyed.sql("UPDATE dagster_sandbox_sessions SET runtime_json = ? WHERE id = ?", forged, theirs)
    keyed.start()
    eve, ana = keyed.client("eve", workspace="green"), keyed.client("ana", workspace="blue")
    assert restore(eve, theirs, two, 500, replace=True)["code"] == "snapshot_damaged"
    restore(ana, ours, one, replace=True)  # the control
    for caller, session in ((ana, ours), (eve, theirs)):
        assert caller.delete(f"{RUNTIME}/{session}").status == 200


def test_keys_are_roots_alone_to_read(keyed):
    keyed.keys("*=one", mode=0o640)
    keyed.refuses("others than root may read the file")
    keyed.keys("*=one", "workspace:blue=one")
    keyed.refuses("each id once")
    keyed.keys(encryption="required")
    keyed.refuses("encryption = required needs keys")
    keyed.keys("*=one")
    keyed.reload()
    assert keyed.root.get("/v1/config").json["refused"] is False


# --- the store of snapshots cannot be written ---------------------------------------------------

class SmallStore(SmallDisk):
    below = "api/snapshots"
    size = "4m"


@pytest.fixture(name="small")
def fixture_small():
    started = SmallStore(CONFIG)
    yield started
    started.done()


def assert_unwritable(caller, session, detail):
    answer = make(caller, session, 503)
    assert (answer["code"], answer["retryable"], answer["detail"]) == ("snapshot_store", True, detail)
    answer = suspend(caller, session, durable="wait")  # it stands still all the same
    assert answer["durable"] is False
    error = {"code": "snapshot_store", "retryable": True, "detail": detail, "generation": answer["generation"]}
    assert answer["durable_error"] == error


def test_read_only_and_full(small):
    caller = small.client("ana")
    session = sandbox(caller)
    make(caller, session)
    before = counts(small)['snapshot_failures_total{what="make"}']
    small.remount("ro")
    assert_unwritable(caller, session, "the host's store of snapshots cannot be written now")
    small.remount("rw")
    answer = suspend(caller, session, durable="wait")
    assert answer["durable"] is True and "durable_error" not in answer
    resume(caller, session)
    done(caller, session, "head -c 8000000 /dev/urandom >w/more")
    assert_unwritable(caller, session, "no room for the snapshot on the host")
    assert counts(small)['snapshot_failures_total{what="make"}'] == before + 4
    resume(caller, session)
    assert not [name for name in files_of(small, session) if name.endswith(".part")]
    assert caller.delete(f"{RUNTIME}/{session}").status == 200


# --- counted ------------------------------------------------------------------------------------

def quota(client):
    return client.get("/dagster/sandbox/quota").json


def test_metrics_and_quota(keyed):
    keyed.configure(CONFIG + "[api]\nfrozen_memory_max = 1GiB\njanitor_interval = 1s\n[snapshots]\norganization_bytes = 100MiB\n")
    keyed.reload()
    caller = keyed.client("ana", workspace="blue")
    session = sandbox(caller)
    before = counts(keyed)
    one = make(caller, session)
    restore(caller, session, one["snapshot_id"], replace=True)
    assert suspend(caller, session, durable="wait")["durable"] is True
    now = counts(keyed)
    assert now["sessions_frozen"] == 1 and now["frozen_memory_bytes"] > 0
    assert now['snapshots{encrypted="no"}'] == 2
    assert now['snapshot_runs_total{what="make"}'] == before['snapshot_runs_total{what="make"}'] + 2
    assert now['snapshot_runs_total{what="restore"}'] == before['snapshot_runs_total{what="restore"}'] + 1
    told = quota(caller)
    assert told["workspace"]["frozen_sessions"] == {"limit": None, "used": 1}
    assert told["workspace"]["frozen_memory_bytes"] == {"limit": None, "used": now["frozen_memory_bytes"]}
    assert told["workspace"]["snapshots"] == {"limit": None, "used": 2}
    assert told["workspace"]["snapshot_bytes"] == {"limit": 100 << 20, "used": now['snapshot_bytes{encrypted="no"}']}
    assert told["owner"]["frozen_sessions"]["used"] == 1
    assert told["owner"]["snapshots"]["used"] == 0  # the organisation is the workspace
    assert quota(keyed.client("eve", workspace="green"))["workspace"]["snapshots"]["used"] == 0
    assert quota(keyed.root)["host"]["frozen_memory_bytes"]["limit"] == 1 << 30
    resume(caller, session)
    assert counts(keyed)['resumes_total{from="memory"}'] == before['resumes_total{from="memory"}'] + 1
    assert counts(keyed)["sessions_frozen"] == quota(caller)["workspace"]["frozen_memory_bytes"]["used"] == 0
    suspend(caller, session, durable="wait")
    keyed.configure(CONFIG + "[api]\nfrozen_max = 1s\njanitor_interval = 1s\n")
    keyed.reload()
    wait_until(lambda: counts(keyed)["demotions_total"] == before["demotions_total"] + 1, 60, "demoted")
    wait_until(lambda: counts(keyed)["frozen_memory_bytes"] == 0, 60, "given back")
    resume(caller, session, "snapshot")
    assert counts(keyed)['resumes_total{from="snapshot"}'] == before['resumes_total{from="snapshot"}'] + 1
    assert caller.delete(f"{RUNTIME}/{session}").status == 200
