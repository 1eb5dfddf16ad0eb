"""A session of the runtime API, and who calls it."""
import pytest

from harness import RUNTIME


@pytest.fixture(name="caller")
def fixture_caller(daemon):
    return daemon.client("ana")


@pytest.fixture(name="session")
def fixture_session(caller):
    name = caller.create_runtime()
    yield name
    caller.delete(f"{RUNTIME}/{name}")
