# grants: lo up with 127.0.0.1 and ::1, AF_NETLINK ROUTE, localhost and services in /etc, low ports
"""getifaddrs, names of the session, TCP and UDP servers, options that servers set."""
import ctypes
import os
import socket
import threading


class Ifaddrs(ctypes.Structure):
    pass


Ifaddrs._fields_ = [("next", ctypes.POINTER(Ifaddrs)), ("name", ctypes.c_char_p)]


def interfaces():
    libc, head = ctypes.CDLL(None, use_errno=True), ctypes.POINTER(Ifaddrs)()
    assert libc.getifaddrs(ctypes.byref(head)) == 0, os.strerror(ctypes.get_errno())
    names, at = set(), head
    while at:
        names.add(at.contents.name.decode())
        at = at.contents.next
    libc.freeifaddrs(head)
    return names


def tcp(family, host):
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT, socket.SO_KEEPALIVE):
            listener.setsockopt(socket.SOL_SOCKET, option, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind((host, 0))
        listener.listen(16)
        thread = threading.Thread(target=lambda: listener.accept()[0].sendall(b"x" * 1000000))
        thread.start()
        got = 0
        with socket.create_connection(listener.getsockname()[:2]) as peer:
            while got < 1000000:
                got += len(peer.recv(65536))
        thread.join()


def udp():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.sendto(b"hello", server.getsockname())
            data, peer = server.recvfrom(100)
            server.sendto(data.upper(), peer)
            assert client.recv(100) == b"HELLO"


def unix():
    path = os.environ["TMPDIR"] + "/network.sock"
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(path)
        server.listen()
        client.connect(path)
        peer, _ = server.accept()
        read_end, write_end = os.pipe()
        socket.send_fds(client, [b"x"], [write_end])
        _, descriptors, _, _ = socket.recv_fds(peer, 1, 1)
        os.write(descriptors[0], b"passed")
        assert os.read(read_end, 10) == b"passed"


def main():
    assert interfaces() == {"lo"}, interfaces()
    assert [name for _, name in socket.if_nameindex()] == ["lo"]
    assert socket.gethostbyname("localhost") == "127.0.0.1"
    assert socket.getaddrinfo(socket.gethostname(), 80)[0][4][0] == "127.0.0.1"
    assert socket.getfqdn() and socket.getservbyname("https") == 443
    tcp(socket.AF_INET, "127.0.0.1")
    tcp(socket.AF_INET6, "::1")
    udp()
    unix()
    with socket.socket() as low:
        low.bind(("127.0.0.1", 80))
    try:
        socket.create_connection(("127.0.0.1", 1), timeout=5)
    except ConnectionRefusedError:
        print("ok")


main()
