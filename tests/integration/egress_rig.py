"""sandboxd-egress alone, between a session's network namespace and a world of servers.

The rig is supervisor and api worker to it: it makes the namespace and the sockets, and sends the
messages of launch.h and egress.h. The session has one listener per port in place of the kernel
program that steers all ports to one; the rest is what the service does.

The world is a namespace behind a veth with public addresses (WORLD), with a name server of its own
that counts what it is asked.
"""
import contextlib
import ctypes
import fcntl
import os
import select
import socket
import struct
import subprocess
import tempfile
import threading
import time
import uuid
from pathlib import Path
from harness import PATIENCE

BUILD = Path(os.environ["SANDBOX_BUILD"])
WORLD = "93.184.10"
NAME_SERVER = f"{WORLD}.53"
PRIVATE_NAME_SERVER = "10.9.0.2"  # the second, which answers nobody
RESOLVER = "127.0.0.53"
PIPES_MAX = 128  # of a worker

NAME, SUFFIX, NETWORK = 1, 2, 3
ALLOW_PRIVATE, NO_SNI, NO_HOST, PRODUCTION, PATHS, HOST_SERVICE = (1 << n for n in range(6))
TCP, DNS, HTTP, TLS = 1, 2, 3, 4
REASONS = ["", "rule", "port", "production", "name", "loopback", "private", "link_local",
           "metadata", "reserved", "resolve", "connect", "guard", "sni", "host", "path",
           "protocol", "limit", "labels", "removed"]

LAUNCH_HEAD = struct.Struct("=IHHII16sII")
EGRESS_HEAD = struct.Struct("=IHHIIII16s")
LAUNCH_MAGIC, LAUNCH_VERSION = 0x4c424158, 1
EGRESS_MAGIC, EGRESS_VERSION = 0x45475231, 1
POLICY, RULE, PATH, END, FORGET, COUNT, ACK, DENIAL, COUNTERS = range(2, 11)

libc = ctypes.CDLL(None, use_errno=True)


class Namespace:
    """A network (and mount) namespace, held by a process that sleeps."""

    def __init__(self, script=""):
        self.holder = subprocess.Popen(
            ["unshare", "-n", "-m", "--", "sh", "-ec",
             f"ip link set lo up\n{script}\necho ready; exec sleep 1000000"],
            stdout=subprocess.PIPE, text=True)
        assert self.holder.stdout.readline() == "ready\n"

    def command(self, *argv):
        return ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net",
                f"--mount=/proc/{self.holder.pid}/ns/mnt", "--", *argv]

    def run(self, *argv, timeout=20 * PATIENCE, **options):
        return subprocess.run(self.command(*argv), capture_output=True, text=True,
                              timeout=timeout, check=False, **options)

    def start(self, *argv, **options):
        return subprocess.Popen(self.command(*argv), **options)

    def socket(self, *args):
        """A socket made inside: a thread of its own enters, so that ours stays where it is."""
        made = []

        def enter():
            with open(f"/proc/{self.holder.pid}/ns/net", encoding="ascii") as namespace:
                assert libc.setns(namespace.fileno(), 0x40000000) == 0
            made.append(socket.socket(*args))

        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        return made[0]

    def close(self):
        self.holder.kill()
        self.holder.wait()


