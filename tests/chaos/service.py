"""The service and the servers that it uses, in a folder of the run; its state is a small file system."""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import redis

import wire
import world

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "integration"))
from postgres_rig import Postgres, children_of  # noqa: E402  only how the servers are started
from redis_rig import ADMIN, Redis  # noqa: E402

BIN = Path(os.environ["SANDBOX_BUILD"]) / "bin"
STATE_SIZE = "192m"
QUEUE, TASK = "sandbox", "execute_sandbox_session"


def wait_until(condition, timeout, what):
    end = time.monotonic() + timeout
    while not (value := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"not within {timeout} s: {what}")
        time.sleep(0.1)
    return value


class DurableRedis(Redis):
    """Keys outlive its death; users do not, as on a server whose owner saves no users."""

    def start(self):
        users = [f"user test on >{self.password} ~* &* +@all", "user default off",
                 f"user {ADMIN} on >{self.admin_password} ~* -@all {self.admin_may}"]
        file = Path(self.home.name) / "redis.conf"
        file.write_text("\n".join([f"port {self.port}", "bind 127.0.0.1", f"dir {self.home.name}", 'save ""',
                                   "appendonly yes", "appendfsync always", *users]) + "\n")
        self.process = subprocess.Popen(["redis-server", str(file)], executable="/usr/bin/redis-check-rdb",
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(lambda: self.ask("ping") == "PONG", 60, "Redis answers")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def pids(self):
        return [self.process.pid]

    def keys(self, session="*"):
        return self.ask("keys", f"alphaswarm:sandbox:{session}:*").split()

    def queue(self):
        return (f"\n[celery]\nbroker_url = redis://test:{self.password}@127.0.0.1:{self.port}/0\n"
                f"queue = {QUEUE}\ntask_name = {TASK}\nvisibility_timeout = 5s\n")

    def push(self, *messages):
        """As a producer does; raises redis.RedisError."""
        client = redis.Redis(port=self.port, username="test", password=self.password, socket_timeout=15)
        try:
            client.lpush(QUEUE, *messages)
        finally:
            client.close()

    def waiting(self):
        """Messages that are not acknowledged."""
        return int(self.ask("llen", QUEUE) or 1) + int(self.ask("hlen", "unacked") or 1)

    def values(self):
        return {key: self.ask("get", key) for key in self.keys()}


class DurablePostgres(Postgres):
    def pids(self):
        return [self.process.pid, *children_of(self.process.pid)]

    def kill(self):
        for pid in self.pids():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()

    def start(self, *settings):
        # What a killed server left in shared memory goes when the last of its children has gone.
        for attempt in range(10):
            try:
                super().start(*settings)
                return
            except AssertionError:
                if attempt == 9:
                    raise
                time.sleep(1)


class Service:
    def __init__(self, home, store, env):
        self.home = Path(home)
        self.runtime, self.state, self.log = self.home / "run", self.home / "state", self.home / "log"
        self.store = store
        self.env = env
        self.process = None
        self.postgres = self.redis = None
        self.filler = self.state / "filler"

    def begin(self):
        self.runtime.mkdir(mode=0o755)
        self.state.mkdir(mode=0o755)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={STATE_SIZE},mode=0755", "none", str(self.state)],
                       check=True)
        self.redis = DurableRedis()
        config = "[identity]\ntrusted_peers = 0\n" + self.redis.config() + self.redis.queue()
        if self.store == "postgres":
            self.postgres = DurablePostgres()
            self.postgres.ready()
            config += f"\n[store]\ndsn = {self.postgres.dsn()}\n"
        (self.home / "sandboxd.conf").write_text(config)
        self.start()

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [str(BIN / "sandboxd"), "--runtime-dir", str(self.runtime), "--state-dir", str(self.state),
                 "--libexec-dir", str(BIN), "--config", str(self.home / "sandboxd.conf")],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", start_new_session=True,
                env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/", **self.env})
        self.wait_ready(120)

    @property
    def control(self):
        return self.runtime / "control.sock"

    @property
    def operator(self):
        return wire.Caller(self.runtime / "operator.sock")

    @property
    def instance(self):
        return (self.state / "instance").read_text().strip()

    def ready(self):
        if self.process.poll() is not None:
            raise RuntimeError(f"the service ended: {self.process.returncode}")
        try:
            status, state, _ = self.operator.ask("GET", "/readyz", timeout=20)
        except wire.Broken:
            return False
        return status == 200 or (isinstance(state, dict) and state.get("reason") == "canary"
                                 and state.get("text") != "it runs")

    def wait_ready(self, timeout):
        wait_until(self.ready, timeout, "the service is ready")

    def pid_of(self, name):
        """None: it does not run now."""
        if name == "supervisor":
            found = [pid for pid, known in world.below(self.process.pid).items()
                     if known == "sandboxd" and (world.stat_of(pid) or (0, 0, 0))[2] == self.process.pid]
        else:
            # Of a worker's children one has its name too.
            supervisor = self.pid_of("supervisor")
            found = [pid for pid, known in world.below(self.process.pid).items()
                     if known == name[:15] and (world.stat_of(pid) or (0, 0, 0))[2] == supervisor]
        return found[0] if found else None

    def shims(self):
        return world.first_of_namespaces(self.process.pid)

    def fill(self):
        with open(self.filler, "wb", buffering=0) as filler:
            for size in (1 << 20, 4096):
                try:
                    while True:
                        filler.write(b"x" * size)
                except OSError:
                    pass

    def unfill(self):
        self.filler.unlink(missing_ok=True)

    def counts(self):
        """What must be as before once every session has gone."""
        supervisor, api = self.pid_of("supervisor"), self.pid_of("sandboxd-api")
        return {
            "shims": len(self.shims()), "groups": len(world.groups(self.instance)),
            "sockets": len(list((self.runtime / "private" / "sessions").glob("*"))),
            "id blocks": world.id_blocks(self.instance), "mounts": world.mounts(supervisor),
            **{f"{kind} namespaces": n for kind, n in world.namespaces().items()},
            "supervisor descriptors": world.descriptors(supervisor), "api descriptors": world.descriptors(api),
            "redis users": len(self.redis.users()), "redis keys": len(self.redis.keys()),
        }

    def counts_at_rest(self, wanted=None, timeout=60):
        """Once they stay the same for a while, and are as wanted or the time is over."""
        end = time.monotonic() + timeout
        last, since = None, time.monotonic()
        while True:
            try:
                now = self.counts()
            except (TypeError, OSError):
                now = None  # somebody has just died
            if now is None or now != last:
                last, since = now, time.monotonic()
            elif time.monotonic() - since > 2 and (wanted is None or now == wanted):
                return now
            if time.monotonic() > end:
                return now
            time.sleep(0.2)

    def stop(self):
        """The exit status."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(90)
        except subprocess.TimeoutExpired:
            return "it does not end"

    def leftovers(self):
        """What is there of the instance once the service has ended; must be empty."""
        left = [f"process {pid} {known}" for pid, known in world.members(self.instance).items()]
        left += [f"group {path}" for path in world.groups(self.instance)]
        left += [f"socket {path}" for path in (self.runtime / "private" / "sessions").glob("*")]
        left += ["id block"] * world.id_blocks(self.instance)
        left += [f"mount {line}" for line in world.text("/proc/self/mountinfo").splitlines()
                 if str(self.home) in line and f"{self.state} " not in line]
        return left

    def end(self):
        """Whatever happened before."""
        if self.process and self.process.poll() is None:
            self.unfill()
            if self.stop() == "it does not end":
                self.process.kill()
                self.process.wait()
        for server in (self.redis, self.postgres):
            if server:
                server.done()
        subprocess.run(["umount", "-l", str(self.state)], check=False)


def new_home():
    return Path(tempfile.mkdtemp(prefix="sbx-chaos-", dir="/tmp"))


def remove_home(home):
    shutil.rmtree(home, ignore_errors=True)
