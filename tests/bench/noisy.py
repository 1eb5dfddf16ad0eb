#!/usr/bin/env python3
"""Noisy neighbours: what a second owner's `create` and `run true` cost while one session misbehaves.

usage: noisy.py [--json FILE] [--rounds N] [--samples N] [CULPRIT...]

Needs SANDBOX_BUILD, the build whose programs are measured. For each culprit and round: a quiet
half, then a half beside the culprit, then the culprit is removed. Ratios are noisy over quiet
of the same rounds, so that what else the machine does hits both. Prints a table and asserts no
time; the bar is 3 for both p99. A culprit that was refused something and has no record of it
is an error.
"""
import argparse
import contextlib
import gc
import json
import os
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
from common import keep
from harness import (CONFIG, RUNTIME, SESSIONS, Daemon, UnixConnection, descendants, is_zombie, parent_of,
                     wait_until)
from noisy_culprits import CULPRITS

SETTLE_S = 0.7  # until a culprit is at its worst
TOLD_S = 20
HELPERS_S = 0.1  # a helper that makes a namespace ahead ends by itself
REST_S = 0.3  # what was destroyed is freed behind a grace period
LIMITS = """
[supervisor]
launches_per_second = 100000
[limits]
memory = 65536GiB
[owner]
memory = 0
launches_per_second = 0
changes_per_second = 0
cpu_per_day = 0s
"""


class Victim:
    """A second owner with one session and one connection, as a proxy keeps it."""

    def __init__(self, daemon):
        self.client = daemon.client("victim")
        self.session = self.client.create()
        self.connection = UnixConnection(str(daemon.control), timeout=60)
        self.failed = 0

    def timed(self, method, url, body, status):
        headers = {"Content-Type": "application/json", **self.client.headers}
        data = None if body is None else json.dumps(body)
        start = time.perf_counter()
        try:
            self.connection.request(method, url, data, headers)
            answer = self.connection.getresponse()
            right, text = answer.status == status, answer.read()
        except TimeoutError:  # counts with the time that it was waited for
            self.connection.close()
            right, text = False, b"{}"
        took = time.perf_counter() - start
        self.failed += not right
        return took * 1e6, text

    def create(self):
        took, text = self.timed("POST", SESSIONS, {}, 201)
        made = json.loads(text).get("id")
        if made:
            self.timed("DELETE", f"{SESSIONS}/{made}", None, 200)
        return took

    def run(self):
        took, text = self.timed("POST", f"{RUNTIME}/{self.session}/commands", {"argv": ["/usr/bin/true"]}, 200)
        self.failed += b'"code":0' not in text.replace(b" ", b"")
        return took

    def measure(self, samples):
        create, run = [], []
        for _ in range(samples):
            create.append(self.create())
            run.append(self.run())
            time.sleep(0.002)
        return create, run


def quantile(values, q):
    ordered = sorted(values)
    return ordered[round(q * (len(ordered) - 1))]


def oom_kills():
    """Of the whole host, whatever group they were in."""
    for line in Path("/proc/vmstat").read_text().splitlines():
        if line.startswith("oom_kill "):
            return int(line.split()[1])
    return 0


def bystanders(daemon):
    """The service's processes and those that stay of the only session there is, the second owner's."""
    shim, = daemon.shim_pids()
    nursery, = [pid for pid in descendants(shim) if parent_of(pid) == shim]
    below = [pid for pid in descendants(nursery) if parent_of(pid) == nursery]
    return {pid for pid in (*sum(daemon.processes().values(), []), shim, nursery, *below) if not is_zombie(pid)}


def told(owner, session, kind):
    """Its denials. On a busy host it comes to its limit late: it goes on until the record is there, unmeasured."""
    end = time.monotonic() + TOLD_S
    while True:
        answer = owner.get(f"{RUNTIME}/{session}/denials").json
        if not kind or answer["counts"].get(kind) or time.monotonic() > end:
            return answer
        time.sleep(0.2)


