"""Completion in real shells, fed by the program."""
import os
import pty
import select
import shutil
import subprocess
import time

import pytest

from harness import BIN, PATIENCE, ctl

SHELLS = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
}
SET_UP = {
    "bash": "bind 'set enable-bracketed-paste off'; source <(sandboxctl completion bash)",
    "zsh": "autoload -Uz compinit; compinit -D -u; source <(sandboxctl completion zsh)",
}


def offered(daemon, *words):
    result = subprocess.run([str(BIN / "sandboxctl"), "__complete", *words], env=environment(daemon),
                            capture_output=True, text=True, timeout=30 * PATIENCE, check=True)
    assert result.stderr == ""
    return [line.split("\t")[0] for line in result.stdout.splitlines()]


def environment(daemon, home="/"):
    return {"PATH": f"{BIN}:/usr/bin:/bin", "SANDBOXCTL_RUNTIME_DIR": str(daemon.runtime), "HOME": str(home),
            "TERM": "dumb", "PS1": "$ ", "COLUMNS": "200", "LINES": "50", "LC_ALL": "C.UTF-8"}


@pytest.fixture(scope="module")
def session(daemon):
    made = ctl(daemon, "create").stdout.decode().strip()
    yield made
    ctl(daemon, "rm", made)


class Shell:
    """An interactive shell on a terminal."""

    def __init__(self, name, daemon, home):
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(SHELLS[name], stdin=slave, stdout=slave, stderr=slave, cwd=home,
                                        env=environment(daemon, home), start_new_session=True)
        os.close(slave)
        self.run(SET_UP[name])

    def type(self, text):
        os.write(self.master, text.encode())

    def read_until(self, wanted, timeout=20 * PATIENCE):
        got = b""
        end = time.monotonic() + timeout
        while wanted.encode() not in got:
            ready, _, _ = select.select([self.master], [], [], max(0, end - time.monotonic()))
            assert ready, f"{wanted!r} did not come: {got!r}"
            got += os.read(self.master, 65536)
        return got.decode(errors="replace")

    def run(self, command):
        # The echo of the command holds the quotes; its output does not.
        self.type(command + "; echo rea''dy\n")
        self.read_until("ready")

    def done(self):
        self.process.kill()
        self.process.wait()
        os.close(self.master)


@pytest.fixture(params=sorted(SHELLS))
def shell(request, daemon, tmp_path):
    if not shutil.which(request.param):
        pytest.skip(f"{request.param} is not installed")
    started = Shell(request.param, daemon, tmp_path)
    yield started
    started.done()


def test_verbs_options_and_values_are_offered(daemon):
    assert {"run", "exec", "ls", "config", "doctor"} <= set(offered(daemon, ""))
    assert offered(daemon, "pu") == ["purge"]
    assert offered(daemon, "config", "") == ["check", "show"]
    assert "--profile" in offered(daemon, "run", "--")
    assert "--profile" not in offered(daemon, "ls", "--")
    assert offered(daemon, "run", "-p", "") == ["component", "agent"]
    assert offered(daemon, "-o", "js") == ["json"]
    assert offered(daemon, "ls", "--output=n") == ["--output=name"]
    assert offered(daemon, "completion", "") == ["bash", "zsh", "fish"]
    assert offered(daemon, "run", "--", "/bin/l") == [":files"]
    assert offered(daemon, "--socket", "") == [":files"]
    assert offered(daemon, "ls", "--nonsense", "") == []
    assert offered(daemon, "ls", "") == []


def test_live_sessions_and_tasks_are_offered(daemon, session):
    ctl(daemon, "write", "--name", "a", session, "-", stdin=b"type: a.B\n")
    task = ctl(daemon, "execute", "--detach", session).stdout.decode().strip()
    for words in (["show", ""], ["rm", session, session[:2]], ["exec", ""], ["-o", "json", "show", ""]):
        assert session in offered(daemon, *words), words
    assert offered(daemon, "logs", task[:6]) == [task]
    assert offered(daemon, "write", session, "") == [":files"]


def test_completing_without_a_service_is_silent(daemon, tmp_path):
    assert offered(daemon, "--runtime-dir", str(tmp_path), "show", "") == []


def test_a_shell_completes_what_is_typed(shell, session, tmp_path):
    (tmp_path / "unmistakable.yaml").write_text("type: a.B\n")
    shell.type("sandboxctl comple\t")
    shell.read_until("completion ")
    shell.type("\x15sandboxctl create --prof\t")
    shell.read_until("--profile ")
    shell.type(f"\x15sandboxctl show {session[:6]}\t")
    shell.read_until(session)
    shell.type(f"\x15sandboxctl write {session} unmis\t")
    shell.read_until("unmistakable.yaml")
    shell.type("\x15sandboxctl ls --status=ru\t")
    shell.read_until("--status=running")


def test_fish_completes_what_is_typed(daemon, session, tmp_path):
    if not shutil.which("fish"):
        pytest.skip("fish is not installed")

    def complete(line):
        result = subprocess.run(
            ["fish", "--no-config", "-c", f'sandboxctl completion fish | source; complete -C "{line}"'],
            env=environment(daemon, tmp_path), cwd=tmp_path, capture_output=True, text=True, timeout=60 * PATIENCE, check=True)
        return [row.split("\t")[0] for row in result.stdout.splitlines()]

    (tmp_path / "unmistakable.yaml").write_text("type: a.B\n")
    assert complete("sandboxctl comple") == ["completion"]
    assert complete("sandboxctl create --prof") == ["--profile"]
    assert complete(f"sandboxctl show {session[:6]}") == [session]
    assert complete(f"sandboxctl write {session} unmis") == ["unmistakable.yaml"]
    assert complete("sandboxctl ls --status=ru") == ["--status=running"]
    assert "exec" in complete("sandboxctl ")
