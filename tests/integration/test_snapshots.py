"""Snapshots of a sandbox's workspace: made, listed, deleted, put back; bounds, losses, other organisations."""
import http.client
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness import ABSENT_ID, ASAN, PATIENCE, RUNTIME, RUNTIME_NOT_FOUND, Daemon, descendants, name_of, status_of, wait_until
from runtime_rig import fixture_caller, fixture_session  # noqa: F401 (fixtures)

MIB = 1 << 20
# What a tree is, as one text: kinds, modes, owners, times, targets, links, attributes, content.
PICTURE = r"""
import hashlib, os, stat, sys
seen = {}
for folder, folders, files in sorted(os.walk(sys.argv[1].encode())):
    for name in [b"."] + sorted(folders + files):
        path = os.path.join(folder, name)
        st = os.lstat(path)
        if name != b"." and stat.S_ISDIR(st.st_mode):
            continue
        row = [path, oct(st.st_mode), st.st_uid, st.st_gid, st.st_mtime_ns]
        if stat.S_ISREG(st.st_mode):
            with open(path, "rb") as file:
                row += [st.st_size, hashlib.sha256(file.read()).hexdigest()]
        if stat.S_ISLNK(st.st_mode):
            row.append(os.readlink(path))
        else:
            row += sorted((key, os.getxattr(path, key)) for key in os.listxattr(path) if key.startswith("user."))
        row.append(seen.setdefault(st.st_ino, path))
        print(row)
"""
FILL = r"""
set -e
mkdir -p w/deep/$(printf 'level-%s/' 1 2 3 4 5 6 7 8 9) w/shut
head -c 300000 /dev/urandom >w/plain
ln w/plain w/second
ln -s /etc/passwd w/out
ln -s missing w/dangling
printf x >w/mode; chmod 4751 w/mode
printf deep >"w/deep/$(printf 'n%.0s' $(seq 200))"
printf bytes >"w/$(printf '\377\303(')"
truncate -s 64M w/sparse; printf middle | dd of=w/sparse bs=1 seek=33554432 conv=notrunc status=none
printf x >w/shut/inside; chmod 555 w/shut
touch -d '2001-02-03 04:05:06.123456789 UTC' w/mode w/shut w/plain
"""


def snapshots(session, what=""):
    return f"{RUNTIME}/{session}/snapshots{what}"


def make(caller, session, status=201):
    answer = caller.post(snapshots(session), timeout=300 * PATIENCE)
    assert answer.status == status, answer
    return answer.json


def restore(caller, session, snapshot, status=200, **more):
    answer = caller.post(f"{RUNTIME}/{session}/restore", {"snapshot_id": snapshot, **more}, timeout=300 * PATIENCE)
    assert answer.status == status, answer
    return answer.json


def shell(caller, session, text, **more):
    answer = caller.post(f"{RUNTIME}/{session}/commands", {"cmd": text, "timeout_ms": 300000, **more},
                         headers={"Accept": "application/json"}, timeout=330 * PATIENCE)
    assert answer.status == 200, answer
    return answer.json


def done(caller, session, text, **more):
    answer = shell(caller, session, text, **more)
    assert answer["code"] == 0, answer
    return answer["stdout"]


def peak_of(pid):
    return int(status_of(pid)["VmHWM"].split()[0]) * 1024


def picture(caller, session, top):
    answer = caller.post(f"{RUNTIME}/{session}/commands", {"argv": ["/usr/bin/python3", "-c", PICTURE, top], "user": "root"},
                         headers={"Accept": "application/json"})
    assert answer.status == 200 and answer.json["code"] == 0, answer
    return answer.json["stdout"]


def folder_of(daemon):
    return daemon.state / "api" / "snapshots"


def files_of(daemon, session):
    return sorted(name for name in os.listdir(folder_of(daemon)) if name.startswith(session))


@pytest.fixture(name="agent")
def fixture_agent(caller):
    made = []

    def create(**body):
        answer = caller.post(RUNTIME, {"profile": "agent", **body})
        assert answer.status == 201, answer
        made.append(answer.json["sandbox_uuid"])
        return made[-1]
    yield create
    for name in made:
        caller.delete(f"{RUNTIME}/{name}")


@pytest.fixture(name="private")
def fixture_private():
    started = Daemon()
    yield started
    started.done()


