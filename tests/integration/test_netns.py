"""A session's network: lo, one listener for all that is TCP, and a refusal for the rest.

The listener's other end is the egress worker. It is stopped here, and the suite, which is root,
takes the supervisor's copy of the listener and accepts in its place.
"""
import contextlib
import ctypes
import errno
import json
import os
import signal
import socket
import struct
import subprocess
import threading

import pytest

from harness import CONFIG, PATIENCE, Daemon, namespace_of, parent_of, stopped, wait_until

LIBC = ctypes.CDLL(None, use_errno=True)
RESOLVER = "127.0.0.53"
OWN = "192.0.0.8"

DESTINATIONS = [
    ("1.1.1.1", 443), ("8.8.8.8", 53), ("10.0.0.1", 80), ("169.254.169.254", 80), ("198.18.0.7", 9092),
    ("203.0.113.9", 1), ("255.255.255.254", 65535), ("100.64.0.1", 8080), (OWN, 22),
    ("128.0.0.1", 7), ("126.255.255.255", 8), (RESOLVER, 53),
    ("2001:db8::1", 443), ("fd00:ec2::254", 80), ("64:ff9b::7f00:1", 81), ("::2", 82), ("1::1", 83),
]


def pidfd_getfd(pid, number):
    pidfd = os.pidfd_open(pid)
    try:
        fd = LIBC.syscall(438, pidfd, number, 0)
        if fd < 0:
            raise OSError(ctypes.get_errno(), "pidfd_getfd")
        return fd
    finally:
        os.close(pidfd)


def sockets_of(pid):
    """Copies of its IP sockets."""
    try:
        entries = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return  # it has just ended
    for entry in entries:
        try:
            if not os.readlink(f"/proc/{pid}/fd/{entry}").startswith("socket:"):
                continue
            sock = socket.socket(fileno=pidfd_getfd(pid, int(entry)))
        except OSError:
            continue
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            yield sock
        else:
            sock.close()


def taken(daemon, kind):
    """The supervisor's listener (SOCK_STREAM) or resolver socket (SOCK_DGRAM) of its one session."""
    def only_one():
        found = [sock for sock in sockets_of(daemon.supervisor_pid()) if sock.type == kind]
        if len(found) == 1:
            return found[0]
        for sock in found:  # a session of the service's own, just after its start
            sock.close()
        return None

    sock = wait_until(only_one, 20, "the sockets of one session")
    sock.settimeout(10 * PATIENCE)
    return sock


def no_egress(daemon):
    return stopped(daemon.worker_pid("sandboxd-egress"))


@pytest.fixture
def private(private):
    private.deaths_expected = True
    return private


@pytest.fixture
def quiet(private):
    """A daemon with one session, whose egress worker does nothing."""
    alice = private.client("alice")
    session = alice.create()  # waits for its policy
    with no_egress(private):
        yield private, alice, session


def plain(address):
    return address[7:] if address.startswith("::ffff:") else address


def accept_all(listener, n):
    """What was dialled, as getsockname says, with what was sent."""
    seen = []
    for _ in range(n):
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(10 * PATIENCE)
            name = connection.getsockname()
            seen.append((plain(name[0]), name[1], connection.recv(100).decode()))
    return seen


DIAL = """
import json, socket, sys
for address, port in json.loads(sys.argv[1]):
    s = socket.create_connection((address, port), 60)
    s.sendall(f"{address} {port}".encode())
    s.shutdown(socket.SHUT_WR)
    while s.recv(100):
        pass
"""


def dial(alice, session, destinations):
    return alice.run(session, "python3", "-c", DIAL, json.dumps(destinations))


def arrives(daemon, alice, session, destinations):
    seen = []
    with taken(daemon, socket.SOCK_STREAM) as listener:
        other = threading.Thread(target=lambda: seen.extend(accept_all(listener, len(destinations))))
        other.start()
        result = dial(alice, session, destinations)
        other.join(30 * PATIENCE)
    assert result.code == 0, result
    assert seen == [(address, port, f"{address} {port}") for address, port in destinations]


def test_every_tcp_destination_arrives_with_its_address_and_port(quiet):
    arrives(*quiet, DESTINATIONS)


