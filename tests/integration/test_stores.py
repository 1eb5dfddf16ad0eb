"""docs/stores.md, cell by cell: what each feature does with a store down, slow or read-only."""
import contextlib
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import time
import uuid
from pathlib import Path

import celery.exceptions
import pytest
import redis

from celery_rig import TASK, Broker, make_app
from harness import CONFIG, PATIENCE, RUNTIME, SESSIONS, SLOW, Daemon, ctl, stopped, wait_until
from postgres_rig import Postgres
from redis_rig import Redis
from small_disk import SmallDisk

DOCUMENT = Path(__file__).parents[2] / "docs" / "stores.md"
BODY = "type: demo.Thing\n"
SILENCE = 5 * SLOW  # seconds after which a client of the test's own gives up where no answer is expected


def tables():
    """{(column, feature): word}, in the order of the columns."""
    cells = {}
    for part in DOCUMENT.read_text().split("\n## ")[1:]:
        if part.startswith("The object store"):
            continue  # test_snapshots_s3.py
        rows = [[cell.strip().replace("`", "") for cell in line.strip("|").split("|")]
                for line in part.splitlines() if line.startswith("|")]
        section = "sessions' Redis " if part.startswith("Redis of sessions") else ""
        for number, column in enumerate(rows[0][1:], 1):
            for row in rows[2:]:
                cells[section + column, row[0]] = row[number]
    return cells


CELLS = tables()


class FailingDisk(SmallDisk):
    """A disk whose file system turns read-only at an error, and stays so."""

    leaks_expected = True  # what it never takes is owed to the end, and a worker that ends frees nothing of that

    def make_disk(self):
        image = self.home / "disk"
        with open(image, "wb") as file:
            file.truncate(48 << 20)
        subprocess.run(["mkfs.ext4", "-q", "-O", "^has_journal", image], check=True)
        done = subprocess.run(["mount", "-o", "loop,errors=remount-ro", image, self.state], capture_output=True,
                              check=False)
        if done.returncode != 0:
            shutil.rmtree(self.home)
            pytest.skip(f"no loop device: {done.stderr}")
        self.state.chmod(0o755)

    def fail(self):
        device = subprocess.run(["findmnt", "-n", "-o", "SOURCE", self.state], capture_output=True, text=True,
                                check=True).stdout.strip()
        Path("/sys/fs/ext4", Path(device).name, "trigger_fs_error").write_text("1")


# --- what goes wrong: the world before, and the trouble -----------------------------------------

