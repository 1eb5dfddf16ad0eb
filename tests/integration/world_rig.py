"""A service whose sessions can reach a world of servers (egress_rig.py)."""
import pytest

from egress_rig import hosted_world
from harness import Daemon


@pytest.fixture(name="world", scope="module")
def fixture_world(tmp_path_factory):
    with hosted_world(tmp_path_factory) as world:
        yield world


@pytest.fixture(name="daemon", scope="module")
def fixture_daemon(world):  # pylint: disable=unused-argument
    started = Daemon()
    yield started
    started.done()
