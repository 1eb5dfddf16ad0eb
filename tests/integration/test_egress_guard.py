"""The kernel's second line: what an egress worker can reach whatever it decides.

A process of the suite joins the workers' group and dials servers of the suite's own namespace,
under addresses of every class. The control is the same program before it joins.
"""
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from harness import CONFIG, PATIENCE, Daemon, wait_until

# Public-looking addresses on lo: this namespace has no way out.
PUBLIC = ["8.8.8.8", "93.184.216.34", "2606:4700::1"]
NEVER = ["127.0.0.1", "127.255.1.1", "169.254.169.254", "169.254.7.7", "100.100.100.200", "168.63.129.16",
         "::1", "fd00:ec2::254"]
PRIVATE = ["10.1.2.3", "172.16.0.1", "192.168.7.7", "100.64.0.1", "fd12::1"]
RESERVED = ["192.0.2.1", "198.18.0.1", "203.0.113.1", "2001:db8::1", "64:ff9b::a01:203", "2002:a01:203::1",
            "2001::1"]
PRODUCTION = ["44.1.1.1", "2600::44"]
SERVICE_PORT, PORT, OTHER_PORT = 6390, 8443, 8444

GUARDED = CONFIG + f"""
[endpoint:iceberg_rest_uri]
production = 44.1.1.1:{PORT} [2600::44]:{PORT}
[network]
allow_private = 10.9.0.0/16 [fd99::]/16
host_services = 127.0.0.1:{SERVICE_PORT}
"""

# argv: group or "", then a list of [kind, address, port]; prints what each call said.
PROGRAM = """
import errno, json, os, socket, sys
if sys.argv[1]:
    open(sys.argv[1] + "/cgroup.procs", "w").write(str(os.getpid()))
for kind, address, port in json.loads(sys.argv[2]):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    s = socket.socket(family, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
    s.settimeout(5)
    try:
        if kind == "udp":
            s.sendto(b"x", (address, port))
        else:
            s.connect((address, port))
        print("ok")
    except OSError as e:
        print(errno.errorcode.get(e.errno, str(e)))
"""


def on_lo(address):
    bits = 128 if ":" in address else 32
    subprocess.run(["ip", "address", "replace", f"{address}/{bits}", "dev", "lo"], check=True)
    return address


@pytest.fixture(scope="module", autouse=True)
def servers():
    """Something that listens on every address and port."""
    added = [on_lo(a) for a in PUBLIC + NEVER + PRIVATE + RESERVED + PRODUCTION + ["10.9.1.1", "fd99::1"]
             if a not in ("127.0.0.1", "::1")]
    sockets = []
    for port in (PORT, OTHER_PORT, SERVICE_PORT):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            s = socket.socket(socket.AF_INET6, kind)
            s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind(("::", port))
            if kind == socket.SOCK_STREAM:
                s.listen(512)
            sockets.append(s)
    yield
    for s in sockets:
        s.close()
    for address in added:
        subprocess.run(["ip", "address", "delete", address, "dev", "lo"], check=False, capture_output=True)


@pytest.fixture(scope="module")
def guarded():
    started = Daemon(config=GUARDED)
    yield started
    started.done()


def group_of(daemon):
    """Of its egress worker, in the unified hierarchy."""
    text = Path(f"/proc/{daemon.worker_pid('sandboxd-egress')}/cgroup").read_text()
    path, = [line[3:] for line in text.splitlines() if line.startswith("0::")]
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, after = line.split(" - ")
        if after.split()[0] == "cgroup2":
            folder = Path(before.split()[4]) / path.lstrip("/")
            if folder.exists():
                return str(folder)
    raise AssertionError(text)


def dial(group, rows):
    result = subprocess.run([sys.executable, "-c", PROGRAM, group, json.dumps(rows)], capture_output=True,
                            text=True, timeout=120 * PATIENCE, check=True)
    return result.stdout.split()


def rows(addresses, port=PORT, kinds=("tcp", "udp", "udp-connect")):
    return [[kind, address, port] for address in addresses for kind in kinds]