class World:
    """A service with a store and all the servers beside it."""

    def __init__(self, disk):
        self.postgres = self.sessions = self.platform = self.broker = self.daemon = None
        self.made, self.sent = [], []
        self.expected = None  # of the cell
        try:
            self.make(disk)
        except BaseException:
            self.done()
            raise

    def make(self, disk):
        self.sessions, self.platform, self.broker = Redis(), Redis(), Broker()
        self.config = (CONFIG + self.sessions.config() + self.platform.platform(frames_hold="2s")
                       + f"\n[celery]\nbroker_url = {self.broker.url}\ntask_name = {TASK}\n"
                       "[owner]\nchanges_per_second = 0\njobs = 100\n")
        if not disk:
            self.postgres = Postgres()
            self.postgres.ready()
            self.config += f"\n[store]\ndsn = {self.postgres.dsn()}\n"
            self.daemon = Daemon(self.config)
        else:
            self.daemon = disk(self.config)
        self.alice = self.daemon.client("alice", workspace="blue")
        assert ctl(self.daemon, "secret", "put", "--state-dir", str(self.daemon.state), "--as", "WORD",
                   "--workspace", "blue", "word", stdin=b"a-secret-word").returncode == 0
        self.connection = str(uuid.uuid4())
        self.make_connection()

    def prepare(self):
        """What is there before the trouble."""
        self.dormant, self.live, self.still = self.session(), self.session(), self.session()
        self.old_task = self.alice.execute(self.live)
        self.frames = self.alice.frames(self.old_task)
        # What is in no worker's memory is read from the store.
        assert self.daemon.stop() == 0
        self.daemon.start()
        self.ready()
        assert self.alice.run(self.live, "/bin/true").code == 0
        assert self.alice.run(self.still, "/bin/true").code == 0
        assert self.alice.post(f"{RUNTIME}/{self.still}/suspend", {"durable": "wait"}).status == 200

    def patience(self):
        """Seconds: what is not to come is not waited for long."""
        return 40 * PATIENCE if self.expected == "works" else 5

    def silence(self):
        """Seconds after which a client of the test's own gives up."""
        return SILENCE if self.expected == "none" else 40 * PATIENCE

    def redis_cli(self):
        """Of a session."""
        return f'timeout {self.silence()} redis-cli --no-auth-warning -u "$SANDBOX_REDIS_URL"'

    def clean(self):
        if isinstance(self.daemon, FailingDisk):
            return  # there is no way back
        self.ready()
        for result in self.sent:
            assert result.get(timeout=40 * PATIENCE)["ok"] is True
        self.sent.clear()
        for made in self.made:
            assert self.alice.remove(made).status == 200
        self.made.clear()

    def session(self):
        made = self.alice.create()
        self.made.append(made)
        assert self.alice.write(made, "one", BODY).status == 200
        wait_until(lambda: self.alice.get(f"{SESSIONS}/{made}").json["sandbox"]["persisted"], 20, "persisted")
        return made

    def make_connection(self):
        if self.daemon.database:
            return  # these columns are of the embedded store's
        if not self.postgres:
            answer = self.alice.request("PUT", f"/dagster/sandbox/airbyte-connections/{self.connection}", {"name": "one"})
            assert answer.status == 200, answer
            return
        self.postgres.sql("INSERT INTO airbyte_connections (id, name, airbyte_connection_id, owner_user_id)"
                          f" VALUES ('{uuid.uuid4()}', 'one', '{self.connection}', 'alice')")

    def ready(self):
        wait_until(lambda: self.daemon.root.get("/readyz").status == 200, 60, "ready")

    @contextlib.contextmanager
    def executing_through_the_queue(self):
        self.reload("execution = celery")
        try:
            yield
        finally:
            self.reload("execution = local")

    def reload(self, line):
        self.daemon.configure(self.config.replace("[celery]\n", f"[celery]\n{line}\n"))
        before = len(self.daemon.log.read_text())
        os.kill(self.daemon.process.pid, signal.SIGHUP)
        wait_until(lambda: "configuration is reloaded" in self.daemon.log.read_text()[before:], 30, "reloaded")

    def done(self):
        for part in (self.daemon, self.postgres, self.sessions, self.platform, self.broker):
            if part:
                part.done()


@contextlib.contextmanager
def away(server):
    server.stop()
    try:
        yield
    finally:
        server.start()


@contextlib.contextmanager
def without_replicas(client):
    """It takes no writes: it wants a replica that has them too."""
    client.config_set("min-replicas-to-write", 1)
    try:
        yield
    finally:
        client.config_set("min-replicas-to-write", 0)


def as_test(server, silence=40 * PATIENCE):
    return redis.Redis(port=server.port, username="test", password=server.password, socket_timeout=silence,
                       socket_connect_timeout=silence)


@contextlib.contextmanager
def full(world):
    world.daemon.fill()
    try:
        yield
    finally:
        world.daemon.empty()


@contextlib.contextmanager
def failed(world):
    world.daemon.fail()
    yield


