"""What the daemon does for a service manager: the words it sends, the group it is given."""
import os
import signal
import socket
import time
import uuid
from pathlib import Path

import pytest

from harness import CONFIG, PATIENCE, Daemon, cgroup_mounts, status_of, wait_until


class Manager:
    """The receiving end of NOTIFY_SOCKET."""

    def __init__(self, folder):
        self.path = folder / "notify"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(self.path))
        self.words = []

    def read(self, seconds):
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.socket.settimeout(left)
            try:
                self.words.append(self.socket.recv(4096).decode())
            except socket.timeout:
                break
        return self.words

    def until(self, word, n, seconds=30):
        """All there is, until there are n of this word."""
        end = time.monotonic() + seconds * PATIENCE
        while self.words.count(word) < n:
            assert time.monotonic() < end, (word, self.words)
            self.read(0.1)

    def count(self, seconds, word):
        before = self.words.count(word)
        return self.read(seconds).count(word) - before


@pytest.fixture
def manager(tmp_path):
    made = Manager(tmp_path)
    yield made
    made.socket.close()


def test_watchdog_gets_its_life_signs(manager):
    daemon = Daemon(env={"NOTIFY_SOCKET": str(manager.path), "WATCHDOG_USEC": "300000"})
    try:
        manager.until("WATCHDOG=1", manager.words.count("WATCHDOG=1") + 3)
        assert manager.words.count("READY=1") == 1
        os.kill(daemon.process.pid, signal.SIGSTOP)
        wait_until(lambda: status_of(daemon.process.pid)["State"].startswith("T"), 10, "it stands still")
        manager.read(0.2)
        assert manager.count(1, "WATCHDOG=1") == 0
        os.kill(daemon.process.pid, signal.SIGCONT)
        assert daemon.stop() == 0
        manager.until("STOPPING=1", 1)
        manager.read(0.2)
        assert manager.words.count("STOPPING=1") == 1
    finally:
        daemon.done()


@pytest.mark.parametrize("env", [{}, {"WATCHDOG_USEC": "300000", "WATCHDOG_PID": "1"},
                                 {"WATCHDOG_USEC": "x"}], ids=["none", "foreign", "bad"])
def test_no_life_signs_where_nobody_waits(manager, env):
    daemon = Daemon(env={"NOTIFY_SOCKET": str(manager.path), **env})
    try:
        manager.until("READY=1", 1)
        manager.read(1)
        assert "WATCHDOG=1" not in manager.words
    finally:
        daemon.done()


def v2_mount():
    return next(mount for mount in cgroup_mounts() if (mount / "cgroup.procs").exists()
                and (mount / "cgroup.controllers").exists())


def test_groups_are_made_below_the_group_that_is_told():
    parent = v2_mount() / f"sandboxd-test-{uuid.uuid4().hex[:12]}"  # our pid is of a namespace of ours
    parent.mkdir()
    daemon = Daemon(arguments=("--cgroup-parent", f"/{parent.name}"))
    try:
        session = daemon.root.create()
        assert [path.name for path in parent.iterdir() if path.is_dir()] == \
            [f"sandboxd-{daemon.instance}"]
        assert any(session in path.name
                   for path in (parent / f"sandboxd-{daemon.instance}").iterdir())
        # The supervisor itself stays where its manager put it.
        own = Path(f"/proc/{daemon.supervisor_pid()}/cgroup").read_text()
        assert parent.name not in own
        assert daemon.stop() == 0
        assert [path for path in parent.iterdir() if path.is_dir()] == []
    finally:
        daemon.done()
        parent.rmdir()


@pytest.mark.parametrize("path", ["/there-is-no-such-group", "/../.."])
def test_group_that_is_not_there_is_an_error(path):
    with pytest.raises(AssertionError, match="--cgroup-parent"):
        Daemon(config=CONFIG, arguments=("--cgroup-parent", path))
