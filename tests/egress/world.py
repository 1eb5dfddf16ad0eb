"""What is outside in these tests: a namespace that has every address there is, and counts.

A program outside of a session reaches it by any address, which is each row's control. Of a session
only what its rules allow may arrive. Accepted connections are counted where they arrive, and every
packet that crosses the link is seen by a raw socket of the world's own namespace.
"""
import contextlib
import select
import socket
import ssl
import struct
import subprocess
import threading
import time
from pathlib import Path

from egress_rig import NAME_SERVER, WORLD, World, libc
from harness import wait_until

HERE = f"{WORLD}.1"  # this side of the link
SITE, PRODUCTION, SILENT = f"{WORLD}.2", f"{WORLD}.3", f"{WORLD}.99"
HERE6, SITE6 = "2600:9::1", "2600:9::2"
PORTS = (22, 53, 80, 443, 853, 8080, 9092)
TLS_PORT = 4443  # the real TLS server; where 443 leads to is told by its first bytes
SO_TIMESTAMPNS = 35  # socket(7); Python has no name for it
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nreached\n"


class Packet:
    """One IP packet that left for the world."""

    def __init__(self, frame, when):
        self.when = when  # by the kernel's clock, in seconds since 1970: this thread may come later
        kind = struct.unpack_from(">H", frame, 12)[0]
        self.protocol, self.port, at = None, None, 14
        self.bytes = 0  # of TCP
        if kind == 0x0800:
            self.protocol = frame[at + 9]
            self.to = socket.inet_ntop(socket.AF_INET, frame[at + 16:at + 20])
            end = at + struct.unpack_from(">H", frame, at + 2)[0]
            at += (frame[at] & 15) * 4
        elif kind == 0x86dd:
            self.protocol = frame[at + 6]
            self.to = socket.inet_ntop(socket.AF_INET6, frame[at + 24:at + 40])
            at += 40
            end = at + struct.unpack_from(">H", frame, at - 36)[0]
            # Neighbour discovery, and multicast reports behind a hop-by-hop header.
            if self.protocol == 0 or (self.protocol == 58 and 130 <= frame[at] <= 143):
                self.protocol = None
        if self.protocol in (6, 17, 132, 136) and len(frame) >= at + 4:
            self.port = struct.unpack_from(">H", frame, at + 2)[0]
        if self.protocol == 6 and len(frame) >= at + 13:
            self.bytes = end - at - (frame[at + 12] >> 4) * 4

    def __repr__(self):
        return f"{self.protocol}:{self.to}:{self.port}"