@contextlib.contextmanager
def locked(world):
    with contextlib.closing(sqlite3.connect(world.daemon.state / "api" / "api.db", timeout=10,
                                            isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@contextlib.contextmanager
def read_only(world):
    world.postgres.restart(settings=("default_transaction_read_only=on",))
    try:
        yield
    finally:
        world.postgres.restart()


TROUBLE = {
    "SQLite read-only": failed,
    "SQLite full": full,
    "SQLite locked": locked,
    "PostgreSQL down": lambda world: away(world.postgres),
    "PostgreSQL slow": lambda world: world.postgres.paused(),
    "PostgreSQL read-only": read_only,
    "sessions' Redis down": lambda world: away(world.sessions),
    "sessions' Redis slow": lambda world: stopped(world.sessions.process.pid),
    "sessions' Redis read-only": lambda world: without_replicas(as_test(world.sessions)),
    "platform down": lambda world: away(world.platform),
    "platform slow": lambda world: stopped(world.platform.process.pid),
    "platform read-only": lambda world: without_replicas(as_test(world.platform)),
    "broker down": lambda world: away(world.broker),
    "broker slow": lambda world: stopped(world.broker.process.pid),
    "broker read-only": lambda world: without_replicas(world.broker.client()),
}
REASONS = {
    "SQLite read-only": "attempt to write a readonly database|disk I/O error",
    "SQLite full": "database or disk is full",
    "SQLite locked": "database is locked",
    "PostgreSQL down": "the server cannot be reached: connection refused",
    "PostgreSQL slow": "the server (answers slowly|does not answer)|.*: connection lost",
    "PostgreSQL read-only": "the server is read-only",
}


def is_troubled(world, column):
    """The service has met it: a write that the store does not take, or what it says of its parts."""
    if column.startswith(("SQLite", "PostgreSQL")):
        answer = world.alice.write(world.live, f"big{uuid.uuid4().hex[:6]}", "x: " + "y" * 200000)
        assert answer.status == 200, answer
        # A server that was started anew is away first, and read-only then.
        ready = world.alice.get("/readyz")
        return (answer.headers["Sandbox-Degraded"] == "store" and ready.status == 503
                and re.fullmatch(REASONS[column], ready.json["parts"].get("store") or "") is not None)
    if column.startswith(("platform", "broker")) and "read-only" not in column:
        if column == "platform slow":
            world.alice.execute(world.live)  # its silence is noticed by who asks
        return world.daemon.root.get("/readyz").status == 503
    return True


# --- what each feature does: one of the document's words -----------------------------------------

def of_answer(answer, status=200):
    if answer.status == 503:
        assert "store unavailable" in answer.json["detail"], answer
        return "503"
    assert answer.status == status, answer
    return "later" if answer.headers["Sandbox-Degraded"] == "store" else "works"


def create(world):
    answer = world.alice.post(SESSIONS, {})
    word = of_answer(answer, 201)
    assert answer.json["sandbox"]["persisted"] is (word == "works"), answer
    assert world.alice.run(answer.json["id"], "/bin/true").code == 0
    world.alice.remove(answer.json["id"])
    return word


def read(world):
    answer = world.alice.get(f"{SESSIONS}/{world.live}")
    assert "one.yaml" in answer.json["components"], answer
    return of_answer(answer)


def listing(world):
    answer = world.alice.get(SESSIONS)
    assert {world.live, world.dormant} <= {session["id"] for session in answer.json}, answer
    return of_answer(answer)


def expiry(world):
    return of_answer(world.alice.request("PATCH", f"{SESSIONS}/{world.live}", {"ttl_minutes": 60}))


def component(world):
    return of_answer(world.alice.write(world.live, "one", BODY))


def load(world):
    return of_answer(world.alice.post(f"{SESSIONS}/{world.live}/load"))


def execute(world):
    answer = world.alice.post(f"{SESSIONS}/{world.live}/execute")
    word = of_answer(answer)
    assert world.alice.frames(answer.json["task_id"])[-1]["stage"] == "done"
    return word


def stream(world):
    frames = world.alice.frames(world.alice.execute(world.live))
    assert [frame["seq"] for frame in frames] == list(range(1, len(frames) + 1)), frames
    return "works" if frames[-1]["stage"] == "done" else frames[-1]


def replay(world):
    answer = world.alice.get(f"/dagster/sandbox/tasks/{world.old_task}/stream")
    word = of_answer(answer)
    if word == "works":
        assert world.alice.frames(world.old_task) == world.frames
    return word


def tasks(world):
    answer = world.alice.get(f"{SESSIONS}/{world.live}/tasks")
    word = of_answer(answer)
    assert answer.json, answer
    return "memory" if word == "later" else word


def suspend(world):
    answer = world.alice.post(f"{RUNTIME}/{world.live}/suspend", {"durable": "never"})
    word = of_answer(answer)
    assert world.alice.get(f"{RUNTIME}/{world.live}").json["status"] == ("open" if word == "503" else "suspended")
    if word != "503":
        wait_until(lambda: world.alice.post(f"{RUNTIME}/{world.live}/resume").status == 200, 20, "it goes on")
    return word


def resume(world):
    answer = world.alice.post(f"{RUNTIME}/{world.still}/resume")
    word = of_answer(answer)
    status = world.alice.get(f"{RUNTIME}/{world.still}").json["status"]
    assert status == ("suspended" if word == "503" else "open"), answer
    return word


def snapshots(world):
    answer = world.alice.post(f"{RUNTIME}/{world.live}/snapshots")
    if world.expected == "disk":
        assert (answer.status, answer.json["code"]) == (503, "snapshot_store"), answer
        return "disk"
    word = of_answer(answer, 201)
    back = {"snapshot_id": answer.json["snapshot_id"], "replace": True}
    assert world.alice.post(f"{RUNTIME}/{world.live}/restore", back).status == 200
    return word


def commands(world):
    return "works" if world.alice.run(world.live, "/bin/echo", "x").out == b"x\n" else "none"


def files(world):
    where = f"{RUNTIME}/{world.live}/files?path=a.txt"
    assert world.alice.request("PUT", where, raw_body=b"bytes").status in (200, 201)
    answer = world.alice.get(where)
    assert answer.body == b"bytes", answer
    return of_answer(answer)


def secrets(world):
    made = world.alice.create_runtime(secrets=["word"])
    seen = world.alice.shell(made, 'test "${#WORD}" = 13 && echo there').text
    world.alice.delete(f"{RUNTIME}/{made}")
    return "works" if seen == "there\n" else "none"


def redis_of_a_session(world):
    cli = world.redis_cli()
    seen = world.alice.shell(world.live, f'{cli} set "${{SANDBOX_REDIS_PREFIX}}k" v; {cli} get "${{SANDBOX_REDIS_PREFIX}}k"')
    return "works" if seen.text == "OK\nv\n" else "none"


def redis_of_a_new_session(world):
    answer = world.alice.post(SESSIONS, {})
    assert answer.status == 201, answer
    made = answer.json["id"]
    has = world.alice.shell(made, 'echo "<$SANDBOX_REDIS_URL>"').text != "<>\n"
    notes = [note for note in world.alice.get(f"{SESSIONS}/{made}").json["log_summary"]
             if note["metadata"].get("code") == "redis_unavailable"]
    assert has != bool(notes), notes
    world.alice.remove(made)
    return "works" if has else "none"


def keys_read(world):
    seen = world.alice.shell(world.live, f'{world.redis_cli()} exists "${{SANDBOX_REDIS_PREFIX}}none"').text
    return "works" if seen == "0\n" else "none"


def keys_write(world):
    seen = world.alice.shell(world.live, f'{world.redis_cli()} set "${{SANDBOX_REDIS_PREFIX}}w" v').text
    return "works" if seen == "OK\n" else "none"


def platform_frames(world):
    task_frames = []
    try:
        with as_test(world.platform, world.silence()).pubsub() as listener:
            listener.psubscribe("alphaswarm:task:*")
            listens = listener.get_message(timeout=world.silence())
            assert listens and listens["type"] == "psubscribe", listens
            task = world.alice.execute(world.live)
            assert world.alice.frames(task)[-1]["stage"] == "done"
            end = time.monotonic() + world.patience()
            while time.monotonic() < end:
                message = listener.get_message(timeout=1)
                if message and message["channel"].decode().endswith(task):
                    task_frames.append(message["data"])
                    if b'"done"' in message["data"]:
                        return "works"
    except redis.exceptions.RedisError:
        # Nobody can listen; the task runs all the same.
        assert world.alice.frames(world.alice.execute(world.live))[-1]["stage"] == "done"
    return "none"


def from_celery(world):
    try:
        app = make_app(world.broker)
        silence = world.silence()
        app.conf.update(redis_socket_timeout=silence, redis_socket_connect_timeout=silence,
                        broker_transport_options={"socket_timeout": silence, "socket_connect_timeout": silence})
        result = app.send_task(TASK, (world.live,), retry=False)
        world.sent.append(result)
        return "works" if result.get(timeout=world.patience())["ok"] is True else "none"
    except celery.exceptions.TimeoutError:
        # Nobody has said that it is lost: it has to come, see World.clean.
        return "waits"
    except Exception as error:  # of the client's own libraries, which depend on their version
        assert type(error).__module__.split(".")[0] in ("redis", "kombu", "celery", "amqp", "builtins"), error
        return "none"


def through_the_queue(world):
    with world.executing_through_the_queue():
        answer = world.alice.post(f"{SESSIONS}/{world.live}/execute")
        if answer.status == 503:
            assert "the task queue" in answer.json["detail"], answer
            return "503"
        assert answer.status == 200, answer
        assert world.alice.frames(answer.json["task_id"])[-1]["stage"] == "done"
    return "works"


def airbyte(world):
    answer = world.alice.post(f"{SESSIONS}/{world.live}/airbyte", {"airbyte_connection_id": world.connection})
    return of_answer(answer, 201 if answer.status == 201 else 200)


def dormant(world):
    answer = world.alice.post(f"{RUNTIME}/{world.dormant}/commands", {"argv": ["/bin/true"]})
    return of_answer(answer) if answer.status == 503 else "works" if answer.status == 200 else answer


def delete(world):
    gone = world.alice.create()
    word = of_answer(world.alice.remove(gone))
    # Whether there is one of that name only a store knows that is away.
    assert world.alice.get(f"{SESSIONS}/{gone}").status == (503 if world.postgres else 404)
    return word


def healthz(world):
    return of_answer(world.alice.get("/healthz"))


FEATURES = {
    "create a session": create,
    "read a session": read,
    "list sessions": listing,
    "change the expiry": expiry,
    "write a component": component,
    "load": load,
    "execute": execute,
    "stream of a task that runs": stream,
    "frames of a task that has ended": replay,
    "tasks of a session": tasks,
    "commands": commands,
    "files": files,
    "suspend": suspend,
    "resume": resume,
    "snapshots": snapshots,
    "secrets": secrets,
    "Redis of a session": redis_of_a_session,
    "Redis of a new session": redis_of_a_new_session,
    "reading a session's keys": keys_read,
    "writing a session's keys": keys_write,
    "frames for the platform": platform_frames,
    "tasks from Celery": from_celery,
    "execute with execution = celery": through_the_queue,
    "connection of Airbyte": airbyte,
    "use of a dormant session": dormant,
    "delete a session": delete,
    "/healthz": healthz,
    "/readyz": None,
}


def ready_word(world, column):
    answer = world.alice.get("/readyz")
    if answer.status == 200:
        return "works"
    text = answer.json["parts"][answer.json["reason"]]
    assert text and re.fullmatch(REASONS.get(column, ".+"), text), answer
    return answer.json["reason"]


# --- one trouble after the other ------------------------------------------------------------------

@pytest.fixture(scope="module")
def troubled():
    """A world in one trouble, until another one is asked for."""
    worlds = {}
    state = {"column": None, "way_out": None}

    def leave():
        if state["way_out"]:
            way_out, state["way_out"] = state["way_out"], None
            way_out.close()

    def enter(column):
        disk = None if column.startswith("PostgreSQL") else FailingDisk if column == "SQLite read-only" else SmallDisk
        if disk not in worlds:
            worlds[disk] = World(disk)
        world = worlds[disk]
        if column.startswith("SQLite") and world.daemon.database:
            pytest.skip("the disk is the embedded store's")
        if state["column"] != column:
            leave()
            state["column"] = column
            with contextlib.ExitStack() as way_out:
                way_out.callback(world.clean)
                world.prepare()
                way_out.enter_context(TROUBLE[column](world))
                wait_until(lambda: is_troubled(world, column), 90, f"the service meets: {column}")
                state["way_out"] = way_out.pop_all()
        assert state["way_out"], "this trouble could not be made"
        return world

    yield enter
    try:
        leave()
    finally:
        for world in worlds.values():
            world.done()


def test_every_cell_has_a_test():
    assert {column for column, _ in CELLS} == set(TROUBLE)
    assert {feature for _, feature in CELLS} == set(FEATURES)


@pytest.mark.parametrize("column,feature", list(CELLS), ids=[f"{c}-{f}".replace(" ", "_") for c, f in CELLS])
def test_cell(troubled, column, feature):
    world = troubled(column)
    world.expected = CELLS[column, feature]
    began = time.monotonic()
    check = FEATURES[feature]
    seen = check(world) if check else ready_word(world, column)
    assert seen == CELLS[column, feature]
    assert time.monotonic() - began < 60 * PATIENCE