OWN_SERVERS = """
import json, socket, sys, threading
def serve(family, address, port):
    s = socket.socket(family)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    s.bind((address, port)); s.listen(); s.settimeout(60)
    return s
servers = [serve(socket.AF_INET, "0.0.0.0", 80), serve(socket.AF_INET6, "::", 80),
           serve(socket.AF_INET, "0.0.0.0", 443), serve(socket.AF_INET, "127.0.0.53", 5353)]
for address, port in json.loads(sys.argv[1]):
    s = socket.create_connection((address, port), 60)
    s.sendall(f"{address} {port}".encode()); s.shutdown(socket.SHUT_WR)
    while s.recv(100):
        pass
for s in servers:
    s.setblocking(False)
    try:
        s.accept(); print("a server of the session got a connection to the world")
    except BlockingIOError:
        pass
    s.settimeout(60)
for s, address, port in ((servers[0], "127.0.0.1", 80), (servers[0], "127.9.9.9", 80),
                         (servers[1], "::1", 80), (servers[2], "localhost", 443),
                         (servers[3], "127.0.0.53", 5353)):
    c = socket.create_connection((address, port), 60); s.accept(); c.close()
print("done")
"""


def test_own_servers_keep_their_ports_and_hear_loopback_only(quiet):
    daemon, alice, session = quiet
    outward = [("1.1.1.1", 80), ("2001:db8::1", 80), ("93.184.216.34", 443), (OWN, 80)]
    seen = []
    with taken(daemon, socket.SOCK_STREAM) as listener:
        other = threading.Thread(target=lambda: seen.extend(accept_all(listener, len(outward))))
        other.start()
        result = alice.run(session, "python3", "-c", OWN_SERVERS, json.dumps(outward))
        other.join(30 * PATIENCE)
    assert result.out == b"done\n", result
    assert [(address, port) for address, port, _ in seen] == outward


def test_all_ports_but_the_first_can_be_bound(alice, session):
    script = ("import socket\n"
              "for family, address in ((2, '0.0.0.0'), (10, '::')):\n"
              "    for port in range(2, 2000):\n"
              "        for kind in (1, 2):\n"
              "            s = socket.socket(family, kind); s.setsockopt(1, 2, 1)\n"
              "            s.bind((address, port)); kind == 1 and s.listen(); s.close()\n"
              "try:\n"
              "    socket.socket().bind(('0.0.0.0', 1)); print('bound')\n"
              "except PermissionError:\n"
              "    print('refused')\n")
    assert alice.run(session, "python3", "-c", script).out == b"refused\n"


# Every row is one call; its time is printed in milliseconds.
REFUSED = """
import errno, socket, time
def row(name, call):
    begin = time.monotonic()
    try:
        call(); what = "done"
    except OSError as e:
        what = errno.errorcode.get(e.errno, str(e))
    print(name, what, int((time.monotonic() - begin) * 1000), sep=";")
UDP = [(2, ("1.1.1.1", 53)), (2, ("10.0.0.1", 443)), (2, ("198.18.0.1", 1)), (2, ("255.255.255.255", 9)),
       (2, ("224.0.0.251", 5353)), (2, ("192.0.0.8", 53)), (10, ("2001:db8::1", 443)),
       (10, ("fd00:ec2::254", 80)), (10, ("ff02::fb", 5353)), (10, ("::ffff:1.1.1.1", 53))]
for family, where in UDP:
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.setsockopt(1, 6, 1)
    s.settimeout(60)
    row(f"sendto {where[0]}", lambda: s.sendto(b"x", where))
    row(f"connect {where[0]}", lambda: s.connect(where))
def open_and_send(family, kind, protocol, where):
    s = socket.socket(family, kind, protocol)
    s.settimeout(60)
    s.sendto(b"\\x08\\0\\0\\0\\0\\0\\0\\0", where) if kind != 1 else s.connect(where)
row("icmp", lambda: open_and_send(2, 2, 1, ("1.1.1.1", 0)))
row("icmp6", lambda: open_and_send(10, 2, 58, ("2001:db8::1", 0)))
row("raw", lambda: open_and_send(2, 3, 255, ("1.1.1.1", 0)))
row("sctp", lambda: open_and_send(2, 1, 132, ("1.1.1.1", 80)))
row("udplite", lambda: open_and_send(2, 2, 136, ("1.1.1.1", 80)))
"""


