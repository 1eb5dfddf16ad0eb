"""What runs a sandbox: what a provider says that it can do, and rows of one that this service does not have."""
import pytest

from harness import RUNTIME
from test_suspend import at, run, suspend


def test_capabilities_name_the_providers(daemon):
    assert daemon.root.get("/v1/capabilities").json["providers"] == {
        "native": {"pause_resume": True, "egress": True, "root": True, "secrets": True}}


def give_to(daemon, session, provider):
    """The row says that another provider has the sandbox; what ran is gone."""
    daemon.stop()
    daemon.sql("UPDATE sandbox_registry SET provider = ? WHERE sandbox_uuid = ?", provider, session)
    daemon.start()


@pytest.fixture(name="kept")
def fixture_kept(private):
    caller = private.client("ana")
    session = caller.create_runtime()
    run(caller, session, "echo kept > file")
    suspend(caller, session, durable="wait")
    return caller, session


@pytest.mark.parametrize("provider", ["elsewhere", "x" * 32])
def test_a_row_of_an_unknown_provider_waits_for_it(private, kept, provider):
    caller, session = kept
    give_to(private, session, provider)
    for path, body in (("/resume", None), ("/commands", {"cmd": "true"})):
        answer = caller.post(at(session, path), body)
        assert (answer.status, answer.json["code"]) == (503, "provider_unavailable"), answer
    assert caller.get(at(session)).status == 200
    assert caller.get(at(session, "/stats")).status == 503
    give_to(private, session, "native")
    caller.post(at(session, "/resume"))
    assert run(caller, session, "cat file") == "kept\n"


def test_a_row_of_an_unknown_provider_can_be_closed(private, kept):
    caller, session = kept
    give_to(private, session, "elsewhere")
    assert caller.delete(f"{RUNTIME}/{session}").status == 200
    assert caller.get(at(session)).status == 404
