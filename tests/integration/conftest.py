import contextlib
import faulthandler
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from harness import Daemon, SLOW
from postgres_rig import Postgres


# Of what `sandboxctl gc` removes, nothing is of the services of the other parts, which may be between two lives.
os.environ["SANDBOX_GC_ONLY"] = "none"


def pytest_addoption(parser):
    parser.addoption("--shard", metavar="I/N", help="of N parts of the files the I-th, from 1")


def seconds_of_files():
    """What each took where it was measured; it only balances the parts."""
    lines = Path(__file__).with_name("seconds").read_text(encoding="utf-8").splitlines()
    return {name: float(seconds) for name, seconds in (line.split() for line in lines)}


def shares(files, n):
    """n lists: the slowest file first, each to the list that has least. The same for the same files."""
    seconds = seconds_of_files()
    lists, sums = [[] for _ in range(n)], [0.0] * n
    for file in sorted(files, key=lambda name: (-seconds.get(name, 5), name)):
        least = sums.index(min(sums))
        lists[least].append(file)
        sums[least] += seconds.get(file, 5)
    return lists


@pytest.hookimpl(trylast=True)  # after -k and -m, so that what is left is shared out
def pytest_collection_modifyitems(config, items):
    if not config.getoption("--shard"):
        return
    part, n = map(int, config.getoption("--shard").split("/"))
    mine = shares({item.path.name for item in items}, n)[part - 1]
    config.hook.pytest_deselected(items=[item for item in items if item.path.name not in mine])
    items[:] = sorted((item for item in items if item.path.name in mine), key=lambda item: mine.index(item.path.name))


def pytest_sessionfinish(session, exitstatus):
    if session.config.getoption("--shard") and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK  # fewer files than parts


@contextlib.contextmanager
def limited(item, part):
    """What hangs fails, with the place it hangs at, and the suite goes on. Every thread's place is
    printed a little later, for the case that the exception cannot be raised."""
    # A quickstart builds the project.
    seconds = 900 if item.get_closest_marker("quickstart") else max(300 * SLOW, 600)

    def late(_number, _frame):
        # No Exception, least of all an OSError: who polls ignores those.
        pytest.fail(f"{part} of {item.nodeid} took over {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, late)
    # Again and again: the first may come where a library swallows every exception.
    signal.setitimer(signal.ITIMER_REAL, seconds, 30)
    faulthandler.dump_traceback_later(seconds + 90)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_setup(item):
    with limited(item, "the setup"):
        yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item):
    with limited(item, "the call"):
        yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_teardown(item):
    with limited(item, "the teardown"):
        yield


@pytest.hookimpl(trylast=True)
def pytest_unconfigure():
    """A thread that a failed test left would be waited for at the end, for ever."""
    threads = [t for t in threading.enumerate() if t is not threading.main_thread() and not t.daemon]
    end = time.monotonic() + 60
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    if any(thread.is_alive() for thread in threads):
        print("threads that do not end:", [thread.name for thread in threads if thread.is_alive()], flush=True)
        faulthandler.dump_traceback(sys.__stderr__)
        sys.stderr.flush()
        os._exit(pytest.ExitCode.TESTS_FAILED)


@pytest.fixture(scope="module")
def daemon():
    started = Daemon()
    yield started
    started.done()


@pytest.fixture
def private():
    """A service of the test's own."""
    started = Daemon()
    yield started
    started.done()


@pytest.fixture(scope="module")
def postgres():
    """A server of the file's own, with the schema."""
    server = Postgres()
    server.ready()
    yield server
    server.done()


@pytest.fixture
def alice(daemon):
    return daemon.client("alice", workspace="blue")


@pytest.fixture
def bob(daemon):
    return daemon.client("bob", workspace="red")


@pytest.fixture
def carol(daemon):
    """Of alice's workspace."""
    return daemon.client("carol", workspace="blue")


@pytest.fixture
def admin(daemon):
    return daemon.client("adele", scopes="data:read data:write platform:admin")


@pytest.fixture
def root(daemon):
    return daemon.root


@pytest.fixture
def session(alice):
    made = alice.create()
    yield made
    alice.remove(made)