def test_round_trip(daemon, caller, agent):
    session = agent(workspace={"include": ["w"]})
    done(caller, session, FILL)
    done(caller, session, "chown 1234:4321 w/plain; setfattr -n user.note -v text w/plain 2>/dev/null || python3 -c "
         "'import os; os.setxattr(\"w/plain\", \"user.note\", b\"text\")' || true", user="root")
    before = picture(caller, session, "/session/w")
    assert "1234" in before and "middle" not in before
    one = make(caller, session)
    assert (one["left_out"], one["changed"]) == (0, 0)
    assert one["entries"] > 15 and one["content_bytes"] < 2 * MIB  # holes are no content
    assert one["include"] == ["/session/w"]
    assert caller.get(snapshots(session)).json["snapshots"] == [one]
    assert files_of(daemon, session) == [f"{session}-{one['snapshot_id']}.tar.zst"]
    # Into another one, into itself, and in place of what is there.
    other = agent()
    assert restore(caller, other, one["snapshot_id"], sandbox_uuid=session)["entries"] == one["entries"]
    assert picture(caller, other, "/session/w") == before
    assert restore(caller, session, one["snapshot_id"], 409)["code"] == "exists"
    done(caller, session, "rm -rf w", user="root")
    restore(caller, session, one["snapshot_id"])
    assert picture(caller, session, "/session/w") == before
    done(caller, session, "printf new >w/new; rm w/second; printf changed >w/mode; mkdir w/more; mkfifo w/more/fifo", user="root")
    assert picture(caller, session, "/session/w") != before
    restore(caller, session, one["snapshot_id"], replace=True)
    assert picture(caller, session, "/session/w") == before
    assert int(done(caller, session, "du -k w/sparse | cut -f1")) < 10240
    answer = caller.delete(snapshots(session, f"/{one['snapshot_id']}"))
    assert (answer.status, answer.json) == (200, {"snapshot_id": one["snapshot_id"], "deleted": True})
    assert caller.get(snapshots(session)).json["snapshots"] == []
    assert files_of(daemon, session) == []
    assert restore(caller, session, one["snapshot_id"], 404)["code"] == "snapshot_not_found"
    answer = caller.delete(snapshots(session, f"/{one['snapshot_id']}"))
    assert (answer.status, answer.json["code"]) == (404, "snapshot_not_found")


def test_all_of_it_without_root(caller, agent):
    """Profile component has no root commands; the workspace is /session where none was said."""
    session = agent(profile="component")
    done(caller, session, "mkdir a; printf 1 >a/b; mkfifo pipe; printf 2 >shut; chmod 0 shut")
    one = make(caller, session)
    assert one["include"] == ["/session"] and one["left_out"] == 2
    done(caller, session, "rm -rf a pipe; printf 3 >c; mkdir -p closed/in; chmod 0 closed")
    restore(caller, session, one["snapshot_id"], replace=True)
    assert done(caller, session, "cat a/b; ls") .split() == ["1a", "home", "tmp"]


def test_excluded(caller, agent):
    session = agent(workspace={"include": ["repo", "/tmp/cache", "gone"], "exclude": ["node_modules", "*.pyc", "/session/repo/target"]})
    done(caller, session, "mkdir -p repo/node_modules/x repo/sub/target repo/target /tmp/cache; touch repo/a.py repo/a.pyc"
         " repo/sub/target/kept repo/target/not repo/node_modules/x/y /tmp/cache/c other")
    one = make(caller, session)
    done(caller, session, "rm repo/a.py /tmp/cache/c; touch repo/new")
    restore(caller, session, one["snapshot_id"], replace=True)
    found = done(caller, session, "find repo /tmp/cache other | sort").split()
    # What is excluded is neither in the snapshot nor touched by it.
    assert found == ["/tmp/cache", "/tmp/cache/c", "other", "repo", "repo/a.py", "repo/a.pyc", "repo/node_modules",
                     "repo/node_modules/x", "repo/node_modules/x/y", "repo/sub", "repo/sub/target", "repo/sub/target/kept",
                     "repo/target", "repo/target/not"]
    other = agent()
    restore(caller, other, one["snapshot_id"], sandbox_uuid=session)
    assert done(caller, other, "find repo /tmp/cache -type f | sort").split() == ["/tmp/cache/c", "repo/a.py", "repo/sub/target/kept"]


