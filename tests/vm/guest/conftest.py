"""The checks of an installed sandboxd, in the order in which `run` names their files."""
import pytest

from harness import Client
from installed import CONTROL, PACKAGE, call, remember_host


@pytest.fixture(scope="session", autouse=True)
def host_before():
    remember_host()


@pytest.fixture
def service():
    """It runs, also where only some of the checks were asked for."""
    if call("dpkg", "-s", "sandboxd", check=False).returncode != 0:
        call("dpkg", "-i", PACKAGE)
    call("systemctl", "enable", "--now", "sandboxd.service")


@pytest.fixture
def alice(service):
    return Client(CONTROL, user="alice", scopes="data:read data:write", workspace="blue")


@pytest.fixture
def session(alice):
    made = alice.create()
    yield made
    alice.remove(made)
