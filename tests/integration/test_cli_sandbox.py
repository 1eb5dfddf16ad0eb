"""sandboxctl and what only a sandbox of the runtime API has: metadata, workspace, suspend and resume."""
import json

import pytest

from harness import CONFIG, Daemon, RUNTIME, SLOW, ctl, wait_until

WAIT = 60 * SLOW


@pytest.fixture(name="daemon", scope="module")
def fixture_daemon():
    made = Daemon(CONFIG)
    yield made
    made.done()


def ok(result):
    assert result.returncode == 0, result
    return result.stdout.decode()


@pytest.fixture(name="agent")
def fixture_agent(daemon):
    made = ok(ctl(daemon, "create", "-p", "agent")).strip()
    yield made
    daemon.root.delete(f"{RUNTIME}/{made}")


def rows(daemon, session):
    return {line[:16].strip(): line[18:] for line in ok(ctl(daemon, "show", session)).splitlines()}


def test_what_it_is_made_with(daemon, tmp_path):
    (tmp_path / "owner").write_text("ana\n")
    made = ok(ctl(daemon, "create", "--metadata", "kind=report", "--metadata", f"owner=@{tmp_path}/owner", "--include", "work",
                  "--include", "/tmp/more", "--exclude", "*.log", "--organization-uuid", "org-1", "--project-uuid", "p-1")).strip()
    try:
        told = daemon.root.get(f"{RUNTIME}/{made}").json
        assert told["metadata"] == {"kind": "report", "owner": "ana"}
        assert told["workspace"] == {"include": ["work", "/tmp/more"], "exclude": ["*.log"]}
        assert (told["organization_uuid"], told["project_uuid"], told["profile"]) == ("org-1", "p-1", "agent")
        assert (told["generation"], told["durable"]) == (0, False)
        shown = rows(daemon, made)
        assert shown["metadata"] == "kind=report owner=ana" and shown["generation"] == "0" and shown["durable"] == "false"
        assert shown["workspace"] == 'include=["work","/tmp/more"] exclude=["*.log"]' and shown["project_id"] == "p-1"
        assert json.loads(ok(ctl(daemon, "-o", "json", "show", made)))["metadata"] == told["metadata"]
    finally:
        daemon.root.delete(f"{RUNTIME}/{made}")
    # Without a path there is nothing to leave out of.
    assert ctl(daemon, "create", "--exclude", "*.log").returncode == 4
    assert ctl(daemon, "create", "--metadata", "kind=report", "--endpoint", "a=b").returncode == 2


def test_scopes_of_an_agent_are_enough(daemon):
    """Without data:read: to make one, look at it and remove it. One who may only look removes nothing."""
    def mine(scopes, *words):
        return ctl(daemon, "--user", "ana", "--scopes", scopes, *words, socket_path=daemon.control)

    agent = "sandbox:read sandbox:write"
    made = ok(mine(agent, "create", "-p", "agent")).strip()
    shown = json.loads(ok(mine(agent, "-o", "json", "show", made)))
    assert (shown["sandbox_uuid"], shown["provider"]) == (made, "native")
    assert mine("sandbox:read", "rm", made).returncode == 4
    assert daemon.root.get(f"{RUNTIME}/{made}").status == 200
    ok(mine(agent, "rm", made))
    assert daemon.root.get(f"{RUNTIME}/{made}").status == 404


def test_list_by_metadata(daemon):
    """Values with what a query would read otherwise; a component session has none and is not listed."""
    made = {name: ok(ctl(daemon, "create", *(f"--metadata={word}" for word in words))).strip()
            for name, words in {"one": ["kind=a&b=c d+%", "who=\u00fc"], "two": ["kind=a&b=c d+%"], "none": []}.items()}

    def listed(*words):
        return ok(ctl(daemon, "-o", "name", "ls", *words)).split()

    try:
        assert set(made.values()) <= set(listed())
        assert listed("--metadata", "kind=a&b=c d+%") == [made["two"], made["one"]]
        assert listed("--metadata", "kind=a&b=c d+%", "--metadata", "who=\u00fc") == [made["one"]]
        assert listed("--metadata", "kind=a") == []
        ok(ctl(daemon, "suspend", "--durable", "never", made["two"]))
        assert listed("--metadata", "kind=a&b=c d+%", "--status", "suspended") == [made["two"]]
        assert json.loads(ok(ctl(daemon, "-o", "json", "ls", "--metadata", "who=\u00fc")))[0]["id"] == made["one"]
        five = ctl(daemon, "ls", *(f"--metadata=k{i}=v" for i in range(5)))
        assert five.returncode == 4 and b"at most 4 keys" in five.stderr, five
        assert ctl(daemon, "ls", "--metadata", "kind").returncode == 2
    finally:
        for session in made.values():
            daemon.root.delete(f"{RUNTIME}/{session}")