def test_nothing_there(daemon, caller, agent):
    session = agent(workspace={"include": ["gone"]})
    assert make(caller, session, 404)["code"] == "file_not_found"
    assert files_of(daemon, session) == []


def test_large_while_others_are_served(daemon, caller, agent):
    """200 MiB that cannot be compressed: nothing of it is held in the worker."""
    session = agent()
    done(caller, session, "head -c 209715200 /dev/urandom >big; sha256sum big >sum")
    worker = daemon.worker_pid("sandboxd-api")
    before = peak_of(worker)
    one = make(caller, session)
    assert one["bytes"] > 200 * MIB
    done(caller, session, "rm big")
    restore(caller, session, one["snapshot_id"], replace=True)
    assert "big: OK" in done(caller, session, "sha256sum -c sum")
    assert ASAN or peak_of(worker) - before < 40 * MIB  # a sanitizer keeps memory that was freed


def test_a_second_one_at_once_is_refused(caller, agent):
    session = agent()
    done(caller, session, "head -c 100000000 /dev/urandom >big")
    answers = []

    def ask():
        answers.append(caller.post(snapshots(session), timeout=300 * PATIENCE))
    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {answer.status for answer in answers} <= {201, 503} and any(answer.status == 201 for answer in answers)
    assert all(answer.json["code"] == "busy" for answer in answers if answer.status == 503)
    assert len(caller.get(snapshots(session)).json["snapshots"]) == sum(answer.status == 201 for answer in answers)


def test_what_was_changed_on_the_disk_is_not_believed(daemon, caller, agent):
    session = agent()
    done(caller, session, "mkdir w; head -c 100000 /dev/urandom >w/a")
    one = make(caller, session)
    path = folder_of(daemon) / files_of(daemon, session)[0]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    done(caller, session, "printf kept >w/a")
    assert restore(caller, session, one["snapshot_id"], 500, replace=True)["code"] == "snapshot_damaged"
    assert done(caller, session, "cat w/a") == "kept"  # nothing was touched
    path.write_bytes(data[:-1])
    assert restore(caller, session, one["snapshot_id"], 500, replace=True)["code"] == "snapshot_damaged"
    path.unlink()
    assert restore(caller, session, one["snapshot_id"], 404, replace=True)["code"] == "snapshot_not_found"


def test_gone_with_its_sandbox(daemon, caller):
    session = caller.post(RUNTIME, {"profile": "agent"}).json["sandbox_uuid"]
    done(caller, session, "touch a")
    make(caller, session)
    assert len(files_of(daemon, session)) == 1
    assert caller.delete(f"{RUNTIME}/{session}").status == 200
    wait_until(lambda: files_of(daemon, session) == [])


def test_at_most_sixteen(caller, session):
    for _ in range(16):
        make(caller, session)
    assert make(caller, session, 429)["code"] == "quota"


def test_bounds(private):
    private.configure("[snapshots]\nmax_bytes = 1MiB\nmax_entries = 10\norganization_bytes = 1500KiB\n")
    private.stop()
    private.start()
    caller = private.client("ana")
    session = caller.post(RUNTIME, {"profile": "agent", "workspace": {"include": ["w"]}}).json["sandbox_uuid"]
    done(caller, session, "mkdir w; head -c 2000000 /dev/zero >w/zeros")
    assert make(caller, session, 413)["code"] == "snapshot_too_large"  # of content, however small the file
    done(caller, session, "rm w/zeros; touch w/1 w/2 w/3 w/4 w/5 w/6 w/7 w/8 w/9 w/10")
    assert make(caller, session, 413)["code"] == "snapshot_too_large"
    done(caller, session, "rm w/*; head -c 1000000 /dev/urandom >w/noise")
    one = make(caller, session)
    assert make(caller, session, 429)["code"] == "quota"  # what is left of the organisation's is too little
    colleague = private.client("eve", workspace="user:ana")
    theirs = colleague.post(RUNTIME, {"profile": "agent"}).json["sandbox_uuid"]
    done(colleague, theirs, "head -c 1000000 /dev/urandom >noise")
    make(colleague, theirs)  # of another one
    assert caller.delete(snapshots(session, f"/{one['snapshot_id']}")).status == 200
    make(caller, session)
    assert len(files_of(private, session)) == 1
    for client, name in ((caller, session), (colleague, theirs)):
        assert client.delete(f"{RUNTIME}/{name}").status == 200


