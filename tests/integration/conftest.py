import pytest

from harness import Daemon


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
