#!/usr/bin/env python3
"""What an agent does: a command, its output as a stream, files both ways beside `cp` inside, snapshots beside
`tar | zstd` inside, a suspend and a resume of 100 processes that sleep (bar: 1 ms each).

usage: runtime.py [--json FILE] [--rounds N]

Needs SANDBOX_BUILD. Prints a table and asserts nothing; run it by name, on a quiet machine.
"""
import argparse
import json
import statistics
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "integration"))
from harness import RUNTIME, Daemon, UnixConnection, wait_until  # noqa: E402

MIB = 1024 * 1024
FILE_MIB = 128
STREAM_MIB = 64
BLOCK = b"x" * MIB
# Small files of text, and a large one that cannot be compressed.
TREE_MIB = 96
TREE = """
import os
for i in range(64):
    os.makedirs(f"tree/{i}")
    for j in range(32):
        with open(f"tree/{i}/{j}", "wb") as file:
            file.write((b"select %d from t where n = %d\\n" % (i, j)) * 560)
with open("tree/noise", "wb") as file:
    for _ in range(64):
        file.write(os.urandom(1 << 20))
"""
SLEEPERS = 100


def timed(work):
    begin = time.monotonic()
    work()
    return time.monotonic() - begin


class Sandbox:
    def __init__(self, daemon):
        self.caller = daemon.client("bench")
        self.id = self.caller.create_runtime(workspace={"include": ["tree"]})
        self.url = f"{RUNTIME}/{self.id}"

    def transfer(self, method, url, body=None, headers=None):
        """The bytes of the answer are counted, not kept."""
        connection = UnixConnection(self.caller.path, 300)
        connection.request(method, url, body=body, headers={**self.caller.headers, **(headers or {})})
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        total = 0
        while True:
            block = answer.read(MIB)
            if not block:
                break
            total += len(block)
        connection.close()
        return total

    def put(self):
        self.transfer("PUT", f"{self.url}/files?path=put", iter([BLOCK] * FILE_MIB),
                      {"Content-Length": str(FILE_MIB * MIB)})

    def get(self):
        assert self.transfer("GET", f"{self.url}/files?path=put") == FILE_MIB * MIB

    def copy(self):
        """Its own clock: starting the command is not the copy's time."""
        script = "import time, subprocess; b = time.monotonic(); subprocess.run(['cp', 'put', 'copied'], check=True); " \
                 "print(time.monotonic() - b)"
        result = self.caller.run(self.id, "/usr/bin/python3", "-c", script)
        assert self.caller.shell(self.id, "rm copied").code == 0
        return float(result.text)

    def inside(self, script):
        """Seconds of a shell command, by the clock inside."""
        code = "import subprocess, sys, time; b = time.monotonic(); " \
               "subprocess.run(['/bin/bash', '-o', 'pipefail', '-c', sys.argv[1]], check=True); print(time.monotonic() - b)"
        return float(self.caller.run(self.id, "/usr/bin/python3", "-c", code, script).text)

    def plant_tree(self):
        assert self.caller.run(self.id, "/usr/bin/python3", "-c", TREE).code == 0

    def snapshot(self):
        answer = self.caller.post(f"{self.url}/snapshots", timeout=300)
        assert answer.status == 201, answer
        return answer.json["snapshot_id"]

    def restore(self, snapshot):
        answer = self.caller.post(f"{self.url}/restore", {"snapshot_id": snapshot, "replace": True}, timeout=300)
        assert answer.status == 200, answer

    def drop(self, snapshot):
        assert self.caller.delete(f"{self.url}/snapshots/{snapshot}").status == 200

    def stream(self):
        body = json.dumps({"argv": ["head", "-c", str(STREAM_MIB * MIB), "/dev/zero"]}).encode()
        self.transfer("POST", f"{self.url}/commands", body, {"Content-Type": "application/json"})


class Sleepers:
    """In a sandbox of their own."""

    def __init__(self, daemon):
        self.caller = daemon.client("bench")
        self.url = f"{RUNTIME}/{self.caller.create_runtime()}"
        script = f"for i in $(seq {SLEEPERS}); do sleep 100000 & done; wait"
        assert self.caller.post(f"{self.url}/commands", {"cmd": script, "background": True}).status == 201
        wait_until(lambda: self.caller.get(f"{self.url}/stats").json["pids"] > SLEEPERS)

    def ask(self, what, body=None):
        answer = self.caller.post(f"{self.url}/{what}", body)
        assert answer.status == 200, answer

    def turn(self):
        """Milliseconds there and back."""
        there = timed(lambda: self.ask("suspend", {"durable": "never"}))
        return there * 1000, timed(lambda: self.ask("resume")) * 1000


def measure(rounds):
    daemon = Daemon()
    try:
        sandbox = Sandbox(daemon)
        sandbox.put()
        rows = {"run_ms": [], "stream_mib_s": [], "put_mib_s": [], "get_mib_s": [], "cp_mib_s": [],
                "snapshot_mib_s": [], "tar_zstd_mib_s": [], "restore_mib_s": [], "tar_unzstd_mib_s": [],
                "suspend_ms": [], "resume_ms": []}
        for _ in range(rounds):
            rows["run_ms"].append(timed(lambda: sandbox.caller.run(sandbox.id, "/bin/true")) * 1000)
            rows["stream_mib_s"].append(STREAM_MIB / timed(sandbox.stream))
            rows["put_mib_s"].append(FILE_MIB / timed(sandbox.put))
            rows["get_mib_s"].append(FILE_MIB / timed(sandbox.get))
            rows["cp_mib_s"].append(FILE_MIB / sandbox.copy())
        sandbox.plant_tree()
        for _ in range(rounds):
            made = []
            rows["snapshot_mib_s"].append(TREE_MIB / timed(lambda: made.append(sandbox.snapshot())))
            rows["tar_zstd_mib_s"].append(TREE_MIB / sandbox.inside("tar -cf - tree | zstd -3 -q -f -o /tmp/tree.tar.zst"))
            rows["restore_mib_s"].append(TREE_MIB / timed(lambda: sandbox.restore(made[0])))
            rows["tar_unzstd_mib_s"].append(TREE_MIB / sandbox.inside("rm -rf tree; zstd -d -q -c /tmp/tree.tar.zst | tar -xf -"))
            sandbox.drop(made[0])
        sandbox.caller.delete(sandbox.url)
        sleepers = Sleepers(daemon)
        for _ in range(rounds * 4):
            for name, value in zip(("suspend_ms", "resume_ms"), sleepers.turn()):
                rows[name].append(value)
        sleepers.caller.delete(sleepers.url)
        return {name: round(statistics.median(values), 2) for name, values in rows.items()}
    finally:
        daemon.done()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    found = measure(options.rounds)
    for name, value in found.items():
        print(f"{name:16} {value:10.2f}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
