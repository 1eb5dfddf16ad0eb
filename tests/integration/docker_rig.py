"""A Docker Engine of the test's own: podman's service, with one small image, in a folder of its own."""
import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
from pathlib import Path

from harness import PATIENCE, UnixConnection, all_pids, cgroup_mounts, is_zombie, wait_until

IMAGE = "localhost/sandbox-test:1"
BUSYBOX = "/bin/busybox"  # Debian's busybox-static
# What this host cannot raise must not be asked for by default.
CONTAINERS = """\
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
log_driver = "k8s-file"
netns = "none"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
"""


def rootfs():
    """busybox, a passwd and the folders that a container needs."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for folder in ("bin", "dev", "etc", "proc", "run", "session", "sys", "tmp", "usr", "usr/bin", "var"):
            info = tarfile.TarInfo(folder)
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(info)
        tar.add(os.path.realpath(BUSYBOX), "bin/busybox")
        names = subprocess.run([BUSYBOX, "--list"], capture_output=True, text=True, check=True).stdout.split()
        for name in names:
            if name == "busybox":
                continue
            info = tarfile.TarInfo(f"bin/{name}")
            info.type, info.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(info)
        passwd = b"root:x:0:0:root:/:/bin/sh\nuser:x:1000:1000:user:/session:/bin/sh\n"
        info = tarfile.TarInfo("etc/passwd")
        info.size, info.mode = len(passwd), 0o644
        tar.addfile(info, io.BytesIO(passwd))
    return data.getvalue()


class Engine:
    def __init__(self):
        self.home = Path(tempfile.mkdtemp(prefix="sbx-engine-", dir="/tmp"))
        self.socket = self.home / "engine.sock"
        self.log = self.home / "log"
        (self.home / "containers.conf").write_text(CONTAINERS)
        (self.home / "storage.conf").write_text(
            f'[storage]\ndriver = "vfs"\ngraphroot = "{self.home}/graph"\nrunroot = "{self.home}/run"\n')
        (self.home / "policy.json").write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
        self.env = {**os.environ, "CONTAINERS_CONF": str(self.home / "containers.conf"),
                    "CONTAINERS_STORAGE_CONF": str(self.home / "storage.conf"),
                    "TMPDIR": str(self.home), "XDG_RUNTIME_DIR": str(self.home)}
        self.process = None
        (self.home / "root.tar").write_bytes(rootfs())
        self.podman("import", str(self.home / "root.tar"), IMAGE)
        self.start()

    def podman(self, *words, check=True):
        done = subprocess.run(["podman", f"--tmpdir={self.home}/tmp", *words], env=self.env, cwd=self.home,
                              capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=60 * PATIENCE)
        assert not check or done.returncode == 0, (words, done.stderr)
        return done.stdout

    def start(self):
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                ["podman", f"--tmpdir={self.home}/tmp", "system", "service", "--time=0", f"unix://{self.socket}"],
                env=self.env, cwd=self.home,  # conmon notes there who was killed for memory
                stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        wait_until(self.answers, 20, "the engine answers")
        self.socket.chmod(0o666)  # Debian's has a group for this

    def answers(self):
        try:
            return self.ask("GET", "/_ping")[0] == 200
        except OSError:
            return False

    def ask(self, method, path, body=None):
        connection = UnixConnection(str(self.socket), 30 * PATIENCE)
        try:
            connection.request(method, path, body=json.dumps(body) if body else None,
                               headers={"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def containers(self):
        """What is there: {label of the sandbox: state}."""
        listed = json.loads(self.ask("GET", "/containers/json?all=true")[1])
        return {one["Labels"].get("sandboxd.sandbox"): one["State"] for one in listed}

    def inspect(self, sandbox):
        listed = json.loads(self.ask("GET", "/containers/json?all=true")[1])
        found = next(one["Id"] for one in listed if one["Labels"].get("sandboxd.sandbox") == sandbox)
        return json.loads(self.ask("GET", f"/containers/{found}/json")[1])

    def config(self, **more):
        values = {"socket": self.socket, "image": IMAGE, **more}
        return ("\n[supervisor]\nenvironment = development\n[docker]\n" +
                "".join(f"{key} = {value}\n" for key, value in values.items()))

    def stop(self):
        if self.process:
            self.process.terminate()
            try:
                self.process.wait(10 * PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process = None
        self.socket.unlink(missing_ok=True)

    def end_monitors(self):
        """Those of commands stay for minutes after their end; the engine's folder is in their arguments."""
        for pid in all_pids():
            with contextlib.suppress(OSError):
                if str(self.home).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)
                    wait_until(lambda gone=pid: is_zombie(gone), 5, "a monitor ends")

    def done(self):
        self.stop()
        self.podman("rm", "--force", "--all", "--time=0", check=False)
        self.podman("system", "prune", "--force", check=False)
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            if line.split()[4].startswith(str(self.home)):
                subprocess.run(["umount", "--lazy", line.split()[4]], check=False)
        self.end_monitors()
        for mount in cgroup_mounts():
            for group in ("libpod_parent/conmon", "libpod_parent"):
                with contextlib.suppress(OSError):  # another engine's are in it
                    (mount / group).rmdir()
        shutil.rmtree(self.home, ignore_errors=True)
