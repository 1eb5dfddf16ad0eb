"""D9–D14: what is no TCP, floods, changed rules, servers inside, and what a refusal looks like."""
import os
import re
import time
from pathlib import Path

from harness import PATIENCE, wait_until
from rows_names import RESET, each
from sessions import PRODUCTION_NAME, Background, outside
from table import row
from world import HERE, HERE6, PRODUCTION, SILENT, SITE, SITE6

# What a session may hold at once; relay.h's bound and a few that are on their way out.
CONNECTIONS = 256


@row("D9", "UDP, QUIC, ICMP, raw and packet sockets", "refused in the call", "no interface but lo")
def no_tcp(t):
    t.world.names["web.example.com"] = [SITE]
    with t.world.counted() as seen:
        made = t.session("web.example.com")
        for four, six in ((SITE, SITE6), ("10.0.0.1", "fd12::1")):
            got = made.attack("packets", four, six)
            t.refused(got, "EACCES|EPERM|EPROTONOSUPPORT|EAFNOSUPPORT|ESOCKTNOSUPPORT|ENETUNREACH|EINVAL|" + RESET)
        # To the address that its own resolver gave for an allowed name.
        inside = made.client.shell(made.id, "getent ahostsv4 web.example.com").text.split()[0]
        got = made.attack("packets", inside, SITE6)
        t.check(got.pop("fast open") in ("403", "421"), "fast open goes the way of every connection, by its rule")
        t.refused(got, "EACCES|EPERM|EPROTONOSUPPORT|EAFNOSUPPORT|ESOCKTNOSUPPORT|ENETUNREACH|EINVAL")
    t.nothing_came(seen, (SITE, 80))
    if t.controls:
        with t.world.counted() as seen:
            got = outside("packets", SITE, SITE6, "out0")
        reached = {step: result for step, result in got.items() if result == "ok"}
        t.succeeds(reached)
        t.no_control("not sent from here either: " + " ".join(sorted(set(got) - set(reached))))
        t.check(len(reached) >= 10, f"too few were sent: {got}")
        protocols = {packet.protocol for packet in seen.packets}
        t.worked({1, 17, 58} <= protocols, f"of protocols {protocols} only")
        t.something_came(seen)


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


@row("D10", "slow heads, giant heads, half-open and given up connections", "bounds of the session")
def exhaustion(t):
    t.world.names.update({"web.example.com": [SITE], "silent.example.com": [SILENT]})
    worker = t.daemon.worker_pid("sandboxd-egress")
    other = t.session("web.example.com")
    t.check(other.attack("dial", "web.example.com", 80) == {"web.example.com 80": "ok"}, "before")
    before = descriptors(worker)
    most = 0
    with t.world.counted() as seen:
        made = [t.session("web.example.com", "web.example.com:8080", "silent.example.com") for _ in range(2)]
        started = time.monotonic()
        slow = [Background(made[0], "hold", "web.example.com", 80, 400, 12,
                           "GET / HTTP/1.1\\r\\nHost: web.example.com\\r\\nX: "),
                Background(made[1], "hold", "web.example.com", 8080, 400, 12),
                Background(made[1], "churn", "silent.example.com", 80, 100000, 40)]
        late = []
        while any(attack.is_alive() for attack in slow) and time.monotonic() - started < 100:
            at = time.monotonic()
            t.refused(other.attack("dial", *each(["web.example.com"] * 4)), "ok")
            late.append(time.monotonic() - at)
            most = max(most, descriptors(worker))
        open_now = [attack.result() for attack in slow]
    t.check(all(int(got.get("open", 0)) <= CONNECTIONS for got in open_now), f"held at once: {open_now}")
    t.check(int(open_now[2]["begun"]) > 1000, f"{open_now[2]}")
    t.check(most - before <= 2 * 2 * CONNECTIONS + 300, f"{most - before} descriptors of the worker more")
    t.check(max(late) < 15 * PATIENCE, f"another session waited for {max(late):.1f} s")
    t.counted.append(f"inside: {open_now}, at most {most - before} descriptors more; another session's "
                     f"worst turn of 4 requests {max(late):.2f} s")
    t.nothing_came(seen, (SITE, 80), (SITE, 8080), (SILENT, 80))
    t.check(len([a for a in seen.accepted if a == (SITE, 8080)]) <= CONNECTIONS + 10, "more than its bound arrived")
    giant = "GET / HTTP/1.1\\r\\nHost: web.example.com\\r\\n" + "X: " + "y" * 60000 + "\\r\\n" * 2
    with t.world.counted() as seen:
        t.refused(made[0].attack("http", "web.example.com", 80, giant), "400|403|413|431|" + RESET)
    t.check(not seen.requests, "a giant head arrived")
    wait_until(lambda: descriptors(worker) <= before + 40, 20, "the worker lets go")
    if t.controls:
        with t.world.counted() as seen:
            got = outside("hold", SITE, 8080, 400, 2)
            t.succeeds(outside("http", SITE, 80, giant))
        t.worked(int(got["open"]) == 400 and seen.accepted.count((SITE, 8080)) == 400, f"{got}")


