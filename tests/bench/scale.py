#!/usr/bin/env python3
"""Many sessions with idle connections each, and what one more connection costs beside them.

usage: scale.py [--json FILE] [--sessions N] [--workers N]

Needs SANDBOX_BUILD. Prints a table and asserts nothing. 1 000 sessions take minutes: it is run by name.
"""
import argparse
import base64
import gzip
import json
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.dont_write_bytecode = True
from common import keep  # noqa: E402
from network import (CONFIGURED, HOST, IDLE_EACH, INSIDE, PORT, PROGRAM, Inside, cost, described,  # noqa: E402
                     difference)
from harness import Daemon, parent_of, wait_until  # noqa: E402

AT_ONCE = 8


def workers(daemon):
    """Egress workers without their inspectors."""
    return [pid for pid in daemon.processes()["sandboxd-egress"] if parent_of(pid) == daemon.supervisor_pid()]


def total(pids):
    each = [cost(pid) for pid in pids]
    return {key: sum(row[key] for row in each) if key != "slab_kib" else each[0][key] for key in each[0]}


def peak_kib(pid):
    return int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1])


def looked_at(session):
    """A session of its own that only measures."""
    return {"connect_us": described(session.run("connect", PORT, 200), ""),
            "request_us": described(session.run("request", PORT, 1000, HOST), "")}


def make(client, program, n):
    """n sessions with the program in them; how long it took, and what was refused."""
    refused = []

    def one(_):
        try:
            return Inside(client, program, HOST)
        except AssertionError as error:
            refused.append(str(error)[:200])
            return None

    begin = time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        made = [session for session in pool.map(one, range(n)) if session]
    return made, time.monotonic() - begin, refused


def hold(sessions):
    """IDLE_EACH connections of each session, held by a program that stays behind."""
    def one(session):
        done = session.client.shell(session.id, f"(sleep 100000 | {INSIDE} idle {session.address} {PORT} {IDLE_EACH})"
                                    " >/dev/null 2>&1 &")
        return done.code == 0

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return sum(pool.map(one, sessions))


def open_connections(client, sessions):
    def one(session):
        rules = client.get(f"/v1/sandboxes/{session.id}/egress").json["rules"]
        return sum(rule.get("counters", {}).get("open", 0) for rule in rules)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return sum(pool.map(one, sessions))


def run(daemon, n):
    client = daemon.client("alice")
    program = base64.b64encode(gzip.compress(PROGRAM.read_bytes())).decode()
    other = Inside(client, program, HOST)
    pids = workers(daemon)
    alone, empty = looked_at(other), total(pids)
    made, seconds, refused = make(client, program, n)
    before = total(pids)
    held = hold(made)
    wanted = IDLE_EACH * len(made)
    try:
        wait_until(lambda: total(pids)["descriptors"] - before["descriptors"] >= 2 * wanted, 120, "all are open")
    except AssertionError:
        pass  # the numbers say how many are
    after = total(pids)
    found = {
        "sessions": len(made), "refused": refused[:3], "n_refused": len(refused), "creates_per_s": round(len(made) / seconds, 1),
        "holders": held, "connections_open": open_connections(client, made), "of": wanted, "workers": len(pids),
        "pipes": after["pipes"], "each_session": difference(before, empty, max(1, len(made))),
        "each_connection": difference(after, before, max(1, wanted)),
        "descriptors": {name: {pid: daemon.descriptors(pid) for pid in of if daemon.descriptors(pid) > 20}
                        for name, of in daemon.processes().items() if name in ("sandboxd", "sandboxd-api", "sandboxd-egress")},
        "peak_kib": {pid: peak_kib(pid) for pid in pids}, "alone": alone, "beside": looked_at(other),
    }
    begin = time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda session: client.remove(session.id), [*made, other]))
    found["removes_per_s"] = round((len(made) + 1) / (time.monotonic() - begin), 1)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json")
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    config = CONFIGURED.replace("[supervisor]\n", f"[supervisor]\negress_workers = {options.workers}\n")
    server = subprocess.Popen([PROGRAM, "serve", "127.0.0.1", str(PORT), "80"], stdout=subprocess.PIPE)
    assert server.stdout.readline() == b"ready\n"
    daemon = Daemon(config=config)
    try:
        found = run(daemon, options.sessions)
    finally:
        daemon.done()
        server.kill()
        server.wait()
    for name, value in found.items():
        print(f"{name}: {json.dumps(value)}")
    keep(options.json, "scale", found)


if __name__ == "__main__":
    main()
