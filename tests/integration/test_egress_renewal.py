"""The connection between api and egress worker, lost while both live, and limits of the configuration."""
import ctypes
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

RATE = 100 << 10
CONFIGURED = CONFIG + f"""
[network]
bytes_per_second = {RATE}
connections = 3
"""
PIDFD_OPEN, PIDFD_GETFD = 434, 438
FETCH = """
import socket, sys, time
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=60) as s:
    s.sendall(b"x")
    n, began = 0, time.monotonic()
    while block := s.recv(65536):
        n += len(block)
    print(n, time.monotonic() - began)
"""
libc = ctypes.CDLL(None, use_errno=True)


@pytest.fixture(name="world", scope="module")
def fixture_world(tmp_path_factory):
    with egress_rig.hosted_world(tmp_path_factory) as world:
        yield world


@pytest.fixture(name="server", scope="module")
def fixture_server(world):
    def answer(client):
        client.recv(1000)
        client.sendall(f"{OTHER}:{PORT}".encode())

    server = Server(world.listen(OTHER, PORT), answer)
    yield server
    server.close()


@pytest.fixture(name="own", scope="module")
def fixture_own(server):
    assert server
    daemon = Daemon(config=CONFIGURED)
    yield daemon
    daemon.done()


@pytest.fixture(name="ann")
def fixture_ann(own):
    return own.client("ann", workspace="blue")


@pytest.fixture(name="session")
def fixture_session(ann):
    session = ann.create()
    yield session
    ann.remove(session)


def put(client, session, *allow):
    return client.request("PUT", f"{SESSIONS}/{session}/egress", {"allow": list(allow)})


def break_link(own):
    """What an error of the socket would do: it is the worker's only one that the supervisor made, but 3."""
    pid = own.worker_pid("sandboxd-egress")
    pidfd = os.pidfd_open(pid)
    broken = 0
    for name in os.listdir(f"/proc/{pid}/fd"):
        if int(name) <= 3 or not os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:"):
            continue
        fd = libc.syscall(PIDFD_GETFD, pidfd, int(name), 0)
        assert fd >= 0, ctypes.get_errno()
        with socket.socket(fileno=fd) as copy:
            if copy.family != socket.AF_UNIX:
                continue
            maker = struct.unpack("3i", copy.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
            if maker == own.supervisor_pid():
                copy.shutdown(socket.SHUT_RDWR)
                broken += 1
    os.close(pidfd)
    assert broken == 1


def test_a_link_that_breaks_is_renewed_and_rules_are_said_again(own, ann, session):
    before = own.processes()
    assert put(ann, session, f"{OTHER}:{PORT}").status == 200
    for _ in range(3):
        break_link(own)
        # What was in force stays in force, and what is new gets there.
        assert dial(ann, session, OTHER) == f"{OTHER}:{PORT}"
        answer = put(ann, session)
        assert answer.status == 200 and answer.json["in_force"], answer.body
        assert dial(ann, session, OTHER) != f"{OTHER}:{PORT}"
        answer = put(ann, session, f"{OTHER}:{PORT}")
        assert answer.status == 200 and answer.json["in_force"], answer.body
        assert dial(ann, session, OTHER) == f"{OTHER}:{PORT}"
    counted = ann.get(f"{SESSIONS}/{session}/egress").json
    assert any("counters" in rule for rule in counted["rules"])
    assert own.processes() == before


def test_a_put_whose_session_ends_is_answered_at_once(own, ann):
    session = ann.create()
    worker = own.worker_pid("sandboxd-egress")
    answers = []
    os.kill(worker, signal.SIGSTOP)
    try:
        began = time.monotonic()
        thread = threading.Thread(target=lambda: answers.append(put(ann, session, f"{OTHER}:{PORT}")))
        thread.start()
        time.sleep(0.5)
        assert not answers
        ann.remove(session)
        thread.join()
        assert answers[0].status == 404
        assert time.monotonic() - began < 4.5  # the wait is five seconds
    finally:
        os.kill(worker, signal.SIGCONT)


def test_limits_of_the_configuration_are_told_and_kept(own, world, ann, session):
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
    assert put(ann, session, f"{place}:{PORT}").status == 200
    told = ann.get(f"{SESSIONS}/{session}/egress").json["limits"]
    assert told == {"connections": 3, "connects_per_second": 200, "bytes_per_second": RATE}
    result = ann.run(session, "/usr/bin/python3", "-c", FETCH, place, str(PORT))
    n, span = result.text.split()
    # A second's worth comes at once.
    assert int(n) == len(body) and float(span) > 2, result
    thread.join()
    own.configure(CONFIGURED.replace(f"bytes_per_second = {RATE}", ""))
    os.kill(own.process.pid, signal.SIGHUP)
    wait_until(lambda: ann.get(f"{SESSIONS}/{session}/egress").json["limits"]["bytes_per_second"] == 0,
               20, "the reload")


def test_a_row_with_too_many_rules_reaches_nothing_and_says_so(ann, own):
    session = ann.create(egress={"allow": [f"{OTHER}:{PORT}"]})
    assert dial(ann, session, OTHER) == f"{OTHER}:{PORT}"
    assert own.stop() == 0
    rules = json.dumps([f"a{n}.example" for n in range(300)] + [f"{OTHER}:{PORT}"])
    own.sql("UPDATE dagster_sandbox_sessions SET egress_allow_json = ? WHERE id = ?", rules, session)
    own.start()
    assert dial(ann, session, OTHER) != f"{OTHER}:{PORT}"
    told = [entry for entry in ann.get(f"{SESSIONS}/{session}").json["log_summary"]
            if entry["metadata"].get("code") == "network_rules"]
    assert len(told) == 1 and "more rules" in told[0]["message"], own.log.read_text()[-3000:]
    ann.remove(session)
