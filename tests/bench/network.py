#!/usr/bin/env python3
"""The network of sessions beside bare loopback, a veth pair and pasta, measured in turns.

usage: network.py [--json FILE] [--rounds N] [--mib N] [--sessions N]

Needs SANDBOX_BUILD, the build whose programs are measured. Prints tables and asserts nothing.
"""
import argparse
import base64
import gzip
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.dont_write_bytecode = True
from common import UNBOUNDED, keep  # noqa: E402
from egress_rig import NAME_SERVER, WORLD, World  # noqa: E402
from harness import BUILD, CONFIG, Daemon, parent_of, wait_until  # noqa: E402

PROGRAM = BUILD / "bin" / "bench-net"
INSIDE = "/session/bench-net"
HOST, PORT = "host.sandbox.internal", 8080
WORLD_HOST, SERVER = "far.example.com", f"{WORLD}.2"
# A service of the host is reached as an endpoint.
SERVICES = {"iceberg_rest_uri": f"http://localhost:{PORT}/x", "polaris_base_url": "http://localhost:80"}
STREAMS = 16
IDLE_EACH = 5
CONFIGURED = CONFIG + f"""
[network]
host_services = localhost:{PORT} localhost:80
""" + UNBOUNDED


def median(values):
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def quantile(values, q):
    ordered = sorted(values)
    return ordered[round(q * (len(ordered) - 1))]


class Outside:
    """This side: bare loopback, or the veth pair to the world."""

    patience = 300  # seconds for one measurement

    def __init__(self, address, prefix=()):
        self.address, self.prefix = address, list(prefix)

    def run(self, verb, port, *words):
        done = subprocess.run([*self.prefix, str(PROGRAM), verb, self.address, str(port), *map(str, words)],
                              capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=self.patience,
                              check=True)
        return [float(word) for word in done.stdout.split()]

    def host(self):
        return self.address

    def cpu_us(self):
        """Of the client: what this process's children took."""
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return (used.ru_utime + used.ru_stime) * 1e6


class Peer(Outside):
    """A program that is none of ours: what it cannot do here is no number, and not the end of the bench."""

    patience = 30

    def run(self, verb, port, *words):
        argv = [*self.prefix, str(PROGRAM), verb, self.address, str(port), *map(str, words)]
        with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              start_new_session=True) as started:
            try:
                output, said = started.communicate(timeout=self.patience)
            except subprocess.TimeoutExpired:
                output, said = "", f"nothing in {self.patience} s"
                os.killpg(started.pid, signal.SIGKILL)  # what it runs holds the pipes too
        if not output or started.returncode != 0:
            print(f"network: {self.prefix[0]} {verb} {' '.join(map(str, words))}: {said.strip().rpartition(chr(10))[2]}", file=sys.stderr)
            return []
        return [float(word) for word in output.split()]


class Inside:
    """A session; the address that its resolver gives for the name."""

    def __init__(self, client, program, name):
        self.client, self.name = client, name
        self.id = client.create(egress={"allow": [f"{WORLD_HOST}:{PORT},80"]}, env_overrides=SERVICES)
        done = client.shell(self.id, f"base64 -d | gzip -d > {INSIDE} && chmod 755 {INSIDE}", stdin=program)
        assert done.code == 0, done
        self.address = client.shell(self.id, f"getent ahostsv4 {name}").text.split()[0]

    def run(self, verb, port, *words):
        done = self.client.run(self.id, INSIDE, verb, self.address, str(port), *map(str, words), timeout=300,
                               timeout_ms=280000)
        assert done.code == 0, done
        return [float(word) for word in done.text.split()]

    def host(self):
        return self.name

    def cpu_us(self):
        return self.client.get(f"/v1/sandboxes/{self.id}/stats").json["cpu_us"]


def pasta(address):
    """The peer, where it is installed and runs here."""
    if not shutil.which("pasta"):
        return None
    peer = Peer(address, ["pasta", "--config-net", "--quiet", "--runas", "0", "--"])
    return peer if peer.run("request", PORT, 10, "x") else None


def cpu_of(pid):
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1000