class Outside(World):
    """The world of egress_rig, with a route to it for every address."""

    def __init__(self):
        super().__init__()
        self.accepted = []  # (address, port) as dialled
        self.server_names = []  # of TLS hellos
        self.requests = []  # heads that arrived
        self.received = 0  # bytes on kept connections
        self.packets = []
        self.mark = self.marked = 40000  # ports that nobody else sends to
        self.accepting = threading.Lock()
        self.listeners = []
        for words in (f"ip address add {SITE6}/64 dev in0 nodad",
                      # A rule of its own parts the local table from the main one.
                      "ip rule add pref 5000 lookup main", "ip -6 rule add pref 5000 lookup main",
                      "ip route add local default dev lo", "ip -6 route add local default dev lo",
                      f"ip route add throw {HERE}/32 table local",
                      "ip route add throw 10.9.0.1/32 table local", f"ip -6 route add throw {HERE6}/128 table local",
                      f"ip route add blackhole {SILENT}/32 table local"):
            done = self.namespace.run(*words.split())
            assert done.returncode == 0, (words, done)
        for words in (f"ip address add {HERE6}/64 dev out0 nodad", f"ip route add default via {SITE}",
                      f"ip -6 route add default via {SITE6}"):
            subprocess.run(words.split(), check=True)
        self.link = self.namespace.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.link.bind(("in0", 0))
        self.link.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.certificate = Path(self.folder.name) / "certificate"
        self.make_certificate()
        threading.Thread(target=self.look, daemon=True).start()
        for port in PORTS:
            listener = self.namespace.socket(socket.AF_INET6, socket.SOCK_STREAM)
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("::", port))
            listener.listen(4096)
            self.servers.append(listener)
            self.listeners.append(listener)
            threading.Thread(target=self.serve, args=(listener,), daemon=True).start()

    def make_certificate(self):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout",
                        f"{self.certificate}.key", "-out", self.certificate, "-subj", "/CN=web.example.com",
                        "-addext", "subjectAltName=DNS:web.example.com"], check=True, capture_output=True)
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(self.certificate, f"{self.certificate}.key")
        self.tls.sni_callback = lambda _, name, __: self.server_names.append(name)

    def look(self):
        while True:
            try:
                frame, more, _, (_, _, kind, *_) = self.link.recvmsg(256, 64)
            except OSError:
                return
            seconds, nanoseconds = struct.unpack("qq", more[0][2])
            # 4: sent by the world
            packet = Packet(frame, seconds + nanoseconds / 1e9) if kind != 4 else None
            if not packet or packet.protocol is None:
                continue
            if (packet.protocol, packet.to, packet.port) == (socket.IPPROTO_UDP, SITE, self.mark):
                self.marked = self.mark
            else:
                self.packets.append(packet)

    def serve(self, listener):
        while True:
            try:
                select.select([listener], [], [])
                with self.accepting:
                    client, _ = listener.accept()
                    address, port = client.getsockname()[:2]
                    self.accepted.append((address.removeprefix("::ffff:"), port))
            except (OSError, ValueError):  # it is closed
                return
            threading.Thread(target=self.talk, args=(client, port), daemon=True).start()

    def talk(self, client, port):
        with client, contextlib.suppress(OSError, ssl.SSLError):
            if port == 443 and client.recv(1, socket.MSG_PEEK) == b"\x16":
                client = self.tls.wrap_socket(client, server_side=True)
            while True:
                head = b""
                while b"\r\n\r\n" not in head and not (head and port != 80 and port != 443):
                    part = client.recv(4096)
                    if not part:
                        return
                    self.received += len(part)
                    head += part
                self.requests.append(head)
                client.sendall(ANSWER)

    @contextlib.contextmanager
    def counted(self):
        """What arrives meanwhile, and a moment longer."""
        seen = Seen(self)
        yield seen
        time.sleep(0.3)
        self.catch_up()
        seen.end()

    def catch_up(self):
        """All that has arrived is counted: packets come one after the other, and this is the last."""
        self.mark += 1
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"", (SITE, self.mark))
        wait_until(lambda: self.marked == self.mark, 20, "packets are counted")
        wait_until(self.has_accepted_all, 20, "connections are counted")

    def has_accepted_all(self):
        with self.accepting:
            return not select.select(self.listeners, [], [], 0)[0]

    def close(self):
        # A blocking accept keeps its socket: its thread has to see the end.
        for server in self.servers:
            if isinstance(server, socket.socket):
                with contextlib.suppress(OSError):
                    server.shutdown(socket.SHUT_RDWR)
        self.link.close()
        super().close()


class Seen:
    def __init__(self, world):
        self.world = world
        self.begin = [len(kept) for kept in self.lists()]

    def lists(self):
        world = self.world
        return world.accepted, world.packets, world.asked, world.server_names, world.requests

    def end(self):
        self.accepted, packets, self.asked, self.server_names, self.requests = (
            kept[n:] for kept, n in zip(self.lists(), self.begin))
        # Our own name server's answers are what names lead to.
        self.packets = [p for p in packets if (p.to, p.port) != (NAME_SERVER, 53)]

    def but(self, *allowed):
        """Packets and accepts to other (address, port)s."""
        return ([p for p in self.packets if (p.to, p.port) not in allowed]
                + [a for a in self.accepted if a not in allowed])
