"""A PostgreSQL server of the test's own: its folder, its port, its passwords."""

import atexit
import contextlib
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import BIN, CONFIG, PATIENCE, free_port, stopped, wait_until

DATABASE = "platform"
OWNER = "platform_owner"   # of the schema
SERVICE = "sandbox_service"
READER = "platform_reader"


def server_bin():
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    assert folders, "the package postgresql is not installed"
    return folders[-1].parent


class Postgres:
    def __init__(self):
        self.bin = server_bin()
        self.user = pwd.getpwnam("postgres")
        self.home = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
        os.chown(self.home, self.user.pw_uid, self.user.pw_gid)
        self.data = self.home / "data"
        self.port = free_port()
        self.passwords = {role: secrets.token_hex(8) for role in (OWNER, SERVICE, READER)}
        self.process = None
        self.n_databases = 0
        try:
            self._as_postgres(str(self.bin / "initdb"), "-D", str(self.data), "-A", "scram-sha-256",
                              "--auth-local=trust", "-E", "UTF8", "--locale=C.UTF-8", "-N")
            self.start()
            for role, password in self.passwords.items():
                self.sql(f"CREATE ROLE {role} LOGIN PASSWORD '{password}'", database="postgres")
            self.new_database()
        except BaseException:
            self.done()
            raise

    def _as_postgres(self, *argv, **more):
        return subprocess.run(argv, user=self.user.pw_uid, group=self.user.pw_gid, extra_groups=[],
                              cwd=self.home, check=True, capture_output=True, text=True,
                              env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}, **more)

    def start(self, *settings):
        log = open(self.home / "log", "ab")
        self.process = subprocess.Popen(
            [str(self.bin / "postgres"), "-D", str(self.data), "-p", str(self.port), "-k",
             str(self.home), "-c", "listen_addresses=127.0.0.1", "-c", "max_connections=30",
             "-c", "shared_buffers=32MB", "-c", "unix_socket_permissions=0700",
             *(word for setting in settings for word in ("-c", setting))],
            user=self.user.pw_uid, group=self.user.pw_gid, extra_groups=[], cwd=self.home,
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"})
        log.close()
        wait_until(self.answers, 30, "PostgreSQL answers")

    def answers(self):
        assert self.process.poll() is None, (self.home / "log").read_text()[-2000:]
        try:
            return self.sql("SELECT 1", database="postgres") == "1"
        except subprocess.CalledProcessError:
            return False

    def stop(self, sig=signal.SIGINT):
        """SIGINT: fast, SIGQUIT: as a crash."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(sig)
            self.process.wait(30 * PATIENCE)

    def restart(self, sig=signal.SIGINT, pause=0.0, settings=()):
        self.stop(sig)
        time.sleep(pause)
        self.start(*settings)

    @contextlib.contextmanager
    def paused(self):
        """Every process of it stands still: the first one before its children are looked for, which it makes."""
        with stopped(self.process.pid), stopped(*children_of(self.process.pid)):
            yield

    def sql(self, text, database=DATABASE, role="postgres"):
        env = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "PGPASSWORD": self.passwords.get(role, "")}
        host = str(self.home) if role == "postgres" else "127.0.0.1"
        return subprocess.run(
            [str(self.bin / "psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", host,
             "-p", str(self.port), "-U", role, "-d", database, "-f", "-"],
            input=text, capture_output=True, text=True, check=True, timeout=120 * PATIENCE,
            user=self.user.pw_uid, group=self.user.pw_gid, extra_groups=[], cwd=self.home,
            env=env).stdout.strip()

    def new_database(self, name=DATABASE):
        self.sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)", database="postgres")
        self.sql(f"CREATE DATABASE {name} OWNER {OWNER}", database="postgres")
        self.sql("REVOKE CREATE ON SCHEMA public FROM PUBLIC; "
                 f"GRANT CREATE, USAGE ON SCHEMA public TO {OWNER}", database=name)

    def dsn(self, role=SERVICE, password=True, scheme="postgresql", database=DATABASE, port=None):
        secret = f":{self.passwords[role]}" if password else ""
        return f"{scheme}://{role}{secret}@127.0.0.1:{port or self.port}/{database}"

    def migrate(self, *words, role=OWNER, database=DATABASE):
        """sandboxctl migrate as the owner of the schema."""
        # A file of its own: several may run at once.
        with tempfile.NamedTemporaryFile("w", dir=self.home) as file:
            file.write(self.dsn(role, database=database) + "\n")
            file.flush()
            return subprocess.run([str(BIN / "sandboxctl"), "migrate", *words, "--dsn-file", file.name],
                                  capture_output=True, text=True, timeout=120 * PATIENCE, check=False)

    def ready(self, database=DATABASE):
        """The schema, and the service's rights on it as the manual gives them."""
        done = self.migrate(database=database)
        assert done.returncode == 0, done
        self.sql(GRANTS, database=database)

    def config(self, extra="", **more):
        return f"{CONFIG}\n[store]\ndsn = {self.dsn(**more)}\n{extra}\n"

    def done(self):
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.home, ignore_errors=True)


