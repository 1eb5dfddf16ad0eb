"""What sandboxctl says of a session's isolation when a limit can be met, and when time is too short."""
import json
import os
import signal
import threading
import time

from harness import PATIENCE, ctl


def test_deep_proof_runs_into_each_limit(daemon):
    session = ctl(daemon, "create").stdout.decode().strip()
    report = json.loads(ctl(daemon, "-o", "json", "proof", "--deep", session, timeout=300 * PATIENCE).stdout)
    rows = {row["what"]: row for row in report["rows"]}
    for what in ("fill the disk", "take memory", "start processes"):
        assert rows[what]["inside"] in ("stopped", "undecided"), rows[what]
        assert rows[what]["ok"] is (None if rows[what]["inside"] == "undecided" else True)
    assert report["ok"] is True
    ctl(daemon, "rm", session)


def processes_named(name):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
                if file.read().strip() == name:
                    yield int(pid)
        except (FileNotFoundError, ProcessLookupError):
            pass


def test_a_probe_without_time_is_undecided(daemon):
    """The writers of the disk and the memory probe are stopped as soon as they start; one that was done before it was
    seen is another time's."""
    session = ctl(daemon, "create").stdout.decode().strip()
    over = threading.Event()

    def hold():
        while not over.is_set():
            for pid in processes_named("head"):
                try:
                    os.kill(pid, signal.SIGSTOP)
                except ProcessLookupError:
                    pass
            time.sleep(0.002)

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        for _ in range(20):
            report = json.loads(ctl(daemon, "-o", "json", "proof", "--deep", "--timeout", "3000", session,
                                    timeout=300 * PATIENCE).stdout)
            rows = {row["what"]: row for row in report["rows"]}
            if all(rows[what]["inside"] == "undecided" for what in ("fill the disk", "take memory")):
                break
    finally:
        over.set()
        holder.join()
    for what in ("fill the disk", "take memory"):
        assert (rows[what]["inside"], rows[what]["ok"]) == ("undecided", None)
    assert report["ok"] is True and report["undecided"] >= 2
    ctl(daemon, "rm", session)
