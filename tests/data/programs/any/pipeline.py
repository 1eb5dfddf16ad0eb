# grants: what multiprocessing, sqlite and loopback listeners need, together; SIGTERM that is handled
"""The shape of a Dagster run or of dbt: a code server, a run worker, a process a step, events in a
database, a heartbeat thread, compute logs by duplicated descriptors, and an orderly end."""
import json
import multiprocessing as mp
import os
import signal
import socket
import socketserver
import sqlite3
import subprocess
import sys
import threading
import time

HOME = os.environ.get("DAGSTER_HOME", "/session/home/.dagster")
DATABASE = HOME + "/runs.db"


def record(step, event):
    with sqlite3.connect(DATABASE, timeout=20) as database:
        database.execute("INSERT INTO events(step, event, pid) VALUES (?, ?, ?)", (step, event, os.getpid()))
    database.close()


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        json.loads(self.rfile.readline())
        self.wfile.write(json.dumps({"steps": {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}}).encode())


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


def serve(path):
    server = Server(path, Handler)
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    print("serving", flush=True)
    server.serve_forever()
    print("served", flush=True)


def step(name, queue):
    log = os.open(f"{HOME}/{name}.log", os.O_WRONLY | os.O_CREAT, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    record(name, "start")
    subprocess.run(["sh", "-c", f"echo step {name}; seq 1000 | sort -rn | head -n 1"], check=True)
    record(name, "success")
    queue.put(name)


def execute(steps):
    context, done, running = mp.get_context("spawn"), set(), {}
    queue, alive, beats = context.Queue(), threading.Event(), []
    beat = threading.Thread(target=lambda: [beats.append(1) for _ in iter(lambda: alive.wait(0.01), True)])
    beat.start()
    while len(done) < len(steps):
        for name, needs in steps.items():
            if name not in done and name not in running and set(needs) <= done:
                running[name] = context.Process(target=step, args=(name, queue))
                running[name].start()
        name = queue.get(timeout=30)
        running.pop(name).join()
        done.add(name)
    alive.set()
    beat.join()
    assert beats


def main():
    os.makedirs(HOME, exist_ok=True)
    with sqlite3.connect(DATABASE) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE events(step TEXT, event TEXT, pid INTEGER)")
    path = os.environ["TMPDIR"] + "/code.sock"
    server = subprocess.Popen([sys.executable, __file__, "serve", path], stdout=subprocess.PIPE)
    assert server.stdout.readline() == b"serving\n"
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        client.sendall(b'{"ask": "steps"}\n')
        steps = json.loads(client.recv(10000))["steps"]
    execute(steps)
    time.sleep(0.05)
    server.send_signal(signal.SIGTERM)
    assert server.communicate(timeout=20)[0] == b"served\n" and server.returncode == 0
    with sqlite3.connect(DATABASE) as database:
        events = database.execute("SELECT step, count(*), count(DISTINCT pid) FROM events GROUP BY step").fetchall()
    assert events == [(name, 2, 1) for name in "abcd"], events
    with open(f"{HOME}/d.log") as log:
        assert log.read() == "step d\n1000\n"
    print("ok")


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2])
    else:
        main()
