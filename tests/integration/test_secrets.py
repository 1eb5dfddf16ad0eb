"""Secrets: kept sealed, usable by their workspaces, given to commands, in nothing that leaves."""
import base64
import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from harness import BIN, RUNTIME, SESSIONS, SLOW, Daemon, ctl, descendants, name_of, status_of, wait_until
from traces import files_with, processes_with

PASSWORD = "Kp7-horse=battery/staple+9"
MASK = "***db***"


def secret(daemon, *words, value=None):
    done = ctl(daemon, "secret", *words[:1], "--state-dir", str(daemon.state), *words[1:],
               stdin=value.encode() if isinstance(value, str) else value)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def put(daemon, name, value, *options):
    assert secret(daemon, "put", *options, name, value=value) == (0, "", "")


@pytest.fixture(scope="module")
def kept(daemon):
    put(daemon, "db", PASSWORD + "\n", "--as", "DB_PASSWORD", "--workspace", "blue",
        "--mask-encodings")
    put(daemon, "token", "ghp-0123456789", "--workspace", "blue", "--workspace", "green")
    put(daemon, "root.only", "operators-alone")
    return daemon


@pytest.fixture
def alice_session(kept, alice):
    made = alice.create_runtime(secrets=["db", "token"], env={"PLAIN": "text"})
    yield made
    alice.delete(f"{RUNTIME}/{made}")


# --- the store ---------------------------------------------------------------------------------


def test_ls_shows_names_and_no_value(kept):
    status, text, _ = secret(kept, "ls")
    assert status == 0 and PASSWORD not in text
    assert [line.split()[0] for line in text.splitlines()] == ["NAME", "db", "token", "root.only"]
    shown = json.loads(secret(kept, "ls", "-o", "json")[1])
    assert [s["name"] for s in shown] == ["db", "token", "root.only"]
    assert shown[0]["variable"] == "DB_PASSWORD" and shown[0]["bytes"] == len(PASSWORD)
    assert shown[1]["variable"] == "TOKEN" and shown[1]["workspaces"] == ["blue", "green"]
    assert secret(kept, "ls", "-o", "name")[1].split() == ["db", "token", "root.only"]


@pytest.mark.parametrize("words, value, what", [
    (["x"], "abc", "at least 4 bytes"),
    (["x"], "a" * 70000, "at most 64 KiB"),
    (["x"], b"ab\0cd", "no NUL"),
    (["--as", "LD_PRELOAD", "x"], "value", "cannot be set"),
    (["--as", "lower", "x"], "value", "cannot be set"),
    (["9lives"], "value", "cannot be set"),
    (["a/b"], "value", "a name is"),
    (["--workspace", "a b", "x"], "value", "a workspace is"),
    (["--mask-encodings", "x"], "a" * 5000, "at most 4 KiB"),
])
def test_put_refuses(kept, words, value, what):
    status, _, text = secret(kept, "put", *words, value=value)
    assert status == 2 and what in text
    assert "x" not in secret(kept, "ls", "-o", "name")[1].split()


def test_rm_and_replace(kept):
    put(kept, "short", "first value", "--workspace", "blue")
    put(kept, "short", "other value", "--workspace", "green")
    shown = json.loads(secret(kept, "ls", "-o", "json")[1])
    assert [s["workspaces"] for s in shown if s["name"] == "short"] == [["green"]]
    assert secret(kept, "rm", "short")[0] == 0
    assert secret(kept, "rm", "short")[0] == 3


def test_puts_at_once_lose_nothing(kept):
    running = []
    for i in range(12):
        running.append(subprocess.Popen(
            [str(BIN / "sandboxctl"), "secret", "put", "--state-dir", str(kept.state),
             f"many{i}"], stdin=subprocess.PIPE))
        running[-1].stdin.write(b"some value %d" % i)
        running[-1].stdin.close()
    assert [process.wait() for process in running] == [0] * 12
    names = secret(kept, "ls", "-o", "name")[1].split()
    assert [f"many{i}" for i in range(12)] == sorted(
        (n for n in names if n.startswith("many")), key=lambda n: int(n[4:]))
    for i in range(12):
        assert secret(kept, "rm", f"many{i}")[0] == 0