def refused_rows(text):
    return [line.split(";") for line in text.splitlines()]


def test_what_is_not_tcp_is_refused_in_the_call(alice, session):
    rows = refused_rows(alice.run(session, "python3", "-c", REFUSED).text)
    assert len(rows) == 25
    kinds = {"connect ff02::fb": {"EACCES", "EINVAL"},  # without a scope it has no meaning
             "icmp": {"EACCES", "EPERM", "EAFNOSUPPORT", "EPROTONOSUPPORT"},
             "icmp6": {"EACCES", "EPERM", "EAFNOSUPPORT", "EPROTONOSUPPORT"},
             "raw": {"EPERM", "EAFNOSUPPORT", "EPROTONOSUPPORT"},
             "sctp": {"EPROTONOSUPPORT", "EAFNOSUPPORT", "EACCES"},
             "udplite": {"EACCES", "EPROTONOSUPPORT", "EAFNOSUPPORT"}}
    for name, what, ms in rows:
        assert what in kinds.get(name, {"EACCES"}), (name, what)
        assert int(ms) < 30000, (name, ms, "it waits for a minute")


def test_control_without_the_rules_a_packet_goes_into_the_void():
    script = ("ip link set lo up; ip route add local default dev lo; "
              "python3 -c 'import socket\n"
              "s = socket.socket(2, 2); print(s.sendto(b\"x\", (\"1.1.1.1\", 53)))'")
    result = subprocess.run(["unshare", "-n", "sh", "-c", script], capture_output=True, timeout=30 * PATIENCE)
    assert result.stdout == b"1\n", result


def test_loopback_carries_udp_and_icmp_is_nobodys(alice, session):
    script = ("import socket\n"
              "for family, address in ((2, '127.0.0.1'), (2, '127.1.2.3'), (10, '::1')):\n"
              "    a = socket.socket(family, 2); a.bind((address, 0)); a.settimeout(5)\n"
              "    socket.socket(family, 2).sendto(b'x', a.getsockname()); print(a.recv(9))\n")
    assert alice.run(session, "python3", "-c", script).out == b"b'x'\n" * 3


def test_questions_to_the_resolver_arrive_over_both_protocols(quiet):
    daemon, alice, session = quiet
    script = ("import socket\n"
              "s = socket.socket(2, 2); s.settimeout(55); s.connect(('127.0.0.53', 53))\n"
              "s.send(b'question'); print(s.recv(99))\n")
    with taken(daemon, socket.SOCK_DGRAM) as resolver:
        def answer():
            text, sender = resolver.recvfrom(100)
            resolver.sendto(b"answer to " + text, sender)
        other = threading.Thread(target=answer)
        other.start()
        result = alice.run(session, "python3", "-c", script)
        other.join(30 * PATIENCE)
    assert result.out == b"b'answer to question'\n", result
    assert alice.run(session, "cat", "/etc/resolv.conf").text.splitlines()[0] == f"nameserver {RESOLVER}"
    arrives(daemon, alice, session, [(RESOLVER, 53)])


def test_a_new_supervisor_makes_the_network_again(private):
    alice = private.client("alice")
    session = alice.create()
    before = some_links(private, 1)
    supervisor = private.supervisor_pid()
    os.kill(supervisor, signal.SIGKILL)
    wait_until(lambda: private.supervisor_pid() not in (supervisor, private.process.pid), 20,
               "another supervisor")
    wait_until(lambda: private.processes().get("sandboxd-egress"), 20, "an egress worker")
    wait_until(lambda: alice.get(f"/dagster/sandbox/sessions/{session}").status == 200, 20, "adopted")
    after = some_links(private, 1)
    assert after != before
    assert alice.run(session, "true").code == 0
    with no_egress(private):
        arrives(private, alice, session, DESTINATIONS)


