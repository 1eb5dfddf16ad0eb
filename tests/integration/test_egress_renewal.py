"""The connection between api and egress worker, lost while both live, and limits of the configuration."""
import ctypes
import errno
import json
import os
import signal
import socket
import struct
import threading
import time

import pytest

import egress_rig
from endpoints_rig import OTHER, Server
from harness import CONFIG, SESSIONS, Daemon, wait_until
from test_endpoints_reach import PORT, dial
from world_rig import fixture_world  # noqa: F401  pylint: disable=unused-import

RATE = 100 << 10
CONFIGURED = CONFIG + f"""
[network]
bytes_per_second = {RATE}
connections = 3
"""
PIDFD_OPEN, PIDFD_GETFD = 434, 438
FETCH = """
import socket, sys, time
n, began = 0, time.monotonic()
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=60) as s:
    s.sendall(b"x")
    while block := s.recv(65536):
        n += len(block)
    print(n, time.monotonic() - began)
"""
libc = ctypes.CDLL(None, use_errno=True)


@pytest.fixture(name="server", scope="module")
def fixture_server(world):
    def answer(client):
        client.recv(1000)
        client.sendall(f"{OTHER}:{PORT}".encode())

    server = Server(world.listen(OTHER, PORT), answer)
    yield server
    server.close()


@pytest.fixture(name="daemon", scope="module")
def fixture_daemon(server):
    assert server
    daemon = Daemon(config=CONFIGURED)
    yield daemon
    daemon.done()


def put(client, session, *allow):
    return client.request("PUT", f"{SESSIONS}/{session}/egress", {"allow": list(allow)})


def break_link(daemon):
    """What an error of the socket would do: it is the worker's only one that the supervisor made, but 3."""
    pid = daemon.worker_pid("sandboxd-egress")
    pidfd = os.pidfd_open(pid)
    broken = 0
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            if int(name) <= 3 or not os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:"):
                continue
        except FileNotFoundError:
            continue  # closed meanwhile
        fd = libc.syscall(PIDFD_GETFD, pidfd, int(name), 0)
        if fd < 0 and ctypes.get_errno() == errno.EBADF:
            continue  # so was this one
        assert fd >= 0, ctypes.get_errno()
        with socket.socket(fileno=fd) as copy:
            if copy.family != socket.AF_UNIX:
                continue
            maker = struct.unpack("3i", copy.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
            if maker == daemon.supervisor_pid():
                copy.shutdown(socket.SHUT_RDWR)
                broken += 1
    os.close(pidfd)
    assert broken == 1


def workers(daemon):
    """They die with the supervisor, whose own children have its name until they are what they will be."""
    return {name: pids for name, pids in daemon.processes().items() if name != "sandboxd"}


def test_a_link_that_breaks_is_renewed_and_rules_are_said_again(daemon, alice, session):
    before = workers(daemon)
    assert put(alice, session, f"{OTHER}:{PORT}").status == 200
    for _ in range(3):
        break_link(daemon)
        # What was in force stays in force, and what is new gets there.
        assert dial(alice, session, OTHER) == f"{OTHER}:{PORT}"
        answer = put(alice, session)
        assert answer.status == 200 and answer.json["in_force"], answer.body
        assert dial(alice, session, OTHER) != f"{OTHER}:{PORT}"
        answer = put(alice, session, f"{OTHER}:{PORT}")
        assert answer.status == 200 and answer.json["in_force"], answer.body
        assert dial(alice, session, OTHER) == f"{OTHER}:{PORT}"
    counted = alice.get(f"{SESSIONS}/{session}/egress").json
    assert any("counters" in rule for rule in counted["rules"])
    assert workers(daemon) == before


def test_a_put_whose_session_ends_is_answered_at_once(daemon, alice):
    """The wait is five seconds. On a slow machine the end itself may take that long: then once more."""
    worker = daemon.worker_pid("sandboxd-egress")
    for _ in range(5):
        session = alice.create()
        answers = []
        os.kill(worker, signal.SIGSTOP)
        try:
            began = time.monotonic()
            thread = threading.Thread(target=lambda s=session, a=answers: a.append(put(alice, s, f"{OTHER}:{PORT}")))
            thread.start()
            time.sleep(0.5)
            assert not answers
            alice.remove(session)
            thread.join()
        finally:
            os.kill(worker, signal.SIGCONT)
        assert answers[0].status in (404, 503), answers
        if answers[0].status == 404 and time.monotonic() - began < 4.5:
            return
    raise AssertionError("it was never answered before its wait was over")


def test_limits_of_the_configuration_are_told_and_kept(daemon, world, alice, session):
    body = b"y" * (4 * RATE)
    listener = world.listen(f"{egress_rig.WORLD}.3", PORT)

    def serve():
        peer, _ = listener.accept()
        with peer:
            peer.recv(10)
            peer.sendall(body)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    place = f"{egress_rig.WORLD}.3"
    assert put(alice, session, f"{place}:{PORT}").status == 200
    told = alice.get(f"{SESSIONS}/{session}/egress").json["limits"]
    assert told == {"connections": 3, "connects_per_second": 200, "bytes_per_second": RATE}
    result = alice.run(session, "/usr/bin/python3", "-c", FETCH, place, str(PORT))
    n, span = result.text.split()
    # A second's worth comes at once.
    assert int(n) == len(body) and float(span) > 2, result
    thread.join()
    daemon.configure(CONFIGURED.replace(f"bytes_per_second = {RATE}", ""))
    os.kill(daemon.process.pid, signal.SIGHUP)
    wait_until(lambda: alice.get(f"{SESSIONS}/{session}/egress").json["limits"]["bytes_per_second"] == 0,
               20, "the reload")


def test_a_row_with_too_many_rules_reaches_nothing_and_says_so(alice, daemon):
    session = alice.create(egress={"allow": [f"{OTHER}:{PORT}"]})
    assert dial(alice, session, OTHER) == f"{OTHER}:{PORT}"
    assert daemon.stop() == 0
    rules = json.dumps([f"a{n}.example" for n in range(300)] + [f"{OTHER}:{PORT}"])
    daemon.sql("UPDATE dagster_sandbox_sessions SET egress_allow_json = ? WHERE id = ?", rules, session)
    daemon.start()
    assert dial(alice, session, OTHER) != f"{OTHER}:{PORT}"
    told = [entry for entry in alice.get(f"{SESSIONS}/{session}").json["log_summary"]
            if entry["metadata"].get("code") == "network_rules"]
    assert len(told) == 1 and "more rules" in told[0]["message"], daemon.log.read_text()[-3000:]
    alice.remove(session)


def test_a_policy_that_is_refused_makes_no_session():
    weak = Daemon(env={"SANDBOX_PLANT": "policy-nak"})
    try:
        caller, worker = weak.client("alice"), weak.worker_pid("sandboxd-api")
        for _ in range(2):
            answer = caller.post(SESSIONS, {})
            assert answer.status == 503 and "network policy is not in force" in answer.body.decode(), answer
        assert caller.get(SESSIONS).json == [] and weak.worker_pid("sandboxd-api") == worker
        wait_until(lambda: weak.shim_pids() == [], 20, "nothing of them is left")
    finally:
        weak.done()
