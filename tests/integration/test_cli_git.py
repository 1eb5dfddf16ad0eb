"""sandboxctl git: a turn with the test's git server, and where the credential is not."""
import os
import pty
import select
import subprocess
import time

import pytest

from egress_rig import WORLD
from git_rig import GitServer, git, make_authority
from harness import BIN, RUNTIME, SLOW, ctl, wait_until
from world_rig import fixture_daemon, fixture_world  # noqa: F401  pylint: disable=unused-import

TOKEN = "ghs_planted0123456789CLI"
USER = "x-access-token"
AUTHOR = ("--author", "Ana <ana@example.com>")
WAIT = 60 * SLOW


@pytest.fixture(name="authority", scope="module")
def fixture_authority(tmp_path_factory):
    return make_authority(tmp_path_factory.mktemp("authority"), "git.example.com")


@pytest.fixture(name="server", scope="module")
def fixture_server(world, authority, tmp_path_factory):
    world.names["git.example.com"] = [f"{WORLD}.2"]
    made = GitServer(tmp_path_factory.mktemp("git"), authority[1], world.listen(f"{WORLD}.2", 443), TOKEN)
    made.add("r", {"a.txt": "one\n"})
    yield made
    made.stop()


@pytest.fixture(name="session")
def fixture_session(daemon):
    made = daemon.root.create_runtime(egress={"allow": ["git.example.com"]})
    yield made
    daemon.root.delete(f"{RUNTIME}/{made}")


@pytest.fixture(name="files")
def fixture_files(tmp_path, authority):
    """--ca-file, and a file with the credential."""
    (tmp_path / "ca.pem").write_text(authority[0])
    credential = tmp_path / "credential"
    credential.touch(0o600)
    # What `git credential fill` prints.
    credential.write_text(f"protocol=https\nhost=git.example.com\nusername={USER}\npassword={TOKEN}\n")
    return tmp_path


def ok(result):
    assert result.returncode == 0, result
    return result.stdout.decode()


@pytest.fixture(name="run")
def fixture_run(daemon, session, files):
    """sandboxctl git; the acts over the network have the credential's file."""
    def run(act, *words, network=False, **more):
        extra = ("--credential-file", str(files / "credential"), "--ca-file", str(files / "ca.pem")) if network else ()
        return ctl(daemon, "git", act, *extra, *(word.replace("@", f"{session}:", 1) for word in words), timeout=WAIT, **more)
    return run


URL = "https://git.example.com/r.git"


def test_a_turn(daemon, session, run, server):
    assert ok(run("clone", "@w", URL, network=True)) == "## main...origin/main\n"
    assert ok(run("branch", "@w", "feature")) == "## feature\n"
    ok(ctl(daemon, "exec", session, "--", "sh", "-c", "echo two >>w/a.txt; echo new >'w/new file'"))
    assert ok(run("status", "@w")) == "## feature\n M a.txt\n?? new file\n"
    assert ok(run("status", "@w", "-q")) == " M a.txt\n?? new file\n"
    assert ok(run("status", "-o", "name", "@w")) == "a.txt\nnew file\n"
    assert "+two\n" in ok(run("diff", "@w"))
    assert ok(run("add", "@w", "a.txt")) == "## feature\nM  a.txt\n?? new file\n"
    assert ok(run("diff", "@w")) == "" and "+two\n" in ok(run("diff", "--staged", "@w"))
    assert ok(run("add", "--all", "@w")) == "## feature\nM  a.txt\nA  new file\n"
    commit = ok(run("commit", "-m", "more", *AUTHOR, "@w")).strip()
    assert ok(run("push", "--set-upstream", "@w", "feature", network=True)) == "new\n"
    assert ok(run("push", "@w", "feature", network=True)) == "up_to_date\n"
    assert git("rev-parse", "feature", cwd=server.folder / "r.git") == commit
    shown = ok(run("log", "@w")).splitlines()
    assert shown[0].split() == ["COMMIT", "DATE", "AUTHOR", "SUBJECT"]
    assert shown[1].startswith(commit[:12]) and shown[1].endswith("more") and "Ana" in shown[1]
    assert ok(run("log", "-n", "1", "-o", "name", "@w")) == f"{commit}\n"
    assert ok(run("checkout", "@w", "main")) == "## main...origin/main\n"
    assert ok(run("fetch", "--prune", "@w", network=True)) == "## main...origin/main\n"
    assert ok(run("pull", "--remote", URL, "-b", "main", "@w", network=True)).startswith("## main")


