"""Commands of a session from the command line: shell, exec with input, ps, attach, kill."""
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import pytest

from harness import ABSENT_ID, BIN, PATIENCE, RUNTIME, Client, connected, ctl, wait_until
from test_websocket import handshake


@pytest.fixture(scope="module")
def session(daemon):
    made = ctl(daemon, "create", "--profile", "agent").stdout.decode().strip()
    yield made
    ctl(daemon, "rm", made)


class Terminal:
    """sandboxctl on a terminal of its own."""

    def __init__(self, daemon, *words):
        self.master, self.slave = pty.openpty()
        self.size(33, 101)
        self.modes = termios.tcgetattr(self.slave)
        self.seen = b""
        self.process = subprocess.Popen(
            [str(BIN / "sandboxctl"), "--socket", str(daemon.operator), *words], stdin=self.slave, stdout=self.slave,
            stderr=self.slave, start_new_session=True, env={**os.environ, "TERM": "vt100"},
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))

    def size(self, rows, cols):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def type(self, text):
        os.write(self.master, text.encode())

    def type_until(self, text, wanted):
        """Typed again and again: what it is to follow may come later than the first one."""
        def told():
            self.type(text)
            if select.select([self.master], [], [], 0.5)[0]:
                self.seen += os.read(self.master, 65536)
            return re.search(wanted, self.seen)
        wait_until(told, 30, f"{wanted!r} in {self.seen!r}")

    def read_until(self, wanted):
        end = time.monotonic() + 30 * PATIENCE
        while not re.search(wanted, self.seen):
            ready, _, _ = select.select([self.master], [], [], max(0, end - time.monotonic()))
            assert ready, f"{wanted!r} did not come: {self.seen!r}"
            self.seen += os.read(self.master, 65536)
        found = re.search(wanted, self.seen)
        self.seen = self.seen[found.end():]
        return found

    def is_raw(self):
        return not termios.tcgetattr(self.slave)[3] & termios.ICANON

    def ended(self):
        code = self.process.wait(30 * PATIENCE)
        assert termios.tcgetattr(self.slave) == self.modes, "it is as it was"
        return code

    def done(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def terminal(daemon):
    started = []

    def start(*words):
        started.append(Terminal(daemon, *words))
        return started[-1]
    yield start
    for one in started:
        one.done()


def listed(daemon, session):
    return {c["command_id"]: c for c in json.loads(ctl(daemon, "-o", "json", "ps", session).stdout)}


def begin(daemon, session, *words):
    made = ctl(daemon, "exec", "--detach", *words[:-1], session, "--", "sh", "-c", words[-1])
    assert made.returncode == 0, made
    return made.stdout.decode().strip()


def test_a_shell_has_our_terminal(terminal, session):
    shell = terminal("shell", "-e", "A=b", session)
    shell.type("stty -echo; PS1=; echo $TERM $A $(stty size) re''ady\n")
    shell.read_until(rb"vt100 b 33 101 ready")
    assert shell.is_raw()
    shell.type("trap 'echo now $(stty size)' WINCH; echo tr''apped\n")
    shell.read_until(rb"trapped")
    shell.size(40, 90)
    shell.type_until("\n", rb"now 40 90")
    # Keys that would be signals here are signals there.
    shell.type("bash -c 'echo sl''eeps; exec sleep 300'\n")
    shell.read_until(rb"sleeps")
    shell.type("\x03")
    shell.type("echo go''es on\n")
    shell.read_until(rb"goes on")
    shell.type("exit 7\n")
    assert shell.ended() == 7


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_restores_the_terminal(daemon, terminal, session, number):
    shell = terminal("shell", session)
    shell.type("echo he''re\n")
    shell.read_until(rb"here")
    shell.process.send_signal(number)
    assert shell.ended() == 128 + number
    wait_until(lambda: all(c["status"] != "running" for c in listed(daemon, session).values()), 20, "its shell ends")


def test_a_stop_restores_the_terminal_for_a_while(terminal, session):
    shell = terminal("shell", session)
    shell.type("echo he''re\n")
    shell.read_until(rb"here")
    shell.process.send_signal(signal.SIGTSTP)
    wait_until(lambda: not shell.is_raw(), 20, "the modes are back")
    wait_until(lambda: open(f"/proc/{shell.process.pid}/stat").read().split(") ")[1][0] == "T", 20, "it is stopped")
    shell.process.send_signal(signal.SIGCONT)
    wait_until(shell.is_raw, 20, "it goes on")
    shell.type("exit 3\n")
    assert shell.ended() == 3


def test_a_stop_while_output_waits_loses_nothing(terminal, session):
    loud = terminal("exec", "--tty", session, "--", "sh", "-c", "seq 60000; echo en''d")
    time.sleep(2)  # nobody reads what it says
    loud.process.send_signal(signal.SIGSTOP)
    wait_until(lambda: open(f"/proc/{loud.process.pid}/stat").read().split(") ")[1][0] == "T", 20, "it is stopped")
    loud.process.send_signal(signal.SIGCONT)
    end = loud.read_until(rb"\nend\r")
    said = end.string[:end.start()].split()
    assert said == [str(i).encode() for i in range(1, 60001)]
    assert loud.ended() == 0


def test_the_end_of_a_session_restores_the_terminal(daemon, terminal):
    other = ctl(daemon, "create", "--profile", "agent").stdout.decode().strip()
    shell = terminal("shell", other)
    shell.type("echo he''re\n")
    shell.read_until(rb"here")
    ctl(daemon, "rm", other)
    assert shell.ended() == 1


def test_a_tilde_leaves(daemon, terminal, session):
    cid = begin(daemon, session, "--tty", "stty -echo; echo ready; while read x; do echo got $x; done")
    attached = terminal("attach", session, cid[:8])
    attached.read_until(rb"ready")
    attached.type("~a\r~~b\r")
    attached.read_until(rb"got ~a\s+got ~b")
    attached.type("~.")
    assert attached.ended() == 0
    assert listed(daemon, session)[cid]["status"] == "running"
    assert ctl(daemon, "kill", "-s", "KILL", session, cid).returncode == 0
    wait_until(lambda: listed(daemon, session)[cid]["status"] == "exited", 20, "it ends")
    # A terminal whose other side is gone.
    shell = terminal("shell", session)
    shell.type("echo he''re\n")
    shell.read_until(rb"here")
    shell.type("~.")
    assert shell.ended() == 1


def test_a_shell_without_a_terminal_reads_its_input(daemon, session):
    result = ctl(daemon, "shell", session, stdin=b"tty\necho out\necho err >&2\nexit 5\n")
    assert (result.returncode, result.stdout, result.stderr) == (5, b"not a tty\nout\n", b"err\n")


def test_input_of_any_size_and_kind(daemon, session):
    data = os.urandom(3 * 1024 * 1024)
    result = ctl(daemon, "exec", "-i", session, "--", "cat", stdin=data)
    assert result.returncode == 0 and result.stdout == data, result.stderr
    # Of one that reads nothing nothing hangs.
    result = ctl(daemon, "exec", "-i", session, "--", "false", stdin=data)
    assert result.returncode == 1, result.stderr
    assert ctl(daemon, "exec", "-i", session, "--", "no-such-command", stdin=b"").returncode == 127
    assert ctl(daemon, "run", "-i", "--", "wc", "-c", stdin=data).stdout == b"3145728\n"
    lines = ctl(daemon, "-o", "json", "exec", "-i", session, "--", "cat", stdin=b"a\xff").stdout.splitlines()
    assert [json.loads(line)["type"] for line in lines] == ["start", "stdout", "exit"]


def test_output_before_the_first_reader_is_not_lost(daemon, session):
    size = 5 * 1024 * 1024
    result = ctl(daemon, "exec", "-i", session, "--", "head", "-c", str(size), "/dev/zero", stdin=b"")
    assert result.returncode == 0 and len(result.stdout) == size, (len(result.stdout), result.stderr)


def test_a_terminal_for_one_command(daemon, terminal, session):
    one = terminal("exec", "--tty", session, "--", "sh", "-c", "tty; stty size; exit 9")
    one.read_until(rb"/dev/pts/\d+\s+33 101")
    assert one.ended() == 9
    refused = ctl(daemon, "exec", "--tty", session, "--", "true", stdin=b"")
    assert refused.returncode == 2 and b"no terminal" in refused.stderr


def test_what_is_on_no_terminal_of_its_own_is_escaped(daemon, terminal, session):
    one = terminal("exec", "-i", session, "--", "printf", "\\033]0;x\\007\\nend")
    one.read_until(rb"\\x1b\]0;x\\x07\s+end")
    assert one.ended() == 0
    # The control: where the terminal is the command's it gets the bytes.
    one = terminal("exec", "--tty", session, "--", "printf", "\\033]0;x\\007\\nend")
    one.read_until(rb"\x1b\]0;x\x07\s+end")
    assert one.ended() == 0


def test_list_attach_and_kill(daemon, session):
    cid = begin(daemon, session, "-i", "echo one; cat; exit 4")
    row = [line for line in ctl(daemon, "ps", session).stdout.decode().splitlines() if cid in line][0]
    assert "running" in row and row.endswith("exit 4"), row
    assert cid in ctl(daemon, "-o", "name", "ps", session).stdout.decode().split()
    result = ctl(daemon, "attach", "-i", session, cid[:8], stdin=b"two\n")
    assert (result.returncode, result.stdout) == (4, b"one\ntwo\n"), result
    assert ctl(daemon, "attach", session, cid).stdout == b"one\ntwo\n"
    row = [line for line in ctl(daemon, "ps", session).stdout.decode().splitlines() if cid in line][0]
    assert re.search(r"exited +4 ", row), row
    assert ctl(daemon, "kill", session, cid).returncode == 4
    for word, number in (((), 15), (("--signal", "9"), 9), (("-s", "INT", "--scope", "leader"), 2)):
        cid = begin(daemon, session, "exec sleep 300")
        assert ctl(daemon, "kill", *word, session, cid).returncode == 0
        assert ctl(daemon, "attach", session, cid).returncode == 128 + number
    assert ctl(daemon, "kill", "-s", "NONSENSE", session, cid).returncode == 4
    for verb in ("attach", "kill"):
        assert ctl(daemon, verb, session, ABSENT_ID).returncode == 3
        assert ctl(daemon, verb, session, "ffff").returncode == 3


def test_commands_are_offered(daemon, session):
    cid = begin(daemon, session, "exec sleep 300")
    offered = subprocess.run([str(BIN / "sandboxctl"), "__complete", "--socket", str(daemon.operator), "attach", session,
                              cid[:4]], capture_output=True, text=True, timeout=30 * PATIENCE, check=True).stdout
    assert offered.startswith(f"{cid}\tsh -c exec sleep 300"), offered
    ctl(daemon, "kill", session, cid)


def test_who_may_only_read_cannot_attach(daemon, session):
    made = ctl(daemon, "--user", "ana", "--scopes", "data:read data:write", "create", socket_path=daemon.control)
    own = made.stdout.decode().strip()
    words = ("--user", "ana", "--scopes", "data:read data:write")
    cid = ctl(daemon, *words, "exec", "-d", own, "--", "sleep", "300", socket_path=daemon.control).stdout.decode().strip()
    reads = ("--user", "ana", "--scopes", "data:read")
    refused = ctl(daemon, *reads, "attach", own, cid, socket_path=daemon.control)
    assert refused.returncode == 4 and b"(HTTP 403)" in refused.stderr, refused
    ctl(daemon, *words, "rm", own, socket_path=daemon.control)


def test_what_cannot_be_attached_to_is_not_left_behind(daemon):
    """The service has no stream left: a refused attachment ends no command, but `exec` ends its own."""
    session = ctl(daemon, "create").stdout.decode().strip()
    cid = begin(daemon, session, "sleep 300")
    url = f"{RUNTIME}/{session}/commands/{cid}"
    streams = []

    def opened(head):
        streams.append(connected(daemon.operator, 30 * PATIENCE))
        streams[-1].sendall(head)
        return streams[-1].recv(12)
    try:
        while opened(f"GET {url}/stream HTTP/1.1\r\nHost: sandboxd\r\n\r\n".encode()) == b"HTTP/1.1 200":
            assert len(streams) <= 1024
        assert opened(handshake(Client(daemon.operator), f"{url}/attach?on_disconnect=kill")) == b"HTTP/1.1 429"
        refused = ctl(daemon, "exec", "-i", session, "--", "cat", stdin=b"")
        assert refused.returncode != 0 and b"too many streams" in refused.stderr, refused
        wait_until(lambda: [c["status"] for c in listed(daemon, session).values()] == ["running", "exited"],
                   20, "the other one has ended, this one goes on")
    finally:
        for stream in streams:
            stream.close()
        ctl(daemon, "rm", session)
