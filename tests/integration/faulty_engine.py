"""What stands between us and an engine that is far away: a front before its socket that refuses, is slow, and cuts.

It passes bytes on and knows of HTTP only where a request begins, each on a connection of its own as ours are not kept:
a fault is looked for at the first line of each connection's requests."""
import contextlib
import os
import re
import selectors
import socket
import threading
import time

LINE = re.compile(rb"(GET|POST|DELETE|PUT|HEAD) (\S+) HTTP/1\.1\r\n")
REFUSALS = {401: b"Unauthorized", 409: b"Conflict", 500: b"Internal Server Error", 503: b"Service Unavailable"}


class Front:
    """`refuse`, `delay`: [[pattern of "METHOD path", status or seconds, how often], ...]. `cut_after`: seconds that a
    connection lives, or None. `lose_after`: bytes of the next stream to us after which it is cut, or None."""

    def __init__(self, path, engine):
        self.path = str(path)
        self.engine = str(engine)
        self.refuse, self.delay = [], []
        self.cut_after = self.lose_after = None
        self.seen, self.n_cut = [], 0
        self.server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.server.bind(self.path)
        os.chmod(self.path, 0o666)
        self.server.listen(64)
        self.thread = threading.Thread(target=self.accept, daemon=True)
        self.thread.start()

    def done(self):
        with contextlib.suppress(OSError):
            self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()
        self.thread.join(10)

    def calm(self):
        self.refuse, self.delay = [], []
        self.cut_after = self.lose_after = None

    def accept(self):
        while True:
            try:
                client, _ = self.server.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    @staticmethod
    def due(faults, request):
        for fault in faults:
            if fault[2] > 0 and re.search(fault[0], request):
                fault[2] -= 1
                return fault[1]
        return None

    def serve(self, client):
        with client, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as engine:
            with contextlib.suppress(OSError):
                engine.connect(self.engine)
                self.pass_on(client, engine)

    def judge(self, client, data):
        """False: it was answered here."""
        for method, path in LINE.findall(data):
            request = f"{method.decode()} {path.decode()}"
            self.seen.append(request)
            time.sleep(self.due(self.delay, request) or 0)
            status = self.due(self.refuse, request)
            if status:
                text = b'{"message":"a fault of the front"}'
                client.sendall(b"HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
                               b"Connection: close\r\n\r\n%s" % (status, REFUSALS[status], len(text), text))
                return False
        return True

    def pass_on(self, client, engine):
        began, n_back, is_stream = time.monotonic(), 0, False
        with selectors.DefaultSelector() as both:
            both.register(client, selectors.EVENT_READ, engine)
            both.register(engine, selectors.EVENT_READ, client)
            while True:
                ready = both.select(0.05)
                if self.cut_after is not None and time.monotonic() - began > self.cut_after:
                    self.n_cut += 1
                    return
                for key, _ in ready:
                    data = key.fileobj.recv(65536)
                    if not data:
                        return
                    if key.fileobj is client:
                        if not is_stream and not self.judge(client, data):
                            return
                        is_stream = is_stream or b"/start HTTP/1.1" in data and b" /exec/" in data
                    else:
                        n_back += len(data)
                        if is_stream and self.lose_after is not None and n_back > self.lose_after:
                            # A part of it still comes.
                            key.data.sendall(data[:len(data) // 2])
                            self.lose_after = None
                            self.n_cut += 1
                            return
                    key.data.sendall(data)
