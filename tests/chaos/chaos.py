"""One run: a service, clients, faults, and in the end the reckoning."""
import argparse
import random
import sys
import time

import checker
import faults
import journal
import load
import service as services
import store
import wire
from killer import Killer

N_CLIENTS = 5
N_READERS = 12
MAX_SHOWN = 40
MIN_KILLS, MIN_OPERATIONS = 2, 300  # a minute


class Run:
    def __init__(self, seed, store_kind, plant=None):
        self.seed = seed
        self.faults = faults.KILLS if plant else None
        self.pause = faults.PAUSES.get(plant, faults.NEVER) if plant else (4, 11)
        self.patience = faults.PATIENCE if plant else 120
        self.home = services.new_home()
        self.service = services.Service(self.home, store_kind, {"SANDBOX_PLANT": plant} if plant else {})
        self.notes = []
        self.complaints = []
        self.seconds = 0.0

    def begin(self):
        self.service.begin()
        self.before = self.service.counts_at_rest()
        self.journals = [journal.Journal(self.home / f"client{i}.journal") for i in range(N_CLIENTS)]
        self.read_journal = journal.Journal(self.home / "readers.journal")
        self.fault_journal = journal.Journal(self.home / "faults.journal")
        self.readers = load.Readers(N_READERS, self.read_journal)
        self.clients = [
            load.Client(i, wire.Caller(self.service.control, f"user{i}"), self.journals[i], self.seed, self.readers, self.service.redis)
            for i in range(N_CLIENTS)]
        self.killer = Killer(self.service, self.fault_journal, self.seed, self.faults, self.pause)

    def work(self, seconds):
        started = time.monotonic()
        for thread in (*self.clients, self.killer):
            thread.start()
        while time.monotonic() - started < seconds and not self.killer.error:
            time.sleep(0.5)
        self.killer.done.set()
        self.killer.join(120)
        for client in self.clients:
            client.done.set()
        for client in self.clients:
            client.join(2 * wire.TIMEOUT)
            if client.is_alive():
                self.complaints.append(("hung", f"{client.name} waits for an answer"))
            if client.error:
                self.complaints.append(("run", f"{client.name} stopped: {client.error}"))
        self.seconds = time.monotonic() - started
        if self.killer.error:
            self.complaints.append(("run", f"the killer stopped: {self.killer.error}"))

    def settle(self):
        """Everything runs again; what was accepted comes to its end."""
        self.service.wait_ready(120)
        for client in self.clients:
            for session in list(client.sessions):
                self.until_persisted(client, session)
        self.until_drained()
        for name in self.readers.finish(2 * self.patience):
            self.complaints.append(("hung", f"{name} reads on"))
        n = 1_000_000
        for client in self.clients:
            for task in client.all_tasks():
                if self.until_ended(client.caller, task):
                    load.read_once(self.read_journal, client.caller, task, 0, wire.frames_as_lines, n)
                n += 1

    def until_drained(self):
        end = time.monotonic() + self.patience
        while n := self.service.redis.waiting():
            if time.monotonic() > end:
                self.complaints.append(("task never ended", f"{n} messages of the queue are not acknowledged"))
                return
            time.sleep(0.3)

    def until_persisted(self, client, session):
        end = time.monotonic() + self.patience
        while True:
            status, answer = client.look_at(session)
            if status == 404 or (status == 200 and answer["sandbox"]["persisted"]):
                return
            if time.monotonic() > end:
                self.complaints.append(("persisted", f"{session.id}: {status}, and never persisted"))
                return
            time.sleep(0.5)

    def until_ended(self, caller, task):
        end = time.monotonic() + self.patience
        answer = None
        while time.monotonic() < end:
            try:
                status, answer, _ = caller.ask("GET", f"{load.TASKS}/{task}")
            except wire.Broken:
                status = None
            if status == 404 or (status == 200 and answer["status"] in checker.TERMINAL):
                return True
            time.sleep(0.3)
        self.complaints.append(("task never ended", f"{task} is still {answer}"))
        self.patience = min(self.patience, 2)  # the others had their time meanwhile
        return False

    def end(self):
        """Everything is deleted, and the balance is drawn."""
        living = store.rows(self.service)
        values = self.service.redis.values()
        living_at = time.time()
        for client in self.clients:
            for session in list(client.sessions):
                client.delete_one(session)
        status, others, _ = self.service.operator.ask("GET", f"{load.SESSIONS}?limit=500")
        for other in others if status == 200 else []:
            self.service.operator.ask("DELETE", f"{load.SESSIONS}/{other['id']}")
            self.notes.append(f"{other['id']} was made without an answer to its client")
        after = self.service.counts_at_rest(wanted=self.before, timeout=self.patience)
        gone, gone_at = store.rows(self.service), time.time()
        users, keys = self.service.redis.users(), self.service.redis.keys()
        status = self.service.stop()
        left = self.service.leftovers()
        self.judge((living, living_at), (gone, gone_at), values)
        self.checker.compare_counts(self.before, after)
        self.checker.compare_redis(users, keys)
        self.complaints += self.checker.complaints
        if status != 0:
            self.complaints.append(("stop", f"the service ended with {status}"))
        self.complaints += [("left over", what) for what in left]
        self.after = after

    def judge(self, living, gone, values):
        records = [record for i in range(N_CLIENTS) for record in journal.read(self.home / f"client{i}.journal")]
        records += journal.read(self.home / "readers.journal")
        self.checker = checker.Checker(records, journal.read(self.home / "faults.journal"))
        for (rows, at), ended in ((living, False), (gone, True)):
            self.checker.follow(until=at)
            self.checker.compare(rows, at, ended)
            if not ended:
                self.checker.compare_values(values, at)

    def report(self):
        minutes = self.seconds // 60
        n_kills = sum(n for what, n in self.killer.n.items() if what.startswith("kill"))
        n_operations = sum(self.checker.n_operations.values())
        print(f"seed {self.seed}, store {self.service.store}, {self.seconds:.0f} s")
        print("faults: " + ", ".join(f"{what} {n}" for what, n in sorted(self.killer.n.items())))
        print("operations: " + ", ".join(f"{op} {n}" for op, n in sorted(self.checker.n_operations.items())))
        print("answers: " + ", ".join(f"{status} {n}" for status, n in sorted(self.checker.n_answers.items())))
        print(f"sessions {len(self.checker.sessions)}, tasks {len(self.checker.tasks)}, "
              f"frames {sum(map(len, self.checker.frames.values()))}")
        print("keys that sessions wrote in Redis: " + ", ".join(
            f"{'taken' if taken else 'refused'} {n}" for taken, n in self.checker.n_redis.items()))
        print(f"{'balance':24}{'before':>8}{'after':>8}")
        for what, n in self.before.items():
            print(f"  {what:22}{n:>8}{(self.after or {}).get(what, '?'):>8}")
        for note in self.notes:
            print(f"note: {note}")
        if n_kills < MIN_KILLS * minutes or n_operations < MIN_OPERATIONS * minutes:
            self.complaints.append(("run", f"{n_kills} kills and {n_operations} operations in {minutes:.0f} minutes"))
        self.complaints = list(dict.fromkeys(self.complaints))  # rows are compared twice
        for code, text in self.complaints[:MAX_SHOWN]:
            print(f"COMPLAINT {code}: {text}")
        if len(self.complaints) > MAX_SHOWN:
            print(f"and {len(self.complaints) - MAX_SHOWN} more")