def stream_cpu(places, server, relay, rounds, mib):
    """name → CPU µs of client, relay and server for a MiB. A machine that does other things as well changes who
    waits for whom, and this far less."""
    got = {name: {"client": [], "relay": [], "server": [], "all": []} for name in places}
    for _ in range(rounds):
        for name, place in places.items():
            before = place.cpu_us(), cpu_of(relay), cpu_of(server)
            place.run("stream", PORT, 1, mib)
            used = [(now - then) / mib for now, then in zip((place.cpu_us(), cpu_of(relay), cpu_of(server)), before)]
            for key, value in zip(got[name], (*used, sum(used))):
                got[name][key].append(value)
    return {name: {key: round(median(values)) for key, values in row.items()} for name, row in got.items()}


def measure(places, rounds, mib):
    """name → what → values. One place after the other in each round."""
    got = {name: {"stream_1": [], "stream_16": [], "connect_us": [], "request_us": [], "request_80_us": [],
                  "differing_80_us": []} for name in places}
    for _ in range(rounds):
        for name, place in places.items():
            for what, words in (("stream_1", ("stream", PORT, 1, mib)), ("stream_16", ("stream", PORT, STREAMS, mib)),
                                ("connect_us", ("connect", PORT, 100)),
                                ("request_us", ("request", PORT, 1000, place.host())),
                                ("request_80_us", ("request", 80, 1000, place.host())),
                                ("differing_80_us", ("differing", 80, 1000, place.host()))):
                times = place.run(*words)
                got[name][what] += [mib / took for took in times[:1]] if words[0] == "stream" else times
    return got


def described(values, what):
    """None: a peer that could not do it."""
    if not values:
        return None
    if what.startswith("stream"):
        return {"n": len(values), "mib_per_s": round(median(values), 1), "best": round(max(values), 1)}
    return {"n": len(values), "p50": round(median(values), 1), "p99": round(quantile(values, 0.99), 1),
            "min": round(min(values), 1)}


def worker(daemon):
    """Egress workers without their inspectors."""
    return next(pid for pid in daemon.processes()["sandboxd-egress"] if parent_of(pid) == daemon.supervisor_pid())


