"""A host that may have lost its sessions to another one: they stand still before it could have."""
import contextlib
import os
import re
import signal
import threading
import time
from pathlib import Path

import pytest

from harness import SESSIONS, Daemon, wait_until
from postgres_rig import Cable

LEASE = 30  # seconds; pg_queries.h
LONG = 600
TICKS = "while true; do date +%s.%N; sleep 0.2; done"


def is_frozen(daemon, session):
    [group] = [Path(path) for path in daemon.cgroups() if session in path and Path(path, "cgroup.freeze").exists()]
    return "frozen 1" in (group / "cgroup.events").read_text()


def freezes(daemon):
    return daemon.log.read_text().count("the lease is over")


class Clock(threading.Thread):
    """A command that says the time as long as it lives."""

    def __init__(self, caller, session):
        super().__init__(daemon=True)
        self.caller, self.session, self.text = caller, session, ""
        self.start()
        wait_until(lambda: self.times, 30, "it runs")

    def run(self):
        with contextlib.suppress(OSError):
            for line in self.caller.lines("POST", f"/v1/sandboxes/{self.session}/commands",
                                          {"argv": ["/bin/sh", "-c", TICKS], "timeout_ms": LONG * 1000},
                                          headers={"Accept": "application/x-ndjson"}, timeout=LONG):
                self.text += line.decode() + "\n"

    @property
    def times(self):
        return [float(found) for found in re.findall(r"(\d{9,}\.\d+)\\n", self.text)]

    def longest_pause(self):
        times = self.times
        return max((after - before for before, after in zip(times, times[1:])), default=0)


@pytest.fixture
def services():
    """begin(config): a service, ended at the end whatever it looks like by then."""
    begun = []

    def begin(config):
        begun.append(Daemon(config=config))
        return begun[-1]

    yield begin
    for one in begun:
        one.deaths_expected = True
        one.done()


def renewed(postgres, instances, database="platform"):
    """Each of them has renewed its lease since, and so knows of the others."""
    def ends():
        found = postgres.sql("SELECT lease_until FROM sandbox_writers"
                             " WHERE lease_until > timezone('UTC', clock_timestamp())", database=database).split("\n")
        return sorted(found) if len(found) == instances else None

    last = wait_until(ends, 60, "all live")[-1]
    wait_until(lambda: (ends() or [""])[0] > last, 60, "renewed")


def test_sessions_of_a_host_that_is_cut_off_stand_still_before_they_can_be_taken(postgres, services):
    cable = Cable(postgres)
    try:
        two = [services(postgres.config(port=cable.port)), services(postgres.config())]
        here, there = (one.client("alice") for one in two)
        taken, kept = here.create(), here.create()
        clocks = [Clock(here, session) for session in (taken, kept)]
        renewed(postgres, 2)
        cable.cut()
        wait_until(lambda: all(is_frozen(two[0], session) for session in (taken, kept)), 2 * LEASE, "they stand still")
        wait_until(lambda: there.get(f"{SESSIONS}/{taken}").status == 200, LEASE + 30, "taken")
        assert there.shell(taken, "echo runs").text == "runs\n"
        taken_at = time.time()
        assert is_frozen(two[0], taken) and is_frozen(two[0], kept)
        cable.mend()
        wait_until(lambda: here.get(f"{SESSIONS}/{taken}").status == 404, 60, "given up")
        wait_until(lambda: len(two[0].shim_pids()) == 1, 60, "its tree has ended")
        # No program of it ran beside the new tree.
        assert max(clocks[0].times) < taken_at
        wait_until(lambda: not is_frozen(two[0], kept), 60, "the other one goes on")
        end = time.time()
        wait_until(lambda: clocks[1].times[-1] > end, 60, "and runs")
        assert clocks[1].longest_pause() > 2
        assert freezes(two[0]) == 1 and freezes(two[1]) == 0
        assert here.get(f"{SESSIONS}/{kept}").status == 200
    finally:
        cable.cut()


