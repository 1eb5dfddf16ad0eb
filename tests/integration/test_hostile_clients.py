"""Clients of the control socket that mean harm."""
import os
import signal
import socket
import struct
import time

import pytest

from harness import PATIENCE, SESSIONS


def linger(tcp, seconds):
    tcp.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", seconds > 0, seconds))


def test_a_pushed_descriptor_does_not_stop_the_worker(daemon, alice):
    """The last close of a lingering TCP socket waits, for whoever is made to do it."""
    worker = daemon.worker_pid("sandboxd-api")
    with socket.socket() as listener, socket.socket() as pushed, \
            socket.socket(socket.AF_UNIX) as client:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        pushed.connect(listener.getsockname())
        pushed.setblocking(False)
        try:
            while True:
                pushed.send(b"x" * 65536)
        except BlockingIOError:
            pass
        client.connect(str(daemon.control))
        linger(pushed, 20)
        os.kill(worker, signal.SIGSTOP)  # so that its close is the last, not ours
        try:
            socket.send_fds(client, [b"GET /dagster/"], [pushed.fileno()])
        except PermissionError:
            linger(pushed, 0)
        else:
            if tuple(map(int, os.uname().release.split(".")[:2])) < (6, 16):
                linger(pushed, 0)
                pytest.skip("this kernel cannot refuse descriptors")
        finally:
            pushed.close()
            os.kill(worker, signal.SIGCONT)
        begin = time.monotonic()
        assert alice.get(SESSIONS, timeout=40 * PATIENCE).status == 200
        assert time.monotonic() - begin < 15, "less than it lingers"
