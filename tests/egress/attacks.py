"""The attacks: runs in a session, and outside of one as the control. Prints "step TAB result" lines.

usage: attacks.py VERB WORDS...     "ok" means that the outside was reached
"""
import errno
import os
import random
import socket
import ssl
import struct
import sys
import time


def name_of(error):
    if isinstance(error, socket.timeout):
        return "timeout"
    if isinstance(error, socket.gaierror):
        return "no address"
    return errno.errorcode.get(error.errno, type(error).__name__)


def step(name, call):
    try:
        result = call() or "ok"
    except OSError as error:
        result = name_of(error)
    print(name, result, sep="\t", flush=True)


def connect(host, port, timeout=15):
    return socket.create_connection((host, int(port)), timeout)


def answer(sock):
    """"ok", the status of an answer that is not the world's, or "closed"."""
    got = b""
    while b"reached" not in got:
        part = sock.recv(4096)
        if not part:
            return got.split(b" ")[1].decode() if got.startswith(b"HTTP/") else "closed"
        got += part
    return "ok"


def head(host, path="/", method="GET"):
    return f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()


def dial(*places):
    """Each HOST PORT."""
    for host, port in zip(places[::2], places[1::2]):
        def call(host=host, port=port):
            with connect(host, port) as sock:
                sock.sendall(head(host))
                return answer(sock)
        step(f"{host} {port}", call)


def http(host, port, *requests):
    """Requests as escaped bytes, each on its connection; "|" parts those of one; "~": byte by byte."""
    for number, request in enumerate(requests, 1):
        def call(request=request):
            results = []
            with connect(host, port) as sock:
                for part in request.split("|"):
                    data = part.lstrip("~").encode().decode("unicode_escape").encode("latin-1")
                    size = 1 if part.startswith("~") else len(data)
                    for at in range(0, len(data), size):
                        sock.sendall(data[at:at + size])
                    try:
                        results.append(answer(sock))
                    except OSError as error:
                        results.append(name_of(error))
                    if results[-1] != "ok":
                        break
            return " ".join(results)
        step(f"request {number}", call)


def question(name, kind=1):
    """Labels are given with "." between them; \\xNN within one is a byte."""
    raw = name.encode().decode("unicode_escape").encode("latin-1")
    labels = b"".join(bytes([len(label) & 255]) + label for label in raw.split(b".") if label)
    return struct.pack(">HHHHHH", random.randrange(65536), 0x100, 1, 0, 0, 0) + labels + struct.pack(">BHH", 0, kind, 1)


def rcode(reply):
    flags, _, answers = struct.unpack_from(">HHH", reply, 2)
    names = {0: "address" if answers else "nodata", 1: "FORMERR", 2: "SERVFAIL", 3: "NXDOMAIN", 5: "REFUSED"}
    return names.get(flags & 15, str(flags & 15))


def dns(server, protocol, *names):
    """Each NAME, or NAME/TYPE; "unheard": over UDP, and perhaps nobody answers."""
    for name in names:
        def call(name=name):
            text, _, kind = name.partition("/")
            packet = question(text, int(kind or 1))
            family = socket.AF_INET6 if ":" in server else socket.AF_INET
            with socket.socket(family, socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM) as sock:
                sock.settimeout(3 if protocol == "unheard" else 60)
                if protocol != "tcp":
                    sock.sendto(packet, (server, 53))
                    return rcode(sock.recv(1000))
                sock.connect((server, 53))
                sock.sendall(struct.pack(">H", len(packet)) + packet)
                reply = sock.recv(1000)
                # The world's server of that port speaks HTTP: to have reached it is what counts.
                return "ok" if b"reached" in reply else rcode(reply[2:]) if len(reply) > 14 else "closed"
        step(f"{protocol} {name[:60]}", call)


def labels(below, length, n):
    """So many random labels: how many got an address."""
    made, begun = 0, time.monotonic()
    for _ in range(int(n)):
        label = "".join(random.choice("abcdefghijklmnop234567") for _ in range(int(length)))
        try:
            socket.getaddrinfo(f"{label}.{below}", 80, socket.AF_INET)
            made += 1
        except socket.gaierror:
            pass
    print(f"{length} bytes", made, sep="\t")
    print("seconds", int(time.monotonic() - begun) + 1, sep="\t")


def tls(host, *server_names):
    """Dial host, say another name; "name/1": in records of one byte, in segments of one byte."""
    for given in server_names:
        def call(given=given):
            name, _, size = given.partition("/")
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            try:
                context.wrap_bio(incoming, outgoing, server_hostname=name or None).do_handshake()
            except ssl.SSLWantReadError:
                pass
            hello = outgoing.read()
            if size:
                body, size = hello[5:], int(size)
                hello = b"".join(hello[:3] + struct.pack(">H", len(body[at:at + size])) + body[at:at + size]
                                 for at in range(0, len(body), size))
            with connect(host, 443) as sock:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for at in range(0, len(hello), 1 if size else 1 << 20):
                    sock.sendall(hello[at:at + 1] if size else hello)
                first = sock.recv(1)
                return "ok" if first == b"\x16" else "alert" if first == b"\x15" else "closed"
        step(f"hello {given or 'without a name'}", call)


