"""What runs a sandbox: what a provider says that it can do, and rows of one that this service does not have."""
import contextlib
import json
import os
import re
import signal

import pytest

from conformance_rig import refused
from harness import RUNTIME, Daemon, ctl, wait_until
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
    """Nothing moves: it is suspended as before, and what is asked of it is told so."""
    caller, session = kept
    give_to(private, session, provider)
    refused(caller.post(at(session, "/resume")), 503, "provider_unavailable", True)
    refused(caller.post(at(session, "/commands"), {"cmd": "true"}), 409, "suspended", True)
    assert caller.get(at(session)).json["status"] == "suspended"
    assert caller.get(at(session, "/stats")).status == 503
    give_to(private, session, "native")
    assert caller.post(at(session, "/resume")).status == 200
    assert run(caller, session, "cat file") == "kept\n"


def test_a_row_of_an_unknown_provider_can_be_closed(private, kept):
    caller, session = kept
    give_to(private, session, "elsewhere")
    assert caller.delete(f"{RUNTIME}/{session}").status == 200
    assert caller.get(at(session)).status == 404


DOCKER = "[identity]\ntrusted_peers = 0\n[supervisor]\nenvironment = development\n[docker]\n" \
         "socket = /nowhere/engine.sock\nimage = localhost/none:1\n"


@contextlib.contextmanager
def service(config, provider):
    daemon = Daemon(config=config, env={"SANDBOX_PROVIDER": provider})
    try:
        yield daemon
    finally:
        daemon.done()


def makes(daemon):
    """What /v1/config says, and whether a sandbox that names none is native's: the other has no engine."""
    status = daemon.client("ana").post(RUNTIME, {}).status
    assert status in (201, 503)
    return daemon.root.get("/v1/config").json["provider"], status == 201


@pytest.mark.parametrize("option, variable, name, by_variable", [
    ("native", "", "native", False),
    ("native", "docker", "docker", True),
    ("docker", "", "docker", False),
    ("docker", "native", "native", True),
])
def test_the_variable_goes_before_the_option(option, variable, name, by_variable):
    with service(f"{DOCKER}[api]\nprovider = {option}\n", variable) as daemon:
        told, is_native = makes(daemon)
        assert told == {"name": name, "from": "SANDBOX_PROVIDER" if by_variable else "configuration"}
        assert is_native == (name == "native")
        shown = ctl(daemon, "config", "show", "-o", "json", "--config", str(daemon.config))
        rows = {row["name"]: row for row in json.loads(shown.stdout)}
        assert rows["api.provider"]["value"] == name, shown
        assert rows["api.provider"]["source"].startswith("SANDBOX_PROVIDER") == by_variable


def test_a_reload_leaves_the_variable_in_force():
    with service(DOCKER, "native") as daemon:
        daemon.configure(f"{DOCKER}[api]\nprovider = docker\nqueue_jobs = 7\n")
        os.kill(daemon.process.pid, signal.SIGHUP)
        wait_until(lambda: daemon.root.get("/v1/config").json["generation"] == 1, what="the reload")
        assert makes(daemon) == ({"name": "native", "from": "SANDBOX_PROVIDER"}, True)


@pytest.mark.parametrize("value, said", [
    ("elsewhere", "SANDBOX_PROVIDER line 2: [api] provider wants native"),
    ("native\nstream_url = /x/", "SANDBOX_PROVIDER is no name of a provider"),
    ("docker", "SANDBOX_PROVIDER = docker needs socket in [docker]"),  # no engine is configured
])
def test_a_variable_of_no_provider_refuses_the_start(value, said):
    with pytest.raises(AssertionError, match=re.escape(said)):
        Daemon(config="[identity]\ntrusted_peers = 0\n", env={"SANDBOX_PROVIDER": value})
