"""Clients of the control socket that mean harm."""
import socket
import struct
import time

from harness import SESSIONS


def test_client_cannot_stop_the_worker_by_a_descriptor(daemon, alice):
    """The close of a lingering TCP socket waits: whoever is made to close one stands still."""
    with socket.socket() as listener, socket.socket() as pushed:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        pushed.connect(listener.getsockname())
        pushed.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 30))
        pushed.setblocking(False)
        try:
            while True:
                pushed.send(b"x" * 65536)
        except BlockingIOError:
            pass
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(daemon.control))
            try:
                socket.send_fds(client, [b"GET /dagster/sandbox/sessions HTTP/1.1\r\n"],
                                [pushed.fileno()])
            except PermissionError:
                pass
            pushed.close()
            begin = time.monotonic()
            assert alice.get(SESSIONS, timeout=40).status == 200
            assert time.monotonic() - begin < 5
