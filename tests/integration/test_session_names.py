"""Names of sessions: whose they are, how long they are taken, and where sandboxctl takes them."""
import json
import subprocess
import threading

import pytest

from harness import BIN, PATIENCE, RUNTIME, SESSIONS, ctl

TAKEN = {"detail": "a session of this name exists"}
PREFIXES = {"dagster": (SESSIONS, "id"), "runtime": (RUNTIME, "sandbox_uuid")}


@pytest.fixture
def own(daemon):
    """make(client, name, ...) -> id; all that were made are gone afterwards."""
    made = []

    def make(client, name, kind="dagster"):
        prefix, key = PREFIXES[kind]
        answer = client.post(prefix, {"name": name})
        assert answer.status == 201, answer
        made.append(answer.json[key])
        return answer.json[key]

    yield make
    for session in made:
        daemon.root.delete(f"{SESSIONS}/{session}")


def names(client, query=""):
    return [(s["id"], s["sandbox"]["name"]) for s in client.get(SESSIONS + query).json]


def test_a_name_is_shown_and_filters_the_list(alice, bob, carol, own, session):
    web = own(alice, "web")
    db = own(alice, "db.1", "runtime")
    assert alice.get(f"{SESSIONS}/{web}").json["sandbox"]["name"] == "web"
    assert alice.get(f"{RUNTIME}/{db}").json["name"] == "db.1"
    assert alice.get(f"{RUNTIME}/{session}").json["name"] is None
    assert set(names(alice)) == {(web, "web"), (db, "db.1"), (session, None)}
    assert names(alice, "?name=web") == names(carol, "?name=web") == [(web, "web")]
    assert names(alice, "?name=web&status=running") == names(bob, "?name=web") == []
    assert list(alice.get(f"{SESSIONS}/{web}").json)[-1] == "sandbox"


@pytest.mark.parametrize("kind", sorted(PREFIXES))
@pytest.mark.parametrize("name", ["", "Web", ".web", "we b", "w\u0000", "cafe", "0123-4567", "x" * 64, 7, ["web"]])
def test_what_is_no_name_is_refused(alice, kind, name):
    answer = alice.post(PREFIXES[kind][0], {"name": name})
    assert answer.status == 422 and [e["loc"] for e in answer.json["detail"]] == [["body", "name"]], answer
    assert names(alice) == []


def test_no_name_and_a_name_that_no_list_can_have(alice):
    made = alice.create(name=None)
    assert names(alice) == [(made, None)]
    alice.remove(made)
    answer = alice.get(SESSIONS + "?name=CAFE")
    assert answer.status == 422 and answer.json["detail"][0]["loc"] == ["query", "name"]


def test_a_name_is_unique_for_its_owner_only(alice, bob, carol, root, own):
    first = own(alice, "web")
    for prefix, _ in PREFIXES.values():
        answer = alice.post(prefix, {"name": "web"})
        assert answer.status == 409 and answer.json["detail"] == TAKEN["detail"]
    others = {own(client, "web") for client in (bob, carol, root)}
    assert len(others | {first}) == 4
    assert root.post(SESSIONS, {"name": "web"}).status == 409
    alice.remove(first)
    assert own(alice, "web") != first


def test_of_creates_at_the_same_time_one_has_the_name(daemon, alice):
    answers = []
    start = threading.Barrier(6)

    def create():
        client = daemon.client("alice", workspace="blue")
        start.wait()
        answers.append(client.post(SESSIONS, {"name": "race"}))

    threads = [threading.Thread(target=create) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(a.status for a in answers) == [201] + [409] * 5
    made = next(a.json["id"] for a in answers if a.status == 201)
    assert names(alice) == [(made, "race")]
    alice.remove(made)


def test_a_name_outlives_the_trees_and_the_service(private):
    caller = private.client("alice")
    session = caller.create(name="kept")
    assert private.stop() == 0
    private.start()
    assert names(caller, "?name=kept") == [(session, "kept")]
    assert caller.post(SESSIONS, {"name": "kept"}).json == TAKEN
    assert caller.run(session, "/bin/true").code == 0  # rebuilt
    assert caller.get(f"{SESSIONS}/{session}").json["sandbox"]["name"] == "kept"
    caller.remove(session)
    assert caller.post(SESSIONS, {"name": "kept"}).status == 201


def test_sandboxctl_takes_names(daemon):
    made = ctl(daemon, "create", "--name", "work").stdout.decode().strip()
    assert json.loads(ctl(daemon, "-o", "json", "show", "work").stdout)["id"] == made
    assert ctl(daemon, "exec", "work", "--", "/bin/echo", "work").stdout == b"work\n"
    assert ctl(daemon, "write", "-n", "a", "work", "-", stdin=b"type: a.B\n").returncode == 0
    table = ctl(daemon, "ls").stdout.decode().splitlines()
    assert table[0].split()[:3] == ["ID", "NAME", "STATUS"] and table[1].split()[:3] == [made, "work", "open"]
    offered = subprocess.run([str(BIN / "sandboxctl"), "__complete", "-S", str(daemon.operator), "show", "wo"],
                             capture_output=True, timeout=30 * PATIENCE, check=True)
    assert offered.stdout == b"work\topen\n"
    again = ctl(daemon, "run", "-n", "work", "--", "/bin/true")
    assert again.returncode == 4 and b"a session of this name exists" in again.stderr
    missing = ctl(daemon, "rm", "work", "none.such")
    assert missing.returncode == 3 and b"no session of the name none.such" in missing.stderr
    assert ctl(daemon, "rm", "work").returncode == 0
    assert ctl(daemon, "show", "work").returncode == 3


def test_sandboxctl_takes_the_callers_own_or_the_only_one(daemon, alice, carol, own):
    as_carol = ("--user", "carol", "--workspace", "blue", "--scopes", "data:read data:write")
    first = own(alice, "shared.name")
    # Visible, but not hers: `rm` must not end it.
    foreign = ctl(daemon, *as_carol, "rm", "shared.name", socket_path=daemon.control)
    assert foreign.returncode == 3 and b"no session of the name shared.name" in foreign.stderr
    assert ctl(daemon, "-o", "name", "show", "shared.name").stdout.decode().split() == [first]
    second = own(carol, "shared.name")
    hers = ctl(daemon, *as_carol, "-o", "name", "show", "shared.name", socket_path=daemon.control)
    assert hers.stdout.decode().split() == [second], hers
    several = ctl(daemon, "rm", "shared.name")
    assert several.returncode == 2 and b"is the name of several sessions" in several.stderr
    assert first.encode() in several.stderr and second.encode() in several.stderr
    assert names(alice, "?name=shared.name") == [(second, "shared.name"), (first, "shared.name")]