def packets(host4, host6, interface="lo"):
    """Everything that is no TCP. "ok" is a packet that the kernel took."""
    def send(family, kind, protocol, where, data=b"x" * 64):
        with socket.socket(family, kind, protocol) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            sock.settimeout(3)
            if kind == socket.SOCK_DGRAM or kind == socket.SOCK_RAW:
                sock.sendto(data, where)
            else:
                sock.connect(where)
    echo, echo6 = b"\x08\0\xf7\xff\0\0\0\0", b"\x80\0\0\0\0\0\0\0"
    four, six = socket.AF_INET, socket.AF_INET6
    stream, datagram, raw = socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW
    for name, words in {
            "quic": (four, datagram, 0, (host4, 443)), "quic 6": (six, datagram, 0, (host6, 443)),
            "dns": (four, datagram, 0, ("8.8.8.8", 53)), "ntp": (four, datagram, 0, (host4, 123)),
            "mapped": (six, datagram, 0, (f"::ffff:{host4}", 443)),
            "multicast": (four, datagram, 0, ("224.0.0.251", 5353)),
            "broadcast": (four, datagram, 0, ("255.255.255.255", 67)),
            "ping raw": (four, raw, 1, (host4, 0), echo), "ping raw 6": (six, raw, 58, (host6, 0), echo6),
            "raw tcp": (four, raw, 6, (host4, 0)), "raw udp": (four, raw, 17, (host4, 0)),
            "raw ip": (four, raw, 255, (host4, 0), b"E\0\0\x14\0\0\0\0\x40\xfd\0\0" + bytes(4) + socket.inet_aton(host4)),
            "ping": (four, datagram, 1, (host4, 0), echo), "sctp": (four, stream, 132, (host4, 80)),
            "udplite": (four, datagram, 136, (host4, 80)), "dccp": (four, 6, 33, (host4, 80))}.items():
        step(name, lambda words=words: send(*words))

    def frame():
        with socket.socket(17, raw, socket.htons(3)) as sock:
            sock.bind((interface, 0))
            sock.send(b"\xff" * 12 + b"\x08\0" + b"E\0\0\x14\0\0\0\0\x40\xfd\0\0" + bytes(4) + socket.inet_aton(host4))
    step("packet socket", frame)

    def fast_open():
        with socket.socket(four, stream) as sock:
            sock.sendto(head("fast.example"), 0x20000000, (host4, 80))
            sock.settimeout(60)
            return answer(sock)
    step("fast open", fast_open)


def hold(host, port, n, seconds, data=""):
    """n connections at once, each with the beginning of a request; how many stay."""
    socks, refused = [], 0
    for _ in range(int(n)):
        try:
            sock = connect(host, port, 5)
            sock.sendall(data.encode().decode("unicode_escape").encode("latin-1"))
            socks.append(sock)
        except OSError:
            refused += 1
    print("held", flush=True)
    until = time.monotonic() + float(seconds)
    while time.monotonic() < until and socks:
        time.sleep(0.5)
        for sock in socks[:]:
            try:
                sock.setblocking(False)
                if data and time.monotonic() < until - 1:
                    sock.send(b"x")  # slow: one byte at a time
                if sock.recv(1) == b"":
                    raise OSError
            except BlockingIOError:
                pass
            except OSError:
                socks.remove(sock)
    print("open", len(socks), sep="\t")


def churn(host, port, n, seconds):
    """Connects that are given up at once: how many were begun."""
    until, begun = time.monotonic() + float(seconds), 0
    socks = []
    where = (socket.getaddrinfo(host, 0, socket.AF_INET)[0][4][0], int(port))
    while begun < int(n) and time.monotonic() < until:
        sock = socket.socket()
        sock.setblocking(False)
        sock.connect_ex(where)
        socks.append(sock)
        begun += 1
        if len(socks) >= 200:
            socks.pop(0).close()
    print("begun", begun, sep="\t")


STOP = "/session/stop"


def keep(host, port):
    """One connection that goes on until it is cut or STOP is there; how it ended."""
    def call():
        with connect(host, port) as sock:
            while not os.path.exists(STOP):
                sock.sendall(b"more\r\n\r\n")
                print("sent", flush=True)
                result = answer(sock)
                if result != "ok":
                    return result
                time.sleep(0.1)
    step("kept", call)


def listen(port, stop=STOP):
    """A server on every address until that file is there; how many came. One beside it says that it has begun."""
    came = 0
    with socket.socket(socket.AF_INET6) as server:
        server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        server.bind(("::", int(port)))
        server.listen(16)
        server.settimeout(0.1)
        open(f"{stop}.begun", "w", encoding="ascii").close()
        while not os.path.exists(stop):
            try:
                server.accept()[0].close()
                came += 1
            except socket.timeout:
                pass
    print("came", came, sep="\t")


if __name__ == "__main__":
    os.environ.clear()
    globals()[sys.argv[1]](*sys.argv[2:])
