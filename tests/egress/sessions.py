"""Where the attacks run: in sessions of a service, of one whose egress worker always says yes, and
outside."""
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path

from places import BUILD, CONFIG, SLOW, Daemon, harness, steps
from table import Test
from world import PRODUCTION

ATTACKS = Path(__file__).resolve().parent / "attacks.py"
INSIDE = "/session/attacks.py"
PRODUCTION_NAME = "gms.prod.example"
CONFIGURED = CONFIG + f"""
[endpoint:datahub_gms_url]
production = {PRODUCTION_NAME} {PRODUCTION}
"""


class Services:
    """One as it is installed, and one whose rule check always says yes."""

    def __init__(self, world):
        self.world = world
        self.started = {}

    def get(self, yes="", plant=""):
        yes = yes or plant
        if yes not in self.started:
            programs = BUILD / "bin"
            if yes:
                self.folder = tempfile.TemporaryDirectory(prefix="egress-", dir="/tmp")
                programs = Path(self.folder.name) / "bin"
                shutil.copytree(BUILD / "bin", programs)
                shutil.copy2(BUILD / "tests" / "egress" / "yes_egress", programs / "sandboxd-egress")
                Path(self.folder.name).chmod(0o755)
            self.started[yes] = Daemon(config=CONFIGURED, programs=programs)
        return self.started[yes]

    def done(self):
        problems = []
        for name, daemon in self.started.items():
            try:
                daemon.done()
            except AssertionError as error:
                problems.append(f"service {name}: {str(error)[:500]}")
            if name:
                self.folder.cleanup()
        return problems


class Session:
    def __init__(self, client, *allow, **body):
        self.client = client
        self.id = client.create(egress={"allow": list(allow)}, **body)
        done = client.shell(self.id, f"cat > {INSIDE}", stdin=ATTACKS.read_text())
        assert done.code == 0, done

    def attack(self, verb, *words):
        result = self.client.run(self.id, "/usr/bin/python3", INSIDE, verb, *map(str, words),
                                 timeout_ms=230000 * SLOW)
        assert result.code == 0, result
        return steps(result.text)

    def allow(self, *rules):
        answer = self.client.request("PUT", f"{harness.SESSIONS}/{self.id}/egress", {"allow": list(rules)})
        assert answer.status == 200 and answer.json["in_force"], answer

    def denials(self):
        answer = self.client.get(f"{harness.SESSIONS}/{self.id}/denials").json
        return [row for row in answer["denials"] if row["kind"] == "network"]

    def remove(self):
        return self.client.remove(self.id)


class Background(threading.Thread):
    """An attack that goes on while the test does something else."""

    def __init__(self, session, *words):
        super().__init__(daemon=True)
        self.session, self.words, self.got = session, words, {}
        self.start()

    def run(self):
        self.got = self.session.attack(*self.words)

    def result(self):
        self.join(500 * SLOW)
        return self.got


def outside(verb, *words):
    """The same attack from this side of the link, without a session."""
    done = subprocess.run(["/usr/bin/python3", str(ATTACKS), verb, *map(str, words)], capture_output=True,
                          text=True, stdin=subprocess.DEVNULL, timeout=500 * SLOW, check=True)
    return steps(done.stdout)


class EgressTest(Test):
    """A row of D: what came to the outside is part of what it says."""

    def __init__(self, services, **how):
        super().__init__(services, **how)
        self.world = services.world
        self.counted = []

    def session(self, *allow, yes="", **body):
        made = Session(self.daemons.get(yes, self.plant).client("alice", workspace="blue"), *allow, **body)
        self.sessions.append(made)
        return made

    def recorded(self, session, rule):
        """A refusal for that reason; its record may come a moment after it."""
        try:
            harness.wait_until(lambda: any(row["rule"] == rule for row in session.denials()), 5, rule)
        except AssertionError:
            self.wrong(f"no record: {rule}: {[row['rule'] for row in session.denials()]}")

    def nothing_came(self, seen, *allowed, what="inside"):
        """Neither packet nor connection, but to these (address, port)s."""
        came = seen.but(*allowed)
        self.check(not came, f"{what}: arrived: {came[:8]}")
        self.counted.append(f"{what}: {len(came)} packets and connections of {len(seen.packets)} and "
                            f"{len(seen.accepted)} were not allowed")

    def something_came(self, seen, what="control"):
        self.worked(seen.packets or seen.accepted, f"{what}: nothing arrived")
        self.counted.append(f"{what}: {len(seen.packets)} packets, {len(seen.accepted)} connections")