def test_a_lower_limit_leaves_old_ones_readable(private):
    """Those of requests and of suspends; a new one is of the new limit."""
    caller = private.client("ana")
    session = caller.post(RUNTIME, {"profile": "agent", "workspace": {"include": ["w"]}}).json["sandbox_uuid"]
    done(caller, session, "mkdir w; head -c 3000000 /dev/urandom >w/noise; cd w; touch 1 2 3 4 5 6 7 8 9; sha256sum * >../sums; mv ../sums sums")
    one = make(caller, session)["snapshot_id"]
    assert caller.post(f"{RUNTIME}/{session}/suspend", {"durable": "wait"}, timeout=300 * PATIENCE).json["durable"] is True
    private.configure("[snapshots]\nmax_bytes = 1MiB\nmax_entries = 5\n")
    private.stop()
    private.start()
    caller = private.client("ana")
    assert caller.post(f"{RUNTIME}/{session}/resume", timeout=300 * PATIENCE).json["resumed"] == "snapshot"
    done(caller, session, "cd w && sha256sum -c --status sums && rm noise")
    assert make(caller, session, 413)["code"] == "snapshot_too_large"  # the control: there are eleven entries
    restore(caller, session, one, replace=True)
    done(caller, session, "cd w && sha256sum -c --status sums")
    assert caller.delete(f"{RUNTIME}/{session}").status == 200


def test_quota_of_two_at_once(private):
    """Each finds room when it begins."""
    private.configure("[snapshots]\nmax_bytes = 20MiB\norganization_bytes = 30MiB\n")
    private.stop()
    private.start()
    caller = private.client("ana")
    sessions = [caller.post(RUNTIME, {"profile": "agent"}).json["sandbox_uuid"] for _ in range(2)]
    for session in sessions:
        done(caller, session, "head -c 18000000 /dev/urandom >noise")
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda session: private.client("ana").post(snapshots(session)), sessions))
    assert sorted(answer.status for answer in answers) == [201, 429], answers
    assert sum(len(files_of(private, session)) for session in sessions) == 1
    for session in sessions:
        assert caller.delete(f"{RUNTIME}/{session}").status == 200


def test_the_sandbox_is_full(caller, agent):
    session = agent(workspace={"include": ["w"]})
    done(caller, session, "mkdir w; head -c 30000000 /dev/urandom >w/a")
    one = make(caller, session)
    done(caller, session, "rm w/a; head -c 100000000000 /dev/zero >fill || true")
    answer = restore(caller, session, one["snapshot_id"], 507, replace=True)
    assert answer["code"] == "no_space"
    done(caller, session, "rm fill")
    restore(caller, session, one["snapshot_id"], replace=True)
    assert done(caller, session, "stat -c %s w/a") == "30000000\n"


def test_of_others(daemon, caller, agent):
    session = agent()
    done(caller, session, "touch a")
    one = make(caller, session)
    stranger = daemon.client("bob", workspace="green")
    theirs = stranger.post(RUNTIME, {"profile": "agent"}).json["sandbox_uuid"]
    for name in (session, ABSENT_ID):
        answer = stranger.post(f"{RUNTIME}/{theirs}/restore", {"snapshot_id": one["snapshot_id"], "sandbox_uuid": name})
        assert (answer.status, answer.body) == (404, RUNTIME_NOT_FOUND)
    answer = stranger.post(f"{RUNTIME}/{theirs}/restore", {"snapshot_id": one["snapshot_id"]})
    assert (answer.status, answer.json["code"]) == (404, "snapshot_not_found")
    assert stranger.delete(f"{RUNTIME}/{theirs}").status == 200


def test_a_row_that_names_another_ones_file(private):
    """As somebody else who may write to the store can have it."""
    caller, stranger = private.client("ana"), private.client("bob", workspace="green")
    session, theirs = (client.post(RUNTIME, {"profile": "agent"}).json["sandbox_uuid"] for client in (caller, stranger))
    done(caller, session, "touch secret")
    one = make(caller, session)["snapshot_id"]
    private.stop()
    row = private.sql("SELECT runtime_json FROM dagster_sandbox_sessions WHERE id = ?", session)[0][0]
    private.sql("UPDATE dagster_sandbox_sessions SET runtime_json = ? WHERE id = ?", row, theirs)
    private.start()
    assert [snapshot["snapshot_id"] for snapshot in stranger.get(snapshots(theirs)).json["snapshots"]] == [one]
    assert restore(stranger, theirs, one, 500)["code"] == "snapshot_damaged"
    assert done(stranger, theirs, "ls secret || true") == ""
    assert stranger.delete(snapshots(theirs, f"/{one}")).status == 200
    assert stranger.delete(f"{RUNTIME}/{theirs}").status == 200
    restore(caller, session, one, replace=True)
    assert done(caller, session, "ls secret") == "secret\n"
    assert caller.delete(f"{RUNTIME}/{session}").status == 200