def test_what_fails(run, files):
    assert run("status", "@w").returncode == 3
    unset = run("clone", "@w", URL, "--ca-file", str(files / "ca.pem"))
    assert unset.returncode == 4 and b"the git server wants credentials, and none were given" in unset.stderr, unset
    assert run("clone", "@w", "ssh://git.example.com/r.git").returncode == 4
    assert run("clone", "w", URL).returncode == 2
    for words in (("@w",), ("--all", "@w", "a.txt")):
        unclear = run("add", *words)
        assert unclear.returncode == 2 and b"wants files, or --all" in unclear.stderr, unclear
    assert run("commit", "-m", "x", "@w").returncode == 2
    assert run("commit", "-m", "x", "--author", "nobody", "@w").returncode == 2
    ok(run("clone", "@w", URL, network=True))
    nothing = run("commit", "-m", "x", *AUTHOR, "@w")
    assert nothing.returncode == 4 and b"nothing to commit" in nothing.stderr
    both = run("pull", "--ask", "@w", network=True)
    assert both.returncode == 2 and b"exclude each other" in both.stderr
    # git's own words, beside ours.
    lost = run("checkout", "@w", "no-such")
    assert lost.returncode == 3 and b"fatal: invalid reference: no-such" in lost.stderr, lost


@pytest.mark.parametrize("text, mode, told", [
    (f"username={USER}\npassword={TOKEN}\n", 0o644, b"others can read it"),
    (f"username={USER}\n", 0o600, b"username=... and password=..."),
    (f"{TOKEN}\n", 0o600, b"username=... and password=..."),
    ("", 0o600, b"username=... and password=..."),
])
def test_a_file_that_is_none(run, files, text, mode, told):
    path = files / "credential"
    path.write_text(text)
    path.chmod(mode)
    result = run("clone", "@w", URL, network=True)
    assert result.returncode == 1 and told in result.stderr and TOKEN.encode() not in result.stderr, result


def test_from_standard_input(run, files):
    text = (files / "credential").read_bytes()
    result = run("clone", "--credential-file", "-", "--ca-file", str(files / "ca.pem"), "@w", URL, stdin=text)
    assert ok(result) == "## main...origin/main\n"


class Asked:
    """sandboxctl on a terminal of its own, which asks."""

    def __init__(self, daemon, *words):
        pid, self.master = pty.fork()
        if pid == 0:
            program = str(BIN / "sandboxctl")
            os.execv(program, [program, "--socket", str(daemon.operator), *words])
        self.pid = pid
        self.shown = b""

    def read_until(self, wanted):
        end = time.monotonic() + WAIT
        while wanted not in self.shown:
            ready, _, _ = select.select([self.master], [], [], max(0, end - time.monotonic()))
            assert ready, self.shown
            self.shown += os.read(self.master, 4096)

    def type(self, text):
        os.write(self.master, text)

    def end(self):
        try:
            while True:
                ready, _, _ = select.select([self.master], [], [], WAIT)
                assert ready, self.shown
                self.shown += os.read(self.master, 4096)
        except OSError:
            pass
        os.close(self.master)
        return os.waitstatus_to_exitcode(wait_until(self.ended, 30, "its end")[1])

    def ended(self):
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return (pid, status) if pid else None


def test_on_the_terminal(daemon, session, files):
    asked = Asked(daemon, "git", "clone", "--ask", "--ca-file", str(files / "ca.pem"), f"{session}:w", URL)
    asked.read_until(b"Username: ")
    asked.type(USER.encode() + b"\n")
    asked.read_until(b"Password: ")
    asked.type(TOKEN.encode() + b"\n")
    assert asked.end() == 0, asked.shown
    assert TOKEN.encode() not in asked.shown and b"## main...origin/main" in asked.shown
    # A remote's host is asked for, too.
    asked = Asked(daemon, "git", "fetch", "--ask", "--ca-file", str(files / "ca.pem"), f"{session}:w")
    for question, answer in ((b"Host of the remote: ", b"git.example.com"), (b"Username: ", USER.encode()), (b"Password: ", TOKEN.encode())):
        asked.read_until(question)
        asked.type(answer + b"\n")
    assert asked.end() == 0, asked.shown


def test_an_interrupt_at_the_question(daemon, session):
    asked = Asked(daemon, "git", "clone", "--ask", f"{session}:w", URL)
    asked.read_until(b"Username: ")
    asked.type(b"x\n")
    asked.read_until(b"Password: ")
    asked.type(b"\x03")
    assert asked.end() == 130, asked.shown


def test_without_a_terminal(daemon, session):
    result = subprocess.run(["setsid", "-w", str(BIN / "sandboxctl"), "--socket", str(daemon.operator), "git", "clone", "--ask",
                             f"{session}:w", URL], stdin=subprocess.DEVNULL, capture_output=True, timeout=WAIT, check=False)
    assert result.returncode == 2 and b"there is no terminal" in result.stderr