def test_put_that_waits_for_its_value_keeps_nobody_waiting(kept):
    typing = subprocess.Popen([str(BIN / "sandboxctl"), "secret", "put", "--state-dir",
                               str(kept.state), "slow"], stdin=subprocess.PIPE)
    try:
        wait_until(lambda: name_of(typing.pid) == "sandboxd-helper", what="the helper runs")
        time.sleep(0.2)  # it has got as far as it gets without a value
        put(kept, "quick", "some value")
        assert "quick" in secret(kept, "ls", "-o", "name")[1].split()
    finally:
        typing.communicate(b"its value")
    assert typing.returncode == 0
    for name in ("slow", "quick"):
        assert secret(kept, "rm", name)[0] == 0


def test_looking_makes_nothing(tmp_path):
    def look(*words):
        return subprocess.run([str(BIN / "sandboxctl"), "secret", words[0], "--state-dir",
                               str(tmp_path), *words[1:]], capture_output=True, check=False)

    assert json.loads(look("ls", "-o", "json").stdout) == []
    assert look("rm", "none").returncode == 3
    assert list(tmp_path.iterdir()) == []


def test_store_is_roots_alone_and_holds_no_value(kept):
    folder = kept.state / "secrets"
    assert folder.stat().st_mode & 0o777 == 0o700
    for file in folder.iterdir():
        assert file.stat().st_uid == 0 and file.stat().st_mode & 0o777 == 0o600
        assert PASSWORD.encode() not in file.read_bytes()


# --- create ------------------------------------------------------------------------------------


def test_who_may_use_which(kept, alice, bob, root):
    for prefix in (RUNTIME, SESSIONS):
        # One that is another workspace's and one that is not there are the same answer.
        for name in ("db", "absent", "root.only"):
            answer = bob.post(prefix, {"secrets": [name]})
            assert answer.status == 422
            assert answer.json["detail"] == [{
                "type": "value_error", "loc": ["body", "secrets", name],
                "msg": "Value error, no such secret for this workspace"}]
        assert alice.post(prefix, {"secrets": ["token", "root.only"]}).json["detail"][0][
            "loc"][-1] == "root.only"
    made = root.create_runtime(secrets=["root.only", "db"])
    assert root.shell(made, "echo ${#ROOT_ONLY} ${#DB_PASSWORD}").text == f"15 {len(PASSWORD)}\n"
    root.delete(f"{RUNTIME}/{made}")
    green = kept.client("gina", workspace="green")
    made = green.create_runtime(secrets=["token"])
    assert green.shell(made, "echo $TOKEN").text == "***token***\n"
    green.delete(f"{RUNTIME}/{made}")


@pytest.mark.parametrize("body, loc", [
    ({"secrets": "db"}, ["body", "secrets"]),
    ({"secrets": [7]}, ["body", "secrets"]),
    ({"secrets": ["db", "db"]}, ["body", "secrets"]),
    ({"secrets": ["hunter2 hunter2"]}, ["body", "secrets"]),
    ({"secrets": [f"s{i}" for i in range(17)]}, ["body", "secrets"]),
    ({"env": {"PATH": "/hunter2"}}, ["body", "env", "PATH"]),
    ({"env": {"HOME": "/hunter2"}}, ["body", "env", "HOME"]),
    ({"env": {"LD_PRELOAD": "/hunter2"}}, ["body", "env", "LD_PRELOAD"]),
    ({"env": {"lower": "hunter2"}}, ["body", "env", "lower"]),
    ({"env": {"ALPHASWARM_KAFKA_BOOTSTRAP": "hunter2"}},
     ["body", "env", "ALPHASWARM_KAFKA_BOOTSTRAP"]),
    ({"env": {"A": 7}}, ["body", "env", "A"]),
    ({"env": {f"A{i}": "hunter2" for i in range(65)}}, ["body", "env"]),
    ({"env": ["hunter2"]}, ["body", "env"]),
])
def test_what_a_create_refuses(kept, alice, body, loc):
    for prefix in (RUNTIME, SESSIONS):
        answer = alice.post(prefix, body)
        assert answer.status == 422, answer
        assert answer.json["detail"][0]["loc"] == loc
        assert b"hunter2" not in answer.body