def test_an_outage_of_the_store_stops_nobody_who_is_alone_or_does_not_want_it(postgres, services):
    """The controls, with one that stops."""
    postgres.new_database("alone")
    postgres.ready("alone")
    stops = services(postgres.config())
    wants_not = services(postgres.config("freeze_without_lease = no"))
    alone = services(postgres.config(database="alone"))
    all_of_them = (stops, wants_not, alone)
    sessions = [one.client("alice").create() for one in all_of_them]
    clocks = [Clock(one.client("alice"), session) for one, session in zip(all_of_them, sessions)]
    renewed(postgres, 2)
    with postgres.paused():
        wait_until(lambda: is_frozen(stops, sessions[0]), 2 * LEASE, "it stands still")
        # What can be made without the store runs: no other host can know of it.
        new = stops.client("alice").create()
        assert stops.client("alice").shell(new, "echo runs").text == "runs\n"
        time.sleep(LEASE / 3)
        assert is_frozen(stops, sessions[0])
        assert not is_frozen(wants_not, sessions[1]) and not is_frozen(alone, sessions[2])
    wait_until(lambda: not is_frozen(stops, sessions[0]), 60, "it goes on")
    end = time.time()
    wait_until(lambda: all(clock.times[-1] > end for clock in clocks), 60, "all run")
    assert clocks[0].longest_pause() > LEASE / 4
    assert [freezes(one) for one in all_of_them] == [1, 0, 0]


def test_sessions_of_a_worker_that_hangs_stand_still(postgres, services):
    """Nobody asks for it: the supervisor was told before until when."""
    one, _ = services(postgres.config()), services(postgres.config())
    session = one.client("alice").create()
    renewed(postgres, 2)
    worker = one.worker_pid("sandboxd-api")
    os.kill(worker, signal.SIGSTOP)
    try:
        wait_until(lambda: is_frozen(one, session), 2 * LEASE, "it stands still")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGCONT)
    wait_until(lambda: not is_frozen(one, session), 60, "it goes on")
    wait_until(lambda: one.client("alice").get(f"{SESSIONS}/{session}").status == 200, 60, "it is there")
    assert one.client("alice").shell(session, "echo runs").text == "runs\n"


def test_a_new_supervisor_knows_when_it_ends(postgres, services):
    """Its worker cannot start, so nobody tells it."""
    cable = Cable(postgres)
    try:
        one, _ = services(postgres.config(port=cable.port)), services(postgres.config())
        one.deaths_expected = True
        session = one.client("alice").create()
        renewed(postgres, 2)
        cable.cut()
        former = one.supervisor_pid()
        os.kill(former, signal.SIGKILL)
        wait_until(lambda: one.supervisor_pid() not in (former, one.process.pid), 60, "another one")
        wait_until(lambda: is_frozen(one, session), 2 * LEASE, "it stands still")
        cable.mend()
        wait_until(lambda: not is_frozen(one, session), 60, "it goes on")
        wait_until(one.ready, 60, "the service is there")
        assert one.client("alice").shell(session, "echo runs").text == "runs\n"
    finally:
        cable.cut()


def test_a_new_supervisor_leaves_them_so_until_the_store_is_back(postgres, services):
    """And an other host that went minutes ago may be there again."""
    cable = Cable(postgres)
    try:
        one, other = services(postgres.config(port=cable.port)), services(postgres.config())
        one.deaths_expected = True
        session = one.client("alice").create()
        other.stop()
        own = (one.state / "api" / "store-instance").read_text()
        postgres.sql(f"UPDATE sandbox_writers SET lease_until = lease_until - interval '5 minutes' WHERE id <> '{own}'")
        renewed(postgres, 1)
        cable.cut()
        wait_until(lambda: is_frozen(one, session), 2 * LEASE, "it stands still")
        former = one.supervisor_pid()
        os.kill(former, signal.SIGKILL)
        wait_until(lambda: one.supervisor_pid() not in (former, one.process.pid), 60, "another one")
        time.sleep(3)
        assert is_frozen(one, session)
        cable.mend()
        wait_until(lambda: not is_frozen(one, session), 60, "it goes on")
        wait_until(one.ready, 60, "the service is there")
        alice = one.client("alice")
        wait_until(lambda: alice.get(f"{SESSIONS}/{session}").json["sandbox"]["tree"] == "live", 60, "adopted")
        assert alice.shell(session, "echo runs").text == "runs\n"
    finally:
        cable.cut()
