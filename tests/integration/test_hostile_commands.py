"""Commands that take all they can: they are bounded, and nobody else notices."""
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness import PATIENCE, SLOW, descendants, wait_until


@pytest.fixture
def other(bob):
    """A session of somebody else that must stay usable, quickly."""
    made = bob.create()
    yield lambda: timed(bob, made)
    bob.remove(made)


def timed(caller, session):
    start = time.monotonic()
    assert caller.run(session, "/bin/echo", "fine").out == b"fine\n"
    return time.monotonic() - start


def test_fork_bomb_is_bounded_and_ended_by_its_timeout(alice, session, other, daemon):
    baseline = other()
    result = alice.shell(session, "f() { f | f & }; (f); while :; do :; done", timeout_ms=1500)
    assert result.exit.get("timed_out") is True, result
    assert other() < 10 * baseline + 3 * PATIENCE
    wait_until(lambda: alice.run(session, "/bin/echo", "again").out == b"again\n", 10,
               "the session runs commands again")
    wait_until(lambda: len(descendants(daemon.process.pid)) < 60, 10, "all of it has ended")


def test_disk_fill_is_enospc(alice, session, other):
    result = alice.shell(session, "cat /dev/zero > /session/full; rm /session/full; echo room >&2")
    assert b"No space left" in result.err and b"room" in result.err, result
    result = alice.shell(session, "cat /dev/zero > /dev/shm/full; cat /dev/zero > /tmp/full")
    assert b"No space left" in result.err, result
    assert alice.write(session, "x", "type: a.B\n").status == 507
    alice.shell(session, "rm /dev/shm/full /tmp/full")
    assert alice.write(session, "x", "type: a.B\n").status == 200
    other()


def test_inode_fill_is_enospc(alice, session, other):
    script = ("import os\n"
              "n = 0\n"
              "try:\n"
              "    while True:\n"
              "        os.close(os.open(f'/session/i{n}', os.O_CREAT)); n += 1\n"
              "except OSError as e:\n"
              "    print(e.errno, n)\n")
    result = alice.run(session, "python3", "-c", script, timeout_ms=60000 * SLOW)
    errno, n = map(int, result.text.split())
    assert errno == 28 and 60000 < n < 66000
    other()


def test_memory_hog_is_killed_and_the_session_lives(alice, session, other):
    result = alice.run(session, "python3", "-c", "x = bytearray(2 << 30); print(len(x))",
                       timeout_ms=60000)
    assert result.code != 0
    other()
    assert alice.run(session, "/bin/echo", "alive").out == b"alive\n"


def test_sigterm_ignorer_is_killed_at_its_timeout(alice, session, other):
    start = time.monotonic()
    result = alice.shell(session, "trap '' TERM INT HUP; while :; do sleep 1; done",
                         timeout_ms=1000)
    assert result.exit["timed_out"] is True
    assert time.monotonic() - start < 15 * SLOW
    other()


def test_double_forked_descendants_end_with_the_timeout(alice, session):
    alice.shell(session, "setsid sh -c 'trap \"\" TERM; (sleep 987 &) ; sleep 987' & sleep 60",
                timeout_ms=800)
    wait_until(
        lambda: b"987" not in alice.shell(session, "cat /proc/[0-9]*/cmdline 2>/dev/null").out,
        10, "descendants are gone")


def test_output_flood_is_bounded(alice, session, other):
    result = alice.shell(session, "yes | head -c 200000000", timeout_ms=60000, timeout=120 * PATIENCE)
    assert len(result.out) <= 70 << 20
    assert result.exit.get("truncated") is True or result.exit.get("timed_out") is True
    other()


def test_all_commands_of_a_session_share_two_rates(alice, session, other):
    """Alone each may put out 10 MiB in a second, and as much at once."""
    start = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        outputs = list(pool.map(
            lambda _: len(alice.shell(session, "yes", timeout_ms=3000 * SLOW, timeout=60 * PATIENCE).out), range(8)))
    took = time.monotonic() - start
    assert sum(outputs) <= 20 * (took + 1) * (1 << 20), (outputs, took)
    assert min(outputs) > 0, outputs
    other()


def test_slow_reader_does_not_hurt_others(alice, session, other):
    import socket

    body = b'{"argv":["/usr/bin/yes"],"timeout_ms":60000}'
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(alice.path)
    sock.sendall(
        f"POST /v1/sandboxes/{session}/commands HTTP/1.1\r\nHost: x\r\nX-Sandbox-User: alice\r\n"
        f"X-Sandbox-Workspace: blue\r\nX-Sandbox-Scopes: data:read data:write\r\n"
        f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
    time.sleep(1)
    assert other() < 3 * PATIENCE, "it runs for longer"
    sock.close()
    wait_until(lambda: alice.run(session, "/bin/echo", "x").out == b"x\n", 10, "usable again")


def test_client_that_leaves_cancels_its_command(alice, session):
    lines = alice.lines("POST", f"/v1/sandboxes/{session}/commands",
                        {"argv": ["/bin/sh", "-c", "echo started; sleep 654"]})
    next(lines)
    lines.close()
    wait_until(
        lambda: b"654" not in alice.shell(session, "cat /proc/[0-9]*/cmdline 2>/dev/null").out,
        10, "the command is gone")


def test_zombies_are_reaped(alice, session):
    alice.shell(session, "for i in 1 2 3 4 5 6 7 8; do (sleep 0.05 &); done")
    wait_until(lambda: ") Z " not in alice.shell(session, "pgrep sleep; cat /proc/[0-9]*/stat 2>/dev/null").text, 10,
               "they are reaped")


def test_exec_failures_are_exact(alice, session):
    missing = alice.run(session, "/nonexistent")
    assert missing.error and "ENOENT" in str(missing.error), missing
    denied = alice.run(session, "/etc/passwd")
    assert denied.error and "EACCES" in str(denied.error), denied


def test_signals_and_codes_are_exact(alice, session):
    assert alice.shell(session, "exit 7").code == 7
    assert alice.shell(session, "kill -9 $$").signal == 9
    assert alice.shell(session, "kill -SEGV $$").signal == 11
    assert alice.run(session, "/bin/cat", stdin="größe\n").out.decode() == "größe\n"


def test_the_longest_input_reaches_a_command_that_reads_late(alice, session):
    text = "x" * (1024 * 1024)
    result = alice.shell(session, "sleep 0.3; wc -c", stdin=text)
    assert result.text.split() == [str(len(text))], result


def test_session_limit_is_429_with_a_reason():
    from harness import CONFIG, SESSIONS, Daemon

    small = Daemon(config=CONFIG + "[limits]\nsessions = 3\n")
    try:
        caller = small.client("alice")
        made = [caller.create() for _ in range(3)]
        answer = caller.post(SESSIONS)
        assert answer.status == 429 and answer.json["detail"], answer
        assert answer.headers["Retry-After"]
        caller.remove(made[0])
        again = wait_until(lambda: caller.post(SESSIONS).status == 201, 5, "room again")
        assert again
    finally:
        small.done()