def test_env_and_envs_of_both_prefixes(kept, alice):
    session = alice.create(env={"A": "1", "B": "2"}, secrets=["db"])
    assert alice.shell(session, "echo $A $B $DB_PASSWORD").text == f"1 2 {MASK}\n"
    alice.remove(session)
    for body in ({"env": {"A": "1", "B": "2"}, "envs": {"B": "3"}},
                 {"envs": {"A": "1", "B": "2"}, "env": {"B": "3"}}):
        made = alice.post(RUNTIME, body).json["sandbox_uuid"]
        assert sorted(alice.shell(made, "env | grep '^[AB]='").text.split()) == ["A=1", "B=3"]
        alice.delete(f"{RUNTIME}/{made}")


def test_of_two_with_one_variable_the_first_is_given(kept, alice):
    put(kept, "db.old", "an older password", "--as", "DB_PASSWORD", "--workspace", "blue")
    for names, given in ((["db.old", "db"], "db.old"), (["db", "db.old"], "db")):
        made = alice.create_runtime(secrets=names)
        assert alice.shell(made, "echo $DB_PASSWORD").text == f"***{given}***\n"
        alice.delete(f"{RUNTIME}/{made}")
    assert secret(kept, "rm", "db.old")[0] == 0


def test_ctl_makes_a_session_with_secrets(kept):
    done = ctl(kept, "run", "--secret", "db", "--secret", "token", "--", "sh", "-c",
               "echo $DB_PASSWORD $TOKEN")
    assert (done.returncode, done.stdout) == (0, b"***db*** ***token***\n")
    done = ctl(kept, "create", "--secret", "absent")
    assert done.returncode != 0 and b"absent" in done.stderr


# --- masking -----------------------------------------------------------------------------------


def test_no_stream_shows_a_value(alice, alice_session):
    answer = alice.shell(alice_session, "echo $DB_PASSWORD; echo $TOKEN >&2; echo $PLAIN")
    assert answer.text == f"{MASK}\ntext\n" and answer.err == b"***token***\n"
    # The command has it all the same.
    assert alice.shell(alice_session, "printf %s $DB_PASSWORD | wc -c").text == f"{len(PASSWORD)}\n"


def test_no_two_writes_show_a_value(alice, alice_session):
    script = ("import os,sys,time\n"
              "v=os.environ['DB_PASSWORD'].encode()\n"
              "for cut in range(1,len(v)):\n"
              "  os.write(1,b'<'+v[:cut]); time.sleep(0.01); os.write(1,v[cut:]+b'>')\n")
    answer = alice.run(alice_session, "python3", "-c", script)
    assert answer.text == f"<{MASK}>" * (len(PASSWORD) - 1)


def test_encodings_that_were_asked_for(alice, alice_session):
    for command in ("base64 -w0", "od -An -v -tx1 | tr -d ' \\n'",
                    "python3 -c 'import sys,urllib.parse as u;print(u.quote(sys.stdin.read(),safe=\"\"))'"):
        text = alice.shell(alice_session, f"printf %s $DB_PASSWORD | {command}").text
        # A last character of base64 may hold bits of what stands behind the value as well.
        assert text.startswith(MASK) and len(text.strip("=\n")) <= len(MASK) + 1, command
    for lead in ("a", "ab"):
        assert MASK in alice.shell(alice_session, f"printf {lead}%s: $DB_PASSWORD | base64 -w0").text
    # The other was put without: the documented limit, and the control of the above.
    encoded = base64.b64encode(b"ghp-0123456789").decode()
    assert alice.shell(alice_session, "printf %s $TOKEN | base64").text == encoded + "\n"


def test_summary_and_frames_of_a_load_show_no_value(kept, alice):
    session = alice.create(secrets=["token"])
    alice.write(session, "one", "type: a.B\nattributes: {name: ghp-0123456789}\n")
    alice.write(session, "ghp-0123456789", "type: a.B\n")
    assert alice.post(f"{SESSIONS}/{session}/load").status == 200
    frames = alice.frames(alice.execute(session))
    assert frames[-1]["stage"] == "done"
    assert "ghp-0123456789" not in json.dumps([f for f in frames if f["stage"] != "start"])
    alice.remove(session)


# --- damaged, missing, again -------------------------------------------------------------------