def test_what_is_done_before(daemon, agent):
    ok(ctl(daemon, "exec", agent, "--", "sh", "-c", "mkdir cache; echo one >kept; echo two >cache/x"))
    sleeper = ok(ctl(daemon, "exec", "-d", agent, "--", "sleep", "1000")).strip()
    failed = ctl(daemon, "suspend", "--before", "exit 3", agent)
    assert failed.returncode == 4 and b"the command before ended with 3" in failed.stderr, failed
    late = ctl(daemon, "suspend", "--before", "sleep 1000", "-t", "500", agent, timeout=WAIT)
    assert late.returncode != 0 and b"did not end in time" in late.stderr, late
    done = ctl(daemon, "suspend", "--before", "cp kept cache/y", "--remove", "cache/x", "--remove", "none", "--signal", "all", "--grace", "5000",
               "--durable", "wait", agent, timeout=WAIT)
    assert ok(done) == "suspended\n"
    shown = rows(daemon, agent)
    assert shown["tree"] == "suspended" and shown["durable"] == "true" and shown["generation"] == "3"
    assert ok(ctl(daemon, "-o", "name", "ls", "--status", "suspended")).split() == [agent]
    resumed = ctl(daemon, "resume", agent)
    assert ok(resumed) == "open\n" and resumed.stderr == b""
    assert ok(ctl(daemon, "-o", "name", "ls", "--status", "suspended")) == ""
    assert ok(ctl(daemon, "exec", agent, "--", "sh", "-c", "ls cache")) == "y\n"
    ended = json.loads(ok(ctl(daemon, "-o", "json", "ps", agent)))
    assert [one["exit"]["signal"] for one in ended if one["command_id"] == sleeper] == [15]


def test_what_there_is_none_of(daemon, agent):
    shown = rows(daemon, agent)
    assert (shown["metadata"], shown["workspace"], shown["components"]) == ("-", "-", "-"), shown


def test_wrong_words_are_2(daemon, agent):
    for words in (("--grace", "60001"), ("--grace", "1s"), ("-t", "5"), ("--depth", "1")):
        result = ctl(daemon, "suspend", *words, agent)
        assert result.returncode == 2 and result.stderr, words
    refused = ctl(daemon, "suspend", "--signal", "some", agent)
    assert refused.returncode == 4 and b"signal_commands" in refused.stderr
    assert ctl(daemon, "suspend", "--before", b"\xff".decode(errors="surrogateescape"), agent).returncode == 2
    assert ctl(daemon, "suspend", "--remove", b"\xff".decode(errors="surrogateescape"), agent).returncode == 2


def test_who_stands_still_says_how_it_goes_on(daemon, agent, tmp_path):
    assert ok(ctl(daemon, "suspend", "--durable", "never", agent)) == "suspended\n"
    (tmp_path / "file").write_text("x")
    for words in (("exec", agent, "--", "true"), ("cp", str(tmp_path / "file"), f"{agent}:file"), ("git", "status", f"{agent}:."),
                  ("shell", agent)):
        result = ctl(daemon, *words)
        assert result.returncode == 4, result
        assert f"let it go on with: sandboxctl resume {agent}\n" in result.stderr.decode(), result
    ok(ctl(daemon, "resume", agent))


def test_a_stop_of_the_service_loses_processes(daemon, agent):
    ok(ctl(daemon, "exec", agent, "--", "sh", "-c", "echo one >kept"))
    ok(ctl(daemon, "suspend", "--durable", "wait", agent, timeout=WAIT))
    daemon.stop()
    daemon.start()
    wait_until(lambda: daemon.readiness() == 200, 30, "ready")
    resumed = ctl(daemon, "resume", agent, timeout=WAIT)
    assert ok(resumed) == "open\n" and b"its processes were lost" in resumed.stderr, resumed
    assert ok(ctl(daemon, "exec", agent, "--", "cat", "kept")) == "one\n"
    # The second one finds it running; with -q there are results only.
    assert ctl(daemon, "-q", "resume", agent).stderr == b""


def test_features_are_those_of_the_routes(daemon):
    told = daemon.root.get("/v1/capabilities").json
    described = daemon.root.get("/openapi.json").json
    listed = described["components"]["schemas"]["Capabilities"]["properties"]["features"]["items"]["enum"]
    assert told["features"] == listed and len(set(listed)) == len(listed)
    # Each sub-resource of a sandbox is of some feature, mostly of its own name.
    own = {path.split("/")[4] for path in described["paths"] if path.startswith("/v1/sandboxes/{id}/")}
    other = {"timeout": "sandboxes", "resume": "suspend", "restore": "snapshots", "trace": "proof"}
    assert {other.get(name, name) for name in own} <= set(listed), own
    assert {"dagster", "commands", "streams", "pty", "files", "watch", "git", "snapshots", "suspend"} <= set(listed)
    assert told["store"] == ("postgresql" if "dsn =" in daemon.config.read_text() else "sqlite")
