"""Where the attacks run: in sessions, outside of them, and beside daemons with a layer left away."""
import atexit
import base64
import contextlib
import ctypes
import gzip
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "integration"))
import harness  # noqa: E402
from harness import BUILD, CONFIG, SLOW, Daemon  # noqa: E402,F401

PROGRAM = BUILD / "tests" / "escape" / "escape"
INSIDE = "/session/escape"


def steps(text):
    """step → result of an attack's output."""
    return dict(line.split("\t", 1) for line in text.splitlines() if "\t" in line)


class Program:
    """The attacks, stripped, as text that one command can take as its input."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="escape-", dir="/tmp"))
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)
        self.folder.chmod(0o755)
        self.path = self.folder / "escape"
        subprocess.run(["strip", "-o", self.path, PROGRAM], check=True)
        self.path.chmod(0o755)
        self.text = base64.b64encode(gzip.compress(self.path.read_bytes())).decode()


PROGRAM_TEXT = Program()


class Session:
    """A session with the attacks in it."""

    def __init__(self, client, agent=False, user="user", **body):
        self.client = client
        self.user = user
        self.id = client.create_runtime(**body) if agent else client.create(**body)
        self.put()

    def put(self):
        result = self.shell(
            f"base64 -d | gzip -d > {INSIDE} && chmod 755 {INSIDE}",
            stdin=PROGRAM_TEXT.text, user="user")
        assert result.code == 0, result

    def attack(self, *words, timeout_ms=60000 * SLOW):
        result = self.client.run(self.id, INSIDE, *map(str, words), timeout_ms=timeout_ms,
                                 timeout=90 * SLOW, user=self.user)
        return steps(result.text)

    def shell(self, script, **more):
        return self.client.shell(self.id, script, **{"user": self.user, **more})

    def remove(self):
        return self.client.remove(self.id)


def outside(*words, shell=None, private=True, cwd=None, pass_fds=(), env=None):
    """The same program without the sandbox: in namespaces of its own where it could harm."""
    argv = [str(PROGRAM_TEXT.path), *map(str, words)] if shell is None else ["/bin/sh", "-c", shell]
    if private:
        argv = ["unshare", "-mnpiu", "--propagation", "private", "--fork", "--mount-proc", *argv]
    folder = tempfile.mkdtemp(prefix="escape-cwd-", dir="/tmp")
    try:
        result = subprocess.run(argv, capture_output=True, cwd=cwd or folder, check=False,
                                stdin=subprocess.DEVNULL, timeout=120 * SLOW, pass_fds=pass_fds, env=env)
    finally:
        shutil.rmtree(folder)
    return steps(result.stdout.decode())


def evil_daemon(name, evil):
    """A daemon with one of its programs replaced by tests/escape/EVIL.c."""
    folder = PROGRAM_TEXT.folder / evil
    if not folder.exists():
        shutil.copytree(BUILD / "bin", folder)
        shutil.copy2(BUILD / "tests" / "escape" / evil, folder / name)
    return Daemon(programs=folder, config=CONFIG + "[limits]\nmemory = 1024GiB\n"
                  "[owner]\nsessions = 100\nmemory = 1024GiB\n")


class Daemons:
    """Daemons by what is left away in them, started when they are first asked for."""

    def __init__(self):
        self.started = {}

    def get(self, off="", plant="", config=CONFIG, env=None):
        key = (off, plant, config, tuple(sorted((env or {}).items())))
        if key not in self.started:
            more = dict(env or {})
            if off:
                more["SANDBOX_LAYER_OFF"] = off
            if plant:
                more["SANDBOX_PLANT"] = plant
            daemon = Daemon(config=config, env=more)
            daemon.home.chmod(0o755)
            self.started[key] = daemon
        return self.started[key]

    def done(self):
        problems = []
        for key, daemon in self.started.items():
            try:
                daemon.done()
            except AssertionError as error:
                problems.append(f"daemon {key}: {str(error)[:500]}")
        self.started = {}
        return problems


def landlock_abi():
    """The kernel's best: landlock_create_ruleset with LANDLOCK_CREATE_RULESET_VERSION."""
    return ctypes.CDLL(None).syscall(444, None, 0, 1)


@contextlib.contextmanager
def host_process():
    """A process of the caller that attacks outside may hit."""
    with subprocess.Popen(["/bin/sleep", "300"], stdin=subprocess.DEVNULL) as victim:
        try:
            yield victim
        finally:
            victim.kill()


def executables(pid):
    return os.listdir(f"/proc/{pid}/task")
