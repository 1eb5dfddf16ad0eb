"""A name server of the test's own, and the host's configuration that asks it."""
import contextlib
import socket
import subprocess
import threading

ADDRESS = "127.0.0.35"


class NameServer:
    """Answers with the IPv4 addresses in `names`; says nothing while `silent`."""

    def __init__(self):
        self.names = {}
        self.silent = False
        self.asked = []
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((ADDRESS, 53))
        self.socket.settimeout(0.2)
        self.ends = False
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        while not self.ends:
            with contextlib.suppress(TimeoutError):
                packet, sender = self.socket.recvfrom(512)
                if not self.silent:
                    self.socket.sendto(self.answer(packet), sender)

    def answer(self, packet):
        labels, at = [], 12
        while packet[at]:
            labels.append(packet[at + 1:at + 1 + packet[at]].decode())
            at += 1 + packet[at]
        name = ".".join(labels).lower()
        wants_ipv4 = packet[at + 1:at + 3] == b"\0\1"
        self.asked.append(name)
        addresses = self.names.get(name, []) if wants_ipv4 else []
        records = b"".join(b"\xc0\x0c\0\1\0\1\0\0\0\1\0\4" + socket.inet_aton(address) for address in addresses)
        head = packet[:2] + (b"\x81\x80" if name in self.names else b"\x81\x83") + b"\0\1"
        return head + len(addresses).to_bytes(2, "big") + b"\0\0\0\0" + packet[12:at + 5] + records

    def done(self):
        self.ends = True
        self.thread.join()
        self.socket.close()


@contextlib.contextmanager
def name_server(folder):
    """Of this test's mount namespace."""
    (folder / "resolv.conf").write_text(f"nameserver {ADDRESS}\n")
    subprocess.run(["mount", "--bind", folder / "resolv.conf", "/etc/resolv.conf"], check=True)
    server = NameServer()
    try:
        yield server
    finally:
        server.done()
        subprocess.run(["umount", "/etc/resolv.conf"], check=True)
