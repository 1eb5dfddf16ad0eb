from pathlib import Path

import pytest

from harness import Daemon


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


@pytest.fixture(scope="module")
def daemon():
    started = Daemon()
    yield started
    started.done()


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
