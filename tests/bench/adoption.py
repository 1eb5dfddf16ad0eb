#!/usr/bin/env python3
"""Restarts with many live sessions: how long until the next process answers for every one, and what is lost.

usage: adoption.py [--json FILE] [--sessions N] [--busy N] [--rounds N]

Needs SANDBOX_BUILD. The api worker is killed, then the supervisor; each time the clock runs from the kill to the
last session's summary and to the end of `true` in the last one. Some sessions are in the middle of a task, whose
frames are read to the end and counted. Prints a table; what is lost or doubled is an error.
"""
import argparse
import json
import os
import select
import signal
import socket
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor

sys.dont_write_bytecode = True
from common import UNBOUNDED, keep  # noqa: E402
from harness import CONFIG, RUNTIME, SESSIONS, Daemon, wait_until  # noqa: E402

CONNECTIONS = 8
ASSETS = 10


class Wire:
    """One kept connection; a request is bytes, and so is its answer."""

    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(path)
        self.data = b""
        self.of = None

    def send(self, of, request):
        self.of, self.data = of, b""
        self.sock.sendall(request)

    def take(self):
        """The whole answer, or None: there is more to come."""
        more = self.sock.recv(65536)
        if not more:
            raise ConnectionResetError
        self.data += more
        head, found, body = self.data.partition(b"\r\n\r\n")
        if not found:
            return None
        lower = head.lower()
        if b"transfer-encoding: chunked" in lower:
            return self.data if body.endswith(b"0\r\n\r\n") else None
        length = int(lower.split(b"content-length:", 1)[1].split(b"\r\n", 1)[0])
        return self.data if len(body) >= length else None


def request(method, url, body=None):
    data = b"" if body is None else json.dumps(body).encode()
    return (f"{method} {url} HTTP/1.1\r\nHost: bench\r\nX-Sandbox-User: bench\r\nX-Sandbox-Workspace: bench\r\n"
            f"X-Sandbox-Scopes: data:read data:write\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n\r\n").encode() + data


def connected(path):
    """A connection to whoever listens next, and its first answer; the kernel keeps the socket meanwhile."""
    while True:
        try:
            wire = Wire(path)
            wire.send(None, request("GET", "/healthz"))
            while wire.take() is None:
                pass
            return wire
        except OSError:
            time.sleep(0.002)


def ask_all(path, requests, is_right):
    """Every request over a few connections at once; the names of those that were answered wrongly."""
    todo, wrong = list(requests), []
    poll = select.epoll()
    wires = {}
    for _ in range(min(CONNECTIONS, len(todo))):
        wire = Wire(path)
        wires[wire.sock.fileno()] = wire
        poll.register(wire.sock, select.EPOLLIN)
        wire.send(*todo.pop())
    n_left = len(requests)
    while n_left > 0:
        for fd, _ in poll.poll():
            answer = wires[fd].take()
            if answer is None:
                continue
            n_left -= 1
            if not is_right(answer):
                wrong.append((wires[fd].of, answer[:200]))
            if todo:
                wires[fd].send(*todo.pop())
    for wire in wires.values():
        wire.sock.close()
    return wrong


class Population:
    def __init__(self, daemon, n, n_busy):
        self.client = daemon.client("bench", workspace="bench")
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            self.sessions = list(pool.map(lambda _: self.client.create(), range(n)))
        self.busy = self.sessions[:n_busy]
        body = "type: a.B\nattributes: [" + "1, " * 100000 + "1]\n"
        for session in self.busy:
            for number in range(ASSETS):
                assert self.client.write(session, f"c{number}", body).status == 200

    def begin(self):
        return [self.client.execute(session) for session in self.busy]

    def read(self, tasks):
        """What is wrong with the frames of the tasks: each must be there, and once."""
        wrong = 0
        for task in tasks:
            frames = self.client.frames(task, timeout=300)
            assets = [frame["asset_key"][-1] for frame in frames if frame["stage"] == "materialize"]
            wrong += [frame["seq"] for frame in frames] != list(range(1, len(frames) + 1))
            wrong += [frame["stage"] for frame in frames if frame["stage"] in ("done", "error")] != ["done"]
            wrong += assets != [f"c{number}" for number in range(ASSETS)]
            wrong += self.client.frames(task) != frames
        return wrong


def one_round(daemon, population, pid):
    path = str(daemon.control)
    summaries = [(s, request("GET", f"{SESSIONS}/{s}")) for s in population.sessions]
    runs = [(s, request("POST", f"{RUNTIME}/{s}/commands", {"argv": ["/usr/bin/true"]})) for s in population.sessions]
    shims = sorted(daemon.shim_pids())
    quiet = time.perf_counter()
    assert not ask_all(path, runs, lambda answer: b'"code":0' in answer)
    quiet = time.perf_counter() - quiet
    tasks = population.begin()
    last_worker = os.pidfd_open(daemon.worker_pid("sandboxd-api"))
    start = time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    select.select([last_worker], [], [])  # it answers until then, also where its supervisor was killed
    os.close(last_worker)
    first = connected(path)
    served = time.perf_counter() - start
    lost = ask_all(path, summaries, lambda answer: answer.startswith(b"HTTP/1.1 200"))
    known = time.perf_counter() - start
    lost += ask_all(path, runs, lambda answer: b'"code":0' in answer)
    ran = time.perf_counter() - start
    first.sock.close()
    assert sorted(daemon.shim_pids()) == shims, "other processes than before"
    assert not lost, lost[:3]
    wrong = population.read(tasks)
    wait_until(daemon.ready, 60, "ready")
    return {"served_ms": served * 1e3, "known_ms": known * 1e3, "ran_ms": ran * 1e3, "quiet_ran_ms": quiet * 1e3,
            "wrong_tasks": wrong}


def described(rows):
    row = {key: round(statistics.median(row[key] for row in rows), 1) for key in rows[0]}
    row.update({f"{key}_min": round(min(row[key] for row in rows), 1) for key in ("served_ms", "known_ms", "ran_ms")})
    row["wrong_tasks"] = sum(row["wrong_tasks"] for row in rows)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json")
    parser.add_argument("--sessions", type=int, default=500)
    parser.add_argument("--busy", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    os.environ["PATH"] = "/usr/sbin:/usr/bin:/sbin:/bin"
    found = {"sessions": options.sessions, "tasks": options.busy}
    daemon = Daemon(config=CONFIG + UNBOUNDED)
    daemon.deaths_expected = True
    try:
        population = Population(daemon, options.sessions, options.busy)
        victims = {"api_worker": lambda: daemon.worker_pid("sandboxd-api"), "supervisor": daemon.supervisor_pid}
        for name, pid_of in victims.items():
            found[name] = described([one_round(daemon, population, pid_of()) for _ in range(options.rounds)])
            print(f"{name}: {json.dumps(found[name])}", flush=True)
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            list(pool.map(population.client.remove, population.sessions))
    finally:
        daemon.done()
    keep(options.json, "adoption", found)
    return 1 if found["api_worker"]["wrong_tasks"] + found["supervisor"]["wrong_tasks"] else 0


if __name__ == "__main__":
    sys.exit(main())