class Cable:
    """A way to the server that can be cut: connections end, and new ones are refused."""

    def __init__(self, server):
        self.to = server.port
        self.port = free_port()
        self.process = None
        self.mend()

    def mend(self):
        self.process = subprocess.Popen(
            [sys.executable, "-c", CABLE, str(self.port), str(self.to)], stdin=subprocess.DEVNULL)
        wait_until(self.leads, 30, "the cable is there")

    def leads(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def cut(self):
        if self.process:
            self.process.kill()
            self.process.wait()
        self.process = None


CABLE = """
import asyncio, sys

async def copy(source, sink):
    try:
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    except OSError:
        pass
    sink.close()

async def carry(reader, writer):
    to_reader, to_writer = await asyncio.open_connection("127.0.0.1", int(sys.argv[2]))
    await asyncio.gather(copy(reader, to_writer), copy(to_reader, writer))

async def main():
    server = await asyncio.start_server(carry, "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()

asyncio.run(main())
"""


SHARED = []


class Database:
    """One of a server's, with what tests look up in it; psycopg2 knows how values are written."""

    def __init__(self, server, name):
        self.server = server
        self.name = name
        self.dsn = server.dsn(database=name)

    def rows(self, statement, values=()):
        import psycopg2

        with contextlib.closing(psycopg2.connect(
                host=str(self.server.home), port=self.server.port, user="postgres", dbname=self.name)) as store:
            with store, store.cursor() as cursor:
                cursor.execute(statement.replace("%", "%%").replace("?", "%s"), values)
                return cursor.fetchall() if cursor.description else []

    def tables(self):
        return [row[0] for row in self.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")]

    def columns(self, table):
        return [row[0] for row in self.rows(
            "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(?) AND attnum > 0"
            " AND NOT attisdropped ORDER BY attnum", (table,))]


def shared_database():
    """A new database on the one server of this test run."""
    if not SHARED:
        SHARED.append(Postgres())
        atexit.register(SHARED[0].done)
    server = SHARED[0]
    server.n_databases += 1
    name = f"store{server.n_databases}"
    server.new_database(name)
    server.ready(name)
    return Database(server, name)


# As docs/postgresql.md says.
GRANTS = f"""
GRANT SELECT, INSERT, UPDATE, DELETE ON dagster_sandbox_sessions, sandbox_components, sandbox_tasks,
	sandbox_frames, sandbox_task_output, sandbox_usage, sandbox_writers, sandbox_registry TO {SERVICE};
GRANT SELECT ON schema_migrations TO {SERVICE};
GRANT SELECT (id, name, airbyte_connection_id, owner_user_id, workspace_id)
	ON airbyte_connections TO {SERVICE};
"""


def children_of(pid):
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]
