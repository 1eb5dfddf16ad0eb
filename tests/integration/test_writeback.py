"""A turn of an agent: clone, edit, build, read, commit, push; suspend, restart, resume; then nothing is left of the token."""
import base64
import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from egress_rig import WORLD
from git_rig import GitServer, git, make_authority
from harness import PATIENCE, ROOT, RUNTIME
from world_rig import fixture_daemon, fixture_world  # noqa: F401  pylint: disable=unused-import

DBT = ROOT / "build" / "dbt"
TOKEN = "ghs_writeback9876543210TOKEN"
WHO = {"author_name": "Ana", "author_email": "ana@example.com"}
PROJECT = {
    "dbt_project.yml": "name: shop\nversion: '1.0'\nprofile: shop\nmodel-paths: [models]\n",
    "profiles.yml": "shop:\n  target: dev\n  outputs:\n    dev:\n      type: duckdb\n      path: /session/shop.duckdb\n",
    "models/orders.sql": "select 1 as id, 10 as amount\n",
    "models/totals.sql": "select sum(amount) as total from {{ ref('orders') }}\n",
    # What stands for dbt where it cannot be had: real work with what Debian has.
    "build.py": ("import pathlib, sqlite3, sys\nout = pathlib.Path('target/compiled/shop/models')\n"
                 "out.mkdir(parents=True, exist_ok=True)\ndb = sqlite3.connect(':memory:')\n"
                 "for model in ('orders', 'totals'):\n"
                 "    text = pathlib.Path(f'models/{model}.sql').read_text().replace(\"{{ ref('orders') }}\", 'orders')\n"
                 "    db.execute(f'create table {model} as {text}')\n    (out / f'{model}.sql').write_text(text)\n"
                 "    print('compiled', model, flush=True)\nprint(db.execute('select * from totals').fetchall())\n"),
    ".gitignore": "target/\nlogs/\n*.duckdb\n",
}


@pytest.fixture(name="authority", scope="module")
def fixture_authority(tmp_path_factory):
    return make_authority(tmp_path_factory.mktemp("authority"), "git.example.com")


@pytest.fixture(name="server", scope="module")
def fixture_server(world, authority, tmp_path_factory):
    listener = world.listen(f"{WORLD}.2", 443)
    world.names["git.example.com"] = [f"{WORLD}.2"]
    made = GitServer(tmp_path_factory.mktemp("git"), authority[1], listener, TOKEN)
    yield made
    made.stop()


def found_in(folder, words):
    """Files below a folder that hold one of the words."""
    found = []
    for place, _, names in os.walk(folder):  # does not mind folders that go meanwhile
        for name in names:
            file = Path(place, name)
            try:
                if file.is_file() and any(word in file.read_bytes() for word in words):
                    found.append(str(file))
            except OSError:
                pass
    return found


def contents_of_snapshots(state):
    files = list(Path(state).rglob("*.tar.zst"))
    assert files
    return b"".join(subprocess.run(["zstd", "-dc", file], capture_output=True, check=True).stdout for file in files)


def build_with_debian(caller, session):
    return caller.run(session, "python3", "build.py", cwd="/session/shop")


def build_with_dbt(caller, session):
    if caller.get(f"{RUNTIME}/{session}/files/stat?path=/session/dbt").status != 200:
        text = io.BytesIO()
        with tarfile.open(fileobj=text, mode="w") as archive:
            archive.add(DBT, "dbt", filter=lambda info: None if "__pycache__" in info.name else info)
        answer = caller.request("PUT", f"{RUNTIME}/{session}/files?path=/session/dbt.tar", raw_body=text.getvalue(), timeout=300 * PATIENCE)
        assert answer.status == 200, answer
        assert caller.shell(session, "tar -xf dbt.tar && rm dbt.tar", timeout_ms=300000).code == 0
    return caller.run(session, "python3", "-c", "from dbt.cli.main import cli; cli()", "compile", "--profiles-dir", ".",
                      cwd="/session/shop", timeout_ms=600000, timeout=600 * PATIENCE,
                      envs={"PYTHONPATH": "/session/dbt", "DBT_SEND_ANONYMOUS_USAGE_STATS": "false"})