def cost(pid):
    """Descriptors, pipes among them, private KiB of the process; KiB of slab of the host."""
    links = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            links.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except FileNotFoundError:
            pass
    private = sum(int(value) for value in re.findall(r"Private_\w+: +(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text()))
    slab = int(re.search(r"Slab: +(\d+)", Path("/proc/meminfo").read_text())[1])
    return {"descriptors": len(links), "pipes": sum(link.startswith("pipe:") for link in links), "private_kib": private,
            "slab_kib": slab}


def difference(after, before, n):
    return {key: round((after[key] - before[key]) / n, 2) for key in after}


def idle_floor(address, n):
    """As many connections of bare loopback: both ends are of this host, as those of a relay are."""
    before = cost("self")
    holder = subprocess.Popen([PROGRAM, "idle", address, str(PORT), str(n)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout.readline() == b"ready\n"
    after = cost("self")
    holder.stdin.close()
    holder.wait()
    return {"slab_kib": round((after["slab_kib"] - before["slab_kib"]) / n, 2)}


def idle(daemon, client, program, n_sessions):
    """Sessions with idle connections each, and another one's requests beside them."""
    other = Inside(client, program, HOST)
    alone = other.run("request", PORT, 1000, HOST)
    made = [Inside(client, program, HOST) for _ in range(n_sessions)]
    pid = worker(daemon)
    before = cost(pid)
    n = n_sessions * IDLE_EACH

    def hold(session):
        session.client.shell(session.id, f"(sleep {60 + n_sessions}) | {INSIDE} idle {session.address} {PORT} {IDLE_EACH}",
                             timeout_ms=600000, timeout=600)

    threads = [threading.Thread(target=hold, args=(session,), daemon=True) for session in made]
    for thread in threads:
        thread.start()
        time.sleep(0.02)
    wait_until(lambda: cost(pid)["descriptors"] - before["descriptors"] >= 2 * n, 60 + n_sessions, "all are open")
    time.sleep(1)
    after = cost(pid)
    beside = other.run("request", PORT, 1000, HOST)
    for session in [*made, other]:
        client.remove(session.id)
    for thread in threads:
        thread.join(60)
    return {"sessions": n_sessions, "connections": n, "each": difference(after, before, n), "pipes": after["pipes"],
            "request_alone_us": described(alone, ""), "request_beside_us": described(beside, "")}


def print_rows(rows):
    print(f"{'':14}{'1 stream':>12}{'16 streams':>12}{'connect p50':>13}{'p99':>9}{'request p50':>13}{'port 80':>9}"
          f"{'differing':>11}{'requests/s':>12}   MiB/s, µs")
    for name, row in rows.items():
        cells = [(row[what] or {}).get(key, "-") for what, key in (
            ("stream_1", "mib_per_s"), ("stream_16", "mib_per_s"), ("connect_us", "p50"), ("connect_us", "p99"),
            ("request_us", "p50"), ("request_80_us", "p50"), ("differing_80_us", "p50"))]
        a_second = round(1e6 / row["request_us"]["p50"]) if row["request_us"] else "-"
        print(f"{name:14}" + "".join(f"{cell:>{width}}" for cell, width in zip([*cells, a_second], (12, 12, 13, 9, 13, 9, 11, 12))))


def ratios(rows):
    """Ours over each floor of the same way, by the usual value and by the best one."""
    found = {}
    for ours, floor in (("session", "loopback"), ("session_veth", "veth"), ("session_veth", "pasta")):
        if floor not in rows:
            continue
        found[f"{ours}/{floor}"] = {
            what: [round(row[key] / rows[floor][what][key], 2) for key in (("mib_per_s", "best") if "best" in row else ("p50", "min"))]
            for what, row in rows[ours].items() if rows[floor][what]}
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--sessions", type=int, default=40)
    options = parser.parse_args()
    program = base64.b64encode(gzip.compress(PROGRAM.read_bytes())).decode()
    world = World()
    world.names[WORLD_HOST] = [SERVER]
    resolver = Path(world.folder.name) / "resolv.conf"
    resolver.write_text(f"nameserver {NAME_SERVER}\n")
    subprocess.run(["mount", "--bind", resolver, "/etc/resolv.conf"], check=True)
    subprocess.run(f"ip route add default via {SERVER}".split(), check=True)
    here = subprocess.Popen([PROGRAM, "serve", "127.0.0.1", str(PORT), "80"], stdout=subprocess.PIPE)
    far = world.start(PROGRAM, "serve", SERVER, str(PORT), "80", stdout=subprocess.PIPE)
    assert here.stdout.readline() == far.stdout.readline() == b"ready\n"
    daemon = Daemon(config=CONFIGURED)
    try:
        client = daemon.client("alice")
        places = {"loopback": Outside("127.0.0.1"), "session": Inside(client, program, HOST),
                  "veth": Outside(SERVER), "session_veth": Inside(client, program, WORLD_HOST)}
        peer = pasta(SERVER)
        if peer:
            places["pasta"] = peer
        measured = measure(places, options.rounds, options.mib)
        rows = {name: {what: described(values, what) for what, values in of.items()} for name, of in measured.items()}
        print_rows(rows)
        near = {name: places[name] for name in ("loopback", "session")}
        cpu = stream_cpu(near, here.pid, worker(daemon), options.rounds, options.mib)
        result = {"places": rows, "ratios": ratios(rows), "cpu_us_per_mib": cpu, "idle_floor": idle_floor("127.0.0.1", 1000),
                  "idle": idle(daemon, client, program, options.sessions)}
        for name, row in [*result["ratios"].items(), *((f"cpu µs per MiB, {place}", row) for place, row in cpu.items()),
                          ("idle floor", result["idle_floor"]), *result["idle"].items()]:
            print(f"{name}: {json.dumps(row)}")
    finally:
        daemon.done()
        here.kill()
        here.wait()
        subprocess.run(["umount", "/etc/resolv.conf"], check=True)
        world.close()
    keep(options.json, "network", result)


if __name__ == "__main__":
    main()
