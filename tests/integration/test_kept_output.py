"""Output that is kept of commands: what one owner has does not push out what others have."""
import concurrent.futures

import pytest

from harness import SLOW, Daemon, Result, wait_until
from test_commands import stream
from test_suspend import at, begin

# Below what is kept of one command and of a session (1 and 4 MiB), and of all (256 MiB).
BYTES = 900_000
FLOOR = 64 << 10
SESSIONS = 40
CONFIG = ("[identity]\ntrusted_peers = 0\n[limits]\nsessions = 200\nmemory = 1024GiB\n"
          "[owner]\nsessions = 200\nmemory = 1024GiB\nlaunches_per_second = 0\n[supervisor]\nlaunches_per_second = 1000\n")


def ended(caller, session, cid):
    return caller.get(at(session, f"/commands/{cid}/wait?timeout_ms=60000"), timeout=90 * SLOW).json["status"] == "exited"


def kept(caller, session, cid):
    return len(Result(stream(caller, session, cid)).out)


def speak(caller, session):
    cid = begin(caller, session, f"head -c {BYTES} /dev/zero | tr '\\0' x")
    wait_until(lambda: ended(caller, session, cid), 60)
    return cid


@pytest.mark.slow
def test_who_has_much_keeps_the_least():
    daemon = Daemon(config=CONFIG)
    try:
        many, few = daemon.client("ana", workspace="blue"), daemon.client("ben", workspace="red")
        theirs = few.create_runtime()
        before = speak(few, theirs)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            sessions = list(pool.map(lambda _: many.create_runtime(), range(SESSIONS)))
            said = list(pool.map(lambda one: [(one, speak(many, one)) for _ in range(4)], sessions))
        of_many = [kept(many, *one) for ones in said for one in ones]
        # Alone one has half of the whole, which is less than they said; what came later was cut.
        assert max(of_many) == BYTES and min(of_many) <= FLOOR, sorted(of_many)
        assert 100 << 20 < sum(of_many) <= 128 << 20
        after = speak(few, theirs)
        assert [kept(few, theirs, cid) for cid in (before, after)] == [BYTES, BYTES]
        last = speak(many, sessions[0])
        assert kept(many, sessions[0], last) <= FLOOR
    finally:
        daemon.done()