class Turn:
    def __init__(self, caller, session, authority):
        self.caller = caller
        self.session = session
        self.network = {"credentials": {"username": "x-access-token", "password": TOKEN, "host": "git.example.com"},
                        "ca_certificates": authority}

    def act(self, act, **body):
        if act in ("clone", "fetch", "pull", "push"):
            body = {**self.network, **body}
        answer = self.caller.post(f"{RUNTIME}/{self.session}/git/{act}", {"path": "/session/shop", **body})
        assert answer.status == 200, answer
        return answer.json

    def put(self, path, text):
        answer = self.caller.request("PUT", f"{RUNTIME}/{self.session}/files?path=/session/shop/{path}", raw_body=text.encode())
        assert answer.status == 200, answer

    def read(self, path):
        answer = self.caller.get(f"{RUNTIME}/{self.session}/files?path=/session/shop/{path}")
        assert answer.status == 200, answer
        return answer.body.decode()


def take_turn(turn, build, amount):
    turn.put("models/orders.sql", f"select 1 as id, {amount} as amount\n")
    built = build(turn.caller, turn.session)
    assert built.code == 0, built
    assert [event for event in built.events if event["type"] == "stdout"], "its output comes as a stream"
    assert str(amount) in turn.read("target/compiled/shop/models/orders.sql")
    assert "{{" not in turn.read("target/compiled/shop/models/totals.sql")
    turn.act("add", paths=["models"])
    commit = turn.act("commit", message=f"amount is {amount}", **WHO)
    assert turn.act("push", branch="agent/amount", set_upstream=True)["result"] in ("new", "updated")
    return commit["commit"]


@pytest.mark.parametrize("build", [build_with_debian, build_with_dbt], ids=["debian", "dbt"])
def test_a_turn_leaves_nothing_of_the_token(alice, daemon, server, authority, build):
    if build is build_with_dbt and not (DBT / "dbt").is_dir():
        pytest.skip("tests/run has fetched no dbt")
    name = build.__name__
    bare = server.add(name, PROJECT)
    session = alice.create_runtime(egress={"allow": ["git.example.com"]}, workspace={"include": ["/session/shop"]})
    turn = Turn(alice, session, authority[0])
    turn.act("clone", url=f"https://git.example.com/{name}.git")
    turn.act("branch", branch="agent/amount")
    first = take_turn(turn, build, 4711)
    assert git("rev-parse", "agent/amount", cwd=bare) == first
    suspended = alice.post(f"{RUNTIME}/{session}/suspend", {"durable": "wait"})
    assert suspended.status == 200 and suspended.json["durable"], suspended
    assert daemon.stop() == 0, "a stop of the service ends the processes of all sessions"
    daemon.start()
    resumed = alice.post(f"{RUNTIME}/{session}/resume")
    assert resumed.status == 200 and resumed.json["resumed"] == "snapshot", resumed
    assert take_turn(turn, build, 4712) == git("rev-parse", "agent/amount", cwd=bare)
    assert alice.post(f"{RUNTIME}/{session}/suspend", {"durable": "wait"}).json["durable"]
    words = [TOKEN.encode(), base64.b64encode(f"x-access-token:{TOKEN}".encode())]
    stored = contents_of_snapshots(daemon.state)
    assert b"agent/amount" in stored, "the control: a snapshot has what the turn wrote"
    assert not any(word in stored for word in words)
    assert alice.post(f"{RUNTIME}/{session}/resume").json["resumed"] == "memory"
    inside = alice.run(session, "sh", "-c", "read token; grep -rlaF \"$token\" /session /tmp /dev/shm; true", stdin=f"{TOKEN}\n")
    assert inside.text == "", inside
    assert alice.delete(f"{RUNTIME}/{session}").status == 200
    for folder in (daemon.state, daemon.runtime):
        assert not found_in(folder, words)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if int(pid) == os.getpid():
            continue  # we know it
        for part in ("cmdline", "environ"):
            try:
                text = Path(f"/proc/{pid}/{part}").read_bytes()
            except OSError:
                continue
            assert not any(word in text for word in words), (pid, part)
    assert any(one[3] for one in server.seen), "the control: the server had it"
    assert subprocess.run(["grep", "-qaF", TOKEN, __file__], check=False).returncode == 0, "the control: grep finds it"