def test_no_terminal_shows_a_value(private):
    """What a command writes to its terminal, and what the terminal echoes of what is typed.

    In a service of its own: what is typed goes through the worker's memory, where no other test may find it.
    """
    caller = private.client("alice", workspace="blue")
    put(private, "db", PASSWORD, "--as", "DB_PASSWORD", "--workspace", "blue")
    put(private, "token", "ghp-0123456789", "--workspace", "blue")
    made = caller.create_runtime(secrets=["db", "token"])
    script = f"echo $DB_PASSWORD; echo $TOKEN >&2; read x; test \"$x\" = '{PASSWORD}' && echo same"
    begun = caller.post(f"{RUNTIME}/{made}/commands",
                       {"cmd": script, "background": True, "pty": {"rows": 24, "cols": 200}})
    assert begun.status == 201, begun
    url = f"{RUNTIME}/{made}/commands/{begun.json['command_id']}"
    assert caller.post(url + "/stdin", {"text": PASSWORD + "\n"}).status == 200
    assert caller.get(url + f"/wait?timeout_ms={30000 * SLOW}").json["exit"]["code"] == 0
    lines = caller.lines("GET", url + "/stream", headers={"Accept": "application/x-ndjson"})
    out = "".join(event.get("text", "") for event in map(json.loads, lines))
    assert PASSWORD not in out and "ghp-0123456789" not in out
    assert out.count(MASK) == 2 and "***token***" in out and out.endswith("same\r\n"), out


def test_damaged_secret_is_named(private):
    caller = private.client("alice", workspace="blue")
    put(private, "good", "a good value", "--workspace", "blue")
    put(private, "bad", "another value", "--workspace", "blue")
    store = private.state / "secrets" / "store"
    data = store.read_bytes()
    store.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert caller.post(RUNTIME, {"secrets": ["good"]}).status == 201
    answer = caller.post(RUNTIME, {"secrets": ["good", "bad"]})
    assert (answer.status, answer.json["detail"]) == (503, "secret bad is damaged in the store")
    assert secret(private, "put", "other", value="value")[0] == 0  # its row is right
    store.write_bytes(data)  # an older store, whole
    answer = caller.post(RUNTIME, {"secrets": ["good"]})
    assert answer.status == 503 and "store" in answer.json["detail"]
    assert secret(private, "ls")[0] == 1
    store.unlink()  # where a store was, none is no empty store
    assert caller.post(RUNTIME, {"secrets": ["good"]}).status == 503
    assert secret(private, "ls")[0] == 1
    (store.parent / "generation").unlink()
    assert caller.post(RUNTIME, {"secrets": ["good"]}).status == 422
    assert secret(private, "ls", "-o", "json") == (0, "[]\n", "")


def test_session_made_again_has_them_again(private):
    caller = private.client("alice", workspace="blue")
    put(private, "db", PASSWORD, "--workspace", "blue")
    made = caller.create_runtime(secrets=["db"])
    assert caller.shell(made, "echo $DB").text == f"{MASK}\n"
    assert private.stop() == 0
    private.start()
    assert caller.shell(made, "echo $DB; printf %s $DB | wc -c").text == f"{MASK}\n{len(PASSWORD)}\n"
    assert private.stop() == 0
    assert secret(private, "rm", "db")[0] == 0
    private.start()
    answer = caller.post(f"{RUNTIME}/{made}/commands", {"argv": ["true"]})
    assert (answer.status, answer.json["detail"]) == (
        503, "secret db is not there for this workspace")
    put(private, "db", PASSWORD, "--workspace", "blue")
    assert caller.shell(made, "echo $DB").text == f"{MASK}\n"


def test_adopted_session_keeps_them(private):
    """The shim has them: no store and no helper is needed."""
    private.deaths_expected = True
    caller = private.client("alice", workspace="blue")
    put(private, "db", PASSWORD, "--workspace", "blue")
    made = caller.create_runtime(secrets=["db"])
    shims = private.shim_pids()
    assert secret(private, "rm", "db")[0] == 0
    supervisor = private.supervisor_pid()
    os.kill(supervisor, signal.SIGKILL)
    wait_until(lambda: private.supervisor_pid() not in (supervisor, private.process.pid), 20, "again")
    wait_until(private.ready, 20, "answers")
    answer = caller.shell(made, "echo $DB; printf %s $DB | wc -c")
    assert answer.text == f"{MASK}\n{len(PASSWORD)}\n"
    assert all(Path(f"/proc/{pid}").exists() for pid in shims)