def test_the_worker_is_in_a_group_of_its_own(guarded):
    assert group_of(guarded).endswith("/egress")


@pytest.mark.parametrize("addresses", [NEVER, PRIVATE, RESERVED], ids=["never", "private", "reserved"])
def test_what_no_session_may_reach_is_refused(guarded, addresses):
    assert dial("", rows(addresses)) == ["ok"] * len(addresses) * 3
    assert dial(group_of(guarded), rows(addresses)) == ["EPERM"] * len(addresses) * 3


def test_the_public_and_what_the_operator_allows_is_reached(guarded):
    group = group_of(guarded)
    assert dial(group, rows(PUBLIC)) == ["ok"] * 9
    assert dial(group, rows(["10.9.1.1", "fd99::1"])) == ["ok"] * 6
    assert dial(group, rows(["10.10.1.1", "fd98::1"])) == ["EPERM"] * 6


def test_production_is_refused_on_its_ports(guarded):
    group = group_of(guarded)
    assert dial("", rows(PRODUCTION)) == ["ok"] * 6
    assert dial(group, rows(PRODUCTION)) == ["EPERM"] * 6
    assert dial(group, rows(PRODUCTION, OTHER_PORT)) == ["ok"] * 6


def test_another_form_of_an_ipv4_address_changes_nothing(guarded):
    group = group_of(guarded)
    mapped = [f"::ffff:{a}" for a in ("127.0.0.1", "10.1.2.3", "169.254.169.254", "44.1.1.1", "0.0.0.0")]
    assert dial("", rows(mapped, kinds=("tcp",))) == ["ok"] * 5
    assert dial(group, rows(mapped)) == ["EPERM"] * 15
    assert dial(group, rows(["::ffff:8.8.8.8"])) == ["ok"] * 3
    assert dial(group, rows(["0.0.0.0", "::"])) == ["EPERM"] * 6


def test_a_service_of_the_host_is_that_address_and_port(guarded):
    group = group_of(guarded)
    assert dial(group, rows(["127.0.0.1"], SERVICE_PORT)) == ["ok"] * 3
    assert dial(group, rows(["127.0.0.2", "::1"], SERVICE_PORT)) == ["EPERM"] * 6


def test_name_servers_are_reached_on_their_port_alone(guarded):
    servers = [line.split()[1] for line in Path("/etc/resolv.conf").read_text().splitlines()
               if line.startswith("nameserver")] or ["127.0.0.1"]
    group = group_of(guarded)
    # Nobody listens there: what matters is that the call is not refused by us.
    assert "EPERM" not in dial(group, rows(servers[:4], 53))
    inside = [a for a in servers[:4] if a.startswith(("10.", "192.168.", "127.", "172.1", "172.2", "172.3"))]
    assert dial(group, rows(inside, 54)) == ["EPERM"] * 3 * len(inside)


def test_a_reload_puts_the_new_rules_in_force_for_workers_that_run():
    daemon = Daemon(config=GUARDED)
    try:
        group = group_of(daemon)
        worker = daemon.worker_pid("sandboxd-egress")
        assert dial(group, rows(["10.1.2.3", "44.1.1.1"], kinds=("tcp",))) == ["EPERM"] * 2
        daemon.configure(CONFIG + "[network]\nallow_private = 10.1.0.0/16\n")
        os.kill(daemon.process.pid, signal.SIGHUP)
        wait_until(lambda: "configuration is reloaded" in daemon.log.read_text(), 20, "reload")
        wait_until(lambda: dial(group, rows(["10.1.2.3", "44.1.1.1"], kinds=("tcp",))) == ["ok"] * 2, 10, "they are in force")
        assert dial(group, rows(["10.9.1.1", "169.254.169.254"], kinds=("tcp",))) == ["EPERM"] * 2
        assert daemon.worker_pid("sandboxd-egress") == worker
    finally:
        daemon.done()


def test_the_other_workers_are_not_bound(guarded):
    text = Path(f"/proc/{guarded.worker_pid('sandboxd-api')}/cgroup").read_text()
    assert "/egress" not in text