def one_run(seed, store_kind, seconds, plant=None, keep=False):
    run = Run(seed, store_kind, plant)
    try:
        run.begin()
        run.work(seconds)
        run.settle()
        run.end()
        run.report()
        return run.complaints
    except BaseException:
        print(f"seed {seed}, the end of the log:\n" + run.service.log.read_text(errors="replace")[-3000:])
        keep = True
        raise
    finally:
        run.service.end()
        if keep or (run.complaints and not plant):
            print(f"journals and log: {run.home}")
        else:
            services.remove_home(run.home)


def judge_the_judge(seed, names):
    """Each fault alone. How many were not found."""
    n_missed = 0
    for name in names:
        found = {code for code, _ in one_run(seed, "sqlite", faults.SECONDS, plant=name)}
        wanted = faults.FAULTS[name]
        n_missed += not found & wanted
        print(f"fault {name}: {'found' if found & wanted else 'NOT FOUND'} "
              f"({', '.join(sorted(found)) or 'no complaint'})", flush=True)
    return n_missed


def main():
    parser = argparse.ArgumentParser(prog="tests/run chaos --")
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--store", choices=("sqlite", "postgres"), action="append")
    parser.add_argument("--faults", nargs="*", choices=[*faults.FAULTS, []], metavar="FAULT",
                        help="plant each of these, or all")
    options = parser.parse_args()
    if options.faults is not None:
        names = options.faults or list(faults.FAULTS)
        n_failed = judge_the_judge(options.seed or 1, names)
        print(f"{len(names) - n_failed} passed, {n_failed} failed, 0 skipped")
        sys.exit(n_failed > 0)
    n_failed = 0
    kinds = options.store or ["sqlite", "postgres"]
    for kind in kinds:
        seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 31)
        n_failed += bool(one_run(seed, kind, options.minutes * 60))
    print(f"{len(kinds) - n_failed} passed, {n_failed} failed, 0 skipped")
    sys.exit(n_failed > 0)


if __name__ == "__main__":
    main()