@pytest.mark.parametrize("body, where", [
    ({}, ["snapshot_id"]), ({"snapshot_id": 7}, ["snapshot_id"]), ({"snapshot_id": "x" * 99}, ["snapshot_id"]),
    ({"snapshot_id": "x", "replace": "yes"}, ["replace"]), ({"snapshot_id": "x", "sandbox_uuid": 1}, ["sandbox_uuid"]),
    ({"snapshot_id": "x", "more": 1}, ["more"]),
])
def test_bodies(caller, session, body, where):
    answer = caller.post(f"{RUNTIME}/{session}/restore", body)
    assert answer.status == 422 and answer.json["detail"][0]["loc"][1:] == where, answer


def test_survives_a_restart_of_the_service(private):
    caller = private.client("ana")
    session = caller.post(RUNTIME, {"profile": "agent"}).json["sandbox_uuid"]
    done(caller, session, "mkdir w; printf text >w/a")
    one = make(caller, session)
    private.stop()
    made = folder_of(private) / files_of(private, session)[0]
    os.chown(made, 0, 0)
    part = folder_of(private) / f"{session}-{ABSENT_ID}.tar.zst.part"
    part.write_bytes(b"half")
    named_twice = folder_of(private) / f"{ABSENT_ID}-{ABSENT_ID}.tar.zst"
    named_twice.write_bytes(b"whose?")
    os.link(named_twice, private.home / "other")
    private.configure("[api]\njanitor_interval = 1s\n")
    private.start()
    assert os.stat(made).st_uid != 0 and os.stat(named_twice).st_uid == 0  # a second name may lead anywhere
    assert caller.get(snapshots(session)).json["snapshots"] == [one]
    restore(caller, session, one["snapshot_id"], replace=True)
    assert done(caller, session, "cat w/a") == "text"
    wait_until(lambda: not part.exists(), 30)  # nobody writes it
    assert named_twice.exists()  # it may belong to a row that is on its way
    os.utime(named_twice, (1, 1))
    wait_until(lambda: not named_twice.exists(), 30)
    assert len(files_of(private, session)) == 1
    assert caller.delete(f"{RUNTIME}/{session}").status == 200


def killed_while(private, caller, session, ask):
    """The api worker dies while sandbox-archive runs; its successor has the session."""
    asking = threading.Thread(target=quietly, args=(ask,))
    asking.start()
    wait_until(lambda: archive_runs(private), 30)
    os.kill(private.worker_pid("sandboxd-api"), signal.SIGKILL)
    asking.join()
    wait_until(lambda: answers(caller, session) and not archive_runs(private), 60)


def test_worker_that_dies_meanwhile(private):
    private.deaths_expected = True
    caller = private.client("ana")
    session = caller.post(RUNTIME, {"profile": "agent"}).json["sandbox_uuid"]
    done(caller, session, "head -c 200000000 /dev/urandom >big; sha256sum big >sum")
    killed_while(private, caller, session, lambda: caller.post(snapshots(session), timeout=60 * PATIENCE))
    assert caller.get(snapshots(session)).json["snapshots"] == []
    one = make(caller, session)  # whatever was left is in nobody's way
    killed_while(private, caller, session, lambda: restore(caller, session, one["snapshot_id"], replace=True))
    restore(caller, session, one["snapshot_id"], replace=True)
    assert "big: OK" in done(caller, session, "sha256sum -c sum")
    assert caller.delete(f"{RUNTIME}/{session}").status == 200


def archive_runs(daemon):
    return any(name_of(pid) in ("sandbox-archive", "memfd:sandbox-a") for pid in descendants(daemon.process.pid))


def answers(caller, session):
    try:
        return caller.get(snapshots(session)).status == 200
    except OSError:
        return False


def quietly(ask):
    try:
        ask()
    except (OSError, AssertionError, http.client.HTTPException):
        pass