def listens_for(pid, session_sockets):
    """Does the process hold those very sockets?"""
    held = set()
    with contextlib.suppress(OSError):
        for entry in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                held.add(os.readlink(f"/proc/{pid}/fd/{entry}"))
    return {f"socket:[{os.fstat(sock.fileno()).st_ino}]" for sock in session_sockets} <= held


def got_them(worker, session_sockets):
    """The supervisor hands them over beside the worker's word on the policy, which a create waits for."""
    wait_until(lambda: listens_for(worker, session_sockets), 10, "it has the sockets")


def test_a_new_egress_worker_gets_the_sockets_that_there_are(private):
    alice = private.client("alice")
    session = alice.create()
    worker = private.worker_pid("sandboxd-egress")
    with taken(private, socket.SOCK_STREAM) as listener, taken(private, socket.SOCK_DGRAM) as resolver:
        got_them(worker, (listener, resolver))
        os.kill(worker, signal.SIGKILL)
        # A connection of the meantime waits, and ends as one of any other time.
        script = ("import socket\n"
                  "try: print(socket.create_connection(('1.1.1.1', 80), 55).recv(1))\n"
                  "except ConnectionResetError: print('reset')\n")
        assert alice.run(session, "python3", "-c", script).out == b"reset\n"
        new = wait_until(lambda: [p for p in private.processes().get("sandboxd-egress", [])
                                  if p != worker and parent_of(p) == private.supervisor_pid()], 20,
                         "a new worker")[0]
        got_them(new, (listener, resolver))
    with no_egress(private):
        arrives(private, alice, session, DESTINATIONS)


def test_each_egress_worker_has_the_sockets_of_its_own_sessions():
    daemon = Daemon(config=CONFIG + "[supervisor]\negress_workers = 3\n")
    daemon.deaths_expected = True
    try:
        wait_until(lambda: len(workers_of(daemon)) == 3, 10, "three workers")
        alice = daemon.client("alice")
        for _ in range(12):
            alice.create()

        def shares():
            listeners = [sock for sock in sockets_of(daemon.supervisor_pid()) if sock.type == socket.SOCK_STREAM]
            held = [sum(listens_for(pid, (sock,)) for sock in listeners) for pid in workers_of(daemon)]
            twice = [sock for sock in listeners
                     if sum(listens_for(pid, (sock,)) for pid in workers_of(daemon)) != 1]
            for sock in listeners:
                sock.close()
            return held if len(listeners) == 12 and not twice and len(held) == 3 else None

        before = wait_until(shares, 10, "each session has one worker")
        assert sum(before) == 12 and sorted(before)[1] > 0  # by the ids' hash: more than one has some
        os.kill(workers_of(daemon)[0], signal.SIGKILL)
        wait_until(lambda: len(workers_of(daemon)) == 3 and shares(), 20, "the same again")
    finally:
        daemon.done()


def workers_of(daemon):
    """Without their inspectors."""
    return [pid for pid in daemon.processes().get("sandboxd-egress", [])
            if parent_of(pid) == daemon.supervisor_pid()]


def test_a_session_that_ends_leaves_the_worker(private):
    alice = private.client("alice")
    session = alice.create()
    worker = private.worker_pid("sandboxd-egress")
    with taken(private, socket.SOCK_STREAM) as listener, taken(private, socket.SOCK_DGRAM) as resolver:
        got_them(worker, (listener, resolver))
        alice.remove(session)
        wait_until(lambda: not listens_for(worker, (listener,)) and not listens_for(worker, (resolver,)), 10,
                   "the worker lets go")


# --- bpf(2), as root: what there is, by id -------------------------------------------------------

MAP_BY_ID, LINK_NEXT, PROGRAM_BY_ID, LINK_BY_ID, INFO = 14, 31, 13, 30, 15


def bpf(command, attributes):
    buffer = ctypes.create_string_buffer(attributes, 144)
    r = LIBC.syscall(321, command, buffer, 144)
    if r < 0:
        raise OSError(ctypes.get_errno(), "bpf")
    return r, buffer.raw


def info_of(fd, size=256):
    info = ctypes.create_string_buffer(size)
    bpf(INFO, struct.pack("IIQ", fd, size, ctypes.addressof(info)))
    return info.raw