def one_round(daemon, victim, culprit, samples, total):
    quiet = victim.measure(samples)
    watched = bystanders(daemon)
    time.sleep(HELPERS_S)
    watched &= bystanders(daemon)
    kills = oom_kills()
    owner = daemon.client("culprit", workspace="noise")
    session = owner.create_runtime(profile="agent")
    with contextlib.ExitStack() as stack:
        for _ in range(culprit.commands):
            stack.enter_context(culprit.started(owner, session))
        time.sleep(SETTLE_S)
        noisy = victim.measure(samples)
        answer = told(owner, session, culprit.denial)
        gone = owner.delete(f"{RUNTIME}/{session}", timeout=60)
    assert gone.status in (200, 204), gone
    kills = oom_kills() - kills - answer["counts"].get("memory", 0)
    total.add(quiet, noisy, answer["counts"], kills + sum(not Path(f"/proc/{p}").exists() for p in watched))
    time.sleep(REST_S)


class Total:
    def __init__(self):
        self.quiet = ([], [])
        self.noisy = ([], [])
        self.denials = {}
        self.killed = 0

    def add(self, quiet, noisy, counts, killed):
        for mine, new in ((self.quiet, quiet), (self.noisy, noisy)):
            mine[0].extend(new[0])
            mine[1].extend(new[1])
        for kind, count in counts.items():
            self.denials[kind] = self.denials.get(kind, 0) + count
        self.killed += max(killed, 0)

    def describe(self):
        row = {"killed_outside": self.killed, "denials": self.denials}
        for index, name in enumerate(("create", "run")):
            for q, label in ((0.5, "p50"), (0.99, "p99")):
                quiet, noisy = quantile(self.quiet[index], q), quantile(self.noisy[index], q)
                row[f"{name}_quiet_{label}_us"] = round(quiet, 1)
                row[f"{name}_noisy_{label}_us"] = round(noisy, 1)
                row[f"{name}_{label}_ratio"] = round(noisy / quiet, 2)
        row["n"] = len(self.quiet[0])
        return row


HEAD = f"{'culprit':<16}{'create p50':>11}{'p99':>7}{'(ms)':>14}{'run p50':>9}{'p99':>7}{'(ms)':>14}{'killed':>7}  denials"


def print_row(name, row):
    def pair(what):
        return f"{row[what + '_quiet_p99_us'] / 1e3:.1f}→{row[what + '_noisy_p99_us'] / 1e3:.1f}"

    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(row["denials"].items())) or "-"
    print(f"{name:<16}{row['create_p50_ratio']:>11}{row['create_p99_ratio']:>7}{pair('create'):>14}"
          f"{row['run_p50_ratio']:>9}{row['run_p99_ratio']:>7}{pair('run'):>14}{row['killed_outside']:>7}  {kinds}",
          flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--samples", type=int, default=60)
    parser.add_argument("culprit", nargs="*", metavar="CULPRIT")
    options = parser.parse_args()
    gc.disable()
    os.environ["PATH"] = "/usr/sbin:/usr/bin:/sbin:/bin"
    rows, silent = {}, []
    daemon = Daemon(config=CONFIG + LIMITS)
    try:
        victim = Victim(daemon)
        victim.measure(20)
        print(HEAD)
        for culprit in CULPRITS:
            if options.culprit and culprit.name not in options.culprit:
                continue
            total = Total()
            for _ in range(options.rounds):
                one_round(daemon, victim, culprit, options.samples, total)
                wait_until(lambda: len(daemon.shim_pids()) == 1, 30, "only the victim's session is left")
            rows[culprit.name] = total.describe()
            print_row(culprit.name, rows[culprit.name])
            if culprit.denial and not total.denials.get(culprit.denial):
                silent.append(f"{culprit.name}: no record of kind {culprit.denial}")
        if victim.failed:
            print(f"{victim.failed} requests of the second owner failed")
        victim.connection.close()
        victim.client.remove(victim.session)
    finally:
        daemon.done()
    keep(options.json, "noisy_neighbours", rows)
    for line in silent:
        print(line, file=sys.stderr)
    return 1 if silent else 0


if __name__ == "__main__":
    sys.exit(main())