def bytes_since(world, port, when):
    """Times at which data arrived; an acknowledgement or a reset has none."""
    return [packet.when for packet in world.packets if packet.port == port and packet.bytes > 0 and packet.when > when]


@row("D11", "keep a connection whose rule is taken away", "reset when the rules change")
def kept(t):
    t.world.names["web.example.com"] = [SITE]
    made = t.session("web.example.com:8080", "web.example.com:9092")
    going = [Background(made, "keep", "web.example.com", port) for port in (8080, 9092)]
    wait_until(lambda: {(SITE, 8080), (SITE, 9092)} <= set(t.world.accepted), 20, "two connections")
    made.allow("web.example.com:9092")
    taken = time.time()
    with t.world.counted() as seen:
        t.refused(going[0].result(), RESET + "|EPIPE")
        wait_until(lambda: bytes_since(t.world, 9092, taken), 20, "the other one goes on")
        t.check(not bytes_since(t.world, 8080, taken), "bytes after the answer of PUT")
        t.refused(made.attack("dial", "web.example.com", 8080), RESET)
        made.client.shell(made.id, "touch /session/stop")
        t.succeeds(going[1].result())
        t.check(bytes_since(t.world, 9092, taken), "the other connection's bytes are not seen")
    t.check((SITE, 8080) not in seen.accepted, "accepted after the rule was taken away")
    t.recorded(made, "the rule for this connection was removed")
    t.counted.append(f"the connection whose rule stayed: {len(seen.requests)} requests since")
    t.worked(seen.requests, "the other one does not go on")


@row("D13", "open a port on the host", "own network namespace")
def inbound(t):
    port = 9999
    made = t.session("web.example.com")
    places = each(["127.0.0.1", "::1", HERE, HERE6], port)
    going = Background(made, "listen", port)
    wait_until(lambda: made.client.shell(made.id, "test -e /session/stop.begun").code == 0, 20, "it listens inside")
    t.refused(outside("dial", *places), "ECONNREFUSED")
    from_world = t.world.namespace.run("python3", "-c", f"import socket; socket.create_connection(('{HERE}', {port}), 5)")
    t.check("ConnectionRefused" in from_world.stderr, f"from the world: {from_world}")
    made.client.shell(made.id, "touch /session/stop")
    t.check(going.result() == {"came": "0"}, f"inside: {going.got}")
    t.counted.append("connections that came into the session: 0")
    if t.controls:
        class Here:
            attack = staticmethod(outside)
        stop = Path(t.world.folder.name) / "stop"
        control = Background(Here, "listen", port, stop)
        wait_until(Path(f"{stop}.begun").exists, 20, "it listens here")
        outside("dial", *places)
        stop.touch()
        t.worked(int(control.result()["came"]) == 4, f"{control.got}")


@row("D14", "take a refusal for a fault of the network", "reset or answer at once; a record",
     control="allowed: no record")
def clean(t):
    t.world.names.update({"web.example.com": [SITE], PRODUCTION_NAME: [PRODUCTION], "in.example.com": ["10.0.0.1"]})
    made = t.session("web.example.com", "in.example.com")
    if t.controls:
        t.succeeds(made.attack("dial", "web.example.com", 80))
        t.worked(made.denials() == [], f"{made.denials()}")
    for attack, record in {
            ("dial", "other.example.com", 80): "other.example.com", ("dial", "1.1.1.1", 443): "1.1.1.1 port 443",
            ("dial", "web.example.com", 22): "web.example.com port 22", ("dial", "in.example.com", 80): "in.example.com",
            ("dial", PRODUCTION, 443): f"{PRODUCTION} port 443", ("dial", PRODUCTION_NAME, 443): PRODUCTION_NAME,
            ("tls", "web.example.com", "evil.example"): "web.example.com",
            ("http", "web.example.com", 80, "GET / HTTP/1.1\\r\\nHost: evil.example\\r\\n\\r\\n"): "web.example.com",
            ("dial", SITE6, 80): SITE6}.items():
        n_before = len(made.denials())
        started = time.monotonic()
        t.refused(made.attack(*attack), RESET + "|no address|403|421")
        t.check(time.monotonic() - started < 8 * PATIENCE, f"{attack}: {time.monotonic() - started:.1f} s")

        def records(n_before=n_before, record=record):
            """All there are, once there is a new one and that one."""
            found = made.denials()
            return found if len(found) > n_before and any(record in row["what"] for row in found) else None

        found = wait_until(records, 10, f"record of {attack}")
        t.check(all(row["rule"] and row["advice"] for row in found), f"{attack}: {found}")
    t.check(any(re.search("production host", row["rule"]) for row in made.denials()), "production is not named")