def open_by_id(command, number):
    return bpf(command, struct.pack("I", number))[0]


def all_links():
    """(link id, program id, network namespace) of every sk_lookup link of this kernel."""
    number = 0
    while True:
        try:
            number = struct.unpack("II", bpf(LINK_NEXT, struct.pack("I", number))[1][:8])[1]
        except OSError as e:
            assert e.errno == errno.ENOENT, e
            return
        try:
            fd = open_by_id(LINK_BY_ID, number)
        except OSError:
            continue  # gone since
        try:
            kind, link, program, _, netns, attach = struct.unpack("IIIIII", info_of(fd)[:24])
        finally:
            os.close(fd)
        if kind == 5 and attach == 36:  # BPF_LINK_TYPE_NETNS, BPF_SK_LOOKUP
            yield link, program, netns


def links_of(daemon):
    namespaces = set()
    for pid in daemon.shim_pids():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            namespaces.add(int(namespace_of(pid, "net")[5:-1]))
    return [row for row in all_links() if row[2] in namespaces]


def some_links(daemon, n):
    """As soon as there are so many: the service's own session, just after its start, is one more."""
    def looked():
        links = links_of(daemon)
        return links if len(links) == n else None
    return wait_until(looked, 20, f"{n} links")


def maps_of(program):
    fd = open_by_id(PROGRAM_BY_ID, program)
    try:
        ids = (ctypes.c_uint32 * 4)()
        info = ctypes.create_string_buffer(struct.pack("80xIxxxxQ", 0, 0), 232)
        # nr_map_ids and map_ids of struct bpf_prog_info.
        struct.pack_into("I", info, 52, 4)
        struct.pack_into("Q", info, 56, ctypes.addressof(ids))
        bpf(INFO, struct.pack("IIQ", fd, 232, ctypes.addressof(info)))
        return list(ids)[: struct.unpack_from("I", info, 52)[0]]
    finally:
        os.close(fd)


def is_there(command, number):
    try:
        os.close(open_by_id(command, number))
        return True
    except OSError as e:
        assert e.errno == errno.ENOENT, e
        return False


def test_nothing_in_the_kernel_outlives_the_session(quiet):
    daemon, alice, session = quiet
    (link, program, _), = some_links(daemon, 1)
    maps = maps_of(program)
    assert len(maps) == 1
    things = [(LINK_BY_ID, link), (PROGRAM_BY_ID, program), (MAP_BY_ID, maps[0])]
    assert all(is_there(*thing) for thing in things)
    # Whoever held a copy of the listener would keep the map's socket, not the map.
    assert alice.remove(session).status == 200
    wait_until(lambda: not any(is_there(*thing) for thing in things), 10, "they are gone")


def test_a_second_session_has_links_of_its_own(private):
    alice = private.client("alice")
    sessions = [alice.create() for _ in range(3)]
    links = some_links(private, 3)
    assert len({program for _, program, _ in links}) == 3
    assert len({netns for _, _, netns in links}) == 3
    for session in sessions:
        alice.remove(session)
    wait_until(lambda: links_of(private) == [], 10, "no link")


def test_the_proof_names_the_network(admin, session):
    answer = admin.get(f"/v1/sandboxes/{session}/proof")
    assert answer.status == 200 and "egress" in json.dumps(answer.json), answer


SEGMENTS = """
import socket, struct
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
s.send(struct.pack("=IHHIIBBHiII", 32, 18, 1, 1, 0, 0, 0, 0, 1, 0, 0))  # RTM_GETLINK of lo
answer = s.recv(65536)
at, found = 32, {}
while at < struct.unpack_from("=I", answer)[0]:
    size, kind = struct.unpack_from("=HH", answer, at)
    found[kind] = answer[at + 4:at + size]
    at += (size + 3) & ~3
print(struct.unpack("=I", found[63])[0] if 63 in found else 0)  # IFLA_GSO_IPV4_MAX_SIZE
"""


def test_lo_takes_large_segments(alice, session):
    size = int(alice.run(session, "/usr/bin/python3", "-c", SEGMENTS).text)
    if size == 0:
        pytest.skip("this kernel has 64 KiB for IPv4")
    assert size == 384 << 10