# --- the host's key ----------------------------------------------------------------------------


@pytest.fixture
def host_key():
    """systemd's own, over what this host has; the namespace is the suite's own."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "none", "/var/lib/systemd"], check=True)
    yield Path("/var/lib/systemd/credential.secret")
    subprocess.run(["umount", "/var/lib/systemd"], check=True)


def test_store_sealed_with_the_hosts_key(host_key):
    subprocess.run(["systemd-creds", "setup"], check=True, capture_output=True)
    assert host_key.stat().st_size > 4000
    own = Daemon()
    try:
        put(own, "db", PASSWORD, "--workspace", "blue")
        assert sorted(p.name for p in (own.state / "secrets").iterdir()) == [
            "generation", "lock", "store"]
        caller = own.client("alice", workspace="blue")
        made = caller.create_runtime(secrets=["db"])
        assert caller.shell(made, "echo $DB").text == f"{MASK}\n"
        # Another host: the store alone is worth nothing.
        host_key.unlink()
        subprocess.run(["systemd-creds", "setup"], check=True, capture_output=True)
        assert caller.post(RUNTIME, {"secrets": ["db"]}).status == 503
        status, _, text = secret(own, "ls")
        assert status == 1 and "not this key's" in text
    finally:
        own.done()


# --- nowhere else ------------------------------------------------------------------------------


def test_value_is_in_the_session_and_nowhere_else(private):
    caller = private.client("alice", workspace="blue")
    put(private, "db", PASSWORD, "--workspace", "blue")
    made = caller.create_runtime(secrets=["db"])
    session = caller.create(secrets=["db"])
    caller.write(session, "one", "type: a.B\n")
    caller.frames(caller.execute(session))
    for script in ("echo $DB", "echo $DB >&2; exit 3", "cat /proc/self/environ", "$DB"):
        caller.shell(made, script)
    caller.shell(made, "sleep 900 >/dev/null 2>&1 &")
    sleeper = wait_until(
        lambda: [pid for pid in descendants(private.process.pid) if name_of(pid) == "sleep"], 5)
    for url in (f"{RUNTIME}/{made}", f"{SESSIONS}/{session}", SESSIONS, "/metrics",
                f"{RUNTIME}/{made}/trace", f"{RUNTIME}/{made}/proof", "/openapi.json"):
        assert PASSWORD.encode() not in private.root.get(url).body
    caller.post(RUNTIME, {"secrets": ["db", "absent"]})
    # The helper is gone when its values are read.
    wait_until(lambda: not private.processes().get("sandboxd-helper"), 5, "no helper")
    needle = PASSWORD.encode()

    assert set(processes_with(needle, "environ")) == set(sleeper)
    assert processes_with(needle, "cmdline") == {}
    holders = processes_with(needle, "memory")
    services = {pid for pids in private.processes().values() for pid in pids}
    assert set(sleeper) <= set(holders) and set(private.shim_pids()) <= set(holders)
    assert not services & set(holders), holders
    # The file helper runs as `user`, for us alone: it gave its copy up.
    def is_helper(pid, shim):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            return (os.readlink(f"/proc/{pid}/exe") == os.readlink(f"/proc/{shim}/exe")
                    and status_of(pid)["Uid"] != status_of(shim)["Uid"])
        return False

    helpers = [pid for shim in private.shim_pids() for pid in descendants(shim) if is_helper(pid, shim)]
    assert helpers and not set(helpers) & set(holders)
    inside = set().union(*(descendants(shim) for shim in private.shim_pids()))
    assert set(holders) <= inside | set(private.shim_pids()), holders

    def created():
        lines = (private.state / "api" / "audit.jsonl").read_text().split("\n")[:-1]  # the last may be half there
        return [line["secrets"] for line in map(json.loads, lines) if line["action"] == "session.create"]

    wait_until(lambda: len(created()) >= 3, 10, "they are in the audit")
    assert created() == [["db"], ["db"], ["db", "absent"]]
    assert files_with(needle, private.home) == []
    assert files_with(b"db", private.state / "secrets") != []  # names are no secret