class World:
    """Servers with public addresses, and who asked for which name."""

    def __init__(self):
        self.names = {}
        self.asked = []
        self.servers = []
        self.folder = tempfile.TemporaryDirectory()
        self.namespace = Namespace()
        pid = self.namespace.holder.pid
        for command in (f"ip link add out0 type veth peer name in0 netns {pid}",
                        f"ip addr add {WORLD}.1/24 dev out0", "ip link set out0 up"):
            subprocess.run(command.split(), check=True)
        last = [2, 3, 4, 53]
        addresses = [f"{WORLD}.{n}/24" for n in last]
        for command in ([f"ip addr add {address} dev in0" for address in addresses]
                        + ["ip addr add 10.9.0.2/24 dev in0", "ip link set in0 up"]):
            assert self.namespace.run(*command.split()).returncode == 0
        # Two of ours in one network: the kernel takes the first as the source to the second.
        for address in ("10.9.0.1/24", f"{WORLD}.9/24"):
            subprocess.run(f"ip addr add {address} dev out0".split(), check=True)
        self.name_server = self.namespace.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.name_server.bind((NAME_SERVER, 53))
        threading.Thread(target=self.answer, daemon=True).start()

    def listen(self, address, port):
        """A TCP socket there for a server of this process."""
        made = self.namespace.socket(socket.AF_INET, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((address, port))
        return made

    def answer(self):
        with contextlib.suppress(OSError):  # it is closed
            while True:
                packet, peer = self.name_server.recvfrom(512)
                self.answer_one(packet, peer)

    def answer_one(self, packet, peer):
        at, labels = 12, []
        while packet[at]:
            labels.append(packet[at + 1:at + 1 + packet[at]].decode())
            at += packet[at] + 1
        name, kind = ".".join(labels).lower(), packet[at + 2]
        self.asked.append(name)
        found = self.names.get(name, [])
        if callable(found):
            found = found()
        records = [address for address in found if kind == (28 if ":" in address else 1)]
        head = packet[:2] + struct.pack("=BB", 0x81, 0x80 if found else 0x83)
        head += struct.pack(">HHHH", 1, len(records), 0, 0)
        body = packet[12:at + 5]
        for address in records:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            raw = socket.inet_pton(family, address)
            body += struct.pack(">HHHIH", 0xc00c, kind, 1, 1, len(raw)) + raw
        self.name_server.sendto(head + body, peer)

    def listen(self, address, port):
        """A listener whose accepts the test counts itself."""
        server = self.namespace.socket(socket.AF_INET, socket.SOCK_STREAM)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((address, port))
        server.listen(64)
        server.settimeout(10 * PATIENCE)
        self.servers.append(server)
        return server

    def start(self, *argv, **options):
        process = self.namespace.start(*argv, **options)
        self.servers.append(process)
        return process

    def close(self):
        for server in self.servers:
            if isinstance(server, subprocess.Popen):
                server.kill()
                server.wait()
            else:
                server.close()
        self.name_server.close()
        # With its namespace it would go too, but only some time after the last process.
        subprocess.run("ip link del out0".split(), check=True)
        self.namespace.close()
        self.folder.cleanup()


@contextlib.contextmanager
def hosted_world(tmp_path_factory, names=None):
    """A world whose name server is the host's too, before a service starts and reads which it is: the
    mount namespace is the test's own."""
    world = World()
    world.names.update(names or {})
    resolver = tmp_path_factory.mktemp("etc") / "resolv.conf"
    resolver.write_text(f"nameserver {NAME_SERVER}\n")
    subprocess.run(["mount", "--bind", resolver, "/etc/resolv.conf"], check=True)
    try:
        yield world
    finally:
        subprocess.run(["umount", "/etc/resolv.conf"], check=True)
        world.close()


def text(value, size):
    return value.encode().ljust(size, b"\0")


def address_bytes(address, prefix=None):
    if not address:
        return struct.pack("=16sII", b"", 0, 0)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    raw = socket.inet_pton(family, address)
    return struct.pack("=16sII", raw, family, len(raw) * 8 if prefix is None else prefix)


def rule(target, *ports, flags=0, label="allow", reroute=("", "", 0), paths=()):
    """What egress_rule_parse makes of a text, for the forms that the tests need."""
    kind, name, network = NAME, target, address_bytes("")
    if target.startswith("*."):
        kind, name = SUFFIX, target[2:]
    elif target[0].isdigit() or target.startswith("["):
        address, _, prefix = target.strip("[]").partition("/")
        kind, name = NETWORK, ""
        network = address_bytes(address, int(prefix) if prefix else None)
    ports = ports or (80, 443)
    ranges = b"".join(struct.pack("=HH", *(p if isinstance(p, tuple) else (p, p))) for p in ports)
    return {
        "kind": kind, "flags": flags, "n_ports": len(ports), "ports": ranges.ljust(32, b"\0"),
        "label": label, "name": name, "network": network, "reroute": reroute, "paths": paths,
    }


class Session:
    def __init__(self, worker, port):
        self.worker = worker
        self.id = uuid.uuid4().bytes
        self.generation = 0
        self.resolv = Path(worker.world.folder.name) / "resolv-inside"
        self.resolv.write_text(f"nameserver {RESOLVER}\noptions timeout:20 attempts:1\n")
        self.namespace = Namespace(
            "ip addr add 192.0.0.8/32 dev lo\nip route add local 0.0.0.0/0 dev lo\nip -6 route add local ::/0 dev lo\n"
            f"mount --bind {self.resolv} /etc/resolv.conf")
        self.listener = self.namespace.socket(socket.AF_INET6, socket.SOCK_STREAM)
        self.listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.listener.bind(("::", port))
        self.listener.listen(512)
        self.resolver = self.namespace.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.resolver.bind((RESOLVER, 53))
        for made in (self.listener, self.resolver):
            made.setblocking(False)

    def hand_over(self):
        self.worker.tell_supervisor(109, self.id, [self.listener.fileno(),
                                                   self.resolver.fileno()])

    def policy(self, *rules, wait=True, **limits):
        order = ("max_connections", "max_connects_per_s", "max_names", "max_bytes_per_s",
                 "connect_timeout_ms", "idle_timeout_s")
        self.generation += 1
        values = [limits.get(name, 0) for name in order]
        self.send(POLICY, struct.pack("=IIIIQII", len(rules), *values))
        for index, row in enumerate(rules):
            name, address, port = row["reroute"]
            self.send(RULE, struct.pack("=IIII", index, row["kind"], row["flags"], row["n_ports"])
                      + row["ports"] + text(row["label"], 64) + text(row["name"], 256)
                      + row["network"] + text(name, 256) + address_bytes(address)
                      + struct.pack("=IIQ", port, len(row["paths"]), 0))
            for host, prefix in row["paths"]:
                self.send(PATH, struct.pack("=II", index, 0) + text(host, 256)
                          + text(prefix, 256))
        self.send(END)
        if wait:
            ack = self.worker.expect(ACK)
            assert ack["generation"] == self.generation
            return ack["error"]
        return None

    def send(self, kind, body=b"", serial=0):
        self.worker.send_api(kind, self.id, self.generation, body, serial)

    def counters(self):
        self.send(COUNT, serial=7)
        rows = []
        while True:
            found = self.worker.expect(COUNTERS)
            values = struct.unpack_from("=IIQQQQQQ", found["body"])
            rows.append(dict(zip(("rule", "open", "connections", "denials", "bytes_out",
                                  "bytes_in", "dns_answers", "untold"), values)))
            if not found["more"]:
                return rows

    def resolve(self, name):
        done = self.namespace.run("getent", "ahostsv4", name)
        return done.stdout.split()[0] if done.returncode == 0 else None

    def connect(self, address, port, timeout=10 * PATIENCE):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        client = self.namespace.socket(family, socket.SOCK_STREAM)
        client.settimeout(timeout)
        client.connect((address, port))
        return client

    def run(self, *argv, **options):
        return self.namespace.run(*argv, **options)

    def close(self):
        self.listener.close()
        self.resolver.close()
        self.namespace.close()


class Worker:
    """The program, told by us what supervisor and api worker would tell it."""

    def __init__(self, world):
        self.world = world
        self.sessions = []
        self.denials = []
        self.queue = []
        self.process = None
        self.start()

    def start(self):
        self.supervisor, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        far.setblocking(False)
        policy = os.open(BUILD / "bin/policy.img", os.O_RDONLY)
        self.resolv = Path(self.world.folder.name) / "resolv-outside"
        self.resolv.write_text(f"nameserver {NAME_SERVER}\nnameserver {PRIVATE_NAME_SERVER}\n"
                               "options timeout:5 attempts:2\n")
        fds = (far.fileno(), policy)

        def place():
            copies = [fcntl.fcntl(fd, fcntl.F_DUPFD, 5) for fd in fds]  # none lands on 3 or 4
            for n, copy in enumerate(copies):
                os.dup2(copy, 3 + n)

        self.process = subprocess.Popen(
            ["unshare", "-m", "--", "sh", "-c",
             f'mount --bind {self.resolv} /etc/resolv.conf && exec "$0"',
             str(BUILD / "bin/sandboxd-egress")],
            pass_fds=(3, 4), preexec_fn=place, stderr=subprocess.DEVNULL)
        far.close()
        os.close(policy)
        hello = self.supervisor.recv(4096)
        self.launch_bytes = len(hello)
        head = list(LAUNCH_HEAD.unpack_from(hello))
        head[2] += 1
        self.supervisor.send(LAUNCH_HEAD.pack(*head) + hello[LAUNCH_HEAD.size:])
        self.link()

    def link(self):
        self.api, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        far.setblocking(False)
        self.queue.clear()
        self.tell_supervisor(107, bytes(16), [far.fileno()])
        far.close()
        hello = self.api.recv(4096)
        self.egress_bytes = len(hello)
        self.api.send(hello)

    def tell_supervisor(self, kind, session, fds=()):
        head = LAUNCH_HEAD.pack(LAUNCH_MAGIC, LAUNCH_VERSION, kind, 0, 0, session, 0, 0)
        message = head.ljust(self.launch_bytes, b"\0")
        if fds:
            socket.send_fds(self.supervisor, [message], fds)
        else:
            self.supervisor.send(message)

    def send_api(self, kind, session, generation, body, serial):
        head = EGRESS_HEAD.pack(EGRESS_MAGIC, EGRESS_VERSION, kind, serial, 0, generation, 0,
                                session)
        self.api.send((head + body).ljust(self.egress_bytes, b"\0"))

    def take(self, timeout):
        if not select.select([self.api], [], [], timeout)[0]:
            return None
        message = self.api.recv(4096)
        assert message, "the worker has ended"
        _, _, kind, serial, error, generation, more, session = EGRESS_HEAD.unpack_from(message)
        found = {"kind": kind, "serial": serial, "error": error, "generation": generation,
                 "more": more, "session": session, "body": message[EGRESS_HEAD.size:]}
        if kind == DENIAL:
            self.denials.append(self.denial(found))
        else:
            self.queue.append(found)
        return found

    @staticmethod
    def denial(found):
        channel, reason, index, port, count, source = struct.unpack_from("=IIIIII", found["body"])
        name = found["body"][32:288].split(b"\0")[0].decode()
        family = struct.unpack_from("=I", found["body"], 304)[0]
        label = found["body"][312:376].split(b"\0")[0].decode()
        if family:
            name = socket.inet_ntop(family, found["body"][288:304 if family != 2 else 292])
        return {"session": found["session"], "channel": channel, "reason": REASONS[reason],
                "rule": index, "port": port, "count": count, "source": source, "name": name,
                "label": label}

    def expect(self, kind, timeout=20 * PATIENCE):
        until = time.monotonic() + timeout
        while time.monotonic() < until:
            for found in self.queue:
                if found["kind"] == kind:
                    self.queue.remove(found)
                    return found
            self.take(1)
        raise AssertionError(f"no message {kind}")

    def expect_denial(self, timeout=20 * PATIENCE, **wanted):
        """The next denial with these values; those before it are dropped."""
        until = time.monotonic() + timeout
        seen = []
        while time.monotonic() < until:
            while self.denials:
                found = self.denials.pop(0)
                seen.append(found)
                if all(found[key] == value for key, value in wanted.items()):
                    return found
            self.take(1)
        raise AssertionError(f"no denial {wanted}, but {seen}")

    def session(self, port):
        session = Session(self, port)
        self.sessions.append(session)
        session.hand_over()
        return session

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.supervisor.close()
        self.api.close()

    def close(self):
        self.stop()
        for session in self.sessions:
            session.close()
