"""What goes wrong, in an order that the seed gives, and a journal of it."""
import os
import random
import signal
import threading
import time

STOPPED_FOR = 10


class Killer(threading.Thread):
    def __init__(self, service, journal, seed, faults, pause):
        super().__init__(name="killer", daemon=True)
        self.service = service
        self.journal = journal
        self.random = random.Random(f"{seed}/killer")
        self.pause = pause
        self.done = threading.Event()
        self.error = None
        self.n = {}
        servers = ["redis"] + (["postgres"] if service.postgres else [])
        own = ["sandboxd-api", "sandboxd-egress", "supervisor", "shim"]
        self.faults = faults or (
            [("kill", name, 3) for name in own] + [("kill", name, 2) for name in servers] +
            [("stop", name, 1) for name in own + servers] + [("fill", "state", 2)])

    def run(self):
        *_, weights = zip(*self.faults)
        try:
            while not self.done.wait(self.random.uniform(*self.pause)):
                what, target, _ = self.random.choices(self.faults, weights)[0]
                getattr(self, what)(target)
        except Exception as error:  # the run says so, and fails
            self.error = repr(error)

    def note(self, what, target, **more):
        self.journal.write("fault", what=what, target=target, **more)
        self.n[f"{what} {target}"] = self.n.get(f"{what} {target}", 0) + 1

    def pids(self, target):
        if target == "shim":
            shims = self.service.shims()
            return [self.random.choice(shims)] if shims else []
        if target in ("redis", "postgres"):
            return getattr(self.service, target).pids()
        pid = self.service.pid_of(target)
        return [pid] if pid else []

    def kill(self, target):
        if target in ("redis", "postgres"):
            server = getattr(self.service, target)
            self.note("kill", target)
            server.kill()
            time.sleep(self.random.choice([0, 1, 4]))
            server.start()
            self.journal.write("recovered", target=target)
            return
        for pid in self.pids(target):
            self.note("kill", target, pid=pid)
            self.signal(pid, signal.SIGKILL)

    def signal(self, pid, number):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass

    def stop(self, target):
        pids = self.pids(target)
        if not pids:
            return
        self.note("stop", target, pids=pids)
        try:
            for pid in pids:
                self.signal(pid, signal.SIGSTOP)
            time.sleep(STOPPED_FOR)
        finally:
            for pid in pids:
                self.signal(pid, signal.SIGCONT)
            self.journal.write("recovered", target=target)

    def fill(self, target):
        self.note("fill", target)
        try:
            self.service.fill()
            time.sleep(self.random.uniform(3, 8))
        finally:
            self.service.unfill()
            self.journal.write("recovered", target=target)
