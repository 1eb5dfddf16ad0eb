"""What ends a session and what does not: restart, crash, stop, kill, upgrade."""
import contextlib
import json
import os
import signal
import threading
import time

import pytest

from harness import RUNTIME, SESSIONS, all_pids, descendants, name_of, wait_until
from installed import *

TICKS = ("setsid sh -c 'while :; do echo x >>/session/ticks; sleep 0.2; done' "
         "</dev/null >/dev/null 2>&1 &")


class Load:
    """Sessions in which something runs, and clients that go on asking while the service is away."""

    def __init__(self, client, n):
        self.client = client
        self.sessions = [client.create() for _ in range(n)]
        for session in self.sessions:
            assert client.write(session, "one", "type: a.B\n").status == 200
            client.shell(session, TICKS)
        self.shims = shims()
        self.stopping = False
        self.refused = []
        self.n_answers = 0
        self.thread = threading.Thread(target=self.ask)
        self.thread.start()

    def ask(self):
        while not self.stopping:
            for session in self.sessions:
                try:
                    answer = self.client.get(f"{SESSIONS}/{session}", timeout=30)
                except OSError:
                    continue  # cut in the middle: the client asks again
                if answer.status not in (200, 503):
                    self.refused.append(answer)
                self.n_answers += answer.status == 200
            time.sleep(0.05)

    def ticks(self):
        return [int(self.client.shell(session, "wc -l </session/ticks").out)
                for session in self.sessions]

    def end(self):
        self.stopping = True
        self.thread.join()
        for session in self.sessions:
            self.client.remove(session)


@pytest.fixture
def load(alice):
    made = Load(alice, 3)
    yield made
    made.end()


def assert_nothing_lost(load, before):
    """Since `before` = load.ticks(): the same processes, and they went on meanwhile."""
    wait_active()
    wait_until(lambda: load.client.get("/readyz").status == 200, 90, "ready")
    assert set(load.shims) <= set(shims())
    after = load.ticks()
    assert all(new > old for new, old in zip(after, before)), (before, after)
    n = load.n_answers
    wait_until(lambda: load.n_answers > n, 30, "answers")
    assert load.refused == []


def test_restart_under_load_loses_no_session(load):
    for _ in range(3):
        ticks, pid = load.ticks(), main_pid()
        call("systemctl", "restart", "sandboxd.service")
        assert main_pid() not in (0, pid)
        assert_nothing_lost(load, ticks)
    assert read("/proc/1/cgroup") == "0::/init.scope"
    task = load.client.execute(load.sessions[0])
    assert load.client.frames(task)[-1]["stage"] == "done"


def test_crash_loses_no_session(load):
    ticks, pid = load.ticks(), main_pid()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: main_pid() not in (0, pid), 30, "another main process")
    assert_nothing_lost(load, ticks)


def test_manager_reload_changes_nothing(load):
    ticks, pid = load.ticks(), main_pid()
    call("systemctl", "daemon-reload")
    call("systemctl", "daemon-reexec")
    assert_nothing_lost(load, ticks)
    assert main_pid() == pid
    call("systemctl", "restart", "sandboxd.service")
    assert_nothing_lost(load, ticks)


def test_upgrade_of_the_package_loses_no_session(load):
    ticks, pid = load.ticks(), main_pid()
    call("dpkg", "-i", PACKAGE)
    assert main_pid() not in (0, pid)
    assert_nothing_lost(load, ticks)


def assert_all_ended():
    wait_until(lambda: not is_active("sandboxd-sessions.service"), 30, "the sessions' unit is down")
    assert state("sandboxd.service", "ActiveState", "Result") == {"ActiveState": "inactive",
                                                                  "Result": "success"}
    assert shims() == []
    assert left_of_sessions() == []
    assert instance_groups() == []
    assert [name_of(p) for p in all_pids() if name_of(p).startswith("sandbox")] == []


def test_kill_is_a_stop(alice):
    assert alice.create()
    call("systemctl", "kill", "sandboxd.service")
    assert_all_ended()


def test_stop_ends_every_session_and_a_start_rebuilds(alice):
    made = [alice.create() for _ in range(2)]
    alice.write(made[0], "one", "type: a.B\n")
    assert descendants(main_pid())
    call("systemctl", "stop", *SOCKETS, "sandboxd.service")
    assert_all_ended()
    call("systemctl", "start", "sandboxd.service")
    assert shims() == []
    assert alice.run(made[0], "/bin/cat", "/session/one.yaml").out == b"type: a.B\n"
    for session in made:
        assert alice.remove(session).status == 200


def test_stop_of_the_sessions_unit_stops_the_service(alice):
    assert alice.create()
    call("systemctl", "stop", "sandboxd-sessions.service")
    assert_all_ended()


def test_socket_starts_the_service(alice):
    call("systemctl", "stop", "sandboxd.service")
    call("systemctl", "start", *SOCKETS)
    assert not is_active("sandboxd.service")
    assert alice.get("/readyz", timeout=90).status in (200, 503)
    wait_until(lambda: alice.get("/readyz").status == 200, 60, "ready")


def test_supervisor_that_dies_in_its_stop_leaves_nothing(alice):
    """What it cannot end any more, the sessions' unit does."""
    assert alice.create()
    call("systemctl", "stop", "--no-block", "sandboxd.service")
    pid = main_pid()
    with contextlib.suppress(ProcessLookupError):  # it was faster
        if pid:
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_active("sandboxd-sessions.service"), 90, "the sessions' unit is down")
    wait_until(lambda: shims() == [] and left_of_sessions() == [], 30, "nothing is left")
    call("systemctl", "reset-failed", "sandboxd.service", check=False)


def test_journal_has_no_errors(service):
    text = call("journalctl", "--no-pager", "-o", "cat", "-u", "sandboxd.service").stdout
    bad = [line for line in text.splitlines() if "assertion" in line or "core" in line.split()]
    assert bad == [], bad


def test_session_is_left_open_for_the_reboot(alice):
    made = alice.create(ttl_minutes=240)
    alice.write(made, "one", "type: a.B\n")
    assert alice.run(made, "/bin/true").code == 0
    LEFT_OPEN.write_text(made)


@pytest.fixture
def room():
    """For the limits of twenty sandboxes, which is more memory than the guest has; they use little of it."""
    more = Path("/etc/sandboxd/conf.d/50-room.conf")
    more.write_text("[limits]\nmemory = 200GiB\n[owner]\nsessions = 40\nmemory = 200GiB\n")
    call("systemctl", "reload", "sandboxd.service")
    yield
    more.unlink()
    call("systemctl", "reload", "sandboxd.service")


def test_sandboxes_are_left_suspended_for_the_reboot(alice, room):
    """Twenty, each with files of its own; what they hold is written down, and read again after the reboot."""
    left = {}
    for n in range(20):
        made = alice.create_runtime(profile="agent", ttl=14400)
        assert alice.shell(made, f"cd /session && mkdir -p d/e && head -c {4096 * (n + 1) + n} /dev/urandom >d/e/random &&"
                           " ln d/e/random d/again && ln -s e/random d/link && truncate -s 1M d/sparse &&"
                           f" chmod 64{n % 8} d/e/random").code == 0
        left[made] = alice.shell(made, CONTENTS).text
        assert "random" in left[made] and len(left[made].splitlines()) > 8
        answer = alice.post(f"{RUNTIME}/{made}/suspend", {"durable": "wait"}, timeout=300)
        assert answer.status == 200 and answer.json["durable"], answer
    LEFT_SUSPENDED.write_text(json.dumps(left))
