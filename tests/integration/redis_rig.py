"""A Redis server of the test's own, closed to clients without a password."""
import secrets
import subprocess
import tempfile
from pathlib import Path

from harness import PATIENCE, free_port, wait_until

ADMIN = "sandboxd-admin"
ADMIN_MAY = "+acl|setuser +acl|deluser +acl|users +scan +unlink +memory|usage"  # as sandboxd.conf(5) says
PLATFORM = "sandboxd-frames"


class Redis:
    def __init__(self, default="off", admin_may=ADMIN_MAY,
                 platform_may="+select +publish +pubsub|numsub", lines=(), program=None, binds_channels=True):
        self.port = free_port()
        self.password, self.admin_password = secrets.token_hex(16), secrets.token_hex(16)
        self.home = tempfile.TemporaryDirectory(prefix="sbx-redis-")
        self.platform_password = secrets.token_hex(16)
        self.admin_may, self.platform_may = admin_may, platform_may
        self.default, self.lines = default, lines
        self.program, self.binds_channels = program, binds_channels
        self.process = None
        self.start()

    def start(self):
        users = [f"user test on >{self.password} ~* &* +@all",
                 f"user {ADMIN} on >{self.admin_password} ~alphaswarm:sandbox:* -@all {self.admin_may}"]
        users.append(f"user {PLATFORM} on >{self.platform_password} resetchannels &alphaswarm:task:* -@all {self.platform_may}")
        if self.default != "on":
            users.append("user default off")
        if not self.binds_channels:
            users = [" ".join(word for word in user.split(" ") if word[0] != "&" and word != "resetchannels")
                     for user in users]
        file = Path(self.home.name) / "redis.conf"
        file.write_text("\n".join([f"port {self.port}", "bind 127.0.0.1", f"dir {self.home.name}", 'save ""',
                                   "appendonly no", *self.lines, *users]) + "\n")
        # The server is in the package of the client; it goes by the name under which it is called.
        self.process = subprocess.Popen(["redis-server", str(file)],
                                        executable=self.program or "/usr/bin/redis-check-rdb", stdout=subprocess.DEVNULL)
        wait_until(lambda: self.ask("ping") == "PONG", 10, "redis answers")

    def command(self, *words, user="test", password=None):
        return ["redis-cli", "--no-auth-warning", "-p", str(self.port), "--user", user,
                "--pass", password or self.password, *words]

    def ask(self, *words, **who):
        """What it answers; "" where it does not."""
        try:
            return subprocess.run(self.command(*words, **who), capture_output=True, text=True, check=False,
                                  timeout=60 * PATIENCE).stdout.strip()
        except subprocess.TimeoutExpired:
            return ""

    def config(self, **more):
        values = {"url": f"redis://127.0.0.1:{self.port}", "user": ADMIN,
                  "password": self.admin_password, **more}
        return "\n[redis]\n" + "".join(f"{key} = {value}\n" for key, value in values.items())

    def platform(self, **more):
        values = {"redis_url": f"redis://{PLATFORM}:{self.platform_password}@127.0.0.1:{self.port}/1", **more}
        return "\n[platform]\n" + "".join(f"{key} = {value}\n" for key, value in values.items())

    def users(self):
        return [line for line in self.ask("acl", "users").splitlines() if "sandbox-" in line]

    def stop(self):
        if self.process:
            self.process.terminate()
            self.process.wait(10 * PATIENCE)
        self.process = None

    def done(self):
        self.stop()
        self.home.cleanup()
